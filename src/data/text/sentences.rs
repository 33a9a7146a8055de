//! Sentences whose words have tags, in files: CoNLL's columns, a word a line and an empty line between sentences, or a JSON object for each sentence.

use super::super::sheet::{OBJECT_ENDINGS, Row, file_text, inner_ending};
use super::super::table::{Format, open_sheet};
use super::given::each_line;
use crate::terminal::counted;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

/// Most bytes of a file.
const MOST: u64 = 1 << 34;
/// What the names of files end in that have a word a line.
const COLUMN_ENDINGS: [&str; 6] = ["conll", "conllu", "bio", "iob", "iob2", "bioes"];
/// What CoNLL-2003 has between documents.
const DOCUMENT: &str = "-DOCSTART-";

/// Where words and tags stand in files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The key of the words in an object.
    pub words: String,
    /// The key of their tags.
    pub tags: String,
    /// The column of the word, from 1.
    pub word_column: usize,
    /// The column of the tag; `None`: the last.
    pub tag_column: Option<usize>,
}

/// A sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// Its words.
    pub words: Vec<String>,
    /// Their tags, one for each; none where they are not known.
    pub tags: Vec<String>,
    /// Where it begins: the line in its file, from 1.
    pub line: u32,
    /// The line of each word, where each has its own.
    pub lines: Vec<u32>,
}

impl Sentence {
    /// The words of a line, with spaces between them, at line number `line`.
    pub fn of_line(text: &str, line: u32) -> Sentence {
        Sentence {
            words: text.split_whitespace().map(str::to_owned).collect(),
            tags: Vec::new(),
            line,
            lines: Vec::new(),
        }
    }

    /// Where a word is, for a message: its line, and its number where the whole sentence is there.
    pub fn place_of(&self, word: usize) -> String {
        match self.lines.get(word) {
            Some(line) => format!("line {line}"),
            None => format!("line {}, word {}", self.line, word + 1),
        }
    }
}

/// Whether a file has an object for each sentence, by its name.
fn has_objects(path: &Path) -> bool {
    OBJECT_ENDINGS.contains(&inner_ending(path).as_str())
}

/// The sentences of a file with their tags. Those without words are left out.
///
/// # Errors
/// It cannot be read; a line lacks a column, or an object a key; there are more words than tags, or fewer.
pub fn read_tagged(path: &Path, layout: &Layout) -> Result<Vec<Sentence>> {
    let sentences = if has_objects(path) { of_objects(path, layout, true)? } else { of_columns(path, layout, true)? };
    ensure!(!sentences.is_empty(), "`{}` has no words with tags", path.display());
    Ok(sentences)
}

/// The words of the sentences in a file, without their tags. A file of objects has a list of words in each. A file whose name ends as
/// [`COLUMN_ENDINGS`] do has them in a column. Any other file, and standard input (`-`), has a sentence on each line.
///
/// # Errors
/// It cannot be read.
pub fn read_untagged(path: &Path, layout: &Layout) -> Result<Vec<Sentence>> {
    let sentences = if has_objects(path) {
        of_objects(path, layout, false)?
    } else if COLUMN_ENDINGS.contains(&inner_ending(path).as_str()) {
        of_columns(path, layout, false)?
    } else {
        let mut lines = Vec::new();
        each_line(path, |line, text| {
            lines.push(Sentence::of_line(text, line));
            Ok(())
        })?;
        lines
    };
    ensure!(!sentences.is_empty(), "`{}` has no texts", path.display());
    Ok(sentences)
}

