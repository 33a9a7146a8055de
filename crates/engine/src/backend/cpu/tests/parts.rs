//! Programs that go through a batch in parts.

use crate::backend::cpu::CpuBackend;
use crate::backend::cpu::simd::SimdLevel;
use crate::backend::{Backend, Detail, Executable, HostBuffer, Work};
use crate::graph::{Graph, Input, NodeId, Role, ValueId, Variables};
use crate::passes::split_batch::{divide, tests as nets};
use crate::plan::{Plan, Source};
use std::sync::Arc;

pub(super) type Numbers = Vec<Vec<f32>>;

fn bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|x| (*x as f32).to_ne_bytes()).collect()
}

/// The program of `graph` with its variables, and a batch.
pub(super) fn ready(
    backend: &CpuBackend,
    graph: &Graph,
    values: &crate::backend::reference::Values,
    vars: Variables,
) -> (Box<dyn Executable>, HostBuffer, Arc<Plan>) {
    let source = Source { name: "eval".into(), graph: graph.clone(), loss: None, prediction: None };
    let plan = Arc::new(Plan::new(Arc::new(vars), vec![source], |graph, node| backend.node_memory(graph, node)));
    let mut exe = backend.compile(plan.clone()).unwrap();
    let mut batch = backend.host_buffer(plan.slot.bytes).unwrap();
    for (id, numbers) in values {
        match graph.value(*id).role {
            Role::State(var) => exe.upload(var, &bytes(numbers)).unwrap(),
            Role::Input(input) => {
                assert_eq!(input, Input::Field(0));
                batch.bytes_mut()[..4 * numbers.len()].copy_from_slice(&bytes(numbers));
            }
            role => panic!("{role:?}"),
        }
    }
    (exe, batch, plan)
}

pub(super) fn outputs(exe: &mut dyn Executable, graph: &Graph) -> Numbers {
    let is_output = |value: &ValueId| graph.value(*value).role == Role::Output;
    let read = |value: ValueId| {
        let mut bytes = vec![0; graph.value(value).bytes()];
        exe.output(0, value, &mut bytes).unwrap();
        bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect()
    };
    (0..graph.values.len() as u32).map(ValueId).filter(is_output).map(read).collect()
}

/// Whatever is read again or written late has its own memory, in every round and in every run.
#[test]
fn sections_at_random_compute_what_the_whole_batch_does() {
    let (whole, values, vars) = nets::net();
    let expected = nets::results(&whole, &values);
    let mut most = 0;
    for seed in 0..60 {
        let mut graph = whole.clone();
        divide(&mut graph, 64, nets::at_random(seed));
        let backend = CpuBackend::with_level(Some(2), SimdLevel::detect());
        let (mut exe, batch, plan) = ready(&backend, &graph, &values, vars.clone());
        let runs: Vec<Numbers> = (0..2)
            .map(|_| {
                exe.run(0, 0, &batch).unwrap();
                outputs(&mut *exe, &graph)
            })
            .collect();
        assert_eq!(runs[0], runs[1], "{seed}: what is kept changes the second run");
        for (found, expected) in runs[0].iter().zip(&expected) {
            let scale = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            for (x, y) in found.iter().zip(expected) {
                assert!((f64::from(*x) - y).abs() <= 1e-5 * scale, "{seed}: {x} for {y}\n{graph}");
            }
        }
        assert_eq!(exe.peak_bytes(), plan.device_bytes(), "{seed}");
        assert_eq!(exe.find_not_finite(0, &batch).unwrap(), None, "{seed}");
        most = most.max(plan.programs[0].kept.iter().filter(|(_, bytes)| *bytes > 0).count());
    }
    assert!(most > 0, "no weights were kept");
}

/// A trace has each node once for each part; what only gives memory another shape once.
#[test]
fn a_trace_has_every_round() {
    let (mut graph, values, vars) = nets::net();
    divide(&mut graph, 64, nets::at_random(1));
    let backend = CpuBackend::with_level(Some(1), SimdLevel::detect());
    let (mut exe, batch, _) = ready(&backend, &graph, &values, vars);
    let spans = exe.trace(&[0], &batch, 1, Detail::Nodes).unwrap();
    let rounds = graph.rounds();
    assert!(rounds.iter().any(|rounds| rounds.parts > 1));
    for rounds in rounds {
        for at in rounds.nodes {
            let times = spans.iter().filter(|span| span.work == Work::Node(NodeId(at as u32))).count();
            let is_alias = graph.nodes[at].op.rules().is_alias();
            assert_eq!(times, if is_alias { 1 } else { rounds.parts }, "node {at}");
        }
    }
}
