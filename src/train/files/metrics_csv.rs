//! `metrics.csv`: the lines of steps, epochs and evaluations in `metrics.jsonl` as a table, with a column for every number. It follows from that
//! file: a run that goes on makes it anew, and so it ends where the checkpoint was.

use super::folder::never_elsewhere;
use crate::files::{self, Line, Lines, durable};
use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Longest line of `metrics.jsonl` that is one, in bytes.
pub const LONGEST: usize = 1 << 20;

/// A table has at most as many bytes.
const MOST_CSV: u64 = 4 << 30;

/// Columns before the figures, and after them.
const FIRST: [&str; 5] = ["kind", "epoch", "step", "loss", "lr"];
const LAST: [&str; 7] =
    ["seconds", "samples_per_s", "memory_allocated", "memory_reserved", "memory_peak", "unreadable", "val_unreadable"];

/// The table, open for appending.
pub struct CsvFile {
    path: PathBuf,
    file: BufWriter<File>,
    columns: Vec<String>,
}

impl CsvFile {
    /// Writes the table of the lines in `metrics`, for a run with these figures (`train_loss`, `val_accuracy`), and opens it.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn create(path: &Path, metrics: &Path, figures: &[String]) -> Result<CsvFile> {
        let cannot = || format!("cannot read `{}`", metrics.display());
        let mut columns: Vec<String> = FIRST.map(str::to_owned).to_vec();
        columns.extend(figures.iter().cloned());
        columns.extend(LAST.map(str::to_owned));
        // The run may have had other figures before.
        rows(metrics, |row| {
            columns
                .extend(row.into_iter().map(|(key, _)| key).filter(|key| !columns.contains(key)).collect::<Vec<_>>());
            Ok(())
        })
        .with_context(cannot)?;
        let begin = || -> io::Result<File> {
            durable::replace(path, |file| {
                let mut file = BufWriter::new(file);
                file.write_all(&record(columns.iter().cloned())?)?;
                rows(metrics, |row| file.write_all(&record(cells(&columns, &row))?))?;
                file.flush()
            })?;
            let mut options = OpenOptions::new();
            options.append(true);
            never_elsewhere(&mut options);
            options.open(path)
        };
        let file = begin().with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(CsvFile { path: path.to_path_buf(), file: BufWriter::new(file), columns })
    }

    /// The file has another place now.
    pub fn moved_to(&mut self, path: &Path) {
        self.path = path.to_path_buf();
    }

    /// Appends a line of `metrics.jsonl`, if it is one of a step, an epoch or an evaluation, and hands it to the system.
    ///
    /// # Errors
    /// The disk is full, or the like.
    pub fn write(&mut self, line: &Value) -> Result<()> {
        let Some(line) = line.as_object().and_then(|line| row_of(line.clone())) else { return Ok(()) };
        let row = record(cells(&self.columns, &line));
        let done = row.and_then(|row| self.file.write_all(&row)).and_then(|()| self.file.flush());
        done.with_context(|| format!("cannot write `{}`", self.path.display()))
    }

    /// Hands everything to the system.
    ///
    /// # Errors
    /// As [`CsvFile::write`].
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().with_context(|| format!("cannot write `{}`", self.path.display()))
    }
}

