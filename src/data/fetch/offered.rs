//! What a server says of a file before it sends it.

use super::http::agent;
use ureq::http::{Uri, header};

/// Answers that lead elsewhere, in a row.
const MOST_TURNS: usize = 5;

/// A file that a server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal digits, where the server names it, as Hugging Face's does.
    pub sha256: Option<String>,
}

/// Asks for the file at `url`, with `token` where one is asked for; `None` if the server has none there.
///
/// # Errors
/// Why it cannot be had, in words.
pub fn offered(url: &str, token: Option<&str>) -> Result<Option<Offered>, String> {
    let server = server_of(url);
    let mut url = url.to_owned();
    for _ in 0..MOST_TURNS {
        let mut request = agent(&url, false).head(&url).header(header::ACCEPT_ENCODING, "identity");
        // It is for that server alone, wherever an answer leads.
        if let Some(token) = token.filter(|_| server_of(&url) == server) {
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

/// What of an address says who answers there.
fn server_of(url: &str) -> Option<(String, String)> {
    let url: Uri = url.parse().ok()?;
    Some((url.scheme()?.to_string(), url.authority()?.to_string()))
}

/// The address that `to` is at `from`.
fn elsewhere(from: &str, to: &str) -> Option<String> {
    if to.starts_with("https://") || to.starts_with("http://") {
        return Some(to.to_owned());
    }
    let from: Uri = from.parse().ok()?;
    to.starts_with('/').then(|| Some(format!("{}://{}{to}", from.scheme()?, from.authority()?)))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    /// A server that gives one answer, and the head that it was asked with.
    fn server(answer: String) -> (String, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (heard, head) = channel();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
            heard
                .send(lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n").to_lowercase())
                .unwrap();
            let _ = stream.write_all(format!("HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n").as_bytes());
        });
        (url, head)
    }

    #[test]
    fn a_token_goes_to_no_other_server() {
        let (other, other_requests) = server("200 OK\r\nContent-Length: 12".into());
        let (first, first_requests) = server(format!("302 Found\r\nContent-Length: 0\r\nLocation: {other}/file"));
        let found = offered(&format!("{first}/file"), Some("secret")).unwrap();
        assert_eq!(found, Some(Offered { bytes: 12, sha256: None }));
        assert!(first_requests.recv().unwrap().contains("bearer secret"));
        assert!(!other_requests.recv().unwrap().contains("secret"));
    }
}
