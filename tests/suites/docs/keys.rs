//! The index of all names of the language: the page and the heading whose table has each.

use std::collections::BTreeMap;

use runner::config::schema::reference::{self, Described, Entry, Table};

use crate::links::anchor;
use crate::markdown::{Document, document, pages};
use crate::options::hold_fresh;

/// The page of the index, below the folder of pages.
pub const PAGE: &str = "keys.md";

/// Where the tables of a page stand: under which heading, by the names of tables.
fn places(page: &Document) -> Vec<(String, String)> {
    let file = page.path.file_name().unwrap().to_str().unwrap();
    let (mut title, mut link) = (String::new(), String::new());
    let mut places = Vec::new();
    for line in page.prose.lines() {
        if let Some(heading) = line.strip_prefix("# ") {
            (title, link) = (heading.to_owned(), format!("[{heading}]({file})"));
        } else if line.starts_with("##") {
            let heading = line.trim_start_matches('#').trim();
            link = format!("[{title}: {heading}]({file}#{})", anchor(heading));
        } else if let Some(name) = line.strip_prefix("<!-- options: ").and_then(|rest| rest.strip_suffix(" -->")) {
            let names: Vec<String> = match name.strip_prefix("layers ") {
                Some(words) => words.split(' ').map(|word| format!("layers {word}")).collect(),
                None => vec![name.to_owned()],
            };
            places.extend(names.into_iter().map(|name| (name, link.clone())));
        }
    }
    places
}

/// All names in a table: each with what it is, and of which types it is a key.
fn names(table: &Table) -> Vec<(&'static str, String)> {
    let mut names = Vec::new();
    for entry in &table.entries {
        names.extend(entry.words.iter().map(|word| (*word, table.kind.expect("has types").to_owned())));
        let of = match &entry.words[..] {
            [] => "key".to_owned(),
            words => format!("key of `{}`", words.join("`, `")),
        };
        names.extend(entry.options.iter().map(|option| (option.key, of.clone())));
    }
    names
}

/// The index: a row for each name, with what it is by the place where it is described.
fn index() -> String {
    let tables = reference::tables();
    let mut rows: BTreeMap<&str, Vec<(String, Vec<String>)>> = BTreeMap::new();
    for page in pages() {
        for (name, link) in places(&page) {
            let Some(table) = tables.iter().find(|table| table.name == name) else { continue };
            for (name, what) in names(table) {
                let row = rows.entry(name).or_default();
                match row.iter_mut().find(|(known, _)| *known == link) {
                    Some((_, all)) => all.extend((!all.contains(&what)).then_some(what)),
                    None => row.push((link.clone(), vec![what])),
                }
            }
        }
    }
    let rows: String = rows
        .into_iter()
        .map(|(name, places)| {
            let places: Vec<String> =
                places.into_iter().map(|(link, what)| format!("{} {link}", joined(what))).collect();
            format!("| `{name}` | {} |\n", places.join("<br>"))
        })
        .collect();
    format!("| name | where |\n| --- | --- |\n{rows}")
}

/// `key of a, b and 3 others`: what a name is at one place.
fn joined(what: Vec<String>) -> String {
    let of: Vec<&str> = what.iter().filter_map(|what| what.strip_prefix("key of ")).collect();
    let mut all: Vec<String> = what.iter().filter(|what| !what.starts_with("key of ")).cloned().collect();
    match of.len() {
        0 => {}
        1..5 => all.push(format!("key of {}", of.join(", "))),
        more => all.push(format!("key of {}, {} and {} others", of[0], of[1], more - 2)),
    }
    all.join(", ") + ":"
}

#[test]
fn the_index_of_names_is_fresh() {
    let path = std::path::Path::new(crate::markdown::PAGES).join(PAGE);
    hold_fresh(&[path], &BTreeMap::from([("index".to_owned(), index())]));
}

/// `runner docs` names the page that has a table.
#[test]
fn the_program_knows_the_pages() {
    for page in pages() {
        for (table, _) in places(&page) {
            let named = std::path::Path::new(crate::markdown::PAGES).join(reference::page(&table));
            assert!(table == "index" || named == page.path, "the page of `{table}` is {}", page.path.display());
        }
    }
}

/// The index has every page, so that two steps lead to any key.
#[test]
fn the_first_page_leads_to_all_others() {
    let first = document("docs/config.md");
    for page in pages() {
        let link = format!("](config/{})", page.path.file_name().unwrap().to_str().unwrap());
        assert!(first.prose.contains(&link), "docs/config.md has no link `{link}`");
    }
}

#[test]
fn names_are_found_in_tables() {
    let option = Described {
        key: "c",
        values: String::new(),
        default: String::new(),
        resume: "yes",
        about: String::new(),
        example: String::new(),
    };
    let table = |kind, words: &[&'static str]| {
        let entry = Entry { words: words.to_vec(), about: String::new(), resume: "", options: vec![option.clone()] };
        Table { name: "x".into(), kind, resumed: false, entries: vec![entry] }
    };
    let lines = |table| names(&table).into_iter().map(|(name, what)| format!("{name}: {what}")).collect::<Vec<_>>();
    assert_eq!(lines(table(Some("loss"), &["a", "b"])), ["a: loss", "b: loss", "c: key of `a`, `b`"]);
    assert_eq!(lines(table(None, &[])), ["c: key"]);
    let of = ["key of `a`", "key of `b`", "key of `c`", "key of `d`", "key of `e`"].map(str::to_owned).to_vec();
    assert_eq!(joined(of), "key of `a`, `b` and 3 others:");
}
