//! Weights in several files beside an index of Hugging Face's, `model.safetensors.index.json`, which says which file has which tensor.

use super::error::{CheckpointError, Reason};
use super::format::names_of_one;
use super::pth::Choose;
use super::weights::{Loaded, load_one};
use crate::files;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

/// Largest index, in bytes. Those of large models have some hundred thousand.
const MAX_INDEX: u64 = 64 << 20;

/// What of an index is looked at.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Whether a file is an index, by its content: JSON, where a safetensors file has its length before its JSON.
pub fn is_index(path: &Path) -> bool {
    let start = || {
        let mut start = Vec::new();
        files::open(path).ok()?.file.take(16).read_to_end(&mut start).ok()?;
        Some(start)
    };
    start().is_some_and(|start| start.get(8) != Some(&b'{') && start.trim_ascii_start().first() == Some(&b'{'))
}

/// The files of an index with the names of the tensors that each has.
///
/// # Errors
/// It cannot be read, or is none; a file is not beside it.
fn parts(path: &Path) -> Result<BTreeMap<PathBuf, Vec<String>>, CheckpointError> {
    let read = || -> Result<BTreeMap<PathBuf, Vec<String>>, Reason> {
        let text = files::read(path, MAX_INDEX)?;
        let index: Index = serde_json::from_slice(&text)
            .map_err(|error| Reason::Invalid(format!("no index of weights in several files: {error}")))?;
        let mut parts: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        for (tensor, file) in index.weight_map {
            let mut components = Path::new(&file).components();
            if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
                return Err(Reason::Invalid(format!("it has `{tensor}` in `{file}`, which is no file beside it")));
            }
            parts.entry(path.with_file_name(&file)).or_default().push(tensor);
        }
        match parts.is_empty() {
            true => Err(Reason::Invalid("it names no tensors".to_owned())),
            false => Ok(parts),
        }
    };
    read().map_err(|reason| CheckpointError::new(path, reason))
}

/// The files of an index.
///
/// # Errors
/// It cannot be read, or is none; a file is not beside it.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    parts(path).map(|parts| parts.into_keys().collect())
}

/// The names of its tensors.
///
/// # Errors
/// As [`files_of`]; one of the files is cut short or no safetensors file, or lacks a tensor.
pub fn names(path: &Path) -> Result<Vec<String>, CheckpointError> {
    let parts = parts(path)?;
    for (file, names) in &parts {
        // Messages name the index, and say which of its files it is.
        let inside = |reason: String| CheckpointError::new(path, Reason::Invalid(reason));
        let there = names_of_one(file).map_err(|error| inside(error.to_string()))?;
        if let Some(name) = names.iter().find(|name| !there.contains(name)) {
            return Err(inside(format!("`{}` has no tensor `{name}`", file.display())));
        }
    }
    let mut names: Vec<String> = parts.into_values().flatten().collect();
    names.sort_unstable();
    Ok(names)
}

/// Reads the weights in `path`: a checkpoint (without its optimizer state), a plain safetensors file, a PyTorch state dict, or the index of several
/// files. The content decides, not the suffix.
///
/// # Errors
/// The file cannot be read, is broken, or holds something else.
pub fn load_tensors(path: &Path) -> Result<Loaded, CheckpointError> {
    load_chosen(path, &Choose::default())
}

/// As [`load_tensors`], of a file of PyTorch the state dict that is wanted. Other files have no keys, and one that is asked for is an error.
///
/// # Errors
/// As for [`load_tensors`].
pub fn load_chosen(path: &Path, choose: &Choose) -> Result<Loaded, CheckpointError> {
    if is_index(path) { load(path, choose) } else { load_one(path, choose) }
}

/// The tensors of all files of an index.
///
/// # Errors
/// One of the files cannot be read, or lacks a tensor.
fn load(path: &Path, choose: &Choose) -> Result<Loaded, CheckpointError> {
    let parts = parts(path)?;
    let mut all = Loaded { notes: vec![format!("took the weights of {} files", parts.len())], ..Loaded::default() };
    for (file, names) in parts {
        // Messages name the index, and say which of its files it is.
        let inside = |reason: String| CheckpointError::new(path, Reason::Invalid(reason));
        let mut loaded = load_one(&file, choose).map_err(|error| inside(error.to_string()))?;
        all.unread.append(&mut loaded.unread);
        all.narrow.append(&mut loaded.narrow);
        for name in names {
            let tensor = loaded.tensors.remove(&name);
            if tensor.is_none() && all.unread.contains_key(&name) {
                continue;
            }
            let tensor = tensor.ok_or_else(|| inside(format!("`{}` has no tensor `{name}`", file.display())))?;
            all.tensors.insert(name, tensor);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::{Tensor, write_weights};
    use super::*;

    #[test]
    fn the_files_beside_an_index_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let tensor = |number: f32| Tensor::from_f32([1], &[number]);
        write_weights(&at("1.safetensors"), &[tensor(1.0).view("a"), tensor(2.0).view("b")]).unwrap();
        write_weights(&at("2.safetensors"), &[tensor(3.0).view("c")]).unwrap();
        let index = |map: &str| {
            std::fs::write(at("i.json"), format!("{{\"metadata\": {{}}, \"weight_map\": {{{map}}}}}")).unwrap();
            load_tensors(&at("i.json")).map_err(|error| error.to_string())
        };
        let loaded = index(r#""a": "1.safetensors", "c": "2.safetensors""#).unwrap();
        assert_eq!(loaded.tensors, BTreeMap::from([("a".to_owned(), tensor(1.0)), ("c".to_owned(), tensor(3.0))]));
        assert_eq!(super::super::names(&at("i.json")).unwrap(), ["a", "c"]);
        assert!(is_index(&at("i.json")) && !is_index(&at("1.safetensors")) && !is_index(&at("none")));
        for (map, part) in [
            (r#""d": "1.safetensors""#, "1.safetensors` has no tensor `d`"),
            (r#""a": "3.safetensors""#, "3.safetensors"),
            (r#""a": "../1.safetensors""#, "it has `a` in `../1.safetensors`, which is no file beside it"),
            (r#""a": "/etc/passwd""#, "which is no file beside it"),
            (r#""a": """#, "which is no file beside it"),
            ("", "it names no tensors"),
            (r#""a": 1"#, "no index of weights in several files"),
        ] {
            let message = index(map).unwrap_err();
            assert!(message.contains(part) && message.starts_with(at("i.json").to_str().unwrap()), "{message}");
        }
        // An index of itself is none that ends.
        assert!(index(r#""a": "i.json""#).unwrap_err().contains("neither a safetensors file"));
    }
}
