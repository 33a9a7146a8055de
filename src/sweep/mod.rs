//! Trials of one configuration with other values: which there are, how long each may train, and what is kept of them. How they
//! are run is a matter of the command line's side.
//!
//! All of it is a function of the configuration and of what the trials have written down: it does not matter in which order
//! they were run, how many at a time, or how often that was interrupted.

pub mod comparable;
pub mod course;
pub mod draw;
pub mod halving;
pub mod median;
pub mod record;

pub use comparable::incomparable;
pub use course::{Course, Verdict};
