//! What each kind of mistake looks like to the person who made it.

use std::path::Path;

use runner::config::text::diagnostics;
use runner::config::{self, Failure, Severity};
use runner::train::setup::programs;

/// A configuration without mistakes, in which each test makes its own.
pub const GOOD: &str = r#"seed = 1
[data]
source = "synthetic"
shape = [3, 8, 8]
classes = 10
batch_size = 32

[model]
layers = [
  { type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1 },
  "relu",
  "flatten",
  { type = "linear", out_features = 10 },
]

[loss]
type = "cross_entropy"

[optimizer]
type = "sgd"
lr = 0.1

[train]
epochs = 3
"#;

/// The good configuration with pieces replaced.
pub fn changed(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(GOOD.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in the configuration");
        text.replacen(from, to, 1)
    })
}

/// What is said of a text, errors and warnings alike; every error has a place.
pub fn rendered(text: &str, sets: &[&str]) -> String {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    match config::load_str("test.toml", text, &sets) {
        Ok(loaded) => diagnostics::render(&loaded.sources, &loaded.warnings, false),
        Err(failure) => rendered_failure(&failure),
    }
}

fn rendered_failure(failure: &Failure) -> String {
    assert!(failure.diagnostics.iter().any(|d| d.severity == Severity::Error));
    assert!(failure.diagnostics.iter().all(|d| d.span().is_some()), "{failure}");
    // What can be read all the same can be looked at, whatever is wrong.
    let more = failure.rest.iter().flat_map(|rest| programs::mistakes(rest));
    more.for_each(|mistake| assert!(mistake.span().is_some(), "{}", mistake.message));
    diagnostics::render(&failure.sources, &failure.diagnostics, false)
}

/// One snapshot for a list of mistakes of the same kind, each in a configuration of its own.
macro_rules! mistakes {
    ($($test:ident: [$($changes:expr),* $(,)?];)*) => {
        $(
            #[test]
            fn $test() {
                let cases: &[&[(&str, &str)]] = &[$(&$changes),*];
                let all: Vec<String> = cases.iter().map(|changes| rendered(&changed(changes), &[])).collect();
                insta::assert_snapshot!(all.join("\n==========\n"));
            }
        )*
    };
}

const CONV: &str = r#"{ type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1 }"#;
const SYNTHETIC: &str = "source = \"synthetic\"\nshape = [3, 8, 8]\nclasses = 10";
const SGD: &str = "type = \"sgd\"\nlr = 0.1";

