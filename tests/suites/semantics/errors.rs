//! Mistakes that show when layers are put together, as they look to the person who made them.

use runner::backend::cpu::CpuBackend;
use runner::config;
use runner::config::text::diagnostics;
use runner::data::DataSpec;
use runner::graph::DType;
use runner::passes::PassOptions;
use runner::train::setup::input;
use runner::train::setup::programs::{self, Sizes};

/// A configuration with these layers, on images of 3×32×32 of ten classes.
pub fn images(layers: &str) -> String {
    with("shape = [3, 32, 32]\nclasses = 10", layers)
}

/// The same on vectors of 13 numbers.
pub fn vectors(layers: &str) -> String {
    with("shape = [13]\nclasses = 10", layers)
}

fn with(data: &str, layers: &str) -> String {
    format!(
        r#"[data]
source = "synthetic"
{data}
samples = 1000
batch_size = 64

[model]
layers = [
{layers}
]

[loss]
type = "cross_entropy"

[optimizer]
type = "sgd"
lr = 0.1

[train]
epochs = 1
"#
    )
}

/// What is said of a configuration that is right in itself.
pub fn rendered(text: &str) -> String {
    rendered_for(text, None)
}

/// [`rendered`], for samples that look as `data` says.
fn rendered_for(text: &str, data: Option<DataSpec>) -> String {
    let loaded = config::load_str("test.toml", text, &[]).unwrap_or_else(|failure| panic!("{failure}"));
    let experiment = &loaded.experiment;
    let data = data.unwrap_or_else(|| input::describe(experiment).unwrap());
    let loading = &experiment.data.loading;
    let sizes = Sizes {
        train: Sizes::of(loading.batch_size, data.train, loading.drop_last),
        eval: Sizes::of(loading.eval_batch_size(), data.val, false),
        predict: Vec::new(),
        ..Sizes::default()
    };
    let backend = CpuBackend::new(Some(1)).unwrap();
    match programs::build(experiment, &data, &sizes, &backend, &PassOptions::default()) {
        Ok(_) => "nothing is wrong\n".to_string(),
        Err(errors) => {
            assert!(errors.iter().all(|e| e.span().is_some()), "{errors:?}");
            diagnostics::render(&loaded.sources, &errors, false)
        }
    }
}

/// One snapshot for configurations with mistakes of the same kind.
macro_rules! mistakes {
    ($($test:ident: [$($text:expr),* $(,)?];)*) => {
        $(
            #[test]
            fn $test() {
                let all: Vec<String> = [$($text),*].iter().map(|text| rendered(text)).collect();
                insta::assert_snapshot!(all.join("\n==========\n"));
            }
        )*
    };
}

