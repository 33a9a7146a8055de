//! Which parts of the forward pass are made again.

use super::Segments;
use super::again::{again, is_repeatable};
use crate::graph::{Graph, Role, ValueId};
use crate::passes::edit::Links;
use std::collections::VecDeque;

/// In how many parts of about the same size the forward pass is cut, one after the other tried.
const PARTS: [usize; 14] = [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64];

/// Each of the layers of these paths is a segment.
pub fn of_layers(graph: &Graph, paths: &[String]) -> Segments {
    let inside = |origin: &str, path: &str| {
        origin.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || path.is_empty())
    };
    let of = |origin: &str| {
        let around = paths.iter().enumerate().filter(|(_, path)| inside(origin, path));
        around.min_by_key(|(_, path)| path.len()).map(|(number, _)| number)
    };
    graph.nodes.iter().map(|node| if node.backward { None } else { of(graph.origin(node)) }).collect()
}

/// The segments for which the least memory is needed at once, `later` having been done to the graph; none where that is no less than
/// without.
pub fn automatic(graph: &Graph, later: &dyn Fn(&mut Graph)) -> Option<Segments> {
    let forward = Forward::of(graph);
    let needed = |mut graph: Graph| {
        later(&mut graph);
        most_alive(&graph)
    };
    let without = needed(graph.clone());
    let cut = |parts| {
        let segments = forward.segments(graph, parts);
        (needed(again(graph, &segments)), segments)
    };
    let (mut least, mut segments) = PARTS.map(cut).into_iter().min_by_key(|(bytes, _)| *bytes)?;
    if least >= without {
        return None;
    }
    // What is made late is small and costs as much to make: it is kept where that makes no difference to the peak.
    let last = segments.iter().flatten().max().copied().unwrap_or(0);
    for segment in (0..=last).rev() {
        let mut fewer = segments.clone();
        fewer.iter_mut().filter(|s| **s == Some(segment)).for_each(|s| *s = None);
        let bytes = needed(again(graph, &fewer));
        if bytes <= least {
            (least, segments) = (bytes, fewer);
        }
    }
    Some(segments)
}

/// The forward pass as a row of nodes, at which it may be cut.
struct Forward {
    /// The nodes.
    nodes: Vec<usize>,
    /// Bytes that the backward pass reads, made before each of the nodes, and in all.
    made: Vec<usize>,
    /// Bytes that go over a cut before each of the nodes, and none over its end.
    across: Vec<usize>,
}

impl Forward {
    fn of(graph: &Graph) -> Forward {
        let nodes: Vec<usize> = (0..graph.nodes.len()).filter(|at| !graph.nodes[*at].backward).collect();
        let roots = graph.roots();
        let links = Links::of(graph);
        let mut place = vec![0; graph.nodes.len()];
        nodes.iter().enumerate().for_each(|(i, at)| place[*at] = i);
        // Of the memory of each value: the last node of the forward pass that reads it, and whether the backward pass does.
        let mut last = vec![0; graph.values.len()];
        let mut backward = vec![false; graph.values.len()];
        for node in &graph.nodes {
            for input in &node.inputs {
                backward[roots[input.index()].index()] |= node.backward;
            }
        }
        for (i, at) in nodes.iter().enumerate() {
            graph.nodes[*at].inputs.iter().for_each(|input| last[roots[input.index()].index()] = i);
        }
        let mut made = vec![0; nodes.len() + 1];
        let mut change = vec![0isize; nodes.len() + 2];
        for (at, value) in graph.values.iter().enumerate() {
            let id = ValueId(at as u32);
            let Some(maker) = links.maker(id).filter(|_| roots[at] == id && value.role == Role::Temporary) else {
                continue;
            };
            let node = &graph.nodes[maker];
            if node.backward {
                continue;
            }
            let first = place[maker];
            if backward[at] && node.outputs[0] == id && is_repeatable(node) {
                made[first + 1] += value.bytes();
            }
            change[first + 1] += value.bytes() as isize;
            change[last[at].max(first) + 1] -= value.bytes() as isize;
        }
        for i in 1..made.len() {
            made[i] += made[i - 1];
        }
        let mut alive = 0;
        let across = change[..=nodes.len()].iter().map(|change| {
            alive += change;
            alive as usize
        });
        Forward { across: across.collect(), nodes, made }
    }

    /// Segments of at most the `parts`-th part of the bytes that are made (or of one node), with the fewest bytes over the cuts between
    /// them. The last one is not made again: its backward pass follows at once.
    fn segments(&self, graph: &Graph, parts: usize) -> Segments {
        let end = self.nodes.len();
        let limit = self.made[end] / parts;
        // For each cut the bytes over it and over those before it, and the cut before it. The queue has the cuts that
        // a next one may follow, those with more bytes after those with fewer.
        let mut best = vec![(0usize, 0usize); end + 1];
        let mut queue = VecDeque::from([0]);
        for at in 1..=end {
            while queue.len() > 1 && queue.front().is_some_and(|cut| self.made[at] - self.made[*cut] > limit) {
                queue.pop_front();
            }
            let before = queue.front().copied().unwrap_or(at - 1);
            best[at] = (best[before].0 + if at < end { self.across[at] } else { 0 }, before);
            while queue.back().is_some_and(|cut| best[*cut].0 >= best[at].0) {
                queue.pop_back();
            }
            queue.push_back(at);
        }
        let mut cuts = Vec::new();
        let mut at = end;
        while at > 0 {
            at = best[at].1;
            cuts.push(at);
        }
        cuts.reverse();
        let mut segments = vec![None; graph.nodes.len()];
        for (number, cut) in cuts.windows(2).enumerate() {
            self.nodes[cut[0]..cut[1]].iter().for_each(|at| segments[*at] = Some(number));
        }
        segments
    }
}

/// The most bytes of results that are alive at one time: nearly what the plan will need for them.
fn most_alive(graph: &Graph) -> usize {
    let roots = graph.roots();
    let mut life: Vec<Option<(usize, usize)>> = vec![None; graph.values.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        for value in node.inputs.iter().chain(&node.outputs) {
            life[roots[value.index()].index()].get_or_insert((at, at)).1 = at;
        }
    }
    let mut change = vec![0isize; graph.nodes.len() + 1];
    for (value, life) in graph.values.iter().zip(&life) {
        let temporary = matches!(value.role, Role::Temporary | Role::Output);
        if let Some((first, last)) = life.filter(|_| temporary) {
            change[first] += value.bytes() as isize;
            change[last + 1] -= value.bytes() as isize;
        }
    }
    let alive = change.iter().scan(0, |alive, change| {
        *alive += change;
        Some(*alive)
    });
    alive.max().unwrap_or(0) as usize
}
