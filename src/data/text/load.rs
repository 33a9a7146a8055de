//! From files to windows of tokens.

use super::super::field::DataSpec;
use super::super::sheet::inner_ending;
use super::super::table::is_table_name;
use super::super::{HoldOut, Split};
use super::options::{Choice, Content, TextOptions};
use super::tokenizer::Tokenizer;
use super::tokens::Tokens;
use super::windows::{Order, Windows, fields};
use super::{Chat, Samples, TextCodec};
use crate::files::host_memory::{HostMemory, host_memory};
use crate::files::{self, pattern};
use crate::terminal::human_bytes;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the names of text files in a folder end in.
const ENDINGS: [&str; 3] = ["txt", "md", "text"];

/// A mark of the order of bytes: it is no part of the text.
pub(super) const MARK: &str = "\u{FEFF}";

/// What there is for texts that memory has no room for.
const INSTEAD: &str = "`runner data tokenize` makes a file of its tokens, for `source = \"tokens\"`";

/// A text, read.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What its samples are.
    pub spec: DataSpec,
    /// Windows that are trained on.
    pub train: Split,
    /// Windows that are validated on.
    pub val: Split,
    /// Bytes of memory that both hold.
    pub held: usize,
    /// Bytes of memory besides, while tokens are made.
    pub reading: usize,
    /// What the user should know of it.
    pub told: Vec<String>,
}

/// Reads a text and makes samples of it.
///
/// # Errors
/// Files cannot be read, are no text, or have too few tokens.
pub fn load(options: &TextOptions) -> Result<Loaded> {
    let mut codec = options.fitted.as_deref().cloned();
    let (tokens, told, mut reading) = read(options, &options.path, &mut codec)?;
    let codec = codec.context("reading a text makes its codec")?;
    let whole = 0..tokens.len();
    let (train, held_out) = match options.hold_out {
        Some(how) => {
            let last = held_out(how, tokens.len()).with_context(|| format!("`{}`", options.path.display()))?;
            (0..tokens.len() - last, Some(tokens.len() - last..tokens.len()))
        }
        None => (whole, None),
    };
    let windows = |tokens: &Arc<Tokens>, range, train: bool, path: &Path, what: &str| -> Result<Split> {
        let order = match options.streams {
            Some([of_training, of_evaluation]) => Order::Streams(if train { of_training } else { of_evaluation }),
            None => Order::Windows { moved: train },
        };
        let windows = Windows::new(tokens, range, options.context, codec.vocabulary, order);
        Split::new(Arc::new(windows.with_context(|| format!("`{}`{what}", path.display()))?))
    };
    let mut held = tokens.held_bytes();
    let bytes = |tokens: &Tokens, range| {
        let counted = options.counts_bytes.then(|| bytes_per_token(tokens, range, codec.tokenizer.as_ref()));
        counted.unwrap_or(Ok(None))
    };
    let mut bytes_of_val = None;
    let train = windows(&tokens, train, true, &options.path, "")?;
    let val = match (&options.val_path, held_out) {
        (Some(path), _) => {
            let (tokens, _, besides) = read(options, path, &mut Some(codec.clone()))?;
            reading = reading.max(besides);
            held += tokens.held_bytes();
            let range = 0..tokens.len();
            bytes_of_val = bytes(&tokens, range.clone())?;
            windows(&tokens, range, false, path, "")?
        }
        (None, Some(range)) => {
            bytes_of_val = bytes(&tokens, range.clone())?;
            windows(&tokens, range, false, &options.path, ", the end that is held out")?
        }
        (None, None) => train.select(&[]),
    };
    let spec = DataSpec {
        train: Some(train.len()),
        val: Some(val.len()),
        fitted: Some(codec.written()?),
        bytes_per_token: bytes_of_val,
        ..DataSpec::new(fields(options.context, codec.vocabulary))
    };
    Ok(Loaded { spec, train, val, held, reading, told })
}

