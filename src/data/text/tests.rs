//! Text as tokens, windows and labelled samples.

mod answered;
mod apart;
mod begun;
mod columns;
mod prompted;
mod streams;
mod token_files;
mod tokenized;

use super::super::loader::{LoaderOptions, Position};
use super::super::{HoldOut, Lengths, Loader, Source, Split, open};
use super::*;
use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, HostBuffer};
use crate::graph::{DType, Input, Shape};
use crate::plan::{SlotInput, SlotLayout};
use std::fs;
use std::path::{Path, PathBuf};

fn buffer(bytes: usize) -> HostBuffer {
    CpuBackend::new(Some(1)).unwrap().host_buffer(bytes).unwrap()
}

fn options(path: PathBuf, choice: Choice, context: usize) -> TextOptions {
    TextOptions {
        streams: None,
        end: None,
        apart: None,
        path,
        val_path: None,
        content: Content::Text(choice),
        chat: None,
        column: None,
        context,
        hold_out: None,
        counts_bytes: false,
        fitted: None,
    }
}

fn text(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path
}

fn refused(options: TextOptions) -> String {
    format!("{:#}", open(&Source::Text(Box::new(options))).unwrap_err())
}

/// The batches of an epoch of a split: their lengths, and the numbers of each of its fields.
fn batches(split: &Split, batch_size: usize, shuffle: bool) -> Vec<(Lengths, Vec<u32>, Vec<Vec<i32>>)> {
    let mut inputs = Vec::new();
    let mut bytes = 0;
    for (number, field) in split.fields().iter().enumerate() {
        let shape = Shape([&[batch_size], field.shape.dims()].concat());
        inputs.push(SlotInput {
            input: Input::Field(number as u32),
            dtype: DType::I32,
            offset: bytes,
            shape: shape.clone(),
        });
        bytes += shape.len() * 4;
    }
    let layout = SlotLayout { inputs, bytes };
    let options = LoaderOptions { batch_size, shuffle, end_epoch: Some(1), ..LoaderOptions::default() };
    let buffers = vec![buffer(bytes)];
    let mut loader = Loader::start(split, options, &layout, buffers, Position::default()).unwrap();
    let mut all = Vec::new();
    while let Some(batch) = loader.next().unwrap() {
        let fields = split.fields().iter().zip(&layout.inputs).map(|(field, place)| {
            let numbers = batch.shape.samples * field.shape_of(batch.shape.lengths).len();
            let bytes = &batch.buffer.bytes()[place.offset..][..numbers * 4];
            bytes.as_chunks().0.iter().map(|number| i32::from_ne_bytes(*number)).collect()
        });
        all.push((batch.shape.lengths, batch.samples().to_vec(), fields.collect()));
        loader.release(batch);
    }
    all
}

#[test]
fn a_sample_is_tokens_and_those_behind_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), "a.txt", "abcabcabcab");
    let set = open(&Source::Text(Box::new(TextOptions {
        hold_out: Some(HoldOut::Count(5)),
        ..options(path, Choice::Characters, 2)
    })))
    .unwrap();
    // Six to train on, a b c a b c: two windows and the one after the second. Five to validate on, a b c a b.
    assert_eq!((set.train.len(), set.val.len()), (2, 2));
    let codec = TextCodec::of(&set.spec).unwrap().unwrap();
    assert_eq!((codec.vocabulary, codec.fields() == set.spec.fields), (3, true));
    let [(_, _, fields)] = &batches(&set.val, 2, false)[..] else { panic!("two samples") };
    assert_eq!(fields[..], [vec![0, 1, 2, 0], vec![1, 2, 0, 1]]);
    // Windows of training begin elsewhere, and the target is the token after all the same.
    for (_, _, fields) in batches(&set.train, 1, true) {
        assert_eq!(fields[0][1], fields[1][0]);
        assert!(fields[0].iter().zip(&fields[1]).all(|(token, next)| (token + 1) % 3 == *next), "{fields:?}");
    }
}

