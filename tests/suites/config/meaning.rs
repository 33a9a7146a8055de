//! What correct configurations mean: defaults, names, parameters, wiring, files and overrides.

use runner::config::experiment::{LayerKind, LayerNode};
use runner::config::language::layers::Layer;
use runner::config::language::pattern::Pattern;
use runner::config::language::sections::{Course, Curve, Metric, OptimizerRule, Source};
use runner::config::language::values::{Device, Groups, ValidationSplit};
use runner::config::{self, Loaded, SourceId, Span};

use super::examples::leaves;

/// A configuration with these layers, and these blocks and parameters.
fn model(layers: &str, definitions: &str) -> Loaded {
    let text = format!(
        "[data]\nsource = \"synthetic\"\nshape = [3, 8, 8]\nclasses = 10\n[model]\nlayers = [{layers}]\n[loss]\n\
         type = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 3\n{definitions}"
    );
    config::load_str("test.toml", &text, &[]).unwrap_or_else(|failure| panic!("{failure}"))
}

fn names(loaded: &Loaded) -> Vec<String> {
    let mut names = Vec::new();
    leaves(&loaded.experiment.model.layers, &mut names);
    names
}

fn from(node: &LayerNode) -> Vec<&str> {
    node.from.iter().flatten().map(|(path, _)| path.as_str()).collect()
}

#[test]
fn defaults_are_pytorchs() {
    let loaded = model("\"flatten\", { type = \"linear\", out_features = 10 }", "");
    let experiment = &loaded.experiment;
    assert_eq!((experiment.seed, experiment.device), (0, Device::Auto));
    assert_eq!(experiment.data.loading.eval_batch_size(), 64);
    assert!(experiment.data.loading.shuffle && !experiment.data.loading.drop_last);
    let OptimizerRule::Adam(adam) = &experiment.optimizer.rule else { panic!("adam was asked for") };
    assert_eq!((adam.lr, adam.betas, adam.eps, adam.weight_decay), (1e-3, [0.9, 0.999], 1e-8, 0.0));
    assert_eq!(
        experiment.schedule.curve,
        Curve::Course(Course::Constant(runner::config::language::sections::Constant {}))
    );
    assert_eq!(experiment.checkpoint.monitor(), &Metric::ValAccuracy.into());
    assert_eq!(experiment.log.every_steps, 50);
    assert_eq!(experiment.span_of("optimizer.lr"), None);
    let span = experiment.nearest_span("optimizer.lr").expect("the section is there");
    assert_eq!(loaded.sources.text(span), "[optimizer]");
    let span = experiment.span_of("data.shape.1").expect("written");
    assert_eq!(loaded.sources.text(span), "8");
}

#[test]
fn the_configuration_for_comparisons() {
    let text = r#"
[data]
source = "tensors"
path = "batch.safetensors"
batch_size = 32
shuffle = false
validation_split = 10
[model]
weights = "init.safetensors"
freeze = ["features.*"]
layers = ["flatten", { type = "linear", out_features = 2 }]
[loss]
type = "mse"
[optimizer]
type = "sgd"
lr = 1
[train]
epochs = 1
"#;
    let loaded = config::load_str("test.toml", text, &[]).unwrap_or_else(|failure| panic!("{failure}"));
    let experiment = &loaded.experiment;
    let Source::Tensors(tensors) = &experiment.data.source else { panic!("tensors were asked for") };
    assert_eq!(tensors.path, std::path::absolute("batch.safetensors").expect("a path"));
    assert_eq!(experiment.data.loading.validation_split, Some(ValidationSplit::Count(10)));
    assert!(experiment.model.weights_strict);
    assert_eq!(loaded.sources.text(experiment.model.freeze[0].span), "\"features.*\"");
    assert_eq!(experiment.checkpoint.monitor(), &Metric::ValLoss.into());
}

