//! The texts that a language model wrote while it was trained.

use super::html::escaped;
use crate::runs::Run;
use crate::runs::lines::Line;
use crate::terminal::thousands;
use serde_json::Value;

/// Texts that are shown of a run.
const MOST_TEXTS: usize = 20;

/// A list of them, the last ones first.
pub fn texts_html(run: &Run) -> String {
    let samples = &run.lines.samples;
    if samples.is_empty() {
        return String::new();
    }
    let text = |line: &Line, key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut out = "<h3>Texts that the model wrote</h3>\n".to_owned();
    for line in samples.iter().rev().take(MOST_TEXTS) {
        let step = line.get("step").and_then(Value::as_u64).unwrap_or(0);
        let (prompt, text) = (escaped(&text(line, "prompt")), escaped(&text(line, "text")));
        out += &format!(
            "<figure><figcaption>After step {}</figcaption><pre><strong>{prompt}</strong>{text}</pre></figure>\n",
            thousands(step)
        );
    }
    if samples.len() > MOST_TEXTS {
        out += &format!(
            "<p class=\"soft\">{} earlier ones are in <code>metrics.jsonl</code>.</p>\n",
            samples.len() - MOST_TEXTS
        );
    }
    out
}
