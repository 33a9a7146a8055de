//! The guide: the messages that it explains are those of the program, and the book has all pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::markdown::{document, manual, pages};

/// The text of the program's files with `…` in the place of what a message is filled with, each message on one line, and
/// without the backticks that messages have around names.
fn messages() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    let mut folders: Vec<PathBuf> = vec![root.join("src")];
    folders.extend(["core", "cpu", "engine"].map(|package| root.join("crates").join(package).join("src")));
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                folders.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                let file = std::fs::read_to_string(&path).unwrap();
                let (program, _) = file.split_once("#[cfg(test)]\nmod tests").unwrap_or((&file, ""));
                text += &filled(program);
            }
        }
    }
    text
}

/// A program's text with `…` for what stands in braces, and strings that go on over lines on one.
fn filled(program: &str) -> String {
    let mut joined = String::new();
    for line in program.lines() {
        match line.strip_suffix('\\') {
            Some(begun) if joined.ends_with("\\\n") => {
                joined.truncate(joined.len() - 2);
                joined.extend([begun.trim_start(), "\\\n"]);
            }
            Some(begun) => joined.extend([begun, "\\\n"]),
            None if joined.ends_with("\\\n") => {
                joined.truncate(joined.len() - 2);
                joined.extend([line.trim_start(), "\n"]);
            }
            None => joined.extend([line, "\n"]),
        }
    }
    let mut filled = String::new();
    let mut rest = joined.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        filled += before;
        match after.split_once('}') {
            Some((inside, behind)) if !inside.contains(['\n', '{', '"']) => {
                filled.push('…');
                rest = behind;
            }
            _ => {
                filled.push('{');
                rest = after;
            }
        }
    }
    (filled + rest).replace("\\\"", "\"").replace('`', "").replace("……", "…")
}

/// What is said of a word that is no type, with `…` in the place of names: its text is put together from parts.
fn unknown_type() -> String {
    let text = "[optimizer]\ntype = \"adamm\"\n";
    let failure = runner::config::load_str("test.toml", text, &[]).unwrap_err().to_string();
    failure.split('`').enumerate().map(|(i, part)| if i % 2 == 0 { part } else { "…" }).collect()
}

/// Every message that the page has as a heading is one of the program's.
#[test]
fn explained_messages_exist() {
    let page = document("docs/guide/troubleshooting.md");
    let messages = messages() + &unknown_type();
    let headings: Vec<&str> = page.prose.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert!(headings.len() >= 20, "only {} messages are explained", headings.len());
    let message = |heading: &&str| heading.trim_matches('`').trim_matches(['…', ' ', ',', ':', ';']).to_owned();
    let missing: Vec<String> = headings.iter().map(message).filter(|message| !messages.contains(message)).collect();
    assert!(missing.is_empty(), "the program has no such messages: {missing:#?}");
}

/// mdBook makes a book of what SUMMARY.md lists.
#[test]
fn the_book_has_all_pages() {
    let summary = document("docs/SUMMARY.md");
    let listed: BTreeSet<&str> =
        summary.prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect();
    for page in manual() {
        let Ok(path) = page.path.strip_prefix("docs") else { continue };
        let path = path.to_str().unwrap();
        assert!(path == "SUMMARY.md" || listed.contains(path), "docs/SUMMARY.md does not list `{path}`");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let book: toml::Table = toml::from_str(&std::fs::read_to_string(root.join("book.toml")).unwrap()).unwrap();
    let source = book["book"]["src"].as_str().unwrap();
    assert!(root.join(source).join("SUMMARY.md").is_file(), "docs/book.toml names another folder");
}

/// Sentences on the pages have a subject that one can point at.
#[test]
fn the_pages_are_plain() {
    let vague = ["nobody", "whoever", "is told", "are told", "rule of thumb"];
    let mut pages: Vec<_> = pages();
    pages.extend(manual().into_iter().filter(|page| page.path.starts_with("docs/guide")));
    pages.extend(["docs/config.md", "ARCHITECTURE.md"].map(document));
    for page in pages {
        for line in page.prose.lines() {
            let lower = line.to_lowercase();
            let found = vague.iter().find(|words| lower.contains(*words));
            assert!(found.is_none(), "{}: `{}` in: {line}", page.path.display(), found.unwrap());
        }
    }
}

#[test]
fn messages_are_found() {
    let program = "bail!(\"`{}` has {count} of \\\n     them: \\\"x\\\"\")\nfn f() {\n}\n";
    assert_eq!(filled(program), "bail!(\"… has … of them: \"x\"\")\nfn f() {\n}\n");
}
