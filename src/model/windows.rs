//! Attention within windows of images, and what makes images of half the side of it (Liu et al., "Swin Transformer", 2021). The images have
//! their channels last.

use super::order::Order;
use super::params::{Param, uniform_fan_in};
use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::graph::op::{Attention, AttentionDropout, Binary, BinaryKind, Concat, Linear, Pad, Permute, Reshape, Slice};
use crate::graph::{DType, Fill, MAX_ELEMENTS, Shape, Storage, ValueId, VarKind, Variable};

/// Least channels, times the share of positions that are padding, for which queries, keys and values are projected before images are
/// padded: with fewer, moving three times the elements to the windows takes longer than projecting the padding.
const PROJECTED_FIRST: usize = 128;

/// How the windows of an image lie.
struct Windows {
    /// Rows and columns: of the image without padding, with it, which is a whole number of windows, and of a window.
    inside: [usize; 2],
    image: [usize; 2],
    window: [usize; 2],
    /// How far they are shifted.
    shift: [usize; 2],
}

impl Windows {
    /// Number of windows in both directions.
    fn counts(&self) -> [usize; 2] {
        [0, 1].map(|d| self.image[d] / self.window[d])
    }

    /// Positions of a window.
    fn length(&self) -> usize {
        self.window[0] * self.window[1]
    }

    /// Whether images of so many channels are projected before they are padded.
    fn projects_first(&self, channels: usize) -> bool {
        let [inside, all] = [self.inside, self.image].map(|[h, w]| h * w);
        (all - inside) * channels >= PROJECTED_FIRST * all
    }
}

