//! What is done with bytes from outside: one function for each kind of file. `tests/suites/corpora` runs them on the files that are
//! kept, and `fuzz/` on whatever libFuzzer comes up with.
//!
//! Each takes any bytes, panics where the program breaks a promise, and says whether the bytes were accepted as what
//! they claim to be.

mod bodies;
mod checkpoint;
mod config;
mod data;
mod pack;
mod photos;
mod ranks;
mod scratch;
mod texts;
mod weights;

#[allow(unused_imports, reason = "for the seeds of the tests")]
pub use pack::{gz, headers, stored_zip};
#[allow(unused_imports, reason = "for the tests")]
pub use weights::file;

/// A function over any bytes.
pub type Target = fn(&[u8]) -> bool;

/// All targets by name; each has a file of its own in `fuzz/fuzz_targets`.
#[allow(dead_code, reason = "each binary of `fuzz/` runs one of them")]
pub const TARGETS: [(&str, Target); 23] = [
    ("config", config::config),
    ("check", config::check),
    ("pickle", weights::pickle),
    ("weights", weights::weights),
    ("safetensors", weights::safetensors),
    ("checkpoint", checkpoint::checkpoint),
    ("idx", data::idx),
    ("tar", data::tar),
    ("image", data::image),
    ("jpeg", data::jpeg),
    ("list", photos::list),
    ("shard", photos::shard),
    ("mask", photos::mask),
    ("kept", photos::kept),
    ("ranks", ranks::ranks),
    ("parquet", data::parquet),
    ("table", texts::table),
    ("text", texts::text),
    ("labelled", texts::labelled),
    ("tags", texts::tags),
    ("tokens", texts::tokens),
    ("tokenizer", texts::tokenizer),
    ("body", bodies::body),
];

/// The target called `name`.
#[allow(dead_code, reason = "the tests go through them all")]
pub fn target(name: &str) -> Target {
    TARGETS.iter().find(|(known, _)| *known == name).expect("a target of the list").1
}