#[test]
fn windows_of_training_reach_every_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), "a.txt", (0..100u8).collect::<Vec<u8>>());
    let options = options(path, Choice::Bytes, 7);
    let set = open(&Source::Text(Box::new(options))).unwrap();
    assert_eq!(set.train.len(), 14);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let mut layout = SlotLayout { inputs: Vec::new(), bytes: 7 * 4 };
        layout.inputs.push(SlotInput { input: Input::Field(1), dtype: DType::I32, offset: 0, shape: [1, 7].into() });
        let options = LoaderOptions { seed, end_epoch: Some(1), ..LoaderOptions::default() };
        let mut loader = Loader::start(&set.train, options, &layout, vec![buffer(28)], Position::default()).unwrap();
        while let Some(batch) = loader.next().unwrap() {
            seen.extend(batch.buffer.bytes().as_chunks().0.iter().map(|token| i32::from_ne_bytes(*token)));
            loader.release(batch);
        }
    }
    // All but the first, which nothing stands before.
    assert!(seen.iter().copied().eq(1..100), "{seen:?}");
}

#[test]
fn files_are_read_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    text(folder.path(), "b.txt", "second");
    text(folder.path(), "a.md", "\u{feff}first ");
    text(folder.path(), "c.bin", [0xff]);
    text(folder.path(), ".hidden.txt", [0xff]);
    fs::create_dir(folder.path().join("d")).unwrap();
    text(folder.path(), "d/e.txt", " third");
    let set = open(&Source::Text(Box::new(options(folder.path().to_owned(), Choice::Bytes, 17)))).unwrap();
    let [(_, _, fields)] = &batches(&set.train, 1, false)[..] else { panic!("one sample") };
    let bytes: Vec<u8> = fields[1].iter().map(|byte| *byte as u8).collect();
    assert_eq!(std::str::from_utf8(&bytes).unwrap(), "irst second third");
    assert!(set.notes[0].contains("3 files, 18 bytes of text are 18 tokens (bytes)"), "{:?}", set.notes);
    let some = options(folder.path().join("{b,d/e}.txt"), Choice::Bytes, 3);
    assert_eq!(open(&Source::Text(Box::new(some))).unwrap().train.len(), 3);
}

#[test]
fn bytes_are_tokens_in_any_encoding() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), "latin1.txt", b"caf\xe9 \xff");
    let set = open(&Source::Text(Box::new(options(path, Choice::Bytes, 5)))).unwrap();
    let [(_, _, fields)] = &batches(&set.train, 1, false)[..] else { panic!("one sample") };
    assert_eq!(fields[1], [97, 102, 0xe9, 32, 0xff]);
    // A model of bytes that is trained reads other files in the same way.
    let fitted = TextCodec::of(&set.spec).unwrap().map(Box::new);
    let other = text(folder.path(), "other.txt", [0xfe; 7]);
    let read = TextOptions { fitted, ..options(other, Choice::Characters, 5) };
    assert_eq!(open(&Source::Text(Box::new(read))).unwrap().train.len(), 1);
}

#[test]
fn what_is_no_text_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let at =
        |name: &str, content: &[u8], context| options(text(folder.path(), name, content), Choice::Characters, context);
    let message = refused(at("a.txt", b"one\ntwo \xff", 2));
    assert!(message.contains("a.txt`, line 2: byte 8 is no UTF-8"), "{message}");
    assert!(refused(at("b.txt", b"", 2)).contains("b.txt` has no text"));
    let message = refused(at("c.txt", b"abc", 3));
    assert!(message.contains("3 tokens are too few for a sample of 3 and the one after it"), "{message}");
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(refused(options(empty, Choice::Bytes, 2)).contains("has no text files"));
    let held = TextOptions { hold_out: Some(HoldOut::Count(9)), ..at("d.txt", b"abcdefghi", 2) };
    assert!(refused(held).contains("`validation_split` takes 9 of 9 tokens"));
    let held = TextOptions { hold_out: Some(HoldOut::Count(2)), ..at("d.txt", b"abcdefghi", 2) };
    assert!(refused(held).contains("the end that is held out"));
    // A model that is trained knows its characters and no others.
    let set = open(&Source::Text(Box::new(at("e.txt", b"abab", 2)))).unwrap();
    let fitted = TextCodec::of(&set.spec).unwrap().map(Box::new);
    let message = refused(TextOptions { fitted, ..at("f.txt", "ab\nbaü".as_bytes(), 2) });
    assert!(message.contains("f.txt`, line 1 of the text, column 3: the character '\\n' (U+000A)"), "{message}");
    assert!(message.contains("the text has 2 without one ('\\n' 1×, 'ü' 1×)"), "{message}");
}

