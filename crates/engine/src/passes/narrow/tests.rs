use super::*;
use crate::backend::Backend;
use crate::backend::cpu::CpuBackend;
use crate::backend::cpu::simd::SimdLevel;
use crate::backend::cpu::simd::bf16::Bf16Unit;
use crate::graph::op::{
    Activation, ActivationOp, AdaptiveAvgPool2d, Binary, BinaryKind, Conv2d, Fused, Linear, LogSoftmax, MaxPool2d,
    Reshape, Source,
};
use crate::graph::{Input, Op, Shape, ValueId, VarId, verify};

/// A graph, with the names of its values.
struct Net {
    graph: Graph,
    weights: u32,
}

impl Net {
    fn new() -> Net {
        Net { graph: Graph::new(), weights: 0 }
    }

    fn weight(&mut self, shape: &[usize]) -> ValueId {
        self.weights += 1;
        self.graph.add_value(DType::F32, Shape::from(shape), Role::Parameter(VarId(self.weights)))
    }

    fn image(&mut self, size: usize, channels: usize) -> ValueId {
        self.graph.input(Input::Field(0), DType::F32, Shape::from([2, size, size, channels]))
    }

    fn conv(&mut self, x: ValueId, outputs: usize, groups: usize) -> ValueId {
        let channels = self.graph.shape(x).last();
        let w = self.weight(&[outputs, 3, 3, channels / groups]);
        self.graph.add1(conv(groups), &[x, w]).unwrap()
    }

    fn linear(&mut self, x: ValueId, outputs: usize) -> ValueId {
        let inputs = self.graph.shape(x).last();
        let w = self.weight(&[outputs, inputs]);
        self.graph.add1(Linear { bias: false }, &[x, w]).unwrap()
    }

    fn add(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.graph.add(op, inputs).unwrap()[0]
    }

    /// What is narrow of these, for a CPU that makes products in bf16.
    fn narrowed<const N: usize>(&mut self, values: [ValueId; N]) -> [bool; N] {
        let backend = CpuBackend::with_level(Some(1), SimdLevel::detect()).with_unit(Some(Bf16Unit::Plain));
        assert!(backend.narrows().is_none(), "products are not made in bf16");
        narrow(&mut self.graph, backend.in_bf16(true).narrows().unwrap());
        verify(&self.graph).unwrap();
        values.map(|v| self.graph.value(v).narrow)
    }
}

fn conv(groups: usize) -> Conv2d {
    Conv2d { stride: [1; 2], padding: [1; 4], dilation: [1; 2], groups, bias: false }
}

const POOL: MaxPool2d =
    MaxPool2d { kernel: [2; 2], stride: [2; 2], padding: [0; 2], dilation: [1; 2], ceil_mode: false };

#[test]
fn what_only_products_and_pools_read_is_narrow() {
    let mut net = Net::new();
    let image = net.image(8, 16);
    let first = net.conv(image, 32, 1);
    let pooled = net.graph.add(POOL, &[first]).unwrap();
    let second = net.conv(pooled[0], 32, 1);
    let mean = net.add(AdaptiveAvgPool2d { output: [1, 1] }, &[second]);
    let flat = net.add(Reshape { shape: Shape::from([2, 32]) }, &[mean]);
    let hidden = net.linear(flat, 1024);
    let logits = net.linear(hidden, 300);
    let end = net.add(LogSoftmax {}, &[logits]);
    net.graph.values[end.index()].role = Role::Output;
    let narrow = net.narrowed([image, first, pooled[0], pooled[1], second, mean, flat, hidden, logits, end]);
    // The batch stays, and so does what is no float, and what the softmax reads.
    assert_eq!(narrow, [false, true, true, false, true, true, true, true, false, false]);
}

#[test]
fn what_the_host_or_another_kernel_reads_stays() {
    let mut net = Net::new();
    let image = net.image(8, 16);
    let [kept, read, summed] = [(); 3].map(|()| net.conv(image, 32, 1));
    let ends = [kept, read, summed].map(|x| net.conv(x, 32, 1));
    net.graph.values[kept.index()].role = Role::Output;
    // A reader of floats beside one that takes both.
    net.add(LogSoftmax {}, &[read]);
    let flat = net.add(Reshape { shape: Shape::from([2, 8 * 8 * 32]) }, &[summed]);
    net.graph.values[flat.index()].role = Role::Output;
    for end in ends {
        net.graph.values[end.index()].role = Role::Output;
    }
    assert_eq!(net.narrowed([kept, read, summed, flat]), [false; 4]);
}

#[test]
fn a_residual_sum_is_narrow_with_its_operand() {
    let mut net = Net::new();
    let image = net.image(8, 16);
    let first = net.conv(image, 32, 1);
    let weight = net.weight(&[32, 3, 3, 32]);
    let add = Binary { kind: BinaryKind::Add };
    let group = Fused::of(conv(1).into(), 2)
        .then(add.clone(), vec![Source::Step(0), Source::Operand(0)])
        .then(ActivationOp { act: Activation::Relu }, vec![Source::Step(1)]);
    let sum = net.add(group, &[first, weight]);
    let end = net.conv(sum, 32, 1);
    net.graph.values[end.index()].role = Role::Output;
    assert_eq!(net.narrowed([first, sum, end]), [true, true, false]);
    // A sum of its own is one of floats.
    let mut net = Net::new();
    let image = net.image(8, 16);
    let [a, b] = [(); 2].map(|()| net.conv(image, 32, 1));
    let both = net.graph.add1(LogSoftmax {}, &[a]).unwrap();
    let sum = net.add(add, &[both, b]);
    net.graph.values[sum.index()].role = Role::Output;
    assert!(!net.narrowed([a])[0]);
}

/// A product that is too small for tiles is made of floats.
#[test]
fn small_products_read_floats() {
    let mut net = Net::new();
    let image = net.image(2, 16);
    let first = net.conv(image, 32, 1);
    let flat = net.add(Reshape { shape: Shape::from([2, 2 * 2 * 32]) }, &[first]);
    let end = net.linear(flat, 10);
    net.graph.values[end.index()].role = Role::Output;
    assert_eq!(net.narrowed([first, flat, end]), [false; 3]);
}