/// How many bytes a token stands for: those that a model learns to tell, all but the first, or so many of them that no more would change the figure. `None` without a
/// tokenizer.
fn bytes_per_token(tokens: &Tokens, range: Range<usize>, tokenizer: Option<&Tokenizer>) -> Result<Option<f64>> {
    const MOST: usize = 4 << 20;
    let range = range.start + 1..range.end.min(range.start + 1 + MOST);
    Ok(match tokenizer.filter(|_| !range.is_empty()) {
        None => None,
        // Bytes that are no text would be another number of them.
        Some(Tokenizer::Bytes) => Some(1.0),
        Some(tokenizer) => {
            let (count, mut reader) = (range.len(), tokens.reader(range.end));
            let read = range.map(|at| reader.get(at)).collect::<Result<Vec<u32>>>()?;
            Some(tokenizer.decode(&read)?.len() as f64 / count as f64)
        }
    })
}

/// How many tokens at the end are held out.
fn held_out(how: HoldOut, all: usize) -> Result<usize> {
    let held = match how {
        HoldOut::Fraction(part) => (all as f64 * part).round() as usize,
        HoldOut::Count(tokens) => tokens,
    };
    ensure!(
        held > 0 && held < all,
        "`validation_split` takes {held} of {all} tokens, which leaves nothing to train or to validate on"
    );
    Ok(held)
}

/// The tokens of a path, what the user should know of them, and the memory that making them took besides; `codec` is made by the first.
fn read(
    options: &TextOptions,
    path: &Path,
    codec: &mut Option<TextCodec>,
) -> Result<(Arc<Tokens>, Vec<String>, usize)> {
    let samples = Samples::Windows { context: options.context };
    let chat = || options.chat.as_deref().map(Chat::read).transpose();
    match &options.content {
        Content::Tokens { vocabulary, tokenizer } => {
            let tokens = Tokens::in_files(path)?;
            if codec.is_none() {
                let tokenizer = tokenizer.as_ref().map(|choice| Tokenizer::choose(choice, &[])).transpose()?;
                let own = tokenizer.as_ref().map(Tokenizer::vocabulary);
                let vocabulary = match (*vocabulary, own) {
                    (Some(vocabulary), Some(own)) if own > vocabulary => {
                        bail!("`vocab_size` is {vocabulary}, and the tokenizer has {own} tokens")
                    }
                    (Some(vocabulary), _) => vocabulary,
                    (None, Some(own)) => own,
                    (None, None) => bail!("neither `vocab_size` nor `tokenizer` says how many tokens there may be"),
                };
                *codec = Some(TextCodec { tokenizer, chat: chat()?, vocabulary, samples });
            }
            Ok((Arc::new(tokens), Vec::new(), 0))
        }
        Content::Text(choice) => {
            let known = codec.as_ref().and_then(|codec| codec.tokenizer.as_ref());
            let any_bytes = known.map_or(*choice == Choice::Bytes, |known| matches!(known, Tokenizer::Bytes));
            let (text, files) = text(path, any_bytes)?;
            let codec = match codec {
                Some(codec) => codec,
                none => {
                    let tokenizer = Tokenizer::choose(choice, &[text.utf8()])?;
                    let (vocabulary, tokenizer) = (tokenizer.vocabulary(), Some(tokenizer));
                    none.insert(TextCodec { tokenizer, chat: chat()?, vocabulary, samples })
                }
            };
            let Some(tokenizer) = &codec.tokenizer else {
                bail!("the model was trained on tokens whose tokenizer it does not know, so it cannot read text")
            };
            let called = format!("`{}`", path.display());
            let mut tokens = Tokens::in_memory(codec.vocabulary);
            let besides = match &text {
                Read::Text(text) => {
                    let working = tokenizer.working_memory(text);
                    if let Some(host) = host_memory() {
                        expect_room(text.len(), working, &host, &called, INSTEAD)?;
                    }
                    tokenizer.encode_each(text, &called, &mut |some| tokens.extend(some))?;
                    text.len().saturating_add(working)
                }
                Read::Bytes(bytes) => {
                    for byte in bytes {
                        tokens.extend(&[u32::from(*byte)]);
                    }
                    bytes.len()
                }
            };
            let tokens = tokens.whole();
            let told = format!(
                "{called}: {}{} bytes of text are {} tokens ({})",
                if files > 1 { format!("{files} files, ") } else { String::new() },
                text.len(),
                tokens.len(),
                tokenizer.in_words()
            );
            Ok((Arc::new(tokens), vec![told], besides))
        }
    }
}

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
enum Read {
    Text(String),
    /// For a tokenizer of bytes, which takes them in any encoding.
    Bytes(Vec<u8>),
}

