//! Pictures as SVG, in the colours of the page.

use super::html::escaped;
use crate::api::explain::{Dependence, Importance};
use crate::data::table::Decoded;
use crate::terminal::{columns, one_line, visible};

/// Outputs of which a curve is drawn.
pub const MOST_OUTPUTS: usize = 6;
/// Columns of a terminal that a name takes at most beside a bar.
const LONGEST: usize = 30;
/// The same of a value of a column.
const LONGEST_VALUE: usize = 16;
/// Places in the picture of bars: where names end, where bars are, where numbers begin; and the height of a row.
const NAMES: f64 = 232.0;
const BARS: (f64, f64) = (244.0, 560.0);
const NUMBERS: f64 = 572.0;
const WIDE: f64 = 720.0;
const ROW: f64 = 22.0;
/// The size of a small picture, and where its curve is.
const SMALL: (f64, f64) = (320.0, 180.0);
const INNER: (f64, f64, f64, f64) = (70.0, 12.0, 308.0, 148.0);
/// The width of the place of values of which each has a row, and the height of that.
const VALUES: f64 = 128.0;
const STEP: f64 = 17.0;

/// A name in at most so many columns of a terminal.
fn short(name: &str, most: usize) -> String {
    let name = one_line(&visible(name));
    if columns(&name) <= most {
        return name;
    }
    let mut out = String::new();
    for c in name.chars() {
        if columns(&out) + columns(c.encode_utf8(&mut [0; 4])) >= most {
            break;
        }
        out.push(c);
    }
    out + "…"
}

/// A text in a picture. What was cut of it is shown where the mouse is.
fn text(at: (f64, f64), anchor: &str, name: &str, most: usize) -> String {
    let (shown, whole) = (short(name, most), one_line(&visible(name)));
    let title = if shown == whole { String::new() } else { format!("<title>{}</title>", escaped(&whole)) };
    format!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}{title}</text>", at.0, at.1, escaped(&shown))
}

/// A picture of that size with a name.
fn picture((wide, high): (f64, f64), name: &str, content: &str) -> String {
    format!(
        "<svg class=\"picture\" viewBox=\"0 0 {wide} {high}\" role=\"img\" aria-label=\"{}\">\n{content}</svg>\n",
        escaped(&one_line(&visible(name)))
    )
}

/// The least and the largest of finite numbers, a little apart; `None` if there are none.
fn range(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = numbers.filter(|number| number.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    let apart = if high > low { 0.0 } else { 0.5 * low.abs().max(1e-6) };
    (low <= high).then_some((low - apart, high + apart))
}

/// A number of a range, among the places of another one.
fn placed(number: f64, (low, high): (f64, f64), (from, to): (f64, f64)) -> f64 {
    from + (number - low) / (high - low) * (to - from)
}

/// A bar for each column, with a line as long as the standard deviation to both sides of its end.
pub fn bars(all: &[Importance]) -> String {
    let ends = all.iter().flat_map(|one| [one.loss[0] - one.loss[1], one.loss[0] + one.loss[1]]);
    let Some(scale) = range(ends.chain([0.0])) else { return String::new() };
    let place = |number: f64| placed(number, scale, BARS);
    let (zero, high) = (place(0.0), ROW * all.len() as f64 + 8.0);
    let mut content =
        format!("<line class=\"axis\" x1=\"{zero:.1}\" x2=\"{zero:.1}\" y1=\"2\" y2=\"{:.1}\"/>\n", high - 2.0);
    for (at, one) in all.iter().enumerate() {
        let [mean, deviation] = one.loss;
        let middle = 4.0 + ROW * (at as f64 + 0.5);
        content += &text((NAMES, middle + 4.0), "end", &one.column, LONGEST);
        if mean.is_finite() && deviation.is_finite() {
            let (end, class) = (place(mean), if mean < 0.0 { "less" } else { "more" });
            content += &format!(
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/><path class=\"deviation\" d=\"M{:.1} {middle:.1}H{:.1}\"/>",
                zero.min(end),
                middle - 0.35 * ROW,
                (end - zero).abs().max(0.5),
                0.7 * ROW,
                place(mean - deviation),
                place(mean + deviation)
            );
        }
        let numbers = format!("{} ± {}", rounded(mean, 4), rounded(deviation, 2));
        content += &text((NUMBERS, middle + 4.0), "start", &numbers, LONGEST);
        content.push('\n');
    }
    picture((WIDE, high), "How much worse the model gets without each column", &content)
}

/// The least and the largest of what a model answers by the values of some columns.
pub fn scale_of<'a>(curves: impl Iterator<Item = &'a Dependence>) -> Option<(f64, f64)> {
    range(curves.flat_map(|one| one.outputs.iter().take(MOST_OUTPUTS).copied()))
}

