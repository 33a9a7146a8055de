//! Which images there are in the folders of classes.

use super::identity::Identity;
use super::photos::{ENDINGS, bytes_of_paths};
use crate::files;
use anyhow::{Context, Result, bail};
use std::cmp::Ordering;
use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How many names a message shows.
const SHOWN: usize = 3;
/// Endings of images of formats that are not read: phones' and browsers', scanners', cameras' raw ones.
const UNREAD: [&str; 12] = ["heic", "heif", "avif", "jxl", "jp2", "tif", "tiff", "dng", "cr2", "nef", "arw", "psd"];
/// What a note says of them.
const UNREAD_WORDS: &str = "images of formats that are not read, which are left out: convert them to JPEG or PNG";
/// Folders that systems and their programs leave beside those of users: archives made by macOS, network drives, the roots of disks.
const STRAY: [&str; 6] = ["__MACOSX", "@eaDir", "#recycle", "lost+found", "$RECYCLE.BIN", "System Volume Information"];

/// The images in the folders of classes.
#[derive(Debug, Default)]
pub struct Listing {
    /// The folder that they are in.
    pub folder: PathBuf,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// Paths below the folder, class by class.
    pub images: Vec<Box<Path>>,
    /// The class of each.
    pub labels: Vec<i32>,
    /// Folders with images that are no classes.
    pub others: Vec<String>,
    /// Folders without images, which are no classes for that.
    pub empty: Vec<String>,
    /// Classes that are named and have no images here.
    pub without: Vec<String>,
    /// What the user should know: files that are left out, classes without images.
    pub notes: Vec<String>,
}

impl Listing {
    /// Bytes of the names and labels.
    pub fn held_bytes(&self) -> usize {
        bytes_of_paths(&self.images) + self.labels.len() * size_of::<i32>()
    }
}

/// Files and folders that are left out, for messages.
#[derive(Default)]
struct LeftOut {
    stray: Vec<String>,
    no_class: Vec<String>,
    no_image: Vec<String>,
    unread: Vec<String>,
    again: Vec<String>,
}

/// Lists the images of `folder`: of `classes`, else of all folders in it that hold some, by name. Hidden files and folders are left
/// out, and those that systems leave.
///
/// # Errors
/// A folder cannot be read, is not there, or has a name that is not UTF-8.
pub fn list(folder: &Path, classes: Option<&[String]>) -> Result<Listing> {
    let mut left_out = LeftOut::default();
    let mut found: Vec<String> = Vec::new();
    for entry in entries(folder)? {
        let path = entry.path();
        if is_folder(&path)? {
            if is_stray(&entry.file_name()) {
                left_out.stray.push(shown(&path, folder));
                continue;
            }
            match entry.file_name().into_string() {
                Ok(name) => found.push(name),
                Err(name) => bail!(
                    "`{}`: the name of a class must be UTF-8, and that of the folder `{}` is not; rename it",
                    folder.display(),
                    name.display()
                ),
            }
        } else if is_image(&path) {
            left_out.no_class.push(shown(&path, folder));
        }
    }
    let mut listing = Listing { folder: folder.to_owned(), ..Listing::default() };
    for class in classes.unwrap_or(&found) {
        let path = folder.join(class);
        let before = listing.images.len();
        if is_folder(&path)? {
            add_images(folder, &path, &mut listing.images, &mut left_out)?;
        }
        match (listing.images.len() == before, classes) {
            (false, _) => {}
            (true, Some(_)) => listing.without.push(class.clone()),
            (true, None) => {
                listing.empty.push(class.clone());
                continue;
            }
        }
        listing.labels.resize(listing.images.len(), listing.classes.len() as i32);
        listing.classes.push(class.clone());
    }
    if let Some(classes) = classes {
        for other in found.into_iter().filter(|name| !classes.contains(name)) {
            let mut images = Vec::new();
            add_images(folder, &folder.join(&other), &mut images, &mut LeftOut::default())?;
            let kind = if images.is_empty() { &mut listing.empty } else { &mut listing.others };
            kind.push(other);
        }
    }
    listing.notes = notes(folder, &listing.without, &listing.others, &left_out);
    Ok(listing)
}

