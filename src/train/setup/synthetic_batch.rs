//! Batches of random numbers, for timing and for comparing devices: no data is read.

use crate::backend::HostBuffer;
use crate::data::Field;
use crate::graph::{DType, Input};
use crate::plan::SlotLayout;
use crate::random::{Purpose, Stream};

/// Fills the `fields` of a batch slot: bytes, classes and tokens evenly, floats normally distributed. `number` tells one
/// batch from another.
pub fn fill(buffer: &mut HostBuffer, layout: &SlotLayout, fields: &[Field], seed: u64, number: u64) {
    let mut random = Stream::new(seed, Purpose::Synthetic, 0, number);
    for input in &layout.inputs {
        let n = input.shape.len();
        let bytes: Vec<u8> = match (input.input, input.dtype) {
            (Input::Field(_), DType::U8) => (0..n).map(|_| random.next_u32() as u8).collect(),
            (Input::Field(number), DType::I32) => {
                let classes = fields.get(number as usize).and_then(|field| field.kind.classes());
                let below = classes.map_or(1, |classes| classes.number);
                (0..n).flat_map(|_| (random.below(below.max(1) as u32) as i32).to_ne_bytes()).collect()
            }
            (Input::Field(_), DType::F32) => (0..n).flat_map(|_| (random.normal() as f32).to_ne_bytes()).collect(),
            // Each class as much.
            (Input::Shares, _) => (0..n).flat_map(|_| (1.0 / input.shape.last() as f32).to_ne_bytes()).collect(),
            _ => continue,
        };
        buffer.bytes_mut()[input.offset..][..bytes.len()].copy_from_slice(&bytes);
    }
}
