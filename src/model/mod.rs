//! From an experiment to forward graphs: layers become operations, shapes are inferred as each is added.
//!
//! The builder reports every mistake that it can find in one go: after a layer that does not fit it goes on with a guess
//! at the shape that the layer was meant to put out, and says nothing of what may be wrong with the guess alone.

mod attention;
mod columns;
mod containers;
mod cut;
mod embeddings;
mod ensemble;
mod heads;
mod images;
pub mod init;
mod input;
mod interaction;
mod layers;
mod lints;
mod loss;
mod loss_fits;
mod norms;
mod order;
mod ordinal;
mod params;
mod quantiles;
mod rearrange;
mod recurrent;
mod report;
mod sampler;
mod sequences;
mod starts;
mod summary;
mod tables;
mod tokens;
mod transforms;
mod transposed;
mod units;
mod windows;

pub use crate::data::BatchShape;
pub use attention::rope;
pub use columns::{Columns, Tokens, category_name, vector_name};
pub use heads::{eval_sums, head_class_counts, head_metrics, is_counted, metric_sums};
pub use input::{input_fields, target_field};
pub use lints::lints;
pub use loss::{BatchLoss, MOST_IN_MATRIX, task};
pub use sampler::{Sampler, Sampling};
pub use summary::{LayerRow, Operand};
pub use tables::{Bins, Pieces};
pub use transforms::{mixing, transforms};

use crate::config::text::diagnostics::Span;
use crate::config::{Diagnostic, Experiment, LayerNode};
use crate::data::{DataSpec, Field, Lengths};
use crate::graph::op::Op;
use crate::graph::{DType, Graph, Input, MAX_ELEMENTS, Role, Shape, ValueId, VarKind, Variables};
use order::Order;
use std::collections::{HashMap, HashSet};

/// What a graph is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Dropout drops, batch normalisation uses the batch; loss and metrics.
    Train,
    /// As a trained model is used; loss and metrics.
    Eval,
    /// As [`Mode::Eval`], without targets.
    Predict,
    /// As [`Mode::Predict`], for tokens that follow those of earlier runs: attention keeps keys and values in caches.
    Generate,
    /// As [`Mode::Generate`] for the answers of a model that answers texts, and as [`Mode::Predict`] for all that does not depend on them.
    Answer,
}

/// A forward graph.
#[derive(Debug)]
pub struct Forward {
    /// The graph.
    pub graph: Graph,
    /// The model's output: in PyTorch's order, but for images, which are channels-last like all images inside.
    pub prediction: ValueId,
    /// The same of the heads, in their order.
    pub heads: Vec<ValueId>,
    /// The loss, if the mode is [`Mode::Train`] or [`Mode::Eval`].
    pub loss: Option<BatchLoss>,
    /// The layers, for listings.
    pub rows: Vec<LayerRow>,
}

/// The input of [`Mode::Generate`] and [`Mode::Answer`] with the position of each token, `[N, T]`.
pub const POSITIONS: &str = "positions";
/// The input of [`Mode::Generate`] and [`Mode::Answer`] with how many tokens a sample's caches have already, `[N]`.
pub const START: &str = "start";
/// The input of [`Mode::Generate`], where several texts are written at a time, with the same of each text, `[N, texts]`, of which the first row
/// is read: a number far below 0 for those whose turn it is not.
pub const STARTS: &str = "starts";
/// Beside [`STARTS`]: the text whose turn it is, `[1]`.
pub const TURN: &str = "turn";
/// The input of [`Mode::Generate`] and [`Mode::Answer`], of beam search, with the row of the run before that each row goes on from, `[N]`.
pub const PARENTS: &str = "parents";

/// The input of [`Mode::Predict`], of models that write token by token, with the row of all positions of the batch at which each sample's output is wanted, `[N]`.
pub const AT: &str = "at";

/// Name of the running metric sums of a mode.
pub fn metrics_variable(mode: Mode) -> &'static str {
    if mode == Mode::Train { "metrics.train" } else { "metrics.eval" }
}

/// What the names of variables begin with that recurrent layers carry on from batch to batch in a mode.
pub fn carried_variables(mode: Mode) -> &'static str {
    if mode == Mode::Train { "optimizer.carried." } else { "carried." }
}

/// What the names of variables end with in which recurrent layers keep their states from token to token.
const STATE: &str = ".state_l";

/// Whether states of recurrent layers are kept from token to token.
pub fn keeps_states(variables: &Variables) -> bool {
    variables.iter().any(|(_, var)| var.kind == VarKind::Kept && var.name.contains(STATE))
}

/// Name of the counts of what evaluation took for what.
pub const CLASS_COUNTS: &str = "metrics.classes";

/// Name of the sums of errors and targets of a regression.
pub const ERROR_SUMS_VARIABLE: &str = "metrics.errors";

