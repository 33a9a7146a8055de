//! Another kind of thing in a file that extends one, or on the command line; and what is taken away.

use runner::config::declare::tagged::Tagged;
use runner::config::language::sections::{Course, Curve, OptimizerRule, Source};
use runner::config::text::diagnostics;
use runner::config::{self, Failure, Loaded};

const BASE: &str = r#"[data]
source = "synthetic"
shape = [3, 8, 8]
classes = 10
batch_size = 8
transforms = [{ type = "normalize", mean = [0.5], std = [0.5] }]

[model]
layers = [
  { type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1 },
  { type = "leaky_relu", negative_slope = 0.2 },
  { type = "residual", layers = [{ type = "elu", name = "e", alpha = 2.0 }], shortcut = "if_same_shape" },
  "flatten",
  { type = "linear", out_features = 10 },
]

[loss]
type = "cross_entropy"
label_smoothing = 0.1

[optimizer]
type = "sgd"
lr = 0.1
momentum = 0.9
nesterov = true
weight_decay = 5e-4

[schedule]
type = "step"
step_epochs = 1
warmup_epochs = 1

[train]
epochs = 3
early_stopping = { patience = 3 }
"#;

/// Loads a chain of files, each extending the one before, with options.
fn chain(texts: &[&str], sets: &[&str]) -> Result<Loaded, Failure> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("can be written");
    write("0.toml", BASE);
    write(
        "net.toml",
        "[params]\nwidth = 4\n[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = \"$width\" }]\n",
    );
    write(
        "deep.toml",
        "[params]\ndepth = 2\n[blocks.b]\nlayers = [{ type = \"linear\", out_features = 4 }]\n[model]\nlayers = [\"flatten\", { block = \"b\", repeat = \"$depth\" }]\n",
    );
    for (i, text) in texts.iter().enumerate() {
        write(&format!("{}.toml", i + 1), &format!("extends = \"{i}.toml\"\n{text}"));
    }
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    config::load(&folder.path().join(format!("{}.toml", texts.len())), &sets)
}

fn loaded(texts: &[&str], sets: &[&str]) -> Loaded {
    chain(texts, sets).unwrap_or_else(|failure| panic!("{failure}"))
}

fn refused(texts: &[&str], sets: &[&str]) -> String {
    let failure = chain(texts, sets).expect_err("something is wrong");
    let text = diagnostics::render(&failure.sources, &failure.diagnostics, false);
    let folder =
        failure.sources.iter().find_map(|(_, s)| Some(s.name.rsplit_once('/')?.0.to_owned())).unwrap_or_default();
    text.replace(&folder, "DIR")
}

/// What is left behind, by key.
fn left(loaded: &Loaded) -> Vec<&str> {
    loaded.left_behind.iter().map(|left| left.key.as_str()).collect()
}

#[test]
fn another_optimizer_leaves_behind_what_it_does_not_know() {
    let by_file = loaded(&["[optimizer]\ntype = \"adam\"\n"], &[]);
    let by_option = loaded(&[], &["optimizer.type=adam"]);
    for loaded in [by_file, by_option] {
        let OptimizerRule::Adam(adam) = &loaded.experiment.optimizer.rule else { panic!("adam was asked for") };
        // What both know stays.
        assert_eq!((adam.lr, adam.weight_decay), (0.1, 5e-4));
        assert_eq!(left(&loaded), ["optimizer.momentum", "optimizer.nesterov"]);
        let text = config::print_with_origins(&loaded);
        assert!(text.contains("# Left behind:\n# optimizer.momentum ("), "{text}");
        assert!(text.contains("0.toml:24): `adam` ("), "{text}");
    }
}

