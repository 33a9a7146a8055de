//! Files of text, as they are: one, several, or those of a folder.

use super::super::table::is_table_name;
use super::super::tokenizer::Tokenizer;
use super::no_text::no_utf8;
use super::tokens::Tokens;
use crate::files::host_memory::HostMemory;
use crate::files::{self, pattern};
use crate::terminal::human_bytes;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What the names of text files in a folder end in.
const ENDINGS: [&str; 3] = ["txt", "md", "text"];

/// A mark of the order of bytes: it is no part of the text.
pub const MARK: &str = "\u{FEFF}";

/// Refuses a text that there is no memory to make tokens of, which takes `working` bytes.
/// `help`: what to do.
pub(super) fn expect_room(bytes: usize, working: usize, host: &HostMemory, called: &str, help: &str) -> Result<()> {
    ensure!(
        working <= host.available,
        "{called} has {} of text, which takes about {} while tokens are made of it, and {} can be had ({}): {help}",
        human_bytes(bytes),
        human_bytes(working),
        human_bytes(host.available),
        host.because
    );
    Ok(())
}

/// What files hold.
pub(super) enum Read {
    Text(String),
    /// For a tokenizer of bytes, which takes them in any encoding.
    Bytes(Vec<u8>),
}

impl Read {
    /// How many bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Read::Text(text) => text.len(),
            Read::Bytes(bytes) => bytes.len(),
        }
    }

    /// Adds the tokens of a part of it, which ends with a file.
    pub(super) fn encode(
        &self,
        part: Range<usize>,
        tokenizer: &Tokenizer,
        called: &str,
        tokens: &mut Tokens,
    ) -> Result<()> {
        match self {
            Read::Text(text) => tokenizer.encode_each(&text[part], called, &mut |some| tokens.extend(some)),
            Read::Bytes(bytes) => {
                bytes[part].iter().for_each(|byte| tokens.extend(&[u32::from(*byte)]));
                Ok(())
            }
        }
    }

    /// What a tokenizer learns from: one of bytes learns nothing.
    pub(super) fn utf8(&self) -> &str {
        match self {
            Read::Text(text) => text,
            Read::Bytes(_) => "",
        }
    }
}

/// What a file holds, several, or those in a folder by their names, one after the other; and where each of them ends.
pub(super) fn text(path: &Path, any_bytes: bool) -> Result<(Read, Vec<usize>)> {
    let mut ends = Vec::new();
    let paths = text_files(path)?;
    if let Some(table) = paths.iter().find(|path| is_table_alone(path)) {
        bail!(
            "`{}` is a table, and other files of `{}` are none: tables are named by themselves, several by a pattern such as `*.jsonl`",
            table.display(),
            path.display()
        );
    }
    if any_bytes {
        let mut all = Vec::new();
        for path in &paths {
            let bytes = files::read(path, u64::MAX)?;
            let bytes = bytes.strip_prefix(MARK.as_bytes()).map(<[u8]>::to_vec).unwrap_or(bytes);
            if all.is_empty() {
                all = bytes
            } else {
                all.extend_from_slice(&bytes)
            }
            ends.push(all.len());
        }
        ensure!(!all.is_empty(), "`{}` is empty", path.display());
        return Ok((Read::Bytes(all), ends));
    }
    let mut all = String::new();
    for path in &paths {
        let text = String::from_utf8(files::read(path, u64::MAX)?).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            anyhow!(no_utf8(path, Some(line), at as u64))
        })?;
        let text = text.strip_prefix(MARK).map(str::to_owned).unwrap_or(text);
        // Most often there is one file, which needs no copy.
        if all.is_empty() {
            all = text
        } else {
            all.push_str(&text)
        }
        ends.push(all.len());
    }
    ensure!(!all.is_empty(), "`{}` has no text", path.display());
    Ok((Read::Text(all), ends))
}

/// Whether a file has the name of a table that makes no sense as a text: JSON Lines, Parquet, or one that is packed.
pub(super) fn is_table_alone(path: &Path) -> bool {
    is_table_name(path) && !is_plain_table(path)
}

/// Whether a file has the name of CSV or TSV that is not packed, which may be meant as a text.
pub(super) fn is_plain_table(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ["csv", "tsv"].iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// Whether all files that a path stands for have such names.
pub(super) fn are_tables_alone(path: &Path) -> bool {
    !path.is_dir() && text_files(path).is_ok_and(|paths| paths.iter().all(|path| is_table_alone(path)))
}

/// The files that a path stands for: a file, several by a pattern, or those of a folder.
pub(super) fn text_files(path: &Path) -> Result<Vec<PathBuf>> {
    match path {
        folder if folder.is_dir() => below(folder),
        several if pattern::is_pattern(several) && !files::is_there(several) => pattern::paths(several),
        file => Ok(vec![file.to_owned()]),
    }
}

/// The text files of a folder and of those below it, by their names.
fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let context = || format!("cannot read the folder `{}`", folder.display());
        for entry in std::fs::read_dir(&folder).with_context(context)? {
            let entry = entry.with_context(context)?;
            let (path, kind) = (entry.path(), entry.file_type().with_context(context)?);
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| ENDINGS.contains(&e)) {
                found.push(path);
            }
        }
    }
    ensure!(
        !found.is_empty(),
        "the folder `{}` has no text files: their names end in .txt, .md or .text",
        folder.display()
    );
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_room_for_its_tokens_is_refused() {
        let host = HostMemory { available: 1 << 30, because: "a limit".into() };
        expect_room(5 << 20, 1000 << 20, &host, "`a.txt`", "make a file").unwrap();
        let message = expect_room(10 << 20, 2000 << 20, &host, "`a.txt`", "make a file").unwrap_err().to_string();
        assert!(
            message.contains("`a.txt` has 10.0 MiB of text") && message.contains("1.0 GiB can be had (a limit)"),
            "{message}"
        );
    }
}
