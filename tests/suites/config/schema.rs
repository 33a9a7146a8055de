//! The committed JSON Schema: fresh, true of every file that is right, and of use for those that are not.

use std::path::Path;
use std::sync::OnceLock;

use jsonschema::Validator;
use runner::config::schema::schema;

use super::errors::{changed, rendered};

/// What editors judge by.
pub fn validator() -> &'static Validator {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    VALIDATOR.get_or_init(|| jsonschema::draft202012::new(&schema()).expect("a schema"))
}

/// What an editor would mark in a text.
pub fn problems(validator: &Validator, text: &str) -> Vec<String> {
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(error) => return vec![error.to_string()],
    };
    let instance = serde_json::to_value(&table).expect("a JSON value");
    validator.iter_errors(&instance).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// With `UPDATE_SCHEMA=1` it is written instead.
#[test]
fn the_committed_schema_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema.json");
    let fresh = serde_json::to_string_pretty(&schema()).expect("a JSON value") + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::create_dir_all(path.parent().expect("has a folder")).expect("can be made");
        std::fs::write(&path, &fresh).expect("can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == fresh, "docs/schema.json is out of date: run this test with UPDATE_SCHEMA=1");
}

#[test]
fn layers_are_described_with_defaults_and_choices() {
    let schema = schema();
    let tables = schema["$defs"]["Layer"]["anyOf"][2]["oneOf"].as_array().expect("a list of tables");
    let conv = tables.iter().find(|t| t["title"] == "conv2d").expect("conv2d is described");
    assert_eq!(conv["properties"]["bias"]["default"], true);
    assert!(conv["properties"]["stride"]["description"].as_str().is_some_and(|text| !text.is_empty()));
    let words = schema["$defs"]["Layer"]["anyOf"][0]["enum"].as_array().expect("a list of words");
    assert!(words.iter().any(|w| w == "relu") && words.iter().all(|w| w != "linear" && w != "add"));
    let metrics = schema["$defs"]["Metric"].to_string();
    assert!(metrics.contains("val_accuracy"), "{metrics}");
}

#[test]
fn it_is_a_schema() {
    jsonschema::meta::validate(&schema()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_file_of_the_repository_fits() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for folder in ["configs", "models", "benches/configs"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("the folder is there") {
            let path = entry.expect("readable").path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let found = problems(validator(), &std::fs::read_to_string(&path).expect("text"));
                assert!(found.is_empty(), "{}: {found:#?}", path.display());
                count += 1;
            }
        }
    }
    assert!(count >= 9, "{count}");
}

/// A file that extends another may say as little as it likes, but nothing wrong.
#[test]
fn a_file_that_extends_another_needs_nothing() {
    let extending = |rest: &str| problems(validator(), &format!("extends = \"base.toml\"\n{rest}"));
    for rest in [
        "",
        "[optimizer]\nlr = 0.1\n",
        "[optimizer]\nnesterov = true\n",
        "[optimizer]\ntype = \"sgd\"\n",
        "[data]\nbatch_size = 3\n[train]\naccumulate = 2\n",
        "[schedule]\nunset = true\n[train]\nearly_stopping = { unset = true }\n",
        "[schedule]\ngamma = 0.5\n",
        "[schedule]\ntype = \"step\"\nwarmup_start_factor = 0.1\n",
        "[model]\nwith = { width = 3 }\n",
        "[model]\nfreeze = [\"a\"]\n",
        "[blocks.b.params]\nplanes = 3\n",
        "[data]\nclasses = 3\n",
    ] {
        let found = extending(rest);
        assert!(found.is_empty(), "{rest}\n{found:#?}");
    }
    for rest in [
        "[optimizer]\nlr = 0\n",
        "[optimizer]\nlearning_rate = 0.1\n",
        "[optimizer]\ntype = \"adam\"\nmomentum = 0.9\n",
        "[schedule]\nunset = false\n",
        "[schedule]\nstep_epochs = 1\nmilestones = [1]\n",
        "[trian]\nepochs = 3\n",
        "[model]\nlayers = [\"linear\"]\n",
    ] {
        assert!(!extending(rest).is_empty(), "{rest}");
    }
    let alone = "[data]\nsource = \"digits\"\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n[model]\nlayers = [\"flatten\"]\n";
    assert!(problems(validator(), alone).is_empty());
    assert!(!problems(validator(), &format!("{alone}[schedule]\nunset = true\n")).is_empty());
}

