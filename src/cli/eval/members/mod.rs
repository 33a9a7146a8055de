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
use crate::data::{Batch, Split, Standard};
use crate::files::output::Output;
use crate::graph::op::{Figure, Loss, Task};
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
    samples: Vec<Sample>,
    source: String,
    split: &'static str,
}

struct Sample {
    /// What is put out, for all that is learnt one behind the other.
    output: Vec<f32>,
    /// What should be, likewise; classes are whole numbers.
    target: Vec<f32>,
    /// The loss of each regression, in the unit in which the model learns it.
    losses: Vec<Option<f64>>,
    /// What the sample weighs in losses.
    weight: f64,
}

/// What is learnt.
#[derive(Clone)]
struct Target {
    /// What its figures begin with: the name of its head, and `_`.
    prefix: String,
    loss: Loss,
    /// What its numbers are standardised by for the loss.
    standard: Option<Standard>,
    /// The quantiles of each number, if there are several.
    quantiles: Vec<f64>,
    /// Of what is put out for a sample, how many numbers are of it; and of what is learnt.
    widths: [usize; 2],
}

/// A sample as a target has it.
struct Part<'a> {
    output: &'a [f32],
    target: &'a [f32],
    loss: Option<f64>,
    weight: f64,
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
            let weights = session.programs.sample_weights(&batch.buffer, batch.shape);
            for i in 0..batch.samples().len() {
                let targets = targets(&session.programs, batch, i);
                if found.learnt.is_empty() {
                    let widths = outputs.widths().into_iter().zip(targets.iter().map(|target| target.len()));
                    found.learnt =
                        learnt.iter().zip(widths).map(|(learnt, (a, b))| Target::new(learnt, [a, b])).collect();
                }
                let numbers = found.learnt.iter().zip(targets).flat_map(|(learnt, target)| {
                    target.iter().map(|bytes| match learnt.loss.task() {
                        Task::Classification => i32::from_ne_bytes(*bytes) as f32,
                        Task::BinaryClassification | Task::Regression => f32::from_ne_bytes(*bytes),
                    })
                });
                let weight = weights.get(i).map_or(1.0, |weight| f64::from(f32::from_ne_bytes(*weight)));
                let sample = found.sample(outputs.sample(i), numbers.collect(), weight);
                found.samples.push(sample);
            }
            Ok(())
        })?;
        found.source = loaded.experiment.data.source.type_name().to_owned();
        found.split = split;
        Ok(found)
    }

    fn sample(&self, output: Vec<f32>, target: Vec<f32>, weight: f64) -> Sample {
        let losses = self.each(&output, &target).map(|(learnt, x, t)| learnt.learnt().loss_of_numbers(x, t));
        Sample { losses: losses.collect(), output, target, weight }
    }

    /// What is learnt, each with its own of what is put out and of what should be.
    fn each<'a>(
        &'a self,
        output: &'a [f32],
        target: &'a [f32],
    ) -> impl Iterator<Item = (&'a Target, &'a [f32], &'a [f32])> {
        let mut rest = [output, target];
        self.learnt.iter().map(move |learnt| {
            let [x, t] = [0, 1].map(|of| rest[of].split_off(..learnt.widths[of]).unwrap_or_default());
            (learnt, x, t)
        })
    }

    /// What stands one behind the other in an output.
    fn parts(&self) -> Vec<(Task, usize)> {
        self.learnt.iter().map(|target| (target.loss.task(), target.widths[0])).collect()
    }

    /// The figures of all that is learnt, with their names.
    fn figures(&self) -> Vec<(String, Figure, f64)> {
        let mut parts: Vec<Vec<Part>> = self.learnt.iter().map(|_| Vec::with_capacity(self.samples.len())).collect();
        for Sample { output, target, losses, weight } in &self.samples {
            let each = self.each(output, target).zip(losses).zip(&mut parts);
            each.for_each(|(((_, output, target), loss), parts)| {
                parts.push(Part { output, target, loss: *loss, weight: *weight });
            });
        }
        let named = |target: &Target, (figure, value): (Figure, f64)| {
            (format!("{}{}", target.prefix, figure.name()), figure, value)
        };
        let of = |(target, parts): (&Target, &Vec<Part>)| {
            target.figures(parts).into_iter().map(|figure| named(target, figure)).collect::<Vec<_>>()
        };
        self.learnt.iter().zip(&parts).flat_map(of).collect()
    }
}

impl Target {
    fn new(learnt: &Learnt, widths: [usize; 2]) -> Target {
        Target {
            prefix: learnt.head.map_or(String::new(), |head| format!("{head}_")),
            loss: learnt.loss.clone(),
            standard: learnt.standard.cloned(),
            quantiles: learnt.quantiles.to_vec(),
            widths,
        }
    }

