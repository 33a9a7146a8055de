//! Warnings about what is surely not meant: each fires where it should, is silenced by its name, and says nothing of
//! configurations that are in order.

use crate::random;
use runner::backend::cpu::CpuBackend;
use runner::config::text::diagnostics;
use runner::config::{self, Lint, Loaded, Severity};
use runner::passes::PassOptions;
use runner::sweep::incomparable;
use runner::train::setup::input;
use runner::train::setup::programs::{self, Sizes};
use std::path::Path;

/// A configuration that nothing is said of, in which each case makes its own mistake.
const GOOD: &str = r#"[data]
source = "synthetic"
shape = [3, 8, 8]
classes = 10
samples = 100
val_samples = 20
batch_size = 10

[model]
layers = [
  { name = "conv", type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1 },
  { name = "act", type = "relu" },
  { name = "pool", type = "max_pool2d", kernel_size = 2 },
  "flatten",
  { name = "fc", type = "linear", out_features = 10 },
]

[loss]
type = "cross_entropy"

[optimizer]
type = "sgd"
lr = 0.1

[train]
epochs = 5
"#;

pub const FC: &str = "{ name = \"fc\", type = \"linear\", out_features = 10 },";
pub const POOL: &str = "{ name = \"pool\", type = \"max_pool2d\", kernel_size = 2 },";

pub fn changed(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(GOOD.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in the configuration");
        text.replacen(from, to, 1)
    })
}

/// The same, with its length in steps: those of its five epochs.
fn by_steps(text: String) -> String {
    assert!(text.contains("\nepochs = 5\n"), "{text}");
    text.replace("\nepochs = 5\n", "\nsteps = 50\n")
}

/// All warnings about a configuration: those on reading it, those on building what it trains with, and those of its sweep.
fn warnings(loaded: &Loaded) -> Vec<config::Diagnostic> {
    let experiment = &loaded.experiment;
    let data = input::describe(experiment).unwrap();
    let backend = CpuBackend::new(Some(1)).unwrap();
    let sizes = Sizes::of_run(experiment, &data);
    let programs = programs::build(experiment, &data, &sizes, &backend, &PassOptions::default())
        .unwrap_or_else(|errors| panic!("{}", diagnostics::render(&loaded.sources, &errors, false)));
    [&loaded.warnings[..], &programs.warnings, &incomparable(experiment)].concat()
}

fn load(text: &str) -> Loaded {
    config::load_str("test.toml", text, &[]).unwrap_or_else(|failure| panic!("{failure}"))
}

pub fn rendered_warnings(text: &str) -> String {
    let loaded = load(text);
    let all = warnings(&loaded);
    assert!(all.iter().all(|w| w.severity == Severity::Warning && w.lint.is_some() && w.span().is_some()), "{all:?}");
    if all.is_empty() { "nothing\n".into() } else { diagnostics::render(&loaded.sources, &all, false) }
}

/// One whose layer between its embedding and its outputs this is.
pub fn language_model(layer: &str) -> String {
    let layers = format!(
        "{{ type = \"embedding\", num_embeddings = 256, embedding_dim = 24 }},\n  {layer},\n  \
         {{ type = \"linear\", out_features = 256 }},"
    );
    let data = "[data]\nsource = \"text\"\npath = \"tests/golden/language_models/text.txt\"\ntokenizer = \"bytes\"\ncontext = 8\nvalidation_split = 0.1\nbatch_size = 10\n\n";
    format!("{data}[model]\nlayers = [\n  {layers}\n]\n\n{}", &GOOD[GOOD.find("[loss]").unwrap()..])
}