#[test]
fn tokenizers_keep_what_they_were() {
    let texts = ["To be, or not to be: that is the question.\n", "Whether 'tis nobler — naïve 😀 in the mind\n"];
    for choice in [Choice::Bytes, Choice::Characters, Choice::Words(100), Choice::Bpe(300)] {
        let tokenizer = Tokenizer::choose(&choice, &texts).unwrap();
        let again = Tokenizer::of_written(&tokenizer.written().unwrap()).unwrap();
        for text in texts {
            let tokens = tokenizer.encode(text, "").unwrap();
            assert_eq!(again.encode(text, "").unwrap(), tokens, "{choice:?}");
            assert!(tokens.iter().all(|token| (*token as usize) < tokenizer.vocabulary()));
            if !matches!(choice, Choice::Words(_)) {
                assert_eq!(tokenizer.decode(&tokens).unwrap(), text, "{choice:?}");
            }
        }
        // A model of a checkpoint that was changed may put out any token.
        assert!(tokenizer.decode(&[u32::MAX]).is_err() || matches!(choice, Choice::Bpe(_)));
    }
    let pairs = Tokenizer::choose(&Choice::Bpe(300), &texts).unwrap();
    assert_eq!(pairs.vocabulary(), 300);
    assert!(pairs.encode(texts[0], "").unwrap().len() < texts[0].len(), "pairs are joined");
    // Twice the same.
    assert_eq!(Tokenizer::choose(&Choice::Bpe(300), &texts).unwrap(), pairs);
    for broken in [
        r#"{"type":"words","words":["a"]}"#,
        r#"{"type":"characters","characters":""}"#,
        r#"{"type":"tokenizer_json","json":"{}"}"#,
        r#"{"type":"x"}"#,
        "3",
    ] {
        let written = serde_json::from_str(broken).unwrap();
        assert!(Tokenizer::of_written(&written).is_err(), "{broken}");
    }
}

#[test]
fn text_comes_out_of_tokens_when_characters_are_whole() {
    let texts = ["naïve 😀 — so it is"];
    for choice in [Choice::Bytes, Choice::Characters, Choice::Bpe(260)] {
        let tokenizer = Tokenizer::choose(&choice, &texts).unwrap();
        let mut decoder = Decoder::new(tokenizer.clone());
        let mut out = String::new();
        for token in tokenizer.encode(texts[0], "").unwrap() {
            let piece = decoder.push(token).unwrap();
            assert!(!piece.contains('\u{fffd}'), "{choice:?}: {piece:?}");
            out.push_str(&piece);
        }
        out.push_str(&decoder.finish().unwrap());
        assert_eq!(out, texts[0], "{choice:?}");
        // Bytes that make no character come out, too.
        let mut decoder = Decoder::new(Tokenizer::Bytes);
        let mut out = String::new();
        for byte in [b'a', 0xff, 0xff, 0xff, 0xff, 0xff, b'b', 0xf0] {
            out.push_str(&decoder.push(u32::from(byte)).unwrap());
        }
        out.push_str(&decoder.finish().unwrap());
        assert_eq!(out, "a\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}b\u{fffd}");
    }
}

fn labelled(path: PathBuf, lengths: &[usize]) -> LabelledOptions {
    let (text, target) = ("text".to_owned(), "label".to_owned());
    LabelledOptions {
        sample_weight: None,
        classes: None,
        path,
        val_path: None,
        text,
        text_pair: None,
        target,
        choice: Choice::Words(50),
        lengths: lengths.to_vec(),
        fitted: None,
    }
}

