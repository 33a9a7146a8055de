//! Why something that was asked for was not done, whatever it was.

use crate::backend::{DeviceError, SettingError};
use crate::config;
use crate::config::text::diagnostics::{Diagnostic, Sources, render};
use crate::terminal::{self, Stream, masked, say_styled};
use crate::train::setup::input;
use std::fmt;

/// Something that was not done.
#[derive(Debug)]
pub enum Failure {
    /// The configuration is wrong.
    Config {
        /// The texts.
        sources: Sources,
        /// What is wrong in them.
        diagnostics: Vec<Diagnostic>,
    },
    /// What is asked for is wrong: on the command line, by an option.
    Usage(String),
    /// The device is not there, or too small.
    Device(DeviceError),
    /// Something failed while it ran.
    Other(anyhow::Error),
}

impl From<config::Failure> for Failure {
    fn from(f: config::Failure) -> Self {
        Failure::Config { sources: f.sources, diagnostics: f.diagnostics }
    }
}

impl From<DeviceError> for Failure {
    fn from(e: DeviceError) -> Self {
        Failure::Device(e)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(e: anyhow::Error) -> Self {
        let e = match e.downcast::<Failure>() {
            Ok(failure) => return failure,
            Err(e) => e,
        };
        match e.downcast::<DeviceError>() {
            Ok(e) => Failure::Device(e),
            // A wrong variable of the environment is as wrong as an option.
            Err(e) if e.is::<SettingError>() => Failure::Usage(format!("{e:#}")),
            Err(e) => Failure::Other(e),
        }
    }
}

impl Failure {
    /// The same in a line or a few, for where the command goes on without what has failed.
    pub fn in_words(&self) -> String {
        match self {
            Failure::Config { diagnostics, .. } => {
                let errors = diagnostics.iter().filter(|d| d.severity == config::Severity::Error);
                errors.map(|d| d.message.as_str()).collect::<Vec<_>>().join("; ")
            }
            Failure::Usage(text) => masked(text),
            Failure::Device(e) => masked(&e.to_string()),
            Failure::Other(e) => masked(&format!("{e:#}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Config { sources, diagnostics } => f.write_str(render(sources, diagnostics, false).trim_end()),
            other => f.write_str(&other.in_words()),
        }
    }
}

impl std::error::Error for Failure {}

/// Shows warnings about a configuration.
pub fn warn(sources: &Sources, warnings: &[Diagnostic]) {
    if !warnings.is_empty() {
        say_styled(render(sources, warnings, terminal::color(Stream::Err)).trim_end());
    }
}

/// A mistake in the configuration, to be shown in its text.
pub fn refuse(loaded: &config::Loaded, error: Diagnostic) -> Failure {
    Failure::Config { sources: loaded.sources.clone(), diagnostics: vec![error] }
}

/// The failure for samples that could not be read as a configuration says, with the place there, if it names the file that is at fault.
pub fn refused(loaded: &config::Loaded, error: anyhow::Error) -> Failure {
    input::placed(&loaded.experiment, error).map_or_else(Failure::from, |error| refuse(loaded, error))
}
