//! `check` says what `train` would say, warnings come once and where they belong, and weights say what they are.

use super::support::{Place, plain};
use runner::checkpoint::{Tensor, load_tensors, write_weights};
use runner::graph::DType;
use std::collections::BTreeMap;

/// Rows of two numbers with these labels, and a model with three outputs.
fn labelled(place: &Place, labels: &[i64], val: &[i64]) -> String {
    let inputs = |n: usize| Tensor::from_f32([n, 2], &vec![0.5; 2 * n]);
    let targets = |labels: &[i64]| Tensor {
        dtype: DType::I64,
        shape: vec![labels.len()],
        data: labels.iter().flat_map(|l| l.to_le_bytes()).collect(),
    };
    let (a, b, c, d) = (inputs(labels.len()), targets(labels), inputs(val.len()), targets(val));
    let views = [a.view("inputs"), b.view("targets"), c.view("val_inputs"), d.view("val_targets")];
    write_weights(&place.path("t.safetensors"), &views).unwrap();
    "[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\nbatch_size = 2\n[model]\nlayers = [{ type = \"linear\", out_features = 3 }]\n\
     [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n"
        .to_owned()
}

/// What `train` refuses before its first step, `check` refuses with the same words; both name a place in the file.
fn both_refuse(place: &Place, config: &str, sets: &str, parts: &[&str]) {
    both_refuse_with(2, place, config, sets, parts);
}

fn both_refuse_with(code: i32, place: &Place, config: &str, sets: &str, parts: &[&str]) {
    place.write("x.toml", config);
    let check = place.fails(&format!("check x.toml {sets}"), code);
    for part in parts {
        assert!(check.contains(part), "{part} in\n{check}");
    }
    assert!(check.contains("-->"), "{check}");
    let train = place.fails(&format!("train x.toml --device cpu --out never {sets}"), code);
    assert_eq!(train, check);
    assert!(!place.path("never").exists());
}

/// Of one class alone nothing is learnt, whatever the figures say.
#[test]
fn texts_of_one_class_are_warned_of() {
    let place = Place::new();
    let rows: String = (0..20).map(|i| format!("text number {i},only\n")).collect();
    place.write("t.csv", format!("text,label\n{rows}"));
    place.write(
        "c.toml",
        "device = \"cpu\"\n[data]\nsource = \"text_classes\"\npath = \"t.csv\"\nbatch_size = 4\nmax_length = 8\n[model]\nuse = \"text_classifier\"\n\
         [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n",
    );
    for command in ["check c.toml", "train c.toml --quiet --out r"] {
        let stderr = place.ok(command).err;
        assert!(stderr.contains("the loss is always 0") && stderr.contains("the data has one class alone"), "{stderr}");
    }
}

#[test]
fn what_train_refuses_check_refuses() {
    let place = Place::new();
    let config = plain();
    both_refuse(
        &place,
        &config,
        "--set data.drop_last=true --set data.batch_size=1000",
        &[
            "there are 320 training samples, fewer than a batch of 1000",
            "`drop_last` leaves them all out",
            "at most 320",
        ],
    );
    // Weights that are not there are no mistake of the configuration.
    let nowhere = "--set model.weights='nowhere.safetensors'";
    both_refuse_with(1, &place, &config, nowhere, &["nowhere.safetensors", "No such file"]);
    place.write("text.pth", "hello, I am a text file");
    both_refuse(
        &place,
        &config,
        "--set model.weights='text.pth'",
        &["neither a safetensors file nor a PyTorch state dict"],
    );
    std::fs::create_dir_all(place.path("run")).unwrap();
    place.write("run/best.safetensors", "");
    both_refuse(&place, &config, "--set model.weights='run'", &["a folder, not a file", "run/best.safetensors"]);
    both_refuse(&place, &config, "--set data.validation_split=1500", &["takes 1500 of 1500"]);

    let tensors = labelled(&place, &[0, 1, -1, 2], &[0]);
    both_refuse(&place, &tensors, "", &["`targets`: label -1 of sample 2 is not within 0 .. 2"]);
    let tensors = labelled(&place, &[0, 1], &[0, -7]);
    both_refuse(&place, &tensors, "", &["`val_targets`: label -7 of sample 1"]);
    let tensors = labelled(&place, &[0, 3], &[0]);
    both_refuse(&place, &tensors, "", &["3 numbers for each sample, but there are 4 or more classes"]);
    let tensors = labelled(&place, &[0, 1], &[1 << 40]);
    both_refuse(&place, &tensors, "", &["label 1099511627776 of sample 0"]);
}

