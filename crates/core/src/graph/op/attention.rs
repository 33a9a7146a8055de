//! Self-attention (Vaswani et al. 2017) on the packed result of the input projection.

use super::cached_attention::one_each;
use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, float, singles};
use crate::graph::{DType, Shape};

/// `torch.nn.functional.scaled_dot_product_attention` of each head by itself. Operands: `qkv [N, L, 3E]`, in each row the
/// query, the key and the value, E floats each; head `h` of the `heads` has the floats `h·d .. (h+1)·d` of all three, where
/// `d = E / heads`; the `bias [W, heads, L, L]` (`F32`) of the scores, if there is one, of which sample `n` has that of `n mod W`; the `lengths
/// [N]` (`I32`), if samples have such; and the random key ([`crate::graph::Input::Random`]) if there is `dropout`. Outputs: `y [N, L, E]`, of
/// the type of `qkv`, and `lse [N, heads, L]` (`F32`).
///
/// With the scores `s_ij = q_i · k_j / √d + bias_ij`, of which `causal` leaves out those with `j > i`:
/// `lse_i = ln Σ_j exp(s_ij)` and `y_i = Σ_j exp(s_ij − lse_i) · v_j`. `lse` is all that the gradient needs to make the
/// weights again, so that no L × L matrix is kept (Dao 2023, *FlashAttention-2*). With `dropout` a weight is multiplied by
/// its `m_ij`, 0 or 1 / (1 − p), before it meets its value; `lse` is that of all weights. Of a sample with a length the positions from there on
/// are padding: nothing sees them, and their `y` and `lse` are 0. A length below 0 is 0, and one above L is L.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Number of heads; divides E.
    pub heads: usize,
    /// A position sees none after it.
    pub causal: bool,
    /// Something is added to the scores.
    pub bias: bool,
    /// Samples have lengths.
    pub lengths: bool,
    /// Weights are left out at random.
    pub dropout: Option<AttentionDropout>,
}

/// Dropout (Srivastava et al. 2014) of the weights of an attention. What is left out is drawn again by the gradient:
/// [`crate::random::attention_draw`] tells which draws are a weight's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionDropout {
    /// Probability of a zero, `0 ≤ p < 1`.
    pub p: f32,
    /// Number of the dropout layer in its model.
    pub stream: u32,
}

/// The gradient of [`Attention`] by `qkv`, and by `bias` if there is one. Operands: `dy [N, L, E]`, `qkv [N, L, 3E]`, `y [N, L, E]`,
/// `lse [N, heads, L]`, `bias [W, heads, L, L]` if there is one, the `lengths [N]` if samples have such, and the random key if there is
/// `dropout`; the first three are floats of one type. Outputs: `dqkv [N, L, 3E]` of that type, and `dbias [W, heads, L, L]` (`F32`).
///
/// With the weights `p_ij = exp(s_ij − lse_i)` and `δ_i = dy_i · y_i`: `dv_j = Σ_i p_ij · m_ij · dy_i`,
/// `ds_ij = p_ij · (m_ij · dy_i · v_j − δ_i) / √d`, `dq_i = Σ_j ds_ij · k_j`, `dk_j = Σ_i ds_ij · q_i`;
/// `dbias_ij` is the sum of `√d · ds_ij` over the samples that have this bias. The gradients by what is behind a sample's length are 0.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionGrad {
    /// What it is the gradient of.
    pub attention: Attention,
}

impl Attention {
    /// How many operands there are beside the first ones.
    fn others(&self) -> usize {
        [self.bias, self.lengths, self.dropout.is_some()].map(usize::from).iter().sum()
    }
}

/// Factor of the scores of heads of `width` floats.
pub fn attention_scale(width: usize) -> f64 {
    1.0 / (width as f64).sqrt()
}

/// N, L and E of a packed operand.
fn sizes(name: &str, qkv: &Shape, heads: usize) -> Result<[usize; 3], ShapeError> {
    match *qkv.dims() {
        [n, l, packed] if heads > 0 && packed > 0 && packed.is_multiple_of(3 * heads) => Ok([n, l, packed / 3]),
        _ => Err(ShapeError::new(format!(
            "`{name}` needs queries, keys and values of {heads} heads in one value of three dimensions, not {qkv}"
        ))),
    }
}

