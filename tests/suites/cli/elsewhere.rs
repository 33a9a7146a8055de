//! What a run leaves holds from every folder, and a figure is of the data that it says.

use super::support::{LAYERS, Place, assert_same_runs, real_data};
use runner::checkpoint::{self, Tensor};
use runner::graph::DType;
use std::fs;

/// A file of samples, and a configuration that names it in a roundabout way.
fn with_tensors() -> Place {
    let place = Place::new();
    let random = |n: usize, k: usize| (0..n).map(|i| ((i * 7919 * k) % 101) as f32 / 50.0 - 1.0).collect::<Vec<f32>>();
    let labels = |n: usize| -> Vec<u8> { (0..n).flat_map(|i| ((i * i) as i64 % 3).to_le_bytes()).collect() };
    let targets = |n: usize| Tensor { dtype: DType::I64, shape: vec![n], data: labels(n) };
    let tensors = [
        ("inputs", Tensor::from_f32([64, 6], &random(64 * 6, 1))),
        ("targets", targets(64)),
        ("val_inputs", Tensor::from_f32([20, 6], &random(20 * 6, 3))),
        ("val_targets", targets(20)),
    ];
    let views: Vec<_> = tensors.iter().map(|(name, t)| t.view(name)).collect();
    fs::create_dir_all(place.path("my/far")).unwrap();
    checkpoint::write_weights(&place.path("t.safetensors"), &views).unwrap();
    place.write(
        "c.toml",
        format!(
            "seed = 1\ndevice = \"cpu\"\n[data]\nsource = \"tensors\"\npath = \"my/../t.safetensors\"\nbatch_size = 16\n{LAYERS}\n\
             [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 1e-2\n[train]\nepochs = 2\n[log]\nevery_steps = 1\n"
        ),
    );
    place
}

#[test]
fn a_run_can_be_used_from_another_folder() {
    let place = with_tensors();
    place.ok("train c.toml --quiet --out r");
    let path = place.path("t.safetensors").canonicalize().unwrap();
    let line = format!("path = \"{}\"\n", path.display());
    assert!(place.read("r/config.toml").contains(&line), "{line} in {}", place.read("r/config.toml"));
    assert!(place.checkpoint("r/last.safetensors").meta.config.contains(&line));
    let here = place.ok("eval r/best.safetensors --json");
    let there = place.run_in("my/far", "eval ../../r/best.safetensors --json");
    assert_eq!((there.code, &there.out), (Some(0), &here.out), "{there:?}");
    // To go on, and to repeat it.
    let done = place.run_in("my/far", "train --resume ../../r --set train.epochs=3 --quiet");
    assert_eq!(done.code, Some(0), "{done:?}");
    let done = place.run_in("my/far", "train ../../r/config.toml --out ../../again --quiet");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_same_runs((&place, "r"), (&place, "again"));
    // An override that names a path stays the path that it was where it was given.
    fs::rename(place.path("t.safetensors"), place.path("my/u.safetensors")).unwrap();
    let set = "--set data.path=u.safetensors --set train.epochs=3 --set train.max_steps=5";
    let done = place.run_in("my", &format!("train ../c.toml --quiet --out ../s {set}"));
    assert_eq!(done.code, Some(0), "{done:?}");
    place.ok("train c.toml --quiet --resume s --set train.max_steps=1000");
    assert_same_runs((&place, "r"), (&place, "s"));
}

#[test]
fn messages_have_the_short_form() {
    let place = with_tensors();
    place.ok("train c.toml --quiet --out r");
    let folder = place.path("").canonicalize().unwrap().display().to_string();
    let err = place.fails("train c.toml --out s --set model.weights=nowhere.pt", 1);
    assert!(err.contains("nowhere.pt") && !err.contains(&folder), "{err}");
    fs::remove_file(place.path("t.safetensors")).unwrap();
    let err = place.fails("eval r/best.safetensors", 1);
    assert!(err.contains("open t.safetensors"), "{err}");
    let err = place.run_in("my", "eval ../r/best.safetensors").err;
    assert!(err.contains("open ../t.safetensors"), "{err}");
}

