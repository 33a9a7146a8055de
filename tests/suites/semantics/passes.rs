//! The passes on random graphs: what is computed stays, to the last bit, and the graph stays consistent.

use runner::backend::cpu::fusions::FUSIONS;
use runner::backend::reference::{Values, evaluate};
use runner::graph::op::{
    AccumulateGrad, Activation, ActivationOp, BatchNorm, Binary, BinaryKind, Concat, Conv2d, Conv2dGradInput, Dropout,
    ElementwiseLoss, Linear, LossOp, MaxPool2d, Pattern, Permute, Reshape, Softmax,
};
use runner::graph::{DType, Graph, Op, Role, Shape, ValueId, VarId, verify};
use runner::passes::{
    fuse::fuse,
    grad::backward,
    precision::autocast,
    recompute::recompute,
    rematerialize::{Recompute, rematerialize},
    simplify::simplify,
    update_early::update_early,
};
use runner::random::{Purpose, Stream};
use std::slice;

/// How many graphs each test draws.
const GRAPHS: u64 = 150;

const ACTIVATIONS: [Activation; 5] =
    [Activation::Relu, Activation::Tanh, Activation::Gelu, Activation::Hardswish, Activation::Mish];

/// A graph that grows at random, with the elements of its variables.
struct Builder {
    graph: Graph,
    values: Values,
    draw: Stream,
    /// What an operation may read.
    pool: Vec<ValueId>,
    /// What a gradient is wanted for.
    parameters: Vec<ValueId>,
}

impl Builder {
    fn new(seed: u64) -> Self {
        let draw = Stream::new(seed, Purpose::Synthetic, 0, 0);
        Builder { graph: Graph::new(), values: Values::new(), draw, pool: Vec::new(), parameters: Vec::new() }
    }

    fn below(&mut self, n: usize) -> usize {
        self.draw.below(n as u32) as usize
    }

    fn variable(&mut self, dtype: DType, shape: impl Into<Shape>, mut f: impl FnMut(&mut Stream) -> f64) -> ValueId {
        let shape = shape.into();
        let data = (0..shape.len()).map(|_| f(&mut self.draw)).collect();
        let id = self.graph.add_value(dtype, shape, Role::State(VarId(self.graph.values.len() as u32)));
        self.values.insert(id, data);
        id
    }

    fn parameter(&mut self, shape: impl Into<Shape>) -> ValueId {
        let id = self.variable(DType::F32, shape, |s| 0.3 * s.normal());
        self.parameters.push(id);
        id
    }

    fn add(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let id = self.graph.add1(op, inputs).unwrap();
        self.pool.push(id);
        id
    }

    fn batch_norm(&mut self, x: ValueId) -> ValueId {
        let channels = *self.graph.shape(x).dims().last().unwrap();
        let affine = [self.parameter([channels]), self.parameter([channels])];
        let running = [0.0, 1.0].map(|v| self.variable(DType::F32, [channels], |_| v));
        let batches = self.variable(DType::I64, Vec::new(), |_| 0.0);
        let op = BatchNorm { eps: 1e-5, momentum: Some(0.1), affine: true, track: true };
        self.add(op, &[x, affine[0], affine[1], running[0], running[1], batches])
    }

