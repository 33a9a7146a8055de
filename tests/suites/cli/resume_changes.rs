//! Resuming from broken checkpoints, and with another configuration.

use super::support::{Place, plain};
use runner::checkpoint::{self, Tensor};
use runner::graph::DType;
use std::fs;

/// A run of 20 steps with checkpoints every five.
fn trained() -> Place {
    let place = Place::with(&format!("{}[checkpoint]\nevery_steps = 5\nkeep = 9\n", plain()));
    place.ok("train c.toml --quiet --out r");
    place
}

fn flip(place: &Place, name: &str, at: impl Fn(usize) -> usize) {
    let mut bytes = fs::read(place.path(name)).unwrap();
    let at = at(bytes.len());
    bytes[at] ^= 4;
    place.write(name, bytes);
}

#[test]
fn a_broken_newest_checkpoint_is_passed_over() {
    let place = trained();
    flip(&place, "r/last.safetensors", |n| n - 9);
    flip(&place, "r/step-20.safetensors", |n| n / 2);
    let best = place.path("r/best.safetensors");
    fs::remove_file(best).unwrap();
    let done = place.ok("train c.toml --out r --resume");
    assert!(done.err.contains("warning: ") && done.err.contains("looking for an older one"), "{}", done.err);
    assert!(done.err.contains("last.safetensors") && done.err.contains("step-20.safetensors"), "{}", done.err);
    assert!(done.err.contains("resumed at epoch 2, batch 5, step 15"), "{}", done.err);
    place.ok("train c.toml --quiet --out whole");
    let (a, b) = (place.checkpoint("r/last.safetensors"), place.checkpoint("whole/last.safetensors"));
    assert_eq!(a.tensors, b.tensors);
    assert_eq!(place.metrics("r"), place.metrics("whole"));
}

#[test]
fn without_a_whole_checkpoint_there_is_nothing_to_resume() {
    let place = trained();
    for entry in fs::read_dir(place.path("r")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "safetensors") {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - 10]).unwrap();
        }
    }
    let metrics = place.read("r/metrics.jsonl");
    let err = place.fails("train c.toml --out r --resume", 1);
    assert!(err.contains("no whole checkpoint"), "{err}");
    // What it advises works, here and where nothing is in the folder.
    assert!(
        err.contains("help: begin a run there with its configuration: `runner train CONFIG --out r --force`"),
        "{err}"
    );
    fs::create_dir(place.path("empty")).unwrap();
    let err = place.fails("train --resume empty", 1);
    assert!(err.contains("`runner train CONFIG --out empty`"), "{err}");
    place.ok("train c.toml --quiet --out empty");
    assert_eq!(place.read("r/metrics.jsonl"), metrics, "nothing is lost");
    assert!(place.fails("train c.toml --out nowhere --resume", 1).contains("nowhere"));
    assert!(place.fails("train c.toml --resume", 1).contains("runs/c"));
    place.ok("train c.toml --quiet --out r --force");
}

#[test]
fn what_is_no_checkpoint_of_this_model_is_refused_with_a_reason() {
    let place = trained();
    let last = "r/last.safetensors";
    let whole = fs::read(place.path(last)).unwrap();
    let cases: [(&str, Vec<u8>, &str); 5] = [
        ("cut.safetensors", whole[..whole.len() / 2].to_vec(), "cut short"),
        ("empty.safetensors", Vec::new(), "safetensors file"),
        ("text.safetensors", b"epoch,loss\n1,0.5\n".to_vec(), "safetensors file"),
        (
            "flipped.safetensors",
            whole.iter().enumerate().map(|(i, b)| if i == whole.len() - 99 { b ^ 1 } else { *b }).collect(),
            "damaged",
        ),
        ("header.safetensors", [&[0xff; 8], &whole[8..]].concat(), "safetensors file"),
    ];
    for (name, bytes, reason) in cases {
        let path = place.write(name, bytes);
        for command in ["eval", "export", "predict", "train c.toml --out r --resume"] {
            let more = match command {
                "export" => "out.safetensors",
                "predict" => "c.toml",
                _ => "",
            };
            let err = place.fails(&format!("{command} {} {more}", path.display()), 1);
            assert!(err.contains(reason) && err.contains(name), "{command}: {err}");
        }
    }
    // Whole, but only weights.
    place.ok("export r/last.safetensors w.safetensors");
    assert!(place.fails("eval w.safetensors", 1).contains("not a checkpoint of a run"));
    assert!(place.fails("train c.toml --out r --resume w.safetensors", 1).contains("not a checkpoint of a run"));
    assert!(place.fails("eval nowhere.safetensors", 1).matches("No such file").count() == 1);
}

#[test]
fn errors_of_weights_of_another_model_have_their_names() {
    let place = trained();
    let wider = plain().replace("out_features = 24", "out_features = 25");
    place.write("wide.toml", wider);
    let err = place.fails("train wide.toml --out s --set model.weights=\"r/last.safetensors\"", 2);
    assert!(err.contains("1.weight") && err.contains("[24, 64]") && err.contains("[25, 64]"), "{err}");
    let err = place.fails("train wide.toml --out r --resume", 2);
    assert!(err.contains("was 24, is 25"), "{err}");
}

