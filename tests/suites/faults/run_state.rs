//! What a run has left in its folder, as far as it must not differ.

use runner::checkpoint::{self, FileKind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// All that a run of one configuration leaves, without times.
#[derive(Debug, Clone, PartialEq)]
pub struct RunState {
    /// The checkpoints by name.
    checkpoints: BTreeMap<String, Saved>,
    /// The lines of `metrics.jsonl`.
    metrics: Vec<Value>,
    config: String,
    /// All names in the folder, but for the lock's, which may stay.
    names: Vec<String>,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq)]
struct Saved {
    meta: Value,
    tensors: BTreeMap<String, Vec<u8>>,
}

impl RunState {
    /// Reads a run's folder; what is wrong with it.
    pub fn read(run: &Path) -> Result<RunState, String> {
        let mut names = names(run);
        names.retain(|name| name != ".lock");
        // Paths are absolute, and every case has a folder of its own.
        let home = run.parent().unwrap_or(run).display().to_string();
        let mut checkpoints = BTreeMap::new();
        for name in names.iter().filter(|n| FileKind::of(n).is_some()) {
            let mut saved = read_checkpoint(&run.join(name))?;
            let config = saved.meta["config"].as_str().unwrap_or_default().replace(&home, "HOME");
            saved.meta["config"] = config.into();
            checkpoints.insert(name.clone(), saved);
        }
        let text = |name: &str| fs::read_to_string(run.join(name)).map_err(|e| format!("`{name}`: {e}"));
        let mut metrics = Vec::new();
        for line in text("metrics.jsonl")?.lines() {
            let mut line: Value = serde_json::from_str(line).map_err(|e| format!("metrics.jsonl: {e}: {line}"))?;
            let fields = line.as_object_mut().ok_or("metrics.jsonl: no object")?;
            fields.retain(|name, _| !["seconds", "samples_per_s"].contains(&name.as_str()));
            metrics.push(line);
        }
        Ok(RunState { checkpoints, metrics, config: text("config.toml")?.replace(&home, "HOME"), names })
    }

    /// The text of `config.toml`.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// Says where the two differ.
    pub fn same_as(&self, expected: &RunState) -> Result<(), String> {
        let mut wrong = Vec::new();
        if self.names != expected.names {
            wrong.push(format!("the folder holds {:?}, not {:?}", self.names, expected.names));
        }
        if self.config != expected.config {
            wrong.push(format!("config.toml:\n{}\ninstead of\n{}", self.config, expected.config));
        }
        if self.metrics != expected.metrics {
            wrong.push(format!("metrics: {:?} instead of {:?}", self.metrics, expected.metrics));
        }
        for (name, saved) in &expected.checkpoints {
            let Some(found) = self.checkpoints.get(name) else { continue };
            if found.meta != saved.meta {
                wrong.push(format!("{name}: {} instead of {}", found.meta, saved.meta));
            }
            if found.tensors != saved.tensors {
                wrong.push(format!("{name}: tensors differ"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }
}

fn read_checkpoint(path: &Path) -> Result<Saved, String> {
    let read = checkpoint::read(path).map_err(|e| format!("not whole: {e}"))?;
    let mut meta = serde_json::to_value(&read.meta).map_err(|e| e.to_string())?;
    // Times, and what depends on how they are written.
    meta["checksum"].take();
    meta["extra"]["epoch_seconds"].take();
    meta["extra"]["metrics_bytes"].take();
    Ok(Saved { meta, tensors: read.tensors.into_iter().map(|(name, t)| (name, t.data)).collect() })
}

/// Every checkpoint in the folder under its own name is whole; none is fine.
pub fn all_whole(run: &Path) -> Result<(), String> {
    for name in names(run).iter().filter(|n| FileKind::of(n).is_some()) {
        read_checkpoint(&run.join(name))?;
    }
    Ok(())
}

/// Whether there is something to go on from.
pub fn newest_step(run: &Path) -> Option<u64> {
    checkpoint::newest_whole(run).ok()?.found.map(|(_, meta)| meta.step)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
