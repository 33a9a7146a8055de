//! A file of figures of models, one row for each measurement: what docs/models.md is made from.

use super::Options;
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Puts the milliseconds of ours and of the best of the others, and the ratio, into the row of the measurement; rows of others stay.
///
/// # Errors
/// The file cannot be read or written, or is no table.
pub fn keep(path: &Path, model: &str, options: &Options, [ours_ms, theirs_ms, ratio]: [f64; 3]) -> Result<()> {
    let mut all: Map<String, Value> = match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("`{}` is no table", path.display()))?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Map::new(),
        Err(e) => return Err(e).with_context(|| format!("cannot read `{}`", path.display())),
    };
    let Options { batch, side, eval, .. } = options;
    let kind = if *eval { format!("evaluation_{batch}") } else { "training".to_string() };
    let models = all.entry(model).or_insert_with(|| json!({}));
    let row = models.as_object_mut().with_context(|| format!("`{model}` in `{}` is no table", path.display()))?;
    row.insert(
        kind,
        json!({ "batch": batch, "side": side, "runner_ms": round(ours_ms), "best_ms": round(theirs_ms), "ratio": round(ratio) }),
    );
    let text = serde_json::to_string_pretty(&all)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// Four digits that count.
fn round(x: f64) -> f64 {
    format!("{x:.3e}").parse().unwrap_or(x)
}
