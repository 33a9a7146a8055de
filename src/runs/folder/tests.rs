use super::*;
use crate::checkpoint::{Best as Saved, TensorView};

const CONFIG: &str = "[train]\nepochs = 3\n[checkpoint]\nmonitor = \"val_accuracy\"\n[model]\nlayers = [\"relu\", { type = \"linear\", out_features = 2 }]\n";

fn epoch(n: u64, accuracy: f64) -> String {
    format!("{{\"kind\":\"epoch\",\"epoch\":{n},\"step\":{},\"val_accuracy\":{accuracy},\"seconds\":1.5}}\n", 10 * n)
}

/// A folder with that configuration and these metrics and, where there is a meta, a checkpoint.
fn folder(config: &str, metrics: &str, meta: Option<Meta>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(file::CONFIG), config).unwrap();
    fs::write(dir.path().join(file::METRICS), metrics).unwrap();
    if let Some(meta) = meta {
        checkpoint::write(&dir.path().join(file::LAST), &[] as &[TensorView], &meta).unwrap();
    }
    dir
}

fn read(dir: &tempfile::TempDir) -> Run {
    Run::read(dir.path(), Wanted::Epochs).unwrap()
}

#[test]
fn a_run_says_how_it_ended() {
    let all = [epoch(1, 0.5), epoch(2, 0.75), epoch(3, 0.75)].concat();
    let run = read(&folder(CONFIG, &all, None));
    assert_eq!((run.state, run.epochs, run.step, run.seconds), (State::Finished, 3, 30, 4.5));
    assert_eq!(
        run.best,
        Some(Best { monitor: "val_accuracy".into(), value: 0.75, at: Some(At { epoch: 2, step: None }) })
    );
    let two = [epoch(1, 0.5), epoch(2, 0.75)].concat();
    let run = read(&folder(CONFIG, &two, None));
    assert_eq!((run.state, run.why.as_deref()), (State::Stopped, Some("interrupted")));
    let dir = folder(CONFIG, &two, None);
    fs::write(dir.path().join(".lock"), "{}").unwrap();
    assert_eq!(read(&dir).why.as_deref(), Some("its process was killed"));
    let failed = format!("{two}{{\"kind\":\"failed\",\"why\":\"the loss is NaN\"}}\n");
    let run = read(&folder(CONFIG, &failed, None));
    assert_eq!((run.state, run.why.as_deref()), (State::Failed, Some("the loss is NaN")));
    let steps = format!("{}max_steps = 20\n", CONFIG.split("[checkpoint]").next().unwrap());
    assert_eq!(read(&folder(&steps, &two, None)).state, State::Finished);
    let early = CONFIG.replace("[train]\nepochs = 3", "train.epochs = 3\ntrain.early_stopping = { patience = 2 }");
    for (waited, state) in [(1, State::Stopped), (2, State::Finished)] {
        let mut meta = Meta::new("", 0);
        (meta.epoch, meta.extra) = (2, serde_json::json!({ "early_waited": waited }));
        assert_eq!(read(&folder(&early, &two, Some(meta))).state, state, "{waited}");
    }
}

/// A length in steps: the evaluation after the last one ends the run. Evaluations within an epoch are no epochs.
#[test]
fn a_run_by_steps_says_how_far_it_is() {
    let config = CONFIG.replace("epochs = 3", "steps = 25");
    let within = |step: u64, accuracy: f64| {
        format!("{{\"kind\":\"eval\",\"epoch\":3,\"step\":{step},\"val_accuracy\":{accuracy},\"seconds\":0.75}}\n")
    };
    let lines = [epoch(1, 0.5), epoch(2, 0.75), within(23, 0.9), within(25, 0.8)].concat();
    for (evaluated, state) in [(23, State::Stopped), (25, State::Finished)] {
        let mut meta = Meta::new("", 0);
        (meta.epoch, meta.batch, meta.step, meta.extra) = (2, 5, 25, serde_json::json!({ "evaluated": evaluated }));
        let run = read(&folder(&config, &lines, Some(meta)));
        assert_eq!((run.state, run.progress().as_str()), (state, "2 (25/25 steps)"));
        // The seconds of the epoch that has been begun are those of its last line.
        assert_eq!((run.epochs, run.seconds), (2, 3.75));
        let at = At { epoch: 3, step: Some(23) };
        assert_eq!(run.best, Some(Best { monitor: "val_accuracy".into(), value: 0.9, at: Some(at) }));
        assert_eq!((at.short().as_str(), at.to_string().as_str()), ("@step 23", "step 23"));
    }
    assert_eq!(read(&folder(&config, &lines, None)).epochs, 2);
}

#[test]
fn a_lock_that_is_held_says_that_the_run_is_at_work() {
    let dir = folder(CONFIG, &epoch(1, 0.5), None);
    let folder = crate::train::files::folder::Folder::existing(Some(dir.path()), "").unwrap();
    assert_eq!(read(&dir).state, State::Running);
    drop(folder);
    assert_eq!(read(&dir).state, State::Stopped);
}

#[test]
fn missing_files_are_replaced_by_the_checkpoint_or_are_problems() {
    let mut meta = Meta::new(CONFIG, 0);
    (meta.epoch, meta.step, meta.best) = (3, 30, Some(Saved { monitor: "val_accuracy".into(), value: 0.9 }));
    let dir = folder("[", "", Some(meta));
    let run = read(&dir);
    assert_eq!(run.problems.len(), 1, "{:?}", run.problems);
    fs::remove_file(dir.path().join(file::CONFIG)).unwrap();
    let run = read(&dir);
    assert_eq!((run.state, run.step, run.problems.len()), (State::Finished, 30, 0));
    assert_eq!(run.best, Some(Best { monitor: "val_accuracy".into(), value: 0.9, at: None }));
    fs::write(dir.path().join(file::LAST), "no checkpoint").unwrap();
    assert_eq!(read(&dir).problems.len(), 2);
}

#[test]
fn keys_have_their_whole_names() {
    let run = read(&folder(CONFIG, "", None));
    let keys: Vec<&str> = run.config.iter().map(|(key, _)| key.as_str()).collect();
    let layers = ["model.layers[0]", "model.layers[1].out_features", "model.layers[1].type"];
    assert_eq!(keys, [&["checkpoint.monitor"][..], &layers, &["train.epochs"]].concat());
}
