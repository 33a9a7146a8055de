//! The memory that each launch may access, for the sanitizer of the tests.
//!
//! The backend has one block of device memory: an access beyond an operand meets another one, and no driver reports it. Tests
//! on the emulated driver observe every launch ([`observe`]). Without an observer, extents are not computed.

use crate::backend::gpu::launch::{Arg, Cell, Kernel, LaunchConfig, Lowered, Memory, Step};
use crate::plan::Program;
use std::sync::OnceLock;

/// A piece of device memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// For people: `operand 1`.
    pub what: String,
    /// Its first byte.
    pub address: u64,
    /// How many.
    pub bytes: usize,
    /// The launch may write it.
    pub written: bool,
}

/// A launch with its addresses.
#[derive(Debug, Clone, Copy)]
pub struct Launched<'a> {
    /// The kernel's name.
    pub kernel: &'a str,
    /// Blocks, threads and shared memory.
    pub config: LaunchConfig,
    /// The arguments, each at the front of a cell.
    pub cells: &'a [u64],
    /// All the memory that it may touch.
    pub extents: &'a [Extent],
}

/// Is called for every launch.
pub type Observer = fn(Launched);

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// From now on, `observer` is called for every launch that gets its addresses in this process. Only the first one counts.
pub fn observe(observer: Observer) {
    OBSERVER.get_or_init(|| observer);
}

/// Calls the observer, if there is one, for a launch of `kernel`; `extents` are computed only then.
pub(super) fn report(kernel: &str, config: LaunchConfig, cells: &[u64], extents: impl FnOnce() -> Vec<Extent>) {
    if let Some(observer) = OBSERVER.get() {
        observer(Launched { kernel, config, cells, extents: &extents() });
    }
}

/// What `kernel`, a step of node `at`, may touch: the operands, results and tables that its arguments name, and of the
/// workspace what lies between a place that it is given and the next one that any step of the node is. `cells` are its
/// arguments with addresses.
pub(super) fn of_step(
    program: &Program,
    at: usize,
    lowered: &Lowered,
    kernel: &Kernel,
    cells: &[u64],
    address: impl Fn(Memory) -> u64,
) -> Vec<Extent> {
    let node = &program.graph.nodes[at];
    let mutated = node.op.rules().mutates(node.inputs.len());
    let mut extents = Vec::new();
    for (arg, cell) in kernel.args.iter().zip(cells) {
        if let Arg::Table(words) = arg {
            extents.push(Extent { what: "a table".into(), address: *cell, bytes: 8 * words.len(), written: false });
        }
    }
    let mut places: Vec<usize> = lowered.steps.iter().flat_map(memories).filter_map(scratch).collect();
    places.push(lowered.scratch_bytes);
    let mut named: Vec<Memory> = arguments(kernel).collect();
    named.sort();
    named.dedup();
    for memory in named {
        let (what, bytes, written) = match memory {
            Memory::Input(i) => {
                let value = program.graph.value(node.inputs[i]);
                (format!("operand {i} of `{}`", node.op.rules().name()), value.bytes(), mutated.contains(&i))
            }
            Memory::InputFrom(i, from) => {
                let value = program.graph.value(node.inputs[i]);
                let what = format!("operand {i} of `{}` from byte {from} on", node.op.rules().name());
                (what, value.bytes() - from, mutated.contains(&i))
            }
            Memory::Output(i) => {
                let value = program.graph.value(node.outputs[i]);
                (format!("result {i} of `{}`", node.op.rules().name()), value.bytes(), true)
            }
            Memory::Scratch(from) => {
                let end = places.iter().copied().filter(|end| *end > from).min().unwrap_or(from);
                (format!("the workspace of `{}` from byte {from} on", node.op.rules().name()), end - from, true)
            }
        };
        extents.push(Extent { what, address: address(memory), bytes, written });
    }
    extents
}

/// Memory that a kernel's arguments name.
fn arguments(kernel: &Kernel) -> impl Iterator<Item = Memory> {
    kernel.args.iter().flat_map(|arg| {
        let cells: &[Cell] = if let Arg::Table(cells) = arg { cells } else { &[] };
        let inside = cells.iter().filter_map(|cell| if let Cell::Pointer(m) = cell { Some(*m) } else { None });
        let own = if let Arg::Pointer(m) = arg { Some(*m) } else { None };
        own.into_iter().chain(inside)
    })
}

