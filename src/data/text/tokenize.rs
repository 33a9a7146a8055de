//! Text files as files of tokens: block by block, so that memory does not depend on how long a text is.

use super::super::parallel::parallel;
use super::load::expect_room;
use super::options::Choice;
use super::pieces::pieces;
use super::stretches::{Cut, Stretch, line_of, stretches};
use super::tokenizer::{Tokenizer, trained};
use super::tokens::{HEADER, MAGIC};
use crate::files::host_memory::host_memory;
use crate::files::output::{Out, Output};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::borrow::Cow;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

/// Most tokens that numbers of 16 bits tell apart.
const NARROW: usize = 1 << 16;

/// What the header of a file of 32 bits says besides its kind and its length: the version of llm.c for Llama 3.
const VERSION: i32 = 7;

/// Texts, and how they become tokens.
pub struct Tokenizing {
    tokenizer: Tokenizer,
    /// The token that stands behind each file.
    end: Option<u32>,
    cut: Cut,
    /// What is trained on, and what is held out.
    pub stretches: [Vec<Stretch>; 2],
}

impl Tokenizing {
    /// Of the texts at `paths`, the last part of which is `held_out`. A tokenizer of byte pairs is trained on what is not, and has the token `end`.
    /// `seen` hears how many bytes have been read for that, and of how many.
    ///
    /// # Errors
    /// Files cannot be read, are no text, or are empty; the tokenizer has no such token.
    pub fn new(
        paths: &[PathBuf],
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
        let stretches = stretches(paths, held_out, cut)?;
        let tokenizer = match (known, choice) {
            (None, Choice::Bpe(most)) => train(&stretches[0], *most, end, seen)?,
            (Some(tokenizer), _) => tokenizer,
            (None, _) => bail!("only byte pairs are learnt from texts here"),
        };
        let number = |name: &str| {
            let number = tokenizer.token(name);
            number.with_context(|| format!("the tokenizer has no token `{name}` to stand behind each file"))
        };
        let end = end.map(number).transpose()?;
        Ok(Tokenizing { tokenizer, end, cut, stretches })
    }

