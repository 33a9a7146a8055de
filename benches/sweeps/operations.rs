//! Products and convolutions over their widths: forward, gradient by the input, gradient by the weight.

use anyhow::{Context, Result};
use runner::backend::cpu::CpuBackend;
use runner::backend::{Backend, Detail, Work};
use runner::graph::op::{Conv2d, Linear, Op};
use runner::graph::{DType, Fill, Graph, NodeId, Role, Shape, VarKind, Variable, Variables};
use runner::model::init;
use runner::passes::grad::backward;
use runner::plan::{Plan, Source};
use std::collections::HashMap;
use std::sync::Arc;

/// Channels of a convolution, in and out.
const CHANNELS: [usize; 11] = [3, 10, 16, 32, 33, 48, 64, 96, 100, 112, 128];

/// Inputs and outputs of a product.
const WIDTHS: [usize; 18] = [3, 10, 16, 32, 33, 48, 64, 96, 100, 112, 128, 250, 256, 500, 496, 1000, 1008, 1024];

/// Channels of a group.
const GROUPED: [usize; 8] = [1, 2, 4, 7, 8, 10, 16, 32];

/// Groups in that sweep.
const GROUPS: usize = 8;

const IMAGES: usize = 16;
const SIDE: usize = 28;
const ROWS: usize = 256;

/// Runs of every operation: at least so many, and so many seconds in all.
const RUNS: usize = 10;
const SECONDS: f64 = 0.3;

/// GFLOP/s of the three operations.
type Rates = [f64; 3];

/// Prints one of the sweeps `conv`, `depthwise`, `grouped` and `linear`.
///
/// # Errors
/// The backend fails.
pub fn sweep(name: &str, threads: usize) -> Result<()> {
    let backend = CpuBackend::new(Some(threads))?;
    let conv = |channels: usize, groups: usize| {
        let op = Conv2d { stride: [1; 2], padding: [1; 4], dilation: [1; 2], groups, bias: true };
        let shapes = [Shape::from([IMAGES, SIDE, SIDE, channels]), Shape::from([channels, 3, 3, channels / groups])];
        measure(&backend, op.into(), shapes, channels)
    };
    let images = format!("{IMAGES} images of {SIDE}×{SIDE}");
    let (title, sizes): (String, &[usize]) = match name {
        "conv" => (format!("3×3 convolutions of {images}, C → C channels"), &CHANNELS),
        "depthwise" => (format!("3×3 depthwise convolutions of {images}, C channels"), &CHANNELS),
        "grouped" => (format!("3×3 convolutions of {images}, {GROUPS} groups of C → C channels"), &GROUPED),
        _ => (format!("products of {ROWS} rows, C → C"), &WIDTHS),
    };
    let rates = sizes
        .iter()
        .map(|&size| match name {
            "conv" => conv(size, 1),
            "depthwise" => conv(size, size),
            "grouped" => conv(size * GROUPS, GROUPS),
            _ => {
                let shapes = [Shape::from([ROWS, size]), Shape::from([size, size])];
                measure(&backend, Linear { bias: true }.into(), shapes, size)
            }
        })
        .collect::<Result<Vec<Rates>>>()?;
    println!("{title}, on {}: GFLOP/s, and as a part of the nearest multiple of 16", backend.describe());
    println!("| C | forward | | by input | | by weight | |\n| --- | --- | --- | --- | --- | --- | --- |");
    for (size, own) in sizes.iter().zip(&rates) {
        let even = |size: &usize| size.is_multiple_of(16);
        let near =
            sizes.iter().zip(&rates).filter(|(other, _)| even(other)).min_by_key(|(other, _)| other.abs_diff(*size));
        let cells = own.iter().enumerate().map(|(at, rate)| match near {
            Some((_, near)) if !even(size) => format!("{rate:.1} | {:.2} |", rate / near[at]),
            _ => format!("{rate:.1} | |"),
        });
        println!("| {size} | {}", cells.collect::<Vec<_>>().join(" "));
    }
    println!();
    Ok(())
}

/// Rates of `op` of `x`, `w` and a bias of `outputs` numbers, and of its gradients.
fn measure(backend: &CpuBackend, op: Op, [x, w]: [Shape; 2], outputs: usize) -> Result<Rates> {
    let timed = times(backend, op, &[x, w, Shape::from([outputs])])?;
    let rate = |wanted: &dyn Fn(&str) -> bool| {
        let found = timed.iter().find(|t| wanted(t.name)).context("the operation was not timed")?;
        anyhow::Ok(found.flops as f64 / found.seconds / 1e9)
    };
    Ok([
        rate(&|name| !name.contains("grad"))?,
        rate(&|name| name.ends_with("grad_input"))?,
        rate(&|name| name.ends_with("grad_weight"))?,
    ])
}

/// An operation that was timed.
pub struct Timed {
    /// Its name in listings.
    pub name: &'static str,
    /// Floating-point operations.
    pub flops: u64,
    /// The median.
    pub seconds: f64,
}

/// Times `op` on operands of these shapes, and its gradients by all of them.
///
/// # Errors
/// The backend fails.
pub fn times(backend: &CpuBackend, op: Op, shapes: &[Shape]) -> Result<Vec<Timed>> {
    let mut variables = Variables::new();
    let mut graph = Graph::new();
    let mut operand = |graph: &mut Graph, name: String, shape: Shape| {
        let init = Fill::Uniform { bound: 1.0 };
        let variable = Variable { init, ..Variable::zeros(name, DType::F32, shape, VarKind::Parameter) };
        let var = variables.get_or_add(variable);
        graph.variable(&variables, var)
    };
    let operands: Vec<_> =
        shapes.iter().enumerate().map(|(i, s)| operand(&mut graph, format!("operand{i}"), s.clone())).collect();
    let y = graph.add1(op, &operands)?;
    let shape = graph.value(y).shape.clone();
    let dy = operand(&mut graph, "dy".into(), shape);
    let gradients = backward(&mut graph, &[(y, dy)], &operands)?;
    for value in gradients.into_iter().flatten().chain([y]) {
        graph.values[value.index()].role = Role::Output;
    }
    let source = Source { name: "sweep".into(), graph, loss: None, prediction: None };
    let plan = Arc::new(Plan::new(Arc::new(variables), vec![source], |g, node| backend.workspace(g, node)));
    let mut executable = backend.compile(plan.clone())?;
    for (var, variable) in plan.variables.iter() {
        executable.upload(var, &init::initial(variable, 1))?;
    }
    let batch = backend.host_buffer(plan.slot.bytes)?;
    let first = executable.trace(&[0], &batch, 2, Detail::Nodes)?;
    let estimate = first.iter().filter(|s| s.step == 1).map(|s| s.seconds()).sum::<f64>();
    let runs = ((SECONDS / estimate) as usize).max(RUNS);
    let mut times: HashMap<NodeId, Vec<f64>> = HashMap::new();
    for span in executable.trace(&[0], &batch, runs, Detail::Nodes)? {
        if let Work::Node(node) = span.work {
            times.entry(node).or_default().push(span.seconds());
        }
    }
    let graph = &plan.programs[0].graph;
    let mut timed = Vec::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let values = |ids: &[_]| ids.iter().map(|id| graph.value(*id)).collect::<Vec<_>>();
        let flops = node.op.rules().flops(&values(&node.inputs), &values(&node.outputs));
        let Some(mut list) = times.remove(&NodeId(at as u32)) else { continue };
        list.sort_by(f64::total_cmp);
        timed.push(Timed { name: node.op.rules().name(), flops, seconds: list[list.len() / 2] });
    }
    Ok(timed)
}
