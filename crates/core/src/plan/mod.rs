//! From graphs to programs: where every value lives. Pure data, made without a device.

mod lifetime;
mod memory;
mod node_memory;
mod summary;
mod sweep;

pub use lifetime::Class;
pub use node_memory::{Kept, NodeMemory};
pub use summary::{MemorySummary, Peak};

use crate::graph::{DType, Graph, Input, Node, Role, Shape, ValueId, Variables};
use std::sync::Arc;

/// Alignment of every buffer in bytes: a cache line, and the widest vector.
pub const ALIGN: usize = 64;

/// Rounds up to a multiple of [`ALIGN`].
pub fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// Which block of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Region {
    /// Variables; lives as long as the executable, shared by all programs.
    Persistent,
    /// The batch slot that the run is given.
    Slot,
    /// Activations, gradients, workspace: dead after the run, shared by all programs.
    Transient,
}

/// Where a value lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The block.
    pub region: Region,
    /// Bytes from its start, a multiple of [`ALIGN`].
    pub offset: usize,
}

/// One input in a batch slot.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotInput {
    /// Which.
    pub input: Input,
    /// Element type.
    pub dtype: DType,
    /// Shape for the largest batch.
    pub shape: Shape,
    /// Bytes from the slot's start.
    pub offset: usize,
}

/// The layout of a batch slot, for the largest batch; a smaller batch fills the front of each input.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SlotLayout {
    /// The inputs.
    pub inputs: Vec<SlotInput>,
    /// Size of a slot.
    pub bytes: usize,
}

/// A graph whose values all have their places.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name in listings: `train`, `train (last batch)`, `eval`.
    pub name: String,
    /// The nodes, in the order in which they run.
    pub graph: Graph,
    /// The place of every value of the graph (values that no node touches have one too, of no meaning).
    pub places: Vec<Place>,
    /// For every node, its workspace: offset in [`Region::Transient`] and bytes.
    pub workspace: Vec<(usize, usize)>,
    /// For every node, memory for what it makes of weights ([`Kept`]), which nothing else in the program uses; 0 bytes where
    /// nothing is kept.
    pub kept: Vec<(usize, usize)>,
    /// Size of the transient block that this program needs: where its last buffer in it ends.
    pub transient_bytes: usize,
    /// The loss, if the program computes one.
    pub loss: Option<ValueId>,
    /// The loss, if this is a program that trains.
    pub training_loss: Option<ValueId>,
    /// What the model puts out.
    pub prediction: Option<ValueId>,
    /// The node at which the most transient memory is in use.
    pub peak: Peak,
    /// The shards that it computes together, of which a slot has all that it reads: one, but in a step that has them meet.
    pub together: usize,
}

/// All programs of an experiment over one set of variables.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The variables.
    pub variables: Arc<Variables>,
    /// For every variable, its offset in [`Region::Persistent`].
    pub variable_offsets: Vec<usize>,
    /// Size of the persistent block.
    pub persistent_bytes: usize,
    /// Size of the transient block: the largest that a program needs.
    pub transient_bytes: usize,
    /// Layout of a batch slot.
    pub slot: SlotLayout,
    /// Layout of what a program reads of each further shard, where it computes several together: these follow the slot of the first one, one after the other.
    pub beside: SlotLayout,
    /// The most shards that a program computes together.
    pub together: usize,
    /// The programs.
    pub programs: Vec<Program>,
    /// No two buffers have a byte in common, whether they live at the same time or not.
    pub apart: bool,
}

/// A graph that is to become a program.
pub struct Source {
    /// Its name in listings.
    pub name: String,
    /// The graph, after all passes.
    pub graph: Graph,
    /// The loss, if the graph computes one.
    pub loss: Option<ValueId>,
    /// What the model puts out.
    pub prediction: Option<ValueId>,
}

