//! SHA-256 of what is read, while it is read.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, BufRead, Read};

/// A SHA-256, shown in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    /// That of these bytes, one piece after the other.
    pub fn of(pieces: &[&[u8]]) -> Digest {
        let mut hash = Sha256::new();
        pieces.iter().for_each(|piece| hash.update(piece));
        Digest(hash.finalize().into())
    }

    /// True if these are its digits.
    pub fn is(&self, hex: &str) -> bool {
        self.to_string() == hex
    }

    /// True if its digits begin with these; they do with all of them, and with none.
    pub fn begins_with(&self, hex: &str) -> bool {
        self.to_string().starts_with(hex)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Passes bytes on, and takes each into a digest when it is consumed.
pub(super) struct Digesting<R> {
    inner: R,
    hash: Sha256,
}

impl<R> Digesting<R> {
    pub fn new(inner: R) -> Self {
        Digesting { inner, hash: Sha256::new() }
    }

    /// The digest of everything that was consumed.
    pub fn digest(self) -> Digest {
        Digest(self.hash.finalize().into())
    }
}

impl<R: BufRead> Read for Digesting<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.hash.update(&out[..n]);
        Ok(n)
    }
}

impl<R: BufRead> BufRead for Digesting<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        // What is consumed was in the buffer, so that this reads nothing and cannot fail.
        if n > 0
            && let Ok(buffer) = self.inner.fill_buf()
        {
            self.hash.update(&buffer[..n.min(buffer.len())]);
        }
        self.inner.consume(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_reading_counts_each_byte_once() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * i % 251) as u8).collect();
        let mut reader = Digesting::new(io::BufReader::with_capacity(100, &bytes[..]));
        let mut out = [0; 7];
        let mut read = 0;
        for round in 0.. {
            let n =
                if round % 2 == 0 { reader.read(&mut out).unwrap() } else { reader.fill_buf().unwrap().len().min(11) };
            if n == 0 {
                break;
            }
            if round % 2 == 1 {
                reader.consume(n);
            }
            read += n;
        }
        assert_eq!(read, bytes.len());
        assert_eq!(reader.digest(), Digest::of(&[&bytes[..5], &bytes[5..]]));
        // The standard's example.
        let abc = Digest::of(&[b"abc"]);
        assert!(abc.is("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"), "{abc}");
    }
}
