//! `runner data fetch`.

use super::args::OutputArgs;
use super::failure::Failure;
use crate::config::nearest;
use crate::data::fetch::{self, Known};
use crate::data::progress::Event;
use crate::terminal::{Bar, can_redraw, say};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Downloads a data set.
pub(super) fn fetch(
    source: &str,
    root: Option<&Path>,
    mirrors: &[String],
    output: OutputArgs,
) -> Result<ExitCode, Failure> {
    let Some(set) = Known::by_name(source) else {
        let names: Vec<&str> = Known::ALL.iter().map(|k| k.name()).collect();
        let help = match nearest(source, names.iter().copied()) {
            Some(near) => format!("\nhelp: did you mean `{near}`?"),
            None => String::new(),
        };
        return Err(Failure::Usage(format!(
            "`{source}` cannot be downloaded; choose one of {}{help}",
            names.join(", ")
        )));
    };
    let root = root.map_or_else(|| PathBuf::from(default_root(set)), Path::to_path_buf);
    let mut progress = Progress::new();
    fetch::download(set, &root, mirrors, &mut |e| progress.show(e))?;
    if output.json {
        super::print_json(
            &serde_json::json!({ "source": set.name(), "root": root.to_string_lossy(), "files": progress.files }),
        )?;
    } else {
        super::print(&format!("{} is in `{}`", set.name(), root.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn default_root(set: Known) -> &'static str {
    match set {
        Known::Mnist => "data/mnist",
        Known::FashionMnist => "data/fashion-mnist",
        Known::Cifar10 => "data/cifar-10",
        Known::Cifar100 => "data/cifar-100",
    }
}

/// Shows a download: a bar on a terminal, a line for each file elsewhere.
pub(super) struct Progress {
    bar: Option<Bar>,
    files: Vec<String>,
    failures: Vec<String>,
    said: String,
}

impl Progress {
    /// Nothing shown yet.
    pub(super) fn new() -> Self {
        Progress { bar: None, files: Vec::new(), failures: Vec::new(), said: String::new() }
    }

    /// Shows an event.
    pub(super) fn show(&mut self, event: Event) {
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
