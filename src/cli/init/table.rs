//! A configuration for a table.

use super::architecture::{Takes, expect, takes};
use super::dialect::Dialect;
use super::parameters::{Parameters, Values};
use super::writing::{Writing, quoted};
use super::{Made, Wanted, answers, described, draft, named, run_name, series, words};
use crate::api::failure::Failure;
use crate::cli::models::heading;
use crate::cli::show::table::lines;
use crate::config::Experiment;
use crate::config::value_as_toml;
use crate::data::DataSpec;
use crate::data::table::{CellType, Column, Format, Odd, Shown, is_parquet, open_sheet};
use crate::terminal::{say, thousands};
use crate::train::setup::input::table_columns;
use serde_json::json;

/// Columns that the comment lists.
const LISTED: usize = 40;
/// Updates that a training has about, so that it takes a minute or two.
const UPDATES: usize = 3000;
/// Fewer different numbers than this may be names.
const FEW: usize = 10;
/// Rows to train on of a table that is small: a small net learns it, in a minute.
const SMALL: usize = 2000;

/// What was found.
struct Found {
    columns: Vec<Shown>,
    spec: DataSpec,
}

/// The keys of `[data]` that a draft and the file have in common.
#[derive(Default, Clone)]
struct Keys {
    id: Option<String>,
    split: Option<String>,
    dialect: Dialect,
    /// No row is held out.
    whole: bool,
    /// Columns of dates that are not written as 2026-11-28, and their formats.
    dates: Vec<(String, String)>,
}

impl Keys {
    fn draft(&self, wanted: &Wanted, target: &str) -> Result<Experiment, Failure> {
        let path = wanted.source.to_str().map(quoted).unwrap_or_default();
        let mut data =
            format!("source = \"csv\"\npath = {path}\ntarget = {}\nclasses = {}\n", quoted(target), wanted.classes);
        if let Some(id) = &self.id {
            data += &format!("id = {}\n", quoted(id));
        }
        data += &self.dialect.draft();
        if let Some(rules) = self.columns() {
            data += &format!("columns = {rules}\n");
        }
        data += &match &self.split {
            _ if self.whole => String::new(),
            Some(column) => format!("split_column = {}\n", quoted(column)),
            None => "validation_split = 0.2\n".to_owned(),
        };
        let loss = if wanted.classes { "cross_entropy" } else { "mse" };
        draft(&format!(
            "[data]\n{data}[model]\nuse = \"tabular\"\n[loss]\ntype = \"{loss}\"\n[optimizer]\ntype = \"adamw\"\n[train]\nepochs = 1\n"
        ))
    }

    /// What becomes of columns, if there is something to say of it.
    fn columns(&self) -> Option<String> {
        let rule = |(name, format): &(String, String)| (name.clone(), json!({ "type": "date", "format": format }));
        let rules: serde_json::Map<_, _> = self.dates.iter().map(rule).collect();
        (!rules.is_empty()).then(|| value_as_toml(&rules.into()))
    }
}

fn columns(experiment: &Experiment) -> Result<Vec<Shown>, Failure> {
    let columns = table_columns(experiment).unwrap_or_else(|| Ok(Vec::new()));
    columns.map_err(|error| Failure::Usage(format!("{error:#}")))
}

