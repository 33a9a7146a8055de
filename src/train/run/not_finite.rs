//! What a run says when it is no longer finite: where that began, and what is left of it.

use super::pending::Update;
use super::{Run, file};
use crate::data::{Batch, Loader, LoaderOptions, Position};
use crate::graph::{DType, Input};
use crate::train::files::state::NotFinite;
use crate::train::setup::session::StepInputs;
use anyhow::{Context, Result};

/// What may help where the data is sound.
const SMALLER: &str = "try a smaller learning rate, a warm-up, or `clip_grad_norm`";

/// Where a loss that is not finite comes from.
pub(super) enum Explained {
    /// From a sample: which, and which of its fields.
    Data(String),
    /// From the model: the operation, or the parameter.
    Model(String),
}

impl Run<'_> {
    /// The error for the loss of batch `k` of `update`, which is not finite. The state on the device is still that of
    /// before the update.
    pub(super) fn not_finite(&mut self, update: Update, k: u64, loss: f32) -> anyhow::Error {
        self.reporter.end(None);
        let together = self.session.programs.together;
        if !together && self.session.programs.shards.is_some() && k + 1 == update.batches {
            return self.not_finite_in_all(update.step, loss);
        }
        let start = Position { batch: update.start.batch + k as usize, ..update.start };
        let (step, epoch) = (update.step, start.epoch + 1);
        let at = match together {
            true => format!("the loss is {loss} at step {step} (epoch {epoch}), over all shards"),
            false => {
                let batch = self.experiment.batches_of(start.batch as u64 + 1);
                format!("the loss is {loss} at step {step} (epoch {epoch}, batch {batch})")
            }
        };
        let inputs = StepInputs { micro_step: update.inputs.micro_step + k, ..update.inputs };
        let explained = if together { self.explain_together(&update) } else { self.explain(start, inputs) };
        let (place, help) = match explained {
            Ok(Explained::Data(text)) => (text, "look for such values in the data".to_owned()),
            Ok(Explained::Model(text)) => (text, self.what_may_help()),
            Err(e) => (format!("where it began could not be found: {e:#}"), self.what_may_help()),
        };
        let saved = self.saved_before();
        anyhow::anyhow!("{at}: {place}\nhelp: {help}{saved}")
    }

    /// Some losses are no number for what any model may put out.
    fn what_may_help(&self) -> String {
        let loss = self.experiment.loss.describe();
        match loss.takes_positive_mean() {
            true => format!(
                "{SMALLER}; `{}` takes means above 0, which a `softplus` at the end of the model puts out",
                loss.name()
            ),
            false => SMALLER.to_owned(),
        }
    }

    /// Runs the batch at `start` again, operation by operation. It is made anew: by the time its loss is known, its buffer
    /// may hold another one.
    fn explain(&mut self, start: Position, inputs: StepInputs) -> Result<Explained> {
        let layout = self.session.programs.plan.slot.clone();
        let options = LoaderOptions { workers: 1, ..self.loader_options() };
        let buffers = vec![self.backend.host_buffer(layout.bytes)?];
        let mut loader = Loader::start(&self.samples.train, options, &layout, buffers, start)?;
        let mut batch = loader.next()?.context("the batch is no longer there")?;
        let data = self.in_the_data(&batch);
        // Run in any case: sums over ranks that have begun end with it.
        let found = self.session.explain_not_finite(&mut batch.buffer, batch.shape, inputs)?;
        Ok(data.map_or(Explained::Model(found), Explained::Data))
    }

    /// The first number of a batch that is itself not finite.
    pub(super) fn in_the_data(&self, batch: &Batch) -> Option<String> {
        let bytes = batch.buffer.bytes();
        let inputs = self.session.programs.plan.slot.inputs.iter().filter(|input| input.dtype == DType::F32);
        for input in inputs {
            let Input::Field(number) = input.input else { continue };
            let field = self.session.programs.fields.get(number as usize)?;
            let each = self.session.programs.elements(input, batch.shape.lengths);
            let numbers = bytes[input.offset..][..4 * each * batch.shape.samples].as_chunks().0;
            let found = numbers.iter().map(|b| f32::from_ne_bytes(*b)).enumerate().find(|(_, x)| !x.is_finite());
            let Some((at, value)) = found else { continue };
            let sample = *batch.samples().get(at / each.max(1))? as usize;
            let name = match self.samples.train.name(sample) {
                Some(name) => format!("`{name}`"),
                None => format!("training sample {sample} (from 0)"),
            };
            return Some(format!("{name} has {value} in `{}`", field.name));
        }
        None
    }

    /// The error for a state that is not saved, if it is not finite; any other error stays as it is.
    pub(super) fn not_saved(&self, error: anyhow::Error) -> anyhow::Error {
        if !error.is::<NotFinite>() {
            return error;
        }
        let step = self.state.step;
        anyhow::anyhow!(
            "{error} after step {step}, although all losses are finite: the update has made them so, and nothing of it is saved\n\
             help: {SMALLER}, or a larger `eps` of the optimizer{}",
            self.saved_before()
        )
    }

    fn saved_before(&self) -> String {
        match self.folder.file(file::LAST).exists() {
            true => format!("; the checkpoints in `{}` are from before this step", self.folder.path.display()),
            false => String::new(),
        }
    }
}
