//! A run that was stopped on purpose goes on as if it had not been.

use super::support::{LAYERS, Place, assert_same_runs, digits};

fn config(train: &str, more: &str) -> String {
    digits(
        "train_transforms = [\"random_horizontal_flip\"]",
        &format!("{LAYERS}\n[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[train]\n{train}\n[log]\nevery_steps = 1\n{more}"),
    )
}

#[test]
fn more_steps_after_max_steps() {
    let place = Place::with(&config("epochs = 3", ""));
    place.ok("train c.toml --quiet --out whole");
    place.ok("train c.toml --quiet --out r --set train.max_steps=4");
    assert_eq!(place.metrics("r").last().unwrap()["kind"], "eval", "the part of an epoch is evaluated");
    // In the middle of an epoch, at its end, in the next one; the same place twice.
    for steps in [4, 10, 10, 13] {
        place.ok(&format!("train c.toml --quiet --out r --resume --set train.max_steps={steps}"));
        let lines = place.metrics("r");
        assert_eq!(lines.last().unwrap()["step"], steps);
        assert!(lines.iter().all(|l| l["kind"] != "epoch" || l["train_loss"].is_f64()), "no epoch without training");
    }
    place.ok("train c.toml --quiet --out r --resume --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
}

#[test]
fn accumulation_goes_on_between_its_updates() {
    let place = Place::with(&config("epochs = 2\naccumulate = 3", ""));
    place.ok("train c.toml --quiet --out whole");
    // Every batch has draws of its own, whichever update it is of: 10 in an epoch of 4 updates.
    let meta = place.checkpoint("whole/last.safetensors").meta;
    assert_eq!((meta.step, meta.extra["micro_step"].as_u64()), (8, Some(20)));
    for steps in 1..8 {
        let resume = if steps == 1 { "" } else { "--resume" };
        place.ok(&format!("train c.toml --quiet --out r {resume} --set train.max_steps={steps}"));
    }
    place.ok("train c.toml --quiet --out r --resume --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
}

#[test]
fn early_stopping_remembers_how_long_it_has_waited() {
    let early = "early_stopping = { monitor = \"val_loss\", patience = 2, min_delta = 0.4 }";
    let place = Place::with(&config(&format!("epochs = 30\n{early}"), ""));
    let done = place.ok("train c.toml --out whole");
    assert!(done.err.contains("stopped early after epoch"), "{}", done.err);
    let epochs = place.checkpoint("whole/last.safetensors").meta.epoch;
    assert!((3..30).contains(&epochs), "{epochs}");
    let steps = 10 * epochs - 3;
    place.ok(&format!("train c.toml --quiet --out r --set train.max_steps={steps}"));
    place.ok("train c.toml --quiet --out r --resume --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
    // What has stopped early stays so, until it is given more patience.
    let done = place.ok("train c.toml --out r --resume");
    assert!(done.err.contains("nothing to do: the run stopped early"), "{}", done.err);
    assert_same_runs((&place, "whole"), (&place, "r"));
    place.ok("train c.toml --quiet --out r --resume --set train.early_stopping.patience=3");
    assert!(place.checkpoint("r/last.safetensors").meta.epoch > epochs);
}

/// The rate has dropped before the run stops, and drops again after it goes on.
#[test]
fn a_plateau_remembers_how_long_it_has_waited() {
    let plateau = "[schedule]\ntype = \"plateau\"\npatience = 1\nthreshold = 0.25\nfactor = 0.5\ncooldown = 1\n";
    // No drop at the end of the last epoch: no step would have its rate.
    let place = Place::with(&config("epochs = 11", plateau));
    let done = place.ok("train c.toml --out whole");
    let rates: Vec<f64> = place.metrics("whole").iter().filter_map(|line| line["lr"].as_f64()).collect();
    let drops: Vec<usize> = (1..rates.len()).filter(|i| rates[*i] < rates[*i - 1]).collect();
    assert_eq!(done.err.matches("no longer improves: the learning rate is").count(), drops.len(), "{}", done.err);
    assert!(drops.len() >= 2 && drops.iter().all(|i| i % 10 == 0), "{drops:?}");
    // In the epoch before the last drop: what it waits for has begun.
    let steps = drops[drops.len() - 1] - 3;
    place.ok(&format!("train c.toml --quiet --out r --set train.max_steps={steps}"));
    place.ok("train c.toml --quiet --out r --resume --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
    // Another schedule knows nothing of the drops.
    place.ok("train c.toml --quiet --out r --resume --set schedule.type=constant --set train.epochs=13");
    assert_eq!(place.metrics("r").iter().filter_map(|line| line["lr"].as_f64()).next_back(), Some(3e-3));
}

#[test]
fn a_finished_run_takes_more_epochs() {
    let place = Place::with(&config("epochs = 3", ""));
    place.ok("train c.toml --quiet --out whole");
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    let before = place.read("r/metrics.jsonl");
    let done = place.ok("train c.toml --out r --resume --set train.epochs=2");
    assert!(done.err.contains("nothing to do: all 2 epochs are done"), "{}", done.err);
    assert_eq!(place.read("r/metrics.jsonl"), before);
    // What was given at the start stays until something else is.
    let done = place.ok("train c.toml --out r --resume");
    assert!(done.err.contains("nothing to do: all 2 epochs are done"), "{}", done.err);
    place.ok("train c.toml --quiet --out r --resume --set train.epochs=3");
    assert_same_runs((&place, "whole"), (&place, "r"));
}

/// With fewer epochs than are done, or from an earlier checkpoint, nothing of the run changes that is not trained.
#[test]
fn a_run_with_nothing_to_do_stays_as_it_is() {
    let place = Place::with(&config("epochs = 3", "tensorboard = true\n[checkpoint]\nevery_steps = 5\nkeep = 9"));
    place.ok("train c.toml --quiet --out r");
    // With times, as a file that is written anew has another one; the lock says which process used the folder last.
    let files = || {
        let mut all: Vec<_> = ["r", "r/tensorboard"]
            .iter()
            .flat_map(|folder| std::fs::read_dir(place.path(folder)).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file() && !path.ends_with(".lock"))
            .map(|path| (std::fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap(), path))
            .collect();
        all.sort_by(|a, b| a.2.cmp(&b.2));
        all
    };
    let before = files();
    for args in [
        "--resume r --set train.epochs=1",
        "--resume r --set train.epochs=3 --set log.every_steps=7",
        "--resume r/step-15.safetensors --set train.epochs=1",
        "--resume r/step-15.safetensors --set train.epochs=1 --set checkpoint.monitor=val_loss",
    ] {
        let done = place.ok(&format!("train {args}"));
        assert!(done.err.contains("nothing to do: all "), "{args}: {}", done.err);
        assert!(files() == before, "{args}: {}", done.err);
    }
    place.ok("verify r");
    let tensorboard = std::fs::read_dir(place.path("r/tensorboard")).unwrap().count();
    place.ok("train --resume r --quiet");
    assert_eq!(std::fs::read_dir(place.path("r/tensorboard")).unwrap().count(), tensorboard);
}

/// Sines of positions are in no checkpoint, and are there all the same.
#[test]
fn what_never_changes_is_not_saved() {
    let layers = "[model]\nlayers = [\n  { type = \"flatten\", end_dim = 2 },\n  { type = \"position_embedding\", kind = \"sinusoidal\" },\n  \
                  \"flatten\",\n  { type = \"linear\", out_features = 10 },\n]";
    let place = Place::with(&config("epochs = 2", "").replace(LAYERS, layers));
    place.ok("train c.toml --quiet --out whole");
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    place.ok("train c.toml --quiet --out r --resume --set train.epochs=2");
    assert_same_runs((&place, "whole"), (&place, "r"));
    let names: Vec<String> = place.checkpoint("r/last.safetensors").tensors.into_keys().collect();
    assert!(names.iter().all(|name| !name.contains("sinusoid")), "{names:?}");
    let evaluated: serde_json::Value = place.ok("eval r/last.safetensors --json").json();
    assert_eq!(evaluated["metrics"]["loss"], place.metrics("r").last().unwrap()["val_loss"]);
}

#[test]
fn an_older_checkpoint_takes_the_run_back() {
    let place = Place::with(&config("epochs = 2", "[checkpoint]\nevery_steps = 4\nkeep = 10\n"));
    place.ok("train c.toml --quiet --out whole");
    place.ok("train c.toml --quiet --out r");
    let step = |n: u64| place.path(&format!("r/step-{n}.safetensors"));
    assert!([4, 8, 12, 16, 20].into_iter().all(|n| step(n).exists()));
    // The folder is that of the checkpoint. What was saved later is gone at once: it would be taken for the newest.
    let done = place.ok("train c.toml --resume r/step-8.safetensors --set train.max_steps=9");
    assert!(done.err.contains("removed what the run had saved later"), "{}", done.err);
    assert!(step(4).exists() && step(8).exists() && !step(12).exists() && !step(20).exists());
    assert_eq!(place.checkpoint("r/last.safetensors").meta.step, 9);
    place.ok("train c.toml --quiet --out r --resume --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
}

/// The new folder has the run's past, and that of the checkpoint stays as it is.
#[test]
fn a_checkpoint_goes_on_in_a_folder_that_is_made() {
    let place = Place::with(&config("epochs = 3", "[checkpoint]\nevery_steps = 4\nkeep = 10\n"));
    place.ok("train c.toml --quiet --out whole");
    place.ok("train c.toml --quiet --out r --pause-after 1");
    let files = || {
        let entries = std::fs::read_dir(place.path("r")).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect::<std::collections::BTreeMap<_, _>>()
    };
    let before = files();
    let done = place.ok("train --resume r/last.safetensors --out new/folder");
    assert!(done.err.contains("resumed at epoch 2, batch 0, step 10"), "{}", done.err);
    place.ok("verify new/folder");
    assert_same_runs((&place, "whole"), (&place, "new/folder"));
    assert!(files() == before, "the run's own folder has changed");
    // The best epoch until then is copied, though none comes that is better; an empty folder does as well.
    std::fs::create_dir(place.path("empty")).unwrap();
    place.ok("train --quiet --resume r/last.safetensors --out empty --set train.epochs=1");
    place.ok("verify empty");
    assert!(std::fs::read(place.path("empty/best.safetensors")).unwrap() == before[&place.path("r/best.safetensors")]);
    // Each step of a run whose best came later: nothing claims a best that is not there.
    for step in [4, 12, 16, 28] {
        let train =
            format!("train --resume whole/step-{step}.safetensors --out from-{step} --set train.max_steps={step}");
        let done = place.ok(&train);
        assert!(
            !(10..=20).contains(&step) || done.err.contains("the best is chosen anew from here on"),
            "{}",
            done.err
        );
        place.ok(&format!("verify from-{step}"));
        place.ok(&format!("train --quiet --resume from-{step} --set train.max_steps=1000"));
        place.ok(&format!("verify from-{step}"));
        assert_eq!(place.metrics(&format!("from-{step}")), place.metrics("whole"));
    }
}

#[test]
fn old_steps_are_removed_as_keep_says() {
    let place = Place::with(&config("epochs = 2", "[checkpoint]\nevery_steps = 3\nkeep = 2\n"));
    place.ok("train c.toml --quiet --out r");
    let left: Vec<u64> = (1..=20).filter(|n| place.path(&format!("r/step-{n}.safetensors")).exists()).collect();
    assert_eq!(left, [15, 18]);
    assert_eq!(place.checkpoint("r/step-15.safetensors").meta.batch, 5);
}

#[test]
fn force_starts_anew_and_leaves_other_files_alone() {
    let place = Place::with(&config("epochs = 1", ""));
    place.ok("train c.toml --quiet --out r");
    place.write("r/notes.txt", "mine");
    place.write("r/.last.safetensors.tmp-77", "cut off");
    assert!(place.fails("train c.toml --out r", 2).contains("already holds a run"));
    // A start that fails takes nothing away.
    let old = place.read("r/metrics.jsonl");
    let args = "--set data.source=\"mnist\" --set data.root=\"nowhere\" --set data.download=false";
    place.fails(&format!("train c.toml --out r --force {args}"), 1);
    assert_eq!(place.read("r/metrics.jsonl"), old);
    let reads_it = place.fails("train r/config.toml --quiet --out r --force", 2);
    assert!(reads_it.contains("the new run reads `r/config.toml`"), "{reads_it}");
    assert_eq!(place.read("r/metrics.jsonl"), old);
    place.ok("train c.toml --quiet --out r --force --set seed=4");
    assert_ne!(place.read("r/metrics.jsonl"), old);
    // Files of the user with the names of a run's are no run, and `--force` replaces runs alone.
    place.write("own/config.toml", "# mine");
    place.write("events/tensorboard/other", "mine");
    for (words, file) in [
        ("train c.toml --out own", "own/config.toml"),
        ("train c.toml --out own --force", "own/config.toml"),
        ("train c.toml --out own --force --dry-run", "own/config.toml"),
        ("train c.toml --out events --force", "events/tensorboard"),
    ] {
        let error = place.fails(words, 2);
        assert!(error.contains(&format!("`{file}` is there")) && !error.contains("--force"), "{words}: {error}");
    }
    assert_eq!([place.read("own/config.toml"), place.read("events/tensorboard/other")], ["# mine", "mine"]);
    assert_eq!(place.read("r/notes.txt"), "mine");
    assert!(!place.path("r/.last.safetensors.tmp-77").exists());
}
