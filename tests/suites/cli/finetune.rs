//! Training that begins with the weights of another one: what is frozen and thawed, rates by layers, moving averages.

use super::support::{Place, assert_same_runs, digits};
use runner::checkpoint::{Checkpoint, Tensor, load_tensors, write_weights};
use serde_json::Value;

/// Two epochs of five steps; layer 1 is a linear one, 2 batch norm, 4 the head.
fn config(model: &str, optimizer: &str, train: &str) -> String {
    let layers = "layers = [\"flatten\", { type = \"linear\", out_features = 12 }, \"batch_norm1d\", \"relu\", { type = \"linear\", out_features = 10 }]";
    let rest = format!(
        "[model]\n{layers}\n{model}\n[optimizer]\n{optimizer}\n[train]\nepochs = 2\n{train}\n[log]\nevery_steps = 1\n\
         [checkpoint]\nevery_steps = 1\nkeep = 100\n"
    );
    digits("shuffle = false\n", &rest).replace("limit = 320", "limit = 160")
}

const ADAM: &str = "type = \"adam\"\nlr = 1e-2";
const SGD: &str = "type = \"sgd\"\nlr = 0.125\nweight_decay = 0.01";

/// A place where `start/last.safetensors` is of one epoch of plain training.
fn begun() -> Place {
    let place = Place::with(&config("", SGD, ""));
    place.ok("train c.toml --quiet --out start --set train.epochs=1");
    place
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.data.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect()
}

fn same_weights(a: &Checkpoint, b: &Checkpoint) {
    for (name, tensor) in a.tensors.iter().filter(|(name, _)| !name.starts_with("optimizer.")) {
        assert!(tensor.data == b.tensors[name].data, "`{name}` differs");
    }
}

/// As a loop by hand makes them: `a ← d · a + (1 − d) · w` after each update, from the weights that the run begins with; of
/// parameters and running statistics.
#[test]
fn moving_averages_are_those_of_a_loop() {
    let place = begun();
    let start = place.checkpoint("start/last.safetensors");
    let variants = [
        ("ema = { decay = 0.9 }", ADAM, ""),
        ("ema = { decay = 0.5, warmup = false }", SGD, "clip_grad_norm = 0.1"),
        ("ema = {}", ADAM, "accumulate = 2"),
    ];
    for (i, (ema, rule, train)) in variants.into_iter().enumerate() {
        let weights = "weights = \"start/last.safetensors\"";
        place.write("e.toml", config(weights, &format!("{rule}\n{ema}"), train));
        let run = format!("r{i}");
        let stderr = place.ok(&format!("train e.toml --out {run}")).err;
        assert!(stderr.contains("moving average of the weights"), "{stderr}");
        let last = place.checkpoint(&format!("{run}/last.safetensors"));
        let averaged: Vec<&str> = last.tensors.keys().filter_map(|n| n.strip_prefix("optimizer.average.")).collect();
        assert_eq!(averaged.len(), 8, "six parameters, two statistics: {averaged:?}");
        for name in averaged {
            let mut average: Vec<f64> = floats(&start.tensors[name]).into_iter().map(f64::from).collect();
            for step in 1..=last.meta.step {
                let now = place.checkpoint(&format!("{run}/step-{step}.safetensors"));
                let warm = (1.0 + step as f64) / (10.0 + step as f64);
                let decay = [f64::min(0.9, warm), 0.5, warm][i];
                for (a, w) in average.iter_mut().zip(floats(&now.tensors[name])) {
                    *a = decay * *a + (1.0 - decay) * f64::from(w);
                }
                let kept = floats(&now.tensors[&format!("optimizer.average.{name}")]);
                for (a, kept) in average.iter().zip(kept) {
                    assert!((a - f64::from(kept)).abs() <= 1e-5 * a.abs().max(1.0), "{run} {name} {step}: {a} {kept}");
                }
            }
        }
        // Validation is of the averages, and so is all that is made of the checkpoint.
        let metrics = place.metrics(&run);
        let line = metrics.iter().rfind(|l| l["kind"] == "epoch").unwrap();
        let eval = place.ok(&format!("eval {run}/last.safetensors --json")).json();
        let loss = |v: &Value| v.as_f64().unwrap();
        assert!((loss(&line["val_loss"]) - loss(&eval["metrics"]["loss"])).abs() < 1e-9, "{line} {eval}");
        place.ok(&format!("export {run}/last.safetensors w.safetensors"));
        let exported = load_tensors(&place.path("w.safetensors")).unwrap().tensors;
        assert_eq!(exported["4.weight"].data, last.tensors["optimizer.average.4.weight"].data);
        assert_ne!(exported["4.weight"].data, last.tensors["4.weight"].data);
        // Stopped and resumed it is the same.
        place.ok(&format!("train e.toml --quiet --out s{i} --set train.max_steps=2"));
        place.ok(&format!("train e.toml --quiet --out s{i} --resume --set train.max_steps=1000"));
        assert_same_runs((&place, &run), (&place, &format!("s{i}")));
    }
}

