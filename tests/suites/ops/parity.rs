//! Backends against the reference.

use crate::case::{Built, Case};
use crate::cases::{all, families, family, is_asked_for, is_of_part};
use crate::planner::plan;
use crate::root::Cases;
use crate::rounded::Rounded;
use half::bf16;
use runner::backend::cpu::CpuBackend;
use runner::backend::cpu::simd::SimdLevel;
use runner::backend::cpu::simd::bf16::Bf16Unit;
use runner::backend::reference::elements::{decode, disagreement, encode, largest, magnitudes, scaled};
use runner::backend::reference::{Values, evaluate};
use runner::backend::{Backend, Executable, HostBuffer};
use runner::graph::op::{Activation, ActivationOp, BinaryKind, Fused, Pattern};
use runner::graph::{DType, Graph, Node, Op, Role, ValueId};
use runner::plan::Plan;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// Error allowed to arithmetic in 32-bit floats, relative to the numbers that it adds up.
const TOLERANCE: f64 = 1e-5;

/// Error allowed to a result of type `dtype`, relative to the numbers that it adds up: for 16-bit floats the distance of
/// two neighbours, since an error before the last rounding may push it the other way.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 1.0 / 128.0,
        DType::F16 => 1.0 / 1024.0,
        _ => TOLERANCE,
    }
}

/// Writes the operands to their variables and to the batch.
pub fn fill(executable: &mut dyn Executable, batch: &mut HostBuffer, plan: &Plan, built: &Built) {
    fill_with(executable, batch, plan, built, &encoded(built));
}

/// The bytes of all operands.
fn encoded(built: &Built) -> Vec<(ValueId, Vec<u8>)> {
    built.values.iter().map(|(id, data)| (*id, encode(built.graph.value(*id).dtype, data))).collect()
}

