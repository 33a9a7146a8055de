//! An evaluation in which a loss is not finite, sample by sample: which samples it comes from, and the figures of all others.
//!
//! A batch has one loss, so a single sample takes those beside it along, and figures would depend on the size of batches. All that is
//! measured is a sum over samples. A group of samples is measured by itself with the first of them in the place of all others of the batch;
//! what these copies add is measured by a batch of nothing else, and taken off again.

use crate::backend::HostBuffer;
use crate::data::{Batch, Lengths};
use crate::graph::{DType, Input};
use crate::train::setup::programs::Kind;
use crate::train::setup::session::{EvalSums, Session};
use anyhow::Result;
use std::ops::Range;

/// The bytes of one sample in a field of a batch.
struct Rows {
    offset: usize,
    bytes: usize,
    dtype: DType,
}

/// Takes what the rows that stand for unreadable samples have added to the sums off again: each is measured by a batch of its copies.
///
/// # Errors
/// The device failed.
pub fn leave_out_replaced(session: &mut Session, batch: &mut Batch) -> Result<()> {
    if batch.replaced().is_empty() {
        return Ok(());
    }
    let mut total = session.eval_sums()?;
    let (nothing, samples) = (total.emptied(), batch.shape.samples);
    let (rows, whole) = (fields(session, batch.shape.lengths), batch.buffer.bytes().to_vec());
    for row in batch.replaced().to_vec() {
        fill(&mut batch.buffer, &whole, &rows, |_| row, samples);
        total.take_off(&measured(session, batch, &nothing)?, 1, samples);
    }
    batch.buffer.bytes_mut().copy_from_slice(&whole);
    session.set_eval_sums(&total)
}

/// Evaluates a batch that is in its slot: its samples that are not finite, by their places in it. What they would add to the sums is left
/// out; there they are counted, each for itself. Rows that stand for unreadable samples are left out, and not counted.
///
/// # Errors
/// The device failed.
pub fn evaluate_by_sample(session: &mut Session, batch: &mut Batch) -> Result<Vec<usize>> {
    let before = session.eval_sums()?;
    session.evaluate(batch.slot, &batch.buffer, batch.shape)?;
    session.wait_slot(batch.slot)?;
    if session.eval_sums()?.not_finite() == before.not_finite() {
        leave_out_replaced(session, batch)?;
        return Ok(Vec::new());
    }
    let rows = fields(session, batch.shape.lengths);
    let (nothing, mut total) = (before.emptied(), before);
    // What can be seen without another try.
    let mut bad = not_finite(session, batch, &rows)?;
    bad.retain(|i| !batch.replaced().contains(i));
    let good: Vec<usize> =
        (0..batch.shape.samples).filter(|i| !bad.contains(i) && !batch.replaced().contains(i)).collect();
    let whole = batch.buffer.bytes().to_vec();
    let mut groups = vec![good];
    while let Some(group) = groups.pop() {
        let Some(first) = group.first().copied() else { continue };
        let copies = batch.shape.samples - group.len();
        fill(&mut batch.buffer, &whole, &rows, |i| if group.contains(&i) { i } else { first }, batch.shape.samples);
        let sums = measured(session, batch, &nothing)?;
        if sums.not_finite() > 0.0 {
            match group.len() {
                1 => bad.push(first),
                n => groups.extend([group[n / 2..].to_vec(), group[..n / 2].to_vec()]),
            }
            continue;
        }
        total.add(&sums);
        if copies > 0 {
            fill(&mut batch.buffer, &whole, &rows, |_| first, batch.shape.samples);
            total.take_off(&measured(session, batch, &nothing)?, copies, batch.shape.samples);
        }
    }
    batch.buffer.bytes_mut().copy_from_slice(&whole);
    total.count_not_finite(bad.len());
    session.set_eval_sums(&total)?;
    bad.sort_unstable();
    Ok(bad)
}

/// The sums of one batch alone.
fn measured(session: &mut Session, batch: &Batch, nothing: &EvalSums) -> Result<EvalSums> {
    session.set_eval_sums(nothing)?;
    session.evaluate(batch.slot, &batch.buffer, batch.shape)?;
    session.wait_slot(batch.slot)?;
    session.eval_sums()
}

fn fields(session: &Session, lengths: Lengths) -> Vec<Rows> {
    let inputs = session.programs.plan.slot.inputs.iter();
    let fields = inputs.filter(|input| matches!(input.input, Input::Field(_)));
    let rows = fields.map(|field| {
        let bytes = session.programs.elements(field, lengths) * field.dtype.bytes();
        Rows { offset: field.offset, bytes, dtype: field.dtype }
    });
    rows.collect()
}

impl Rows {
    fn of(&self, i: usize) -> Range<usize> {
        self.offset + i * self.bytes..self.offset + (i + 1) * self.bytes
    }
}

/// Samples that the model puts out something for that is not finite, or of which a number itself is not.
fn not_finite(session: &mut Session, batch: &Batch, rows: &[Rows]) -> Result<Vec<usize>> {
    let mut outputs = Vec::new();
    session.outputs(Kind::Eval, batch.shape, &mut outputs)?;
    let each = outputs.len() / batch.shape.samples.max(1);
    let finite = |bytes: &[u8]| bytes.as_chunks().0.iter().all(|b| f32::from_ne_bytes(*b).is_finite());
    let bytes = batch.buffer.bytes();
    let given = |i: usize| rows.iter().filter(|rows| rows.dtype == DType::F32).all(|rows| finite(&bytes[rows.of(i)]));
    Ok((0..batch.shape.samples).filter(|i| !(finite(&outputs[i * each..][..each]) && given(*i))).collect())
}

/// Puts sample `from(i)` of `whole` in place `i` of a batch.
fn fill(buffer: &mut HostBuffer, whole: &[u8], rows: &[Rows], from: impl Fn(usize) -> usize, len: usize) {
    let bytes = buffer.bytes_mut();
    for rows in rows {
        for i in 0..len {
            bytes[rows.of(i)].copy_from_slice(&whole[rows.of(from(i))]);
        }
    }
}
