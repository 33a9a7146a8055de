//! What every command prints, and where.

use super::support::{Place, plain, repository, untimed};
use std::fs;

#[test]
fn train_shows_a_table_and_keeps_its_files() {
    let place = Place::with(&plain());
    let done = place.ok("train c.toml --out r");
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!(lines.len(), 4, "two lines of names and a line for each epoch: {done:?}");
    assert_eq!(lines[0], "       ------ train -------  ------- val --------");
    assert_eq!(lines[1], "epoch       loss   accuracy       loss   accuracy  seconds  samples/s");
    assert!(lines[3].trim_start().starts_with("2/2"), "{}", lines[3]);
    assert!(lines.iter().all(|line| line.len() <= 80), "{}", done.out);
    assert!(done.err.contains("320 training and 100 validation samples"), "{}", done.err);
    assert!(done.err.contains("done: 20 steps"), "{}", done.err);
    // Neither bars nor colours where there is no terminal.
    assert!(!done.err.contains(['\r', '\u{1b}']) && !done.out.contains(['\r', '\u{1b}']), "{done:?}");
    let mut files: Vec<String> =
        fs::read_dir(place.path("r")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, ["best.safetensors", "config.toml", "last.safetensors", "metrics.csv", "metrics.jsonl"]);
}

#[test]
fn batches_may_be_larger_than_the_data() {
    let place = Place::with(&plain());
    for set in ["data.batch_size=8 --set data.eval_batch_size=1000", "data.batch_size=1000", "data.limit_val=3"] {
        place.ok(&format!("train c.toml --out r --force --quiet --set {set}"));
    }
}

#[test]
fn check_says_for_which_batch() {
    let place = Place::with(&plain());
    for (set, batch) in [("data.batch_size=16", 16), ("data.batch_size=1000", 320)] {
        let done = place.ok(&format!("check c.toml --set {set}"));
        assert!(done.out.contains(&format!("for a batch of {batch}\n")), "{}", done.out);
        assert_eq!(place.ok(&format!("check c.toml --set {set} --json")).json()["batch_size"], batch);
    }
}

#[test]
fn early_stopping_without_validation_is_warned_of() {
    let place = Place::with(&plain());
    place.write(
        "d.toml",
        plain()
            .replace("source = \"digits\"\n", "source = \"synthetic\"\nshape = [8]\nclasses = 10\nval_samples = 0\n"),
    );
    let stop = "--set train.early_stopping.monitor=";
    assert!(place.ok(&format!("train d.toml --out r {stop}val_loss")).err.contains("`early_stopping` has no effect"));
    assert!(!place.ok(&format!("train d.toml --out s {stop}train_loss")).err.contains("no effect"));
}

#[test]
fn json_of_train_is_its_metrics_file() {
    let place = Place::with(&plain());
    let done = place.ok("train c.toml --out r --json");
    assert_eq!(done.out, place.read("r/metrics.jsonl"));
    let lines = untimed(&done.out);
    assert_eq!(lines.len(), 22);
    assert_eq!(lines[0]["kind"], "step");
    assert_eq!((lines[0]["step"].as_u64(), lines[0]["epoch"].as_u64()), (Some(1), Some(1)));
    assert!(lines[0]["loss"].is_f64() && lines[0]["lr"] == 0.003);
    let epoch = &lines[10];
    assert_eq!((epoch["kind"].as_str(), epoch["step"].as_u64()), (Some("epoch"), Some(10)));
    for key in ["train_loss", "val_loss", "val_accuracy"] {
        assert!(epoch[key].is_f64(), "{key} in {epoch}");
    }
    assert!(done.err.is_empty(), "{}", done.err);
}

#[test]
fn quiet_says_nothing() {
    let place = Place::with(&plain());
    let done = place.ok("train c.toml --out r --quiet");
    assert_eq!((done.out.as_str(), done.err.as_str()), ("", ""));
}

