//! Links within the repository.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::markdown::{Document, all, document};

#[test]
fn relative_links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for document in all() {
        for target in targets(&document.prose) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => document.path.clone(),
                _ => document.path.parent().unwrap().join(file),
            };
            assert!(root.join(&path).exists(), "{}: `{target}` leads nowhere", document.path.display());
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(root.join(&path)).unwrap();
                let known = anchors(&text);
                assert!(known.contains(anchor), "{}: `{target}`: no such heading", document.path.display());
            }
        }
    }
    assert!(seen > 5, "only {seen} links were found");
}

/// mdBook copies the folder `docs` alone. Pages name other files of the repository as code, with their path from its root.
#[test]
fn the_book_links_to_its_own_files() {
    let mut leave = Vec::new();
    for page in all().iter().filter(|page| page.path.starts_with("docs")) {
        let folder = page.path.parent().unwrap();
        let out = targets(&page.prose).into_iter().filter(|target| !target.contains("://") && leaves(folder, target));
        leave.extend(out.map(|target| format!("{}: `{target}`", page.path.display())));
    }
    assert!(leave.is_empty(), "links leave the book; name the files as `code`: {leave:#?}");
}

/// Whether a link of a page in a folder of the book leads out of it.
fn leaves(folder: &Path, target: &str) -> bool {
    let depth = folder.components().count();
    let ups = target.split('/').take_while(|part| *part == "..").count();
    ups >= depth
}

/// Files and folders that are named in words, too; of `ops/<family>.rs` the folder.
#[test]
fn named_files_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "src/", "crates/", "kernels/", "tests/", "benches/", "scripts/", "docs/", "configs/", "models/", "fuzz/",
        ".ci/",
    ];
    let mut seen = 0;
    for document in all() {
        let spans = document.prose.split('`').skip(1).step_by(2);
        for name in spans.filter(|span| !span.contains(' ') && folders.iter().any(|folder| span.starts_with(folder))) {
            let fixed: PathBuf = name.split('/').take_while(|part| !part.contains(['<', '*'])).collect();
            seen += 1;
            assert!(root.join(fixed).exists(), "{}: there is no `{name}`", document.path.display());
        }
    }
    assert!(seen > 50, "only {seen} were found");
}

/// ARCHITECTURE.md also names files by the end of their paths (`lower/elementwise.rs`), and is to be read in one sitting.
#[test]
fn the_paths_of_the_architecture_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["src", "crates", "kernels", "tests", "docs", "scripts"].map(PathBuf::from).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root.join(&path).is_dir() && !path.ends_with("target") {
                folders.push(path.clone());
            }
            paths.push(path);
        }
    }
    let document = document("ARCHITECTURE.md");
    let is_path =
        |span: &&str| !span.contains(' ') && (span.contains('/') || span.ends_with(".rs") || span.ends_with(".cu"));
    let mut seen = 0;
    for name in document.spans().into_iter().filter(is_path) {
        let fixed: PathBuf = name.split('/').take_while(|part| !part.contains(['<', '*'])).collect();
        seen += 1;
        let found = paths.iter().any(|path| path.ends_with(&fixed) || path.with_extension("").ends_with(&fixed));
        assert!(found || root.join(&fixed).exists(), "ARCHITECTURE.md: there is no `{name}`");
    }
    assert!(seen > 100, "only {seen} paths were found");
    let lines = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap().lines().count();
    assert!(lines < 250, "ARCHITECTURE.md has {lines} lines");
}

#[test]
fn the_examples_name_their_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["configs", "models"].map(|folder| root.join(folder)) {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let schema = text.lines().next().and_then(|line| line.strip_prefix("#:schema "));
            let schema = schema.unwrap_or_else(|| panic!("{}: the first line is no `#:schema`", path.display()));
            assert!(folder.join(schema).is_file(), "{}: `{schema}` leads nowhere", path.display());
        }
    }
}

/// What stands in the parentheses of `[text](target)`.
fn targets(prose: &str) -> Vec<&str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> HashSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings.map(anchor).collect()
}

/// That of one heading.
pub fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

#[test]
fn links_are_found() {
    assert_eq!(targets("a [b](c.md) d [e](#f-g) h"), ["c.md", "#f-g"]);
    assert!(leaves(Path::new("docs"), "../models/x.toml") && leaves(Path::new("docs/guide"), "../../data"));
    assert!(!leaves(Path::new("docs"), "guide/x.md") && !leaves(Path::new("docs/guide"), "../x.md#y"));
    assert!(anchors("# A `b`, c\ntext\n").contains("a-b-c"));
    let document = Document { path: "x".into(), blocks: Vec::new(), prose: "a `b` c `d e`\n`f`".into() };
    assert_eq!(document.spans(), ["b", "d e", "f"]);
}