/// Far beyond the updates in which the decay of `decay = 0.9` warms up. The model has one weight, all of its inputs are 1 and its
/// targets 0, so that each update multiplies the weight with `1 − 2 · lr`, and nothing is taken from the run but the averages.
#[test]
fn a_moving_average_is_right_after_many_updates() {
    const UPDATES: u64 = 150;
    const RATE: f64 = 0.0078125;
    let config = "device = \"cpu\"\n[data]\nsource = \"tensors\"\npath = \"d.safetensors\"\nbatch_size = 2\nvalidation_split = 2\n\
                  [model]\nweights = \"w.safetensors\"\nlayers = [{ type = \"linear\", out_features = 1, bias = false }]\n\
                  [loss]\ntype = \"mse\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.0078125\nema = EMA\n[train]\nsteps = 150\n\
                  [checkpoint]\nevery_steps = 10\nkeep = 100\n";
    let place = Place::new();
    let [ones, zeros] = [1.0, 0.0].map(|value| Tensor::from_f32([8, 1], &[value; 8]));
    write_weights(&place.path("d.safetensors"), &[ones.view("inputs"), zeros.view("targets")]).unwrap();
    write_weights(&place.path("w.safetensors"), &[Tensor::from_f32([1, 1], &[1.0]).view("0.weight")]).unwrap();
    let variants =
        [("{}", 0.999, true), ("{ decay = 0.9 }", 0.9, true), ("{ decay = 0.97, warmup = false }", 0.97, false)];
    for (i, (ema, most, warms_up)) in variants.into_iter().enumerate() {
        place.write("c.toml", config.replace("EMA", ema));
        place.ok(&format!("train c.toml --quiet --out r{i}"));
        let (mut weight, mut average) = (1.0, 1.0);
        for update in 1..=UPDATES {
            weight *= 1.0 - 2.0 * RATE;
            let warm = (1 + update) as f64 / (10 + update) as f64;
            let decay = if warms_up && warm < most { warm } else { most };
            average = decay * average + (1.0 - decay) * weight;
            if update % 10 == 0 {
                let found = place.checkpoint(&format!("r{i}/step-{update}.safetensors"));
                for (name, expected) in [("0.weight", weight), ("optimizer.average.0.weight", average)] {
                    let value = f64::from(floats(&found.tensors[name])[0]);
                    // Roundings in single precision, one or two an update.
                    let most = 2.0 * UPDATES as f64 * f64::from(f32::EPSILON);
                    assert!(
                        (value / expected - 1.0).abs() < most,
                        "{ema}, update {update}, {name}: {value}, not {expected}"
                    );
                }
            }
        }
    }
}