/// The weights of a run, with other names or shapes.
fn weights(place: &Place, name: &str, change: impl Fn(&str, Tensor) -> Option<(String, Tensor)>) {
    let all = load_tensors(&place.path("r/last.safetensors")).unwrap().tensors;
    let all: BTreeMap<String, Tensor> = all.into_iter().filter_map(|(n, t)| change(&n, t)).collect();
    let views: Vec<_> = all.iter().map(|(n, t)| t.view(n)).collect();
    write_weights(&place.path(name), &views).unwrap();
}

fn trained() -> Place {
    let place = Place::with(&plain());
    place.ok("train c.toml --out r --quiet");
    place
}

#[test]
fn a_head_of_another_number_of_classes_is_an_error() {
    let place = trained();
    let head = load_tensors(&place.path("r/last.safetensors")).unwrap().tensors;
    let last = head.keys().rfind(|n| n.ends_with(".bias") && head[*n].shape == [10]).unwrap().clone();
    let layer = last.trim_end_matches(".bias").to_owned();
    weights(&place, "w.safetensors", |name, t| {
        let wide = |shape: Vec<usize>| {
            let shape: Vec<usize> = [1000].into_iter().chain(shape[1..].iter().copied()).collect();
            let zeros = vec![0.0; shape.iter().product()];
            Tensor { dtype: DType::F32, data: zeros.iter().flat_map(|v: &f32| v.to_le_bytes()).collect(), shape }
        };
        Some((name.to_owned(), if name.starts_with(&layer) { wide(t.shape) } else { t }))
    });
    both_refuse(
        &place,
        &plain(),
        "--set model.weights='w.safetensors'",
        &[
            "w.safetensors` do not fit the model",
            "2 tensors do not fit",
            &format!(
                "only `{layer}.weight`, `{layer}.bias` differ: a head of another number of classes, 1000 instead of 10"
            ),
            "`weights_strict = false` in `[model]` takes the rest",
        ],
    );
    let loose = place.ok("train c.toml --out s --set model.weights='w.safetensors' --set model.weights_strict=false");
    assert!(loose.err.contains("not all weights"), "{}", loose.err);
    // Another model altogether.
    weights(&place, "o.safetensors", |name, t| Some((format!("other.{name}"), t)));
    both_refuse(&place, &plain(), "--set model.weights='o.safetensors'", &["nothing of the file fits"]);
    // One tensor too few.
    weights(&place, "f.safetensors", |name, t| (name != last).then(|| (name.to_owned(), t)));
    both_refuse(
        &place,
        &plain(),
        "--set model.weights='f.safetensors'",
        &["one tensor does not fit", "takes what fits: "],
    );
}

#[test]
fn what_wrappers_put_before_names_is_taken_off() {
    let place = trained();
    let whole = place.ok("eval r/last.safetensors --json").json();
    for prefix in ["module.", "_orig_mod.", "model.", "_orig_mod.module.", "model._orig_mod.", "module.model."] {
        weights(&place, "w.safetensors", |name, t| Some((format!("{prefix}{name}"), t)));
        let done = place.run("eval c.toml --json --set model.weights='w.safetensors'");
        assert_eq!(done.json(), whole, "{prefix}");
        assert!(done.err.contains(&format!("took `{prefix}` off all names")), "{}", done.err);
        let check = place.ok("check c.toml --set model.weights='w.safetensors'");
        assert!(check.err.contains(&format!("took `{prefix}` off all names")), "{}", check.err);
    }
    // From each name by itself.
    weights(&place, "w.safetensors", |name, t| {
        Some((if name.ends_with("bias") { format!("model.{name}") } else { name.to_owned() }, t))
    });
    let done = place.run("eval c.toml --json --set model.weights='w.safetensors'");
    assert_eq!(done.json(), whole);
    assert!(done.err.contains("took `model.` off ") && !done.err.contains("off all names"), "{}", done.err);
}

#[test]
fn a_model_may_have_the_names_of_a_wrapper() {
    let place = Place::new();
    let config = |name: &str| {
        format!(
            "[data]\nsource = \"synthetic\"\nshape = [4]\nclasses = 3\nsamples = 64\nval_samples = 8\n[model]\n\
             layers = [{{ name = \"{name}\", layers = [{{ name = \"fc\", type = \"linear\", out_features = 3 }}] }}]\n\
             [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n"
        )
    };
    for name in ["model", "module", "_orig_mod"] {
        place.write("c.toml", config(name));
        place.ok("train c.toml --quiet --out r --force");
        let done = place.ok("check c.toml --set model.weights='r/last.safetensors'");
        assert!(!done.err.contains("off all names"), "{}", done.err);
        // Wrapped once more.
        weights(&place, "w.safetensors", |n, t| Some((format!("{name}.{n}"), t)));
        let done = place.ok("check c.toml --set model.weights='w.safetensors'");
        assert!(done.err.contains(&format!("took `{name}.` off all names")), "{}", done.err);
    }
}

