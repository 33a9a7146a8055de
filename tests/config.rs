//! The configuration language, from text to experiment and to diagnostics.

#[path = "config/errors.rs"]
mod errors;
#[path = "config/examples.rs"]
mod examples;