    /// One operation on something known. Small images and matrices stay small images and matrices.
    fn grow(&mut self, key: ValueId) {
        // The last value is the likeliest, so that chains come about.
        let back = if self.below(3) == 0 { self.below(self.pool.len().min(4)) } else { 0 };
        let at = self.pool.len() - 1 - back;
        let x = self.pool[at];
        let dims = self.graph.shape(x).dims().to_vec();
        let channels = dims[dims.len() - 1];
        match self.below(16) {
            0 if dims.len() == 4 => {
                let conv = Conv2d { stride: [1, 1], padding: [1; 4], dilation: [1, 1], groups: 1, bias: true };
                if self.below(2) == 0 {
                    let (w, b) = (self.parameter([3, 3, 3, channels]), self.parameter([3]));
                    self.add(conv, &[x, w, b]);
                } else {
                    let (w, b) = (self.parameter([channels, 3, 3, 3]), self.parameter([1, 1, 1, 3]));
                    let y = self.add(Conv2dGradInput { conv, input: [dims[1], dims[2]] }, &[x, w]);
                    self.add(Binary { kind: BinaryKind::Add }, &[y, b]);
                }
            }
            1 => {
                let w = self.parameter([4, channels]);
                self.add(Linear { bias: false }, &[x, w]);
            }
            2 => {
                self.batch_norm(x);
            }
            3..=5 => {
                let act = ACTIVATIONS[self.below(ACTIVATIONS.len())];
                self.add(ActivationOp { act }, &[x]);
            }
            6 => {
                let same: Vec<ValueId> =
                    self.pool.iter().copied().filter(|v| self.graph.shape(*v).dims() == dims).collect();
                let other = same[self.below(same.len())];
                let kind = if self.below(2) == 0 { BinaryKind::Add } else { BinaryKind::Mul };
                self.add(Binary { kind }, &[x, other]);
            }
            7 => {
                let mut perm: Vec<usize> = (0..dims.len()).collect();
                self.draw.shuffle(&mut perm);
                self.add(Permute { perm }, &[x]);
            }
            8 => {
                let len: usize = dims.iter().product();
                let shapes = [vec![len / channels, channels], dims.clone(), vec![1, 1, len / channels, channels]];
                let shape = Shape::from(shapes[self.below(shapes.len())].clone());
                self.add(Reshape { shape }, &[x]);
            }
            9 => {
                let p = if self.below(2) == 0 { 0.0 } else { 0.4 };
                self.add(Dropout { p, stream: at as u32 }, &[x, key]);
            }
            11 | 12 if dims.len() == 4 && dims[1].min(dims[2]) > 1 => {
                let (w, b) = (self.parameter([4, 3, 3, channels]), self.parameter([4]));
                let conv = Conv2d { stride: [1, 1], padding: [1; 4], dilation: [1, 1], groups: 1, bias: true };
                let y = self.add(conv, &[x, w, b]);
                let pool =
                    MaxPool2d { kernel: [2; 2], stride: [2; 2], padding: [0; 2], dilation: [1; 2], ceil_mode: false };
                let y = self.add(pool, &[y]);
                let act = ACTIVATIONS[self.below(2)];
                self.add(ActivationOp { act }, &[y]);
            }
            13 => {
                let w = self.parameter([channels, channels]);
                let y = self.add(Linear { bias: false }, &[x, w]);
                self.add(Binary { kind: BinaryKind::Add }, &[y, x]);
            }
            14 => {
                let y = self.batch_norm(x);
                let act = ACTIVATIONS[self.below(ACTIVATIONS.len())];
                self.add(ActivationOp { act }, &[y]);
            }
            10 => {
                self.add(Concat { axis: 0 }, &[x]);
            }
            _ => {
                self.add(Softmax {}, &[x]);
            }
        }
    }

    /// A graph of a loss, with 16-bit floats where autocast has them if `half`, the gradients of its parameters if `train`,
    /// and their sums.
    fn finish(mut self, train: bool, half: Option<DType>) -> (Graph, Values) {
        let y = *self.pool.last().unwrap();
        let target = self.variable(DType::F32, self.graph.shape(y).clone(), Stream::normal);
        let loss = self.graph.add1(LossOp::from(ElementwiseLoss::Mse), &[y, target]).unwrap();
        self.graph.values[loss.index()].role = Role::Output;
        if let Some(half) = half {
            autocast(&mut self.graph, half).unwrap();
        }
        if train {
            let one = self.variable(DType::F32, [1], |_| 1.0);
            let parameters = self.parameters.clone();
            let grads = backward(&mut self.graph, &[(loss, one)], &parameters).unwrap();
            for (parameter, grad) in parameters.into_iter().zip(grads) {
                let sum = self.variable(DType::F32, self.graph.shape(parameter).clone(), |_| 0.5);
                if let Some(grad) = grad {
                    self.graph.add(AccumulateGrad {}, &[grad, sum]).unwrap();
                }
            }
        }
        verify(&self.graph).unwrap();
        (self.graph, self.values)
    }
}

fn random_graph(seed: u64, train: bool, half: Option<DType>) -> (Graph, Values) {
    let mut b = Builder::new(seed);
    let start = if b.below(2) == 0 { vec![2, 3, 2, 4] } else { vec![5, 4] };
    let x = b.parameter(start);
    b.pool.push(x);
    let key = b.variable(DType::U32, [4], |s| f64::from(s.below(1000)));
    for part in 0..2 + b.below(12) {
        b.graph.set_origin(&format!("part{}", part / 3));
        b.grow(key);
    }
    b.graph.set_origin("");
    b.finish(train, half)
}

/// What the host sees after a run: outputs and variables.
fn results(graph: &Graph, start: &Values) -> Values {
    let mut values = start.clone();
    evaluate(graph, &mut values);
    values.retain(|id, _| graph.value(*id).role != Role::Temporary);
    values
}

