//! What event files have beside the numbers of `metrics.jsonl`: the graph, histograms of weights and gradients, pictures of mistakes.

use super::mistakes::Mistake;
use super::{Run, train_options};
use crate::config::Experiment;
use crate::config::declare::tagged::Tagged as _;
use crate::data::{Loader, LoaderOptions, Position, Role};
use crate::graph::{Input, VarId, VarKind};
use crate::terminal::{figure, percent, visible};
use crate::train::files::tensorboard::{EventFile, Histogram, Image, InputNode, LossNode, graph_def};
use crate::train::setup::programs::Programs;
use crate::train::setup::session::StepInputs;
use anyhow::{Context, Result};

/// Writes what the events of a run begin with: the configuration, as a text and as hyper-parameters, and, in the first file of its folder, the graph.
///
/// # Errors
/// The disk is full, or the like.
pub fn begin(
    events: &mut EventFile,
    step: u64,
    config: &str,
    experiment: &Experiment,
    programs: &Programs,
) -> Result<()> {
    events.text(step, "config", config)?;
    events.hparams(step, &config.parse().context("the configuration as it is written down")?)?;
    if !events.is_first() {
        return Ok(());
    }
    let nodes = |role: Role| -> Vec<InputNode> {
        let fields = programs.fields.iter().enumerate().filter(|(_, field)| field.role == role);
        let of = fields.filter_map(|(number, field)| {
            let at = programs.plan.slot.find(Input::Field(u32::try_from(number).ok()?))?;
            Some(InputNode { name: field.name.clone(), shape: at.shape.to_pytorch() })
        });
        of.collect()
    };
    let loss = LossNode { kind: experiment.loss.type_name().to_owned(), targets: nodes(Role::Target) };
    events.graph(step, &graph_def(&programs.rows, &programs.plan.variables, &nodes(Role::Input), &loss))
}

impl Run<'_> {
    /// Writes down the weights as they are, and the gradients that the next update begins with, if that is asked for.
    ///
    /// # Errors
    /// The batch of that update cannot be made, the device failed, or the disk is full.
    pub fn write_histograms(&mut self) -> Result<()> {
        if self.metrics.events().is_none() {
            return Ok(());
        }
        let plan = self.session.programs.plan.clone();
        for (id, _) in plan.variables.iter().filter(|(_, var)| var.kind == VarKind::Parameter) {
            let mut histogram = Histogram::default();
            self.session.read(id, &mut |piece| {
                piece.as_chunks().0.iter().for_each(|bytes| histogram.add(f32::from_ne_bytes(*bytes)));
                Ok(())
            })?;
            self.write_histogram("weights", id, &histogram)?;
        }
        self.write_gradients().context("the gradients for event files")
    }

    fn write_histogram(&mut self, group: &str, of: VarId, histogram: &Histogram) -> Result<()> {
        let tag = format!("{group}/{}", self.session.programs.plan.variables[of].name);
        self.metrics.events().map_or(Ok(()), |events| events.histogram(self.state.step, &tag, histogram))
    }

    /// The gradients of the batch that comes next, with the weights as they are. It will be made once more when its turn comes.
    fn write_gradients(&mut self) -> Result<()> {
        if !self.session.has_gradient_programs() {
            return Ok(());
        }
        let layout = self.session.programs.plan.slot.clone();
        let options = LoaderOptions { workers: 0, ..train_options(self.experiment, None) };
        let buffers = vec![self.backend.host_buffer(layout.bytes)?];
        let next = Position { epoch: self.state.epoch, batch: self.state.batch as usize };
        let mut loader = Loader::start(&self.samples.train, options, &layout, buffers, next)?;
        let mut batch = loader.next()?.context("there is no batch")?;
        let inputs = StepInputs {
            lr: 0.0,
            lr_floor: 0.0,
            grad_scale: 1.0,
            seed: self.experiment.seed,
            micro_step: self.state.extra.micro_step,
        };
        let gradients = self.session.gradients(&mut batch.buffer, batch.shape, inputs)?;
        for one in &gradients.of {
            let mut histogram = Histogram::default();
            self.session.read_gradient(&gradients, *one, &mut |piece| {
                let numbers = piece.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes) / gradients.scale);
                numbers.for_each(|number| histogram.add(number));
                Ok(())
            })?;
            self.write_histogram("gradients", one.parameter, &histogram)?;
        }
        Ok(())
    }

    /// Writes down pictures of the worst mistakes of an evaluation, and a table of what they are.
    pub(super) fn write_mistakes(&mut self, mistakes: &[Mistake]) -> Result<()> {
        let shown: Vec<&Mistake> = mistakes.iter().filter(|mistake| mistake.picture.is_some()).collect();
        let Some(events) = self.metrics.events().filter(|_| !shown.is_empty()) else { return Ok(()) };
        let names = &self.session.programs.class_names;
        let class = |number: usize| names.get(number).map_or(number.to_string(), |name| cell(name));
        let mut table = "| picture | sample | class | taken for | probability of its class | loss |\n".to_owned();
        table += "| ---: | --- | --- | --- | ---: | ---: |\n";
        let mut images = Vec::with_capacity(shown.len());
        for (i, mistake) in shown.into_iter().enumerate() {
            let sample = mistake.sample as usize;
            let name = self.samples.val.name(sample).map_or(String::new(), |name| format!(" ({})", cell(&name)));
            table += &format!(
                "| {} | {sample}{name} | {} | {} | {} | {} |\n",
                i + 1,
                class(mistake.pair.0),
                class(mistake.pair.1),
                percent(mistake.probabilities.0),
                figure(mistake.loss, 3, 9)
            );
            images.extend(mistake.picture.as_ref().map(|picture| Image {
                tag: format!("mistakes/{}", i + 1),
                width: picture.width,
                height: picture.height,
                channels: picture.channels,
                png: &picture.png,
            }));
        }
        events.images(self.state.step, &images)?;
        events.markdown(self.state.step, "mistakes", &table)
    }
}

/// A name as it may stand in a cell of a table: nothing in it ends the cell, or is read as HTML.
fn cell(name: &str) -> String {
    visible(name).replace('&', "&amp;").replace('<', "&lt;").replace('|', "&#124;").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_cell() {
        assert_eq!(cell("a|b<script>&\nc"), "a&#124;b&lt;script>&amp; c");
    }
}
