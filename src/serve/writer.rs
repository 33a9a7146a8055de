//! A language model that answers requests: texts are written at a time, a token of each in every round, so that a short one does not wait for a long one.

use super::metrics::ModelMetrics;
use super::refusal::Refusal;
use super::served::How;
use crate::api::failure::Failure;
use crate::api::generate::{self, Finish, Generator, Request, Text};
use crate::api::model::Model;
use crate::data::text::{Chat, Tokenizer};
use crate::terminal::say;
use anyhow::Context;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Bytes of memory for each token of a prompt.
pub const TOKEN: usize = 16;
/// The same for each that is generated: its piece of text waits until the client takes it, and once more in the answer.
pub const WRITTEN: usize = 320;

/// What becomes of the texts of a request, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More of a text.
    Piece {
        /// Which one it is.
        text: usize,
        /// What is certain of it now.
        piece: String,
    },
    /// A text is done.
    End {
        /// Which one it is.
        text: usize,
        /// Why.
        finish: Finish,
        /// Tokens that were generated.
        tokens: usize,
    },
    /// The rest cannot be written.
    Failed(String),
}

/// A request that waits, or whose texts are being written.
struct Job {
    texts: VecDeque<Request>,
    events: UnboundedSender<Event>,
}

/// A request whose turn comes.
struct Active {
    job: Job,
    text: Option<Text>,
    /// Number of the text.
    number: usize,
    /// The place of its keys and values.
    place: usize,
    /// Nothing is left to be done.
    ended: bool,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    closed: bool,
}

struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// How many requests may wait.
    queue: usize,
    /// The last text could not be written.
    failed: AtomicBool,
    metrics: Arc<ModelMetrics>,
}

/// A language model that answers. When it is dropped, what waits is still written.
pub struct Writer {
    /// How text becomes tokens.
    pub tokenizer: Tokenizer,
    /// How conversations become text, if that is known.
    pub chat: Option<Chat>,
    /// The tokens that it may be given.
    pub vocabulary: usize,
    /// The most tokens that it looks back.
    pub capacity: usize,
    /// Most tokens of a text that is answered; `None`: texts are gone on with.
    longest_text: Option<usize>,
    /// When it was loaded, in seconds since 1970.
    pub loaded: u64,
    /// Texts that are written at a time.
    texts: usize,
    shared: Arc<Shared>,
}

