//! The page: its head, the comparison of all runs, and the sections of each.

use super::details::{Model, Setting, Timing};
use super::evaluation::{Evaluation, OF_A_PAIR, OF_ALL};
use super::explanation::explanation_html;
use super::html::{Table, data_url, escaped, json as in_script};
use super::texts::texts_html;
use super::{Lead, Part, Reported};
use crate::cli::human_bytes;
use crate::runs::Run;
use crate::runs::choose::best;
use crate::runs::curves::{Curve, curve};
use crate::runs::datum::figures;
use crate::runs::difference::{differences, shown};
use crate::runs::figure::{higher_is_better, is_share};
use crate::runs::folder::At;
use crate::runs::lines::number;
use crate::terminal::{duration, figure, percent, visible};
use crate::train::run::mistakes::{Mistake, SIDE};
use crate::train::setup::class_report::ClassReport;
use serde_json::{Value, json};

/// What draws the curves, with its licence.
const UPLOT: &str = include_str!("assets/uPlot.iife.min.js");
const UPLOT_CSS: &str = include_str!("assets/uPlot.min.css");
const UPLOT_LICENSE: &str = include_str!("assets/uPlot.LICENSE");
const SCRIPT: &str = include_str!("assets/report.js");
const STYLE: &str = include_str!("assets/report.css");

/// Points of a curve on the page; of more, some are left out evenly, the last is kept.
const MOST_POINTS: usize = 4000;
/// Classes whose matrix is shown whole.
const MOST_CLASSES: usize = 100;
/// Operations in the table of times.
const MOST_OPERATIONS: usize = 60;

/// The whole page.
pub fn page(all: &[Reported], lead: Option<&Lead>) -> String {
    let runs: Vec<&Run> = all.iter().map(|reported| &reported.run).collect();
    let names: Vec<String> = runs.iter().map(|run| run.path.display().to_string()).collect();
    let title = match (&names[..], lead) {
        (_, Some(lead)) => format!("{}: {}", lead.title, lead.caption),
        ([one], None) => format!("Run {one}"),
        (names, None) => format!("{} runs", names.len()),
    };
    let shown_title = escaped(&title);
    let mut body = String::new();
    let mut contents = vec![("overview".to_owned(), "Overview".to_owned()), ("curves-of".into(), "Curves".into())];
    if let Some(lead) = lead {
        contents.insert(0, ("lead".into(), lead.title.clone()));
        body += &lead_section(lead);
    }
    body += &overview(&runs);
    body += &curves_section(&runs);
    if runs.len() > 1 {
        contents.push(("differences".into(), "Differences".into()));
        body += &difference_section(&runs);
    }
    for (i, reported) in all.iter().enumerate() {
        contents.push((format!("run-{i}"), names[i].clone()));
        body += &run_section(i, &names[i], reported);
    }
    let links: String =
        contents.iter().map(|(at, text)| format!("<li><a href=\"#{at}\">{}</a></li>", escaped(text))).collect();
    let data = in_script(&curves_json(&runs));
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src \
         'unsafe-inline'; script-src 'unsafe-inline'\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{shown_title}</title>\n<style>\n\
         {UPLOT_CSS}\n{STYLE}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n<header>\n\
         <h1>{shown_title}</h1>\n<nav aria-label=\"Contents\"><ul>{links}</ul></nav>\n</header>\n<main id=\"main\">\n{body}</main>\n\
         <footer class=\"soft\">\n<p>Made by runner {version}.</p>\n<details><summary>Curves are drawn by uPlot: its licence</summary>\
         <pre>{}</pre></details>\n</footer>\n<script type=\"application/json\" id=\"curves\">{data}</script>\n<script>\n{UPLOT}\n</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        escaped(UPLOT_LICENSE)
    )
}

fn lead_section(lead: &Lead) -> String {
    let head: Vec<&str> = lead.head.iter().map(String::as_str).collect();
    let mut table = Table::new(&lead.caption, &head);
    lead.rows.iter().for_each(|row| table.row(row));
    let title = escaped(&lead.title);
    format!("<section aria-labelledby=\"lead\">\n<h2 id=\"lead\">{title}</h2>\n{}</section>\n", table.html())
}

fn formatted(name: &str, value: f64) -> String {
    if is_share(name) { percent(value) } else { figure(value, 5, 10) }
}

/// The best value of what a run watches, and when that was.
fn best_of(run: &Run) -> String {
    run.best.as_ref().map_or("–".into(), |best| {
        let at = best.at.map_or(String::new(), |at| format!(" at {at}"));
        format!("{} {}{at}", best.monitor, formatted(&best.monitor, best.value))
    })
}

