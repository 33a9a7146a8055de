//! Programs whose values are rounded in memory.

use super::parts::{Numbers, outputs, ready};
use crate::backend::Backend;
use crate::backend::cpu::CpuBackend;
use crate::backend::cpu::simd::SimdLevel;
use crate::backend::cpu::simd::bf16::Bf16Unit;
use crate::backend::reference::{Values, evaluate};
use crate::graph::op::{
    Activation, ActivationOp, AdaptiveAvgPool2d, AvgPool2d, BatchNormInfer, Binary, BinaryKind, Conv2d, Linear,
    MaxPool2d, Reshape,
};
use crate::graph::{DType, Graph, Input, Op, Role, Shape, ValueId, VarKind, Variable, Variables};
use crate::passes::split_batch::{divide, tests::at_random};
use crate::passes::{Device, Job, PassOptions};
use crate::random::{Purpose, Stream};

const SAMPLES: usize = 12;

/// A net with its weights and a batch.
struct Net {
    graph: Graph,
    values: Values,
    vars: Variables,
    draw: Stream,
}

impl Net {
    /// A variable of normal numbers around `mean`.
    fn weight(&mut self, shape: &[usize], mean: f64, deviation: f64) -> ValueId {
        let name = format!("v{}", self.vars.len());
        let id = self.vars.get_or_add(Variable::zeros(name, DType::F32, Shape::from(shape), VarKind::Buffer));
        let value = self.graph.variable(&self.vars, id);
        let number = |_| f64::from((mean + deviation * self.draw.normal()) as f32);
        self.values.insert(value, (0..shape.iter().product()).map(number).collect());
        value
    }

    fn add(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.graph.add(op, inputs).unwrap()[0]
    }

    /// A convolution with batch normalisation after it.
    fn conv(&mut self, x: ValueId, outputs: usize, kernel: usize, stride: usize, groups: usize) -> ValueId {
        let channels = self.graph.shape(x).last() / groups;
        let w =
            self.weight(&[outputs, kernel, kernel, channels], 0.0, (1.0 / (kernel * kernel * channels) as f64).sqrt());
        let op = Conv2d { stride: [stride; 2], padding: [kernel / 2; 4], dilation: [1; 2], groups, bias: false };
        let y = self.add(op, &[x, w]);
        let norm = [(1.0, 0.1), (0.0, 0.3), (0.0, 0.1), (1.0, 0.05)].map(|(m, d)| self.weight(&[outputs], m, d));
        self.add(BatchNormInfer { eps: 1e-5, affine: true }, &[&[y][..], &norm].concat())
    }

    fn act(&mut self, act: Activation, x: ValueId) -> ValueId {
        self.add(ActivationOp { act }, &[x])
    }
}

/// Residual blocks with a projection, one of them with a depthwise convolution and factors of channels; pools of every kind, and a head.
fn net() -> Net {
    let (graph, values, vars) = (Graph::new(), Values::new(), Variables::new());
    let mut net = Net { graph, values, vars, draw: Stream::new(11, Purpose::Synthetic, 0, 0) };
    let x = net.graph.input(Input::Field(0), DType::F32, Shape::from([SAMPLES, 16, 18, 3]));
    let numbers = (0..SAMPLES * 16 * 18 * 3).map(|_| f64::from(net.draw.normal() as f32)).collect();
    net.values.insert(x, numbers);
    let (relu, add) = (Activation::Relu, Binary { kind: BinaryKind::Add });
    let x = net.conv(x, 24, 3, 1, 1);
    let pool = MaxPool2d { kernel: [3; 2], stride: [1; 2], padding: [1; 2], dilation: [1; 2], ceil_mode: false };
    let x = net.add(pool, &[x]);
    let x = net.act(relu, x);
    let inner = net.conv(x, 32, 1, 1, 1);
    let inner = net.act(relu, inner);
    let inner = net.conv(inner, 40, 3, 2, 1);
    let beside = net.conv(x, 40, 1, 2, 1);
    let sum = net.add(add.clone(), &[inner, beside]);
    let x = net.act(relu, sum);
    let inner = net.conv(x, 64, 1, 1, 1);
    let inner = net.act(Activation::Hardswish, inner);
    let inner = net.conv(inner, 64, 3, 1, 64);
    let inner = net.act(Activation::Silu, inner);
    let factors = net.add(AdaptiveAvgPool2d { output: [1, 1] }, &[inner]);
    let factors = net.act(Activation::Sigmoid, factors);
    let inner = net.add(Binary { kind: BinaryKind::Mul }, &[inner, factors]);
    let inner = net.conv(inner, 40, 1, 1, 1);
    let x = net.add(add, &[inner, x]);
    let pool = MaxPool2d { kernel: [2; 2], stride: [2; 2], padding: [0; 2], dilation: [1; 2], ceil_mode: false };
    let halves = net.add(pool, &[x]);
    let pool = AvgPool2d { kernel: [2; 2], stride: [1; 2], padding: [0; 2], ceil_mode: false, count_include_pad: true };
    let x = net.add(pool, &[halves]);
    let x = net.conv(x, 64, 1, 1, 1);
    let x = net.add(AdaptiveAvgPool2d { output: [1, 1] }, &[x]);
    let x = net.add(Reshape { shape: Shape::from([SAMPLES, 64]) }, &[x]);
    let w = net.weight(&[50, 64], 0.0, 0.2);
    let y = net.add(Linear { bias: false }, &[x, w]);
    net.graph.values[y.index()].role = Role::Output;
    net
}

