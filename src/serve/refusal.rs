//! Why a request is not answered: a status, and the reason in words.

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Seconds after which a client that was sent away may come again.
const AGAIN: &str = "1";

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of fault it is.
    pub status: StatusCode,
    /// What was wrong, and what to do.
    pub reason: String,
    /// Nothing more is read from this connection.
    pub close: bool,
}

impl Refusal {
    /// For that reason.
    pub fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Refusal { status, reason: reason.into(), close: false }
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

    /// The same, and the connection ends.
    pub fn closing(self) -> Self {
        Refusal { close: true, ..self }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = json!({ "error": self.reason }).to_string() + "\n";
        let mut response = Response::new(Body::from(text));
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
        response
    }
}
