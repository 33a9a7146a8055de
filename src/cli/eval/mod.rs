//! `runner eval`.

mod learnt;
mod losses;
mod members;
mod predictions;
mod said;

use super::args::{EvalArgs, Overrides, SplitName, WritingArgs};
use super::{class_table, error_table};
use crate::api::failure::{Failure, warn};
use crate::api::generate::{self, Generator};
use crate::api::members::Members;
use crate::api::memory::Planned;
use crate::api::model::{build, describe_data, device, load_any_model, load_model};
use crate::api::samples;
use crate::api::what::{expect_no_input, expect_no_run_file, output};
use crate::checkpoint::Best;
use crate::config::Loaded;
use crate::config::declare::tagged::Tagged;
use crate::config::experiment::Validation;
use crate::config::value_as_toml;
use crate::data::{Batch, Split, Unread};
use crate::files::output::{Out, Output};
use crate::graph::op::{Figure, Task};
use crate::passes::PassOptions;
use crate::terminal::say;
use crate::terminal::{Stream, columns, figure, percent, thousands, width};
use crate::train::run::eval_options;
use crate::train::run::evaluate::{Evaluation, evaluate_batches};
use crate::train::setup::balance::balance;
use crate::train::setup::class_report::ClassReport;
use crate::train::setup::error_report::ErrorReport;
use crate::train::setup::figures::Figures;
use crate::train::setup::input::{self, Samples};
use crate::train::setup::memory::{Needs, Use};
use crate::train::setup::photos::PhotoPlan;
use crate::train::setup::programs::Sizes;
use crate::train::setup::session::Session;
use anyhow::Context;
use learnt::OfHead;
use predictions::{Form, Predictions, cannot_write, expect_room, rows_to, writes_answers};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// What is evaluated.
#[derive(Clone)]
pub struct Asked<'a> {
    /// A checkpoint, or a configuration with weights.
    pub model: &'a Path,
    /// Which device, which data, which values.
    pub overrides: &'a Overrides,
    /// Which passes are left out.
    pub passes: PassOptions,
    /// Which samples.
    pub split: SplitName,
    /// Other samples than those of the training are asked for, so that they are no news.
    pub other_data: bool,
    /// Data may be downloaded.
    pub allow_download: bool,
    /// Compute threads.
    pub threads: Option<usize>,
    /// Where something is written, which must be none of the files that are read.
    pub out: Option<&'a Output>,
}

/// What came of it.
pub struct Evaluated {
    /// The configuration.
    pub loaded: Loaded,
    /// The samples.
    pub samples: Samples,
    /// The part of them.
    pub split: &'static str,
    /// How many there are in it.
    pub count: usize,
    /// The figures.
    pub figures: Figures,
    /// The figures of each class, if there are classes.
    pub report: Option<ClassReport>,
    /// The same of the heads that learn classes.
    pub of_heads: Vec<OfHead>,
    /// The figures of each number that is learnt, if there are several.
    pub errors: Option<ErrorReport>,
    /// What must be known of the samples.
    pub notes: Vec<String>,
    /// Samples that could not be read.
    pub unread: Unread,
    /// Samples whose loss is not finite.
    pub not_finite: u64,
    /// How the checkpoint was chosen among those of its run, if it was.
    pub chosen: Option<Chosen>,
}

/// How a checkpoint was chosen.
pub struct Chosen {
    /// By which figure, with its value.
    pub best: Best,
    /// On what.
    pub on: Validation,
    /// Whether those are the samples that it is evaluated on.
    pub same: bool,
}

impl Chosen {
    fn json(&self) -> Value {
        json!({ "monitor": self.best.monitor, "value": self.best.value, "on": self.on.key(), "same_samples": self.same })
    }

    /// The note about a checkpoint, or about `several`.
    fn in_words(&self, several: bool) -> String {
        let (monitor, on) = (&self.best.monitor, self.on.name());
        let (was, it) = if several { ("checkpoints were", "they") } else { ("checkpoint was", "it") };
        match self.same {
            true => {
                format!("the {was} chosen by `{monitor}` on these samples ({on}): on new ones {it} may do less well")
            }
            false => format!("the {was} chosen by `{monitor}` on {on}, not on these"),
        }
    }
}