#[test]
fn each_kind_can_be_changed() {
    let loaded_data = loaded(&["[data]\nsource = \"digits\"\n"], &[]);
    assert!(matches!(loaded_data.experiment.data.source, Source::Digits(_)));
    assert_eq!(left(&loaded_data), ["data.shape", "data.classes"]);
    assert_eq!((loaded_data.experiment.data.loading.batch_size, loaded_data.experiment.data.transforms.len()), (8, 1));

    let regression = loaded(&[], &["loss.type=mse", "data.targets=2", "train.early_stopping.monitor=val_loss"]);
    assert_eq!(regression.experiment.loss.type_name(), "mse");
    assert_eq!(left(&regression), ["data.classes", "loss.label_smoothing"]);

    let cosine = loaded(&["[schedule]\ntype = \"cosine\"\nmin_lr = 1e-5\n"], &[]);
    let Curve::Course(Course::Cosine(curve)) = &cosine.experiment.schedule.curve else {
        panic!("cosine was asked for")
    };
    assert_eq!(curve.min_lr, 1e-5);
    assert_eq!(cosine.experiment.schedule.warmup.warmup_epochs, Some(1));
    assert_eq!(left(&cosine), ["schedule.step_epochs"]);

    let layers =
        loaded(&[], &["model.layers.1.type=gelu", "model.layers.2.layers.0.type=softmax", "data.source=digits"]);
    assert_eq!(
        left(&layers),
        ["data.shape", "data.classes", "model.layers.1.negative_slope", "model.layers.2.layers.0.alpha"]
    );
    let layers = loaded(&[], &["model.layers.2.type=gate"]);
    assert_eq!(left(&layers), ["model.layers.2.shortcut"]);
}

#[test]
fn kinds_change_from_file_to_file() {
    // The second file's own keys are the base's of the third.
    let texts =
        ["[optimizer]\ntype = \"rmsprop\"\nalpha = 0.5\n", "[optimizer]\ntype = \"adamw\"\nbetas = [0.5, 0.6]\n"];
    let loaded = loaded(&texts, &["optimizer.type=sgd", "optimizer.momentum=0.5"]);
    let OptimizerRule::Sgd(sgd) = &loaded.experiment.optimizer.rule else { panic!("sgd was asked for") };
    assert_eq!((sgd.lr, sgd.momentum, sgd.nesterov), (0.1, 0.5, false));
    assert_eq!(left(&loaded), ["optimizer.nesterov", "optimizer.momentum", "optimizer.alpha", "optimizer.betas"]);
}

#[test]
fn of_two_keys_that_exclude_each_other_the_upper_counts() {
    let steps = loaded(&["[schedule]\nmilestones = [2]\nwarmup_steps = 5\n"], &[]);
    assert_eq!(left(&steps), ["schedule.step_epochs", "schedule.warmup_epochs"]);
    let used = loaded(&["[model]\nuse = \"net.toml\"\nwith = { width = 10 }\n"], &[]);
    assert_eq!(left(&used), ["model.layers"]);
    let own =
        loaded(&["[model]\nuse = \"net.toml\"\nwith = { width = 10 }\n", "[model]\nlayers = [\"flatten\"]\n"], &[]);
    assert_eq!(left(&own), ["model.layers", "model.use", "model.with"]);
    // Another model has other parameters.
    let texts = ["[model]\nuse = \"net.toml\"\nwith = { width = 10 }\n", "[model]\nuse = \"deep.toml\"\n"];
    assert_eq!(left(&loaded(&texts, &[])), ["model.layers", "model.with.width"]);
}

#[test]
fn what_is_written_together_with_a_kind_must_fit_it() {
    let refusals = [
        refused(&["[optimizer]\ntype = \"adam\"\nmomentum = 0.5\n"], &[]),
        refused(&[], &["optimizer.momentum=0.5", "optimizer.type=adam"]),
        // A mistake of the base is one whatever the kind; so is a kind that there is not.
        refused(&["[optimizer]\nmomentun = 0.5\n", "[optimizer]\ntype = \"adam\"\n"], &[]),
        refused(&["[optimizer]\ntype = \"adma\"\n"], &[]),
        refused(&["[schedule]\nmilestones = [2]\nstep_epochs = 2\n"], &[]),
        refused(&["[model]\nuse = \"net.toml\"\nwith = { depth = 3 }\n"], &[]),
    ];
    insta::assert_snapshot!(refusals.join("\n==========\n"));
}