#[test]
fn texts_are_filled_up_to_a_length() {
    let folder = tempfile::tempdir().unwrap();
    let table = "label,text\nno,bad\nyes,\"good, good\"\nno,\nyes,so good\nno,so bad so bad so bad so\n";
    let path = text(folder.path(), "t.csv", table);
    let set = open(&Source::LabelledTexts(Box::new(labelled(path.clone(), &[2, 4])))).unwrap();
    assert_eq!((set.train.len(), set.spec.class_names().unwrap()), (4, &["no".to_owned(), "yes".to_owned()][..]));
    assert!(
        set.notes.iter().any(|note| note.contains("1 rows without a text or a class are left out")),
        "{:?}",
        set.notes
    );
    assert!(set.notes.iter().any(|note| note.contains("1 of 4 texts are cut to 4 tokens")), "{:?}", set.notes);
    // Words by how often they come: so (5), bad and good (4, 3), the comma.
    let all = batches(&set.train, 2, false);
    assert_eq!(all[0], (Lengths::first(2), vec![0, 2], vec![vec![2, 0, 1, 3], vec![1, 2], vec![0, 1]]));
    assert_eq!(all[1].0, Lengths::first(4));
    assert_eq!(all[1].2[1], [3, 4], "their lengths");
    assert_eq!(all[1].2[0][..4], [3, 4, 3, 0]);
    // Rows for a trained model: of a table, and lines of any other file, in their order.
    let codec = TextCodec::of(&set.spec).unwrap().unwrap();
    let rows = read_passages(&path, &codec).unwrap();
    assert_eq!(rows.len(), 5, "one without a text, too");
    let lines = read_passages(&text(folder.path(), "l.txt", "so so so so so\r\nnew\n"), &codec).unwrap();
    let [(_, samples, fields)] = &batches(&lines, 2, false)[..] else { panic!("one batch") };
    assert_eq!((&samples[..], &fields[0][..]), (&[0, 1][..], &[1, 1, 1, 1, 0, 0, 0, 0][..]));
    let message = format!("{:#}", read_passages(&text(folder.path(), "o.csv", "a,b\n1,2\n"), &codec).err().unwrap());
    assert!(message.contains("o.csv` has no column `text`"), "{message}");
    let message =
        format!("{:#}", read_passages(&text(folder.path(), "u.txt", [b'a', b'\n', 0xff]), &codec).err().unwrap());
    assert!(message.contains("u.txt`, line 2 is no UTF-8"), "{message}");
    // Classes of other data go by their names.
    let other = text(folder.path(), "v.csv", "text,label\ngood,yes\nbad,maybe\n");
    let with = LabelledOptions { fitted: Some(Box::new(codec)), ..labelled(other, &[2, 4]) };
    let message = format!("{:#}", open(&Source::LabelledTexts(Box::new(with))).unwrap_err());
    assert!(
        message.contains(
            "v.csv`: row at line 3 has the class `maybe`, which is none of those that are learnt: `no` and `yes`"
        ),
        "{message}"
    );
}

/// What a `tokenizer.json` leaves apart by chance is joined: the same text has the same tokens always.
#[test]
fn the_dropout_of_a_tokenizer_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let words = "the cat and the other cat and the hat ".repeat(8);
    let plain = Tokenizer::choose(&Choice::Bpe(280), &[&words]).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(plain.json().unwrap()).unwrap();
    json["model"]["dropout"] = 0.5.into();
    let path = text(folder.path(), "tokenizer.json", json.to_string());
    let dropping = Tokenizer::read(&path).unwrap();
    for _ in 0..8 {
        assert_eq!(dropping.encode(&words, "").unwrap(), plain.encode(&words, "").unwrap());
    }
    let source = |choice| {
        let options = options(text(folder.path(), "t.txt", &words), choice, 2);
        Source::Text(Box::new(TextOptions { hold_out: Some(HoldOut::Fraction(0.25)), ..options }))
    };
    let missing = super::super::Missing::default();
    let notes = |choice| super::super::obtain(&source(choice), &missing, &mut |_| ()).unwrap().notes.join(" ");
    assert!(notes(Choice::Json(path)).contains("the `dropout` of 0.5 in the tokenizer is left out"));
    assert!(!notes(Choice::Bpe(280)).contains("dropout"));
}

