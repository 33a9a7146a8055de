//! Which address does what, and what is common to all requests: who may ask, what is counted, what is written down.

use super::access::Entry;
use super::app::{App, From, Logged, as_json};
use super::body::drain;
use super::refusal::Refusal;
use super::{completions, page, predict, protocol};
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What stands for routes that there are not.
const NO_ROUTE: &str = "none";
/// Routes that need no key: who watches the program, and the page, which asks for one.
const OPEN: [&str; 3] = ["/", "/v2/health/live", "/v2/health/ready"];
/// Routes that answer until the end.
const TO_THE_END: [&str; 3] = ["/v2/health/live", "/v2/health/ready", "/metrics"];

/// All addresses.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/models", get(models))
        .route("/metrics", get(metrics))
        .route("/predict", post(predict::only_model))
        .route("/predict/{name}", post(predict::named_model))
        .route("/v1/models", get(completions::models))
        .route("/v1/models/{name}", get(completions::model))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions", post(completions::chat))
        .route("/v2", get(protocol::server))
        .route("/v2/health/live", get(protocol::live))
        .route("/v2/health/ready", get(protocol::ready))
        .route("/v2/models/{name}", get(protocol::model))
        .route("/v2/models/{name}/ready", get(protocol::model_ready))
        .route("/v2/models/{name}/infer", post(protocol::infer))
        .route("/v2/repository/models/{name}/load", post(protocol::load))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(Arc::clone(&app), watched))
        .with_state(app)
}

/// What a connection beyond `--max-connections` is answered: that there is no place, unless it asks how the server is.
pub fn full(app: Arc<App>) -> Router {
    Router::new()
        .route("/v2/health/live", get(protocol::live))
        .route("/v2/health/ready", get(protocol::ready))
        .route("/metrics", get(metrics))
        .fallback(no_place)
        .layer(map_response(closing))
        .layer(from_fn_with_state(Arc::clone(&app), watched))
        .with_state(app)
}

async fn no_place(request: Request) -> Refusal {
    // Who asks first has sent no body yet.
    if !request.headers().contains_key(EXPECT) {
        drain(&mut request.into_body()).await;
    }
    Refusal::busy("all connections that may be open are open (--max-connections): come again").closing()
}

/// The connection ends after it, whatever the answer is.
async fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn no_route(uri: Uri) -> Refusal {
    let known = match uri.path().starts_with("/v1/") {
        true => {
            "/v1/models lists the language models, POST /v1/completions goes on with texts, POST /v1/chat/completions with conversations"
        }
        false => "/models lists the models, POST /predict/NAME answers",
    };
    Refusal::new(StatusCode::NOT_FOUND, format!("there is nothing at this address: {known}"))
}

async fn no_method(method: Method) -> Refusal {
    let method: String = method.as_str().chars().take(20).collect();
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not for this address"))
}

/// What the models are.
async fn models(State(app): State<Arc<App>>) -> Response {
    let all: Vec<Value> = app.models.iter().map(|place| place.now().described(&place.name)).collect();
    as_json(&json!({ "models": all }))
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let ready = |name: &str| app.place(name).is_ok_and(|place| place.now().is_well());
    let text = app.metrics.text(ready, app.budget.used());
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Lets a request in, and sees how it ends.
async fn watched(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
    let from = request.extensions().get::<From>().map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), |from| from.0);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = match admit(&app, &route, &method, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let response = match response.extensions().get::<Refusal>() {
        Some(refusal) if path.starts_with("/v1/") => {
            let logged = response.extensions().get::<Logged>().cloned();
            let mut response = refusal.clone().into_openai_response();
            logged.map(|logged| response.extensions_mut().insert(logged));
            response
        }
        _ => response,
    };
    let took = begun.elapsed();
    let status = response.status().as_u16();
    let logged = response.extensions().get::<Logged>();
    let (model, samples) = logged.map_or(("", 0), |logged| (logged.model.as_str(), logged.samples));
    app.metrics.answered(model, &route, status, took);
    app.log.write(&Entry { from, method: method.as_str(), path: &path, status, took, model, samples });
    response
}

/// Whether a request is let in.
///
/// # Errors
/// It is not.
fn admit(app: &App, route: &str, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    if let Some(keys) = app.keys.as_ref().filter(|_| !OPEN.contains(&route)) {
        keys.check(headers)?;
    }
    // A page of another site that is open in a browser on this machine.
    if method == Method::POST && headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "pages of other sites may not ask"));
    }
    if app.keys.is_none() {
        app.names.check(headers)?;
    }
    if app.draining.load(Ordering::Relaxed) && !TO_THE_END.contains(&route) {
        return Err(Refusal::busy("the server is about to end").closing());
    }
    Ok(())
}
