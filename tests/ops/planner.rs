//! Plans for cases.

use runner::backend::Backend;
use runner::graph::{Graph, Variables};
use runner::plan::{Plan, Source};
use std::sync::Arc;

/// A plan of one program.
pub fn plan(backend: &dyn Backend, graph: Graph, variables: Variables) -> Plan {
    let source = Source { name: "case".into(), graph, loss: None, prediction: None };
    Plan::new(Arc::new(variables), vec![source], |graph, node| backend.workspace(graph, node))
}
