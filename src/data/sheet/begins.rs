//! What a file is by its first bytes, where its name says something else.

use super::columns::MAGIC;
use super::packing::Packing;
use super::{FileKind, Form};
use anyhow::{Result, bail};
use std::io::Read;
use std::path::Path;

/// Refuses a file that is something else than its name says, of which any other error would be a riddle.
///
/// # Errors
/// It is.
pub fn expect_named(path: &Path, kind: FileKind) -> Result<()> {
    let place = path.display();
    let ending = match path.extension() {
        Some(ending) => format!("ends with `.{}`", ending.display()),
        None => "has no ending".to_owned(),
    };
    let begin = first_bytes(path);
    let packing = Packing::of(path);
    // A Parquet file that is packed once more is refused where it is opened.
    if begin.is_empty() || kind == FileKind::Columns && (packing.is_some() || begin.starts_with(MAGIC)) {
        return Ok(());
    }
    let (is, name) = match (packing, kind) {
        (_, _) if begin.starts_with(MAGIC) => ("a Parquet file", "end its name with `.parquet`"),
        (Some(packing), _) if Packing::by_bytes(&begin) == Some(packing) => return Ok(()),
        (_, _) if Packing::by_bytes(&begin) == Some(Packing::Gzip) => {
            ("packed by gzip", "end its name as that of a packed table, with `.csv.gz` or `.jsonl.gz`")
        }
        (_, _) if Packing::by_bytes(&begin) == Some(Packing::Zstandard) => {
            ("packed by Zstandard", "end its name as that of a packed table, with `.csv.zst` or `.jsonl.zst`")
        }
        (_, _) if begin.starts_with(b"PK\x03\x04") => {
            ("a ZIP archive, as spreadsheets are (.xlsx, .ods)", "save the sheet as CSV, or unpack the archive")
        }
        (_, _) if begin.starts_with(b"ARROW1") => ("a Feather file", "save it as Parquet or as CSV"),
        (Some(_), _) if is_text(&begin) => ("not packed", "leave the last ending of its name away"),
        (None, FileKind::Columns) if is_text(&begin) => {
            ("a text", "end its name with `.csv`, or with `.jsonl`, if it has a JSON object on each line")
        }
        (None, FileKind::Written(Form::Cells(_))) if begin.starts_with(b"{\"") => {
            ("JSON", "end its name with `.jsonl`, if it has an object on each line")
        }
        _ => return Ok(()),
    };
    bail!("`{place}` is {is}, though its name {ending}: {name}")
}

/// The first bytes of a file. A file that cannot be read has none here; the reader of the table reports the error.
fn first_bytes(path: &Path) -> Vec<u8> {
    let mut begin = Vec::new();
    if let Ok(opened) = crate::files::open(path) {
        let _ = opened.file.take(64).read_to_end(&mut begin);
    }
    begin
}

/// Whether bytes are the begin of a text: no Parquet file and none that is packed begins with such.
fn is_text(begin: &[u8]) -> bool {
    let whole = std::str::from_utf8(begin).map_or_else(|error| error.valid_up_to() + 3 >= begin.len(), |_| true);
    whole && begin.iter().all(|byte| *byte >= b' ' || b"\t\r\n".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "writes files")]
    fn what_a_file_is_goes_before_what_its_name_says() {
        let folder = tempfile::tempdir().unwrap();
        let cells = FileKind::Written(Form::Cells(Format::default()));
        let objects = FileKind::Written(Form::Objects);
        let gzip = b"\x1f\x8b\x08\0\0\0\0\0";
        for (name, kind, bytes, part) in [
            ("a.csv", cells, &b"PAR1\x15\0"[..], Some("is a Parquet file, though its name ends with `.csv`: end")),
            ("a.csv.gz", cells, b"PAR1\x15\0", Some("is a Parquet file")),
            ("a.jsonl", objects, gzip, Some("is packed by gzip")),
            ("a.parquet", FileKind::Columns, gzip, Some("is packed by gzip")),
            ("a.csv.gz", cells, b"\x28\xb5\x2f\xfd\0", Some("is packed by Zstandard")),
            ("a.csv.zst", cells, b"a,b\n1,2\n", Some("is not packed, though its name ends with `.zst`: leave")),
            (
                "a.parquet",
                FileKind::Columns,
                "größe,b\n1,2\n".as_bytes(),
                Some("is a text, though its name ends with `.parquet`: end"),
            ),
            ("a.csv", cells, b"PK\x03\x04\0", Some("a ZIP archive")),
            ("a.csv", cells, b"ARROW1\0\0", Some("a Feather file")),
            ("a.csv", cells, b"{\"a\": 1}\n", Some("is JSON, though")),
            ("none", cells, b"{\"a\": 1}\n", Some("though its name has no ending")),
            ("a.csv", cells, b"a,b\n1,2\n", None),
            ("a.csv", cells, b"", None),
            ("a.csv.gz", cells, gzip, None),
            ("a.csv.gz", cells, b"\0\x01\x02", None),
            ("a.jsonl", objects, b"{\"a\": 1}\n", None),
            ("a.parquet", FileKind::Columns, b"PAR1\x15\0", None),
            ("a.parquet", FileKind::Columns, b"\x15\0\x15\0", None),
            ("a.parquet.gz", FileKind::Columns, b"PAR1\x15\0", None),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let message = expect_named(&path, kind).err().map(|error| error.to_string());
            match part {
                Some(part) => assert!(message.as_deref().unwrap_or_default().contains(part), "{name}: {message:?}"),
                None => assert_eq!(message, None, "{name}"),
            }
        }
        assert!(expect_named(&folder.path().join("nothing.csv"), cells).is_ok());
    }
}