/// Runs `pass` on random graphs, for training and without gradients; returns how many nodes went away in all.
fn unchanged_by(fused: bool, pass: impl Fn(&mut Graph)) -> usize {
    let mut removed = 0;
    for seed in 0..GRAPHS {
        for train in [false, true] {
            // Fusion spares a rounding of what it fuses, so it is looked at in single precision only.
            let half = [None, Some(DType::BF16), Some(DType::F16)][if fused { 0 } else { seed as usize % 3 }];
            let (mut graph, start) = random_graph(seed, train, half);
            let (nodes, before) = (graph.nodes.len(), results(&graph, &start));
            pass(&mut graph);
            verify(&graph).unwrap_or_else(|e| panic!("graph {seed}: {e}\n{graph}"));
            let after = results(&graph, &start);
            let bits = |v: &Values| -> Vec<Vec<u64>> {
                v.values().map(|data| data.iter().map(|x| x.to_bits()).collect()).collect()
            };
            assert_eq!(bits(&before), bits(&after), "graph {seed}, training {train}:\n{graph}");
            removed += nodes.saturating_sub(graph.nodes.len());
        }
    }
    removed
}

#[test]
fn simplification_changes_no_bit() {
    let removed = unchanged_by(false, simplify);
    assert!(removed > GRAPHS as usize, "only {removed} nodes were removed");
}

/// The passes `recompute` and `fusions`, with what the patterns of these names take, one after the other.
fn join(graph: &mut Graph, names: &[&str]) {
    let patterns: Vec<&Pattern> =
        names.iter().map(|name| FUSIONS.iter().find(|pattern| pattern.name == *name).unwrap()).collect();
    recompute(graph, &|op, operands| {
        patterns.iter().any(|p| Pattern::any_takes(slice::from_ref(*p), op, operands.clone()))
    });
    patterns.into_iter().for_each(|pattern| fuse(graph, pattern));
}

#[test]
fn fusions_change_no_bit() {
    let least = [("pool", GRAPHS / 3), ("residual", 20), ("fuse", GRAPHS / 3), ("norm_grad", 10), ("chain", GRAPHS)];
    for (name, least) in least {
        let removed = unchanged_by(true, |graph| join(graph, &[name]));
        assert!(removed > least as usize, "`{name}`: only {removed} nodes were removed");
    }
    // One after the other, after the pass that leaves less for them.
    let removed = unchanged_by(true, |graph| {
        simplify(graph);
        join(graph, &["fold", "pool", "residual", "fuse", "norm_grad", "chain"]);
    });
    assert!(removed > GRAPHS as usize, "only {removed} nodes were removed");
}

#[test]
fn what_is_computed_again_changes_no_bit() {
    let layers = |names: &[&str]| Recompute::Layers(names.iter().map(|name| name.to_string()).collect());
    let every = layers(&["part0", "part1", "part2", "part3", "part4"]);
    for recompute in [every, layers(&["part0"]), layers(&["part1", "part2"]), Recompute::Automatic] {
        let added = std::cell::Cell::new(0);
        unchanged_by(false, |graph| {
            let nodes = graph.nodes.len();
            rematerialize(graph, &recompute, &|graph| update_early(graph, true));
            added.set(added.get() + graph.nodes.len() - nodes);
        });
        assert!(added.get() > GRAPHS as usize / 3, "{recompute:?}: only {} nodes were added", added.get());
    }
    // In front of it the pass that is cheap, and after it fusions.
    unchanged_by(true, |graph| {
        simplify(graph);
        let patterns = ["fold", "pool", "residual", "fuse", "norm_grad", "chain"];
        join(graph, &[]);
        rematerialize(graph, &Recompute::Automatic, &|_| {});
        join(graph, &patterns);
    });
}

#[test]
fn advancing_changes_no_bit() {
    let mut moved = 0;
    for seed in 0..GRAPHS {
        let (mut graph, start) = random_graph(seed, true, None);
        let (before, order) = (results(&graph, &start), graph.nodes.clone());
        update_early(&mut graph, true);
        verify(&graph).unwrap_or_else(|e| panic!("graph {seed}: {e}\n{graph}"));
        assert_eq!(before, results(&graph, &start), "graph {seed}:\n{graph}");
        assert_eq!(order.len(), graph.nodes.len());
        moved += usize::from(order != graph.nodes);
    }
    assert!(moved > GRAPHS as usize / 3, "only {moved} graphs changed");
}

#[test]
fn both_passes_find_all_that_they_look_for() {
    unchanged_by(true, |graph| {
        simplify(graph);
        join(graph, &["residual", "fuse"]);
        let once = graph.clone();
        simplify(graph);
        join(graph, &["residual", "fuse"]);
        assert_eq!(once.nodes.len(), graph.nodes.len(), "a second round found more:\n{once}");
    });
}
