//! Recurrent layers: for each layer and direction a product of all positions, and the steps from position to position.

use super::embeddings::{ADD, MUL};
use super::params::{Param, uniform_fan_in};
use super::{Builder, Mode, START, STARTS, STATE, TURN, Tensor, carried_variables};
use crate::config::LayerNode;
use crate::config::language::layers::{self as cfg, RnnNonlinearity};
use crate::graph::op::{Cell, Concat, Embedding, KeepState, Linear, Recurrent, Reshape, Slice};
use crate::graph::{DType, Shape, ValueId, VarKind, Variable};

/// What the three kinds have in common.
#[derive(Clone, Copy)]
pub(super) struct Stack {
    cell: Cell,
    hidden: usize,
    layers: usize,
    bias: bool,
    dropout: f32,
    bidirectional: bool,
}

macro_rules! stacks {
    ($($kind:ident by $cell:expr),*) => { $(impl From<&cfg::$kind> for Stack {
        fn from(l: &cfg::$kind) -> Stack {
            let cell: fn(&cfg::$kind) -> Cell = $cell;
            let cfg::$kind { hidden_size, num_layers, bias, dropout, bidirectional, .. } = *l;
            Stack { cell: cell(l), hidden: hidden_size, layers: num_layers, bias, dropout: dropout as f32, bidirectional }
        }
    })* };
}

stacks! {
    Lstm by |_| Cell::Lstm,
    Gru by |_| Cell::Gru,
    Rnn by |l| match l.nonlinearity {
        RnnNonlinearity::Tanh => Cell::Tanh,
        RnnNonlinearity::Relu => Cell::Relu,
    }
}

