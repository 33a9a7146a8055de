//! From files to samples of tokens: windows, or parts of documents that are kept apart.

use super::super::field::{DataSpec, Lengths};
use super::super::tokenizer::{Choice, Tokenizer};
use super::super::wrong_file::WrongFile;
use super::super::{HoldOut, Split};
use super::apart::{self, Apart, Ends};
use super::documents::Documents;
use super::options::{ApartOptions, Content, TextOptions};
use super::text_files::{Read, expect_room, is_plain_table, text};
use super::tokens::Tokens;
use super::windows::{Order, Windows};
use super::{Chat, Samples, TextCodec};
use crate::files::host_memory::host_memory;
use crate::terminal::counted;
use anyhow::{Context, Result, bail, ensure};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What there is for texts that memory has no room for.
const INSTEAD: &str = "`runner data tokenize` makes a file of its tokens, for `source = \"tokens\"`";

/// As many as `vocab_size` may say.
const MAX_VOCABULARY: usize = 1 << 24;

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
    pub notes: Vec<String>,
}

/// A text as tokens.
struct Text<'a> {
    path: &'a Path,
    tokens: Arc<Tokens>,
    /// After how many tokens its files end, if documents are kept apart.
    file_ends: Vec<usize>,
    /// What the user should know of it.
    notes: Vec<String>,
    /// Bytes of memory that making the tokens took besides.
    reading: usize,
}

/// Samples, and the tokens that they are of.
struct Part {
    split: Split,
    range: Range<usize>,
}

/// Reads a text and makes samples of it.
///
/// # Errors
/// Files cannot be read, are no text, or have too few tokens.
pub fn load(options: &TextOptions) -> Result<Loaded> {
    let mut codec = options.fitted.as_deref().cloned();
    let text = read(options, &options.path, &mut codec)?;
    let mut codec = codec.context("reading a text makes its codec")?;
    let samples = samples(options, codec.tokenizer.as_ref(), codec.vocabulary)?;
    if let Samples::Windows { .. } = codec.samples {
        // A model that is trained may be evaluated on samples of another kind.
        codec.samples = samples.clone();
    }
    let other = options.val_path.as_deref().map(|path| read(options, path, &mut Some(codec.clone()))).transpose();
    let other = other.map_err(WrongFile::of("val_path"))?;
    let (Part { split: train, .. }, val) = match &options.apart {
        Some(apart) => documents(options, apart, (&text, other.as_ref()), &codec)?,
        None => windows(options, (&text, other.as_ref()), codec.vocabulary)?,
    };
    let of_val = other.as_ref().unwrap_or(&text);
    let bytes_per_token = match &val {
        Some(val) if options.counts_bytes => bytes_per_token(&of_val.tokens, val.range.clone(), &codec)?,
        _ => None,
    };
    let val = val.map_or_else(|| train.select(&[]), |val| val.split);
    let lengths = options.apart.as_ref().map(|apart| Lengths::firsts(&apart.lengths)).unwrap_or_default();
    let spec = DataSpec {
        train: Some(train.len()),
        val: Some(val.len()),
        fitted: Some(codec.written()?),
        bytes_per_token,
        lengths,
        ..DataSpec::new(samples.fields(codec.vocabulary))
    };
    let texts = || [Some(&text), other.as_ref()].into_iter().flatten();
    let places = if options.apart.is_some() { Apart::bytes_of(train.len() + val.len()) } else { 0 };
    let held = texts().map(|text| text.tokens.held_bytes()).sum::<usize>() + places;
    let reading = texts().map(|text| text.reading).max().unwrap_or(0);
    let notes = texts().flat_map(|text| text.notes.iter().cloned()).collect();
    Ok(Loaded { spec, train, val, held, reading, notes })
}