#[test]
fn runs_are_numbered_where_no_folder_is_named() {
    let place = Place::with(&plain());
    place.ok("train c.toml --quiet");
    place.ok("train c.toml --quiet");
    assert!(place.path("runs/c/2/last.safetensors").exists() && !place.path("runs/c/3").exists());
    // The newest is the one that goes on.
    let done = place.ok("train c.toml --resume --set train.epochs=3");
    assert!(done.err.contains("runs/c/2"), "{}", done.err);
}

#[test]
fn eval_knows_the_splits() {
    let place = Place::with(&plain());
    place.ok("train c.toml --out r --quiet --set metrics.figures=['top5_accuracy','macro_f1'] --set checkpoint.monitor=val_mean_iou");
    let val = place.ok("eval r/last.safetensors --json").json();
    assert_eq!(val["samples"], 100);
    let epoch = place.metrics("r").pop().unwrap();
    for figure in ["top5_accuracy", "macro_f1", "mean_iou"] {
        assert!(epoch[format!("val_{figure}")].is_f64() && epoch[format!("train_{figure}")].is_null(), "{epoch}");
        assert_eq!(val["metrics"][figure], epoch[format!("val_{figure}")], "{figure}");
    }
    let counts: Vec<Vec<u64>> = serde_json::from_value(val["confusion_matrix"].clone()).unwrap();
    let right: u64 = (0..10).map(|class| counts[class][class]).sum();
    assert_eq!(val["metrics"]["accuracy"].as_f64(), Some(right as f64 / 100.0), "{val}");
    let classes = val["per_class"].as_array().unwrap();
    for (class, row) in classes.iter().zip(&counts) {
        assert_eq!(class["support"].as_u64(), Some(row.iter().sum()), "{class}");
    }
    assert_eq!(val["metrics"]["accuracy"], epoch["val_accuracy"], "what training said");
    assert_eq!(val["metrics"]["loss"], epoch["val_loss"]);
    assert_eq!(place.ok("eval r/last.safetensors --split test --json").json()["samples"], 297);
    assert_eq!(place.ok("eval r/last.safetensors --split train --json").json()["samples"], 320);
    let text = place.ok("eval r/best.safetensors");
    assert!(text.out.starts_with("val, 100 samples: loss ") && text.out.contains("accuracy"), "{text:?}");
    assert!(text.out.contains("\nmacro average ") && text.out.contains("\nrows are the classes"), "{text:?}");
    let fewer = place.ok("eval r/last.safetensors --set data.limit_val=7 --json").json();
    assert_eq!(fewer["samples"], 7);
}

#[test]
fn eval_takes_a_configuration_with_weights() {
    let place = Place::with(&plain());
    place.ok("train c.toml --out r --quiet");
    place.ok("export r/last.safetensors w.safetensors");
    let ours = place.ok("eval r/last.safetensors --json").json();
    let weights = place.ok("eval c.toml --set model.weights=\"w.safetensors\" --json").json();
    assert_eq!(ours, weights);
    assert!(place.fails("eval c.toml", 2).contains("names no weights"));
}

#[test]
fn a_split_without_samples_is_refused() {
    let place = Place::with(
        "[data]\nsource = \"synthetic\"\nshape = [4]\nclasses = 2\nsamples = 20\nval_samples = 0\nbatch_size = 10\n\
         [model]\nlayers = [{ type = \"linear\", out_features = 2 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n[checkpoint]\nmonitor = \"train_loss\"\n",
    );
    place.ok("train c.toml --out r --quiet");
    assert!(place.fails("eval r/last.safetensors", 2).contains("no samples in the split `val`"));
    assert_eq!(place.ok("eval r/last.safetensors --split train --json").json()["samples"], 20);
}

