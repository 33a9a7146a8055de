//! Attention within windows of images whose channels come last, and what makes images of half the side of it.

use crate::config::LayerNode;
use crate::config::language::layers::ShiftedWindowAttention;
use crate::graph::Fill;
use crate::onnx::graph::int;
use crate::onnx::{Translator, Value};

impl Translator<'_> {
    pub(super) fn shifted_window_attention(
        &mut self,
        node: &LayerNode,
        l: &ShiftedWindowAttention,
        x: &Value,
    ) -> String {
        let (h, w, c) = (x.shape[1], x.shape[2], x.shape[3]);
        let (heads, window) = (l.num_heads, l.window_size.0);
        let image = [h.next_multiple_of(window[0]), w.next_multiple_of(window[1])];
        // A window that covers the image has no neighbours to meet.
        let shift = [0, 1].map(|d| if window[d] >= image[d] { 0 } else { l.shift_size.0[d] });
        let [down, across] = [0, 1].map(|d| image[d] / window[d]);
        let (windows, length, each) = (down * across, window[0] * window[1], c / heads);

        let mut y = self.filled_up(&x.name, [h, w], image);
        for d in 0..2 {
            y = self.rolled(&y, 1 + d, shift[d], image[d]);
        }
        // [N, windows, positions, C].
        let split = self.graph.reshape(&y, &[0, down, window[0], across, window[1], c]);
        let moved = self.permuted(&split, &[0, 1, 3, 2, 4, 5]);
        let y = self.graph.reshape(&moved, &[0, windows, length, c]);
        let weight = self.parameter(node, "qkv.weight");
        let bias = l.qkv_bias.then(|| self.parameter(node, "qkv.bias"));
        let packed = self.product(&y, &weight, bias.as_deref());
        let thirds = self.graph.list(&[c as i64; 3]);
        let [q, k, v] = self.graph.ops("Split", &[&packed, &thirds], [int("axis", 3)]);
        let parts = [(q, [0, 1, 3, 2, 4]), (k, [0, 1, 3, 4, 2]), (v, [0, 1, 3, 2, 4])];
        let [q, k, v] = parts.map(|(part, dims)| {
            let split = self.graph.reshape(&part, &[0, windows, length, heads, each]);
            self.permuted(&split, &dims)
        });
        let q = self.graph.with_scalar("Mul", &q, 1.0 / (each as f32).sqrt());
        let scores = self.graph.op("MatMul", &[&q, &k], []);
        let mut bias = self.window_bias(node, length, heads);
        if shift != [0, 0] {
            let mask = self.constant(Fill::ShiftMask { image, window, shift }, windows * length * length);
            bias = self.graph.op("Add", &[&bias, &mask], []);
        }
        let scores = self.graph.op("Add", &[&scores, &bias], []);
        let shares = self.graph.op("Softmax", &[&scores], [int("axis", -1)]);
        let mixed = self.graph.op("MatMul", &[&shares, &v], []);
        let joined = self.permuted(&mixed, &[0, 1, 3, 2, 4]);
        let joined = self.graph.reshape(&joined, &[0, windows, length, c]);
        let weight = self.parameter(node, "proj.weight");
        let bias = l.proj_bias.then(|| self.parameter(node, "proj.bias"));
        let y = self.product(&joined, &weight, bias.as_deref());
        let split = self.graph.reshape(&y, &[0, down, across, window[0], window[1], c]);
        let moved = self.permuted(&split, &[0, 1, 3, 2, 4, 5]);
        let mut y = self.graph.reshape(&moved, &[0, image[0], image[1], c]);
        for (d, size) in [h, w].into_iter().enumerate() {
            y = self.rolled(&y, 1 + d, image[d] - shift[d], image[d]);
            if size < image[d] {
                y = self.graph.slice(&y, 1 + d, 0, size);
            }
        }
        y
    }

    /// What is added to the scores of the windows, `[heads, L, L]`: a learned number for each distance.
    fn window_bias(&mut self, node: &LayerNode, length: usize, heads: usize) -> String {
        let table = self.parameter(node, "relative_position_bias_table");
        let index = self.parameter(node, "relative_position_index");
        let picked = self.graph.op("Gather", &[&table, &index], [int("axis", 0)]);
        let sizes = self.graph.list(&[length, length, heads].map(|n| n as i64));
        let pairs = self.graph.op("Reshape", &[&picked, &sizes], []);
        self.permuted(&pairs, &[2, 0, 1])
    }

    /// Images `[N, H, W, C]` with zeros at the bottom and at the right.
    fn filled_up(&mut self, x: &str, from: [usize; 2], to: [usize; 2]) -> String {
        if from == to {
            return x.to_owned();
        }
        let pads = [0, 0, 0, 0, 0, to[0] - from[0], to[1] - from[1], 0].map(|n| n as i64);
        let (pads, zero) = (self.graph.list(&pads), self.graph.scalar(0.0));
        self.graph.op("Pad", &[x, &pads, &zero], [])
    }

    /// The first `by` elements along an axis of `size` come last.
    fn rolled(&mut self, x: &str, axis: usize, by: usize, size: usize) -> String {
        if by == 0 || by == size {
            return x.to_owned();
        }
        let [first, rest] = [(0, by), (by, size)].map(|(start, end)| self.graph.slice(x, axis, start, end));
        self.graph.op("Concat", &[&rest, &first], [int("axis", axis as i64)])
    }

    pub(super) fn merge_patches(&mut self, x: &Value, out: &[usize]) -> String {
        let (h, w, c) = (out[1], out[2], x.shape[3]);
        let y = self.filled_up(&x.name, [x.shape[1], x.shape[2]], [2 * h, 2 * w]);
        let split = self.graph.reshape(&y, &[0, h, 2, w, 2, c]);
        let moved = self.permuted(&split, &[0, 1, 3, 4, 2, 5]);
        self.graph.reshape(&moved, out)
    }
}
