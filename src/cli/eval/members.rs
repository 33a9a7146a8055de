//! Figures of several models: of each row by the fold that has not seen it; of other rows, and of seeds, by all together.

use super::learnt::{Learnt, Outputs, targets};
use super::predictions::Predictions;
use super::{Asked, Evaluated, SplitName, evaluated, in_lines, written};
use crate::api::failure::Failure;
use crate::api::members::{Members, together_in_parts};
use crate::api::scores::{sigmoid, softmax};
use crate::cli::args::{EvalArgs, Overrides};
use crate::config::declare::tagged::Tagged;
use crate::config::language::sections::middle;
use crate::data::{Batch, Split};
use crate::files::output::Output;
use crate::graph::op::{Figure, Task};
use crate::terminal::{Stream, figure, percent, thousands, width};
use crate::train::setup::session::Session;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// What a model puts out for some samples, and what it should.
#[derive(Default)]
struct Answers {
    /// What it learns: the main target, then those of heads.
    learnt: Vec<Target>,
    /// For each sample, of all that is learnt one behind the other.
    outputs: Vec<Vec<f32>>,
    /// Likewise; classes are whole numbers.
    targets: Vec<Vec<f32>>,
    source: String,
    split: &'static str,
}

/// What is learnt.
#[derive(Clone)]
struct Target {
    /// What its figures begin with: the name of its head, and `_`.
    prefix: String,
    task: Task,
    /// The quantiles of each number, if there are several.
    quantiles: Vec<f64>,
    /// Samples of this class do not count.
    ignored: Option<i32>,
    /// Of what is put out for a sample, how many numbers are of it; and of what is learnt.
    widths: [usize; 2],
}

impl Answers {
    /// Those of the model in a folder. `see` is called with each batch.
    fn of(
        asked: &Asked,
        see: &mut dyn FnMut(&mut Session, &Batch, &Split) -> anyhow::Result<()>,
    ) -> Result<Answers, Failure> {
        let mut found = Answers::default();
        let Evaluated { loaded, split, .. } = evaluated(asked, &mut |session, batch, split| {
            see(session, batch, split)?;
            let outputs = Outputs::of(session, batch)?;
            let learnt = Learnt::all(&session.programs);
            for i in 0..batch.samples().len() {
                found.outputs.push(outputs.sample(i));
                let targets = targets(&session.programs, batch, i);
                if found.learnt.is_empty() {
                    let widths = outputs.widths().into_iter().zip(targets.iter().map(|target| target.len()));
                    found.learnt =
                        learnt.iter().zip(widths).map(|(learnt, (a, b))| Target::new(learnt, [a, b])).collect();
                }
                let numbers = found.learnt.iter().zip(targets).flat_map(|(learnt, target)| {
                    target.iter().map(|bytes| match learnt.task {
                        Task::Classification => i32::from_ne_bytes(*bytes) as f32,
                        Task::BinaryClassification | Task::Regression => f32::from_ne_bytes(*bytes),
                    })
                });
                found.targets.push(numbers.collect());
            }
            Ok(())
        })?;
        found.source = loaded.experiment.data.source.type_name().to_owned();
        found.split = split;
        Ok(found)
    }

    /// What stands one behind the other in an output.
    fn parts(&self) -> Vec<(Task, usize)> {
        self.learnt.iter().map(|target| (target.task, target.widths[0])).collect()
    }

    /// The figures of all that is learnt, with their names.
    fn figures(&self) -> Vec<(String, Figure, f64)> {
        let mut first = [0, 0];
        let of = |target: &Target| {
            let from = first;
            first = [from[0] + target.widths[0], from[1] + target.widths[1]];
            let outputs = self.outputs.iter().map(|output| &output[from[0]..first[0]]);
            let targets = self.targets.iter().map(|numbers| &numbers[from[1]..first[1]]);
            let figures = target.figures(&outputs.zip(targets).collect::<Vec<_>>()).into_iter();
            figures
                .map(|(figure, value)| (format!("{}{}", target.prefix, figure.name()), figure, value))
                .collect::<Vec<_>>()
        };
        self.learnt.iter().flat_map(of).collect()
    }
}

