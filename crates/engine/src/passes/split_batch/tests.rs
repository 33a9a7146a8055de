use super::*;
use crate::backend::reference::{Values, evaluate};
use crate::graph::op::{
    Activation, ActivationOp, AdaptiveAvgPool2d, BatchNormInfer, Binary, BinaryKind, Concat, Conv2d, Linear,
    LogSoftmax, Reshape, SumTo,
};
use crate::graph::{DType, Shape, VarKind, Variable, Variables, verify};
use crate::random::{Purpose, Stream};

const SAMPLES: usize = 12;

/// A net with a branch, a sum over three layers, a scaled parameter, a concatenation, a head, and a result on its way.
pub(crate) fn net() -> (Graph, Values, Variables) {
    let mut graph = Graph::new();
    let mut values = Values::new();
    let mut vars = Variables::new();
    let mut draw = Stream::new(5, Purpose::Synthetic, 0, 0);
    let images = graph.input(Input::Field(0), DType::F32, Shape::from([SAMPLES, 4, 4, 3]));
    let mut numbers = |n: usize| (0..n).map(|_| 1.0 + 0.3 * draw.normal()).map(|x| f64::from(x as f32)).collect();
    values.insert(images, numbers(SAMPLES * 48));
    let mut filled = |graph: &mut Graph, shape: &[usize]| {
        let name = format!("v{}", vars.len());
        let id = vars.get_or_add(Variable::zeros(name, DType::F32, Shape::from(shape), VarKind::Buffer));
        let value = graph.variable(&vars, id);
        values.insert(value, numbers(shape.iter().product()));
        value
    };
    let relu = ActivationOp { act: Activation::Relu };
    let conv = Conv2d { stride: [1; 2], padding: [1; 4], dilation: [1; 2], groups: 1, bias: false };
    let (add, multiply) = (Binary { kind: BinaryKind::Add }, Binary { kind: BinaryKind::Mul });
    let weight = filled(&mut graph, &[4, 3, 3, 3]);
    let first = graph.add1(conv.clone(), &[images, weight]).unwrap();
    let norm: Vec<ValueId> = (0..4).map(|_| filled(&mut graph, &[4])).collect();
    let normed = [&[first][..], &norm].concat();
    let first = graph.add1(BatchNormInfer { eps: 1e-5, affine: true }, &normed).unwrap();
    // Made of parameters alone.
    let [a, b] = [(); 2].map(|()| filled(&mut graph, &[1, 1, 1, 4]));
    let scale = graph.add1(multiply.clone(), &[a, b]).unwrap();
    let branch = graph.add1(relu.clone(), &[first]).unwrap();
    let weight = filled(&mut graph, &[4, 3, 3, 4]);
    let branch = graph.add1(conv, &[branch, weight]).unwrap();
    let branch = graph.add1(multiply, &[branch, scale]).unwrap();
    let sum = graph.add1(add, &[branch, first]).unwrap();
    graph.values[sum.index()].role = Role::Output;
    let both = graph.add1(Concat { axis: 3 }, &[sum, branch]).unwrap();
    let flat = graph.add1(Reshape { shape: Shape::from([SAMPLES, 128]) }, &[both]).unwrap();
    let pooled = graph.add1(AdaptiveAvgPool2d { output: [1, 1] }, &[both]).unwrap();
    let pooled = graph.add1(Reshape { shape: Shape::from([SAMPLES, 8]) }, &[pooled]).unwrap();
    let joined = graph.add1(Concat { axis: 1 }, &[flat, pooled]).unwrap();
    let weight = filled(&mut graph, &[16, 136]);
    let logits = graph.add1(Linear { bias: false }, &[joined, weight]).unwrap();
    let logarithms = graph.add1(LogSoftmax {}, &[logits]).unwrap();
    let last = graph.add1(SumTo { shape: Shape::from([16]) }, &[logarithms]).unwrap();
    graph.values[last.index()].role = Role::Output;
    (graph, values, vars)
}

/// What the host reads.
pub(crate) fn results(graph: &Graph, values: &Values) -> Vec<Vec<f64>> {
    let mut values = values.clone();
    evaluate(graph, &mut values);
    let outputs = (0..graph.values.len() as u32).map(ValueId).filter(|v| graph.value(*v).role == Role::Output);
    outputs.map(|v| values[&v].clone()).collect()
}

