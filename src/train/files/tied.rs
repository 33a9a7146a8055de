//! Matrices that a file has although the model takes them from another layer.

use crate::checkpoint::Tensor;
use crate::config::Experiment;
use crate::config::experiment::{LayerKind, LayerNode};
use crate::config::language::layers::Layer;
use std::collections::BTreeMap;

/// Takes matrices out of a file's `tensors` that are the same as those of the layers that they are tied to. Of one that is another: the layer and what
/// it is tied to.
pub fn take_copies(experiment: &Experiment, tensors: &mut BTreeMap<String, Tensor>) -> Option<(String, String)> {
    let mut ties = Vec::new();
    collect(&experiment.model.layers, &mut ties);
    let mut other = None;
    for (path, tie) in ties {
        let own = format!("{path}.weight");
        match (tensors.get(&own), tensors.get(&tie)) {
            (Some(copy), Some(matrix)) if copy == matrix => _ = tensors.remove(&own),
            (Some(_), Some(_)) => other = Some((path, tie)),
            _ => {}
        }
    }
    other
}

fn collect(nodes: &[LayerNode], ties: &mut Vec<(String, String)>) {
    for node in nodes {
        if let LayerKind::Layer(Layer::Linear(linear)) = &node.kind
            && let Some(tie) = linear.tied()
        {
            ties.push((node.path.clone(), tie.to_owned()));
        }
        node.kind.children().into_iter().for_each(|children| collect(children, ties));
    }
}
