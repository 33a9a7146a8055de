//! Answers to texts: a model that writes them is given the texts of files, several at a time.

use super::sink::Sink;
use crate::api::answer::{Answer, Of};
use crate::api::generate::Generator;
use crate::data::text::{Passage, TextCodec, read_given};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The texts of each file, which is read when it comes; and how many there are, where those are fewer than `most`. The first files are read at once for that.
pub fn texts<'a>(
    files: &'a [PathBuf],
    codec: &'a TextCodec,
    most: usize,
) -> (usize, impl Iterator<Item = (&'a Path, Result<Vec<Passage>>)>) {
    let mut left = files.iter().map(move |file| (file.as_path(), read_given(file, codec)));
    let (mut count, mut first) = (0, Vec::new());
    while let Some((file, texts)) = if count < most { left.next() } else { None } {
        count += texts.as_ref().map_or(0, Vec::len);
        first.push((file, texts));
    }
    (count, first.into_iter().chain(left))
}

/// Hands on what the model answers to all texts of a file, in order; false if the reader of standard output has gone.
///
/// # Errors
/// A text has a character without a token; the device failed.
pub fn answer(generator: &mut Generator, file: &Path, texts: &[Passage], sink: &mut Sink) -> Result<bool> {
    let tokens =
        |(number, one): (usize, &Passage)| generator.text(&one.text, &format!("`{}`, sample {number}", file.display()));
    let texts = texts.iter().enumerate().map(tokens).collect::<Result<Vec<_>>>()?;
    let (longest, tokenizer) = (generator.capacity(), generator.tokenizer().clone());
    let (mut sample, mut goes_on) = (0, true);
    generator.answers(&texts, longest, &mut |answer| {
        let of = Of { file, sample: Some(sample), row: None };
        sink.add(of, &Answer::Text(tokenizer.decode(answer)?))?;
        sample += 1;
        goes_on = sink.flush()?;
        Ok(goes_on)
    })?;
    Ok(goes_on)
}
