//! How long training, evaluation and checkpoints take, measured on some. What is learnt is thrown away.

use super::{eval_options, train_options};
use crate::backend::{Backend, HostBuffer};
use crate::config::Experiment;
use crate::data::{Loader, LoaderOptions, Position, Split};
use crate::model::Mode;
use crate::train::files::folder::file;
use crate::train::files::state::{RunState, save};
use crate::train::setup::session::{Session, StepInputs};
use crate::train::setup::slots;
use anyhow::{Context, Result};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is not measured: updates that begin with full slots, cold caches, a GPU's graph that is captured.
const WARM: u64 = 3;
/// At least so much is measured, if it does not take more than [`MOST`].
const LEAST: (u64, Duration) = (5, Duration::from_secs(2));
/// The longest time for a warm-up or a measurement that is begun.
const MOST: Duration = Duration::from_secs(10);

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// Updates, or batches of an evaluation.
    pub steps: u64,
    /// Samples in them.
    pub samples: u64,
    /// Seconds from the first one's begin to the last one's end.
    pub seconds: f64,
    /// Seconds of these in which there was no batch to go on with.
    pub waited: f64,
}

/// Checkpoints that are written for a measurement, if that does not take long.
const SAVES: u32 = 3;

/// A checkpoint that was written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saved {
    /// Seconds until it was durable.
    pub seconds: f64,
    /// Its size.
    pub bytes: u64,
}

/// Times the writing of a checkpoint into `folder`, where it is left. `config` is the effective configuration.
///
/// # Errors
/// It cannot be written, or the device failed.
pub fn time_saving(session: &mut Session, experiment: &Experiment, config: &str, folder: &Path) -> Result<Saved> {
    let (path, mut state) = (folder.join(file::LAST), RunState::default());
    let (began, mut written) = (Instant::now(), 0);
    while written == 0 || written < SAVES && began.elapsed() < LEAST.1 {
        save(session, &mut state, config, experiment.seed, &[&path])?;
        written += 1;
    }
    let seconds = began.elapsed().as_secs_f64() / f64::from(written);
    let size = std::fs::metadata(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(Saved { seconds, bytes: size.len() })
}

/// Times updates on `split`, as training makes them: also what it takes to make their batches.
///
/// # Errors
/// A batch could not be made, or the device failed.
pub fn time_training(
    session: &mut Session,
    backend: &dyn Backend,
    experiment: &Experiment,
    split: &Split,
) -> Result<Timed> {
    let layout = session.programs.plan.slot.clone();
    let buffers: Vec<HostBuffer> =
        (0..slots::training(experiment)).map(|_| backend.host_buffer(layout.bytes)).collect::<Result<_>>()?;
    let mut loader = Loader::start(split, train_options(experiment, None), &layout, buffers, Position::default())?;
    session.set_frozen(experiment.model.thaw_after.is_some_and(|after| after > 0));
    let (batches, together) = (loader.batches_per_epoch() as u64, experiment.micro_batches() as u64);
    let (mut batch_number, mut losses, mut held) = (0, Vec::new(), None);
    let mut inputs = StepInputs {
        lr: experiment.optimizer.rule.lr() as f32,
        lr_floor: 0.0,
        grad_scale: 1.0,
        seed: experiment.seed,
        micro_step: 0,
    };
    // As in training a batch is made, and given to the device, while the one before is still at work.
    let mut update = |session: &mut Session, timed: &mut Timed| -> Result<()> {
        let group = together.min(batches - batch_number);
        for k in 0..group {
            session.set_shard(k as usize, group as usize);
            let asked = Instant::now();
            let mut batch = loader.next()?.context("the loader ended")?;
            timed.waited += asked.elapsed().as_secs_f64();
            timed.samples += batch.shape.samples as u64;
            session.train(batch.slot, &mut batch.buffer, batch.shape, inputs)?;
            if experiment.updates_apart() && k + 1 == group {
                session.wait_slot(batch.slot)?;
                session.update(batch.slot, &mut batch.buffer, inputs)?;
            }
            inputs.micro_step += 1;
            if let Some(old) = held.replace(batch) {
                session.wait_slot(old.slot)?;
                loader.release(old);
            }
        }
        batch_number = (batch_number + group) % batches;
        timed.steps += 1;
        losses.clear();
        session.losses(false, &mut losses)
    };
    let mut timed = Timed { steps: 0, samples: 0, seconds: 0.0, waited: 0.0 };
    let mut warm = timed;
    let began = Instant::now();
    while warm.steps < WARM.max(slots::training(experiment) as u64) && (warm.steps == 0 || began.elapsed() < MOST) {
        update(session, &mut warm)?;
    }
    session.losses(true, &mut Vec::new())?;
    let began = Instant::now();
    while timed.steps == 0 || began.elapsed() < MOST && (timed.steps < LEAST.0 || began.elapsed() < LEAST.1) {
        update(session, &mut timed)?;
    }
    session.losses(true, &mut Vec::new())?;
    timed.seconds = began.elapsed().as_secs_f64();
    Ok(timed)
}

/// Times the evaluation of `split`, or of a part of it where the whole takes long.
///
/// # Errors
/// As [`time_training`].
pub fn time_evaluation(
    session: &mut Session,
    backend: &dyn Backend,
    experiment: &Experiment,
    split: &Split,
) -> Result<Timed> {
    let options = eval_options(experiment);
    // The first batch warms up: its time counts where there is no other.
    let mut timed = Timed { steps: 0, samples: 0, seconds: 0.0, waited: 0.0 };
    for measured in [false, true] {
        timed = Timed { steps: 0, samples: 0, seconds: 0.0, waited: 0.0 };
        let began = Instant::now();
        let layout = session.programs.plan.slot.clone();
        let buffers: Vec<HostBuffer> =
            (0..options.slots).map(|_| backend.host_buffer(layout.bytes)).collect::<Result<_>>()?;
        let loading = LoaderOptions {
            batch_size: options.batch_size,
            batches_together: 1,
            own: None,
            shuffle: false,
            drop_last: false,
            seed: options.seed,
            workers: options.workers,
            transforms: options.transforms.clone(),
            mixing: None,
            end_epoch: Some(1),
        };
        session.reset_figures(Mode::Eval)?;
        let mut loader = Loader::start(split, loading, &layout, buffers, Position::default())?;
        loop {
            let asked = Instant::now();
            let Some(batch) = loader.next()? else { break };
            timed.waited += asked.elapsed().as_secs_f64();
            session.evaluate(batch.slot, &batch.buffer, batch.shape)?;
            session.wait_slot(batch.slot)?;
            timed.steps += 1;
            timed.samples += batch.shape.samples as u64;
            loader.release(batch);
            if !measured || began.elapsed() > MOST {
                break;
            }
        }
        // They come when the device is done.
        session.figures(Mode::Eval)?;
        timed.seconds = began.elapsed().as_secs_f64();
    }
    Ok(timed)
}