/// A way to make each kind of mistake, once or more.
fn cases() -> Vec<(Lint, Vec<String>)> {
    let last = |layer: &str| changed(&[(FC, &format!("{FC}\n  {layer},"))]);
    let schedule = |schedule: &str, train: &str| {
        changed(&[("[train]\nepochs = 5", &format!("[schedule]\n{schedule}\n\n[train]\nepochs = 5\n{train}"))])
    };
    let optimizer = |rest: &str| changed(&[("lr = 0.1", rest)]);
    let normalize = |rest: &str| {
        changed(&[("batch_size = 10", &format!("batch_size = 10\ntransforms = [{{ type = \"normalize\", {rest} }}]"))])
    };
    let train = |rest: &str| changed(&[("epochs = 5", &format!("epochs = 5\n{rest}"))]);
    let blind = |rest: &str| {
        changed(&[("val_samples = 20", "val_samples = 0"), ("epochs = 5", &format!("epochs = 50\n{rest}"))])
    };
    vec![
        (
            Lint::ActivationBeforeCrossEntropy,
            vec![
                last("\"softmax\""),
                last("\"relu\""),
                last("\"log_sigmoid\""),
                last("{ name = \"head\", layers = [\"sigmoid\", \"identity\"] }"),
                last("\"tanh\",\n  { type = \"dropout\", p = 0.0 }"),
                changed(&[(FC, "{ type = \"linear\", out_features = 10 }, { type = \"residual\", layers = [\"identity\"] }, \"hardswish\",")]),
                changed(&[
                    ("cross_entropy", "ordinal"),
                    (FC, "{ name = \"fc\", type = \"linear\", out_features = 9 }, \"softmax\","),
                ]),
                // An image's channels are the classes.
                changed(&[(
                    "\"flatten\",\n  { name = \"fc\", type = \"linear\", out_features = 10 },",
                    "{ type = \"conv2d\", out_channels = 10, kernel_size = 4 },\n  { type = \"softmax\", dim = 1 },\n  \"flatten\",",
                )]),
            ],
        ),
        (
            Lint::ActivationWithoutEffect,
            vec![
                changed(&[(POOL, &format!("{POOL}\n  \"relu\","))]),
                changed(&[(POOL, "\"sigmoid\", { type = \"dropout\", p = 0.5 }, \"relu\",")]),
                changed(&[(POOL, "\"relu6\", \"relu6\",")]),
            ],
        ),
        (
            Lint::NllWithoutLogSoftmax,
            vec![
                changed(&[("cross_entropy", "nll")]),
                changed(&[("cross_entropy", "nll"), (FC, &format!("{FC}\n  \"softmax\","))]),
            ],
        ),
        (
            Lint::MeanNotPositive,
            ["gamma_nll", "tweedie"].map(|loss| changed(&[("classes = 10", "targets = 10"), ("cross_entropy", loss)])).to_vec(),
        ),
        (
            Lint::DropoutAtEnd,
            vec![last("\"dropout\""), last("{ name = \"head\", layers = [\"dropout\", \"identity\"] }")],
        ),
        (
            Lint::OneClass,
            vec![tensors("targets", &[0; 4], 1)],
        ),
        (
            Lint::UnusedLayer,
            vec![
                changed(&[(POOL, "{ name = \"pool\", from = \"conv\", type = \"max_pool2d\", kernel_size = 2 },")]),
                changed(&[(
                    FC,
                    "{ name = \"a\", type = \"linear\", out_features = 50 },\n  { name = \"b\", type = \"linear\", out_features = 7 },\n  \
                     { name = \"c\", type = \"linear\", out_features = 10, from = \"pool\" },",
                )])
                .replace("\"flatten\",", "\"flatten\", \"identity\",")
                .replace("from = \"pool\"", "from = \"4\""),
            ],
        ),
        (
            Lint::SeesTheFuture,
            [
                "{ type = \"scaled_dot_product_attention\", num_heads = 2 }",
                "{ type = \"lstm\", hidden_size = 8, bidirectional = true }",
                "{ type = \"permute\", dims = [0, 2, 1] },\n  { type = \"conv1d\", out_channels = 8, kernel_size = 3, dilation = 2, padding = \"same\" },\n  \
                 { type = \"permute\", dims = [0, 2, 1] }",
            ]
            .map(language_model)
            .to_vec(),
        ),
        (
            Lint::NormalizeRange,
            vec![
                normalize("mean = [127.5], std = [127.5]"),
                normalize("mean = [0.5], std = [64.0, 65.0, 66.0]"),
                normalize("mean = [123.675, 116.28, 103.53], std = [0.2]"),
                normalize("mean = [-0.5], std = [0.5]"),
            ],
        ),
        (
            Lint::BatchLargerThanData,
            vec![
                changed(&[("batch_size = 10", "batch_size = 101")]),
                changed(&[("batch_size = 10", "batch_size = 60\nlimit = 50")]),
                changed(&[("batch_size = 10", "batch_size = 60\nvalidation_split = 0.5")]),
                changed(&[("batch_size = 10", "limit = 50")]),
            ],
        ),
        (
            Lint::AccumulateBeyondEpoch,
            vec![
                train("accumulate = 11"),
                changed(&[("batch_size = 10", "batch_size = 51\ndrop_last = true"), ("epochs = 5", "epochs = 5\naccumulate = 2")]),
            ],
        ),
        (
            Lint::DivergingOptimizer,
            vec![
                optimizer("lr = 0.1\nmomentum = 1.5"),
                optimizer("lr = 0.1\nmomentum = 1"),
                optimizer("lr = 0.1\nmomentum = 0.9\ndampening = 1"),
                optimizer("lr = 0.1\nweight_decay = 50"),
                changed(&[("type = \"sgd\"\nlr = 0.1", "type = \"adam\"\nbetas = [0.999, 0.9]")]),
                changed(&[("type = \"sgd\"\nlr = 0.1", "type = \"rmsprop\"\nmomentum = 2.0")]),
                changed(&[(
                    "type = \"sgd\"\nlr = 0.1",
                    "type = \"adamw\"\nlr = 0.1\ngroups = [{ match = [\"conv.*\"], weight_decay = 30 }]",
                )]),
            ],
        ),
        (
            Lint::RisingSchedule,
            vec![
                schedule("type = \"step\"\nstep_epochs = 2\ngamma = 10", ""),
                schedule("type = \"exponential\"\ngamma = 1.1", ""),
                schedule("type = \"cosine\"\nmin_lr = 0.01", "")
                    .replace("lr = 0.1\n", "lr = 0.1\ngroups = [{ match = [\"fc.*\"], lr = 0.001 }]\n"),
            ],
        ),
        (
            Lint::ShadowedGroup,
            vec![
                optimizer("lr = 0.1\ngroups = [\n  { match = [\"*\"], lr = 0.2 },\n  { match = [\"*.bias\"], weight_decay = 0.1 },\n]"),
                optimizer(
                    "lr = 0.1\ngroups = [\n  { match = [\"conv.*\", \"fc.*\"], lr = 0.2 },\n  { match = [\"*.bias\", \"*.weight\"], lr = 0.1 },\n]",
                ),
            ],
        ),
        (
            Lint::FrozenGroup,
            vec![
                changed(&[
                    ("[model]", "[model]\nweights = \"w.pth\"\nfreeze = [\"conv.*\"]"),
                    ("lr = 0.1", "lr = 0.1\ngroups = [{ match = [\"conv.*\"], lr = 0.2 }]"),
                ]),
            ],
        ),
        (
            Lint::ScheduleBeyondRun,
            vec![
                schedule("type = \"step\"\nmilestones = [2, 5]", ""),
                schedule("type = \"step\"\nstep_epochs = 5", ""),
                schedule("type = \"multi_step\"\nmilestones = [2, 5]", ""),
                schedule("type = \"linear\"\nend_factor = 0\ntotal_iters = 6\nby = \"epoch\"", ""),
                schedule("type = \"sequential\"\nmilestones = [5]\nschedules = [\"constant\", \"cosine\"]", ""),
                schedule("type = \"cosine\"\nepochs = 6", ""),
                schedule("warmup_epochs = 5", ""),
                schedule("warmup_steps = 50", ""),
                schedule("warmup_epochs = 2", "max_steps = 20"),
                schedule("type = \"cosine\"\nepochs = 2\nwarmup_steps = 20", ""),
                by_steps(schedule("type = \"multi_step\"\nmilestones = [20, 50]\nby = \"step\"", "")),
                by_steps(schedule("type = \"linear\"\nend_factor = 0\ntotal_iters = 51", "")),
                by_steps(schedule("warmup_epochs = 5", "")),
                by_steps(schedule("warmup_steps = 50", "")),
            ],
        ),
        (
            Lint::PatienceBeyondRun,
            vec![
                train("early_stopping = {}"),
                train("eval_every = 2\nearly_stopping = { patience = 3 }"),
                train("eval_every_steps = 10\nearly_stopping = { patience = 5 }"),
            ],
        ),
        (
            Lint::MonitorWithoutValidation,
            vec![
                blind("early_stopping = { patience = 3 }"),
                blind("early_stopping = { monitor = \"val_accuracy\" }"),
                blind("[checkpoint]\nmonitor = \"val_loss\""),
                blind("[schedule]\ntype = \"plateau\""),
            ],
        ),
        (Lint::NoValidation, vec![changed(&[("val_samples = 20", "val_samples = 0")])]),
        (
            Lint::LargeLearningRate,
            vec![
                changed(&[("type = \"sgd\"\nlr = 0.1", "type = \"adamw\"\nlr = 0.5\nweight_decay = 0")]),
                changed(&[("type = \"sgd\"\nlr = 0.1", "type = \"lion\"\nlr = 0.1")]),
                optimizer("lr = 1000"),
                optimizer("lr = 1e300"),
            ],
        ),
        (Lint::FrozenWithoutWeights, vec![changed(&[("[model]", "[model]\nfreeze = [\"conv.*\"]")])]),
        (Lint::EmptyClass, vec![photos("empty", &["a", "b"], &["c"], NORMALIZE)]),
        (Lint::AlikeClasses, vec![photos("alike", &["caf\u{e9}", "cafe\u{301}"], &[], NORMALIZE)]),
        (Lint::TargetLeak, vec![leak()]),
        (Lint::PhotosWithoutNormalize, vec![photos("plain", &["a", "b"], &[], "")]),
        (
            Lint::IncomparableTrials,
            [
                "monitor = \"val_loss\"\nparameters = { \"loss.label_smoothing\" = [0.0, 0.1] }",
                "monitor = \"train_loss\"\nparameters = { \"loss.label_smoothing\" = { linear = [0.0, 0.1] } }",
            ]
            .map(|sweep| format!("{GOOD}[sweep]\n{sweep}\n"))
            .into_iter()
            .chain([format!(
                "{}[sweep]\nmonitor = \"val_perplexity\"\nparameters = {{ \"data.tokenizer\" = [\"bytes\", \"characters\"], \"data.validation_split\" = [0.1, 0.2] }}\n",
                language_model("\"relu\"")
            )])
            .collect(),
        ),
        (Lint::UnusedParameter, vec![format!("{GOOD}[params]\nwidth = 3\n")]),
        (Lint::UnusedBlock, vec![format!("{GOOD}[blocks.spare]\nlayers = [\"relu\"]\n")]),
        (
            Lint::ChosenOnTestSet,
            {
                let digits = |rest: &str| {
                    let from = "source = \"synthetic\"\nshape = [3, 8, 8]\nclasses = 10\nsamples = 100\nval_samples = 20";
                    let changes = [(from, "source = \"digits\""), ("[train]\nepochs = 5", rest)];
                    changed(&changes)
                };
                vec![
                    digits("[train]\nepochs = 5\n\n[checkpoint]\nmonitor = \"val_loss\""),
                    digits("[train]\nepochs = 5\nearly_stopping = { patience = 2 }"),
                    digits("[schedule]\ntype = \"plateau\"\n\n[train]\nepochs = 5\nearly_stopping = { monitor = \"val_loss\", patience = 2 }"),
                ]
            },
        ),
        (
            Lint::NoEffect,
            vec![
                changed(&[("[model]", "[model]\nweights_strict = false")]),
                by_steps(changed(&[("[model]", "[model]\nweights = \"w.pth\"\nfreeze = [\"conv.*\"]\nthaw_after = 5")])),
                changed(&[(
                    "source = \"synthetic\"\nshape = [3, 8, 8]\nclasses = 10\nsamples = 100\nval_samples = 20",
                    "source = \"cifar10\"\ndownload = false\nmirrors = [\"https://example.org/\"]",
                )]),
            ],
        ),
    ]
}