fn fill_with(
    executable: &mut dyn Executable,
    batch: &mut HostBuffer,
    plan: &Plan,
    built: &Built,
    operands: &[(ValueId, Vec<u8>)],
) {
    for (id, bytes) in operands {
        match built.graph.value(*id).role {
            Role::Parameter(var) | Role::State(var) => executable.upload(var, bytes).unwrap(),
            Role::Input(input) => {
                let at = plan.slot.inputs.iter().find(|i| i.input == input).unwrap().offset;
                batch.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Role::ShardInput(_, _) | Role::Temporary | Role::Output => {
                unreachable!("nothing but operands has a value before the run")
            }
        }
    }
}

/// The bytes of all variables and outputs after a run of the case on `backend`.
pub fn run(backend: &dyn Backend, built: &Built) -> BTreeMap<ValueId, Vec<u8>> {
    // Twice from the same start: the second run finds memory that is no longer clear.
    run_times(2, backend, built)
}

fn run_times(times: usize, backend: &dyn Backend, built: &Built) -> BTreeMap<ValueId, Vec<u8>> {
    let plan = Arc::new(plan(backend, built.graph.clone(), built.variables.clone()));
    let mut executable: Box<dyn Executable> = backend.compile(plan.clone()).unwrap();
    let mut batch = backend.host_buffer(plan.slot.bytes.max(1)).unwrap();
    let operands = encoded(built);
    for _ in 0..times {
        fill_with(executable.as_mut(), &mut batch, &plan, built, &operands);
        executable.run(0, 0, &batch).unwrap();
        executable.wait_slot(0).unwrap();
    }
    let mut results = BTreeMap::new();
    for (i, value) in built.graph.values.iter().enumerate() {
        let id = ValueId(i as u32);
        let mut bytes = vec![0; value.bytes()];
        match value.role {
            Role::Parameter(var) | Role::State(var) => executable.download(var, &mut bytes).unwrap(),
            Role::Output => executable.output(0, id, &mut bytes).unwrap(),
            Role::Input(_) | Role::ShardInput(_, _) | Role::Temporary => continue,
        }
        results.insert(id, bytes);
    }
    results
}

/// True for a group that adds up products of its operands, perhaps with an activation after them.
fn is_sum(op: &Fused) -> bool {
    let (head, rest) = op.steps.split_first().expect("a group has steps");
    let first = matches!(
        head.op,
        Op::Linear(_) | Op::LinearGradInput(_) | Op::Conv2d(_) | Op::Conv2dGradInput(_) | Op::MaxPool2dGrad(_)
    );
    let then = |op: &Op| match op {
        Op::Binary(op) => op.kind == BinaryKind::Add,
        Op::Activation(_) | Op::ActivationGrad(_) | Op::MaxPool2d(_) => true,
        Op::Conv2dGradInput(_) | Op::Conv2dGradWeight(_) => true,
        _ => false,
    };
    first && rest.iter().all(|step| then(&step.op))
}

/// For every element that `node` writes, the error allowed.
fn allowed(graph: &Graph, node: &Node, operands: &Values, written: ValueId, expected: &[f64]) -> Vec<f64> {
    let dtype = graph.value(written).dtype;
    let tolerance = tolerance(dtype);
    if !dtype.is_activation() && dtype != DType::F64 {
        return vec![0.0; expected.len()];
    }
    let sums: Op = match &node.op {
        // Nothing is computed.
        Op::Reshape(_)
        | Op::Permute(_)
        | Op::Concat(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::NewFull(_)
        | Op::MaxPool2d(_)
        | Op::AdaptiveMaxPool2d(_)
        | Op::Embedding(_)
        | Op::Cast(_) => {
            return vec![0.0; expected.len()];
        }
        op @ (Op::Linear(_)
        | Op::LinearGradInput(_)
        | Op::LinearGradWeight(_)
        | Op::Conv2d(_)
        | Op::Conv2dGradInput(_)
        | Op::Conv2dGradWeight(_)
        | Op::SumTo(_)) => op.clone(),
        Op::Fused(op) if is_sum(op) => {
            let mut op = op.clone();
            // No activation is steeper than 2; what a ReLU lets pass does not depend on the size of what it saw.
            for step in &mut op.steps {
                if let Op::Activation(_) = step.op {
                    step.op = ActivationOp { act: Activation::Relu }.into();
                }
            }
            op.into()
        }
        // The largest element is the scale of all. That of a convolution is what it had before it was cut off at 6.
        op => {
            let uncut = uncut(op).map(|op| largest(&computed(graph, node, op, operands.clone())[&written]));
            return vec![tolerance * uncut.unwrap_or_else(|| largest(expected)); expected.len()];
        }
    };
    // The sum of the absolute products: the same operation on absolute operands.
    let values: Values = operands.iter().map(|(id, v)| (*id, magnitudes(v))).collect();
    scaled(&computed(graph, node, sums, values)[&written], 2.0 * tolerance)
}

/// What `node` computes from `values` if its operation is `op`.
fn computed(graph: &Graph, node: &Node, op: Op, mut values: Values) -> Values {
    let mut single = graph.clone();
    single.nodes = vec![Node { op, ..node.clone() }];
    evaluate(&single, &mut values);
    values
}

/// A group that begins with a convolution and has a ReLU6, with ReLU in its place.
fn uncut(op: &Op) -> Option<Op> {
    let Op::Fused(group) = op else { return None };
    let is_cut = |op: &Op| matches!(op, Op::Activation(ActivationOp { act: Activation::Relu6 }));
    let mut group = group.clone();
    if !matches!(group.steps[0].op, Op::Conv2d(_)) || !group.steps.iter().any(|step| is_cut(&step.op)) {
        return None;
    }
    for step in group.steps.iter_mut().filter(|step| is_cut(&step.op)) {
        step.op = ActivationOp { act: Activation::Relu }.into();
    }
    Some(group.into())
}

/// A value that a node writes: its elements, and the error allowed to each.
struct Written {
    id: ValueId,
    expected: Vec<f64>,
    allowed: Vec<f64>,
}

/// What a node is to write.
struct Expected(Vec<Written>);

impl Expected {
    /// What `node` writes on `operands`.
    fn new(graph: &Graph, node: &Node, operands: &Values) -> Self {
        let mut single = graph.clone();
        single.nodes = vec![node.clone()];
        let mut values = operands.clone();
        evaluate(&single, &mut values);
        let updated = node.op.rules().mutates(node.inputs.len()).into_iter().map(|m| node.inputs[m]);
        let one = |id: ValueId| {
            let expected = values[&id].clone();
            let allowed = allowed(graph, node, operands, id, &expected);
            Written { id, expected, allowed }
        };
        Expected(node.outputs.iter().copied().chain(updated).map(one).collect())
    }
}

/// The number of a node in the case of that name.
type Key = (String, usize);

/// What a node is to write, made once for all tests of this binary: most of their time would go into making it again for
/// every backend.
fn shared(key: Key, make: impl FnOnce() -> Expected) -> Arc<Expected> {
    type Cell = Arc<OnceLock<Arc<Expected>>>;
    static KNOWN: LazyLock<Mutex<HashMap<Key, Cell>>> = LazyLock::new(Mutex::default);
    let cell = KNOWN.lock().unwrap().entry(key).or_default().clone();
    // The map is free meanwhile. A thread that wants the same result waits.
    cell.get_or_init(|| Arc::new(make())).clone()
}

/// Compares what a backend has computed with the reference. Each node is judged by itself, on the operands that the backend
/// gave it, so that no error is excused by an earlier one. What is allowed is `factor` times that of its type.
fn compare(case: &Case, built: &Built, found: &BTreeMap<ValueId, Vec<u8>>, factor: f64) -> Result<(), String> {
    let found = |id: ValueId| decode(built.graph.value(id).dtype, &found[&id]);
    let mut known = built.values.clone();
    let mut computed = BTreeSet::new();
    for (at, node) in built.graph.nodes.iter().enumerate() {
        let operands: Values = node.inputs.iter().map(|i| (*i, known[i].clone())).collect();
        // On operands that no node has written, every backend is to give the same.
        let expected = match node.inputs.iter().any(|i| computed.contains(i)) {
            false => shared((case.name.clone(), at), || Expected::new(&built.graph, node, &operands)),
            true => Arc::new(Expected::new(&built.graph, node, &operands)),
        };
        for Written { id, expected, allowed } in &expected.0 {
            let found = found(*id);
            if let Some((i, a)) = disagreement(&found, expected, allowed, factor) {
                return Err(format!(
                    "{}: element {i} of value {} of `{}` is {}, not {} ± {a:e}",
                    case.name,
                    id.0,
                    node.op.label(),
                    found[i],
                    expected[i]
                ));
            }
            known.insert(*id, found);
            computed.insert(*id);
        }
    }
    Ok(())
}

/// True if the case's operation is none that a backend must have a pattern for, or one of `patterns` takes it.
pub fn has_kernel(patterns: &[Pattern], case: &Case) -> bool {
    if !matches!(case.op, Op::Fused(_)) {
        return true;
    }
    let built = case.build();
    let node = &built.graph.nodes[0];
    Pattern::any_takes(patterns, &node.op, node.inputs.iter().map(|v| built.graph.value(*v)).collect())
}

/// The cases of a family that `backend` can compute, of those that are asked for.
fn chosen(backend: &dyn Backend, name: &str) -> Vec<&'static Case> {
    let types = [DType::F32, DType::BF16, DType::F16].into_iter().filter(|d| backend.supports(*d));
    let cases = types.flat_map(|dtype| family(name, dtype));
    let is_part = |case: &Case| matches!(&case.op, Op::OptimizerStep(op) if !op.counts);
    cases
        .filter(|case| is_asked_for(&case.name) && has_kernel(backend.fusions(), case))
        .filter(|case| backend.updates_apart() || !is_part(case))
        .collect()
}

/// These cases on one kind of backend, set up in several ways (numbers of threads): the first agrees with the reference,
/// and all give the same bits. A new backend needs a test of one line, a call of this.
pub fn check_some(backends: &[Box<dyn Backend>], wanted: impl Fn(&Case) -> bool) {
    check_families(backends, &families(), wanted);
}

/// As [`check_some`], for these cases of these families alone.
pub fn check_families(backends: &[Box<dyn Backend>], names: &[&str], wanted: impl Fn(&Case) -> bool) {
    let cases = names.iter().flat_map(|name| chosen(backends[0].as_ref(), name));
    check_cases(backends, cases.filter(|case| wanted(case)), 1.0, 2);
}

/// As [`check_some`], for the cases of a family on 32-bit floats, where operands of products are rounded to TF32: numbers with as many
/// digits as those of binary16. There it is results that are rounded, once; here it is both operands of two products.
pub fn check_tf32(backends: &[Box<dyn Backend>], name: &str, wanted: impl Fn(&Case) -> bool) {
    let single = |case: &Case| case.outputs()[0].0 == DType::F32;
    let cases = chosen(backends[0].as_ref(), name).into_iter().filter(|case| single(case) && wanted(case));
    check_cases(backends, cases, 4.0 * tolerance(DType::F16) / TOLERANCE, 2);
}

/// The cases, each run so many times from the same start by the first backend: what it has kept from one run to the next must not show.
fn check_cases(backends: &[Box<dyn Backend>], cases: impl Iterator<Item = &'static Case>, factor: f64, times: usize) {
    let mut failures = Vec::new();
    let mut cases: Vec<&Case> = cases.collect();
    let mut turn = Cases::begin(&mut cases);
    for case in cases {
        if !turn.wants(&case.name) {
            continue;
        }
        let built = case.build();
        let first = run_times(times, backends[0].as_ref(), &built);
        let mut found = Vec::from_iter(compare(case, &built, &first, factor).err());
        for other in &backends[1..] {
            if run_times(1, other.as_ref(), &built) != first {
                found.push(format!("{}: {} has other bits", case.name, other.describe()));
            }
        }
        for failure in &found {
            println!("FAILED {failure}");
        }
        failures.extend(found);
    }
    turn.done();
    assert!(failures.is_empty(), "{} on {}:\n{}", failures.len(), backends[0].describe(), failures.join("\n"));
}

#[test]
fn a_backend_that_rounds_passes() {
    let backends: [Box<dyn Backend>; 1] = [Box::new(Rounded { error: 0.0 })];
    let cases = families().into_iter().flat_map(|name| chosen(backends[0].as_ref(), name));
    // It keeps nothing from one run to the next. That what is allowed is more than rounding shows in a part of the cases.
    check_cases(&backends, cases.step_by(3), 1.0, 1);
}

#[test]
fn a_backend_that_errs_fails() {
    // Nearly all cases notice an error of a thousandth; those whose expected results are all zero cannot. A part of them shows it.
    let some: Vec<&Case> = all().into_iter().step_by(3).collect();
    let fails = |case: &&&Case| {
        let built = case.build();
        compare(case, &built, &run_times(1, &Rounded { error: 1e-3 }, &built), 1.0).is_err()
    };
    let failed = some.iter().filter(fails).count();
    assert!(failed * 10 > some.len() * 9, "only {failed} of {} cases noticed", some.len());
}

/// Numbers of threads whose bits are compared: first the most, of which parts of a kernel share memory. What threads share does not depend on the level, and vectors of plain code are slow: where there are others, these are two threads' alone.
fn threads_of(level: SimdLevel) -> &'static [usize] {
    let has_others = SimdLevel::supported().count() > 1;
    if level == SimdLevel::Scalar && has_others { &[2] } else { &[5, 1, 2] }
}

