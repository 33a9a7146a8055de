//! Recurrent layers: for each layer and direction a product of all positions, and the steps from position to position.

use super::params::{Param, uniform_fan_in};
use super::{Builder, Mode, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers::{self as cfg, RnnNonlinearity};
use crate::graph::op::{Cell, Concat, Linear, Recurrent};
use crate::graph::{Shape, ValueId};

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
        let operands: Vec<ValueId> = [given, w_state].into_iter().chain(b_state).chain(lengths).collect();
        let saves = self.mode == Mode::Train;
        let op = Recurrent { cell, reverse, bias, lengths: lengths.is_some(), saves };
        self.apply(node, op, &operands, &[x], meant(hidden), "")
    }
}