/// The mean of the weights at the ends of epochs, from the second on; nothing before. Batch norm's statistics are of all five
/// batches alike. Stopped anywhere and resumed it is the same.
#[test]
fn means_over_epochs_are_those_of_a_loop() {
    let place = begun();
    for (i, train) in ["", "accumulate = 2"].into_iter().enumerate() {
        let swa = "swa = { start = 1, lr = 0.05, anneal_epochs = 2 }";
        place.write(
            "e.toml",
            config("", &format!("{SGD}\n{swa}"), train).replace("[train]\nepochs = 2", "[train]\nepochs = 4"),
        );
        let run = format!("r{i}");
        let stderr = place.ok(&format!("train e.toml --out {run}")).err;
        for words in ["from epoch 2 on validation is of the mean", "epoch 2: weights are averaged from here on"] {
            assert!(stderr.contains(words), "{stderr}");
        }
        let last = place.checkpoint(&format!("{run}/last.safetensors"));
        let per_epoch = last.meta.step / 4;
        let first = place.checkpoint(&format!("{run}/step-{per_epoch}.safetensors"));
        assert!(first.tensors.keys().all(|name| !name.starts_with("optimizer.average.")), "nothing is averaged yet");
        let ends: Vec<Checkpoint> =
            (2..=4).map(|epoch| place.checkpoint(&format!("{run}/step-{}.safetensors", epoch * per_epoch))).collect();
        for (name, average) in &last.tensors {
            let Some(name) = name.strip_prefix("optimizer.average.").filter(|name| !name.starts_with("2.running"))
            else {
                continue;
            };
            if name == "2.num_batches_tracked" {
                assert_eq!(average.data, 5i64.to_ne_bytes());
                continue;
            }
            let mut mean = vec![0.0; floats(average).len()];
            for end in &ends {
                mean.iter_mut().zip(floats(&end.tensors[name])).for_each(|(m, w)| *m += f64::from(w) / 3.0);
            }
            for (mean, kept) in mean.iter().zip(floats(average)) {
                assert!((mean - f64::from(kept)).abs() <= 1e-6 * mean.abs().max(1.0), "{run} {name}: {mean} {kept}");
            }
        }
        assert_ne!(last.tensors["2.running_mean"].data, last.tensors["optimizer.average.2.running_mean"].data);
        // Validation is of the weights, then of the mean, and so is what is made of checkpoints. Rates go to that of averaging.
        let metrics = place.metrics(&run);
        let losses: Vec<f64> =
            metrics.iter().filter(|l| l["kind"] == "epoch").map(|l| l["val_loss"].as_f64().unwrap()).collect();
        for (file, loss) in [("last", losses[3]), (&format!("step-{per_epoch}"), losses[0])] {
            let eval = place.ok(&format!("eval {run}/{file}.safetensors --json")).json();
            assert!((loss - eval["metrics"]["loss"].as_f64().unwrap()).abs() < 1e-9, "{file} {losses:?} {eval}");
        }
        let rates: Vec<f64> =
            metrics.iter().filter(|l| l["kind"] == "step").map(|l| l["lr"].as_f64().unwrap()).collect();
        let of_epochs: Vec<f64> = rates.iter().step_by(per_epoch as usize).copied().collect();
        let expected = [0.125, 0.125, 0.0875, 0.05];
        assert!(of_epochs.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{of_epochs:?}");
        for stop in [1, per_epoch, per_epoch + 2, 2 * per_epoch, 3 * per_epoch + 1] {
            let stopped = format!("s{i}-{stop}");
            place.ok(&format!("train e.toml --quiet --out {stopped} --set train.max_steps={stop}"));
            place.ok(&format!("train e.toml --quiet --out {stopped} --resume --set train.max_steps=1000"));
            assert_same_runs((&place, &run), (&place, &stopped));
        }
    }
}

/// On any number of threads, and stopped and resumed, Muon comes to the same bits. The report names what it leaves to AdamW.
#[test]
fn muon_is_the_same_in_any_way() {
    let place = begun();
    let muon = |more: &str| format!("type = \"muon\"\nlr = 0.01\n{more}");
    for (i, (more, train)) in
        [("", ""), ("adamw = { match = [], lr = 1e-3 }\nema = {}", "accumulate = 2\nclip_grad_norm = 0.5")]
            .into_iter()
            .enumerate()
    {
        place.write("e.toml", config("", &muon(more), train));
        let run = format!("r{i}");
        place.ok(&format!("train e.toml --quiet --out {run} --threads 1"));
        place.ok(&format!("train e.toml --quiet --out t{i} --threads 3"));
        assert_same_runs((&place, &run), (&place, &format!("t{i}")));
        place.ok(&format!("train e.toml --quiet --out s{i} --set train.max_steps=2"));
        place.ok(&format!("train e.toml --quiet --out s{i} --resume --set train.max_steps=1000"));
        assert_same_runs((&place, &run), (&place, &format!("s{i}")));
        let last = place.checkpoint(&format!("{run}/last.safetensors"));
        let has = |name: &str| last.tensors.contains_key(name);
        assert!(has("optimizer.momentum_buffer.1.weight") && !has("optimizer.exp_avg.1.weight"));
        assert_eq!([has("optimizer.momentum_buffer.4.weight"), has("optimizer.exp_avg.4.weight")], [i == 1, i == 0]);
        assert!(has("optimizer.exp_avg.1.bias") && has("optimizer.exp_avg_sq.2.weight"));
    }
    place.write("e.toml", config("", &muon(""), ""));
    let stdout = place.ok("check e.toml").out;
    assert!(stdout.contains("muon updates 1 matrix with 768 parameters, adamw the rest, with 4.weight"), "{stdout}");
    // A vector is none of what may be left to AdamW: it is AdamW's.
    place.write("e.toml", config("", &muon("adamw = { match = [\"1.bias\"] }"), ""));
    let message = place.fails("check e.toml", 2);
    assert!(message.contains("`1.bias` in `adamw.match` fits no parameter"), "{message}");
}

/// A file of a run that has diverged is named, and not the learning rate of the new one.
#[test]
fn weights_that_are_not_finite_are_refused() {
    let place = begun();
    place.ok("export start/last.safetensors w.safetensors");
    let mut tensors = load_tensors(&place.path("w.safetensors")).unwrap().tensors;
    tensors.get_mut("4.weight").unwrap().data[..4].copy_from_slice(&f32::NAN.to_ne_bytes());
    let views: Vec<_> = tensors.iter().map(|(name, tensor)| tensor.view(name)).collect();
    write_weights(&place.path("w.safetensors"), &views).unwrap();
    for command in ["check c.toml", "train c.toml --out r"] {
        let error = place.fails(&format!("{command} --set model.weights=w.safetensors"), 2);
        for part in
            ["`4.weight` in `w.safetensors` has numbers that are not finite", "take an earlier checkpoint of it"]
        {
            assert!(error.contains(part), "{error}");
        }
    }
}

/// Two runs, the second of which begins with the weights of the first, are one run that thaws. The order of samples and
/// gradient descent remember nothing.
#[test]
fn thawing_is_a_second_run_from_the_first_ones_weights() {
    for train in ["", "accumulate = 2\nclip_grad_norm = 0.5"] {
        let place = begun();
        let frozen = "weights = \"start/last.safetensors\"\nfreeze = [\"1\", \"2\"]";
        place.write("one.toml", config(&format!("{frozen}\nthaw_after = 1"), SGD, train));
        place.write("first.toml", config(frozen, SGD, train).replace("epochs = 2", "epochs = 1"));
        let second = "weights = \"first/last.safetensors\"";
        place.write("second.toml", config(second, SGD, train).replace("epochs = 2", "epochs = 1"));
        let done = place.ok("train one.toml --out one");
        for part in ["804 frozen in the first epoch", "epoch 2: the 804 parameters that were frozen are trained"] {
            assert!(done.err.contains(part), "{}", done.err);
        }
        place.ok("train first.toml --quiet --out first");
        place.ok("train second.toml --quiet --out second");
        let last = place.checkpoint("one/last.safetensors");
        same_weights(&place.checkpoint("second/last.safetensors"), &last);
        let half = last.meta.step / 2;
        let first = place.checkpoint("first/last.safetensors");
        same_weights(&first, &place.checkpoint(&format!("one/step-{half}.safetensors")));
        let start = place.checkpoint("start/last.safetensors");
        assert_eq!(first.tensors["1.weight"].data, start.tensors["1.weight"].data);
        assert_ne!(first.tensors["2.running_mean"].data, start.tensors["2.running_mean"].data, "statistics still move");
        assert_ne!(last.tensors["1.weight"].data, start.tensors["1.weight"].data);
        // Stopped before, at and after the place where it thaws, it is the same.
        for steps in [half - 1, half, half + 1] {
            place.ok(&format!("train one.toml --quiet --force --out r --set train.max_steps={steps}"));
            place.ok("train one.toml --quiet --out r --resume --set train.max_steps=1000");
            assert_same_runs((&place, "one"), (&place, "r"));
        }
    }
}

/// A parameter's steps count from its first, as in PyTorch: Adam's first step is as long as the learning rate.
#[test]
fn adam_begins_anew_for_what_is_thawed() {
    let place = begun();
    let model = "weights = \"start/last.safetensors\"\nfreeze = [\"1.weight\"]\nthaw_after = 1";
    place.write("c.toml", config(model, "type = \"adam\"\nlr = 1e-3\nema = {}", ""));
    place.ok("train c.toml --quiet --out r");
    let at = |step: u64| floats(&place.checkpoint(&format!("r/step-{step}.safetensors")).tensors["1.weight"]);
    let moved = at(6).iter().zip(at(5)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!((moved / 1e-3 - 1.0).abs() < 0.01, "{moved}");
    let check = place.ok("check c.toml").out;
    assert!(check.contains("768 of them from the second epoch on"), "{check}");
}

/// Rates and decays by rules are those that groups would say.
#[test]
fn rates_by_layers_are_those_of_groups() {
    let place = begun();
    place.write("rules.toml", config("", &format!("{SGD}\nlayer_decay = 0.5\nno_decay = [\"norm\", \"bias\"]"), ""));
    let groups = "groups = [{ match = [\"1.weight\"], lr = 0.03125 }, { match = [\"1.bias\"], lr = 0.03125, weight_decay = 0 }, \
                  { match = [\"2.*\"], lr = 0.0625, weight_decay = 0 }, { match = [\"4.bias\"], weight_decay = 0 }]";
    place.write("groups.toml", config("", &format!("{SGD}\n{groups}"), ""));
    place.ok("train rules.toml --quiet --out rules");
    place.ok("train groups.toml --quiet --out groups");
    same_weights(&place.checkpoint("rules/last.safetensors"), &place.checkpoint("groups/last.safetensors"));
    let check = place.ok("check rules.toml").out;
    for part in
        ["  4  1.250e-1  (1.000 of `lr`)\n", "  2  6.250e-2  (0.500 of `lr`)\n", "  1  3.125e-2  (0.250 of `lr`)\n"]
    {
        assert!(check.contains(part), "{check}");
    }
    // What a group says of its own is not changed.
    let own = "groups = [{ match = [\"1\"], lr = 0.125, weight_decay = 0.01 }, { match = [\"2\", \"4\"], weight_decay = 0.01, lr = 0.125 }]";
    place.write("own.toml", config("", &format!("{SGD}\nlayer_decay = 0.5\nno_decay = [\"norm\"]\n{own}"), ""));
    place.ok("train own.toml --quiet --out own --set train.epochs=1");
    same_weights(&place.checkpoint("own/last.safetensors"), &place.checkpoint("start/last.safetensors"));
}

/// What a file of PyTorch's has, and what is not read of it, in PyTorch's words.
#[test]
fn tensors_that_are_not_read_are_named() {
    let place = Place::new();
    for file in ["unread.pth", "types.pth", "averaged.pth"] {
        std::fs::copy(crate::support::repository("tests/golden/pth").join(file), place.path(file)).unwrap();
    }
    let done = place.ok("export unread.pth o.safetensors");
    for part in [
        "left out `sparse`, which is sparse: in PyTorch, `.to_dense()`",
        "left out `float8`, which is of torch.float8_e4m3fn",
    ] {
        assert!(done.err.contains(part), "{}", done.err);
    }
    assert!(place.ok("export averaged.pth a.safetensors").err.contains("`torch.optim.swa_utils.AveragedModel`"));
    place.write("t.csv", "a,b,c,y\n0.5,1,2,0.5\n1.5,2,4,1.5\n2.5,3,7,2.5\n");
    let with = |file: &str, from: &str| {
        place.write("c.toml", format!(
            "device = \"cpu\"\n[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\n[model]\nweights = \"{file}\"\n\
             weights_rename = [{{ from = \"{from}\", to = \"0.weight\" }}]\n\
             layers = [{{ type = \"linear\", out_features = 2 }}, {{ type = \"linear\", out_features = 1 }}]\n\
             [loss]\ntype = \"mse\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n"
        ));
        place.fails("check c.toml", 2)
    };
    let message = with("unread.pth", "sparse");
    for part in
        ["1 in the file, but not read:", "0.weight: it is sparse", "`0.weight` is sparse: in PyTorch, `.to_dense()`"]
    {
        assert!(message.contains(part), "{message}");
    }
    place.write("c.toml", place.read("c.toml").replace("weights_rename", "weights_strict = false\nweights_rename"));
    for dtype in ["int8", "bool"] {
        let renamed = format!("--set model.weights_rename=[{{from='{dtype}',to='0.bias'}}]");
        let message = place.fails(&format!("check c.toml --set model.weights=types.pth {renamed}"), 2);
        assert!(
            message.contains(&format!("its elements are torch.{dtype}, and cannot be taken as torch.float32")),
            "{message}"
        );
    }
    let pair = [Tensor::from_f32([2, 3], &[0.0; 6]), Tensor::from_f32([4, 2], &[0.0; 8])];
    let names = ["base_model.model.fc.lora_A.weight", "base_model.model.fc.lora_B.weight"];
    write_weights(&place.path("p.safetensors"), &[pair[0].view(names[0]), pair[1].view(names[1])]).unwrap();
    place.write("c.toml", place.read("c.toml").replace("weights_rename", "# "));
    let message = place.fails("check c.toml --set model.weights=p.safetensors", 2);
    assert!(message.contains("are an adapter's") && message.contains("merge_and_unload"), "{message}");
    let message = place.fails("export p.safetensors q.safetensors", 1);
    assert!(message.contains("merge_and_unload"), "{message}");
}

#[test]
fn tensors_are_given_other_names() {
    let place = begun();
    let start = load_tensors(&place.path("start/last.safetensors")).unwrap().tensors;
    let renamed: Vec<(String, &Tensor)> = start
        .iter()
        .map(|(name, tensor)| match name.split_once('.').unwrap() {
            ("4", rest) => (format!("head.{rest}"), tensor),
            (layer, rest) => (format!("body.{layer}.x.{rest}"), tensor),
        })
        .collect();
    let views: Vec<_> = renamed.iter().map(|(name, tensor)| tensor.view(name)).collect();
    write_weights(&place.path("w.safetensors"), &views).unwrap();
    let rules = |rules: &str| {
        let text = config(&format!("weights = \"w.safetensors\"\nweights_rename = [{rules}]"), SGD, "");
        place.write("w.toml", text);
    };
    rules("{ from = \"head.\", to = \"4.\" }, { from = \"body.*.x.*\", to = \"*.*\" }");
    let done = place.ok("eval w.toml --json");
    assert_eq!(done.json(), place.ok("eval start/last.safetensors --json").json());
    for part in ["gave 9 tensors other names", "9 of the model's 9 tensors are from `w.safetensors`"] {
        assert!(done.err.contains(part), "{}", done.err);
    }
    rules("{ from = \"head.\", to = \"4.\" }, { from = \"tail.\", to = \"\" }");
    let message = place.fails("check w.toml", 2);
    assert!(
        message.contains("a rule of `weights_rename` fits no tensor") && message.contains("{ from = \"tail.\""),
        "{message}"
    );
    rules("{ from = \"*.weight\", to = \"4.weight\" }");
    assert!(place.fails("check w.toml", 2).contains("gives two tensors of `w.safetensors` the name `4.weight`"));
    // The body is taken, and the head begins anew.
    rules("{ from = \"body.*.x.*\", to = \"*.*\" }");
    let message = place.fails("check w.toml", 2);
    for part in ["only the last layer, `4`, differs", "takes the rest, and `4` starts anew"] {
        assert!(message.contains(part), "{message}");
    }
    let loose = place.ok("check w.toml --set model.weights_strict=false").err;
    assert!(loose.contains("7 of the model's 9 tensors are from `w.safetensors`"), "{loose}");
    assert!(
        loose.contains("fit: `4.bias`, `4.weight` not in the file")
            || loose.contains("`4.weight`, `4.bias` not in the file; `head.bias`, `head.weight` not in the model"),
        "{loose}"
    );
}

/// The whole way: a net for ten classes becomes one for four.
#[test]
fn a_net_is_tuned_to_other_classes() {
    let place = begun();
    let model = "weights = \"start/best.safetensors\"\nweights_strict = false\nfreeze = [\"1\"]\nthaw_after = 1";
    let optimizer =
        "type = \"adamw\"\nlr = 3e-3\nlayer_decay = 0.75\nno_decay = [\"norm\", \"bias\"]\nema = { decay = 0.9 }";
    let text = config(model, optimizer, "").replace("out_features = 10", "out_features = 4");
    let data = "source = \"synthetic\"\nshape = [1, 8, 8]\nclasses = 4\nsamples = 128\nval_samples = 32";
    place.write("tune.toml", text.replace("source = \"digits\"", data).replace("limit = 160\nlimit_val = 100\n", ""));
    let refused = place.fails("train tune.toml --out t --set model.weights_strict=true", 2);
    assert!(refused.contains("a head of another number of classes, 10 instead of 4"), "{refused}");
    let done = place.ok("train tune.toml --out t");
    for part in
        ["7 of the model's 9 tensors are from `start/best.safetensors`", "`4.weight`, `4.bias` of another shape"]
    {
        assert!(done.err.contains(part), "{}", done.err);
    }
    image::GrayImage::new(8, 8).save(place.path("x.png")).unwrap();
    let answer = place.ok("predict t/best.safetensors x.png --top 9 --json").json();
    assert_eq!(answer[0]["top"].as_array().unwrap().len(), 4);
}