#[test]
fn check_shows_layers_and_memory() {
    let place = Place::with(&plain());
    let text = place.ok("check c.toml").out;
    for part in ["layer", "batch_norm1d", "[32, 24]", "1,858 parameters", "optimizer", "peak at"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let json = place.ok("check c.toml --json").json();
    assert_eq!(json["parameters"], 1858);
    let memory = json["memory"].as_object().unwrap();
    let classes: u64 = memory.iter().filter(|(k, _)| *k != "total").filter_map(|(_, v)| v.as_u64()).sum();
    assert_eq!(memory["total"].as_u64(), Some(classes), "the classes add up");
    let layers = json["layers"].as_array().unwrap();
    let sum: u64 = layers.iter().map(|l| l["parameters"].as_u64().unwrap()).sum();
    assert_eq!(sum, 1858);
    assert!(!place.path("runs").exists(), "nothing is written");
}

#[test]
fn check_prints_what_it_read() {
    let place = Place::with(&plain());
    let text = place.ok("check c.toml --print --set train.epochs=7").out;
    let line = text.lines().find(|l| l.starts_with("epochs = 7")).unwrap();
    assert!(line.contains("--set"), "{line}");
    assert!(place.ok("check c.toml --print --json").json()["config"].as_str().unwrap().contains("epochs = 2"));
    assert!(place.ok("check c.toml --graph grad").out.contains("linear"));
    assert!(place.ok("check c.toml --graph fuse --json").json()["graph"].is_string());
    assert!(place.fails("check c.toml --graph nothing", 2).contains("simplify"));
}

#[test]
fn passes_are_left_out_where_that_is_asked_for() {
    let place = Place::new();
    let config = repository("configs/mnist_cnn.toml");
    let graph = |rest: &str| place.ok(&format!("check {} --device cpu --graph {rest}", config.display())).out;
    let (simplified, pooled, fused) = (graph("simplify"), graph("pool"), graph("fuse"));
    assert!(pooled.contains("conv2d + max_pool2d") && !simplified.contains(" + "), "{pooled}");
    assert!(fused.lines().count() < pooled.lines().count(), "{fused}");
    assert_eq!(graph("pool --without pool"), simplified);
    assert_eq!(graph("fuse --without pool --without fuse"), simplified);
    assert_eq!(graph("chain --without fusions"), simplified);
    assert_eq!(graph("reorder --without reorder"), graph("forward"));
    let all = graph("fuse --without reorder --without=simplify --without pool --without fuse");
    assert_eq!(all, graph("update --without reorder"));
}

#[test]
fn only_some_passes_can_be_left_out() {
    let place = Place::with(&plain());
    for command in ["train c.toml", "eval c.toml", "predict c.toml x.png", "check c.toml", "bench c.toml"] {
        for name in ["grad", "update", "precision", "pol"] {
            let message = place.fails(&format!("{command} --without {name}"), 2);
            assert!(
                message.contains(name)
                    && message.contains("reorder, begin_sums, simplify, recompute, rematerialize, fusions, fold, pool, norm_grad, norm_read, norm_statistics, residual, fuse, chain, update_early, narrow, split_batch"),
                "{message}"
            );
        }
    }
    place.fails("bench matmul --without pool", 2);
}

/// The figures differ by the rounding at most, and the memory that is planned is that of what is run.
#[test]
fn training_and_evaluation_go_on_without_passes() {
    let place = Place::with(&plain());
    let all = "--without reorder --without simplify --without pool --without fuse";
    place.ok("train c.toml --out whole --quiet --set train.max_steps=20");
    place.ok(&format!("train c.toml --out half --quiet --set train.max_steps=10 {all}"));
    place.ok("train c.toml --out half --quiet --resume --set train.max_steps=20");
    let loss = |run: &str| place.metrics(run).last().unwrap()["val_loss"].as_f64().unwrap();
    let (whole, half) = (loss("whole"), loss("half"));
    assert!((whole - half).abs() < 1e-4 * whole, "{whole} and {half}");
    let eval =
        place.ok(&format!("eval half/last.safetensors --json {all}")).json()["metrics"]["loss"].as_f64().unwrap();
    assert!((eval - half).abs() < 1e-5 * half, "{eval} and {half}");
    assert_eq!(place.read("half/config.toml"), place.read("whole/config.toml"), "it is no part of the configuration");
    let cnn = repository("configs/mnist_cnn.toml").display().to_string();
    let check = |rest: &str| place.ok(&format!("check {cnn} --device cpu --json {rest}")).json();
    let total = |rest: &str| check(rest)["memory"]["total"].as_u64().unwrap();
    assert!(total("--without pool") > total(""));
}

#[test]
fn devices_and_schema_are_printed() {
    let place = Place::new();
    let json = place.ok("devices --json").json();
    assert_eq!(json["devices"][0]["name"], "cpu");
    assert!(json["cuda"]["available"].is_boolean());
    assert!(place.ok("devices").out.starts_with("cpu\n"));
    let committed = fs::read_to_string(repository("docs/schema.json")).unwrap();
    assert_eq!(place.ok("schema").out, committed);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(place.ok(&format!("completions {shell}")).out.contains("resume"), "{shell}");
    }
    assert!(place.ok("--version").out.starts_with("runner "));
    assert!(place.ok("--help").out.contains("Commands:"));
}

