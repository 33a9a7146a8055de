//! `runner data fetch`.

use super::args::OutputArgs;
use super::failure::Failure;
use crate::data::fetch::{self, Event, Known};
use crate::train::report::say;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
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
        return Err(Failure::Usage(format!("`{source}` cannot be downloaded; choose one of {}", names.join(", "))));
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
    }
}

/// Shows a download: a bar on a terminal, a line for each file elsewhere.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    terminal: bool,
    files: Vec<String>,
    failures: Vec<String>,
}

impl Progress {
    /// Nothing shown yet.
    pub(super) fn new() -> Self {
        Progress { bar: None, terminal: std::io::stderr().is_terminal(), files: Vec::new(), failures: Vec::new() }
    }

    /// Shows an event.
    pub(super) fn show(&mut self, event: Event) {
        match event {
            Event::Present { file } => self.files.push(file.to_string()),
            Event::Started { file, url, done, total } => {
                if self.terminal {
                    self.start(file, done, total);
                } else {
                    say(&format!("downloading {url}"));
                }
            }
            Event::Progress { done, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(done);
                }
            }
            Event::Failed { url, reason, .. } => {
                self.clear();
                self.failures.push(format!("{url}: {reason}"));
            }
            Event::Finished { file } => {
                self.clear();
                // The failures that another mirror made up for; otherwise the error tells them.
                for failure in self.failures.drain(..) {
                    say(&failure);
                }
                self.files.push(file.to_string());
            }
            Event::Unpacking { file, done, total } => match &self.bar {
                Some(bar) => bar.set_position(done),
                None if self.terminal => self.start(&format!("unpacking {file}"), done, total),
                None if done == 0 => say(&format!("unpacking {file}")),
                None => {}
            },
            Event::Unpacked { .. } => self.clear(),
            Event::Note { text } => {
                self.clear();
                say(&format!("note: {text}"));
            }
        }
    }

    /// A bar on a terminal.
    fn start(&mut self, what: &str, done: u64, total: u64) {
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
        let bar = ProgressBar::new(total).with_prefix(what.to_string());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_position(done);
        self.bar = Some(bar);
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
