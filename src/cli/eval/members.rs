//! Figures of several models: of each row by the fold that has not seen it; of other rows, and of seeds, by all together.

use super::predictions::Predictions;
use super::{Asked, Evaluated, SplitName, evaluated, in_lines, written};
use crate::api::failure::Failure;
use crate::api::members::{Members, together};
use crate::api::scores::{sigmoid, softmax};
use crate::cli::args::{EvalArgs, Overrides};
use crate::config::declare::tagged::Tagged;
use crate::config::language::sections::middle;
use crate::data::{Batch, Split};
use crate::files::output::Output;
use crate::graph::op::{Figure, Task};
use crate::model::task;
use crate::terminal::{Stream, figure, percent, thousands, width};
use crate::train::setup::programs::Kind;
use crate::train::setup::session::Session;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// What a model puts out for some samples, and what it should.
#[derive(Default)]
struct Answers {
    task: Option<Task>,
    /// For each sample.
    outputs: Vec<Vec<f32>>,
    /// Likewise; classes are whole numbers.
    targets: Vec<Vec<f32>>,
    /// The quantiles of each target, if there are several.
    quantiles: Vec<f64>,
    /// Samples of this class do not count.
    ignored: Option<i32>,
    source: String,
    split: &'static str,
}

impl Answers {
    /// Those of the model in a folder. `see` is called with each batch.
    fn of(
        asked: &Asked,
        see: &mut dyn FnMut(&mut Session, &Batch, &Split) -> anyhow::Result<()>,
    ) -> Result<Answers, Failure> {
        let mut found = Answers::default();
        let (mut bytes, mut targets) = (Vec::new(), Vec::new());
        let Evaluated { loaded, split, .. } = evaluated(asked, &mut |session, batch, split| {
            see(session, batch, split)?;
            session.outputs(Kind::Eval, batch.shape, &mut bytes)?;
            let words = session.programs.targets(&batch.buffer, batch.shape).as_chunks::<4>().0;
            let outputs = bytes.as_chunks::<4>().0;
            let [each, of_each] = [outputs.len(), words.len()].map(|all| all / batch.shape.samples);
            for i in 0..batch.samples().len() {
                let output = outputs[i * each..][..each].iter().map(|b| f32::from_ne_bytes(*b));
                found.outputs.push(output.collect());
                targets.push(words[i * of_each..][..of_each].to_vec());
            }
            Ok(())
        })?;
        let task = task(&loaded.experiment);
        let number = |bytes: &[u8; 4]| match task {
            Task::Classification => i32::from_ne_bytes(*bytes) as f32,
            Task::BinaryClassification | Task::Regression => f32::from_ne_bytes(*bytes),
        };
        found.targets = targets.iter().map(|words| words.iter().map(number).collect()).collect();
        found.task = Some(task);
        found.quantiles = loaded.experiment.loss.quantiles().to_vec();
        found.ignored = loaded.experiment.loss.describe().ignore_index();
        found.source = loaded.experiment.data.source.type_name().to_owned();
        found.split = split;
        Ok(found)
    }

