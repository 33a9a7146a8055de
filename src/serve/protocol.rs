//! The addresses of the Open Inference Protocol, and of its extension that loads models.

use super::app::{App, Logged, as_json};
use super::body::receive;
use super::open_inference::{HEADER, answer, metadata};
use super::place::{Answers, Place};
use super::predict::{named, read};
use super::refusal::Refusal;
use crate::terminal::say;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Name = Result<Path<String>, PathRejection>;

/// What the server is.
pub async fn server() -> Response {
    as_json(&json!({
        "name": "runner",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": ["binary_tensor_data"],
    }))
}

/// The program runs.
pub async fn live() -> Response {
    as_json(&json!({ "live": true }))
}

/// All models answer.
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    if app.draining.load(Ordering::Relaxed) {
        return Refusal::busy("the server is about to end").into_response();
    }
    match app.models.iter().find(|place| !place.now().is_well()) {
        None => as_json(&json!({ "ready": true })),
        Some(place) => unwell(place).into_response(),
    }
}

fn unwell(place: &Place) -> Refusal {
    Refusal::busy(format!("the last batch of `{}` could not be computed", place.name))
}

/// What a model is.
pub async fn model(State(app): State<Arc<App>>, name: Name) -> Result<Response, Refusal> {
    let place = named(&app, name)?;
    let served = match place.now() {
        Answers::Samples(served) => Some(served),
        Answers::Texts(_) => None,
    };
    Ok(as_json(&metadata(&place.name, served.as_deref())))
}

/// Whether a model answers.
pub async fn model_ready(State(app): State<Arc<App>>, name: Name) -> Result<Response, Refusal> {
    let place = named(&app, name)?;
    match place.now().is_well() {
        true => Ok(as_json(&json!({ "name": place.name, "ready": true }))),
        false => Err(unwell(place)),
    }
}

/// Answers tensors.
pub async fn infer(State(app): State<Arc<App>>, name: Name, request: Request) -> Response {
    let place = match named(&app, name) {
        Ok(place) => place,
        Err(refusal) => return refusal.into_response(),
    };
    let mut samples = 0;
    let answer = inferred(&app, place, request, &mut samples).await;
    let mut response = answer.unwrap_or_else(IntoResponse::into_response);
    response.extensions_mut().insert(Logged { model: place.name.clone(), samples });
    response
}

async fn inferred(app: &Arc<App>, place: &Place, request: Request, answered: &mut usize) -> Result<Response, Refusal> {
    let served = place.samples()?;
    let (parts, body) = request.into_parts();
    let mut charge = app.budget.charge();
    let body = receive(&parts.headers, body, (app.limits.body, app.patience), &mut charge).await?;
    let header = header_length(&parts.headers)?.unwrap_or(body.len());
    let ((mut samples, form), charge) =
        read(app, &served, charge, (0, false), move |reader| reader.tensors(&body, header)).await?;
    let outputs = app.in_time(served.outputs_of(&mut samples)).await?;
    *answered = samples.count;
    let name = place.name.clone();
    let write = move || {
        let (body, json) = answer(form, &name, &served, &outputs);
        drop(charge);
        let mut response = Response::new(Body::from(body));
        let kind = if json.is_some() { "application/octet-stream" } else { "application/json" };
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(json) = json {
            response.headers_mut().insert(HEADER_NAME, HeaderValue::from(json));
        }
        response
    };
    tokio::task::spawn_blocking(write).await.map_err(|_| Refusal::internal("a fault of the program"))
}

/// [`HEADER`] as the name of a header.
const HEADER_NAME: &str = "inference-header-content-length";

fn header_length(headers: &HeaderMap) -> Result<Option<usize>, Refusal> {
    let Some(value) = headers.get(HEADER_NAME) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| Refusal::bad(format!("`{HEADER}` is no number")))
}

/// Largest body of a request to load a model, in bytes.
const MAX_LOAD: usize = 64 << 10;

/// Opens the file of a model anew.
pub async fn load(State(app): State<Arc<App>>, name: Name, request: Request) -> Result<Response, Refusal> {
    let name = named(&app, name)?.name.clone();
    let (parts, body) = request.into_parts();
    let mut charge = app.budget.charge();
    let body = receive(&parts.headers, body, (MAX_LOAD, app.patience), &mut charge).await?;
    if !body.is_empty() {
        let body: Map<String, Value> =
            serde_json::from_slice(&body).map_err(|error| Refusal::bad(format!("the body is no JSON: {error}")))?;
        let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
        if body.iter().any(|(key, value)| key != "parameters" || !is_empty(value)) {
            let reason = "a model is loaded from the path that the server was started with, and without parameters";
            return Err(Refusal::bad(reason));
        }
    }
    reload(&app, &name).await?;
    Ok(as_json(&json!({ "name": name, "loaded": true })))
}

/// Opens the file of a model anew, on a thread for that, and reports the outcome.
///
/// # Errors
/// It cannot be read; the model that was there stays.
pub async fn reload(app: &Arc<App>, name: &str) -> Result<(), Refusal> {
    let _one = app.loading.acquire().await.map_err(|_| Refusal::internal("a fault of the program"))?;
    let (of, name) = (Arc::clone(app), name.to_owned());
    let work = move || {
        let loaded = of.place(&name)?.reload();
        match loaded {
            Ok(()) => {
                say(&format!("loaded `{name}` anew"));
                Ok(())
            }
            Err(failure) => {
                let why = failure.in_words();
                say(&format!("error: cannot load `{name}`, and what was loaded before goes on: {why}"));
                let reason = format!("the model was not loaded, and the one before answers: {why}");
                Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, reason))
            }
        }
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::internal("a fault of the program"))?
}
