//! Scaled dot-product attention (Vaswani et al. 2017): of one sequence, or of one to another.

use super::cached_attention::one_each;
use super::operands::operands;
use super::{GradContext, OpRules, Output, ShapeError, Value, ValueId, arity, float, singles};
use crate::graph::{DType, Shape};

/// `torch.nn.functional.scaled_dot_product_attention` of each head by itself. Operands: `qkv [N, L, 3E]`, in each row the
/// query, the key and the value, E floats each; head `h` of the `heads` has the floats `h·d .. (h+1)·d` of all three, where
/// `d = E / heads`; the `bias [W, heads, L, L]` (`F32`) of the scores, if there is one, of which sample `n` has that of `n mod W`; the `lengths
/// [N]` (`I32`), if samples have such; and the random key ([`crate::graph::Input::Random`]) if there is `dropout`. Outputs: `y [N, L, E]`, of
/// the type of `qkv`, and `lse [N, heads, L]` (`F32`).
///
/// With `between` the first operand is two: the queries `q [N, Lq, E]` of one sequence, and `kv [N, Lk, 2E]`, the keys and values of
/// another, of one type. Then `y` is `[N, Lq, E]`, `lse` is `[N, heads, Lq]`, and `lengths` are those of the keys.
///
/// With the scores `s_ij = q_i · k_j / √d + bias_ij`, of which `causal` leaves out those with `j > i`:
/// `lse_i = ln Σ_j exp(s_ij)` and `y_i = Σ_j exp(s_ij − lse_i) · v_j`. `lse` is all that the gradient needs to make the
/// weights again, so that no L × L matrix is kept (Dao 2023, *FlashAttention-2*). With `dropout` a weight is multiplied by
/// its `m_ij`, 0 or 1 / (1 − p), before it meets its value; `lse` is that of all weights. Of a sample with a length the positions from there on
/// are padding: nothing sees them, and their `y` and `lse` are 0. A length below 0 is 0, and one above L is L. Where a sample has no key at all,
/// `y` and `lse` are 0.
///
/// With a `window` w position i sees those with `|i − j| < w` alone (Beltagy et al. 2020, *Longformer*; with `causal` the window of Mistral). With
/// `alibi` head h has `−m_h · |i − j|` added to its scores, where `m_h` is [`alibi_slope`] (Press et al. 2022).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Attention {
    /// Number of heads; divides E.
    pub heads: usize,
    /// A position sees none after it.
    pub causal: bool,
    /// Something is added to the scores. Goes with none of `between`, `window` and `alibi`.
    pub bias: bool,
    /// Samples have lengths.
    pub lengths: bool,
    /// Weights are left out at random.
    pub dropout: Option<AttentionDropout>,
    /// Queries are of another sequence than keys and values. Goes with none of `causal`, `window` and `alibi`.
    pub between: bool,
    /// Positions so far from each other do not see each other; at least 1.
    pub window: Option<usize>,
    /// What is far counts less.
    pub alibi: bool,
}

/// Dropout (Srivastava et al. 2014) of the weights of an attention. The gradient draws the same weights again:
/// [`crate::random::attention_draw`] defines the draws of a weight.
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
/// With `between` there are `q [N, Lq, E]` and `kv [N, Lk, 2E]` in place of `qkv`, and the outputs are `dq` and `dkv`, of their shapes.
///
/// With the weights `p_ij = exp(s_ij − lse_i)` and `δ_i = dy_i · y_i`: `dv_j = Σ_i p_ij · m_ij · dy_i`,
/// `ds_ij = p_ij · (m_ij · dy_i · v_j − δ_i) / √d`, `dq_i = Σ_j ds_ij · k_j`, `dk_j = Σ_i ds_ij · q_i`;
/// `dbias_ij` is the sum of `√d · ds_ij` over the samples that have this bias. The gradients by what is behind a sample's length are 0.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionGrad {
    /// What it is the gradient of.
    pub attention: Attention,
}

operands! {
    /// Of [`Attention`]: `q` is `qkv` unless it is `between`.
    Attention => AttentionOperands {
        q, kv if |op| op.between, bias if |op| op.bias, lengths if |op| op.lengths, key if |op| op.dropout.is_some(),
    }
    /// Of [`AttentionGrad`].
    AttentionGrad => AttentionGradOperands {
        dy, q, kv if |op| op.attention.between, y, lse, bias if |op| op.attention.bias,
        lengths if |op| op.attention.lengths, key if |op| op.attention.dropout.is_some(),
    }
}

