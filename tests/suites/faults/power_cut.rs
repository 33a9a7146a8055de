//! The power fails, at every moment of a run: what had been made durable is there, and nothing is half a file.

use crate::disk::{Bytes, Content, Disk, put};
use crate::fetch;
use crate::library::library;
use crate::operation::Operation;
use crate::place::Place;
use crate::readers;
use crate::run_state::{RunState, all_whole, newest_step};
use crate::sweep::{Failed, all, in_parallel};
use crate::train::{CONFIG, TRAIN, killed, one_of_two, recovers, replacement, undisturbed};
use runner::checkpoint;
use std::collections::HashSet;
use std::fs;

/// A disk after a cut.
struct Cut {
    /// Operations done by then.
    after: usize,
    content: Content,
    /// The run must not be after this step: a command had waited until that was durable.
    promised: Option<u64>,
    /// Only the files are looked at; the run is not continued.
    brief: bool,
}

/// All different disks that a cut in the course of `args` may leave. Every so manieth is to be looked at in full.
fn cuts(start: &Place, args: &str, every: usize) -> Vec<Cut> {
    let place = start.copy();
    let mut disk = Disk::load(&place.path());
    let (ended, operations) = place.recorded(args, None, true);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut promised = newest_step(&start.file("run"));
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for after in 0..=operations.len() {
        if let Some(operation) = after.checked_sub(1).map(|i| &operations[i]) {
            disk.apply(operation);
            promised = promise(&disk, operation).or(promised);
        }
        for content in disk.after_a_cut() {
            if seen.insert((content.clone(), promised)) {
                let brief = !all() && !found.len().is_multiple_of(every);
                found.push(Cut { after, content, promised, brief });
            }
        }
    }
    // The model is one of what happens: without a cut, both are the same.
    let mut whole = Content::new();
    let last = found.iter().rev().find(|cut| cut.after == operations.len());
    whole.extend(last.map(|cut| cut.content.clone()).unwrap_or_default());
    for (path, bytes) in &whole {
        let bytes = bytes.as_ref().map(Bytes::get);
        assert!(bytes.is_none() || bytes == fs::read(place.file(path)).ok().as_deref(), "`{path}` is another");
    }
    found
}

/// The step of `last`, where its folder has just been made durable.
fn promise(disk: &Disk, operation: &Operation) -> Option<u64> {
    if operation.name != "fsync" || operation.path != "run" {
        return None;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), disk.read("run/last.safetensors")?).unwrap();
    Some(checkpoint::read(file.path()).unwrap().meta.step)
}

fn after_every_cut(
    name: &str,
    start: &Place,
    args: &str,
    every: usize,
    check: impl Fn(&Place, &Cut) -> Result<(), String> + Sync,
) {
    let cuts = cuts(start, args, every);
    let looked_at = cuts.iter().filter(|c| !c.brief).count();
    in_parallel(name, &format!("{} disks, {looked_at} continued from", cuts.len()), &cuts, |cut| {
        let place = Place::new();
        put(&cut.content, &place.path());
        all_whole(&place.file("run")).and_then(|()| check(&place, cut)).map_err(|why| {
            let names: Vec<_> = cut.content.iter().map(|(n, b)| (n, b.as_ref().map(|b| b.get().len()))).collect();
            Failed { at: format!("after {} operations, with {names:?}", cut.after), why }
        })
    });
}

/// `config.toml` is one of these, or not there at all.
fn config_is_whole(place: &Place, texts: &[&RunState]) -> Result<(), String> {
    match fs::read_to_string(place.file("run/config.toml")) {
        Ok(text) if !texts.iter().any(|t| t.config() == text) => {
            Err(format!("config.toml is torn, or another's: {} bytes", text.len()))
        }
        _ => Ok(()),
    }
}

fn keeps_its_promise(place: &Place, cut: &Cut) -> Result<(), String> {
    let step = newest_step(&place.file("run"));
    match step >= cut.promised {
        true => Ok(()),
        false => Err(format!("step {:?} was durable, and {step:?} is there", cut.promised)),
    }
}

