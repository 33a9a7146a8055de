//! Which modules the files of a package name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::source::{CPU, below, is_test, program, root, without_tests};

/// The modules of the program: those of its packages, as one names the others' as its own.
pub static PROGRAM: LazyLock<Tree> = LazyLock::new(|| Tree::new(program()));

/// Those of the CPU kernels.
pub static KERNELS: LazyLock<Tree> = LazyLock::new(|| Tree::new(below(&root().join(CPU))));

/// The names of a module from the outside in; none for the root.
pub type Module = Vec<String>;

/// The modules of a tree of files, and what names what.
#[derive(Default)]
pub struct Tree {
    files: BTreeMap<Module, File>,
    /// Every naming of a module by another.
    pub edges: Vec<Edge>,
}

#[derive(Default)]
struct File {
    path: PathBuf,
    /// The paths in its code, from the root on, each with its line.
    paths: Vec<(usize, Vec<String>)>,
    /// What a `use` gives another place to.
    uses: BTreeMap<String, Vec<String>>,
    /// The same for all that is in a module.
    globs: Vec<Vec<String>>,
    /// What is defined here.
    items: BTreeSet<String>,
}

/// One module names another.
pub struct Edge {
    /// The one.
    pub from: Module,
    /// The other.
    pub to: Module,
    /// Where.
    pub path: PathBuf,
    /// In which line.
    pub line: usize,
}

impl Tree {
    /// Of files, each with its path below the folder of its package's root.
    pub fn new(files: impl IntoIterator<Item = (PathBuf, String)>) -> Self {
        let mut tree = Self::default();
        let files: Vec<(Module, PathBuf, String)> = files
            .into_iter()
            .filter(|(inside, _)| !is_test(inside))
            .map(|(inside, text)| (module(&inside), inside, text))
            .collect();
        for (module, path, _) in &files {
            tree.files.insert(module.clone(), File { path: path.clone(), ..File::default() });
        }
        for (module, _, text) in &files {
            let file = tree.read(module, text);
            let path = std::mem::take(&mut tree.files.get_mut(module).unwrap().path);
            tree.files.insert(module.clone(), File { path, ..file });
        }
        tree.edges = tree.edges();
        tree
    }

    /// What the text of a module names.
    fn read(&self, module: &Module, text: &str) -> File {
        let text = without_tests(text);
        let words = words(&text);
        let mut file = File::default();
        let mut at = 0;
        while at < words.len() {
            let (line, word) = words[at];
            let defines = ["struct", "enum", "union", "trait", "fn", "type", "const", "static"].contains(&word);
            if let Some((_, name)) = words.get(at + if word == "macro_rules" { 2 } else { 1 })
                && (defines || word == "macro_rules")
            {
                file.items.insert((*name).to_owned());
            }
            if !(is_name(word) && words.get(at + 1).is_some_and(|(_, next)| *next == "::")) {
                at += 1;
                continue;
            }
            let used = at > 0 && words[at - 1].1 == "use";
            let mut found = Vec::new();
            at = read_path(&words, at, Vec::new(), &mut found);
            for (names, alias) in found {
                let Some(whole) = self.absolute(module, &names) else { continue };
                let last = alias.unwrap_or(names[names.len() - 1]);
                match (used, last) {
                    (true, "*") => file.globs.push(whole[..whole.len() - 1].to_vec()),
                    (true, last) => _ = file.uses.insert(last.to_owned(), whole.clone()),
                    (false, _) => {}
                }
                file.paths.push((line, whole));
            }
        }
        file
    }

    /// A path from the root on; nothing if it begins with another package, or with a name that a `use` has brought.
    fn absolute(&self, module: &Module, names: &[&str]) -> Option<Vec<String>> {
        let mut base = module.clone();
        let mut rest = names;
        match names[0] {
            "crate" => (base, rest) = (Vec::new(), &names[1..]),
            "self" => rest = &names[1..],
            "super" => {
                while let ["super", after @ ..] = rest {
                    base.pop();
                    rest = after;
                }
            }
            child => {
                base.push(child.to_owned());
                let is_child = self.files.contains_key(&base);
                base.pop();
                if !is_child {
                    return None;
                }
            }
        }
        base.extend(rest.iter().filter(|name| **name != "self").map(|name| (*name).to_owned()));
        Some(base)
    }

