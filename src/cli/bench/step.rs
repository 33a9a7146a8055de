//! `runner bench CONFIG`: the training step, or with `--eval` the evaluation of a batch, on made-up batches.

use super::profile::Profile;
use super::{Times, WARM_UP, chrome, product};
use crate::api::failure::{Failure, warn};
use crate::api::memory::resolve_batch;
use crate::api::model::{build, describe_data, device, load_config, read_files, say_notes};
use crate::api::what::{expect_apart, expect_no_input, expect_no_run_file, output};
use crate::backend::{Backend, Detail, HostBuffer, Span, Track};
use crate::cli::args::BenchArgs;
use crate::cli::human_bytes;
use crate::config::language::values::Precision;
use crate::config::{Diagnostic, Loaded};
use crate::data::DataSpec;
use crate::graph::DType;
use crate::model::Mode;
use crate::passes::PassOptions;
use crate::terminal::{Stream, fitting, say};
use crate::train::setup::precision::{half, supported};
use crate::train::setup::programs::{Kind, Sizes};
use crate::train::setup::session::{Session, StepInputs};
use crate::train::setup::synthetic_batch;
use anyhow::Context;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Host buffers that batches are given in, in turn: as in training, one is filled while the other is read.
const BUFFERS: usize = 2;

/// Rounds of a device that is not waited for at every step.
const ROUNDS: usize = 5;

/// Least duration of a round in seconds, so that filling and draining the pipeline weigh nothing.
const ROUND_SECONDS: f64 = 0.1;

