//! What each system lacks: code that is for some systems alone stands in a table of `CONTRIBUTING.md`, which says what the others do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::source::{below, is_test, root, without_tests};

/// The heading of the table.
const HEADING: &str = "## What each system has of its own";

/// What becomes of the other systems. Of what is missing a user may see something.
const KINDS: [&str; 3] = ["other form", "missing", "no need"];

/// What the code of a file asks of the system, and in how many places.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    marks: BTreeSet<String>,
    places: usize,
}

/// The conditions of a text that name a system, and the files that only Linux has.
fn asked(text: &str) -> Asked {
    let mut asked = Asked::default();
    let text = without_tests(text);
    let lines = text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut note = |mark: &str| {
        asked.marks.insert(mark.to_owned());
        asked.places += 1;
    };
    for opening in ["cfg(", "cfg!(", "cfg_attr("] {
        for (at, _) in text.match_indices(opening) {
            let inside = in_brackets(&text[at + opening.len()..]);
            let of_system = ["unix", "windows", "target_os", "target_family"];
            let words = || inside.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            if words().any(|word| of_system.contains(&word)) && !words().any(|word| word == "test") {
                note(&inside.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
    }
    for (mark, shown) in [("consts::OS", "consts::OS"), ("\"/proc", "/proc"), ("\"/sys/", "/sys")] {
        text.match_indices(mark).for_each(|_| note(shown));
    }
    asked
}

/// What stands before the bracket that closes.
fn in_brackets(text: &str) -> &str {
    let mut open = 1;
    let end = text.find(|c| {
        open += i32::from(c == '(') - i32::from(c == ')');
        open == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// The files of the program and of its packages that ask for a system, by their paths from the repository's folder.
fn files() -> BTreeMap<String, Asked> {
    let packages = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let mut found = BTreeMap::new();
    for folder in packages.chain([root().join("src")]) {
        for (inside, text) in below(&folder).into_iter().filter(|(inside, _)| !is_test(inside)) {
            let asked = asked(&text);
            let path = folder.strip_prefix(root()).unwrap().join(inside);
            if asked != Asked::default() {
                found.insert(path.to_str().unwrap().replace('\\', "/"), asked);
            }
        }
    }
    found
}

/// A row of the table: what the file asks, what becomes of the others, and how.
fn row(line: &str) -> Option<(String, Asked, String, String)> {
    let cells: Vec<&str> =
        line.strip_prefix("| `")?.trim_end().trim_end_matches('|').split(" | ").map(str::trim).collect();
    let [file, marks, places, kind, what] = cells[..] else { panic!("a row has five cells: {line}") };
    let marks = marks.split("`, `").map(|mark| mark.trim_matches('`').to_owned()).collect();
    let asked = Asked { marks, places: places.parse().unwrap_or_else(|_| panic!("`{places}` is no number: {line}")) };
    Some((file.trim_matches('`').to_owned(), asked, kind.to_owned(), what.to_owned()))
}

#[test]
fn code_for_some_systems_alone_is_in_the_table() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, section) = text.split_once(HEADING).expect("the section is there");
    let section = section.split("\n## ").next().unwrap();
    let mut listed = BTreeMap::new();
    for (file, asked, kind, what) in section.lines().filter_map(row) {
        assert!(KINDS.contains(&kind.as_str()), "`{file}`: `{kind}` is none of {KINDS:?}");
        assert!(what.split_whitespace().count() > 3, "`{file}`: say what other systems do");
        assert!(listed.insert(file.clone(), asked).is_none(), "`{file}` stands there twice");
    }
    let found = files();
    let mut wrong = Vec::new();
    for (file, asked) in &found {
        let marks = asked.marks.iter().map(|mark| format!("`{mark}`")).collect::<Vec<_>>().join(", ");
        if listed.get(file) != Some(asked) {
            wrong.push(format!("| `{file}` | {marks} | {} | … | … |", asked.places));
        }
    }
    wrong.extend(listed.keys().filter(|file| !found.contains_key(*file)).map(|file| format!("no longer: {file}")));
    assert!(
        wrong.is_empty(),
        "the table in CONTRIBUTING.md, \"{}\", does not say what other systems do here:\n{}",
        HEADING.trim_start_matches("## "),
        wrong.join("\n")
    );
}

#[test]
fn conditions_on_systems_are_found() {
    let of = |text: &str| {
        let asked = asked(text);
        (asked.marks.into_iter().collect::<Vec<_>>().join("; "), asked.places)
    };
    assert_eq!(of("#[cfg(unix)]\nfn a() {}\n#[cfg(not(unix))]\nfn a() {}"), ("not(unix); unix".into(), 2));
    let two =
        "#[cfg(all(target_os = \"linux\",\n    target_env = \"gnu\"))]\nlet x = if cfg!(windows) { 1 } else { 2 };";
    assert_eq!(of(two), ("all(target_os = \"linux\", target_env = \"gnu\"); windows".into(), 2));
    assert_eq!(of("read(\"/proc/meminfo\") + std::env::consts::OS"), ("/proc; consts::OS".into(), 2));
    // Neither another condition, nor a comment, nor tests.
    let none =
        "#[cfg(target_arch = \"x86_64\")]\n// cfg(unix)\n#[cfg(all(test, unix))]\nmod tests {\n    #[cfg(unix)]\n}";
    assert_eq!(of(none), (String::new(), 0));
}
