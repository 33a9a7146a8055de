//! What goes over a connection: frames of a kind and a length.

use std::io::{self, Read, Write};

/// Bytes before the content of a frame.
pub const HEADER: usize = 16;

/// What every frame begins with: what does not is no frame of another rank.
const MAGIC: [u8; 6] = *b"runner";

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message of ranks that meet, before other frames.
    Hello = 1,
    /// A part of an exchange.
    Data = 2,
    /// A sign of life.
    Alive = 3,
    /// A rank cannot go on: its number, and why.
    Failed = 4,
    /// The sender has done all that it was to do.
    Bye = 5,
    /// A part of an exchange in memory that both share: where it lies.
    Placed = 6,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Hello, Kind::Data, Kind::Alive, Kind::Failed, Kind::Bye, Kind::Placed];
}

/// The bytes before the content.
pub fn header(kind: Kind, len: usize) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()] = kind as u8;
    bytes[8..].copy_from_slice(&(len as u64).to_le_bytes());
    bytes
}

/// The kind and length of a frame.
///
/// # Errors
/// It is none.
pub fn parse(header: [u8; HEADER]) -> io::Result<(Kind, usize)> {
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == header[MAGIC.len()] && header[..MAGIC.len()] == MAGIC);
    let mut len = [0; 8];
    len.copy_from_slice(&header[8..]);
    let len = usize::try_from(u64::from_le_bytes(len)).ok();
    kind.zip(len).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is not what a rank sends"))
}

/// Writes a frame.
///
/// # Errors
/// The connection failed.
pub fn write(to: &mut impl Write, kind: Kind, content: &[u8]) -> io::Result<()> {
    let mut bytes = header(kind, content.len()).to_vec();
    bytes.extend_from_slice(content);
    to.write_all(&bytes)
}

/// Reads a frame of at most `most` bytes.
///
/// # Errors
/// The connection failed, or it is no such frame.
pub fn read_short(from: &mut impl Read, most: usize) -> io::Result<(Kind, Vec<u8>)> {
    let mut bytes = [0; HEADER];
    from.read_exact(&mut bytes)?;
    let (kind, len) = parse(bytes)?;
    if len > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    let mut content = vec![0; len];
    from.read_exact(&mut content)?;
    Ok((kind, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_others_are_refused() {
        for kind in Kind::ALL {
            let mut bytes = Vec::new();
            write(&mut bytes, kind, b"some words").unwrap();
            assert_eq!(read_short(&mut bytes.as_slice(), 10).unwrap(), (kind, b"some words".to_vec()));
            for cut in [3, HEADER, bytes.len() - 1] {
                assert!(read_short(&mut &bytes[..cut], 10).is_err());
            }
        }
        assert!(read_short(&mut b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".as_slice(), 1 << 20).is_err());
        assert!(parse(header(Kind::Data, 0).map(|byte| byte ^ 0x40)).is_err());
        let long = header(Kind::Hello, 11);
        assert!(read_short(&mut [&long[..], &[0; 11]].concat().as_slice(), 10).is_err());
    }
}
