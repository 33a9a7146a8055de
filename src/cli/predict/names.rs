//! Which files `predict` is given: names, folders, patterns, names on standard input.

use crate::api::failure::Failure;
use crate::data::text::STANDARD_INPUT;
use crate::data::{images_below, unread_in_words};
use crate::files::glob;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes of names on standard input.
const MOST_OF_NAMES: u64 = 256 << 20;

/// What was given, in order.
#[derive(Debug, Default, PartialEq)]
pub struct Given {
    /// The files.
    pub files: Vec<PathBuf>,
    /// What no file was found for, and why.
    pub problems: Vec<String>,
    /// What is left out of folders.
    pub notes: Vec<String>,
}

/// Whether a word stands for standard input.
pub fn is_standard_input(word: &Path) -> bool {
    word.as_os_str() == STANDARD_INPUT
}

/// The files that the words of a command line stand for. `rows`: standard input has rows, not names, and is a file among the others.
///
/// # Errors
/// Standard input cannot be read.
pub fn files(words: &[PathBuf], rows: bool, input: impl Read) -> Result<Given, Failure> {
    let mut given = Given::default();
    let mut input = Some(input);
    for word in words {
        if is_standard_input(word) && rows {
            given.files.push(word.clone());
        } else if !is_standard_input(word) {
            given.add(word, true, rows);
        } else if let Some(mut input) = input.take() {
            let mut text = Vec::new();
            input
                .by_ref()
                .take(MOST_OF_NAMES + 1)
                .read_to_end(&mut text)
                .map_err(|e| Failure::Other(anyhow::Error::new(e).context("cannot read names from standard input")))?;
            if text.len() as u64 > MOST_OF_NAMES {
                let message = "standard input has more than 256 MiB of names: give them in several runs";
                return Err(Failure::Other(anyhow::anyhow!(message)));
            }
            // Names are taken as they are: one with a `*` in it is no pattern.
            let mut names = names(&text).peekable();
            if names.peek().is_none() {
                given.problems.push("standard input has no names of files".to_owned());
            }
            names.for_each(|name| given.add(&name, false, rows));
        }
    }
    Ok(given)
}

/// The names in a text, one a line. Spaces belong to a name, the end of a line, of Windows too, does not. Where there are zero bytes, these end
/// the names, as those of `find -print0`, and lines do not.
fn names(text: &[u8]) -> impl Iterator<Item = PathBuf> + '_ {
    let end = if text.contains(&0) { 0 } else { b'\n' };
    let lines = text.split(move |b| *b == end);
    let lines = lines.map(move |line| line.strip_suffix(b"\r").filter(|_| end == b'\n').unwrap_or(line));
    lines.filter(|line| !line.is_empty()).map(path)
}

#[cfg(unix)]
fn path(name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(name)).to_owned()
}

#[cfg(not(unix))]
fn path(name: &[u8]) -> PathBuf {
    String::from_utf8_lossy(name).into_owned().into()
}

impl Given {
    fn add(&mut self, word: &Path, may_be_pattern: bool, rows: bool) {
        let found = if word.is_dir() && rows {
            Err(format!(
                "`{0}` is a folder, and the model takes files of rows: name them, as in `{0}/*`",
                word.display()
            ))
        } else if word.is_dir() {
            self.notes.extend(unread_in_words(word).unwrap_or_default());
            let images = images_below(word).map_err(|e| format!("{e:#}"));
            images.and_then(|images| match images.is_empty() {
                true => Err(format!("the folder `{}` has no images in it", word.display())),
                false => Ok(images),
            })
        } else if may_be_pattern && glob::is_pattern(word) && !word.exists() {
            match glob::matches(word) {
                Ok(found) if found.is_empty() => Err(format!("no file fits the pattern `{}`", word.display())),
                found => found.map_err(|e| format!("{e:#}")),
            }
        } else {
            // One that is not there is reported when its turn comes to be read.
            Ok(vec![word.to_owned()])
        };
        match found {
            Ok(found) => self.files.extend(found),
            Err(problem) => self.problems.push(problem),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn words_stand_for_files_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("d/below")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        for name in
            ["b.png", "a.png", "d/2.JPG", "d/10.jpg", "d/below/x.webp", "d/no.txt", "d/.hidden.png", "star*.png"]
        {
            fs::write(at(name), "").unwrap();
        }
        let found = |words: &[&str], input: &[u8]| {
            let words: Vec<PathBuf> =
                words.iter().map(|w| if *w == "-" { PathBuf::from("-") } else { at(w) }).collect();
            let given = files(&words, false, input).unwrap();
            let short = |p: &PathBuf| p.strip_prefix(dir.path()).unwrap_or(p).display().to_string();
            (given.files.iter().map(short).collect::<Vec<_>>().join(" "), given.problems.len())
        };
        assert_eq!(found(&["b.png", "a.png", "nowhere.png"], b"").0, "b.png a.png nowhere.png");
        assert_eq!(found(&["b.png", "d"], b"").0, "b.png d/10.jpg d/2.JPG d/below/x.webp");
        assert_eq!(found(&["[ab].png", "d/**/*.webp", "star*.png"], b"").0, "a.png b.png d/below/x.webp star*.png");
        assert_eq!(found(&["empty", "*.bmp", "a.png"], b""), ("a.png".into(), 2));
        assert_eq!(found(&["-", "a.png", "-"], b"x y.png\r\n\nq*.png").0, "x y.png q*.png a.png");
        assert_eq!(found(&["-", "a.png"], b"\r\n\n"), ("a.png".into(), 1));
        let rows = files(&["-".into(), at("a.png")], true, &b"x\n"[..]).unwrap().files;
        assert_eq!(rows, [PathBuf::from("-"), at("a.png")]);
        let folder = files(&[at("d")], true, &b""[..]).unwrap();
        assert!(
            folder.files.is_empty() && folder.problems[0].contains("is a folder, and the model takes files of rows")
        );
    }

    #[test]
    fn names_need_not_be_utf8() {
        let list: Vec<PathBuf> = names(b"\xff.png\n b\n").collect();
        assert_eq!(list[0].as_os_str().as_encoded_bytes(), b"\xff.png");
        assert_eq!(list[1], Path::new(" b"));
        // As `find -print0` has them.
        let list: Vec<PathBuf> = names(b"a\nb.png\0c\r\0\n\0").collect();
        assert_eq!(list, [Path::new("a\nb.png"), Path::new("c\r"), Path::new("\n")]);
    }
}
