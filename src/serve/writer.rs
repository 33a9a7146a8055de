//! A language model that answers requests: texts are written at a time, a token of each in every round, so that a short one does not wait for a long one.

use super::metrics::ModelMetrics;
use super::refusal::Refusal;
use super::served::How;
use crate::api::failure::Failure;
use crate::api::generate::{self, Finish, Generator, Request, Text};
use crate::api::model::Model;
use crate::data::text::{Chat, Message, Prompts, Tokenizer};
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

/// What becomes of the texts of a request, of which several may be written at a time.
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

/// A request of which texts have not been begun.
struct Job {
    /// Those texts with their numbers; there is one at least.
    texts: VecDeque<(usize, Request)>,
    events: UnboundedSender<Event>,
    /// How many of its texts are being written.
    begun: usize,
}

/// A text whose turn comes.
struct Turn {
    /// Its number in the request.
    number: usize,
    request: Request,
    events: UnboundedSender<Event>,
}

/// A text that is being written.
struct Active {
    number: usize,
    events: UnboundedSender<Event>,
    text: Text,
    /// Nothing is left to be done.
    ended: bool,
}

#[derive(Default)]
struct Waiting {
    /// In the order in which they came, or in which a text of them has ended.
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Waiting {
    /// How many requests wait for their first text to be begun, or for the next.
    fn count(&self) -> usize {
        self.jobs.iter().filter(|job| job.begun == 0).count()
    }

    /// The text that is begun next: of the request of which fewest are being written, so that a request with many texts takes the places that others leave.
    fn turn(&mut self) -> Option<Turn> {
        let at = (0..self.jobs.len()).min_by_key(|at| self.jobs[*at].begun)?;
        let job = &mut self.jobs[at];
        let (number, request) = job.texts.pop_front()?;
        job.begun += 1;
        let events = job.events.clone();
        if job.texts.is_empty() {
            self.jobs.remove(at);
        }
        Some(Turn { number, request, events })
    }

    /// A text of a request has ended: others that wait come before its next.
    fn ended(&mut self, events: &UnboundedSender<Event>) {
        let at = self.jobs.iter().position(|job| job.events.same_channel(events));
        if let Some(mut job) = at.and_then(|at| self.jobs.remove(at)) {
            job.begun -= 1;
            self.jobs.push_back(job);
        }
    }
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
    /// Most tokens of a text that is answered in a sequence of its own; `None`: texts are gone on with.
    longest_text: Option<usize>,
    /// What stands around texts that are answered by going on with a prompt, and the token that ends answers.
    prompts: Option<(Prompts, u32)>,
    /// The tokens that texts begin with, and those of which each ends one.
    begin: Vec<u32>,
    ends: Vec<u32>,
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
        first.notes(how.texts).for_each(|note| say(&format!("note: {note}")));
        let chat = first.chat().cloned();
        if let Some(chat) = &chat {
            chat.check()?;
        }
        let (tokenizer, vocabulary, capacity) = (first.tokenizer().clone(), first.vocabulary(), first.capacity());
        let (longest_text, prompts) = (first.longest_text(), first.prompts().cloned());
        let (begin, ends) = (first.beginning().to_vec(), first.ends().to_vec());
        let texts = generators.iter().map(Generator::texts).sum();
        metrics.writes();
        let loaded = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (waiting, changed, failed) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { waiting, changed, queue: how.queue, failed, metrics });
        let writer =
            Writer { tokenizer, chat, vocabulary, capacity, longest_text, prompts, begin, ends, loaded, texts, shared };
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
        match (self.longest_text, &self.prompts) {
            (Some(longest), _) => generate::text(&self.tokenizer, longest, text, "the prompt"),
            (None, Some((prompts, end))) => prompts.tokens((&self.tokenizer, *end), text, "the prompt"),
            (None, None) => generate::prompt(&self.tokenizer, [&self.begin, &self.ends], text, "the prompt"),
        }
    }

    /// The tokens of a conversation as its template writes it, which has all that stands before it.
    ///
    /// # Errors
    /// It has a character that has no token.
    pub fn rendered(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        generate::prompt(&self.tokenizer, [&[], &self.ends], text, "the prompt")
    }

    /// Whether it answers texts; else it goes on with them.
    pub fn answers_texts(&self) -> bool {
        self.longest_text.is_some() || self.prompts.is_some()
    }

    /// Bytes of text that stand around a prompt, about.
    pub fn around(&self) -> usize {
        self.prompts.as_ref().map_or(0, |(prompts, _)| prompts.bytes())
    }

    /// Whether answers stand in a sequence of their own, in which texts have no part.
    pub fn answers_apart(&self) -> bool {
        self.longest_text.is_some()
    }

    /// A conversation as the model has seen them.
    pub fn conversation(&self, messages: Vec<Message>) -> Vec<Message> {
        match &self.prompts {
            Some((prompts, _)) => prompts.beginning(messages),
            None => messages,
        }
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
        if waiting.count() >= self.shared.queue {
            let reason = format!("{} requests wait already (--queue): come again", waiting.count());
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, reason));
        }
        let (events, receiver) = unbounded_channel();
        waiting.jobs.push_back(Job { texts: texts.into_iter().enumerate().collect(), events, begun: 0 });
        self.shared.metrics.waiting(waiting.count());
        drop(waiting);
        self.shared.changed.notify_all();
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
    Begin(Turn),
    GoOn,
    End,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing under the lock can panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A text that waits. A thread that is `idle` waits for one.
    fn next(&self, idle: bool) -> Next {
        let mut waiting = self.lock();
        loop {
            waiting.jobs.retain(|job| !job.events.is_closed());
            let turn = waiting.turn();
            self.metrics.waiting(waiting.count());
            match turn {
                Some(turn) => return Next::Begin(turn),
                None if !idle => return Next::GoOn,
                None if waiting.closed => return Next::End,
                None => waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn work(&self, mut generator: Generator) {
        let mut places: Vec<Option<Active>> = (0..generator.texts()).map(|_| None).collect();
        loop {
            while let Some(place) = places.iter().position(Option::is_none) {
                match self.next(places.iter().all(Option::is_none)) {
                    Next::Begin(turn) => places[place] = self.begin(&mut generator, turn, place),
                    Next::GoOn => break,
                    Next::End => return,
                }
            }
            let mut all: Vec<&mut Active> = places.iter_mut().flatten().collect();
            self.round(&mut generator, &mut all);
            for place in &mut places {
                if let Some(active) = place.take_if(|active| active.ended) {
                    self.lock().ended(&active.events);
                }
            }
        }
    }

    /// Reads the prompt of a text.
    fn begin(&self, generator: &mut Generator, turn: Turn, place: usize) -> Option<Active> {
        let Turn { number, request, events } = turn;
        self.metrics.read(request.prompt.len());
        match guarded(|| generator.begin(request, place)) {
            Ok(text) => Some(Active { number, events, text, ended: false }),
            Err(why) => {
                self.failed.store(true, Ordering::Relaxed);
                self.fail(&events, why);
                None
            }
        }
    }

    /// Gives each text a token. After a failure of the device none of them goes on.
    fn round(&self, generator: &mut Generator, all: &mut [&mut Active]) {
        match guarded(|| self.turns(generator, all)) {
            Ok(well) => self.failed.store(!well, Ordering::Relaxed),
            Err(why) => {
                self.failed.store(true, Ordering::Relaxed);
                for active in all.iter_mut().filter(|active| !active.ended) {
                    self.fail(&active.events, why.clone());
                    active.ended = true;
                }
            }
        }
    }

    /// Whether all could be written.
    fn turns(&self, generator: &mut Generator, all: &mut [&mut Active]) -> anyhow::Result<bool> {
        let mut well = true;
        for active in all.iter_mut() {
            active.ended = active.events.is_closed();
        }
        let mut active: Vec<&mut Active> =
            all.iter_mut().map(|active| &mut **active).filter(|one| !one.ended).collect();
        let mut texts: Vec<&mut Text> = active.iter_mut().map(|active| &mut active.text).collect();
        let before: Vec<usize> = texts.iter().map(|text| text.generated()).collect();
        let steps = generator.steps(&mut texts)?;
        for ((active, step), before) in active.into_iter().zip(steps).zip(before) {
            let step = match step {
                Ok(step) => step,
                Err(error) => {
                    well = false;
                    self.fail(&active.events, cannot(&error));
                    active.ended = true;
                    continue;
                }
            };
            let (text, tokens) = (active.number, active.text.generated());
            self.metrics.wrote(tokens - before);
            if !step.piece.is_empty() {
                let _ = active.events.send(Event::Piece { text, piece: step.piece });
            }
            if let Some(finish) = step.finish {
                let _ = active.events.send(Event::End { text, finish, tokens });
                active.ended = true;
            }
        }
        Ok(well)
    }

    /// Says that a request cannot go on, and forgets its texts that wait.
    fn fail(&self, events: &UnboundedSender<Event>, why: String) {
        self.lock().jobs.retain(|job| !job.events.same_channel(events));
        // Who has gone away needs no answer.
        let _ = events.send(Event::Failed(why));
    }
}

/// What `act` gives; or why there is nothing, in words for a client.
fn guarded<T>(act: impl FnOnce() -> anyhow::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(done) => done.map_err(|error| cannot(&error)),
        Err(_) => Err("a fault of the program: its standard error has more".to_owned()),
    }
}

fn cannot(error: &anyhow::Error) -> String {
    format!("the text cannot be written: {error:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(texts: usize) -> (Job, UnboundedReceiver<Event>) {
        let (events, receiver) = unbounded_channel();
        let request = |text| Request {
            prompt: vec![0],
            max_tokens: 1,
            sampling: Default::default(),
            text: text as u64,
            stop: Vec::new(),
        };
        (Job { texts: (0..texts).map(|number| (number, request(number))).collect(), events, begun: 0 }, receiver)
    }

    #[test]
    fn a_request_with_many_texts_takes_the_places_that_others_leave() {
        let mut waiting = Waiting::default();
        let ((many, _many), (one, _one), (two, _two)) = (job(4), job(1), job(2));
        let channels = [&many, &one, &two].map(|job| job.events.clone());
        waiting.jobs.extend([many, one, two]);
        let turn = |waiting: &mut Waiting| {
            let turn = waiting.turn()?;
            Some((channels.iter().position(|events| events.same_channel(&turn.events)).unwrap(), turn.number))
        };
        assert_eq!(waiting.count(), 3);
        let begun: Vec<_> = (0..4).map(|_| turn(&mut waiting).unwrap()).collect();
        assert_eq!(begun, [(0, 0), (1, 0), (2, 0), (0, 1)], "each request has one before any has two");
        assert_eq!(waiting.count(), 0);
        // Both texts of the first end: it alone has none. Then each has one, and the other has waited longer.
        waiting.ended(&channels[0]);
        waiting.ended(&channels[0]);
        assert_eq!(waiting.count(), 1);
        let begun: Vec<_> = (0..3).map(|_| turn(&mut waiting).unwrap()).collect();
        assert_eq!(begun, [(0, 2), (2, 1), (0, 3)]);
        assert!(turn(&mut waiting).is_none() && waiting.jobs.is_empty());
        waiting.ended(&channels[2]);
    }
}
