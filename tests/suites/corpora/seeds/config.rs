//! Configurations.

use super::List;

/// All but the layers.
const REST: &str = "[data]\nsource = \"synthetic\"\nshape = [2, 6, 6]\nclasses = 3\nsamples = 10\nval_samples = 5\nbatch_size = 4\n\
                    [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";

/// A whole configuration with these layers.
pub fn with_layers(layers: &str) -> String {
    format!("{REST}[model]\nlayers = [{layers}]\n")
}

const SINK: &str = r#"
seed = 7
precision = "bf16"
[data]
source = "synthetic"
shape = [3, 8, 8]
classes = 5
samples = 20
batch_size = 10
eval_batch_size = 7
validation_split = 0.3
limit = 13
train_transforms = [{ type = "random_crop", size = [8, 8], padding = 2 }, "random_horizontal_flip"]
transforms = [{ type = "normalize", mean = [0.5, 0.4, 0.3], std = [0.2] }]
[params]
width = 8
act = "relu"
[blocks.double]
params = { planes = 1, wide = "$planes * 2 + ($width - 8) / 2" }
layers = [
  { name = "conv_{i}", type = "conv2d", out_channels = "$wide", kernel_size = [3, "$width - 5"], padding = "same" },
  "$act",
]
[model]
freeze = ["stem.*"]
layers = [
  { name = "stem", type = "conv2d", out_channels = "$width", kernel_size = [3, 5], padding = [1, 2] },
  { name = "body", layers = [
    { name = "step_{i}", block = "double", repeat = 2, with = { planes = "$width / 2" } },
    { block = "double", repeat = 2, with = { planes = 4 }, first = { planes = 4 } },
    { name = "inner", type = "batch_norm2d", momentum = "cumulative" },
  ] },
  { type = "residual", layers = [{ name = "a", type = "conv2d", out_channels = 8, kernel_size = 1 }], projection = "identity" },
  { type = "residual", name = "r", shortcut = "if_same_shape", layers = ["relu"] },
  { type = "gate", layers = [{ type = "adaptive_avg_pool2d", output_size = 1 }, "sigmoid"] },
  { type = "branches", combine = "concat", branches = [
    { layers = ["identity"] },
    [{ type = "max_pool2d", kernel_size = 3, stride = 1, padding = 1 }],
    { name = "third", type = "conv2d", out_channels = 8, kernel_size = 1 },
    "relu",
  ] },
  { type = "concat", from = ["stem", "body.inner", "r"] },
  { type = "gelu", approximate = "tanh", from = "stem" },
  "flatten",
  { type = "linear", out_features = 5 },
]
[loss]
type = "cross_entropy"
label_smoothing = 0.1
[optimizer]
type = "adamw"
betas = [0.8, 0.9]
eps = 1e-12
groups = [{ match = ["*.bias", "*inner*"], weight_decay = 0 }, { match = ["body.*"], lr = 1e-4 }]
[schedule]
type = "step"
milestones = [2, 4]
warmup_steps = 10
warmup_start_factor = 0.01
[train]
epochs = 5
accumulate = 2
clip_grad_norm = 1
early_stopping = { monitor = "val_accuracy", min_delta = 0.01 }
[checkpoint]
every_steps = 100
"#;

const SEQUENCE: &str = r#"
[data]
source = "digits"
batch_size = 50
[blocks.encoder]
params = { width = 8, heads = 2, is_causal = true }
layers = [
  { type = "residual", layers = [
    { name = "norm1", type = "layer_norm" },
    { name = "self_attn", type = "multihead_attention", num_heads = "$heads", is_causal = "$is_causal", dropout = 0.1 },
  ] },
  { type = "residual", layers = [{ name = "linear1", type = "linear", out_features = "$width * 4" }, "gelu",
    { name = "linear2", type = "linear", out_features = "$width" }] },
]
[model]
layers = [
  { type = "flatten", end_dim = 2 },
  { name = "embed", type = "linear", out_features = 8 },
  { name = "layers", block = "encoder", repeat = 2 },
  "flatten",
  { name = "head", type = "linear", out_features = 10 },
]
[loss]
type = "cross_entropy"
[optimizer]
type = "rmsprop"
centered = true
[schedule]
type = "cosine"
warmup_epochs = 1
[train]
epochs = 2
"#;

