//! Whether a file is a list of photos, and which columns it has, before it is read as one.

use super::super::image_folder::has_ending;
use super::table::{Cell, Table};
use super::{IMAGE_COLUMNS, LABEL_COLUMNS, MASK_COLUMNS, SPLIT, lists_in};
use anyhow::bail;
use std::path::{Path, PathBuf};

/// The columns of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// The list.
    pub list: PathBuf,
    /// Their names.
    pub names: Vec<String>,
}

impl Columns {
    /// Those of the list that `path` is, or that the photos are in which are trained on; `None`: there is none that can be read.
    pub fn of(path: &Path) -> Option<Columns> {
        let [list, ..] = lists_in(path).ok()?;
        let list = list?;
        let names = Table::open(&list).ok()?.columns().to_vec();
        Some(Columns { list, names })
    }

    /// Whether one has labels, by its name.
    pub fn has_labels(&self) -> bool {
        self.first_of(&LABEL_COLUMNS).is_some()
    }

    /// The one that names masks, if none has labels.
    pub fn masks(&self) -> Option<&str> {
        self.first_of(&MASK_COLUMNS).filter(|_| !self.has_labels())
    }

    fn first_of(&self, usual: &[&str]) -> Option<&str> {
        usual.iter().find_map(|usual| self.names.iter().find(|name| name == usual)).map(String::as_str)
    }
}

/// Whether a file has names of images and their labels, and nothing else that could be learnt from. `target`: the column of the labels.
pub fn is_list_of_photos(path: &Path, target: Option<&str>) -> bool {
    let Ok(table) = Table::open(path) else { return false };
    let known = |name: &String| {
        let mut usual = [&IMAGE_COLUMNS[..], &LABEL_COLUMNS, &MASK_COLUMNS, &[SPLIT]].concat().into_iter();
        usual.any(|usual| usual == name) || target == Some(name)
    };
    let names = table.columns();
    let image = IMAGE_COLUMNS.iter().find_map(|usual| names.iter().position(|name| name == usual));
    let Some(image) = image.filter(|_| names.iter().all(known)) else { return false };
    let mut first = None;
    // The first row is enough: an error ends the reading.
    let _ = table.each(&[image], |_, cells| {
        first = cells.first().cloned();
        bail!("there are more rows")
    });
    matches!(first, Some(Cell::Text(name)) if has_ending(Path::new(&name)))
}
