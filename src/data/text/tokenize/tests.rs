//! Tokens of files and of tables, as training reads them.

use super::super::super::sheet::{ColumnValue, ColumnWriter};
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
        let count = work.write(&work.parts[part], &Output::at(&path).unwrap(), &mut |done| seen = done).unwrap();
        assert_eq!(seen, work.parts[part].iter().map(Texts::bytes).sum::<u64>());
        let tokens = Tokens::in_files(&path).unwrap();
        assert_eq!(tokens.len() as u64, count);
        let mut reader = tokens.reader(tokens.len());
        (0..tokens.len()).map(|at| reader.get(at).unwrap()).collect()
    }
}

fn of(paths: &[PathBuf], choice: &Choice, held_out: Option<f64>, end: Option<&str>) -> Result<Tokenizing> {
    Tokenizing::new(paths, None, choice, held_out, end, &mut |_, _| ())
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

/// `<s>` or its like, which stands before each text, and not where a text is cut.
#[test]
fn files_begin_with_what_their_tokenizer_puts_there() {
    let place = Place::new();
    let mut json: serde_json::Value = serde_json::from_str(&of_words(10, "Whitespace")).unwrap();
    json["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": "w1", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
        "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
        "special_tokens": { "w1": { "id": "w1", "ids": [1], "tokens": ["w1"] } },
    });
    let json = Choice::Json(place.put("tokenizer.json", json.to_string()));
    let paths = [place.put("a.txt", "w3 w4"), place.put("b.txt", "w5 w6 w7 w8")];
    let work = of(&paths, &json, None, Some("w9")).unwrap();
    assert_eq!(place.written(&work, 0), [1, 3, 4, 9, 1, 5, 6, 7, 8, 9]);
    let work = of(&paths, &json, Some(0.3), None).unwrap();
    assert_eq!([0, 1].map(|part| place.written(&work, part)), [vec![1, 3, 4, 1, 5, 6, 7], vec![8]]);
    let table = place.put("t.jsonl", "{\"text\": \"w3\"}\n{\"text\": \"w4 w5\"}\n");
    let work = of(&[table], &json, None, None).unwrap();
    assert_eq!(place.written(&work, 0), [1, 3, 1, 4, 5]);
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
fn errors_name_the_file_and_the_place() {
    let place = Place::new();
    let message = |work: Result<Tokenizing>| format!("{:#}", work.err().unwrap());
    let bad = place.put("bad.txt", b"one\ntwo \xff three");
    let error = message(of(std::slice::from_ref(&bad), &Choice::Bpe(300), None, None));
    assert!(error.contains("bad.txt`, line 2: byte 8 is no UTF-8"), "{error}");
    let json = Choice::Json(place.put("tokenizer.json", of_words(10, "Whitespace")));
    let work = of(&[bad], &json, None, None).unwrap();
    let out = Output::at(&place.path("t.bin")).unwrap();
    let error = format!("{:#}", work.write(&work.parts[0], &out, &mut |_| ()).unwrap_err());
    assert!(error.contains("line 2: byte 8") && !place.path("t.bin").exists(), "{error}");
    let good = place.put("good.txt", "w1 w2");
    let error = message(of(std::slice::from_ref(&good), &json, None, Some("<|end|>")));
    assert!(error.contains("has no token `<|end|>`"), "{error}");
    let error = message(of(&[good, place.path("none.txt")], &json, None, None));
    assert!(error.contains("none.txt"), "{error}");
}

/// A table with the column `text`, as JSON Lines, CSV and Parquet.
fn tables(place: &Place, texts: &[Option<&str>]) -> [PathBuf; 3] {
    let objects = texts.iter().map(|text| format!("{}\n", serde_json::json!({ "n": [1], "text": text })));
    let cells = texts.iter().map(|text| format!("1,\"{}\"\n", text.unwrap_or_default()));
    let cell = |text: &Option<&str>| match text {
        Some(text) => ColumnValue::Text((*text).to_owned()),
        None => ColumnValue::Missing(Box::new(ColumnValue::Text(String::new()))),
    };
    let mut writer = ColumnWriter::new(&["text".to_owned()], &[cell(&Some(""))]).unwrap();
    texts.iter().for_each(|text| writer.add(vec![cell(text)]).unwrap());
    [
        place.put("a.jsonl", objects.collect::<String>()),
        place.put("a.csv", format!("n,text\n{}", cells.collect::<String>())),
        place.put("a.parquet", writer.finish().unwrap()),
    ]
}

#[test]
fn each_row_of_a_table_is_a_document() {
    let place = Place::new();
    let texts = [Some(" w1 w2\n"), None, Some("w3"), Some(""), Some("w4 w5"), Some("w6")];
    let json = Choice::Json(place.put("tokenizer.json", of_words(10, "Whitespace")));
    let in_column = |path: &Path, choice: &Choice, held_out: Option<f64>, end| {
        Tokenizing::new(&[path.to_owned()], Some("text"), choice, held_out, end, &mut |_, _| ())
    };
    for path in tables(&place, &texts) {
        let work = in_column(&path, &json, None, Some("w9")).unwrap();
        assert_eq!(place.written(&work, 0), [1, 2, 9, 3, 9, 4, 5, 9, 6, 9], "{}", path.display());
        assert_eq!(work.parts[0][0].empty(), 2);
        // Whole rows are held out.
        let work = in_column(&path, &json, Some(0.5), None).unwrap();
        assert_eq!([0, 1].map(|part| place.written(&work, part)), [vec![1, 2, 3], vec![4, 5, 6]]);
        assert_eq!([0, 1].map(|part| work.parts[part][0].empty()), [1, 1]);
        // White space is a part of a text, in cells, too.
        let bytes = place.written(&in_column(&path, &Choice::Bytes, None, None).unwrap(), 0);
        assert_eq!(bytes, b" w1 w2\nw3w4 w5w6".iter().copied().map(u32::from).collect::<Vec<_>>());
        // What is held out is not learnt from.
        let work = in_column(&path, &Choice::Bpe(300), Some(0.2), Some("<|end|>")).unwrap();
        assert!(work.tokenizer().token("<|end|>").is_some());
        let texts = [0, 1].map(|part| work.tokenizer().decode(&place.written(&work, part)).unwrap());
        assert!(texts[1] == "w6<|end|>" && texts[0].ends_with("w4 w5<|end|>"), "{texts:?}");
    }
}

#[test]
fn many_rows_are_read_in_pieces_and_divided_once() {
    let place = Place::new();
    let texts: Vec<String> = (0..400).map(|n| format!("{n} {}", "abcdefgh".repeat(4))).collect();
    let paths = tables(&place, &texts.iter().map(|text| Some(text.as_str())).collect::<Vec<_>>());
    let paths = [paths[0].clone(), paths[1].clone()];
    let whole = texts.concat().repeat(2);
    for held_out in [0.03, 0.5, 0.7] {
        let work = Tokenizing::new(&paths, Some("text"), &Choice::Bytes, Some(held_out), None, &mut |_, _| ()).unwrap();
        let parts = [0, 1].map(|part| place.written(&work, part));
        assert!(parts.concat() == whole.bytes().map(u32::from).collect::<Vec<_>>());
        let part = parts[1].len() as f64 / whole.len() as f64;
        assert!((part - held_out).abs() < 0.005, "{part}");
    }
}

#[test]
fn tables_without_texts_are_errors() {
    let place = Place::new();
    let message = |path: &Path, column: &str, held_out| {
        let work = Tokenizing::new(&[path.to_owned()], Some(column), &Choice::Bytes, held_out, None, &mut |_, _| ());
        format!("{:#}", work.err().unwrap())
    };
    let bad = place.put("bad.jsonl", "{\"text\": \"x\"}\n{\"text\": [\"y\"]}\n");
    for (path, column, held_out, part) in [
        (&bad, "text", None, "bad.jsonl`, line 2: `text` is a list, and no text"),
        (
            &bad,
            "txt",
            None,
            "bad.jsonl`: `--column` names a column `txt`, which the table does not have; did you mean `text`?",
        ),
        (&place.put("none.csv", "n,text\n1,\n"), "text", None, "no row has one in the column `text`"),
        (&place.put("one.csv", "text\nx\n"), "text", Some(0.5), "leaves no row"),
        (&place.path("away.csv"), "text", None, "away.csv"),
    ] {
        let error = message(path, column, held_out);
        assert!(error.contains(part), "{error}");
    }
    let error = format!("{:#}", of(&[bad], &Choice::Bytes, None, None).err().unwrap());
    assert!(error.contains("no column of texts: `--column` names another one, of `text`"), "{error}");
}