#[test]
fn torchvisions_names_for_a_vision_transformer() {
    let loaded = model(
        r#"{ name = "encoder", layers = [
             { name = "layers", layers = [{ name = "encoder_layer_{i}", block = "encoder", repeat = 3 }] },
             { name = "ln", type = "layer_norm" },
           ] }"#,
        "[blocks.encoder]\nlayers = [{ name = \"ln_1\", type = \"layer_norm\" }, { name = \"mlp\", layers = [{ type = \"linear\", out_features = 4 }, \"gelu\"] }]\n",
    );
    let names = names(&loaded);
    assert_eq!(names[0], "encoder.layers.encoder_layer_0.ln_1 layer_norm");
    assert_eq!(names[7], "encoder.layers.encoder_layer_2.mlp.0 linear");
    assert_eq!(names.last().expect("not empty"), "encoder.ln layer_norm");
}

#[test]
fn torchvisions_names_for_an_inverted_residual() {
    let loaded = model(
        r#"{ name = "features", layers = [
             { type = "conv2d", out_channels = 16, kernel_size = 3 },
             { block = "inverted", with = { act = "hardswish", hidden = 32 } },
             { block = "inverted", with = { hidden = 64, stride = 2 } },
           ] }"#,
        r#"[blocks.inverted]
params = { hidden = 16, act = "relu", stride = 1 }
layers = [{ type = "residual", shortcut = "if_same_shape", layers = [{ name = "block", layers = [
  { layers = [{ type = "conv2d", out_channels = "$hidden", kernel_size = 1, bias = false }, "batch_norm2d", "$act"] },
  { layers = [{ type = "conv2d", groups = "in_channels", kernel_size = 3, padding = 1, stride = "$stride" }, "batch_norm2d", { type = "$act" }] },
  { type = "gate", layers = [
    { name = "avgpool", type = "adaptive_avg_pool2d", output_size = 1 },
    { name = "fc1", type = "conv2d", out_channels = "$hidden / 4", kernel_size = 1 },
  ] },
] }] }]
"#,
    );
    let names = names(&loaded);
    for name in [
        "features.1.block.0.0 conv2d",
        "features.1.block.0.2 hardswish",
        "features.1.block.1.1 batch_norm2d",
        "features.2.block.2.fc1 conv2d",
        "features.2.block.1.2 relu",
    ] {
        assert!(names.iter().any(|n| n == name), "{name} is not in {names:?}");
    }
    let LayerKind::Group(features) = &loaded.experiment.model.layers[0].kind else { panic!("a group") };
    let LayerKind::Group(block) = &features[2].kind else { panic!("a block becomes a group") };
    let LayerKind::Residual { body, if_same_shape: true, projection: None } = &block[0].kind else {
        panic!("a residual without projection")
    };
    assert_eq!((block[0].name.as_str(), block[0].path.as_str()), ("", "features.2"));
    let LayerKind::Group(body) = &body[0].kind else { panic!("a group") };
    let LayerKind::Group(depthwise) = &body[1].kind else { panic!("a group") };
    let LayerKind::Layer(Layer::Conv2d(conv)) = &depthwise[0].kind else { panic!("a convolution") };
    assert_eq!((conv.groups, conv.out_channels, conv.stride.0), (Groups::InChannels, None, [2, 2]));
    assert_eq!(loaded.sources.text(depthwise[0].fields["stride"]), "\"$stride\"");
}

#[test]
fn an_explicit_name_of_a_residual_counts() {
    let loaded = model(
        r#"{ type = "residual", name = "r", layers = [{ type = "linear", out_features = 8 }], projection = { type = "linear", out_features = 8 } },
           { type = "branches", combine = "concat", branches = [
             { layers = [{ type = "linear", out_features = 1 }] },
             { name = "b", type = "linear", out_features = 1 },
           ] }"#,
        "",
    );
    assert_eq!(names(&loaded), ["r.0 linear", "r.projection linear", "0.0 linear", "b linear"]);
}

#[test]
fn arithmetic_has_the_usual_precedence() {
    for (expression, value) in [
        ("$a", 12),
        ("$a + 2 * 3", 18),
        ("($a + 2) * 3", 42),
        ("$a - 2 - 3", 7),
        ("$a / 2 / 3", 2),
        ("-$a + 20", 8),
        ("2 * -(1 - $a)", 22),
        (" $a*$b ", 60),
    ] {
        let layer = format!("{{ type = \"linear\", out_features = \"{expression}\" }}");
        let loaded = model(&layer, "[params]\na = 12\nb = \"$a - 7\"\n[blocks.b]\nlayers = [\"$b\"]\n");
        let LayerKind::Layer(Layer::Linear(linear)) = &loaded.experiment.model.layers[0].kind else {
            panic!("a linear layer")
        };
        assert_eq!(linear.out_features, value, "{expression}");
    }
}

