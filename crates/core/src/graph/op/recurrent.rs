//! Recurrent layers, as `torch.nn.LSTM`, `GRU` and `RNN`: what is left of them when their input has been multiplied by its weights for all
//! positions at once.

use super::cached_attention::one_each;
use super::linear::LinearGradWeight;
use super::operands::operands;
use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, singles};
use crate::graph::{DType, Shape};

/// What becomes of a state at a position. `x` is the input's part there, `r = W · h' + b` that of the state `h'` of the position before, `σ` the
/// logistic function. Gates lie one after the other, H numbers each, in the order of the formulas, which is PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// Long short-term memory (Hochreiter & Schmidhuber 1997; Gers et al. 2000): `i = σ(x_i + r_i)`, `f = σ(x_f + r_f)`, `g = tanh(x_g + r_g)`,
    /// `o = σ(x_o + r_o)`, `c = f · c' + i · g`, `h = o · tanh(c)`.
    Lstm,
    /// Gated recurrent unit (Cho et al. 2014), the reset after the product: `r = σ(x_r + r_r)`, `z = σ(x_z + r_z)`, `n = tanh(x_n + r · r_n)`,
    /// `h = (1 − z) · n + z · h'`.
    Gru,
    /// `h = tanh(x + r)` (Elman 1990).
    Tanh,
    /// `h = max(x + r, 0)`.
    Relu,
}

impl Cell {
    /// Gates of the products.
    pub fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }

    /// How many times H numbers of a position the gradient needs beside the state: of an LSTM `i`, `f`, `g`, `o` and `c`, of a GRU `r`, `z`, `n` and
    /// `r_n`.
    pub fn saved(self) -> usize {
        match self {
            Cell::Lstm => 5,
            Cell::Gru => 4,
            Cell::Tanh | Cell::Relu => 0,
        }
    }

    /// How many times H numbers go from one position to the next: the state and, of an LSTM, the cell.
    pub fn carried(self) -> usize {
        1 + usize::from(self == Cell::Lstm)
    }

    fn name(self, backward: bool) -> &'static str {
        match (self, backward) {
            (Cell::Lstm, false) => "lstm",
            (Cell::Lstm, true) => "lstm_grad",
            (Cell::Gru, false) => "gru",
            (Cell::Gru, true) => "gru_grad",
            (Cell::Tanh | Cell::Relu, false) => "rnn",
            (Cell::Tanh | Cell::Relu, true) => "rnn_grad",
        }
    }
}

/// States of all positions of sequences, from zeros on. Operands: the input's part of the gates, `x [N, L, G·H]`; the weight `w [G·H, H]`; its bias
/// `b [G·H]` if `bias`; the `lengths [N]` (`I32`), if samples have such; and, with `carries`, what the sequences go on from in the place of zeros,
/// `[N, C·H]` for [`Cell::carried`] C, the state and then the cell, which gets no gradient. Outputs: the states `h [N, L, H]`, and, if `saves` and the cell has
/// some, what the gradient needs, `[N, L, S·H]` for [`Cell::saved`] S. All but the lengths are `F32`.
///
/// Of a sample with a length the positions from there on are padding: their results are 0, and with `reverse` the first state is that of the last
/// position before. A length below 0 is 0, and one above L is L.
#[derive(Debug, Clone, PartialEq)]
pub struct Recurrent {
    /// The formula.
    pub cell: Cell,
    /// From the end of each sequence to its start.
    pub reverse: bool,
    /// There is a bias.
    pub bias: bool,
    /// Samples have lengths.
    pub lengths: bool,
    /// It leaves what the gradient needs.
    pub saves: bool,
    /// Sequences go on from states that are given. Not with `reverse`.
    pub carries: bool,
}

/// The gradient of [`Recurrent`]. Operands: `dh [N, L, H]`, `h [N, L, H]`, what was saved `[N, L, S·H]` if the cell has some, `w [G·H, H]`, the
/// `lengths [N]` (`I32`), if samples have such, and what the sequences went on from, if they did. Outputs: the gradient by `x`, `dx [N, L, G·H]`; the state before each position, `[N, L, H]`; and of
/// a GRU the gradient by the products of the state and their bias, `[N, L, G·H]`, which is `dx` for the others. That by the weight is the product
/// of the two last ones, that by the bias the sum over all positions. All but the lengths are `F32`. In padding all of it is 0.
#[derive(Debug, Clone, PartialEq)]
pub struct RecurrentGrad {
    /// What it is the gradient of.
    pub of: Recurrent,
}

operands! {
    /// Of [`Recurrent`].
    Recurrent => RecurrentOperands {
        x, w, b if |op| op.bias, lengths if |op| op.lengths, carried if |op| op.carries,
    }
    /// Of [`RecurrentGrad`].
    RecurrentGrad => RecurrentGradOperands {
        dh, h, saved if |op| op.of.cell.saved() > 0, w, lengths if |op| op.of.lengths, carried if |op| op.of.carries,
    }
}

/// Most numbers of a gate: rows of the weight are found by offsets of 32 bits.
const MOST: usize = 1 << 20;

impl Recurrent {
    /// N, L and H from `gates [N, L, G·H]` and the weight.
    fn sizes(&self, name: &str, inputs: &[&Value], gates: &Shape, w: usize) -> Result<[usize; 3], ShapeError> {
        let weight = &inputs[w].shape;
        let (times, wrong) = (self.cell.gates(), |what: &Shape| {
            ShapeError::new(format!("`{name}` with a weight of shape {weight} cannot take {what}"))
        });
        let ([n, l, packed], [rows, h]) = (gates.dims(), weight.dims()) else { return Err(wrong(gates)) };
        if *h == 0 || *h > MOST || *rows != times * h || packed != rows {
            return Err(wrong(gates));
        }
        Ok([*n, *l, *h])
    }

