//! What all requests have in common.

use super::access::Log;
use super::budget::Budget;
use super::key::Keys;
use super::metrics::Metrics;
use super::names::Names;
use super::place::Place;
use super::reader::Limits;
use super::refusal::Refusal;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// What all requests have in common.
pub struct App {
    /// The models, in the order in which they were given.
    pub models: Vec<Place>,
    /// What a request may ask for.
    pub limits: Limits,
    /// How long a body may take to arrive.
    pub patience: Duration,
    /// How long a request may wait for what the device computes of it, or for the first piece of a text.
    pub answer_time: Duration,
    /// The memory of all requests.
    pub budget: Arc<Budget>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Who may ask; `None`: everyone.
    pub keys: Option<Keys>,
    /// By which names requests may come where there are no keys.
    pub names: Names,
    /// How requests are written down.
    pub log: Log,
    /// Classes in an answer, if the request names no number.
    pub top: usize,
    /// Black and white are swapped in images, unless a request says so.
    pub invert: bool,
    /// The server is about to end.
    pub draining: Arc<AtomicBool>,
    /// A permit for each request whose body may be read into samples at a time.
    pub readers: Semaphore,
    /// One permit: models are loaded one after the other, so that they take one thread from requests, and memory for one.
    pub loading: Semaphore,
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub struct From(pub SocketAddr);

/// What the log line of a response needs: the model, and the number of samples.
#[derive(Debug, Clone)]
pub struct Logged {
    /// The model's name.
    pub model: String,
    /// How many samples were answered.
    pub samples: usize,
}

impl App {
    /// The model of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn place(&self, name: &str) -> Result<&Place, Refusal> {
        let found = self.models.iter().find(|place| place.name == name);
        found.ok_or_else(|| {
            Refusal::new(StatusCode::NOT_FOUND, "there is no model of this name: /models lists them")
                .about("model")
                .coded("model_not_found")
        })
    }

    /// What `answer` gives, unless that takes too long.
    ///
    /// # Errors
    /// Those of `answer`; there is none in time.
    pub async fn in_time<T>(&self, answer: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        let late = |_| {
            let seconds = self.answer_time.as_secs();
            let reason = format!("there was no answer within {seconds} s (--answer-timeout): come again");
            Err(Refusal::busy(reason))
        };
        timeout(self.answer_time, answer).await.unwrap_or_else(late)
    }
}

/// A JSON value as a response.
pub fn as_json(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string() + "\n").into_response()
}
