//! Helpers of passes: the producer and the readers of each value, and the removal of nodes.

use crate::graph::{Graph, ValueId};

/// The producer and the readers of each value, as indices of nodes. Not updated when the graph changes.
pub struct Links {
    maker: Vec<Option<usize>>,
    readers: Vec<Vec<usize>>,
}

impl Links {
    /// Those of `graph` as it is now.
    pub fn of(graph: &Graph) -> Links {
        let (mut maker, mut readers) = (vec![None; graph.values.len()], vec![Vec::new(); graph.values.len()]);
        for (at, node) in graph.nodes.iter().enumerate() {
            for value in &node.outputs {
                maker[value.index()] = Some(at);
            }
            for value in &node.inputs {
                readers[value.index()].push(at);
            }
        }
        Links { maker, readers }
    }

    /// The node that computes `value`.
    pub fn maker(&self, value: ValueId) -> Option<usize> {
        self.maker[value.index()]
    }

    /// The nodes that read `value`, in order; one that reads it twice is there twice.
    pub fn readers(&self, value: ValueId) -> &[usize] {
        &self.readers[value.index()]
    }
}

/// Removes the nodes for which `gone` is true.
pub fn remove(graph: &mut Graph, gone: &[bool]) {
    let mut gone = gone.iter();
    graph.nodes.retain(|_| gone.next() != Some(&true));
}
