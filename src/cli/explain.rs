//! `runner explain`.

use super::args::{ExplainArgs, Overrides, SplitName};
use super::runs::grid::Grid;
use super::{print, print_json};
use crate::api::explain::{
    Dependence, Figures, Importance, Rows, Sums, as_they_are, dependence, importances, outputs_named, shuffled,
};
use crate::api::failure::Failure;
use crate::api::members::{Members, models_of};
use crate::api::model::{device, load_model};
use crate::api::predictor::{Options, Predictor, Seen};
use crate::api::samples;
use crate::config::nearest;
use crate::data::table::{Decoded, TableCodec, rounded};
use crate::files;
use crate::terminal::{figure, one_line, percent, say, thousands, visible};
use anyhow::anyhow;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::ExitCode;

/// Classes whose probabilities are shown side by side.
const MOST_OUTPUTS: usize = 6;

/// Which model is asked, and about which rows.
pub struct Question<'a> {
    /// The model.
    pub model: &'a Path,
    /// What the command line says of its configuration.
    pub overrides: &'a Overrides,
    /// The part of the data.
    pub split: SplitName,
    /// At most so many rows of it.
    pub rows: usize,
    /// What rows are drawn by.
    pub seed: u64,
    /// Compute threads.
    pub threads: Option<usize>,
    /// What to do where there are no such rows.
    pub otherwise: &'static str,
}

/// A model with rows that it is asked about.
pub struct Asked {
    /// What its columns are.
    pub codec: TableCodec,
    /// The model.
    pub predictor: Predictor,
    /// The rows.
    pub rows: Rows,
    /// What the part of the data is called.
    pub split: &'static str,
    /// How many rows it has.
    pub whole: usize,
    /// It has heads, which the answers leave out.
    pub has_heads: bool,
}

/// The note about a model with heads.
pub const OF_HEADS: &str = "this is of what the model says of its main target, and not of its heads";

