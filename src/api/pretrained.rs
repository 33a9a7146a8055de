//! Weights by name, fetched into the user's caches.

use super::failure::Failure;
use super::progress::Progress;
use crate::config::Experiment;
use crate::config::language::pretrained::{Origin, Pretrained};
use crate::data::fetch::{self, Busy, Offered, Wanted};
use crate::files::{self, caches};
use crate::terminal::{human_bytes, say};
use anyhow::{Result, anyhow};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often is looked whether another program has brought the file.
const TURN: Duration = Duration::from_millis(200);

/// So many times without a word.
const SILENT: u32 = 5;

/// The message about a file that another program fetches.
fn waiting(name: &str, busy: &Busy) -> String {
    let part = busy.part().display();
    let who = busy.holder().map_or("another program".into(), |process| format!("process {process}"));
    format!(
        "`{name}` is being fetched by {who}, which holds `{part}`: waiting for it\nhelp: to go on without it, end that \
         program, or remove the file `{part}`"
    )
}

/// Why a file that a server offers is not the one that is known. This is checked before anything of it is fetched.
fn another_file(named: &Pretrained, bytes: u64, sha256: Option<&str>) -> Option<String> {
    let human = |bytes: u64| human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    let known = named.size().filter(|size| !size.fits(bytes));
    let size =
        known.map(|size| format!("is of {}, and the file that is known is of {}", human(bytes), human(size.about)));
    let digits = named.sha256().zip(sha256).filter(|(known, offered)| !offered.starts_with(known));
    let digest =
        digits.map(|(known, offered)| format!("has the SHA-256 {offered}, and the file that is known {known}"));
    let version = match named.origin {
        Origin::Torchvision => "",
        Origin::Hub => "; where its author has changed it, `@REVISION` in the name takes a version as it is",
    };
    Some(format!("{}{version}", digest.or(size)?))
}

/// Whether there is a file at `path`, and no folder. A file that cannot be looked at counts as there: the error comes when it is opened.
fn is_kept(path: &Path) -> bool {
    files::is_there(path) && !path.is_dir()
}

/// The weights of a name that a configuration starts from and that are not there yet.
pub fn missing(experiment: &Experiment) -> Option<Pretrained> {
    let path = experiment.model.weights.as_deref()?;
    Pretrained::at(path).filter(|_| !is_kept(path))
}

/// Fetches the weights that a configuration starts from, if they have a name and are not there.
///
/// # Errors
/// See [`fetch()`].
pub fn fetch_missing(experiment: &Experiment) -> Result<(), Failure> {
    match missing(experiment) {
        Some(named) => fetch(&named).map(drop),
        None => Ok(()),
    }
}

/// Fetches weights, unless they are there. Where they are.
///
/// # Errors
/// They are offered nowhere, or cannot be had: with the file to put in their place. There is no folder for caches.
pub fn fetch(named: &Pretrained) -> Result<PathBuf, Failure> {
    match optional(named)? {
        Some(path) => Ok(path),
        None => {
            Err(anyhow!("there are no weights `{}`: {} has no file `{}`", named.name, named.address(), named.file)
                .into())
        }
    }
}

/// The same; `None` if there is no such file where the others of its model are.
///
/// # Errors
/// As for [`fetch()`].
pub fn optional(named: &Pretrained) -> Result<Option<PathBuf>, Failure> {
    let path = named
        .path()
        .ok_or_else(|| anyhow!("there is no folder to keep `{}` in: {}", named.name, caches::why_none()))?;
    if is_kept(&path) {
        return Ok(Some(path));
    }
    if path.is_dir() {
        return Err(anyhow!(
            "a folder is at `{}`, where the file of `{}` is kept\nhelp: remove it, and the file is fetched",
            path.display(),
            named.name
        )
        .into());
    }
    let (address, file) = (named.address(), named.file.as_str());
    let url = format!("{address}/{file}");
    let token = std::env::var("HF_TOKEN").ok().filter(|token| named.origin == Origin::Hub && !token.is_empty());
    let by_hand = || {
        let (variable, _) = named.origin.address();
        format!(
            "where there is no network, put the file from {url} to `{}`; {variable} names another address",
            path.display()
        )
    };
    let offered = fetch::offered(&url, token.as_deref());
    let offered = offered.map_err(|why| anyhow!("cannot fetch `{}`: {url}: {why}\nhelp: {}", named.name, by_hand()))?;
    let Some(Offered { bytes, sha256 }) = offered else { return Ok(None) };
    if let Some(why) = another_file(named, bytes, sha256.as_deref()) {
        return Err(anyhow!("cannot fetch `{}`: {url}: {why}\nhelp: {}", named.name, by_hand()).into());
    }
    say(&format!(
        "fetching `{}`: {} ({}); {}",
        named.name,
        file,
        human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX)),
        named.licence()
    ));
    let sha256 = sha256.or(named.sha256().map(str::to_owned)).unwrap_or_default();
    let wanted = Wanted { name: file, bytes, sha256: &sha256, token: token.as_deref() };
    let folder = path.parent().unwrap_or(&path);
    let mut progress = Progress::default();
    let mut turns = 0;
    loop {
        match fetch::get(&wanted, folder, std::slice::from_ref(&address), &mut |event| progress.show(event)) {
            Ok(()) => return Ok(Some(path)),
            // Another rank, or another run.
            Err(error) if error.is::<Busy>() => {
                turns += 1;
                if let Some(busy) = error.downcast_ref().filter(|_| turns == SILENT) {
                    say(&waiting(&named.name, busy));
                }
                std::thread::sleep(TURN);
            }
            // This machine's fault, such as a full disk: another way to get the file is no help.
            Err(error) if error.chain().any(|cause| cause.is::<std::io::Error>()) => {
                return Err(error.context(format!("cannot fetch `{}`", named.name)).into());
            }
            Err(error) => return Err(anyhow!("cannot fetch `{}`: {error:#}\nhelp: {}", named.name, by_hand()).into()),
        }
    }
}
