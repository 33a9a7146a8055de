//! What the CPU does at once, and what of a group its kernels need to know.

use crate::graph::op::{
    Activation, ActivationGrad, ActivationOp, BatchNormApply, BatchNormGrad, BatchNormGradOperands,
    BatchNormStatistics, Binary, BinaryKind, Conv2d, Conv2dGradInput, Conv2dGradWeight, Fused, Group, MaxPool2d,
    MaxPool2dGrad, Pattern, Source, Step, StepOutput,
};
use crate::graph::{DType, Op};
use std::sync::LazyLock;

/// Most operations of an element-wise group: what lies between them has room in a core's first-level cache.
pub const MAX_STEPS: usize = 12;

/// In the order in which they are looked for: what a product takes along is better off there than in a group of its own.
pub static FUSIONS: [Pattern; 8] = [
    // Convolution and batch normalisation in evaluation: a factor and a summand for each channel.
    Pattern {
        name: "fold",
        has: |op| matches!(op, Op::Conv2d(_) | Op::BatchNormInfer(_)),
        takes: |group| {
            Behind::of(group.op).is_some_and(|b| b.norm.is_some() && group.op.steps.len() == 2 && b.fits(group))
        },
        repeats: |_| false,
    },
    // Convolution, batch normalisation as in evaluation, max-pooling over 2 × 2 pixels, and ReLU; a convolution's gradients with
    // that of the pooling.
    Pattern {
        name: "pool",
        has: |op| {
            let forward = matches!(op, Op::Conv2d(_) | Op::BatchNormInfer(_) | Op::MaxPool2d(_) | Op::Activation(_));
            forward || matches!(op, Op::MaxPool2dGrad(_) | Op::Conv2dGradInput(_) | Op::Conv2dGradWeight(_))
        },
        takes: |group| Pooled::of(group.op).is_some() && in_pairs(group) && group.result().dtype == DType::F32,
        repeats: |op| matches!(op, Op::MaxPool2dGrad(_)),
    },
    // The gradients of an activation and of the batch normalisation before it, whose result is computed once more.
    Pattern {
        name: "norm_grad",
        has: |op| matches!(op, Op::BatchNormApply(_) | Op::ActivationGrad(_) | Op::BatchNormGrad(_)),
        takes: |group| NormGrad::of(group.op).is_some() && group.result().dtype == DType::F32,
        repeats: |_| false,
    },
    // Batch normalisation, and the activation after it, where a convolution or its gradient by the weight reads the result.
    Pattern {
        name: "norm_read",
        has: |op| {
            let norm = matches!(op, Op::BatchNormApply(_) | Op::Activation(_));
            norm || matches!(op, Op::Conv2d(_) | Op::Conv2dGradWeight(_))
        },
        takes: |group| NormRead::of(group.op).is_some_and(|(norm, reader)| norm.fits(group, reader)),
        repeats: |_| false,
    },
    // Convolutions, of normalised values or not, and the statistics of their results for the normalisation after them.
    Pattern {
        name: "norm_statistics",
        has: |op| {
            let norm = matches!(op, Op::BatchNormApply(_) | Op::Activation(_) | Op::BatchNormStatistics(_));
            norm || matches!(op, Op::Conv2d(_))
        },
        takes: |group| ConvStatistics::of(group.op).is_some_and(|norm| norm.fits(group)),
        repeats: |_| false,
    },
    // Sums of two values, with what makes the later of them.
    Pattern {
        name: "residual",
        has: |op| is_head(op) || matches!(op, Op::Binary(_)),
        takes: |group| {
            Behind::of(group.op)
                .is_some_and(|b| b.summand.is_some() && b.act.is_none() && b.mask.is_none() && b.fits(group))
        },
        repeats: |_| false,
    },
    // Activations, and the gradient of ReLU, with what makes their operand.
    Pattern {
        name: "fuse",
        has: |op| is_head(op) || matches!(op, Op::Binary(_) | Op::Activation(_) | Op::ActivationGrad(_)),
        takes: |group| {
            let behind = Behind::of(group.op);
            behind.is_some_and(|b| (b.act.is_some() || b.mask.is_some()) && b.fits(group))
                || activated(group.op).is_some()
        },
        repeats: |_| false,
    },
    // Element-wise operations.
    Pattern {
        name: "chain",
        has: |op| op.element_wise().is_some(),
        takes: |group| group.op.steps.len() <= MAX_STEPS && group.is_element_wise(),
        repeats: |_| false,
    },
];

