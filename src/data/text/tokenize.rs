//! Text files, and texts in tables, as files of tokens: block by block, so that memory does not depend on how long a text is.

use super::super::parallel::parallel;
use super::super::tokenizer::pieces::pieces;
use super::super::tokenizer::{Choice, Tokenizer, trained};
use super::documents::{Document, Documents};
use super::no_text::no_utf8;
use super::stretches::{Cut, Stretch, line_of, stretches};
use super::text_files::{are_tables_alone, expect_room, is_plain_table};
use super::tokens::{HEADER, MAGIC};
use crate::files::host_memory::host_memory;
use crate::files::output::{Out, Output};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::borrow::Cow;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

/// The most tokens that numbers of 16 bits can distinguish.
const NARROW: usize = 1 << 16;

/// How many documents become tokens at a time.
const AT_ONCE: usize = 1024;

/// What the header of a file of 32 bits says besides its kind and its length: the version of llm.c for Llama 3.
const VERSION: i32 = 7;

/// Texts, and how they become tokens.
pub struct Tokenizing {
    tokenizer: Tokenizer,
    /// The token that stands after each file or document.
    end: Option<u32>,
    cut: Cut,
    /// What is trained on, and what is held out.
    pub parts: [Vec<Texts>; 2],
}

/// Some text.
#[derive(Clone)]
pub enum Texts {
    /// A text file or a part of it.
    Stretch(Stretch),
    /// Rows of a table.
    Documents(Documents),
}

impl Texts {
    /// Its files.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Texts::Stretch(stretch) => vec![&stretch.path],
            Texts::Documents(documents) => documents.paths().collect(),
        }
    }

    /// How many bytes of text it has.
    pub fn bytes(&self) -> u64 {
        match self {
            Texts::Stretch(stretch) => stretch.bytes(),
            Texts::Documents(documents) => documents.bytes(),
        }
    }

    /// How many rows have no text.
    pub fn empty(&self) -> u64 {
        match self {
            Texts::Stretch(_) => 0,
            Texts::Documents(documents) => documents.empty(),
        }
    }
}