#[test]
fn the_cpu_agrees_with_the_reference() {
    for level in SimdLevel::supported() {
        let with = |threads: &usize| Box::new(CpuBackend::with_level(Some(*threads), level)) as Box<dyn Backend>;
        let backends = Vec::from_iter(threads_of(level).iter().map(with));
        check_some(&backends, |case| is_run_at(level, case));
    }
}

/// All cases at the best level of this machine, and at the others those of the part that is asked for.
fn is_run_at(level: SimdLevel, case: &Case) -> bool {
    level == SimdLevel::detect() || is_of_part(&case.name)
}

/// Products in bf16, of operands that it has, so that nothing is lost where factors are rounded: but for attention, whose weights and
/// whose gradients by the scores are factors, too, and for recurrent layers, whose states and whose gradients by the gates are. All units and numbers of threads give the same bits, or
/// those of single precision where a unit leaves a product to it.
#[test]
fn the_cpu_agrees_in_bf16() {
    let product = |case: &Case| {
        let linear = matches!(case.op, Op::Linear(_) | Op::LinearGradInput(_) | Op::LinearGradWeight(_));
        let conv = matches!(case.op, Op::Conv2d(_) | Op::Conv2dGradInput(_) | Op::Conv2dGradWeight(_));
        linear || conv || matches!(case.op, Op::Attention(_) | Op::Recurrent(_))
    };
    let inner = |op: &Op| matches!(op, Op::Attention(_) | Op::Recurrent(_));
    let factor = |op: &Op| if inner(op) { tolerance(DType::BF16) / TOLERANCE } else { 1.0 };
    for level in SimdLevel::supported() {
        let with = |unit: Bf16Unit, threads: usize| -> Box<dyn Backend> {
            Box::new(CpuBackend::with_level(Some(threads), level).with_unit(Some(unit)).in_bf16(true))
        };
        // What threads share does not depend on the unit, and plain code is slow: where there is another unit, it is one thread's.
        let mut units: Vec<Bf16Unit> = Bf16Unit::supported().collect();
        units.reverse();
        let threads = |unit| if unit == units[0] { threads_of(level) } else { &[1] };
        let backends: Vec<_> = units
            .iter()
            .copied()
            .flat_map(|unit| threads(unit).iter().map(move |threads| (unit, *threads)))
            .map(|(unit, threads)| with(unit, threads))
            .collect();
        let (mut compared, single) = (0, CpuBackend::with_level(Some(1), level));
        let mut others = 0;
        for case in all().into_iter().filter(|case| product(case) && is_run_at(level, case)) {
            let case = Case { name: format!("{}, on numbers of bf16", case.name), ..case.clone() };
            let mut built = case.build();
            for (id, data) in &mut built.values {
                if built.graph.value(*id).dtype == DType::F32 {
                    data.iter_mut().for_each(|x| *x = bf16::from_f64(*x).to_f64());
                }
            }
            let first = run(backends[0].as_ref(), &built);
            compare(&case, &built, &first, factor(&case.op)).unwrap_or_else(|why| panic!("{why}"));
            let of_single = run_times(1, &single, &built);
            for other in &backends[1..] {
                let found = run_times(1, other.as_ref(), &built);
                // A unit may leave a product to single precision, where that is faster; a recurrent layer has several.
                let may_leave = units.iter().any(|unit| !unit.is_far_faster());
                let some = matches!(case.op, Op::Recurrent(_));
                for (id, bits) in &found {
                    let left = may_leave && (some || [bits, &first[id]].contains(&&of_single[id]));
                    assert!(bits == &first[id] || left, "{}: {} has other bits", case.name, other.describe());
                }
                if found != first {
                    compare(&case, &built, &found, factor(&case.op)).unwrap_or_else(|why| panic!("{why}"));
                }
            }
            compared += 1;
            others += usize::from(of_single != first);
        }
        assert!(compared > 20 && others > 5, "{level}: {others} of {compared} cases are computed otherwise in bf16");
    }
}
