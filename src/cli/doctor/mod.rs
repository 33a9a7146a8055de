//! `runner doctor`: what this machine is, on a page for a bug report.

mod machine;
mod places;

use super::args::DoctorArgs;
use super::devices::Devices;
use super::version::{COMMIT, COMPILER, FEATURES, TARGET, VERSION};
use super::{bench, human_bytes, print, print_json};
use crate::api::failure::Failure;
use crate::api::model::describe_data;
use crate::api::train::ranks::join_over_mpi;
use crate::config;
use crate::config::language::values::Device;
use crate::files::caches;
use crate::files::host_memory::host_memory;
use crate::train::setup::device::{Wanted, select};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A convolution, a layer, ten classes: small enough to be timed anywhere in a second.
const TINY: &str = "seed = 1\n[data]\nsource = \"synthetic\"\nshape = [1, 28, 28]\nclasses = 10\nbatch_size = 64\n\
    [model]\nlayers = [{ type = \"conv2d\", out_channels = 16, kernel_size = 3, padding = 1 }, \"relu\", { type = \"max_pool2d\", kernel_size = 2 }, \
    \"flatten\", { type = \"linear\", out_features = 10 }]\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n";
/// Steps that are timed.
const STEPS: u32 = 20;

/// Variables of the environment that change what is done, besides those whose names begin with `RUNNER_`.
const VARIABLES: [&str; 6] =
    ["CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "TMPDIR", "OMP_NUM_THREADS", "LD_PRELOAD"];

/// Says what there is.
pub(super) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let devices = Devices::ask();
    let system = machine::system();
    let limits = machine::limits();
    let memory = host_memory();
    let places = places();
    let variables = variables();
    let steps = if args.no_timing { Vec::new() } else { timed(&devices) };
    if args.output.json {
        let mut all = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "commit": (!COMMIT.is_empty()).then_some(COMMIT),
            "features": FEATURES.split_whitespace().collect::<Vec<_>>(),
            "mpi": join_over_mpi().is_some(),
            "target": TARGET,
            "compiler": COMPILER,
            "system": of_pairs(&system),
            "limits": of_pairs(&limits),
            "threads": threads(),
            "memory": memory.as_ref().map(|memory| json!({ "available": memory.available, "because": memory.because })),
            "file_systems": places.iter().map(|(what, place)| place.json(what)).collect::<Vec<_>>(),
            "variables": of_pairs(&variables),
            "steps": steps.iter().map(|(device, time)| match time {
                Ok(ms) => json!({ "device": device, "step_ms": ms }),
                Err(why) => json!({ "device": device, "problem": why }),
            }).collect::<Vec<_>>(),
        });
        if let (Value::Object(all), Value::Object(found)) = (&mut all, devices.json()) {
            all.extend(found);
        }
        print_json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!(
        "runner {VERSION}\n  built by  {COMPILER}\n  MPI       {}\n",
        if join_over_mpi().is_some() { "yes" } else { "no" }
    );
    let mut section = |name: &str, rows: &[(String, String)]| {
        let width = rows.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
        text.push_str(&format!("{name}\n"));
        for (label, value) in rows {
            text.push_str(&format!("  {label:width$}  {value}\n"));
        }
    };
    section("system", &system);
    let mut rows = vec![("threads".to_owned(), threads().to_string())];
    if let Some(memory) = &memory {
        rows.push(("memory".into(), format!("{} for this program: {}", human_bytes(memory.available), memory.because)));
    }
    rows.extend(limits);
    section("limits", &rows);
    section("file systems", &places.iter().map(|(what, place)| ((*what).to_owned(), place.text())).collect::<Vec<_>>());
    if !variables.is_empty() {
        section("environment", &variables);
    }
    let rows = steps.iter().map(|(device, time)| {
        let shown = match time {
            Ok(ms) => format!("{ms:.3} ms"),
            Err(why) => format!("failed: {why}"),
        };
        (device.clone(), shown)
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        section(&format!("a training step (convolution and linear layer, 64 samples; median of {STEPS})"), &rows);
    }
    text.push_str(&devices.text());
    print(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn of_pairs(pairs: &[(String, String)]) -> Value {
    pairs.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))).collect::<serde_json::Map<_, _>>().into()
}

/// Compute threads by default.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The folders that are written to, and what they are on.
fn places() -> Vec<(&'static str, places::Place)> {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let all = [("here", Some(here)), ("cache", caches::folder()), ("temporary", Some(std::env::temp_dir()))];
    all.into_iter().filter_map(|(what, path)| Some((what, places::Place::of(path?)))).collect()
}

fn variables() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("RUNNER_") || VARIABLES.contains(&name.as_str()))
        .map(|(name, value)| {
            // What proves to ranks that they belong together is not for a bug report.
            let value = if name == "RUNNER_SECRET" { "(set)".to_owned() } else { value.to_string_lossy().into_owned() };
            (name, value)
        })
        .collect();
    found.sort_unstable();
    found
}

/// The time of a step of a tiny model on each device, in milliseconds; or why there is none.
fn timed(devices: &Devices) -> Vec<(String, Result<f64, String>)> {
    let gpus = devices.gpus().into_iter().map(|gpu| (format!("cuda:{gpu}"), Device::Cuda(gpu)));
    let all = [("cpu".to_owned(), Device::Cpu)].into_iter().chain(gpus);
    all.map(|(name, device)| {
        let time = || -> Result<f64, Failure> {
            let loaded = config::load_str("tiny", TINY, &[])?;
            let data = describe_data(&loaded)?;
            let backend = select(&Wanted::plain(device, None))?.backend;
            bench::step_ms(&loaded, &data, backend.as_ref(), STEPS)
        };
        (name, time().map_err(|failure| failure.in_words()))
    })
    .collect()
}

/// A file of the system, if there is one.
fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
