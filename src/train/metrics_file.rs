//! `metrics.jsonl`: one JSON object a line.

use super::metrics::Figures;
use crate::backend::MemoryUse;
use crate::terminal::json_line;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The file, open for appending.
pub struct MetricsFile {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
}

impl MetricsFile {
    /// Opens the file of a run that starts (`keep` is 0) or continues after its first `keep` bytes; what a run that was
    /// killed wrote beyond its last checkpoint is cut off.
    ///
    /// # Errors
    /// The file cannot be opened, or is shorter than it was.
    pub fn open(path: &Path, keep: u64) -> Result<Self> {
        let context = || format!("cannot write `{}`", path.display());
        let file = OpenOptions::new().create(true).append(true).open(path).with_context(context)?;
        let len = file.metadata().with_context(context)?.len();
        if len < keep {
            bail!(
                "`{}` has {len} bytes, but the checkpoint was written when it had {keep}\nhelp: restore the file, or start \
                 a new run from these weights with `[model] weights`",
                path.display()
            );
        }
        file.set_len(keep).with_context(context)?;
        Ok(MetricsFile { path: path.to_path_buf(), file: BufWriter::new(file), bytes: keep })
    }

    /// Appends a line.
    ///
    /// # Errors
    /// The disk is full, or the like.
    pub fn write(&mut self, line: &Value) -> Result<()> {
        let text = json_line(line) + "\n";
        self.bytes += text.len() as u64;
        self.file.write_all(text.as_bytes()).with_context(|| format!("cannot write `{}`", self.path.display()))
    }

    /// Makes everything durable; the length of the file, which a checkpoint may then rely on.
    ///
    /// # Errors
    /// The disk is full, or the like.
    pub fn flush(&mut self) -> Result<u64> {
        let done = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        done.with_context(|| format!("cannot write `{}`", self.path.display()))?;
        Ok(self.bytes)
    }
}

/// The line of an update.
pub fn step_line(step: u64, epoch: usize, loss: f32, lr: f64) -> Value {
    json!({ "kind": "step", "step": step, "epoch": epoch, "loss": single(loss), "lr": lr })
}

/// The line that says that the samples, or the precision, are not those asked for.
pub fn note_line(text: &str) -> Value {
    json!({ "kind": "note", "note": text })
}

/// The line of an epoch.
pub fn epoch_line(
    epoch: usize,
    step: u64,
    train: Option<&Figures>,
    val: Option<&Figures>,
    seconds: f64,
    samples_per_s: f64,
) -> Value {
    let mut line = Map::new();
    line.insert("kind".into(), "epoch".into());
    line.insert("epoch".into(), epoch.into());
    line.insert("step".into(), step.into());
    for (prefix, figures) in [("train", train), ("val", val)] {
        for (name, value) in figures.iter().flat_map(|f| f.list()) {
            line.insert(format!("{prefix}_{name}"), number(value));
        }
    }
    line.insert("seconds".into(), number((seconds * 1e3).round() / 1e3));
    line.insert("samples_per_s".into(), json!(samples_per_s.round() as u64));
    Value::Object(line)
}

/// Adds to the line of an epoch what the run has of a GPU's memory, in bytes.
pub fn add_memory(line: &mut Value, memory: MemoryUse) {
    line["memory_allocated"] = memory.allocated.into();
    line["memory_reserved"] = memory.reserved.into();
    line["memory_peak"] = memory.peak.into();
}

/// A single-precision number by the shortest decimal that stands for it, where widening would show digits that mean
/// nothing.
fn single(x: f32) -> Value {
    number(x.to_string().parse().unwrap_or(f64::from(x)))
}

/// A number, or null where JSON has none for it.
fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_as_short_as_they_can_be() {
        assert_eq!(step_line(1, 1, 2.307_980_3, 0.1)["loss"].to_string(), "2.3079803");
        assert_eq!(step_line(1, 1, 1e-30, 0.1)["loss"].to_string(), "1e-30");
        assert_eq!(step_line(1, 1, f32::NAN, 0.1)["loss"], Value::Null);
        let line = epoch_line(1, 2, None, None, 0.0, 1234.4);
        assert_eq!(line["samples_per_s"].to_string(), "1234");
    }

    #[test]
    fn a_resumed_file_is_cut_where_the_checkpoint_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.jsonl");
        let mut m = MetricsFile::open(&path, 0).unwrap();
        m.write(&step_line(1, 1, 0.5, 0.1)).unwrap();
        let keep = m.flush().unwrap();
        m.write(&step_line(2, 1, 0.25, 0.1)).unwrap();
        m.flush().unwrap();
        drop(m);
        let mut m = MetricsFile::open(&path, keep).unwrap();
        m.write(&step_line(2, 1, 0.125, 0.1)).unwrap();
        m.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.ends_with("{\"kind\":\"step\",\"step\":2,\"epoch\":1,\"loss\":0.125,\"lr\":0.1}\n"), "{text}");
        assert!(MetricsFile::open(&path, 10_000).is_err());
    }
}
