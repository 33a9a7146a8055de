//! What becomes of a body: samples, of images, of rows, of tensors. Everything is charged before it is made.

use super::budget::Charge;
use super::charset;
use super::refusal::Refusal;
use super::samples::{Names, Samples};
use super::served::{Served, Takes};
use crate::data::table::{Asked, Given, Raw, TableCodec, TooManyRows, read_text};
use crate::data::text::{Passage, Sentence, TextCodec, Tokenizer, passage, passage_bytes, sentence_bytes};
use crate::data::{image_bytes, image_claims, image_measures};
use axum::body::Bytes;
use encoding_rs::{Encoding, UTF_8};

/// Bytes of memory that a byte of a text becomes at most while it is read: a number of two characters is one of eight bytes, and lists grow by doubling.
pub const READING: usize = 10;
/// The same for a table: a cell of two characters has a place of eight bytes in a row, and rows are copied.
const READING_TABLE: usize = 32;
/// The same for texts: a word of a character and a space has memory of its own, and so has each value of a JSON text until it is known what it is.
pub const READING_TEXTS: usize = 32;

/// How much a request may ask for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Pixels of an image.
    pub pixels: u64,
    /// Samples of a request.
    pub rows: usize,
    /// Tokens of a text that is generated.
    pub tokens: usize,
}

/// What becomes of a body.
pub struct Reader<'a> {
    /// The model.
    pub served: &'a Served,
    /// What is allowed.
    pub limits: &'a Limits,
    /// What the request has of the memory.
    pub charge: &'a mut Charge,
    /// Classes in an answer.
    pub top: usize,
    /// Black and white are swapped in images.
    pub invert: bool,
}

/// A part of a body: a file.
pub struct File {
    /// Its name.
    pub name: Option<String>,
    /// What is in it.
    pub content: Bytes,
    /// What the bytes of a text stand for, if the request says that.
    pub encoding: Option<&'static Encoding>,
}

