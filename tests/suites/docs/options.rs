//! The tables of the manual. Those of docs/config/ are made from what options declare. Between `<!-- options: NAME -->` and `<!-- end -->` stands what
//! this makes; `UPDATE_DOCS=1 cargo test --test docs` renews it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner::config::schema::reference::{Described, Table, tables};

use crate::markdown::pages;

/// All tables by name, as they stand between their markers.
pub fn written() -> BTreeMap<String, String> {
    tables().into_iter().map(|table| (table.name.clone(), text(&table))).collect()
}

/// A table in Markdown: kinds, each followed by its own options, or options alone.
fn text(table: &Table) -> String {
    if table.name == "lints" {
        let rows = table.entries.iter().map(|lint| format!("| `{}` | {} |\n", lint.words[0], lint.about));
        return format!("| lint | tells |\n| --- | --- |\n{}", rows.collect::<String>());
    }
    let tag = table.kind.map(|kind| if kind == "source" { "source" } else { "type" });
    let mut text = head(tag, table.resumed);
    for entry in &table.entries {
        if tag.is_some() {
            let mut cells =
                vec![format!("`{}`", entry.words.join("`, `")), String::new(), String::new(), String::new()];
            cells.extend(table.resumed.then(|| entry.resume.to_owned()));
            cells.push(cell(&entry.about));
            text += &line(cells);
        }
        for option in &entry.options {
            let first = tag.map(|_| String::new());
            text += &line(first.into_iter().chain(row(option, table.resumed)).collect());
        }
    }
    text
}

fn row(option: &Described, resumed: bool) -> Vec<String> {
    let mut cells = vec![format!("`{}`", option.key), cell(&option.values), cell(&option.default)];
    cells.extend(resumed.then(|| option.resume.to_owned()));
    cells.push(cell(&option.about));
    cells
}

fn head(first: Option<&str>, resumed: bool) -> String {
    let names = first.into_iter().chain(["key", "values", "default"]);
    let names: Vec<&str> = names.chain(resumed.then_some("on resume")).chain(["meaning"]).collect();
    line(names.iter().map(|name| (*name).to_owned()).collect()) + &line(vec!["---".to_owned(); names.len()])
}

/// A row of a table.
fn line(cells: Vec<String>) -> String {
    let cells: Vec<String> =
        cells.iter().map(|cell| if cell.is_empty() { " ".into() } else { format!(" {cell} ") }).collect();
    format!("|{}|\n", cells.join("|"))
}

/// Paragraphs of a comment within a row.
fn cell(text: &str) -> String {
    text.replace("\n\n", " ").replace('|', "\\|")
}

/// The document with every table made anew, and the names of those that it has.
fn renewed(text: &str, tables: &BTreeMap<String, String>) -> (String, Vec<String>) {
    let (mut out, mut names) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!-- options: ") {
        let (name, after) = after.split_once(" -->\n").expect("a marker ends with its line");
        let (_, after) = after.split_once("<!-- end -->").unwrap_or_else(|| panic!("`{name}` has no end"));
        // Several types of layers share a table.
        let all: Vec<String> = match name.strip_prefix("layers ") {
            Some(words) => words.split(' ').map(|word| format!("layers {word}")).collect(),
            None => vec![name.to_owned()],
        };
        let mut table = String::new();
        for one in &all {
            let made = tables.get(one).unwrap_or_else(|| panic!("there is no table `{one}`"));
            let rows = made.lines().skip(if table.is_empty() { 0 } else { 2 });
            table.extend(rows.map(|row| format!("{row}\n")));
        }
        out += &format!("{before}<!-- options: {name} -->\n{table}<!-- end -->");
        names.extend(all);
        rest = after;
    }
    (out + rest, names)
}

/// The tables of some documents are as they are made now, and each of them is there once. With `UPDATE_DOCS` they are
/// written instead.
pub fn hold_fresh(documents: &[PathBuf], tables: &BTreeMap<String, String>) {
    let mut all = Vec::new();
    for document in documents {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
        let text = std::fs::read_to_string(&path).unwrap();
        let (fresh, names) = renewed(&text, tables);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &fresh).unwrap();
        } else {
            let name = document.display();
            assert!(fresh == text, "the tables of {name} are out of date: run this test with UPDATE_DOCS=1");
        }
        all.extend(names);
    }
    all.sort();
    assert_eq!(all, tables.keys().cloned().collect::<Vec<_>>(), "every table has one place in {documents:?}");
}

#[test]
fn the_tables_of_options_are_fresh() {
    let pages = pages().into_iter().map(|page| page.path).filter(|path| !path.ends_with(crate::keys::PAGE));
    hold_fresh(&pages.collect::<Vec<_>>(), &written());
}

#[test]
fn tables_are_put_between_their_markers() {
    let tables = BTreeMap::from([
        ("a".to_owned(), "| h |\n| - |\n| 1 |\n".to_owned()),
        ("layers b".into(), "| h |\n| - |\n| 2 |\n".into()),
    ]);
    let text = "x\n<!-- options: a -->\nold\n<!-- end -->\ny\n<!-- options: layers b b -->\n<!-- end -->\n";
    let (fresh, names) = renewed(text, &tables);
    let expected = "x\n<!-- options: a -->\n| h |\n| - |\n| 1 |\n<!-- end -->\ny\n<!-- options: layers b b -->\n| h |\n| - |\n| 2 |\n| 2 |\n<!-- end -->\n";
    assert_eq!((fresh.as_str(), names.len()), (expected, 3));
    assert_eq!(renewed(&fresh, &tables).0, fresh);
}
