//! What training comes to.

use runner::backend::cpu::CpuBackend;
use runner::backend::cpu::simd::SimdLevel;
use runner::backend::{Backend, HostBuffer};
use runner::config::Experiment;
use runner::data::{Loader, LoaderOptions, Position, Unread};
use runner::graph::op::Figure;
use runner::graph::{DType, VarKind, Variable};
use runner::model::Mode;
use runner::passes::PassOptions;
use runner::random::{Purpose, Stream};
use runner::train::run::eval_options;
use runner::train::run::evaluate::evaluate;
use runner::train::setup::input::{self, Samples};
use runner::train::setup::programs::{self, Sizes};
use runner::train::setup::schedule::{Schedule, updates};
use runner::train::setup::session::{Saved, Session, StepInputs};
use std::sync::atomic::AtomicBool;

/// How to compute what must not depend on it.
#[derive(Debug, Clone, PartialEq)]
pub struct How {
    pub level: SimdLevel,
    pub threads: usize,
    pub without: Vec<&'static str>,
    /// Draws for changes of the parameters at the start, of relative size [`NOISE`].
    pub noise: Option<u64>,
}

/// Sixteen times what rounding does to a number: sums of some hundred products, in any order, differ by no more.
pub const NOISE: f64 = 1.0 / (1 << 20) as f64;

/// Where a run led.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// The losses of all batches, and of the evaluation after each epoch; up to the first that is not finite.
    pub losses: Vec<f64>,
    /// Every variable before and after.
    pub states: [Vec<Saved>; 2],
    /// Updates done.
    pub steps: u64,
}

/// Trains through all epochs, as `runner train` does, or up to a loss that is not finite.
pub fn train(experiment: &Experiment, samples: &Samples, how: &How) -> Result<Trained, String> {
    let backend = CpuBackend::with_level(Some(how.threads), how.level);
    let sizes = Sizes::of_run(experiment, &samples.spec);
    let options = PassOptions { without: how.without.iter().map(|name| name.to_string()).collect(), stop_after: None };
    let programs = programs::build(experiment, &samples.spec, &sizes, &backend, &options)
        .map_err(|list| list.iter().map(|e| e.message.as_str()).collect::<Vec<_>>().join("; "))?;
    let task = runner::model::task(experiment);
    let mut session = Session::new(programs, &backend, task, experiment.seed).map_err(|e| format!("{e:#}"))?;
    if let Some(seed) = how.noise {
        disturb(&mut session, seed);
    }
    // Sums of figures over shards, which are not floats, are figures, too.
    let looked_at = |v: &Variable| match v.kind {
        VarKind::Metric => false,
        VarKind::Gradient | VarKind::Kept => v.dtype == DType::F32,
        _ => true,
    };
    let start = session.save(looked_at).expect("a device");
    let mut losses = Vec::new();
    let steps = epochs(experiment, samples, &backend, &mut session, &mut losses).map_err(|e| format!("{e:#}"))?;
    let end = session.save(looked_at).expect("a device");
    Ok(Trained { losses, states: [start, end], steps })
}

/// Changes every parameter a little.
fn disturb(session: &mut Session, seed: u64) {
    let plan = session.programs.plan.clone();
    for (at, saved) in session.save(|v| v.kind == VarKind::Parameter).expect("a device").into_iter().enumerate() {
        let id = plan.variables.find(&saved.name).expect("it was saved");
        let mut draw = Stream::new(seed, Purpose::Synthetic, 1, at as u64);
        let changed = floats(&saved).into_iter().map(|v| {
            let sign = if draw.below(2) == 0 { 1.0 } else { -1.0 };
            (v * (1.0 + sign * NOISE)) as f32
        });
        let bytes: Vec<u8> = changed.flat_map(f32::to_ne_bytes).collect();
        session.restore(id, &bytes).expect("as long as before");
    }
}

fn epochs(
    experiment: &Experiment,
    samples: &Samples,
    backend: &CpuBackend,
    session: &mut Session,
    losses: &mut Vec<f64>,
) -> anyhow::Result<u64> {
    let layout = session.programs.plan.slot.clone();
    let loading = &experiment.data.loading;
    let options = LoaderOptions {
        batch_size: experiment.micro_batch(),
        batches_together: experiment.shards(),
        own: None,
        shuffle: loading.shuffle,
        drop_last: loading.drop_last,
        seed: experiment.seed,
        workers: loading.workers,
        transforms: input::transforms(experiment, true),
        mixing: input::mixing(experiment),
        end_epoch: Some(experiment.train.length().epochs(updates(experiment, samples.train.len()))),
    };
    let slots = loading.prefetch.max(loading.workers) + 1;
    let buffers: Vec<HostBuffer> =
        (0..slots).map(|_| backend.host_buffer(layout.bytes)).collect::<anyhow::Result<_>>()?;
    let mut loader = Loader::start(&samples.train, options, &layout, buffers, Position::default())?;
    let batches = loader.batches_per_epoch() as u64;
    let schedule = Schedule::new(experiment, samples.train.len());
    let together = experiment.micro_batches() as u64;
    let never = AtomicBool::new(false);
    let (mut step, mut micro_step) = (0, 0);
    let (length, per_epoch) = (experiment.train.length(), updates(experiment, samples.train.len()));
    for epoch in 0..length.epochs(per_epoch) as usize {
        let mut batch = 0;
        while batch < batches && step < length.updates(per_epoch) {
            let group = together.min(batches - batch);
            let mut inputs = StepInputs {
                lr: schedule.lr(step, epoch) as f32,
                lr_floor: schedule.floor(step, epoch) as f32,
                grad_scale: 1.0,
                seed: experiment.seed,
                micro_step,
            };
            for k in 0..group {
                let mut made = loader.next()?.expect("the epoch has more batches");
                // To look at gradients changes nothing: what is compared is the same with and without.
                if session.has_gradient_programs() && micro_step == 0 {
                    session.gradients(&mut made.buffer, made.shape, inputs)?;
                }
                session.set_shard(k as usize, group as usize);
                session.train(made.slot, &mut made.buffer, made.shape, inputs)?;
                if experiment.updates_apart() && k + 1 == group {
                    session.wait_slot(made.slot)?;
                    session.update(made.slot, &mut made.buffer, inputs)?;
                }
                session.wait_slot(made.slot)?;
                loader.release(made);
                inputs.micro_step += 1;
            }
            micro_step += group;
            batch += group;
            let mut now = Vec::new();
            session.losses(true, &mut now)?;
            losses.extend(now.iter().map(|l| f64::from(*l)));
            if now.iter().any(|l| !l.is_finite()) {
                return Ok(step);
            }
            step += 1;
        }
        session.reset_figures(Mode::Train)?;
        let (val, options) = (&samples.val, eval_options(experiment));
        match evaluate(session, backend, val, &options, &never, &mut Unread::default(), |_| {}) {
            Ok(figures) => losses.push(figures.expect("not interrupted").figures.get(Figure::Loss).expect("a loss")),
            // It says that the loss is not finite, as an error.
            Err(_) => {
                losses.push(f64::NAN);
                return Ok(step);
            }
        }
    }
    Ok(step)
}

/// The numbers of a variable.
pub fn floats(saved: &Saved) -> Vec<f64> {
    assert_eq!(saved.dtype, DType::F32, "{}", saved.name);
    saved.bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_ne_bytes(*b))).collect()
}
