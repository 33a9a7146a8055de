//! The archive that travels.

use super::{Place, python, ready, text};
use std::fs;
use std::path::Path;
use std::process::Output;

/// Calls `gpu_bundle.py`, with a tree of its own: its kernels are in `tree/kernels`.
fn bundle(place: &Place, args: &[&str]) -> Output {
    let code = format!(
        "import sys, pathlib, gpu_bundle as b\n\
         b.ROOT, b.tree_bytes = pathlib.Path(sys.argv[1]), lambda: 1 << 20\n\
         sys.exit(b.main({args:?}))"
    );
    python(&code, &[&place.path("tree")])
}

/// Bytes that cannot be packed any smaller.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Two programs with the same kernels in them, one of which the tree has as well.
fn packed(place: &Place) -> [Vec<u8>; 2] {
    let kernels = place.path("tree/kernels/packed/ptx");
    fs::create_dir_all(&kernels).unwrap();
    let (known, other, unknown) = (noise(1, 60_000), noise(2, 20_000), noise(3, 30_000));
    fs::write(kernels.join("a.ptx.gz"), &known).unwrap();
    fs::write(kernels.join("b.ptx.gz"), &other).unwrap();
    fs::write(kernels.join("small.cu"), b"x").unwrap();
    let a = [&noise(4, 900)[..], &other, &unknown, &known, b"xend"].concat();
    let b = [&known[..], &noise(5, 900), &known].concat();
    let folder = place.path("packing");
    for (name, content) in [("bin/runner", &a), ("bin/ops", &b), ("data/mnist/labels.gz", &b"labels".to_vec())] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    [a, b]
}

fn paths(place: &Place) -> [String; 3] {
    ["packing", "bundle.tar.xz", "unpacked"].map(|name| place.path(name).display().to_string())
}

#[test]
fn programs_come_out_as_they_went_in_and_kernels_of_the_tree_do_not_travel_twice() {
    if !ready() {
        return;
    }
    let place = Place::new();
    let [a, b] = packed(&place);
    let [folder, archive, to] = paths(&place);
    let done = bundle(&place, &["pack", &folder, &archive, "abc", "2"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("with the working tree of"), "{}", text(&done.stdout));
    let size = fs::metadata(&archive).unwrap().len();
    // What no file of the tree has, and the second of two in one program.
    assert!((90_000..110_000).contains(&size), "{size}");
    let done = bundle(&place, &["unpack", &archive, &to]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    for (name, content) in [("runner", &a), ("ops", &b)] {
        assert!(fs::read(Path::new(&to).join("bin").join(name)).unwrap() == *content, "{name} has changed");
    }
    assert_eq!(fs::read(Path::new(&to).join("data/mnist/labels.gz")).unwrap(), b"labels");

    // Another tree, a damaged archive, and none.
    let kernel = place.path("tree/kernels/packed/ptx/a.ptx.gz");
    for content in [noise(9, 60_000), noise(1, 50_000)] {
        fs::write(&kernel, content).unwrap();
        let done = bundle(&place, &["unpack", &archive, &to]);
        let said = text(&done.stderr);
        assert!(done.status.code() == Some(1) && said.contains("pack and carry both together"), "{said}");
    }
    let whole = fs::read(&archive).unwrap();
    for content in [&whole[..whole.len() / 2], b"no archive".as_slice(), b""] {
        fs::write(&archive, content).unwrap();
        let done = bundle(&place, &["unpack", &archive, &to]);
        let said = text(&done.stderr);
        assert!(done.status.code() == Some(1) && said.contains("bundle.tar.xz` cannot be unpacked"), "{said}");
    }
}

#[test]
fn what_may_not_travel_is_refused() {
    if !ready() {
        return;
    }
    let place = Place::new();
    packed(&place);
    let [folder, archive, _] = paths(&place);
    let done = bundle(&place, &["pack", &folder, &archive, "abc", "1"]);
    let said = text(&done.stderr);
    assert!(done.status.code() == Some(1) && said.contains("that may travel"), "{said}");
    assert!(text(&done.stdout).contains("of 1 MiB"), "the size is named all the same: {}", text(&done.stdout));
}

#[test]
fn the_working_tree_is_weighed() {
    let git = |args: &[&str], folder: &Path| {
        std::process::Command::new("git").args(args).current_dir(folder).output().is_ok_and(|o| o.status.success())
    };
    let place = Place::new();
    if !ready() || !git(&["init", "--quiet"], &place.path("")) {
        eprintln!("skipped: there is no git, or no Python");
        return;
    }
    // Files that git knows, that it does not know, that it ignores; and `shared`, which is carried whether it knows of it or not.
    let files = [(".gitignore", 15), ("known", 1000), ("unknown", 200), ("ignored", 5000), ("shared/data", 30)];
    fs::create_dir(place.path("shared")).unwrap();
    fs::remove_dir_all(place.path("bundle")).unwrap();
    for (name, bytes) in files {
        fs::write(place.path(name), vec![b'x'; bytes]).unwrap();
    }
    fs::write(place.path(".gitignore"), "ignored\nshared\n").unwrap();
    assert!(git(&["add", "known"], &place.path("")));
    let code = "import sys, pathlib, gpu_bundle as b\nb.ROOT = pathlib.Path(sys.argv[1])\nprint(b.tree_bytes())";
    let done = python(code, &[&place.path("")]);
    assert_eq!(text(&done.stdout).trim(), "1245", "{}", text(&done.stderr));
}
