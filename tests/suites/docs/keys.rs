//! The index of all names of the language: the page and the heading whose table has each.

use std::collections::BTreeMap;

use crate::links::anchor;
use crate::markdown::{Document, document, pages};
use crate::options::{Tables, hold_fresh};

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

/// What a type in a table of that name is.
fn kind(table: &str) -> &'static str {
    match table.split(' ').next().unwrap_or(table) {
        "data" => "source",
        "layers" | "containers" => "layer",
        "transforms" => "transform",
        "loss" => "loss",
        "optimizer" => "optimizer",
        "schedule" => "schedule",
        "model" => "start of parameters",
        "lints" => "warning",
        other => panic!("what is a type in `{other}`?"),
    }
}

/// The words between backticks.
fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// All names in a table: each with what it is, and of which types it is a key.
fn names(table: &str, text: &str) -> Vec<(String, String)> {
    let mut names = Vec::new();
    let mut of = String::new();
    let head = text.lines().next().expect("a head");
    let with_types = ["| type", "| source", "| lint"].iter().any(|start| head.starts_with(start));
    for row in text.lines().skip(2) {
        let mut cells = row.trim_matches('|').split(" | ");
        let first = cells.next().unwrap_or_default().trim();
        if !with_types {
            names.extend(spans(first).map(|key| (key.to_owned(), "key".to_owned())));
        } else if !first.is_empty() {
            first.clone_into(&mut of);
            names.extend(spans(first).map(|word| (word.to_owned(), kind(table).to_owned())));
        } else {
            let key = cells.next().unwrap_or_default();
            names.extend(spans(key).map(|key| (key.to_owned(), format!("key of {of}"))));
        }
    }
    names
}

/// The index: a row for each name, with what it is by the place where it is described.
fn index() -> String {
    let tables = Tables::new().tables;
    let mut rows: BTreeMap<String, Vec<(String, Vec<String>)>> = BTreeMap::new();
    for page in pages() {
        for (table, link) in places(&page) {
            let Some(text) = tables.get(&table) else { continue };
            for (name, what) in names(&table, text) {
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
    let types = "| type | key |\n| --- | --- |\n| `a`, `b` | | |\n| | `c` | x |\n";
    let told = |table, text| names(table, text).into_iter().map(|(name, what)| name + ": " + &what).collect::<Vec<_>>();
    assert_eq!(told("loss types", types), ["a: loss", "b: loss", "c: key of `a`, `b`"]);
    assert_eq!(told("train", "| key | values |\n| --- | --- |\n| `c` | x |\n"), ["c: key"]);
    let of = ["key of `a`", "key of `b`", "key of `c`", "key of `d`", "key of `e`"].map(str::to_owned).to_vec();
    assert_eq!(joined(of), "key of `a`, `b` and 3 others:");
}