impl Attention {
    /// How many operands queries, keys and values come in.
    pub fn sources(&self) -> usize {
        1 + usize::from(self.between)
    }

    /// N, Lq, Lk and E, by the operands from `first` on.
    fn sizes(&self, name: &str, inputs: &[&Value], first: usize) -> Result<[usize; 4], ShapeError> {
        self.is_known(name)?;
        if !self.between {
            let [n, l, e] = packed(name, inputs, (first, 3), self.heads)?;
            return Ok([n, l, l, e]);
        }
        let [[n, queries, e], [samples, keys, width]] =
            [packed(name, inputs, (first, 1), self.heads)?, packed(name, inputs, (first + 1, 2), self.heads)?];
        if [samples, width] != [n, e] {
            let [q, kv] = [0, 1].map(|i| &inputs[first + i].shape);
            let message =
                format!("`{name}` needs as many samples and features of queries as of keys, not {q} and {kv}");
            return Err(ShapeError::of(first + 1, message));
        }
        if inputs[first + 1].dtype != inputs[first].dtype {
            let [q, kv] = [0, 1].map(|i| inputs[first + i].dtype);
            let message = format!("`{name}` needs queries, keys and values of one type, not {q} and {kv}");
            return Err(ShapeError::of(first + 1, message));
        }
        Ok([n, queries, keys, e])
    }

    /// Checks what goes with what.
    fn is_known(&self, name: &str) -> Result<(), ShapeError> {
        let far = self.window.is_some() || self.alibi;
        let refused = if self.between && (self.causal || far) {
            "positions of two sequences have no order and no distance"
        } else if self.bias && (self.between || far) {
            "a bias of the scores goes with no window, no alibi and no second sequence"
        } else if self.window == Some(0) {
            "a window of 0 has no position"
        } else {
            return Ok(());
        };
        Err(ShapeError::new(format!("`{name}`: {refused}")))
    }

    /// Scores of `queries` queries with `keys` keys that count.
    fn scores(&self, queries: usize, keys: usize) -> u64 {
        let (l, all) = (keys as u64, (queries as u64).saturating_mul(keys as u64));
        let window = self.window.map_or(l, |window| (window as u64).min(l));
        // Those of the first `window` positions, which see fewer, and of the others.
        let back = (window.saturating_mul(window + 1) / 2).saturating_add((l - window).saturating_mul(window));
        match (self.causal, self.window) {
            (false, None) => all,
            (true, _) => back,
            (false, Some(_)) => (back - l).saturating_add(back),
        }
    }

    /// Multiply-adds of `products` products of the scores with rows of E floats in all heads together.
    fn multiply_adds(&self, products: u64, inputs: &[&Value], first: usize) -> u64 {
        let [n, queries, keys, e] =
            self.sizes("", inputs, first).expect("the shape rule has seen the operands").map(|x| x as u64);
        let scores = self.scores(queries as usize, keys as usize);
        [n, e, 2 * products].into_iter().fold(scores, u64::saturating_mul)
    }
}

/// The slope `m_h` of head `h` of `heads` (Press et al. 2022, *ALiBi*): of 2ᵏ heads `2^(−8 (h + 1) / 2ᵏ)`. Other numbers of heads have those of the next
/// smaller power of two, and after them every other one of twice that power, as in transformers' BLOOM.
pub fn alibi_slope(heads: usize, h: usize) -> f64 {
    let power = alibi_power(heads);
    let exponent = if h < power { 8.0 * (h + 1) as f64 } else { 4.0 * (2 * (h - power) + 1) as f64 };
    (-exponent / power as f64).exp2()
}

/// The largest power of two that is no more than the number of heads.
pub fn alibi_power(heads: usize) -> usize {
    1 << heads.max(1).ilog2()
}

/// Factor of the scores of heads of `width` floats.
pub fn attention_scale(width: usize) -> f64 {
    1.0 / (width as f64).sqrt()
}

