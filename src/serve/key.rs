//! Who may ask: those who know a key.

use super::refusal::Refusal;
use crate::files;
use anyhow::{Result, ensure};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use blake3::Hash;
use std::path::Path;

/// Largest file of keys, in bytes.
const MAX_FILE: u64 = 1 << 16;
/// The shortest key that is not guessed.
const SHORTEST: usize = 16;

/// The accepted keys, as hashes: the time of a comparison does not depend on where two hashes differ.
#[derive(Debug)]
pub struct Keys(Vec<Hash>);

impl Keys {
    /// Reads a file with a key a line.
    ///
    /// # Errors
    /// It cannot be read, has no key, or one that is too short.
    pub fn read(path: &Path) -> Result<Keys> {
        let bytes = files::read(path, MAX_FILE)?;
        let place = path.display();
        let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let mut keys = Vec::new();
        for (number, key) in lines.enumerate() {
            ensure!(
                key.len() >= SHORTEST && key.iter().all(u8::is_ascii_graphic),
                "`{place}`: key {} is not {SHORTEST} characters of ASCII or more, without spaces\nhelp: `openssl rand -hex 32` makes one",
                number + 1
            );
            keys.push(blake3::hash(key));
        }
        ensure!(!keys.is_empty(), "`{place}` has no key\nhelp: it has a key a line; `openssl rand -hex 32` makes one");
        Ok(Keys(keys))
    }

    /// Whether a request has one of them.
    ///
    /// # Errors
    /// It has none.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let refused = |reason: &str| Err(Refusal::new(StatusCode::UNAUTHORIZED, reason));
        let Some(given) = headers.get(AUTHORIZATION) else {
            return refused("a key is needed: send it as `Authorization: Bearer KEY`");
        };
        let Some((scheme, key)) = given.as_bytes().split_at_checked("Bearer ".len()) else {
            return refused("the key is not sent as `Authorization: Bearer KEY`");
        };
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return refused("the key is not sent as `Authorization: Bearer KEY`");
        }
        let given = blake3::hash(key.trim_ascii());
        // All of them are looked at, whichever it is.
        match self.0.iter().fold(false, |known, key| known | (*key == given)) {
            true => Ok(()),
            false => refused("the key is not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(content: &str) -> Result<Keys> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, content).unwrap();
        Keys::read(&path)
    }

    #[test]
    fn keys_are_those_of_the_file() {
        let keys = keys("0123456789abcdef\n\n  fedcba9876543210 \r\n").unwrap();
        let checked = |header: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())]);
            keys.check(&headers).map_err(|refusal| refusal.status)
        };
        assert_eq!(checked("Bearer 0123456789abcdef"), Ok(()));
        assert_eq!(checked("bearer fedcba9876543210"), Ok(()));
        for wrong in ["Bearer 0123456789abcde", "Bearer ", "Bearer", "", "Basic 0123456789abcdef", "0123456789abcdef"] {
            assert_eq!(checked(wrong), Err(StatusCode::UNAUTHORIZED), "{wrong}");
        }
        assert!(keys.check(&HeaderMap::new()).is_err());
    }

    #[test]
    fn files_without_keys_are_refused() {
        for (content, part) in [
            ("", "has no key"),
            ("\n \n", "has no key"),
            ("short\n", "key 1 is not 16"),
            ("0123456789abcdef\n0123456789 abcdef", "key 2"),
        ] {
            assert!(keys(content).unwrap_err().to_string().contains(part), "{content:?}");
        }
    }
}
