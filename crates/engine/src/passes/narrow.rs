//! Values between layers rounded to 16 bits in memory, in programs that do not train.
//!
//! Products in bf16 round their factors where they read them, so that a value that only they read may as well be rounded where it is written:
//! memory then has half as much to carry. A value is narrowed if the kernel that makes it can write it so, and every kernel that
//! reads it can read it so. Nothing is converted for it, so that no program becomes slower. What the host reads, variables and the
//! batch stay as they are.

use crate::graph::{DType, Graph, Narrow, Narrows, Role};

/// Marks the values of `graph` that are narrow: [`crate::graph::Value::narrow`].
pub fn narrow(graph: &mut Graph, narrows: Narrows) {
    let root = graph.roots();
    let mut may = vec![false; graph.values.len()];
    let mut must_not: Vec<bool> =
        graph.values.iter().map(|v| v.role != Role::Temporary || v.dtype != DType::F32).collect();
    for node in graph.nodes.iter().filter(|node| !node.op.rules().is_alias()) {
        let Narrow { reads, writes } = narrows(graph, node);
        for (i, x) in node.inputs.iter().enumerate() {
            must_not[root[x.index()].index()] |= !reads.contains(&i);
        }
        for (i, y) in node.outputs.iter().enumerate() {
            may[y.index()] = writes.contains(&i);
        }
    }
    // Other names of the same memory.
    for (value, root) in root.iter().enumerate() {
        must_not[root.index()] |= must_not[value];
    }
    for (value, root) in graph.values.iter_mut().zip(&root) {
        value.narrow = may[root.index()] && !must_not[root.index()];
    }
}

#[cfg(test)]
mod tests;
