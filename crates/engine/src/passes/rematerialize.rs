//! The rematerialization pass: what is made in the forward pass is made again for the backward pass, instead of being kept in
//! memory until then. Known as activation or gradient checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory
//! Cost").

mod again;
mod segments;

use crate::graph::Graph;

/// Which parts of the forward pass are computed again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Recompute {
    /// None.
    #[default]
    Nothing,
    /// Parts for which the least memory is needed; of what would make no difference to that, nothing.
    Automatic,
    /// These layers, by their paths, each as a whole: of a layer that is within another one of them, the outer one counts.
    Layers(Vec<String>),
}

/// For every node of a graph the segment that it belongs to: what is made in a segment and read there and in the backward pass
/// alone is made again for the backward pass of the segment.
type Segments = Vec<Option<usize>>;

/// Makes values again, for the backward pass, where `recompute` says so. Every operation draws the same random numbers again, and
/// batch normalisation takes the statistics that it has made: the results stay what they are.
///
/// Run it after the gradient pass. `later` does with a graph what later passes do to its order: memory is counted with that.
pub fn rematerialize(graph: &mut Graph, recompute: &Recompute, later: &dyn Fn(&mut Graph)) {
    match recompute {
        Recompute::Nothing => {}
        Recompute::Automatic => {
            if let Some(segments) = segments::automatic(graph, later) {
                *graph = again::again(graph, &segments);
            }
        }
        Recompute::Layers(paths) => *graph = again::again(graph, &segments::of_layers(graph, paths)),
    }
}

#[cfg(test)]
mod tests;