/// A configuration that learns a column of a table from the others.
pub fn configuration(wanted: &Wanted) -> Result<Made, Failure> {
    let path = wanted.source.display();
    let sheet = || open_sheet(wanted.source, Format::default()).map_err(|e| Failure::Usage(format!("{e:#}")));
    if let Ok(sheet) = sheet()
        && let [only] = sheet.names()
    {
        return Err(Failure::Usage(format!(
            "`{path}` has one column, `{}`, and nothing to learn it from\nhelp: add other columns; a language model learns texts alone: `source = \"text\"` with `column = {}` in `[data]`, \
             as docs/text.md#texts-in-a-table has it",
            named(only),
            quoted(only)
        )));
    }
    let Some(target) = wanted.target else {
        let sheet = sheet()?;
        let names: Vec<String> = sheet.names().iter().take(LISTED).map(|name| format!("`{name}`")).collect();
        let more = sheet.names().len().saturating_sub(LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Err(Failure::Usage(format!(
            "`{path}` is a table, and it is not said which of its columns is to be learnt\nhelp: name it with `--target COLUMN`; its columns are {}{more}",
            names.join(", ")
        )));
    };
    let read = |dialect| columns(&Keys { dialect, ..Keys::default() }.draft(wanted, target)?);
    let rows_of = |keys: &Keys| {
        let spec = described(&keys.draft(wanted, target)?)?;
        Ok::<_, Failure>(spec.train.unwrap_or(0) + spec.val.unwrap_or(0))
    };
    if let Some(model) = wanted.model.filter(|model| takes(model) == Takes::Series) {
        let (dialect, columns) = Dialect::of(wanted, target, read);
        return match columns {
            Ok(columns) => {
                let rows = rows_of(&Keys { dialect, ..Keys::default() })?;
                series::configuration(wanted, model, target, (dialect, &columns), rows)
            }
            // Texts have models of their own, which the refusal names.
            Err(error) => words::of_table(wanted, target).unwrap_or(Err(error)),
        };
    }
    if let Some(made) = answers::of_table(wanted, target) {
        return made;
    }
    let (dialect, first) = Dialect::of(wanted, target, read);
    let mut keys = Keys { dialect, ..Keys::default() };
    let first = match first {
        Ok(first) => first,
        Err(error) => {
            // A table may have nothing but texts that differ in every row: those are learnt from as what they are. Numbers that cannot be read are no classes of them.
            let meant_otherwise = !wanted.classes && dialect.odd(wanted, target).is_some();
            if let Some(made) = words::of_table(wanted, target).filter(|_| !meant_otherwise) {
                return made;
            }
            // Where each row has a class of its own, those that are held out have none that is learnt.
            let whole = Keys { whole: true, ..keys.clone() }.draft(wanted, target)?;
            let (all, spec) = (columns(&whole).unwrap_or_default(), described(&whole));
            let learnt = all.iter().find(|shown| shown.column.name == target && !wanted.classes);
            if let (Some(learnt), Ok(spec)) = (learnt, spec) {
                answers::expect_classes(&learnt.column, spec.train.unwrap_or(0))?;
            }
            return Err(error);
        }
    };
    let rows = rows_of(&keys)?;
    let of_texts = wanted.model.is_some_and(|model| takes(model) == Takes::Texts);
    if !wanted.classes
        && !of_texts
        && let Some(learnt) = first.iter().find(|shown| shown.column.name == target)
    {
        answers::expect_classes(&learnt.column, rows)?;
    }
    if let Some(text) = words::alone(wanted, &first) {
        return words::configuration(wanted, target, &text);
    }
    expect(wanted.model, |takes| matches!(takes, Takes::Columns | Takes::Rows | Takes::Series), "a table")?;
    keys.id = first
        .iter()
        .map(|shown| &shown.column)
        .find(|column| column.name != target && is_identifier(column, rows))
        .map(|column| column.name.clone());
    keys.split = first
        .iter()
        .map(|shown| &shown.column)
        .find(|column| column.name != target && is_split(column))
        .map(|column| column.name.clone());
    let dates = first.iter().filter(|shown| shown.column.name != target).filter_map(|shown| match &shown.column.odd {
        Some(Odd::DateFormat(_, format)) => Some((shown.column.name.clone(), format.clone())),
        _ => None,
    });
    keys.dates = dates.collect();
    let experiment = keys.draft(wanted, target)?;
    let found = Found { columns: columns(&experiment)?, spec: described(&experiment)? };
    Ok(written(wanted, target, &keys, &found))
}

/// Whether a column names its rows: another word in each, or numbers under such a name.
fn is_identifier(column: &Column, rows: usize) -> bool {
    let each = column.missing == 0 && column.distinct >= rows && rows > 1;
    match column.cells {
        _ if matches!(
            column.odd,
            Some(Odd::DateFormat(..) | Odd::Comma(_) | Odd::Thousands(_) | Odd::Unit(..) | Odd::Time(_))
        ) =>
        {
            false
        }
        CellType::Texts | CellType::Codes => each && !column.examples.iter().any(|text| text.contains(' ')),
        CellType::Numbers => {
            let name = column.name.as_str();
            let ends = ["_id", " id", "-id", "Id", "ID"].iter().any(|end| name.ends_with(end));
            each && column.whole && (ends || name.eq_ignore_ascii_case("id") || name.eq_ignore_ascii_case("index"))
        }
        CellType::Nothing | CellType::Truths | CellType::Dates => false,
    }
}

/// Whether a column says which part a row is of: it has nothing but names of parts.
fn is_split(column: &Column) -> bool {
    let parts = ["train", "training", "val", "valid", "validation", "dev", "test"];
    column.cells == CellType::Texts
        && column.missing == 0
        && (2..=3).contains(&column.distinct)
        && column.examples.iter().all(|cell| parts.contains(&cell.as_str()))
        && column.examples.iter().any(|cell| cell.starts_with("train"))
}

/// The columns of several words that are left out.
fn texts_left_out<'a>(columns: &'a [Shown], target: &'a str, keys: &'a Keys) -> impl Iterator<Item = &'a str> {
    let named =
        move |name: &str| name == target || keys.id.as_deref() == Some(name) || keys.split.as_deref() == Some(name);
    let left = columns.iter().filter(|shown| shown.width == 0 && shown.column.cells == CellType::Texts);
    let left = left.map(|shown| &shown.column).filter(|column| column.examples.iter().any(|text| text.contains(' ')));
    left.map(|column| column.name.as_str()).filter(move |name| !named(name))
}

