//! The kernels under the emulated driver's sanitizer: no races, and no access to memory that a launch was not given.
//!
//! Usually a part of the cases, so that every kernel is launched in some ways; all of them with `RUNNER_SANITIZER=all`.

use crate::case::{Built, Case};
use crate::cases::{is_asked_for, on};
use crate::emulator::{self, Watched};
use crate::parity::{fill, has_kernel};
use crate::planner::plan;
use runner::backend::Backend;
use runner::backend::cuda::CudaBackend;
use runner::backend::cuda::settings::Wanted;
use runner::backend::gpu::fusions::FUSIONS;
use runner::backend::gpu::launch::{Kernel, Step};
use runner::backend::gpu::lower::lower;
use runner::backend::gpu::target::Target;
use runner::graph::{DType, Op};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;

const TEST: &str = "sanitizer::kernels_have_no_races_and_touch_what_they_are_given";

/// Processes that share the cases, each of which has one thread for the kernels.
const PARTS: usize = 2;

/// Smallest cases that are kept of those with the same kind of launch.
const OF_A_KIND: usize = 2;

/// How a case is run.
#[derive(Clone, Copy)]
struct Way {
    dtype: DType,
    tf32: bool,
}

const WAYS: [Way; 4] = [
    Way { dtype: DType::F32, tf32: false },
    Way { dtype: DType::F32, tf32: true },
    Way { dtype: DType::BF16, tf32: false },
    Way { dtype: DType::F16, tf32: false },
];

impl Way {
    fn target(self) -> Target {
        Target { tf32: self.tf32, ..Target::new(80) }
    }

    fn backend(self) -> CudaBackend {
        let none = Wanted::default();
        CudaBackend::new(0).unwrap().with_graph(false).with_libraries(&none).with_tf32(self.tf32)
    }

    fn cases(self) -> Vec<&'static Case> {
        let products = |op: &Op| {
            let linear = matches!(op, Op::Linear(_) | Op::LinearGradInput(_) | Op::LinearGradWeight(_));
            let conv = matches!(op, Op::Conv2d(_) | Op::Conv2dGradInput(_) | Op::Conv2dGradWeight(_));
            linear || conv || matches!(op, Op::Attention(_))
        };
        let mut cases = on(self.dtype);
        cases.retain(|case| {
            is_asked_for(&case.name)
                && has_kernel(&FUSIONS, case)
                && !matches!(&case.op, Op::OptimizerStep(op) if !op.counts)
                && (!self.tf32 || products(&case.op))
        });
        cases
    }

    fn kernels(self, built: &Built) -> Vec<Kernel> {
        let nodes = built.graph.nodes.iter().filter_map(|node| lower(&built.graph, node, &self.target()));
        let steps = nodes.flat_map(|lowered| lowered.steps);
        steps.filter_map(|step| if let Step::Kernel(kernel) = step { Some(kernel) } else { None }).collect()
    }
}

/// What makes a launch another kind of launch: the kernel, and whether there are several blocks in each direction.
fn kind(kernel: &Kernel) -> (String, [bool; 3]) {
    (kernel.name.clone(), kernel.grid.map(|blocks| blocks > 1))
}

/// The cases of a way that are run: all, or the smallest of each kind of launch.
fn chosen(way: Way) -> Vec<(&'static str, Built)> {
    let mut cases: Vec<(u64, &str, Built, Vec<Kernel>)> = Vec::new();
    for case in way.cases() {
        let built = case.build();
        let kernels = way.kernels(&built);
        let threads = |k: &Kernel| k.grid.iter().chain(&k.block).map(|n| u64::from(*n)).product::<u64>();
        // What a thread does is about as much as there are elements for it.
        let elements: usize = built.graph.values.iter().map(|v| v.shape.len()).sum();
        cases.push((kernels.iter().map(threads).sum::<u64>() + elements as u64, &case.name, built, kernels));
    }
    cases.sort_by_key(|(size, ..)| *size);
    let all = std::env::var("RUNNER_SANITIZER").is_ok_and(|v| v == "all");
    let mut seen: BTreeMap<(String, [bool; 3]), usize> = BTreeMap::new();
    let mut kept = Vec::new();
    for (_, name, built, kernels) in cases {
        let wanted = kernels.iter().any(|k| seen.get(&kind(k)).is_none_or(|n| *n < OF_A_KIND));
        if all || wanted {
            kernels.iter().for_each(|k| *seen.entry(kind(k)).or_default() += 1);
            kept.push((name, built));
        }
    }
    kept
}

/// Runs a case once.
fn run(backend: &dyn Backend, built: &Built) {
    let plan = Arc::new(plan(backend, built.graph.clone(), built.variables.clone()));
    let mut executable = backend.compile(plan.clone()).unwrap();
    let mut batch = backend.host_buffer(plan.slot.bytes.max(1)).unwrap();
    fill(executable.as_mut(), &mut batch, &plan, built);
    executable.run(0, 0, &batch).unwrap();
    executable.wait_slot(0).unwrap();
    // Reading waits for the kernels, and gives their errors.
    for (at, _) in plan.variables.iter() {
        let mut bytes = vec![0; plan.variables[at].bytes()];
        executable.download(at, &mut bytes).unwrap();
    }
}

/// One part of the cases, in a process in which findings are printed and nothing fails.
fn run_part(part: usize) {
    let (mut failures, mut count) = (Vec::new(), 0);
    for way in WAYS {
        let backend = way.backend();
        for (number, (name, built)) in chosen(way).into_iter().enumerate() {
            if number % PARTS != part {
                continue;
            }
            let before = emulator::watched();
            run(&backend, &built);
            count += 1;
            if emulator::watched() != before {
                failures.push(name);
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    let found = emulator::watched();
    assert_eq!(found, Watched { findings: 0, unknown: 0 });
    println!("{count} cases");
}

#[test]
fn kernels_have_no_races_and_touch_what_they_are_given() {
    if !emulator::only_emulated() {
        return;
    }
    if let Ok(part) = std::env::var("SANITIZER_PART") {
        return run_part(part.parse().unwrap());
    }
    let children: Vec<_> = (0..PARTS)
        .map(|part| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "--nocapture", TEST]).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.env("EMULATED_SANITIZER", "2").env("SANITIZER_PART", part.to_string()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success(), "{said}");
        println!("{}", said.lines().find(|line| line.ends_with(" cases")).unwrap_or_default());
    }
}
