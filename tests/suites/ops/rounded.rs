//! A backend made of the reference, with every result rounded to its type (and spoilt, if asked): a check on the
//! harness itself.

use anyhow::Result;
use runner::backend::cpu::fusions::FUSIONS;
use runner::backend::reference::elements::{decode, encode};
use runner::backend::reference::{Values, evaluate};
use runner::backend::{Backend, Detail, Executable, HostBuffer, Span};
use runner::graph::op::Pattern;
use runner::graph::{DType, Graph, Node, NodeId, Role, ValueId, VarId};
use runner::plan::{ALIGN, Plan};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The backend.
pub struct Rounded {
    /// Every float is this much too large, relatively.
    pub error: f64,
}

struct Compiled {
    plan: Arc<Plan>,
    error: f64,
    variables: BTreeMap<VarId, Vec<f64>>,
    values: Values,
}

impl Backend for Rounded {
    fn describe(&self) -> String {
        "reference, rounded".into()
    }

    fn supports(&self, _: DType) -> bool {
        true
    }

    fn updates_apart(&self) -> bool {
        true
    }

    fn fusions(&self) -> &'static [Pattern] {
        &FUSIONS
    }

    fn workspace(&self, _: &Graph, _: &Node) -> usize {
        0
    }

    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer> {
        let layout = Layout::from_size_align(bytes, ALIGN)?;
        anyhow::ensure!(bytes > 0, "a buffer of no bytes");
        // SAFETY: the layout is of at least one byte.
        let ptr = unsafe { alloc_zeroed(layout) };
        anyhow::ensure!(!ptr.is_null(), "out of memory");
        // SAFETY: `ptr` was allocated with this layout, is zeroed, and belongs to the buffer alone.
        Ok(unsafe { HostBuffer::from_raw(ptr, bytes, Box::new(move |p| dealloc(p, layout))) })
    }

    fn compile(&self, plan: Arc<Plan>) -> Result<Box<dyn Executable>> {
        let variables = plan.variables.iter().map(|(id, v)| (id, vec![0.0; v.shape.len()])).collect();
        Ok(Box::new(Compiled { plan, error: self.error, variables, values: Values::new() }))
    }
}

impl Compiled {
    /// `data` as a value of type `dtype` holds it.
    fn round(&self, dtype: DType, data: &[f64]) -> Vec<f64> {
        let spoil = if matches!(dtype, DType::F32 | DType::F64) { 1.0 + self.error } else { 1.0 };
        // The reference has rounded floats of 16 bits.
        data.iter().map(|v| if dtype == DType::F32 { f64::from((v * spoil) as f32) } else { v * spoil }).collect()
    }

    /// The operands of `program`: its variables, and its inputs from `batch`.
    fn start(&self, program: usize, batch: &HostBuffer) -> Values {
        let mut values = Values::new();
        for (i, value) in self.plan.programs[program].graph.values.iter().enumerate() {
            let data = match value.role {
                Role::Parameter(id) | Role::State(id) => self.variables[&id].clone(),
                Role::Input(_) => {
                    let at = self.plan.programs[program].places[i].offset;
                    decode(value.dtype, &batch.bytes()[at..at + value.bytes()])
                }
                Role::ShardInput(_, _) | Role::Temporary | Role::Output => continue,
            };
            values.insert(ValueId(i as u32), data);
        }
        values
    }
}

impl Executable for Compiled {
    fn upload(&mut self, var: VarId, bytes: &[u8]) -> Result<()> {
        self.variables.insert(var, decode(self.plan.variables[var].dtype, bytes));
        Ok(())
    }

    fn download(&mut self, var: VarId, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(&encode(self.plan.variables[var].dtype, &self.variables[&var]));
        Ok(())
    }

    fn upload_part(&mut self, _: VarId, _: usize, _: &[u8]) -> Result<()> {
        anyhow::bail!("not part of the check")
    }

    fn download_part(&mut self, _: VarId, _: usize, _: &mut [u8]) -> Result<()> {
        anyhow::bail!("not part of the check")
    }

    fn run(&mut self, program: usize, _: usize, batch: &HostBuffer) -> Result<()> {
        let mut values = self.start(program, batch);
        let graph = self.plan.programs[program].graph.clone();
        for node in &graph.nodes {
            let mut single = graph.clone();
            single.nodes = vec![node.clone()];
            evaluate(&single, &mut values);
            let updated = node.op.rules().mutates(node.inputs.len()).into_iter().map(|m| node.inputs[m]);
            for id in node.outputs.iter().copied().chain(updated) {
                let rounded = self.round(graph.value(id).dtype, &values[&id]);
                if let Role::Parameter(var) | Role::State(var) = graph.value(id).role {
                    self.variables.insert(var, rounded.clone());
                }
                values.insert(id, rounded);
            }
        }
        self.values = values;
        Ok(())
    }

    fn wait_slot(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn losses(&mut self, _: bool, _: &mut Vec<f32>) -> Result<()> {
        anyhow::bail!("not part of the check")
    }

    fn output(&mut self, program: usize, value: ValueId, bytes: &mut [u8]) -> Result<()> {
        let dtype = self.plan.programs[program].graph.value(value).dtype;
        bytes.copy_from_slice(&encode(dtype, &self.values[&value]));
        Ok(())
    }

    fn output_part(&mut self, _: usize, _: ValueId, _: usize, _: &mut [u8]) -> Result<()> {
        anyhow::bail!("not part of the check")
    }

    fn find_not_finite(&mut self, _: usize, _: &HostBuffer) -> Result<Option<NodeId>> {
        anyhow::bail!("not part of the check")
    }

    fn trace(&mut self, _: &[usize], _: &HostBuffer, _: usize, _: Detail) -> Result<Vec<Span>> {
        anyhow::bail!("not part of the check")
    }

    fn peak_bytes(&self) -> usize {
        self.plan.persistent_bytes + self.plan.transient_bytes
    }
}
