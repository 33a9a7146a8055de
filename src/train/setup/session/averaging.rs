//! Averages of weights.

use super::{Session, StepInputs};
use crate::backend::HostBuffer;
use crate::graph::{VarId, VarKind, Variable};
use crate::model::BatchShape;
use crate::passes::update::average_of;
use crate::train::setup::programs::Kind;
use anyhow::Result;

impl Session {
    /// Moving averages that are `wanted` begin with the values that are there now.
    ///
    /// # Errors
    /// The device failed.
    pub fn begin_averages(&mut self, wanted: impl Fn(&Variable) -> bool) -> Result<()> {
        let plan = self.programs.plan.clone();
        for (id, var) in plan.variables.iter() {
            if let Some(average) = average_of(&plan.variables, id).filter(|average| wanted(&plan.variables[*average])) {
                self.transfer.copy(self.executable.as_mut(), var, id, average)?;
            }
        }
        Ok(())
    }

    /// True as long as there is to be a mean of weights over epochs, but is none: evaluation is of the weights, and no checkpoint
    /// has the mean.
    pub fn waits_for_average(&self) -> bool {
        self.waits
    }

    /// Whether there is a mean of weights over epochs from here on, if there is to be one.
    pub fn set_averaged(&mut self, averaged: bool) {
        self.waits = !averaged && self.programs.find(Kind::Average, 0).is_some();
    }

    /// Takes the weights into their mean over `models` of them so far. `batch` is any.
    ///
    /// # Errors
    /// The device failed.
    pub fn average(&mut self, batch: &mut HostBuffer, inputs: StepInputs, models: u64) -> Result<()> {
        if models == 0 {
            self.begin_averages(|_| true)?;
        } else {
            self.set_average_share(1.0 / (models + 1) as f64);
            self.write_inputs(batch, inputs);
            let program = self.program(Kind::Average, 0)?;
            self.executable.run(program, 0, batch)?;
            self.wait_slot(0)?;
        }
        self.waits = false;
        Ok(())
    }

    /// True if the mean of weights has statistics of batch norm.
    pub fn has_statistics(&self) -> bool {
        self.programs.kinds.iter().any(|(kind, _)| *kind == Kind::Statistics)
    }

    /// The statistics of batch norm that belong to averages: their variables.
    pub fn statistics(&self) -> Vec<VarId> {
        let vars = &self.programs.plan.variables;
        let buffers = vars.iter().filter(|(_, var)| var.kind == VarKind::Buffer);
        buffers.filter_map(|(id, _)| average_of(vars, id)).collect()
    }

    /// Takes a batch of training, which is of that shape, into the statistics of batch norm with averaged weights.
    ///
    /// # Errors
    /// The device failed.
    pub fn add_statistics(
        &mut self,
        slot: usize,
        batch: &mut HostBuffer,
        shape: impl Into<BatchShape>,
        inputs: StepInputs,
    ) -> Result<()> {
        self.write_inputs(batch, inputs);
        let program = self.program(Kind::Statistics, shape)?;
        self.executable.run(program, slot, batch)
    }
}
