//! What is written, read and written again is the same: for every configuration, and for the parameters of its model.

use proptest::prelude::*;
use runner::backend::cpu::CpuBackend;
use runner::config::{self, Loaded, Severity};
use runner::passes::PassOptions;
use runner::train::setup::input;
use runner::train::setup::programs::{self, Sizes};

use super::random;
use super::schema::{problems, validator};

fn json(loaded: &Loaded) -> serde_json::Value {
    serde_json::to_value(&loaded.experiment).expect("plain data")
}

/// `None` if layers of the random model have the same names, and that is all that is wrong.
fn load(text: &str) -> Result<Option<Loaded>, TestCaseError> {
    match config::load_str("random", text, &[]) {
        Ok(loaded) => Ok(Some(loaded)),
        Err(failure) => {
            let names = ["would both be called", "could be more than one layer"];
            let mut errors = failure.diagnostics.iter().filter(|d| d.severity == Severity::Error);
            let clash = errors.all(|d| names.iter().any(|name| d.message.contains(name)));
            prop_assert!(clash, "{failure}\n{text}");
            Ok(None)
        }
    }
}

/// Reads again what is written; returns that.
fn repeats(loaded: &Loaded) -> Result<Loaded, TestCaseError> {
    let written = config::to_toml(loaded);
    let commented = config::print_with_origins(loaded);
    let read = |text: &str| {
        config::load_str("again", text, &[]).map_err(|failure| TestCaseError::fail(format!("{failure}\n{text}")))
    };
    let again = read(&written)?;
    prop_assert_eq!(json(loaded), json(&again), "{}", written);
    prop_assert_eq!(config::to_toml(&again), written);
    prop_assert_eq!(json(loaded), json(&read(&commented)?), "{}", commented);
    Ok(again)
}

/// The names of all that a model keeps, with their shapes.
fn variables(loaded: &Loaded) -> Vec<String> {
    let data = input::describe(&loaded.experiment).expect("made-up data");
    let backend = CpuBackend::new(Some(1)).expect("a CPU");
    let sizes = Sizes { train: vec![2.into()], ..Sizes::default() };
    let built = programs::build(&loaded.experiment, &data, &sizes, &backend, &PassOptions::default());
    let built = built.unwrap_or_else(|errors| {
        panic!("{}\n{}", config::text::diagnostics::render(&loaded.sources, &errors, false), config::to_toml(loaded))
    });
    built.plan.variables.iter().map(|(_, v)| format!("{} {:?}", v.name, v.shape)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_configuration_repeats(seed: u64) {
        let text = random::any(seed);
        if let Some(loaded) = load(&text)? {
            repeats(&loaded)?;
        }
    }

    /// An editor marks nothing in a file that is right.
    #[test]
    fn every_configuration_fits_the_schema(seed: u64) {
        let text = random::any(seed);
        if let Some(loaded) = load(&text)? {
            for text in [&text, &config::to_toml(&loaded)] {
                let found = problems(validator(), text);
                prop_assert!(found.is_empty(), "{found:#?}\n{text}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_parameters_have_the_same_names(seed: u64) {
        let text = random::fitting(seed);
        let set = ["precision=fp32".to_owned()];
        if load(&text)?.is_some() {
            let loaded = config::load_str("random", &text, &set).expect("just now");
            prop_assert_eq!(variables(&loaded), variables(&repeats(&loaded)?), "{}", text);
        }
    }
}

#[test]
fn most_random_configurations_are_taken() {
    for make in [random::any, random::fitting] {
        let taken = (0..200).filter(|&seed| matches!(load(&make(seed)), Ok(Some(_)))).count();
        assert!(taken > 60, "{taken} of 200");
    }
}

/// Names that are what would stand there without one, and blocks where one layer is expected.
#[test]
fn names_that_are_the_default_are_kept() {
    let text = r#"
[data]
source = "synthetic"
shape = [4, 6, 6]
classes = 3
[blocks.unit]
layers = [{ name = "conv", type = "conv2d", out_channels = 4, kernel_size = 1 }]
[model]
layers = [
  { name = "0", type = "residual", layers = [{ type = "conv2d", out_channels = 4, kernel_size = 1 }] },
  { name = "1", type = "branches", combine = "add", branches = [{ block = "unit" }, { block = "unit" }, "identity"] },
  { type = "residual", layers = [{ name = "2", type = "conv2d", out_channels = 8, kernel_size = 1 }], projection = { block = "unit", repeat = 2 } },
  { name = "projection", type = "residual", layers = ["relu"] },
  { type = "adaptive_avg_pool2d", output_size = 1 },
  "flatten",
  { type = "linear", out_features = 3 },
]
[loss]
type = "cross_entropy"
[optimizer]
type = "sgd"
lr = 0.1
[train]
epochs = 1
"#;
    let text = text.replace("out_channels = 8", "out_channels = 4, stride = 2");
    let text = text.replace("repeat = 2 }", "repeat = 2, first = { stride = 2 } }");
    let text = text.replace("[blocks.unit]\n", "[blocks.unit]\nparams = { stride = 1 }\n");
    let text = text.replace("kernel_size = 1 }]\n[model]", "kernel_size = 1, stride = \"$stride\" }]\n[model]");
    let loaded = config::load_str("names", &text, &[]).unwrap_or_else(|failure| panic!("{failure}"));
    let again = repeats(&loaded).unwrap_or_else(|error| panic!("{error}"));
    let names = variables(&loaded);
    assert_eq!(names, variables(&again));
    for name in [
        "0.0.weight",
        "1.0.conv.weight",
        "1.1.conv.weight",
        "2.weight",
        "projection.0.conv.weight",
        "projection.1.conv.bias",
    ] {
        assert!(names.iter().any(|n| n.starts_with(&format!("{name} "))), "{name}: {names:?}");
    }
}

/// Until a device was asked for it, the size of the batch stays what was written.
#[test]
fn an_automatic_batch_size_repeats() {
    let text = "[data]\nsource = \"digits\"\nbatch_size = \"auto\"\n[model]\nlayers = [\"flatten\"]\n[loss]\n\
                type = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n";
    let loaded = config::load_str("auto", text, &[]).unwrap_or_else(|failure| panic!("{failure}"));
    let again = repeats(&loaded).unwrap_or_else(|error| panic!("{error}"));
    assert!(again.experiment.data.auto_batch_size);
    let mut again = again;
    again.experiment.set_batch_size(7);
    assert_eq!(again.experiment.data.loading.eval_batch_size(), 7);
    assert!(config::to_toml(&again).contains("batch_size = 7\neval_batch_size = 7"), "{}", config::to_toml(&again));
}