/// Windows of a text, and of another one or of its end to validate on.
fn windows(
    options: &TextOptions,
    (text, other): (&Text, Option<&Text>),
    vocabulary: usize,
) -> Result<(Part, Option<Part>)> {
    let part = |text: &Text, range: Range<usize>, train: bool, what: &str| -> Result<Part> {
        let order = match options.streams {
            Some([of_training, of_evaluation]) => Order::Streams(if train { of_training } else { of_evaluation }),
            None => Order::Windows { moved: train },
        };
        let windows = Windows::new(&text.tokens, range.clone(), options.context, vocabulary, order);
        let windows = windows.with_context(|| format!("`{}`{what}", text.path.display()))?;
        Ok(Part { split: Split::new(Arc::new(windows))?, range })
    };
    let all = text.tokens.len();
    let cut = all - last(options, text)?;
    let train = part(text, 0..cut, true, "")?;
    let val = match other {
        Some(other) => Some(part(other, 0..other.tokens.len(), false, "")?),
        None if cut < all => Some(part(text, cut..all, false, ", the end that is held out")?),
        None => None,
    };
    Ok((train, val))
}

/// Parts of the documents of a text, and of another one or of its last ones to validate on.
fn documents(
    options: &TextOptions,
    apart: &ApartOptions,
    (text, other): (&Text, Option<&Text>),
    codec: &TextCodec,
) -> Result<(Part, Option<Part>)> {
    let end = apart::end(options, codec.tokenizer.as_ref(), codec.vocabulary)?;
    let called = |text: &Text| format!("`{}`", text.path.display());
    let documents = |text: &Text| -> Result<Vec<Range<usize>>> {
        let ends = match (end, &options.content) {
            (Some(end), _) => Ends::Token { end, begun: !codec.begin.is_empty() },
            (None, Content::Text(_)) => Ends::Places(&text.file_ends),
            (None, Content::Tokens { .. }) => bail!(
                "`packed = false` keeps documents apart, and no token is known that ends them: write its number or its name as `end_token`"
            ),
        };
        apart::documents(&text.tokens, ends).with_context(|| called(text))
    };
    let part = |text: &Text, documents: &[Range<usize>]| -> Result<Part> {
        let apart = Apart::new(&text.tokens, documents, codec.vocabulary, apart).with_context(|| called(text))?;
        let range = documents.first().map_or(0, |first| first.start)..documents.last().map_or(0, |last| last.end + 1);
        Ok(Part { split: Split::new(Arc::new(apart))?, range })
    };
    let mut train = documents(text)?;
    let held = last(options, text)?;
    let val = match other {
        Some(other) => Some(part(other, &documents(other)?)?),
        None if held > 0 => {
            let held_out = apart::hold_out(&mut train, text.tokens.len() - held).with_context(|| called(text))?;
            Some(part(text, &held_out)?)
        }
        None => None,
    };
    Ok((part(text, &train)?, val))
}

/// How many tokens at the end of a text are held out.
fn last(options: &TextOptions, text: &Text) -> Result<usize> {
    let held = options.hold_out.map(|how| held_out(how, text.tokens.len())).transpose();
    Ok(held.with_context(|| format!("`{}`", options.path.display()))?.unwrap_or(0))
}