fn of_columns(path: &Path, layout: &Layout, tagged: bool) -> Result<Vec<Sentence>> {
    let text = file_text(path, MOST)?;
    // Where there are tabs, words may have spaces in them.
    let tabs = text.contains('\t');
    let mut all = Vec::new();
    let empty_at = |line| Sentence { words: Vec::new(), tags: Vec::new(), line, lines: Vec::new() };
    let mut one = empty_at(1);
    // The columns of the first line with a word, and where it is.
    let mut first = None;
    for (number, line) in (1..).zip(text.lines()) {
        let cells: Vec<&str> = match tabs {
            true => line.split('\t').map(str::trim).collect(),
            false => line.split_whitespace().collect(),
        };
        let empty = cells.iter().all(|cell| cell.is_empty());
        // Such a line in a file with tabs is a remark of CoNLL-U.
        let remark = tabs && line.starts_with('#') && cells.len() == 1;
        if empty || remark || cells.first() == Some(&DOCUMENT) {
            if !one.words.is_empty() && !remark {
                all.push(std::mem::replace(&mut one, empty_at(number)));
            }
            continue;
        }
        if one.words.is_empty() {
            one.line = number;
        }
        let cell = |column: usize, what: &str| match cells.get(column - 1) {
            Some(cell) if !cell.is_empty() => Ok((*cell).to_owned()),
            _ => bail!(
                "`{}`, line {number} has no {what} in column {column}: it has {}; \
                 an empty line ends a sentence, and `word_column` and `tag_column` say where words and tags stand",
                path.display(),
                counted(cells.len(), "column")
            ),
        };
        one.words.push(cell(layout.word_column, "word")?);
        one.lines.push(number);
        if tagged {
            let column = layout.tag_column.unwrap_or(cells.len());
            ensure!(
                column != layout.word_column,
                "`{}`, line {number} has a word and no tag: it has {}",
                path.display(),
                counted(cells.len(), "column")
            );
            // What is last in a line that lacks a column is no tag.
            let (columns, at) = *first.get_or_insert((cells.len(), number));
            ensure!(
                layout.tag_column.is_some() || cells.len() == columns,
                "`{}`, line {number} has {}, and line {at} has {columns}: `tag_column` says which one has the tag",
                path.display(),
                counted(cells.len(), "column")
            );
            one.tags.push(cell(column, "tag")?);
        }
    }
    all.extend((!one.words.is_empty()).then_some(one));
    Ok(all)
}

fn of_objects(path: &Path, layout: &Layout, tagged: bool) -> Result<Vec<Sentence>> {
    let sheet = open_sheet(path, Format::default())?;
    let mut all = Vec::new();
    sheet.each(|place, row| {
        let line = place.line;
        let Row::Object(object) = row else { bail!("`{}` has no objects", path.display()) };
        let list = |key: &str| list(object, key).with_context(|| format!("`{}`, line {line}", path.display()));
        let words = list(&layout.words)?;
        let tags = if tagged { list(&layout.tags)? } else { Vec::new() };
        ensure!(
            !tagged || words.len() == tags.len(),
            "`{}`, line {line} has {} in `{}` and {} in `{}`: each word has one tag",
            path.display(),
            counted(words.len(), "word"),
            layout.words,
            counted(tags.len(), "tag"),
            layout.tags
        );
        // What is asked has an answer and a number, also without words.
        if !words.is_empty() || !tagged {
            all.push(Sentence { words, tags, line: line as u32, lines: Vec::new() });
        }
        Ok(())
    })?;
    Ok(all)
}

