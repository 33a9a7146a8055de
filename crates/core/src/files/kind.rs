//! The kind of a file, from its first bytes, for messages where another kind was expected.

use super::open;
use std::io::Read;
use std::path::Path;

/// Bytes that are looked at.
const PREFIX: u64 = 4096;

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Tensors with a JSON header: weights, data, or a checkpoint.
    Safetensors,
    /// A zip archive, as which PyTorch saves state dicts.
    Zip,
    /// A picture.
    Image,
    /// Something compressed, or an archive.
    Compressed,
    /// Text.
    Text,
    /// Nothing at all.
    Empty,
    /// Some other bytes.
    Other,
}

/// What the file at `path` is; `None` if it is none, or cannot be read.
pub fn kind(path: &Path) -> Option<Kind> {
    let mut prefix = Vec::new();
    open(path).ok()?.file.take(PREFIX).read_to_end(&mut prefix).ok()?;
    Some(kind_of(&prefix))
}

/// What begins with these bytes.
fn kind_of(prefix: &[u8]) -> Kind {
    const IMAGES: [&[u8]; 8] =
        [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*", b"RIFF"];
    const COMPRESSED: [&[u8]; 4] = [b"\x1f\x8b", b"\xfd7zXZ\0", b"BZh", b"\x28\xb5\x2f\xfd"];
    let begins = |with: &[&[u8]]| with.iter().any(|start| prefix.starts_with(start));
    // A safetensors file has its JSON after eight bytes, of a length that the highest of them never need.
    if prefix.len() > 8 && prefix[8] == b'{' && prefix[6..8] == [0, 0] {
        return Kind::Safetensors;
    }
    // Two letters are also how a text may begin.
    let is_text = text(prefix);
    match () {
        () if prefix.is_empty() => Kind::Empty,
        () if prefix.starts_with(b"PK\x03\x04") => Kind::Zip,
        () if is_text => Kind::Text,
        () if begins(&IMAGES) => Kind::Image,
        () if begins(&COMPRESSED) => Kind::Compressed,
        () => Kind::Other,
    }
}

/// True for text, the last character of which may be cut off.
fn text(prefix: &[u8]) -> bool {
    let whole = match std::str::from_utf8(prefix) {
        Ok(text) => text,
        Err(e) if e.error_len().is_none() => std::str::from_utf8(&prefix[..e.valid_up_to()]).unwrap_or_default(),
        Err(_) => return false,
    };
    // The reader of a text reports other control characters at their place.
    !whole.is_empty() && !whole.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_begin() {
        for (bytes, kind) in [
            (&b""[..], Kind::Empty),
            (b"[data]\nsource = \"digits\"\n", Kind::Text),
            (b"BM stands at the begin of a text too", Kind::Text),
            ("# grün".as_bytes(), Kind::Text),
            (&"# grün".as_bytes()[..5], Kind::Text),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", Kind::Image),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", Kind::Image),
            (b"BM\x36\0\0\0\0\0", Kind::Image),
            (b"PK\x03\x04\0\0\0\0", Kind::Zip),
            (b"\x1f\x8b\x08\0", Kind::Compressed),
            (b"\x10\0\0\0\0\0\0\0{\"a\":", Kind::Safetensors),
            (b"\0\0\x08\x03\0\0\xea\x60", Kind::Other),
        ] {
            assert_eq!(kind_of(bytes), kind, "{bytes:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(super::kind(dir.path()), None);
        assert_eq!(super::kind(&dir.path().join("nothing")), None);
    }
}