impl Target {
    fn new(learnt: &Learnt, widths: [usize; 2]) -> Target {
        Target {
            prefix: learnt.head.map_or(String::new(), |head| format!("{head}_")),
            task: learnt.loss.task(),
            quantiles: learnt.quantiles.to_vec(),
            ignored: learnt.loss.ignore_index(),
            widths,
        }
    }

    /// Its figures over samples, of each what is put out and what should be.
    fn figures(&self, samples: &[(&[f32], &[f32])]) -> Vec<(Figure, f64)> {
        let (each, at) = (self.quantiles.len().max(1), middle(&self.quantiles));
        let numbers = || {
            let all = samples.iter().flat_map(|(x, t)| x.chunks_exact(each).zip(*t));
            all.map(|(x, t)| (f64::from(x[at]), f64::from(*t)))
        };
        let inside = |(x, t): (&[f32], &f32)| f64::from(x.iter().any(|x| x <= t) && x.iter().any(|x| x >= t));
        let mean = |all: &mut dyn Iterator<Item = f64>| {
            let (sum, count) = all.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
            sum / count
        };
        match self.task {
            Task::Classification => {
                let ignored = self.ignored.map(|class| class as f32);
                let counted = || samples.iter().filter(|(_, t)| Some(t[0]) != ignored);
                let largest = |row: &[f32]| (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
                let right = |(x, t): &(&[f32], &[f32])| f64::from(largest(x) == t[0] as usize);
                let log = |(x, t): &(&[f32], &[f32])| {
                    -softmax(x.iter().copied()).nth(t[0] as usize).unwrap_or(0.0).max(f64::MIN_POSITIVE).ln()
                };
                vec![
                    (Figure::Accuracy, mean(&mut counted().map(right))),
                    (Figure::LogLoss, mean(&mut counted().map(log))),
                ]
            }
            Task::BinaryClassification => {
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
            Task::Regression => {
                let square = mean(&mut numbers().map(|(x, t)| (x - t).powi(2)));
                let absolute = mean(&mut numbers().map(|(x, t)| (x - t).abs()));
                let mut all = vec![(Figure::Mae, absolute), (Figure::Rmse, square.sqrt())];
                if each > 1 {
                    let covered = samples.iter().flat_map(|(x, t)| x.chunks_exact(each).zip(*t)).map(inside);
                    all.push((Figure::Coverage, mean(&mut { covered })));
                }
                all
            }
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
        let metrics: Map<String, Value> = figures.iter().map(|(name, _, v)| (name.clone(), json!(v))).collect();
        let by = if other { "all" } else { "each" };
        crate::cli::print_json(
            &json!({ "data": all.source, "split": split, "samples": count, format!("{}s", members.one()): members.number(), "by": by, "metrics": metrics }),
        )?;
    } else {
        let told = |(name, f, v): &(String, Figure, f64)| {
            format!("{name} {}", if f.is_share() { percent(*v) } else { figure(*v, 6, 12) })
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
                let parts = each.first().map_or(Vec::new(), Answers::parts);
                let with = |sample: usize, output: Vec<f32>| {
                    let others = each.iter().map(|one| &one.outputs[sample][..]);
                    together_in_parts(&parts, &others.chain([&output[..]]).collect::<Vec<_>>())
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
        let parts = first.parts();
        let row =
            |at: usize| together_in_parts(&parts, &each.iter().map(|one| &one.outputs[at][..]).collect::<Vec<_>>());
        all = Answers {
            outputs: (0..first.outputs.len()).map(row).collect(),
            targets: first.targets.clone(),
            learnt: first.learnt.clone(),
            source: first.source.clone(),
            split: first.split,
        };
    }
    Ok(all)
}