/// Checks operand `i`, the bias of the scores; its shape.
fn bias_shape(name: &str, inputs: &[&Value], i: usize, [n, l]: [usize; 2], heads: usize) -> Result<Shape, ShapeError> {
    singles(name, inputs, [i])?;
    let shape = &inputs[i].shape;
    match *shape.dims() {
        [windows, h, rows, columns]
            if [h, rows, columns] == [heads, l, l] && windows > 0 && n.is_multiple_of(windows) =>
        {
            Ok(shape.clone())
        }
        _ => Err(ShapeError::of(i, format!("`{name}` cannot add {shape} to the scores of {n} × {heads} × {l} × {l}"))),
    }
}

/// Multiply-adds of `products` products of L × L scores with rows of E floats in all heads together.
fn flops(qkv: &Shape, causal: bool, products: u64) -> u64 {
    let [n, l, packed] = qkv.dims().try_into().expect("the shape rule asks for three dimensions");
    let (n, l, e) = (n as u64, l as u64, packed as u64 / 3);
    let scores = if causal { l.saturating_mul(l + 1) / 2 } else { l.saturating_mul(l) };
    [n, e, 2 * products].into_iter().fold(scores, u64::saturating_mul)
}

impl OpRules for Attention {
    fn name(&self) -> &'static str {
        "scaled_dot_product_attention"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, 1 + self.others())?;
        let dtype = float(self.name(), inputs, 0)?;
        let [n, l, e] = sizes(self.name(), &inputs[0].shape, self.heads)?;
        if self.bias {
            bias_shape(self.name(), inputs, 1, [n, l], self.heads)?;
        }
        if self.lengths {
            one_each(self.name(), inputs, 1 + usize::from(self.bias), n)?;
        }
        Ok(vec![(dtype, Shape::from([n, l, e])), (DType::F32, Shape::from([n, self.heads, l]))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let mut operands = vec![cx.dy(), cx.inputs[0], cx.outputs[0], cx.outputs[1]];
        operands.extend(&cx.inputs[1..]);
        let grads = cx.graph.add(AttentionGrad { attention: self.clone() }, &operands)?;
        let mut grads: Vec<Option<ValueId>> = grads.into_iter().map(Some).collect();
        grads.resize(cx.inputs.len(), None);
        Ok(grads)
    }

    fn flops(&self, inputs: &[&Value], _: &[&Value]) -> u64 {
        flops(&inputs[0].shape, self.causal, 2)
    }
}

impl OpRules for AttentionGrad {
    fn name(&self) -> &'static str {
        "scaled_dot_product_attention_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let of = &self.attention;
        arity(self.name(), inputs, 4 + of.others())?;
        let dtype = float(self.name(), inputs, 1)?;
        singles(self.name(), inputs, [3])?;
        let [n, l, e] = sizes(self.name(), &inputs[1].shape, of.heads)?;
        for (i, wanted) in [(0, [n, l, e]), (2, [n, l, e]), (3, [n, of.heads, l])] {
            let Value { dtype: found, shape, .. } = inputs[i];
            if shape.dims() != wanted || i != 3 && *found != dtype {
                let message = format!("operand {i} of `{}` is of {found} and {shape}", self.name());
                return Err(ShapeError::of(i, message));
            }
        }
        if of.lengths {
            one_each(self.name(), inputs, 4 + usize::from(of.bias), n)?;
        }
        let mut outputs = vec![(dtype, inputs[1].shape.clone())];
        if of.bias {
            outputs.push((DType::F32, bias_shape(self.name(), inputs, 4, [n, l], of.heads)?));
        }
        Ok(outputs)
    }

    fn flops(&self, inputs: &[&Value], _: &[&Value]) -> u64 {
        flops(&inputs[1].shape, self.attention.causal, 5)
    }
}
