//! TensorBoard's event files: scalars, texts, hyper-parameters, histograms, pictures, a graph.
//!
//! A file is a sequence of records (`record`), each of which is a message (`event`). A run that goes on begins another file, whose
//! first record says from which step on what is in the earlier ones no longer counts.

mod event;
mod graph;
mod histogram;
mod hparams;
mod image;
mod record;

pub use graph::{GraphDef, InputNode, LossNode, graph_def};
pub use histogram::Histogram;
pub use image::Image;

use crate::files::durable;
use anyhow::{Context, Result};
use event::{Event, Value, What};
use prost::Message;
use serde_json::Value as Json;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How the names of event files begin, by which TensorBoard knows them.
const NAME: &str = "events.out.tfevents.";
/// The version of the format.
const VERSION: &str = "brain.Event:2";

/// Where the events of a run go.
pub struct EventFile {
    path: PathBuf,
    events: Events<BufWriter<File>>,
    first: bool,
}

impl EventFile {
    /// Begins a file in `folder`, which is made where it is not there, for a run that has done `step` updates.
    ///
    /// # Errors
    /// The folder cannot be made or read, or the file not written.
    pub fn create(folder: &Path, step: u64) -> Result<EventFile> {
        let cannot = || format!("cannot write event files into `{}`", folder.display());
        durable::create_folders(folder).with_context(cannot)?;
        let mut earlier = Vec::new();
        for entry in fs::read_dir(folder).with_context(cannot)? {
            let name = entry.with_context(cannot)?.file_name();
            earlier.extend(name.to_str().and_then(|name| name.strip_prefix(NAME)).map(str::to_owned));
        }
        // TensorBoard reads them in the order of their names, whatever the clock has done in the meantime.
        let latest = earlier.iter().filter_map(|name| name.split('.').next()?.parse().ok()).max().unwrap_or(0);
        let seconds = (now() as u64).max(latest);
        let path = folder.join(format!("{NAME}{seconds:010}.{:04}", earlier.len()));
        let begin = || -> std::io::Result<_> {
            let mut events = Events { out: BufWriter::new(durable::create(&path)?), now };
            events.begin(step)?;
            Ok(events)
        };
        let events = begin().with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(EventFile { path, events, first: earlier.is_empty() })
    }

    /// Whether there was none in its folder before.
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// Its folder has another place now.
    pub fn moved_to(&mut self, folder: &Path) {
        if let Some(name) = self.path.file_name() {
            self.path = folder.join(name);
        }
    }

    /// Writes a text, such as the configuration.
    ///
    /// # Errors
    /// The disk is full, or the like.
    pub fn text(&mut self, step: u64, tag: &str, text: &str) -> Result<()> {
        self.write(step, vec![Value::text(tag, text)])
    }

    fn write(&mut self, step: u64, values: Vec<Value>) -> Result<()> {
        self.events.write(step, values).with_context(|| format!("cannot write `{}`", self.path.display()))
    }

    /// Writes the hyper-parameters that a configuration has.
    ///
    /// # Errors
    /// As [`EventFile::text`].
    pub fn hparams(&mut self, step: u64, config: &toml::Table) -> Result<()> {
        let start = (self.events.now)();
        self.write(step, vec![Value::hparams(hparams::settings(config), start)])
    }

    /// Writes a text in Markdown.
    ///
    /// # Errors
    /// As [`EventFile::text`].
    pub fn markdown(&mut self, step: u64, tag: &str, text: &str) -> Result<()> {
        self.write(step, vec![Value::markdown(tag, text)])
    }

    /// Writes pictures.
    ///
    /// # Errors
    /// As [`EventFile::text`].
    pub fn images(&mut self, step: u64, images: &[Image]) -> Result<()> {
        self.write(step, images.iter().map(Value::image).collect())
    }

    /// Writes the graph of the model.
    ///
    /// # Errors
    /// As [`EventFile::text`].
    pub fn graph(&mut self, step: u64, graph: &GraphDef) -> Result<()> {
        let done = self.events.event(step, What::GraphDef(graph.encode_to_vec()));
        done.with_context(|| format!("cannot write `{}`", self.path.display()))
    }

    /// Writes the numbers of a line of `metrics.jsonl`, and hands everything to the system.
    ///
    /// # Errors
    /// As [`EventFile::text`].
    pub fn line(&mut self, line: &Json) -> Result<()> {
        let Some(step) = line.get("step").and_then(Json::as_u64) else { return Ok(()) };
        let scalars = scalars(line);
        if scalars.is_empty() {
            return Ok(());
        }
        self.write(step, scalars.into_iter().map(|(tag, value)| Value::scalar(&tag, value)).collect())?;
        self.flush()
    }

    /// Writes a histogram.
    ///
    /// # Errors
    /// As [`EventFile::text`].
    pub fn histogram(&mut self, step: u64, tag: &str, of: &Histogram) -> Result<()> {
        self.write(step, vec![Value::histogram(tag, of)])
    }

    /// Hands everything to the system, so that TensorBoard sees it.
    ///
    /// # Errors
    /// As [`EventFile::text`].
    pub fn flush(&mut self) -> Result<()> {
        self.events.out.flush().with_context(|| format!("cannot write `{}`", self.path.display()))
    }
}

/// The numbers of a line with TensorBoard's names for them: what comes before the slash is a group of charts.
fn scalars(line: &Json) -> Vec<(String, f64)> {
    let Some(entries) = line.as_object() else { return Vec::new() };
    let tag = |key: &str| match key {
        "kind" | "epoch" | "step" => None,
        "loss" | "lr" => Some(format!("step/{key}")),
        "seconds" | "samples_per_s" => Some(format!("time/{key}")),
        "unreadable" | "val_unreadable" => Some(format!("data/{key}")),
        key => {
            let group = ["train_", "val_", "memory_"].into_iter().find(|prefix| key.starts_with(prefix))?;
            Some(format!("{}/{}", group.trim_end_matches('_'), &key[group.len()..]))
        }
    };
    let value = |value: &Json| if value.is_null() { Some(f64::NAN) } else { value.as_f64() };
    entries.iter().filter_map(|(key, number)| Some((tag(key)?, value(number)?))).collect()
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Events on their way to a file.
struct Events<W> {
    out: W,
    now: fn() -> f64,
}

impl<W: Write> Events<W> {
    fn begin(&mut self, step: u64) -> std::io::Result<()> {
        self.event(0, What::FileVersion(VERSION.into()))?;
        if step > 0 {
            // Of earlier files, what is of this step or a later one will be written again.
            self.event(step + 1, What::SessionLog(event::SessionLog::start()))?;
        }
        Ok(())
    }

    fn write(&mut self, step: u64, values: Vec<Value>) -> std::io::Result<()> {
        self.event(step, What::Summary(event::Summary { value: values }))
    }

    fn event(&mut self, step: u64, what: What) -> std::io::Result<()> {
        let event = Event { wall_time: (self.now)(), step: step as i64, what: Some(what) };
        record::write(&mut self.out, &event.encode_to_vec())
    }
}

#[cfg(test)]
mod tests;
