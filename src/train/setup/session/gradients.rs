//! Gradients that are looked at.

use super::{Session, StepInputs};
use crate::backend::HostBuffer;
use crate::model::BatchShape;
use crate::passes::update::SCALE_VARIABLE;
use crate::train::setup::gradients::GradientOf;
use crate::train::setup::programs::Kind;
use anyhow::Result;

/// Gradients that are there until the next run of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    /// One for each parameter that is trained at the time.
    pub of: Vec<GradientOf>,
    /// What each number is to be divided by: the scale of the loss.
    pub scale: f32,
    program: usize,
}

impl Session {
    /// Whether there are programs that make gradients and change nothing.
    pub fn has_gradient_programs(&self) -> bool {
        !self.programs.gradients.is_empty()
    }

    /// Makes the gradients of the mean loss of `batch`, which is of that shape, and waits for them. Nothing else is changed.
    ///
    /// # Errors
    /// The device failed.
    pub fn gradients(
        &mut self,
        batch: &mut HostBuffer,
        shape: impl Into<BatchShape>,
        inputs: StepInputs,
    ) -> Result<Gradients> {
        self.write_inputs(batch, inputs);
        let program = self.program(Kind::Gradients, shape)?;
        self.executable.run(program, 0, batch)?;
        self.wait_slot(0)?;
        let plan = self.programs.plan.clone();
        let scale = match plan.variables.find(SCALE_VARIABLE) {
            Some(id) => {
                let mut bytes = [0; 4];
                self.executable.download(id, &mut bytes)?;
                f32::from_ne_bytes(bytes)
            }
            None => 1.0,
        };
        let all = self.programs.gradients.get(&program).cloned().unwrap_or_default();
        let of = all.into_iter().filter(|one| !(one.thawed && self.frozen)).collect();
        Ok(Gradients { of, scale, program })
    }

    /// Hands on a gradient that was just made, in pieces: its numbers, in the order in which they lie on the device.
    ///
    /// # Errors
    /// The device failed, or `take` did.
    pub fn read_gradient(
        &mut self,
        gradients: &Gradients,
        one: GradientOf,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let plan = self.programs.plan.clone();
        let place = (gradients.program, one.value);
        self.transfer.read_output(self.executable.as_mut(), place, &plan.variables[one.parameter], take)
    }
}
