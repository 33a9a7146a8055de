//! `metrics.jsonl`: one JSON object a line; and what goes with it, the table and the events.

use super::folder::{file, never_elsewhere};
use super::metrics_csv::{CsvFile, LONGEST};
use super::tensorboard::EventFile;
use crate::backend::MemoryUse;
use crate::data::Unreadable;
use crate::files::{Line, Lines, durable};
use crate::terminal::{json_line, masked};
use crate::train::setup::figures::Figures;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// The file, open for appending.
pub struct MetricsFile {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    lost: Option<String>,
    csv: Option<CsvFile>,
    events: Option<EventFile>,
}

impl MetricsFile {
    /// Opens the file of a run that starts (`keep` is 0) or continues after its first `keep` bytes; what a run that was
    /// killed wrote beyond its last checkpoint is cut off. Where there is less, or something else than lines of JSON, the
    /// whole lines are kept, and [`MetricsFile::lost`] says so. A link is replaced by a file.
    ///
    /// # Errors
    /// The file cannot be opened, read or written.
    pub fn open(path: &Path, keep: u64) -> Result<Self> {
        let context = || format!("cannot write `{}`", path.display());
        let before = path.symlink_metadata();
        match &before {
            Ok(meta) if meta.is_dir() => bail!("cannot write `{}`: it is a folder", path.display()),
            // A link may lead anywhere, and a pipe has no past.
            Ok(meta) if !meta.is_file() => durable::remove(path).with_context(context)?,
            _ => {}
        }
        let lost = match keep {
            0 => None,
            _ => repair(path, keep).with_context(context)?,
        };
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        never_elsewhere(&mut options);
        let file = options.open(path).with_context(context)?;
        let bytes = if lost.is_some() { file.metadata().with_context(context)?.len() } else { keep };
        file.set_len(bytes).with_context(context)?;
        if before.is_err() {
            // A checkpoint counts on the file; nothing says that its name lasts as soon as the checkpoint's.
            durable::sync(durable::folder_of(path)).with_context(context)?;
        }
        Ok(MetricsFile { path: path.to_path_buf(), file: BufWriter::new(file), bytes, lost, csv: None, events: None })
    }

    /// Opens the file of a run that has nothing to do, and changes nothing of it.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn untouched(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        never_elsewhere(&mut options);
        let file = options.open(path).with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(MetricsFile {
            path: path.to_path_buf(),
            file: BufWriter::new(file),
            bytes: 0,
            lost: None,
            csv: None,
            events: None,
        })
    }

    /// What is missing of the lines that the run had written.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Writes the same into a table, of a run with these figures, and into event files if there are any.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn with(mut self, table: &Path, figures: &[String], events: Option<EventFile>) -> Result<Self> {
        self.csv = Some(CsvFile::create(table, &self.path, figures)?);
        self.events = events;
        Ok(self)
    }

    /// The events, if there are any.
    pub fn events(&mut self) -> Option<&mut EventFile> {
        self.events.as_mut()
    }

    /// The files are in another folder now.
    pub fn moved_to(&mut self, folder: &Path) {
        self.path = folder.join(file::METRICS);
        if let Some(csv) = &mut self.csv {
            csv.moved_to(&folder.join(file::CSV));
        }
        if let Some(events) = &mut self.events {
            events.moved_to(&folder.join(file::TENSORBOARD));
        }
    }

    /// Appends a line, and hands it to the system: other programs see it while the run is at work.
    ///
    /// # Errors
    /// The disk is full, or the like.
    pub fn write(&mut self, line: &Value) -> Result<()> {
        let text = json_line(line) + "\n";
        self.bytes += text.len() as u64;
        let done = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        done.with_context(|| format!("cannot write `{}`", self.path.display()))?;
        self.csv.as_mut().map_or(Ok(()), |csv| csv.write(line))?;
        self.events.as_mut().map_or(Ok(()), |events| events.line(line))
    }

    /// Writes down that the run has failed, as far as that can still be done; the line. A run that goes on takes it away.
    pub fn failed(&mut self, why: &str) -> Value {
        let line = json!({ "kind": "failed", "why": masked(why) });
        let _ = self.write(&line).and_then(|()| Ok(self.file.flush()?));
        line
    }

    /// Makes everything durable; the length of the file, which a checkpoint may then rely on.
    ///
    /// # Errors
    /// The disk is full, or the like.
    pub fn flush(&mut self) -> Result<u64> {
        let done = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        done.with_context(|| format!("cannot write `{}`", self.path.display()))?;
        // They follow from the checkpoints and from this file, and need not outlive a power cut.
        self.csv.as_mut().map_or(Ok(()), CsvFile::flush)?;
        self.events.as_mut().map_or(Ok(()), EventFile::flush)?;
        Ok(self.bytes)
    }
}

/// Makes sure that a file's first `keep` bytes are lines of JSON. If not, rewrites it with those lines that are. Returns what is lost.
fn repair(path: &Path, keep: u64) -> io::Result<Option<String>> {
    let mut good = 0;
    let read = whole_lines(path, keep, |line| good += line.len() as u64)?;
    if good == keep {
        return Ok(None);
    }
    let mut lines = Vec::new();
    whole_lines(path, keep, |line| lines.extend_from_slice(line))?;
    durable::write(path, &lines)?;
    let found = if read < keep { format!("{read} bytes long") } else { "damaged".into() };
    Ok(Some(format!(
        "`{}` was {found}, where it had {keep} bytes when the checkpoint was written: the {good} bytes of its whole lines are \
         kept, the other lines are lost",
        path.file_name().unwrap_or_default().display()
    )))
}

