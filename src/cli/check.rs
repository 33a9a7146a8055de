//! `runner check`.

use super::args::{CheckArgs, OutputArgs};
use super::cache;
use super::human_bytes;
use super::recompute::Gain;
use super::show::table::{column_json, lines};
use super::sweep;
use super::time;
use crate::api::failure::Failure;
use crate::api::generate::{Kept, kept};
use crate::api::memory::{self, Planned, resolve_batch, table};
use crate::api::model::{build_run, describe_data, device, load_config, read_weights, say_notes};
use crate::api::pretrained;
use crate::api::train::{Team, ranks};
use crate::backend::{Backend, DeviceError};
use crate::config::language::values::Device;
use crate::config::text::diagnostics::to_json;
use crate::config::{self, Loaded};
use crate::data::DataSpec;
use crate::data::table::Shown;
use crate::passes::{FORWARD, PassOptions};
use crate::terminal::{say, thousands};
use crate::train::setup::depth::LayerRate;
use crate::train::setup::input;
use crate::train::setup::memory::{MemoryPlan, Needs, Use};
use crate::train::setup::muon::Split;
use crate::train::setup::photos::PhotoPlan;
use crate::train::setup::programs::pass_names;
use crate::train::setup::programs::{Kind, Programs, graph_after};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// Columns of a table that are shown.
const COLUMNS: usize = 40;

