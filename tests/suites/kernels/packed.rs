//! The packed PTX files that the binary includes. Their first line, a comment of PTX, says what they were made from.

use crate::sources::{Architecture, PTX_VERSION, Sources};
use lzma_rust2::{XzOptions, XzReader, XzWriter};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The architectures in a file: the one in front is the one that most GPUs need.
pub const ORDER: [Architecture; 2] = [Architecture::PACKED[1], Architecture::PACKED[0]];

/// Where they are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/packed/ptx")
}

/// The first line of a module's PTX.
pub fn stamp(sources: &Sources, module: &str, architecture: Architecture) -> String {
    let (major, minor) = PTX_VERSION;
    format!(
        "// kernels/{module}.cu by NVRTC {major}.{minor}; SHA-256 of sources and options: {}",
        sources.hash(module, architecture)
    )
}

/// The PTX of a module for an architecture, in the file that has those of both.
pub struct Packed {
    /// Where the file is.
    pub path: PathBuf,
    architecture: Architecture,
}

impl Packed {
    /// That of `module` for `architecture`.
    pub fn of(module: &str, architecture: Architecture) -> Packed {
        Packed { path: folder().join(format!("{module}.ptx.xz")), architecture }
    }

    /// The file's path in the repository.
    pub fn name(&self) -> String {
        format!("kernels/packed/ptx/{}", self.path.file_name().unwrap().to_str().unwrap())
    }

    /// First line and rest.
    fn read(&self) -> (String, String) {
        let bytes = fs::read(&self.path).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        let mut text = String::new();
        XzReader::new(&bytes[..], false)
            .read_to_string(&mut text)
            .unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        let at = ORDER.iter().position(|of| *of == self.architecture).unwrap();
        let own = text.split('\0').nth(at).unwrap_or_default();
        let (stamp, ptx) = own.split_once('\n').unwrap_or_default();
        (stamp.to_owned(), ptx.to_owned())
    }

    /// Its first line.
    pub fn read_stamp(&self) -> String {
        self.read().0
    }

    /// What follows its first line.
    pub fn read_ptx(&self) -> String {
        self.read().1
    }
}

/// Writes the file at `path`, with first line and rest for each architecture of [`ORDER`]: the same bytes for the same texts.
pub fn write(path: &Path, texts: &[(String, &str)]) {
    let mut packer = XzWriter::new(Vec::new(), XzOptions::with_preset(9)).unwrap();
    texts.iter().for_each(|(stamp, ptx)| packer.write_all(format!("{stamp}\n{ptx}\0").as_bytes()).unwrap());
    let bytes = packer.finish().unwrap();
    // An unchanged file keeps its time, so that the crate is not built anew for nothing.
    if fs::read(path).ok().as_ref() != Some(&bytes) {
        fs::write(path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.xz");
    let texts = [("// newer".to_owned(), ".version 8.1\n\nrest\n"), ("// older".to_owned(), ".version 8.0\n")];
    write(&path, &texts);
    let first = fs::read(&path).unwrap();
    for (architecture, (stamp, ptx)) in ORDER.into_iter().zip(&texts) {
        let packed = Packed { path: path.clone(), architecture };
        assert_eq!((&packed.read_stamp(), packed.read_ptx().as_str()), (stamp, *ptx));
    }
    write(&path, &texts);
    assert_eq!(fs::read(&path).unwrap(), first);
}