/// `[CLS]` and `[SEP]` of a `tokenizer.json` stay where a text is cut.
#[test]
fn a_text_is_cut_within_what_its_tokenizer_adds() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/text_classifiers/bert/tokenizer.json");
    let tokenizer = Tokenizer::read(&path).unwrap();
    let [first, last] = ["[CLS]", "[SEP]"].map(|name| tokenizer.token(name).unwrap());
    let text = "cold soup, old bread";
    let inner = tokenizer.encode(text, "").unwrap();
    let whole = |longest| {
        let whole = tokenizer.encode_whole(&text.to_owned().into(), longest, "").unwrap();
        (whole.tokens, whole.cut)
    };
    let room = inner.len() + 2;
    assert_eq!(whole(room), ([&[first], &inner[..], &[last]].concat(), false));
    assert_eq!(whole(4), (vec![first, inner[0], inner[1], last], true));
    assert_eq!(whole(2), (vec![first, last], true));
    assert_eq!(whole(1).0, [first]);
}

/// `[CLS] a [SEP] b [SEP]`: the second text begins behind the first `[SEP]`, by templates and by BERT's own processor. RoBERTa's does not distinguish the texts.
#[test]
fn a_pair_is_joined_as_its_tokenizer_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/text_classifiers/bert/tokenizer.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let with = |processor: serde_json::Value| {
        let mut json = json.clone();
        json["post_processor"] = processor;
        let written = serde_json::json!({ "type": "tokenizer_json", "json": json.to_string() });
        Tokenizer::of_written(&written).unwrap()
    };
    let own =
        Tokenizer::of_written(&serde_json::json!({ "type": "tokenizer_json", "json": json.to_string() })).unwrap();
    let [first, last] = ["[CLS]", "[SEP]"].map(|name| own.token(name).unwrap());
    let [a, b] = ["cold soup", "old bread"].map(|text| own.encode(text, "").unwrap());
    let pair = Passage { text: "cold soup".to_owned(), pair: Some("old bread".to_owned()) };
    let whole = |tokenizer: &Tokenizer, longest| tokenizer.encode_whole(&pair, longest, "").unwrap();
    let joined = [&[first], &a[..], &[last], &b, &[last]].concat();
    let bert = with(serde_json::json!({ "type": "BertProcessing", "sep": ["[SEP]", last], "cls": ["[CLS]", first] }));
    for tokenizer in [&own, &bert] {
        assert_eq!(tokenizer.separator(), None);
        let all = whole(tokenizer, 64);
        assert_eq!((all.tokens, all.pair_start, all.cut), (joined.clone(), a.len() + 2, false));
        let cut = whole(tokenizer, 7);
        assert_eq!((cut.tokens, cut.pair_start), (vec![first, a[0], a[1], last, b[0], b[1], last], 4));
        let none = whole(tokenizer, 2);
        assert_eq!((none.tokens, none.pair_start, none.cut), (vec![first, last], 2, true));
    }
    let roberta = serde_json::json!({
        "type": "RobertaProcessing", "sep": ["[SEP]", last], "cls": ["[CLS]", first], "trim_offsets": true, "add_prefix_space": false
    });
    let all = whole(&with(roberta), 64);
    assert_eq!(all.tokens, [&[first], &a[..], &[last, last], &b, &[last]].concat());
    assert_eq!(all.pair_start, all.tokens.len());
    // One that adds nothing has a token of its own between both.
    let plain = with(serde_json::Value::Null);
    assert_eq!(whole(&plain, 64).tokens, [&a[..], &[plain.vocabulary() as u32], &b].concat());
}

