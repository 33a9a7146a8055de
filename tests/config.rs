//! The configuration language, from text to experiment and to diagnostics.

#[path = "config/effective.rs"]
mod effective;
#[path = "config/errors.rs"]
mod errors;
#[path = "config/examples.rs"]
mod examples;
#[path = "config/kinds.rs"]
mod kinds;
#[path = "config/meaning.rs"]
mod meaning;
#[path = "config/mutations.rs"]
mod mutations;
#[path = "config/random.rs"]
mod random;
#[path = "config/repeats.rs"]
mod repeats;
#[path = "config/schema.rs"]
mod schema;
#[path = "config/words.rs"]
mod words;