/// Evaluates a model on a part of its data. `see` is called with every batch after it has been evaluated.
///
/// # Errors
/// The model or the data cannot be read, or do not fit; there is not enough memory; `see` fails.
pub fn evaluated(
    asked: &Asked,
    see: &mut dyn FnMut(&mut Session, &Batch, &Split) -> anyhow::Result<()>,
) -> Result<Evaluated, Failure> {
    let mut model = load_model(asked.model, &asked.overrides.sets())?;
    if let Some(out) = asked.out {
        expect_no_input(out, model.files().iter().map(PathBuf::as_path))?;
        expect_no_run_file(out)?;
    }
    // What is reported of each class.
    model.loaded.experiment.class_counts = !model.loaded.experiment.data.source.is_text();
    let model = model;
    if model.checkpoint.is_some() {
        warn(&model.loaded.sources, &model.loaded.warnings);
    }
    let experiment = &model.loaded.experiment;
    let backend = device(experiment, asked.threads)?;
    // Mistakes in the model come before the data is read.
    let spec = describe_data(&model.loaded)?;
    asked.out.map_or(Ok(()), |out| expect_room(out.path(), &spec, experiment.loss.describe().task()))?;
    let passes = &asked.passes;
    // Samples of a text that states go on in are in batches of that size.
    let batch = match asked.split {
        SplitName::Train if experiment.data.source.carries_state() => experiment.micro_batch(),
        _ => experiment.data.loading.eval_batch_size(),
    };
    let whole = Sizes { eval: vec![batch.into()], ..Sizes::default() };
    let programs = build(&model.loaded, &spec, &whole, backend.as_ref(), passes)?;
    let photos = PhotoPlan::new(experiment, &spec, false);
    let planned = Planned {
        loaded: &model.loaded,
        data: &spec,
        plan: &programs.plan,
        backend: backend.as_ref(),
        what: Use::Evaluation(batch),
        needs: Needs::of_evaluation(experiment, spec.val, photos.with(input::footprint(experiment))),
        passes,
    };
    planned.require()?;

    let take = samples::as_asked(experiment, &asked.overrides.sets(), asked.allow_download);
    let trained_on = model.trained_on();
    let mut samples =
        samples::load(experiment, &take).map_err(|e| samples::missing(e, experiment, &because(&trained_on)))?;
    // A fallback has been reported already.
    let other = if samples.note.is_none() && trained_on.is_none() { model.other_data(&samples) } else { None };
    let warned = other.clone().filter(|_| !asked.other_data);
    // Other data, or what stands in for the training's.
    let is_other = samples.note.is_some() || trained_on.is_some() || other.is_some();
    let no_test = asked.split == SplitName::Test && samples.test_is_val && experiment.validation() == Validation::Own;
    let no_test = no_test.then(|| "there is no test set: these are the samples that training validates on".to_owned());
    let mut notes: Vec<String> = samples.note.iter().cloned().chain(trained_on).chain(warned).chain(no_test).collect();
    notes.iter().for_each(|note| say(&format!("warning: {note}")));
    let (name, split) = match asked.split {
        SplitName::Val => ("val", samples.val.clone()),
        SplitName::Test => ("test", samples.test.clone()),
        SplitName::Train => ("train", samples.train.clone()),
    };
    if split.is_empty() {
        return Err(Failure::Usage(format!(
            "the data has no samples in the split `{name}`; choose another with --split"
        )));
    }
    let split = &samples.keep_photos_of(experiment, &split)?;
    // Of weights from elsewhere; a run has kept what its classes weigh.
    let mut balanced = model.loaded.clone();
    balance(&mut balanced.experiment, &samples.train, &samples.spec);
    let eval = Sizes::of_lengths(Sizes::of(batch, Some(split.len()), false), split.lengths());
    let sizes = Sizes { eval, ..Sizes::default() };
    let programs = build(&balanced, &samples.spec, &sizes, backend.as_ref(), passes)?;
    let planned = Planned {
        data: &samples.spec,
        plan: &programs.plan,
        what: Use::Evaluation(split.len()),
        needs: Needs::of_evaluation(experiment, Some(split.len()), photos.with(samples.footprint())),
        ..planned
    };
    planned.require()?;
    let mut session = model.session(programs, &samples.spec, backend.as_ref())?;
    let never = AtomicBool::new(false);
    let mut unread = Unread::default();
    let mut options = eval_options(experiment);
    options.batch_size = batch;
    let Evaluation { figures, notes: of_figures, not_finite } = evaluate_batches(
        &mut session,
        backend.as_ref(),
        split,
        &options,
        &never,
        &mut unread,
        &mut |session, batch| see(session, batch, split),
    )?
    .ok_or_else(|| anyhow::anyhow!("the evaluation was interrupted"))?;
    let trouble = samples.cache.as_ref().and_then(|cache| cache.trouble());
    for text in of_figures.iter().cloned().chain(unread.left_out_in_words(0)).chain(trouble) {
        say(&format!("warning: {text}"));
    }
    notes.extend(of_figures);
    // Nothing is known of how other samples are related to those.
    let chosen = model.chosen().filter(|_| !is_other).map(|(best, on)| {
        let same = match asked.split {
            SplitName::Val => true,
            SplitName::Test => samples.test_is_val,
            SplitName::Train => false,
        };
        Chosen { best, on, same }
    });
    let (report, errors, count) = (session.class_report()?, session.error_report()?, split.len() - unread.list().len());
    let of_heads = OfHead::all(&mut session)?;
    Ok(Evaluated {
        loaded: model.loaded,
        samples,
        split: name,
        count,
        figures,
        report,
        of_heads,
        errors,
        notes,
        unread,
        not_finite,
        chosen,
    })
}

