//! The packed PTX files that the binary includes. Their first line, a comment of PTX, says what they were made from.

use crate::sources::{Architecture, PTX_VERSION, Sources};
use lzma_rust2::{XzOptions, XzReader, XzWriter};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

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

/// A file.
pub struct Packed {
    /// Where it is.
    pub path: PathBuf,
}

impl Packed {
    /// The file of `module` for `architecture`.
    pub fn of(module: &str, architecture: Architecture) -> Packed {
        Packed { path: folder().join(format!("{module}.{}.ptx.xz", architecture.name())) }
    }

    /// Its path in the repository.
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
        let (stamp, ptx) = text.split_once('\n').unwrap_or_default();
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

    /// Writes it, the same bytes for the same text.
    pub fn write(&self, stamp: &str, ptx: &str) {
        let mut packer = XzWriter::new(Vec::new(), XzOptions::with_preset(9)).unwrap();
        packer.write_all(format!("{stamp}\n{ptx}").as_bytes()).unwrap();
        let bytes = packer.finish().unwrap();
        // An unchanged file keeps its time, so that the crate is not built anew for nothing.
        if fs::read(&self.path).ok().as_ref() != Some(&bytes) {
            fs::write(&self.path, bytes).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let packed = Packed { path: folder.path().join("x.xz") };
    packed.write("// stamp", ".version 8.1\n\nrest\n");
    let first = fs::read(&packed.path).unwrap();
    assert_eq!((packed.read_stamp().as_str(), packed.read_ptx().as_str()), ("// stamp", ".version 8.1\n\nrest\n"));
    packed.write("// stamp", ".version 8.1\n\nrest\n");
    assert_eq!(fs::read(&packed.path).unwrap(), first);
}