impl Reader<'_> {
    /// Takes the memory of so many samples and their answers.
    ///
    /// # Errors
    /// There are more than a request may have, or there is not enough memory.
    pub fn expect(&mut self, samples: usize) -> Result<(), Refusal> {
        self.allowed(samples)?;
        self.charge.add(samples.saturating_mul(self.served.each(self.top)))
    }

    fn allowed(&self, samples: usize) -> Result<(), Refusal> {
        let most = self.limits.rows;
        if samples > most {
            let reason = format!("there are {samples} samples, and a request may have {most} (--max-rows)");
            return Err(Refusal::too_large(reason));
        }
        Ok(())
    }

    /// Image files.
    ///
    /// # Errors
    /// The model takes none; one of them is none, or is too large.
    pub fn images(&mut self, files: &[File]) -> Result<Samples, Refusal> {
        let served = self.served;
        let field = match (served.takes(), &served.seen.given[..]) {
            (Takes::Images, [field]) => field,
            _ => return Err(Refusal::other_type(format!("the model takes no images: it takes {}", accepted(served)))),
        };
        self.expect(files.len())?;
        let mut rows = Vec::with_capacity(files.len() * field.bytes());
        for (number, file) in files.iter().enumerate() {
            let place = match &file.name {
                Some(name) => format!("`{name}`: "),
                None if files.len() > 1 => format!("file {}: ", number + 1),
                None => String::new(),
            };
            let bad = |error: anyhow::Error| Refusal::bad(format!("{place}{error:#}"));
            let most = self.limits.pixels;
            let allowed = |[height, width]: [u64; 2]| match height.saturating_mul(width) > most {
                true => Err(Refusal::too_large(format!(
                    "{place}the image has {width}×{height} pixels, and at most {most} are read (--max-pixels)"
                ))),
                false => Ok(()),
            };
            // Before anything else is held against what it claims.
            image_claims(&file.content).map_or(Ok(()), allowed)?;
            let (sides, decoding) = image_measures(&file.content).map_err(bad)?;
            allowed(sides.map(|side| side as u64))?;
            self.charge.add(decoding)?;
            let transforms = served.seen.of_files.as_deref();
            rows.extend(image_bytes(&file.content, field, transforms, self.invert).map_err(bad)?);
            self.charge.give_back(decoding);
        }
        let names = files.iter().map(|file| file.name.clone()).collect();
        Ok(Samples { rows: vec![rows], count: files.len(), names: Names::Files(names) })
    }

    /// A table as text.
    ///
    /// # Errors
    /// The model takes none; it is none; its columns or cells do not fit.
    pub fn table(&mut self, file: &File) -> Result<Samples, Refusal> {
        let Some(table) = &self.served.table else {
            let reason = format!("the model takes no tables: it takes {}", accepted(self.served));
            return Err(Refusal::other_type(reason));
        };
        let encoding = file.encoding.or(table.format.encoding).unwrap_or(UTF_8);
        self.charge.add(file.content.len().saturating_mul(charset::GROWTH))?;
        // The mark says that it is UTF-8 now.
        let text = format!("\u{feff}{}", charset::text(&file.content, encoding).map_err(Refusal::unfit)?);
        let name = file.name.as_deref().unwrap_or("body");
        let read = |codec| {
            self.charge.add(text.len().saturating_mul(READING_TABLE))?;
            read_text(name, text.clone().into_bytes(), codec, self.limits.rows).map_err(|error| {
                match error.downcast_ref::<TooManyRows>() {
                    Some(_) => Refusal::too_large(format!("{error} (--max-rows)")),
                    None => Refusal::unfit(format!("{error:#}")),
                }
            })
        };
        let raw = self.served.tables().map(read).collect::<Result<Vec<_>, _>>()?;
        self.encoded(&raw)
    }

    /// Texts, each on a line of its own; those of a pair have a tab between them.
    ///
    /// # Errors
    /// They are not in their encoding, or have characters without tokens; there are too many.
    pub fn lines(&mut self, file: &File) -> Result<Samples, Refusal> {
        self.charge.add(file.content.len().saturating_mul(charset::GROWTH))?;
        let text = charset::text(&file.content, file.encoding.unwrap_or(UTF_8)).map_err(Refusal::bad)?;
        self.allowed(text.lines().count())?;
        let Some(codec) = &self.served.texts else { return Err(Refusal::internal("the model takes no texts")) };
        let passages = text.lines().enumerate().map(|(number, line)| {
            passage(line, codec).map_err(|error| Refusal::unfit(format!("line {}: {error:#}", number + 1)))
        });
        self.texts(passages.collect::<Result<_, _>>()?)
    }

    /// Words that have come, sentence by sentence.
    ///
    /// # Errors
    /// There are too many; a word has a character without a token.
    pub fn sentences(&mut self, sentences: Vec<Vec<String>>) -> Result<Samples, Refusal> {
        let Some(codec) = &self.served.texts else { return Err(Refusal::internal("the model takes no texts")) };
        let count = sentences.len();
        self.expect(count)?;
        let mut rows = vec![Vec::new(); self.served.seen.given.len()];
        let mut placed = Vec::with_capacity(count);
        for (number, words) in sentences.into_iter().enumerate() {
            // Tokens, and the words themselves, which the answer has again.
            let bytes: usize = words.iter().map(|word| word.len() + size_of::<String>()).sum();
            self.charge.add(bytes.saturating_mul(READING))?;
            let encoding = bytes.saturating_mul(memory_of_a_byte(codec));
            self.charge.add(encoding)?;
            let (sample, words) = sentence_bytes(codec, words, &format!("text {number}"))
                .map_err(|error| Refusal::unfit(format!("{error:#}")))?;
            self.charge.give_back(encoding);
            rows.iter_mut().zip(sample).for_each(|(rows, bytes)| rows.extend(bytes));
            placed.push(words);
        }
        Ok(Samples { rows, count, names: Names::Sentences(placed) })
    }

    /// Texts that have come one by one.
    ///
    /// # Errors
    /// As [`Reader::lines`].
    pub fn texts(&mut self, texts: Vec<Passage>) -> Result<Samples, Refusal> {
        let Some(codec) = &self.served.texts else { return Err(Refusal::internal("the model takes no texts")) };
        if codec.has_tags() {
            let words = |one: &Passage| match one.pair {
                None => Ok(Sentence::of_line(&one.text, 0).words),
                Some(_) => Err(Refusal::unfit("the model takes one text at a time, and there is a pair")),
            };
            let bytes: usize = texts.iter().map(|one| one.text.len()).sum();
            self.charge.add(bytes.saturating_mul(READING_TEXTS))?;
            return self.sentences(texts.iter().map(words).collect::<Result<_, _>>()?);
        }
        self.expect(texts.len())?;
        let mut rows = vec![Vec::new(); self.served.seen.given.len()];
        for (number, passage) in texts.iter().enumerate() {
            // Tokens and what a tokenizer keeps of each.
            let bytes: usize = passage.texts().map(str::len).sum();
            let reading = bytes.saturating_mul(READING.max(memory_of_a_byte(codec)));
            self.charge.add(reading)?;
            let sample = passage_bytes(codec, passage, &format!("text {number}"));
            let sample = sample.map_err(|error| Refusal::unfit(format!("{error:#}")))?;
            rows.iter_mut().zip(sample).for_each(|(rows, bytes)| rows.extend(bytes));
            self.charge.give_back(reading);
        }
        Ok(Samples { rows, count: texts.len(), names: Names::Rows(None) })
    }

    /// Rows that have come one by one, as each of the models reads them.
    ///
    /// # Errors
    /// There are too many.
    pub fn given(&mut self, given: Vec<Given>) -> Result<Samples, Refusal> {
        self.encoded(&given.into_iter().map(Given::raw).collect::<Vec<_>>())
    }

    /// The samples of all models, one after the other.
    fn encoded(&mut self, raw: &[Raw]) -> Result<Samples, Refusal> {
        let Some(first) = raw.first() else { return Err(Refusal::internal("the model takes no tables")) };
        self.allowed(first.rows())?;
        let unfit = |error: anyhow::Error| Refusal::unfit(format!("{error:#}"));
        let mut asked = Vec::with_capacity(raw.len());
        for (codec, raw) in self.served.tables().zip(raw) {
            let own = codec.asked(raw).map_err(unfit)?;
            // Rows are made before the windows of them.
            self.charge.add(own.as_ref().map_or(0, |_| raw.rows().saturating_mul(size_of::<f32>() * codec.width())))?;
            asked.push(own);
        }
        // Of windows the last row alone is answered.
        let answered = asked.first().and_then(Option::as_ref).map(|asked| asked.rows.clone());
        let count = answered.as_ref().map_or(first.rows(), Vec::len);
        self.expect(count)?;
        let fields = |((codec, raw), asked): ((&TableCodec, &Raw), &Option<Asked>)| {
            let tokens = codec.tokens.as_ref().map_or(Ok(0), |tokens| tokens.working_memory(raw)).map_err(unfit)?;
            self.charge.add(tokens)?;
            let rows = codec.input_bytes(raw, asked.as_ref()).map_err(unfit);
            self.charge.give_back(tokens);
            rows
        };
        let rows = self.served.tables().zip(raw).zip(&asked).map(fields).collect::<Result<Vec<_>, _>>()?.concat();
        let name = |row: usize| first.ids().map(|ids| ids.at(row).to_owned());
        let names = match answered {
            Some(rows) => Names::Windows(rows.into_iter().map(|row| (row, name(row as usize))).collect()),
            None => Names::Rows((0..count).map(name).collect()),
        };
        Ok(Samples { rows, count, names })
    }
}

/// Bytes of memory that a byte of a text takes at most while tokens are made of it.
fn memory_of_a_byte(codec: &TextCodec) -> usize {
    codec.tokenizer.as_ref().map_or(0, Tokenizer::memory_of_a_byte)
}

/// What a model takes, in words.
pub fn accepted(served: &Served) -> &'static str {
    match served.takes() {
        Takes::Images => {
            "an image (image/png, image/jpeg, …), several as multipart/form-data, or tensors as application/json"
        }
        Takes::Rows => "rows as application/json, or a table as text/csv or text/tab-separated-values",
        Takes::Texts => "texts as application/json, or as text/plain, one a line (pairs with a tab between both)",
        Takes::Tensors => "tensors as application/json",
    }
}
