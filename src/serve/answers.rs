//! `POST /predict` to a model that answers texts: they are answered one after the other, by the most probable tokens.

use super::app::{App, as_json};
use super::body::receive;
use super::charset;
use super::instances::{Take, read};
use super::refusal::Refusal;
use super::writer::{Event, TOKEN, WRITTEN, Writer};
use crate::api::generate::{Request, Sampling};
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use encoding_rs::{Encoding, UTF_8};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::sync::Arc;

/// The texts of a body of JSON.
struct Texts(Vec<String>);

impl Take for Texts {
    fn take<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        match Text::deserialize(deserializer)? {
            Text::One(text) | Text::Named(Named { text }) => self.0.push(text),
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text, or {\"text\": ...}")]
enum Text {
    One(String),
    Named(Named),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    text: String,
}

/// Answers the texts of a body: `{"instances": ["…", …]}`, or plain text with one on each line. Their number goes into `answered`.
///
/// # Errors
/// The body is neither, or too large; a text has a character without a token; the queue is full; the device failed.
pub async fn answer(
    app: &Arc<App>,
    (name, writer): (&str, Arc<Writer>),
    request: axum::extract::Request,
    answered: &mut usize,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let mut charge = app.budget.charge();
    let body = receive(&parts.headers, body, (app.limits.body, app.patience), &mut charge).await?;
    let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let encoding = charset::of(kind)?;
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let fault = || Refusal::internal("a fault of the program: its standard error has more");
    let texts = {
        let _one = app.readers.acquire().await.map_err(|_| fault())?;
        let (app, writer) = (Arc::clone(app), Arc::clone(&writer));
        let work = move || {
            let texts = texts((&kind, encoding), &body, app.limits.rows)?;
            if texts.len() > app.limits.rows {
                let (texts, most) = (texts.len(), app.limits.rows);
                return Err(Refusal::too_large(format!(
                    "there are {texts} samples, and a request may have {most} (--max-rows)"
                )));
            }
            let max_tokens = writer.capacity.min(app.limits.tokens);
            let request = |(number, text): (usize, &String)| {
                charge.add(
                    text.len()
                        .saturating_add(writer.around())
                        .saturating_mul(TOKEN)
                        .saturating_add(max_tokens.saturating_mul(WRITTEN)),
                )?;
                let unfit = |error: anyhow::Error| Refusal::unfit(format!("text {number}: {error:#}"));
                let prompt = writer.prompt(text).map_err(unfit)?;
                let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
                Ok(Request { prompt, max_tokens, sampling, text: number as u64, stop: Vec::new() })
            };
            let requests = texts.iter().enumerate().map(request).collect::<Result<Vec<_>, Refusal>>()?;
            Ok((requests, charge))
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| fault())??
    };
    let (requests, charge) = texts;
    let mut answers = vec![String::new(); requests.len()];
    *answered = requests.len();
    let mut left = requests.len();
    let mut events = writer.submit(requests)?;
    let written = async {
        while left > 0 {
            match events.recv().await {
                Some(Event::Piece { text, piece }) => answers[text].push_str(&piece),
                Some(Event::End { .. }) => left -= 1,
                Some(Event::Failed(reason)) => return Err(Refusal::internal(reason)),
                None => return Err(fault()),
            }
        }
        Ok(())
    };
    app.in_time(written).await?;
    let one = |(number, answer)| json!({ "sample": number, "answer": answer });
    let answers: Vec<Value> = answers.into_iter().enumerate().map(one).collect();
    let response = as_json(&json!({ "model": name, "predictions": answers }));
    drop(charge);
    Ok(response)
}

/// The texts of a body. Of JSON there are at most `most`.
fn texts(
    (kind, encoding): (&str, Option<&'static Encoding>),
    body: &Bytes,
    most: usize,
) -> Result<Vec<String>, Refusal> {
    match kind {
        "application/json" => {
            charset::expect_utf8(encoding)?;
            let mut texts = Texts(Vec::new());
            read(body, &mut texts, most)?;
            Ok(texts.0)
        }
        "text/plain" => {
            let text = charset::text(body, encoding.unwrap_or(UTF_8)).map_err(Refusal::bad)?;
            Ok(text.lines().map(str::to_owned).collect())
        }
        _ => Err(Refusal::other_type(
            "the model takes texts as application/json, {\"instances\": [\"…\", …]}, or as text/plain, one a line",
        )),
    }
}
