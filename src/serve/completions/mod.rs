//! OpenAI's interface for language models: `/v1/completions`, `/v1/chat/completions`, `/v1/models`.
//! <https://platform.openai.com/docs/api-reference>

mod asked;
mod reply;

use super::app::{App, Logged, as_json};
use super::body::receive;
use super::budget::Charge;
use super::place::{Answers, Place};
use super::refusal::Refusal;
use super::writer::{Event, TOKEN, WRITTEN, Writer};
use crate::api::generate;
use asked::{Asked, Given, Keys, Prompt};
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use reply::{Form, SILENCE, Streamed, Whole};
use serde_json::{Value, json};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::timeout;

/// Bytes of memory for each value of a JSON text while it is read: lists grow by doubling.
const VALUE: usize = 3 * size_of::<Value>();
/// Bytes of memory for each byte of a conversation while its template is filled in.
const TEMPLATE: usize = 4;

/// The language models.
pub async fn models(State(app): State<Arc<App>>) -> Response {
    let all: Vec<Value> = app.models.iter().filter_map(described).collect();
    as_json(&json!({ "object": "list", "data": all }))
}

/// A language model.
pub async fn model(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let place = super::predict::named(&app, name)?;
    place.texts()?;
    described(place).map(|model| as_json(&model)).ok_or_else(|| Refusal::internal("a fault of the program"))
}

fn described(place: &Place) -> Option<Value> {
    let Answers::Texts(writer) = place.now() else { return None };
    Some(json!({ "id": place.name, "object": "model", "created": writer.loaded, "owned_by": "runner" }))
}

/// Goes on with texts.
pub async fn completions(State(app): State<Arc<App>>, request: Request) -> Response {
    answered(&app, request, false).await
}

/// Answers a conversation.
pub async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    answered(&app, request, true).await
}

async fn answered(app: &Arc<App>, request: Request, chat: bool) -> Response {
    let mut logged = None;
    let answer = answer(app, request, chat, &mut logged).await;
    let mut response = answer.unwrap_or_else(IntoResponse::into_response);
    if let Some(logged) = logged {
        response.extensions_mut().insert(logged);
    }
    response
}

/// A request that is understood.
struct Understood {
    writer: Arc<Writer>,
    asked: Asked,
    form: Form,
    texts: Vec<generate::Request>,
    charge: Charge,
}