impl Builder<'_> {
    /// `[N, H, W, C]` of images whose channels come last, and these images; reports a layer that is given something else.
    fn channels_last(&mut self, node: &LayerNode, x: Tensor) -> Option<(ValueId, [usize; 4])> {
        let shape = self.dims(x);
        if let (4, false) = (shape.rank(), x.order == Order::Usual) {
            let x = self.contiguous(x);
            let dims = self.shape(x).dims().try_into().expect("four dimensions");
            return Some((x.value, dims));
        }
        let message = format!(
            "`{}` takes images whose channels come last, [N, H, W, C], but its input has the shape {shape}",
            node.kind_name()
        );
        let help = if shape.rank() == 4 { "put a \"permute\" to `[0, 2, 3, 1]` before it" } else { "" };
        self.refuse(node, &message, "takes [N, H, W, C]", &[x], help);
        None
    }

    /// Whether a value of that shape is not too large; reports it otherwise.
    fn fits(&mut self, node: &LayerNode, shape: &[usize], x: Tensor) -> bool {
        let fits = shape.iter().fold(1usize, |n, size| n.saturating_mul(*size)) <= MAX_ELEMENTS;
        if !fits {
            let shape = Shape::from(shape);
            let message = format!("`{}` would need a value of shape {shape}: too large", node.kind_name());
            self.refuse(node, &message, &format!("more than {MAX_ELEMENTS} elements"), &[x], "");
        }
        fits
    }

    /// Rolls the elements along `axis`: the first `by` come last.
    fn rolled(&mut self, x: ValueId, axis: usize, by: usize) -> ValueId {
        let size = self.graph.shape(x).dims()[axis];
        if by == 0 || by == size {
            return x;
        }
        let [first, rest] = [(0, by), (by, size - by)].map(|(start, len)| self.plain(Slice { axis, start, len }, &[x]));
        self.plain(Concat { axis }, &[rest, first])
    }

    fn reordered(&mut self, x: ValueId, split: &[usize], perm: &[usize], joined: &[usize]) -> ValueId {
        let split = self.plain(Reshape { shape: Shape::from(split) }, &[x]);
        let moved = self.plain(Permute { perm: perm.to_vec() }, &[split]);
        self.plain(Reshape { shape: Shape::from(joined) }, &[moved])
    }

    pub(super) fn shifted_window_attention(
        &mut self,
        node: &LayerNode,
        l: &cfg::ShiftedWindowAttention,
        x: Tensor,
    ) -> (ValueId, Order) {
        let order = Order::of(&[0, 1, 2, 3]);
        let Some((images, [n, h, w, c])) = self.channels_last(node, x) else { return (x.value, x.order) };
        let (heads, window) = (l.num_heads, l.window_size.0);
        if !c.is_multiple_of(heads) {
            let at = node.fields.get("num_heads").copied().unwrap_or(node.span);
            let message = format!("`shifted_window_attention` cannot split {c} channels into {heads} heads");
            self.refuse_at(node, at, &message, &format!("must divide {c}"), &[x], "");
            return (images, order);
        }
        let image = [h.next_multiple_of(window[0]), w.next_multiple_of(window[1])];
        // A window that covers the image has no neighbours to meet.
        let shift = [0, 1].map(|d| if window[d] >= image[d] { 0 } else { l.shift_size.0[d] });
        let windows = Windows { inside: [h, w], image, window, shift };
        let [down, across] = windows.counts();
        let bias = [down, across, heads, windows.length(), windows.length()];
        if !self.fits(node, &[n, image[0], image[1], c], x) || !self.fits(node, &bias, x) {
            return (images, order);
        }
        // PyTorch's state dict has the parameter and the buffer of the layer itself before those of the projections.
        let bias = self.window_bias(node, &windows, heads);
        let rows = [n * down * across, windows.length()];
        let weight = Param::plain("qkv.weight", [3 * c, c], uniform_fan_in(c));
        let images = Tensor { value: images, order: Order::Usual, made_by: x.made_by };
        let qkv = if windows.projects_first(c) {
            let qkv = self.projection(node, weight, "", false, images);
            let mut value = self.windowed(&windows, qkv.value);
            if l.qkv_bias {
                // The padding has it, too.
                let bias = self.param(node, Param::plain("qkv.bias", [3 * c], Fill::Constant(0.0)));
                let bias = self.plain(Reshape { shape: Shape::from([1, 1, 3 * c]) }, &[bias]);
                value = self.plain(Binary { kind: BinaryKind::Add }, &[value, bias]);
            }
            Tensor { value, ..qkv }
        } else {
            let value = self.windowed(&windows, images.value);
            self.projection(node, weight, "qkv.bias", l.qkv_bias, Tensor { value, ..images })
        };
        let p = l.attention_dropout as f32;
        let draws = self.draws(p);
        let operands: Vec<ValueId> = [qkv.value, bias].into_iter().chain(draws.map(|(random, _)| random)).collect();
        let dropout = draws.map(|(_, stream)| AttentionDropout { p, stream });
        let op = Attention { heads, bias: true, dropout, ..Attention::default() };
        let value = self.apply(node, op, &operands, &[qkv], Shape::from([rows[0], rows[1], c]), "");

        // The projection of the padding is not needed.
        let split = [n, down, across, window[0], window[1], c];
        let mut value = self.reordered(value, &split, &[0, 1, 3, 2, 4, 5], &[n, image[0], image[1], c]);
        for (d, size) in [h, w].into_iter().enumerate() {
            value = self.rolled(value, 1 + d, image[d] - shift[d]);
            if size < image[d] {
                value = self.plain(Slice { axis: 1 + d, start: 0, len: size }, &[value]);
            }
        }
        let weight = Param::plain("proj.weight", [c, c], uniform_fan_in(c));
        let out = self.projection(node, weight, "proj.bias", l.proj_bias, Tensor { value, ..images });
        (self.dropout(l.dropout as f32, out), order)
    }

    /// `[N, H, W, C]` as windows, `[N · windows, positions, C]`, with zeros for the padding.
    fn windowed(&mut self, windows: &Windows, images: ValueId) -> ValueId {
        let Windows { inside, image, window, shift } = *windows;
        let ([n, c], [down, across]) = ([0, 3].map(|axis| self.graph.shape(images).dims()[axis]), windows.counts());
        let mut value = images;
        for d in 0..2 {
            if inside[d] < image[d] {
                value = self.plain(Pad { axis: 1 + d, before: 0, after: image[d] - inside[d] }, &[value]);
            }
        }
        for (d, by) in shift.into_iter().enumerate() {
            value = self.rolled(value, 1 + d, by);
        }
        let split = [n, down, window[0], across, window[1], c];
        self.reordered(value, &split, &[0, 1, 3, 2, 4, 5], &[n * down * across, windows.length(), c])
    }

    /// What is added to the scores of the windows, `[1, heads, L, L]`, or `[windows of an image, heads, L, L]` where they are shifted: a learned
    /// number for each distance, and what keeps pixels apart that are no neighbours.
    fn window_bias(&mut self, node: &LayerNode, windows: &Windows, heads: usize) -> ValueId {
        let [h, w] = windows.window;
        let (l, distances) = (windows.length(), (2 * h - 1) * (2 * w - 1));
        // Outside `[distances, heads]`.
        let outside = Shape::from([distances, heads]);
        let storage = Storage { view: outside.clone(), outside, perm: vec![1, 0] };
        let init = Fill::TruncatedNormal { std: 0.02, low: -2.0, high: 2.0 };
        let table = Param { storage, ..Param::plain("relative_position_bias_table", [heads, distances], init) };
        let table = self.param(node, table);
        // Which distance a pair has is a part of PyTorch's state dict; it follows from the window.
        let index = Param::buffer("relative_position_index", DType::I64, [l * l], 0.0);
        self.param(node, Param { init: Fill::RelativePositions { window: [h, w] }, ..index });

        // The number for a distance is picked by a product with zeros and a one: column by column, then row by row.
        let table = self.plain(Reshape { shape: Shape::from([heads * (2 * h - 1), 2 * w - 1]) }, &[table]);
        let columns = self.distances(w);
        let picked = self.plain(Linear { bias: false }, &[table, columns]);
        let (split, turned) = ([heads, 2 * h - 1, w * w], [heads * w * w, 2 * h - 1]);
        let picked = self.reordered(picked, &split, &[0, 2, 1], &turned);
        let rows = self.distances(h);
        let picked = self.plain(Linear { bias: false }, &[picked, rows]);
        let bias = self.reordered(picked, &[heads, w, w, h, h], &[0, 3, 1, 4, 2], &[1, heads, l, l]);
        if windows.shift == [0, 0] {
            return bias;
        }
        let Windows { image, window, shift, .. } = *windows;
        let [down, across] = windows.counts();
        let name = format!("shift_mask[{image:?}, {window:?}, {shift:?}]");
        let mask = self.constant(name, Shape::from([down * across, 1, l, l]), Fill::ShiftMask { image, window, shift });
        self.plain(Binary { kind: BinaryKind::Add }, &[bias, mask])
    }

    /// The distances of all pairs of positions in a row of `side`, `[side², 2 · side − 1]`.
    fn distances(&mut self, side: usize) -> ValueId {
        let shape = Shape::from([side * side, 2 * side - 1]);
        self.constant(format!("distances[{side}]"), shape, Fill::Distances { side })
    }

    /// A constant, which all layers share that need it. No layer has such a name.
    pub(super) fn constant(&mut self, name: String, shape: Shape, init: Fill) -> ValueId {
        let zeros = Variable::zeros(name, DType::F32, shape, VarKind::Constant);
        let id = self.vars.get_or_add(Variable { init, ..zeros });
        self.graph.variable(self.vars, id)
    }

    pub(super) fn merge_patches(&mut self, node: &LayerNode, x: Tensor) -> (ValueId, Order) {
        let Some((mut value, [n, h, w, c])) = self.channels_last(node, x) else { return (x.value, x.order) };
        if !self.fits(node, &[n, h.next_multiple_of(2), w.next_multiple_of(2), c], x) {
            return (value, Order::of(&[0, 1, 2, 3]));
        }
        for (axis, size) in [(1, h), (2, w)] {
            if size % 2 == 1 {
                value = self.plain(Pad { axis, before: 0, after: 1 }, &[value]);
            }
        }
        let (h, w) = (h.div_ceil(2), w.div_ceil(2));
        let value = self.reordered(value, &[n, h, 2, w, 2, c], &[0, 1, 3, 4, 2, 5], &[n, h, w, 4 * c]);
        (value, Order::of(&[0, 1, 2, 3]))
    }
}
