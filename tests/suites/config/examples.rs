//! Every configuration that the repository carries is read, and says what it is meant to say.

use std::path::Path;

use runner::config::declare::tagged::Tagged;
use runner::config::experiment::{LayerKind, LayerNode};
use runner::config::language::layers::Layer;
use runner::config::{self, Loaded};

pub fn load(path: &str) -> Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    config::load(&path, &[]).unwrap_or_else(|failure| panic!("{failure}"))
}

/// `path type` of every plain layer, in order.
pub fn leaves(nodes: &[LayerNode], out: &mut Vec<String>) {
    for node in nodes {
        match &node.kind {
            LayerKind::Layer(layer) => out.push(format!("{} {}", node.path, layer.type_name())),
            LayerKind::Group(body) | LayerKind::Gate(body) => leaves(body, out),
            LayerKind::Residual { body, projection, .. } => {
                leaves(body, out);
                leaves(projection.as_deref().map_or(&[], std::slice::from_ref), out);
            }
            LayerKind::Branches { branches, .. } => leaves(branches, out),
        }
    }
}

#[test]
fn every_config_of_the_repository_is_read_without_a_warning() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("readable").path();
        let loaded = config::load(&path, &[]).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(loaded.warnings.is_empty(), "{}: {:?}", path.display(), loaded.warnings);
        count += 1;
    }
    assert!(count >= 6);
}

#[test]
fn names_are_those_of_nn_sequential() {
    let loaded = load("configs/mnist_cnn.toml");
    let mut names = Vec::new();
    leaves(&loaded.experiment.model.layers, &mut names);
    assert_eq!(names[0], "features.0 conv2d");
    assert_eq!(names.last().expect("not empty"), "classifier.4 linear");
    assert_eq!(loaded.experiment.name, "mnist_cnn");
}

#[test]
fn resnet18_has_the_names_of_torchvision() {
    let loaded = load("configs/cifar10_resnet18.toml");
    let mut names = Vec::new();
    leaves(&loaded.experiment.model.layers, &mut names);
    let state: Vec<&str> = names
        .iter()
        .filter(|n| !n.ends_with("relu") && !n.contains("pool") && !n.ends_with("flatten"))
        .map(|n| &**n)
        .collect();
    assert_eq!(
        state[..6],
        [
            "conv1 conv2d",
            "bn1 batch_norm2d",
            "layer1.0.conv1 conv2d",
            "layer1.0.bn1 batch_norm2d",
            "layer1.0.conv2 conv2d",
            "layer1.0.bn2 batch_norm2d",
        ]
    );
    assert!(state.contains(&"layer2.0.downsample.0 conv2d"));
    assert!(state.contains(&"layer4.1.bn2 batch_norm2d"));
    assert_eq!(state.last(), Some(&"fc linear"));
    let LayerKind::Layer(Layer::Linear(fc)) = &loaded.experiment.model.layers.last().expect("not empty").kind else {
        panic!("the last layer is linear");
    };
    assert_eq!(fc.out_features, 10);
}
