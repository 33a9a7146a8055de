//! Curves in a terminal: of braille dots where there are characters for them, else of letters.

use super::columns::columns;
use super::numbers::figure;

/// A curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What it is called. It has been made visible.
    pub name: String,
    /// Places from left to right, and values. What is not finite is left out.
    pub points: Vec<(f64, f64)>,
}

/// How curves are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Columns of the whole, at least 24.
    pub width: usize,
    /// Lines of the curves themselves.
    pub height: usize,
    /// There are more than the characters of ASCII.
    pub unicode: bool,
    /// There are colours.
    pub color: bool,
    /// Equal distances are equal ratios; values that are not above 0 are left out.
    pub log: bool,
}

/// Colours of curves, and what they are drawn with where there are none: the first curve has the first.
const COLORS: [&str; 6] = ["36", "33", "35", "32", "31", "34"];
const MARKS: [char; 6] = ['*', 'o', '+', 'x', '#', '@'];
/// Dots of a braille character, by row and column.
const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

/// The range of values, as it is drawn.
#[derive(Debug, Clone, Copy)]
struct Range {
    low: f64,
    high: f64,
    log: bool,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>, log: bool) -> Option<Range> {
        let scale = |v: f64| if log { v.log10() } else { v };
        let (low, high) = values
            .map(scale)
            .filter(|v| v.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            return None;
        }
        // A flat curve lies in the middle.
        let room = if low < high { 0.0 } else { (low.abs() * 0.05).max(1e-9) };
        Some(Range { low: low - room, high: high + room, log })
    }

    /// Where a value lies, from 0 to 1.
    fn share(&self, value: f64) -> Option<f64> {
        let value = if self.log { value.log10() } else { value };
        // Halves: the distance of the largest numbers is no number.
        let share = (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        share.is_finite().then(|| share.clamp(0.0, 1.0))
    }

    fn at(&self, share: f64) -> f64 {
        let value = self.low * (1.0 - share) + self.high * share;
        if self.log { 10f64.powf(value) } else { value }
    }
}

/// The dots of the curves, line by line from above.
struct Canvas {
    wide: usize,
    high: usize,
    /// Dots of a character: how many across, and down.
    dots: [usize; 2],
    cells: Vec<(u8, Option<usize>)>,
}

impl Canvas {
    fn set(&mut self, x: usize, y: usize, series: usize) {
        let (column, line) = (x / self.dots[0], y / self.dots[1]);
        let Some(cell) = self.cells.get_mut(line * self.wide + column) else { return };
        cell.0 |= DOTS[y % self.dots[1]][x % self.dots[0]];
        cell.1 = Some(series);
    }

    /// All dots from one to the other.
    fn line(&mut self, from: (usize, usize), to: (usize, usize), series: usize) {
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
        let between = |a: usize, b: usize, k: usize| {
            let share = k as f64 / steps as f64;
            (a as f64 * (1.0 - share) + b as f64 * share).round() as usize
        };
        for k in 0..=steps {
            self.set(between(from.0, to.0, k), between(from.1, to.1, k), series);
        }
    }

    fn row(&self, line: usize, look: &Look, marks: bool) -> String {
        let mut out = String::new();
        let mut colored = None;
        for (bits, series) in &self.cells[line * self.wide..(line + 1) * self.wide] {
            let color = series.filter(|_| look.color).map(|series| COLORS[series % COLORS.len()]);
            if color != colored {
                out.push_str(&color.map_or("\u{1b}[0m".into(), |color| format!("\u{1b}[{color}m")));
                colored = color;
            }
            out.push(match series {
                None => ' ',
                Some(series) if marks => MARKS[series % MARKS.len()],
                Some(_) => char::from_u32(0x2800 + u32::from(*bits)).unwrap_or('.'),
            });
        }
        if colored.is_some() {
            out.push_str("\u{1b}[0m");
        }
        out.trim_end().to_owned()
    }
}

/// The curves with their values on the left and the places below, and what they are called above; a line each. No line is longer
/// than the width but for names.
pub fn chart(series: &[Series], look: &Look) -> Vec<String> {
    let all = || series.iter().flat_map(|s| &s.points);
    let drawn = |(x, y): &&(f64, f64)| x.is_finite() && y.is_finite() && (!look.log || *y > 0.0);
    let x = Range::of(all().filter(drawn).map(|p| p.0), false);
    let y = Range::of(all().filter(drawn).map(|p| p.1), look.log);
    let (Some(x), Some(y)) = (x, y) else {
        return vec!["there is nothing to draw: no value is a number that can be drawn".into()];
    };
    // Without colours letters say whose a dot is.
    let marks = !look.unicode || !look.color && series.len() > 1;
    let high = look.height.max(4);
    let ticks: Vec<usize> = (0..high).step_by(4.min(high - 1)).chain([high - 1]).collect();
    let label = |line: usize| figure(y.at(1.0 - line as f64 / (high - 1) as f64), 4, 8);
    let margin = ticks.iter().map(|line| label(*line).len()).max().unwrap_or(0);
    let wide = look.width.max(24) - margin - 2;
    let dots = if marks { [1, 1] } else { [2, 4] };
    let mut canvas = Canvas { wide, high, dots, cells: vec![(0, None); wide * high] };
    let size = [canvas.wide * dots[0] - 1, canvas.high * dots[1] - 1];
    for (number, series) in series.iter().enumerate() {
        let place = |(px, py): &(f64, f64)| {
            let (x, y) = (x.share(*px)?, y.share(*py)?);
            Some(((x * size[0] as f64).round() as usize, ((1.0 - y) * size[1] as f64).round() as usize))
        };
        let mut before = None;
        for point in series.points.iter().filter(drawn) {
            let Some(at) = place(point) else { continue };
            canvas.line(before.unwrap_or(at), at, number);
            before = Some(at);
        }
    }
    let mut out = legend(series, look, marks);
    let bar = if look.unicode { ['┤', '│', '└', '─'] } else { ['|', '|', '+', '-'] };
    for line in 0..high {
        let (text, side) = if ticks.contains(&line) { (label(line), bar[0]) } else { (String::new(), bar[1]) };
        out.push(format!("{text:>margin$} {side}{}", canvas.row(line, look, marks)));
    }
    let axis = bar[3].to_string().repeat(wide);
    out.push(format!("{:margin$} {}{axis}", "", bar[2]));
    let (first, last) = (figure(x.low, 0, 9), figure(x.high, 0, 9));
    let gap = (wide + 1).saturating_sub(first.len() + last.len());
    out.push(format!("{:margin$} {first}{}{last}", "", " ".repeat(gap)));
    out
}