#[test]
fn names_in_from_are_looked_for_from_the_inside_out() {
    let loaded = model(
        r#"{ name = "a", type = "relu" },
           { name = "g", layers = [
             { name = "a", type = "tanh" },
             { type = "add", from = ["a", "g.a"] },
           ] },
           { type = "concat", from = ["a", "g.a", "g"] }"#,
        "",
    );
    let layers = &loaded.experiment.model.layers;
    let LayerKind::Group(inner) = &layers[1].kind else { panic!("a group") };
    assert_eq!(from(&inner[1]), ["g.a", "g.a"]);
    assert_eq!(from(&layers[2]), ["a", "g.a", "g"]);
}

#[test]
fn files_extend_and_options_override() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("can be written");
    write(
        "net.toml",
        "[params]\nwidth = 3\n[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = \"$width\" }]\n",
    );
    write("init.safetensors", "");
    write(
        "base.toml",
        "[data]\nsource = \"digits\"\ntransforms = [{ type = \"normalize\", mean = [0.5], std = [0.5] }]\n[model]\n\
         use = \"net.toml\"\nweights = \"init.safetensors\"\nwith = { width = 4 }\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\nmomentum = 0.5\n[train]\nepochs = 3\n",
    );
    write(
        "child.toml",
        "extends = \"base.toml\"\n[data]\ntransforms = []\n[optimizer]\nlr = 0.2\n[model.with]\nwidth = 5\n",
    );
    let sets = ["device=cpu", "train.epochs = 9", "data.batch_size=2", "model.layers.1.bias=false"].map(str::to_owned);
    let loaded = config::load(&folder.path().join("child.toml"), &sets).unwrap_or_else(|failure| panic!("{failure}"));
    let experiment = &loaded.experiment;
    assert_eq!((experiment.name.as_str(), experiment.device), ("child", Device::Cpu));
    assert_eq!((experiment.train.epochs, experiment.data.loading.batch_size), (Some(9), 2));
    assert!(experiment.data.transforms.is_empty());
    let OptimizerRule::Sgd(sgd) = &experiment.optimizer.rule else { panic!("sgd was asked for") };
    assert_eq!((sgd.lr, sgd.momentum), (0.2, 0.5));
    let LayerKind::Layer(Layer::Linear(linear)) = &experiment.model.layers[1].kind else { panic!("linear") };
    assert_eq!((linear.out_features, linear.bias), (5, false));
    assert_eq!(experiment.model.weights.as_deref(), Some(folder.path().join("init.safetensors").as_path()));
    let place = |key: &str| loaded.sources.place(experiment.span_of(key).expect("written"));
    assert!(place("optimizer.momentum").ends_with("base.toml:13"), "{}", place("optimizer.momentum"));
    assert!(place("optimizer.lr").ends_with("child.toml:5"));
    assert_eq!(place("train.epochs"), "--set train.epochs = 9");
}

#[test]
fn patterns_match_whole_names() {
    let matches = |pattern: &str, name: &str| {
        let span = Span { source: SourceId(0), start: 0, end: 0 };
        Pattern { text: pattern.into(), span }.matches(name)
    };
    for (pattern, name) in [
        ("*", ""),
        ("*", "a.b"),
        ("a.b", "a.b"),
        ("*.bias", "a.b.bias"),
        ("a.*", "a.b"),
        ("a*c*e", "abcde"),
        ("*b*b", "bb"),
    ] {
        assert!(matches(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in [
        ("", "a"),
        ("a", "ab"),
        ("*.bias", "bias"),
        ("a.*", "b.a.c"),
        ("a*c*e", "abde"),
        ("*b*b", "b"),
        ("aba*aba", "aba"),
    ] {
        assert!(!matches(pattern, name), "{pattern} {name}");
    }
}