/// Evaluates a model, and writes what it says of every sample to `path`, which is there when all is done.
fn with_predictions(
    asked: &Asked,
    path: &Path,
    guard_formulas: bool,
    writing: &WritingArgs,
) -> Result<Evaluated, Failure> {
    written(path, guard_formulas, &mut |out, rows| {
        let asked = &Asked { out: Some(out), ..asked.clone() };
        let mut asks = true;
        evaluated(asked, &mut |session, batch, split| {
            let answers = writes_answers(&session.programs.fields);
            if let (Some(option), false) = (writing.asked(), answers) {
                return Err(Failure::Usage(format!(
                    "`{option}` is for models that answer texts, and this one writes none\nhelp: leave it out"
                ))
                .into());
            }
            if std::mem::take(&mut asks) && answers {
                let model = load_model(asked.model, &asked.overrides.sets())?;
                let options = writing.options(batch.shape.samples, batch.shape.samples);
                let generator = Generator::new(&model, &generate::Options { threads: asked.threads, ..options })?;
                generator.notes(options.texts).for_each(|note| say(&format!("note: {note}")));
                rows.written_by(generator);
            }
            rows.see(session, batch, split)
        })
    })
}

/// What `evaluate` finds, which hands on what is written to `path`: that is there when all is done.
fn written<T>(
    path: &Path,
    guard_formulas: bool,
    evaluate: &mut dyn FnMut(&Output, &mut Predictions) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let form = Form::of(path)?;
    if guard_formulas && form != Form::Csv {
        return Err(Failure::Usage(
            "`--guard-formulas` is for tables\nhelp: end the name with .csv, or leave it out".into(),
        ));
    }
    let out = output(path)?;
    let mut done = None;
    let fill = |file: &mut Out| -> anyhow::Result<()> {
        let mut rows = Predictions::new(form, guard_formulas, path, file);
        let found = evaluate(&out, &mut rows);
        let failed = found.is_err();
        done = Some(found);
        // The error of the evaluation is reported, and not an error of the file.
        anyhow::ensure!(!failed, "the evaluation failed");
        let rows = rows.finish()?;
        if !out.is_standard_output() {
            let s = if rows == 1 { "" } else { "s" };
            say(&format!("wrote {} row{s} to `{}`", thousands(rows), path.display()));
        }
        Ok(())
    };
    let written = out.write(fill);
    match done {
        Some(Ok(found)) => {
            written.with_context(|| cannot_write(path))?;
            Ok(found)
        }
        Some(Err(failure)) => Err(failure),
        None => Err(written
            .err()
            .unwrap_or_else(|| anyhow::anyhow!("nothing was evaluated"))
            .context(cannot_write(path))
            .into()),
    }
}

