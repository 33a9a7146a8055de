//! Where a header of safetensors contradicts itself.

use super::super::tensor::count;
use safetensors::tensor::TensorInfo;
use serde_json::{Map, Value};

/// What is wrong with the places of the tensors that a header describes, if it is JSON. A tensor begins where the one before it ends.
pub(super) fn wrong(header: &[u8]) -> Option<String> {
    let mut all: Map<String, Value> = serde_json::from_slice(header).ok()?;
    all.remove("__metadata__");
    let mut infos: Vec<(String, TensorInfo)> = Vec::new();
    for (name, value) in all {
        match serde_json::from_value(value) {
            Ok(info) => infos.push((name, info)),
            Err(why) => return Some(format!("what it says of `{name}` cannot be read: {why}")),
        }
    }
    infos.sort_by_key(|(_, info)| info.data_offsets);
    let (mut at, mut last) = (0, "");
    for (name, info) in &infos {
        let (begin, end) = info.data_offsets;
        if end < begin {
            return Some(format!("`{name}` begins at byte {begin} of the tensors, and ends at byte {end}"));
        }
        if begin < at {
            return Some(format!(
                "`{name}` begins at byte {begin} of the tensors, where `{last}` is still, which ends at byte {at}: they overlap"
            ));
        }
        if begin > at {
            return Some(format!("no tensor has the bytes {at} to {begin}, after which `{name}` begins"));
        }
        let bytes = count(&info.shape).and_then(|n| n.checked_mul(info.dtype.bitsize())).map(|bits| bits / 8);
        if bytes != Some(end - begin) {
            let bytes = bytes.map_or("more than there can be".to_owned(), |bytes| bytes.to_string());
            let (dtype, shape) = (info.dtype, &info.shape);
            return Some(format!("`{name}` has {} bytes, and {shape:?} of {dtype} take {bytes}", end - begin));
        }
        (at, last) = (end, name);
    }
    None
}
