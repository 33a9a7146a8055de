//! What is measured of heads, and what a model puts out for them.

use super::Session;
use crate::graph::op::metric_slot;
use crate::model::{BatchShape, Mode, head_metrics};
use crate::train::setup::figures::Figures;
use crate::train::setup::programs::{HeadOf, Kind};
use anyhow::{Context, Result};

impl Session {
    /// Figures of the main target with those of heads.
    pub(super) fn with_heads(&mut self, figures: Figures, mode: Mode) -> Result<Figures> {
        self.programs.heads.clone().into_iter().try_fold(figures, |figures, HeadOf { name, task }| {
            let sums = self.metric_sums(&head_metrics(mode, &name))?;
            let of_head = (sums[metric_slot::WEIGHT] > 0.0).then(|| Figures::new(task, &sums));
            Ok(figures.and_of_head(name, of_head))
        })
    }

    /// What the model put out for a head of that number for the last batch of that shape that was predicted: rows of floats. `bytes` as for
    /// [`Session::predict_into`].
    ///
    /// # Errors
    /// The device failed.
    pub fn head_into(
        &mut self,
        head: usize,
        shape: impl Into<BatchShape>,
        bytes: &mut Vec<u8>,
        into: &mut [f32],
    ) -> Result<()> {
        let program = self.program(Kind::Predict, shape)?;
        let of = &self.programs.plan.programs[program];
        let outputs = self.programs.head_outputs.get(&program).context("the program has no heads")?;
        let value = outputs[head];
        bytes.resize(of.graph.value(value).bytes(), 0);
        self.executable.output(program, value, bytes)?;
        into.iter_mut().zip(bytes.as_chunks().0).for_each(|(into, float)| *into = f32::from_ne_bytes(*float));
        Ok(())
    }
}