#[test]
fn changes_are_named_and_those_that_break_the_run_refused() {
    let place = trained();
    let short = "train c.toml --out r --resume --set train.epochs=3";
    let harmless = place.ok(&format!("{short} --set data.workers=1 --set train.max_steps=21"));
    assert!(harmless.err.contains("without an effect on the numbers"), "{}", harmless.err);
    for line in ["data.workers: was 2, is 1", "train.epochs: was 2, is 3", "train.max_steps: was not set, is 21"] {
        assert!(harmless.err.contains(line), "{line} in {}", harmless.err);
    }
    let differs = place.ok(&format!("{short} --set optimizer.lr=1e-4 --set train.max_steps=22"));
    assert!(differs.err.contains("warning: the configuration has changed"), "{}", differs.err);
    assert!(differs.err.contains("optimizer.lr: was 0.003, is 0.0001"), "{}", differs.err);
    let before = place.read("r/metrics.jsonl");
    for (set, line) in [
        ("seed=4", "seed: was 3, is 4"),
        ("data.batch_size=16", "data.batch_size: was 32, is 16"),
        ("data.shuffle=false", "data.shuffle: was true, is false"),
        ("train.accumulate=2", "train.accumulate: was 1, is 2"),
        ("data.limit=100", "data.limit: was 320, is 100"),
        ("optimizer.type=\"adamw\"", "optimizer.type: was \"adam\", is \"adamw\""),
    ] {
        let err = place.fails(&format!("{short} --set {set}"), 2);
        assert!(err.contains("cannot go on with this configuration") && err.contains(line), "{set}: {err}");
    }
    assert_eq!(place.read("r/metrics.jsonl"), before, "a refusal changes nothing");
}

#[test]
fn a_checkpoint_moves_between_precisions() {
    let place = trained();
    let path = place.path("r/last.safetensors");
    let mut whole = place.checkpoint("r/last.safetensors");
    // What a run in `fp16` on another device would have left.
    let single = |data: f32| Tensor { dtype: DType::F32, shape: vec![1], data: data.to_le_bytes().to_vec() };
    whole.tensors.insert("grad_scaler.scale".into(), single(32768.0));
    let tracker = Tensor { dtype: DType::I64, shape: vec![1], data: 7i64.to_le_bytes().to_vec() };
    whole.tensors.insert("grad_scaler.growth_tracker".into(), tracker);
    let views: Vec<_> = whole.tensors.iter().map(|(name, t)| t.view(name)).collect();
    checkpoint::write(&path, &views, &whole.meta).unwrap();
    let done = place.ok("train c.toml --out r --resume --set train.epochs=3 --set precision=\"bf16\"");
    assert!(done.err.contains("precision: was \"fp32\", is \"bf16\""), "{}", done.err);
    let names: Vec<String> = place.checkpoint("r/last.safetensors").tensors.into_keys().collect();
    assert!(!names.iter().any(|name| name.starts_with("grad_scaler")), "{names:?}");
    checkpoint::write(&path, &views, &whole.meta).unwrap();
    place.ok("eval r/last.safetensors");
    place.ok("export r/last.safetensors w.safetensors");
    let weights = checkpoint::load_tensors(&place.path("w.safetensors")).unwrap().tensors;
    assert!(!weights.keys().any(|name| name.starts_with("grad_scaler")));
}

