//! The architectures of `models/` against PyTorch's: names and shapes of all that their state dicts hold, in order; how their parameters
//! start; how often their blocks are left out.

use runner::config;
use runner::config::experiment::{LayerKind, LayerNode};
use runner::config::language::layers::Layer;
use runner::graph::{Fill, Shape, VarKind, Variables};
use runner::model::{self, Mode};
use runner::train::setup::input::describe;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A model of `models/` for images of a size that it takes.
fn load(model: &str) -> (config::Loaded, usize) {
    // Those for small images take no larger ones.
    let side = match model {
        "autoencoder" | "lenet5" | "mlp_mixer" | "resnet9" | "vit_small_32" => 32,
        // Its positions are learned.
        "vit_b_16" => 224,
        _ => 64,
    };
    let path = folder("models").join(format!("{model}.toml"));
    let (with, loss) = match model {
        // It learns its input.
        "autoencoder" => ("{}", "'mse'\ntarget = 'inputs'"),
        _ => ("{ num_classes = 1000 }", "'cross_entropy'"),
    };
    let text = format!(
        "[data]\nsource = 'synthetic'\nshape = [3, {side}, {side}]\nclasses = 1000\n\
         [model]\nuse = {path:?}\nwith = {with}\n\
         [loss]\ntype = {loss}\n[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n"
    );
    let loaded = config::load_str("test.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}"));
    assert!(loaded.warnings.is_empty(), "{model}: {:?}", loaded.warnings);
    (loaded, side)
}

/// All that a model keeps.
fn variables(model: &str) -> Variables {
    let (loaded, side) = load(model);
    let mut data = describe(&loaded.experiment).unwrap_or_else(|e| panic!("{e:?}"));
    if model == "unet" {
        // A class for each pixel.
        data.fields
            .iter_mut()
            .filter(|field| field.is_target())
            .for_each(|field| field.shape = Shape::from([side, side]));
    }
    let mut vars = Variables::new();
    model::forward(&loaded.experiment, &data, &mut vars, 1, Mode::Eval).unwrap_or_else(|e| panic!("{model}: {e:?}"));
    vars
}

