//! States of recurrent layers that go on from batch to batch, and from token to token.

use super::support::{Place, assert_same_runs, repository};
use serde_json::Value;
use std::fs;

fn place(name: &str) -> Place {
    let place = Place::new();
    let from = repository("tests/golden/carried_state");
    for file in ["text.txt", "val.txt"] {
        fs::copy(from.join(file), place.path(file)).unwrap();
    }
    for (file, to) in [("config.toml", "c.toml"), ("start.safetensors", "start.safetensors")] {
        fs::copy(from.join(name).join(file), place.path(to)).unwrap();
    }
    place
}

/// The losses of steps, and of evaluations at the ends of epochs.
fn losses(place: &Place, run: &str) -> [Vec<f64>; 2] {
    let of = |kind: &str, key: &str| {
        let lines = place.metrics(run).into_iter().filter(|line| line["kind"] == kind);
        lines.filter_map(|line| line[key].as_f64()).collect()
    };
    [of("step", "loss"), of("epoch", "val_loss")]
}

/// Batches, states and gradients are those of `word_language_model`.
#[test]
fn states_go_on_as_in_pytorch() {
    for name in ["lstm", "gru", "rnn"] {
        let place = place(name);
        let golden = fs::read(repository("tests/golden/carried_state").join(name).join("golden.json")).unwrap();
        let golden: Value = serde_json::from_slice(&golden).unwrap();
        place.ok("train c.toml --out r");
        let found = losses(&place, "r");
        for (found, key) in found.iter().zip(["steps", "evaluations"]) {
            let wanted: Vec<f64> = golden[key].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
            assert_eq!(found.len(), wanted.len(), "{name}");
            assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 2e-5), "{name}: {found:?}, not {wanted:?}");
        }
        // States are what makes the difference from the second step on: the same batches without them.
        place.ok("train c.toml --out zeros --set data.carry_state=false --set data.shuffle=false --set train.epochs=1");
        assert_ne!(losses(&place, "zeros")[0][1], found[0][1], "{name}");
        // As `eval` finds it, of both parts.
        let loss = place.ok("eval r/last.safetensors --json").json()["metrics"]["loss"].as_f64().unwrap();
        assert!((loss - found[1][1]).abs() < 1e-6, "{name}: {loss}, {found:?}");
        place.ok("eval r/last.safetensors --split train --json");
        // No state dict has them.
        place.ok("export r/last.safetensors w.safetensors");
        assert!(place.checkpoint("r/last.safetensors").tensors.keys().any(|key| key.contains("carried")));
        let names = runner::checkpoint::load_tensors(&place.path("w.safetensors")).unwrap().tensors;
        let stderr = place.ok("export r/last.safetensors m.onnx").err;
        assert!(stderr.contains("recurrent layers begin with zeros in each run of the file"), "{stderr}");
        assert!(!names.is_empty() && names.keys().all(|key| !key.contains("carried")), "{:?}", names.keys());
    }
}

