//! What a server says of a file before it sends it.

use super::http::agent;
use ureq::http::{Uri, header};

/// Answers that lead elsewhere on the same server, in a row.
const MOST_TURNS: usize = 5;

/// A file that a server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal digits, where the server names it, as Hugging Face's does.
    pub sha256: Option<String>,
}

/// Asks for the file at `url`; `None` if the server has none there.
///
/// # Errors
/// Why it cannot be had, in words.
pub fn offered(url: &str, token: Option<&str>) -> Result<Option<Offered>, String> {
    let mut url = url.to_owned();
    for _ in 0..MOST_TURNS {
        let mut request = agent(&url, false).head(&url).header(header::ACCEPT_ENCODING, "identity");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let response = request.call().map_err(|e| e.to_string())?;
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let status = response.status();
        // What lies elsewhere is described before it is left for there.
        let linked = text("x-linked-size").or_else(|| text("content-length").filter(|_| status.is_success()));
        if let (true, Some(bytes)) = (status.is_success() || status.is_redirection(), linked) {
            let bytes = bytes.parse().map_err(|_| format!("says that the file has `{bytes}` bytes"))?;
            let digits = text("x-linked-etag").map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_lowercase());
            let is_sha256 = |tag: &String| tag.len() == 64 && tag.bytes().all(|b| b.is_ascii_hexdigit());
            return Ok(Some(Offered { bytes, sha256: digits.filter(is_sha256) }));
        }
        match status.as_u16() {
            404 => return Ok(None),
            401 | 403 => return Err(format!("answered {status}: it asks for a token, or for another one")),
            _ if status.is_success() => return Err("does not say how large the file is".into()),
            _ if status.is_redirection() => {
                let to = text("location").ok_or_else(|| format!("answered {status} and leads nowhere"))?;
                url = elsewhere(&url, to).ok_or_else(|| format!("leads to `{to}`, which is no address"))?;
            }
            _ => return Err(format!("answered {status}")),
        }
    }
    Err(format!("leads elsewhere more than {MOST_TURNS} times"))
}

/// The address that `to` is at `from`.
fn elsewhere(from: &str, to: &str) -> Option<String> {
    if to.starts_with("https://") || to.starts_with("http://") {
        return Some(to.to_owned());
    }
    let from: Uri = from.parse().ok()?;
    to.starts_with('/').then(|| Some(format!("{}://{}{to}", from.scheme()?, from.authority()?)))?
}
