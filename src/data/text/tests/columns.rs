//! A column of a table as a text: each row is a document, as each file of a folder is.

use super::*;
use crate::data::sheet::{ColumnValue, ColumnWriter};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::io::Write;

const TEXTS: [Option<&str>; 6] =
    [Some("To be,\n"), None, Some(" or \"not\""), Some(""), Some("42"), Some("to be: ü\t")];

type Batches = Vec<(Lengths, Vec<u32>, Vec<Vec<i32>>)>;

fn gzip(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

/// Those texts in a table of each kind, beside other columns, in two files of JSON Lines as well; and as files of a folder.
fn tables(folder: &Path) -> (Vec<PathBuf>, PathBuf) {
    let object = |text: &Option<&str>| format!("{}\n", json!({ "n": 1.5, "text": text, "tags": ["x"] }));
    let objects: Vec<String> = TEXTS.iter().map(object).collect();
    let cell = |text: &Option<&str>| format!("1,\"{}\"\n", text.unwrap_or_default().replace('"', "\"\""));
    let cells = format!("n,text\n{}", TEXTS.iter().map(cell).collect::<String>());
    let value = |text: &Option<&str>| match text {
        Some(text) => ColumnValue::Text((*text).to_owned()),
        None => ColumnValue::Missing(Box::new(ColumnValue::Text(String::new()))),
    };
    let row = |text| vec![ColumnValue::Whole(3), value(text)];
    let mut writer = ColumnWriter::new(&["n".to_owned(), "text".to_owned()], &row(&Some(""))).unwrap();
    TEXTS.iter().for_each(|text| writer.add(row(text)).unwrap());
    text(folder, "part-1.ndjson", objects[..3].concat());
    text(folder, "part-2.ndjson", objects[3..].concat());
    let tables = vec![
        text(folder, "a.jsonl", objects.concat()),
        text(folder, "a.csv", &cells),
        text(folder, "a.csv.gz", gzip(&cells)),
        text(folder, "a.jsonl.gz", gzip(&objects.concat())),
        text(folder, "a.parquet", writer.finish().unwrap()),
        folder.join("part-*.ndjson"),
    ];
    fs::create_dir(folder.join("files")).unwrap();
    for (number, content) in TEXTS.iter().enumerate() {
        content.iter().for_each(|content| _ = text(folder, &format!("files/{number}.txt"), content));
    }
    (tables, folder.join("files"))
}

/// What is trained on and validated on, and what samples are.
fn read(options: TextOptions) -> ([Batches; 2], DataSpec, Vec<String>) {
    let set = open(&Source::Text(Box::new(options))).unwrap();
    ([batches(&set.train, 2, true), batches(&set.val, 2, false)], set.spec, set.notes)
}

#[test]
fn rows_are_as_files_are() {
    let folder = tempfile::tempdir().unwrap();
    let (tables, files) = tables(folder.path());
    let apart = Some(ApartOptions { lengths: vec![4, 8], ignore_index: -100 });
    let ends = || Some(End::Number(1));
    for choice in [Choice::Bytes, Choice::Characters, Choice::Words(5), Choice::Bpe(262)] {
        for (apart, end) in [(None, None), (None, ends()), (apart.clone(), None), (apart.clone(), ends())] {
            let of = |path: &Path, column: Option<&str>| {
                let (apart, end, column) = (apart.clone(), end.clone(), column.map(str::to_owned));
                let hold_out = Some(HoldOut::Fraction(0.4));
                let context = if apart.is_some() { 8 } else { 2 };
                read(TextOptions { apart, end, column, hold_out, ..options(path.to_owned(), choice.clone(), context) })
            };
            let (batches, spec, _) = of(&files, None);
            for table in &tables {
                let (own, own_spec, notes) = of(table, Some("text"));
                assert!(own == batches && own_spec == spec, "{} {choice:?} {apart:?}", table.display());
                let notes = notes.join("\n");
                for part in [", column `text`: 4 rows, 28 bytes of text are ", "2 rows without a text are left out"] {
                    assert!(notes.contains(part), "{part}: {notes}");
                }
                if *table != tables[1] {
                    assert!(of(table, None).0 == batches, "the only column of texts: {}", table.display());
                }
            }
        }
    }
    // CSV is a text by itself, as it always was, and says what else it could be.
    let set = open(&Source::Text(Box::new(options(tables[1].clone(), Choice::Bytes, 4)))).unwrap();
    let notes = set.notes;
    assert_eq!(set.spec.train, Some((fs::metadata(&tables[1]).unwrap().len() as usize - 1) / 4));
    assert!(notes[1].contains("a.csv` is read as a text, with its separators: `column` reads"), "{notes:?}");
}

#[test]
fn numbers_are_texts_as_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = ColumnWriter::new(&["n".to_owned()], &[ColumnValue::Whole(3)]).unwrap();
    [12, 7, 30].into_iter().for_each(|n| writer.add(vec![ColumnValue::Whole(n)]).unwrap());
    for path in [
        text(folder.path(), "n.jsonl", "{\"n\": 12}\n{\"n\": 7}\n{}\n{\"n\": 30}\n"),
        text(folder.path(), "n.csv", "n,m\n12,0\n7,0\n,0\n30,0\n"),
        text(folder.path(), "n.parquet", writer.finish().unwrap()),
    ] {
        let column = Some("n".to_owned());
        let set = open(&Source::Text(Box::new(TextOptions { column, ..options(path, Choice::Bytes, 4) }))).unwrap();
        let [(_, _, fields)] = &batches(&set.train, 1, false)[..] else { panic!("one sample") };
        assert_eq!(fields[1].iter().map(|byte| *byte as u8).collect::<Vec<_>>(), b"2730");
    }
}

