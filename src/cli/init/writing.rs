//! The text of a configuration: sections, keys, and remarks after them.

use crate::config::value_as_toml;
use serde_json::Value;
use std::fmt::Write;

/// Where remarks begin, if the line is not longer.
const REMARKS: usize = 44;

/// A configuration while it is written.
#[derive(Default)]
pub struct Writing(String);

impl Writing {
    /// A line of a comment; of several lines each.
    pub fn comment(&mut self, text: &str) -> &mut Self {
        for line in text.lines() {
            let _ = writeln!(self.0, "{}", format!("# {line}").trim_end());
        }
        self
    }

    /// A line without anything.
    pub fn gap(&mut self) -> &mut Self {
        self.0.push('\n');
        self
    }

    /// A section.
    pub fn section(&mut self, name: &str) -> &mut Self {
        let _ = writeln!(self.0, "\n[{name}]");
        self
    }

    /// A key with its value as TOML, and a remark if there is one.
    pub fn key(&mut self, key: &str, value: &str, remark: &str) -> &mut Self {
        self.line(&format!("{key} = {value}"), remark)
    }

    /// A key that does not count as long as it is a comment.
    pub fn maybe(&mut self, key: &str, value: &str, remark: &str) -> &mut Self {
        self.line(&format!("# {key} = {value}"), remark)
    }

    /// The end of a training of so many epochs that gets no better for `patience` of them, or for half of all.
    pub fn early_stopping(&mut self, patience: usize, epochs: usize) -> &mut Self {
        let patience = patience.min(epochs / 2).max(1);
        let value = format!("{{ monitor = \"val_loss\", patience = {patience} }}");
        self.key("early_stopping", &value, "ends when it gets no better; best.safetensors is from before")
    }

    fn line(&mut self, text: &str, remark: &str) -> &mut Self {
        let _ = match remark {
            "" => writeln!(self.0, "{text}"),
            remark => writeln!(self.0, "{text:<width$} # {remark}", width = REMARKS),
        };
        self
    }

    /// All of it.
    pub fn text(self) -> String {
        self.0
    }
}

/// A text as a value of TOML.
pub fn quoted(text: &str) -> String {
    value_as_toml(&Value::from(text))
}

#[cfg(test)]
mod tests {
    use super::Writing;

    #[test]
    fn patience_is_at_most_half_of_a_training() {
        for (patience, epochs, written) in [(10, 100, 10), (10, 10, 5), (15, 5, 2), (3, 1, 1)] {
            let mut out = Writing::default();
            out.early_stopping(patience, epochs);
            let text = out.text();
            assert!(text.contains(&format!("patience = {written} }}")), "{text}");
        }
    }
}
