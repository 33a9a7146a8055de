//! Graphs as text, to read what a pass has done.

use super::{Graph, Role, ValueId};
use std::fmt;

impl Graph {
    fn show(&self, id: ValueId) -> String {
        let v = self.value(id);
        let mark = match v.role {
            Role::Input(_) | Role::ShardInput(_, _) => "in",
            Role::Parameter(_) => "param",
            Role::State(_) => "state",
            Role::Temporary => "",
            Role::Output => "out",
        };
        format!("%{}{}{mark}:{}{}", id.0, if mark.is_empty() { "" } else { "." }, v.stored(), v.shape)
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            let show = |list: &[ValueId]| list.iter().map(|v| self.show(*v)).collect::<Vec<_>>().join(", ");
            let side = if node.backward { " (backward)" } else { "" };
            let name = node.op.label();
            writeln!(f, "{} = {name}({})  # {}{side}", show(&node.outputs), show(&node.inputs), self.origin(node))?;
        }
        Ok(())
    }
}