#[test]
fn a_precision_that_the_device_lacks_is_noted_and_becomes_fp32() {
    let place = Place::with(&plain());
    place.ok("train c.toml --out single --set train.epochs=1");
    for precision in ["tf32", "bf16", "fp16"] {
        let args = format!("train c.toml --out {precision} --set train.epochs=1 --set precision=\"{precision}\"");
        let (_, done) = place.start_with(&args, &[("RUNNER_BF16", "off".to_owned())]).wait();
        assert_eq!(done.code, Some(0), "{done:?}");
        let is_noted = |text: &str| text.contains(&format!("does not compute in `{precision}`: the run is in `fp32`"));
        assert_eq!(done.err.lines().filter(|line| is_noted(line)).count(), 1, "{}", done.err);
        let metrics = place.read(&format!("{precision}/metrics.jsonl"));
        let first = metrics.lines().next().unwrap();
        assert!(first.contains(r#""kind":"note""#) && is_noted(first), "{first}");
        let [one, other] =
            ["single", precision].map(|run| place.checkpoint(&format!("{run}/last.safetensors")).tensors);
        assert!(one == other, "{precision}");
    }
}

#[test]
fn a_metrics_file_that_is_lost_or_torn_does_not_bar_the_way() {
    let place = trained();
    let more = |epochs: usize| place.ok(&format!("train --out r --resume --set train.epochs={epochs}"));
    let whole = place.metrics("r");
    let text = place.read("r/metrics.jsonl");
    let cut = text.lines().take(4).map(|l| l.len() + 1).sum::<usize>() + 9;
    place.write("r/metrics.jsonl", &text[..cut]);
    let done = more(3);
    assert!(done.err.contains("warning: `metrics.jsonl` was") && done.err.contains("the run goes on"), "{}", done.err);
    let lines = place.metrics("r");
    assert_eq!(lines[..4], whole[..4]);
    assert_eq!(lines[4]["kind"], "note");
    assert!(lines[4]["note"].as_str().unwrap().contains("the other lines are lost"), "{}", lines[4]);
    assert_eq!((&lines[5]["step"], lines.len()), (&21.into(), 5 + 11));
    // It is known now: no second warning.
    let done = more(4);
    assert!(!done.err.contains("metrics.jsonl"), "{}", done.err);
    fs::remove_file(place.path("r/metrics.jsonl")).unwrap();
    assert!(more(5).err.contains("was 0 bytes long"));
    // The weights do not suffer.
    place.ok("train c.toml --quiet --out whole --set train.epochs=5");
    let [a, b] = ["r", "whole"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")));
    assert_eq!(a.tensors, b.tensors);
    assert_eq!(place.metrics("r")[1..], place.metrics("whole")[44..]);
}

#[test]
fn a_run_that_was_killed_before_its_last_write_gets_it() {
    let place = trained();
    // Of the end of the last epoch there is `best` alone; a checkpoint of its last step would be from before the evaluation.
    for file in ["last", "step-20"] {
        let _ = fs::remove_file(place.path(&format!("r/{file}.safetensors")));
    }
    assert_eq!(place.checkpoint("r/best.safetensors").meta.step, 20);
    let done = place.ok("train c.toml --out r --resume");
    assert!(done.err.contains("nothing to do"), "{}", done.err);
    assert_eq!(place.checkpoint("r/last.safetensors").meta.step, 20);
}

/// Samples that a limit drew otherwise in the version that began a run are not those that it goes on with.
#[test]
fn a_limit_of_another_version_is_noted_once() {
    let place = trained();
    let unlimited = plain().replace("limit = 320\nlimit_val = 100\n", "limit = 320\n");
    place.write("train_alone.toml", &unlimited);
    place.write("none.toml", unlimited.replace("limit = 320\n", ""));
    place.ok("train train_alone.toml --quiet --out t --set train.epochs=1");
    place.ok("train none.toml --quiet --out n --set train.epochs=1");
    let resumed = |run: &str, epochs: u32| place.ok(&format!("train --resume {run} --set train.epochs={epochs}")).err;
    let is_noted = |err: &str| err.contains("the run was begun by another version");
    assert!(!is_noted(&resumed("r", 3)));
    for run in ["r", "t", "n"] {
        let last = format!("{run}/last.safetensors");
        let checkpoint::Checkpoint { mut meta, tensors, .. } = place.checkpoint(&last);
        assert!(meta.extra.as_object_mut().unwrap().remove("draw").is_some());
        let views: Vec<_> = tensors.iter().map(|(name, tensor)| tensor.view(name)).collect();
        checkpoint::write(&place.path(&last), &views, &meta).unwrap();
    }
    let err = resumed("r", 4);
    assert!(err.contains("for which `limit` and `limit_val` in `[data]` may have taken other samples"), "{err}");
    assert!(place.read("r/metrics.jsonl").contains("begun by another version"));
    assert!(!is_noted(&resumed("r", 5)), "it has been noted");
    let err = resumed("t", 2);
    assert!(err.contains("for which `limit` in `[data]`"), "{err}");
    assert!(!is_noted(&resumed("n", 2)), "there is no limit");
}

/// From a checkpoint before the best one that is kept, with another configuration: nothing says that the run has a best checkpoint which is not there.
#[test]
fn a_best_checkpoint_that_is_gone_is_chosen_anew() {
    let place = trained();
    place.ok("train c.toml --quiet --out r --force --set checkpoint.monitor=val_loss --set checkpoint.every_steps=5");
    let before = place.checkpoint("r/best.safetensors").meta;
    assert_eq!(before.step, 20, "the loss falls");
    let done = place.ok("train --resume r/step-15.safetensors --set optimizer.lr=10 --set train.epochs=3");
    assert!(done.err.contains("the best is chosen anew from here on"), "{}", done.err);
    let best = place.checkpoint("r/best.safetensors").meta;
    assert!(best.step >= 20 && best.best.as_ref().unwrap().value > before.best.unwrap().value, "{best:?}");
    let listed = place.ok("runs r --json").json();
    assert_eq!(listed[0]["best"]["value"].as_f64(), best.best.map(|best| best.value), "{listed}");
    place.ok("verify r");
}

/// A schedule that watches a figure makes the learning rate depend on when is evaluated, and on what.
#[test]
fn evaluations_matter_where_the_rate_follows_from_them() {
    let place = Place::with(&plain().replace("[train]", "[schedule]\ntype = \"plateau\"\npatience = 0\n\n[train]"));
    place.ok("train c.toml --quiet --out r --pause-after 1");
    let done = place.ok("train --resume r --set data.limit_val=10");
    assert!(done.err.contains("data.limit_val"), "{}", done.err);
    assert!(!done.err.contains("without an effect on the numbers"), "{}", done.err);
}