/// Says which columns a model of a table depends on.
pub(super) fn run(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    if let Some(seeds @ Members::Seeds(_)) = Members::of(&args.model)? {
        return Err(Failure::Usage(format!(
            "`explain` asks one model, or each fold about the rows that it has not seen, and `{}` has {}\nhelp: give the folder of one, such as `{}`",
            args.model.display(),
            seeds.counted(),
            args.model.join("seed-1").display()
        )));
    }
    let models = models_of(&args.model)?;
    if let [first, _, ..] = &models[..] {
        let refuse = |what: &str| {
            Failure::Usage(format!(
                "{what} of several folds\nhelp: give the folder of one, such as `{}`",
                first.display()
            ))
        };
        if !args.column.is_empty() {
            return Err(refuse("`--column` has no curve"));
        }
        if args.split != SplitName::Val {
            return Err(refuse("there is no such split"));
        }
    }
    let (mut base, mut whole, mut rows, mut split) = (Sums::default(), 0, 0, "val");
    let mut all: Vec<(String, Vec<Sums>)> = Vec::new();
    for model in &models {
        // Each of several folds is asked about some of the rows that it has not seen.
        let asked = asked(&Question {
            model,
            overrides: &args.overrides,
            split: args.split,
            rows: args.rows.div_ceil(models.len()),
            seed: args.seed,
            threads: args.threads,
            otherwise: "choose another with --split",
        })?;
        expect_columns(args, &asked.codec)?;
        if asked.has_heads {
            say(&format!("note: {OF_HEADS}"));
        }
        if !args.column.is_empty() {
            return curves(args, &asked);
        }
        base.add(as_they_are(&asked.predictor, &asked.rows)?);
        (whole, rows, split) = (whole + asked.whole, rows + asked.rows.len(), asked.split);
        for (column, sums) in shuffled(&asked.predictor, &asked.codec, &asked.rows, (args.repeats, args.seed))? {
            match all.iter_mut().find(|(known, _)| *known == column) {
                Some((_, before)) => before.iter_mut().zip(sums).for_each(|(before, sums)| before.add(sums)),
                None => all.push((column, sums)),
            }
        }
    }
    let figures = base.figures();
    let (what, folds) = (loss_name(&figures), models.len());
    let all = importances(&figures, &all);
    match args.output.json {
        true => {
            let mut json = json!({ "split": split, "rows": rows, "repeats": args.repeats });
            json.as_object_mut().into_iter().for_each(|json| json.extend(figures_json(&figures, &all)));
            if folds > 1 {
                json["folds"] = folds.into();
            }
            print_json(&json)?;
        }
        false => {
            say_figures(split, rows, whole, folds, &figures);
            print(&table(&all, what, &figures))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the loss is called.
pub fn loss_name(figures: &Figures) -> &'static str {
    if figures.accuracy.is_nan() { "rmse" } else { "log loss" }
}

/// The model, with rows.
///
/// # Errors
/// It is of no table, or its data is not there or has no such rows.
pub fn asked(question: &Question) -> Result<Asked, Failure> {
    let sets = question.overrides.sets();
    let model = load_model(question.model, &sets)?;
    let experiment = &model.loaded.experiment;
    let seen = Seen::by(&model)?;
    let has_heads = !seen.heads.is_empty();
    let Some(codec) = TableCodec::of(&seen.data) else {
        return Err(Failure::Usage(
            "`explain` is for models of tables: it shuffles columns, which other samples do not have\nhelp: `runner eval --predictions FILE` lists what \
             any model says of each sample"
                .into(),
        ));
    };
    if codec.windows.is_some() {
        return Err(Failure::Usage(
            "`explain` is for models that take a row at a time, and this one takes a window of rows: values of a column that are shuffled among rows are no \
             series\nhelp: train without the column, with `drop`, and `runner compare` shows what it is worth"
                .into(),
        ));
    }
    let backend = device(experiment, question.threads)?;
    let take = samples::as_asked(experiment, &sets, false);
    let loaded = samples::load(experiment, &take).map_err(|e| match e.is::<files::Error>() {
        true => Failure::Other(anyhow!(
            "{e:#}; columns are shuffled among rows that the model was not trained on\nhelp: say where the table is with --set data.path=FILE"
        )),
        false => samples::missing(e, experiment, "columns are shuffled among rows that the model was not trained on"),
    })?;
    let (name, split) = match question.split {
        SplitName::Val => ("val", &loaded.val),
        SplitName::Test => ("test", &loaded.test),
        SplitName::Train => ("train", &loaded.train),
    };
    if split.is_empty() {
        return Err(Failure::Usage(format!("the data has no rows in the split `{name}`; {}", question.otherwise)));
    }
    let rows = Rows::of(split, &codec, question.rows, question.seed)?;
    let options = Options { batch: experiment.data.loading.eval_batch_size(), ..Options::default() };
    let predictor = Predictor::new(&model, seen, backend, &options)?;
    Ok(Asked { codec, predictor, rows, split: name, whole: split.len(), has_heads })
}

/// Refuses columns that have no curve.
fn expect_columns(args: &ExplainArgs, codec: &TableCodec) -> Result<(), Failure> {
    for column in &args.column {
        let is_tokens = codec.tokens.as_ref().is_some_and(|tokens| tokens.column == *column);
        if is_tokens || codec.columns.iter().any(|known| known.name == *column && known.is_text()) {
            return Err(Failure::Usage(format!(
                "`{}` has texts, of which the model takes the words: there is no value that all rows could have\nhelp: without `--column`, `explain` says how \
                 much the model depends on it",
                one_line(&visible(column))
            )));
        }
        if !codec.taken().any(|known| known == *column) {
            let near = nearest(column, codec.taken());
            let help = near.map_or_else(
                || {
                    let all: Vec<String> = codec.taken().map(|known| format!("`{known}`")).collect();
                    format!("it takes {}", all.join(", "))
                },
                |near| format!("did you mean `{near}`?"),
            );
            return Err(Failure::Usage(format!(
                "the model takes no column `{}`\nhelp: {help}",
                one_line(&visible(column))
            )));
        }
    }
    Ok(())
}

/// Shows what a model answers by the values of columns.
fn curves(args: &ExplainArgs, asked: &Asked) -> Result<ExitCode, Failure> {
    let Asked { codec, predictor, rows, split, whole, .. } = asked;
    let names = outputs_named(codec, predictor);
    let mut of_columns = serde_json::Map::new();
    for column in &args.column {
        let values = dependence(predictor, codec, rows, column, args.points)?;
        if args.output.json {
            let all = values
                .iter()
                .map(|one| json!({ "value": as_json(&one.value), "rows": one.rows, "outputs": one.outputs }));
            of_columns.insert(column.clone(), all.collect());
            continue;
        }
        if of_columns.is_empty() && args.column.first() == Some(column) {
            say_figures(split, rows.len(), *whole, 1, &as_they_are(predictor, rows)?.figures());
        }
        print(&curve(column, &names, &values))?;
    }
    if args.output.json {
        print_json(&json!({ "split": split, "rows": rows.len(), "outputs": names, "columns": of_columns }))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(value: &Decoded) -> Value {
    match value {
        Decoded::Number(number) => json!(rounded(*number)),
        Decoded::Truth(truth) => json!(truth),
        Decoded::Missing => Value::Null,
        other => json!(other.to_string()),
    }
}

fn number(value: f64) -> Value {
    if value.is_nan() { Value::Null } else { value.into() }
}

/// The figures and the importance of each column as JSON.
pub fn figures_json(figures: &Figures, all: &[Importance]) -> Map<String, Value> {
    let columns: Vec<Value> = all.iter().map(|one| of_column(one, figures)).collect();
    let all = [
        ("figure", loss_name(figures).replace(' ', "_").into()),
        ("value", figures.loss.into()),
        ("accuracy", number(figures.accuracy)),
        ("columns", columns.into()),
    ];
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn of_column(one: &Importance, figures: &Figures) -> Value {
    let mut all = json!({ "column": one.column, "loss_increase": one.loss[0], "loss_deviation": one.loss[1] });
    if !figures.accuracy.is_nan() {
        all["accuracy_decrease"] = one.accuracy[0].into();
        all["accuracy_deviation"] = one.accuracy[1].into();
    }
    all
}

/// Says which rows a model was asked about, and its figures on them.
fn say_figures(split: &str, rows: usize, whole: usize, folds: usize, figures: &Figures) {
    let by = if folds > 1 { format!(", each by the one of {folds} folds that has not seen it") } else { String::new() };
    say(&format!("{}{by}: {}", rows_in_words(split, rows, whole), figures_in_words(figures)));
}

/// Which rows they are.
pub fn rows_in_words(split: &str, rows: usize, whole: usize) -> String {
    let of = if rows < whole { format!(" of {}", thousands(whole as u64)) } else { String::new() };
    format!("{split}, {}{of} rows", thousands(rows as u64))
}

/// The figures of a model.
pub fn figures_in_words(figures: &Figures) -> String {
    let accuracy =
        if figures.accuracy.is_nan() { String::new() } else { format!(", accuracy {}", percent(figures.accuracy)) };
    format!("{} {}{accuracy}", loss_name(figures), figure(figures.loss, 6, 12))
}

/// A row for each column.
fn table(all: &[Importance], what: &str, figures: &Figures) -> String {
    let classes = !figures.accuracy.is_nan();
    let more = format!("{what} more by");
    let mut head = vec!["column".to_owned(), more, "±".to_owned()];
    if classes {
        head.extend(["accuracy less by".to_owned(), "±".to_owned()]);
    }
    let mut grid = Grid::new(head, 1);
    for one in all {
        let mut cells = vec![one_line(&visible(&one.column)), figure(one.loss[0], 4, 12), figure(one.loss[1], 4, 12)];
        if classes {
            cells.extend(one.accuracy.map(percent));
        }
        grid.row(cells);
    }
    grid.text().trim_end().to_owned()
}

/// A row for each value of a column.
fn curve(column: &str, names: &[String], values: &[Dependence]) -> String {
    let shown = names.len().min(MOST_OUTPUTS);
    let mut head = vec![one_line(&visible(column)), "rows".to_owned()];
    head.extend(names[..shown].iter().map(|name| one_line(&visible(name))));
    let mut grid = Grid::new(head, 1);
    for one in values {
        let mut cells = vec![one_line(&visible(&one.value.to_string())), thousands(one.rows as u64)];
        cells.extend(one.outputs[..shown].iter().map(|mean| figure(*mean, 4, 12)));
        grid.row(cells);
    }
    let mut text = grid.text().trim_end().to_owned();
    if shown < names.len() {
        text += &format!("\n({} more outputs are in --json)", names.len() - shown);
    }
    text + "\n"
}