/// Where a table differs from the lines in `metrics`, if it does: the number of its line, and what is wrong. `to_the_end`: neither may have more
/// than the other, as both have where a run has ended by itself.
///
/// # Errors
/// A file cannot be read.
pub fn difference(path: &Path, metrics: &Path, to_the_end: bool) -> Result<Option<(usize, String)>> {
    let text = files::read(path, MOST_CSV)?;
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&text[..]);
    let mut records = reader.records();
    let Some(Ok(head)) = records.next() else { return Ok(Some((1, "there is no line that names the columns".into()))) };
    let columns: Vec<String> = head.iter().map(str::to_owned).collect();
    let (mut line, mut found) = (1, None);
    let take = |row: Map<String, Value>| {
        line += 1;
        if found.is_some() {
            return Ok(());
        }
        found = match records.next() {
            None if to_the_end => Some((line, format!("a line is missing, that of step {}", step_of(&row)))),
            None => None,
            Some(Err(e)) => Some((line, e.to_string())),
            Some(Ok(record)) => {
                let differs = columns.iter().zip(cells(&columns, &row)).zip(record.iter().chain(std::iter::repeat("")));
                let mut differs = differs.filter(|((_, expected), has)| expected != has);
                differs.next().map(|((column, expected), has)| {
                    (line, format!("`{column}` is `{has}`, and `{expected}` in the line of step {}", step_of(&row)))
                })
            }
        };
        Ok(())
    };
    rows(metrics, take)?;
    if found.is_none() && to_the_end && records.next().is_some() {
        found = Some((line + 1, "there are more lines than steps, epochs and evaluations".into()));
    }
    Ok(found)
}

fn step_of(row: &Map<String, Value>) -> String {
    row.get("step").map_or_else(|| "?".to_owned(), Value::to_string)
}

/// Hands out the lines of a file that have a row. An error of reading it names the file, as the caller names the one that it writes.
fn rows(metrics: &Path, mut take: impl FnMut(Map<String, Value>) -> io::Result<()>) -> io::Result<()> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot read `{}`: {e}", metrics.display()));
    let mut lines = Lines::new(BufReader::new(File::open(metrics).map_err(named)?), LONGEST);
    while let Some(Line { bytes, .. }) = lines.read().map_err(named)? {
        if let Some(row) = serde_json::from_slice(bytes).ok().and_then(row_of) {
            take(row)?;
        }
    }
    Ok(())
}

fn row_of(line: Map<String, Value>) -> Option<Map<String, Value>> {
    let kind = line.get("kind").and_then(Value::as_str);
    matches!(kind, Some("step" | "epoch" | "eval")).then_some(line)
}

/// The cells of a line: a number that JSON has not got is `NaN`, one that the line has not got is empty.
fn cells(columns: &[String], line: &Map<String, Value>) -> impl Iterator<Item = String> {
    columns.iter().map(|column| match line.get(column) {
        None => String::new(),
        Some(Value::Null) => "NaN".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    })
}

fn record(cells: impl Iterator<Item = String>) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(cells)?;
    writer.into_inner().map_err(|e| e.into_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    #[test]
    fn the_table_has_the_numbers_of_the_lines() {
        let dir = tempfile::tempdir().unwrap();
        let (metrics, path) = (dir.path().join("m.jsonl"), dir.path().join("m.csv"));
        let lines = [
            json!({ "kind": "step", "step": 1, "epoch": 1, "loss": 2.5, "lr": 0.1 }),
            json!({ "kind": "note", "note": "a, b" }),
            json!({ "kind": "epoch", "epoch": 1, "step": 2, "train_loss": null, "val_old": 7 }),
        ];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&metrics, text + "{\"kind\":\"st").unwrap();
        fs::write(&path, "what was there").unwrap();
        let mut csv = CsvFile::create(&path, &metrics, &["train_loss".into(), "val_loss".into()]).unwrap();
        csv.write(&json!({ "kind": "step", "step": 3, "epoch": 2, "loss": 1e-30, "lr": 0.1 })).unwrap();
        csv.write(&lines[1]).unwrap();
        csv.write(&json!({ "kind": "eval", "epoch": 2, "step": 3, "val_loss": 0.5 })).unwrap();
        csv.flush().unwrap();
        let expected = "kind,epoch,step,loss,lr,train_loss,val_loss,seconds,samples_per_s,memory_allocated,memory_reserved,\
            memory_peak,unreadable,val_unreadable,val_old\nstep,1,1,2.5,0.1,,,,,,,,,,\nepoch,1,2,,,NaN,,,,,,,,,7\n\
            step,2,3,1e-30,0.1,,,,,,,,,,\n\
            eval,2,3,,,,0.5,,,,,,,,\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }
}
