//! Why a request is not answered: a status, and the reason in words.

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Seconds after which a client that was sent away may come again.
const AGAIN: &str = "1";

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of fault it is.
    pub status: StatusCode,
    /// What was wrong, and what to do.
    pub reason: String,
    /// The key of the request that it is about, where one is.
    pub about: Option<String>,
    /// A word for programs, where there is a usual one.
    pub code: Option<&'static str>,
    /// Nothing more is read from this connection.
    pub close: bool,
}

impl Refusal {
    /// For that reason.
    pub fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Refusal { status, reason: reason.into(), about: None, code: None, close: false }
    }

    /// The body is not what it says it is.
    pub fn bad(reason: impl Into<String>) -> Self {
        Refusal::new(StatusCode::BAD_REQUEST, reason)
    }

    /// Samples do not fit the model.
    pub fn unfit(reason: impl Into<String>) -> Self {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, reason)
    }

    /// More than a limit allows.
    pub fn too_large(reason: impl Into<String>) -> Self {
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    }

    /// A body of a kind that the model does not take.
    pub fn other_type(reason: impl Into<String>) -> Self {
        Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason)
    }

    /// Not now.
    pub fn busy(reason: impl Into<String>) -> Self {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason)
    }

    /// A fault of the server.
    pub fn internal(reason: impl Into<String>) -> Self {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, reason)
    }

    /// The same, about a key of the request.
    pub fn about(self, key: impl Into<String>) -> Self {
        Refusal { about: Some(key.into()), ..self }
    }

    /// The same, with a word for programs.
    pub fn coded(self, code: &'static str) -> Self {
        Refusal { code: Some(code), ..self }
    }

    /// The same, and the connection ends.
    pub fn closing(self) -> Self {
        Refusal { close: true, ..self }
    }
}

impl Refusal {
    /// What is wrong, as OpenAI's interface says it.
    pub fn in_openai_words(&self) -> Value {
        let (kind, code) = match self.status {
            StatusCode::UNAUTHORIZED => ("invalid_request_error", Some("invalid_api_key")),
            StatusCode::TOO_MANY_REQUESTS => ("rate_limit_error", Some("rate_limit_exceeded")),
            status if status.is_server_error() => ("server_error", None),
            _ => ("invalid_request_error", None),
        };
        json!({ "error": { "message": self.reason, "type": kind, "param": self.about, "code": self.code.or(code) } })
    }

    /// As a response of OpenAI's interface.
    pub fn into_openai_response(self) -> Response {
        let body = self.in_openai_words();
        self.with_body(&body)
    }

    fn with_body(self, body: &Value) -> Response {
        let mut response = Response::new(Body::from(body.to_string() + "\n"));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(AGAIN));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // For those who say it in another form.
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.reason });
        self.with_body(&body)
    }
}