/// What the curves are called, in as many lines as that takes.
fn legend(series: &[Series], look: &Look, marks: bool) -> Vec<String> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for (number, series) in series.iter().enumerate() {
        let sign = if marks { MARKS[number % MARKS.len()].to_string() } else { "━━".into() };
        let wide = columns(&sign) + 1 + columns(&series.name);
        let sign = if look.color { format!("\u{1b}[{}m{sign}\u{1b}[0m", COLORS[number % COLORS.len()]) } else { sign };
        let text = format!("{sign} {}", series.name);
        match lines.last_mut() {
            Some((line, used)) if *used + 3 + wide <= look.width => {
                line.push_str(&format!("   {text}"));
                *used += 3 + wide;
            }
            _ => lines.push((text, wide)),
        }
    }
    lines.into_iter().map(|(line, _)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look { width: 30, height: 5, unicode: false, color: false, log: false };

    fn series(points: &[(f64, f64)]) -> Series {
        Series { name: "loss".into(), points: points.to_vec() }
    }

    #[test]
    fn a_line_goes_from_corner_to_corner() {
        let text = chart(&[series(&[(0.0, 0.0), (100.0, 2.0)])], &LOOK).join("\n");
        let expected = "* loss\n2.0000 |                   ***\n       |              *****\n       |        ******\n       |   *****\n0.0000 |***\n       +----------------------\n       0                   100";
        assert_eq!(text, expected, "\n{text}");
        let braille = Look { unicode: true, ..LOOK };
        let lines = chart(&[series(&[(0.0, 0.0), (100.0, 2.0)])], &braille);
        assert!(
            lines[0] == "━━ loss" && lines[1].ends_with('⠁') | lines[1].ends_with('⠉') | lines[1].ends_with('⠊'),
            "{lines:#?}"
        );
        assert!(lines.iter().all(|line| columns(line) <= 30), "{lines:#?}");
    }

    #[test]
    fn ratios_are_distances_where_that_is_asked_for() {
        let points = [(0.0, 1.0), (1.0, 0.1), (2.0, 0.01), (3.0, -1.0), (4.0, 0.0)];
        let lines = chart(&[series(&points)], &Look { log: true, ..LOOK });
        let labels: Vec<&str> = lines[1..6].iter().filter_map(|line| line.split('|').next()).map(str::trim).collect();
        assert_eq!(labels, ["1.0000", "", "", "", "0.0100"]);
        assert_eq!(lines.last().unwrap().trim_start().chars().last(), Some('2'), "what cannot be drawn takes no room");
    }

    #[test]
    fn whatever_is_given_is_drawn_within_its_width() {
        let odd = [f64::NAN, f64::INFINITY, f64::MAX, f64::MIN, 0.0, 1e-300, -3.5];
        for a in odd {
            for b in odd {
                for look in [LOOK, Look { unicode: true, color: true, log: true, width: 1, height: 0 }] {
                    let lines = chart(&[series(&[(a, b), (b, a)]), series(&[(1.0, a)])], &look);
                    let plain = |line: &String| {
                        let pieces = line.split('\u{1b}').enumerate();
                        pieces.map(|(i, p)| if i == 0 { p } else { p.split_once('m').unwrap().1 }).collect::<String>()
                    };
                    let most = look.width.max(66);
                    assert!(lines.iter().map(plain).all(|line| columns(&line) <= most), "{a} {b}: {lines:#?}");
                }
            }
        }
        assert_eq!(chart(&[], &LOOK).len(), 1);
    }

    #[test]
    fn curves_are_distinguished() {
        let two =
            [series(&[(0.0, 0.0), (1.0, 0.0)]), Series { name: "other".into(), points: vec![(0.0, 1.0), (1.0, 1.0)] }];
        let text = chart(&two, &Look { unicode: true, ..LOOK }).join("\n");
        assert!(text.contains("* loss   o other") && text.contains("ooo") && text.contains("***"), "{text}");
        let colored = chart(&two, &Look { unicode: true, color: true, ..LOOK }).join("\n");
        assert!(
            colored.contains("\u{1b}[36m") && colored.contains("\u{1b}[33m") && !colored.contains('*'),
            "{colored}"
        );
    }
}