/// A list of texts, or of numbers.
fn list(object: &Map<String, Value>, key: &str) -> Result<Vec<String>> {
    let value = object.get(key).with_context(|| {
        let keys: Vec<String> = object.keys().map(|key| format!("`{key}`")).collect();
        format!("there is no `{key}`; the object has {}", keys.join(", "))
    })?;
    let one = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let all = value.as_array().and_then(|list| list.iter().map(one).collect::<Option<Vec<_>>>());
    all.with_context(|| format!("`{key}` is no list of texts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(tag_column: Option<usize>) -> Layout {
        Layout { words: "tokens".into(), tags: "ner".into(), word_column: 1, tag_column }
    }

    fn sentences(name: &str, text: &str, layout: &Layout) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let read = read_tagged(&path, layout).map_err(|error| format!("{error:#}"))?;
        let in_words = |one: &Sentence| format!("{} {} @{}", one.words.join("_"), one.tags.join("_"), one.line);
        Ok(read.iter().map(in_words).collect())
    }

    #[test]
    #[cfg_attr(miri, ignore = "writes files")]
    fn columns_are_read() {
        let all =
            sentences("a.txt", "-DOCSTART- -X- O\n\nNew NNP B-LOC\nYork NNP I-LOC\n\n\nis VBZ O\n", &layout(None));
        assert_eq!(all.unwrap(), ["New_York B-LOC_I-LOC @3", "is O @7"]);
        let all = sentences("a.txt", "New NNP B-LOC\r\nYork NNP I-LOC\r\n", &layout(Some(2)));
        assert_eq!(all.unwrap(), ["New_York NNP_NNP @1"]);
        // CoNLL-U: remarks, and words with spaces in them.
        let all = sentences("a.conllu", "# text = x\nNew York\tPROPN\n\n# y\nis\tAUX\n#\tSYM\n", &layout(None));
        assert_eq!(all.unwrap(), ["New York PROPN @2", "is_# AUX_SYM @5"]);
        for (text, part) in [
            ("New\n", "line 1 has a word and no tag: it has 1 column"),
            ("New B\n\nYork\n", "line 3 has a word and no tag"),
            ("New NNP B-LOC\nYork NNP\n", "line 2 has 2 columns, and line 1 has 3: `tag_column` says"),
            ("\n\n", "has no words with tags"),
        ] {
            let message = sentences("a.txt", text, &layout(None)).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
        let error = sentences("a.txt", "New B-LOC\n", &layout(Some(3))).unwrap_err();
        assert!(error.contains("line 1 has no tag in column 3: it has 2 columns"), "{error}");
        let error = sentences("a.txt", "\tB-LOC\n", &layout(None)).unwrap_err();
        assert!(error.contains("line 1 has no word in column 1"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "writes files")]
    fn objects_are_read() {
        let all = sentences(
            "a.jsonl",
            "{\"tokens\": [\"New\", \"York\"], \"ner\": [1, 2]}\n{\"tokens\": [], \"ner\": []}\n",
            &layout(None),
        );
        assert_eq!(all.unwrap(), ["New_York 1_2 @1"]);
        for (text, part) in [
            (
                "{\"tokens\": [\"a\"], \"ner\": []}",
                "line 1 has 1 word in `tokens` and 0 tags in `ner`: each word has one tag",
            ),
            ("{\"tokens\": [\"a\"]}", "line 1: there is no `ner`; the object has `tokens`"),
            ("{\"tokens\": \"a\", \"ner\": []}", "line 1: `tokens` is no list of texts"),
            ("{\"tokens\": [[\"a\"]], \"ner\": []}", "`tokens` is no list of texts"),
        ] {
            let message = sentences("a.jsonl", text, &layout(None)).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }

    /// `encoding` is a key of tables alone.
    #[test]
    fn errors_of_bytes_that_are_no_utf8_name_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        for (name, part) in [("a.conll", "iconv"), ("a.jsonl", "iconv"), ("a.csv", "`encoding`")] {
            let path = folder.path().join(name);
            std::fs::write(&path, b"caf\xff B\n").unwrap();
            let error = match name {
                "a.csv" => file_of_cells(&path),
                _ => read_tagged(&path, &layout(None)).unwrap_err(),
            };
            let message = format!("{error:#}");
            assert!(message.contains("line 1: the byte 0xff is not UTF-8") && message.contains(part), "{message}");
            assert_eq!(message.contains("encoding"), name == "a.csv", "{message}");
        }
    }

    fn file_of_cells(path: &Path) -> anyhow::Error {
        open_sheet(path, Format::default()).and_then(|sheet| sheet.each(|_, _| Ok(()))).unwrap_err()
    }
}
