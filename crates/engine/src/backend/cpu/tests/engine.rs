use super::harness::{Tensor, plain_variable, simple_plan};
use crate::backend::cpu::CpuBackend;
use crate::backend::cpu::simd::SimdLevel;
use crate::backend::{Backend, Detail, Executable, HostBuffer, Work};
use crate::graph::op::{
    Activation, ActivationOp, Binary, BinaryKind, CrossEntropy, Linear, LinearGradWeight, Loss, LossGrad, LossOp,
    Normalize, OptimizerStep, Reshape,
};
use crate::graph::op::{Algorithm, TensorOptions};
use crate::graph::{DType, Graph, Input, NodeId, Role, Shape, ValueId, VarId, Variables};
use crate::plan::{Place, Plan, Region};
use std::sync::Arc;

const ROWS: usize = 6;
const CLASSES: usize = 3;

/// A linear classifier on images of 2×2 bytes: one program that trains it, one that only computes the logits.
struct Classifier {
    plan: Arc<Plan>,
    weight: VarId,
    step: VarId,
    loss: ValueId,
    logits: ValueId,
    grad_node: NodeId,
}

fn classifier(backend: &CpuBackend) -> Classifier {
    let mut vars = Variables::new();
    let weight = vars.get_or_add(plain_variable("weight", DType::F32, &Shape::from([CLASSES, 4])));
    let step = vars.get_or_add(plain_variable("step", DType::I64, &Shape::from([1])));
    let ones = vars.get_or_add(plain_variable("one", DType::F32, &Shape::from([1])));
    let forward = |g: &mut Graph| {
        let x = g.input(Input::Field(0), DType::U8, Shape::from([ROWS, 2, 2, 1]));
        let x =
            g.add1(Normalize { scale: 1.0 / 255.0, mean: vec![0.5], std: vec![0.5], to: DType::F32 }, &[x]).unwrap();
        let x = g.add1(Reshape { shape: Shape::from([ROWS, 4]) }, &[x]).unwrap();
        let w = g.variable(&vars, weight);
        (x, w, g.add1(Linear { bias: false }, &[x, w]).unwrap())
    };
    let mut train = Graph::new();
    let (x, w, y) = forward(&mut train);
    let t = train.input(Input::Field(1), DType::I32, Shape::from([ROWS]));
    let schedule = train.input(Input::Schedule, DType::F32, Shape::from([4]));
    let loss = train.add(LossOp::from(CrossEntropy::smoothed(0.0)), &[y, t]).unwrap();
    let one = train.variable(&vars, ones);
    let dy = train
        .add1(LossGrad { loss: Loss::from(CrossEntropy::smoothed(0.0)), weighted: false }, &[y, t, loss[1], one])
        .unwrap();
    let dw = train.add1(LinearGradWeight { bias: false }, &[x, dy]).unwrap();
    let grad_node = NodeId(train.nodes.len() as u32 - 1);
    let counter = train.variable(&vars, step);
    let algorithm = Algorithm::Sgd { momentum: 0.0, dampening: 0.0, nesterov: false };
    let tensors = vec![TensorOptions { lr_scale: 1.0, weight_decay: 0.0 }];
    let update = OptimizerStep {
        algorithm,
        clip_norm: None,
        clip_value: None,
        scaled: false,
        counts: true,
        tensors,
        parts: Vec::new(),
    };
    train.add(update, &[schedule, loss[0], counter, w, dw]).unwrap();
    train.values[loss[0].index()].role = Role::Output;

    let mut eval = Graph::new();
    let (_, _, logits) = forward(&mut eval);
    eval.values[logits.index()].role = Role::Output;
    let plan = Arc::new(simple_plan(vec![train, eval], vars, backend, &[]));
    Classifier { plan, weight, step, loss: loss[0], logits, grad_node }
}

/// A batch whose classes differ in which pixel is bright.
fn batch(backend: &CpuBackend, plan: &Plan) -> HostBuffer {
    let mut buffer = backend.host_buffer(plan.slot.bytes).unwrap();
    for x in &plan.slot.inputs {
        let data = match x.input {
            Input::Field(0) => {
                Tensor::from_u8([24], &(0..24).map(|i| if i % 4 == i / 4 % 3 { 255 } else { 20 }).collect::<Vec<_>>())
            }
            Input::Field(1) => Tensor::from_i32([ROWS], &[0, 1, 2, 0, 1, 2]),
            Input::Schedule => Tensor::from_f32([4], &[0.5, 1.0, 1.0, 0.0]),
            Input::Field(_) | Input::Shares | Input::Random | Input::Averaging | Input::Shard => unreachable!(),
        };
        buffer.bytes_mut()[x.offset..x.offset + data.bytes.len()].copy_from_slice(&data.bytes);
    }
    buffer
}

