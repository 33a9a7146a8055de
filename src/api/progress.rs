//! Downloads while they last.

use crate::data::progress::Event;
use crate::terminal::{Bar, can_redraw, say};

/// Shows a download: a bar on a terminal, a line for each file elsewhere.
#[derive(Default)]
pub struct Progress {
    bar: Option<Bar>,
    /// Files that are there.
    pub files: Vec<String>,
    failures: Vec<String>,
    said: String,
}

impl Progress {
    /// Shows an event.
    pub fn show(&mut self, event: Event) {
        match event {
            Event::Present { file } => self.files.push(file.to_string()),
            Event::Started { file, url, done, total } => {
                self.bar = Bar::of_bytes(file, total, done);
                // Once, however often the connection breaks.
                if !can_redraw() && self.said != url {
                    say(&format!("downloading {url}"));
                    self.said = url.to_string();
                }
            }
            Event::Progress { done, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set(done);
                }
            }
            Event::Failed { url, reason, .. } => {
                self.bar = None;
                self.failures.push(format!("{url}: {reason}"));
            }
            Event::Finished { file } => {
                self.bar = None;
                // Failures of mirrors, where another one succeeded; otherwise they are part of the error.
                for failure in self.failures.drain(..) {
                    say(&failure);
                }
                self.files.push(file.to_string());
            }
            Event::Unpacking { file, done: 0, total } => {
                self.bar = Bar::of_bytes(&format!("unpacking {file}"), total, 0);
                if !can_redraw() {
                    say(&format!("unpacking {file}"));
                }
            }
            Event::Unpacking { done, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set(done);
                }
            }
            Event::Unpacked { .. } => self.bar = None,
            Event::Note { text } => {
                self.bar = None;
                say(&format!("note: {text}"));
            }
        }
    }
}