    /// How text becomes tokens.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Writes the tokens of some stretches, and gives back how many they are: bare numbers of 16 bits, as nanoGPT has them, where those suffice; else
    /// numbers of 32 bits behind the header of llm.c. `seen` hears how many bytes of text have become tokens.
    ///
    /// # Errors
    /// A text cannot be read, or is not UTF-8; the file cannot be written.
    pub fn write(&self, stretches: &[Stretch], out: &Output, seen: &mut dyn FnMut(u64)) -> Result<u64> {
        let cannot = || format!("cannot write `{}`", out.path().display());
        let mut count = 0;
        if self.tokenizer.vocabulary() <= NARROW {
            let mut bytes = Vec::new();
            written(out, |to| {
                self.each(stretches, seen, &mut |tokens| {
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
        self.each(stretches, seen, &mut |tokens| {
            count += tokens.len() as u64;
            bytes.clear();
            bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
            aside.write_all(&bytes).with_context(cannot)
        })?;
        let told = i32::try_from(count).map_err(|_| {
            anyhow!(
                "{count} tokens are more than the header of llm.c can tell, 2,147,483,647: give fewer files at a time"
            )
        })?;
        let mut header = vec![0; HEADER];
        for (number, place) in [MAGIC[1].0, VERSION, told].iter().zip(header.chunks_exact_mut(4)) {
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

    /// Hands on the tokens of stretches, some at a time.
    fn each(
        &self,
        stretches: &[Stretch],
        seen: &mut dyn FnMut(u64),
        take: &mut dyn FnMut(&[u32]) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        for stretch in stretches {
            for block in stretch.blocks(self.cut)? {
                let (at, block) = block?;
                if self.cut == Cut::Bytes {
                    take(&block.iter().copied().map(u32::from).collect::<Vec<u32>>())?;
                } else {
                    self.block(stretch, at, &block, take)?;
                }
                done += block.len() as u64;
                seen(done);
            }
            if let Some(end) = self.end.filter(|_| stretch.ends) {
                take(&[end])?;
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
        let line = line_of(path, at).map_or_else(|_| String::new(), |line| format!(", line {line}"));
        anyhow!(
            "`{}`{line}: byte {at} is no UTF-8; convert the file, for example with `iconv -t UTF-8`",
            path.display()
        )
    })
}

/// A tokenizer of at most `most` byte pairs, trained on stretches of text.
fn train(
    stretches: &[Stretch],
    most: usize,
    end: Option<&str>,
    seen: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Tokenizer> {
    let mut failed = None;
    let (mut done, all) = (0, stretches.iter().map(Stretch::bytes).sum());
    let texts = stretches.iter().flat_map(|stretch| {
        let blocks = stretch.blocks(Cut::Words);
        let (blocks, error) = match blocks {
            Ok(blocks) => (Some(blocks), None),
            Err(error) => (None, Some(Err(error))),
        };
        let read = blocks.into_iter().flatten().map(move |block| {
            let (at, block) = block?;
            utf8(&stretch.path, at, &block).map(|text| pieces(&text).map(str::to_owned).collect::<Vec<String>>())
        });
        read.chain(error)
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
mod tests {
    use super::super::tokens::Tokens;
    use super::*;
    use std::fs;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Place(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
            fs::write(self.path(name), bytes).unwrap();
            self.path(name)
        }

        /// The tokens of a part of the work, as training reads them.
        fn written(&self, work: &Tokenizing, part: usize) -> Vec<u32> {
            let (path, mut seen) = (self.path("tokens.bin"), 0);
            let count =
                work.write(&work.stretches[part], &Output::at(&path).unwrap(), &mut |done| seen = done).unwrap();
            assert_eq!(seen, work.stretches[part].iter().map(Stretch::bytes).sum::<u64>());
            let tokens = Tokens::in_file(&path).unwrap();
            assert_eq!(tokens.len() as u64, count);
            let mut reader = tokens.reader(tokens.len());
            (0..tokens.len()).map(|at| reader.get(at).unwrap()).collect()
        }
    }

    fn of(paths: &[PathBuf], choice: &Choice, held_out: Option<f64>, end: Option<&str>) -> Result<Tokenizing> {
        Tokenizing::new(paths, choice, held_out, end, &mut |_, _| ())
    }

    /// A tokenizer of so many words, `w0` and so on, and of an unknown one.
    fn of_words(words: usize, pre_tokenizer: &str) -> String {
        let vocabulary: serde_json::Map<_, _> = (0..words).map(|n| (format!("w{n}"), n.into())).collect();
        serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": { "type": pre_tokenizer }, "post_processor": null, "decoder": null,
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "w0" },
        })
        .to_string()
    }

    #[test]
    fn tokens_of_blocks_are_those_of_the_whole_text() {
        let place = Place::new();
        let text = "The cat's 12 lives, naïve as ever;\n\n and 名前 of   it. ".repeat(20_000);
        let paths = [place.put("a.txt", &text), place.put("b.txt", "The end")];
        let work = of(&paths, &Choice::Bpe(400), None, Some("<|end|>")).unwrap();
        let end = work.tokenizer().token("<|end|>").unwrap();
        let whole = [
            work.tokenizer().encode(&text, "").unwrap(),
            vec![end],
            work.tokenizer().encode("The end", "").unwrap(),
            vec![end],
        ];
        assert!(place.written(&work, 0) == whole.concat());
        assert!((257..=400).contains(&work.tokenizer().vocabulary()));
        // Learnt from the files at once, as `source = "text"` does, but for the token at the end.
        let joined = Tokenizer::choose(&Choice::Bpe(399), &[&text, "The end"]).unwrap();
        assert!(joined.encode(&text, "").unwrap().len() == work.tokenizer().encode(&text, "").unwrap().len());
        // As a file, it makes the same tokens.
        let json = Choice::Json(place.put("tokenizer.json", work.tokenizer().json().unwrap()));
        let again = of(&paths, &json, None, Some("<|end|>")).unwrap();
        assert!(place.written(&again, 0) == whole.concat());
    }

    #[test]
    fn what_is_held_out_is_not_learnt_from() {
        let place = Place::new();
        let path = place.put("a.txt", ["abab ".repeat(900), "xyxy ".repeat(100)].concat());
        let work = of(&[path], &Choice::Bpe(300), Some(0.11), None).unwrap();
        let has = |name: &str| work.tokenizer().token(name).is_some();
        assert!(has("abab") && !has("xyxy"));
        let parts = [0, 1].map(|part| work.tokenizer().decode(&place.written(&work, part)).unwrap());
        assert_eq!(parts.concat(), ["abab ".repeat(900), "xyxy ".repeat(100)].concat());
        assert!(!parts[0].contains('x') && parts[1].starts_with(" abab"));
    }

    #[test]
    fn a_large_vocabulary_takes_numbers_of_32_bits() {
        let place = Place::new();
        let json = Choice::Json(place.put("tokenizer.json", of_words(70_000, "Whitespace")));
        let path = place.put("a.txt", "w69999 w5 w66000 other");
        let work = of(&[path], &json, None, None).unwrap();
        assert_eq!(place.written(&work, 0), [69_999, 5, 66_000, 0]);
        assert_eq!(fs::metadata(place.path("tokens.bin")).unwrap().len(), 1024 + 4 * 4);
    }

    #[test]
    fn bytes_are_tokens_in_any_encoding() {
        let place = Place::new();
        let path = place.put("a.txt", [0xff, 0x00, b'a']);
        let work = of(&[path], &Choice::Bytes, None, None).unwrap();
        assert_eq!(place.written(&work, 0), [0xff, 0, 0x61]);
    }

    #[test]
    fn a_text_that_may_not_be_cut_is_one_block() {
        let place = Place::new();
        // A rule that is not known: a word may take the spaces beside it.
        let json = Choice::Json(place.put("tokenizer.json", of_words(10, "Punctuation")));
        let work = of(&[place.put("a.txt", "w1")], &json, None, None).unwrap();
        assert_eq!((work.cut, place.written(&work, 0)), (Cut::Nowhere, vec![1]));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let place = Place::new();
        let told = |work: Result<Tokenizing>| format!("{:#}", work.err().unwrap());
        let bad = place.put("bad.txt", b"one\ntwo \xff three");
        let error = told(of(std::slice::from_ref(&bad), &Choice::Bpe(300), None, None));
        assert!(error.contains("bad.txt`, line 2: byte 8 is no UTF-8"), "{error}");
        let json = Choice::Json(place.put("tokenizer.json", of_words(10, "Whitespace")));
        let work = of(&[bad], &json, None, None).unwrap();
        let out = Output::at(&place.path("t.bin")).unwrap();
        let error = format!("{:#}", work.write(&work.stretches[0], &out, &mut |_| ()).unwrap_err());
        assert!(error.contains("line 2: byte 8") && !place.path("t.bin").exists(), "{error}");
        let good = place.put("good.txt", "w1 w2");
        let error = told(of(std::slice::from_ref(&good), &json, None, Some("<|end|>")));
        assert!(error.contains("has no token `<|end|>`"), "{error}");
        let error = told(of(&[good, place.path("none.txt")], &json, None, None));
        assert!(error.contains("none.txt"), "{error}");
    }
}
