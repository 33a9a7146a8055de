//! Launches for values of more than 2³¹ elements: as data, so that nothing of that size is needed.

use runner::backend::gpu::launch::{Arg, Step};
use runner::backend::gpu::lower::lower;
use runner::backend::gpu::target::Target;
use runner::graph::op::{
    Activation, ActivationOp, AdaptiveAvgPool2d, Attention, AvgPool2d, BatchNorm, BatchNormInfer, Binary, BinaryKind,
    Concat, Conv2d, CrossEntropy, Dropout, Embedding, GroupNorm, LayerNorm, Linear, LossOp, MaxPool2d, Normalize,
    Permute, Rotary, Softmax,
};
use runner::graph::{DType, Graph, Input, Op, Shape, ValueId, VarKind, Variable, Variables};
use runner::passes::grad::backward;

/// Images of 2.2 · 10⁹ floats.
const IMAGES: [usize; 4] = [1400, 224, 224, 32];

/// `op` on a value of shape `x` and on variables of the shapes `others`, with its backward pass.
fn graph(op: impl Into<Op>, x: &[usize], others: &[&[usize]], dtype: DType) -> Graph {
    let (mut graph, mut variables) = (Graph::new(), Variables::new());
    let op = op.into();
    let mut variable = |graph: &mut Graph, dtype: DType, shape: &[usize]| {
        let name = format!("v{}", graph.values.len());
        let id = variables.get_or_add(Variable::zeros(name, dtype, Shape::from(shape), VarKind::Parameter));
        graph.variable(&variables, id)
    };
    let mut operands = vec![variable(&mut graph, dtype, x)];
    for shape in others {
        let kind = match &op {
            // The weight has the input's type.
            Op::Linear(_) | Op::Conv2d(_) if operands.len() == 1 => dtype,
            // The targets of a loss, and the ids of a table's rows.
            Op::Loss(_) | Op::Embedding(_) => DType::I32,
            _ if *shape == [0] => DType::I64,
            Op::Binary(_) | Op::Concat(_) => dtype,
            _ => DType::F32,
        };
        let shape: &[usize] = if *shape == [0] { &[] } else { shape };
        operands.push(variable(&mut graph, kind, shape));
    }
    if let Op::Dropout(_) = op {
        operands.push(graph.input(Input::Random, DType::U32, Shape::from([4])));
    }
    let wrt: Vec<ValueId> = operands.iter().copied().filter(|v| graph.value(*v).dtype == dtype).collect();
    let differentiable = !matches!(op, Op::Normalize(_) | Op::BatchNormInfer(_));
    let y = graph.add(op, &operands).unwrap_or_else(|e| panic!("{e}"))[0];
    if differentiable {
        let (kind, shape) = (graph.value(y).dtype, graph.shape(y).clone());
        let dy = variable(&mut graph, kind, shape.dims());
        backward(&mut graph, &[(y, dy)], &wrt).unwrap_or_else(|e| panic!("{e}"));
    }
    graph
}

/// CUDA's limits on a launch, and that no number has lost its upper half.
fn check(graph: &Graph, capability: u32) {
    let target = Target::new(capability);
    for node in &graph.nodes {
        let Some(lowered) = lower(graph, node, &target) else { continue };
        for step in &lowered.steps {
            let Step::Kernel(k) = step else { continue };
            let [x, y, z] = k.grid;
            assert!((1..1 << 31).contains(&x) && (1..1 << 16).contains(&y) && (1..1 << 16).contains(&z), "{k:?}");
            let threads = k.block.iter().product::<u32>();
            assert!((1..=1024).contains(&threads) && k.shared_bytes <= 227 << 10, "{k:?}");
            // Paddings are small negative numbers.
            assert!(k.args.iter().all(|a| !matches!(a, Arg::I32(v) if *v < -100)), "{k:?}");
            // Threads that each have a few elements, or that stride over them.
            let elements = u64::from(x) * u64::from(y) * u64::from(z) * u64::from(threads);
            assert!(elements < 1 << 40, "{k:?}");
        }
    }
}

#[test]
fn launches_keep_to_the_limits_for_the_largest_values() {
    let x = &IMAGES[..];
    let flat = &[70_246_400, 32][..];
    let act = || ActivationOp { act: Activation::Gelu };
    let conv = |stride, padding| Conv2d {
        stride: [stride; 2],
        padding: [padding; 4],
        dilation: [1, 1],
        groups: 1,
        bias: true,
    };
    let pool = MaxPool2d { kernel: [3, 3], stride: [2, 2], padding: [1, 1], dilation: [1, 1], ceil_mode: false };
    let mean = AvgPool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0], ceil_mode: false, count_include_pad: true };
    let norm = BatchNorm { eps: 1e-5, momentum: Some(0.1), affine: true, track: true };
    let c = &[32][..];
    for dtype in [DType::F32, DType::BF16] {
        let mut graphs = vec![
            graph(act(), x, &[], dtype),
            graph(Binary { kind: BinaryKind::Add }, x, &[x], dtype),
            graph(Binary { kind: BinaryKind::Mul }, x, &[&[1400, 1, 1, 32]], dtype),
            graph(Dropout { p: 0.5, stream: 0 }, x, &[], dtype),
            graph(Attention { heads: 4, causal: true, ..Attention::default() }, &[22_000, 1024, 96], &[], dtype),
            graph(
                Rotary { heads: 1, kv_heads: 1, position: false, back: false },
                &[22_000, 1024, 96],
                &[&[1024, 32]],
                dtype,
            ),
            graph(Permute { perm: vec![0, 3, 1, 2] }, x, &[], dtype),
            graph(Concat { axis: 3 }, x, &[x], dtype),
            graph(pool.clone(), x, &[], dtype),
            graph(mean.clone(), x, &[], dtype),
            graph(AdaptiveAvgPool2d { output: [1, 1] }, x, &[], dtype),
            graph(norm.clone(), x, &[c, c, c, c, &[0]], dtype),
            graph(BatchNormInfer { eps: 1e-5, affine: true }, x, &[c, c, c, c], dtype),
            graph(Linear { bias: true }, flat, &[&[33, 32], &[33]], dtype),
            graph(conv(1, 1), x, &[&[64, 3, 3, 32], &[64]], dtype),
            graph(conv(2, 0), x, &[&[64, 1, 1, 32], &[64]], dtype),
            graph(Conv2d { groups: 32, ..conv(1, 1) }, x, &[&[32, 3, 3, 1], &[32]], dtype),
        ];
        if dtype == DType::F32 {
            graphs.extend([
                graph(GroupNorm { groups: 4, eps: 1e-5, affine: true }, x, &[c, c], dtype),
                graph(LayerNorm { dims: 1, eps: 1e-5, weight: true, bias: true, centered: true }, x, &[c, c], dtype),
                graph(Softmax {}, x, &[], dtype),
                graph(Embedding::default(), &[2_200_000, 1024], &[&[2_150_000]], dtype),
                graph(LossOp::from(CrossEntropy::smoothed(0.1)), flat, &[&[70_246_400]], dtype),
                graph(
                    Normalize { scale: 1.0, mean: [0.5].into(), std: [0.5].into(), to: DType::F32 },
                    x,
                    &[],
                    DType::F32,
                ),
            ]);
        }
        for graph in &graphs {
            for capability in [75, 80, 90] {
                check(graph, capability);
            }
        }
    }
}