fn backend(unit: Bf16Unit, threads: usize) -> CpuBackend {
    CpuBackend::with_level(Some(threads), SimdLevel::detect()).with_unit(Some(unit)).in_bf16(true)
}

/// The graph after all passes for `backend`, but for those that are left out.
fn compiled(net: &Net, backend: &CpuBackend, without: &[&str]) -> Graph {
    let without = without.iter().chain(&["split_batch"]).map(|name| (*name).to_owned()).collect();
    let options = PassOptions { without, stop_after: None };
    let device = Device {
        fusions: backend.fusions(),
        updates_apart: backend.updates_apart(),
        divides_batches: backend.divides_batches(),
        narrows: backend.narrows(),
    };
    let mut graph = net.graph.clone();
    Job { device, half: None, training: None, options: &options }.run(&mut graph).unwrap();
    graph
}

fn run(net: &Net, graph: &Graph, backend: &CpuBackend) -> Numbers {
    let (mut exe, batch, plan) = ready(backend, graph, &net.values, net.vars.clone());
    exe.run(0, 0, &batch).unwrap();
    let first = outputs(&mut *exe, graph);
    exe.run(0, 0, &batch).unwrap();
    assert_eq!(outputs(&mut *exe, graph), first, "what is kept changes the second run");
    assert_eq!(exe.find_not_finite(0, &batch).unwrap(), None);
    assert_eq!(exe.peak_bytes(), plan.device_bytes());
    first
}

/// How far the numbers are from those in double precision, in the mean, as a part of their size.
fn error(found: &Numbers, expected: &[f64]) -> f64 {
    let off: f64 = found[0].iter().zip(expected).map(|(x, y)| (f64::from(*x) - y).powi(2)).sum();
    let size: f64 = expected.iter().map(|y| y.powi(2)).sum();
    (off / size).sqrt()
}

#[test]
fn an_evaluation_is_near_the_exact_one_with_the_same_bits_on_every_unit() {
    let net = net();
    let plain = backend(Bf16Unit::Plain, 1);
    let graph = compiled(&net, &plain, &[]);
    let narrow = graph.nodes.iter().flat_map(|node| &node.outputs).filter(|v| graph.value(**v).narrow).count();
    assert!(narrow >= 15, "{narrow} values are narrow:\n{graph}");
    let mut exact = net.values.clone();
    evaluate(&net.graph, &mut exact);
    let result = (0..net.graph.values.len() as u32).map(ValueId).find(|v| net.graph.value(*v).role == Role::Output);
    let exact = &exact[&result.unwrap()];
    let first = run(&net, &graph, &plain);
    // Some dozen roundings by 2⁻⁹ at most, one after the other, of numbers that go into sums.
    let off = error(&first, exact);
    assert!(off > 1e-4 && off < 1.5e-2, "{off}");
    let wide = compiled(&net, &plain, &["narrow"]);
    assert!(wide.values.iter().all(|v| !v.narrow));
    let of_floats = error(&run(&net, &wide, &plain), exact);
    assert!(off < 2.5 * of_floats, "{off}, with values of 32 bits {of_floats}");
    for unit in Bf16Unit::supported() {
        // A unit may leave convolutions to single precision, and then other values are narrow.
        let graph = compiled(&net, &backend(unit, 1), &[]);
        let its = run(&net, &graph, &backend(unit, 1));
        assert!(its == first || !unit.is_far_faster() && error(&its, exact) < 1.5e-2, "{unit}");
        for threads in 2..=3 {
            assert_eq!(run(&net, &graph, &backend(unit, threads)), its, "{unit}, {threads} threads");
        }
    }
    // In parts of the batch.
    let unit = Bf16Unit::detect().unwrap_or(Bf16Unit::Plain);
    let graph = compiled(&net, &backend(unit, 1), &[]);
    let first = run(&net, &graph, &backend(unit, 1));
    let mut parts = 0;
    for seed in 0..6 {
        let mut divided = graph.clone();
        divide(&mut divided, 64, at_random(seed));
        parts += divided.rounds().iter().filter(|rounds| rounds.parts > 1).count();
        assert_eq!(run(&net, &divided, &backend(unit, 2)), first, "{seed}:\n{divided}");
    }
    assert!(parts > 4, "only {parts} sections ran in parts");
}
