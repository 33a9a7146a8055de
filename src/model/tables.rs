//! The columns of tables as vectors, by bins of their numbers.

use super::columns::Columns;
use super::ensemble::by_group;
use super::params::Param;
use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::data::table::TableCodec;
use crate::graph::op::{Activation, ActivationOp, Binary, BinaryKind, NewFull, Normalize, Pad, Reshape};
use crate::graph::{DType, Fill, Shape, ValueId};

const ADD: Binary = Binary { kind: BinaryKind::Add };
const MUL: Binary = Binary { kind: BinaryKind::Mul };

/// What lies so far above all numbers that nothing of it is below one.
const NEVER: f32 = 1e30;

/// The bins of the number columns of a table.
pub struct Bins {
    /// The columns.
    pub columns: Columns,
    /// Where the bins of each begin and end.
    pub edges: Vec<Vec<f32>>,
}

/// Begins and widths of bins, column by column.
pub struct Pieces {
    /// Where each begins.
    pub begin: Vec<f32>,
    /// How wide each is.
    pub width: Vec<f32>,
}

impl Bins {
    /// Those of the table that a sample is a row of, which has `width` numbers; `None` if its columns were not cut into bins.
    pub fn of(codec: &TableCodec, width: usize) -> Option<Bins> {
        let (places, edges): (Vec<_>, Vec<_>) =
            codec.binned().into_iter().map(|(place, edges)| (place, edges.to_vec())).unzip();
        codec.bins?;
        Some(Bins { columns: Columns::at(places, width)?, edges })
    }

    /// Bins of the column that has most.
    pub fn most(&self) -> usize {
        self.edges.iter().map(|edges| edges.len() - 1).max().unwrap_or(1)
    }

    /// Which bin of a column stands where: as many places for each column as the most that one has. The last bin of a column is in its last place,
    /// and places that a column has no bin for lie above all numbers.
    pub fn all(&self) -> Pieces {
        let most = self.most();
        let mut pieces = Pieces { begin: Vec::new(), width: Vec::new() };
        for edges in &self.edges {
            let bins = edges.len() - 1;
            for place in 0..most {
                let bin = if place + 1 == most { Some(bins - 1) } else { Some(place).filter(|place| place + 1 < bins) };
                pieces.begin.push(bin.map_or(NEVER, |bin| edges[bin]));
                pieces.width.push(bin.map_or(1.0, |bin| edges[bin + 1] - edges[bin]));
            }
        }
        pieces
    }

    /// What lies above the last bin of each column, in its widths.
    pub fn above(&self) -> Pieces {
        let pair = |edges: &Vec<f32>| (edges[edges.len() - 1], edges[edges.len() - 1] - edges[edges.len() - 2]);
        let (begin, width) = self.edges.iter().map(pair).unzip();
        Pieces { begin, width }
    }

    /// What lies below the first bin of each column, in its widths: of columns of one bin if they are `alone`, else of the others. All numbers lie
    /// above that of the rest.
    pub fn below(&self, alone: bool) -> Pieces {
        let pair = |edges: &Vec<f32>| match (edges.len() == 2) == alone {
            true => (edges[0], edges[1] - edges[0]),
            false => (-NEVER, 1.0),
        };
        let (begin, width) = self.edges.iter().map(pair).unzip();
        Pieces { begin, width }
    }
}

