//! Batches of random numbers, for timing and for comparing devices: no data is read.

use crate::backend::HostBuffer;
use crate::data::{Field, FieldKind};
use crate::graph::{DType, Input};
use crate::plan::SlotLayout;
use crate::random::{Purpose, Stream};

/// Fills the `fields` of a batch slot: bytes, classes and tokens evenly, floats normally distributed. Of sequences with lengths every fourth is as long as the batch
/// has room for, and the others have more than half of that. Batches of different `number` differ.
pub fn fill(buffer: &mut HostBuffer, layout: &SlotLayout, fields: &[Field], seed: u64, number: u64) {
    let mut random = Stream::new(seed, Purpose::Synthetic, 0, number);
    let longest = longest(layout, fields);
    let half = longest / 2;
    for input in &layout.inputs {
        let n = input.shape.len();
        let bytes: Vec<u8> = match (input.input, input.dtype) {
            (Input::Field(_), DType::U8) => (0..n).map(|_| random.next_u32() as u8).collect(),
            (Input::Field(number), DType::I32) => {
                let field = fields.get(number as usize);
                let below = field.and_then(|field| field.kind.classes()).map_or(1, |classes| classes.number);
                let mut element = |at: usize| match field.map(|field| &field.kind) {
                    Some(FieldKind::Length) if at.is_multiple_of(4) => longest,
                    Some(FieldKind::Length) => half + 1 + random.below(longest - half),
                    Some(FieldKind::PairStart) => half.max(1),
                    _ => random.below(below.max(1) as u32),
                };
                (0..n).flat_map(|at| (element(at) as i32).to_ne_bytes()).collect()
            }
            (Input::Field(_), DType::F32) => (0..n).flat_map(|_| (random.normal() as f32).to_ne_bytes()).collect(),
            // Each class as much.
            (Input::Shares, _) => (0..n).flat_map(|_| (1.0 / input.shape.last() as f32).to_ne_bytes()).collect(),
            _ => continue,
        };
        buffer.bytes_mut()[input.offset..][..bytes.len()].copy_from_slice(&bytes);
    }
}

/// Elements of the sequences that have lengths.
fn longest(layout: &SlotLayout, fields: &[Field]) -> u32 {
    let of = |(number, field): (usize, &Field)| {
        let axis = field.lengths.iter().find(|length| length.number == 0)?.axis;
        Some(layout.find(Input::Field(number as u32))?.shape.dims()[1 + axis] as u32)
    };
    fields.iter().enumerate().find_map(of).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::backend::cpu::CpuBackend;
    use crate::data::{INPUTS, LENGTHS};
    use crate::plan::SlotInput;

    #[test]
    fn sequences_have_lengths() {
        let fields = [
            Field::numbers(INPUTS, DType::I32, [64]).of_any_length(0, 0),
            Field { kind: FieldKind::Length, ..Field::numbers(LENGTHS, DType::I32, []) },
        ];
        for longest in [1, 2, 7, 24] {
            let input = |number, offset, shape: &[usize]| SlotInput {
                input: Input::Field(number),
                dtype: DType::I32,
                offset,
                shape: shape.into(),
            };
            let inputs = vec![input(0, 0, &[9, longest]), input(1, 9 * longest * 4, &[9])];
            let layout = SlotLayout { inputs, bytes: 9 * (longest + 1) * 4 };
            let mut buffer = CpuBackend::new(Some(1)).unwrap().host_buffer(layout.bytes).unwrap();
            fill(&mut buffer, &layout, &fields, 1, 0);
            let numbers: Vec<i32> = buffer.bytes()[9 * longest * 4..layout.bytes]
                .as_chunks()
                .0
                .iter()
                .map(|b| i32::from_ne_bytes(*b))
                .collect();
            for (at, length) in numbers.into_iter().enumerate() {
                let least = if at % 4 == 0 { longest } else { longest / 2 + 1 };
                assert!((least as i32..=longest as i32).contains(&length), "text {at} of {longest} has {length}");
            }
        }
    }
}