/// Times the step of the configuration that is named.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let trace = args.trace.as_deref().map(output).transpose()?;
    let mut loaded = load_config(Path::new(&args.what), &args.overrides.sets())?;
    if let Some(trace) = &trace {
        expect_apart(trace, "--trace", args.output.json)?;
        expect_no_input(trace, read_files(&loaded).iter().map(PathBuf::as_path))?;
        expect_no_run_file(trace)?;
    }
    let backend = device(&loaded.experiment, args.threads)?;
    let data = describe_data(&loaded)?;
    let passes = args.passes.options();
    if let Some(note) = resolve_batch(&mut loaded, &data, backend.as_ref(), &passes)? {
        say(&note);
    }
    let (mut bench, warnings) = Bench::new(&loaded, &data, backend.as_ref(), &passes, args.eval)?;
    warn(&loaded.sources, &warnings);
    say_notes(backend.as_ref());
    let experiment = &loaded.experiment;
    let (plan, batch) = (bench.session.programs.plan.clone(), bench.batch * bench.shards);

    let (times, steps, parts) = if backend.is_asynchronous() {
        let (times, steps) = bench.pipelined(args.steps)?;
        let spans = bench.trace(args.steps.max(2), Detail::Programs)?;
        (times, steps, Some(Parts::of(&spans)))
    } else {
        (bench.one_by_one(args.steps)?, args.steps, None)
    };
    let profile = if args.profile {
        let spans = bench.trace(args.steps, Detail::Nodes)?;
        let peak = product::best(backend.as_ref(), product_type(experiment.precision, backend.as_ref()))?;
        Some(Profile::new(&plan, &spans, peak))
    } else {
        None
    };
    if let Some(out) = &trace {
        let spans = bench.trace(args.trace_steps, Detail::Nodes)?;
        let title = format!("{}{} on {}", args.what, args.passes.note(), backend.describe());
        let events = chrome::events(&plan, &spans, &title).to_string();
        let name = out.path().display();
        out.put(events.as_bytes()).with_context(|| format!("cannot write `{name}`"))?;
        if !out.is_standard_output() {
            say(&format!("the trace is in `{name}`: open it in Perfetto or chrome://tracing"));
        }
    }

    // When all has been run, so that graphs, kernels and libraries have what they take.
    let used = bench.session.device_use()?;
    let samples_per_s = batch as f64 * 1e3 / times.median;
    if args.output.json {
        let mut out = json!({
            "config": args.what,
            "device": backend.describe(),
            "program": if args.eval { "eval" } else { "train" },
            "batch_size": batch,
            "steps": steps,
            "step_ms": times.median,
            "step_ms_min": times.min,
            "step_ms_max": times.max,
            "samples_per_s": samples_per_s,
            "peak_bytes": bench.session.peak_bytes() + plan.slot.bytes,
        });
        if !args.passes.without.is_empty() {
            out["without"] = args.passes.names().into();
        }
        if let Some(parts) = parts {
            out["rounds"] = ROUNDS.into();
            out["transfer_ms"] = parts.transfer.into();
            out["compute_ms"] = parts.compute.into();
            out["wait_ms"] = parts.wait.into();
        }
        if let Some(used) = used {
            out["device_memory"] = json!({
                "total": used.total,
                "free_at_start": used.free_at_start,
                "free": used.free,
                "planned": used.planned,
                "beside": used.beside(),
            });
        }
        if let Some(profile) = &profile {
            profile.add_json(&mut out);
        }
        crate::cli::print_json(&out)?;
    } else {
        let of = if parts.is_some() { format!("{ROUNDS} rounds of {steps} steps") } else { steps.to_string() };
        let mut text = format!(
            "{}{} on {}, {}batch of {batch}: {:.3} ms a step (median of {of}, {:.3} to {:.3}), {:.0} samples/s\n",
            args.what,
            args.passes.note(),
            backend.describe(),
            if args.eval { "evaluation, " } else { "" },
            times.median,
            times.min,
            times.max,
            samples_per_s
        );
        if let Some(Parts { transfer, compute, wait }) = parts {
            text.push_str(&format!(
                "  a step's transfer: {transfer:.3} ms (beside the computing); computing: {compute:.3} ms; waiting: {wait:.3} ms\n"
            ));
        }
        if let Some(used) = used {
            text.push_str(&format!(
                "  memory: {} planned; {} more have gone since the start, for kernels, graphs and libraries or to others\n",
                human_bytes(used.planned),
                human_bytes(used.beside()),
            ));
        }
        if let Some(profile) = &profile {
            text.push_str(&profile.text(fitting(Stream::Out), args.all));
        }
        crate::cli::print_beside(trace.as_ref(), &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// As [`super::profile_of`], of so many steps.
///
/// # Errors
/// As there.
pub fn profile_of(
    loaded: &Loaded,
    data: &DataSpec,
    backend: &dyn Backend,
    steps: u32,
) -> Result<serde_json::Value, Failure> {
    let (mut bench, _) = Bench::new(loaded, data, backend, &PassOptions::default(), false)?;
    let times = match backend.is_asynchronous() {
        true => bench.pipelined(steps)?.0,
        false => bench.one_by_one(steps)?,
    };
    let spans = bench.trace(steps, Detail::Nodes)?;
    // Beside what a product of matrices reaches nothing is shown.
    let profile = Profile::new(&bench.session.programs.plan.clone(), &spans, (f64::INFINITY, 0));
    let mut out = json!({ "step_ms": times.median });
    profile.add_json(&mut out);
    Ok(out)
}

/// The median of the times of some training steps, in milliseconds.
pub fn step_ms(loaded: &Loaded, data: &DataSpec, backend: &dyn Backend, steps: u32) -> Result<f64, Failure> {
    let (mut bench, _) = Bench::new(loaded, data, backend, &PassOptions::default(), false)?;
    Ok(if backend.is_asynchronous() { bench.pipelined(steps)?.0 } else { bench.one_by_one(steps)? }.median)
}

/// The type that products are computed in.
fn product_type(precision: Precision, backend: &dyn Backend) -> DType {
    half(supported(precision, backend), backend).unwrap_or(DType::F32)
}

/// A session that steps are run on.
struct Bench {
    session: Session,
    /// [`Kind::Train`] or [`Kind::Eval`].
    kind: Kind,
    buffers: Vec<HostBuffer>,
    batch: usize,
    inputs: StepInputs,
    /// Every step is timed with its update, the dearest case.
    accumulate: bool,
    /// Shards of a step, of `batch` samples each.
    shards: usize,
    losses: Vec<f32>,
}

impl Bench {
    /// A step of an experiment, or with `eval` the evaluation of a batch, on the device; also what there is to be warned of.
    fn new(
        loaded: &Loaded,
        data: &DataSpec,
        backend: &dyn Backend,
        passes: &PassOptions,
        eval: bool,
    ) -> Result<(Bench, Vec<Diagnostic>), Failure> {
        let experiment = &loaded.experiment;
        let loading = &experiment.data.loading;
        let (kind, batch, sizes) = if eval {
            let batch = loading.eval_batch_size();
            (Kind::Eval, batch, Sizes { eval: vec![batch.into()], ..Sizes::default() })
        } else {
            let batch = experiment.micro_batch();
            (Kind::Train, batch, Sizes { train: vec![batch.into()], ..Sizes::default() })
        };
        let programs = build(loaded, data, &sizes, backend, passes)?;
        let (warnings, plan) = (programs.warnings.clone(), programs.plan.clone());
        let mut buffers = Vec::new();
        for number in 0..if backend.is_asynchronous() { BUFFERS } else { 1 } {
            let mut buffer = backend.host_buffer(plan.slot.bytes)?;
            synthetic_batch::fill(&mut buffer, &plan.slot, &data.fields, experiment.seed, number as u64);
            buffers.push(buffer);
        }
        let task = crate::model::task(experiment);
        let session = Session::new(programs, backend, task, experiment.seed)?;
        let inputs = StepInputs {
            lr: experiment.optimizer.rule.lr() as f32,
            lr_floor: 0.0,
            grad_scale: 1.0,
            seed: experiment.seed,
            micro_step: 0,
        };
        let accumulate = experiment.updates_apart();
        let shards = if eval { 1 } else { experiment.shards() };
        Ok((Bench { session, kind, buffers, batch, inputs, accumulate, shards, losses: Vec::new() }, warnings))
    }

    /// Gives one step to the device.
    fn step(&mut self) -> anyhow::Result<()> {
        let slot = self.inputs.micro_step as usize % self.buffers.len();
        let buffer = &mut self.buffers[slot];
        self.session.wait_slot(slot)?;
        if self.kind == Kind::Eval {
            self.session.evaluate(slot, buffer, self.batch)?;
        } else {
            for shard in 0..self.shards {
                self.session.wait_slot(slot)?;
                self.session.set_shard(shard, self.shards);
                self.session.train(slot, buffer, self.batch, self.inputs)?;
            }
        }
        if self.accumulate && self.kind == Kind::Train {
            self.session.wait_slot(slot)?;
            self.session.update(slot, buffer, self.inputs)?;
        }
        self.inputs.micro_step += 1;
        Ok(())
    }

    fn take_losses(&mut self, wait: bool) -> anyhow::Result<()> {
        if self.kind == Kind::Eval {
            // An evaluation has no losses of its own: its figures come when all its batches are done.
            return if wait { self.session.figures(Mode::Eval).map(drop) } else { Ok(()) };
        }
        self.losses.clear();
        self.session.losses(wait, &mut self.losses)
    }

    /// Every step from its beginning to its end.
    fn one_by_one(&mut self, steps: u32) -> anyhow::Result<Times> {
        super::time(steps, || {
            self.step()?;
            self.take_losses(true)
        })
    }

    /// Steps as training gives them to a device, without waiting for each: rounds from the first one's beginning to the
    /// last one's end, in milliseconds a step. Also the number of steps in a round, at least `steps`.
    fn pipelined(&mut self, steps: u32) -> anyhow::Result<(Times, u32)> {
        let mut round = |steps: u32| -> anyhow::Result<f64> {
            let start = Instant::now();
            for _ in 0..steps {
                self.step()?;
                self.take_losses(false)?;
            }
            self.take_losses(true)?;
            Ok(start.elapsed().as_secs_f64() / f64::from(steps))
        };
        round(WARM_UP)?;
        let estimate = round(steps)?;
        let steps = steps.max((ROUND_SECONDS / estimate).ceil() as u32);
        let rounds = (0..ROUNDS).map(|_| Ok(round(steps)? * 1e3)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok((Times::of(rounds), steps))
    }

    fn trace(&mut self, steps: u32, detail: Detail) -> anyhow::Result<Vec<Span>> {
        let spans =
            self.session.trace(self.kind, &mut self.buffers[0], self.batch, self.inputs, steps as usize, detail)?;
        self.take_losses(true)?;
        Ok(spans)
    }
}

/// What a step's time is made of, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Parts {
    /// Batches on their way to the device, beside the computing of other steps.
    transfer: f64,
    /// Programs running.
    compute: f64,
    /// Between a program and the next: nothing runs.
    wait: f64,
}

impl Parts {
    /// Means over the steps of a trace of programs. What comes before the first program, while there is nothing to run
    /// yet, does not count.
    fn of(spans: &[Span]) -> Parts {
        let steps = spans.iter().map(|s| s.step + 1).max().unwrap_or(1) as f64;
        let on = |track| spans.iter().filter(move |s| s.track == track);
        let sum = |track| on(track).map(Span::seconds).sum::<f64>();
        let computing: Vec<&Span> = on(Track::Compute).collect();
        let gaps: f64 = computing.windows(2).map(|pair| pair[1].start - pair[0].end).sum();
        // Within a step there may be gaps too, but the last step has none after it.
        let between = (steps - 1.0).max(1.0);
        Parts {
            transfer: sum(Track::CopyIn) / steps * 1e3,
            compute: sum(Track::Compute) / steps * 1e3,
            wait: gaps / between * 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Work;

    #[test]
    fn a_step_is_taken_apart() {
        let span = |step, track, work, start, end| Span { step, program: 0, track, work, start, end };
        let spans = [
            span(0, Track::CopyIn, Work::Batch, 0.0, 0.25),
            span(0, Track::Compute, Work::Program, 0.25, 1.25),
            span(1, Track::CopyIn, Work::Batch, 0.25, 0.75),
            span(1, Track::Compute, Work::Program, 1.25, 2.25),
            span(2, Track::CopyIn, Work::Batch, 1.25, 2.5),
            span(2, Track::Compute, Work::Program, 2.75, 4.0),
            span(2, Track::ReadBack, Work::Losses, 4.0, 5.0),
        ];
        let parts = Parts::of(&spans);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(parts.transfer, 2000.0 / 3.0), "{parts:?}");
        assert!(close(parts.compute, 3250.0 / 3.0), "{parts:?}");
        assert!(close(parts.wait, 250.0), "{parts:?}");
    }
}