/// N, L and E of operand `i`, which has `parts` of queries, keys and values.
fn packed(name: &str, inputs: &[&Value], (i, parts): (usize, usize), heads: usize) -> Result<[usize; 3], ShapeError> {
    let shape = &inputs[i].shape;
    match *shape.dims() {
        [n, l, packed] if heads > 0 && packed > 0 && packed.is_multiple_of(parts * heads) => Ok([n, l, packed / parts]),
        _ => {
            let what = ["queries", "keys and values", "queries, keys and values"][parts - 1];
            let message =
                format!("`{name}` needs {what} of {heads} heads in one value of three dimensions, not {shape}");
            Err(if i == 0 { ShapeError::new(message) } else { ShapeError::of(i, message) })
        }
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

impl OpRules for Attention {
    fn name(&self) -> &'static str {
        "scaled_dot_product_attention"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        arity(self.name(), inputs, self.arity())?;
        let places = self.places();
        let dtype = float(self.name(), inputs, 0)?;
        let [n, queries, keys, e] = self.sizes(self.name(), inputs, 0)?;
        if let Some(bias) = places.bias {
            bias_shape(self.name(), inputs, bias, [n, keys], self.heads)?;
        }
        if let Some(lengths) = places.lengths {
            one_each(self.name(), inputs, lengths, n)?;
        }
        Ok(vec![(dtype, Shape::from([n, queries, e])), (DType::F32, Shape::from([n, self.heads, queries]))])
    }

    fn grad(&self, cx: &mut GradContext) -> Result<Vec<Option<ValueId>>, ShapeError> {
        let AttentionOperands { q, kv, bias, lengths, key } = self.operands(cx.inputs);
        let sources = [cx.dy(), q].into_iter().chain(kv);
        let all = sources.chain([cx.outputs[0], cx.outputs[1]]).chain(bias).chain(lengths).chain(key);
        let operands: Vec<ValueId> = all.collect();
        let inputs = cx.inputs.len();
        let grads = cx.graph.add(AttentionGrad { attention: self.clone() }, &operands)?;
        let mut grads: Vec<Option<ValueId>> = grads.into_iter().map(Some).collect();
        grads.resize(inputs, None);
        Ok(grads)
    }

    fn flops(&self, inputs: &[&Value], _: &[&Value]) -> u64 {
        self.multiply_adds(2, inputs, 0)
    }
}

impl OpRules for AttentionGrad {
    fn name(&self) -> &'static str {
        "scaled_dot_product_attention_grad"
    }

    fn infer(&self, inputs: &[&Value]) -> Result<Vec<Output>, ShapeError> {
        let of = &self.attention;
        arity(self.name(), inputs, self.arity())?;
        let AttentionGradOperands { dy, y, lse, bias, lengths, .. } = self.places();
        let dtype = float(self.name(), inputs, 1)?;
        singles(self.name(), inputs, [lse])?;
        let [n, queries, keys, e] = of.sizes(self.name(), inputs, 1)?;
        for (i, wanted) in [(dy, [n, queries, e]), (y, [n, queries, e]), (lse, [n, of.heads, queries])] {
            let Value { dtype: found, shape, .. } = inputs[i];
            if shape.dims() != wanted || i != lse && *found != dtype {
                let message = format!("operand {i} of `{}` is of {found} and {shape}", self.name());
                return Err(ShapeError::of(i, message));
            }
        }
        if let Some(lengths) = lengths {
            one_each(self.name(), inputs, lengths, n)?;
        }
        let mut outputs: Vec<Output> = inputs[1..y].iter().map(|source| (dtype, source.shape.clone())).collect();
        if let Some(bias) = bias {
            outputs.push((DType::F32, bias_shape(self.name(), inputs, bias, [n, keys], of.heads)?));
        }
        Ok(outputs)
    }

    fn flops(&self, inputs: &[&Value], _: &[&Value]) -> u64 {
        self.attention.multiply_adds(5, inputs, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `transformers.models.bloom.modeling_bloom.build_alibi_tensor`.
    #[test]
    fn slopes_are_blooms() {
        let slopes = |heads: usize| (0..heads).map(|h| alibi_slope(heads, h)).collect::<Vec<f64>>();
        assert_eq!(slopes(4), [0.25, 0.0625, 0.015625, 0.00390625]);
        assert_eq!(slopes(1), [0.00390625]);
        assert_eq!(slopes(3), [0.0625, 0.00390625, 0.25]);
        let six = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125];
        assert_eq!(slopes(6), six);
    }

    #[test]
    fn scores_that_count() {
        for l in 0..9 {
            for window in [None, Some(1), Some(3), Some(8), Some(20)] {
                for causal in [false, true] {
                    let op = Attention { heads: 1, causal, window, ..Attention::default() };
                    let near = |i: usize, j: usize| window.is_none_or(|window| i.abs_diff(j) < window);
                    let all = (0..l).flat_map(|i| (0..l).map(move |j| (i, j)));
                    let count = all.filter(|(i, j)| near(*i, *j) && (!causal || j <= i)).count();
                    assert_eq!(op.scores(l, l), count as u64, "{op:?} of {l}");
                }
            }
        }
    }
}
