//! The folder of several trainings, which is as it was before where none of them could begin.

use crate::api::members;
use crate::files::durable;
use crate::train::files::folder::{Folder, file, is_run};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Such a folder. Until [`Place::keep`] what was made of it is undone when this is dropped.
pub struct Place {
    /// It, locked.
    pub folder: Folder,
    /// Folders that were not there, the innermost first.
    made: Vec<PathBuf>,
    /// Files of earlier trainings, whose place new ones take.
    before: Vec<(PathBuf, Vec<u8>)>,
    /// It is there, and the files in it that all trainings share are of these.
    claimed: bool,
    kept: bool,
}

/// What tells whether a training has begun in its folder: whether there is one, and the size and the age of what it has saved last.
type First = (bool, Option<(u64, Option<SystemTime>)>);

impl Place {
    /// The folder of trainings that go on.
    pub fn there(folder: Folder) -> Place {
        Place { folder, made: Vec::new(), before: Vec::new(), claimed: true, kept: true }
    }

    /// The folder of new ones. Those that `replaces` says are there lose the files that all of them share.
    ///
    /// # Errors
    /// A file cannot be read or removed.
    pub fn new(folder: Folder, replaces: bool) -> Result<Place> {
        let missing = folder.path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let made = missing.map(Path::to_owned).collect();
        let mut place = Place { folder, made, before: Vec::new(), claimed: false, kept: false };
        for path in place.shared().into_iter().filter(|path| replaces && path.exists()) {
            let text = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
            durable::remove(&path).with_context(|| format!("cannot remove `{}`", path.display()))?;
            place.before.push((path, text));
        }
        Ok(place)
    }

    /// To be called when the folder is there: another run may have taken its number meanwhile.
    pub fn has_claimed(&mut self) {
        self.claimed = true;
        if let Some(own) = self.made.first_mut() {
            own.clone_from(&self.folder.path);
        }
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.folder.path.clone()
    }

    /// What a training has left in its folder, to be compared with what was there before.
    pub fn first(&self, training: &Path) -> First {
        let saved = fs::metadata(training.join(file::LAST)).ok();
        (is_run(training), saved.map(|saved| (saved.len(), saved.modified().ok())))
    }

    /// A training has begun: from now on all stays that is there.
    pub fn keep(&mut self) {
        self.kept = true;
    }

    fn shared(&self) -> Vec<PathBuf> {
        members::FILES.iter().chain(&[file::CONFIG]).map(|name| self.folder.path.join(name)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for path in self.shared().iter().filter(|_| self.claimed) {
            let _ = durable::remove(path);
        }
        for (path, text) in &self.before {
            let _ = durable::write(path, text);
        }
        self.folder.unlock();
        // Those in which there is something stay.
        for made in &self.made {
            let _ = fs::remove_dir(made);
        }
    }
}
