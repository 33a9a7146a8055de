//! Answers of OpenAI's interface: whole, or piece by piece as events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use super::super::budget::Charge;
use super::super::refusal::Refusal;
use super::super::writer::Event;
use crate::api::generate::Finish;
use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep};

/// How long a client that waits for the rest of a whole answer hears nothing. Then it gets a space, which JSON lets stand before a value: if it has gone, that shows.
pub const SILENCE: Duration = Duration::from_secs(1);

/// What answers have in common.
#[derive(Debug, Clone)]
pub struct Form {
    /// Of a conversation, or of texts.
    pub chat: bool,
    /// Name of the answer.
    pub id: String,
    /// When it began, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// Tokens of the prompts.
    pub prompt_tokens: usize,
    /// What stands before each text.
    pub echo: Vec<String>,
    /// How many tokens there were is sent after the pieces.
    pub usage: bool,
}

/// What is known of the texts so far.
struct Texts {
    form: Form,
    /// Each with the reason why it ended, if it did.
    all: Vec<(String, Option<&'static str>)>,
    tokens: usize,
    failed: Option<String>,
}

fn word(finish: Finish) -> &'static str {
    match finish {
        Finish::Length => "length",
        Finish::Stop | Finish::End | Finish::Cancelled => "stop",
    }
}

impl Texts {
    fn new(form: Form) -> Texts {
        let all = form.echo.iter().map(|echo| (echo.clone(), None)).collect();
        Texts { form, all, tokens: 0, failed: None }
    }

    /// All is known that will be.
    fn are_done(&self) -> bool {
        self.failed.is_some() || self.all.iter().all(|(_, finish)| finish.is_some())
    }

    /// Takes an event; `None`: there are no more.
    fn add(&mut self, event: Option<&Event>) {
        match event {
            Some(Event::Piece { text, piece }) => self.all[*text].0.push_str(piece),
            Some(Event::End { text, finish, tokens }) => {
                self.all[*text].1 = Some(word(*finish));
                self.tokens += tokens;
            }
            Some(Event::Failed(reason)) => self.failed = Some(reason.clone()),
            None => self.failed = Some("a fault of the program: its standard error has more".into()),
        }
    }

    fn usage(&self) -> Value {
        let (prompt, written) = (self.form.prompt_tokens, self.tokens);
        json!({ "prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written })
    }

    fn around(&self, choices: Value, whole: bool) -> Value {
        let Form { chat, id, created, model, .. } = &self.form;
        let object = match (chat, whole) {
            (false, _) => "text_completion",
            (true, true) => "chat.completion",
            (true, false) => "chat.completion.chunk",
        };
        json!({ "id": id, "object": object, "created": created, "model": model, "choices": choices })
    }

    fn whole(&self) -> Value {
        let choice = |(index, (text, finish)): (usize, &(String, Option<&str>))| match self.form.chat {
            false => json!({ "text": text, "index": index, "logprobs": null, "finish_reason": finish }),
            true => {
                let message = json!({ "role": "assistant", "content": text, "refusal": null });
                json!({ "index": index, "message": message, "logprobs": null, "finish_reason": finish })
            }
        };
        let mut answer = self.around(self.all.iter().enumerate().map(choice).collect(), true);
        answer["usage"] = self.usage();
        answer
    }

    /// A line of a stream.
    fn line(&self, text: &str, index: usize, finish: Option<&str>) -> Bytes {
        let delta = if finish.is_some() { json!({}) } else { json!({ "content": text }) };
        self.chunk(match self.form.chat {
            false => json!({ "text": text, "index": index, "logprobs": null, "finish_reason": finish }),
            true => json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish }),
        })
    }

    /// What the stream of a conversation's answer begins with.
    fn opening(&self, index: usize) -> Bytes {
        let delta = json!({ "role": "assistant", "content": "", "refusal": null });
        self.chunk(json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null }))
    }

    fn chunk(&self, choice: Value) -> Bytes {
        let mut chunk = self.around(json!([choice]), false);
        if self.form.usage {
            chunk["usage"] = Value::Null;
        }
        sent(&chunk)
    }
}

