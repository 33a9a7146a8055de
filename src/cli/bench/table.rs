//! The operations of a profile as a table.

use crate::terminal::{columns, fitted};
use std::fmt::Write;

/// What each column is called. The last four are numbers, as is the first.
const HEAD: [&str; 8] = ["ms", "operation", "", "layer", "GFLOP/s", "of peak", "MB", "GB/s"];
/// Where the two columns of words stand, which have the room that the others leave.
const OP: usize = 1;
const SIDE: usize = 2;
const LAYER: usize = 3;
/// Columns of a word that is cut, at least.
const LEAST: usize = 8;
/// So many rows are shown, whatever they take.
const SHOWN: usize = 20;
/// The share of the time from which on a row after those is shown, too.
const SHARE: f64 = 0.01;

/// One row.
pub struct Line {
    /// As [`HEAD`] has them.
    pub cells: [String; 8],
    /// The first of them, as a number.
    pub ms: f64,
}

/// All rows, as long as they are.
pub fn wide(lines: impl Iterator<Item = Line> + Clone) -> String {
    let width = lines.clone().map(|line| line.cells[OP].len()).max().unwrap_or(0);
    let mut text = String::new();
    for cells in std::iter::once(HEAD.map(str::to_string)).chain(lines.map(|line| line.cells)) {
        let [ms, op, side, layer, gflops, share, mb, gbs] = cells;
        let line = format!("  {ms:>9}  {op:<width$} {side:<9} {layer:<28} {gflops:>8} {share:>8} {mb:>9} {gbs:>8}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Rows that stand for so many operations each, the slowest first, of which small ones become one line. All take `sum` milliseconds.
pub fn folded(groups: Vec<(usize, Line)>, sum: f64) -> Vec<Line> {
    let shown = groups.iter().enumerate().filter(|(at, (_, line))| *at < SHOWN || line.ms >= SHARE * sum).count();
    // One line is no shorter than the one row that it stands for.
    let shown = if groups.len() <= shown + 1 { groups.len() } else { shown };
    let (many, ms) = groups[shown..].iter().fold((0, 0.0), |(many, ms), (n, line)| (many + n, ms + line.ms));
    let mut rest = Line { cells: Default::default(), ms };
    (rest.cells[0], rest.cells[OP]) = (format!("{ms:.3}"), format!("{many} others"));
    let mut lines: Vec<Line> = groups
        .into_iter()
        .take(shown)
        .map(|(many, mut line)| {
            if many > 1 {
                line.cells[OP].insert_str(0, &format!("{many} × "));
            }
            line
        })
        .collect();
    if many > 0 {
        lines.push(rest);
    }
    lines
}

/// Rows in so many columns, where that is enough for the numbers: operations and layers are cut.
pub fn narrow(lines: &[Line], wide: usize) -> String {
    let head = HEAD.map(str::to_string);
    let rows = || std::iter::once(&head).chain(lines.iter().map(|line| &line.cells));
    let mut widths: [usize; 8] = std::array::from_fn(|at| rows().map(|cells| columns(&cells[at])).max().unwrap_or(0));
    // Two in front, two between the columns.
    let spaces = 2 + 2 * (HEAD.len() - 1);
    let numbers: usize = (0..HEAD.len()).filter(|at| ![OP, LAYER].contains(at)).map(|at| widths[at]).sum();
    let room = wide.saturating_sub(spaces + numbers).max(2 * LEAST);
    if widths[OP] + widths[LAYER] > room {
        let op = widths[OP].min((room / 2).max(room.saturating_sub(widths[LAYER])));
        (widths[OP], widths[LAYER]) = (op, room - op);
    }
    let mut text = String::new();
    for cells in rows() {
        let cells: Vec<String> = (0..HEAD.len())
            .map(|at| match at {
                OP | SIDE => fitted(&cells[at], widths[at]),
                LAYER => ending(&cells[at], widths[at]),
                _ => format!("{:>1$}", cells[at], widths[at]),
            })
            .collect();
        let _ = writeln!(text, "{}", format!("  {}", cells.join("  ")).trim_end());
    }
    text
}

/// The name of a layer in so many columns. Of a long one it keeps the end, which is the most specific part.
fn ending(name: &str, wide: usize) -> String {
    if columns(name) <= wide {
        return fitted(name, wide);
    }
    let mut kept = String::new();
    for c in name.chars().rev() {
        let more = format!("{c}{kept}");
        if columns(&more) + 3 > wide {
            break;
        }
        kept = more;
    }
    fitted(&format!("...{kept}"), wide)
}

/// One name for two layers: what differs is a `*`.
pub fn common(a: &str, b: &str) -> String {
    if a == b {
        return a.to_string();
    }
    // Parts between dots, so that `fc1` and `fc2` are not taken for one name.
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split('.').collect(), b.split('.').collect());
    let most = a.len().min(b.len());
    let front = (0..most).take_while(|at| a[*at] == b[*at]).count();
    let back = (0..most - front).take_while(|at| a[a.len() - 1 - at] == b[b.len() - 1 - at]).count();
    [&a[..front], &["*"], &a[a.len() - back..]].concat().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ms: f64, op: &str, layer: &str) -> Line {
        let cells = [&format!("{ms:.3}"), op, "backward", layer, "123456", "99 %", "1234.56", "123"];
        Line { cells: cells.map(str::to_string), ms }
    }

    #[test]
    fn small_rows_become_one() {
        let rows = |many: usize, ms: &dyn Fn(usize) -> f64| -> Vec<(usize, Line)> {
            (0..many).map(|at| (1 + at % 2, line(ms(at), "linear", "fc"))).collect()
        };
        // The 22nd and the 23rd take 0.5 % each, and one of them is two operations.
        let lines = folded(rows(23, &|at| if at < 21 { 99.0 / 21.0 } else { 0.5 }), 100.0);
        assert_eq!(lines.len(), 22);
        assert_eq!(lines[21].cells[..2], ["1.000", "3 others"]);
        assert_eq!([&lines[0].cells[OP], &lines[1].cells[OP]], ["linear", "2 × linear"]);
        // None of many is large: the first 20 are shown.
        assert_eq!(folded(rows(400, &|_| 0.25), 100.0).len(), 21);
        // A line for one row would save nothing.
        assert_eq!(folded(rows(21, &|at| if at < 20 { 5.0 } else { 0.01 }), 100.0).len(), 21);
        assert!(folded(rows(90, &|_| 100.0 / 90.0), 100.0).len() == 90, "each takes more than 1 %");
        assert!(folded(Vec::new(), 0.0).is_empty());
    }

    #[test]
    fn a_table_fits_its_terminal() {
        let lines = [
            line(1234.567, "conv2d + batch_norm + add + relu, in 3 parts", "backbone.layer1.0.downsample.conv1"),
            line(0.1, "linear", "名前名前名前名前名前名前名前名前名前名前名前"),
        ];
        // The numbers of these lines and eight columns for each name take 73.
        for wide in [73, 80, 100, 160] {
            let text = narrow(&lines, wide);
            assert!(text.lines().all(|line| columns(line) <= wide), "{wide}:\n{text}");
            assert_eq!(text.contains("backbone.layer1.0.downsample.conv1"), wide == 160, "{text}");
            assert!(text.contains("conv1  "), "the end of a name is kept: {text}");
        }
        // Numbers are not cut, however narrow it is.
        assert!(narrow(&lines, 10).contains("1234.567"));
    }

    #[test]
    fn names_have_stars_where_they_differ() {
        let patterns =
            [("a.0.fc", "a.1.fc"), ("a.*.fc", "a.12.fc"), ("fc1", "fc2"), ("", "fc"), ("a.b", "a.b.c"), ("a", "a")]
                .map(|(a, b)| common(a, b));
        assert_eq!(patterns, ["a.*.fc", "a.*.fc", "*", "*", "a.b.*", "a"]);
    }
}
