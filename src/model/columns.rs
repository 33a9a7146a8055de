//! The columns of tables as vectors: which numbers of a sample are whose, and vectors that need no bins.

use super::embeddings::normal;
use super::ensemble::by_group;
use super::params::{Param, uniform_fan_in};
use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::config::language::sections::ColumnType;
use crate::data::INPUTS;
use crate::data::table::{TableCodec, matches};
use crate::graph::op::{Activation, ActivationOp, Binary, BinaryKind, Concat, Linear, Reshape, Slice};
use crate::graph::{DType, Fill, Shape, Storage, ValueId};
use std::f32::consts::TAU;
use std::ops::Range;

const ADD: Binary = Binary { kind: BinaryKind::Add };
const MUL: Binary = Binary { kind: BinaryKind::Mul };

/// Columns of a table that are one number each.
pub struct Columns {
    /// Their places in a sample, ascending.
    places: Vec<usize>,
    /// How many numbers a sample has.
    width: usize,
}

impl Columns {
    /// Those at these places of a sample of `width` numbers; `None` if it has none there.
    pub fn at(places: Vec<usize>, width: usize) -> Option<Columns> {
        places.last().is_none_or(|last| *last < width).then_some(Columns { places, width })
    }

    /// All of the table that a sample is a row of, which has `width` numbers.
    pub fn of(codec: &TableCodec, width: usize) -> Option<Columns> {
        Columns::at(codec.numbers(), width)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Their places as ranges, as few as there can be.
    pub fn runs(&self) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for &place in &self.places {
            match runs.last_mut() {
                Some(run) if run.end == place => run.end += 1,
                _ => runs.push(place..place + 1),
            }
        }
        runs
    }

    /// What else is in a sample.
    pub fn others(&self) -> Vec<Range<usize>> {
        between(self.places.iter().map(|place| *place..place + 1), self.width)
    }
}

/// What of `0..width` lies between these ranges.
fn between(taken: impl Iterator<Item = Range<usize>> + Clone, width: usize) -> Vec<Range<usize>> {
    let begins = std::iter::once(0).chain(taken.clone().map(|range| range.end));
    let ends = taken.map(|range| range.start).chain([width]);
    begins.zip(ends).map(|(begin, end)| begin..end).filter(|range| !range.is_empty()).collect()
}

/// What has a vector of its own where a table becomes a sequence.
pub struct Tokens {
    /// The numbers, as ranges of a sample.
    pub numbers: Vec<Range<usize>>,
    /// The places of each category.
    pub categories: Vec<Range<usize>>,
}

impl Tokens {
    /// Of the table that a sample is a row of, which has `width` numbers.
    pub fn of(codec: &TableCodec, width: usize) -> Option<Tokens> {
        let categories = codec.categories();
        if categories.last().is_some_and(|last| last.end > width) {
            return None;
        }
        Some(Tokens { numbers: between(categories.iter().cloned(), width), categories })
    }
}

/// The name of the vectors that `tabular_input` has for category number `i`.
pub fn vector_name(i: usize) -> String {
    format!("embeddings.{i}.weight")
}

/// How many numbers a vector for one of `texts` has, where no key says it: `emb_sz_rule` of fastai.
fn usual_width(texts: usize) -> usize {
    ((1.6 * (texts as f64).powf(0.56)).round() as usize).clamp(1, 600)
}

/// The name of the vectors of category number `i`.
pub fn category_name(i: usize) -> String {
    format!("cat_embeddings.embeddings.{i}.weight")
}

