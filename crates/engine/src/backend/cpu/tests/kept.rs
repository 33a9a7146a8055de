//! Weights that are packed once and kept from run to run.

use super::harness::{Tensor, plain_variable};
use crate::backend::cpu::CpuBackend;
use crate::backend::cpu::simd::SimdLevel;
use crate::backend::{Backend, Executable};
use crate::graph::op::{Activation, ActivationOp, BatchNormInfer, Conv2d, Fused, Linear, MaxPool2d, Source as From};
use crate::graph::{DType, Graph, Input, Node, Op, Role, Shape, ValueId, VarId, Variables};
use crate::plan::{NodeMemory, Plan, Source};
use std::sync::Arc;

/// One operation of each kernel that packs weights: its name, the operation, the shape of its input, that of its weight, and
/// those of its other operands.
fn operations() -> Vec<(&'static str, Op, Shape, Shape, Vec<Shape>)> {
    let conv =
        |stride, pad| Conv2d { stride: [stride; 2], padding: [pad; 4], dilation: [1; 2], groups: 1, bias: false };
    let channels = Shape::from([40]);
    let norm = BatchNormInfer { eps: 0.1, affine: true };
    let normed = Fused::of(conv(1, 1).into(), 2)
        .then(norm, [From::Step(0)].into_iter().chain((2..6).map(From::Operand)).collect())
        .then(ActivationOp { act: Activation::Relu }, vec![From::Step(1)]);
    let pool = MaxPool2d { kernel: [2; 2], stride: [2; 2], padding: [0; 2], dilation: [1; 2], ceil_mode: false };
    let pooled = |stride| {
        let group = Fused::of(conv(stride, 1).into(), 2).then(pool.clone(), vec![From::Step(0)]);
        group.with_result(1, 1).into()
    };
    let deep = Conv2d { groups: 32, ..conv(1, 1) };
    let (image, filter) = (Shape::from([2, 10, 10, 32]), Shape::from([40, 3, 3, 32]));
    vec![
        ("winograd", conv(1, 1).into(), image.clone(), filter.clone(), vec![]),
        ("winograd with batch norm", normed.into(), image.clone(), filter.clone(), vec![channels; 4]),
        ("winograd, pooled", pooled(1), image.clone(), filter.clone(), vec![]),
        ("dense", conv(2, 1).into(), Shape::from([2, 20, 20, 32]), filter.clone(), vec![]),
        ("dense, pooled", pooled(2), Shape::from([2, 20, 20, 32]), filter.clone(), vec![]),
        ("few pixels", conv(1, 1).into(), Shape::from([2, 2, 2, 32]), filter, vec![]),
        ("depthwise", deep.into(), image.clone(), [32, 3, 3, 1].into(), vec![]),
        ("pointwise", conv(1, 0).into(), image, Shape::from([40, 1, 1, 32]), vec![]),
        ("pointwise in stretches", conv(1, 0).into(), [1, 7, 7, 700].into(), [33, 1, 1, 700].into(), vec![]),
        ("linear", Linear { bias: false }.into(), Shape::from([30, 50]), Shape::from([70, 50]), vec![]),
    ]
}

/// Two programs of one operation, the second with the operands' roles the same and a weight of its own.
struct Case {
    plan: Arc<Plan>,
    weights: [VarId; 2],
    result: ValueId,
}

fn case(op: &Op, shapes: &[Shape], needs: impl Fn(&Graph, &Node) -> NodeMemory) -> Case {
    let mut vars = Variables::new();
    let mut variable = |name: String, shape: &Shape| vars.get_or_add(plain_variable(&name, DType::F32, shape));
    let weights = ["v", "w"].map(|name| variable(name.into(), &shapes[1]));
    let others: Vec<_> = shapes[2..].iter().enumerate().map(|(i, s)| variable(format!("x{i}"), s)).collect();
    let mut result = ValueId(0);
    let sources = weights.map(|weight| {
        let mut graph = Graph::new();
        let x = graph.input(Input::Field(0), DType::F32, shapes[0].clone());
        let weight = graph.variable(&vars, weight);
        let others = others.iter().map(|v| graph.variable(&vars, *v)).collect::<Vec<_>>();
        let operands: Vec<_> = [x, weight].into_iter().chain(others).collect();
        result = graph.add(op.clone(), &operands).unwrap()[0];
        graph.values[result.index()].role = Role::Output;
        Source { name: "p".into(), graph, loss: None, prediction: None }
    });
    Case { plan: Arc::new(Plan::new(Arc::new(vars), sources.into(), needs)), weights, result }
}

/// What a sequence of runs gives, between which weights and inputs change.
fn results(backend: &CpuBackend, case: &Case) -> Vec<Tensor> {
    let mut exe: Box<dyn Executable> = backend.compile(case.plan.clone()).unwrap();
    for (id, v) in case.plan.variables.iter() {
        let x = Tensor::normal(v.shape.clone(), id.0 as u64).map(|x| x.abs() + 0.1);
        exe.upload(id, &x.bytes).unwrap();
    }
    let mut batch = backend.host_buffer(case.plan.slot.bytes).unwrap();
    let mut results = Vec::new();
    let weight = |stream| Tensor::normal(case.plan.variables[case.weights[0]].shape.clone(), stream).bytes;
    // Run after run of a program; of the other, which uses the same memory; after a weight has changed, as a whole and in
    // part; after a run that was given up after its first node.
    for (at, program) in [0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0].into_iter().enumerate() {
        match at {
            8 => exe.upload(case.weights[0], &weight(50)).unwrap(),
            9 => exe.upload_part(case.weights[0], 64, &weight(51)[64..128]).unwrap(),
            _ => {}
        }
        let input = &case.plan.slot.inputs[0];
        batch.bytes_mut().copy_from_slice(&{
            let mut bytes = Tensor::normal(input.shape.clone(), 100 + at as u64).bytes;
            bytes.resize(case.plan.slot.bytes, 0);
            bytes
        });
        if at == 10 {
            exe.find_not_finite(program, &batch).unwrap();
        }
        exe.run(program, 0, &batch).unwrap();
        let v = case.plan.programs[program].graph.value(case.result);
        let mut bytes = vec![0; v.bytes()];
        exe.output(program, case.result, &mut bytes).unwrap();
        results.push(Tensor { dtype: v.dtype, shape: v.shape.clone(), bytes });
    }
    results
}

#[test]
fn kept_weights_change_no_bit() {
    for level in SimdLevel::supported() {
        let backend = CpuBackend::with_level(Some(2), level);
        for (name, op, x, w, others) in operations() {
            let shapes: Vec<Shape> = [x, w].into_iter().chain(others).collect();
            let kept = case(&op, &shapes, |g, n| backend.node_memory(g, n));
            assert!(kept.plan.programs.iter().all(|p| p.kept[0].1 > 0), "{name}, {level}: nothing is kept");
            let plain = case(&op, &shapes, |g, n| backend.workspace(g, n).into());
            assert!(results(&backend, &kept) == results(&backend, &plain), "{name}, {level}");
        }
    }
}

#[test]
fn large_batches_keep_nothing() {
    let backend = CpuBackend::with_level(Some(2), SimdLevel::detect());
    for (name, op, x, w, others) in operations() {
        let mut dims: Vec<usize> = x.dims().to_vec();
        dims[0] *= 3000;
        let shapes: Vec<Shape> = [dims.into(), w].into_iter().chain(others).collect();
        let case = case(&op, &shapes, |g, n| backend.node_memory(g, n));
        assert!(case.plan.programs.iter().all(|p| p.kept[0].1 == 0), "{name}");
    }
}
