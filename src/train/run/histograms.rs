//! Histograms of the weights, for TensorBoard.

use super::Run;
use crate::graph::VarKind;
use crate::train::files::tensorboard::Histogram;
use anyhow::Result;

impl Run<'_> {
    /// Writes the weights down as they are, if that is asked for.
    pub(super) fn write_histograms(&mut self) -> Result<()> {
        if self.metrics.events().is_none() {
            return Ok(());
        }
        let plan = self.session.programs.plan.clone();
        for (id, var) in plan.variables.iter().filter(|(_, var)| var.kind == VarKind::Parameter) {
            let mut histogram = Histogram::default();
            self.session.read(id, &mut |piece| {
                piece.as_chunks().0.iter().for_each(|bytes| histogram.add(f32::from_ne_bytes(*bytes)));
                Ok(())
            })?;
            if let Some(events) = self.metrics.events() {
                events.histogram(self.state.step, &format!("weights/{}", var.name), &histogram)?;
            }
        }
        Ok(())
    }
}
