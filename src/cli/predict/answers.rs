//! Answers to texts: a model that writes them is given the texts of files, some of them together.

use super::sink::Sink;
use crate::api::answer::{Answer, Of};
use crate::api::generate::Generator;
use crate::data::text::{Passage, TextCodec, read_given};
use anyhow::Result;
use std::path::Path;

/// Hands on what the model answers to all texts of a file, in order; false if the reader of standard output has gone.
///
/// # Errors
/// The file cannot be read, or a text has a character without a token; the device failed.
pub fn answer(generator: &mut Generator, codec: &TextCodec, file: &Path, sink: &mut Sink) -> Result<bool> {
    let texts = read_given(file, codec)?;
    let tokens = |(number, one): (usize, &Passage)| {
        generator.text(&one.text, &format!("`{}`, text {}", file.display(), number + 1))
    };
    let texts = texts.iter().enumerate().map(tokens).collect::<Result<Vec<_>>>()?;
    let together = generator.together();
    let longest = generator.capacity();
    for (first, some) in (0..).step_by(together).zip(texts.chunks(together)) {
        for (at, answer) in generator.answers(some, longest)?.iter().enumerate() {
            let text = generator.tokenizer().decode(answer)?;
            sink.add(Of { file, sample: Some(first + at), row: None }, &Answer::Text(text))?;
        }
        if !sink.flush()? {
            return Ok(false);
        }
    }
    Ok(true)
}
