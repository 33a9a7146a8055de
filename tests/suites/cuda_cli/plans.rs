//! cuDNN's plans in a run that is interrupted and resumed: with the test double of the library, whose engines can be spoilt.

use crate::support::Place;
use crate::{emulator, ok_with};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Convolutions that are large enough for the library.
const CONFIG: &str = r#"
seed = 1
[data]
source = "synthetic"
shape = [32, 12, 12]
classes = 3
samples = 16
val_samples = 4
batch_size = 4

[model]
layers = [
  { type = "conv2d", out_channels = 32, kernel_size = 3, padding = 1 },
  "relu",
  { type = "conv2d", out_channels = 32, kernel_size = 3, padding = 1 },
  "flatten",
  { type = "linear", out_features = 3 },
]

[loss]
type = "cross_entropy"

[optimizer]
type = "sgd"
lr = 0.05

[train]
epochs = 1
"#;

/// The driver and the double; `None` without a compiler.
fn folders() -> Option<OsString> {
    let (driver, double) = (emulator::library_dir()?, emulator::nvidia_library("libcudnn.so")?);
    Some(std::env::join_paths([driver.as_path(), double.parent().unwrap()]).unwrap())
}

/// Of the double's engines number 3 is the first for 32 bits, and number 4 gives other bits; this leaves the latter.
const ONLY_FOUR: (&str, &str) = ("FAKE_CUDNN", "3:4");

#[test]
fn a_resumed_run_goes_on_with_the_plans_of_its_checkpoint() {
    let Some(folders) = folders() else { return };
    let folders = Path::new(&folders);
    let place = Place::with(CONFIG);
    let train = |more: &str, fault: &[(&str, &str)]| {
        let env = [&[("RUNNER_CUDA_LIBRARIES", "cudnn"), ("RUNNER_CUDA_CACHE", "0")], fault].concat();
        ok_with(&place, folders, &format!("train c.toml --device cuda {more}"), &env)
    };
    train("--out whole", &[ONLY_FOUR]);
    train("--out other", &[]);
    let tensors = |run: &str| place.checkpoint(&format!("{run}/last.safetensors")).tensors;
    assert!(tensors("whole") != tensors("other"), "the two engines give the same bits");
    // What was fit for use in the first half, and what would be taken in the second.
    train("--out halves --set train.max_steps=2", &[ONLY_FOUR]);
    let resumed = train("--out halves --resume --set train.max_steps=3", &[]);
    assert!(!resumed.err.contains("bit for bit"), "{resumed:?}");
    // On another GPU: a warning, also among the metrics.
    fs::create_dir(place.path("moved")).unwrap();
    for file in fs::read_dir(place.path("halves")).unwrap().map(|entry| entry.unwrap().path()) {
        fs::copy(&file, place.path("moved").join(file.file_name().unwrap())).unwrap();
    }
    let resume = "--resume --set train.max_steps=4";
    let done = train(&format!("--out moved {resume}"), &[("EMULATED_MULTIPROCESSORS", "109")]);
    assert!(done.err.contains("cuDNN's plans in the checkpoint are of"), "{done:?}");
    assert!(place.read("moved/metrics.jsonl").contains("cuDNN's plans in the checkpoint are of"));
    // Once more on the first one: the choices went through two checkpoints.
    train(&format!("--out halves {resume}"), &[]);
    assert!(tensors("whole") == tensors("halves"));
    assert!(tensors("whole") != tensors("moved"));
}

#[test]
fn choices_are_kept_where_the_environment_says() {
    let Some(folders) = folders() else { return };
    let folders = Path::new(&folders);
    let place = Place::with(CONFIG);
    let cache = place.path("elsewhere");
    let check = |env: &[(&str, &str)]| {
        let env = [&[("RUNNER_CUDA_LIBRARIES", "cudnn")], env].concat();
        ok_with(&place, folders, "check c.toml --device cuda", &env).err
    };
    let inside = |folder: &Path| fs::read_dir(folder).map_or(0, |entries| entries.count());
    check(&[("XDG_CACHE_HOME", cache.to_str().unwrap())]);
    assert_eq!(inside(&cache.join("runner")), 2, "the choices and their lock");
    let own = place.path("own");
    check(&[("RUNNER_CUDA_CACHE", own.to_str().unwrap())]);
    assert_eq!(inside(&own), 2);
    // A folder that cannot be made has a note, and no other effect.
    place.write("file", "");
    let notes = check(&[("RUNNER_CUDA_CACHE", "file/folder")]);
    assert!(notes.contains("cannot be kept in `file/folder`") && notes.contains("help: RUNNER_CUDA_CACHE"), "{notes}");
    assert_eq!(notes.matches("cannot be kept").count(), 1, "{notes}");
    // Every command that plans has a note of an engine that is wrong.
    let notes = check(&[("RUNNER_CUDA_CACHE", "0"), ("FAKE_CUDNN", "3:1")]);
    assert!(notes.contains("note: cuDNN's plan `plain eng3_k2=1_k99=0` is not used for forward 4x12x12x32"), "{notes}");
}

/// Batches whose size is only tried choose nothing: no more than what is run is measured.
#[test]
fn for_sizes_that_are_tried_nothing_is_chosen() {
    let Some(folders) = folders() else { return };
    let place = Place::with(&CONFIG.replace("batch_size = 4", "batch_size = \"auto\""));
    let cache = place.path("cache");
    let env = [("RUNNER_CUDA_LIBRARIES", "cudnn"), ("RUNNER_CUDA_CACHE", cache.to_str().unwrap())];
    let done = ok_with(&place, Path::new(&folders), "check c.toml --device cuda", &env);
    assert!(done.err.contains("batch_size = \"auto\" is 16, "), "{done:?}");
    let file = fs::read_dir(&cache).unwrap().map(|e| e.unwrap().path()).find(|f| f.extension().unwrap() == "json");
    let kept: serde_json::Value = serde_json::from_str(&fs::read_to_string(file.unwrap()).unwrap()).unwrap();
    let problems: Vec<&String> = kept["plans"].as_object().unwrap().keys().collect();
    // Training takes all samples at once, the evaluation its four.
    let runs = |problem: &&&String| problem.contains(" 16x12x12x32 to ") || problem.contains(" 4x12x12x32 to ");
    assert!(problems.iter().filter(runs).count() == problems.len() && problems.len() > 3, "{problems:?}");
}

/// Measuring that takes long says how far it is, and is done once.
#[test]
fn a_long_choice_shows_its_progress() {
    let Some(folders) = folders() else { return };
    let place = Place::with(CONFIG);
    let cache = place.path("cache");
    // Engine 3 takes its time.
    let env =
        [("RUNNER_CUDA_LIBRARIES", "cudnn"), ("RUNNER_CUDA_CACHE", cache.to_str().unwrap()), ("FAKE_CUDNN", "3:7")];
    let train =
        |out: &str| ok_with(&place, Path::new(&folders), &format!("train c.toml --device cuda --out {out}"), &env);
    let first = train("first").err;
    assert!(first.contains("choosing kernels for convolutions: "), "{first}");
    let second = train("second").err;
    assert!(!second.contains("choosing kernels"), "{second}");
}