#[test]
fn warnings_come_once_where_a_run_is_looked_at() {
    let place = Place::with(&plain());
    let lints = "--set data.limit=5";
    let count = |err: &str| err.matches("batch_larger_than_data").count();
    assert_eq!(count(&place.ok(&format!("check c.toml {lints}")).err), 1);
    assert_eq!(count(&place.ok(&format!("train c.toml --out r --quiet {lints}")).err), 1);
    assert_eq!(count(&place.ok(&format!("bench c.toml --steps 1 {lints}")).err), 1);
    assert_eq!(count(&place.ok(&format!("eval r/last.safetensors {lints}")).err), 0);
    place.ok("export r/last.safetensors w.safetensors");
    assert_eq!(count(&place.ok(&format!("eval c.toml --set model.weights='w.safetensors' {lints}")).err), 0);
    let json = place.ok(&format!("check c.toml --json {lints}")).json();
    let warning = &json["warnings"][0];
    assert_eq!(
        (warning["lint"].as_str(), warning["severity"].as_str()),
        (Some("batch_larger_than_data"), Some("warning"))
    );
    assert!(warning["line"].is_u64() && json["warnings"].as_array().unwrap().len() == 1, "{json}");
    for command in ["check c.toml", "train c.toml --out s --quiet", "bench c.toml --steps 1"] {
        let done = place.ok(&format!("{command} {lints} --set lint.allow=[\"batch_larger_than_data\"]"));
        assert_eq!(count(&done.err), 0, "{}", done.err);
    }
}

#[test]
fn files_in_each_others_place_are_errors() {
    let place = trained();
    place.ok("export r/last.safetensors w.safetensors");
    place.write("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    place.write("weights.pth", b"PK\x03\x04\0\0\0\0");
    place.write("c.txt", plain());
    place.write("data.gz", b"\x1f\x8b\x08\0\0");
    place.write("bytes", [0, 1, 2, 3]);
    std::fs::create_dir_all(place.path("folder")).unwrap();
    for command in ["train", "check", "bench"] {
        for (file, parts) in [
            (
                "r/last.safetensors",
                &[
                    "is a checkpoint, not a configuration",
                    "--resume r/last.safetensors",
                    "runner eval",
                    "[model] weights",
                ][..],
            ),
            ("w.safetensors", &["is a file of tensors, not a configuration", "[model] weights"]),
            ("weights.pth", &["is a zip archive", "[model] weights"]),
            ("r", &["is the folder of a run", "r/config.toml", "--resume r"]),
            ("folder", &["is a folder", ".toml"]),
            ("picture.png", &["is an image", "runner predict MODEL picture.png"]),
            ("data.gz", &["is a compressed file"]),
            ("bytes", &["is no text"]),
        ] {
            let err = place.fails(&format!("{command} {file}"), 2);
            assert!(parts.iter().all(|part| err.contains(part)), "{command} {file}: {err}");
            assert!(err.contains(&format!("`{file}`")) && !err.contains("os error"), "{err}");
        }
    }
    for command in ["eval FILE", "predict FILE picture.png", "train c.toml --resume FILE"] {
        for (file, parts) in [
            ("folder", &["is a folder, and of no run", "the folder of a run"][..]),
            ("c.txt", &["is a text, not a checkpoint", ".toml"]),
            ("picture.png", &["is an image, not a checkpoint", "the model comes first"]),
            ("weights.pth", &["is a zip archive, not a checkpoint", "[model] weights"]),
            ("data.gz", &["is a compressed file, not a checkpoint"]),
        ] {
            // A folder is as good as a checkpoint to go on with.
            if command.starts_with("train") && place.path(file).is_dir() {
                continue;
            }
            let err = place.fails(&command.replace("FILE", file), 2);
            assert!(parts.iter().all(|part| err.contains(part)), "{command} {file}: {err}");
        }
    }
    let err = place.fails("train c.toml --out s --set model.weights='c.txt'", 2);
    assert!(err.contains("neither a safetensors file nor a PyTorch state dict"), "{err}");
    assert!(place.fails("export folder out.safetensors", 2).contains("is a folder, and of no run"));
}