/// Stopped within an epoch and at its end, with evaluations within epochs, gradients for event files and layers that are computed again.
#[test]
fn a_run_with_carried_states_goes_on_bit_for_bit() {
    for name in ["lstm", "gru"] {
        let place = place(name);
        let sets = "--set train.epochs=3 --set train.eval_every_steps=3";
        place.ok(&format!("train c.toml --out whole {sets} --threads 2"));
        for stop in [1, 4, 6] {
            let part = format!("part{stop}");
            place.ok(&format!("train c.toml --out {part} {sets} --set train.max_steps={stop} --set data.workers=0"));
            place.ok(&format!("train --resume {part} --set train.max_steps=1000 --threads 1"));
            assert_same_runs((&place, "whole"), (&place, &part));
        }
        // Evaluation has states of its own.
        place.ok("train c.toml --out other --set train.epochs=3 --set train.eval_every=3");
        assert_eq!(losses(&place, "other")[0], losses(&place, "whole")[0], "{name}");
        for (run, more) in [
            ("again", "--set train.recompute=true"),
            ("named", "--set train.recompute=[\"states\"]"),
            ("board", "--set log.tensorboard=true"),
        ] {
            place.ok(&format!("train c.toml --out {run} {sets} {more}"));
            assert_eq!(losses(&place, run), losses(&place, "whole"), "{name}: {more}");
        }
    }
    // Several batches to a step: the state goes on in each of them.
    let place = place("lstm");
    let sets = "--set data.batch_size=6 --set train.accumulate=2 --set train.epochs=2";
    place.ok(&format!("train c.toml --out whole {sets}"));
    place.ok(&format!("train c.toml --out part {sets} --set train.max_steps=1"));
    place.ok("train --resume part --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "part"));
}

#[test]
fn mistakes_in_carried_states_have_places() {
    let place = place("lstm");
    let refused = |sets: &str, parts: &[&str]| {
        let message = place.fails(&format!("check c.toml {sets}"), 2);
        parts.iter().for_each(|part| assert!(message.contains(part), "{sets}: {part} is not in {message}"));
    };
    refused("--set data.limit=3", &["`carry_state` does not go with `limit`"]);
    refused("--set data.limit_val=3", &["`carry_state` does not go with `limit_val`"]);
    refused("--set data.batch_size=auto", &["`carry_state` does not go with `batch_size`"]);
    refused("--set distributed.shards=3", &["`carry_state` does not go with `shards`", "divides a batch"]);
    refused("--set data.batch_size=60", &["too few for `carry_state` with 60 streams"]);
    let text = place.read("c.toml");
    place.write("c.toml", text.replace("num_layers = 2", "num_layers = 2, bidirectional = true"));
    refused("", &["`carry_state` does not go with `bidirectional` of `lstm`", "goes both ways"]);
    place.write(
        "c.toml",
        text.replace("type = \"lstm\", hidden_size = 7, num_layers = 2", "type = \"linear\", out_features = 7"),
    );
    refused("", &["`carry_state` is for recurrent layers, and the model has none"]);
    place.write("c.toml", text.replace("source = \"text\"", "source = \"text_classes\""));
    refused("", &["carry_state"]);
}

/// What a text has been read to is kept from token to token: the tokens are those of the whole text.
#[test]
fn states_that_are_kept_change_no_token() {
    let place = place("lstm");
    let text =
        place.read("c.toml").replace("weights = \"start.safetensors\"\n", "").replace("context = 5", "context = 80");
    let text = text
        .replace("carry_state = true\n", "")
        .replace("[optimizer]\ntype = \"sgd\"\nlr = 0.5", "[optimizer]\ntype = \"adam\"\nlr = 0.02");
    place.write("text.txt", "a cat sat on a mat and a rat ran at a bat that sat on a hat in a vat. ".repeat(20));
    place.write("val.txt", "the cat ate the rat that sat on the mat and ran at the hat. ".repeat(4));
    for layer in ["lstm", "gru", "rnn"] {
        place.write("d.toml", text.replace("type = \"lstm\"", &format!("type = \"{layer}\"")));
        place.ok(&format!("train d.toml --out {layer}"));
        // Shorter and longer than a piece of a prompt, and longer than the model looks back.
        for (prompt, most) in [("a cat", 20), (&"the rat sat on a mat and ".repeat(3)[..70], 30), ("a", 100)] {
            for how in ["--temperature 0", "--temperature 1.2 --seed 4", "--beams 3 --length-penalty 2"] {
                let [kept, anew] = ["", "--without-cache"].map(|cache| {
                    let mut command =
                        place.command(&format!("generate {layer} --json --max-tokens {most} {how} {cache} --prompt"));
                    let done = super::support::Done::of(command.arg(prompt).output().unwrap());
                    assert!(!done.err.contains("is computed from the whole"), "{}", done.err);
                    done.json()
                });
                assert_eq!(kept["tokens"], anew["tokens"], "{layer}: {how}");
                assert!(!kept["tokens"].as_array().unwrap().is_empty(), "{layer}: {how}");
            }
        }
    }
}
