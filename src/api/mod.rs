//! The program without its command line: a run, an answer of a model, each by a call. Messages go to the terminal, or to a
//! [`crate::terminal::Listener`].
//!
//! - [`train::start`]: a run from a configuration to its end, or from a checkpoint on.
//! - [`predictor::Predictor`]: a model that answers.
//! - [`explain`]: which columns a model of a table depends on.
//! - [`generate::Generator`]: a language model that goes on with a text.

pub mod answer;
pub mod cells;
pub mod ensemble;
pub mod explain;
pub mod failure;
pub mod generate;
pub mod members;
pub mod memory;
pub mod model;
pub mod options;
pub mod predictor;
pub mod pretrained;
pub mod progress;
mod reading;
pub mod samples;
pub mod scores;
pub mod seen;
mod tagging;
pub mod train;
pub mod what;