/// The keys of `[data]` that say which samples are held out.
const HOLD_OUT: [&str; 6] =
    ["validation_split", "split_column", "group_column", "time_column", "stratify_column", "folds"];

/// What is changed of the configuration, with the data of `--data` in the place of its own.
fn with_data(args: &EvalArgs) -> Result<Overrides, Failure> {
    let mut overrides = args.overrides.clone();
    let Some(file) = &args.data else { return Ok(overrides) };
    let experiment = load_any_model(&args.model, &args.overrides.sets())?.loaded.experiment;
    let source = &experiment.data.source;
    if !source.has_val_path() {
        return Err(Failure::Usage(format!(
            "`--data` names a file, and `source = \"{}\"` reads none\nhelp: name the keys of `[data]` with `--set`, as `--set data.root=DIR`",
            source.type_name()
        )));
    }
    let file = file.to_str().with_context(|| format!("`{}` is not UTF-8", file.display()))?;
    let held = HOLD_OUT.map(|key| format!("data.{key}")).into_iter().filter(|key| experiment.span_of(key).is_some());
    overrides.unset.extend(held);
    let file = value_as_toml(&file.into());
    overrides.set.extend(["path", "val_path"].map(|key| format!("data.{key}={file}")));
    Ok(overrides)
}

/// Evaluates a model on a part of its data, and prints the figures.
pub(super) fn run(args: &EvalArgs) -> Result<ExitCode, Failure> {
    if let Some(all) = Members::of(&args.model)? {
        if args.data.is_some() {
            return Err(Failure::Usage(
                "`--data` is for one model, and this is a folder of several\nhelp: `--set data.val_path=FILE` has all of them answer for another file".into(),
            ));
        }
        return members::run(args, all);
    }
    let predictions = rows_to(args)?;
    let overrides = with_data(args)?;
    if let (Some(option), None) = (args.writing.asked(), &args.predictions) {
        return Err(Failure::Usage(format!(
            "`{option}` is for answers that are written, and figures come from the tokens of the data\nhelp: name a file for them with `--predictions`"
        )));
    }
    let asked = Asked {
        model: &args.model,
        overrides: &overrides,
        passes: args.passes.options(),
        split: args.split,
        other_data: args.data.is_some(),
        allow_download: args.allow_download,
        threads: args.threads,
        out: None,
    };
    let found = match &args.predictions {
        Some(path) => with_predictions(&asked, path, args.guard_formulas, &args.writing)?,
        None => evaluated(&asked, &mut |_, _, _| Ok(()))?,
    };
    let Evaluated { loaded, samples, split: name, count, figures, report, of_heads, errors, .. } = found;
    let Evaluated { notes, unread, not_finite, chosen, .. } = found;
    let experiment = &loaded.experiment;
    let names = samples.spec.label_names();
    if args.output.json {
        let mut metrics: Map<String, Value> =
            figures.named().map(|(name, _, v)| (name.into_owned(), json!(v))).collect();
        metrics.extend(report.iter().flat_map(counted));
        let mut out = json!({ "data": samples.name, "split": name, "samples": count, "metrics": metrics });
        if let Some(chosen) = &chosen {
            out["chosen"] = chosen.json();
        }
        if let Some(report) = &report {
            class_table::add_json(&mut out, report, names);
        }
        for OfHead { head, names, report } in &of_heads {
            class_table::add_json(&mut out["heads"][head], report, names.as_deref());
        }
        if let Some(each) = errors.as_ref().and_then(|errors| error_table::json(errors, &samples.spec)) {
            out["per_target"] = each;
        }
        if !unread.is_empty() {
            out["unreadable"] = json!(unread.list().iter().map(|u| &u.name).collect::<Vec<_>>());
        }
        if not_finite > 0 {
            out["not_finite"] = not_finite.into();
        }
        if !notes.is_empty() {
            out["note"] = json!(notes.join("; "));
        }
        super::print_json(&out)?;
    } else {
        let figures = with_top5(figures, report.as_ref());
        let list = in_words(&figures);
        let source = experiment.data.source.type_name();
        let instead = match samples.name == source {
            true => String::new(),
            false => format!(" of the bundled {}, not of {source}", samples.name),
        };
        let n = thousands(count as u64);
        // Of labels, the last axis is what they are.
        let rank = samples.spec.target().map_or(0, |(_, field)| field.shape.rank());
        let table = report.map(|report| {
            let positions = rank > usize::from(report.labels);
            format!("\n\n{}", class_table::text(&report, names, positions, width(Stream::Out)))
        });
        let table = table.or_else(|| Some(format!("\n\n{}", error_table::text(errors.as_ref()?, &samples.spec)?)));
        let left_out = match not_finite {
            0 => String::new(),
            n => format!(", {} of them not finite", thousands(n)),
        };
        let line = in_lines(&format!("{name}, {n} samples{instead}{left_out}:"), &list, width(Stream::Out));
        let of_heads = of_heads.iter().map(|OfHead { head, names, report }| {
            format!("\n\n{head}\n{}", class_table::text(report, names.as_deref(), false, width(Stream::Out)))
        });
        let text = format!("{line}{}{}", table.unwrap_or_default(), of_heads.collect::<String>());
        super::print_beside(predictions.as_ref(), &text)?;
        if let Some(chosen) = &chosen {
            say(&format!("note: {}", chosen.in_words(false)));
        }
    }
    // As a training step with such a loss ends.
    Ok(if not_finite > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Of more than ten classes the five likeliest say something, too.
fn with_top5(figures: Figures, report: Option<&ClassReport>) -> Figures {
    let many = report.filter(|report| report.classes.len() > 10 && !report.labels);
    match many.and_then(|report| report.figure(Figure::Top5Accuracy)) {
        Some(top5) => figures.with(Figure::Top5Accuracy, top5),
        None => figures,
    }
}

/// All figures that come of counts of classes, for programs.
fn counted(report: &ClassReport) -> impl Iterator<Item = (String, Value)> {
    let task = if report.labels { Task::BinaryClassification } else { Task::Classification };
    let all = task.asked_figures().iter().filter(|f| f.top_k().is_none_or(|k| k <= report.classes.len()));
    all.filter_map(|f| Some((f.name().to_string(), json!(report.figure(*f)?))))
}

/// Each figure with its name.
fn in_words(figures: &Figures) -> Vec<String> {
    let of = |name: &str, f: Figure, v| format!("{name} {}", if f.is_share() { percent(v) } else { figure(v, 6, 12) });
    figures.named().map(|(name, f, v)| of(&name, f, v)).collect()
}

/// `what` was evaluated and a list of its figures, in lines of at most `width` columns where they have a break.
fn in_lines(what: &str, list: &[String], width: usize) -> String {
    let mut out = what.to_owned();
    let mut used = columns(what);
    for (i, text) in list.iter().enumerate() {
        let comma = if i + 1 < list.len() { "," } else { "" };
        let wide = 1 + columns(text) + comma.len();
        // Loss and accuracy stay beside what they are of.
        let breaks = i > 1 && used + wide > width;
        out.push_str(if breaks { "\n  " } else { " " });
        used = if breaks { wide + 1 } else { used + wide };
        out.push_str(&format!("{text}{comma}"));
    }
    out
}

/// Why no other data is taken, and how to ask for it.
fn because(trained_on: &Option<String>) -> String {
    let what = match trained_on {
        Some(note) => {
            format!("{note}; a figure is of the data asked for, unless --set data.fallback=digits asks for theirs")
        }
        None => {
            "a figure is of the data asked for, unless --set data.fallback=digits asks for that of the bundled digits"
                .into()
        }
    };
    format!("{what}; nothing is downloaded unasked")
}