fn overview(runs: &[&Run]) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in runs.iter().flat_map(|run| figures(run)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // The columns that distinguish runs stand before those that a small screen cuts off.
    let mut head: Vec<String> = ["run", "state", "best"].map(str::to_owned).to_vec();
    head.extend(names.iter().map(|name| format!("#{name}")));
    head.extend(["#epochs", "#updates", "#time", "#size"].map(str::to_owned));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new("State, best and last figures", &head);
    for run in runs {
        let mut cells = vec![run.path.display().to_string(), run.state.name().to_owned(), best_of(run)];
        let last =
            |name: &String| run.last().and_then(|line| number(line, name)).map_or("–".into(), |v| formatted(name, v));
        cells.extend(names.iter().map(last));
        cells.extend([
            run.progress(),
            crate::terminal::thousands(run.step),
            duration(run.seconds),
            human_bytes(usize::try_from(run.bytes).unwrap_or(usize::MAX)),
        ]);
        table.row(&cells);
    }
    let mut out = "<section aria-labelledby=\"overview\">\n<h2 id=\"overview\">Overview</h2>\n".to_owned();
    if let (true, Ok(run)) = (runs.len() > 1, best(runs.iter().copied())) {
        let name = escaped(&run.path.display().to_string());
        out += &format!("<p>The best run is <strong>{name}</strong>: {}.</p>\n", escaped(&best_of(run)));
    }
    out += &table.html();
    for run in runs {
        let name = escaped(&run.path.display().to_string());
        if let Some(why) = &run.why {
            out += &format!("<p class=\"soft\">{name}, {}: {}</p>\n", run.state.name(), escaped(why));
        }
        for note in &run.lines.notes {
            out += &format!("<p class=\"soft\">{name}: {}</p>\n", escaped(note));
        }
        if !run.lines.broken.is_empty() {
            let n = run.lines.broken.len();
            out += &format!(
                "<p class=\"soft\">{name}: {n} of the lines in metrics.jsonl cannot be read, and are left out.</p>\n"
            );
        }
    }
    out + "</section>\n"
}

