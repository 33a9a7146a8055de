//! What the builder makes of configurations that are right.

use super::*;
use crate::config;
use crate::graph::{Fill, Input, Storage, VarKind};
use std::path::Path;

fn images(sample: [usize; 3]) -> DataSpec {
    DataSpec { train: Some(100), val: Some(100), ..DataSpec::labelled(DType::U8, sample, 10) }
}

fn with_layers(layers: &str) -> Experiment {
    let text = format!(
        "[data]\nsource = \"digits\"\n[model]\nlayers = [{layers}]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n"
    );
    config::load_str("test.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}")).experiment
}

fn resnet() -> Experiment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/cifar10_resnet18.toml");
    config::load(&path, &[]).unwrap_or_else(|e| panic!("{e}")).experiment
}

/// `torchvision.models.resnet18(num_classes=10).state_dict()`: names and shapes.
fn torchvision_resnet18() -> Vec<(String, Vec<usize>)> {
    let mut all: Vec<(String, Vec<usize>)> = Vec::new();
    let mut conv = |name: &str, o: usize, i: usize, k: usize, bn: &str| {
        all.push((format!("{name}.weight"), vec![o, i, k, k]));
        for part in ["weight", "bias", "running_mean", "running_var"] {
            all.push((format!("{bn}.{part}"), vec![o]));
        }
        all.push((format!("{bn}.num_batches_tracked"), vec![]));
    };
    conv("conv1", 64, 3, 7, "bn1");
    let mut from = 64;
    for (stage, planes) in [(1, 64), (2, 128), (3, 256), (4, 512)] {
        for block in 0..2 {
            let at = format!("layer{stage}.{block}");
            conv(&format!("{at}.conv1"), planes, from, 3, &format!("{at}.bn1"));
            conv(&format!("{at}.conv2"), planes, planes, 3, &format!("{at}.bn2"));
            if from != planes {
                conv(&format!("{at}.downsample.0"), planes, from, 1, &format!("{at}.downsample.1"));
            }
            from = planes;
        }
    }
    all.push(("fc.weight".into(), vec![10, 512]));
    all.push(("fc.bias".into(), vec![10]));
    all.sort();
    all
}

#[test]
fn resnet18_has_the_state_dict_of_torchvision() {
    let mut vars = Variables::new();
    forward(&resnet(), &images([32, 32, 3]), &mut vars, 4, Mode::Train).unwrap();
    let mut found: Vec<(String, Vec<usize>)> = vars
        .iter()
        .filter(|(_, v)| matches!(v.kind, VarKind::Parameter | VarKind::Buffer))
        .map(|(_, v)| (v.name.clone(), v.storage.outside.dims().to_vec()))
        .collect();
    found.sort();
    let expected = torchvision_resnet18();
    assert_eq!(expected.len(), 122);
    assert_eq!(found, expected);
}

#[test]
fn graphs_share_their_variables() {
    let (experiment, data) = (resnet(), images([32, 32, 3]));
    let mut vars = Variables::new();
    forward(&experiment, &data, &mut vars, 4, Mode::Train).unwrap();
    let before = vars.len();
    forward(&experiment, &data, &mut vars, 3, Mode::Train).unwrap();
    assert_eq!(vars.len(), before);
    let eval = forward(&experiment, &data, &mut vars, 4, Mode::Eval).unwrap();
    // The sums of the evaluation's metrics.
    assert_eq!(vars.len(), before + 1);
    let used =
        |kind: VarKind| vars.iter().filter(|(id, v)| v.kind == kind && eval.graph.find_variable(*id).is_some()).count();
    assert_eq!(used(VarKind::Parameter), 62);
    // Means, variances, and the counters, which inference does not read but a state dict has.
    assert_eq!(used(VarKind::Buffer), 60);
    forward(&experiment, &data, &mut vars, 1, Mode::Predict).unwrap();
    assert_eq!(vars.len(), before + 1);
}

#[test]
fn weights_start_within_one_over_the_root_of_their_inputs() {
    let layers = r#"{ type = "conv2d", out_channels = 6, kernel_size = [3, 5], groups = 3 }, "batch_norm2d",
        "flatten", { type = "linear", out_features = 10 },
        { type = "reshape", shape = [5, 1, 2] }, { type = "conv_transpose2d", out_channels = 7, kernel_size = [2, 3] }, "flatten",
        { type = "linear", out_features = 10 }"#;
    let mut vars = Variables::new();
    forward(&with_layers(layers), &images([8, 8, 3]), &mut vars, 4, Mode::Train).unwrap();
    let own = [("0.weight", 15), ("0.bias", 15), ("3.weight", 6 * 6 * 4), ("3.bias", 6 * 6 * 4)];
    // Of a transposed convolution PyTorch takes the outputs for the inputs.
    for (name, fan_in) in own.into_iter().chain([("5.weight", 7 * 2 * 3), ("5.bias", 7 * 2 * 3)]) {
        let var = &vars[vars.find(name).unwrap()];
        let bound = 1.0 / (fan_in as f64).sqrt();
        assert_eq!(var.init, Fill::Uniform { bound }, "{name}");
        let bytes = init::initial(var, 7);
        let values: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect();
        assert!(values.iter().all(|v| f64::from(v.abs()) <= bound), "{name}");
        // Not all in a corner of the interval: the probability of that is below 0.7 ^ 6 even for the bias.
        assert!(values.iter().any(|v| f64::from(v.abs()) > 0.3 * bound), "{name}");
    }
    for (name, value) in [("1.weight", 1.0), ("1.bias", 0.0), ("1.running_mean", 0.0), ("1.running_var", 1.0)] {
        assert_eq!(vars[vars.find(name).unwrap()].init, Fill::Constant(value), "{name}");
    }
}

