//! The gradients by the gates, from the last state to the first.

use super::Layout;
use super::cells::{Earlier, backward};
use super::product::{StepProduct, odd_lines};
use crate::graph::Shape;
use crate::graph::op::{Cell, RecurrentGrad, RecurrentGradOperands};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::per_thread::PerThread;
use crate::run::threads::Parts;
use crate::simd::bf16::Instructions;

/// [`RecurrentGrad`].
pub struct RecurrentGradKernel {
    layout: Layout,
    places: RecurrentGradOperands<usize>,
    product: StepProduct,
}

impl RecurrentGradKernel {
    /// For the states' shape.
    pub fn new(op: &RecurrentGrad, states: &Shape, how: Instructions, threads: usize) -> Self {
        let layout = Layout::new(&op.of, states, how.level, threads);
        let product = StepProduct::new(layout.samples, layout.rows(), [layout.gates(), layout.hidden], how);
        RecurrentGradKernel { layout, places: op.places(), product }
    }

    /// Floats that a task has: gradients by products, as rows of the product with the weight; by states, which are its result; and what goes from
    /// position to position beside them; and what the products need.
    fn sizes(&self) -> [usize; 4] {
        let [products, states, space] = self.product.task_floats();
        [products, states, self.layout.rows() * self.layout.hidden, space]
    }
}

impl NodeKernel for RecurrentGradKernel {
    fn scratch_bytes(&self) -> usize {
        let own: usize = self.sizes().into_iter().sum();
        Scratch::size::<f32>(self.product.packed_floats())
            + Scratch::size::<f32>(PerThread::size(self.layout.threads, own))
    }

    fn run(&self, frame: &Frame<'_>) {
        let layout = &self.layout;
        let (h, gates, width) = (layout.hidden, layout.gates(), layout.saved());
        let RecurrentGradOperands { dh, h: states, saved, w, lengths, carried } = self.places;
        let [dy, y, w] = [dh, states, w].map(|i| frame.input::<f32>(i));
        let [saved, carried_on] = [saved, carried].map(|place| place.map_or(&[][..], |i| frame.input::<f32>(i)));
        let positions = layout.positions(frame, lengths);
        let (dx, before) = (Parts::new(frame.output::<f32>(0)), Parts::new(frame.output::<f32>(1)));
        // Of a GRU the gradient by products is another one than that by the input.
        let apart = if layout.cell == Cell::Gru { gates } else { 0 };
        let by_product = Parts::new(if apart > 0 { frame.output::<f32>(2) } else { &mut [] });
        let (sizes, mut scratch) = (self.sizes(), frame.scratch());
        let packed = scratch.take::<f32>(self.product.packed_floats());
        let own: usize = sizes.into_iter().sum();
        let all = PerThread::take(&mut scratch, layout.threads, own);
        self.product.pack(frame.pool(), w, false, packed);
        let (packed, tasks) = (&*packed, layout.tasks());
        frame.pool().run(tasks.count(), |task, worker| {
            let samples = tasks.range(task);
            let [dy, y] = [dy, y].map(|of| &of[layout.part(&samples, h)]);
            let saved = &saved[layout.part(&samples, width)];
            // SAFETY: a thread has its own rows, and a task its own samples.
            let (rows, dx, before, by_product) = unsafe {
                (
                    all.of(worker),
                    dx.part(layout.part(&samples, gates)),
                    before.part(layout.part(&samples, h)),
                    by_product.part(layout.part(&samples, apart)),
                )
            };
            rows.fill(0.0);
            let (products, rest) = rows.split_at_mut(sizes[0]);
            let (states, rest) = rest.split_at_mut(sizes[1]);
            let (carried, space) = rest.split_at_mut(sizes[2]);
            let mut steps = self.product.begin(packed, space);
            let most = positions.most(samples.clone());
            for step in (0..most).rev() {
                let t = layout.position(step, most);
                for sample in 0..samples.len() {
                    let length = positions.of(samples.start + sample);
                    if t >= length {
                        continue;
                    }
                    let last = layout.before(t, length);
                    let before = &mut before[layout.at(sample, t, h)];
                    let [first_state, first_cell] = layout.carried_by(carried_on, samples.start + sample);
                    match last {
                        Some(last) => before.copy_from_slice(&y[layout.at(sample, last, h)]),
                        None if first_state.is_empty() => before.fill(0.0),
                        None => before.copy_from_slice(first_state),
                    }
                    // An LSTM's cell is the last of what is saved.
                    let cell = match last {
                        Some(last) if layout.cell == Cell::Lstm => &saved[layout.at(sample, last, width)][width - h..],
                        Some(_) => &[],
                        None => first_cell,
                    };
                    let product = &mut products[sample * odd_lines(gates)..][..gates];
                    let dx = &mut dx[layout.at(sample, t, gates)];
                    backward(
                        layout.level,
                        layout.cell,
                        &dy[layout.at(sample, t, h)],
                        &y[layout.at(sample, t, h)],
                        &saved[layout.at(sample, t, width)],
                        Earlier { state: before, cell },
                        &states[sample * odd_lines(h)..][..h],
                        &mut carried[sample * h..(sample + 1) * h],
                        dx,
                        product,
                    );
                    if apart > 0 {
                        by_product[layout.at(sample, t, apart)].copy_from_slice(product);
                    }
                }
                if step > 0 {
                    steps.run(samples.len(), products, states);
                }
            }
            for sample in 0..samples.len() {
                let (from, to) = (positions.of(samples.start + sample), layout.length);
                for (of, width) in [(&mut *dx, gates), (&mut *before, h), (&mut *by_product, apart)] {
                    of[layout.at(sample, from, width).start..layout.at(sample, to, width).start].fill(0.0);
                }
            }
        });
    }
}