fn written(wanted: &Wanted, target: &str, keys: &Keys, found: &Found) -> Made {
    let Found { columns, spec } = found;
    let file = &wanted.file;
    let classes = spec.class_names().map(<[String]>::to_vec);
    let learnt = columns.iter().map(|shown| &shown.column).find(|column| column.name == target);
    let (train, val) = (spec.train.unwrap_or(0), spec.val.unwrap_or(0));
    let task = match &classes {
        Some(names) => format!("finds which of {} classes `{}` is", names.len(), named(target)),
        None => format!("learns the number `{}`", named(target)),
    };
    let source = wanted.source.file_name().map(|name| named(&name.to_string_lossy())).unwrap_or_default();
    let leaks: Vec<String> = spec.leaks.iter().take(FEW).map(|name| format!("`{}`", named(name))).collect();
    if !leaks.is_empty() {
        let (say_it, are, them) = match leaks.len() {
            1 => ("says", "is it", "it"),
            _ => ("say", "are they", "them"),
        };
        say(&format!(
            "warning: {} {say_it} the target exactly: {are} known when a prediction is asked for? If not, leave {them} out with `drop`",
            leaks.join(", ")
        ));
    }
    let texts: Vec<&str> = texts_left_out(columns, target, keys).collect();
    if let [first, ..] = texts[..] {
        say(&format!(
            "note: the model does not take {}, whose text is another one in every row: with `columns = {}` in `[data]` it takes the words",
            texts.iter().map(|name| format!("`{}`", named(name))).collect::<Vec<_>>().join(", "),
            value_as_toml(&json!({ first: "text" }))
        ));
    }
    let mut out = Writing::default();
    out.comment(&format!("It {task} from the other columns of {source}: written by `runner init`."));
    let width: usize = columns.iter().map(|shown| shown.width).sum();
    let missing = learnt.map_or(0, |column| column.missing);
    let without = if missing > 0 {
        format!(", and {} without the target, which are left out", thousands(missing as u64))
    } else {
        String::new()
    };
    out.comment(&format!(
        "Found: {} rows to train on, {} to validate on{without}; {} columns, of which {width} numbers are made:",
        thousands(train as u64),
        thousands(val as u64),
        columns.len()
    ));
    for line in lines(columns).iter().take(LISTED + 1) {
        out.comment(&format!("  {}", named(line)));
    }
    if columns.len() > LISTED {
        out.comment(&format!("  … and {} more: `runner data show {file}`", columns.len() - LISTED));
    }
    if let Some(names) = &classes {
        let some: Vec<String> = names.iter().take(FEW).map(|name| named(name)).collect();
        let more = if names.len() > FEW { format!(" and {} more", names.len() - FEW) } else { String::new() };
        out.comment(&format!("Classes: {}{more}.", some.join(", ")));
    }
    out.comment(
        "What to change: what becomes of a column (`columns`, `drop`), the learning rate, the width of the model.",
    );
    let ending = if is_parquet(wanted.source) { "parquet" } else { "csv" };
    out.comment(&format!(
        "`runner predict runs/{} NEW.{ending} --out answers.{ending}` answers for other rows, once it is trained.",
        run_name(file)
    ));
    out.gap().key("seed", "1", "");
    data(&mut out, wanted, target, keys, found);
    out.section("model");
    let model = wanted.model.unwrap_or("tabular");
    out.key("use", &format!("\"{model}\""), &format!("{}; `runner models --show {model}`", heading(model)));
    let parameters = Parameters::of(model);
    parameters.write(&mut out, sizes(&parameters, train), "its outputs are as many as the target asks for");
    out.section("loss");
    match &classes {
        Some(_) => {
            out.key("type", "\"cross_entropy\"", "");
            out.maybe("weight", "\"balanced\"", "rare classes count as much as frequent ones");
        }
        None => {
            out.key("type", "\"mse\"", "\"huber\" or \"l1\" where some targets are far from all others");
        }
    }
    out.section("optimizer").key("type", "\"adamw\"", "");
    let bold = takes(model) == Takes::Columns && !parameters.has_attention();
    let rate = if bold { "4e-3" } else { "1e-3" };
    out.key("lr", rate, "the first thing to change: `runner lr-find` looks for one").key("weight_decay", "1e-4", "");
    out.section("schedule").key("type", "\"cosine\"", "");
    let batch = batch(train);
    let epochs = (UPDATES * batch / train.max(1)).clamp(10, 200);
    out.section("train");
    out.key("epochs", &epochs.to_string(), "");
    if val > 0 {
        out.early_stopping(15, epochs);
    }
    let what = format!("it {task}, with {} rows to train on", thousands(train as u64));
    Made { text: out.text(), what }
}

