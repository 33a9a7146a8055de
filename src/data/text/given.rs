//! Texts for a model that is trained: the rows of a table, the lines of any other file, and texts one by one.

use super::super::Split;
use super::super::table::{Format, is_table, open_sheet};
use super::super::tokenizer::{Passage, UNKNOWN_TOKEN, tokens_of};
use super::labelled::Texts;
use super::text_files::MARK;
use super::{Samples, TextCodec};
use crate::files::Lines;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

/// The file that stands for standard input.
pub const STANDARD_INPUT: &str = "-";
/// Longest line of a file of texts, in bytes.
const MAX_LINE: usize = 1 << 24;
/// Most bytes of standard input.
const MOST_OF_INPUT: usize = 1 << 30;

/// Texts as samples: the rows of a table, or the lines of any other file or of standard input (`-`), in which a tab stands between the texts of a pair.
///
/// # Errors
/// It cannot be read, has no such column, a line is no pair, or a text has a character without a token.
pub fn read_passages(path: &Path, codec: &TextCodec) -> Result<Split> {
    as_samples(path, &read_given(path, codec)?, codec)
}

/// Texts that [`read_given`] has read of a file as samples.
///
/// # Errors
/// A text has a character without a token.
pub fn as_samples(path: &Path, all: &[Passage], codec: &TextCodec) -> Result<Split> {
    let mut codec = codec.clone();
    if let Samples::Labelled { lengths, .. } = &mut codec.samples {
        // All batches are of one length, so that samples stay in their order.
        lengths.drain(..lengths.len() - 1);
    }
    let labels = vec![0; all.len()];
    Split::new(Arc::new(Texts::new(&codec, all, labels, &format!("`{}`", path.display()))?))
}

/// The texts of a table, or of the lines of any other file or of standard input, as [`read_passages`].
///
/// # Errors
/// As [`read_passages`].
pub fn read_given(path: &Path, codec: &TextCodec) -> Result<Vec<Passage>> {
    let (text, pair) = match &codec.samples {
        Samples::Labelled { text, text_pair, .. } => (text, text_pair.as_ref()),
        Samples::Answered { text, .. } | Samples::Prompted { text, .. } => (text, None),
        _ => bail!(
            "a language model is trained on one long text: `runner generate` goes on with a text, and there is nothing to predict"
        ),
    };
    let mut all = Vec::new();
    if is_table(path) {
        let table = open_sheet(path, Format::default())?;
        let column =
            |name: &String| table.column(name).with_context(|| format!("`{}` has no column `{name}`", path.display()));
        let (text, pair) = (column(text)?, pair.map(column).transpose()?);
        let columns: Vec<usize> = [text].into_iter().chain(pair).collect();
        table.each_cells(&columns, |_, row| {
            let cell = |column: usize| row[column].to_owned();
            all.push(Passage { text: cell(text), pair: pair.map(cell) });
            Ok(())
        })?;
    } else {
        each_line(path, |number, text| {
            all.push(passage(text, codec).with_context(|| format!("`{}`, line {number}", path.display()))?);
            Ok(())
        })?;
    }
    ensure!(!all.is_empty(), "`{}` has no texts", path.display());
    Ok(all)
}

/// Hands the number of each line of a file, from 1, and its text to `take`.
///
/// # Errors
/// It cannot be read, a line is too long or no UTF-8, or `take` fails.
pub fn each_line(path: &Path, mut take: impl FnMut(u32, &str) -> Result<()>) -> Result<()> {
    let of_input = path.as_os_str() == STANDARD_INPUT;
    let input: Box<dyn Read> = match of_input {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(crate::files::open(path)?.file),
    };
    let (mut lines, mut number, mut bytes) = (Lines::new(BufReader::new(input), MAX_LINE), 0, 0);
    while let Some(line) = lines.read().with_context(|| format!("cannot read `{}`", path.display()))? {
        number += 1;
        let at = || format!("`{}`, line {number}", path.display());
        bytes += line.bytes.len();
        ensure!(!of_input || bytes <= MOST_OF_INPUT, "standard input has more than 1 GiB: give a file in its place");
        ensure!(!line.too_long, "{}: it has more than {MAX_LINE} bytes", at());
        let text = std::str::from_utf8(line.bytes).with_context(|| format!("{} is no UTF-8", at()))?;
        let text = if number == 1 { text.strip_prefix(MARK).unwrap_or(text) } else { text };
        take(number, text.trim_end_matches(['\n', '\r']))?;
    }
    Ok(())
}

/// A line as a text or, where the model takes pairs, as two with a tab between them.
///
/// # Errors
/// There is no tab, or more than one.
pub fn passage(line: &str, codec: &TextCodec) -> Result<Passage> {
    if !codec.takes_pairs() {
        return Ok(line.to_owned().into());
    }
    match line.split_once('\t').filter(|(_, pair)| !pair.contains('\t')) {
        Some((text, pair)) => Ok(Passage { text: text.to_owned(), pair: Some(pair.to_owned()) }),
        None => bail!(
            "the model takes pairs of texts with a tab between them, and here are {} tabs",
            line.matches('\t').count()
        ),
    }
}

/// The bytes of a sample of the longest length, field by field.
///
/// # Errors
/// The model takes no texts, or a pair where there is one text, or the other way round; a text, which `called` names, has a character without a token.
pub fn passage_bytes(codec: &TextCodec, passage: &Passage, called: &str) -> Result<Vec<Vec<u8>>> {
    let longest = codec.longest_text().context("the model takes no texts")?;
    match (codec.takes_pairs(), passage.pair.is_some()) {
        (true, false) => bail!("{called}: the model takes pairs of texts, and this is one text"),
        (false, true) => bail!("{called}: the model takes one text at a time, and this is a pair"),
        _ => {}
    }
    let tokenizer = codec.tokenizer.as_ref().context("the checkpoint has no tokenizer")?;
    let whole = tokens_of(tokenizer, longest, passage, called)?;
    let number = |number: u32| (number as i32).to_ne_bytes();
    let length = number(whole.tokens.len() as u32).to_vec();
    let filled = whole.tokens.iter().copied().chain(std::iter::repeat(UNKNOWN_TOKEN));
    let mut rows = vec![filled.take(longest).flat_map(number).collect(), length];
    rows.extend(passage.pair.as_ref().map(|_| number(whole.pair_start as u32).to_vec()));
    Ok(rows)
}
