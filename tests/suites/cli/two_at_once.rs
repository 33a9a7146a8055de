//! A run's folder is one process's at a time.

use super::support::{Place, assert_same_runs, plain};

/// A run that goes on until it is stopped.
fn endless() -> Place {
    Place::with(&plain().replace("epochs = 2", "epochs = 100000"))
}

#[test]
fn a_live_run_is_left_alone_and_its_holder_is_named() {
    let place = endless();
    let mut run = place.start("train c.toml --quiet --out r");
    assert!(run.until(|| place.path("r/last.safetensors").exists()));
    for args in [
        "train c.toml --out r",
        "train c.toml --out r --force",
        "train c.toml --out r --resume",
        "train --resume r",
        "train --resume r/best.safetensors",
    ] {
        let err = place.fails(args, 2);
        assert!(err.contains("another run is at work in `r`"), "{args}: {err}");
        assert!(
            err.contains(&format!("process {}", run.id())) && err.contains("train c.toml --quiet --out r"),
            "{err}"
        );
        assert!(err.contains("help: wait for it"), "{err}");
    }
    // Who only reads may do so.
    place.ok("eval r/last.safetensors");
    place.ok("export r/last.safetensors w.safetensors");
    assert!(run.until(|| true), "it is still at work");
    // The kernel takes the lock back, however the run ends.
    run.signal(libc::SIGKILL);
    run.wait();
    assert!(place.path("r/.lock").exists());
    place.ok("train --resume r --quiet --set train.max_steps=1");
    assert!(!place.path("r/.lock").exists(), "nothing is left of it");
}

#[test]
fn of_several_that_start_at_once_one_runs() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out whole");
    for round in 0..3 {
        let runs: Vec<_> = (0..4).map(|_| place.start(&format!("train c.toml --quiet --out r{round}"))).collect();
        let ends: Vec<_> = runs.into_iter().map(|run| run.wait().1).collect();
        let done = ends.iter().filter(|end| end.code == Some(0)).count();
        assert_eq!(done, 1, "{ends:?}");
        for end in ends.iter().filter(|end| end.code != Some(0)) {
            assert_eq!(end.code, Some(2), "{end:?}");
            assert!(end.err.contains("at work in") || end.err.contains("already holds a run"), "{}", end.err);
        }
        assert_same_runs((&place, "whole"), (&place, &format!("r{round}")));
    }
}

#[test]
fn several_that_go_on_at_once_do_not_mix() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out whole");
    place.ok("train c.toml --quiet --out r --set train.max_steps=7");
    let runs: Vec<_> = (0..4).map(|_| place.start("train --resume r --quiet --set train.max_steps=1000")).collect();
    let ends: Vec<_> = runs.into_iter().map(|run| run.wait().1).collect();
    // One that comes when the first has ended finds nothing to do.
    assert!(ends.iter().all(|end| matches!(end.code, Some(0 | 2))), "{ends:?}");
    assert!(ends.iter().any(|end| end.code == Some(0)), "{ends:?}");
    assert_same_runs((&place, "whole"), (&place, "r"));
}

#[test]
fn runs_without_a_folder_of_their_own_get_one_each() {
    let place = Place::with(&plain());
    let runs: Vec<_> = (0..4).map(|_| place.start("train c.toml --quiet")).collect();
    for run in runs {
        let (status, done) = run.wait();
        assert!(status.success(), "{done:?}");
    }
    for n in 1..=4 {
        assert_same_runs((&place, "runs/c/1"), (&place, &format!("runs/c/{n}")));
    }
}

#[cfg(unix)]
#[test]
fn links_in_a_run_s_folder_are_not_followed() {
    use runner::checkpoint;
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet --out r");
    let mine = place.write("mine", "mine");
    for name in ["config.toml", "metrics.jsonl", ".lock", ".config.toml.tmp-1"] {
        let path = place.path("r").join(name);
        let _ = std::fs::remove_file(&path);
        std::os::unix::fs::symlink(&mine, path).unwrap();
    }
    place.ok("train --resume r --quiet --set train.epochs=3");
    assert_eq!(place.read("mine"), "mine");
    for name in ["config.toml", "metrics.jsonl"] {
        assert!(!place.path("r").join(name).is_symlink(), "{name}");
    }
    place.ok("check r/config.toml");
    // Nor where a checkpoint is written first: this is the name that it has until it is whole.
    let checkpoint = place.checkpoint("r/last.safetensors");
    let temporary = place.path("r").join(format!(".last.safetensors.tmp-{}", std::process::id()));
    std::os::unix::fs::symlink(&mine, &temporary).unwrap();
    let views: Vec<_> = checkpoint.tensors.iter().map(|(name, t)| t.view(name)).collect();
    checkpoint::write(&place.path("r/last.safetensors"), &views, &checkpoint.meta).unwrap();
    assert_eq!(place.read("mine"), "mine");
    assert!(!place.path("r/last.safetensors").is_symlink() && !temporary.is_symlink());
}