    fn product_flops(&self, [n, l, h]: [usize; 3]) -> u64 {
        [n, l, self.cell.gates(), h, h].into_iter().fold(2, |product, by| product.saturating_mul(by as u64))
    }

    /// Checks what the sequences go on from, if they do.
    fn expect_carried(
        &self,
        name: &str,
        inputs: &[&Value],
        place: Option<usize>,
        [n, _, h]: [usize; 3],
    ) -> Result<(), ShapeError> {
        let Some(at) = place else { return Ok(()) };
        singles(name, inputs, [at])?;
        if self.reverse {
            return Err(ShapeError::of(at, format!("`{name}` from the end of a sequence goes on from no other one")));
        }
        let wanted = Shape::from([n, self.cell.carried() * h]);
        if inputs[at].shape != wanted {
            let message = format!("`{name}` goes on from states of shape {wanted}, not {}", inputs[at].shape);
            return Err(ShapeError::of(at, message));
        }
        Ok(())
    }

    /// Whether there is a second result.
    fn leaves(&self) -> bool {
        self.saves && self.cell.saved() > 0
    }
}

impl OpRules for Recurrent {
    fn name(&self) -> &'static str {
        self.cell.name(false)
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, self.arity())?;
        let RecurrentOperands { x, w, b, lengths, carried } = self.places();
        singles(self.name(), inputs, [x, w].into_iter().chain(b))?;
        let [n, l, h] = self.sizes(self.name(), inputs, &inputs[x].shape, w)?;
        if let Some(b) = b.filter(|b| inputs[*b].shape.dims() != [self.cell.gates() * h]) {
            return Err(ShapeError::of(b, format!("`{}` cannot add a bias of {}", self.name(), inputs[b].shape)));
        }
        if let Some(lengths) = lengths {
            one_each(self.name(), inputs, lengths, n)?;
        }
        self.expect_carried(self.name(), inputs, carried, [n, l, h])?;
        let mut outputs = vec![(DType::F32, Shape::from([n, l, h]))];
        if self.leaves() {
            outputs.push((DType::F32, Shape::from([n, l, self.cell.saved() * h])));
        }
        Ok(outputs)
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        if !self.saves {
            return Err(ShapeError::new(format!("`{}` leaves nothing for its gradient here", self.name())));
        }
        let RecurrentOperands { w, lengths, carried, .. } = self.operands(cx.inputs);
        let states = std::iter::once(cx.dy()).chain(cx.outputs.iter().copied());
        let operands: Vec<ValueId> = states.chain([w]).chain(lengths).chain(carried).collect();
        let made = cx.graph.add(RecurrentGrad { of: self.clone() }, &operands)?;
        let (dx, before) = (made[0], made[1]);
        let by_product = made.get(2).copied().unwrap_or(dx);
        let mut grads = vec![Some(dx), None];
        let bias = self.bias && cx.needs[2];
        if cx.needs[1] || bias {
            let by_weight = cx.graph.add(LinearGradWeight { bias }, &[before, by_product])?;
            grads[1] = cx.needs[1].then(|| by_weight[0]);
            grads.extend(by_weight.get(1).map(|grad| Some(*grad)));
        }
        grads.resize(cx.inputs.len(), None);
        Ok(grads)
    }

    fn flops(&self, inputs: &[&Value], outputs: &[&Value]) -> u64 {
        let dims = outputs[0].shape.dims();
        self.product_flops([inputs[0].shape.dims()[0], dims[1], dims[2]])
    }
}

impl OpRules for RecurrentGrad {
    fn name(&self) -> &'static str {
        self.of.cell.name(true)
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let of = &self.of;
        arity(self.name(), inputs, self.arity())?;
        let RecurrentGradOperands { dh, h: states, saved, w, lengths, carried } = self.places();
        singles(self.name(), inputs, 0..=w)?;
        let dims = inputs[dh].shape.dims();
        let [n, l, _] = *dims else {
            return Err(ShapeError::of(dh, format!("`{}` cannot take {}", self.name(), inputs[dh].shape)));
        };
        let gates = Shape::from([n, l, of.cell.gates() * inputs[dh].shape.last()]);
        let [_, _, h] = of.sizes(self.name(), inputs, &gates, w)?;
        for (i, width) in std::iter::once((states, h)).chain(saved.map(|i| (i, of.cell.saved() * h))) {
            if inputs[i].shape.dims() != [n, l, width] {
                let message = format!("operand {i} of `{}` is of {}", self.name(), inputs[i].shape);
                return Err(ShapeError::of(i, message));
            }
        }
        if let Some(lengths) = lengths {
            one_each(self.name(), inputs, lengths, n)?;
        }
        of.expect_carried(self.name(), inputs, carried, [n, l, h])?;
        let mut outputs = vec![(DType::F32, gates.clone()), (DType::F32, Shape::from([n, l, h]))];
        if of.cell == Cell::Gru {
            outputs.push((DType::F32, gates));
        }
        Ok(outputs)
    }

    fn flops(&self, _: &[&Value], outputs: &[&Value]) -> u64 {
        let dims = outputs[1].shape.dims();
        self.of.product_flops([dims[0], dims[1], dims[2]])
    }
}