#[test]
fn in_a_new_run() {
    if library().is_none() {
        return;
    }
    let expected = undisturbed(CONFIG);
    let start = Place::with("c.toml", CONFIG);
    after_every_cut("power cut in train", &start, TRAIN, 25, |place, cut| {
        let config = config_is_whole(place, &[&expected]);
        keeps_its_promise(place, cut)?;
        if !cut.brief {
            recovers(place, &expected)?;
        }
        config
    });
}

#[test]
fn in_a_run_that_goes_on() {
    if library().is_none() {
        return;
    }
    let expected = undisturbed(CONFIG);
    after_every_cut("power cut in train --resume", &killed(CONFIG), &format!("{TRAIN} --resume"), 25, |place, cut| {
        let config = config_is_whole(place, &[&expected]);
        keeps_its_promise(place, cut)?;
        if !cut.brief {
            recovers(place, &expected)?;
        }
        config
    });
}

#[test]
fn in_a_run_in_the_place_of_another() {
    if library().is_none() {
        return;
    }
    let (start, old, new) = replacement();
    after_every_cut("power cut in train --force", &start, &format!("{TRAIN} --force"), 25, |place, cut| {
        let config = config_is_whole(place, &[&old, &new]);
        if !cut.brief {
            one_of_two(place, &old, &new)?;
        }
        config
    });
}

#[test]
fn in_an_export() {
    if library().is_none() {
        return;
    }
    let start = readers::place();
    let tried = start.copy();
    tried.ok(readers::EXPORT);
    let read = |place: &Place| fs::read(place.file("out.safetensors")).ok();
    let (old, new) = (read(&start), read(&tried));
    assert!(old.is_some() && new.is_some() && old != new);
    after_every_cut("power cut in export", &start, readers::EXPORT, 1, |place, _| {
        let found = read(place);
        if found != old && found != new {
            return Err(format!("neither the old file nor the new one: {:?} bytes", found.map(|f| f.len())));
        }
        place.ok(readers::EXPORT);
        if read(place) == new { Ok(()) } else { Err("done again, it is another".into()) }
    });
}

#[test]
fn in_a_download() {
    let Some(download) = fetch::Download::new() else { return };
    after_every_cut("power cut in data fetch", &download.start, &download.args, 40, |place, cut| {
        download.whole(place, false)?;
        if cut.brief {
            return Ok(());
        }
        let again = place.run(&download.args);
        match again.code {
            Some(0) => download.whole(place, true),
            _ => Err(format!("what is left is in the way: {again:?}")),
        }
    });
}

/// The model forgets what it should: a file that is renamed before it is durable is found out.
#[test]
fn a_rename_before_its_data_is_found_out() {
    let place = Place::new();
    let mut disk = Disk::load(&place.path());
    let operation = |name: &str, flags: i32, data: &[u8], other: &str| Operation {
        name: name.into(),
        hit: false,
        result: data.len() as i64,
        errno: 0,
        flags,
        offset: 0,
        data: data.to_vec(),
        path: if name == "rename" { "new".into() } else { other.to_string() },
        other: other.into(),
    };
    let found = |disk: &Disk| -> HashSet<Option<Vec<u8>>> {
        disk.after_a_cut().iter().map(|content| Some(content.get("file")?.as_ref()?.get().to_vec())).collect()
    };
    disk.apply(&operation("open", libc::O_CREAT, b"", "new"));
    disk.apply(&operation("write", 0, b"12", "new"));
    let mut synced = disk.clone();
    disk.apply(&operation("rename", 0, b"", "file"));
    let possible = [None, Some(b"12".to_vec()), Some(b"1".to_vec()), Some(b"".to_vec()), Some(b"\0\0".to_vec())];
    assert_eq!(found(&disk), possible.clone().into());
    synced.apply(&operation("fsync", 0, b"", "new"));
    synced.apply(&operation("rename", 0, b"", "file"));
    assert_eq!(found(&synced), possible[..2].iter().cloned().collect());
    synced.apply(&operation("fsync", 0, b"", "."));
    assert_eq!(found(&synced), possible[1..2].iter().cloned().collect());
}
