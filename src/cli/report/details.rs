//! What is reported of a run besides its figures: its configuration with origins, its layers, its memory, its time.

use crate::api::failure::Failure;
use crate::api::memory::{Planned, resolve_batch};
use crate::api::model::{build, carried_by, describe_data, hold, kept_sample};
use crate::backend::Backend;
use crate::checkpoint::{self, Meta};
use crate::cli::args::{Overrides, ReportArgs};
use crate::cli::bench;
use crate::config::{self, Loaded};
use crate::data::DataSpec;
use crate::passes::PassOptions;
use crate::runs::Run;
use crate::train::files::state::Extra;
use crate::train::setup::device::{Selected, Wanted, select};
use crate::train::setup::input;
use crate::train::setup::memory::{Needs, Use};
use crate::train::setup::photos::PhotoPlan;
use crate::train::setup::programs::Sizes;
use anyhow::anyhow;

/// A key of the configuration.
pub struct Setting {
    /// Its name.
    pub key: String,
    /// Its value as TOML.
    pub value: String,
    /// Where it comes from: the command line, the configuration, the default.
    pub origin: &'static str,
}

/// The layers and the memory of a run.
pub struct Model {
    /// Path, type, output, parameters, FLOPs of a forward pass.
    pub layers: Vec<[String; 5]>,
    /// Parameters: those that are trained, and all.
    pub parameters: (usize, usize),
    /// Classes of memory and their bytes.
    pub memory: Vec<(String, usize)>,
    /// Where memory is fullest.
    pub peak: String,
    /// The device that it was planned for.
    pub device: String,
}

/// What a training step takes.
pub struct Timing {
    /// Milliseconds of a step, and samples in it.
    pub step: (f64, usize),
    /// Milliseconds, operation, whether it is of the backward pass, layer, GFLOP/s; the slowest first.
    pub rows: Vec<(f64, String, bool, String, Option<f64>)>,
}

/// The configuration of a run, with the values that the command line gives.
///
/// # Errors
/// It is not one of this version.
pub fn loaded(run: &Run, overrides: &Overrides) -> Result<Loaded, Failure> {
    let name = match run.checkpoint() {
        Some(path) => carried_by(&path),
        None => run.path.join("config.toml").display().to_string(),
    };
    let mut loaded = config::load_effective(&name, &run.config_text, &overrides.sets())?;
    if let Some(meta) = meta(run) {
        hold(&mut loaded, &meta);
    }
    Ok(loaded)
}

/// Refuses a device that the command line asks for and that is not there. Where the run's own is not there, the report does without what it is needed for.
///
/// # Errors
/// It is not there.
pub fn expect_device(run: &Run, args: &ReportArgs) -> Result<(), Failure> {
    match loaded(run, &args.overrides) {
        Ok(loaded) if args.overrides.names_device() => {
            Ok(select(&Wanted::of(&loaded.experiment, args.threads)).map(drop)?)
        }
        _ => Ok(()),
    }
}

/// What the run's checkpoint says of it.
fn meta(run: &Run) -> Option<Meta> {
    run.checkpoint().and_then(|path| checkpoint::peek(&path).ok())
}

/// What the run's samples look like. Their number is that of the data, where it is there.
fn samples(run: &Run, loaded: &Loaded) -> Result<DataSpec, Failure> {
    let kept = || meta(run).and_then(|meta| kept_sample(&meta));
    describe_data(loaded).or_else(|failure| kept().ok_or(failure))
}

