//! What each of several models says of samples, and what all together say.

use super::super::learnt::{Learnt, Outputs, targets};
use super::super::{Asked, Chosen, Evaluated, evaluated};
use super::target::{Measured, Part, Target};
use crate::api::failure::Failure;
use crate::config::declare::tagged::Tagged;
use crate::data::{Batch, DataSpec, NaiveErrors, Split};
use crate::graph::op::{Figure, Task};
use crate::train::setup::figures::Figures;
use crate::train::setup::scores::Scores;
use crate::train::setup::session::Session;

/// What a model puts out for some samples, and what it should.
#[derive(Default)]
pub struct Answers {
    /// What it learns: the main target, then those of heads.
    pub learnt: Vec<Target>,
    /// Each sample.
    pub samples: Vec<Sample>,
    /// Where they are from.
    pub source: String,
    /// What they are.
    pub spec: Option<DataSpec>,
    /// The part of the data that they are.
    pub split: &'static str,
    /// What gathers those of the figures asked for that come of the outputs of all samples.
    pub scores: Option<Scores>,
    /// The errors of naive forecasts, if the samples have them.
    pub naive: Option<NaiveErrors>,
    /// How the checkpoints were chosen that were.
    pub chosen: Vec<Chosen>,
}

/// A sample.
pub struct Sample {
    /// What is put out, for all that is learnt one after the other.
    pub output: Vec<f32>,
    /// What should be, likewise; classes are whole numbers.
    pub target: Vec<f32>,
    /// The loss of each target, in the unit in which the model learns it, times what the sample weighs there by its class; and that weight.
    losses: Vec<[f64; 2]>,
    /// What the sample weighs in losses.
    pub weight: f64,
}

impl Answers {
    /// Those of the model in a folder. `see` is called with each batch.
    ///
    /// # Errors
    /// As for an evaluation.
    pub fn of(
        asked: &Asked,
        see: &mut dyn FnMut(&mut Session, &Batch, &Split) -> anyhow::Result<()>,
    ) -> Result<Answers, Failure> {
        let mut found = Answers::default();
        let done = evaluated(asked, &mut |session, batch, split| {
            see(session, batch, split)?;
            if found.samples.is_empty() {
                found.scores = Scores::new(&session.programs, split.len());
            }
            let outputs = Outputs::of(session, batch)?;
            let learnt = Learnt::all(&session.programs);
            let weights = session.programs.sample_weights(&batch.buffer, batch.shape);
            for i in 0..batch.samples().len() {
                let targets = targets(&session.programs, batch, i);
                if found.learnt.is_empty() {
                    let widths = outputs.widths().into_iter().zip(targets.iter().map(|target| target.len()));
                    found.learnt =
                        learnt.iter().zip(widths).map(|(learnt, (a, b))| Target::new(learnt, [a, b])).collect();
                    found.learnt[0].asked.clone_from(&session.programs.asked);
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
        let Evaluated { loaded, samples, split, chosen, figures, .. } = done;
        found.source = loaded.experiment.data.source.type_name().to_owned();
        found.spec = Some(samples.spec);
        found.split = split;
        found.naive = figures.naive();
        found.chosen.extend(chosen);
        Ok(found)
    }

    /// A sample with its losses.
    pub fn sample(&self, output: Vec<f32>, target: Vec<f32>, weight: f64) -> Sample {
        let losses = self.each(&output, &target).map(|(learnt, x, t)| learnt.learnt().loss_of(x, t));
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

    /// Makes the losses those of one model with heads: each head has its own, and that of the main target is the sum.
    fn sum_losses(&self, all: &mut [Measured]) {
        let of = |one: &Measured| one.figures.get(Figure::Loss).unwrap_or(f64::NAN);
        let sum = self.learnt.iter().zip(&*all).map(|(target, one)| target.weight * of(one)).sum();
        for (one, target) in all.iter_mut().zip(&self.learnt) {
            let figures = std::mem::replace(&mut one.figures, Figures::none());
            one.figures = match one.head {
                None => figures.with(Figure::Loss, sum),
                // The likelihood of a head is its loss.
                Some(_) if target.loss_is_likelihood() => figures.without(Figure::LogLoss),
                Some(_) => figures,
            };
        }
    }

    /// What stands one after the other in an output.
    pub fn parts(&self) -> Vec<(Task, usize)> {
        self.learnt.iter().map(|target| (target.loss.task(), target.widths[0])).collect()
    }

    /// What is measured of all that is learnt; and what must be said of it.
    pub fn measured(mut self) -> (Vec<Measured>, Vec<String>) {
        let scores = self.scores.take();
        let mut parts: Vec<Vec<Part>> = self.learnt.iter().map(|_| Vec::with_capacity(self.samples.len())).collect();
        for Sample { output, target, losses, weight } in &self.samples {
            let each = self.each(output, target).zip(losses).zip(&mut parts);
            each.for_each(|(((_, output, target), loss), parts)| {
                parts.push(Part { output, target, loss: *loss, weight: *weight });
            });
        }
        let mut all: Vec<Measured> = self.learnt.iter().zip(&parts).map(|(target, of)| target.measured(of)).collect();
        if self.learnt.len() > 1 {
            self.sum_losses(&mut all);
        }
        if let Some(main) = all.first_mut() {
            main.figures = main.figures.clone().and_of_naive(self.naive);
        }
        let (Some(scores), Some(main)) = (scores, all.first_mut()) else { return (all, Vec::new()) };
        let (gathered, notes) = self.learnt[0].gathered(scores, &parts[0]);
        for (figure, value) in gathered.list() {
            // A figure that is always there is not added twice.
            if main.figures.get(figure).is_none() {
                main.figures = main.figures.clone().with(figure, value);
            }
        }
        (all, notes)
    }
}
