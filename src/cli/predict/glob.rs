//! Patterns of paths: `*` any characters, `?` one, `[a-z]` one of a range (`[!a-z]` one outside), `**` any folders.

use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The most folders within one another that `**` goes into: links may lead around in circles.
const DEEPEST: usize = 64;

/// Whether a path has characters that stand for others.
pub fn is_pattern(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().iter().any(|b| b"*?[".contains(b))
}

/// The files that a pattern fits, in the order of their names. Names that begin with a dot are fitted by patterns that do, too.
pub fn matches(pattern: &Path) -> Vec<PathBuf> {
    let parts: Vec<Component> = pattern.components().collect();
    let mut found = Vec::new();
    below(PathBuf::new(), &parts, DEEPEST, &mut found);
    // `**/**` comes to the same file by several ways.
    found.sort();
    found.dedup();
    found
}

fn below(path: PathBuf, parts: &[Component], depth: usize, found: &mut Vec<PathBuf>) {
    let Some((part, rest)) = parts.split_first() else {
        if path.is_file() {
            found.push(path);
        }
        return;
    };
    match part {
        // Several in a row stand for what one stands for.
        Component::Normal(name) if *name == "**" && rest.first() == Some(part) => below(path, rest, depth, found),
        Component::Normal(name) if *name == "**" => {
            below(path.clone(), rest, depth, found);
            for name in names(&path).into_iter().filter(|_| depth > 0) {
                let next = path.join(&name);
                // Links to folders are not gone into, as in a shell.
                if !is_hidden(&name) && next.symlink_metadata().is_ok_and(|m| m.is_dir()) {
                    below(next, parts, depth - 1, found);
                }
            }
        }
        Component::Normal(pattern) if is_pattern(Path::new(pattern)) => {
            let pattern: Vec<char> = pattern.to_string_lossy().chars().collect();
            for name in names(&path).into_iter().filter(|name| !is_hidden(name) || pattern[0] == '.') {
                if fits(&pattern, &name.to_string_lossy().chars().collect::<Vec<_>>()) {
                    below(path.join(name), rest, depth, found);
                }
            }
        }
        other => below(path.join(other), rest, depth, found),
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// What is in a folder. One that cannot be read has nothing that fits.
fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}

/// Whether a pattern fits a name.
fn fits(pattern: &[char], name: &[char]) -> bool {
    // Where to go on if what follows the last `*` does not fit: it stands for one more character.
    let (mut p, mut n, mut again) = (0, 0, None);
    while n < name.len() || p < pattern.len() {
        if pattern.get(p) == Some(&'*') {
            again = Some((p, n + 1));
            p += 1;
            continue;
        }
        if let (Some(&c), Some(length)) = (name.get(n), one(&pattern[p..], name.get(n))) {
            debug_assert_eq!(c, name[n]);
            (p, n) = (p + length, n + 1);
            continue;
        }
        match again {
            Some((star, next)) if next <= name.len() => {
                (p, n, again) = (star + 1, next, Some((star, next + 1)));
            }
            _ => return false,
        }
    }
    true
}

/// The length of the pattern's first piece, which stands for one character, if it fits `c`.
fn one(pattern: &[char], c: Option<&char>) -> Option<usize> {
    let (first, c) = (pattern.first()?, c?);
    if *first == '?' {
        return Some(1);
    }
    if *first == '['
        && let Some(end) = pattern.iter().skip(2).position(|c| *c == ']').map(|i| i + 2)
    {
        let (outside, set) = match pattern[1] {
            '!' | '^' if end > 2 => (true, &pattern[2..end]),
            _ => (false, &pattern[1..end]),
        };
        let mut inside = false;
        let mut rest = set;
        while let Some((&low, after)) = rest.split_first() {
            let (high, after) = match after {
                ['-', high, after @ ..] => (*high, after),
                _ => (low, after),
            };
            inside |= (low..=high).contains(c);
            rest = after;
        }
        return (inside != outside).then_some(end + 1);
    }
    (first == c).then_some(1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn patterns_fit_as_in_a_shell() {
        let fits = |pattern: &str, name: &str| {
            super::fits(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>())
        };
        let yes = [
            ("*", ""),
            ("*.jpg", "a.jpg"),
            ("a*b*c", "aXbbYc"),
            ("?é*", "xéy"),
            ("[a-c]1", "b1"),
            ("[!a-c]1", "d1"),
            ("[]x]", "]"),
            ("a[", "a["),
            ("**", "abc"),
            ("*ab", "aab"),
        ];
        let no =
            [("*.jpg", "a.jpeg"), ("?", ""), ("[a-c]", "d"), ("[!a]", "a"), ("a", "ab"), ("ab", "a"), ("a*b", "abc")];
        yes.iter().for_each(|(p, n)| assert!(fits(p, n), "{p} {n}"));
        no.iter().for_each(|(p, n)| assert!(!fits(p, n), "{p} {n}"));
        // As many stars as would take very long if every way were tried.
        assert!(!fits(&"*a".repeat(40), &"a".repeat(39)));
    }
}