#[test]
fn predict_needs_no_data() {
    let place = Place::new();
    place.write(
        "c.toml",
        "device = \"cpu\"\n[data]\nsource = \"mnist\"\nroot = \"nowhere\"\ndownload = false\nfallback = \"digits\"\nlimit = 64\nbatch_size = 32\n\
         [model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
    );
    image::GrayImage::new(28, 28).save(place.path("x.png")).unwrap();
    place.ok("train c.toml --quiet --out r");
    let json = place.ok("predict r/last.safetensors x.png --json").json();
    assert!(json[0]["top"][0]["probability"].is_f64());
    assert!(!place.path("nowhere").exists());
    // Nor the file of a `tensors` source, whose shapes are in the checkpoint.
    let place = with_tensors();
    let pixels: Vec<f32> = (0..32 * 64).map(|i| (i % 13) as f32 / 13.0).collect();
    let labels =
        Tensor { dtype: DType::I64, shape: vec![32], data: (0..32i64).flat_map(|i| (i % 2).to_le_bytes()).collect() };
    let inputs = Tensor::from_f32([32, 1, 8, 8], &pixels);
    let views = [inputs.view("inputs"), labels.view("targets")];
    checkpoint::write_weights(&place.path("t.safetensors"), &views).unwrap();
    image::GrayImage::new(8, 8).save(place.path("x.png")).unwrap();
    place.ok("train c.toml --quiet --out r --set checkpoint.monitor=train_loss");
    let before = place.ok("predict r/last.safetensors x.png --json").out;
    fs::remove_file(place.path("t.safetensors")).unwrap();
    assert_eq!(place.ok("predict r/last.safetensors x.png --json").out, before);
    assert_eq!(place.run_in("my/far", "predict ../../r/last.safetensors ../../x.png").code, Some(0));
}

/// The digits stand in for MNIST only where the configuration of a new run, or the command line, says so.
#[test]
fn nothing_stands_in_for_data_unasked() {
    let Some(data) = real_data() else { return };
    let place = Place::new();
    fs::create_dir_all(place.path("my")).unwrap();
    let root = place.path("my/mnist");
    std::os::unix::fs::symlink(data.join("mnist"), &root).unwrap();
    let set = "--set data.limit=256 --set data.limit_val=100 --set train.epochs=1 --set data.batch_size=64";
    place.write(
        "my/c.toml",
        "seed = 1\ndevice = \"cpu\"\n[data]\nsource = \"mnist\"\nroot = \"mnist\"\nfallback = \"digits\"\n\
         [model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
    );
    let done = place.run_in("my", &format!("train c.toml --quiet --out r {set}"));
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    let json = place.ok("eval my/r/last.safetensors --json").json();
    assert_eq!((&json["data"], &json["note"]), (&"mnist".into(), &serde_json::Value::Null), "{json}");
    // The files are gone.
    fs::remove_file(&root).unwrap();
    for (args, options) in [
        ("eval my/r/last.safetensors", "--set data.fallback=digits"),
        ("train --resume my/r --set train.epochs=2", "--allow-download"),
        ("train my/c.toml --resume my/r --set train.epochs=2", "--allow-download"),
    ] {
        let err = place.fails(args, 1);
        assert!(err.contains("looked in `my/mnist`") && err.contains(options), "{args}: {err}");
        assert!(!root.exists(), "{args}: nothing is made");
    }
    // Asked for, and said in the figure's own line.
    let done = place.ok("eval my/r/last.safetensors --set data.fallback=digits");
    assert!(done.out.starts_with("val, 100 samples of the bundled digits, not of mnist: loss"), "{}", done.out);
    // A run never goes on with other data.
    let err = place.fails("train --resume my/r --set train.epochs=2 --set data.fallback=digits", 1);
    assert!(err.contains("trained on other samples"), "{err}");
    // Nor does one that was begun on the digits change to the real ones when they come.
    let done = place.run_in("my", &format!("train c.toml --quiet --out d --set data.download=false {set}"));
    assert_eq!(done.code, Some(0), "{done:?}");
    std::os::unix::fs::symlink(data.join("mnist"), &root).unwrap();
    let done = place.ok("train --resume my/d --set train.epochs=2");
    assert!(done.err.contains("using the bundled digits"), "{}", done.err);
    fs::remove_file(&root).unwrap();
    let done = place
        .run_in("my", &format!("train c.toml --quiet --out e --set data.download=false {set} --set train.epochs=2"));
    assert_eq!(done.code, Some(0), "{done:?}");
    let [d, e] = ["my/d", "my/e"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")).tensors);
    assert_eq!(d, e);
}
