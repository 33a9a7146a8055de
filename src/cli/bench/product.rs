//! A product of two square matrices, timed on a device.

use super::{Times, WARM_UP};
use crate::backend::{Backend, Detail};
use crate::graph::op::{Cast, Linear};
use crate::graph::{DType, Fill, Graph, Node, Role, Shape, ValueId, VarId, VarKind, Variable, Variables};
use crate::plan::{Plan, Source};
use anyhow::{Context, Result};
use std::sync::Arc;

/// Sizes that [`best`] tries.
const SIZES: [usize; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// [`best`] tries no larger size once one took so many milliseconds.
const LONG_MS: f64 = 15.0;

/// Runs of each size in [`best`].
const RUNS: u32 = 5;

/// Times of a product of two matrices of `n` rows and columns on `backend`: `runs` times, the first ones apart, each
/// from its beginning to its end on the device. The numbers are on the device before.
///
/// # Errors
/// There is not enough memory, or the device failed.
pub fn time(backend: &dyn Backend, n: usize, dtype: DType, runs: u32) -> Result<Times> {
    let mut variables = Variables::new();
    let mut graph = Graph::new();
    let mut operand = |name: &str| -> Result<(VarId, ValueId)> {
        let init = Fill::Uniform { bound: 1.0 };
        let kind = VarKind::Parameter;
        let var =
            variables.get_or_add(Variable { init, ..Variable::zeros(name, DType::F32, Shape::from([n, n]), kind) });
        let value = graph.variable(&variables, var);
        let cast = dtype != DType::F32;
        Ok((var, if cast { graph.add1(Cast { to: dtype }, &[value])? } else { value }))
    };
    let (a, b) = (operand("a")?, operand("b")?);
    let c = graph.add1(Linear { bias: false }, &[a.1, b.1])?;
    graph.values[c.index()].role = Role::Output;
    let product = graph.nodes.len() - 1;
    let source = Source { name: "matmul".into(), graph, loss: None, prediction: Some(c) };
    let needs = |g: &Graph, node: &Node| backend.node_memory(g, node);
    let plan = Arc::new(Plan::laid_out(Arc::new(variables), vec![source], needs, !backend.shares_memory()));
    let mut executable = backend.compile(plan.clone())?;
    crate::api::model::say_notes(backend);
    for (var, _) in [a, b] {
        executable.upload(var, &crate::model::init::initial(&plan.variables[var], 1))?;
    }
    let batch = backend.host_buffer(plan.slot.bytes)?;
    // Conversions do not count: only the product's own span does.
    executable.trace(&[0], &batch, WARM_UP as usize, Detail::Nodes)?;
    let spans = executable.trace(&[0], &batch, runs as usize, Detail::Nodes)?;
    let node = crate::backend::Work::Node(crate::graph::NodeId(product as u32));
    let times: Vec<f64> = spans.iter().filter(|s| s.work == node).map(|s| s.seconds() * 1e3).collect();
    (!times.is_empty()).then(|| Times::of(times)).context("the product was not timed")
}

/// GFLOP/s of a product of `n` rows that takes `ms` milliseconds.
pub fn gflops(n: usize, ms: f64) -> f64 {
    2.0 * (n as f64).powi(3) / ms / 1e6
}

/// The fastest product of matrices on `backend`: GFLOP/s, and the number of rows.
///
/// # Errors
/// As [`time`].
pub fn best(backend: &dyn Backend, dtype: DType) -> Result<(f64, usize)> {
    let mut best = (0.0, 0);
    for n in SIZES {
        let ms = time(backend, n, dtype, RUNS)?.min;
        let rate = gflops(n, ms);
        if rate > best.0 {
            best = (rate, n);
        }
        if ms > LONG_MS {
            break;
        }
    }
    Ok(best)
}