/// How many bytes a token stands for: those that a model learns to predict, all but the first, or so many of them that no more would change the figure. `None` without a
/// tokenizer.
fn bytes_per_token(tokens: &Tokens, range: Range<usize>, codec: &TextCodec) -> Result<Option<f64>> {
    const MOST: usize = 4 << 20;
    let range = range.start + 1..range.end.min(range.start + 1 + MOST);
    Ok(match codec.tokenizer.as_ref().filter(|_| !range.is_empty()) {
        None => None,
        // Bytes that are no text would be another number of them.
        Some(Tokenizer::Bytes) => Some(1.0),
        Some(tokenizer) => {
            let (count, mut reader) = (range.len(), tokens.reader(range.end));
            let mut read = range.map(|at| reader.get(at)).collect::<Result<Vec<u32>>>()?;
            // They stand for no text, nor do the tokenizer's special ones, which end documents.
            let special = tokenizer.special();
            read.retain(|token| !codec.begin.contains(token) && !special.contains(token));
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

/// What samples are.
///
/// # Errors
/// The vocabulary does not have the token that is to end documents.
pub fn samples(options: &TextOptions, tokenizer: Option<&Tokenizer>, vocabulary: usize) -> Result<Samples> {
    let lengths = options.apart.as_ref().map(|apart| apart.lengths.clone()).unwrap_or_default();
    let end = apart::end(options, tokenizer, vocabulary)?;
    Ok(Samples::Windows { context: options.context, lengths, end })
}

/// The tokens of a path; `codec` is made by the first.
fn read<'a>(options: &TextOptions, path: &'a Path, codec: &mut Option<TextCodec>) -> Result<Text<'a>> {
    let chat = || options.chat.as_deref().map(Chat::read).transpose();
    match &options.content {
        Content::Tokens { vocabulary, tokenizer } => {
            let tokens = Arc::new(Tokens::in_files(path).map_err(WrongFile::of("path"))?);
            let mut notes = Vec::new();
            if codec.is_none() {
                let tokenizer = tokenizer.as_ref().map(|choice| Tokenizer::choose(choice, &[])).transpose()?;
                let own = tokenizer.as_ref().map(Tokenizer::vocabulary);
                let vocabulary = match (*vocabulary, own) {
                    (Some(vocabulary), Some(own)) if own > vocabulary => {
                        bail!("`vocab_size` is {vocabulary}, and the tokenizer has {own} tokens")
                    }
                    (Some(vocabulary), _) => vocabulary,
                    (None, Some(own)) => own,
                    (None, None) => {
                        let (found, note) = found_vocabulary(options, &tokens)?;
                        notes.push(note);
                        found
                    }
                };
                let samples = samples(options, tokenizer.as_ref(), vocabulary)?;
                // Other programs may have left them out of the file.
                let begin = tokenizer.as_ref().map_or(&[][..], Tokenizer::before);
                let begin = if tokens.start_with(begin)? { begin.to_vec() } else { Vec::new() };
                *codec = Some(TextCodec { tokenizer, chat: chat()?, begin, vocabulary, samples });
            }
            Ok(Text { path, tokens, file_ends: Vec::new(), notes, reading: 0 })
        }
        Content::Text(choice) => {
            let known = codec.as_ref().and_then(|codec| codec.tokenizer.as_ref());
            let any_bytes = known.map_or(*choice == Choice::Bytes, |known| matches!(known, Tokenizer::Bytes));
            let documents = Documents::of(path, options.column.as_deref(), "column")?;
            let (text, ends) = match &documents {
                Some(documents) => whole(documents, path)?,
                None => text(path, any_bytes)?,
            };
            let codec = match codec {
                Some(codec) => codec,
                none => {
                    let tokenizer = Tokenizer::choose(choice, &[text.utf8()])?;
                    let vocabulary = tokenizer.vocabulary();
                    let samples = samples(options, Some(&tokenizer), vocabulary)?;
                    let (begin, tokenizer) = (tokenizer.before().to_vec(), Some(tokenizer));
                    none.insert(TextCodec { tokenizer, chat: chat()?, begin, vocabulary, samples })
                }
            };
            let Some(tokenizer) = &codec.tokenizer else {
                bail!("the model was trained on tokens whose tokenizer it does not know, so it cannot read text")
            };
            let called = format!("`{}`", path.display());
            let files = ends.len();
            let working = tokenizer.working_memory(text.utf8());
            if let Some(host) = host_memory().filter(|_| working > 0) {
                expect_room(text.len(), working, &host, &called, INSTEAD)?;
            }
            let samples = samples(options, Some(tokenizer), codec.vocabulary)?;
            let encoded = encoded((&text, &called), ends, &samples, (tokenizer, codec));
            if let (Err(_), Some(documents)) = (&encoded, &documents) {
                // The same with the row that it is in.
                documents.expect_tokens(tokenizer)?;
            }
            let (tokens, file_ends) = encoded?;
            let of = match &documents {
                Some(documents) => format!(", column `{}`: {} rows, ", documents.column(), documents.count()),
                None if files > 1 => format!(": {files} files, "),
                None => ": ".to_owned(),
            };
            let (bytes, count, words) = (text.len(), tokens.len(), tokenizer.in_words());
            let mut notes = vec![format!(
                "{called}{of}{} of text {} {} ({words})",
                counted(bytes, "byte"),
                if bytes == 1 { "is" } else { "are" },
                counted(count, "token")
            )];
            match &documents {
                Some(documents) => {
                    let marked = options.end.is_some() || !codec.begin.is_empty();
                    if options.apart.is_none() && !marked && documents.count() > 1 {
                        notes[0] += "; nothing stands between two rows: `end_token` puts a token there, and `packed = false` keeps them apart";
                    }
                    match documents.empty() {
                        0 => {}
                        1 => notes.push(format!("{called}: 1 row without a text is left out")),
                        empty => notes.push(format!("{called}: {empty} rows without a text are left out")),
                    }
                }
                None if is_plain_table(path) => {
                    notes.push(format!(
                        "{called} is read as a text, with its separators: `column` reads one of its columns"
                    ));
                }
                None => {}
            }
            let reading = text.len().saturating_add(working);
            Ok(Text { path, tokens: Arc::new(tokens), file_ends, notes, reading })
        }
    }
}

/// How many tokens there are where nothing says so: as many as the files of training and validation need; and what the user should know of it.
fn found_vocabulary(options: &TextOptions, tokens: &Tokens) -> Result<(usize, String)> {
    let other = options.val_path.as_deref().map(Tokens::in_files).transpose().map_err(WrongFile::of("val_path"))?;
    let largest = tokens.largest()?.max(other.as_ref().map_or(Ok(0), Tokens::largest)?);
    // A vocabulary of one token leaves nothing to learn.
    let vocabulary = (largest as usize + 1).max(2);
    let of = match &options.val_path {
        Some(other) => format!("`{}` and `{}`", options.path.display(), other.display()),
        None => format!("`{}`", options.path.display()),
    };
    ensure!(
        vocabulary <= MAX_VOCABULARY,
        "{of}: the largest token is {largest}, and a vocabulary has at most {MAX_VOCABULARY} tokens; are these tokens?"
    );
    let note = format!(
        "{of}: the largest token is {largest}, so the vocabulary has {vocabulary}; `vocab_size` in `[data]` states another number"
    );
    Ok((vocabulary, note))
}

/// The texts of a table.
fn whole(documents: &Documents, path: &Path) -> Result<(Read, Vec<usize>)> {
    let (text, ends) = documents.whole()?;
    ensure!(
        !text.is_empty(),
        "`{}` has no text: no row has one in the column `{}`",
        path.display(),
        documents.column()
    );
    Ok((Read::Text(text), ends))
}

/// The tokens of a text whose files end at `ends`; and after how many of them each does, if documents are kept apart.
fn encoded(
    (text, called): (&Read, &str),
    ends: Vec<usize>,
    samples: &Samples,
    (tokenizer, codec): (&Tokenizer, &TextCodec),
) -> Result<(Tokens, Vec<usize>)> {
    let (mut tokens, mut file_ends) = (Tokens::in_memory(codec.vocabulary), Vec::new());
    let (apart, end) = match samples {
        Samples::Windows { lengths, end, .. } => (!lengths.is_empty(), *end),
        _ => (false, None),
    };
    if !apart && codec.begin.is_empty() && end.is_none() {
        text.encode(0..text.len(), tokenizer, called, &mut tokens)?;
        return Ok((tokens.whole(), file_ends));
    }
    let mut start = 0;
    for file in ends {
        if start < file {
            tokens.extend(&codec.begin);
        }
        text.encode(start..file, tokenizer, called, &mut tokens)?;
        if let Some(end) = end.filter(|end| tokens.last() != Some(*end)) {
            tokens.extend(&[end]);
        }
        if apart {
            file_ends.push(tokens.len());
        }
        start = file;
    }
    Ok((tokens.whole(), file_ends))
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
}