/// Builds the graph for batches of one shape. Variables are made on first use and found again afterwards.
///
/// # Errors
/// Everything that does not fit, with its place in the configuration.
pub fn forward(
    experiment: &Experiment,
    data: &DataSpec,
    vars: &mut Variables,
    batch: impl Into<BatchShape>,
    mode: Mode,
) -> Result<Forward, Vec<Diagnostic>> {
    let BatchShape { samples, lengths } = batch.into();
    let mut b = Builder {
        experiment,
        data,
        graph: Graph::new(),
        vars,
        mode,
        batch: samples,
        lengths,
        errors: Vec::new(),
        rows: Vec::new(),
        named: HashMap::new(),
        prepared: Vec::new(),
        target: None,
        guesses: HashSet::new(),
        dropouts: 0,
        members: None,
        end: None,
        embedded_columns: HashMap::new(),
    };
    let x = b.input();
    let y = b.sequence(&experiment.model.layers, x);
    b.members_end_it(y);
    let y = b.in_pytorch_order(y);
    let y = b.ordered_classes(y);
    // The loss is that of standardised numbers; what is measured and put out is in the target's own unit.
    let prediction = b.in_own_unit(y);
    let heads = b.heads();
    let loss = b.loss(y, prediction, &heads);
    let prediction = b.at_position(prediction);
    b.finish_rows();
    if b.errors.is_empty() {
        b.graph.values[prediction.index()].role = Role::Output;
        let heads = heads.iter().map(|head| head.prediction).collect();
        Ok(Forward { graph: b.graph, prediction, heads, loss, rows: b.rows })
    } else {
        Err(b.errors)
    }
}

/// A value on its way through the layers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tensor {
    value: ValueId,
    /// How its elements lie.
    order: Order,
    /// Index in [`Builder::rows`] of the layer that made it.
    made_by: Option<usize>,
}

struct Builder<'a> {
    experiment: &'a Experiment,
    data: &'a DataSpec,
    graph: Graph,
    vars: &'a mut Variables,
    mode: Mode,
    /// Samples in the batch.
    batch: usize,
    /// Its lengths, where batches differ in those.
    lengths: Lengths,
    errors: Vec<Diagnostic>,
    rows: Vec<LayerRow>,
    /// Results by the full path of the layer, and inputs of the model by name, for `from`.
    named: HashMap<String, Tensor>,
    /// The fields that the model takes, by name, as the layers see them.
    prepared: Vec<(String, Tensor)>,
    /// The field that is learnt, after the transforms.
    target: Option<(Input, Field)>,
    /// Values whose shapes are guesses, because of a mistake that has been reported.
    guesses: HashSet<ValueId>,
    /// Number of dropout layers so far: each draws its own masks.
    dropouts: u32,
    /// How many members the model has that are trained side by side, each with a loss of its own.
    members: Option<usize>,
    /// The last layer of a model of members, and what it puts out.
    end: Option<(Span, ValueId)>,
    /// Values that begin with a vector for each of some columns: how long each vector is, and all of them.
    embedded_columns: HashMap<ValueId, [usize; 2]>,
}

impl Builder<'_> {
    fn shape(&self, t: Tensor) -> &Shape {
        self.graph.shape(t.value)
    }

    fn sequence(&mut self, layers: &[LayerNode], mut x: Tensor) -> Tensor {
        for node in layers {
            x = self.node(node, x);
        }
        x
    }

    /// The operands of a layer: what `from` names, or what the layer before put out.
    fn operands(&mut self, node: &LayerNode, x: Tensor) -> Vec<Tensor> {
        let Some(list) = &node.from else { return vec![x] };
        let mut operands = Vec::with_capacity(list.len());
        for (path, span) in list {
            // The configuration layer has resolved the names to paths of layers that come before.
            operands.push(self.named.get(path).copied().unwrap_or_else(|| {
                let message = format!("`{path}` is not there: it belongs to a projection that is not needed");
                let error = Diagnostic::error(message)
                    .at(*span, "puts out nothing")
                    .help("a `projection` stands in only where a residual's input and output differ in shape");
                self.report(error);
                let shape = self.shape(x).clone();
                Tensor { value: self.guess(shape), order: Order::Usual, made_by: None }
            }));
        }
        operands
    }

    /// A placeholder for the output of a layer with a mistake.
    fn stand_in(&mut self, mut shape: Shape) -> ValueId {
        if shape.len() > MAX_ELEMENTS
            && let Some((_, others)) = shape.0.split_last_mut()
        {
            others.fill(1);
        }
        self.graph.add_value(DType::F32, shape, Role::Temporary)
    }

    /// A placeholder of which not even the shape is certain.
    fn guess(&mut self, shape: Shape) -> ValueId {
        let value = self.stand_in(shape);
        self.guesses.insert(value);
        value
    }

    /// Adds `op` of the layer `node`, whose inputs are `from`; on failure reports it and goes on with a guess of shape
    /// `meant`. `help` says what to do about it.
    fn apply(
        &mut self,
        node: &LayerNode,
        op: impl Into<Op>,
        operands: &[ValueId],
        from: &[Tensor],
        meant: Shape,
        help: &str,
    ) -> ValueId {
        match self.graph.add1(op, operands) {
            Ok(v) => {
                if from.iter().any(|t| self.guesses.contains(&t.value)) {
                    self.guesses.insert(v);
                }
                v
            }
            Err(e) => {
                self.refuse(node, &e.message, "does not fit here", from, help);
                self.guess(meant)
            }
        }
    }

    /// `op` on values that are known to fit it.
    fn plain(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> ValueId {
        let y = self.graph.add1(op, operands).expect("the builder made the operands for this operation");
        if operands.iter().any(|v| self.guesses.contains(v)) {
            self.guesses.insert(y);
        }
        y
    }
}

#[cfg(test)]
mod tests;