/// The first token of a word bears its tag; `[CLS]`, `[SEP]` and other pieces do not count.
#[test]
fn words_bear_their_tags_on_their_first_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/text_classifiers/bert/tokenizer.json");
    let path = text(folder.path(), "t.conll", "fine B\nbread I\n\nsoup O\n");
    let options = TaggedOptions {
        path: path.clone(),
        val_path: None,
        layout: Layout { words: "tokens".into(), tags: "tags".into(), word_column: 1, tag_column: None },
        tags: None,
        choice: Choice::Json(file.clone()),
        lengths: vec![4, 8],
        ignore_index: -7,
        fitted: None,
    };
    let set = open(&Source::TaggedTexts(Box::new(options.clone()))).unwrap();
    assert_eq!(set.spec.class_names().unwrap(), ["B", "I", "O"]);
    let tokenizer = Tokenizer::read(&file).unwrap();
    let pieces = |word: &str| tokenizer.encode(word, "").unwrap().len();
    assert!(pieces("fine") > 1, "a word of one piece tests nothing");
    let all = batches(&set.train, 1, false);
    let of = |sample: u32| all.iter().find(|(_, samples, _)| samples[0] == sample).unwrap();
    let (lengths, _, fields) = of(0);
    assert_eq!(*lengths, Lengths::first(8));
    let mut wanted = vec![-7; 8];
    wanted[1] = 0;
    wanted[1 + pieces("fine")] = 1;
    assert_eq!((fields[1][0], &fields[2]), ((2 + pieces("fine") + pieces("bread")) as i32, &wanted));
    let (_, _, fields) = of(1);
    assert_eq!(fields[2].iter().filter(|tag| **tag == 2).count(), 1);
    // What is cut off has no tag, and a file that is predicted on needs none.
    let codec = TextCodec::of(&set.spec).unwrap().unwrap();
    let (split, placed) = read_sentences(&path, &codec).unwrap();
    assert_eq!((split.len(), &placed[1].words), (2, &vec!["soup".to_owned()]));
    assert_eq!(placed[0].at, [Some(1), Some(1 + pieces("fine"))]);
    let short = TaggedOptions { lengths: vec![3], ..options };
    let set = open(&Source::TaggedTexts(Box::new(short))).unwrap();
    assert!(set.notes.iter().any(|note| note.contains("sentences are cut to 3 tokens")), "{:?}", set.notes);
}

#[test]
fn classes_have_the_order_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // What was found in a file is kept.
    let files = std::cell::Cell::new(0);
    let rows = |rows: &str| {
        files.set(files.get() + 1);
        text(folder.path(), &format!("{}.csv", files.get()), format!("text,label\n{rows}"))
    };
    let labels = |named: Option<&[&str]>, table: &str| {
        let classes = named.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let path = rows(table);
        let options = LabelledOptions { classes, ..labelled(path, &[2]) };
        let set = open(&Source::LabelledTexts(Box::new(options))).map_err(|e| format!("{e:#}"))?;
        Ok::<_, String>((0..set.train.len()).filter_map(|i| set.train.label(i)).collect::<Vec<_>>())
    };
    let by_name = "a,yes\nb,no\nc,maybe\n";
    assert_eq!(labels(None, by_name).unwrap(), [2, 1, 0]);
    assert_eq!(labels(Some(&["yes", "no", "maybe"]), "a,yes\nb,no\n").unwrap(), [0, 1]);
    // Numbers are in their own order, and stand for classes that have names.
    assert_eq!(labels(None, "a,10\nb,9\n").unwrap(), [1, 0]);
    assert_eq!(labels(Some(&["yes", "no"]), "a,1\nb,0\nc,yes\n").unwrap(), [1, 0, 0]);
    assert!(labels(Some(&["yes", "no"]), "a,2\nb,0\n").unwrap_err().contains("has the class `2`"));
    assert!(labels(Some(&["1", "2"]), "a,0\nb,1\n").unwrap_err().contains("has the class `0`"));
}

/// Where a window may begin in training: at its usual place, or up to a window less one token after it, as far as the text goes.
#[test]
fn windows_begin_anywhere_in_training() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), "w.txt", "abcdefghij");
    let set = open(&Source::Text(Box::new(options(path, Choice::Characters, 3)))).unwrap();
    let mut first = vec![std::collections::BTreeSet::new(); set.train.len()];
    for epoch in 0..200 {
        for (sample, seen) in first.iter_mut().enumerate() {
            let mut slot = [0; 24];
            let columns = [0, 12].map(|offset| Some(Column { offset, bytes: 12 }));
            let key = Key { seed: 1, epoch, sample: sample as u64 };
            set.train.write(sample, &mut Rows::new(&mut slot, &columns, 0, &[], key)).unwrap();
            seen.insert(i32::from_ne_bytes(slot[..4].try_into().unwrap()));
        }
    }
    // Ten tokens are three windows and the token after the last, which stays where it is.
    let all = first.iter().map(|seen| seen.iter().copied().collect::<Vec<_>>()).collect::<Vec<_>>();
    assert_eq!(all, [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
}