/// What a model answers by the values of a column, on a scale: a line for each output where the values are numbers or dates, else a row for each value.
pub fn curve(name: &str, outputs: usize, values: &[Dependence], scale: (f64, f64)) -> String {
    let drawn = outputs.min(MOST_OUTPUTS);
    let number = |one: &Dependence| match one.value {
        Decoded::Number(number) | Decoded::Date(number) => Some(number),
        Decoded::Missing | Decoded::Truth(_) | Decoded::Text(_) | Decoded::Bucket(_) | Decoded::Other => None,
    };
    let title = format!("What the model answers by {name}");
    match range(values.iter().filter_map(number)) {
        Some(span) => picture(SMALL, &title, &line(drawn, values, number, (span, scale))),
        None => {
            let high = STEP * values.len() as f64 + 34.0;
            picture((SMALL.0, high), &title, &rows(drawn, values, scale, high))
        }
    }
}

/// A number with so many digits that count.
fn rounded(number: f64, digits: usize) -> String {
    let short: f64 = format!("{number:.*e}", digits - 1).parse().unwrap_or(number);
    let is_plain = short == 0.0 || (1e-4..1e7).contains(&short.abs()) || !short.is_finite();
    if is_plain { short.to_string() } else { format!("{short:e}") }
}

/// An end of a scale: one that is nearly 0 is that.
fn end_text(end: f64, (low, high): (f64, f64)) -> String {
    rounded(if end.abs() < 1e-4 * (high - low) { 0.0 } else { end }, 4)
}

/// A value of a column.
fn value_text(value: &Decoded) -> String {
    match value {
        Decoded::Number(number) => rounded(*number, 5),
        other => other.to_string(),
    }
}

/// A mark with its numbers, which are shown where the mouse is.
fn point((x, y): (f64, f64), output: usize, one: &Dependence) -> String {
    let title = format!("{}: {} ({} rows)", value_text(&one.value), rounded(one.outputs[output], 5), one.rows);
    format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"var(--c{output})\"><title>{}</title></circle>",
        escaped(&one_line(&visible(&title)))
    )
}

fn line(
    drawn: usize,
    values: &[Dependence],
    number: impl Fn(&Dependence) -> Option<f64>,
    (span, scale): ((f64, f64), (f64, f64)),
) -> String {
    let (left, top, right, bottom) = INNER;
    let others: Vec<&Dependence> = values.iter().filter(|one| number(one).is_none()).collect();
    // What is no number stands at the right, apart from the curve.
    let end = if others.is_empty() { right } else { right - 62.0 };
    let mut content = format!(
        "<path class=\"axis\" d=\"M{left} {top}V{bottom}H{right}\"/>{}{}",
        text((left - 4.0, top + 8.0), "end", &end_text(scale.1, scale), LONGEST_VALUE),
        text((left - 4.0, bottom), "end", &end_text(scale.0, scale), LONGEST_VALUE)
    );
    let known: Vec<(&Dependence, f64)> = values.iter().filter_map(|one| Some((one, number(one)?))).collect();
    for (at, anchor, x) in [(known.first(), "start", left), (known.last(), "end", end)] {
        let label = at.map_or(String::new(), |(one, _)| value_text(&one.value));
        content += &text((x, bottom + 16.0), anchor, &label, LONGEST_VALUE);
    }
    if let Some(one) = others.first() {
        content += &text((right, bottom + 16.0), "end", &value_text(&one.value), LONGEST_VALUE);
    }
    for output in 0..drawn {
        let height = |one: &Dependence| Some(one.outputs[output]).filter(|mean| mean.is_finite());
        let y = |mean: f64| placed(mean, scale, (bottom - 6.0, top + 4.0));
        let places = known
            .iter()
            .filter_map(|(one, x)| Some((*one, placed(*x, span, (left + 6.0, end - 4.0)), y(height(one)?))));
        let places: Vec<(&Dependence, f64, f64)> = places.collect();
        let path: String = places
            .iter()
            .enumerate()
            .map(|(at, (_, x, y))| format!("{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" }))
            .collect();
        content += &format!("<path class=\"curve\" d=\"{path}\" stroke=\"var(--c{output})\"/>");
        content.extend(places.iter().map(|(one, x, y)| point((*x, *y), output, one)));
        let apart = others.iter().filter_map(|one| Some(point((right - 26.0, y(height(one)?)), output, one)));
        content.extend(apart);
        content.push('\n');
    }
    content
}

