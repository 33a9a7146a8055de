//! What is to be said of a file that is no text.

use crate::files;
use std::io::Read;
use std::path::Path;

/// How files begin that are taken for texts by mistake, what they are, and what to do with them.
const OTHERS: [(&[u8], &str, &str); 9] = [
    (b"\x1f\x8b", "is packed by gzip", "unpack it, for example with `gunzip --keep`"),
    (b"\x28\xb5\x2f\xfd", "is packed by Zstandard", "unpack it, for example with `unzstd`"),
    (b"\xfd7zXZ\0", "is packed by xz", "unpack it, for example with `unxz --keep`"),
    (b"BZh", "is packed by bzip2", "unpack it, for example with `bunzip2 --keep`"),
    (b"PK\x03\x04", "is a ZIP archive", "unpack it, for example with `unzip`"),
    (b"%PDF-", "is a PDF", "save its text, for example with `pdftotext`"),
    (b"PAR1", "is a Parquet file", "end its name with `.parquet`"),
    (b"\xff\xfe", "is in UTF-16", "convert it, for example with `iconv -f UTF-16 -t UTF-8`"),
    (b"\xfe\xff", "is in UTF-16", "convert it, for example with `iconv -f UTF-16 -t UTF-8`"),
];

/// What is to be said of a file whose byte `at`, in that line if it is known, is no UTF-8.
pub(super) fn no_utf8(path: &Path, line: Option<usize>, at: u64) -> String {
    let (place, mut begin) = (path.display(), Vec::new());
    // A file that can no longer be read has no begin here.
    if let Ok(opened) = files::open(path) {
        let _ = opened.file.take(8).read_to_end(&mut begin);
    }
    if let Some((_, is, what)) = OTHERS.iter().find(|(first, ..)| begin.starts_with(first)) {
        return format!("`{place}` {is}, and texts are read as they are, in UTF-8: {what}");
    }
    let line = line.map_or_else(String::new, |line| format!(", line {line}"));
    format!("`{place}`{line}: byte {at} is no UTF-8; convert the file, for example with `iconv -t UTF-8`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_kinds_are_called_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            no_utf8(&path, Some(2), 8)
        };
        let packed = said("a.txt.gz", b"\x1f\x8b\x08\0\0\0\0\0");
        assert!(packed.contains("a.txt.gz` is packed by gzip") && packed.contains("gunzip"), "{packed}");
        assert!(said("a.txt", b"\xff\xfea\0").contains("iconv -f UTF-16 -t UTF-8"));
        assert!(said("b.txt", b"one\ntwo \xff").contains("b.txt`, line 2: byte 8 is no UTF-8"));
        assert!(said("c.txt", b"").contains("line 2: byte 8"));
    }
}
