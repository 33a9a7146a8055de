//! The zip archive around a pickle.

use super::{PthError, malformed};
use crate::files::{Contained, contained};
use std::io::{Read, Seek};
use zip::{CompressionMethod, ZipArchive};

/// Larger descriptions are refused: real ones take some 150 bytes a tensor.
const MAX_PICKLE: u64 = 64 << 20;

pub(super) struct Archive<F> {
    zip: ZipArchive<F>,
    /// The folder that PyTorch puts everything in, with a slash; may be empty.
    folder: String,
}

/// Where the bytes of storages come from.
pub(super) trait Storages {
    /// The bytes of a storage, of which there must be `bytes`.
    fn storage(&mut self, key: &str, bytes: u64) -> Result<Vec<u8>, PthError>;
}

impl<F: Read + Seek> Storages for Archive<F> {
    fn storage(&mut self, key: &str, bytes: u64) -> Result<Vec<u8>, PthError> {
        let data = self.read(&format!("data/{key}"), bytes)?;
        if data.len() as u64 != bytes {
            return Err(malformed(format!("the storage `{key}` has {} bytes instead of {bytes}", data.len())));
        }
        Ok(data)
    }
}

impl<F: Read + Seek> Archive<F> {
    /// Opens a file of `size` bytes.
    pub(super) fn open(file: F, size: u64) -> Result<Self, PthError> {
        let zip = contained(|| Ok(ZipArchive::new(file)?)).map_err(|e| match e.to_string() {
            // The list of a zip archive's files is its end.
            why if why.contains("EOCD") => PthError::CutShort(size),
            why => malformed(format!("the zip archive: {why}")),
        })?;
        let mut folders: Vec<String> = zip
            .file_names()
            .filter_map(|name| name.ok()?.strip_suffix("data.pkl").map(str::to_owned))
            .filter(|folder| folder.is_empty() || folder.ends_with('/'))
            .collect();
        let folder = match (folders.pop(), folders.pop()) {
            (Some(folder), None) => folder,
            (None, _) => return Err(PthError::NoStateDict("a zip archive, but without PyTorch's `data.pkl`".into())),
            (Some(_), Some(_)) => return Err(malformed("more than one `data.pkl`")),
        };
        let mut archive = Archive { zip, folder };
        if archive.zip.index_for_name(&format!("{}byteorder", archive.folder)).is_some() {
            let order = archive.read("byteorder", 16)?;
            if order.trim_ascii() != b"little" {
                return Err(malformed("written on a big-endian machine; save it again on a little-endian one"));
            }
        }
        Ok(archive)
    }

    pub(super) fn pickle(&mut self) -> Result<Vec<u8>, PthError> {
        self.read("data.pkl", MAX_PICKLE)
    }

    fn read(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, PthError> {
        let name = format!("{}{name}", self.folder);
        let broken = |e: &dyn std::fmt::Display| malformed(format!("`{name}` in the zip archive: {e}"));
        let entry = contained(|| Ok(self.zip.by_name(&name)?)).map_err(|e| broken(&e))?;
        // PyTorch stores without compression. To insist on that means that no entry is larger than the file.
        if entry.compression() != CompressionMethod::Stored {
            return Err(broken(&"it is compressed, which PyTorch does not do; save the file again with `torch.save`"));
        }
        if entry.size() > limit {
            return Err(broken(&format_args!("{} bytes where at most {limit} are expected", entry.size())));
        }
        let mut data = Vec::new();
        // The zip reader checks the CRC-32 when it reaches the end.
        Contained::new(entry).take(limit + 1).read_to_end(&mut data).map_err(|e| broken(&e))?;
        Ok(data)
    }
}