/// Hands out those of the first `keep` bytes of a file that are lines of JSON; how many bytes there were.
fn whole_lines(path: &Path, keep: u64, mut take: impl FnMut(&[u8])) -> io::Result<u64> {
    let mut reader = match File::open(path) {
        Ok(file) => BufReader::new(file.take(keep)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(e),
    };
    let mut read = 0;
    let mut lines = Lines::new(&mut reader, LONGEST);
    while let Some(Line { bytes, length, .. }) = lines.read()? {
        read += length;
        if bytes.ends_with(b"\n") && serde_json::from_slice::<Map<String, Value>>(bytes).is_ok() {
            take(bytes);
        }
    }
    Ok(read)
}

/// The line of an update.
pub fn step_line(step: u64, epoch: usize, loss: f32, lr: f64) -> Value {
    json!({ "kind": "step", "step": step, "epoch": epoch, "loss": single(loss), "lr": lr })
}

/// The line that says that the samples, or the precision, are not those asked for.
pub fn note_line(text: &str) -> Value {
    json!({ "kind": "note", "note": text })
}

/// The line of a text that a language model has written: what it went on with, and what came.
pub fn sample_line(epoch: usize, step: u64, prompt: &str, text: &str) -> Value {
    json!({ "kind": "sample", "epoch": epoch, "step": step, "prompt": prompt, "text": text })
}

/// What a line of figures is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOf {
    /// An epoch, at its end.
    Epoch,
    /// An evaluation within an epoch: training figures, seconds and samples are those of the epoch so far.
    Evaluation,
}

/// The line of an epoch, or of an evaluation within one.
pub fn row_line(
    of: RowOf,
    epoch: usize,
    step: u64,
    train: Option<&Figures>,
    val: Option<&Figures>,
    seconds: f64,
    samples_per_s: f64,
) -> Value {
    let mut line = Map::new();
    let kind = match of {
        RowOf::Epoch => "epoch",
        RowOf::Evaluation => "eval",
    };
    line.insert("kind".into(), kind.into());
    line.insert("epoch".into(), epoch.into());
    line.insert("step".into(), step.into());
    for (prefix, figures) in [("train", train), ("val", val)] {
        for (name, _, value) in figures.iter().flat_map(|f| f.named()) {
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

/// Adds to the line of an epoch how many of the run's samples could not be read so far, if any: of those to train on, and to
/// validate on.
pub fn add_unreadable(line: &mut Value, train: usize, val: usize) {
    for (key, n) in [("unreadable", train), ("val_unreadable", val)] {
        if n > 0 {
            line[key] = n.into();
        }
    }
}

/// The line that names a sample that cannot be read, when a run comes to it first.
pub fn unreadable_line(sample: &Unreadable) -> Value {
    json!({ "kind": "unreadable", "sample": sample.name, "why": sample.why })
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
    fn whole_lines_are_kept_of_a_file_that_was_torn() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let lines = ["{\"a\":1}\n", "{\"b\":[2]}\n", "{\"c\":3}\n"];
        let whole = lines.concat();
        let keep = whole.len() as u64;
        let open = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let mut file = MetricsFile::open(&path, keep).unwrap();
            let lost = file.lost().is_some();
            file.write(&json!({})).unwrap();
            let bytes = file.flush().unwrap();
            let now = std::fs::read_to_string(&path).unwrap();
            assert_eq!(bytes, now.len() as u64);
            (lost, now.strip_suffix("{}\n").unwrap().to_string())
        };
        assert_eq!(open(&whole), (false, whole.clone()));
        assert_eq!(open(&format!("{whole}{{\"later\":")), (false, whole.clone()));
        for cut in 0..whole.len() {
            let kept = if cut < lines[0].len() {
                0
            } else if cut < lines[0].len() + lines[1].len() {
                1
            } else {
                2
            };
            assert_eq!(open(&whole[..cut]), (true, lines[..kept].concat()), "cut off after {cut} bytes");
        }
        assert_eq!(open(&whole.replace("[2]", "\0\0\0")), (true, format!("{}{}", lines[0], lines[2])));
        assert_eq!(open(&whole.replace("}\n", "}  ")), (true, String::new()));
        std::fs::remove_file(&path).unwrap();
        assert!(MetricsFile::open(&path, keep).unwrap().lost().is_some());
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("metrics.jsonl"), dir.path().join("mine"));
        for keep in [0, 4] {
            std::fs::write(&target, "{}\n\n").unwrap();
            let _ = std::fs::remove_file(&path);
            std::os::unix::fs::symlink(&target, &path).unwrap();
            let mut file = MetricsFile::open(&path, keep).unwrap();
            file.write(&json!({})).unwrap();
            file.flush().unwrap();
            assert_eq!(std::fs::read_to_string(&target).unwrap(), "{}\n\n");
            assert!(!path.is_symlink());
        }
    }

    #[test]
    fn losses_are_as_short_as_they_can_be() {
        assert_eq!(step_line(1, 1, 2.307_980_3, 0.1)["loss"].to_string(), "2.3079803");
        assert_eq!(step_line(1, 1, 1e-30, 0.1)["loss"].to_string(), "1e-30");
        assert_eq!(step_line(1, 1, f32::NAN, 0.1)["loss"], Value::Null);
        let line = row_line(RowOf::Evaluation, 1, 2, None, None, 0.0, 1234.4);
        assert_eq!(line["kind"], "eval");
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
        // A file that is shorter than it was keeps what it has.
        drop(m);
        let m = MetricsFile::open(&path, 10_000).unwrap();
        assert!(m.lost().is_some());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
