//! Tables, texts, and tokenizers.

use super::scratch::{with_file, with_folder};
use runner::data::table::{
    self, Division, Encoding, Format, Norm, Room, Rule, TableCodec, TableOptions, Unseen, Words, read_rows,
};
use runner::data::text::{
    ApartOptions, Choice, Content, End, LabelledOptions, Layout, Passage, TaggedOptions, TextCodec, TextOptions,
    Tokenizer, read_passages, read_sentences, tokens_of,
};
use runner::data::{self, Dataset, Source};

/// What a column or a file of the seeds is called.
const TARGET: &str = "y";
const TEXT: &str = "text";
/// Longer texts take a tokenizer long, and lead nowhere else.
const MOST_TEXT: usize = 1 << 12;

/// A table that is learnt from; the first byte says of which format, and whether the target is a class. What was learnt of it reads it again.
pub fn table(data: &[u8]) -> bool {
    let Some((how, file)) = data.split_first() else { return false };
    let name = ["input.csv", "input.tsv", "input.jsonl"][usize::from(how & 3).min(2)];
    with_folder(name, file, |folder| {
        let options = TableOptions {
            path: folder.join(name),
            val_path: None,
            format: Format { separator: (how & 4 != 0).then_some(b';'), ..Format::default() },
            decimal: if how & 8 != 0 { ',' } else { '.' },
            target: vec![TARGET.into()],
            classes: how & 16 != 0,
            class_names: None,
            standardize_target: how & 32 != 0,
            range: None,
            heads: Vec::new(),
            bins: (how & 64 != 0).then_some(4),
            rules: if how & 128 != 0 { hashed() } else { Vec::new() },
            drop: Vec::new(),
            id: None,
            sample_weight: None,
            windows: None,
            division: Division {
                hold_out: None,
                fold: None,
                seed: 0,
                split_column: None,
                group_column: None,
                time_column: None,
                stratify_column: None,
            },
            room: Room::default(),
            skip: false,
            fitted: None,
            takes: Vec::new(),
        };
        let path = options.path.clone();
        let Some(set) = opened(&Source::Table(Box::new(options))) else { return false };
        let written = set.spec.fitted.as_ref().expect("a table is learnt");
        let codec = TableCodec::read(written).expect("what was learnt is sane");
        assert_eq!(codec.written().expect("JSON"), *written);
        let rows = read_rows(&path, &codec, false, &mut Unseen::default()).unwrap_or_else(|e| panic!("{e:#}"));
        // Rows without a target are not trained on.
        assert!(rows.len() >= set.train.len(), "{} rows, {} of them trained on", rows.len(), set.train.len());
        true
    })
}

/// All columns of texts are taken for what is hashed.
fn hashed() -> Vec<Rule> {
    let words = Words { buckets: 3, norm: Norm::L2, alternate_sign: true };
    let rule = |(pattern, encoding): (&str, Encoding)| Rule {
        pattern: pattern.into(),
        choice: table::Choice::Encode(encoding),
    };
    [("?", Encoding::Hashed { buckets: 3 }), ("*", Encoding::Text(words))].map(rule).into()
}

/// Documents that are kept apart.
fn apart(context: usize) -> ApartOptions {
    ApartOptions { lengths: vec![context], ignore_index: -100 }
}

/// One long text; the first byte says how it becomes tokens.
pub fn text(data: &[u8]) -> bool {
    let Some((how, file)) = data.split_first() else { return false };
    with_folder("input.txt", &file[..file.len().min(MOST_TEXT)], |folder| {
        let options = TextOptions {
            path: folder.join("input.txt"),
            val_path: None,
            content: Content::Text(choice(*how)),
            chat: None,
            column: None,
            context: 1 + usize::from(how >> 2 & 7),
            end: (how & 32 != 0).then_some(End::Number(10)),
            apart: (how & 32 != 0).then(|| apart(1 + usize::from(how >> 2 & 7))),
            streams: None,
            hold_out: None,
            counts_bytes: false,
            fitted: None,
        };
        let Some(set) = opened(&Source::Text(Box::new(options))) else { return false };
        let codec = codec_of(&set);
        for sample in 0..set.train.len() {
            let tokens = tokens_of(&set.train, sample).expect("its own tokens");
            assert!(tokens.iter().all(|token| (*token as usize) < codec.vocabulary));
            codec.tokenizer.as_ref().expect("it has read a text").decode(&tokens).expect("its own tokens");
        }
        true
    })
}

/// Texts with a class each; the first byte says of which format, and how they become tokens. What was learnt of them reads them again.
pub fn labelled(data: &[u8]) -> bool {
    let Some((how, file)) = data.split_first() else { return false };
    let name = ["input.csv", "input.tsv", "input.jsonl"][usize::from(how >> 2 & 3).min(2)];
    with_folder(name, &file[..file.len().min(MOST_TEXT)], |folder| {
        let options = LabelledOptions {
            path: folder.join(name),
            val_path: None,
            text: TEXT.into(),
            text_pair: None,
            target: TARGET.into(),
            classes: None,
            choice: choice(*how),
            lengths: vec![2, 5],
            sample_weight: None,
            fitted: None,
        };
        let path = options.path.clone();
        let Some(set) = opened(&Source::LabelledTexts(Box::new(options))) else { return false };
        let codec = codec_of(&set);
        // Texts that were left out may have characters without a token.
        match read_passages(&path, &codec) {
            Ok(texts) => assert!(texts.len() >= set.train.len()),
            Err(e) => assert!(matches!(choice(*how), Choice::Characters), "{e:#}"),
        }
        true
    })
}