impl SlotLayout {
    /// A layout with room for the largest of each input that the graphs read.
    pub fn for_graphs<'a>(graphs: impl Iterator<Item = &'a Graph>) -> Self {
        Self::of(graphs, |role| if let Role::Input(input) = role { Some(input) } else { None })
    }

    /// Likewise, for what the graphs read of each shard beside the first one.
    fn beside<'a>(graphs: impl Iterator<Item = &'a Graph>) -> Self {
        Self::of(graphs, |role| if let Role::ShardInput(input, _) = role { Some(input) } else { None })
    }

    fn of<'a>(graphs: impl Iterator<Item = &'a Graph>, input: impl Fn(Role) -> Option<Input>) -> Self {
        let mut inputs: Vec<SlotInput> = Vec::new();
        for value in graphs.flat_map(|g| &g.values) {
            let Some(input) = input(value.role) else { continue };
            match inputs.iter_mut().find(|i| i.input == input) {
                Some(i) if i.shape.len() >= value.shape.len() => {}
                Some(i) => i.shape = value.shape.clone(),
                None => inputs.push(SlotInput { input, dtype: value.dtype, shape: value.shape.clone(), offset: 0 }),
            }
        }
        inputs.sort_by_key(|i| i.input);
        let mut bytes = 0;
        for i in &mut inputs {
            i.offset = bytes;
            bytes += align(i.shape.len() * i.dtype.bytes());
        }
        SlotLayout { inputs, bytes }
    }

    /// The place of `input` in a slot.
    pub fn find(&self, input: Input) -> Option<&SlotInput> {
        self.inputs.iter().find(|i| i.input == input)
    }
}

impl Plan {
    /// Plans the memory of `sources` together. `needs` gives the memory of a node on the device: [`NodeMemory`], or the bytes of
    /// its scratch memory.
    pub fn new<N: Into<NodeMemory>>(
        variables: Arc<Variables>,
        sources: Vec<Source>,
        needs: impl Fn(&Graph, &Node) -> N,
    ) -> Plan {
        Plan::laid_out(variables, sources, needs, false)
    }

    /// Bytes of a slot with so many shards, one at least.
    pub fn slot_bytes(&self, shards: usize) -> usize {
        self.slot.bytes + shards.saturating_sub(1) * self.beside.bytes
    }

    /// As [`Plan::new`]. With `apart`, memory is never reused, not even by another program: that takes much memory, and is for
    /// tools that look for accesses beyond a buffer.
    pub fn laid_out<N: Into<NodeMemory>>(
        variables: Arc<Variables>,
        sources: Vec<Source>,
        needs: impl Fn(&Graph, &Node) -> N,
        apart: bool,
    ) -> Plan {
        let slot = SlotLayout::for_graphs(sources.iter().map(|s| &s.graph));
        let beside = SlotLayout::beside(sources.iter().map(|s| &s.graph));
        let mut persistent_bytes = 0;
        let variable_offsets: Vec<usize> = variables
            .iter()
            .map(|(_, v)| {
                let at = persistent_bytes;
                persistent_bytes += align(v.bytes_here());
                at
            })
            .collect();
        let mut programs: Vec<Program> = Vec::with_capacity(sources.len());
        let mut transient_bytes = 0;
        for source in sources {
            let start = apart.then_some(transient_bytes);
            let program = Program::new(source, [&slot, &beside], &variable_offsets, |g, n| needs(g, n).into(), start);
            transient_bytes = transient_bytes.max(program.transient_bytes);
            programs.push(program);
        }
        let together = programs.iter().map(|program| program.together).max().unwrap_or(1);
        Plan { variables, variable_offsets, persistent_bytes, transient_bytes, slot, beside, together, programs, apart }
    }
}