/// Memory that a step names.
fn memories(step: &Step) -> Vec<Memory> {
    match step {
        Step::Kernel(kernel) => arguments(kernel).collect(),
        Step::Matmul(step) => [step.a, step.b, step.d, step.workspace].into_iter().chain(step.vector).collect(),
        Step::Convolution(step) => [step.x, step.w, step.y, step.workspace].into_iter().chain(step.bias).collect(),
        Step::Exchange(exchange) => exchange.sends.iter().chain(&exchange.receives).map(|message| message.at).collect(),
        Step::Zero { to, .. } => vec![*to],
        Step::Copy { from, to, .. } => vec![*from, *to],
    }
}

fn scratch(memory: Memory) -> Option<usize> {
    if let Memory::Scratch(from) = memory { Some(from) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gpu::launch::Module;
    use crate::backend::gpu::lower::lower;
    use crate::backend::gpu::target::Target;
    use crate::graph::op::{AccumulateGrad, GradNorm};
    use crate::graph::{DType, Graph, VarKind, Variable, Variables};
    use crate::plan::{Plan, Source};
    use std::sync::Arc;

    /// A plan of two nodes: the norm of two gradients, and one gradient added to the other.
    fn plan() -> Plan {
        let (mut vars, mut graph) = (Variables::new(), Graph::new());
        let mut value = |graph: &mut Graph, name: &str, n: usize| {
            let variable = Variable::zeros(name, DType::F32, [n], VarKind::Buffer);
            let id = vars.get_or_add(variable);
            graph.variable(&vars, id)
        };
        let schedule = value(&mut graph, "schedule", 4);
        let (a, b) = (value(&mut graph, "a", 2000), value(&mut graph, "b", 2000));
        graph.add(GradNorm {}, &[schedule, a, b]).unwrap();
        graph.add(AccumulateGrad {}, &[a, b]).unwrap();
        let source = Source { name: "test".into(), graph, loss: None, prediction: None };
        Plan::new(Arc::new(vars), vec![source], |_, _| 0)
    }

    /// For every kernel of node `at`, what it is given: in order of addresses, which differ by the kind of memory.
    fn given(plan: &Plan, at: usize, lowered: &Lowered) -> Vec<Vec<(u64, usize, bool)>> {
        let address = |memory| match memory {
            Memory::Input(i) => 1000 + i as u64,
            Memory::InputFrom(i, from) => 1000 + (i + from) as u64,
            Memory::Output(i) => 2000 + i as u64,
            Memory::Scratch(from) => 3000 + from as u64,
        };
        let of_kernel = |kernel: &Kernel| {
            let cells: Vec<u64> = (0..kernel.args.len() as u64).collect();
            let extents = of_step(&plan.programs[0], at, lowered, kernel, &cells, address);
            let mut list: Vec<_> = extents.iter().map(|e| (e.address, e.bytes, e.written)).collect();
            list.sort_unstable();
            list
        };
        let kernels =
            lowered.steps.iter().filter_map(|s| if let Step::Kernel(k) = s { Some(of_kernel(k)) } else { None });
        kernels.collect()
    }

    #[test]
    fn a_launch_is_given_what_its_arguments_name_and_no_more() {
        let plan = plan();
        let graph = &plan.programs[0].graph;
        let lowered = |at: usize| lower(graph, &graph.nodes[at], &Target::new(80)).unwrap();
        // Four chunks of at most 1024 elements: two tables of 4 and of 8 cells, the gradients, a partial sum for each chunk.
        let squares = vec![(0, 32, false), (1, 64, false), (1001, 8000, false), (1002, 8000, false), (3000, 32, true)];
        let norm = vec![(1000, 16, false), (2000, 4, true), (3000, 32, true)];
        assert_eq!(given(&plan, 0, &lowered(0)), [squares, norm]);
        // What is added to is changed in place.
        assert_eq!(given(&plan, 1, &lowered(1)), [[(1000, 8000, false), (1001, 8000, true)]]);
    }

    #[test]
    fn pieces_of_the_workspace_end_where_the_next_begins() {
        let kernel = |from| Kernel::new(Module::Optim, "test").arg(Memory::Scratch(from));
        let steps = vec![kernel(64).into(), kernel(0).into(), Step::Zero { to: Memory::Scratch(80), bytes: 4 }];
        let lowered = Lowered { steps, scratch_bytes: 100 };
        assert_eq!(given(&plan(), 0, &lowered), [[(3064, 16, true)], [(3000, 64, true)]]);
    }
}
