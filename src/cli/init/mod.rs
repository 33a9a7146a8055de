//! `runner init`: from data to a configuration that trains as it stands, with comments that say what was found and what to change.
//!
//! The sources describe the data: they are asked through a draft of the configuration that is never written.

mod answers;
mod architecture;
mod dialect;
mod kind;
mod numbers;
mod order;
mod parameters;
mod photos;
mod place;
mod series;
mod table;
mod text;
mod words;
mod writing;

use super::args::InitArgs;
use super::{models, print_json, printed};
use crate::api::failure::Failure;
use crate::api::what::{expect_apart, expect_new, expect_no_input, output};
use crate::config::{self, Experiment};
use crate::data::DataSpec;
use crate::data::image_list::is_list;
use crate::terminal::{one_line, say, visible};
use crate::train::setup::input;
use anyhow::Context;
use architecture::{Takes, takes};
use kind::{Source, look};
use order::Asked;
pub(super) use place::Place;
use serde_json::json;
use series::OfSeries;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a configuration is made of.
struct Wanted<'a> {
    /// Where the source is, for messages and for the draft.
    source: &'a Path,
    /// How the written file names it.
    written: String,
    /// Of a table, or of a list of photos: the column that is learnt.
    target: Option<&'a str>,
    /// Of a table: the target is a class.
    classes: bool,
    /// The architecture that is asked for.
    model: Option<&'static str>,
    /// Of a table of series: what is asked for.
    series: OfSeries<'a>,
    /// What the commands of the first comment call the file.
    file: String,
}

/// A configuration, and a sentence on what it is for.
struct Made {
    text: String,
    what: String,
}

/// Writes a configuration for some data, or for an architecture.
pub(super) fn run(args: &InitArgs) -> Result<ExitCode, Failure> {
    let model = args.model.as_deref().map(models::named).transpose()?.map(|(name, _)| name);
    let source = args.source.as_deref().map(|path| Ok::<_, Failure>((path, look(path, args.target.as_deref())?)));
    let source = source.transpose()?;
    let has_columns = source.is_some_and(|(path, kind)| match kind {
        Source::Table => true,
        Source::Photos => is_list(path),
        Source::Text => false,
    });
    if args.target.is_some() && !has_columns {
        let shown = args.source.as_deref().map_or_else(|| "a model".to_owned(), |path| format!("`{}`", path.display()));
        return Err(Failure::Usage(format!("`--target` names a column, and {shown} is no table: leave it out")));
    }
    let series = of_series(args, model)?;
    let usual = match args.source.as_deref() {
        Some(source) => PathBuf::from(format!("{}.toml", stem(source))),
        None => PathBuf::from(format!("{}.toml", model.unwrap_or("model"))),
    };
    let path = args.out.clone().unwrap_or_else(|| usual.clone());
    let out = output(&path)?;
    // What goes through a stream has no name that a command could be given.
    let streams = out.is_stream();
    let shown = if streams { &usual } else { &path }.display();
    expect_new(&out, args.force)?;
    expect_apart(&out, "--out", args.output.json)?;
    expect_no_input(&out, args.source.iter().map(PathBuf::as_path))?;
    let Made { text, what } = match source {
        None => architecture::alone(model.unwrap_or_default(), &shown.to_string())?,
        Some((source, kind)) => {
            let wanted = Wanted {
                source,
                written: Place::of(&out).written(source)?,
                target: args.target.as_deref(),
                classes: args.classes,
                model,
                series,
                file: shown.to_string(),
            };
            match kind {
                Source::Table => table::configuration(&wanted)?,
                Source::Photos => photos::configuration(&wanted)?,
                Source::Text => text::configuration(&wanted)?,
            }
        }
    };
    // A mistake of this command's is to be seen now, and not when the file is used. Its layers are built by `check`.
    draft(&text)?;
    let written = out.put(text.as_bytes());
    match out.is_standard_output() {
        true => printed(written)?,
        false => written.with_context(|| format!("cannot write `{}`", path.display()))?,
    }
    if args.output.json {
        print_json(&json!({ "written": path, "what": what }))?;
    } else if !streams {
        say(&format!(
            "wrote `{shown}`: {what}\n`runner check {shown}` shows the model, `runner train {shown}` trains it"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is asked for of series.
///
/// # Errors
/// It is, and the model takes none; the target is to be something else as well.
fn of_series<'a>(args: &'a InitArgs, model: Option<&str>) -> Result<OfSeries<'a>, Failure> {
    let [time, series] = [&args.time_column, &args.series_column].map(|column| column.as_deref());
    let columns = [("--time-column", time), ("--series-column", series)];
    let given = columns.into_iter().find(|(_, column)| column.is_some()).map(|(option, _)| option);
    let given = given.or(args.window.map(|_| "--window")).or(args.horizon.map(|_| "--horizon"));
    if let Some(option) = given.filter(|_| model.is_none_or(|model| takes(model) != Takes::Series)) {
        let model = model.map_or_else(|| "no model was named".to_owned(), |model| format!("the model is `{model}`"));
        return Err(Failure::Usage(format!(
            "`{option}` is for a model of series, and {model}\nhelp: add `--model lstm_forecaster`, or leave `{option}` out"
        )));
    }
    if let Some((option, _)) =
        columns.into_iter().find(|(_, column)| column.is_some() && *column == args.target.as_deref())
    {
        return Err(Failure::Usage(format!("`{option}` names the target: a column is one of the two")));
    }
    Ok(OfSeries { columns: Asked { time, series }, window: args.window, horizon: args.horizon })
}

/// What the configuration for a source is called: the name of its file without endings, or that of its folder.
fn stem(source: &Path) -> String {
    let whole = source.file_name().map(OsStr::to_owned).or_else(|| {
        // `.` and `..` have no name of their own.
        source.canonicalize().ok()?.file_name().map(OsStr::to_owned)
    });
    let name = whole.unwrap_or_else(|| "data".into()).to_string_lossy().into_owned();
    let name = if source.is_dir() { &name[..] } else { name.split('.').find(|part| !part.is_empty()).unwrap_or(&name) };
    name.chars().map(|c| if c.is_control() || c == '/' { '_' } else { c }).collect()
}

/// A configuration that is not written: the source is asked through it what the data is like.
fn draft(text: &str) -> Result<Experiment, Failure> {
    Ok(config::load_str("init", text, &[])?.experiment)
}

/// What the samples of a draft look like.
fn described(experiment: &Experiment) -> Result<DataSpec, Failure> {
    input::describe(experiment).map_err(|error| Failure::Usage(error.message))
}

/// A name from elsewhere, within a comment.
fn named(name: &str) -> String {
    visible(&one_line(name))
}

/// The folder of the first run of a configuration, below `runs`.
fn run_name(file: &str) -> String {
    let name = Path::new(file).file_stem().map(|stem| named(&stem.to_string_lossy())).unwrap_or_default();
    format!("{name}/1")
}
