//! The outputs of heads, each under the head's name.

use super::graph::int;
use super::{Translator, Value, internal, proto};
use crate::config::Diagnostic;
use crate::data::table::TableCodec;
use crate::graph::op::Task;
use serde_json::{Value as Json, json};

impl Translator<'_> {
    /// Declares the output of a head, of that name: what its layer puts out, in the target's own unit, or probabilities of it.
    pub(super) fn output_of_head(&mut self, at: usize, name: String) -> Result<proto::ValueInfo, Diagnostic> {
        let head = &self.source.experiment.heads[at];
        let y = self.named.get(head.output()).cloned();
        let mut y: Value = y.ok_or_else(|| internal(format!("no `{}`", head.output())))?;
        self.graph.scope.clone_from(&name);
        let standard = self.source.data.heads().nth(at).and_then(|(_, field)| field.standard.clone());
        y.name = match (head.loss.0.describe().task(), standard) {
            (Task::Classification, _) if self.options.softmax => {
                self.graph.op("Softmax", &[&y.name], [int("axis", -1)])
            }
            (Task::BinaryClassification, _) if self.options.softmax => self.graph.op("Sigmoid", &[&y.name], []),
            (Task::Regression, Some(standard)) => self.unstandardized(&y, &standard),
            // Others may read the layer's result, which keeps its own name.
            _ => self.graph.op("Identity", &[&y.name], []),
        };
        Ok(self.put_out(y, name))
    }

    /// What the file says of its heads.
    pub(super) fn heads_in_words(&self) -> Json {
        let table = TableCodec::of(self.source.data);
        let of = |(at, head): (usize, &crate::config::language::sections::Head)| {
            let output = match head.loss.0.describe().task() {
                Task::Regression => "values",
                Task::Classification | Task::BinaryClassification if self.options.softmax => "probabilities",
                Task::Classification | Task::BinaryClassification => "logits",
            };
            let mut entry = json!({ "output": output });
            let field = self.source.data.heads().nth(at).map(|(_, field)| field);
            if let Some(names) = field.and_then(|field| field.kind.classes()?.names.as_ref()) {
                entry["class_names"] = json!(names);
            }
            // Heads of a table are of one column each.
            if let Some(column) = table.as_ref().and_then(|table| table.heads.get(at)?.target.columns().first()) {
                entry["column"] = json!(column);
            }
            (head.name().to_owned(), entry)
        };
        Json::Object(self.source.experiment.heads.iter().enumerate().map(of).collect())
    }
}