/// Sentences whose words have a tag each; the first byte says of which format, where words and tags stand, and how words become tokens. What was
/// learnt of them reads them again.
pub fn tags(data: &[u8]) -> bool {
    let Some((how, file)) = data.split_first() else { return false };
    let name = if how & 4 == 0 { "input.conll" } else { "input.jsonl" };
    with_folder(name, &file[..file.len().min(MOST_TEXT)], |folder| {
        let options = TaggedOptions {
            path: folder.join(name),
            val_path: None,
            layout: Layout {
                words: "words".into(),
                tags: "tags".into(),
                word_column: 1 + usize::from(how >> 3 & 1),
                tag_column: (how & 16 != 0).then_some(2),
            },
            tags: None,
            choice: choice(*how),
            lengths: vec![2, 5],
            ignore_index: -100,
            fitted: None,
        };
        let path = options.path.clone();
        let Some(set) = opened(&Source::TaggedTexts(Box::new(options))) else { return false };
        let codec = codec_of(&set);
        assert!(codec.has_tags());
        for sample in 0..set.train.len() {
            let tokens = tokens_of(&set.train, sample).expect("its own tokens");
            assert!(tokens.iter().all(|token| (*token as usize) < codec.vocabulary));
        }
        let (again, placed) = read_sentences(&path, &codec).unwrap_or_else(|e| panic!("{e:#}"));
        assert_eq!((again.len(), placed.len()), (set.train.len(), set.train.len()));
        true
    })
}

/// A file of tokens; the first byte says how many there may be, and how many a sample has.
pub fn tokens(data: &[u8]) -> bool {
    let Some((how, file)) = data.split_first() else { return false };
    with_folder("input.bin", &file[..file.len().min(MOST_TEXT)], |folder| {
        let vocabulary = 2 + 100 * usize::from(how >> 3);
        let options = TextOptions {
            path: folder.join("input.bin"),
            val_path: None,
            content: Content::Tokens { vocabulary: Some(vocabulary), tokenizer: None },
            chat: None,
            column: None,
            context: 1 + usize::from(how & 7),
            end: (how & 128 != 0).then_some(End::Number(1)),
            apart: (how & 128 != 0).then(|| apart(1 + usize::from(how & 7))),
            streams: None,
            hold_out: None,
            counts_bytes: false,
            fitted: None,
        };
        let Some(set) = opened(&Source::Text(Box::new(options))) else { return false };
        for sample in 0..set.train.len() {
            match tokens_of(&set.train, sample) {
                Ok(tokens) => assert!(tokens.iter().all(|token| (*token as usize) < vocabulary)),
                Err(e) => assert!(
                    format!("{e:#}").contains("input.bin") && format!("{e:#}").contains("the vocabulary has"),
                    "{e:#}"
                ),
            }
        }
        true
    })
}

/// A `tokenizer.json`, and after a zero byte a text.
pub fn tokenizer(data: &[u8]) -> bool {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (json, text) = (parts.next().unwrap_or_default(), parts.next().unwrap_or(b"one two, \xc3\xa9\n"));
    let text = String::from_utf8_lossy(&text[..text.len().min(MOST_TEXT)]);
    with_file(json, |path| match Tokenizer::read(path) {
        Ok(tokenizer) => {
            let again = Tokenizer::of_written(&tokenizer.written().expect("JSON")).expect("what was written");
            assert!(again == tokenizer && tokenizer.vocabulary() > 0);
            if let Ok(tokens) = tokenizer.encode(&text, "the text") {
                assert!(tokens.iter().all(|token| (*token as usize) < tokenizer.vocabulary()), "{tokens:?}");
                let passage = Passage::from(text.into_owned());
                match tokenizer.encode_whole(&passage, 3, "the text") {
                    Ok(whole) => {
                        // With those that the model expects before and after a text.
                        let enough = whole.cut || whole.tokens.len() >= tokens.len().min(3);
                        assert!(whole.tokens.len() <= 3 && enough, "{tokens:?} {whole:?}");
                    }
                    // What is put around a text may be a token that there is none of.
                    Err(e) => assert!(format!("{e:#}").contains("the text cannot be tokenized"), "{e:#}"),
                }
                let _ = tokenizer.decode(&tokens);
            }
            true
        }
        Err(e) => {
            assert!(format!("{e:#}").contains("input"), "{e:#}");
            false
        }
    })
}

fn choice(how: u8) -> Choice {
    match how & 3 {
        0 => Choice::Bytes,
        1 => Choice::Characters,
        2 => Choice::Words(7),
        _ => Choice::Bpe(300),
    }
}

/// A source; none, where its file is refused by its name.
fn opened(source: &Source) -> Option<Dataset> {
    match data::open(source) {
        Ok(set) => {
            assert!(!set.train.is_empty());
            Some(set)
        }
        Err(e) => {
            assert!(format!("{e:#}").contains("input."), "{e:#}");
            None
        }
    }
}

/// How a data set made tokens, as a checkpoint has it.
fn codec_of(set: &Dataset) -> TextCodec {
    let written = set.spec.fitted.as_ref().expect("a text is learnt");
    let codec = TextCodec::read(written).expect("what was learnt is sane");
    assert_eq!(codec.written().expect("JSON"), *written);
    codec
}