impl Builder<'_> {
    /// `[N, F]` of a table to `[N, columns · embedding_dim + the rest]`.
    pub(super) fn piecewise_linear_embedding(
        &mut self,
        node: &LayerNode,
        l: &cfg::PiecewiseLinearEmbedding,
        x: Tensor,
    ) -> ValueId {
        let (n, width) = (self.batch, self.shape(x).last());
        let codec = self.table(x);
        let Some(bins) = codec.as_ref().and_then(|codec| Bins::of(codec, width)) else {
            return self.no_table(node, x, [n, width]);
        };
        if codec.and_then(|codec| codec.bins) != Some(l.bins) {
            let at = node.fields.get("bins").copied().unwrap_or(node.span);
            let message = "the columns of a table are cut into bins once, and another layer has another number of them";
            self.refuse_at(node, at, message, "another number of bins", &[x], "write the same `bins` in both");
        }
        let d = l.embedding_dim;
        self.with_the_rest(x.value, &bins.columns, d, |from, numbers| from.embedded(node, numbers, &bins, d))
    }

    /// Vectors of `d` numbers for the columns `x [N, columns]`, one after the other.
    fn embedded(&mut self, node: &LayerNode, x: ValueId, bins: &Bins, d: usize) -> ValueId {
        let (n, columns, most) = (self.batch, bins.edges.len(), bins.most());
        let encoded = self.encoded(x, bins);
        let start = Fill::Constant(0.0);
        let linear = self.param(node, by_group("linear.weight", [columns, most, d], start));
        let of_bins = self.groups_of_linear(encoded, linear, None, [columns, most, d]);
        let bound = 1.0 / (d as f64).sqrt();
        let shape = Shape::from([columns, d]);
        let weight = self.param(node, Param::plain("linear0.weight", shape.clone(), Fill::Uniform { bound }));
        let bias = self.param(node, Param::plain("linear0.bias", shape, Fill::Uniform { bound }));
        let [weight, bias] = [weight, bias].map(|p| self.plain(Reshape { shape: Shape::from([1, columns, d]) }, &[p]));
        let x = self.plain(Reshape { shape: Shape::from([n, columns, 1]) }, &[x]);
        let of_number = self.plain(MUL, &[x, weight]);
        let of_number = self.plain(ADD, &[of_number, bias]);
        let of_bins = self.plain(Reshape { shape: Shape::from([n, columns, d]) }, &[of_bins]);
        let sum = self.plain(ADD, &[of_number, of_bins]);
        self.plain(Reshape { shape: Shape::from([n, columns * d]) }, &[sum])
    }

    /// How much of each bin lies below the numbers `x [N, columns]`: `[N, columns · bins]`. Below the first and above the last bin it goes on as in these.
    fn encoded(&mut self, x: ValueId, bins: &Bins) -> ValueId {
        let (n, columns, most) = (self.batch, bins.edges.len(), bins.most());
        let within = |from: &mut Self, x: ValueId, Pieces { begin, width }: Pieces, low: f32, high: f32| {
            let part = from.plain(Normalize { scale: 1.0, mean: begin, std: width, to: DType::F32 }, &[x]);
            from.plain(ActivationOp { act: Activation::Hardtanh { low, high } }, &[part])
        };
        let tall = Shape::from([n, columns, 1]);
        let each = self.plain(Reshape { shape: tall.clone() }, &[x]);
        let ones = self.plain(NewFull { shape: Shape::from([1, 1, most]), value: 1.0 }, &[x]);
        let each = self.plain(MUL, &[each, ones]);
        let each = self.plain(Reshape { shape: Shape::from([n, columns * most]) }, &[each]);
        let inner = within(self, each, bins.all(), 0.0, 1.0);
        let mut sum = self.plain(Reshape { shape: Shape::from([n, columns, most]) }, &[inner]);
        let mut add = |from: &mut Self, outer: ValueId, at: usize| {
            let outer = from.plain(Reshape { shape: tall.clone() }, &[outer]);
            let outer = from.plain(Pad { axis: 2, before: at, after: most - 1 - at }, &[outer]);
            sum = from.plain(ADD, &[sum, outer]);
        };
        let above = within(self, x, bins.above(), 0.0, f32::MAX);
        add(self, above, most - 1);
        // The first bin of a column that has one alone is its last.
        for (alone, at) in [(false, 0), (true, most - 1)] {
            if bins.edges.iter().any(|edges| (edges.len() == 2) == alone) {
                let below = within(self, x, bins.below(alone), f32::MIN, 0.0);
                add(self, below, at);
            }
        }
        self.plain(Reshape { shape: Shape::from([n, columns * most]) }, &[sum])
    }
}
