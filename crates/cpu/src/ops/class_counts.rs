//! Counts of what was taken for what.

use crate::graph::Shape;
use crate::graph::op::{ClassCounts, Counted, RANKS};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{CHUNK, for_chunks, rows_per_chunk};

/// [`crate::graph::op::ClassCounts`].
pub struct ClassCountsKernel {
    of: Counted,
    classes: usize,
    /// Rows of logits, or elements.
    items: usize,
}

/// The note of a row that does not count.
const IGNORED: u32 = u32::MAX;

/// The number of logits that are before that of the target: larger, or as large with a lower index.
fn rank(row: &[f32], target: usize) -> usize {
    let (of_target, (before, after)) = (row[target], row.split_at(target));
    before.iter().filter(|v| **v >= of_target).count() + after.iter().filter(|v| **v > of_target).count()
}

impl ClassCountsKernel {
    /// For predictions of shape `x`.
    pub fn new(op: &ClassCounts, x: &Shape) -> Self {
        let items = match op.of {
            Counted::Classes { .. } => x.rows(),
            Counted::Labels(_) => x.len(),
        };
        ClassCountsKernel { of: op.of, classes: op.classes(x.last()), items }
    }

    /// Elements of each task, a multiple of the number of labels.
    fn elements_per_task(&self) -> usize {
        self.classes * (CHUNK / self.classes).max(1)
    }

    /// Each row is looked at by itself, in parallel; then all are counted, in order.
    fn classes(&self, frame: &Frame<'_>, counts: &mut [f64], ignore_index: Option<i32>, matrix: bool) {
        let (x, targets, classes) = (frame.input::<f32>(1), frame.input::<i32>(2), self.classes);
        let places = RANKS as u32 + 1;
        let notes = frame.scratch().take::<u32>(self.items);
        for_chunks(frame.pool(), notes, rows_per_chunk(classes), |start, notes| {
            for (r, note) in (start..).zip(notes) {
                let row = &x[r * classes..(r + 1) * classes];
                let known = usize::try_from(targets[r]).is_ok_and(|t| t < classes);
                *note = match known && ignore_index != Some(targets[r]) {
                    true => {
                        let predicted = (1..classes).fold(0, |best, i| if row[i] > row[best] { i } else { best });
                        predicted as u32 * places + rank(row, targets[r] as usize).min(RANKS) as u32
                    }
                    false => IGNORED,
                };
            }
        });
        let (ranks, rest) = counts.split_at_mut(RANKS);
        let (each, pairs) = rest.split_at_mut(3 * classes);
        for (note, target) in notes.iter().zip(targets).filter(|(note, _)| **note != IGNORED) {
            let (target, predicted, rank) = (*target as usize, (note / places) as usize, (note % places) as usize);
            if let Some(count) = ranks.get_mut(rank) {
                *count += 1.0;
            }
            if predicted == target {
                each[3 * target] += 1.0;
            }
            each[3 * predicted + 1] += 1.0;
            each[3 * target + 2] += 1.0;
            if matrix {
                pairs[target * classes + predicted] += 1.0;
            }
        }
    }

    fn labels(&self, frame: &Frame<'_>, counts: &mut [f64]) {
        let (x, targets, width) = (frame.input::<f32>(1), frame.input::<f32>(2), 3 * self.classes);
        let grain = self.elements_per_task();
        let partial = frame.scratch().take::<u32>(width * self.items.div_ceil(grain));
        for_chunks(frame.pool(), partial, width, |start, counts| {
            let from = start / width * grain;
            let to = (from + grain).min(self.items);
            counts.fill(0);
            for (x, t) in x[from..to].chunks(self.classes).zip(targets[from..to].chunks(self.classes)) {
                for ((x, t), count) in x.iter().zip(t).zip(counts.chunks_mut(3)) {
                    let (predicted, is) = (*x > 0.0, *t > 0.5);
                    count[0] += u32::from(predicted && is);
                    count[1] += u32::from(predicted);
                    count[2] += u32::from(is);
                }
            }
        });
        for of_task in partial.chunks(width) {
            for (count, n) in counts[RANKS..].iter_mut().zip(of_task) {
                *count += f64::from(*n);
            }
        }
    }
}

impl NodeKernel for ClassCountsKernel {
    fn scratch_bytes(&self) -> usize {
        match self.of {
            Counted::Classes { .. } => Scratch::size::<u32>(self.items),
            Counted::Labels(_) => {
                Scratch::size::<u32>(3 * self.classes * self.items.div_ceil(self.elements_per_task()))
            }
        }
    }

    fn run(&self, frame: &Frame<'_>) {
        let loss = frame.input::<f32>(0)[0];
        let counts = frame.update::<f64>(3);
        if !loss.is_finite() {
            return;
        }
        match self.of {
            Counted::Classes { ignore_index, matrix } => self.classes(frame, counts, ignore_index, matrix),
            Counted::Labels(_) => self.labels(frame, counts),
        }
    }
}