#[test]
fn columns_that_cannot_be_read_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, content: &[u8]| text(folder.path(), name, content);
    let several = put("several.jsonl", b"{\"title\": \"a\", \"text\": \"b\", \"n\": 1, \"tags\": []}\n");
    let lists = put("lists.jsonl", b"{\"text\": \"ab\"}\n{\"text\": [\"ab\"]}\n");
    for (path, column, part) in [
        (
            &several,
            None,
            "several.jsonl`: it has several columns of texts, `title`, `text`: `column` says which is read",
        ),
        (
            &several,
            Some("txt"),
            "several.jsonl`: `column` names a column `txt`, which the table does not have; did you mean `text`? Its columns are `title`, `text`, `n`, `tags`",
        ),
        (&several, Some("tags"), "several.jsonl`, line 1: `tags` is a list, and no text"),
        (&lists, Some("text"), "lists.jsonl`, line 2: `text` is a list, and no text"),
        (&lists, None, "it has no column of texts: `column` names another one, of `text`"),
        (&put("empty.jsonl", b"{\"n\": 1, \"text\": \"\"}\n"), Some("text"), "no row has one in the column `text`"),
        (&put("latin.jsonl", b"{\"text\": \"\xe9\"}\n"), Some("text"), "UTF-8"),
        (&put("broken.jsonl", b"{\"text\": \"a\"}\n{\"text\": \n"), None, "broken.jsonl`, line 2"),
        (&put("latin.csv", b"text\n\xe9\n"), Some("text"), "UTF-8"),
        (&folder.path().to_owned(), Some("text"), "it is a folder, and `column` is of tables"),
        (&folder.path().join("none.jsonl"), None, "none.jsonl"),
        (&folder.path().join("none.csv"), Some("text"), "none.csv"),
    ] {
        let column = column.map(str::to_owned);
        let message = refused(TextOptions { column, ..options(path.clone(), Choice::Characters, 2) });
        assert!(message.contains(part), "{part} is not in {message}");
    }
    put("text.txt", b"ab");
    let message = refused(options(folder.path().join("{several.jsonl,text.txt}"), Choice::Bytes, 2));
    assert!(
        message.contains("several.jsonl` is a table, and other files of") && message.contains("`*.jsonl`"),
        "{message}"
    );
    // The error for a character that training has not seen names its row.
    let val_path = Some(put("val.csv", b"n,text\n1,abab\n2,\"a\nbcb\"\n"));
    for apart in [None, Some(ApartOptions { lengths: vec![2], ignore_index: -100 })] {
        let path = put("train.csv", b"n,text\n1,abababa\n1,abababa\n");
        let (column, val_path) = (Some("text".to_owned()), val_path.clone());
        let message = refused(TextOptions { column, val_path, apart, ..options(path, Choice::Characters, 2) });
        assert!(message.contains("val.csv`, line 3, line 1 of the text, column 2: the character '\\n'"), "{message}");
    }
}