const NORMALIZE: &str = ", { type = \"normalize\", mean = \"imagenet\", std = \"imagenet\" }";

/// A configuration on photos of these classes, in a folder with others that are empty.
fn photos(name: &str, classes: &[&str], empty: &[&str], more: &str) -> String {
    let root = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("lints-{name}"));
    for class in classes {
        std::fs::create_dir_all(root.join(class)).unwrap();
        for number in 0..4 {
            image::RgbImage::new(8, 8).save(root.join(class).join(format!("{number}.png"))).unwrap();
        }
    }
    empty.iter().for_each(|folder| std::fs::create_dir_all(root.join(folder)).unwrap());
    let source = format!(
        "source = \"image_folder\"\nroot = {:?}\nvalidation_split = 2\ntransforms = [{{ type = \"resize\", size = [8, 8] }}{more}]",
        root.display().to_string()
    );
    let data = "source = \"synthetic\"\nshape = [3, 8, 8]\nclasses = 10\nsamples = 100\nval_samples = 20";
    changed(&[(data, &source), ("batch_size = 10", "batch_size = 3"), ("out_features = 10", "out_features = 2")])
}

/// A configuration on a table in which one column is twice the target.
fn leak() -> String {
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lints-leak.csv");
    let rows = (0..40).map(|i| format!("{},{},{}\n", i % 7, 2 * (i * 7 % 13), i * 7 % 13));
    std::fs::write(&path, format!("a,b,y\n{}", rows.collect::<String>())).unwrap();
    format!(
        "[data]\nsource = \"csv\"\npath = {:?}\ntarget = \"y\"\nbatch_size = 5\nvalidation_split = 10\n[model]\n\
         layers = [{{ type = \"linear\", out_features = 1 }}]\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"sgd\"\n\
         lr = 0.1\n[train]\nepochs = 1\n",
        path.display().to_string()
    )
}