    /// The module that has what a path from the root on leads to, through what modules hand on by `use`.
    fn reach(&self, path: &[String]) -> Module {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let inside = (0..=path.len()).rev().find(|n| self.files.contains_key(&path[..*n])).unwrap_or(0);
            let (module, rest) = path.split_at(inside);
            let (Some(file), Some((name, rest))) = (self.files.get(module), rest.split_first()) else {
                return module.to_vec();
            };
            let globs = || file.globs.iter().find(|glob| self.defines(glob, name));
            let onward = match file.uses.get(name) {
                Some(place) => place.clone(),
                None if file.items.contains(name) => return module.to_vec(),
                None => match globs() {
                    Some(glob) => [glob.as_slice(), std::slice::from_ref(name)].concat(),
                    None => return module.to_vec(),
                },
            };
            path = [onward.as_slice(), rest].concat();
        }
        path
    }

    fn defines(&self, module: &[String], name: &str) -> bool {
        self.files.get(module).is_some_and(|file| file.items.contains(name) || file.uses.contains_key(name))
    }

    fn edges(&self) -> Vec<Edge> {
        let mut edges = Vec::new();
        for (from, file) in &self.files {
            for (line, path) in &file.paths {
                let to = self.reach(path);
                if to != *from {
                    edges.push(Edge { from: from.clone(), to, path: file.path.clone(), line: *line });
                }
            }
        }
        edges
    }

    /// The modules directly inside of one.
    pub fn children(&self, module: &[&str]) -> BTreeSet<&str> {
        let inside =
            self.files.keys().filter(|name| name.len() > module.len() && name.iter().zip(module).all(|(a, b)| a == b));
        inside.map(|name| name[module.len()].as_str()).collect()
    }
}

/// The module that a file is, given its path below the folder of the root.
fn module(inside: &Path) -> Module {
    let mut names: Module = inside.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if names.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        names.pop();
    }
    names
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads a path, with all that it has in braces, into the list; returns where it ends.
fn read_path<'a>(
    words: &[(usize, &'a str)],
    mut at: usize,
    mut names: Vec<&'a str>,
    found: &mut Vec<(Vec<&'a str>, Option<&'a str>)>,
) -> usize {
    let word = |at: usize| words.get(at).map_or("", |(_, word)| *word);
    loop {
        match word(at) {
            "{" => {
                at += 1;
                while !["}", ""].contains(&word(at)) {
                    let before = at;
                    at = read_path(words, at, names.clone(), found);
                    if word(at) == "," || at == before {
                        at += 1;
                    }
                }
                return at + 1;
            }
            name if is_name(name) || name == "*" => names.push(name),
            _ => break,
        }
        at += 1;
        if word(at) != "::" {
            break;
        }
        at += 1;
    }
    let alias = (word(at) == "as").then(|| word(at + 1));
    found.push((names, alias));
    if alias.is_some() { at + 2 } else { at }
}

/// The words and signs of code, each with its line; comments, strings and characters are left out.
fn words(text: &str) -> Vec<(usize, &str)> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    let mut at = 0;
    let mut line = 1;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let find = |end: &str, after: usize| rest[after..].find(end).map_or(rest.len(), |n| after + n + end.len());
        let hashes = rest.strip_prefix('r').map_or(0, |rest| rest.len() - rest.trim_start_matches('#').len());
        let (length, is_word) = match first {
            _ if rest.starts_with("//") => (find("\n", 0), false),
            'r' if rest[1 + hashes..].starts_with('"') => {
                (find(&format!("\"{}", "#".repeat(hashes)), 2 + hashes), false)
            }
            '"' => (1 + quoted(&rest[1..], '"'), false),
            '\'' if rest[1..].starts_with('\\') => (1 + quoted(&rest[1..], '\''), false),
            '\'' if rest.chars().nth(2) == Some('\'') => (find("'", 1), false),
            // A lifetime.
            '\'' => (1 + rest[1..].find(|c| !part(c)).unwrap_or(rest.len() - 1), false),
            _ if rest.starts_with("::") => (2, true),
            _ if part(first) => (rest.find(|c| !part(c)).unwrap_or(rest.len()), true),
            _ => (first.len_utf8(), !first.is_whitespace()),
        };
        if is_word {
            words.push((line, &rest[..length]));
        }
        line += rest[..length].matches('\n').count();
        at += length;
    }
    words
}

/// How long the rest of a string or a character is, with the sign that ends it.
fn quoted(rest: &str, end: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == end => return at + 1,
            _ => {}
        }
    }
    rest.len()
}
