//! The architectures of `models/` against PyTorch, from parameters that both sides make by a formula:
//! `scripts/golden/architectures.py` says so, and says what is in the files.

use super::case::folder;
use super::compare::Findings;
use super::engine::{self, On};
use super::root::root;
use runner::graph::{DType, Variable};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize_to_file};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

/// The names of all architectures, those first that take longest.
pub fn names() -> Vec<String> {
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let files = fs::read_dir(root().join("models")).unwrap().map(|entry| entry.unwrap().path());
    // Those for tables and texts take no images. They are of layers whose goldens are those of layers, and models of texts have some of their own.
    let takes_images = |path: &Path| {
        !["dlrm", "ft_transformer", "linear", "lstm_forecaster", "tabm", "tabular", "tabular_mlp", "tabular_resnet"]
            .contains(&&stem(path)[..])
            && !fs::read_to_string(path).unwrap().contains("\nvocabulary = ")
    };
    let mut names: Vec<String> = files.filter(|path| takes_images(path)).map(|path| stem(&path)).collect();
    names.sort_by_key(|name| (!name.starts_with("vgg"), !name.contains("net50"), name.clone()));
    names
}

/// The classes of a pixel.
const CLASSES: usize = 5;

/// Elements after which the numbers begin anew.
const PERIOD: usize = 8191;

/// Numbers from -1 to 1, exact in single precision.
fn table(seed: u64) -> Vec<f32> {
    let next = |state: &u64| Some((state * 1_103_515_245 + 12345) % (1 << 31));
    let states = std::iter::successors(next(&seed), next).take(PERIOD);
    states.map(|state| (state >> 7) as f32 / 8_388_608.0 - 1.0).collect()
}

/// Where in the table the tensor of that name begins.
fn start(name: &str) -> usize {
    name.bytes().fold(0, |start, byte| (start * 31 + usize::from(byte)) % PERIOD)
}

/// The elements of the parameter, of the running statistics or of the images of that name, in native byte order.
fn values(table: &[f32], name: &str, shape: &[usize], variance: f32) -> Vec<u8> {
    let fan_in: usize = shape.iter().skip(1).product();
    let of = |x: f32| match name {
        "inputs" => 2.0 * x,
        _ if shape.len() > 1 => x * (6.0 / fan_in as f64).sqrt() as f32,
        _ if name.ends_with("bn3.weight") => 0.125 * (0.75 + 0.25 * x),
        _ if name.ends_with("weight") => 0.75 + 0.25 * x,
        _ if name.ends_with(".bn.bias") => 1.0 + 0.125 * x,
        _ if name.ends_with("running_var") => variance * (1.0 + 0.5 * x),
        _ => 0.125 * x,
    };
    let start = start(name);
    let period: Vec<u8> = (0..PERIOD).flat_map(|i| of(table[(start + i) % PERIOD]).to_ne_bytes()).collect();
    let bytes = 4 * shape.iter().product::<usize>();
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        all.extend_from_slice(&period[..period.len().min(bytes - all.len())]);
    }
    all
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// Where the largest errors of each architecture are written, for the table in docs/models.md, if the environment asks for it.
fn keep_errors(name: &str, findings: &Findings) {
    static FILE: Mutex<()> = Mutex::new(());
    if std::env::var_os("UPDATE_FIGURES").is_none() {
        return;
    }
    let _alone = FILE.lock().unwrap();
    let path = root().join("benches/figures/errors.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
    let mut all: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
    let of = |kind: &str| findings.error(kind);
    let gradient = of("gradient").max(of("norm of the gradient"));
    let short = |error: f64| -> f64 { format!("{error:.1e}").parse().unwrap() };
    all.insert(name.into(), json!({ "outputs": short(of("logits")), "gradients": short(gradient) }));
    fs::write(path, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
}

/// What differs in the architecture of that name.
pub fn check(name: &str) -> Findings {
    let path = folder().join("architectures").join(format!("{name}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let golden: Value = serde_json::from_str(&text).unwrap();
    let shape: Vec<usize> = numbers(&golden["inputs"]).iter().map(|n| *n as usize).collect();
    let table = table(golden["seed"].as_u64().unwrap());

    let dir = tempfile::tempdir().unwrap();
    let inputs = values(&table, "inputs", &shape, 1.0);
    // A class for each image, or for each of its pixels: the next one from row to row.
    let rows = if golden["pixels"].as_bool() == Some(true) { [shape[2], shape[3]] } else { [1, 1] };
    let mut targets = Vec::new();
    for class in numbers(&golden["targets"]) {
        for row in 0..rows[0] {
            let class = if rows[0] > 1 { (class as usize + row) % CLASSES } else { class as usize };
            targets.extend((class as i64).to_ne_bytes().repeat(rows[1]));
        }
    }
    let targets_shape = if rows[0] > 1 { vec![shape[0], rows[0], rows[1]] } else { vec![shape[0]] };
    let tensors = [
        ("inputs", TensorView::new(Dtype::F32, shape.clone(), &inputs).unwrap()),
        ("targets", TensorView::new(Dtype::I64, targets_shape, &targets).unwrap()),
    ];
    serialize_to_file(tensors, None, &dir.path().join("batch.safetensors")).unwrap();
    let with: Vec<String> =
        golden["with"].as_object().unwrap().iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let config = format!(
        "device = 'cpu'\n[data]\nsource = 'tensors'\npath = 'batch.safetensors'\nbatch_size = {}\nshuffle = false\n\
         [model]\nuse = {:?}\nwith = {{ {} }}\n\
         [loss]\ntype = 'cross_entropy'\n[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n",
        shape[0],
        root().join(format!("models/{name}.toml")),
        with.join(", ")
    );
    let path = dir.path().join("config.toml");
    fs::write(&path, config).unwrap();

    let gradients = golden["gradients"].as_object().unwrap();
    let variance = number(&golden["variance"]) as f32;
    let values = |var: &Variable| match var.dtype {
        DType::F32 => Some(values(&table, &var.name, var.storage.outside.dims(), variance)),
        _ => None,
    };
    let wanted = |name: &str| gradients.contains_key(name);
    let got = engine::first_step_from(&path, On::Cpu(1), &values, &wanted);
    let mut findings = Findings::default();
    // Of images the file has some numbers.
    let step = golden["every"].as_u64().map_or(1, |n| n as usize);
    let output: Vec<f32> = got.eval_output.iter().copied().step_by(step).collect();
    findings.near_scale("logits", &output, &numbers(&golden["output"]));
    findings.near_scale("loss", &[got.loss as f32], &[number(&golden["loss"])]);
    for (name, want) in gradients {
        let got = got.grads.get(name).unwrap_or_else(|| panic!("no gradient of `{name}`"));
        let start = start(&format!("gradient of {name}"));
        let norm = got.data.iter().map(|x| x * x).sum::<f64>().sqrt();
        let product = got.data.iter().enumerate().map(|(i, x)| x * f64::from(table[(start + i) % PERIOD])).sum();
        findings.summary(name, [norm, product], &numbers(want));
    }
    keep_errors(name, &findings);
    findings
}