/// The same where products are made in bf16: tiles of its convolutions are not whole windows of the pooling after them.
pub static BF16_FUSIONS: LazyLock<Vec<Pattern>> =
    LazyLock::new(|| FUSIONS.iter().filter(|pattern| pattern.name != "pool").copied().collect());

/// What a group is: each is lowered in its own way.
pub enum Known<'a> {
    /// A product or a normalisation, and what is done with each result.
    Head(&'a Op, Behind),
    /// A sum or product of two values, and the activation after it.
    Activated(&'a Binary, Activation),
    /// The gradient of batch normalisation, with what lies between it and the gradient that comes in.
    NormGrad(NormGrad),
    /// What reads normalised values.
    NormRead(NormRead, Reader<'a>),
    /// A convolution and the statistics of its results.
    NormStatistics(ConvStatistics<'a>),
    /// A convolution and pooling, or a gradient of both.
    Pooled(Pooled<'a>),
    /// Element-wise operations.
    Chain,
}

impl<'a> Known<'a> {
    /// What `op` is, which one of [`FUSIONS`] has taken.
    pub fn of(op: &'a Fused) -> Known<'a> {
        if let Some(behind) = Behind::of(op) {
            return Known::Head(&op.steps[0].op, behind);
        }
        None.or_else(|| activated(op).map(|(sum, act)| Known::Activated(sum, act)))
            .or_else(|| NormGrad::of(op).map(Known::NormGrad))
            .or_else(|| NormRead::of(op).map(|(norm, reader)| Known::NormRead(norm, reader)))
            .or_else(|| ConvStatistics::of(op).map(Known::NormStatistics))
            .or_else(|| Pooled::of(op).map(Known::Pooled))
            .unwrap_or(Known::Chain)
    }
}

/// True for what can have something after it.
fn is_head(op: &Op) -> bool {
    let product = matches!(op, Op::Linear(_) | Op::Conv2d(_) | Op::LinearGradInput(_) | Op::Conv2dGradInput(_));
    let norm = matches!(op, Op::BatchNorm(_) | Op::BatchNormApply(_) | Op::BatchNormInfer(_));
    product || norm || matches!(op, Op::LayerNormGrad(_))
}

/// Batch normalisation after a convolution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norm {
    /// Added to the variance.
    pub eps: f32,
    /// There are `gamma` and `beta`.
    pub affine: bool,
    /// Number of the first operand that is its own; the others follow.
    pub first: usize,
}

impl Norm {
    /// That of `step`, behind the convolution `head`, which is the first step; `None` if it is something else.
    fn behind(head: &Step, step: &Step) -> Option<Norm> {
        let (Op::Conv2d(_), Op::BatchNormInfer(norm), [x, rest @ ..]) = (&head.op, &step.op, &step.from[..]) else {
            return None;
        };
        let first = head.from.len();
        let own = (first..first + rest.len()).map(Source::Operand);
        let known = *x == Source::Step(0) && rest.iter().copied().eq(own);
        known.then_some(Norm { eps: norm.eps, affine: norm.affine, first })
    }
}

/// What is done with each result of a product or a normalisation before it is written, in this order. Operands by number.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Behind {
    /// It is normalised.
    pub norm: Option<Norm>,
    /// It is added to this operand.
    pub summand: Option<usize>,
    /// It goes through an activation.
    pub act: Option<Activation>,
    /// It is a gradient, and 0 where this operand, the result of the ReLU, is not above 0.
    pub mask: Option<usize>,
}

impl Behind {
    /// What is behind the first step of a group; `None` if that is something else than kernels can do.
    pub fn of(op: &Fused) -> Option<Behind> {
        let (head, rest) = op.steps.split_first()?;
        let operands = (0..head.from.len()).map(Source::Operand);
        if !is_head(&head.op) || !head.from.iter().copied().eq(operands) {
            return None;
        }
        let takes_mask = matches!(head.op, Op::LinearGradInput(_) | Op::Conv2dGradInput(_));
        let takes_act = !takes_mask && !matches!(head.op, Op::LayerNormGrad(_));
        let mut behind = Behind::default();
        for (at, step) in rest.iter().enumerate() {
            let Behind { summand, act, mask, .. } = behind;
            let is_last = act.is_none() && mask.is_none();
            let before = Source::Step(at);
            match (&step.op, &step.from[..]) {
                (Op::BatchNormInfer(_), _) if at == 0 => behind.norm = Some(Norm::behind(head, step)?),
                (Op::Binary(sum), from) if sum.kind == BinaryKind::Add && summand.is_none() && is_last => {
                    behind.summand = match from {
                        [x, Source::Operand(i)] | [Source::Operand(i), x] if *x == before => Some(*i),
                        _ => return None,
                    };
                }
                (Op::Activation(op), [x]) if *x == before && is_last && takes_act => behind.act = Some(op.act),
                (Op::ActivationGrad(op), [Source::Operand(saved), x])
                    if *x == before && is_last && takes_mask && op.act == Activation::Relu =>
                {
                    behind.mask = Some(*saved);
                }
                _ => return None,
            }
        }
        // What lies between is not written.
        let end = StepOutput { step: rest.len(), output: 0 };
        op.results.iter().all(|r| *r == end || r.step == 0 && r.output > 0).then_some(behind)
    }

    /// True if all values have the type and shape that kernels take.
    fn fits(&self, group: &Group) -> bool {
        let result = group.result();
        let whole = |i: usize| group.operands[i].shape == result.shape && group.operands[i].dtype == DType::F32;
        result.dtype == DType::F32 && self.summand.into_iter().chain(self.mask).all(whole)
    }
}

/// The gradient of batch normalisation, of one operation or of a group. Operands by number; the first is the input of the
/// normalisation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormGrad {
    /// The activation after the normalisation.
    pub act: Option<Activation>,
    /// The gradient by the activation's result, or else by the normalised value.
    pub dz: usize,
    /// `mean` and `invstd`.
    pub statistics: [usize; 2],
    /// `gamma`.
    pub gamma: Option<usize>,
    /// `beta`, which only the activation asks for.
    pub beta: Option<usize>,
}

impl NormGrad {
    /// That of [`BatchNormGrad`] alone.
    pub fn alone(op: &BatchNormGrad) -> NormGrad {
        let BatchNormGradOperands { dy, mean, invstd, gamma, .. } = op.places();
        NormGrad { act: None, dz: dy, statistics: [mean, invstd], gamma, beta: None }
    }

    /// What a group is: the normalised value, the activation's gradient, the normalisation's; `None` if it is something else.
    pub fn of(op: &Fused) -> Option<NormGrad> {
        let [apply, act, grad] = &op.steps[..] else { return None };
        let (Op::BatchNormApply(again), Op::ActivationGrad(ActivationGrad { act: function }), Op::BatchNormGrad(norm)) =
            (&apply.op, &act.op, &grad.op)
        else {
            return None;
        };
        let own = 3 + 2 * usize::from(again.affine);
        let &[Source::Step(0), Source::Operand(dz)] = &act.from[..] else { return None };
        let gamma = again.affine.then_some(3);
        let operands = [Source::Operand(0), Source::Step(1), Source::Operand(1), Source::Operand(2)];
        let known = grad.from.iter().copied().eq(operands.into_iter().chain(gamma.map(Source::Operand)));
        let in_order = apply.from.iter().copied().eq((0..own).map(Source::Operand));
        (in_order && known && again.affine == norm.affine && op.results.iter().all(|r| r.step == 2)).then_some(
            NormGrad { act: Some(*function), dz, statistics: [1, 2], gamma, beta: again.affine.then_some(4) },
        )
    }
}

/// A convolution of normalised values, or its gradient by the weight.
#[derive(Debug, Clone, PartialEq)]
pub struct NormRead {
    /// There are `gamma` and `beta`: operands 3 and 4, behind `x`, `mean` and `invstd`.
    pub affine: bool,
    /// The activation after the normalisation.
    pub act: Option<Activation>,
    /// Operands of the normalisation; those of the convolution, but for its input, follow.
    pub own: usize,
}

/// What reads normalised values.
#[derive(Clone, Copy)]
pub enum Reader<'a> {
    /// A convolution.
    Conv(&'a Conv2d),
    /// Its gradient by the weight.
    GradWeight(&'a Conv2dGradWeight),
}

impl NormRead {
    /// What a group is; `None` if it is something else.
    pub fn of(op: &Fused) -> Option<(NormRead, Reader<'_>)> {
        let (read, reader) = NormRead::of_steps(&op.steps)?;
        let outputs = match reader {
            Reader::Conv(_) => 1,
            Reader::GradWeight(grad) => 1 + usize::from(grad.bias),
        };
        let results = (0..outputs).map(|output| StepOutput { step: op.steps.len() - 1, output });
        op.results.iter().copied().eq(results).then_some((read, reader))
    }

    fn of_steps(steps: &[Step]) -> Option<(NormRead, Reader<'_>)> {
        let (norm, act, product) = match steps {
            [norm, product] => (norm, None, product),
            [norm, Step { op: Op::Activation(act), from }, product] if from[..] == [Source::Step(0)] => {
                (norm, Some(act.act), product)
            }
            _ => return None,
        };
        let Op::BatchNormApply(BatchNormApply { affine }) = norm.op else { return None };
        let own = norm.from.len();
        let rest = (own..own + product.from.len().saturating_sub(1)).map(Source::Operand);
        let in_order = norm.from.iter().copied().eq((0..own).map(Source::Operand))
            && product.from.iter().copied().eq(std::iter::once(Source::Step(steps.len() - 2)).chain(rest));
        let reader = match &product.op {
            Op::Conv2d(conv) => Reader::Conv(conv),
            Op::Conv2dGradWeight(grad) => Reader::GradWeight(grad),
            _ => return None,
        };
        in_order.then_some((NormRead { affine, act, own }, reader))
    }

    /// True if `reader`, a step of the group, is a matrix product or a depthwise convolution of floats, whose kernels read
    /// what they copy.
    fn fits(&self, group: &Group, reader: Reader) -> bool {
        let (conv, kernel, outputs) = match reader {
            Reader::Conv(conv) => {
                let Some([outputs, kernel @ .., _]) = group.operands[self.own].shape.nhwc() else { return false };
                (conv, kernel, outputs)
            }
            Reader::GradWeight(op) => (&op.conv, op.kernel, group.operands[self.own].shape.last()),
        };
        let x = group.operands[0];
        let channels = x.shape.last();
        // Fewer rows are scalar products, fewer channels do not fill vectors.
        let whole = kernel == [1, 1] && conv.stride == [1, 1] && conv.padding == [0; 4] && conv.groups == 1;
        let pointwise = whole && x.shape.rows() > FEW_ROWS;
        let depthwise = conv.groups == channels && outputs == channels && channels > FEW_CHANNELS;
        all_floats(group) && (pointwise || depthwise)
    }
}

/// A convolution with the statistics of its results. Outputs: `mean`, the convolution's result, `invstd`.
pub struct ConvStatistics<'a> {
    /// What is done with the convolution's operand on the way.
    pub read: Option<NormRead>,
    /// The convolution.
    pub conv: &'a Conv2d,
    /// The last step.
    pub statistics: &'a BatchNormStatistics,
    /// Number of the first operand of the statistics beside the convolution's result.
    pub first: usize,
}

impl ConvStatistics<'_> {
    /// What a group is; `None` if it is something else.
    pub fn of(op: &Fused) -> Option<ConvStatistics<'_>> {
        let (step, before) = op.steps.split_last()?;
        let (Op::BatchNormStatistics(statistics), Some(Step { op: Op::Conv2d(conv), from })) =
            (&step.op, before.last())
        else {
            return None;
        };
        let read = NormRead::of_steps(before).map(|(read, _)| read);
        let (at, last) = (before.len() - 1, before.len());
        let first = read.as_ref().map_or(from.len(), |read| read.own + from.len() - 1);
        let known = read.is_some() || at == 0 && from.iter().copied().eq((0..first).map(Source::Operand));
        let rest = (first..first + step.from.len() - 1).map(Source::Operand);
        let in_order = step.from.iter().copied().eq(std::iter::once(Source::Step(at)).chain(rest));
        let results = [(last, 0), (at, 0), (last, 1)].map(|(step, output)| StepOutput { step, output });
        (known && in_order && op.results == results).then_some(ConvStatistics { read, conv, statistics, first })
    }

    fn fits(&self, group: &Group) -> bool {
        all_floats(group) && self.read.as_ref().is_none_or(|read| read.fits(group, Reader::Conv(self.conv)))
    }
}

