//! What an evaluation says of classes: a table, and which were taken for which, in the width of a terminal.

use crate::terminal::{columns, fitted, one_line, percent, thousands, visible};
use crate::train::setup::class_report::{ClassCount, ClassReport};
use serde_json::{Map, Value, json};

/// Most classes of which the table has all; of more it has those that are found worst.
const MOST_ROWS: usize = 50;

/// Rows of the table of the worst, and of pairs that are confused.
const WORST: usize = 20;
const PAIRS: usize = 10;

/// Most characters of a name.
const LONGEST_NAME: usize = 30;

/// The name of a class; its number, where it has none.
fn name(names: Option<&[String]>, class: usize) -> String {
    names.and_then(|names| names.get(class)).map_or_else(|| class.to_string(), |name| one_line(&visible(name)))
}

/// The table and the picture, in at most `width` columns.
pub(super) fn text(report: &ClassReport, names: Option<&[String]>, positions: bool, width: usize) -> String {
    let parts = [Some(table(report, names, positions, width)), confusion(report, names, width)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

/// A row of figures: what there is nothing to compute from is a dash.
fn row(name: &str, wide: usize, figures: &[Option<f64>], count: u64) -> String {
    let cell = |figure: &Option<f64>| figure.map_or("-".to_owned(), percent);
    let cells: String = figures.iter().map(|figure| format!("  {:>9}", cell(figure))).collect();
    format!("{}{cells}  {:>9}", fitted(name, wide), thousands(count))
}

fn table(report: &ClassReport, names: Option<&[String]>, positions: bool, width: usize) -> String {
    let (each, n) = (&report.classes, report.classes.len());
    let what = if report.labels { "label" } else { "class" };
    let mut shown: Vec<usize> = (0..n).collect();
    let mut out = String::new();
    if n > MOST_ROWS {
        // Those that do not occur say nothing.
        shown.retain(|class| each[*class].f1().is_some());
        let rarely = |class: &usize| std::cmp::Reverse(each[*class].targets);
        shown.sort_by_key(rarely);
        shown.sort_by(|a, b| each[*a].f1().partial_cmp(&each[*b].f1()).unwrap_or(std::cmp::Ordering::Equal));
        shown.truncate(WORST);
        let (shown, n) = (shown.len(), thousands(n as u64));
        out.push_str(&format!("the {shown} of {n} {} with the lowest F1; --json has all\n", plural(what)));
    }
    let heads = ["precision", "recall", "F1", "IoU"];
    let shows = if positions { 4 } else { 3 };
    let averages = ["macro average", "weighted average"];
    let longest = shown.iter().map(|class| columns(&name(names, *class))).max().unwrap_or_default();
    let room = width.saturating_sub(11 * (shows + 1)).max(averages[1].len());
    let wide = longest.clamp(averages[1].len(), LONGEST_NAME).min(room);
    let cut: Vec<String> = shown.iter().map(|class| fitted(&name(names, *class), wide)).collect();
    let are_distinct = (0..cut.len()).all(|i| !cut[..i].contains(&cut[i]));
    // Names that are cut to the same letters would not be distinct.
    let named = |class: usize| match are_distinct {
        true => name(names, class),
        false => format!("{class} {}", name(names, class)),
    };
    out.push_str(&fitted(what, wide));
    heads[..shows].iter().for_each(|head| out.push_str(&format!("  {head:>9}")));
    out.push_str(&format!("  {:>9}\n", "number"));
    let figures = |class: &ClassCount| [class.precision(), class.recall(), class.f1(), class.iou()];
    for class in shown {
        out.push_str(&row(&named(class), wide, &figures(&each[class])[..shows], each[class].targets));
        out.push('\n');
    }
    let all: [fn(&ClassCount) -> Option<f64>; 4] =
        [ClassCount::precision, ClassCount::recall, ClassCount::f1, ClassCount::iou];
    let mean = all[..shows].iter().map(|of| Some(report.mean(of))).collect::<Vec<_>>();
    let weighted = all[..shows].iter().map(|of| Some(report.weighted(of))).collect::<Vec<_>>();
    for (name, figures) in averages.iter().zip([mean, weighted]) {
        out.push_str(&row(name, wide, &figures, report.targets()));
        out.push('\n');
    }
    out.trim_end().to_owned()
}

fn plural(what: &str) -> &'static str {
    if what == "label" { "labels" } else { "classes" }
}

/// The matrix, if it fits; else the pairs that are confused most.
fn confusion(report: &ClassReport, names: Option<&[String]>, width: usize) -> Option<String> {
    let matrix = report.matrix.as_deref().filter(|_| report.classes.len() > 1)?;
    Some(picture(report, matrix, names, width).unwrap_or_else(|| pairs(report, names, width)))
}

/// Rows are classes, columns what they were taken for; a point is none. `None` if it does not fit.
fn picture(report: &ClassReport, matrix: &[u64], names: Option<&[String]>, width: usize) -> Option<String> {
    let n = report.classes.len();
    let digits = matrix.iter().max()?.to_string().len();
    let names: Vec<String> = (0..n).map(|class| name(names, class)).collect();
    let longest = names.iter().map(|name| columns(name)).max()?;
    let rows = longest.min(LONGEST_NAME).min((width / 4).max(4)).max("class".len());
    let cell = (width.checked_sub(rows)? / n).checked_sub(1)?;
    if cell < digits {
        return None;
    }
    let cell = cell.min(longest.clamp(digits, 10));
    let short: Vec<String> = names.iter().map(|name| fitted(name, cell).trim_end().to_owned()).collect();
    let are_distinct = (0..n).all(|i| !short[..i].contains(&short[i]));
    let (heads, names) = match are_distinct {
        true => (short, names),
        false => (
            (0..n).map(|i| i.to_string()).collect(),
            names.iter().enumerate().map(|(i, n)| format!("{i} {n}")).collect(),
        ),
    };
    if heads.iter().any(|head| columns(head) > cell) {
        return None;
    }
    let mut out = "rows are the classes, columns what they were taken for\n".to_owned();
    let line = |first: &str, cells: Vec<String>| {
        let padded = |text: &String| {
            let used = columns(text);
            format!(" {}{text}", " ".repeat(cell.saturating_sub(used)))
        };
        format!("{}{}\n", fitted(first, rows), cells.iter().map(padded).collect::<String>())
    };
    out.push_str(&line("class", heads));
    for (class, counts) in matrix.chunks(n).enumerate() {
        let cells = counts.iter().map(|n| if *n == 0 { ".".into() } else { n.to_string() }).collect();
        out.push_str(&line(&names[class], cells));
    }
    Some(out.trim_end().to_owned())
}

fn pairs(report: &ClassReport, names: Option<&[String]>, width: usize) -> String {
    let list = report.most_confused(PAIRS);
    if list.is_empty() {
        return "no class was taken for another".into();
    }
    let mut out = "most often taken for another:\n".to_owned();
    for (is, taken, count) in list {
        let numbers = format!(": {} of {}", thousands(count), thousands(report.classes[is].targets));
        let room = width.saturating_sub("   taken for ".len() + numbers.len()) / 2;
        let [is, taken] = [is, taken].map(|class| fitted(&name(names, class), room).trim_end().to_owned());
        out.push_str(&format!("  {is} taken for {taken}{numbers}\n"));
    }
    out.trim_end().to_owned()
}

/// The same for programs: what there is nothing to compute from is null.
pub(super) fn add_json(out: &mut Value, report: &ClassReport, names: Option<&[String]>) {
    let each = report.classes.iter().enumerate().map(|(class, count)| {
        let mut one = Map::new();
        one.insert(if report.labels { "label" } else { "class" }.into(), class.into());
        if let Some(name) = names.and_then(|names| names.get(class)) {
            one.insert("name".into(), name.as_str().into());
        }
        let figures = [count.precision(), count.recall(), count.f1(), count.iou()];
        one.extend(["precision", "recall", "f1", "iou"].map(String::from).into_iter().zip(figures.map(|f| json!(f))));
        one.insert("support".into(), count.targets.into());
        one.insert("predicted".into(), count.predicted.into());
        Value::Object(one)
    });
    out["per_class"] = each.collect();
    if let Some(matrix) = &report.matrix {
        out["confusion_matrix"] = json!(matrix.chunks(report.classes.len().max(1)).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{ClassCounts, Counted, RANKS};

    /// Of a matrix, target by target.
    fn report(matrix: &[&[u32]]) -> ClassReport {
        let n = matrix.len();
        let mut counts = vec![0.0; RANKS + 3 * n + n * n];
        for (is, row) in matrix.iter().enumerate() {
            for (taken, count) in row.iter().enumerate() {
                let count = f64::from(*count);
                counts[usize::from(is != taken)] += count;
                counts[RANKS + 3 * is] += if is == taken { count } else { 0.0 };
                counts[RANKS + 3 * taken + 1] += count;
                counts[RANKS + 3 * is + 2] += count;
                counts[RANKS + 3 * n + n * is + taken] = count;
            }
        }
        let of = Counted::Classes { ignore_index: None, matrix: true };
        ClassReport::new(&ClassCounts { of }, &counts)
    }

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn what_it_looks_like() {
        let report = report(&[&[8, 2, 0], &[1, 1199, 0], &[3, 0, 0]]);
        let names = named(&["cat", "dog", "a hedgehog\u{7} in its burrow, seen from afar"]);
        let expected = "\
class                           precision     recall         F1     number
cat                               66.67 %    80.00 %    72.73 %         10
dog                               99.83 %    99.92 %    99.88 %      1,200
a hedgehog\\x07 in its burro...          -     0.00 %     0.00 %          3
macro average                     55.50 %    59.97 %    57.53 %      1,213
weighted average                  99.31 %    99.51 %    99.40 %      1,213

rows are the classes, columns what they were taken for
class                       cat        dog a hedge...
cat                           8          2          .
dog                           1       1199          .
a hedgehog\\x07 in...          3          .          .";
        let shown = text(&report, Some(&names), false, 80);
        assert_eq!(shown, expected, "{shown}");
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        for n in [1, 2, 20, 21, 60, 100] {
            let rows: Vec<Vec<u32>> =
                (0..n).map(|i| (0..n).map(|j| if i == j { 500 } else { (i * j % 7) as u32 }).collect()).collect();
            let report = report(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let long: Vec<String> = (0..n).map(|i| format!("{}{i}", "名前\u{1b}x".repeat(50))).collect();
            let alike: Vec<String> = (0..n).map(|i| format!("class_{i}")).collect();
            for names in [None, Some(long.as_slice()), Some(alike.as_slice())] {
                for (width, positions) in [(80, false), (80, true), (72, true), (200, true)] {
                    let shown = text(&report, names, positions, width);
                    let widest = shown.lines().map(columns).max().unwrap_or(0);
                    assert!(widest <= width, "{n} classes, {widest} of {width}:\n{shown}");
                    assert!(!shown.contains('\u{1b}'));
                    let drawn = shown.contains("\nrows are the classes");
                    assert_eq!(drawn || shown.contains("\nmost often taken"), n > 1, "{shown}");
                    assert!(drawn || n != 2 && (n != 20 || width < 200), "{shown}");
                }
            }
        }
    }

    #[test]
    fn columns_of_names_that_are_cut_alike_are_numbered() {
        let alike: Vec<String> = (0..12).map(|i| format!("a long name {i}")).collect();
        let rows = vec![vec![1u32; 12]; 12];
        let shown = text(&report(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>()), Some(&alike), false, 80);
        assert!(shown.contains("\n11 a long n...") && shown.contains("    9   10   11\n"), "{shown}");
    }
}
