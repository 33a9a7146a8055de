//! What is measured of heads, and what a model puts out for them.

use super::Session;
use crate::graph::op::{Op, metric_slot};
use crate::graph::{Role, ValueId};
use crate::model::{BatchShape, Mode, head_class_counts, head_metrics};
use crate::train::setup::class_report::ClassReport;
use crate::train::setup::figures::Figures;
use crate::train::setup::programs::{HeadOf, Kind};
use anyhow::{Context, Result};

impl Session {
    /// Figures of the main target with those of heads.
    pub(super) fn with_heads(&mut self, figures: Figures, mode: Mode) -> Result<Figures> {
        self.programs.heads.clone().into_iter().try_fold(figures, |figures, head: HeadOf| {
            let sums = self.metric_sums(&head_metrics(mode, &head.name))?;
            let of_head = (sums[metric_slot::WEIGHT] > 0.0).then(|| Figures::new(head.task(), &sums));
            Ok(figures.and_of_head(head.name, of_head))
        })
    }

    /// What has been counted of the classes of each head since the figures of evaluation were reset, with its number.
    ///
    /// # Errors
    /// The device failed.
    pub fn class_reports_of_heads(&mut self) -> Result<Vec<(usize, ClassReport)>> {
        let mut all = Vec::new();
        for number in 0..self.programs.heads.len() {
            let name = head_class_counts(&self.programs.heads[number].name);
            all.extend(self.counted_classes(&name)?.map(|report| (number, report)));
        }
        Ok(all)
    }

    /// What the counts of classes in a variable stand for, if there is such a variable.
    pub(super) fn counted_classes(&mut self, name: &str) -> Result<Option<ClassReport>> {
        let plan = self.programs.plan.clone();
        let Some(id) = plan.variables.find(name) else { return Ok(None) };
        let counted = plan.programs.iter().find_map(|program| {
            let is = |value: &ValueId| program.graph.value(*value).role == Role::State(id);
            program.graph.nodes.iter().find_map(|node| match &node.op {
                Op::ClassCounts(op) if node.inputs.iter().any(is) => Some(op),
                _ => None,
            })
        });
        let counts = self.doubles(id)?;
        Ok(counted.map(|op| ClassReport::new(op, &counts)))
    }

    /// What the model put out for a head of that number for the last batch of that shape that was predicted: rows of floats. `bytes` as for
    /// [`Session::predict_into`].
    ///
    /// # Errors
    /// The device failed.
    pub fn head_into(
        &mut self,
        head: usize,
        shape: impl Into<BatchShape>,
        bytes: &mut Vec<u8>,
        into: &mut [f32],
    ) -> Result<()> {
        self.head_outputs(Kind::Predict, head, shape, bytes)?;
        into.iter_mut().zip(bytes.as_chunks().0).for_each(|(into, float)| *into = f32::from_ne_bytes(*float));
        Ok(())
    }

    /// The same for the last batch of a program of that kind, as native-endian bytes in `into`.
    ///
    /// # Errors
    /// The device failed.
    pub fn head_outputs(
        &mut self,
        kind: Kind,
        head: usize,
        shape: impl Into<BatchShape>,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let program = self.program(kind, shape)?;
        let of = &self.programs.plan.programs[program];
        let outputs = self.programs.head_outputs.get(&program).context("the program has no heads")?;
        let value = outputs[head];
        into.resize(of.graph.value(value).bytes(), 0);
        self.executable.output(program, value, into)
    }
}