/// Validates a configuration and shows what training it would take.
pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let mut loaded = load_config(&args.config, &args.overrides.sets())?;
    let written = (loaded.experiment.device, loaded.experiment.devices.clone());
    let mut backend = device_or_cpu(&mut loaded, args)?;
    let ranks = match &loaded.experiment.devices {
        None => args.ranks.map(usize::from),
        Some(_) => Some(
            ranks::spread(&mut loaded.experiment, Team::Threads(args.ranks.map_or(1, usize::from)), false)?.threads(),
        ),
    };
    if args.time && ranks.is_some_and(|ranks| ranks > 1) {
        return Err(Failure::Usage(
            "`--time` measures one rank that is alone\nhelp: leave out `--ranks`, and name one `device` instead of `devices`".into(),
        ));
    }
    if let Some(ranks) = ranks {
        backend = ranks::planned(&loaded.experiment, ranks, backend.as_ref())?;
    }
    let data = describe_data(&loaded)?;
    let passes = args.passes.options();
    if let Some(note) = resolve_batch(&mut loaded, &data, backend.as_ref(), &passes)? {
        say(&note);
    }
    let experiment = &loaded.experiment;
    let programs = build_run(&loaded, &data, backend.as_ref(), &passes, &[])?;
    say_notes(backend.as_ref());
    match pretrained::missing(experiment) {
        // Nothing is fetched to look at a file.
        Some(named) => say(&format!(
            "weights: `{}` is not here yet, and `runner train` fetches it: whether it fits is not known",
            named.name
        )),
        None => drop(read_weights(&loaded, &programs.plan.variables, &data)?),
    }
    if let Some(name) = &args.graph {
        let text = graph(&loaded, &data, backend.as_ref(), passes, name)?;
        show("graph", &text, args.output)?;
    } else if args.print {
        (loaded.experiment.device, loaded.experiment.devices) = written;
        show("config", &config::print_with_origins(&loaded), args.output)?;
    } else {
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
        let refusal = planned.refusal(&memory);
        let sets = args.overrides.sets();
        let trials = match &experiment.sweep {
            Some(_) if refusal.is_none() => Some(sweep::examine(&args.config, &sets, backend.as_ref(), &passes)?),
            _ => None,
        };
        let written = kept(experiment, &data, backend.as_ref())?;
        let gain = Gain::of(&loaded, &data, backend.as_ref(), &passes, &programs)?;
        // The programs of the measurement take the place of these.
        let warnings = [&loaded.warnings[..], &programs.warnings].concat();
        let times = match args.time && refusal.is_none() {
            true => Some(time::measure(&loaded, &passes, backend.as_ref(), &warnings)?),
            false => None,
        };
        let largest = if times.is_some() { planned.largest() } else { None };
        let notes = input::table_notes(experiment)?;
        let columns = input::table_columns(experiment).transpose()?;
        if args.output.json {
            let mut json = as_json(&loaded, &programs, &memory, &backend.describe());
            json["notes"] = notes.into();
            if let Some(columns) = &columns {
                json["columns"] = columns.iter().map(column_json).collect();
            }
            if let Some(ranks) = ranks {
                let [threads, processes] = [true, false].map(|threads| memory.of_ranks(ranks, threads));
                json["memory"]["ranks"] = json!({ "count": ranks, "threads": threads, "processes": processes });
            }
            if let Some(Kept { bytes, tokens, total }) = written {
                json["memory"]["generate"] = json!({ "kept": bytes, "tokens": tokens, "total": total });
            }
            if let Some(kept) = cache::as_json(experiment, &photos) {
                json["cache"] = kept;
            }
            if let Some(filed) = cache::filed_as_json(experiment, &planned.needs.data) {
                json["disk"] = filed;
            }
            if let Some(gain) = &gain {
                json["recompute"] = gain.as_json();
            }
            if let Some(times) = &times {
                json["time"] = times.as_json();
                json["memory"]["largest_batch"] = largest.into();
            }
            if let Some((_, trials)) = &trials {
                json["sweep"] = trials.clone();
            }
            if let Some((what, help)) = &refusal {
                json["errors"] = json!([{ "severity": "error", "message": what, "help": help }]);
            }
            super::print_json(&json)?;
            if refusal.is_some() {
                return Ok(ExitCode::from(super::failure::DEVICE));
            }
        } else {
            // The measurement has opened the table, and shown the notes.
            if times.is_none() {
                notes.iter().for_each(|note| say(&format!("note: {note}")));
            }
            let of_each = ranks.map_or(String::new(), |ranks| format!(", of each of {ranks} ranks"));
            let mut text = columns.map_or(String::new(), |columns| columns_as_text(&columns, &args.config));
            text += &as_text(&loaded, &programs, &memory, &format!("{}{of_each}", backend.describe()));
            if let Some(ranks) = ranks {
                let [threads, processes] = [true, false].map(|threads| human_bytes(memory.of_ranks(ranks, threads)));
                text += &format!("{ranks} ranks on one machine: {threads} as threads, {processes} as processes\n");
            }
            if let Some(Kept { bytes, tokens, total }) = written {
                let of = tokens.map_or("the layers' states".into(), |n| {
                    format!("keys and values of {} tokens", thousands(n as u64))
                });
                let [bytes, total] = [bytes, total].map(human_bytes);
                text += &format!("`generate` takes {total} for a text, of which {bytes} are {of}\n");
            }
            let trials = trials.map_or(String::new(), |(text, _)| format!("\n{text}"));
            let times = times.map_or(String::new(), |times| format!("\n{}", times.as_text(&backend.describe())));
            let gain = gain.map_or(String::new(), |gain| format!("{}\n", gain.as_text()));
            let largest = largest.map_or(String::new(), |n| {
                let all = if data.train == Some(n) { ", which are all" } else { "" };
                format!("the largest batch that there is memory for: {} samples{all}\n", thousands(n as u64))
            });
            let kept = cache::as_text(experiment, &photos) + &cache::filed_as_text(experiment, &planned.needs.data);
            super::print(&format!("{text}{largest}{gain}{kept}{times}{trials}"))?;
            if let Some((what, help)) = refusal {
                return Err(DeviceError(format!("{what}\nhelp: {help}")).into());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The device of a configuration. A file may be for another machine: where it names a device that is not there, the CPU is looked at, with a warning. One that the command line
/// names has to be there.
fn device_or_cpu(loaded: &mut Loaded, args: &CheckArgs) -> Result<Box<dyn Backend>, Failure> {
    match device(&loaded.experiment, None) {
        Err(Failure::Device(error)) if !args.time && !args.overrides.names_device() => {
            loaded.experiment.device = Device::Cpu;
            loaded.experiment.devices = None;
            let message = error.to_string();
            let message = message.lines().next().unwrap_or_default();
            say(&format!("warning: {message}: the model is checked for the CPU, and its memory is that of the CPU"));
            device(&loaded.experiment, None)
        }
        other => other,
    }
}

/// The columns of a table and what becomes of them, before the layers; of very many the first ones.
fn columns_as_text(columns: &[Shown], config: &Path) -> String {
    let left = columns.len().saturating_sub(COLUMNS);
    let mut text = lines(&columns[..columns.len() - left]).join("\n") + "\n";
    if left > 0 {
        text += &format!("and {} more: `runner data show {}`\n", thousands(left as u64), config.display());
    }
    text + "\n"
}

/// Prints a text, as JSON in an object with that one key.
fn show(key: &str, text: &str, output: OutputArgs) -> Result<(), Failure> {
    if output.json { super::print_json(&json!({ key: text })) } else { super::print(text) }
}

/// The training graph on `backend` after pass `name` (or `forward`: before any), without the passes that `options` leaves out.
fn graph(
    loaded: &Loaded,
    data: &DataSpec,
    backend: &dyn Backend,
    options: PassOptions,
    name: &str,
) -> Result<String, Failure> {
    let names = pass_names(false);
    if name != FORWARD && !names.contains(&name) {
        let names = names.join(", ");
        return Err(Failure::Usage(format!("there is no pass `{name}`; choose {FORWARD}, {names}")));
    }
    let options = PassOptions { stop_after: Some(name.to_owned()), ..options };
    graph_after(&loaded.experiment, data, backend, &options)
        .map(|g| g.to_string())
        .map_err(|diagnostics| Failure::Config { sources: loaded.sources.clone(), diagnostics })
}

fn as_json(loaded: &Loaded, programs: &Programs, memory: &MemoryPlan, device: &str) -> Value {
    let layers: Vec<Value> = programs
        .rows
        .iter()
        .map(|r| json!({ "name": r.path, "type": r.kind, "output": r.output.dims(), "parameters": r.params, "flops": r.flops }))
        .collect();
    let (trainable, all) = programs.parameters();
    let warnings = [&loaded.warnings[..], &programs.warnings].concat();
    let rates: serde_json::Map<String, Value> =
        programs.decays.iter().map(|rate| (rate.layer.clone(), rate.share.into())).collect();
    let mut report = json!({
        "layers": layers,
        "parameters": all,
        "trainable_parameters": trainable,
        "batch_size": largest_batch(loaded, programs),
        "flops": programs.rows.iter().map(|r| r.flops).sum::<u64>(),
        "memory": memory::as_json(memory),
        "device": device,
        "warnings": to_json(&loaded.sources, &warnings),
    });
    if !rates.is_empty() {
        report["layer_decay"] = rates.into();
    }
    if let Some(Split { muon: [tensors, elements], adamw }) = &programs.split {
        report["muon"] = json!({ "tensors": tensors, "parameters": elements, "left_to_adamw": adamw });
    }
    report
}

/// The batch that shapes and FLOPs are shown for: smaller than `batch_size` where there are fewer samples.
fn largest_batch(loaded: &Loaded, programs: &Programs) -> usize {
    let trained = programs.kinds.iter().filter(|(kind, _)| *kind == Kind::Train).map(|(_, batch)| batch.samples);
    trained.max().unwrap_or(loaded.experiment.data.loading.batch_size)
}

/// A number of operations as it is shown: `1.23 G`.
fn flops(n: u64) -> String {
    match n {
        0 => String::new(),
        1..1_000_000 => format!("{:.1} k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.2} G", n as f64 / 1e9),
    }
}

fn as_text(loaded: &Loaded, programs: &Programs, memory: &MemoryPlan, device: &str) -> String {
    let mut rows = vec![["layer", "type", "output", "parameters", "FLOPs"].map(str::to_string)];
    rows.extend(programs.rows.iter().map(|r| {
        let params = if r.params == 0 { String::new() } else { thousands(r.params as u64) };
        let name = if r.path.is_empty() { "(model)".to_string() } else { r.path.clone() };
        [name, r.kind.clone(), r.output.to_string(), params, flops(r.flops)]
    }));
    let widths: Vec<usize> = (0..5).map(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    for r in &rows {
        line(format!(
            "{:<w0$}  {:<w1$}  {:<w2$}  {:>w3$}  {:>w4$}",
            r[0],
            r[1],
            r[2],
            r[3],
            r[4],
            w0 = widths[0],
            w1 = widths[1],
            w2 = widths[2],
            w3 = widths[3],
            w4 = widths[4]
        ));
    }
    let (trainable, all) = programs.parameters();
    let total: u64 = programs.rows.iter().map(|r| r.flops).sum();
    let batch = largest_batch(loaded, programs);
    line(String::new());
    let thawed = thousands(programs.thawed as u64);
    let trained = match loaded.experiment.model.thaw_after {
        Some(1) => format!(", {thawed} of them from the second epoch on"),
        Some(after) => format!(", {thawed} of them trained from epoch {} on", after + 1),
        None if trainable == all => String::new(),
        None => format!(", {} of them trained", thousands(trainable as u64)),
    };
    line(format!(
        "{} parameters{trained}; {}FLOPs forward for a batch of {batch}",
        thousands(all as u64),
        flops(total)
    ));
    if let Some(Split { muon: [tensors, elements], adamw }) = &programs.split {
        let also = if adamw.is_empty() { String::new() } else { format!(", with {}", adamw.join(", ")) };
        let s = if *tensors == 1 { "x" } else { "ces" };
        line(format!(
            "muon updates {tensors} matri{s} with {} parameters, adamw the rest{also}",
            thousands(*elements as u64)
        ));
    }
    if !programs.decays.is_empty() {
        line(String::new());
        line("learning rates by `layer_decay`, from the last layer down".into());
        let width = programs.decays.iter().map(|rate| rate.layer.chars().count()).max().unwrap_or(0);
        for LayerRate { layer, share } in programs.decays.iter().rev() {
            let lr = loaded.experiment.optimizer.rule.lr() * share;
            line(format!("  {layer:<width$}  {lr:.3e}  ({share:.3} of `lr`)"));
        }
    }
    line(String::new());
    line(format!("memory on {device}"));
    table(memory).into_iter().for_each(&mut line);
    out
}