/// `name dimensions` of every tensor of a model's state dict, as PyTorch has it.
fn state_dict(model: &str) -> Vec<String> {
    let described = |v: &runner::graph::Variable| {
        let dims = v.storage.outside.dims().iter().map(|n| format!(" {n}")).collect::<String>();
        format!("{}{dims}", v.name)
    };
    let kept = |kind: &VarKind| matches!(kind, VarKind::Parameter | VarKind::Buffer);
    let vars = variables(model);
    in_order_of_modules(vars.iter().filter(|(_, v)| kept(&v.kind)).map(|(_, v)| described(v)).collect())
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
    // Those for tables and texts take no images; tests of tables and of text train them.
    let takes_images = |path: &Path| {
        !["dlrm", "ft_transformer", "linear", "lstm_forecaster", "tabm", "tabular", "tabular_mlp", "tabular_resnet"]
            .contains(&&stem(path)[..])
            && !std::fs::read_to_string(path).unwrap().contains("\nvocabulary = ")
    };
    let paths = std::fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut stems: Vec<String> = paths.filter(|path| takes_images(path)).map(|path| stem(&path)).collect();
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
        let (mut expected, mut found): (Vec<&str>, Vec<String>) = (text.lines().collect(), state_dict(model));
        if model == "swin_t" {
            // Its modules are not in the order in which they are applied.
            expected.sort_unstable();
            found.sort();
        }
        if let Some(i) = (0..expected.len().max(found.len()))
            .find(|i| expected.get(*i).copied() != found.get(*i).map(String::as_str))
        {
            let lines = (found.get(i), expected.get(i));
            faults.push(format!("{model}: entry {} is {:?}, not {:?}", i + 1, lines.0, lines.1));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Mean, standard deviation and kurtosis of a distribution.
fn moments(init: Fill) -> [f64; 3] {
    match init {
        Fill::Constant(c) => [c, 0.0, 0.0],
        Fill::Uniform { bound } => [0.0, bound / 3f64.sqrt(), 1.8],
        Fill::Normal { mean, std } => [mean, std, 3.0],
        // So far out that nothing is cut off.
        Fill::TruncatedNormal { std, low, high } if high.min(-low) > 8.0 * std => [0.0, std, 3.0],
        other => panic!("{other:?} is in no model"),
    }
}

/// PyTorch's figures are those of one draw of `n` numbers. They lie within six standard errors of the distribution's: of the mean that is
/// `σ / √n`, of the standard deviation `σ · √((κ − 1) / 4n)`, of the kurtosis at most `√(24 / n)`, which distinguishes a uniform from a normal
/// distribution from a thousand numbers on.
#[test]
fn parameters_start_as_those_of_torchvision() {
    let mut faults = Vec::new();
    let mut drawn = 0;
    for model in stems("tests/golden/starts").iter().filter(|stem| *stem != "stochastic_depth") {
        let text = std::fs::read_to_string(folder("tests/golden/starts").join(format!("{model}.txt"))).unwrap();
        let vars = variables(model);
        let parameters: Vec<_> = vars.iter().filter(|(_, v)| v.kind == VarKind::Parameter).collect();
        assert_eq!(parameters.len(), text.lines().count(), "{model}");
        for line in text.lines() {
            let (name, figures) = line.split_once(' ').unwrap();
            let found: Vec<f64> = figures.split(' ').map(|x| x.parse().unwrap()).collect();
            let (_, v) = parameters.iter().find(|(_, v)| v.name == name).unwrap_or_else(|| panic!("{model}: {name}"));
            let [mean, std, kurtosis] = moments(v.init);
            let n = v.shape.len() as f64;
            // The files have six digits.
            let near = |i: usize, x: f64, error: f64| (found[i] - x).abs() <= 6.0 * error + 1e-5 * x.abs();
            let fits = near(0, mean, std / n.sqrt())
                && near(1, std, std * ((kurtosis - 1.0).max(0.0) / (4.0 * n)).sqrt())
                && (std == 0.0 || n < 1000.0 || near(2, kurtosis, (24.0 / n).sqrt()));
            drawn += usize::from(std > 0.0);
            if !fits {
                faults.push(format!("{model}: {name} starts as {:?}, but PyTorch's as {found:?}", v.init));
            }
        }
    }
    assert!(drawn > 800, "{drawn}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The probabilities above zero of all `stochastic_depth`, in order.
fn left_out(nodes: &[LayerNode]) -> Vec<f64> {
    let own = |node: &LayerNode| match &node.kind {
        // Swin's blocks have one module for both of their sums.
        LayerKind::Layer(Layer::StochasticDepth(_)) if node.name == "stochastic_depth2" => Vec::new(),
        LayerKind::Layer(Layer::StochasticDepth(layer)) => vec![layer.p],
        kind => kind.children().into_iter().flat_map(left_out).collect(),
    };
    nodes.iter().flat_map(own).filter(|p| *p > 0.0).collect()
}

#[test]
fn blocks_are_left_out_as_often_as_in_torchvision() {
    let text = std::fs::read_to_string(folder("tests/golden/starts/stochastic_depth.txt")).unwrap();
    let mut compared = 0;
    for line in text.lines() {
        let mut words = line.split(' ');
        let model = words.next().unwrap();
        let expected: Vec<f64> = words.map(|p| p.parse().unwrap()).filter(|p| *p > 0.0).collect();
        assert_eq!(left_out(&load(model).0.experiment.model.layers), expected, "{model}");
        compared += 1;
    }
    let models =
        stems("models").into_iter().filter(|model| !left_out(&load(model).0.experiment.model.layers).is_empty());
    assert_eq!(models.count(), compared, "models with stochastic depth");
}
