//! Jobs that a batch system ends and starts again with the same command line.
#![cfg(unix)]

use super::support::{LAYERS, Place, assert_same_runs, digits};

fn config(epochs: usize) -> String {
    digits(
        "",
        &format!(
            "{LAYERS}\n[optimizer]\ntype = \"adam\"\nlr = 1e-3\n[train]\nepochs = {epochs}\n[checkpoint]\nevery_steps = 2\n[log]\nevery_steps = 1\n"
        ),
    )
}

const AUTO: &str = "train c.toml --quiet --resume auto";

#[test]
fn a_job_that_is_warned_and_started_again_comes_to_the_same() {
    let place = Place::with(&config(4));
    place.ok("train c.toml --quiet --out whole");
    for (out, more) in [("a", ""), ("b", " --threads 1")] {
        let mut running = place.start(&format!("{AUTO} --out {out}{more} --set train.epochs=3000"));
        assert!(running.until(|| place.path(&format!("{out}/last.safetensors")).exists()));
        running.signal(libc::SIGUSR1);
        let (_, done) = running.wait();
        assert_eq!(done.code, Some(130), "{done:?}");
        let step = place.checkpoint(&format!("{out}/last.safetensors")).meta.step;
        place.ok(&format!("{AUTO} --out {out}{more} --set train.epochs=3000 --set train.max_steps={}", step + 3));
        assert_eq!(place.checkpoint(&format!("{out}/last.safetensors")).meta.step, step + 3);
    }
    // What was begun by it is a run like any other.
    place.ok(&format!("{AUTO} --out r --set train.max_steps=7"));
    place.ok(&format!("{AUTO} --out r --set train.max_steps=1000"));
    assert_same_runs((&place, "whole"), (&place, "r"));
    let again = place.ok("train c.toml --resume auto --out r");
    assert!(again.err.contains("nothing to do: all 4 epochs are done"), "{}", again.err);
}

#[test]
fn the_newest_run_of_the_configuration_goes_on_and_without_one_it_begins() {
    let place = Place::with(&config(2));
    place.ok(&format!("{AUTO} --set train.max_steps=3"));
    assert_eq!(place.checkpoint("runs/c/1/last.safetensors").meta.step, 3);
    place.ok(&format!("{AUTO} --set train.max_steps=5"));
    assert_eq!(place.checkpoint("runs/c/1/last.safetensors").meta.step, 5);
    assert!(!place.path("runs/c/2").exists());
    // One that had saved nothing when it was ended is begun anew.
    std::fs::create_dir(place.path("runs/c/2")).unwrap();
    place.write("runs/c/2/config.toml", "");
    place.ok(&format!("{AUTO} --set train.max_steps=3"));
    assert_eq!(place.checkpoint("runs/c/3/last.safetensors").meta.step, 3);
    place.write("begun/metrics.jsonl", "{}\n");
    place.ok(&format!("{AUTO} --set train.max_steps=3 --out begun"));
    assert_eq!(place.checkpoint("begun/last.safetensors").meta.step, 3);
}

#[test]
fn auto_without_a_whole_checkpoint_or_a_configuration_is_an_error() {
    let place = Place::with(&config(1));
    place.ok("train c.toml --quiet --out r");
    for name in ["last", "best"] {
        place.write(&format!("r/{name}.safetensors"), "not a checkpoint");
    }
    for entry in std::fs::read_dir(place.path("r")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("step-") {
            std::fs::write(entry.path(), "nor is this").unwrap();
        }
    }
    let err = place.fails(&format!("{AUTO} --out r"), 1);
    assert!(err.contains("there is no whole checkpoint in `r`") && err.contains("--force"), "{err}");
    let err = place.fails("train --resume auto", 2);
    assert!(err.contains("no configuration is given"), "{err}");
    let err = place.fails("train r --resume auto", 2);
    assert!(err.contains("no configuration is given"), "{err}");
    let err = place.fails("train c.toml --resume auto --force", 2);
    assert!(err.contains("--force"), "{err}");
}
