use super::*;

fn open(path: &Path, force: bool) -> Result<Folder> {
    Folder::new(Some(path), "x", if force { Replaces::Run } else { Replaces::Nothing })
}

#[test]
fn only_the_files_of_a_run_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut folder = open(&out, false).unwrap();
    assert!(!out.exists());
    folder.claim(false).unwrap();
    assert!(!folder.holds_run().unwrap(), "an empty folder is fine");
    drop(folder);
    let ours = [file::METRICS, file::LAST, "step-12.safetensors"];
    let unfinished = [".last.safetensors.tmp-7", ".config.toml.tmp-7"];
    let others = ["notes.txt", "step-x.safetensors"];
    for name in ours.iter().chain(&unfinished).chain(&others) {
        fs::write(out.join(name), "old").unwrap();
    }
    assert!(open(&out, false).unwrap_err().is::<Taken>());
    let mut folder = open(&out, true).unwrap();
    folder.claim(true).unwrap();
    let there = |names: &[&str]| names.iter().filter(|n| out.join(n).exists()).count();
    assert_eq!((there(&ours), there(&unfinished), there(&others)), (3, 0, 2), "the old run is whole");
    fs::write(folder.file(file::LAST), "new").unwrap();
    assert_eq!(fs::read_to_string(out.join(file::LAST)).unwrap(), "old");
    assert!(folder.saved().unwrap() && !folder.saved().unwrap());
    assert_eq!((there(&ours), there(&others)), (1, 2));
    assert_eq!(fs::read_to_string(folder.file(file::LAST)).unwrap(), "new");
    assert_eq!(fs::read_to_string(out.join(file::LAST)).unwrap(), "new");
}

#[test]
fn a_run_that_saves_nothing_leaves_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(file::LAST), "old").unwrap();
    let mut folder = open(dir.path(), true).unwrap();
    folder.claim(true).unwrap();
    fs::write(folder.file(file::METRICS), "new").unwrap();
    drop(folder);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, [file::LAST]);
}

#[test]
fn a_folder_is_one_run_s_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(file::LAST), "old").unwrap();
    let first = Folder::existing(Some(dir.path()), "x").unwrap();
    assert!(Folder::existing(Some(dir.path()), "x").unwrap_err().is::<InUse>());
    assert!(open(dir.path(), true).unwrap_err().is::<InUse>());
    drop(first);
    open(dir.path(), true).unwrap();
    // Neither was there when they looked.
    let out = dir.path().join("new");
    let (mut a, mut b) = (open(&out, false).unwrap(), open(&out, false).unwrap());
    a.claim(false).unwrap();
    assert!(b.claim(false).unwrap_err().is::<InUse>());
    fs::write(a.file(file::LAST), "").unwrap();
    drop(a);
    assert!(b.claim(false).unwrap_err().is::<Taken>());
}

#[test]
fn a_number_that_another_run_has_taken_is_left_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let next = || Folder::at(next_number(dir.path()).unwrap(), true);
    let (mut a, mut b) = (next(), next());
    a.claim(false).unwrap();
    b.claim(false).unwrap();
    assert_eq!((&a.path, &b.path), (&dir.path().join("1"), &dir.path().join("2")));
}

#[test]
fn runs_are_numbered() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(next_number(dir.path()).unwrap(), dir.path().join("1"));
    for n in ["1", "9", "10", "x"] {
        fs::create_dir(dir.path().join(n)).unwrap();
    }
    assert_eq!(next_number(dir.path()).unwrap(), dir.path().join("11"));
    fs::create_dir(dir.path().join(u32::MAX.to_string())).unwrap();
    assert!(next_number(dir.path()).unwrap_err().to_string().contains("no number after"));
}

/// Runs that are started at once take different numbers.
#[test]
fn numbers_are_taken_once() {
    let dir = tempfile::tempdir().unwrap();
    let parent = dir.path().join("runs/x");
    let taken: Vec<PathBuf> = std::thread::scope(|scope| {
        let claim = || {
            let mut folder = Folder::numbered(&parent).unwrap();
            folder.claim(false).unwrap();
            let path = folder.path.clone();
            // It goes on being locked, as that of a run at work is.
            std::mem::forget(folder);
            path
        };
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(move || (0..25).map(|_| claim()).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let different: std::collections::HashSet<&PathBuf> = taken.iter().collect();
    assert_eq!((taken.len(), different.len()), (200, 200));
}