/// True if the first operand and all that steps make are `F32`.
fn all_floats(group: &Group) -> bool {
    group.operands[0].dtype == DType::F32 && group.made.iter().all(|made| made[0].dtype == DType::F32)
}

/// Rows of a matrix up to which a product may be made otherwise.
const FEW_ROWS: usize = 16;

/// Channels of a depthwise convolution up to which another kernel may be faster: half of the widest vector.
const FEW_CHANNELS: usize = 8;

/// The sum or product of a group, and the activation after it.
fn activated(op: &Fused) -> Option<(&Binary, Activation)> {
    match &op.steps[..] {
        [Step { op: Op::Binary(op), from: operands }, Step { op: Op::Activation(act), from }]
            if from[..] == [Source::Step(0)] && operands[..] == [Source::Operand(0), Source::Operand(1)] =>
        {
            Some((op, act.act))
        }
        _ => None,
    }
    .filter(|_| op.results.len() == 1)
}

/// A group with max-pooling over windows of 2 × 2 pixels, 2 apart.
pub enum Pooled<'a> {
    /// A convolution, batch normalisation or none, pooling, and no activation, or one that clamps. Operands: those of the
    /// convolution, then those of the normalisation; results: the pooled image, and where each maximum lay.
    Forward {
        /// The convolution.
        conv: &'a Conv2d,
        /// The normalisation.
        norm: Option<Norm>,
        /// The activation.
        act: Option<Activation>,
    },
    /// The gradient of a convolution by its input. Operands: the gradient by the pooled image, positions, the weight.
    GradInput(&'a Conv2dGradInput),
    /// The gradient of a convolution by its weight. Operands: the gradient by the pooled image, positions, the input.
    GradWeight(&'a Conv2dGradWeight),
}

impl Pooled<'_> {
    /// What a group is; `None` if it is none of these.
    pub fn of(op: &Fused) -> Option<Pooled<'_>> {
        let operands: Vec<Source> = (0..3).map(Source::Operand).collect();
        let (head, rest) = op.steps.split_first()?;
        let own = head.from.len().min(3);
        if head.from[..] != operands[..own] {
            return None;
        }
        match (&head.op, rest) {
            (Op::Conv2d(conv), rest) => {
                let (norm, rest) = match rest {
                    [step, rest @ ..] if matches!(step.op, Op::BatchNormInfer(_)) => {
                        (Some(Norm::behind(head, step)?), rest)
                    }
                    _ => (None, rest),
                };
                let before = usize::from(norm.is_some());
                let [Step { op: Op::MaxPool2d(pool), from }, rest @ ..] = rest else { return None };
                if !touches(pool) || from[..] != [Source::Step(before)] {
                    return None;
                }
                let stored = |step: usize| op.results.contains(&StepOutput { step, output: 0 });
                let act = match rest {
                    [] => None,
                    [Step { op: Op::Activation(ActivationOp { act }), from }]
                        if from[..] == [Source::Step(before + 1)] && act.facts().clamps && !stored(before + 1) =>
                    {
                        Some(*act)
                    }
                    _ => return None,
                };
                (!stored(before)).then_some(Pooled::Forward { conv, norm, act })
            }
            (Op::MaxPool2dGrad(MaxPool2dGrad { pool, .. }), [step]) if touches(pool) => {
                match (&step.op, &step.from[..]) {
                    (Op::Conv2dGradInput(grad), [Source::Step(0), Source::Operand(2)]) => Some(Pooled::GradInput(grad)),
                    (Op::Conv2dGradWeight(grad), [Source::Operand(2), Source::Step(0)]) => {
                        Some(Pooled::GradWeight(grad))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
        .filter(|_| !op.results.contains(&StepOutput { step: 0, output: 0 }))
    }
}

/// True for windows of 2 × 2 pixels that touch.
fn touches(pool: &MaxPool2d) -> bool {
    pool.kernel == [2, 2] && pool.stride == [2, 2] && pool.padding == [0, 0] && pool.dilation == [1, 1]
}

/// True if all windows of a group's pooling lie within the image.
fn in_pairs(group: &Group) -> bool {
    let halves = |large: &crate::graph::Value, small: &crate::graph::Value| {
        let images = large.shape.nhwc().zip(small.shape.nhwc());
        images.is_some_and(|(large, small)| small[1] == large[1] / 2 && small[2] == large[2] / 2)
    };
    match group.op.steps[0].op {
        Op::MaxPool2dGrad(_) => halves(&group.made[0][0], group.operands[0]),
        _ => {
            let pool = group.op.steps.iter().position(|step| matches!(step.op, Op::MaxPool2d(_)));
            pool.is_some_and(|pool| halves(&group.made[0][0], &group.made[pool][0]))
        }
    }
}