pub fn add(list: &mut List) {
    let head = ", \"flatten\", { type = \"linear\", out_features = 3 }";
    let whole = [
        ("ok-sink", SINK.to_owned()),
        ("ok-sequence", SEQUENCE.to_owned()),
        ("ok-small", with_layers("\"flatten\", { type = \"linear\", out_features = 3 }")),
        (
            "ok-sets",
            format!(
                "#--set train.epochs=3\n#--set model.layers.1.out_features = 3\n#--set optimizer={{ type = \"adam\" }}\n{}",
                with_layers("\"flatten\", { type = \"linear\", out_features = 2 }")
            ),
        ),
        (
            "ok-names",
            with_layers(&format!(
                "{{ name = \"1\", layers = [{{ name = \"7\", type = \"relu\" }}] }}, {{ name = \"0\", type = \"tanh\" }}{head}"
            )),
        ),
        ("ok-numbers", with_layers("\"flatten\", { type = \"linear\", out_features = 3 }").replace("0.1", "1e-7")),
    ];
    for (name, text) in whole {
        list.seed("config", name, text.clone());
        list.seed("check", name, text);
    }
    // Such a container lost its name on the way through the effective configuration, and with it its parameters'.
    for kind in ["residual", "branches"] {
        let body = match kind {
            "residual" => "layers = [\"relu\", { type = \"conv2d\", out_channels = 2, kernel_size = 1 }]",
            _ => "combine = \"add\", branches = [\"relu\", { type = \"conv2d\", out_channels = 2, kernel_size = 1 }]",
        };
        let text = with_layers(&format!("{{ name = \"0\", type = \"{kind}\", {body} }}{head}"));
        list.crash("config", &format!("ok-{kind}-named-like-its-place"), text);
    }
    let deep = |open: &str, close: &str, n: usize| format!("{}{}", open.repeat(n), close.repeat(n));
    list.crash("config", "bad-deep-arrays", format!("x = {}", deep("[", "]", 5000)));
    list.crash("config", "bad-deep-tables", format!("x = {}", deep("{ a = ", "}", 2000).replace("= }", "= 1 }")));
    list.crash("config", "bad-deep-keys", format!("{} = 1", vec!["a"; 4000].join(".")));
    list.crash("config", "bad-deep-layers", with_layers(&deep("{ layers = [", "] }", 1000)));
    list.crash("config", "bad-repeat", {
        let block = "[blocks.b]\nlayers = [\"relu\"]\n";
        with_layers("{ block = \"b\", repeat = 9223372036854775807 }") + block
    });
    list.crash("config", "bad-doubling", {
        let double = |i: usize| format!("[blocks.b{}]\nlayers = [{{ block = \"b{i}\", repeat = 9 }}]\n", i + 1);
        with_layers("{ block = \"b20\" }")
            + "[blocks.b0]\nlayers = [\"relu\"]\n"
            + &(0..20).map(double).collect::<String>()
    });
    list.crash("config", "bad-block-of-itself", {
        with_layers("{ block = \"b\" }") + "[blocks.b]\nlayers = [{ block = \"b\" }]\n"
    });
    for (name, value) in [
        ("overflow", "$a * $a * $a"),
        ("division", "$a / 0"),
        ("smallest", "(0 - $a - 1) / (0 - 1)"),
        ("open", "(((("),
        ("deep", &deep("(", ")", 3000).replace("()", "(1)")),
        ("nothing", "$"),
    ] {
        let layers = format!("{{ type = \"linear\", out_features = \"{value}\" }}");
        let text = with_layers(&layers) + "[params]\na = 9223372036854775807\n";
        list.crash("config", &format!("bad-expression-{name}"), text);
    }
    list.crash("config", "bad-extends-itself", "extends = \"input\"\n#--set extends=\"/dev/zero\"\n");
    list.crash("config", "bad-extends-a-pipe", "#--set extends=\"/dev/stdin\"\n".to_owned() + REST);
    list.crash("config", "bad-uses-a-device", "#--set model.use=\"/dev/zero\"\n".to_owned() + REST);
    for (name, layers) in [
        ("sides", "{ type = \"conv2d\", out_channels = 16777216, kernel_size = 16777216, padding = 16777216 }"),
        ("dilation", "{ type = \"max_pool2d\", kernel_size = 3, dilation = 16777216, padding = 1 }"),
        (
            "wide",
            "\"flatten\", { type = \"linear\", out_features = 16777216 }, { type = \"linear\", out_features = 16777216 }",
        ),
    ] {
        list.crash("check", &format!("size-{name}"), with_layers(&format!("{layers}{head}")));
    }
    list.crash(
        "check",
        "size-samples",
        with_layers(&head[2..]).replace("samples = 10", "samples = 9223372036854775807"),
    );
    list.crash("check", "size-batch", with_layers(&head[2..]).replace("batch_size = 4", "batch_size = 4294967297"));
    list.crash("check", "size-shape", with_layers(&head[2..]).replace("[2, 6, 6]", "[16777216, 16777216, 16777216]"));
}
