//! One pass over samples with a model as it is.

use super::by_sample::{evaluate_by_sample, leave_out_replaced};
use super::parts::Parts;
use crate::backend::{Backend, HostBuffer};
use crate::data::{Batch, BatchError, Loader, LoaderOptions, Position, Split, Transform, Unread};
use crate::graph::op::Figure;
use crate::model::Mode;
use crate::train::setup::figures::Figures;
use crate::train::setup::programs::Kind;
use crate::train::setup::scores::{Scores, with_perplexity};
use crate::train::setup::session::Session;
use anyhow::{Context, Result};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why there are no figures although all losses are finite.
pub const NOTHING_COUNTS: &str = "no target counts: all of them are the loss's `ignore_index`, of classes whose `weight` is 0, or of samples whose \
     `sample_weight` is 0";

/// How to evaluate.
#[derive(Debug, Clone)]
pub struct EvalOptions {
    /// Samples in a batch.
    pub batch_size: usize,
    /// Loader threads.
    pub workers: usize,
    /// Batch slots.
    pub slots: usize,
    /// Changes to every sample.
    pub transforms: Vec<Transform>,
    /// Keys the draws of the transforms.
    pub seed: u64,
}

/// What an evaluation has come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The figures.
    pub figures: Figures,
    /// What must be said of them: of which classes there was nothing to compute them from, how many samples are left out.
    pub notes: Vec<String>,
    /// Samples whose loss is not finite.
    pub not_finite: u64,
}

/// Evaluates `split`; `None` if `interrupt` came before the end. `progress` is called with the number of samples done, `unread`
/// records those that could not be read.
///
/// # Errors
/// Samples cannot be read ([`Unusable`](super::unusable::Unusable)), the loss is not finite for any sample, or the device failed.
pub fn evaluate(
    session: &mut Session,
    backend: &dyn Backend,
    split: &Split,
    options: &EvalOptions,
    interrupt: &AtomicBool,
    unread: &mut Unread,
    mut progress: impl FnMut(u64),
) -> Result<Option<Evaluation>> {
    let mut done = 0;
    let mut see = |_: &mut Session, batch: &Batch| {
        done += batch.shape.samples as u64;
        progress(done);
        Ok(())
    };
    evaluate_batches(session, backend, split, options, interrupt, unread, &mut see)
}

/// As [`evaluate`]. `see` is called with every batch after it has been evaluated, when its predictions can be read.
///
/// # Errors
/// As [`evaluate`]; `see` fails.
pub fn evaluate_batches(
    session: &mut Session,
    backend: &dyn Backend,
    split: &Split,
    options: &EvalOptions,
    interrupt: &AtomicBool,
    unread: &mut Unread,
    see: &mut dyn FnMut(&mut Session, &Batch) -> Result<()>,
) -> Result<Option<Evaluation>> {
    session.reset_figures(Mode::Eval)?;
    let (mut parts, mut loader) = begin(session, backend, split, options)?;
    let mut scores = Scores::new(&session.programs, split.len());
    let mut outputs = Vec::new();
    let (mut stopped, mut unusable) = (false, None);
    loop {
        let mut batch = match loader.next() {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            // The other ranks come to know of it at the end of theirs.
            Err(error) => {
                unusable = Some(error.downcast::<BatchError>()?.why);
                break;
            }
        };
        stopped = interrupt.load(Ordering::Relaxed);
        if stopped {
            break;
        }
        parts.begin(session, batch.position.batch)?;
        parts.met(batch.unreadable(), unread, split.len())?;
        session.evaluate(batch.slot, &batch.buffer, batch.shape)?;
        session.wait_slot(batch.slot)?;
        if let Some(scores) = &mut scores {
            session.outputs(Kind::Eval, batch.shape, &mut outputs)?;
            let targets = session.programs.targets(&batch.buffer, batch.shape);
            let [outputs, targets] =
                [&outputs[..], targets].map(|rows| without(batch.replaced(), rows, batch.shape.samples));
            parts.take(scores, &outputs, &targets, batch.shape.samples - batch.replaced().len());
        }
        see(session, &batch)?;
        leave_out_replaced(session, &mut batch)?;
        loader.release(batch);
    }
    if !parts.end(session, stopped, unusable, scores.as_mut(), (unread, split.len()))? {
        return Ok(None);
    }
    let mut not_finite = NotFinite::default();
    let (mut figures, batches) = session.figures(Mode::Eval)?;
    if batches > 0 {
        // Once more, and slower: all ranks know of it.
        drop(loader);
        let Some(found) = by_sample(session, backend, split, options, interrupt)? else { return Ok(None) };
        not_finite = found;
        (figures, not_finite.samples) = session.figures(Mode::Eval)?;
    }
    let figures = figures.context(if not_finite.samples > 0 {
        "the loss is not finite for any sample"
    } else {
        NOTHING_COUNTS
    })?;
    // The sums leave such samples out; the loss over all is no number.
    let figures = if not_finite.samples > 0 { figures.with(Figure::Loss, f64::NAN) } else { figures };
    let figures = with_perplexity(figures, &session.programs);
    let naive = session.programs.forecasts_numbers.then(|| split.naive_errors()).flatten();
    let figures = figures.and_of_naive(naive);
    let names = session.programs.class_names.as_slice();
    let (figures, mut notes) = match scores {
        Some(scores) => scores.finish(figures, names),
        None => (figures, Vec::new()),
    };
    notes.extend(not_finite.in_words(split));
    Ok(Some(Evaluation { figures, notes, not_finite: not_finite.samples }))
}