fn rows(drawn: usize, values: &[Dependence], scale: (f64, f64), high: f64) -> String {
    let (from, to) = (VALUES + 8.0, SMALL.0 - 12.0);
    let mut content = format!(
        "<path class=\"axis\" d=\"M{from} 4V{:.1}H{to}\"/>{}{}\n",
        high - 24.0,
        text((from, high - 8.0), "start", &end_text(scale.0, scale), LONGEST_VALUE),
        text((to, high - 8.0), "end", &end_text(scale.1, scale), LONGEST_VALUE)
    );
    for (at, one) in values.iter().enumerate() {
        let y = 8.0 + STEP * (at as f64 + 0.5);
        content += &text((VALUES, y + 4.0), "end", &value_text(&one.value), LONGEST_VALUE);
        let finite = (0..drawn).filter(|output| one.outputs[*output].is_finite());
        content.extend(
            finite.map(|output| point((placed(one.outputs[output], scale, (from + 6.0, to - 4.0)), y), output, one)),
        );
        content.push('\n');
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count() {
        let numbers = [(340.9690, 4), (0.0, 4), (-0.012_94, 2), (9.6, 2), (1.03e-25, 5), (123_456_789.0, 3), (5.0, 5)];
        let expected = ["341", "0", "-0.013", "9.6", "1.03e-25", "1.23e8", "5"];
        assert_eq!(numbers.map(|(number, digits)| rounded(number, digits)), expected);
    }

    #[test]
    fn ends_of_scales_are_short() {
        assert_eq!([end_text(1.03e-25, (1.03e-25, 1.0)), end_text(450.485, (450.485, 451.0))], ["0", "450.5"]);
    }

    #[test]
    fn long_names_are_cut_and_shown_in_full_by_the_mouse() {
        assert_eq!(short("rooms", 30), "rooms");
        assert_eq!(short("名前名前", 6), "名前…");
        let drawn = text((0.0, 0.0), "end", "<b> & a name that goes on", 12);
        assert!(drawn.contains(">&lt;b&gt; &amp; a nam…<title>&lt;b&gt; &amp; a name that goes on</title>"), "{drawn}");
    }

    #[test]
    fn what_is_no_number_is_not_drawn() {
        let one = |column: &str, loss: [f64; 2]| Importance { column: column.into(), loss, accuracy: [f64::NAN; 2] };
        let all = [one("a", [2.0, 0.5]), one("b", [-1.0, 0.0]), one("c", [f64::NAN, f64::NAN])];
        let drawn = bars(&all);
        assert_eq!((drawn.matches("<rect").count(), drawn.matches("class=\"less\"").count()), (2, 1), "{drawn}");
        assert!(!drawn.contains("=\"NaN") && drawn.contains("NaN ± NaN"), "{drawn}");
        let value = |value, mean| Dependence { value, rows: 3, outputs: vec![mean] };
        let values =
            [value(Decoded::Number(1.0), 2.0), value(Decoded::Number(1.0), f64::NAN), value(Decoded::Missing, 4.0)];
        let scale = scale_of(values.iter()).unwrap();
        assert_eq!(scale, (2.0, 4.0));
        let drawn = curve("x", 1, &values, scale);
        assert!(drawn.matches("<circle").count() == 2 && !drawn.contains("NaN"), "{drawn}");
        assert!(scale_of([value(Decoded::Missing, f64::NAN)].iter()).is_none());
    }
}