#[test]
fn what_the_base_has_can_be_taken_away() {
    let texts = [
        "[schedule]\nunset = true\n[train]\nearly_stopping = { unset = true }\n[optimizer]\nunset = true\ntype = \"sgd\"\nlr = 2\n",
    ];
    let by_file = loaded(&texts, &[]);
    assert!(matches!(by_file.experiment.schedule.curve, Curve::Course(Course::Constant(_))));
    assert!(by_file.experiment.train.early_stopping.is_none());
    let OptimizerRule::Sgd(sgd) = &by_file.experiment.optimizer.rule else { panic!("sgd was asked for") };
    assert_eq!((sgd.lr, sgd.momentum), (2.0, 0.0));
    assert_eq!(left(&by_file), ["schedule", "train.early_stopping", "optimizer"]);
    assert!(config::print_with_origins(&by_file).contains(": unset ("), "{}", config::print_with_origins(&by_file));

    let options = [
        "--unset schedule",
        "--unset optimizer.nesterov",
        "--unset train.early_stopping",
        "--unset model.layers.1.negative_slope",
    ];
    let by_option = loaded(&[], &options);
    assert!(matches!(by_option.experiment.schedule.curve, Curve::Course(Course::Constant(_))));
    let OptimizerRule::Sgd(sgd) = &by_option.experiment.optimizer.rule else { panic!("sgd was asked for") };
    assert_eq!((sgd.momentum, sgd.nesterov), (0.9, false));
    assert_eq!(left(&by_option).len(), 4);
    // First away, then anew, whichever way round they are typed; what is at its default is no mistake.
    let anew =
        loaded(&[], &["schedule.type=cosine", "--unset schedule", "--unset train.max_steps", "--unset checkpoint"]);
    assert!(matches!(anew.experiment.schedule.curve, Curve::Course(Course::Cosine(_))));
    assert_eq!(anew.experiment.schedule.warmup.warmup_epochs, None);
}

#[test]
fn what_is_not_there_cannot_be_taken_away() {
    let refusals = [
        refused(&[], &["--unset optimizer.momentun"]),
        refused(&[], &["--unset epochs"]),
        refused(&[], &["--unset shedule"]),
        refused(&[], &["--unset model.layers.1"]),
        refused(&[], &["--unset model.layers.9.p"]),
        refused(&[], &["--unset seed.x.y"]),
        refused(&[], &["--unset train..x"]),
        refused(&[], &["--unset data.shape"]),
        refused(&["[optimizer]\nunset = false\n"], &[]),
        refused(&["[train]\nepochs = 0\n[log]\nunset = true\n"], &[]),
    ];
    insta::assert_snapshot!(refusals.join("\n==========\n"));
}

/// What conflicts with windows takes none away: both keys are named.
#[test]
fn windows_stay_beside_what_they_do_not_go_with() {
    let series = "[data]\nunset = true\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\nwindow = 4\nseries_column = \"s\"\n[loss]\ntype = \"mse\"\n";
    for (set, key) in [
        ("data.folds=3", "folds"),
        ("data.stratify_column=s", "stratify_column"),
        ("data.sample_weight=w", "sample_weight"),
    ] {
        let error = refused(&[series], &[set]);
        assert!(error.contains(&format!("`window` and `{key}` in `[data]` exclude each other")), "{set}: {error}");
        assert!(!error.contains("needs `window`"), "{set}: {error}");
    }
}

/// Layers are taken away before a model takes their place, and a section that was taken away is missed where it was.
#[test]
fn what_is_taken_away_makes_room() {
    let other = loaded(&[], &["--unset model.layers", "model.use=resnet9"]);
    assert_eq!(left(&other), ["model.layers"]);
    assert!(other.experiment.model.layers.len() > 5, "{:?}", other.experiment.model.layers);
    let error = refused(&[], &["--unset optimizer"]);
    for part in ["the configuration needs a section `[optimizer]`", "takes it away", "it was here", "--unset optimizer"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
}
