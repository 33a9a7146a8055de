//! The lines of a run's `metrics.jsonl`, as far as they can be read: a run that is at work may have written half of the last.

use crate::files;
use serde_json::{Map, Value};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// More than any run writes: bytes of the file, and of a line.
const MOST: u64 = 4 << 30;
const LONGEST: usize = 1 << 20;
/// Lines that cannot be read, of which it is kept why.
const BROKEN: usize = 1000;

/// A line, its numbers by their names.
pub type Line = Map<String, Value>;

/// What a run has written down of its course.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// Of updates; without [`Wanted::All`] the last one only.
    pub steps: Vec<Line>,
    /// Of epochs, and of evaluations within them, for which [`within`] is true.
    pub epochs: Vec<Line>,
    /// Of texts that a language model has written.
    pub samples: Vec<Line>,
    /// What was noted.
    pub notes: Vec<String>,
    /// Why the run failed, if that was its end.
    pub failed: Option<String>,
    /// Lines that cannot be read, the first of them: their number, from 1, and why.
    pub broken: Vec<(usize, String)>,
}

/// Which lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// All.
    All,
    /// Of those of updates, which are many, the last one.
    Epochs,
}

impl Lines {
    /// Reads the file; one that is not there has no lines.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path, wanted: Wanted) -> Result<Lines, files::Error> {
        if !files::is_there(path) {
            return Ok(Lines::default());
        }
        let opened = files::open(path)?;
        let error = |problem| files::Error { path: path.to_owned(), problem };
        if opened.size > MOST {
            return Err(error(files::Problem::TooLarge { bytes: opened.size, limit: MOST }));
        }
        // What it was when it was opened: the run may be at work.
        let reader = BufReader::with_capacity(1 << 16, opened.file.take(opened.size));
        Lines::read_from(reader, wanted).map_err(|e| error(e.into()))
    }

    /// The lines of a text.
    #[cfg(test)]
    pub fn of(text: &[u8], wanted: Wanted) -> Lines {
        Lines::read_from(text, wanted).unwrap_or_default()
    }

    /// # Errors
    /// It cannot be read.
    fn read_from(reader: impl BufRead, wanted: Wanted) -> io::Result<Lines> {
        let mut lines = Lines::default();
        let mut last_step: Option<Vec<u8>> = None;
        let mut reader = files::Lines::new(reader, LONGEST);
        let mut number = 0;
        while let Some(files::Line { bytes, too_long, .. }) = reader.read()? {
            number += 1;
            let whole = bytes.ends_with(b"\n");
            let line = bytes.trim_ascii();
            let mut broken = |why: String| {
                if lines.broken.len() < BROKEN {
                    lines.broken.push((number, why));
                }
            };
            if too_long {
                broken(format!("it has more than {LONGEST} bytes"));
                continue;
            }
            let is_step = line.starts_with(br#"{"kind":"step""#) && line.ends_with(b"}");
            if is_step && wanted == Wanted::Epochs {
                let last = last_step.get_or_insert_default();
                last.clear();
                last.extend_from_slice(line);
                continue;
            }
            match serde_json::from_slice::<Line>(line) {
                Ok(line) if !has_place(&line) => broken("whose `epoch` or `step` is no number".into()),
                Ok(line) => lines.take(line),
                // The run is at work, or was cut off.
                Err(_) if !whole => {}
                Err(e) => broken(why(&e)),
            }
        }
        if let Some(Ok(line)) = last_step.as_deref().map(serde_json::from_slice::<Line>) {
            lines.take(line);
        }
        Ok(lines)
    }

    fn take(&mut self, line: Line) {
        let text = |key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
        match line.get("kind").and_then(Value::as_str) {
            Some("step") => self.steps.push(line),
            Some("epoch" | "eval") => {
                self.failed = None;
                self.epochs.push(line);
            }
            Some("sample") => self.samples.push(line),
            Some("note") => self.notes.extend(text("note")),
            Some("failed") => self.failed = Some(text("why").unwrap_or_default()),
            // A later version may have others.
            _ => {}
        }
    }

    /// Updates that are known of.
    pub fn step(&self) -> u64 {
        let of = |lines: &[Line]| lines.last().and_then(|line| line.get("step")?.as_u64()).unwrap_or(0);
        of(&self.steps).max(of(&self.epochs))
    }
}