fn sent(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

/// An answer that is sent when it is whole. While that takes long, spaces are.
pub struct Whole {
    events: UnboundedReceiver<Event>,
    texts: Texts,
    silence: Pin<Box<Sleep>>,
    sent: bool,
    _charge: Charge,
}

impl Whole {
    /// Of a request that was handed over, of which `first` has come already.
    pub fn new(form: Form, events: UnboundedReceiver<Event>, first: &Event, charge: Charge) -> Whole {
        let silence = Box::pin(tokio::time::sleep(SILENCE));
        let mut texts = Texts::new(form);
        texts.add(Some(first));
        Whole { events, texts, silence, sent: false, _charge: charge }
    }

    /// Waits for all of it. It may be dropped before, and nothing is lost.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn complete(&mut self) -> Result<Value, Refusal> {
        while !self.texts.are_done() {
            let event = self.events.recv().await;
            self.texts.add(event.as_ref());
        }
        match &self.texts.failed {
            Some(reason) => Err(Refusal::internal(reason.clone())),
            None => Ok(self.texts.whole()),
        }
    }
}

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.sent {
            return Poll::Ready(None);
        }
        while !self.texts.are_done() {
            match self.events.poll_recv(context) {
                Poll::Ready(event) => self.texts.add(event.as_ref()),
                Poll::Pending => {
                    if self.silence.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    self.silence.as_mut().reset(Instant::now() + SILENCE);
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b" ")))));
                }
            }
        }
        self.sent = true;
        // It has begun as a good one: all that is left is to cut it off.
        Poll::Ready(Some(match &self.texts.failed {
            Some(reason) => Err(io::Error::other(reason.clone())),
            None => Ok(Frame::data(Bytes::from(self.texts.whole().to_string() + "\n"))),
        }))
    }
}

/// An answer that is sent piece by piece.
pub struct Streamed {
    events: UnboundedReceiver<Event>,
    texts: Texts,
    lines: VecDeque<Bytes>,
    ended: bool,
    _charge: Charge,
}

impl Streamed {
    /// Of a request that was handed over, of which `first` has come already.
    pub fn new(form: Form, events: UnboundedReceiver<Event>, first: &Event, charge: Charge) -> Streamed {
        let mut streamed =
            Streamed { events, texts: Texts::new(form), lines: VecDeque::new(), ended: false, _charge: charge };
        if streamed.texts.form.chat {
            let texts = &streamed.texts;
            streamed.lines = (0..texts.all.len()).map(|index| texts.opening(index)).collect();
        }
        for (index, echo) in streamed.texts.form.echo.clone().iter().enumerate().filter(|(_, echo)| !echo.is_empty()) {
            let line = streamed.texts.line(echo, index, None);
            streamed.lines.push_back(line);
        }
        streamed.add(Some(first));
        streamed
    }

    fn add(&mut self, event: Option<&Event>) {
        self.texts.add(event);
        let texts = &self.texts;
        match event {
            Some(Event::Piece { text, piece }) => self.lines.push_back(texts.line(piece, *text, None)),
            Some(Event::End { text, finish, .. }) => self.lines.push_back(texts.line("", *text, Some(word(*finish)))),
            Some(Event::Failed(_)) | None => {}
        }
        if !texts.are_done() {
            return;
        }
        self.ended = true;
        match &texts.failed {
            Some(reason) => self.lines.push_back(sent(&Refusal::internal(reason.clone()).in_openai_words())),
            None => {
                if texts.form.usage {
                    let mut last = texts.around(json!([]), false);
                    last["usage"] = texts.usage();
                    self.lines.push_back(sent(&last));
                }
                self.lines.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
            }
        }
    }
}

impl HttpBody for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(line))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match self.events.poll_recv(context) {
                Poll::Ready(event) => self.add(event.as_ref()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