/// A configuration on labels in a file, for a model with `out` outputs.
fn tensors(name: &str, labels: &[i64], out: usize) -> String {
    use runner::checkpoint::{Tensor, write_weights};
    use runner::graph::DType;
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("lints-{name}.safetensors"));
    let inputs = Tensor::from_f32([labels.len(), 2], &vec![0.5; 2 * labels.len()]);
    let bytes = labels.iter().flat_map(|l| l.to_le_bytes()).collect();
    let targets = Tensor { dtype: DType::I64, shape: vec![labels.len()], data: bytes };
    write_weights(&path, &[inputs.view("inputs"), targets.view("targets")]).unwrap();
    format!(
        "[data]\nsource = \"tensors\"\npath = {:?}\nbatch_size = 2\nvalidation_split = 2\n[model]\nlayers = [{{ type = \"linear\", out_features = {out} }}]\n\
         [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
        path.display().to_string()
    )
}

#[test]
fn every_lint_fires_and_is_silenced_by_its_name() {
    assert_eq!(rendered_warnings(GOOD), "nothing\n");
    let cases = cases();
    for lint in Lint::ALL {
        let (_, texts) =
            cases.iter().find(|(l, _)| l == lint).unwrap_or_else(|| panic!("`{}` has no case", lint.name()));
        let mut all = Vec::new();
        for text in texts {
            let found = warnings(&load(text));
            assert!(
                !found.is_empty() && found.iter().all(|w| w.lint == Some(*lint)),
                "`{}`: {found:?}\n{text}",
                lint.name()
            );
            all.push(rendered_warnings(text));
            let allowed = format!("{text}[lint]\nallow = [\"{}\"]\n", lint.name());
            let left = warnings(&load(&allowed));
            assert!(left.is_empty(), "`{}`: {left:?}", lint.name());
            // Another name silences nothing.
            let other = Lint::ALL.iter().find(|l| *l != lint).unwrap();
            let kept = warnings(&load(&format!("{text}[lint]\nallow = [\"{}\"]\n", other.name())));
            assert_eq!(kept.len(), found.len(), "`{}`", lint.name());
        }
        // Their data has a place of its own on every machine.
        use Lint::{AlikeClasses, EmptyClass, OneClass, PhotosWithoutNormalize, TargetLeak};
        let of_files = [OneClass, EmptyClass, AlikeClasses, PhotosWithoutNormalize, TargetLeak];
        if !of_files.contains(lint) {
            insta::assert_snapshot!(format!("lint_{}", lint.name()), all.join("\n==========\n"));
        }
    }
    assert_eq!(cases.len(), Lint::ALL.len());
}