/// Whether what a line of an epoch or an evaluation says of its place are numbers.
fn has_place(line: &Line) -> bool {
    let is_moment = line.get("kind").is_some_and(|kind| kind == "epoch" || kind == "eval");
    !is_moment || ["epoch", "step"].iter().all(|key| line.get(*key).is_none_or(Value::is_u64))
}

/// Whether a line is of an evaluation within an epoch.
pub fn within(line: &Line) -> bool {
    line.get("kind").is_some_and(|kind| kind == "eval")
}

/// What is wrong with a line, without the place in it as if it were a file.
fn why(error: &serde_json::Error) -> String {
    if error.is_data() {
        return "which is no object of JSON".into();
    }
    let text = error.to_string();
    let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(why, _)| why);
    format!("column {}: {reason}", error.column())
}

/// The number that a line has under a name: `NaN` where it was none that JSON has.
pub fn number(line: &Line, key: &str) -> Option<f64> {
    match line.get(key)? {
        Value::Null => Some(f64::NAN),
        value => value.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_lines_are_listed_and_the_rest_is_read() {
        let text = b"{\"kind\":\"step\",\"step\":1,\"loss\":2.5}\n{\"kind\":\"step\",\"st\n\0\0\0\n[1]\n\
            {\"kind\":\"epoch\",\"epoch\":1,\"step\":2,\"val_loss\":null}\n{\"kind\":\"step\",\"step\":3,\"loss\":1}\n\
            {\"kind\":\"later\"}\n{\"kind\":\"note\",\"note\":\"n\"}\n{\"kind\":\"epoch\",\"ep";
        for wanted in [Wanted::All, Wanted::Epochs] {
            let lines = Lines::of(text, wanted);
            assert_eq!(lines.broken.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3, 4], "{lines:?}");
            assert!(lines.broken[0].1.starts_with("column 18: EOF"), "{lines:?}");
            assert_eq!((lines.steps.len(), lines.epochs.len()), (if wanted == Wanted::All { 2 } else { 1 }, 1));
            assert_eq!(lines.broken[2].1, "which is no object of JSON");
            assert_eq!((lines.step(), lines.notes.len()), (3, 1));
            assert!(number(&lines.epochs[0], "val_loss").unwrap().is_nan());
            assert_eq!(number(lines.steps.last().unwrap(), "loss"), Some(1.0));
        }
        // A last line that is whole counts, though its end is missing.
        assert_eq!(Lines::of(b"{\"kind\":\"step\",\"step\":7}", Wanted::Epochs).step(), 7);
    }

    #[test]
    fn what_is_no_line_of_a_run_takes_no_memory() {
        let long =
            [&b"{\"kind\":\"epoch\",\"x\":\""[..], &vec![b'a'; 2 << 20], b"\"}\n{\"kind\":\"epoch\",\"step\":2}\n"]
                .concat();
        let lines = Lines::of(&[&long[..], &vec![b'\n'; 5000]].concat(), Wanted::All);
        assert_eq!((lines.epochs.len(), lines.step(), lines.broken.len()), (1, 2, BROKEN));
        assert_eq!(lines.broken[0], (1, "it has more than 1048576 bytes".to_owned()));
    }

    #[test]
    fn a_failure_is_one_until_the_run_goes_on() {
        let failed = "{\"kind\":\"failed\",\"why\":\"the loss is NaN\"}\n";
        assert_eq!(Lines::of(failed.as_bytes(), Wanted::All).failed.as_deref(), Some("the loss is NaN"));
        let went_on = format!("{failed}{{\"kind\":\"epoch\",\"epoch\":1}}\n");
        assert_eq!(Lines::of(went_on.as_bytes(), Wanted::Epochs).failed, None);
    }
}
