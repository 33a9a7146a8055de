//! The files that fuzzers begin with, and those that once did harm.

mod config;
mod data;
mod photos;
mod ranks;
mod texts;
mod weights;

/// A file to be kept.
pub struct Seed {
    /// `corpus`, or `crashes` for what once did harm.
    pub kind: &'static str,
    /// Whose it is.
    pub target: &'static str,
    /// Its name; `ok-…` must be accepted, `bad-…` refused.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// All of them.
pub fn all() -> Vec<Seed> {
    let mut list = List(Vec::new());
    config::add(&mut list);
    weights::add(&mut list);
    data::add(&mut list);
    photos::add(&mut list);
    ranks::add(&mut list);
    texts::add(&mut list);
    list.0
}

/// Seeds so far.
pub struct List(Vec<Seed>);

impl List {
    fn add(&mut self, kind: &'static str, target: &'static str, name: &str, bytes: impl Into<Vec<u8>>) {
        self.0.push(Seed { kind, target, name: name.to_owned(), bytes: bytes.into() });
    }

    /// Something to begin with.
    pub fn seed(&mut self, target: &'static str, name: &str, bytes: impl Into<Vec<u8>>) {
        self.add("corpus", target, name, bytes);
    }

    /// Something that did harm, or would have.
    pub fn crash(&mut self, target: &'static str, name: &str, bytes: impl Into<Vec<u8>>) {
        self.add("crashes", target, name, bytes);
    }
}