/// What is the same in all trials, and figures that the loss does not change, are compared.
#[test]
fn trials_of_one_figure_are_compared() {
    let sweep = |text: &str| rendered_warnings(&format!("{GOOD}[sweep]\n{text}\n"));
    for text in [
        "monitor = \"val_loss\"\nparameters = { \"loss.label_smoothing\" = [0.1], \"optimizer.lr\" = [0.1, 0.2] }",
        "monitor = \"val_log_loss\"\nparameters = { \"loss.label_smoothing\" = [0.0, 0.1] }",
        "parameters = { \"loss.label_smoothing\" = [0.0, 0.1] }",
    ] {
        assert_eq!(sweep(text), "nothing\n", "{text}");
    }
}

#[test]
fn shipped_configurations_are_in_order() {
    let mut count = 0;
    for folder in ["configs", "benches/configs"] {
        for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let loaded = config::load(&path, &random::some_text(&path)).unwrap_or_else(|failure| panic!("{failure}"));
            // One small batch: the rest of the plan has no warnings of its own.
            let found = diagnostics::render(&loaded.sources, &warnings(&loaded), false);
            assert!(found.is_empty(), "{}\n{found}", path.display());
            assert!(loaded.experiment.lint.allow.is_empty(), "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 7);
}

/// The manual has every lint, with what it says.
#[test]
fn the_manual_has_the_table() {
    let manual = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/config/lint.md")).unwrap();
    for lint in Lint::ALL {
        let row = format!("| `{}` | {} |", lint.name(), lint.meaning());
        assert!(manual.contains(&row), "docs/config/lint.md lacks\n{row}");
    }
}

#[test]
fn unknown_names_are_refused() {
    let failure = |allow: &str| config::load_str("test.toml", &format!("{GOOD}[lint]\n{allow}\n"), &[]).unwrap_err();
    let all = [
        "allow = [\"unused_layers\"]",
        "allow = [\"unused_layer\", \"everything\"]",
        "allow = \"unused_layer\"",
        "deny = []",
    ];
    let messages: Vec<String> = all.iter().map(|allow| failure(allow).to_string()).collect();
    insta::assert_snapshot!(messages.join("\n==========\n"));
}