    fn learnt(&self) -> Learnt<'_> {
        let (standard, quantiles) = (self.standard.as_ref(), &self.quantiles[..]);
        Learnt { head: None, loss: &self.loss, standard, quantiles, names: &[] }
    }

    /// Its figures over samples. As of one model, losses are means by what samples weigh, and other figures count all alike.
    fn figures(&self, samples: &[Part]) -> Vec<(Figure, f64)> {
        let (each, at) = (self.quantiles.len().max(1), middle(&self.quantiles));
        let pairs = |part: &Part| {
            let pairs = part.output.chunks_exact(each).zip(part.target);
            pairs.map(|(x, t)| (f64::from(x[at]), f64::from(*t))).collect::<Vec<_>>()
        };
        let numbers = || samples.iter().flat_map(pairs);
        let weighted = |all: &mut dyn Iterator<Item = (f64, f64)>| {
            let (sum, weights) =
                all.fold((0.0, 0.0), |(sum, all), (value, weight)| (sum + weight * value, all + weight));
            sum / weights
        };
        let mean = |all: &mut dyn Iterator<Item = f64>| weighted(&mut all.map(|value| (value, 1.0)));
        match self.loss.task() {
            Task::Classification => {
                let ignored = self.loss.ignore_index().map(|class| class as f32);
                let counted = || samples.iter().filter(|part| Some(part.target[0]) != ignored);
                let largest = |row: &[f32]| (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
                let right = |part: &Part| f64::from(largest(part.output) == part.target[0] as usize);
                let log = |part: &Part| {
                    let p = softmax(part.output.iter().copied()).nth(part.target[0] as usize).unwrap_or(0.0);
                    (-p.max(f64::MIN_POSITIVE).ln(), part.weight)
                };
                vec![
                    (Figure::Accuracy, mean(&mut counted().map(right))),
                    (Figure::LogLoss, weighted(&mut counted().map(log))),
                ]
            }
            Task::BinaryClassification => {
                let right = |(x, t): (f64, f64)| f64::from((x > 0.0) == (t > 0.5));
                let log = |(x, t): (f64, f64)| {
                    let p = sigmoid(x as f32);
                    -(if t > 0.5 { p } else { 1.0 - p }).max(f64::MIN_POSITIVE).ln()
                };
                let logs = |part: &Part| {
                    let weight = part.weight;
                    pairs(part).into_iter().map(move |pair| (log(pair), weight))
                };
                vec![
                    (Figure::Accuracy, mean(&mut numbers().map(right))),
                    (Figure::LogLoss, weighted(&mut samples.iter().flat_map(logs))),
                ]
            }
            Task::Regression => {
                let losses: Option<Vec<(f64, f64)>> =
                    samples.iter().map(|part| Some((part.loss?, part.weight))).collect();
                let loss = losses.map(|losses| (Figure::Loss, weighted(&mut losses.into_iter())));
                let square = mean(&mut numbers().map(|(x, t)| (x - t).powi(2)));
                let absolute = mean(&mut numbers().map(|(x, t)| (x - t).abs()));
                let own = [(Figure::Mae, absolute), (Figure::Rmse, square.sqrt())];
                let mut all: Vec<(Figure, f64)> = loss.into_iter().chain(own).collect();
                if each > 1 {
                    let inside =
                        |(x, t): (&[f32], &f32)| f64::from(x.iter().any(|x| x <= t) && x.iter().any(|x| x >= t));
                    let covered =
                        samples.iter().flat_map(|part| part.output.chunks_exact(each).zip(part.target)).map(inside);
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
    let (figures, count, split) = (all.figures(), all.samples.len(), all.split);
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
                    let others = each.iter().map(|one| &one.samples[sample].output[..]);
                    together_in_parts(&parts, &others.chain([&output[..]]).collect::<Vec<_>>())
                };
                rows.see_with(session, batch, split, &with)
            }
            _ => Ok(()),
        })?;
        match other {
            true => each.push(found),
            false => {
                all.samples.append(&mut found.samples);
                all = Answers { samples: all.samples, ..found };
            }
        }
    }
    if let Some(last) = each.last() {
        let parts = last.parts();
        // Losses are those of the last one, as in the rows that are written.
        let together = |(at, own): (usize, &Sample)| {
            let outputs: Vec<&[f32]> = each.iter().map(|one| &one.samples[at].output[..]).collect();
            last.sample(together_in_parts(&parts, &outputs), own.target.clone(), own.weight)
        };
        all = Answers {
            samples: last.samples.iter().enumerate().map(together).collect(),
            learnt: last.learnt.clone(),
            source: last.source.clone(),
            split: last.split,
        };
    }
    Ok(all)
}
