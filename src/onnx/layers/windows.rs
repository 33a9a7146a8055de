//! Attention within windows of images, and what makes images of half the side of it. The images have their channels last.

use crate::config::LayerNode;
use crate::config::language::layers::ShiftedWindowAttention;
use crate::onnx::graph::{int, word};
use crate::onnx::{Translator, Value};

impl Translator<'_> {
    pub(super) fn shifted_window_attention(
        &mut self,
        node: &LayerNode,
        l: &ShiftedWindowAttention,
        x: &Value,
    ) -> String {
        let ([h, w, c], heads, [wh, ww]) = ([x.shape[1], x.shape[2], x.shape[3]], l.num_heads, l.window_size.0);
        let image = [h.next_multiple_of(wh), w.next_multiple_of(ww)];
        let (down, across, length) = (image[0] / wh, image[1] / ww, wh * ww);
        // A window that covers the image has no neighbours to meet.
        let shift = [0, 1].map(|d| if l.window_size.0[d] >= image[d] { 0 } else { l.shift_size.0[d] });
        let mut y = self.filled_up(&x.name, [image[0] - h, image[1] - w]);
        for d in 0..2 {
            y = self.rolled(&y, 1 + d, image[d], shift[d]);
        }
        // [N, windows, L, C]
        let windows = [0, down * across, length, c];
        let y = self.reordered(&y, &[0, down, wh, across, ww, c], &[0, 1, 3, 2, 4, 5], &windows);

        let bias = self.window_bias(node, heads, length);
        let weight = self.parameter(node, "qkv.weight");
        let qkv_bias = l.qkv_bias.then(|| self.parameter(node, "qkv.bias"));
        let packed = self.product(&y, &weight, qkv_bias.as_deref());
        let thirds = self.graph.list(&[c as i64; 3]);
        let [q, k, v] = self.graph.ops("Split", &[&packed, &thirds], [int("axis", 3)]);
        // [N, windows, heads, L, C / heads], the keys transposed.
        let each = c / heads;
        let [q, k, v] = [(q, [0, 1, 3, 2, 4]), (k, [0, 1, 3, 4, 2]), (v, [0, 1, 3, 2, 4])].map(|(part, dims)| {
            let split = self.graph.reshape(&part, &[0, windows[1], length, heads, each]);
            self.permuted(&split, &dims)
        });
        let q = self.graph.with_scalar("Mul", &q, 1.0 / (each as f32).sqrt());
        let scores = self.graph.op("MatMul", &[&q, &k], []);
        let mut scores = self.graph.op("Add", &[&scores, &bias], []);
        if shift != [0, 0] {
            let mask = self.shift_mask(image, [wh, ww], shift);
            scores = self.graph.op("Add", &[&scores, &mask], []);
        }
        let shares = self.graph.op("Softmax", &[&scores], [int("axis", -1)]);
        let mixed = self.graph.op("MatMul", &[&shares, &v], []);
        let joined = self.permuted(&mixed, &[0, 1, 3, 2, 4]);
        let joined = self.graph.reshape(&joined, &windows);
        let weight = self.parameter(node, "proj.weight");
        let proj_bias = l.proj_bias.then(|| self.parameter(node, "proj.bias"));
        let y = self.product(&joined, &weight, proj_bias.as_deref());

        let whole = [0, image[0], image[1], c];
        let mut y = self.reordered(&y, &[0, down, across, wh, ww, c], &[0, 1, 3, 2, 4, 5], &whole);
        for (d, size) in [h, w].into_iter().enumerate() {
            y = self.rolled(&y, 1 + d, image[d], image[d] - shift[d]);
            if size < image[d] {
                y = self.graph.slice(&y, 1 + d, 0, size);
            }
        }
        y
    }

    /// The learned number for the distance of each two positions, `[heads, L, L]`.
    fn window_bias(&mut self, node: &LayerNode, heads: usize, length: usize) -> String {
        let table = self.parameter(node, "relative_position_bias_table");
        let index = self.parameter(node, "relative_position_index");
        let picked = self.graph.op("Gather", &[&table, &index], [int("axis", 0)]);
        let turned = self.permuted(&picked, &[1, 0]);
        // The heads stay the first dimension, as the batch does elsewhere.
        self.graph.reshape(&turned, &[heads, length, length])
    }

    /// What keeps pixels apart that are no neighbours, `[windows, 1, L, L]`: −100, where the pixels of a shifted window come from different
    /// regions of the image.
    fn shift_mask(&mut self, image: [usize; 2], window: [usize; 2], shift: [usize; 2]) -> String {
        let region = |at: usize, d: usize| {
            let ends = [image[d] - window[d], image[d] - shift[d]];
            ends.into_iter().filter(|end| shift[d] > 0 && at >= *end).count()
        };
        let (counts, length) = ([0, 1].map(|d| image[d] / window[d]), window[0] * window[1]);
        let mut mask = Vec::with_capacity(counts[0] * counts[1] * length * length);
        for at in 0..counts[0] * counts[1] {
            let corner = [at / counts[1] * window[0], at % counts[1] * window[1]];
            let place = |i: usize| [region(corner[0] + i / window[1], 0), region(corner[1] + i % window[1], 1)];
            let pairs = (0..length).flat_map(|i| (0..length).map(move |j| (i, j)));
            mask.extend(pairs.map(|(i, j)| if place(i) == place(j) { 0.0 } else { -100.0 }));
        }
        self.graph.floats(&[counts[0] * counts[1], 1, length, length], &mask)
    }

    pub(super) fn merge_patches(&mut self, x: &Value, out: &[usize]) -> String {
        let [h, w, c] = [x.shape[1], x.shape[2], x.shape[3]];
        let y = self.filled_up(&x.name, [h % 2, w % 2]);
        self.reordered(&y, &[0, out[1], 2, out[2], 2, c], &[0, 1, 3, 4, 2, 5], out)
    }

    /// Images with so many rows and columns of zeros behind their own.
    fn filled_up(&mut self, x: &str, [rows, columns]: [usize; 2]) -> String {
        if rows + columns == 0 {
            return x.to_owned();
        }
        let pads = self.graph.list(&[0, 0, 0, 0, 0, rows as i64, columns as i64, 0]);
        self.graph.op("Pad", &[x, &pads], [word("mode", "constant")])
    }

    /// Rolls the elements along `axis`, of which there are `size`: the first `by` come last.
    fn rolled(&mut self, x: &str, axis: usize, size: usize, by: usize) -> String {
        if by == 0 || by == size {
            return x.to_owned();
        }
        let [first, rest] = [(0, by), (by, size)].map(|(start, end)| self.graph.slice(x, axis, start, end));
        self.graph.op("Concat", &[&rest, &first], [int("axis", axis as i64)])
    }

    fn reordered(&mut self, x: &str, split: &[usize], dims: &[usize], joined: &[usize]) -> String {
        let split = self.graph.reshape(x, split);
        let moved = self.permuted(&split, dims);
        self.graph.reshape(&moved, joined)
    }
}
