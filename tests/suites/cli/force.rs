//! Starting anew in the place of a run never loses both.

use super::support::{Place, assert_same_runs, plain};
use runner::random::{Purpose, Stream};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_kill_at_any_moment_leaves_the_old_run_or_the_new_one() {
    let config = format!("{}[checkpoint]\nevery_steps = 4\nkeep = 9\n", plain());
    let place = Place::with(&config);
    place.ok("train c.toml --quiet --out old");
    let start = Instant::now();
    place.ok("train c.toml --quiet --out new --set seed=4 --set checkpoint.every_steps=7");
    let length = start.elapsed().as_micros() as u32;
    let mut random = Stream::new(5, Purpose::Synthetic, 0, 0);
    let (mut kept, mut replaced) = (0, 0);
    for round in 0..24 {
        copy(&place.path("old"), &place.path("r"));
        let mut run = place.start("train c.toml --quiet --out r --force --set seed=4 --set checkpoint.every_steps=7");
        // Half of the time around the moment when one takes the other's place.
        if round % 2 == 0 {
            run.until(|| place.path("r/.new/last.safetensors").exists() || place.path("r/.new/ready.json").exists());
            std::thread::sleep(Duration::from_micros(random.below(600) as u64));
        } else {
            std::thread::sleep(Duration::from_micros(random.below(length) as u64));
        }
        run.signal(libc::SIGKILL);
        run.wait();
        // Whatever has a name can be used, and the configuration beside it is its own.
        let last = place.path("r/last.safetensors").exists().then(|| place.checkpoint("r/last.safetensors"));
        if let Some(last) = &last {
            assert!(last.meta.config.starts_with(&format!("seed = {}\n", last.meta.seed)));
            let beside = fs::read_to_string(place.path("r/config.toml"));
            assert!(beside.is_ok_and(|text| text == last.meta.config) || place.path("r/.new").exists());
        }
        place.ok("train --resume r --quiet");
        let seed = place.checkpoint("r/last.safetensors").meta.seed;
        let like = if seed == 4 { "new" } else { "old" };
        assert_eq!(names(&place.path("r")), names(&place.path(like)), "round {round}: nothing of the other is left");
        assert_same_runs((&place, like), (&place, "r"));
        assert_eq!(place.read("r/config.toml"), place.read(&format!("{like}/config.toml")));
        *if seed == 4 { &mut replaced } else { &mut kept } += 1;
    }
    assert!(kept > 0 && replaced > 0, "{kept} {replaced}");
}

#[test]
fn a_new_run_that_fails_before_it_has_saved_leaves_the_old_one() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out r");
    let before = names(&place.path("r"));
    let old = place.checkpoint("r/last.safetensors");
    let err = place.fails("train c.toml --out r --force --set optimizer.type=sgd --set optimizer.lr=1e38", 1);
    assert!(err.contains("whose run stays until this one has saved"), "{err}");
    assert!(!err.contains("are from before this step"), "what is there is another run's: {err}");
    assert_eq!(names(&place.path("r")), before);
    assert!(place.checkpoint("r/last.safetensors").tensors == old.tensors);
    assert!(place.read("r/config.toml").contains("type = \"adam\""));
    place.ok("train --resume r --quiet --set train.epochs=3");
    // One that succeeds takes the place, and what was known only to the old one is gone.
    place.write("r/step-999.safetensors", "old");
    place.ok("train c.toml --quiet --out r --force --set seed=4");
    assert_eq!(names(&place.path("r")), before);
    place.ok("train c.toml --quiet --out whole --set seed=4");
    assert_same_runs((&place, "whole"), (&place, "r"));
}
