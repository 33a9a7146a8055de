//! Plans for cases.

use runner::backend::Backend;
use runner::graph::{Graph, Role, Variables};
use runner::plan::{ALIGN, Place, Plan, Program, Region, SlotInput, SlotLayout};
use std::sync::Arc;

/// Hands out places one after the other.
#[derive(Default)]
struct Block(usize);

impl Block {
    fn take(&mut self, bytes: usize) -> usize {
        let at = self.0;
        self.0 += bytes.next_multiple_of(ALIGN);
        at
    }
}

/// A plan of one program in which every value has a place of its own.
pub fn plan(backend: &dyn Backend, graph: Graph, variables: Variables) -> Plan {
    let (mut persistent, mut slot, mut transient) = (Block::default(), Block::default(), Block::default());
    let variable_offsets: Vec<usize> = variables.iter().map(|(_, v)| persistent.take(v.bytes())).collect();
    let mut inputs = Vec::new();
    let mut places: Vec<Place> = Vec::new();
    for value in &graph.values {
        places.push(match value.role {
            Role::Input(input) => {
                let offset = slot.take(value.bytes());
                inputs.push(SlotInput { input, dtype: value.dtype, shape: value.shape.clone(), offset });
                Place { region: Region::Slot, offset }
            }
            Role::Parameter(id) | Role::State(id) => {
                Place { region: Region::Persistent, offset: variable_offsets[id.0 as usize] }
            }
            Role::Temporary | Role::Output => {
                Place { region: Region::Transient, offset: transient.take(value.bytes()) }
            }
        });
    }
    for node in graph.nodes.iter().filter(|n| n.op.rules().is_alias()) {
        places[node.outputs[0].index()] = places[node.inputs[0].index()];
    }
    let mut workspace = Vec::new();
    for node in &graph.nodes {
        let bytes = backend.workspace(&graph, node);
        workspace.push((transient.take(bytes), bytes));
    }
    let program = Program {
        name: "case".into(),
        graph,
        places,
        workspace,
        transient_bytes: transient.0,
        loss: None,
        prediction: None,
    };
    Plan {
        variables: Arc::new(variables),
        variable_offsets,
        persistent_bytes: persistent.0,
        transient_bytes: transient.0,
        slot: SlotLayout { inputs, bytes: slot.0 },
        programs: vec![program],
    }
}
