//! The record of what a program did to files, as `preload.c` writes it.

use std::fs;
use std::path::Path;

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Which: `open`, `write`, `rename` …
    pub name: String,
    /// It was made to fail.
    pub hit: bool,
    /// What it gave back: -1 for a failure.
    pub result: i64,
    pub errno: i32,
    /// Of `open`: how.
    pub flags: i32,
    /// Of `write`: where; of `truncate`: the length.
    pub offset: u64,
    /// Bytes written, where they were asked for.
    pub data: Vec<u8>,
    /// Below the folder that is looked at.
    pub path: String,
    /// The new name.
    pub other: String,
}

/// A part of a name, and which characters after it differ.
type Mark = (&'static str, fn(char) -> bool);

/// What comes before the number of a process in a name, or before what distinguishes a temporary folder.
const MARKS: [Mark; 3] = [
    (".tmp-", |c| c.is_ascii_digit()),
    (".part-", |c| c.is_ascii_digit()),
    ("runner-dry-run-", |c| c.is_ascii_alphanumeric()),
];

impl Operation {
    /// The path without what differs from process to process.
    pub fn role(&self) -> String {
        let mut role = self.path.clone();
        for (mark, is_own) in MARKS {
            if let Some((name, rest)) = role.split_once(mark) {
                role = format!("{name}{mark}{}", rest.trim_start_matches(is_own));
            }
        }
        role
    }

    /// The file as people know it: `last.safetensors` for `run/.last.safetensors.tmp-77`.
    pub fn known_as(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        match name.strip_prefix('.').and_then(|n| n.rsplit_once(".tmp-")) {
            Some((name, _)) => name,
            None => name.strip_suffix(".part").unwrap_or(name),
        }
    }

    /// The folder that it lies in, as people know it: without those whose names are hidden.
    pub fn known_folder(&self) -> String {
        let mut parts: Vec<&str> = self.path.split('/').take_while(|part| !part.starts_with('.')).collect();
        if parts.len() == self.path.split('/').count() {
            parts.pop();
        }
        if parts.is_empty() { ".".into() } else { parts.join("/") }
    }

    /// An `open` that may change the file.
    pub fn opens_to_write(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }
}

/// Reads the record; an empty one if there is no file.
pub fn read(log: &Path) -> Vec<Operation> {
    let bytes = fs::read(log).unwrap_or_default();
    let mut rest = &bytes[..];
    let mut found = Vec::new();
    while let Some(end) = rest.iter().position(|b| *b == b'\n') {
        let line = std::str::from_utf8(&rest[..end]).unwrap();
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |i: usize| fields[i].parse::<i64>().unwrap();
        let len = number(6) as usize;
        found.push(Operation {
            name: fields[0].into(),
            hit: number(1) != 0,
            result: number(2),
            errno: number(3) as i32,
            flags: number(4) as i32,
            offset: number(5) as u64,
            data: rest[end + 1..][..len].to_vec(),
            path: fields[7].into(),
            other: fields[8].into(),
        });
        rest = &rest[end + 1 + len..];
    }
    found
}