/// The sizes of a net for so many rows. Of a large table, an architecture of blocks has the sizes that its authors give it.
fn sizes(parameters: &Parameters, train: usize) -> Values {
    match (train < SMALL, parameters.has("depth")) {
        (true, _) => &[("width", "64"), ("depth", "2"), ("num_blocks", "2"), ("hidden", "128"), ("dropout", "0.1")],
        (false, true) => &[("width", "256"), ("depth", "3"), ("dropout", "0.1")],
        (false, false) => &[],
    }
}

fn data(out: &mut Writing, wanted: &Wanted, target: &str, keys: &Keys, Found { columns, spec }: &Found) {
    let input = |shown: &&Shown| shown.width > 0;
    let column_of = |cells: CellType| columns.iter().filter(input).find(|shown| shown.column.cells == cells);
    out.section("data");
    out.key("source", if is_parquet(wanted.source) { "\"parquet\"" } else { "\"csv\"" }, "");
    out.key("path", &quoted(&wanted.written), "from the folder of this file");
    out.key("target", &quoted(target), "");
    let learnt = columns.iter().map(|shown| &shown.column).find(|column| column.name == target);
    if wanted.classes {
        out.key("classes", "true", "its numbers are names of classes");
    } else if let Some(column) = learnt
        && column.whole
        && column.distinct <= FEW
    {
        out.maybe(
            "classes",
            "true",
            &format!("if its {} numbers are names of classes; `[loss]` is \"cross_entropy\" then", column.distinct),
        );
    }
    if let Some(id) = &keys.id {
        out.key("id", &quoted(id), "names the rows: the model does not take it, predictions have it");
    }
    keys.dialect.write(out);
    match &keys.split {
        Some(column) => out.key("split_column", &quoted(column), "says which rows are for training, validation, test"),
        None => out.key("validation_split", "0.2", "rows that are held out, to see how good it is on others"),
    };
    if let Some(date) = column_of(CellType::Dates) {
        out.maybe("time_column", &quoted(&date.column.name), "hold out the latest rows instead of random ones");
        out.comment("Of series what comes next is learnt: `runner init … --model lstm_forecaster` writes how.");
    }
    let few =
        columns.iter().filter(input).find(|shown| shown.column.whole && (3..=FEW).contains(&shown.column.distinct));
    if let Some(rules) = keys.columns() {
        out.key("columns", &rules, "how dates are written");
    } else if let Some(text) = texts_left_out(columns, target, keys).next() {
        out.maybe("columns", &value_as_toml(&json!({ text: "text" })), "the model takes its words");
    } else if let Some(few) = few {
        let rule = value_as_toml(&json!({ few.column.name.clone(): "category" }));
        out.maybe("columns", &rule, &format!("if its {} numbers are names", few.column.distinct));
    } else if let Some(number) = column_of(CellType::Numbers) {
        let rule = value_as_toml(&json!({ number.column.name.clone(): { "type": "number", "scaling": "quantile" } }));
        out.maybe("columns", &rule, "for numbers that lie far apart");
    }
    if !spec.leaks.is_empty() {
        let names = &spec.leaks[..spec.leaks.len().min(FEW)];
        out.maybe("drop", &value_as_toml(&json!(names)), "says the target exactly: is it known when it is asked?");
    } else if let Some(any) = columns.iter().find(input) {
        out.maybe("drop", &value_as_toml(&json!([any.column.name])), "columns that are not known when it is asked");
    }
    out.key("batch_size", &batch(spec.train.unwrap_or(0)).to_string(), "");
}

/// Rows of a batch: a twentieth of them, so that an epoch has some updates, and at most as many as keep a processor busy.
fn batch(train: usize) -> usize {
    let most = (train / 20).clamp(8, 256);
    1 << most.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_twentieth_of_the_rows() {
        assert_eq!([0, 100, 1000, 1_000_000].map(batch), [8, 8, 32, 256]);
    }
}