const CONV: &str = r#"{ type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1 }"#;
const SGD: &str = "type = \"sgd\"\nlr = 0.1";
const EPOCHS: &str = "epochs = 3";
const RELU: &str = "\"relu\"";
const BATCH: &str = "batch_size = 32";
const TRAIN: &str = "[train]\nepochs = 3";

/// One mistake each, which `check` refuses.
const MISTAKES: [(&str, &str); 101] = [
    // Keys that there are not.
    ("kernel_size", "kernal_size"),
    (BATCH, "batchsize = 32"),
    ("seed = 1", "sead = 1"),
    (TRAIN, "[trian]\nepochs = 3"),
    (RELU, "{ type = \"relu\", inplace = true }"),
    ("lr = 0.1", "lr = 0.1\nbetas = [0.9, 0.99]"),
    (EPOCHS, "epochs = 3\nearly_stopping = { monitr = \"val_loss\" }"),
    (EPOCHS, "epochs = 3\nlr = 0.1"),
    (RELU, "{ name = \"g\", layers = [\"relu\"], kernel_size = 3 }"),
    (TRAIN, "[schedule]\nmin_lr = 0.1\n[train]\nepochs = 3"),
    // Words.
    (RELU, "\"rellu\""),
    (RELU, "{ type = \"batchnorm\" }"),
    ("\"synthetic\"", "\"mnits\""),
    ("cross_entropy", "crossentropy"),
    ("\"sgd\"", "\"adma\""),
    ("seed = 1", "device = \"gpu\""),
    ("seed = 1", "precision = \"float16\""),
    (EPOCHS, "epochs = 3\nearly_stopping = { monitor = \"val_acc\" }"),
    (RELU, "{ type = \"gelu\", approximate = \"tan\" }"),
    ("padding = 1", "padding = \"sane\""),
    (BATCH, "transforms = [\"normalise\"]"),
    (TRAIN, "[schedule]\ntype = \"cosin\"\n[train]\nepochs = 3"),
    (RELU, "{ type = \"residual\", layers = [\"relu\"], shortcut = \"sometimes\" }"),
    (RELU, "{ type = \"branches\", branches = [\"relu\"], combine = \"all\" }"),
    // What is missing.
    (EPOCHS, ""),
    ("[loss]\ntype = \"cross_entropy\"", ""),
    ("source = \"synthetic\"", ""),
    ("type = \"sgd\"", ""),
    ("out_features = 10", "bias = true"),
    (RELU, "\"linear\""),
    (RELU, "{ kernel_size = 3 }"),
    ("classes = 10", ""),
    (BATCH, "transforms = [\"normalize\"]"),
    (CONV, "{ type = \"conv2d\", kernel_size = 3 }"),
    (TRAIN, "[schedule]\ntype = \"step\"\n[train]\nepochs = 3"),
    (RELU, "\"add\""),
    (RELU, "{ type = \"residual\" }"),
    (RELU, "{ type = \"branches\", branches = [\"relu\"] }"),
    ("lr = 0.1", "lr = 0.1\ngroups = [{ match = [\"*\"] }]"),
    ("lr = 0.1", "lr = 0.1\ngroups = [{ lr = 1 }]"),
    // Types.
    (EPOCHS, "epochs = 3.5"),
    (EPOCHS, "epochs = \"3\""),
    (EPOCHS, "epochs = 3\naccumulate = true"),
    (BATCH, "workers = -1"),
    (BATCH, "shuffle = 1"),
    ("seed = 1", "seed = -1"),
    ("lr = 0.1", "lr = \"0.1\""),
    (RELU, "3"),
    (RELU, "[\"relu\"]"),
    (RELU, "{ type = \"relu\", name = 1 }"),
    (RELU, "{ type = \"relu\", from = 1 }"),
    ("kernel_size = 3", "kernel_size = [3, 3, 3]"),
    ("padding = 1", "stride = \"two\""),
    (SGD, "type = \"adam\"\nbetas = [0.9]"),
    (BATCH, "validation_split = 1.5"),
    (TRAIN, "train = 3"),
    // Ranges.
    (EPOCHS, "epochs = 0"),
    (EPOCHS, "epochs = 3\naccumulate = 0"),
    (EPOCHS, "epochs = 3\nclip_grad_norm = 0.0"),
    ("kernel_size = 3", "kernel_size = [3, 0]"),
    ("out_features = 10", "out_features = 0"),
    ("out_channels = 8", "out_channels = 100000000000"),
    (RELU, "{ type = \"dropout\", p = 1.0 }"),
    (RELU, "{ type = \"dropout\", p = -0.1 }"),
    (RELU, "{ type = \"softmax\", dim = 2 }"),
    (RELU, "{ type = \"multihead_attention\", num_heads = 0 }"),
    ("lr = 0.1", "lr = 0"),
    ("lr = 0.1", "lr = 0.1\nmomentum = -1"),
    (SGD, "type = \"adam\"\nbetas = [0.9, 1.0]"),
    (SGD, "type = \"adam\"\neps = -1"),
    (BATCH, "batch_size = 0"),
    (BATCH, "workers = 1000000"),
    (BATCH, "prefetch = 0"),
    (BATCH, "limit = 0"),
    ("shape = [3, 8, 8]", "shape = [30000, 30000]"),
    (RELU, "{ type = \"max_pool2d\", kernel_size = 2, padding = 2 }"),
    (RELU, "{ type = \"batch_norm2d\", momentum = 2 }"),
    (RELU, "{ type = \"batch_norm2d\", eps = 0 }"),
    (BATCH, "transforms = [{ type = \"normalize\", mean = [0.5], std = [0] }]"),
    (BATCH, "transforms = [{ type = \"normalize\", mean = [1, 2], std = [1, 2, 3] }]"),
    ("cross_entropy\"", "cross_entropy\"\nlabel_smoothing = 1.5"),
    (TRAIN, "[checkpoint]\nkeep = 0\n[train]\nepochs = 3"),
    ("lr = 0.1", "lr = 0.1\ngroups = [{ match = [], lr = 1 }]"),
    // What excludes what.
    ("lr = 0.1", "lr = 0.1\nnesterov = true"),
    ("lr = 0.1", "lr = 0.1\nnesterov = true\nmomentum = 0.9\ndampening = 0.1"),
    (TRAIN, "[schedule]\ntype = \"cosine\"\nwarmup_epochs = 1\nwarmup_steps = 100\n[train]\nepochs = 3"),
    (TRAIN, "[schedule]\ntype = \"cosine\"\nmin_lr = 1\n[train]\nepochs = 3"),
    (TRAIN, "[schedule]\ntype = \"step\"\nstep_epochs = 1\nmilestones = [1]\n[train]\nepochs = 3"),
    (TRAIN, "[schedule]\ntype = \"step\"\nmilestones = [2, 1]\n[train]\nepochs = 3"),
    (TRAIN, "[schedule]\nwarmup_start_factor = 0.1\n[train]\nepochs = 3"),
    ("classes = 10", "classes = 10\ntargets = 1"),
    ("cross_entropy", "mse"),
    (EPOCHS, "epochs = 3\nearly_stopping = { monitor = \"val_mae\" }"),
    (BATCH, "transforms = [\"random_horizontal_flip\"]"),
    (BATCH, "val_transforms = [\"random_rotation\"]"),
    (BATCH, "train_transforms = [{ type = \"normalize\", mean = \"imagenet\", std = [1] }]"),
    ("padding = 1", "stride = 2, padding = \"same\""),
    (RELU, "{ type = \"residual\", layers = [\"relu\"], projection = \"identity\", shortcut = \"if_same_shape\" }"),
    ("layers = [", "use = \"models/resnet18.toml\"\nlayers = ["),
    // Names.
    (RELU, "{ name = \"a.b\", type = \"relu\" }"),
    (RELU, "{ type = \"relu\", from = \"steem\" }"),
];

/// How many of the mistakes an editor marks, and which not.
#[test]
fn what_the_schema_catches() {
    let (mut caught, mut lines) = (0, Vec::new());
    for (from, to) in MISTAKES {
        let text = changed(&[(from, to)]);
        assert!(rendered(&text, &[]).contains("error: "), "{to} is no mistake");
        let found = !problems(validator(), &text).is_empty();
        caught += usize::from(found);
        lines.push(format!(
            "{} {} -> {}",
            if found { "caught" } else { "  only" },
            from.replace('\n', "; "),
            to.replace('\n', "; ")
        ));
    }
    insta::assert_snapshot!(format!("{caught} of {}\n\n{}", MISTAKES.len(), lines.join("\n")));
}
