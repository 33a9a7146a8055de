//! Paths of several files: `train-{000..009}.tar`, `{a,b}.tar`, and the patterns of [`glob`], as `train-*.tar`.

use super::glob;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// Most files that a path may stand for.
const MAX: usize = 1 << 20;
/// Most bytes of a path with braces: each of them is a level of calls.
const LONGEST: usize = 1 << 14;
/// Most bytes that the names of all files may have together.
const MAX_BYTES: usize = 1 << 26;

/// There is no file of a name, or none that a pattern fits.
#[derive(Debug)]
pub struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Whether a path has characters by which it may stand for others.
pub fn is_pattern(path: &Path) -> bool {
    has_braces(path) || glob::is_pattern(path)
}

fn has_braces(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b'{')
}

/// The files that a path stands for: those of its braces in their order, those of each pattern by name, each once.
///
/// # Errors
/// There are none, one is there twice, a brace is none, or a folder cannot be read.
pub fn paths(pattern: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in expanded(pattern)? {
        match called_like(&path)? {
            None => all.push(path),
            Some(found) => {
                let missing = || Missing(format!("no file is called like `{}`", path.display()));
                ensure!(!found.is_empty(), missing());
                all.extend(found);
            }
        }
    }
    let missing: Vec<&PathBuf> = all.iter().filter(|path| !super::is_there(path)).collect();
    if let Some(first) = missing.first() {
        bail!(Missing(match all.len() {
            1 => format!("`{}` is not there", first.display()),
            all => format!(
                "{} of {all} files that `{}` stands for are not there, such as `{}`",
                missing.len(),
                pattern.display(),
                first.display()
            ),
        }));
    }
    // Samples that are there twice would be trained on, and validated on as well.
    let mut seen = HashSet::new();
    for one in &all {
        let same = one.canonicalize().unwrap_or_else(|_| one.clone());
        ensure!(seen.insert(same), "`{}` stands for the file `{}` twice", pattern.display(), one.display());
    }
    Ok(all)
}

/// Whether a path stands for a file that is there, or for several of which one is.
pub fn is_any_there(pattern: &Path) -> bool {
    let one = |path: &PathBuf| match called_like(path) {
        Ok(None) => super::is_there(path),
        Ok(Some(found)) => !found.is_empty(),
        Err(_) => false,
    };
    super::is_there(pattern) || expanded(pattern).is_ok_and(|all| all.iter().any(one))
}

/// The paths that the braces of one stand for.
fn expanded(pattern: &Path) -> Result<Vec<PathBuf>> {
    if !has_braces(pattern) {
        return Ok(vec![pattern.to_owned()]);
    }
    let text = pattern.to_str().with_context(|| format!("`{}` is not UTF-8", pattern.display()))?;
    ensure!(text.len() <= LONGEST, "a path with braces has at most {LONGEST} bytes");
    let mut all = Vec::new();
    expand(text, &mut all).with_context(|| format!("`{text}`"))?;
    Ok(all.into_iter().map(PathBuf::from).collect())
}

/// The files that a pattern fits, by name; `None` for a path that is none, or that is there as it is.
fn called_like(path: &Path) -> Result<Option<Vec<PathBuf>>> {
    if !glob::is_pattern(path) || super::is_there(path) {
        return Ok(None);
    }
    glob::matches(path).map(Some)
}