impl Program {
    /// With a `start`, every buffer has its own place from there on.
    fn new(
        source: Source,
        [slot, beside]: [&SlotLayout; 2],
        variable_offsets: &[usize],
        needs: impl Fn(&Graph, &Node) -> NodeMemory,
        start: Option<usize>,
    ) -> Program {
        let Source { name, graph, loss, prediction } = source;
        let lifetime::Lifetimes { buffer_of, mut buffers } = lifetime::lifetimes(&graph);
        let values = buffers.len();
        let own_needs: Vec<NodeMemory> = graph.nodes.iter().map(|node| needs(&graph, node)).collect();
        let needs = node_memory::settle(&graph, &own_needs);
        let workspace = |first, last, bytes| lifetime::Buffer { first, last, bytes, class: Class::Workspace };
        // The first node whose workspace lasts has that of all of them.
        let lasting = own_needs.iter().position(|need| need.lasts);
        let most = needs.iter().zip(&own_needs).filter(|(_, need)| need.lasts).map(|([bytes, _], _)| *bytes).max();
        buffers.extend(needs.iter().zip(&own_needs).enumerate().map(|(at, ([bytes, _], need))| match lasting {
            Some(first) if first == at => workspace(at, graph.nodes.len(), most.unwrap_or(0)),
            _ if need.lasts => workspace(at, at, 0),
            _ => workspace(at, at, *bytes),
        }));
        // What is kept is there before the first node, and after the last.
        let kept = buffers.len();
        buffers.extend(needs.iter().map(|[_, bytes]| match bytes {
            0 => workspace(0, 0, 0),
            _ => workspace(0, graph.nodes.len(), *bytes),
        }));
        let (offsets, transient_bytes) = match start {
            None => memory::assign(&buffers),
            Some(start) => memory::in_a_row(&buffers, start),
        };
        let own_place = |i: usize| match graph.values[i].role {
            Role::Input(input) => {
                let at = slot.find(input).expect("the layout was made from the graphs");
                Place { region: Region::Slot, offset: at.offset }
            }
            Role::ShardInput(input, shard) => {
                let at = beside.find(input).expect("the layout was made from the graphs");
                let before = slot.bytes + (shard as usize - 1) * beside.bytes;
                Place { region: Region::Slot, offset: before + at.offset }
            }
            Role::Parameter(id) | Role::State(id) => {
                Place { region: Region::Persistent, offset: variable_offsets[id.0 as usize] }
            }
            Role::Temporary | Role::Output => {
                Place { region: Region::Transient, offset: buffer_of[i].map_or(0, |b| offsets[b]) }
            }
        };
        let places = lifetime::borrowed(&graph)
            .into_iter()
            .enumerate()
            .map(|(i, root)| own_place(root.map_or(i, ValueId::index)))
            .collect();
        let place_of = |buffer: usize| (offsets[buffer], buffers[buffer].bytes);
        let own = |(at, need): (usize, &NodeMemory)| lasting.filter(|_| need.lasts).unwrap_or(at);
        let workspace = own_needs.iter().enumerate().map(|of| place_of(values + own(of))).collect();
        let kept = (kept..buffers.len()).map(place_of).collect();
        let peak = Peak::find(&graph, &buffers);
        let trains = graph.nodes.iter().any(|n| n.backward);
        let training_loss = loss.filter(|v| trains && graph.nodes.iter().any(|n| n.outputs.contains(v)));
        let together = graph.values.iter().map(|value| match value.role {
            Role::ShardInput(_, shard) => shard as usize + 1,
            _ => 1,
        });
        let together = together.max().unwrap_or(1);
        Program {
            name,
            places,
            workspace,
            kept,
            transient_bytes,
            loss,
            training_loss,
            prediction,
            peak,
            together,
            graph,
        }
    }

    /// Node number `at` as messages show it: ``node 3 (`relu` of `features.1`)``.
    pub fn node_name(&self, at: usize) -> String {
        let node = &self.graph.nodes[at];
        let layer = match self.graph.origin(node) {
            "" => String::new(),
            path => format!(" of `{path}`"),
        };
        let side = if node.backward { ", backward" } else { "" };
        format!("node {at} (`{}`{layer}{side})", node.op.rules().name())
    }
}

#[cfg(test)]
mod tests;