mistakes! {
    linear_on_images: [
        images(r#"  { type = "conv2d", out_channels = 8, kernel_size = 3 },
  "relu",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "linear", out_features = 10 },"#),
    ];

    images_wanted: [
        images(r#"  "flatten",
  { type = "conv2d", out_channels = 8, kernel_size = 3 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        vectors(r#"  { type = "conv2d", out_channels = 8, kernel_size = 3 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        vectors(r#"  { type = "linear", out_features = 10 },
  { type = "max_pool2d", kernel_size = 2 },"#),
        vectors(r#"  { type = "linear", out_features = 10 },
  { type = "adaptive_avg_pool2d", output_size = 1 },"#),
    ];

    images_too_small: [
        images(r#"  { type = "max_pool2d", kernel_size = 16 },
  { type = "conv2d", out_channels = 8, kernel_size = 5, padding = 1 },
  "relu",
  { type = "conv2d", out_channels = 8, kernel_size = 5 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "conv2d", out_channels = 8, kernel_size = 3, dilation = 20 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "max_pool2d", kernel_size = 16 },
  { type = "avg_pool2d", kernel_size = 3 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "max_pool2d", kernel_size = 33, padding = 0 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
    ];

    larger_images: [
        images(r#"  "flatten",
  { type = "conv_transpose2d", out_channels = 8, kernel_size = 2, stride = 2 },
  { type = "upsample", scale_factor = 2 },"#),
        images(r#"  { type = "conv_transpose2d", out_channels = 9, kernel_size = 2, groups = 2 },
  { type = "conv_transpose2d", out_channels = 4, kernel_size = 1, padding = 17 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "upsample", scale_factor = 0.01 },
  { type = "local_response_norm", size = 5 },
  "flatten",
  { type = "local_response_norm", size = 5 },
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "conv_transpose1d", out_channels = 8, kernel_size = 2 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
    ];

    groups: [
        images(r#"  { type = "conv2d", out_channels = 9, kernel_size = 3 },
  { type = "conv2d", out_channels = 8, kernel_size = 3, groups = 4 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "conv2d", out_channels = 8, kernel_size = 3, groups = "in_channels" },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "conv2d", out_channels = 8, kernel_size = 3 },
  { type = "group_norm", num_groups = 3 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
    ];

    residual_sums: [
        images(r#"  { type = "residual", layers = [
    { type = "conv2d", out_channels = 8, kernel_size = 3, stride = 2, padding = 1 },
    "relu",
  ] },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "conv2d", out_channels = 4, kernel_size = 1 },
  { name = "block", type = "residual", layers = [
    { type = "conv2d", out_channels = 8, kernel_size = 3, stride = 2, padding = 1 },
  ], projection = { type = "conv2d", out_channels = 8, kernel_size = 1 } },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "residual", shortcut = "if_same_shape", layers = [
    { type = "conv2d", out_channels = 8, kernel_size = 3, stride = 2, padding = 1 },
  ] },
  "flatten",
  { type = "linear", out_features = 10 },"#),
    ];

    gates_and_branches: [
        images(r#"  { type = "conv2d", out_channels = 8, kernel_size = 1 },
  { type = "gate", layers = [
    { type = "adaptive_avg_pool2d", output_size = 1 },
    { type = "conv2d", out_channels = 4, kernel_size = 1 },
    "sigmoid",
  ] },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "conv2d", out_channels = 1, kernel_size = 1 },
  { type = "gate", layers = [{ type = "conv2d", out_channels = 4, kernel_size = 1 }] },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { name = "split", type = "branches", combine = "add", branches = [
    { type = "conv2d", out_channels = 8, kernel_size = 1 },
    { type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1 },
    { type = "conv2d", out_channels = 6, kernel_size = 1 },
  ] },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { name = "split", type = "branches", combine = "concat", branches = [
    { type = "conv2d", out_channels = 8, kernel_size = 1 },
    { type = "conv2d", out_channels = 6, kernel_size = 3 },
  ] },
  "flatten",
  { type = "linear", out_features = 10 },"#),
    ];

    several_inputs: [
        images(r#"  { name = "a", type = "conv2d", out_channels = 8, kernel_size = 3 },
  { name = "b", type = "conv2d", out_channels = 8, kernel_size = 3 },
  { type = "add", from = ["a", "b"] },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { name = "a", type = "conv2d", out_channels = 8, kernel_size = 3 },
  { name = "b", type = "flatten" },
  { type = "multiply", from = ["a", "b"] },
  { type = "linear", out_features = 10 },"#),
        images(r#"  { name = "a", type = "conv2d", out_channels = 8, kernel_size = 3 },
  { name = "b", type = "conv2d", out_channels = 8, kernel_size = 3 },
  { type = "concat", from = ["a", "b"] },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        vectors(r#"  { name = "a", type = "linear", out_features = 4 },
  { name = "b", type = "linear", out_features = 6 },
  { type = "concat", from = ["a", "b"], dim = 2 },
  { type = "linear", out_features = 10 },"#),
    ];

    projections_that_are_not_needed: [
        images(r#"  { name = "block", type = "residual", layers = [
    { type = "conv2d", out_channels = 3, kernel_size = 3, padding = 1 },
  ], projection = { name = "p", type = "conv2d", out_channels = 3, kernel_size = 1 } },
  { type = "add", from = ["block", "block.p"] },
  "flatten",
  { type = "linear", out_features = 10 },"#),
    ];

    normalisation: [
        images(r#"  "batch_norm1d",
  "flatten",
  "batch_norm2d",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "layer_norm", normalized_dims = 4 },
  "flatten",
  { type = "layer_norm", normalized_dims = 2 },
  { type = "linear", out_features = 10 },"#),
    ];

    windows: [
        images(r#"  { type = "shifted_window_attention", window_size = 7, num_heads = 3 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "permute", dims = [0, 2, 3, 1] },
  { type = "shifted_window_attention", window_size = 7, num_heads = 2 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        vectors(r#"  "merge_patches",
  { type = "linear", out_features = 10 },"#),
        // Filled up to whole windows, a row becomes too large.
        images(r#"  { type = "permute", dims = [0, 2, 3, 1] },
  { type = "shifted_window_attention", window_size = 64, num_heads = 1 },
  "flatten",
  { type = "linear", out_features = 10 },"#).replace("[3, 32, 32]", "[1, 1, 8388608]"),
    ];

    attention: [
        images(r#"  { type = "multihead_attention", num_heads = 4 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        vectors(r#"  { type = "multihead_attention", num_heads = 1 },
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "flatten", start_dim = 2 },
  { type = "linear", out_features = 50 },
  { name = "attention", type = "residual", layers = ["layer_norm", { type = "multihead_attention", is_causal = true, num_heads = 4 }] },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "flatten", start_dim = 2 },
  { type = "multihead_attention", num_heads = 32 },
  "flatten",
  { type = "linear", out_features = 10 },"#),
        // The weight is too large, and what comes of its projection.
        images(r#"  { type = "flatten", start_dim = 2 },
  { type = "multihead_attention", num_heads = 1 },
  "flatten",
  { type = "linear", out_features = 10 },"#).replace("[3, 32, 32]", "[1, 4096, 4096]"),
        images(r#"  { type = "flatten", start_dim = 2 },
  { type = "linear", out_features = 16 },
  { type = "multihead_attention", num_heads = 2 },
  "flatten",
  { type = "linear", out_features = 10 },"#).replace("[3, 32, 32]", "[4096, 2, 2]")
            .replace("samples = 1000", "samples = 16777216")
            .replace("batch_size = 64", "batch_size = 16777216"),
    ];

    dimensions: [
        images(r#"  { type = "flatten", start_dim = 0 },
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "flatten", start_dim = 2, end_dim = 1 },
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "flatten", end_dim = 4 },
  { type = "linear", out_features = 10 },"#),
        images(r#"  { type = "flatten", start_dim = 2 },
  { type = "linear", out_features = 10 },"#),
    ];

    outputs: [
        images(r#"  "flatten",
  { type = "linear", out_features = 7 },"#),
        images(r#"  { type = "conv2d", out_channels = 10, kernel_size = 3 },
  { type = "adaptive_avg_pool2d", output_size = 1 },"#),
        images(r#"  { type = "conv2d", out_channels = 10, kernel_size = 3 },
  "relu",
  { type = "flatten", start_dim = 2 },"#),
        vectors(r#"  "relu",
  "dropout","#),
        vectors(r#"  { layers = [] },"#),
        with("shape = [13]\ntargets = 2", r#"  { type = "linear", out_features = 3 },"#)
            .replace("cross_entropy", "mse"),
    ];

    last_batch_of_one: [
        vectors(r#"  { type = "linear", out_features = 32 },
  "batch_norm1d",
  "relu",
  { type = "linear", out_features = 10 },"#)
            .replace("samples = 1000", "samples = 1025"),
        vectors(r#"  { type = "linear", out_features = 32 },
  { type = "batch_norm1d", track_running_stats = false },
  "relu",
  { type = "linear", out_features = 10 },"#)
            .replace("samples = 1000", "samples = 1000\nval_samples = 65"),
        vectors(r#"  { type = "linear", out_features = 10 },
  "batch_norm1d","#)
            .replace("batch_size = 64", "batch_size = 1"),
        // Images of more than one pixel have enough values, and so has what is left with `drop_last`.
        images(r#"  "batch_norm2d",
  "flatten",
  { type = "linear", out_features = 10 },"#)
            .replace("samples = 1000", "samples = 1025"),
        vectors(r#"  { type = "linear", out_features = 10 },
  "batch_norm1d","#)
            .replace("samples = 1000", "samples = 1025\ndrop_last = true"),
    ];

    transforms: [
        images(FLAT).replace("batch_size = 64", "transforms = [{ type = \"normalize\", mean = [0.5, 0.5], std = [0.2] }]"),
        vectors(FLAT).replace("batch_size = 64", "transforms = [{ type = \"normalize\", mean = [0.5], std = [0.2, 0.3] }]"),
        images(FLAT).replace("batch_size = 64", "train_transforms = [{ type = \"random_crop\", size = 28 }]"),
        images(FLAT).replace("batch_size = 64", "train_transforms = [{ type = \"random_crop\", size = 40, padding = 2 }]"),
        images(FLAT).replace("batch_size = 64", "train_transforms = [{ type = \"random_crop\", size = [32, 33] }]"),
        vectors(FLAT).replace(
            "batch_size = 64",
            "train_transforms = [\n  { type = \"random_crop\", size = 8 },\n  \"random_horizontal_flip\",\n]",
        ),
        with("shape = [2, 8, 8]\nclasses = 10", FLAT).replace("batch_size = 64", "val_transforms = [\"grayscale\"]"),
        vectors(FLAT).replace("batch_size = 64", "train_transforms = [\"cutmix\"]"),
    ];

    names_of_parameters: [
        images(NAMED).replace("[model]\n", "[model]\nfreeze = [\"feature.*\"]\n"),
        images(NAMED).replace("[model]\n", "[model]\nfreeze = [\"features.0.weigth\", \"encoder.*\"]\n"),
        images(NAMED).replace("[model]\n", "[model]\nfreeze = [\"*\"]\n"),
        images(NAMED).replace("lr = 0.1", "lr = 0.1\ngroups = [{ match = [\"clasifier.*\"], lr = 0.01 }]"),
        images(NAMED)
            .replace("lr = 0.1", "lr = 0.1\ngroups = [{ match = [\"head.*\", \"*.bias\"], lr = 0.01 }]")
            .replace("[model]\n", "[model]\nfreeze = [\"backbone.*\"]\n"),
        images(NAMED).replace("epochs = 1", "epochs = 1\nrecompute = [\"feature\", \"encoder.*\"]"),
    ];

    several_at_once: [
        images(r#"  { type = "conv2d", out_channels = 8, kernel_size = 64 },
  { type = "group_norm", num_groups = 3 },
  "flatten",
  { type = "conv2d", out_channels = 8, kernel_size = 3 },
  { type = "adaptive_avg_pool2d", output_size = 1 },
  "flatten",
  { type = "layer_norm", normalized_dims = 2 },
  { type = "linear", out_features = 7 },"#)
            .replace("batch_size = 64", "transforms = [{ type = \"normalize\", mean = [0.5, 0.5], std = [0.2] }]"),
    ];

    mistakes_in_blocks_are_reported_once: [
        images(r#"  { block = "stage", repeat = 8 },
  "flatten",
  { type = "linear", out_features = 10 },"#)
            + r#"
[blocks.stage]
layers = [
  { type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1 },
  { type = "group_norm", num_groups = 3 },
  "relu",
]
"#,
        images(r#"  { name = "stages", block = "stage", repeat = 8 },
  "flatten",
  { type = "linear", out_features = 10 },"#)
            + r#"
[blocks.stage]
layers = [
  { type = "conv2d", out_channels = 8, kernel_size = 3, stride = 2 },
]
"#,
    ];

    sizes: [
        images(r#"  { type = "conv2d", out_channels = 16777216, kernel_size = 16777216, padding = 16777216 },
  "flatten",
  { type = "linear", out_features = 16777216 },
  { type = "linear", out_features = 10 },"#),
        vectors(r#"  { type = "linear", out_features = 16777216 },
  { type = "linear", out_features = 10 },"#)
            .replace("batch_size = 64", "batch_size = 16777216"),
        images(FLAT).replace("batch_size = 64", "batch_size = 16777216").replace("[3, 32, 32]", "[1, 4096, 4096]"),
    ];
}

const FLAT: &str = r#"  "flatten",
  { type = "linear", out_features = 10 },"#;

const NAMED: &str = r#"  { name = "features", layers = [
    { type = "conv2d", out_channels = 8, kernel_size = 3 },
    "batch_norm2d",
    "relu",
  ] },
  { name = "classifier", layers = ["flatten", { type = "linear", out_features = 10 }] },"#;

/// Samples from a file, whose targets the configuration does not describe.
#[test]
fn targets_from_a_file() {
    let text = |loss: &str, out: usize| {
        with("", &format!("  {{ type = \"linear\", out_features = {out} }},"))
            .replace("source = \"synthetic\"\n\nsamples = 1000", "source = \"tensors\"\npath = \"samples.safetensors\"")
            .replace("cross_entropy", loss)
    };
    let counted = |spec: DataSpec| DataSpec { train: Some(100), val: Some(0), ..spec };
    let values = |shape: &[usize]| counted(DataSpec::valued(DType::F32, [13], shape));
    let classes = |n| counted(DataSpec::labelled(DType::F32, [13], n));
    let all = [
        rendered_for(&text("mse", 10), Some(classes(10))),
        rendered_for(&text("cross_entropy", 10), Some(values(&[1]))),
        rendered_for(&text("cross_entropy", 3), Some(classes(5).seen())),
        rendered_for(&text("cross_entropy", 7), Some(classes(5).seen())),
        rendered_for(&text("mse", 2), Some(values(&[4]))),
        rendered_for(&text("mse", 2), Some(values(&[4, 4, 3]))),
        rendered_for(&text("mse", 1), Some(values(&[]))),
    ];
    insta::assert_snapshot!(all.join("\n==========\n"));
}

/// Classes at the places of a sequence and the pixels of an image; weights of classes.
#[test]
fn classes_at_positions() {
    let text = |shape: &str, layer: &str, loss: &str| {
        format!(
            "[data]\nsource = \"synthetic\"\nshape = {shape}\nclasses = 5\n[model]\nlayers = [{layer}]\n[loss]\n\
             type = \"cross_entropy\"\n{loss}\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n"
        )
    };
    let at = |input: &[usize], positions: &[usize]| {
        let spec = DataSpec::labelled(DType::F32, input, 5);
        let mut fields = spec.fields.clone();
        fields[1].shape = positions.into();
        Some(DataSpec { fields, train: Some(100), val: Some(0), ..spec })
    };
    let (linear, conv) = (
        |n: usize| format!("{{ type = \"linear\", out_features = {n} }}"),
        |n: usize| format!("{{ type = \"conv2d\", out_channels = {n}, kernel_size = 1 }}"),
    );
    let all = [
        rendered_for(&text("[7, 3]", &linear(5), "weight = [1, 1, 1, 1, 0.5]"), at(&[7, 3], &[7])),
        rendered_for(&text("[7, 3]", &linear(4), ""), at(&[7, 3], &[7])),
        rendered_for(&text("[7, 3]", &linear(5), ""), at(&[7, 3], &[6])),
        rendered_for(&text("[3, 7, 6]", &conv(4), ""), at(&[7, 6, 3], &[7, 6])),
        rendered_for(&text("[3, 7, 6]", &format!("\"flatten\", {}", linear(5)), ""), at(&[7, 6, 3], &[7, 6])),
        rendered_for(&text("[7, 3]", &linear(5), "weight = [1, 2]"), at(&[7, 3], &[7])),
    ];
    insta::assert_snapshot!(all.join("\n==========\n"));
}

/// A layer whose argument comes from the command line reads in the file as if it were right.
#[test]
fn arguments_from_the_command_line_are_shown() {
    let text = images(
        "  { type = \"max_pool2d\", kernel_size = 2 },\n  \"flatten\",\n  { type = \"linear\", out_features = 10 },",
    );
    for (set, shown) in [
        ("model.layers.0.kernel_size=99", "sets `kernel_size` of that layer"),
        ("model.layers.2.out_features=7", "sets `out_features` of that layer"),
    ] {
        let loaded =
            config::load_str("test.toml", &text, &[set.to_string()]).unwrap_or_else(|failure| panic!("{failure}"));
        let data = input::describe(&loaded.experiment).unwrap();
        let sizes = Sizes { train: vec![64.into()], ..Sizes::default() };
        let backend = CpuBackend::new(Some(1)).unwrap();
        let errors = programs::build(&loaded.experiment, &data, &sizes, &backend, &PassOptions::default()).unwrap_err();
        let text = diagnostics::render(&loaded.sources, &errors, false);
        assert!(text.contains(shown) && text.contains(&format!("::: --set {set}:1:")), "{text}");
    }
}