/// The values of a configuration but for the layers, with their origins.
pub fn settings(run: &Run) -> Vec<Setting> {
    let sets = meta(run).and_then(|meta| Some(Extra::of(&meta)?.started.sets)).unwrap_or_default();
    let set = |key: &str| {
        sets.iter().filter_map(|set| set.split_once('=')).any(|(given, _)| {
            let given = given.trim();
            key == given || key.strip_prefix(given).is_some_and(|rest| rest.starts_with('.'))
        })
    };
    let whole =
        |text: &str| config::load_effective("config.toml", text, &[]).ok().map(|loaded| config::to_toml(&loaded));
    let complete = whole(&run.config_text);
    // What is the same without its line is the default.
    let is_default = |at: usize| {
        let kept = run.config_text.lines().enumerate().filter(|(line, _)| *line != at);
        let text: String = kept.map(|(_, line)| format!("{line}\n")).collect();
        complete.is_some() && whole(&text) == complete
    };
    let mut section = String::new();
    let mut out = Vec::new();
    for (at, line) in run.config_text.lines().enumerate() {
        if line == "layers = [" {
            break;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
        } else if let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            let key = format!("{section}{key}");
            let origin = if set(&key) {
                "command line"
            } else if is_default(at) {
                "default"
            } else {
                "configuration"
            };
            out.push(Setting { key, value: value.to_owned(), origin });
        }
    }
    out
}

/// The device of a run.
fn device(loaded: &Loaded, args: &ReportArgs) -> Result<Box<dyn Backend>, Failure> {
    let Selected { backend, .. } = select(&Wanted::of(&loaded.experiment, args.threads))?;
    Ok(backend)
}

/// Layers and memory, as `check` shows them.
///
/// # Errors
/// The data cannot be described, or the device is not there.
pub fn model(run: &Run, args: &ReportArgs) -> Result<Model, Failure> {
    let mut loaded = loaded(run, &args.overrides)?;
    let backend = device(&loaded, args)?;
    let data = samples(run, &loaded)?;
    let passes = PassOptions::default();
    resolve_batch(&mut loaded, &data, backend.as_ref(), &passes)?;
    let experiment = &loaded.experiment;
    let programs = build(&loaded, &data, &Sizes::of_run(experiment, &data), backend.as_ref(), &passes)?;
    let photos = PhotoPlan::new(experiment, &data, true);
    let planned = Planned {
        loaded: &loaded,
        data: &data,
        plan: &programs.plan,
        backend: backend.as_ref(),
        what: Use::Training,
        needs: Needs::of_run(experiment, &data, photos.with(input::footprint(experiment)), true),
        passes: &passes,
    };
    let memory = planned.memory()?;
    let row = |row: &crate::model::LayerRow| {
        let path = if row.path.is_empty() { "(model)".to_owned() } else { row.path.clone() };
        let number = |n: u64| if n == 0 { String::new() } else { crate::terminal::thousands(n) };
        [path, row.kind.clone(), row.output.to_string(), number(row.params as u64), number(row.flops)]
    };
    let mut classes: Vec<(String, usize)> = memory
        .classes()
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(name, bytes)| (name.to_owned(), bytes))
        .collect();
    classes.push(("total".into(), memory.summary.total));
    Ok(Model {
        layers: programs.rows.iter().map(row).collect(),
        parameters: programs.parameters(),
        memory: classes,
        peak: crate::api::memory::peak_place(&memory.summary),
        device: backend.describe(),
    })
}

/// The times of a step's operations, as `bench --profile` measures them.
///
/// # Errors
/// As [`model`]; there is not enough memory.
pub fn timing(run: &Run, args: &ReportArgs) -> Result<Timing, Failure> {
    let mut loaded = loaded(run, &args.overrides)?;
    let backend = device(&loaded, args)?;
    let data = samples(run, &loaded)?;
    resolve_batch(&mut loaded, &data, backend.as_ref(), &PassOptions::default())?;
    let profile = bench::profile_of(&loaded, &data, backend.as_ref())?;
    let nodes = profile["nodes"].as_array().ok_or_else(|| anyhow!("nothing was measured"))?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let rows = nodes.iter().map(|node| {
        let gflops = node["gflops"].as_f64().filter(|g| *g > 0.0);
        let backward = node["backward"].as_bool().unwrap_or_default();
        (node["ms"].as_f64().unwrap_or(0.0), text(&node["op"]), backward, text(&node["layer"]), gflops)
    });
    Ok(Timing {
        step: (profile["step_ms"].as_f64().unwrap_or(0.0), loaded.experiment.data.loading.batch_size),
        rows: rows.collect(),
    })
}