impl Read {
    fn len(&self) -> usize {
        match self {
            Read::Text(text) => text.len(),
            Read::Bytes(bytes) => bytes.len(),
        }
    }

    /// What a tokenizer learns from: one of bytes learns nothing.
    fn utf8(&self) -> &str {
        match self {
            Read::Text(text) => text,
            Read::Bytes(_) => "",
        }
    }
}

/// What a file holds, several, or those in a folder by their names, one after the other; and how many files that are.
fn text(path: &Path, any_bytes: bool) -> Result<(Read, usize)> {
    let paths = text_files(path)?;
    if let Some(table) = paths.iter().find(|path| is_table_alone(path)) {
        bail!(
            "`{0}` is a table, and its rows are no text: `runner data tokenize {0} --column NAME --out DIR` makes files of tokens of one of its columns, which \
             `source = \"tokens\"` reads",
            table.display()
        );
    }
    if any_bytes {
        let mut all = Vec::new();
        for path in &paths {
            let bytes = files::read(path, u64::MAX)?;
            let bytes = bytes.strip_prefix(MARK.as_bytes()).map(<[u8]>::to_vec).unwrap_or(bytes);
            if all.is_empty() { all = bytes } else { all.extend_from_slice(&bytes) }
        }
        ensure!(!all.is_empty(), "`{}` is empty", path.display());
        return Ok((Read::Bytes(all), paths.len()));
    }
    let mut all = String::new();
    for path in &paths {
        let text = String::from_utf8(files::read(path, u64::MAX)?).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            anyhow!(
                "`{}`, line {line}: byte {at} is no UTF-8; convert the file, for example with `iconv -t UTF-8`",
                path.display()
            )
        })?;
        let text = text.strip_prefix(MARK).map(str::to_owned).unwrap_or(text);
        // Most often there is one file, which needs no copy.
        if all.is_empty() { all = text } else { all.push_str(&text) }
    }
    ensure!(!all.is_empty(), "`{}` has no text", path.display());
    Ok((Read::Text(all), paths.len()))
}

/// Whether a file has the name of a table that makes no sense as a text: JSON Lines or Parquet.
pub(super) fn is_table_alone(path: &Path) -> bool {
    is_table_name(path) && !["csv", "tsv"].contains(&inner_ending(path).as_str())
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
    fn parts_are_rounded_to_the_nearest_token() {
        for (how, all, held) in [
            (HoldOut::Fraction(0.3), 9, 3),
            (HoldOut::Fraction(0.3), 11, 3),
            (HoldOut::Fraction(0.25), 10, 3),
            (HoldOut::Count(4), 9, 4),
        ] {
            assert_eq!(held_out(how, all).unwrap(), held, "{how:?} of {all}");
        }
        assert!(held_out(HoldOut::Fraction(0.04), 9).is_err() && held_out(HoldOut::Count(9), 9).is_err());
    }

    #[test]
    fn a_text_without_room_for_its_tokens_is_refused() {
        let host = HostMemory { available: 1 << 30, because: "a limit".into() };
        expect_room(5 << 20, 1000 << 20, &host, "`a.txt`", INSTEAD).unwrap();
        let told = expect_room(10 << 20, 2000 << 20, &host, "`a.txt`", INSTEAD).unwrap_err().to_string();
        assert!(
            told.contains("`a.txt` has 10.0 MiB of text") && told.contains("1.0 GiB can be had (a limit)"),
            "{told}"
        );
    }
}
