//! Programs that are run again and again on a batch slot which changes little, for text that is written token by token.

use super::Session;
use crate::backend::HostBuffer;
use crate::graph::Input;
use crate::model::BatchShape;
use crate::plan::SlotLayout;
use crate::train::setup::programs::Kind;
use anyhow::Result;

/// Writes the beginning of a field of whole numbers into a batch. A field that the model does not look at has no place.
pub fn put_numbers(layout: &SlotLayout, batch: &mut HostBuffer, field: u32, numbers: &[u32]) {
    let Some(place) = layout.find(Input::Field(field)) else { return };
    let bytes = batch.bytes_mut()[place.offset..].as_chunks_mut().0;
    bytes.iter_mut().zip(numbers).for_each(|(bytes, number)| *bytes = (*number as i32).to_ne_bytes());
}

impl Session {
    /// Runs a program that predicts; its output in `into` as native-endian bytes, in the order of the device.
    ///
    /// # Errors
    /// The device failed.
    pub fn run_again(&mut self, kind: Kind, shape: BatchShape, batch: &HostBuffer, into: &mut Vec<u8>) -> Result<()> {
        let program = self.program(kind, shape)?;
        self.executable.run(program, 0, batch)?;
        self.output_of(program, into).map(drop)
    }

    /// Runs a program that puts out nothing, and waits until it has read the batch.
    ///
    /// # Errors
    /// The device failed.
    pub fn run_silently(&mut self, kind: Kind, shape: BatchShape, batch: &HostBuffer) -> Result<()> {
        let program = self.program(kind, shape)?;
        self.executable.run(program, 0, batch)?;
        self.executable.wait_slot(0)
    }
}
