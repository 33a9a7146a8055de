//! The folder of several trainings, which is as it was before where none of them could begin.
//!
//! Those that new ones replace are moved into a folder of their own in it, so that none of them is taken for one of the new. They are moved back
//! if nothing has begun, and removed when something has. A process that is killed between leaves them there; the next one sees to it.

use crate::api::members;
use crate::files::durable;
use crate::train::files::folder::{Folder, file, is_at_work, is_run};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

/// Where trainings lie that are replaced, in the folder of all.
const OLD: &str = ".old";

/// Such a folder. Until [`Place::keep`] what was made of it is undone when this is dropped.
pub struct Place {
    /// It, locked.
    pub folder: Folder,
    /// Folders that were not there, the innermost first.
    made: Vec<PathBuf>,
    /// It is there, and the files in it that all trainings share are of these.
    claimed: bool,
    kept: bool,
}

/// Shows whether a training has begun in its folder: whether there is one, and the size and the age of its last checkpoint.
type First = (bool, Option<(u64, Option<SystemTime>)>);

impl Place {
    /// The folder of trainings that go on.
    pub fn there(folder: Folder) -> Place {
        Place { folder, made: Vec::new(), claimed: true, kept: true }
    }

    /// The folder of new ones. Those that `replaces` says are there are moved aside.
    ///
    /// # Errors
    /// A file cannot be moved.
    pub fn new(folder: Folder, replaces: bool) -> Result<Place> {
        let missing = folder.path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let made = missing.map(Path::to_owned).collect();
        let place = Place { folder, made, claimed: false, kept: false };
        if replaces {
            let path = &place.folder.path;
            move_aside(path).with_context(|| format!("cannot start anew in `{}`", path.display()))?;
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

    /// A training has begun: from now on all stays that is there, but for those that were replaced.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn keep(&mut self) -> Result<()> {
        self.kept = true;
        let old = self.folder.path.join(OLD);
        match old.is_dir() {
            true => fs::remove_dir_all(&old).with_context(|| format!("cannot remove `{}`", old.display())),
            false => Ok(()),
        }
    }
}

/// Sees to what a process that was killed has left in a folder: trainings that were moved aside are removed where one that replaces them has begun, and
/// are moved back where none has, or where all begin `anew`: then none of the new ones has come to its end. Nothing is done where a process is at work.
///
/// # Errors
/// They cannot be removed or moved.
pub fn settle(folder: &Path, anew: bool) -> Result<()> {
    if !folder.join(OLD).is_dir() || is_at_work(folder) {
        return Ok(());
    }
    let has_list = |place: &Path| members::FILES.iter().any(|name| place.join(name).is_file());
    let settle = || {
        // The list is moved first, and the new one is written when all is moved; on the way back it is the last.
        if !(has_list(folder) && has_list(&folder.join(OLD))) {
            return move_back(folder);
        }
        match !anew && trainings(folder)?.iter().any(|path| path.join(file::LAST).is_file()) {
            true => fs::remove_dir_all(folder.join(OLD)),
            false => undo(folder),
        }
    };
    settle().with_context(|| format!("cannot finish what was begun in `{}`", folder.display()))
}

fn move_aside(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder.join(OLD))?;
    let all = shared(folder).into_iter().filter(|path| path.exists()).chain(trainings(folder)?);
    for (from, name) in all.filter_map(|path| Some((path.clone(), path.file_name()?.to_owned()))) {
        fs::rename(from, folder.join(OLD).join(name))?;
    }
    Ok(())
}

/// Removes trainings that have not begun, and moves back those that they were to replace.
fn undo(folder: &Path) -> io::Result<()> {
    // The list goes last: as long as it is there, this is done again by the next process.
    trainings(folder)?.iter().try_for_each(fs::remove_dir_all)?;
    shared(folder).iter().rev().filter(|path| path.exists()).try_for_each(fs::remove_file)?;
    move_back(folder)
}

fn move_back(folder: &Path) -> io::Result<()> {
    let old = folder.join(OLD);
    let rest = shared(&old).into_iter().rev().filter(|path| path.exists());
    for (from, name) in
        trainings(&old)?.into_iter().chain(rest).filter_map(|path| Some((path.clone(), path.file_name()?.to_owned())))
    {
        fs::rename(from, folder.join(name))?;
    }
    fs::remove_dir_all(old)
}

/// The files that all trainings share.
fn shared(folder: &Path) -> Vec<PathBuf> {
    members::FILES.iter().chain(&[file::CONFIG]).map(|name| folder.join(name)).collect()
}

/// The folders of trainings, of however many.
fn trainings(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_one = |name: &str| {
        let number = name.strip_prefix("fold-").or_else(|| name.strip_prefix("seed-"));
        number.is_some_and(|number| number.parse::<usize>().is_ok())
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_one) && entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let path = &self.folder.path;
        for shared in shared(path).iter().filter(|_| self.claimed) {
            let _ = durable::remove(shared);
        }
        if path.join(OLD).is_dir() {
            // Nothing is of new trainings before they have claimed the folder. What cannot be moved now is there when it is taken next.
            let _ = if self.claimed { undo(path) } else { move_back(path) };
        }
        self.folder.unlock();
        // Those in which there is something stay.
        for made in &self.made {
            let _ = fs::remove_dir(made);
        }
    }
}