    fn figures(&self) -> Vec<(Figure, f64)> {
        let pairs = || self.outputs.iter().zip(&self.targets);
        let (each, at) = (self.quantiles.len().max(1), middle(&self.quantiles));
        let numbers = || {
            let all = pairs().flat_map(|(x, t)| x.chunks_exact(each).zip(t));
            all.map(|(x, t)| (f64::from(x[at]), f64::from(*t)))
        };
        let inside = |(x, t): (&[f32], &f32)| f64::from(x.iter().any(|x| x <= t) && x.iter().any(|x| x >= t));
        let mean = |all: &mut dyn Iterator<Item = f64>| {
            let (sum, count) = all.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
            sum / count
        };
        match self.task {
            Some(Task::Classification) => {
                let ignored = self.ignored.map(|class| class as f32);
                let pairs = || pairs().filter(|(_, t)| Some(t[0]) != ignored);
                let largest = |row: &[f32]| (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
                let right = |(x, t): (&Vec<f32>, &Vec<f32>)| f64::from(largest(x) == t[0] as usize);
                let log = |(x, t): (&Vec<f32>, &Vec<f32>)| {
                    -softmax(x.iter().copied()).nth(t[0] as usize).unwrap_or(0.0).max(f64::MIN_POSITIVE).ln()
                };
                vec![(Figure::Accuracy, mean(&mut pairs().map(right))), (Figure::LogLoss, mean(&mut pairs().map(log)))]
            }
            Some(Task::BinaryClassification) => {
                let right = |(x, t): (f64, f64)| f64::from((x > 0.0) == (t > 0.5));
                let log = |(x, t): (f64, f64)| {
                    let p = sigmoid(x as f32);
                    -(if t > 0.5 { p } else { 1.0 - p }).max(f64::MIN_POSITIVE).ln()
                };
                vec![
                    (Figure::Accuracy, mean(&mut numbers().map(right))),
                    (Figure::LogLoss, mean(&mut numbers().map(log))),
                ]
            }
            Some(Task::Regression) => {
                let square = mean(&mut numbers().map(|(x, t)| (x - t).powi(2)));
                let absolute = mean(&mut numbers().map(|(x, t)| (x - t).abs()));
                let mut all = vec![(Figure::Mae, absolute), (Figure::Rmse, square.sqrt())];
                if each > 1 {
                    let covered = pairs().flat_map(|(x, t)| x.chunks_exact(each).zip(t)).map(inside);
                    all.push((Figure::Coverage, mean(&mut { covered })));
                }
                all
            }
            None => Vec::new(),
        }
    }
}

/// Evaluates the models of the folder, and prints the figures.
///
/// # Errors
/// As for one of them; what is asked for is there for one alone.
pub fn run(args: &EvalArgs, members: Members) -> Result<ExitCode, Failure> {
    let folders = &members.folders(&args.model)[..];
    if let Some(option) = args.writing.asked() {
        return Err(Failure::Usage(format!(
            "`{option}` is for one model that writes answers, and `{}` has {}\nhelp: leave it out",
            args.model.display(),
            members.counted()
        )));
    }
    let mut overrides: Overrides = args.overrides.clone();
    let other = match members {
        Members::Folds(_) => {
            if args.split != SplitName::Val {
                let first = folders.first().map(|path| path.display().to_string()).unwrap_or_default();
                return Err(Failure::Usage(format!(
                    "there is no such split of several folds\nhelp: give the folder of one, such as `{first}`"
                )));
            }
            // Rows that are none of theirs are answered by all of them.
            let other = args.overrides.set.iter().any(|set| set.starts_with("data.val_path="));
            if other {
                overrides.unset.extend(["data.folds".to_owned(), "data.fold".to_owned()]);
            }
            other
        }
        Members::Seeds(_) => true,
    };
    let all = match &args.predictions {
        Some(path) => written(path, args.guard_formulas, &mut |out, rows| {
            answers(args, folders, &overrides, other, Some((out, rows)))
        })?,
        None => answers(args, folders, &overrides, other, None)?,
    };
    let (figures, count, split) = (all.figures(), all.outputs.len(), all.split);
    if args.output.json {
        let metrics: Map<String, Value> = figures.iter().map(|(f, v)| (f.name().to_owned(), json!(v))).collect();
        let by = if other { "all" } else { "each" };
        crate::cli::print_json(
            &json!({ "data": all.source, "split": split, "samples": count, format!("{}s", members.one()): members.number(), "by": by, "metrics": metrics }),
        )?;
    } else {
        let told = |(f, v): &(Figure, f64)| {
            format!("{} {}", f.name(), if f.is_share() { percent(*v) } else { figure(*v, 6, 12) })
        };
        let list: Vec<String> = figures.iter().map(told).collect();
        let n = thousands(count as u64);
        let what = match other {
            true => format!("{split}, {n} samples, by {} together:", members.counted()),
            false => format!("{split}, {n} samples, each by the one of {} that has not seen it:", members.counted()),
        };
        crate::cli::print(&in_lines(&what, &list, width(Stream::Out)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What all models say: each fold of the rows that it has held out or, of `other` samples, all together. It goes to `rows`, too.
fn answers(
    args: &EvalArgs,
    folders: &[PathBuf],
    overrides: &Overrides,
    other: bool,
    mut rows: Option<(&Output, &mut Predictions)>,
) -> Result<Answers, Failure> {
    let mut all = Answers::default();
    let mut each: Vec<Answers> = Vec::with_capacity(folders.len());
    for (at, folder) in folders.iter().enumerate() {
        let asked = Asked {
            model: folder,
            overrides,
            passes: args.passes.options(),
            split: args.split,
            allow_download: args.allow_download,
            threads: args.threads,
            out: rows.as_ref().map(|(out, _)| *out),
        };
        if let Some((_, rows)) = rows.as_mut().filter(|_| !other) {
            rows.of_fold(at + 1);
        }
        let last = at + 1 == folders.len();
        let mut found = Answers::of(&asked, &mut |session, batch, split| match &mut rows {
            Some((_, rows)) if !other => rows.see(session, batch, split),
            // What is said together is known when the last one is heard.
            Some((_, rows)) if last => {
                let task = each.first().and_then(|one| one.task).unwrap_or(Task::Regression);
                let with = |sample: usize, output: Vec<f32>| {
                    let others = each.iter().map(|one| &one.outputs[sample][..]);
                    together(task, &others.chain([&output[..]]).collect::<Vec<_>>())
                };
                rows.see_with(session, batch, split, &with)
            }
            _ => Ok(()),
        })?;
        match other {
            true => each.push(found),
            false => {
                all.outputs.append(&mut found.outputs);
                all.targets.append(&mut found.targets);
                all = Answers { outputs: all.outputs, targets: all.targets, ..found };
            }
        }
    }
    if let Some(first) = each.first() {
        let task = first.task.unwrap_or(Task::Regression);
        let row = |at: usize| together(task, &each.iter().map(|one| &one.outputs[at][..]).collect::<Vec<_>>());
        all = Answers {
            outputs: (0..first.outputs.len()).map(row).collect(),
            targets: first.targets.clone(),
            source: first.source.clone(),
            quantiles: first.quantiles.clone(),
            ..*first
        };
    }
    Ok(all)
}
