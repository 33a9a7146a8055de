//! `runner bench`.

use super::args::BenchArgs;
use super::failure::Failure;
use super::model::{build, describe_data, device, load_config};
use crate::backend::Backend;
use crate::config::values::Device;
use crate::data::TargetSpec;
use crate::graph::op::Linear;
use crate::graph::{DType, Fill, Graph, Input, Role, Shape, VarKind, Variable, Variables};
use crate::plan::{Plan, Source};
use crate::random::{Purpose, Stream};
use crate::train::programs::{Kind, Sizes};
use crate::train::session::{Session, StepInputs};
use anyhow::Context;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Steps before the clock starts.
const WARM_UP: u32 = 3;

/// Times what was asked for.
pub(super) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    if args.what == "matmul" { matmul(args) } else { step(args) }
}

/// Median, smallest and largest of some times in milliseconds.
struct Times {
    median: f64,
    min: f64,
    max: f64,
}

impl Times {
    fn of(mut list: Vec<f64>) -> Times {
        list.sort_by(f64::total_cmp);
        let n = list.len();
        let median = if n.is_multiple_of(2) { (list[n / 2 - 1] + list[n / 2]) / 2.0 } else { list[n / 2] };
        Times { median, min: list[0], max: list[n - 1] }
    }
}

/// Runs `f` until warm, then `steps` times; milliseconds.
fn time(steps: u32, mut f: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Times> {
    for _ in 0..WARM_UP {
        f()?;
    }
    let mut list = Vec::with_capacity(steps as usize);
    for _ in 0..steps {
        let start = Instant::now();
        f()?;
        list.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Times::of(list))
}

/// The training step on a made-up batch.
fn step(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let loaded = load_config(Path::new(&args.what), &args.overrides.sets())?;
    let experiment = &loaded.experiment;
    let backend = device(experiment, args.threads)?;
    let data = describe_data(&loaded)?;
    let batch = experiment.data.loading.batch_size;
    let sizes = Sizes { train: vec![batch], ..Sizes::default() };
    let programs = build(&loaded, &data, &sizes, backend.as_ref())?;
    let layout = programs.plan.slot.clone();
    let mut buffer = backend.host_buffer(layout.bytes)?;
    let mut random = Stream::new(experiment.seed, Purpose::Synthetic, 0, 0);
    for input in &layout.inputs {
        let n = input.shape.len();
        let bytes: Vec<u8> = match (input.input, input.dtype) {
            (Input::Data, DType::U8) => (0..n).map(|_| random.next_u32() as u8).collect(),
            (Input::Targets, DType::I32) => {
                let classes = if let TargetSpec::Classes(c) = data.targets { c.max(1) as u32 } else { 1 };
                (0..n).flat_map(|_| (random.below(classes) as i32).to_ne_bytes()).collect()
            }
            (Input::Data | Input::Targets, DType::F32) => {
                (0..n).flat_map(|_| (random.normal() as f32).to_ne_bytes()).collect()
            }
            _ => continue,
        };
        buffer.bytes_mut()[input.offset..input.offset + bytes.len()].copy_from_slice(&bytes);
    }
    let task = crate::build::task(experiment);
    let mut session = Session::new(programs, backend.as_ref(), task, experiment.seed)?;
    let mut inputs = StepInputs {
        lr: experiment.optimizer.rule.lr() as f32,
        lr_floor: 0.0,
        grad_scale: 1.0 / experiment.train.accumulate as f32,
        seed: experiment.seed,
        micro_step: 0,
    };
    let accumulate = experiment.train.accumulate > 1;
    let times = time(args.steps, || {
        inputs.micro_step += 1;
        session.train(0, &mut buffer, batch, inputs)?;
        session.wait_slot(0)?;
        // With accumulation every step is timed with its update, the dearest case.
        if accumulate {
            session.update(0, &mut buffer, inputs)?;
            session.wait_slot(0)?;
        }
        session.train_loss(batch).map(|_| ())
    })?;
    let profile =
        if args.profile { Some(profile(&mut session, &mut buffer, batch, inputs, args.steps)?) } else { None };
    let samples_per_s = batch as f64 * 1e3 / times.median;
    if args.output.json {
        let mut out = json!({
            "config": args.what,
            "device": backend.describe(),
            "batch_size": batch,
            "steps": args.steps,
            "step_ms": times.median,
            "step_ms_min": times.min,
            "step_ms_max": times.max,
            "samples_per_s": samples_per_s,
            "peak_bytes": session.peak_bytes() + layout.bytes,
        });
        if let Some(rows) = &profile {
            out["nodes"] = rows.iter().map(|r| json!({ "layer": r.layer, "op": r.op, "backward": r.backward, "ms": r.ms, "gflops": r.gflops() })).collect();
        }
        super::print_json(&out)?;
    } else {
        let mut text = format!(
            "{} on {}, batch of {batch}: {:.3} ms a step (median of {}, {:.3} to {:.3}), {:.0} samples/s\n",
            args.what,
            backend.describe(),
            times.median,
            args.steps,
            times.min,
            times.max,
            samples_per_s
        );
        for r in profile.iter().flatten() {
            let side = if r.backward { "backward" } else { "" };
            let speed = if r.flops > 0 { format!("{:.0} GFLOP/s", r.gflops()) } else { String::new() };
            text.push_str(format!("  {:>9.3} ms  {:<24} {:<9} {:<28} {speed}", r.ms, r.op, side, r.layer).trim_end());
            text.push('\n');
        }
        super::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The time of one operation of the step.
struct Row {
    layer: String,
    op: String,
    backward: bool,
    ms: f64,
    flops: u64,
}

impl Row {
    fn gflops(&self) -> f64 {
        self.flops as f64 / self.ms / 1e6
    }
}

/// The median time of every operation, the slowest first.
fn profile(
    session: &mut Session,
    buffer: &mut crate::backend::HostBuffer,
    batch: usize,
    inputs: StepInputs,
    steps: u32,
) -> Result<Vec<Row>, Failure> {
    let runs = (0..steps).map(|_| session.profile(buffer, batch, inputs)).collect::<anyhow::Result<Vec<_>>>()?;
    let program = session.programs.find(Kind::Train, batch).context("there is no training program")?;
    let graph = &session.programs.plan.programs[program].graph;
    let mut rows: Vec<Row> = graph
        .nodes
        .iter()
        .enumerate()
        .map(|(i, node)| {
            let values = |list: &[crate::graph::ValueId]| list.iter().map(|v| graph.value(*v)).collect::<Vec<_>>();
            let rules = node.op.rules();
            Row {
                layer: graph.origin(node).to_string(),
                op: rules.name().to_string(),
                backward: node.backward,
                ms: Times::of(runs.iter().map(|r| r[i] * 1e3).collect()).median,
                flops: rules.flops(&values(&node.inputs), &values(&node.outputs)),
            }
        })
        .collect();
    rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    Ok(rows)
}

/// A product of two square matrices of `--n` rows.
fn matmul(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let wanted = match &args.overrides.device {
        Some(d) => d.parse::<Device>().map_err(Failure::Usage)?,
        None => Device::Auto,
    };
    if !args.overrides.set.is_empty() {
        return Err(Failure::Usage("`bench matmul` has no configuration to --set values in".into()));
    }
    let backend: Box<dyn Backend> = crate::train::device::select(wanted, args.threads)?;
    let n = args.n as usize;
    let mut variables = Variables::new();
    let init = Fill::Uniform { bound: 1.0 };
    let b = variables.get_or_add(Variable { init, ..Variable::zeros("b", DType::F32, [n, n], VarKind::Parameter) });
    let mut graph = Graph::new();
    let a = graph.input(Input::Data, DType::F32, Shape::from([n, n]));
    let b_value = graph.variable(&variables, b);
    let c = graph.add1(Linear { bias: false, act: None }, &[a, b_value]).map_err(anyhow::Error::new)?;
    graph.values[c.index()].role = Role::Output;
    let source = Source { name: "matmul".into(), graph, loss: None, prediction: Some(c) };
    let plan = Arc::new(Plan::new(Arc::new(variables), vec![source], |g, node| backend.workspace(g, node)));
    let mut executable = backend.compile(plan.clone())?;
    executable.upload(b, &crate::build::init::initial(&plan.variables[b], 1))?;
    let mut buffer = backend.host_buffer(plan.slot.bytes)?;
    let mut random = Stream::new(1, Purpose::Synthetic, 1, 0);
    for chunk in buffer.bytes_mut().as_chunks_mut::<4>().0 {
        *chunk = (random.uniform() as f32 - 0.5).to_ne_bytes();
    }
    let times = time(args.steps, || {
        executable.run(0, 0, &buffer)?;
        executable.wait_slot(0)
    })?;
    let gflops = 2.0 * (n as f64).powi(3) / times.median / 1e6;
    if args.output.json {
        super::print_json(&json!({
            "n": n,
            "device": backend.describe(),
            "ms": times.median,
            "ms_min": times.min,
            "ms_max": times.max,
            "gflops": gflops,
        }))?;
    } else {
        super::print(&format!(
            "{n} × {n} × {n} on {}: {:.2} ms (median of {}), {gflops:.0} GFLOP/s",
            backend.describe(),
            times.median,
            args.steps
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