/// Sections at random places with numbers of parts at random.
pub(crate) fn at_random(seed: u64) -> impl FnOnce(&[Work], usize) -> Vec<Section> {
    move |work, samples| {
        let mut draw = Stream::new(seed, Purpose::Synthetic, 0, 0);
        let mut sections = Vec::new();
        let mut start = 0;
        while start < work.len() {
            let end = (start + 1 + draw.below(6) as usize).min(work.len());
            let parts = [1, 2, 3, 4, 6, samples][draw.below(6) as usize];
            let fits = |work: &Work| work.splits && (samples / parts).is_multiple_of(work.least);
            let splits = work[start..end].iter().all(fits);
            sections.push(Section { nodes: start..end, parts: if splits { parts } else { 1 } });
            start = end;
        }
        sections
    }
}

#[test]
fn sections_change_no_bit() {
    let (whole, values, _) = net();
    let expected = results(&whole, &values);
    let mut rounds = 0;
    for seed in 0..200 {
        let mut graph = whole.clone();
        divide(&mut graph, 64, at_random(seed));
        verify(&graph).unwrap_or_else(|e| panic!("{seed}: {e}\n{graph}"));
        assert_eq!(results(&graph, &values), expected, "{seed}:\n{graph}");
        rounds += graph.rounds().iter().filter(|rounds| rounds.parts > 1).count();
    }
    assert!(rounds > 300, "only {rounds} sections ran in parts");
}

#[test]
fn what_no_sample_goes_into_runs_once() {
    let mut graph = net().0;
    divide(&mut graph, 64, |work, _| {
        let last = work.len() - 1;
        vec![Section { nodes: 0..last, parts: 3 }, Section { nodes: last..last + 1, parts: 1 }]
    });
    let names: Vec<&str> = graph.nodes.iter().map(|node| node.op.rules().name()).collect();
    let (before, inside) = names.split_at(2);
    assert_eq!(before, ["multiply", "batch_part"], "{graph}");
    assert!(!inside.contains(&"batch_part"), "{graph}");
    // A result, and what the last node reads.
    assert!(names.ends_with(&["batch_join", "batch_join", "sum_to"]), "{graph}");
    assert_eq!(names.iter().filter(|name| **name == "batch_join").count(), 2);
}

/// What reads the whole batch runs for all of it.
#[test]
fn sums_over_samples_are_not_divided() {
    let mut graph = net().0;
    divide(&mut graph, 64, |work, _| {
        let splits: Vec<bool> = work.iter().map(|work| work.splits).collect();
        let (last, others) = splits.split_last().unwrap();
        assert!(!last && others.iter().all(|splits| *splits));
        Vec::new()
    });
}

/// What was made of all samples, and has as many rows by chance, is no batch.
#[test]
fn what_depends_on_all_samples_is_not_divided() {
    let mut graph = Graph::new();
    let x = graph.input(Input::Field(0), DType::F32, Shape::from([SAMPLES, SAMPLES]));
    let sum = graph.add1(SumTo { shape: Shape::from([SAMPLES]) }, &[x]).unwrap();
    let row = graph.add1(Reshape { shape: Shape::from([SAMPLES, 1]) }, &[sum]).unwrap();
    let scaled = graph.add1(Binary { kind: BinaryKind::Mul }, &[x, row]).unwrap();
    graph.add1(ActivationOp { act: Activation::Relu }, &[scaled]).unwrap();
    divide(&mut graph, 64, |work, _| {
        assert!(work.iter().all(|work| !work.splits), "{work:?}");
        Vec::new()
    });
}

#[test]
fn a_single_sample_stays_as_it_is() {
    let mut graph = Graph::new();
    let x = graph.input(Input::Field(0), DType::F32, Shape::from([1, 512, 512, 64]));
    graph.add1(ActivationOp { act: Activation::Relu }, &[x]).unwrap();
    let whole = graph.clone();
    divide(&mut graph, 64, |_, _| panic!("there is nothing to divide"));
    assert_eq!(graph, whole);
}

/// Images that no cache holds go through all layers in parts; one that a cache holds is not worth it.
#[test]
fn large_images_are_divided() {
    for (side, parts) in [(256, Some(8)), (4, None)] {
        let mut graph = Graph::new();
        let mut x = graph.input(Input::Field(0), DType::F32, Shape::from([16, side, side, 8]));
        for _ in 0..4 {
            x = graph.add1(ActivationOp { act: Activation::Gelu }, &[x]).unwrap();
        }
        graph.values[x.index()].role = Role::Output;
        split_batch(&mut graph, 64);
        verify(&graph).unwrap();
        let found = graph.rounds().iter().map(|rounds| rounds.parts).find(|parts| *parts > 1);
        assert_eq!(found, parts, "{side}");
    }
}
