//! PyTorch's `.pth` / `.pt` files, as far as a state dict needs them.
//!
//! Such a file is a zip archive: `…/data.pkl` is a Python pickle that describes the tensors, `…/data/KEY` are the bytes
//! of the storages they look into. A pickle is a program for a small stack machine, and Python's may call any function
//! in it. [`pickle`] knows only what a state dict needs and calls nothing: each global it knows stands for one fixed
//! meaning, and any other is an error.

mod archive;
mod legacy;
mod pickle;
mod state_dict;
mod storage;
mod value;
mod write;

use super::element::Element;
use super::tensor::Tensor;
use super::unread::Unread;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek};
pub(super) use write::write;

/// Why a PyTorch file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PthError {
    /// The pickle refers to something that no state dict needs.
    Global(String),
    /// There is no state dict in the file, or not where it should be.
    NoStateDict(String),
    /// There are several that fit alike, under these keys.
    Ambiguous(Vec<String>),
    /// The file ends before its end; it has so many bytes.
    CutShort(u64),
    /// The archive or the pickle is broken, or made to harm.
    Malformed(String),
}

impl fmt::Display for PthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HOW: &str = "save one with `torch.save(model.state_dict(), \"weights.pth\")`";
        match self {
            PthError::Global(name) => write!(
                f,
                "no plain state dict: it refers to `{name}`, which would run Python code, and that is never done; {HOW}"
            ),
            PthError::NoStateDict(why) => write!(f, "{why}; {HOW}"),
            PthError::Ambiguous(keys) => {
                const SHOWN: usize = 4;
                let shown: Vec<String> = keys.iter().take(SHOWN).map(shown_key).collect();
                let more = if keys.len() > SHOWN { ", …" } else { "" };
                write!(
                    f,
                    "it holds more than one state dict ({}{more}), which fit alike; choose one by `weights_key` in `[model]`, or {HOW}",
                    shown.join(", ")
                )
            }
            PthError::CutShort(size) => write!(
                f,
                "a PyTorch file that is cut short: it has {size} bytes, and its end is missing; download or copy it again"
            ),
            PthError::Malformed(why) => write!(f, "a broken PyTorch file: {why}"),
        }
    }
}

impl std::error::Error for PthError {}

fn shown_key(key: &String) -> String {
    if key.is_empty() { "the whole".into() } else { format!("`{key}`") }
}

fn malformed(why: impl Into<String>) -> PthError {
    PthError::Malformed(why.into())
}

/// The tensors of a state dict, and notes about what was done to get at them.
pub(super) struct StateDict {
    pub tensors: BTreeMap<String, Tensor>,
    /// Tensors that are not read, with what each is.
    pub unread: BTreeMap<String, Unread>,
    /// Tensors that are of a narrower type in the file.
    pub narrow: BTreeMap<String, Element>,
    pub notes: Vec<String>,
}

/// True if the file begins as PyTorch's old format does: a pickle of its magic number.
pub(super) fn is_legacy(bytes: &[u8]) -> bool {
    const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
    bytes.first() == Some(&0x80) && bytes.get(2..4) == Some(&[0x8a, 10]) && bytes.get(4..14) == Some(&MAGIC)
}

/// True if the file begins as a zip archive does.
pub(super) fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04")
}

/// How many of these names of tensors a model has.
pub type Fits<'a> = dyn Fn(&[&str]) -> usize + 'a;

/// Which of the state dicts in a file is wanted.
#[derive(Clone, Copy, Default)]
pub struct Choose<'a> {
    /// The one under this key; keys within one another have dots between them.
    pub key: Option<&'a str>,
    /// Else the one for whose names this is highest.
    pub fits: Option<&'a Fits<'a>>,
}

/// Reads a state dict from a zip file of `size` bytes.
pub(super) fn parse(file: impl Read + Seek, size: u64, choose: &Choose) -> Result<StateDict, PthError> {
    let mut archive = archive::Archive::open(file, size)?;
    let memory = pickle::run(&archive.pickle()?)?;
    tensors(&mut archive, &memory, size, choose)
}

/// Reads a state dict from a file of `size` bytes in the old format.
pub(super) fn parse_legacy(file: impl Read + Seek, size: u64, choose: &Choose) -> Result<StateDict, PthError> {
    let (mut storages, memory) = legacy::open(file, size)?;
    tensors(&mut storages, &memory, size, choose)
}

fn tensors(
    storages: &mut dyn archive::Storages,
    memory: &value::Memory,
    size: u64,
    choose: &Choose,
) -> Result<StateDict, PthError> {
    let state_dict::Found { tensors: mut entries, unread, notes } = state_dict::find(memory, choose)?;
    entries.sort_by(|(_, a), (_, b)| a.storage.key.cmp(&b.storage.key));
    let mut reader = storage::Reader::new(storages, usize::try_from(size).unwrap_or(usize::MAX));
    let (mut tensors, mut narrow) = (BTreeMap::new(), BTreeMap::new());
    for (name, tensor) in entries {
        narrow.extend(Some((name.clone(), tensor.storage.element)).filter(|(_, element)| element.is_narrow()));
        let tensor = reader.tensor(tensor).map_err(|e| match e {
            PthError::Malformed(why) => malformed(format!("tensor `{name}`: {why}")),
            e => e,
        })?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(malformed(format!("two tensors are named `{name}`")));
        }
    }
    Ok(StateDict { tensors, unread, narrow, notes })
}

#[cfg(test)]
mod tests;
