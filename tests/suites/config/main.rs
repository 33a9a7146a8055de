//! The configuration language, from text to experiment and to diagnostics.

mod effective;
mod errors;
mod examples;
mod kinds;
mod meaning;
mod mutations;
mod parameters;
mod random;
mod repeats;
mod schema;
mod words;