#[test]
fn columns_after_flatten_are_pytorchs() {
    let head = r#", { name = "fc", type = "linear", out_features = 10 }"#;
    let storage = |between: &str| {
        let mut vars = Variables::new();
        let experiment = with_layers(&format!("\"flatten\"{between}{head}"));
        forward(&experiment, &images([5, 4, 3]), &mut vars, 4, Mode::Train).unwrap();
        vars[vars.find("fc.weight").unwrap()].storage.clone()
    };
    let permuted = Storage::linear_after_flatten(10, [5, 4, 3]);
    assert_eq!(storage(""), permuted);
    // Element by element, the order stays; a normalisation's own parameters are in PyTorch's order.
    assert_eq!(storage(r#", "relu", "dropout""#), permuted);
    assert_eq!(storage(r#", { type = "layer_norm" }"#), Storage::plain([10, 60]));
    // What stands in column (channel 2, row 3, column 1) outside is that element of a sample inside.
    let outside: Vec<usize> = (0..600).collect();
    assert_eq!(permuted.to_inside(&outside)[(3 * 4 + 1) * 3 + 2], 2 * 20 + 3 * 4 + 1);
}

#[test]
fn a_transform_for_training_leaves_evaluation_alone() {
    let mut experiment = with_layers(r#""flatten", { type = "linear", out_features = 10 }"#);
    let normalize = crate::config::language::sections::Normalize { mean: vec![0.5], std: vec![0.25] };
    experiment.data.train_transforms.push(crate::config::language::sections::Transform::Normalize(normalize));
    let means = |mode| {
        let graph = forward(&experiment, &images([8, 8, 1]), &mut Variables::new(), 4, mode).unwrap().graph;
        let means = graph.nodes.iter().filter_map(|n| match &n.op {
            Op::Normalize(n) => Some(n.mean.clone()),
            _ => None,
        });
        means.collect::<Vec<_>>()
    };
    assert_eq!(means(Mode::Train), [[0.5]]);
    assert_eq!(means(Mode::Eval), [[0.0]]);
}

/// `torch.nn.MultiheadAttention(64, 4).named_parameters()`, and `_reset_parameters` of that module.
#[test]
fn attention_starts_as_in_pytorch_and_drops_weights_in_training_alone() {
    let layers = r#"{ type = "flatten", end_dim = 2 }, { type = "linear", out_features = 64 },
        { name = "attn", type = "multihead_attention", num_heads = 4, dropout = 0.25 },
        { name = "grouped", type = "multihead_attention", num_heads = 4, num_kv_heads = 1 },
        { name = "alone", type = "multihead_attention", num_heads = 4, num_kv_heads = 4 },
        "dropout", "flatten", { type = "linear", out_features = 10 }"#;
    let mut vars = Variables::new();
    let experiment = with_layers(layers);
    let train = forward(&experiment, &images([8, 8, 1]), &mut vars, 4, Mode::Train).unwrap();
    let uniform = |bound: f64| Fill::Uniform { bound };
    for (name, shape, init) in [
        ("attn.in_proj_weight", &[192, 64][..], uniform((6.0f64 / 256.0).sqrt())),
        ("attn.in_proj_bias", &[192], Fill::Constant(0.0)),
        ("attn.out_proj.weight", &[64, 64], uniform(1.0 / 8.0)),
        ("attn.out_proj.bias", &[64], Fill::Constant(0.0)),
        ("grouped.q_proj_weight", &[64, 64], uniform((6.0f64 / 128.0).sqrt())),
        ("grouped.k_proj_weight", &[16, 64], uniform((6.0f64 / 80.0).sqrt())),
        ("grouped.v_proj_weight", &[16, 64], uniform((6.0f64 / 80.0).sqrt())),
        ("grouped.in_proj_bias", &[96], Fill::Constant(0.0)),
        ("grouped.out_proj.weight", &[64, 64], uniform(1.0 / 8.0)),
        ("alone.in_proj_weight", &[192, 64], uniform((6.0f64 / 256.0).sqrt())),
    ] {
        let var = &vars[vars.find(name).unwrap()];
        assert_eq!((var.storage.outside.dims(), var.init), (shape, init), "{name}");
    }
    let eval = forward(&experiment, &images([8, 8, 1]), &mut vars, 4, Mode::Eval).unwrap();
    let dropouts = |graph: &Graph| {
        let of = |node: &crate::graph::Node| match &node.op {
            Op::Attention(op) => Some(op.dropout.map(|d| (d.p, d.stream))),
            Op::Dropout(op) => Some(Some((op.p, op.stream))),
            _ => None,
        };
        graph.nodes.iter().filter_map(of).collect::<Vec<_>>()
    };
    // Each draws for itself.
    assert_eq!(dropouts(&train.graph), [Some((0.25, 0)), None, None, Some((0.5, 3))]);
    assert_eq!(dropouts(&eval.graph), [None; 3]);
}

/// The names of the operations of a net for images of 3×8×8.
fn operations(layers: &str, mode: Mode) -> Vec<&'static str> {
    let experiment = with_layers(layers);
    let made = forward(&experiment, &images([8, 8, 3]), &mut Variables::new(), 4, mode).unwrap();
    made.graph.nodes.iter().map(|node| node.op.rules().name()).collect()
}

#[test]
fn another_order_of_dimensions_moves_nothing_where_layers_read_through_it() {
    let end = r#"{ type = "mean", dim = 1 }, { type = "linear", out_features = 10 }"#;
    let vision_transformer = format!(
        r#"{{ type = "conv2d", out_channels = 6, kernel_size = 4, stride = 4 }}, {{ type = "flatten", start_dim = 2 }},
        {{ type = "transpose", dim0 = 1, dim1 = 2 }}, "class_token", "position_embedding", "layer_norm", {end}"#
    );
    let convnext = r#"{ name = "block", type = "residual", layers = [{ type = "conv2d", groups = "in_channels", kernel_size = 7, padding = 3 },
        { type = "permute", dims = [0, 2, 3, 1] }, "layer_norm", { type = "linear", out_features = 12 }, "gelu",
        { type = "linear", out_features = 3 }, { type = "permute", dims = [0, 3, 1, 2] }, "layer_scale"] },
        { type = "mean", dim = [2, 3] }, { type = "linear", out_features = 10 }"#;
    let sequences = r#"{ type = "flatten", start_dim = 2 }, { type = "conv1d", out_channels = 4, kernel_size = 3 }, "batch_norm1d", "relu",
        { type = "max_pool1d", kernel_size = 2 }, { type = "conv1d", out_channels = 4, kernel_size = 3 },
        { type = "mean", dim = 2 }, { type = "linear", out_features = 10 }"#;
    for layers in [vision_transformer.as_str(), convnext, sequences] {
        let names = operations(layers, Mode::Train);
        assert!(!names.contains(&"permute"), "{names:?}");
    }
}

#[test]
fn stochastic_depth_draws_once_for_each_sample_and_in_training_alone() {
    let layers = |mode: &str| {
        format!(
            r#"{{ type = "stochastic_depth", p = 0.2, mode = "{mode}" }}, "flatten", {{ type = "linear", out_features = 10 }}"#
        )
    };
    for (mode, draws) in [("row", 4), ("batch", 1)] {
        let experiment = with_layers(&layers(mode));
        let made = forward(&experiment, &images([8, 8, 3]), &mut Variables::new(), 4, Mode::Train).unwrap();
        let dropout = made.graph.nodes.iter().find(|node| node.op.rules().name() == "dropout").unwrap();
        assert_eq!(made.graph.shape(dropout.outputs[0]).dims(), [draws, 1, 1, 1]);
        assert!(!operations(&layers(mode), Mode::Eval).contains(&"dropout"));
    }
}

/// Training compares with shares of classes, and counts answers by classes; evaluation knows of no mixing.
#[test]
fn mixed_samples_have_shares_of_classes_in_training_alone() {
    let text = "[data]\nsource = \"digits\"\ntrain_transforms = [\"mixup\"]\n[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n\
                [loss]\ntype = \"cross_entropy\"\nlabel_smoothing = 0.1\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";
    let experiment = config::load_str("test.toml", text, &[]).unwrap_or_else(|e| panic!("{e}")).experiment;
    let compared = |mode| {
        let graph = forward(&experiment, &images([8, 8, 1]), &mut Variables::new(), 4, mode).unwrap().graph;
        let role = |at: &crate::graph::ValueId| graph.value(*at).role;
        let of = |node: &crate::graph::Node| match &node.op {
            Op::Loss(_) => Some(role(&node.inputs[1])),
            Op::Metrics(_) => Some(role(&node.inputs[3])),
            _ => None,
        };
        graph.nodes.iter().filter_map(of).collect::<Vec<_>>()
    };
    let labels = Role::Input(Input::Field(1));
    assert_eq!(compared(Mode::Train), [Role::Input(Input::Shares), labels]);
    assert_eq!(compared(Mode::Eval), [labels, labels]);
}