/// Whether a folder of this name is one that a system has left.
fn is_stray(name: &OsStr) -> bool {
    STRAY.iter().any(|stray| name.eq_ignore_ascii_case(stray))
}

/// The folder in `root` of one of these names, of which the first that is there counts, and the note about others. A name in other
/// letters counts, too, if the folder has folders in it: it might be a class.
///
/// # Errors
/// A folder cannot be read.
pub fn part(root: &Path, names: &[&str]) -> Result<Option<(PathBuf, Option<String>)>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in names.iter().map(|name| root.join(name)) {
        if is_folder(&folder)? {
            found.push(folder);
        }
    }
    let is_part = |entry: &DirEntry| names.iter().any(|name| entry.file_name().eq_ignore_ascii_case(name));
    for entry in entries(root)?.iter().filter(|entry| is_part(entry)) {
        let path = entry.path();
        if !found.contains(&path) && is_folder(&path)? && entries(&path)?.iter().any(|inside| inside.path().is_dir()) {
            found.push(path);
        }
    }
    let Some((first, others)) = found.split_first() else { return Ok(None) };
    // Where letters do not count, one folder is found by two names.
    let own = Identity::of(first)?;
    for other in others {
        if Identity::of(other)? != own {
            let [taken, left] = [first, other].map(|path| shown(path, root));
            let note = format!(
                "`{}` has `{taken}` and `{left}`: `{taken}` is taken, and `{left}` is not looked at",
                root.display()
            );
            return Ok(Some((first.clone(), Some(note))));
        }
    }
    Ok(Some((first.clone(), None)))
}

/// The images in `folder` and in the folders below it, by their endings, in the order of their names. Hidden ones are left
/// out.
///
/// # Errors
/// A folder cannot be read.
pub fn images_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    add_images(folder, folder, &mut images, &mut LeftOut::default())?;
    Ok(images.iter().map(|image| folder.join(image)).collect())
}

/// The images in `folder` and in the folders below it that are left out, as their formats are not read; their places in it.
///
/// # Errors
/// A folder cannot be read.
fn unread_below(folder: &Path) -> Result<Vec<String>> {
    let mut left_out = LeftOut::default();
    add_images(folder, folder, &mut Vec::new(), &mut left_out)?;
    Ok(left_out.unread)
}

/// The note about such images in `folder`, if there are some.
///
/// # Errors
/// A folder cannot be read.
pub fn unread_in_words(folder: &Path) -> Result<Option<String>> {
    let unread = unread_below(folder)?;
    Ok((!unread.is_empty()).then(|| format!("`{}` has {UNREAD_WORDS}: {}", folder.display(), first_of(&unread))))
}

/// Adds the images in `path` and in the folders below it, in the order of their names: those of a folder, then those of the folders in
/// it. Each folder is entered once, whatever links lead to it: by its own name if that is below `path`, else by the first link. `root`
/// itself is never entered by a link.
fn add_images(root: &Path, path: &Path, images: &mut Vec<Box<Path>>, left_out: &mut LeftOut) -> Result<()> {
    let before = images.len();
    let mut walk =
        Walk { root, entered: HashSet::from([Identity::of(root)?]), links: VecDeque::new(), images, left_out };
    if walk.entered.insert(Identity::of(path)?) || path == root {
        walk.enter(path)?;
    } else {
        // The folder of a class that leads to that of all.
        walk.left_out.again.push(shown(path, root));
    }
    let mut linked = false;
    while let Some(link) = walk.links.pop_front() {
        if walk.entered.insert(Identity::of(&link)?) {
            linked = true;
            walk.enter(&link)?;
        } else {
            walk.left_out.again.push(shown(&link, root));
        }
    }
    left_out.again.sort_unstable();
    if linked {
        images[before..].sort_by(|a, b| in_order(a, b));
    }
    Ok(())
}

/// A walk through folders.
struct Walk<'a> {
    root: &'a Path,
    /// The folders that have been entered.
    entered: HashSet<Identity>,
    /// Links to folders, which come after all that are there under their own names.
    links: VecDeque<PathBuf>,
    images: &'a mut Vec<Box<Path>>,
    left_out: &'a mut LeftOut,
}

