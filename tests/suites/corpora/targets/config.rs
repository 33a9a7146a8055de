//! Configurations.

use runner::backend::cpu::CpuBackend;
use runner::config::text::diagnostics;
use runner::config::{self, Experiment, Failure, LayerKind, LayerNode, Loaded, Severity};
use runner::graph::verify;
use runner::passes::PassOptions;
use runner::train::setup::input;
use runner::train::setup::programs::{self, Programs, Sizes};

/// A line that begins so is no comment but an override.
const SET: &str = "#--set ";

/// The text, and the overrides that stand in it.
fn parts(data: &[u8]) -> Option<(&str, Vec<String>)> {
    let text = std::str::from_utf8(data).ok()?;
    Some((text, text.lines().filter_map(|line| line.strip_prefix(SET)).map(str::to_owned).collect()))
}

fn json(loaded: &Loaded) -> serde_json::Value {
    serde_json::to_value(&loaded.experiment).expect("plain data")
}

/// Read, written, and read again: nothing is lost. What is refused is refused with a place.
pub fn config(data: &[u8]) -> bool {
    let Some((text, sets)) = parts(data) else { return false };
    match config::load_str("input", text, &sets) {
        Ok(loaded) => {
            repeats(&loaded);
            true
        }
        Err(failure) => {
            has_places(&failure);
            false
        }
    }
}

/// The effective configuration is the same experiment, and so is the one with comments.
pub fn repeats(loaded: &Loaded) {
    let written = config::to_toml(loaded);
    let again = config::load_str("input", &written, &[]).unwrap_or_else(|f| panic!("{f}\n{written}"));
    assert_eq!(json(loaded), json(&again), "{written}");
    assert_eq!(written, config::to_toml(&again));
    let commented = config::print_with_origins(loaded);
    let commented = config::load_str("input", &commented, &[]).unwrap_or_else(|f| panic!("{f}\n{commented}"));
    assert_eq!(json(loaded), json(&commented));
}

fn has_places(failure: &Failure) {
    assert!(failure.diagnostics.iter().any(|d| d.severity == Severity::Error));
    assert!(failure.diagnostics.iter().all(|d| d.span().is_some()), "{failure}");
    for color in [false, true] {
        assert!(!diagnostics::render(&failure.sources, &failure.diagnostics, color).is_empty());
    }
    assert!(diagnostics::to_json(&failure.sources, &failure.diagnostics).is_array());
}

/// From the text to planned programs, as `runner check` goes; without data that would be read.
pub fn check(data: &[u8]) -> bool {
    let Some((text, sets)) = parts(data) else { return false };
    let Ok(loaded) = config::load_str("input", text, &sets) else { return false };
    let Some(programs) = plan(&loaded.experiment) else { return false };
    for program in &programs.plan.programs {
        verify(&program.graph).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    }
    true
}

/// Layers in which the time goes elsewhere than into what is looked for.
pub const MOST_LAYERS: usize = 300;

/// The programs of an experiment that needs no files; `None` if it does, or has mistakes.
pub fn plan(experiment: &Experiment) -> Option<Programs> {
    use runner::config::language::sections::Source;
    if !matches!(experiment.data.source, Source::Synthetic(_) | Source::Digits(_)) || layers(experiment) > MOST_LAYERS {
        return None;
    }
    let data = input::describe(experiment).ok()?;
    let mut sizes = Sizes::of_run(experiment, &data);
    sizes.predict = vec![1.into()];
    let backend = CpuBackend::new(Some(1)).expect("a level");
    match programs::build(experiment, &data, &sizes, &backend, &PassOptions::default()) {
        Ok(programs) => Some(programs),
        Err(errors) => {
            for error in errors {
                assert!(!error.message.starts_with("internal"), "{}", error.message);
                assert!(error.span().is_some(), "{}", error.message);
            }
            None
        }
    }
}

/// How many layers there are, containers among them.
pub fn layers(experiment: &Experiment) -> usize {
    fn list(nodes: &[LayerNode]) -> usize {
        nodes.iter().map(one).sum()
    }
    fn one(node: &LayerNode) -> usize {
        1 + match &node.kind {
            LayerKind::Layer(_) => 0,
            LayerKind::Group(body) | LayerKind::Gate(body) => list(body),
            LayerKind::Residual { body, projection, .. } => list(body) + projection.as_deref().map_or(0, one),
            LayerKind::Branches { branches, .. } => list(branches),
        }
    }
    list(&experiment.model.layers)
}
