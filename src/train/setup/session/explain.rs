//! Where a step stops being finite.

use super::{Session, StepInputs};
use crate::backend::HostBuffer;
use crate::bulk;
use crate::data::Field;
use crate::graph::{Input, NodeId, Role, VarKind};
use crate::model::BatchShape;
use crate::train::setup::programs::Kind;
use anyhow::Result;

impl Session {
    /// Says where the computation on `batch`, which is of that shape, stops being finite: the layer and operation, or
    /// the parameter that already is not.
    ///
    /// # Errors
    /// The device failed.
    pub fn explain_not_finite(
        &mut self,
        batch: &mut HostBuffer,
        shape: impl Into<BatchShape>,
        inputs: StepInputs,
    ) -> Result<String> {
        // The sums over ranks are not begun again.
        self.shard.is_last = false;
        self.write_inputs(batch, inputs);
        let plan = self.programs.plan.clone();
        for (id, var) in plan.variables.iter().filter(|(_, v)| v.kind == VarKind::Parameter) {
            let mut finite = true;
            self.read(id, &mut |piece| {
                finite &= bulk::are_finite(piece);
                Ok(())
            })?;
            if !finite {
                return Ok(format!("the parameter `{}` is no longer finite after the last update", var.name));
            }
        }
        if self.programs.together {
            return self.find_in_gathered(batch);
        }
        let program = self.program(Kind::Train, shape)?;
        let found = self.executable.find_not_finite(program, batch)?;
        Ok(self.describe_origin(program, found))
    }

    /// Where a program stops being finite.
    pub(super) fn describe_origin(&self, program: usize, found: Option<NodeId>) -> String {
        let graph = &self.programs.plan.programs[program].graph;
        match found {
            Some(node) => {
                let node = &graph.nodes[node.index()];
                let side = if node.backward { " (backward)" } else { "" };
                let reads = node.inputs.iter().find_map(|v| self.input_of(graph.value(*v).role));
                let hint = match reads {
                    Some(_) if self.programs.fields.iter().filter(|field| field.is_input()).count() == 1 => {
                        ", the first to read the batch: look for such values in the data".to_string()
                    }
                    Some(field) => format!(", the first to read `{}`: look for such values there", field.name),
                    None => String::new(),
                };
                format!("it begins in `{}`, operation `{}`{side}{hint}", graph.origin(node), node.op.label())
            }
            None => "every operation is finite when the step is run again".to_string(),
        }
    }

    /// The field of the model's input that a value of that role is.
    fn input_of(&self, role: Role) -> Option<&Field> {
        let (Role::Input(Input::Field(number)) | Role::ShardInput(Input::Field(number), _)) = role else { return None };
        self.programs.fields.get(number as usize).filter(|field| field.is_input())
    }
}