impl Builder<'_> {
    /// The states of the last layer, those of both directions side by side.
    pub(super) fn recurrent(&mut self, node: &LayerNode, of: Stack, x: Tensor) -> ValueId {
        let mut x = self.in_pytorch_order(x);
        let width = of.hidden * (1 + usize::from(of.bidirectional));
        let Some([n, length, _]) = self.sequence_shape(node, x) else {
            return self.guess(Shape::from([self.batch, 1, width]));
        };
        let lengths = self.lengths_of(x.value);
        for layer in 0..of.layers {
            if layer > 0 {
                x = Tensor { value: self.dropout(of.dropout, x), ..x };
            }
            let first = self.direction(node, of, (layer, false), x, lengths);
            let value = match of.bidirectional {
                true => {
                    let second = self.direction(node, of, (layer, true), x, lengths);
                    self.apply(node, Concat { axis: 2 }, &[first, second], &[x], Shape::from([n, length, width]), "")
                }
                false => first,
            };
            x = Tensor { value, ..x };
        }
        x.value
    }

    /// The states of one layer in one direction. Parameters have PyTorch's names: `weight_ih_l0`, `weight_hh_l0_reverse`.
    fn direction(
        &mut self,
        node: &LayerNode,
        of: Stack,
        (layer, reverse): (usize, bool),
        x: Tensor,
        lengths: Option<ValueId>,
    ) -> ValueId {
        let Stack { cell, hidden, bias, .. } = of;
        let (shape, gates) = (self.shape(x).clone(), cell.gates() * hidden);
        let meant = |last: usize| Shape([&shape.dims()[..2], &[last]].concat());
        let end = format!("_l{layer}{}", if reverse { "_reverse" } else { "" });
        // PyTorch starts all of them alike, whatever the width of the input.
        let start = uniform_fan_in(hidden);
        let [by_input, by_state] = ["ih", "hh"].map(|of| [format!("weight_{of}{end}"), format!("bias_{of}{end}")]);
        let own = |from: &mut Self, name: &str, shape: Shape| from.param(node, Param::plain(name, shape, start));
        let w_input = own(self, &by_input[0], Shape::from([gates, shape.last()]));
        let w_state = own(self, &by_state[0], Shape::from([gates, hidden]));
        let [b_input, b_state] =
            [&by_input[1], &by_state[1]].map(|name| bias.then(|| own(self, name, Shape::from([gates]))));
        let operands: Vec<ValueId> = [x.value, w_input].into_iter().chain(b_input).collect();
        let given = self.apply(node, Linear { bias }, &operands, &[x], meant(gates), "");
        let carried = self.carried(node, of, (layer, reverse), x);
        let operands = [given, w_state].into_iter().chain(b_state).chain(lengths);
        let operands: Vec<ValueId> = operands.chain(carried.as_ref().map(|carried| carried.first)).collect();
        // The last cell of an LSTM is among what the gradient needs.
        let saves = self.mode == Mode::Train || carried.is_some() && cell == Cell::Lstm;
        let op = Recurrent { cell, reverse, bias, lengths: lengths.is_some(), saves, carries: carried.is_some() };
        let states = self.apply(node, op, &operands, &[x], meant(hidden), "");
        if let Some(carried) = carried.filter(|_| !self.guesses.contains(&states)) {
            self.carry_on(of, states, &carried);
        }
        states
    }

    /// What a layer goes on from, where it goes on from batch to batch or from token to token.
    fn carried(&mut self, node: &LayerNode, of: Stack, (layer, reverse): (usize, bool), x: Tensor) -> Option<Carried> {
        let carries = match self.mode {
            Mode::Train | Mode::Eval => self.experiment.data.source.carries_state(),
            Mode::Predict => false,
            Mode::Generate | Mode::Answer => self.goes_on(x.value),
        };
        if !carries || reverse {
            return None;
        }
        let &[samples, length, _] = self.shape(x).dims() else { return None };
        let starts = self.found(STARTS).map(|starts| self.graph.shape(starts).last());
        let shape = Shape::from([starts.unwrap_or(samples), of.cell.carried() * of.hidden]);
        let (kind, name) = match self.mode {
            Mode::Train => (VarKind::Carried, format!("{}{}.l{layer}", carried_variables(self.mode), node.path)),
            Mode::Eval => (VarKind::Kept, format!("{}{}.l{layer}", carried_variables(self.mode), node.path)),
            Mode::Predict | Mode::Generate | Mode::Answer => (VarKind::Kept, format!("{}{STATE}{layer}", node.path)),
        };
        let mut variable = |name: String, kind: VarKind| {
            let id = self.vars.get_or_add(Variable::zeros(name, DType::F32, shape.clone(), kind));
            self.graph.variable(self.vars, id)
        };
        let kept = variable(name.clone(), kind);
        let first = match self.mode {
            // The backward pass needs what the batch began with, when the layer has already kept what it ended with.
            Mode::Train => {
                let first = variable(format!("first.{name}"), VarKind::Kept);
                self.graph.add(KeepState { once: false }, &[kept, first]).expect("a copy is of the same shape");
                first
            }
            Mode::Eval | Mode::Predict => kept,
            Mode::Generate | Mode::Answer => {
                self.come_from_parents(kept, length);
                let turn = starts.map(|_| self.given(TURN));
                let own = turn.map_or(kept, |turn| self.plain(Embedding::default(), &[kept, turn]));
                // A text begins with zeros, whatever was kept of another one.
                let start = self.given(START);
                let begun = self.begun(start, samples);
                self.plain(MUL, &[own, begun])
            }
        };
        Some(Carried { kept, first, texts: starts })
    }

    /// Keeps the last of these states, and of an LSTM the last cell, which the operation before has put out.
    fn carry_on(&mut self, of: Stack, states: ValueId, carried: &Carried) {
        let saved = self.graph.nodes.last().and_then(|node| node.outputs.get(1)).copied();
        let &[samples, length, hidden] = self.graph.shape(states).dims() else { return };
        let last = |from: &mut Self, of: ValueId| from.plain(Slice { axis: 1, start: length - 1, len: 1 }, &[of]);
        let mut own = last(self, states);
        if let Some(saved) = saved.filter(|_| of.cell == Cell::Lstm) {
            let saved = last(self, saved);
            let start = (of.cell.saved() - 1) * hidden;
            let cell = self.plain(Slice { axis: 2, start, len: hidden }, &[saved]);
            own = self.plain(Concat { axis: 2 }, &[own, cell]);
        }
        let width = of.cell.carried() * hidden;
        let mut own = self.plain(Reshape { shape: Shape::from([samples, width]) }, &[own]);
        if let Some(texts) = carried.texts {
            // That of the text whose turn it is, and of all others what was kept: products with 1 and 0, and their sum.
            let turn = self.given(TURN);
            let [here, before] = [1.0, 0.0].map(|more| self.inside(turn, [1, texts], more));
            let before = self.times(before, -1.0);
            let here = self.plain(ADD, &[here, before]);
            let here = self.plain(Reshape { shape: Shape::from([texts, 1]) }, &[here]);
            let others = self.less_one(here);
            let others = self.plain(MUL, &[carried.kept, others]);
            let new = self.plain(MUL, &[here, own]);
            own = self.plain(ADD, &[others, new]);
        }
        self.graph
            .add(KeepState { once: false }, &[own, carried.kept])
            .expect("a state is of the shape of what is kept");
    }
}

/// What a layer goes on from.
struct Carried {
    /// The variable, which has what the layer ends with afterwards.
    kept: ValueId,
    /// What sequences begin with.
    first: ValueId,
    /// How many texts are written in turn, if there are several.
    texts: Option<usize>,
}