#[test]
fn export_leaves_the_optimizer_behind() {
    let place = Place::with(&plain());
    place.ok("train c.toml --out r --quiet");
    let json = place.ok("export r/last.safetensors w.safetensors --json").json();
    let weights = runner::checkpoint::load_tensors(&place.path("w.safetensors")).unwrap().tensors;
    assert_eq!(json["tensors"].as_u64(), Some(weights.len() as u64));
    let checkpoint = place.checkpoint("r/last.safetensors");
    for (name, tensor) in &weights {
        assert!(checkpoint.tensors[name].data == tensor.data, "{name}");
    }
    let left: Vec<&String> = checkpoint.tensors.keys().filter(|k| !weights.contains_key(*k)).collect();
    assert!(!left.is_empty() && left.iter().all(|k| k.starts_with("optimizer.")), "{left:?}");
    assert!(weights.contains_key("2.running_mean") && weights.contains_key("1.weight"));
    // The same for PyTorch.
    place.ok("export r/last.safetensors w.pth");
    assert!(runner::checkpoint::load_tensors(&place.path("w.pth")).unwrap().tensors == weights);
    let err = place.fails("export r/last.safetensors w.txt", 2);
    assert!([".safetensors", ".pth", ".onnx"].iter().all(|suffix| err.contains(suffix)), "{err}");
    // The state of the optimizer would be lost.
    let err = place.fails("export r/last.safetensors r/../r/last.safetensors", 2);
    assert!(err.contains("another name"), "{err}");
    place.ok("train c.toml --out r --resume");
}

/// The whole model for other programs: from a checkpoint, and from a configuration that names weights or none.
#[test]
fn export_writes_whole_models() {
    let place = Place::with(&plain());
    place.ok("train c.toml --out r --quiet");
    let report = place.ok("export r/last.safetensors w.onnx --json --softmax --preprocess").json();
    place.ok("export r/last.safetensors w.safetensors");
    let weights = runner::checkpoint::load_tensors(&place.path("w.safetensors")).unwrap().tensors;
    // Inference counts no batches.
    let read = weights.keys().filter(|name| !name.ends_with("num_batches_tracked")).count();
    assert_eq!((report["tensors"].as_u64(), report["nodes"].as_u64() > Some(3)), (Some(read as u64), true), "{report}");
    // Weights that a configuration names are those of the checkpoint.
    place.ok("export c.toml named.onnx --set model.weights=w.safetensors --softmax --preprocess");
    let files = ["w.onnx", "named.onnx"].map(|name| fs::read(place.path(name)).unwrap());
    let first = &weights["1.weight"].data;
    let has = |file: &[u8]| file.windows(first.len()).any(|window| window == first);
    assert!(files[0] == files[1] && has(&files[0]));
    // Without weights a configuration has those that training starts from.
    let said = place.ok("export c.toml start.onnx").err;
    assert!(said.contains("names no weights"), "{said}");
    assert!(!has(&fs::read(place.path("start.onnx")).unwrap()));
    place.ok("export c.toml start.pth");
    for (args, part) in [
        ("export r/last.safetensors w.pth --softmax", "`--softmax` changes the model"),
        ("export r/last.safetensors w.safetensors --preprocess", "`--preprocess` changes the model"),
        ("export r/last.safetensors w.pth --set seed=3", "`--set` changes a configuration"),
        ("export start.pth w.onnx", "`start.pth` is a zip archive, not a checkpoint"),
    ] {
        let err = place.fails(args, 2);
        assert!(err.contains(part), "{args}: {err}");
    }
}
