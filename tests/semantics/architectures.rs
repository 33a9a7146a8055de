//! The architectures of `models/` against torchvision's: names and shapes of all that their state dicts hold, in order.

use runner::backend::cpu::CpuBackend;
use runner::config;
use runner::graph::VarKind;
use runner::passes::PassOptions;
use runner::train::setup::input::describe;
use runner::train::setup::programs::{self, Sizes};
use std::path::Path;

/// `name dimensions` of every tensor of a model's state dict, as PyTorch has it.
fn state_dict(model: &str) -> Vec<String> {
    let text = format!(
        "[data]\nsource = 'synthetic'\nshape = [3, 64, 64]\nclasses = 1000\n[model]\nuse = 'models/{model}.toml'\n\
         [loss]\ntype = 'cross_entropy'\n[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n"
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("models")).unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("models/{model}.toml"));
    std::fs::copy(file, folder.path().join(format!("models/{model}.toml"))).unwrap();
    let path = folder.path().join("test.toml");
    std::fs::write(&path, text).unwrap();
    let loaded = config::load(&path, &[]).unwrap_or_else(|e| panic!("{e}"));
    let data = describe(&loaded.experiment).unwrap_or_else(|e| panic!("{e:?}"));
    let sizes = Sizes { train: Vec::new(), eval: vec![1.into()], predict: Vec::new() };
    let backend = CpuBackend::new(Some(1)).unwrap();
    let programs = programs::build(&loaded.experiment, &data, &sizes, &backend, &PassOptions::default())
        .unwrap_or_else(|e| panic!("{e:?}"));
    let told = |v: &runner::graph::Variable| {
        let dims = v.storage.outside.dims().iter().map(|n| format!(" {n}")).collect::<String>();
        format!("{}{dims}", v.name)
    };
    let kept = |kind: &VarKind| matches!(kind, VarKind::Parameter | VarKind::Buffer);
    programs.plan.variables.iter().filter(|(_, v)| kept(&v.kind)).map(|(_, v)| told(v)).collect()
}

#[test]
fn names_and_shapes_are_those_of_torchvision() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let model = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/names/{model}.txt"));
        let expected = std::fs::read_to_string(&golden).unwrap_or_else(|e| panic!("{}: {e}", golden.display()));
        assert_eq!(state_dict(&model), expected.lines().collect::<Vec<_>>(), "{model}");
        count += 1;
    }
    assert_eq!(count, 2);
}