impl Walk<'_> {
    /// Adds the images in a folder, and in those in it.
    fn enter(&mut self, folder: &Path) -> Result<()> {
        let mut folders = Vec::new();
        for entry in entries(folder)? {
            let path = entry.path();
            // Links are followed; one that leads nowhere is an image that cannot be read.
            let kind = entry.file_type().ok();
            let is_folder = kind.is_some_and(|kind| kind.is_dir() || kind.is_symlink() && path.is_dir());
            if is_folder && is_stray(&entry.file_name()) {
                self.left_out.stray.push(shown(&path, self.root));
            } else if kind.is_some_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if kind.is_some_and(|kind| kind.is_symlink()) && path.is_dir() {
                self.links.push_back(path);
            } else if is_image(&path) {
                self.images.push(path.strip_prefix(self.root).unwrap_or(&path).into());
            } else if is_unread(&path) {
                self.left_out.unread.push(shown(&path, self.root));
            } else {
                self.left_out.no_image.push(shown(&path, self.root));
            }
        }
        for folder in folders {
            // A link may have led into the middle of what is below it.
            if self.entered.insert(Identity::of(&folder)?) {
                self.enter(&folder)?;
            }
        }
        Ok(())
    }
}

/// The order of paths below one folder: its files by name, then what is in its folders, by their names.
fn in_order(a: &Path, b: &Path) -> Ordering {
    let (mut a, mut b) = (a.components().peekable(), b.components().peekable());
    loop {
        match (a.next(), b.next()) {
            (Some(x), Some(y)) if x == y => {}
            (Some(x), Some(y)) => {
                return a.peek().is_some().cmp(&b.peek().is_some()).then_with(|| x.as_os_str().cmp(y.as_os_str()));
            }
            (x, y) => return x.is_some().cmp(&y.is_some()),
        }
    }
}

/// What is in a folder and not hidden, by name.
fn entries(folder: &Path) -> Result<Vec<DirEntry>> {
    let read = || -> std::io::Result<Vec<DirEntry>> { fs::read_dir(folder)?.collect() };
    let mut entries = read().with_context(|| format!("cannot read the folder `{}`", folder.display()))?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}

/// Whether there is a folder of that name. A link that leads nowhere is none.
///
/// # Errors
/// That cannot be found out.
pub fn is_folder(path: &Path) -> Result<bool> {
    match files::uninterrupted(|| fs::metadata(path)) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(e) => Err(e).with_context(|| format!("cannot read `{}`", path.display())),
    }
}

/// Whether it is an image that is read, by its ending.
pub fn is_image(path: &Path) -> bool {
    ends_in(path, &ENDINGS)
}

/// Whether it is an image of a format that is not read, by its ending.
fn is_unread(path: &Path) -> bool {
    ends_in(path, &UNREAD)
}

fn ends_in(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().and_then(OsStr::to_str);
    ending.is_some_and(|ending| endings.iter().any(|known| known.eq_ignore_ascii_case(ending)))
}

fn shown(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn notes(folder: &Path, without: &[String], others: &[String], left_out: &LeftOut) -> Vec<String> {
    let kinds = [
        (without, "classes without images"),
        (&left_out.stray, "folders that a system has left, which are left out"),
        (others, "folders that are no classes, which are left out"),
        (&left_out.no_class, "images in no class, which are left out"),
        (&left_out.unread, UNREAD_WORDS),
        (&left_out.no_image, "files that are no images by their endings, which are left out"),
        (&left_out.again, "links to folders that are there already, which are left out"),
    ];
    let lines = kinds.iter().filter(|(list, _)| !list.is_empty());
    lines.map(|(list, what)| format!("`{}` has {what}: {}", folder.display(), first_of(list))).collect()
}

/// The first few names.
fn first_of(list: &[String]) -> String {
    let shown: Vec<String> = list.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = if list.len() > SHOWN { format!(" and {} more", list.len() - SHOWN) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}