fn read(exe: &mut dyn Executable, program: usize, value: ValueId, n: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * n];
    exe.output(program, value, &mut bytes).unwrap();
    bytes.chunks(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn programs_share_variables_and_learn() {
    let backend = CpuBackend::with_level(Some(2), SimdLevel::detect());
    let c = classifier(&backend);
    let batch = batch(&backend, &c.plan);
    let mut exe = backend.compile(c.plan.clone()).unwrap();
    exe.upload(VarId(2), &1.0f32.to_ne_bytes()).unwrap();
    let mut losses = Vec::new();
    for _ in 0..20 {
        exe.run(0, 0, &batch).unwrap();
        exe.wait_slot(0).unwrap();
        losses.push(read(&mut *exe, 0, c.loss, 1)[0]);
    }
    assert!((losses[0] - 3f32.ln()).abs() < 1e-6, "all classes are equal at first: {}", losses[0]);
    assert!(losses.windows(2).all(|w| w[1] < w[0]) && losses[19] < 0.3, "{losses:?}");
    let mut counter = [0; 8];
    exe.download(c.step, &mut counter).unwrap();
    assert_eq!(i64::from_ne_bytes(counter), 20);
    exe.run(1, 0, &batch).unwrap();
    let logits = read(&mut *exe, 1, c.logits, ROWS * CLASSES);
    for (r, row) in logits.chunks(CLASSES).enumerate() {
        assert!((0..CLASSES).all(|k| k == r % 3 || row[k] < row[r % 3]), "{row:?}");
    }
    assert_eq!(exe.peak_bytes(), c.plan.persistent_bytes + c.plan.transient_bytes);
}

#[test]
fn a_trace_has_every_node_and_trains() {
    let backend = CpuBackend::with_level(Some(2), SimdLevel::detect());
    let c = classifier(&backend);
    let batch = batch(&backend, &c.plan);
    let mut exe = backend.compile(c.plan.clone()).unwrap();
    exe.upload(VarId(2), &1.0f32.to_ne_bytes()).unwrap();
    let nodes = c.plan.programs[0].graph.nodes.len();
    let spans = exe.trace(&[0], &batch, 2, Detail::Nodes).unwrap();
    let work: Vec<_> = spans.iter().map(|s| (s.step, s.work)).collect();
    let all = (0..2).flat_map(|step| (0..nodes).map(move |n| (step, Work::Node(NodeId(n as u32)))));
    assert_eq!(work, all.collect::<Vec<_>>());
    assert!(spans.iter().all(|s| 0.0 <= s.start && s.start <= s.end));
    assert!(spans.windows(2).all(|s| s[0].end <= s[1].start));
    let whole = exe.trace(&[0], &batch, 1, Detail::Programs).unwrap();
    assert_eq!(whole.iter().map(|s| s.work).collect::<Vec<_>>(), [Work::Program]);
    let mut counter = [0; 8];
    exe.download(c.step, &mut counter).unwrap();
    assert_eq!(i64::from_ne_bytes(counter), 3);
}

#[test]
fn peak_grows_with_what_is_used() {
    let backend = CpuBackend::with_level(Some(1), SimdLevel::Scalar);
    let c = classifier(&backend);
    let batch = batch(&backend, &c.plan);
    let mut exe = backend.compile(c.plan.clone()).unwrap();
    assert_eq!(exe.peak_bytes(), 0);
    exe.run(1, 0, &batch).unwrap();
    let eval = exe.peak_bytes();
    exe.run(0, 0, &batch).unwrap();
    assert!(0 < eval && eval < exe.peak_bytes());
}

#[test]
fn the_node_that_first_leaves_the_finite_is_found() {
    let backend = CpuBackend::with_level(Some(1), SimdLevel::detect());
    let c = classifier(&backend);
    let batch = batch(&backend, &c.plan);
    let mut exe = backend.compile(c.plan.clone()).unwrap();
    assert_eq!(exe.find_not_finite(0, &batch).unwrap(), None);
    let mut steps = [0; 8];
    exe.download(c.step, &mut steps).unwrap();
    exe.upload(c.weight, &[f32::INFINITY; CLASSES * 4].map(f32::to_ne_bytes).concat()).unwrap();
    let found = exe.find_not_finite(0, &batch).unwrap().unwrap();
    assert_eq!(c.plan.programs[0].graph.nodes[found.index()].op.rules().name(), "linear");
    // An infinite gradient of the loss shows up later, in the gradient that it multiplies.
    exe.upload(c.weight, &[0; CLASSES * 16]).unwrap();
    exe.upload(VarId(2), &f32::INFINITY.to_ne_bytes()).unwrap();
    let found = exe.find_not_finite(0, &batch).unwrap().unwrap();
    assert_eq!(found.0 + 1, c.grad_node.0);
}

#[test]
fn wrong_sizes_are_errors() {
    let backend = CpuBackend::with_level(Some(1), SimdLevel::Scalar);
    let c = classifier(&backend);
    let batch = batch(&backend, &c.plan);
    let mut exe = backend.compile(c.plan.clone()).unwrap();
    let said = exe.upload(c.weight, &[0; 3]).unwrap_err().to_string();
    assert!(said.contains("`weight`") && said.contains("48"), "{said}");
    assert!(exe.download(c.weight, &mut [0; 49]).is_err());
    assert!(exe.run(0, 0, &backend.host_buffer(c.plan.slot.bytes - 1).unwrap()).is_err());
    assert!(exe.run(2, 0, &batch).is_err());
    assert!(exe.output(0, c.loss, &mut [0; 8]).is_err());
}

/// A program of one operation on two variables, with its places changed.
fn compile_with(change: impl Fn(&mut Plan, [ValueId; 3])) -> anyhow::Result<()> {
    let backend = CpuBackend::with_level(Some(1), SimdLevel::Scalar);
    let mut vars = Variables::new();
    let ids = ["a", "b"].map(|n| vars.get_or_add(plain_variable(n, DType::F32, &Shape::from([32]))));
    let mut graph = Graph::new();
    let [a, b] = ids.map(|id| graph.variable(&vars, id));
    let y = graph.add1(Binary { kind: BinaryKind::Add }, &[a, b]).unwrap();
    graph.add1(ActivationOp { act: Activation::Relu }, &[y]).unwrap();
    let mut plan = simple_plan(vec![graph], vars, &backend, &[]);
    change(&mut plan, [a, b, y]);
    backend.compile(Arc::new(plan)).map(|_| ())
}

#[test]
fn plans_that_break_the_rules_are_refused() {
    let refused = |change: &dyn Fn(&mut Plan, [ValueId; 3])| format!("{:#}", compile_with(change).unwrap_err());
    compile_with(|_, _| ()).unwrap();
    // The first operand's memory may be taken over, the second one's not.
    compile_with(|p, [a, _, y]| p.programs[0].places[y.index()] = p.programs[0].places[a.index()]).unwrap();
    let said = refused(&|p, [_, b, y]| p.programs[0].places[y.index()] = p.programs[0].places[b.index()]);
    assert!(said.contains("output 0 overlaps operand 1"), "{said}");
    let said = refused(&|p, [a, _, y]| {
        let Place { region, offset } = p.programs[0].places[a.index()];
        p.programs[0].places[y.index()] = Place { region, offset: offset + 64 };
    });
    assert!(said.contains("overlaps operand"), "{said}");
    let said = refused(&|p, [.., y]| p.programs[0].places[y.index()].offset = 4);
    assert!(said.contains("not aligned"), "{said}");
    let said = refused(&|p, _| p.transient_bytes = 64);
    assert!(said.contains("of 64 bytes"), "{said}");
    let said = refused(&|p, [.., y]| p.programs[0].places[y.index()].region = Region::Slot);
    assert!(said.contains("batch slot") || said.contains("ends at"), "{said}");
}

#[test]
fn the_backend_describes_itself() {
    let backend = CpuBackend::with_level(Some(3), SimdLevel::Scalar);
    assert_eq!(backend.describe(), "cpu (3 threads, scalar)");
    assert_eq!(backend.host_buffer(100).unwrap().bytes(), [0; 100]);
    assert!(backend.host_buffer(0).unwrap().bytes().is_empty());
    // What the system has not got is a failure of the device, not the end of the process.
    let e = backend.host_buffer(usize::MAX / 4).err().unwrap();
    assert!(e.downcast_ref::<crate::backend::DeviceError>().is_some_and(|e| e.0.contains("not enough memory")), "{e}");
}