impl Writer {
    /// With threads that write.
    ///
    /// # Errors
    /// There is not enough memory; the weights do not fit; the model has no tokenizer.
    pub fn open(model: &Model, how: &How, metrics: Arc<ModelMetrics>) -> Result<Writer, Failure> {
        let mut generators = Vec::new();
        for opened in 0..how.executables {
            let options = generate::Options {
                threads: how.threads,
                without_cache: false,
                texts: how.texts,
                batch: 1,
                beams: None,
                longest: None,
                copies: how.executables - opened,
                held: how.memory,
            };
            generators.push(Generator::new(model, &options)?);
        }
        let first = generators.first().context("there is nothing that computes")?;
        if let Some(note) = first.note() {
            say(&format!("note: {note}"));
        }
        // Answers are written one after the other in any case.
        if !first.has_answers() && first.texts() < how.texts {
            say(&format!("note: there is memory for {} texts at a time, not {}", first.texts(), how.texts));
        }
        let chat = first.chat().cloned();
        if let Some(chat) = &chat {
            chat.check()?;
        }
        let (tokenizer, vocabulary, capacity) = (first.tokenizer().clone(), first.vocabulary(), first.capacity());
        let longest_text = first.longest_text();
        let texts = generators.iter().map(Generator::texts).sum();
        metrics.writes();
        let loaded = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (waiting, changed, failed) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { waiting, changed, queue: how.queue, failed, metrics });
        let writer = Writer { tokenizer, chat, vocabulary, capacity, longest_text, loaded, texts, shared };
        for generator in generators {
            let shared = Arc::clone(&writer.shared);
            let work = move || shared.work(generator);
            std::thread::Builder::new().name("texts".into()).spawn(work).context("cannot start a thread")?;
        }
        Ok(writer)
    }

    /// The tokens of a prompt.
    ///
    /// # Errors
    /// It has a character that has no token.
    pub fn prompt(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        match self.longest_text {
            Some(longest) => generate::text(&self.tokenizer, longest, text, "the prompt"),
            None => generate::prompt(&self.tokenizer, text),
        }
    }

    /// Whether it answers texts; else it goes on with them.
    pub fn answers_texts(&self) -> bool {
        self.longest_text.is_some()
    }

    /// Whether the last text could be written.
    pub fn is_well(&self) -> bool {
        !self.shared.failed.load(Ordering::Relaxed)
    }

    /// Puts the texts of a request into the queue. Who drops the receiver wants no more of them.
    ///
    /// # Errors
    /// It is full.
    pub fn submit(&self, texts: Vec<Request>) -> Result<UnboundedReceiver<Event>, Refusal> {
        let mut waiting = self.shared.lock();
        // Who has gone away does not take the place of others.
        waiting.jobs.retain(|job| !job.events.is_closed());
        if waiting.jobs.len() >= self.shared.queue {
            let reason = format!("{} requests wait already (--queue): come again", waiting.jobs.len());
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, reason));
        }
        let (events, receiver) = unbounded_channel();
        waiting.jobs.push_back(Job { texts: texts.into(), events });
        self.shared.metrics.waiting(waiting.jobs.len());
        drop(waiting);
        self.shared.changed.notify_one();
        Ok(receiver)
    }

    /// What it is, for people and for the page.
    pub fn described(&self, name: &str) -> Value {
        json!({
            "name": name,
            "task": if self.answers_texts() { "answers" } else { "language model" },
            "takes": "text",
            "context": self.capacity,
            "vocabulary": self.vocabulary,
            "texts": self.texts,
            "chat": self.chat.is_some(),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

/// What a thread has to do next.
enum Next {
    Begin(Job),
    GoOn,
    End,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing under the lock can panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that waits. One that is `idle` waits for it.
    fn next(&self, idle: bool) -> Next {
        let mut waiting = self.lock();
        loop {
            waiting.jobs.retain(|job| !job.events.is_closed());
            let job = waiting.jobs.pop_front();
            self.metrics.waiting(waiting.jobs.len());
            match job {
                Some(job) => return Next::Begin(job),
                None if !idle => return Next::GoOn,
                None if waiting.closed => return Next::End,
                None => waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn work(&self, mut generator: Generator) {
        let mut free: Vec<usize> = (0..generator.texts()).rev().collect();
        let mut all: Vec<Active> = Vec::new();
        loop {
            while let Some(&place) = free.last() {
                match self.next(all.is_empty()) {
                    Next::Begin(job) => all.push(Active { job, text: None, number: 0, place, ended: false }),
                    Next::GoOn => break,
                    Next::End => return,
                }
                free.pop();
            }
            self.round(&mut generator, &mut all);
            all.retain(|active| {
                if active.ended {
                    free.push(active.place);
                }
                !active.ended
            });
        }
    }

    /// Gives each request a turn. After a failure of the device none of them goes on.
    fn round(&self, generator: &mut Generator, all: &mut [Active]) {
        let turned = catch_unwind(AssertUnwindSafe(|| self.turns(generator, all)));
        let failure = match turned {
            Ok(Ok(well)) => return self.failed.store(!well, Ordering::Relaxed),
            Ok(Err(error)) => cannot(&error),
            Err(_) => "a fault of the program: its standard error has more".to_owned(),
        };
        self.failed.store(true, Ordering::Relaxed);
        all.iter_mut().filter(|active| !active.ended).for_each(|active| active.fail(failure.clone()));
    }

    /// Whether all could be written.
    fn turns(&self, generator: &mut Generator, all: &mut [Active]) -> anyhow::Result<bool> {
        let mut well = true;
        for active in all.iter_mut() {
            if active.job.events.is_closed() {
                active.ended = true;
            } else if active.text.is_none() {
                let Some(request) = active.job.texts.pop_front() else {
                    active.ended = true;
                    continue;
                };
                self.metrics.read(request.prompt.len());
                match generator.begin(request, active.place) {
                    Ok(text) => active.text = Some(text),
                    Err(error) => {
                        well = false;
                        active.fail(cannot(&error));
                    }
                }
            }
        }
        let mut active: Vec<&mut Active> = all.iter_mut().filter(|active| !active.ended).collect();
        let mut texts: Vec<&mut Text> = active.iter_mut().filter_map(|active| active.text.as_mut()).collect();
        let before: Vec<usize> = texts.iter().map(|text| text.generated()).collect();
        let steps = generator.steps(&mut texts)?;
        for ((active, step), before) in active.into_iter().zip(steps).zip(before) {
            let step = match step {
                Ok(step) => step,
                Err(error) => {
                    well = false;
                    active.fail(cannot(&error));
                    continue;
                }
            };
            let tokens = active.text.as_ref().map_or(before, Text::generated);
            self.metrics.wrote(tokens - before);
            let text = active.number;
            if !step.piece.is_empty() {
                let _ = active.job.events.send(Event::Piece { text, piece: step.piece });
            }
            if let Some(finish) = step.finish {
                let _ = active.job.events.send(Event::End { text, finish, tokens });
                active.text = None;
                active.number += 1;
                active.ended = active.job.texts.is_empty();
            }
        }
        Ok(well)
    }
}

impl Active {
    /// Says that the request cannot go on.
    fn fail(&mut self, why: String) {
        // Who has gone away needs no answer.
        let _ = self.job.events.send(Event::Failed(why));
        self.ended = true;
    }
}

fn cannot(error: &anyhow::Error) -> String {
    format!("the text cannot be written: {error:#}")
}
