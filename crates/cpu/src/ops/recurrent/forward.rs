//! The states.

use super::Layout;
use super::cells::{Gates, forward};
use super::product::{StepProduct, odd_lines};
use crate::graph::Shape;
use crate::graph::op::{Recurrent, RecurrentOperands};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::per_thread::PerThread;
use crate::run::threads::Parts;
use crate::simd::bf16::Instructions;

/// [`Recurrent`].
pub struct RecurrentKernel {
    layout: Layout,
    places: RecurrentOperands<usize>,
    saves: bool,
    product: StepProduct,
}

/// What a thread has for its task.
struct Rows<'a> {
    /// States, as rows of the product.
    states: &'a mut [f32],
    /// Their products.
    products: &'a mut [f32],
    /// The cells of an LSTM.
    cells: &'a mut [f32],
}

impl RecurrentKernel {
    /// For the result's shape `states`.
    pub fn new(op: &Recurrent, states: &Shape, how: Instructions, threads: usize) -> Self {
        let layout = Layout::new(op, states, how.level, threads);
        let product = StepProduct::new(layout.samples, layout.rows(), [layout.hidden, layout.gates()], how);
        let saves = op.saves && layout.saved() > 0;
        RecurrentKernel { layout, places: op.places(), saves, product }
    }

    /// Floats of states, products and cells of a task, and of what the products need.
    fn sizes(&self) -> [usize; 4] {
        let [states, products, space] = self.product.task_floats();
        [states, products, self.layout.rows() * self.layout.hidden, space]
    }
}

impl NodeKernel for RecurrentKernel {
    fn scratch_bytes(&self) -> usize {
        let own: usize = self.sizes().into_iter().sum();
        Scratch::size::<f32>(self.product.packed_floats())
            + Scratch::size::<f32>(PerThread::size(self.layout.threads, own))
    }

    fn run(&self, frame: &Frame<'_>) {
        let (layout, h, gates) = (&self.layout, self.layout.hidden, self.layout.gates());
        let RecurrentOperands { x, w, b, lengths, carried } = self.places;
        let [x, w] = [x, w].map(|i| frame.input::<f32>(i));
        // Empty if there is none; without states to go on from, sequences begin with zeros.
        let [bias, carried] = [b, carried].map(|place| place.map_or(&[][..], |i| frame.input::<f32>(i)));
        let positions = layout.positions(frame, lengths);
        let y = Parts::new(frame.output::<f32>(0));
        let saved = Parts::new(if self.saves { frame.output::<f32>(1) } else { &mut [] });
        let width = if self.saves { layout.saved() } else { 0 };
        let (sizes, mut scratch) = (self.sizes(), frame.scratch());
        let packed = scratch.take::<f32>(self.product.packed_floats());
        let own: usize = sizes.into_iter().sum();
        let all = PerThread::take(&mut scratch, layout.threads, own);
        self.product.pack(frame.pool(), w, true, packed);
        let (packed, tasks) = (&*packed, layout.tasks());
        frame.pool().run(tasks.count(), |task, worker| {
            let samples = tasks.range(task);
            // SAFETY: a thread has its own rows, and a task its own samples.
            let (rows, y, saved) = unsafe {
                let rows = all.of(worker);
                (rows, y.part(layout.part(&samples, h)), saved.part(layout.part(&samples, width)))
            };
            rows.fill(0.0);
            let (states, rest) = rows.split_at_mut(sizes[0]);
            let (products, rest) = rest.split_at_mut(sizes[1]);
            let (cells, space) = rest.split_at_mut(sizes[2]);
            let mut steps = self.product.begin(packed, space);
            for sample in (0..samples.len()).filter(|_| !carried.is_empty()) {
                let [state, cell] = layout.carried_by(carried, samples.start + sample);
                states[sample * odd_lines(h)..][..h].copy_from_slice(state);
                cells[sample * h..][..cell.len()].copy_from_slice(cell);
            }
            let of = Rows { states, products, cells };
            let most = positions.most(samples.clone());
            let x = &x[layout.part(&samples, gates)];
            for step in 0..most {
                let t = layout.position(step, most);
                // Before the first step all states are 0, and so are their products, unless they are carried on.
                if step > 0 || !carried.is_empty() {
                    steps.run(samples.len(), of.states, of.products);
                }
                for sample in (0..samples.len()).filter(|sample| t < positions.of(samples.start + sample)) {
                    let state = &mut of.states[sample * odd_lines(h)..][..h];
                    let product = &of.products[sample * odd_lines(gates)..][..gates];
                    let cell = &mut of.cells[sample * h..(sample + 1) * h];
                    let (x, saved) = (&x[layout.at(sample, t, gates)], &mut saved[layout.at(sample, t, width)]);
                    forward(layout.level, layout.cell, Gates { x, r: product, bias }, state, cell, saved);
                    y[layout.at(sample, t, h)].copy_from_slice(state);
                }
            }
            for sample in 0..samples.len() {
                let (from, to) = (positions.of(samples.start + sample), layout.length);
                y[layout.at(sample, from, h).start..layout.at(sample, to, h).start].fill(0.0);
                saved[layout.at(sample, from, width).start..layout.at(sample, to, width).start].fill(0.0);
            }
        });
    }
}
