//! `POST /predict` and `/predict/NAME`.

use super::answers;
use super::app::{App, Logged, as_json};
use super::body::receive;
use super::charset;
use super::place::{Answers, Place};
use super::reader::{File, Reader, accepted};
use super::refusal::Refusal;
use super::served::{Served, Takes};
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use std::num::NonZero;
use std::sync::Arc;

/// What follows a `?`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    top: Option<NonZero<usize>>,
    invert: Option<bool>,
}

type Query_ = Result<Query<Asked>, QueryRejection>;
type Name = Result<Path<String>, PathRejection>;

/// The only model.
pub async fn only_model(State(app): State<Arc<App>>, asked: Query_, request: Request) -> Response {
    match only(&app.models) {
        Ok(place) => respond(&app, place, asked, request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// The model that is meant where none is named: the only one, or the only one beside language models that go on with texts.
fn only(models: &[Place]) -> Result<&Place, Refusal> {
    let answers = |place: &&Place| match place.now() {
        Answers::Samples(_) => true,
        Answers::Texts(writer) => writer.answers_texts(),
    };
    let answering: Vec<&Place> = models.iter().filter(answers).collect();
    let reason = match (models, &answering[..]) {
        ([only], _) => return Ok(only),
        (_, [only]) => return Ok(*only),
        (_, []) => "all models are language models: POST /v1/completions has one go on with a text".to_owned(),
        (_, several) => {
            let names: Vec<&str> = several.iter().map(|place| place.name.as_str()).collect();
            format!("there are several models: POST /predict/NAME asks {}", names.join(" or "))
        }
    };
    Err(Refusal::new(StatusCode::NOT_FOUND, reason))
}

/// The model of that name.
pub async fn named_model(State(app): State<Arc<App>>, name: Name, asked: Query_, request: Request) -> Response {
    match named(&app, name) {
        Ok(place) => respond(&app, place, asked, request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// The model of the name in an address.
///
/// # Errors
/// There is none.
pub fn named(app: &App, name: Name) -> Result<&Place, Refusal> {
    match name {
        Ok(Path(name)) => app.place(&name),
        Err(_) => Err(Refusal::bad("the name in the address is no text")),
    }
}

async fn respond(app: &Arc<App>, place: &Place, asked: Query_, request: Request) -> Response {
    let mut samples = 0;
    let answer = answer(app, place, asked, request, &mut samples).await;
    let mut response = answer.unwrap_or_else(IntoResponse::into_response);
    response.extensions_mut().insert(Logged { model: place.name.clone(), samples });
    response
}

async fn answer(
    app: &Arc<App>,
    place: &Place,
    asked: Query_,
    request: Request,
    answered: &mut usize,
) -> Result<Response, Refusal> {
    let Query(asked) = asked.map_err(|_| {
        let given: String = request.uri().query().unwrap_or_default().chars().take(60).collect();
        let known = "`top` is a whole number from 1, `invert` is true or false, each once, and there is nothing else";
        Refusal::bad(format!("what follows the `?`, `{given}`, is not understood: {known}"))
    })?;
    if let Answers::Texts(writer) = place.now()
        && writer.answers_texts()
    {
        return answers::answer(app, (&place.name, writer), request, answered).await;
    }
    let served = place.samples()?;
    let (parts, body) = request.into_parts();
    let mut charge = app.budget.charge();
    let body = receive(&parts.headers, body, (app.limits.body, app.patience), &mut charge).await?;
    let given = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let (kind, encoding) = (Kind::of(given, &served)?, charset::of(given)?);
    let content = match kind {
        Kind::Multipart => {
            // Each file becomes memory of its own.
            charge.add(body.len())?;
            Content::Files(files(given, body, app.limits.rows).await?)
        }
        Kind::Image | Kind::Table => Content::Files(vec![File { name: None, content: body, encoding }]),
        Kind::Json => {
            charset::expect_utf8(encoding)?;
            Content::Json(body)
        }
    };
    let (top, invert) = (asked.top.map_or(app.top, NonZero::get), asked.invert.unwrap_or(app.invert));
    let (mut samples, charge) = read(app, &served, charge, (top, invert), move |reader| match content {
        Content::Json(text) => reader.instances(&text),
        Content::Files(files) => match (reader.served.takes(), &files[..]) {
            (Takes::Rows, [table]) => reader.table(table),
            (Takes::Rows, files) => {
                Err(Refusal::bad(format!("there are {} files, and one table is answered at a time", files.len())))
            }
            (Takes::Texts, [texts]) => reader.lines(texts),
            (Takes::Texts, files) => Err(Refusal::bad(format!(
                "there are {} files, and the texts of one are answered at a time",
                files.len()
            ))),
            (_, []) => Err(Refusal::bad("there is no file in the body")),
            (_, files) => reader.images(files),
        },
    })
    .await?;
    let outputs = app.in_time(served.outputs_of(&mut samples)).await?;
    *answered = samples.count;
    let name = place.name.clone();
    let write = move || {
        let answers = served.answers(&samples, &outputs, top);
        let response = as_json(&json!({ "model": name, "predictions": answers }));
        drop(charge);
        response
    };
    tokio::task::spawn_blocking(write).await.map_err(|_| Refusal::internal("a fault of the program"))
}

/// Makes samples of a body, on a thread for that. So many at a time as there are cores.
///
/// # Errors
/// Those of `make`; a fault of the program.
pub async fn read<T: Send + 'static>(
    app: &Arc<App>,
    served: &Arc<Served>,
    mut charge: super::budget::Charge,
    (top, invert): (usize, bool),
    make: impl FnOnce(&mut Reader) -> Result<T, Refusal> + Send + 'static,
) -> Result<(T, super::budget::Charge), Refusal> {
    let fault = || Refusal::internal("a fault of the program: its standard error has more");
    let _one = app.readers.acquire().await.map_err(|_| fault())?;
    let (served, limits) = (Arc::clone(served), app.limits);
    let work = move || {
        let mut reader = Reader { served: &served, limits: &limits, charge: &mut charge, top, invert };
        make(&mut reader).map(|made| (made, charge))
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| fault())?
}

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Image,
    Table,
    Json,
    Multipart,
}

enum Content {
    Files(Vec<File>),
    Json(Bytes),
}

impl Kind {
    /// By the type that the client gives it.
    fn of(given: &str, served: &Served) -> Result<Kind, Refusal> {
        let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/json" => Ok(Kind::Json),
            "multipart/form-data" => Ok(Kind::Multipart),
            "text/csv" | "text/tab-separated-values" if served.takes() == Takes::Rows => Ok(Kind::Table),
            "text/plain" if served.takes() == Takes::Texts => Ok(Kind::Table),
            image if image.starts_with("image/") && served.takes() == Takes::Images => Ok(Kind::Image),
            _ => {
                let accepted = accepted(served);
                let given = match given {
                    "" => "there is no `Content-Type`".to_owned(),
                    given => format!("the body is `{}`", given.chars().take(60).collect::<String>()),
                };
                Err(Refusal::other_type(format!("{given}, and the model takes {accepted}")))
            }
        }
    }
}

/// The files of a form, which is in memory; at most `most`.
async fn files(kind: &str, body: Bytes, most: usize) -> Result<Vec<File>, Refusal> {
    let bad = |error: multer::Error| Refusal::bad(format!("the form: {error}"));
    let boundary = multer::parse_boundary(kind).map_err(bad)?;
    let mut form = multer::Multipart::new(Body::from(body).into_data_stream(), boundary);
    let mut files = Vec::new();
    while let Some(part) = form.next_field().await.map_err(bad)? {
        if files.len() == most {
            let reason = format!("there are more files than the {most} that a request may have (--max-rows)");
            return Err(Refusal::too_large(reason));
        }
        let name = part.file_name().map(str::to_owned);
        let encoding = part.content_type().map_or(Ok(None), |kind| charset::of(kind.as_ref()))?;
        let content = part.bytes().await.map_err(bad)?;
        files.push(File { name, content, encoding });
    }
    Ok(files)
}