mistakes! {
    inputs_of_the_model: [
        [("layers = [", "inputs = []\nlayers = [")],
        [("layers = [", "inputs = \"inputs\"\nlayers = [")],
        [("layers = [", "inputs = [\"a\", \"a\"]\nlayers = [")],
        [("layers = [", "inputs = [\"a\", \"b\"]\nlayers = [")],
        [("layers = [", "inputs = [\"a\", \"b\"]\nlayers = [\n  { layers = [{ type = \"residual\", layers = [\"relu\"] }] },")],
        [("layers = [", "inputs = [\"a\", \"b\"]\nlayers = [\n  { type = \"relu\", from = \"b\" },")],
        [("layers = [", "inputs = [\"photo\", \"b\"]\nlayers = [\n  { type = \"concat\", from = [\"photos\", \"b\"] },")],
        [("layers = [", "inputs = [\"a\", \"b\"]\nlayers = [\n  { name = \"b\", type = \"concat\", from = [\"a\", \"b\"] },")],
        [("layers = [", "inputs = [\"a\"]\nlayers = [\n  { type = \"relu\", from = \"inputs\" },")],
        [("layers = [", "input = [\"a\"]\nlayers = [")],
        // Nothing is wrong with these.
        [("layers = [", "inputs = [\"a\", \"b\"]\nlayers = [\n  { type = \"concat\", from = [\"a\", \"b\"] },")],
        [("layers = [", "inputs = [\"a\"]\nlayers = [\n  { type = \"add\", from = [\"a\", \"a\"] },")],
    ];
    layers_of_transformers: [
        [("\"relu\"", "{ type = \"transformer_encoder_layer\" }")],
        [("\"relu\"", "{ type = \"transformer_encoder_layer\", d_model = 8, nhead = 3, activation = \"silu\" }")],
        [("\"relu\"", "{ type = \"transformer_encoder_layer\", d_model = 8, num_heads = 2, batch_first = true }")],
        [("\"relu\"", "{ type = \"transformer_encoder_layer\", d_model = 8, nhead = 2, repeat = 0 }")],
        [("\"relu\"", "{ type = \"TransformerEncoder\", d_model = 8, nhead = 2 }")],
        [("\"relu\"", "{ type = \"transformer_decoder_layer\", d_model = 8, nhead = 2 }")],
        [("\"relu\"", "{ name = \"norm1\", type = \"relu\" },\n  { type = \"transformer_decoder_layer\", from = [\"norm1\", \"norm1\"], d_model = 8, nhead = 2 }")],
        [("\"relu\"", "{ name = \"x\", type = \"relu\" },\n  { type = \"transformer_decoder_layer\", from = [\"x\", \"memory\"], d_model = 8, nhead = 2, repeat = 2 }")],
        [("\"relu\"", "{ type = \"transformer_decoder_layer\", from = [\"0\", \"0\"], d_model = 8, nhead = 2, repeat = 2 }")],
        // Nothing is wrong with this.
        [("\"relu\"", "{ name = \"x\", type = \"relu\" },\n  { type = \"transformer_decoder_layer\", from = [\"x\", \"x\"], d_model = 8, nhead = 2, repeat = 2 }")],
    ];
    shards_of_a_batch: [
        [("epochs = 3", "epochs = 3\n[distributed]\nshards = 12")],
        [("epochs = 3", "epochs = 3\n[distributed]\nshards = 64")],
        [("epochs = 3", "epochs = 3\n[distributed]\nshards = 0")],
        [("epochs = 3", "epochs = 3\n[distributed]\nshard = 4")],
        [("epochs = 3", "epochs = 3\n[ddp]\nshards = 4")],
        [("batch_size = 32", "batch_size = \"auto\""), ("epochs = 3", "epochs = 3\n[distributed]\nshards = 4")],
        // Nothing is wrong with this.
        [("epochs = 3", "epochs = 3\n[distributed]\nshards = 16")],
    ];
    several_gpus: [
        [("seed = 1", "seed = 1\ndevices = []")],
        [("seed = 1", "seed = 1\ndevices = [0, 1, 0]")],
        [("seed = 1", "seed = 1\ndevices = \"both\"")],
        [("seed = 1", "seed = 1\ndevices = 2")],
        [("seed = 1", "seed = 1\ndevices = [-1]")],
        [("seed = 1", "seed = 1\ndevice = \"cuda\"\ndevices = \"all\"")],
        [("seed = 1", "seed = 1\ngpus = [0, 1]")],
        // A batch that cannot be cut into so many shards.
        [("seed = 1", "seed = 1\ndevices = [0, 1, 2]")],
        // Nothing is wrong with these.
        [("seed = 1", "seed = 1\ndevices = [0, 1]")],
        [("seed = 1", "seed = 1\ndevices = \"all\"")],
    ];
    syntax: [
        [("epochs = 3", "epochs = ")],
        [("[train]", "[train")],
        [("lr = 0.1", "lr = 0.1\nlr = 0.2")],
        [("seed = 1", "seed = 99999999999999999999")],
        [("lr = 0.1", "lr = 1e999")],
        [("\"relu\"", "\"relu")],
        [("\"synthetic\"", "“synthetic”")],
        [("seed = 1", "seed\u{a0}= 1"), ("lr = 0.1", "lr = −0.1")],
    ];
    unknown_keys: [
        [("kernel_size", "kernal_size")],
        [("batch_size = 32", "batchsize = 32\nworker = 2\nfoo = 1")],
        [("seed = 1", "sead = 1"), ("[train]", "[trian]")],
        [("\"relu\"", "{ type = \"relu\", inplace = true }")],
        [("lr = 0.1", "lr = 0.1\nbetas = [0.9, 0.99]")],
        [(SGD, "type = \"adamw\"\nlr = 0.1\nmomentun = 0.9")],
        [("epochs = 3", "epochs = 3\nearly_stopping = { monitr = \"val_loss\", patience = 2 }")],
    ];
    fine_tuning: [
        [("[model]", "[model]\nthaw_after = 1")],
        [("[model]", "[model]\nfreeze = [\"*\"]\nthaw_after = 3")],
        [("[model]", "[model]\nweights = \"w.pth\"\nweights_rename = [{ from = \"\", to = \"x\" }, { from = \"a*\", to = \"**\" }]")],
        [("lr = 0.1", "lr = 0.1\nlayer_decay = 1.5\nno_decay = [\"norms\"]\nema = { decay = 1.0, every = 2 }")],
        [("lr = 0.1", "lr = 0.1\nswa = { start = 3, lr = 0.05 }")],
        [("lr = 0.1", "lr = 0.1\nswa = { start = 1, anneal_epochs = 2 }")],
        [("lr = 0.1", "lr = 0.1\nswa = { start = 1 }\nema = {}")],
        [("lr = 0.1", "lr = 0.1\nswa = { start = 1, lr = 0.05 }\n[schedule]\ntype = \"plateau\"")],
        [("lr = 0.1", "lr = 0.1\nswa = { start = 1 }"), ("epochs = 3", "steps = 30")],
        [(SGD, "type = \"muon\"\nns_steps = 0\nns_coefficients = [1, 2]\nadjust_lr_fn = \"rms\"\nadamw = { lr = 0, betas = [0.9, 1.0] }")],
        [(SGD, "type = \"adafactor\"\nlr = 0\nbeta2_decay = 0.8\neps = [-1, 1e-3]\nd = 0.5\nbetas = [0.9, 0.99]")],
        [(SGD, "type = \"adamw_schedule_free\"\nbetas = [0.9, 1.0]\nwarmup_steps = -1\nr = -0.5\nweight_lr_power = \"two\"")],
        [(SGD, "type = \"adamw_schedule_free\"\nema = {}\n[schedule]\ntype = \"cosine\"")],
        [(SGD, "type = \"adamw_schedule_free\"\nswa = { start = 1 }\n[schedule]\ntype = \"constant\"\nwarmup_steps = 10")],
        [("epochs = 3", "epochs = 3\nclip_grad_adaptive_except = [\"head\"]")],
        [("epochs = 3", "epochs = 3\nclip_grad_adaptive = 0\nclip_grad_norm = 1.0")],
        [("epochs = 3", "epochs = 3\nclip_grad_adaptive = 0.01\nclip_grad_value = 1.0")],
    ];
    kept_photos: [
        [("batch_size = 32", "cache = \"memory\"")],
        [("batch_size = 32", "cache = \"ram\"\ncache_size = 2")],
        [("batch_size = 32", "cache_size = \"2 gigabytes\"")],
        [("batch_size = 32", "cache_size = \"2 GiB\"\ncache_dir = \"kept\"")],
        [("batch_size = 32", "cache_dir = \"\"")],
        [(SYNTHETIC, "source = \"image_folder\"\nroot = \"a\"\ncache = \"disk\"\ncache_dir = \"a/train/ants\"\ntransforms = [{ type = \"resize\", size = [8, 8] }]")],
    ];
    larger_images: [
        [("\"relu\"", r#"{ type = "conv_transpose2d", kernel_size = 2 }"#)],
        [("\"relu\"", r#"{ type = "conv_transpose2d", out_channels = 8, kernel_size = 3, stride = [2, 1], output_padding = 1 }"#)],
        [("\"relu\"", r#""upsample""#)],
        [("\"relu\"", r#"{ type = "upsample", size = 8, scale_factor = [2, 0] }"#)],
        [("\"relu\"", r#"{ type = "upsample", scale_factor = [1, 2, 3], mode = "linear" }"#)],
        [("\"relu\"", r#"{ type = "upsample", scale_factor = 2, align_corners = true }"#)],
    ];
    unknown_words: [
        [("\"relu\"", "\"rellu\"")],
        [("\"relu\"", "{ type = \"batchnorm\" }")],
        [("\"relu\"", "\"somethingelse\"")],
        [("\"synthetic\"", "\"mnits\"")],
        [("cross_entropy", "crossentropy")],
        [("\"sgd\"", "\"adma\"")],
        [("seed = 1", "device = \"gpu\"\nprecision = \"float16\"")],
        [("epochs = 3", "epochs = 3\nearly_stopping = { monitor = \"val_acc\" }")],
        [("\"relu\"", "{ type = \"gelu\", approximate = \"tan\" }")],
        [(CONV, r#"{ type = "conv2d", out_channels = 8, kernel_size = 3, padding = "sane" }"#)],
        [("batch_size = 32", "transforms = [\"normalise\"]")],
        [("[train]", "[schedule]\ntype = \"cosin\"\n[train]")],
    ];
    missing_keys: [
        [("lr = 0.1", "")],
        [("epochs = 3", "")],
        [("[loss]\ntype = \"cross_entropy\"", ""), ("[train]\nepochs = 3", "")],
        [("source = \"synthetic\"", "")],
        [("out_features = 10", "bias = true")],
        [("\"relu\"", "\"linear\", \"conv2d\", { kernel_size = 3 }, { typ = \"relu\" }")],
        [("classes = 10", "")],
        [("batch_size = 32", "transforms = [\"normalize\"]")],
        [(CONV, r#"{ type = "conv2d", kernel_size = 3 }"#)],
        [("[train]", "[schedule]\ntype = \"step\"\n[train]")],
    ];
    wrong_types: [
        [("epochs = 3", "epochs = 3.5")],
        [("epochs = 3", "epochs = \"3\"\naccumulate = true\neval_every = 1.0\nrecompute = 3")],
        [("batch_size = 32", "batch_size = 32\nworkers = -1\nshuffle = 1")],
        [("seed = 1", "seed = -1")],
        [("lr = 0.1", "lr = \"0.1\"")],
        [("\"relu\"", "3, [\"relu\"], { type = 3 }, { type = \"relu\", name = 1 }, { type = \"relu\", from = 1 }")],
        [(CONV, r#"{ type = "conv2d", out_channels = 8.0, kernel_size = [3, 3, 3], stride = "two", bias = "no" }"#)],
        [("seed = 1", "seed = 2020-01-01")],
        [("[train]\nepochs = 3", ""), ("seed = 1", "train = 3")],
        [(SGD, "type = \"adam\"\nbetas = [0.9]")],
        [("batch_size = 32", "validation_split = 1.5")],
        [("batch_size = 32", "transforms = [{ type = \"resize\", size = \"256\", interpolation = \"lanczos\" }, { type = \"normalize\", mean = \"imagnet\", std = 1 }]\ntrain_transforms = [{ type = \"random_rotation\", degrees = \"all\" }]")],
    ];
    ranges: [
        [("epochs = 3", "epochs = 0\naccumulate = 0\nclip_grad_norm = 0.0\nrecompute = []")],
        [("kernel_size = 3", "kernel_size = [3, 0]")],
        [("out_features = 10", "out_features = 0"), ("out_channels = 8", "out_channels = 100000000000")],
        [("\"relu\"", "{ type = \"dropout\", p = 1.0 }, { type = \"dropout\", p = -0.1 }, { type = \"softmax\", dim = 2 }")],
        [("\"relu\"", "{ type = \"multihead_attention\", num_heads = 0, dropout = 1.0 }")],
        [("\"relu\"", "{ type = \"hardtanh\", min_val = 2 }, { type = \"hardtanh\", max_val = -2 }, { type = \"celu\", alpha = 0 }, { type = \"softshrink\", lambda = -1 }, { type = \"hardshrink\", lambd = -1 }")],
        [("lr = 0.1", "lr = 0")],
        [("lr = 0.1", "lr = nan\nmomentum = inf")],
        [(SGD, "type = \"adam\"\nbetas = [0.9, 1.0]\neps = -1")],
        [("batch_size = 32", "batch_size = 0\nworkers = 1000000\nprefetch = 0\nlimit = 0")],
        [("shape = [3, 8, 8]", "shape = [30000, 30000]")],
        [("\"relu\"", "{ type = \"max_pool2d\", kernel_size = 2, padding = 2 }, { type = \"batch_norm2d\", momentum = 2, eps = 0 }")],
        [("batch_size = 32", "transforms = [{ type = \"normalize\", mean = [0.5], std = [0] }, { type = \"normalize\", mean = [1, 2], std = [1, 2, 3] }]")],
        [("batch_size = 32", "train_transforms = [\n  { type = \"rand_augment\", magnitude = 31 },\n  { type = \"auto_augment\", policy = \"imagnet\" },\n  { type = \"random_affine\", degrees = -1, translate = [0, 2], scale = [2, 1], shear = [1, 2, 3] },\n  { type = \"mixup\", alpha = 0 },\n  { type = \"cutmix\", off_after_epoch = 0, switch = 0.5 },\n]")],
        [("batch_size = 32", "val_transforms = [{ type = \"resize\", size = 0 }, { type = \"center_crop\", size = [3, 0] }, { type = \"grayscale\", num_output_channels = 2 }]")],
        [("batch_size = 32", "train_transforms = [\n  { type = \"random_resized_crop\", size = 8, scale = [1, 0.5], ratio = [0, 1] },\n  { type = \"gaussian_blur\", kernel_size = 4, sigma = [2, 1] },\n  { type = \"color_jitter\", brightness = -1, hue = [-0.6, 0] },\n  { type = \"color_jitter\", contrast = [2, 1], hue = -0.1 },\n  { type = \"random_rotation\", degrees = -10, fill = 256 },\n]")],
        [("cross_entropy\"", "cross_entropy\"\nlabel_smoothing = 1.5")],
        [("[train]", "[checkpoint]\nkeep = 0\n[log]\nevery_steps = 0\n[train]")],
    ];
    conflicts: [
        [("lr = 0.1", "lr = 0.1\nnesterov = true")],
        [("lr = 0.1", "lr = 0.1\nnesterov = true\nmomentum = 0.9\ndampening = 0.1")],
        [("[train]", "[schedule]\ntype = \"cosine\"\nwarmup_epochs = 1\nwarmup_steps = 100\n[train]")],
        [("[train]", "[schedule]\ntype = \"cosine\"\nwarmup_epochs = 3\nmin_lr = 1\n[train]")],
        [("[train]", "[schedule]\ntype = \"step\"\nstep_epochs = 1\nmilestones = [2, 1]\n[train]")],
        [("[train]", "[schedule]\ntype = \"constant\"\nwarmup_start_factor = 0.1\n[train]")],
        [("[train]", "[schedule]\ntype = \"one_cycle\"\nwarmup_steps = 10\n[train]")],
        [("[train]", "[schedule]\ntype = \"plateau\"\nmonitor = \"val_mae\"\nmin_lr = 2\n[train]")],
        [("[train]", "[schedule]\ntype = \"sequential\"\nmilestones = [2, 1]\nschedules = [\"cosine\", \"plateau\", { type = \"linear\" }, 3]\n[train]")],
        [("[train]", "[schedule]\ntype = \"sequential\"\nmilestones = [1, 2]\nschedules = [{ type = \"cosine\", min_lr = 1 }, { type = \"polynomial\", gamma = 2 }]\n[train]")],
        [("[train]", "[schedule]\ntype = \"sequential\"\nmilestones = [1]\nschedules = [{ type = \"cosine\", min_lr = 1 }, \"constant\"]\n[train]")],
        [("lr = 0.1", "lr = 0.1\nlr_base_scale = \"sqrt\"")],
        [("epochs = 3", "epochs = 3\nclip_grad_norm = 1.0\nclip_grad_value = 0.1")],
        [("classes = 10", "classes = 10\ntargets = 1")],
        [("cross_entropy", "mse")],
        [("\"synthetic\"\nshape = [3, 8, 8]\nclasses = 10", "\"mnist\""), ("cross_entropy", "mse")],
        [("epochs = 3", "epochs = 3\nearly_stopping = { monitor = \"val_mae\" }\n[checkpoint]\nmonitor = \"val_rmse\"")],
        [("[train]", "[metrics]\nfigures = [\"macro_f1\", \"micro_f1\", \"top_5\"]\n[train]")],
        [("\"cross_entropy\"", "\"focal\"\ngamma = -1\nweight = \"balance\"")],
        [("\"cross_entropy\"", "\"cross_entropy\"\nweight = [0.5, -1]\n[metrics]\nfigures = [\"micro_f1\"]")],
        [("batch_size = 32", "transforms = [\"random_horizontal_flip\"]")],
        [("batch_size = 32", "transforms = [\n  { type = \"normalize\", mean = \"imagenet\", std = \"imagenet\" },\n  { type = \"resize\", size = 8 },\n]\nval_transforms = [\"random_vertical_flip\", { type = \"normalize\", mean = [0], std = [1] }]\ntrain_transforms = [{ type = \"normalize\", mean = [0], std = [1] }]")],
        [("batch_size = 32", "transforms = [\"mixup\"]\ntrain_transforms = [\n  \"random_horizontal_flip\",\n  \"mixup\",\n  \"rand_augment\",\n  { type = \"mixup\", alpha = 0.2 },\n]"), ("classes = 10", "targets = 10"), ("cross_entropy", "mse")],
        [("batch_size = 32", "train_transforms = [{ type = \"cutmix\", switch_prob = 0.3 }]"), ("classes = 10", "targets = 10"), ("cross_entropy", "l1")],
        [(CONV, r#"{ type = "conv2d", out_channels = 8, kernel_size = 3, stride = 2, padding = "same" }"#)],
        [(CONV, r#"{ type = "conv2d", out_channels = 8, kernel_size = 3, groups = 3 }"#)],
        [(CONV, r#"{ type = "multihead_attention", num_heads = 4, num_kv_heads = 3 }"#)],
        [("lr = 0.1", "lr = 0.1\ngroups = [{ match = [\"*.bias\"] }, { lr = 1 }, { match = [], lr = -1, foo = 2 }, 3]")],
    ];
    layer_names: [
        [("\"relu\"", "{ name = \"a.b\", type = \"relu\" }, { name = \"\", type = \"relu\" }, { name = \"x_{i}\", type = \"relu\" }")],
        [("\"relu\"", "{ name = \"a\", type = \"batch_norm2d\" }, { name = \"a\", type = \"batch_norm2d\" }")],
        [("\"relu\"", "{ type = \"residual\", layers = [{ type = \"conv2d\", out_channels = 8, kernel_size = 1 }] }")],
    ];
    wiring: [
        [("\"relu\"", "{ type = \"relu\", from = \"steem\" }"), (CONV, r#"{ name = "stem", type = "conv2d", out_channels = 8, kernel_size = 3 }"#)],
        [("\"relu\"", "{ type = \"add\", from = [\"a\", \"b\"] }, { name = \"a\", type = \"relu\" }, { name = \"b\", type = \"relu\" }")],
        [("\"relu\"", "\"add\", { type = \"concat\", from = \"0\" }, { type = \"relu\", from = [\"0\", \"0\"] }")],
        [("\"relu\"", "{ name = \"g\", layers = [{ type = \"relu\", from = \"g\" }] }")],
        [("\"relu\"", "{ name = \"a\", type = \"relu\" }, { name = \"a\", type = \"relu\" }, { type = \"relu\", from = \"a\" }")],
    ];
    containers: [
        [("\"relu\"", "\"residual\", { type = \"gate\", layer = [] }, { type = \"branches\", layers = [] }")],
        [("\"relu\"", "{ type = \"residual\", layers = \"relu\" }, { name = \"g\", layers = 3 }, { layers = [\"relu\"], kernel_size = 3 }")],
        [("\"relu\"", "{ type = \"residual\", layers = [\"relu\"], projection = \"identity\", shortcut = \"if_same_shape\" }")],
        [("\"relu\"", "{ type = \"residual\", layers = [\"relu\"], shortcut = \"sometimes\", projection = 3 }")],
        [("\"relu\"", "{ type = \"branches\", branches = [], combine = \"add\" }, { type = \"branches\", branches = [\"relu\"], combine = \"sum\" }")],
        [("layers = [", "layers = []\n[ignored]\nx = ["), ],
    ];
    models: [
        [("layers = [", "use = \"no/such/file.toml\"\nlayers = [")],
        [("[loss]", "[unused]\n[loss]"), ("layers = [", "with = { a = 1 }\nlayers = [")],
        [("layers = [", "weights_strict = false\nlayers = [")],
        [("layers = [", "freeze = \"a\"\nweights = 3\nlayers = [")],
    ];
}

/// The good configuration with one layer replaced, and blocks or parameters added.
fn with_blocks(layer: &str, definitions: &str) -> String {
    changed(&[("\"relu\"", layer)]) + definitions
}

#[test]
fn blocks_and_parameters() {
    let block = "[blocks.b]\nparams = { planes = 8, spare = 1 }\nlayers = [{ type = \"conv2d\", out_channels = \"$planes\", kernel_size = 1 }]\n";
    let cases = [
        with_blocks("{ block = \"c\" }", block),
        with_blocks("{ block = \"b\", with = { plane = 4, colour = 3 } }", block),
        with_blocks("{ block = \"b\", with = { planes = \"many\" } }", block),
        with_blocks("{ block = \"b\", with = { planes = 0 } }, { block = \"b\", with = { planes = 0 } }", block),
        with_blocks("{ block = \"b\", with = { planes = \"$nothing\" } }", block),
        with_blocks("{ block = \"b\", repeat = 0 }, { block = \"b\", first = { planes = 3 } }, { block = 3 }", block),
        with_blocks("{ block = \"b\", type = \"relu\" }, { type = \"b\" }", block),
        with_blocks("{ block = \"b\", repeat = 2, with = 3 }", block),
        with_blocks(
            "{ block = \"b\" }",
            "[blocks.b]\nlayers = [{ block = \"c\" }]\n[blocks.c]\nlayers = [{ block = \"b\" }]\n",
        ),
        with_blocks("\"relu\"", "[blocks.b]\nlayer = []\n[blocks.c]\nlayers = 3\nparams = 4\n[blocks]\nd = 3\n"),
        // Warnings: a block and parameters that nothing refers to.
        with_blocks("\"relu\"", &format!("[params]\nwidth = 3\n{block}")),
        with_blocks("{ block = \"b\" }", block),
        with_blocks("\"relu\"", "[params]\nwidth = { a = 1 }\n\"strange name\" = 3\n"),
    ];
    insta::assert_snapshot!(cases.map(|text| rendered(&text, &[])).join("\n==========\n"));
}

#[test]
fn expressions() {
    let expressions = [
        "$widht",
        "$width *",
        "$width / 3",
        "$width / 0",
        "($width",
        "$width $width",
        "$act + 1",
        "$width * 9223372036854775807",
        "$",
        "2 $width",
        "$width ^ 2",
        "$width % 0",
        "$width * {i}",
        "$width * 0.5",
        "1.2.3 * $width",
        "0 - $width",
    ];
    let all = expressions.map(|expression| {
        let layer = format!("{{ type = \"linear\", out_features = \"{expression}\" }}");
        rendered(&with_blocks(&layer, "[params]\nwidth = 8\nact = \"relu\"\n"), &[])
    });
    insta::assert_snapshot!(all.join("\n==========\n"));
}

#[test]
fn overrides() {
    let sets: [&[&str]; 11] = [
        &["train.epochs"],
        &["train..epochs=3"],
        &["trian.epochs=5"],
        &["train.epochs=many", "train.accumulate=0"],
        &["train.epochs=[1"],
        &["seed.x=1"],
        &["model.layers.7.out_features=3"],
        &["model.layers.1.p=3"],
        &["model.layers.0.out_chanels=3"],
        &["optimizer={ nesterov = true }"],
        &["device=tpu"],
    ];
    insta::assert_snapshot!(sets.map(|sets| rendered(GOOD, sets)).join("\n==========\n"));
}

#[test]
fn several_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("can be written");
    write("good.toml", GOOD);
    write("broken.toml", "extends = \"base.toml\"\n[train\n");
    write("circle.toml", "extends = \"turn.toml\"\n");
    write("turn.toml", "extends = \"circle.toml\"\n");
    write("nowhere.toml", "extends = \"none.toml\"\n");
    write("number.toml", "extends = 3\n");
    write("child.toml", "extends = \"good.toml\"\n[optimizer]\nmomentun = 0.9\n[train]\nepochs = 0\n");
    write("switch.toml", "extends = \"good.toml\"\n[loss]\ntype = \"mse\"\n[data]\nshape = [4]\n");
    write(
        "net.toml",
        "[params]\nwidth = 3\n[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = \"$width\", bais = true }]\n",
    );
    write(
        "fine_net.toml",
        "[params]\nwidth = 3\n[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = \"$width\" }]\n",
    );
    write("empty_net.toml", "[modle]\nlayer = []\n");
    write("whole.toml", GOOD);
    let using = |model: &str| {
        let start = GOOD.find("layers = [").expect("there");
        let end = GOOD.find("[loss]").expect("there");
        format!("{}{model}\n{}", &GOOD[..start], &GOOD[end..])
    };
    write("uses.toml", &using("use = \"net.toml\""));
    write("uses_with.toml", &using("use = \"fine_net.toml\"\nwith = { widht = 4 }"));
    write("uses_empty.toml", &using("use = \"empty_net.toml\""));
    write("uses_whole.toml", &using("use = \"whole.toml\""));
    write("uses_and_blocks.toml", &(using("use = \"fine_net.toml\"") + "[blocks.b]\nlayers = []\n"));
    std::fs::write(folder.path().join("binary.toml"), [0xff, 0xfe]).expect("can be written");
    write("extends_binary.toml", "extends = \"binary.toml\"\n");
    let names = [
        "broken",
        "circle",
        "nowhere",
        "number",
        "child",
        "switch",
        "uses",
        "uses_with",
        "uses_empty",
        "uses_whole",
        "uses_and_blocks",
        "extends_binary",
    ];
    let all = names.map(|name| {
        let failure = config::load(&folder.path().join(name).with_extension("toml"), &[]).expect_err(name);
        rendered_failure(&failure).replace(&folder.path().display().to_string(), "DIR")
    });
    insta::assert_snapshot!(all.join("\n==========\n"));
}

#[test]
fn a_file_that_is_not_there() {
    let failure = config::load(Path::new("no/such.toml"), &[]).expect_err("there is none");
    assert!(failure.to_string().contains("cannot read `no/such.toml`"), "{failure}");
}

#[test]
fn json_for_programs() {
    let text = changed(&[("kernel_size", "kernal_size"), ("lr = 0.1", "lr = 0.1\nnesterov = true")]);
    let failure = config::load_str("test.toml", &text, &[]).expect_err("two mistakes");
    let json = diagnostics::to_json(&failure.sources, &failure.diagnostics);
    insta::assert_snapshot!(serde_json::to_string_pretty(&json).expect("a JSON value"));
}

#[test]
fn hostile_configurations_end_in_an_error() {
    // Ten levels of a thousand each.
    let mut blocks = String::from("[blocks.b0]\nlayers = [\"relu\"]\n");
    for i in 1..10 {
        blocks += &format!("[blocks.b{i}]\nlayers = [{{ block = \"b{}\", repeat = 1000 }}]\n", i - 1);
    }
    let report = rendered(&with_blocks("{ block = \"b9\", repeat = 1000 }", &blocks), &[]);
    assert!(report.contains("too many layers"), "{report}");

    let mut blocks = String::from("[blocks.b0]\nlayers = [\"relu\"]\n");
    for i in 1..60 {
        blocks += &format!("[blocks.b{i}]\nlayers = [{{ block = \"b{}\" }}]\n", i - 1);
    }
    let report = rendered(&with_blocks("{ block = \"b59\" }", &blocks), &[]);
    assert!(report.contains("nested too deeply"), "{report}");

    let deep = format!("{}\"relu\"{}", "{ layers = [".repeat(500), "] }".repeat(500));
    rendered(&changed(&[("\"relu\"", &deep)]), &[]);
    let deep = format!("{}1{}", "(".repeat(400), ")".repeat(400));
    let report = rendered(
        &with_blocks(&format!("{{ type = \"linear\", out_features = \"$width + {deep}\" }}"), "[params]\nwidth = 1\n"),
        &[],
    );
    assert!(report.contains("nested too deeply"), "{report}");
}

/// The deepest nesting that is accepted can be written out and read again.
#[test]
fn the_deepest_model_repeats() {
    let mut accepted = 0;
    for depth in 1..40 {
        let mut blocks = String::from("[blocks.b0]\nlayers = [\"relu\"]\n");
        for i in 1..depth {
            blocks += &format!("[blocks.b{i}]\nlayers = [{{ block = \"b{}\", repeat = 1 }}]\n", i - 1);
        }
        let text = with_blocks(&format!("{{ block = \"b{}\" }}", depth - 1), &blocks);
        if let Ok(loaded) = config::load_str("deep", &text, &[]) {
            let written = config::to_toml(&loaded);
            config::load_str("deep", &written, &[]).unwrap_or_else(|failure| panic!("{failure}"));
            accepted = depth;
        }
    }
    assert!(accepted >= 8, "{accepted}");
}