/// The figures that are drawn: names, and for each the curves of runs.
fn drawn(runs: &[&Run]) -> Vec<(String, Vec<(String, Curve)>)> {
    let mut names: Vec<String> = Vec::new();
    for line in runs.iter().flat_map(|run| run.lines.epochs.iter().take(1).chain(run.lines.steps.iter().take(1))) {
        for name in line.iter().filter(|(_, v)| v.is_number() || v.is_null()).map(|(name, _)| name) {
            if !["epoch", "step"].contains(&name.as_str()) && !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    let all = |figure: &str| -> Vec<(String, Curve)> {
        let of = |(i, run): (usize, &&Run)| Some((run.path.display().to_string(), curve(run, i, figure)?));
        runs.iter().enumerate().filter_map(of).collect()
    };
    let mut out = Vec::new();
    // Training and validation in one picture, where a figure has both.
    for base in ["loss", "accuracy"] {
        let parts = [format!("train_{base}"), format!("val_{base}")].map(|name| (name.clone(), all(&name)));
        let curves: Vec<(String, Curve)> = parts
            .iter()
            .flat_map(|(name, list)| list.iter().map(move |(run, c)| (label(run, name, runs.len()), c.clone())))
            .collect();
        if !curves.is_empty() {
            out.push((base.to_owned(), curves));
        }
    }
    for name in &names {
        let title = if name == "loss" { "loss of updates".to_owned() } else { name.clone() };
        let curves: Vec<(String, Curve)> =
            all(name).into_iter().map(|(run, c)| (label(&run, name, runs.len()), c)).collect();
        out.push((title, curves));
    }
    out
}

fn label(run: &str, figure: &str, runs: usize) -> String {
    if runs == 1 { figure.to_owned() } else { format!("{run} {figure}") }
}

fn curves_json(runs: &[&Run]) -> Value {
    let points = |curve: &Curve| -> Vec<Value> {
        let every = curve.points.len().div_ceil(MOST_POINTS).max(1);
        let last = curve.points.len().saturating_sub(1);
        let kept = curve.points.iter().enumerate().filter(|(i, _)| i % every == 0 || *i == last);
        kept.map(|(_, (step, value))| json!([*step as u64, value])).collect()
    };
    drawn(runs)
        .iter()
        .map(|(name, curves)| {
            let curves: Vec<Value> =
                curves.iter().map(|(label, curve)| json!({
                    "name": label, "run": curve.run, "train": curve.figure.starts_with("train_"), "points": points(curve),
                })).collect();
            json!({ "name": name, "curves": curves })
        })
        .collect()
}

fn curves_section(runs: &[&Run]) -> String {
    let figures = drawn(runs);
    let head = "<section aria-labelledby=\"curves-of\">\n<h2 id=\"curves-of\">Curves</h2>\n";
    if figures.is_empty() {
        return format!("{head}<p>Nothing has been written down yet.</p></section>\n");
    }
    let options: String = figures.iter().map(|(name, _)| format!("<option>{}</option>", escaped(name))).collect();
    let mut out = format!(
        "{head}<div class=\"controls\"><label>Figure <select id=\"figure\">{options}</select></label> <label><input type=\"checkbox\" \
         id=\"log\"> logarithmic scale</label></div>\n<div id=\"chart\" class=\"chart\" tabindex=\"0\" role=\"group\" \
         aria-label=\"Curves\"></div>\n<p id=\"told\" class=\"soft\" role=\"status\" aria-live=\"polite\">Point at the curves, or move through \
         them with the arrow keys. Pull to look closer; a double click shows all again.</p>\n<noscript><p>The curves need JavaScript; the \
         tables below have the numbers.</p></noscript>\n"
    );
    for run in runs {
        let names = self::figures(run);
        if names.is_empty() {
            continue;
        }
        let name = run.path.display().to_string();
        let mut head = vec!["#epoch".to_owned(), "#step".to_owned()];
        head.extend(names.iter().map(|name| format!("#{name}")));
        head.extend(["#seconds".into(), "#samples_per_s".into()]);
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let mut table = Table::new(&format!("Epochs of {name}"), &head);
        for line in &run.lines.epochs {
            let at = At::of(line);
            let whole_number =
                |key: &str| line.get(key).and_then(Value::as_u64).map_or(String::new(), |n| n.to_string());
            let mut cells = vec![whole_number("epoch"), whole_number("step")];
            for name in &names {
                let value = number(line, name);
                let text = value.map_or("–".into(), |value| escaped(&formatted(name, value)));
                let best = run.best_figure(name).is_some_and(|(_, place)| Some(place) == at);
                cells.push(if best { format!("<span class=\"best\">{text}</span>") } else { text });
            }
            for name in ["seconds", "samples_per_s"] {
                cells.push(number(line, name).map_or("–".into(), |value| figure(value, 1, 10)));
            }
            table.row_of(cells);
        }
        out += &format!(
            "<details><summary>Epochs of {} as a table</summary>\n{}</details>\n",
            escaped(&name),
            table.html()
        );
    }
    out + "</section>\n"
}

fn difference_section(runs: &[&Run]) -> String {
    let owned: Vec<Run> = runs.iter().map(|run| (*run).clone()).collect();
    let found = differences(&owned);
    let names: Vec<String> = runs.iter().map(|run| run.path.display().to_string()).collect();
    let mut out = "<section aria-labelledby=\"differences\">\n<h2 id=\"differences\">Differences</h2>\n".to_owned();
    let head: Vec<&str> = std::iter::once("key").chain(names.iter().map(String::as_str)).collect();
    if found.is_empty() {
        out += "<p>The configurations are the same.</p>\n";
    } else {
        let mut table = Table::new("Keys of the configuration that differ", &head);
        for difference in &found {
            let values = difference.values.iter().map(|value| shown(value.as_ref()));
            table.row(&std::iter::once(difference.key.clone()).chain(values).collect::<Vec<_>>());
        }
        out += &table.html();
    }
    let head: Vec<&str> = std::iter::once("figure").chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new("Best figures, with their epochs", &head);
    let mut seen: Vec<String> = Vec::new();
    for name in runs.iter().flat_map(|run| figures(run)) {
        if seen.contains(&name) {
            continue;
        }
        let best: Vec<Option<(f64, At)>> = runs.iter().map(|run| run.best_figure(&name)).collect();
        let pick = |a: f64, b: f64| if higher_is_better(&name) { a.max(b) } else { a.min(b) };
        let top = best.iter().flatten().map(|(value, _)| *value).reduce(pick);
        let cells = best.iter().map(|found| match found {
            None => "–".to_owned(),
            Some((value, at)) => {
                let text = format!("{} {}", escaped(&formatted(&name, *value)), at.short());
                if Some(*value) == top { format!("<span class=\"best\">{text}</span>") } else { text }
            }
        });
        table.row_of(std::iter::once(escaped(&name)).chain(cells).collect());
        seen.push(name);
    }
    out + &table.html() + "</section>\n"
}

/// A part of a section, or why it is missing.
fn part<T>(title: &str, part: &Part<T>, html: impl FnOnce(&T) -> String) -> String {
    match part {
        Ok(made) => html(made),
        Err(why) => format!("<h3>{title}</h3>\n<p>This could not be made: {}</p>\n", escaped(why)),
    }
}

fn run_section(i: usize, name: &str, reported: &Reported) -> String {
    let mut out = format!("<section aria-labelledby=\"run-{i}\">\n<h2 id=\"run-{i}\">{}</h2>\n", escaped(name));
    if let Some(evaluation) = &reported.evaluation {
        out += &part("Evaluation", evaluation, |evaluation| evaluation_html(i, evaluation));
    }
    if let Some(explanation) = &reported.explanation {
        out += &explanation_html(explanation);
    }
    out += &texts_html(&reported.run);
    out += &settings_html(&reported.settings, &reported.run);
    out += &part("Layers and memory", &reported.model, model_html);
    if let Some(timing) = &reported.timing {
        out += &part("Time of a training step", timing, timing_html);
    }
    out + "</section>\n"
}

fn evaluation_html(i: usize, evaluation: &Evaluation) -> String {
    let mut out = format!("<h3>Evaluation of the best checkpoint</h3>\n<p>{}</p>\n", escaped(&evaluation.of));
    for note in &evaluation.notes {
        out += &format!("<p><strong>Note:</strong> {}</p>\n", escaped(note));
    }
    let mut table = Table::new("Figures", &["figure", "#value"]);
    evaluation.figures.iter().for_each(|(name, value)| table.row(&[name.clone(), formatted(name, *value)]));
    out += &table.html();
    let Some(report) = &evaluation.report else { return out };
    let class = |n: usize| evaluation.names.get(n).cloned().unwrap_or_else(|| n.to_string());
    let mut table =
        Table::new("Figures of each class", &["class", "#precision", "#recall", "#F1", "#samples", "#predicted"]);
    let share = |value: Option<f64>| value.map_or("–".into(), percent);
    for (n, counts) in report.classes.iter().enumerate() {
        table.row(&[
            class(n),
            share(counts.precision()),
            share(counts.recall()),
            share(counts.f1()),
            counts.targets.to_string(),
            counts.predicted.to_string(),
        ]);
    }
    out += &table.html();
    out += &matrix_html(i, evaluation, report, &class);
    out + &gallery_html(i, evaluation, &class)
}

fn matrix_html(i: usize, evaluation: &Evaluation, report: &ClassReport, class: &dyn Fn(usize) -> String) -> String {
    let Some(matrix) = &report.matrix else { return String::new() };
    let n = report.classes.len();
    if n > MOST_CLASSES {
        let mut table = Table::new("The classes that are confused most", &["class", "taken for", "#samples"]);
        for (is, taken, count) in report.most_confused(50) {
            table.row(&[class(is), class(taken), count.to_string()]);
        }
        return table.html();
    }
    let head: String = (0..n).map(|k| format!("<th scope=\"col\">{}</th>", escaped(&class(k)))).collect();
    let mut rows = String::new();
    for row in 0..n {
        let all = report.classes[row].targets.max(1);
        rows += &format!("<tr><th scope=\"row\">{}</th>", escaped(&class(row)));
        for column in 0..n {
            let count = matrix[row * n + column];
            let depth = (count as f64 / all as f64).sqrt();
            let hue = if row == column { "hit" } else { "miss" };
            let style = if count > 0 {
                format!(" style=\"background: rgb(var(--{hue}) / {:.2})\"", 0.08 + 0.47 * depth)
            } else {
                String::new()
            };
            let inner = if evaluation.mistakes.contains_key(&(row, column)) {
                let label = escaped(&format!("{count} of {} taken for {}: the worst", class(row), class(column)));
                format!("<a href=\"#cell-{i}-{row}-{column}\" aria-label=\"{label}\">{count}</a>")
            } else {
                format!("<span>{count}</span>")
            };
            rows += &format!("<td{style}>{inner}</td>");
        }
        rows += "</tr>\n";
    }
    format!(
        "<p class=\"soft\">The confusion matrix has a row for each class, and a column for what it was taken for. A number that is a link leads to the \
         worst mistakes.</p>\n<div class=\"wide\" role=\"region\" aria-label=\"Confusion matrix\" tabindex=\"0\"><table class=\"matrix\"><caption>Confusion \
         matrix</caption>\n<thead><tr><th scope=\"col\">class</th>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn gallery_html(i: usize, evaluation: &Evaluation, class: &dyn Fn(usize) -> String) -> String {
    if evaluation.mistakes.is_empty() {
        return String::new();
    }
    let shown: usize = evaluation.mistakes.values().map(Vec::len).sum();
    let mut out = format!(
        "<h3>The worst mistakes</h3>\n<p class=\"soft\">{shown} samples whose class the model found least likely: at most {OF_A_PAIR} of each \
         pair of classes and {OF_ALL} in all; pictures have at most {SIDE} pixels a side.</p>\n"
    );
    for ((is, taken), mistakes) in &evaluation.mistakes {
        let (is_name, taken_name) = (escaped(&class(*is)), escaped(&class(*taken)));
        out += &format!(
            "<div class=\"cell\" id=\"cell-{i}-{is}-{taken}\" tabindex=\"-1\"><h4>{is_name}, taken for {taken_name}</h4><ul class=\"gallery\">"
        );
        for Mistake { sample, probabilities: (own, wrong), picture, .. } in mistakes {
            let name = evaluation.called.get(sample).map_or(String::new(), |name| escaped(&visible(name)));
            let image = picture.as_ref().map_or(String::new(), |picture| {
                let address = data_url("image/png", &picture.png);
                format!("<img src=\"{address}\" alt=\"{name}, {is_name}\" loading=\"lazy\">")
            });
            out += &format!(
                "<li><figure>{image}<figcaption>{name}<br>{} {taken_name}<br>{} {is_name}</figcaption></figure></li>",
                percent(*wrong).replace(' ', "\u{a0}"),
                percent(*own).replace(' ', "\u{a0}")
            );
        }
        out += "</ul></div>\n";
    }
    out
}

fn settings_html(settings: &[Setting], run: &Run) -> String {
    let mut table = Table::new("Configuration without the layers", &["key", "value", "from"]);
    for Setting { key, value, origin } in settings {
        table.row(&[key.clone(), value.clone(), (*origin).to_owned()]);
    }
    format!(
        "<h3>Configuration</h3>\n<p class=\"soft\">What is from the command line was set when the run began or went on; a default is what is the \
         same without it.</p>\n{}<details><summary>The whole of config.toml</summary><pre tabindex=\"0\">{}</pre></details>\n",
        table.html(),
        escaped(&run.config_text)
    )
}

fn model_html(model: &Model) -> String {
    let (trained, all) = model.parameters;
    let mut layers = Table::new("Layers", &["layer", "type", "output", "#parameters", "#FLOPs"]);
    model.layers.iter().for_each(|row| layers.row(row));
    let mut memory = Table::new(&format!("Memory that training takes on {}", model.device), &["class", "#memory"]);
    model.memory.iter().for_each(|(name, bytes)| memory.row(&[name.clone(), human_bytes(*bytes)]));
    let of = if trained == all {
        String::new()
    } else {
        format!(", {} of them trained", crate::terminal::thousands(trained as u64))
    };
    format!(
        "<h3>Layers and memory</h3>\n<p>{} parameters{of}.</p>\n{}{}<p class=\"soft\">Memory is fullest at {}.</p>\n",
        crate::terminal::thousands(all as u64),
        layers.html(),
        memory.html(),
        escaped(&model.peak)
    )
}

fn timing_html(timing: &Timing) -> String {
    let (ms, batch) = timing.step;
    let sum: f64 = timing.rows.iter().map(|row| row.0).sum();
    let mut table =
        Table::new("Operations, the slowest first", &["operation", "layer", "pass", "#ms", "#share", "#GFLOP/s"]);
    for (ms, op, backward, layer, gflops) in timing.rows.iter().take(MOST_OPERATIONS) {
        let pass = if *backward {
            "backward"
        } else if layer.is_empty() {
            "update"
        } else {
            "forward"
        };
        table.row(&[
            op.clone(),
            layer.clone(),
            pass.to_owned(),
            format!("{ms:.3}"),
            percent(ms / sum.max(1e-12)),
            gflops.map_or(String::new(), |g| format!("{g:.1}")),
        ]);
    }
    let more = timing.rows.len().saturating_sub(MOST_OPERATIONS);
    let rest = if more > 0 { format!("<p class=\"soft\">{more} more take less.</p>\n") } else { String::new() };
    format!(
        "<h3>Time of a training step</h3>\n<p>{ms:.3} ms for a batch of {batch}, measured on this machine with made-up samples when the report was \
         made: {:.0} samples/s.</p>\n{}{rest}",
        batch as f64 * 1e3 / ms.max(1e-9),
        table.html()
    )
}
