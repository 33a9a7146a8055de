//! Layers of a language model that see the tokens that the model is to predict.

use super::Lints;
use crate::config::{Diagnostic, Lint};
use crate::data::text::samples_of;
use crate::graph::{Graph, Node, Op};
use std::collections::HashSet;

/// How an operation sees the tokens after each, and what to do about it.
fn look(graph: &Graph, node: &Node) -> Option<[&'static str; 2]> {
    match &node.op {
        // What is added to the scores may be a mask.
        Op::Attention(op) if !op.causal && !op.between && !op.bias => {
            Some(["each position sees those after it", "write `is_causal = true`"])
        }
        Op::Recurrent(op) if op.reverse => Some(["one direction begins at the end", "leave `bidirectional` out"]),
        Op::Conv2d(op) => {
            let kernel = graph.shape(node.inputs[1]).nhwc().unwrap_or([1; 4]);
            // With as many zeros before as the kernel is long, the outputs at the end are those that nothing is wrong with.
            let behind = (0..2).any(|axis| {
                let [before, after] = [op.padding[2 * axis], op.padding[2 * axis + 1]];
                after > 0 && before < (kernel[1 + axis] - 1) * op.dilation[axis]
            });
            behind.then_some([
                "each output is computed from positions after it, too",
                "take `padding = (kernel_size - 1) * dilation`, as a number, and a `slice` of the first outputs after it, as many as there were inputs",
            ])
        }
        _ => None,
    }
}

impl Lints<'_> {
    pub(super) fn sees_the_future(&self) -> Vec<Diagnostic> {
        if !samples_of(self.data.fitted.as_deref()).is_some_and(|samples| samples.predicts_next_tokens()) {
            return Vec::new();
        }
        let graph = &self.forward.graph;
        let mut used = HashSet::new();
        self.reach(self.forward.prediction, &mut used);
        let (mut found, mut places) = (Vec::new(), HashSet::new());
        for node in graph.nodes.iter().filter(|node| node.outputs.iter().any(|output| used.contains(output))) {
            let Some([label, help]) = look(graph, node) else { continue };
            let path = graph.origin(node);
            let row = self.forward.rows.iter().find(|row| row.path == path);
            // A block that is used many times has its mistake once.
            let Some(row) = row.filter(|row| places.insert(row.span)) else { continue };
            let message = format!("`{}` sees the tokens that the model is to tell", row.kind);
            let note = "the model can copy each token from after its position: losses become small, and texts that it writes make no sense";
            found.push(Diagnostic::warning(Lint::SeesTheFuture, message).at(row.span, label).note(note).help(help));
        }
        found
    }
}
