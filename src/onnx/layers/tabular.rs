//! Columns of tables as vectors, and several models in one.

use crate::config::language::layers::{EnsembleAffine, EnsembleLinear, PeriodicEmbedding};
use crate::config::{Diagnostic, LayerNode};
use crate::data::table::TableCodec;
use crate::graph::op::{Loss, RowLoss, Task};
use crate::model::{Bins, Columns, Pieces, Tokens, category_name, vector_name};
use crate::onnx::graph::int;
use crate::onnx::{Translator, Value, internal};
use std::ops::Range;

impl Translator<'_> {
    pub(super) fn piecewise_linear_embedding(&mut self, node: &LayerNode, x: &Value) -> Result<String, Diagnostic> {
        let codec = TableCodec::of(self.source.data);
        let bins = codec.and_then(|codec| Bins::of(&codec, x.shape[1]));
        let Some(bins) = bins else { return Err(internal(format!("`{}` has no bins", node.path))) };
        let [weight, weight0, bias0] =
            ["linear.weight", "linear0.weight", "linear0.bias"].map(|name| self.parameter(node, name));
        let mut parts = Vec::new();
        let columns = bins.columns.len();
        if columns > 0 {
            let numbers = self.cut(&x.name, &bins.columns.runs());
            let axis = self.graph.list(&[-1]);
            let each = self.graph.op("Unsqueeze", &[&numbers, &axis], []);
            let most = bins.most();
            let inner = self.within(&each, bins.all(), [columns, most], [Some(0.0), Some(1.0)]);
            let mut ends = vec![(bins.above(), most - 1, [Some(0.0), None])];
            ends.extend([(false, 0), (true, most - 1)].map(|(alone, at)| (bins.below(alone), at, [None, Some(0.0)])));
            let mut sum = inner;
            for (pieces, at, range) in ends {
                let outer = self.within(&each, pieces, [columns, 1], range);
                let pads = [0, 0, at, 0, 0, most - 1 - at].map(|n| n as i64);
                let pads = self.graph.list(&pads);
                let outer = self.graph.op("Pad", &[&outer, &pads], []);
                sum = self.graph.op("Add", &[&sum, &outer], []);
            }
            let of_bins = self.product_of_each(&sum, &weight);
            let of_number = self.graph.op("Mul", &[&each, &weight0], []);
            let of_number = self.graph.op("Add", &[&of_number, &bias0], []);
            let vectors = self.graph.op("Add", &[&of_number, &of_bins], []);
            parts.push(self.graph.op("Flatten", &[&vectors], [int("axis", 1)]));
        }
        let others = bins.columns.others();
        if !others.is_empty() {
            parts.push(self.cut(&x.name, &others));
        }
        Ok(self.joined(&parts, 1))
    }

    /// A product for each column, or each member: `[N, columns, K]` with `[columns, K, D]`.
    fn product_of_each(&mut self, x: &str, weight: &str) -> String {
        let first = self.permuted(x, &[1, 0, 2]);
        let product = self.graph.op("MatMul", &[&first, weight], []);
        self.permuted(&product, &[1, 0, 2])
    }

    pub(super) fn periodic_embedding(
        &mut self,
        node: &LayerNode,
        l: &PeriodicEmbedding,
        x: &Value,
    ) -> Result<String, Diagnostic> {
        let codec = TableCodec::of(self.source.data);
        let columns = codec.and_then(|codec| Columns::of(&codec, x.shape[1]));
        let Some(columns) = columns else { return Err(internal(format!("`{}` has no columns", node.path))) };
        let mut parts = Vec::new();
        if !columns.is_empty() {
            let [frequencies, weight, bias] =
                ["periodic.weight", "linear.weight", "linear.bias"].map(|name| self.parameter(node, name));
            let numbers = self.cut(&x.name, &columns.runs());
            let axis = self.graph.list(&[-1]);
            let each = self.graph.op("Unsqueeze", &[&numbers, &axis], []);
            let turns = self.graph.with_scalar("Mul", &frequencies, std::f32::consts::TAU);
            let angles = self.graph.op("Mul", &[&each, &turns], []);
            let [cos, sin] = ["Cos", "Sin"].map(|wave| self.graph.op(wave, &[&angles], []));
            let waves = self.joined(&[cos, sin], 2);
            let product = match l.lite {
                true => {
                    let weight = self.permuted(&weight, &[1, 0]);
                    self.graph.op("MatMul", &[&waves, &weight], [])
                }
                false => self.product_of_each(&waves, &weight),
            };
            let mut vectors = self.graph.op("Add", &[&product, &bias], []);
            if l.activation {
                vectors = self.graph.op("Relu", &[&vectors], []);
            }
            parts.push(self.graph.op("Flatten", &[&vectors], [int("axis", 1)]));
        }
        let others = columns.others();
        if !others.is_empty() {
            parts.push(self.cut(&x.name, &others));
        }
        Ok(self.joined(&parts, 1))
    }

    /// The numbers and the categories of the table that a layer takes.
    fn tokens(&self, node: &LayerNode, x: &Value) -> Result<Tokens, Diagnostic> {
        let codec = TableCodec::of(self.source.data);
        let tokens = codec.and_then(|codec| Tokens::of(&codec, x.shape[1]));
        tokens.ok_or_else(|| internal(format!("`{}` has no columns", node.path)))
    }

    pub(super) fn feature_tokenizer(&mut self, node: &LayerNode, x: &Value) -> Result<String, Diagnostic> {
        let tokens = self.tokens(node, x)?;
        let mut parts = Vec::new();
        if !tokens.numbers.is_empty() {
            let numbers = self.cut(&x.name, &tokens.numbers);
            let axis = self.graph.list(&[-1]);
            let each = self.graph.op("Unsqueeze", &[&numbers, &axis], []);
            let [weight, bias] =
                ["cont_embeddings.weight", "cont_embeddings.bias"].map(|name| self.parameter(node, name));
            let weighed = self.graph.op("Mul", &[&each, &weight], []);
            parts.push(self.graph.op("Add", &[&weighed, &bias], []));
        }
        if !tokens.categories.is_empty() {
            let axis = self.graph.list(&[1]);
            let vectors: Vec<String> = (0..)
                .zip(&tokens.categories)
                .map(|(i, places)| {
                    let table = self.parameter(node, &category_name(i));
                    let own = self.cut(&x.name, std::slice::from_ref(places));
                    let vector = self.graph.op("MatMul", &[&own, &table], []);
                    self.graph.op("Unsqueeze", &[&vector, &axis], [])
                })
                .collect();
            let vectors = self.joined(&vectors, 1);
            let bias = self.parameter(node, "cat_embeddings.bias");
            parts.push(self.graph.op("Add", &[&vectors, &bias], []));
        }
        Ok(self.joined(&parts, 1))
    }

    pub(super) fn tabular_input(&mut self, node: &LayerNode, x: &Value) -> Result<String, Diagnostic> {
        let tokens = self.tokens(node, x)?;
        let mut parts = Vec::new();
        if !tokens.numbers.is_empty() {
            parts.push(self.cut(&x.name, &tokens.numbers));
        }
        for (i, places) in tokens.categories.iter().enumerate() {
            let table = self.parameter(node, &vector_name(i));
            let own = self.cut(&x.name, std::slice::from_ref(places));
            parts.push(self.graph.op("MatMul", &[&own, &table], []));
        }
        Ok(self.joined(&parts, 1))
    }

    /// All products of vectors, of which those below the diagonal are taken.
    pub(super) fn dot_interaction(&mut self, x: &Value) -> String {
        let vectors = x.shape[1];
        let turned = self.permuted(&x.name, &[0, 2, 1]);
        let all = self.graph.op("MatMul", &[&x.name, &turned], []);
        let flat = self.graph.reshape(&all, &[0, vectors * vectors]);
        let places = (1..vectors).flat_map(|row| (0..row).map(move |column| (row * vectors + column) as i64));
        let places = self.graph.list(&places.collect::<Vec<_>>());
        self.graph.op("Gather", &[&flat, &places], [int("axis", 1)])
    }

    /// The parts of bins `[columns, bins]` that lie below the numbers `x [N, columns, 1]`, within a range.
    fn within(&mut self, x: &str, pieces: Pieces, shape: [usize; 2], range: [Option<f32>; 2]) -> String {
        let begin = self.graph.floats(&shape, &pieces.begin);
        let width = self.graph.floats(&shape, &pieces.width);
        let part = self.graph.op("Sub", &[x, &begin], []);
        let part = self.graph.op("Div", &[&part, &width], []);
        let [low, high] = range.map(|end| end.map_or(String::new(), |end| self.graph.scalar(end)));
        self.graph.op("Clip", &[&part, &low, &high], [])
    }

    /// Ranges of the second axis, one after the other.
    fn cut(&mut self, x: &str, ranges: &[Range<usize>]) -> String {
        let parts: Vec<String> = ranges.iter().map(|range| self.graph.slice(x, 1, range.start, range.end)).collect();
        self.joined(&parts, 1)
    }

    pub(super) fn ensemble_affine(&mut self, node: &LayerNode, l: &EnsembleAffine, x: &Value) -> String {
        let mut y = x.name.clone();
        if x.shape.len() == 2 {
            let axis = self.graph.list(&[1]);
            y = self.graph.op("Unsqueeze", &[&y, &axis], []);
        }
        let weight = self.parameter(node, "weight");
        y = self.graph.op("Mul", &[&y, &weight], []);
        if l.bias {
            let bias = self.parameter(node, "bias");
            y = self.graph.op("Add", &[&y, &bias], []);
        }
        y
    }

    pub(super) fn ensemble_linear(&mut self, node: &LayerNode, l: &EnsembleLinear, x: &Value) -> String {
        let weight = self.parameter(node, "weight");
        let y = self.product_of_each(&x.name, &weight);
        if !l.bias {
            return y;
        }
        let bias = self.parameter(node, "bias");
        self.graph.op("Add", &[&y, &bias], [])
    }

    pub(super) fn ensemble_mean(&mut self, x: &Value) -> String {
        let loss = self.source.experiment.loss.describe();
        let mean = |t: &mut Self, of: &str| t.graph.reduce("ReduceMean", of, &[1], false);
        let ordinal = self.source.experiment.loss.is_ordinal();
        match (if ordinal { Task::BinaryClassification } else { loss.task() }, &loss) {
            (Task::Regression, _) => mean(self, &x.name),
            (Task::Classification, loss) => {
                let nll = matches!(loss, Loss::CrossEntropy(l) if l.form == RowLoss::Nll);
                let logs = match nll {
                    true => x.name.clone(),
                    false => self.graph.op("LogSoftmax", &[&x.name], [int("axis", -1)]),
                };
                self.log_of_mean(&logs, x.shape[1])
            }
            (Task::BinaryClassification, _) => {
                let minus = self.graph.op("Neg", &[&x.name], []);
                let [yes, no] = [&x.name, &minus].map(|logits| {
                    // ln(sigmoid(x)) is −softplus(−x).
                    let minus = self.graph.op("Neg", &[logits], []);
                    let soft = self.graph.op("Softplus", &[&minus], []);
                    let logs = self.graph.op("Neg", &[&soft], []);
                    self.log_of_mean(&logs, x.shape[1])
                });
                self.graph.op("Sub", &[&yes, &no], [])
            }
        }
    }

    /// The logarithm of the mean over members of what has these logarithms.
    fn log_of_mean(&mut self, logs: &str, members: usize) -> String {
        let sum = self.graph.reduce("ReduceLogSumExp", logs, &[1], false);
        let less = self.graph.scalar((members as f32).ln());
        self.graph.op("Sub", &[&sum, &less], [])
    }
}