/// The bytes of `samples` rows but for those that are `replaced`.
fn without<'a>(replaced: &[usize], bytes: &'a [u8], samples: usize) -> Cow<'a, [u8]> {
    if replaced.is_empty() {
        return Cow::Borrowed(bytes);
    }
    let rows = bytes.chunks_exact((bytes.len() / samples.max(1)).max(1)).enumerate();
    Cow::Owned(rows.filter(|(row, _)| !replaced.contains(row)).flat_map(|(_, bytes)| bytes).copied().collect())
}

/// The parts of an evaluation, and its batches.
fn begin(session: &Session, backend: &dyn Backend, split: &Split, options: &EvalOptions) -> Result<(Parts, Loader)> {
    let layout = session.programs.plan.slot.clone();
    let buffers: Vec<HostBuffer> =
        (0..options.slots).map(|_| backend.host_buffer(layout.bytes)).collect::<Result<_>>()?;
    let parts = Parts::new(session, backend, split.len().div_ceil(options.batch_size.max(1)))?;
    let loading = LoaderOptions {
        batch_size: options.batch_size,
        batches_together: 1,
        own: parts.own(),
        shuffle: false,
        drop_last: false,
        seed: options.seed,
        workers: options.workers,
        transforms: options.transforms.clone(),
        mixing: None,
        end_epoch: Some(1),
    };
    let loader = Loader::start(split, loading, &layout, buffers, Position::default())?;
    Ok((parts, loader))
}

/// Samples of an evaluation whose loss is not finite.
#[derive(Debug, Default)]
struct NotFinite {
    /// How many, on all ranks.
    samples: u64,
    /// The first that this rank has met, as a place in the split.
    first: Option<u32>,
}

impl NotFinite {
    fn in_words(&self, split: &Split) -> Option<String> {
        let name = |sample: u32| match split.name(sample as usize) {
            Some(name) => format!(" (the first is `{name}`)"),
            None => format!(" (the first is number {sample}, from 0)"),
        };
        let first = self.first.map_or(String::new(), name);
        let (verb, them) = if self.samples == 1 { ("is", "it") } else { ("are", "them") };
        (self.samples > 0).then(|| {
            format!(
                "{} of {} samples {verb} not finite{first}: the loss over all is no number, other figures leave {them} out",
                self.samples,
                split.len()
            )
        })
    }
}

/// Evaluates `split` anew, so that samples whose loss is not finite are left out one by one, and counted. `None` if it was interrupted.
fn by_sample(
    session: &mut Session,
    backend: &dyn Backend,
    split: &Split,
    options: &EvalOptions,
    interrupt: &AtomicBool,
) -> Result<Option<NotFinite>> {
    session.reset_figures(Mode::Eval)?;
    let (mut parts, mut loader) = begin(session, backend, split, options)?;
    let (mut found, mut stopped) = (NotFinite::default(), false);
    while let Some(mut batch) = loader.next()? {
        stopped = interrupt.load(Ordering::Relaxed);
        if stopped {
            break;
        }
        parts.begin(session, batch.position.batch)?;
        let bad = evaluate_by_sample(session, &mut batch)?;
        found.first = found.first.or_else(|| bad.first().map(|i| batch.samples()[*i]));
        loader.release(batch);
    }
    // Samples that cannot be read have been reported.
    let done = parts.end(session, stopped, None, None, (&mut Unread::default(), split.len()))?;
    Ok(done.then_some(found))
}
