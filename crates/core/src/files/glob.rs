//! Patterns of paths: `*` any characters, `?` one, `[a-z]` one of a range (`[!a-z]` one outside), `**` any folders.

use anyhow::{Context, Result};
use glob::Pattern;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// The most folders within one another that `**` goes into: links may lead around in circles.
const DEEPEST: usize = 64;

/// Whether a path has characters that stand for others.
pub fn is_pattern(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().iter().any(|b| b"*?[".contains(b))
}

/// The files that a pattern fits, in the order of their names. Hidden names, which begin with a dot, are fitted by patterns that begin with one. A file or folder whose
/// name is the pattern itself is taken as it is. A broken link counts as a file: reading it then reports that it is not there.
///
/// # Errors
/// A folder cannot be read.
pub fn matches(pattern: &Path) -> Result<Vec<PathBuf>> {
    let parts: Vec<Component> = pattern.components().collect();
    let mut found = Vec::new();
    below(PathBuf::new(), &parts, DEEPEST, &mut found)?;
    // `**/**` comes to the same file by several ways.
    found.sort();
    found.dedup();
    Ok(found)
}

fn below(path: PathBuf, parts: &[Component], depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    let Some((part, rest)) = parts.split_first() else {
        if path.symlink_metadata().is_ok() && !path.is_dir() {
            found.push(path);
        }
        return Ok(());
    };
    match part {
        // Several in a row stand for what one stands for.
        Component::Normal(name) if *name == "**" && rest.first() == Some(part) => below(path, rest, depth, found),
        Component::Normal(name) if *name == "**" => {
            below(path.clone(), rest, depth, found)?;
            for name in if depth > 0 { names(&path)? } else { Vec::new() } {
                let next = path.join(&name);
                // Links to folders are not gone into, as in a shell.
                if !is_hidden(&name) && next.symlink_metadata().is_ok_and(|m| m.is_dir()) {
                    below(next, parts, depth - 1, found)?;
                }
            }
            Ok(())
        }
        Component::Normal(name) if is_pattern(Path::new(name)) && !path.join(name).exists() => {
            let hidden_too = is_hidden(name);
            let Some(pattern) = pattern_of(&name.to_string_lossy()) else { return Ok(()) };
            for name in names(&path)?.into_iter().filter(|name| !is_hidden(name) || hidden_too) {
                // A name that is not UTF-8 has a character of its own for each byte that is none.
                if pattern.matches(&name.to_string_lossy()) {
                    below(path.join(name), rest, depth, found)?;
                }
            }
            Ok(())
        }
        other => below(path.join(other), rest, depth, found),
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// What is in a folder; nothing where there is none.
fn names(folder: &Path) -> Result<Vec<OsString>> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = match fs::read_dir(folder) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        entries => entries.and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect()),
    };
    entries.with_context(|| format!("cannot read the folder `{}`", folder.display()))
}

/// The pattern of a name; `None` for one that is no pattern, and fits itself alone.
///
/// The walk is our own: that of the crate leaves out names that are not UTF-8, and says nothing of it.
fn pattern_of(text: &str) -> Option<Pattern> {
    // Several stars in a row stand for what one stands for, and a set that is not closed is no set.
    let mut text = text.replace("[^", "[!");
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    Pattern::new(&text).or_else(|_| Pattern::new(&text.replace('[', "[[]"))).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn patterns_fit_as_in_a_shell() {
        let fits = |pattern: &str, name: &str| super::pattern_of(pattern).is_some_and(|pattern| pattern.matches(name));
        let yes = [
            ("*", ""),
            ("*.jpg", "a.jpg"),
            ("a*b*c", "aXbbYc"),
            ("?é*", "xéy"),
            ("[a-c]1", "b1"),
            ("[!a-c]1", "d1"),
            ("[^a-c]1", "d1"),
            ("a**b", "axb"),
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
