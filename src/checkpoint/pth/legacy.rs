//! The format before PyTorch 1.6, and of `_use_new_zipfile_serialization=False`: pickles one after the other (a magic number, the version
//! of the format, what machine wrote it, the object, the keys of its storages), then the storages in the order of the keys, each with the
//! number of its elements before it. The source is `torch/serialization.py`.

use super::archive::Storages;
use super::pickle;
use super::value::{Memory, Value};
use super::{PthError, malformed};
use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::rc::Rc;

/// Larger descriptions are refused, as those of zip archives are.
const MAX_PICKLES: u64 = 64 << 20;
/// The version of the format.
const VERSION: i64 = 1001;

/// The storages of a file.
pub(super) struct Legacy<F> {
    file: F,
    /// Where each begins, and how many bytes it has.
    places: HashMap<Rc<str>, (u64, u64)>,
}

/// Opens a file of `size` bytes; what its object is.
pub(super) fn open<F: Read + Seek>(mut file: F, size: u64) -> Result<(Legacy<F>, Memory), PthError> {
    let io = |e: std::io::Error| malformed(e.to_string());
    let mut bytes = Vec::new();
    file.by_ref().take(MAX_PICKLES).read_to_end(&mut bytes).map_err(io)?;
    let mut rest = bytes.as_slice();
    let mut next = || -> Result<(Memory, usize), PthError> {
        let memory = pickle::run_first(&mut rest).map_err(|error| match error == pickle::cut_short() {
            true if size <= MAX_PICKLES => PthError::CutShort(size),
            _ => error,
        })?;
        Ok((memory, bytes.len() - rest.len()))
    };
    // The magic number, by which the file was known.
    next()?;
    match next()?.0.result {
        Value::Int(VERSION) => {}
        _ => return Err(malformed("the version of its format is another one")),
    }
    let (machine, _) = next()?;
    let is_big = |(key, value): &(Value, Value)| matches!((key, value), (Value::Str(key), Value::Bool(false)) if &**key == "little_endian");
    if matches!(machine.result, Value::Dict(at) if machine.dicts[at].iter().any(is_big)) {
        return Err(malformed("written on a big-endian machine; save it again on a little-endian one"));
    }
    let (object, _) = next()?;
    let (keys, end) = next()?;
    let Value::List(keys_at) = keys.result else { return Err(malformed("it has no list of storages")) };
    let mut places = HashMap::new();
    let mut at = end as u64;
    for key in &keys.lists[keys_at] {
        let Value::Str(key) = key else { return Err(malformed("the key of a storage is no text")) };
        let storage = object.storages.get(key);
        let width = storage.map(|storage| storage.element.bytes()).or(object.unread.get(key).copied());
        let width = width.ok_or_else(|| malformed(format!("nothing refers to storage `{key}`")))?;
        let outside = || PthError::CutShort(size);
        let mut count = [0; 8];
        file.seek(SeekFrom::Start(at)).map_err(io)?;
        file.read_exact(&mut count).map_err(|_| outside())?;
        let elements = u64::try_from(i64::from_le_bytes(count)).ok();
        let expected = storage.map_or(elements, |storage| Some(storage.len as u64));
        let Some(elements) = elements.filter(|elements| expected == Some(*elements)) else {
            let expected = expected.unwrap_or_default();
            return Err(malformed(format!("the storage `{key}` has not the {expected} elements that it should have")));
        };
        let length = elements.checked_mul(width as u64).ok_or_else(outside)?;
        let begin = at + 8;
        at = begin.checked_add(length).filter(|end| *end <= size).ok_or_else(outside)?;
        if places.insert(key.clone(), (begin, length)).is_some() {
            return Err(malformed(format!("the storage `{key}` is there twice")));
        }
    }
    Ok((Legacy { file, places }, object))
}

impl<F: Read + Seek> Storages for Legacy<F> {
    fn storage(&mut self, key: &str, bytes: u64) -> Result<Vec<u8>, PthError> {
        let (begin, length) = *self.places.get(key).ok_or_else(|| malformed(format!("there is no storage `{key}`")))?;
        if length != bytes {
            return Err(malformed(format!("the storage `{key}` has {length} bytes instead of {bytes}")));
        }
        let read = |file: &mut F| -> std::io::Result<Vec<u8>> {
            file.seek(SeekFrom::Start(begin))?;
            let mut data = Vec::new();
            file.take(length).read_to_end(&mut data)?;
            Ok(data)
        };
        let data = read(&mut self.file).map_err(|e| malformed(format!("the storage `{key}`: {e}")))?;
        match data.len() as u64 == length {
            true => Ok(data),
            false => Err(PthError::CutShort(begin + data.len() as u64)),
        }
    }
}
