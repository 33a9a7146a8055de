//! Requests that are computed together. They wait in a queue of limited length; threads take what waits, as many samples as a batch has.
//!
//! A request that finds the device free is computed at once. Only where requests come in crowds, which shows in the batch before, those that are fewer than
//! a batch wait a little for others.

use super::metrics::ModelMetrics;
use super::refusal::Refusal;
use anyhow::{Context, Result};
use axum::http::StatusCode;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// What is computed: numbers for each sample, of the bytes of all samples for each field.
pub type Compute = dyn Fn(&[&[u8]], &mut [f32]) -> Result<()> + Send + Sync;
/// The numbers for the samples of a request, or why there are none.
pub type Computed = Result<Vec<f32>, String>;

/// How requests are put together.
#[derive(Debug, Clone, Copy)]
pub struct Together {
    /// Samples of a batch.
    pub batch: usize,
    /// How long one waits for others at most.
    pub delay: Duration,
    /// How many requests may wait.
    pub queue: usize,
    /// Batches that are computed at a time.
    pub threads: usize,
    /// Numbers for each sample.
    pub outputs: usize,
}

/// A request that waits.
struct Job {
    rows: Vec<Vec<u8>>,
    samples: usize,
    came: Instant,
    answer: oneshot::Sender<Computed>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    closed: bool,
    /// When a batch of several requests ended, if the last one was of several.
    crowd: Option<Instant>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    together: Together,
    metrics: Arc<ModelMetrics>,
}

/// The queue of a model. When it is dropped, what waits is still computed.
pub struct Batcher {
    shared: Arc<Shared>,
}

impl Batcher {
    /// With threads that compute.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(together: Together, compute: Arc<Compute>, metrics: Arc<ModelMetrics>) -> Result<Self> {
        let shared = Arc::new(Shared { waiting: Mutex::default(), changed: Condvar::new(), together, metrics });
        let batcher = Batcher { shared };
        for _ in 0..together.threads {
            let (shared, compute) = (Arc::clone(&batcher.shared), Arc::clone(&compute));
            let work = move || shared.work(&*compute);
            std::thread::Builder::new().name("batches".into()).spawn(work).context("cannot start a thread")?;
        }
        Ok(batcher)
    }

    /// Puts the samples of a request into the queue.
    ///
    /// # Errors
    /// It is full.
    pub fn submit(&self, rows: Vec<Vec<u8>>, samples: usize) -> Result<oneshot::Receiver<Computed>, Refusal> {
        let mut waiting = self.shared.lock();
        // Who has gone away does not take the place of others.
        waiting.jobs.retain(|job| !job.answer.is_closed());
        if waiting.jobs.len() >= self.shared.together.queue {
            let reason = format!("{} requests wait already (--queue): come again", waiting.jobs.len());
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, reason));
        }
        let (answer, receiver) = oneshot::channel();
        waiting.jobs.push_back(Job { rows, samples, came: Instant::now(), answer });
        self.shared.metrics.waiting(waiting.jobs.len());
        drop(waiting);
        self.shared.changed.notify_one();
        Ok(receiver)
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing under the lock can panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests of the next batch, once it is time for that; `None` at the end.
    fn next(&self) -> Option<Vec<Job>> {
        let Together { batch, delay, .. } = self.together;
        let mut waiting = self.lock();
        loop {
            waiting.jobs.retain(|job| !job.answer.is_closed());
            let Some(first) = waiting.jobs.front() else {
                if waiting.closed {
                    return None;
                }
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let samples: usize = waiting.jobs.iter().map(|job| job.samples).sum();
            let crowded = waiting.crowd.is_some_and(|ended| first.came.saturating_duration_since(ended) <= delay);
            let left = (first.came + delay).saturating_duration_since(Instant::now());
            if samples >= batch || waiting.closed || !crowded || left.is_zero() {
                break;
            }
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut jobs = Vec::new();
        let mut samples = 0;
        while let Some(job) = waiting.jobs.front() {
            if samples > 0 && samples + job.samples > batch {
                break;
            }
            samples += job.samples;
            jobs.extend(waiting.jobs.pop_front());
        }
        self.metrics.waiting(waiting.jobs.len());
        Some(jobs)
    }

    fn work(&self, compute: &Compute) {
        let outputs = self.together.outputs;
        // The samples of all requests of a batch, for each field.
        let mut joined: Vec<Vec<u8>> = Vec::new();
        while let Some(jobs) = self.next() {
            let samples: usize = jobs.iter().map(|job| job.samples).sum();
            let mut all = vec![0.0; samples * outputs];
            let begun = Instant::now();
            let rows: Vec<&[u8]> = match &jobs[..] {
                [job] => job.rows.iter().map(Vec::as_slice).collect(),
                jobs => {
                    joined.resize_with(jobs[0].rows.len(), Vec::new);
                    for (field, into) in joined.iter_mut().enumerate() {
                        into.clear();
                        jobs.iter().for_each(|job| into.extend_from_slice(&job.rows[field]));
                    }
                    joined.iter().map(Vec::as_slice).collect()
                }
            };
            let done = catch_unwind(AssertUnwindSafe(|| compute(&rows, &mut all)));
            self.metrics.computed(samples, jobs.len(), begun.elapsed());
            self.lock().crowd = (jobs.len() > 1).then(Instant::now);
            let failed = match done {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("the device failed: {error:#}")),
                Err(_) => Some("a fault of the program: its standard error has more".to_owned()),
            };
            let mut rest = &all[..];
            for job in jobs {
                let (own, others) = rest.split_at(job.samples * outputs);
                rest = others;
                // Who has gone away needs no answer.
                let _ = job.answer.send(failed.clone().map_or_else(|| Ok(own.to_vec()), Err));
            }
        }
    }
}

#[cfg(test)]
mod tests;
