//! The body of a request: received within its time and its memory.

use super::budget::Charge;
use super::refusal::Refusal;
use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Bytes of a body that is too large which are still taken from the client, so that it comes to read the answer.
const LEFT: usize = 64 << 20;
/// How long that may take.
const LEFT_FOR: Duration = Duration::from_secs(2);

/// Receives a body of at most `most` bytes, within `patience`.
///
/// # Errors
/// It is larger, takes longer, is cut off or packed, or there is no memory for it.
pub async fn receive(
    headers: &HeaderMap,
    mut body: Body,
    (most, patience): (usize, Duration),
    charge: &mut Charge,
) -> Result<Bytes, Refusal> {
    if let Some(packed) = headers.get(CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        let reason =
            format!("bodies are taken as they are, not packed: `Content-Encoding: {}`", shown(packed.as_bytes()));
        return Err(Refusal::other_type(reason).closing());
    }
    let content_length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let refused = || {
        let reason = format!("the body has more than {most} bytes (--max-body)");
        Refusal::too_large(reason).closing()
    };
    if content_length.is_some_and(|length| length > most) {
        // Who asks first has sent nothing yet.
        if !headers.contains_key(EXPECT) {
            drain(&mut body).await;
        }
        return Err(refused());
    }
    let until = Instant::now() + patience;
    let mut all = Vec::new();
    loop {
        let frame = match timeout_at(until, body.frame()).await {
            Err(_) => {
                let reason = format!("the body did not arrive within {} s (--receive-timeout)", patience.as_secs_f64());
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, reason).closing());
            }
            Ok(None) => return Ok(all.into()),
            Ok(Some(Err(_))) => return Err(Refusal::bad("the body is cut off, or broken").closing()),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(piece) = frame.into_data() else { continue };
        if all.len() + piece.len() > most {
            drain(&mut body).await;
            return Err(refused());
        }
        // Twice as much as before: what a client announces and does not send takes no memory from others.
        let room = (all.len() + piece.len()).saturating_sub(all.capacity());
        if room > 0 {
            let announced = content_length.unwrap_or(usize::MAX).saturating_sub(all.capacity());
            let grown = room.max(all.capacity().min(announced));
            if let Err(refusal) = charge.add(grown) {
                drain(&mut body).await;
                return Err(refusal.closing());
            }
            all.reserve_exact(all.capacity() - all.len() + grown);
        }
        all.extend_from_slice(&piece);
    }
}

/// Takes some of what is left of a body, and drops it.
pub async fn drain(body: &mut Body) {
    let until = Instant::now() + LEFT_FOR;
    let mut taken = 0;
    while taken < LEFT {
        match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => taken += frame.data_ref().map_or(0, Bytes::len),
            _ => return,
        }
    }
}

/// Some bytes of a client's, for a message.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned()
}
