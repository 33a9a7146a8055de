//! The architectures of `models/` against PyTorch's: names and shapes of all that their state dicts hold, in order.

use runner::config;
use runner::graph::{Shape, VarKind, Variables};
use runner::model::{self, Mode};
use runner::train::setup::input::describe;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// `name dimensions` of every tensor of a model's state dict, as PyTorch has it.
fn state_dict(model: &str) -> Vec<String> {
    // Those for small images take no larger ones.
    let side = match model {
        "lenet5" | "mlp_mixer" | "resnet9" | "vit_small_32" => 32,
        // Its positions are learned.
        "vit_b_16" => 224,
        _ => 64,
    };
    let path = folder("models").join(format!("{model}.toml"));
    let text = format!(
        "[data]\nsource = 'synthetic'\nshape = [3, {side}, {side}]\nclasses = 1000\n\
         [model]\nuse = {path:?}\nwith = {{ num_classes = 1000 }}\n\
         [loss]\ntype = 'cross_entropy'\n[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n"
    );
    let loaded = config::load_str("test.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}"));
    assert!(loaded.warnings.is_empty(), "{model}: {:?}", loaded.warnings);
    let mut data = describe(&loaded.experiment).unwrap_or_else(|e| panic!("{e:?}"));
    if model == "unet" {
        // A class for each pixel.
        data.fields.iter_mut().filter(|field| field.target).for_each(|field| field.shape = Shape::from([side, side]));
    }
    let mut vars = Variables::new();
    model::forward(&loaded.experiment, &data, &mut vars, 1, Mode::Eval).unwrap_or_else(|e| panic!("{model}: {e:?}"));
    let told = |v: &runner::graph::Variable| {
        let dims = v.storage.outside.dims().iter().map(|n| format!(" {n}")).collect::<String>();
        format!("{}{dims}", v.name)
    };
    let kept = |kind: &VarKind| matches!(kind, VarKind::Parameter | VarKind::Buffer);
    in_order_of_modules(vars.iter().filter(|(_, v)| kept(&v.kind)).map(|(_, v)| told(v)).collect())
}

/// As PyTorch orders a state dict: what a module has itself stands before what the modules inside of it have.
fn in_order_of_modules(mut all: Vec<String>) -> Vec<String> {
    for at in 0..all.len() {
        let name = all[at].split(' ').next().unwrap_or_default();
        let module = name.rfind('.').map_or("", |dot| &name[..=dot]).to_string();
        let inside = |other: &String| {
            let rest = other.strip_prefix(module.as_str()).map(|rest| rest.split(' ').next().unwrap_or_default());
            rest.is_some_and(|rest| rest.contains('.'))
        };
        if let Some(first) = all[..at].iter().position(inside) {
            let own = all.remove(at);
            all.insert(first, own);
        }
    }
    all
}

/// The names of a folder's files without what follows the dot.
fn stems(name: &str) -> Vec<String> {
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut stems: Vec<String> =
        std::fs::read_dir(folder(name)).unwrap().map(|entry| stem(&entry.unwrap().path())).collect();
    stems.sort();
    stems
}

#[test]
fn names_and_shapes_are_those_of_torchvision() {
    let models = stems("models");
    assert_eq!(models, stems("tests/golden/names"), "models, and names of parameters");
    let mut faults = Vec::new();
    for model in &models {
        let text = std::fs::read_to_string(folder("tests/golden/names").join(format!("{model}.txt"))).unwrap();
        let (expected, found): (Vec<&str>, Vec<String>) = (text.lines().collect(), state_dict(model));
        if let Some(i) = (0..expected.len().max(found.len()))
            .find(|i| expected.get(*i).copied() != found.get(*i).map(String::as_str))
        {
            let lines = (found.get(i), expected.get(i));
            faults.push(format!("{model}: entry {} is {:?}, not {:?}", i + 1, lines.0, lines.1));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