impl Builder<'_> {
    /// How rows become samples, if `x` is a sample of a table as the data has it.
    pub(super) fn table(&self, x: Tensor) -> Option<TableCodec> {
        let direct = self.prepared.iter().any(|(name, field)| name == INPUTS && field.value == x.value);
        let numbers = self.graph.value(x.value).dtype != DType::I32;
        TableCodec::of(self.data).filter(|codec| direct && numbers && codec.windows.is_none())
    }

    /// Reports a layer that is given no table.
    pub(super) fn no_table(&mut self, node: &LayerNode, x: Tensor, meant: impl Into<Shape>) -> ValueId {
        let message = format!("`{}` takes the columns of a table, as the data has them", node.kind_name());
        let in_windows = TableCodec::of(self.data).is_some_and(|codec| codec.windows.is_some());
        let help = match in_windows {
            true => {
                "it takes a row, and a sample is a window of rows: `lstm` and the other layers for sequences take those"
            }
            false => "it is the first layer of a model for `source = \"csv\"`",
        };
        self.refuse(node, &message, "takes a table", &[x], help);
        self.guess(meant.into())
    }

    /// What `vectors` makes of the numbers `[N, columns]` of some columns, `[N, columns · d]`, and after it what else is in a sample.
    pub(super) fn with_the_rest(
        &mut self,
        x: ValueId,
        columns: &Columns,
        d: usize,
        vectors: impl FnOnce(&mut Self, ValueId) -> ValueId,
    ) -> ValueId {
        let mut parts = Vec::with_capacity(2);
        if !columns.is_empty() {
            let numbers = self.cut(x, &columns.runs());
            parts.push(vectors(self, numbers));
        }
        let others = columns.others();
        if !others.is_empty() {
            parts.push(self.cut(x, &others));
        }
        let y = self.joined(parts);
        self.embedded_columns.insert(y, [d, columns.len() * d]);
        y
    }

    /// Ranges of the second axis, one after the other.
    fn cut(&mut self, x: ValueId, ranges: &[Range<usize>]) -> ValueId {
        let whole = self.graph.shape(x).last();
        let slice = |range: &Range<usize>| match *range == (0..whole) {
            true => x,
            false => self.plain(Slice { axis: 1, start: range.start, len: range.len() }, &[x]),
        };
        let parts: Vec<ValueId> = ranges.iter().map(slice).collect();
        self.joined(parts)
    }

    fn joined(&mut self, parts: Vec<ValueId>) -> ValueId {
        match parts[..] {
            [one] => one,
            _ => self.plain(Concat { axis: 1 }, &parts),
        }
    }

    /// `[N, F]` of a table to `[N, columns · embedding_dim + the rest]`.
    pub(super) fn periodic_embedding(&mut self, node: &LayerNode, l: &cfg::PeriodicEmbedding, x: Tensor) -> ValueId {
        let (n, width) = (self.batch, self.shape(x).last());
        let Some(columns) = self.table(x).and_then(|codec| Columns::of(&codec, width)) else {
            return self.no_table(node, x, [n, width]);
        };
        let c = columns.len();
        self.with_the_rest(x.value, &columns, l.embedding_dim, |from, numbers| {
            let waves = from.waves(node, l, numbers);
            from.through_linear(node, l, waves, c)
        })
    }

    /// Cosines and sines of multiples of the numbers `x [N, columns]`: `[N, columns, 2 · n_frequencies]`.
    fn waves(&mut self, node: &LayerNode, l: &cfg::PeriodicEmbedding, x: ValueId) -> ValueId {
        let (n, c, k) = (self.batch, self.graph.shape(x).last(), l.n_frequencies);
        let std = l.frequency_init_scale;
        let start = Fill::TruncatedNormal { std, low: -3.0 * std, high: 3.0 * std };
        let weight = self.param(node, Param::plain("periodic.weight", [c, k], start));
        let turns = self.times(weight, TAU);
        let turns = self.plain(Reshape { shape: Shape::from([1, c, k]) }, &[turns]);
        let x = self.plain(Reshape { shape: Shape::from([n, c, 1]) }, &[x]);
        let angles = self.plain(MUL, &[x, turns]);
        let both = [Activation::Cos, Activation::Sin].map(|act| self.plain(ActivationOp { act }, &[angles]));
        self.plain(Concat { axis: 2 }, &both)
    }

    /// A linear layer, of its own for each column or one for all, on `[N, columns, 2 · n_frequencies]`: `[N, columns · embedding_dim]`.
    fn through_linear(&mut self, node: &LayerNode, l: &cfg::PeriodicEmbedding, x: ValueId, c: usize) -> ValueId {
        let (n, wide, d) = (self.batch, 2 * l.n_frequencies, l.embedding_dim);
        let init = uniform_fan_in(wide);
        let flat = Shape::from([n, c * d]);
        let y = match l.lite {
            true => {
                let weight = self.param(node, Param::plain("linear.weight", [d, wide], init));
                let bias = self.param(node, Param::plain("linear.bias", [d], init));
                let y = self.plain(Linear { bias: true }, &[x, weight, bias]);
                self.plain(Reshape { shape: flat.clone() }, &[y])
            }
            false => {
                let weight = self.param(node, by_group("linear.weight", [c, wide, d], init));
                let storage = Storage::plain([c, d]);
                let bias = self.param(node, Param { storage, ..Param::plain("linear.bias", [c * d], init) });
                if [weight, bias].iter().any(|p| self.guesses.contains(p)) {
                    return self.guess(flat);
                }
                let x = self.plain(Reshape { shape: Shape::from([n, c * wide]) }, &[x]);
                self.groups_of_linear(x, weight, Some(bias), [c, wide, d])
            }
        };
        match l.activation {
            true => self.plain(ActivationOp { act: Activation::Relu }, &[y]),
            false => y,
        }
    }

    /// `[N, F]` of a table to `[N, tokens, embedding_dim]`.
    pub(super) fn feature_tokenizer(&mut self, node: &LayerNode, l: &cfg::FeatureTokenizer, x: Tensor) -> ValueId {
        let (n, width, d) = (self.batch, self.shape(x).last(), l.embedding_dim);
        let Some(tokens) = self.table(x).and_then(|codec| Tokens::of(&codec, width)) else {
            return self.no_table(node, x, [n, width, d]);
        };
        let start = uniform_fan_in(d);
        let mut parts = Vec::with_capacity(2);
        if !tokens.numbers.is_empty() {
            let numbers = self.cut(x.value, &tokens.numbers);
            let c = self.graph.shape(numbers).last();
            let weight = self.rows(node, "cont_embeddings.weight", [c, d], start);
            let bias = self.rows(node, "cont_embeddings.bias", [c, d], start);
            let numbers = self.plain(Reshape { shape: Shape::from([n, c, 1]) }, &[numbers]);
            let weighed = self.plain(MUL, &[numbers, weight]);
            parts.push(self.plain(ADD, &[weighed, bias]));
        }
        if !tokens.categories.is_empty() {
            let mut vectors = Vec::with_capacity(tokens.categories.len());
            for (i, places) in tokens.categories.iter().enumerate() {
                // One of its numbers is 1: the product is a row of the table.
                let (name, texts) = (category_name(i), places.len());
                let storage = Storage::transposed(d, texts);
                let table = self.param(node, Param { storage, ..Param::plain(&name, [d, texts], start) });
                let own = self.cut(x.value, std::slice::from_ref(places));
                let vector = self.plain(Linear { bias: false }, &[own, table]);
                vectors.push(self.plain(Reshape { shape: Shape::from([n, 1, d]) }, &[vector]));
            }
            let vectors = self.joined(vectors);
            let bias = self.rows(node, "cat_embeddings.bias", [tokens.categories.len(), d], start);
            parts.push(self.plain(ADD, &[vectors, bias]));
        }
        self.joined(parts)
    }

    /// `[N, F]` of a table to `[N, numbers + vectors of categories]`.
    pub(super) fn tabular_input(&mut self, node: &LayerNode, x: Tensor) -> ValueId {
        let (n, width) = (self.batch, self.shape(x).last());
        let table = self.table(x).and_then(|codec| Some((Tokens::of(&codec, width)?, codec)));
        let Some((tokens, codec)) = table else { return self.no_table(node, x, [n, width]) };
        let rules = self.experiment.data.source.table().and_then(|table| table.columns.as_ref());
        let asked = |name: &str| {
            let rule = rules?.0.iter().find(|rule| matches(&rule.name, name))?;
            if let ColumnType::Category(category) = &rule.column { category.embedding } else { None }
        };
        let asked: Vec<Option<usize>> = codec.categories_named().map(asked).collect();
        let mut parts = Vec::with_capacity(tokens.categories.len() + 1);
        if !tokens.numbers.is_empty() {
            parts.push(self.cut(x.value, &tokens.numbers));
        }
        for (i, (places, asked)) in tokens.categories.iter().zip(asked).enumerate() {
            let texts = places.len();
            let d = asked.unwrap_or_else(|| usual_width(texts));
            // One of its numbers is 1: the product is a row of the table.
            let storage = Storage::transposed(d, texts);
            let table = self.param(node, Param { storage, ..Param::plain(&vector_name(i), [d, texts], normal(1.0)) });
            let own = self.cut(x.value, std::slice::from_ref(places));
            parts.push(self.plain(Linear { bias: false }, &[own, table]));
        }
        self.joined(parts)
    }

    /// A parameter of rows, as it goes with those of each sample.
    fn rows(&mut self, node: &LayerNode, name: &str, [rows, d]: [usize; 2], start: Fill) -> ValueId {
        let p = self.param(node, Param::plain(name, [rows, d], start));
        self.plain(Reshape { shape: Shape::from([1, rows, d]) }, &[p])
    }
}