impl Tokenizing {
    /// Of the texts at `paths` or, with a `column` or where all of them are tables by their names, in that column of the tables there or in their only one of texts; the last part of them is `held_out`. A tokenizer of byte pairs is trained
    /// on what is not, and has the token `end`. `seen` hears how many bytes have been read for that, and of how many.
    ///
    /// # Errors
    /// Files cannot be read, are no text or no table, or are empty; the tokenizer has no such token.
    pub fn new(
        paths: &[PathBuf],
        column: Option<&str>,
        choice: &Choice,
        held_out: Option<f64>,
        end: Option<&str>,
        seen: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<Self> {
        let known = match choice {
            Choice::Bpe(_) => None,
            choice => Some(Tokenizer::choose(choice, &[])?),
        };
        let cut = match &known {
            Some(Tokenizer::Bytes) => Cut::Bytes,
            Some(tokenizer) if !tokenizer.parts_words() => Cut::Nowhere,
            Some(_) | None => Cut::Words,
        };
        let parts = match column.is_some() || paths.iter().all(|path| are_tables_alone(path)) {
            false => stretches(paths, held_out, cut)?.map(|part| part.into_iter().map(Texts::Stretch).collect()),
            true => documents(paths, column, held_out)?,
        };
        let tokenizer = match (known, choice) {
            (None, Choice::Bpe(most)) => train(&parts[0], *most, end, seen)?,
            (Some(tokenizer), _) => tokenizer,
            (None, _) => bail!("only byte pairs are learnt from texts here"),
        };
        let number = |name: &str| {
            let number = tokenizer.token(name);
            number.with_context(|| format!("the tokenizer has no token `{name}` to stand after each text"))
        };
        let end = end.map(number).transpose()?;
        Ok(Tokenizing { tokenizer, end, cut, parts })
    }

    /// How text becomes tokens.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Files of CSV or TSV that are read as texts, with their separators.
    pub fn plain_tables(&self) -> Vec<&Path> {
        let stretches = self.parts.iter().flatten().filter_map(|text| match text {
            Texts::Stretch(stretch) => Some(stretch.path.as_path()),
            Texts::Documents(_) => None,
        });
        let mut found: Vec<&Path> = stretches.filter(|path| is_plain_table(path)).collect();
        // The end of one may be held out.
        found.dedup();
        found
    }

    /// Writes the tokens of some texts, and gives back how many they are: bare numbers of 16 bits, as nanoGPT has them, where those suffice; else
    /// numbers of 32 bits after the header of llm.c. `seen` hears how many bytes of text have become tokens.
    ///
    /// # Errors
    /// A text cannot be read, or is not UTF-8; the file cannot be written.
    pub fn write(&self, texts: &[Texts], out: &Output, seen: &mut dyn FnMut(u64)) -> Result<u64> {
        let cannot = || format!("cannot write `{}`", out.path().display());
        let mut count = 0;
        if self.tokenizer.vocabulary() <= NARROW {
            let mut bytes = Vec::new();
            written(out, |to| {
                self.each(texts, seen, &mut |tokens| {
                    count += tokens.len() as u64;
                    bytes.clear();
                    bytes.extend(tokens.iter().flat_map(|token| (*token as u16).to_le_bytes()));
                    to.write_all(&bytes).with_context(cannot)
                })
            })?;
            return Ok(count);
        }
        // The header says how many tokens there are, which is known at the end.
        let folder = out.path().parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut aside = tempfile::tempfile_in(folder).with_context(cannot)?;
        let mut bytes = Vec::new();
        self.each(texts, seen, &mut |tokens| {
            count += tokens.len() as u64;
            bytes.clear();
            bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
            aside.write_all(&bytes).with_context(cannot)
        })?;
        let count_in_header = i32::try_from(count).map_err(|_| {
            anyhow!(
                "{count} tokens are more than the header of llm.c can tell, 2,147,483,647: give fewer files at a time"
            )
        })?;
        let mut header = vec![0; HEADER];
        for (number, place) in [MAGIC[1].0, VERSION, count_in_header].iter().zip(header.chunks_exact_mut(4)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        aside.rewind().with_context(cannot)?;
        written(out, |to| {
            to.write_all(&header).with_context(cannot)?;
            std::io::copy(&mut aside, to).with_context(cannot)?;
            Ok(())
        })?;
        Ok(count)
    }

    /// Hands on the tokens of texts, some at a time.
    fn each(
        &self,
        texts: &[Texts],
        seen: &mut dyn FnMut(u64),
        take: &mut dyn FnMut(&[u32]) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        let mut seen = |bytes: usize| {
            done += bytes as u64;
            seen(done);
        };
        for text in texts {
            match text {
                Texts::Stretch(stretch) => self.stretch(stretch, &mut seen, take)?,
                Texts::Documents(documents) => {
                    for some in documents.some() {
                        self.documents(some?, &mut seen, take)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn stretch(
        &self,
        stretch: &Stretch,
        seen: &mut dyn FnMut(usize),
        take: &mut dyn FnMut(&[u32]) -> Result<()>,
    ) -> Result<()> {
        if stretch.begins && stretch.bytes() > 0 {
            take(self.tokenizer.before())?;
        }
        for block in stretch.blocks(self.cut)? {
            let (at, block) = block?;
            if self.cut == Cut::Bytes {
                take(&block.iter().copied().map(u32::from).collect::<Vec<u32>>())?;
            } else {
                self.block(stretch, at, &block, take)?;
            }
            seen(block.len());
        }
        self.end.filter(|_| stretch.ends).map_or(Ok(()), |end| take(&[end]))
    }

    fn documents(
        &self,
        documents: Vec<Document>,
        seen: &mut dyn FnMut(usize),
        take: &mut dyn FnMut(&[u32]) -> Result<()>,
    ) -> Result<()> {
        let longest = documents.iter().max_by_key(|document| document.text.len());
        if let (Some(longest), Some(host)) = (longest, host_memory()) {
            let working = self.tokenizer.working_memory(&longest.text);
            expect_room(longest.text.len(), working, &host, &longest.place, "make it several rows")?;
        }
        for some in documents.chunks(AT_ONCE) {
            let tokens = parallel(some.iter().collect(), |document: &Document| {
                self.tokenizer.encode(&document.text, &document.place)
            });
            for (tokens, document) in tokens.into_iter().zip(some) {
                take(self.tokenizer.before())?;
                let mut tokens = tokens?;
                tokens.extend(self.end);
                take(&tokens)?;
                seen(document.text.len());
            }
        }
        Ok(())
    }

    fn block(
        &self,
        stretch: &Stretch,
        at: u64,
        block: &[u8],
        take: &mut dyn FnMut(&[u32]) -> Result<()>,
    ) -> Result<()> {
        let text = utf8(&stretch.path, at, block)?;
        let called = format!("`{}`", stretch.path.display());
        let parts: Vec<&str> = if self.cut == Cut::Words { pieces(&text).collect() } else { vec![&text] };
        if let Some(host) = host_memory() {
            let working = self.tokenizer.working_memory(&text);
            expect_room(text.len(), working, &host, &called, "put spaces or ends of files into it")?;
        }
        for tokens in parallel(parts, |piece| self.tokenizer.encode(piece, &called)) {
            take(&tokens?)?;
        }
        Ok(())
    }
}

/// Why nothing was written.
enum Failed {
    /// The file cannot be written.
    Write(std::io::Error),
    /// What was to be written could not be made. The error says all.
    Other(anyhow::Error),
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Failed::Write(error)
    }
}

/// Writes what `fill` writes. Errors of the file itself name it, and those of `fill` stay as they are: they may be of another file.
fn written(out: &Output, fill: impl FnOnce(&mut Out) -> Result<()>) -> Result<()> {
    match out.write(|to| fill(to).map_err(Failed::Other)) {
        Ok(_) => Ok(()),
        Err(Failed::Write(error)) => Err(error).with_context(|| format!("cannot write `{}`", out.path().display())),
        Err(Failed::Other(error)) => Err(error),
    }
}

/// The text of a block that begins at byte `at` of a file.
fn utf8<'a>(path: &Path, at: u64, block: &'a [u8]) -> Result<Cow<'a, str>> {
    std::str::from_utf8(block).map(Cow::Borrowed).map_err(|error| {
        let at = at + error.valid_up_to() as u64;
        anyhow!(no_utf8(path, line_of(path, at).ok(), at))
    })
}

/// The texts in a column of tables, the only one of each that has texts if none is named; of the rows after `held_out` of all text a second list is made.
fn documents(paths: &[PathBuf], column: Option<&str>, held_out: Option<f64>) -> Result<[Vec<Texts>; 2]> {
    let all = paths.iter().map(|path| Documents::open(path, column, "--column")).collect::<Result<Vec<_>>>()?;
    let bytes: u64 = all.iter().map(Documents::bytes).sum();
    let column = all.first().map_or("", Documents::column);
    ensure!(bytes > 0, "there is no text: no row has one in the column `{column}`");
    let Some(part) = held_out else { return Ok([all.into_iter().map(Texts::Documents).collect(), Vec::new()]) };
    let mut left = (bytes as f64 * (1.0 - part)).round() as u64;
    let mut parts = [const { Vec::new() }; 2];
    for documents in all {
        for (list, part) in parts.iter_mut().zip(documents.split(left)?) {
            if part.bytes() > 0 {
                list.push(Texts::Documents(part));
            }
        }
        left = left.saturating_sub(documents.bytes());
    }
    ensure!(parts.iter().all(|part| !part.is_empty()), "{part} of the text leaves no row to train or to validate on");
    Ok(parts)
}

/// A tokenizer of at most `most` byte pairs, trained on texts.
fn train(
    texts: &[Texts],
    most: usize,
    end: Option<&str>,
    seen: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Tokenizer> {
    type Some<'a> = Box<dyn Iterator<Item = Result<Vec<String>>> + Send + 'a>;
    let mut failed = None;
    let (mut done, all) = (0, texts.iter().map(Texts::bytes).sum());
    let texts = texts.iter().flat_map(|text| -> Some {
        let stretch = match text {
            Texts::Stretch(stretch) => stretch,
            Texts::Documents(documents) => {
                let text = |document: Document| document.text;
                return Box::new(documents.some().map(move |some| Ok(some?.into_iter().map(text).collect())));
            }
        };
        match stretch.blocks(Cut::Words) {
            Ok(blocks) => Box::new(blocks.map(move |block| {
                let (at, block) = block?;
                utf8(&stretch.path, at, &block).map(|text| pieces(&text).map(str::to_owned).collect())
            })),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    });
    // The first error ends the texts. It is returned below, and the tokenizer of the texts before it is thrown away.
    let texts = texts.map_while(|pieces| match pieces {
        Ok(pieces) => {
            done += pieces.iter().map(String::len).sum::<usize>() as u64;
            seen(done, all);
            Some(pieces)
        }
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let json = trained(texts.flatten(), most, end);
    if let Some(error) = failed {
        return Err(error);
    }
    let tokenizer = Tokenizer::of_json(json?)?;
    ensure!(tokenizer.vocabulary() > 0, "the text has no tokens");
    Ok(tokenizer)
}

#[cfg(test)]
mod tests;