/// Writes out the first brace of `text`, and those after it.
fn expand(text: &str, all: &mut Vec<String>) -> Result<()> {
    let Some((before, rest)) = text.split_once('{') else {
        let fits = all.len() < MAX && (all.len() + 1) * text.len() <= MAX_BYTES;
        ensure!(fits, "stands for more than {MAX} files, or for names of more than {MAX_BYTES} bytes");
        all.push(text.to_owned());
        return Ok(());
    };
    let (inside, after) = rest.split_once('}').context("has a `{` without a `}`")?;
    if let Some((first, last)) = inside.split_once("..") {
        let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        let (Some(from), Some(to)) = (number(first), number(last)) else {
            bail!("has `{{{inside}}}`: two whole numbers are expected around the two dots");
        };
        ensure!(from <= to, "has `{{{inside}}}`, which ends before it begins");
        ensure!(to - from < MAX as u64, "stands for more than {MAX} files");
        return (from..=to).try_for_each(|n| expand(&format!("{before}{n:0width$}{after}", width = first.len()), all));
    }
    inside.split(',').try_for_each(|one| expand(&format!("{before}{one}{after}"), all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_out(text: &str) -> Result<Vec<String>> {
        let mut all = Vec::new();
        expand(text, &mut all).map(|()| all)
    }

    #[test]
    fn braces_are_written_out() {
        assert_eq!(written_out("a.tar").unwrap(), ["a.tar"]);
        assert_eq!(written_out("a-{08..11}.tar").unwrap(), ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]);
        assert_eq!(written_out("{a,b}/{0..1}").unwrap(), ["a/0", "a/1", "b/0", "b/1"]);
        for wrong in ["a{1", "{1..x}", "{3..1}", "{0..9999999999}", "{0..1000}{0..1000}{0..1000}", "{+1..2}"] {
            assert!(written_out(wrong).is_err(), "{wrong}");
        }
        // Long names a million times, and more zeros than a number is written with.
        assert!(written_out(&format!("{}{}", "x".repeat(4000), "{a,b}".repeat(20))).is_err());
        let wide = format!("a-{{{}..1}}.tar", "0".repeat(70_000));
        for long in [wide, "{a}".repeat(60_000)] {
            assert!(paths(Path::new(&long)).unwrap_err().to_string().contains("has at most 16384 bytes"));
        }
    }

    #[test]
    fn files_by_name_and_those_that_lack() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["b-1.tar", "b-0.tar", "b-0.txt"] {
            std::fs::write(at(name), "").unwrap();
        }
        assert_eq!(paths(&at("b-*.tar")).unwrap(), [at("b-0.tar"), at("b-1.tar")]);
        let message = |name: &str| format!("{:#}", paths(&at(name)).unwrap_err());
        assert!(message("b-{0..5}.tar").contains("4 of 6 files that `"), "{}", message("b-{0..5}.tar"));
        assert!(message("b-{0..5}.tar").contains("b-{0..5}.tar` stands for are not there, such as `"));
        assert!(message("c*.tar").contains("no file is called like `"));
        for (name, there) in
            [("b-{0..5}.tar", true), ("b-*.tar", true), ("c*.tar", false), ("{c,d}/*.tar", false), ("b-{0", false)]
        {
            assert_eq!(is_any_there(&at(name)), there, "{name}");
        }
    }

    #[test]
    fn files_are_found_as_a_shell_finds_them_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b.bin", "a.bin", ".hidden.bin", "c.txt"] {
            std::fs::write(at(name), name).unwrap();
        }
        let found = |pattern: &str| paths(&at(pattern)).map_err(|error| error.to_string());
        assert_eq!(found("*.bin").unwrap(), [at("a.bin"), at("b.bin")]);
        assert_eq!(found(".*.bin").unwrap(), [at(".hidden.bin")]);
        assert_eq!(found("{b,a}.bin").unwrap(), [at("b.bin"), at("a.bin")], "as they stand there");
        assert!(found("{b,*}.bin").unwrap_err().contains("b.bin` twice"));
        for name in ["part [1]/x-0.bin", "part [1]/x-1.bin", "part 2/x-0.bin", "part 2/deep/x-9.bin"] {
            std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            std::fs::write(at(name), name).unwrap();
        }
        assert_eq!(
            found("part */x-[0-9].bin").unwrap(),
            ["part 2/x-0.bin", "part [1]/x-0.bin", "part [1]/x-1.bin"].map(at)
        );
        assert_eq!(
            found("part [1]/*").unwrap(),
            ["part [1]/x-0.bin", "part [1]/x-1.bin"].map(at),
            "a folder as it is called"
        );
        assert_eq!(found("part 2/**/*.bin").unwrap(), ["part 2/deep/x-9.bin", "part 2/x-0.bin"].map(at));
        assert!(found("nowhere/*.bin").unwrap_err().contains("no file is called like `"));
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::ffi::OsStrExt as _;
            let odd = folder.path().join(std::ffi::OsStr::from_bytes(b"z\xe9.bin"));
            std::fs::write(&odd, "odd").unwrap();
            assert_eq!(found("*.bin").unwrap(), [at("a.bin"), at("b.bin"), odd.clone()]);
            assert_eq!(found("z?.bin").unwrap(), [odd]);
            // A part of a data set that is lost is not left out in silence.
            std::os::unix::fs::symlink(at("gone"), at("d.bin")).unwrap();
            assert!(found("*.bin").unwrap_err().contains("such as `"));
        }
    }
}
