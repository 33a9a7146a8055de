//! Files of weights.

use super::pack::stored_zip;
use super::scratch::with_file;
use runner::checkpoint::{self, Tensor};
use runner::data::tensors::TensorsOptions;
use runner::data::{self, Source};
use std::path::Path;

fn whole<'a>(tensors: impl IntoIterator<Item = (&'a String, &'a Tensor)>) {
    for (name, tensor) in tensors {
        let elements = tensor.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).expect("a shape that can be");
        assert_eq!(tensor.data.len(), elements * tensor.dtype.bytes(), "`{name}` of {:?}", tensor.shape);
    }
}

/// Everything that takes such a file.
pub fn read(path: &Path) -> bool {
    let loaded = checkpoint::load_tensors(path);
    match &loaded {
        Ok(loaded) => whole(&loaded.tensors),
        Err(e) => assert!(e.to_string().contains(&path.display().to_string()), "{e}"),
    }
    match checkpoint::read(path) {
        Ok(checkpoint) => whole(&checkpoint.tensors),
        Err(e) => assert!(e.to_string().contains(&path.display().to_string()), "{e}"),
    }
    loaded.is_ok()
}

/// A pickle, in the archive that PyTorch puts it into, with two storages of 8 and 64 bytes.
pub fn pickle(data: &[u8]) -> bool {
    let file = stored_zip(&[("a/data.pkl", data), ("a/data/0", &[1; 8]), ("a/data/1", &[2; 64])]);
    with_file(&file, read)
}

/// A file of any kind.
pub fn weights(data: &[u8]) -> bool {
    with_file(data, |path| read(path) | dataset(path))
}

/// A safetensors file: its header up to the first zero byte, then the tensors' bytes. The length before it is put there, and
/// bytes that the header claims and that are not there, if they are few.
pub fn safetensors(data: &[u8]) -> bool {
    with_file(&file(data), |path| read(path) | dataset(path))
}

/// The file of a header and of bytes after a zero.
pub fn file(data: &[u8]) -> Vec<u8> {
    const MOST: u64 = 64 << 10;
    let (header, rest) = match data.iter().position(|b| *b == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let claimed = serde_json::from_slice::<serde_json::Value>(header).ok().map_or(0, |json| {
        let tensors = json.as_object().into_iter().flatten().filter_map(|(_, t)| t["data_offsets"][1].as_u64());
        tensors.max().unwrap_or(0)
    });
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header);
    let start = out.len();
    out.extend(rest);
    if claimed <= MOST {
        out.resize(out.len().max(start + claimed as usize), 1);
    }
    out
}

/// As samples to train on.
fn dataset(path: &Path) -> bool {
    let source = Source::Tensors(TensorsOptions { path: path.to_path_buf(), ..TensorsOptions::default() });
    let described = data::describe(&source);
    match data::open(&source) {
        Ok(set) => {
            let described = described.expect("what can be read can be described");
            assert_eq!(described.fields, set.train.fields());
            assert_eq!(described.train, Some(set.train.len()));
            true
        }
        Err(_) => false,
    }
}
