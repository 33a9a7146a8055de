//! Plans for cases.

use runner::backend::Backend;
use runner::graph::{Graph, Node, Variables};
use runner::plan::{Plan, Source};
use std::sync::Arc;

/// A plan of one program.
pub fn plan(backend: &dyn Backend, graph: Graph, variables: Variables) -> Plan {
    let source = Source { name: "case".into(), graph, loss: None, prediction: None };
    let needs = |graph: &Graph, node: &Node| backend.node_memory(graph, node);
    Plan::laid_out(Arc::new(variables), vec![source], needs, !backend.shares_memory())
}