async fn answer(
    app: &Arc<App>,
    request: Request,
    chat: bool,
    logged: &mut Option<Logged>,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let mut charge = app.budget.charge();
    let body = receive(&parts.headers, body, (app.limits.body, app.patience), &mut charge).await?;
    let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        return Err(Refusal::other_type("the body is to be JSON: `Content-Type: application/json`"));
    }
    let fault = || Refusal::internal("a fault of the program: its standard error has more");
    let understood = {
        let _one = app.readers.acquire().await.map_err(|_| fault())?;
        let of = Arc::clone(app);
        let work = move || understand(&of, &body, chat, charge);
        tokio::task::spawn_blocking(work).await.map_err(|_| fault())??
    };
    let Understood { writer, asked, form, texts, charge } = understood;
    *logged = Some(Logged { model: form.model.clone(), samples: texts.len() });
    let mut events = writer.submit(texts)?;
    // It goes on with this model, whatever takes its place.
    drop(writer);
    // Nothing is sent before: until a text is begun the answer may still be that it has to wait for too long.
    let first = async {
        match events.recv().await {
            Some(Event::Failed(reason)) => Err(Refusal::internal(reason)),
            Some(event) => Ok(event),
            None => Err(fault()),
        }
    };
    let first = app.in_time(first).await?;
    if asked.stream {
        let body = Body::new(Streamed::new(form, events, &first, charge));
        return Ok(([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")], body).into_response());
    }
    let mut whole = Whole::new(form, events, &first, charge);
    match timeout(SILENCE, whole.complete()).await {
        Ok(answer) => answer.map(|answer| as_json(&answer)),
        Err(_) => Ok(([(CONTENT_TYPE, "application/json")], Body::new(whole)).into_response()),
    }
}

/// Reads a body, and makes tokens of its texts.
fn understand(app: &App, body: &[u8], chat: bool, mut charge: Charge) -> Result<Understood, Refusal> {
    let marks = body.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    let reading = body.len().saturating_mul(2).saturating_add((marks + 1).saturating_mul(VALUE));
    charge.add(reading)?;
    let mut keys = Keys::read(body)?;
    let place = match keys.model()? {
        Some(name) => app.place(&name)?,
        None => only(&app.models)?,
    };
    let writer = place.texts()?;
    let asked = match chat {
        true => Asked::chat(keys, &app.limits)?,
        false => Asked::completions(keys, &app.limits)?,
    };
    let rendered;
    let prompts = match &asked.given {
        Given::Prompts(prompts) => prompts,
        Given::Messages(messages) => {
            let Some(template) = &writer.chat else {
                let name = &place.name;
                let reason =
                    format!("`{name}` has no template for conversations: POST /v1/completions goes on with a text");
                return Err(Refusal::bad(reason).about("messages").coded("no_chat_template"));
            };
            charge.add(messages.iter().map(|message| message.content.len()).sum::<usize>().saturating_mul(TEMPLATE))?;
            let messages = writer.conversation(messages.clone());
            let text = template.render(&messages).map_err(|error| unfit(error, "messages"))?;
            rendered = vec![Prompt::Text(text)];
            &rendered
        }
    };
    let about = if chat { "messages" } else { "prompt" };
    let (mut texts, mut echo, mut prompt_tokens) = (Vec::new(), Vec::new(), 0);
    for prompt in prompts {
        let tokens = match prompt {
            Prompt::Text(text) => {
                let bytes = text.len().saturating_add(if chat { 0 } else { writer.around() });
                let encoding = bytes.saturating_mul(writer.tokenizer.memory_of_a_byte());
                charge.add(encoding)?;
                // A conversation has its template around it.
                let tokens = if chat { writer.rendered(text) } else { writer.prompt(text) };
                let tokens = tokens.map_err(|error| unfit(error, about))?;
                if tokens.is_empty() {
                    let why = "the prompt has no tokens: the tokenizer leaves out all of its characters";
                    return Err(Refusal::bad(why.to_owned()).about(about));
                }
                charge.give_back(encoding.saturating_sub(bytes.saturating_mul(TOKEN)));
                tokens
            }
            Prompt::Tokens(tokens) => tokens.clone(),
        };
        if let Some(token) = tokens.iter().find(|token| **token as usize >= writer.vocabulary) {
            let reason = format!("there is no token {token}: the model has {}", writer.vocabulary);
            return Err(Refusal::bad(reason).about(about));
        }
        if chat && tokens.len() >= writer.capacity {
            let (length, context) = (tokens.len(), writer.capacity);
            let reason = format!("the conversation has {length} tokens, and the model sees {context} with its answer");
            return Err(Refusal::bad(reason).about(about).coded("context_length_exceeded"));
        }
        let before = match prompt {
            _ if !asked.echo => String::new(),
            Prompt::Text(text) => text.clone(),
            Prompt::Tokens(tokens) => writer.tokenizer.decode(tokens).map_err(|error| unfit(error, about))?,
        };
        // An answer stands by itself.
        let seen = if writer.answers_apart() { 0 } else { tokens.len() };
        let rest = writer.capacity.saturating_sub(seen).min(app.limits.tokens);
        let max_tokens = asked.max_tokens.unwrap_or(rest);
        let written = tokens.len().saturating_mul(TOKEN).saturating_add(max_tokens.saturating_mul(WRITTEN));
        // Each text has a copy of those that end it.
        let each = written.saturating_add(asked.stop.iter().map(String::len).sum()).saturating_add(before.len());
        charge.add(each.saturating_mul(asked.n))?;
        prompt_tokens += tokens.len();
        for _ in 0..asked.n {
            echo.push(before.clone());
            texts.push(generate::Request {
                prompt: tokens.clone(),
                max_tokens,
                sampling: asked.sampling.clone(),
                text: texts.len() as u64,
                stop: asked.stop.clone(),
            });
        }
    }
    charge.give_back(reading);
    let id = format!("{}-{:016x}", if chat { "chatcmpl" } else { "cmpl" }, RandomState::new().build_hasher().finish());
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let form = Form { chat, id, created, model: place.name.clone(), prompt_tokens, echo, usage: asked.usage };
    Ok(Understood { writer, asked, form, texts, charge })
}

/// The model that is meant where none is named: the only one, or the only one that writes texts.
fn only(models: &[Place]) -> Result<&Place, Refusal> {
    let writing: Vec<&Place> = models.iter().filter(|place| matches!(place.now(), Answers::Texts(_))).collect();
    match (models, &writing[..]) {
        ([only], _) => Ok(only),
        (_, [only]) => Ok(*only),
        _ => Err(Refusal::bad("there are several models: `model` says which one").about("model")),
    }
}

fn unfit(error: anyhow::Error, about: &str) -> Refusal {
    Refusal::bad(format!("{error:#}")).about(about)
}
