//! By which names pages of a browser may ask a server of this machine alone.
//!
//! A page of another site can have its own name lead to 127.0.0.1 (DNS rebinding): to the browser the server is then a part of that site, and `Host` alone says by which name it asks.

use super::refusal::Refusal;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use std::net::IpAddr;

/// Names by which pages may ask.
#[derive(Debug)]
pub struct Names {
    allowed: Vec<String>,
    /// Other machines may ask as well, so names keep no page away.
    open: bool,
}

impl Names {
    /// These, addresses and `localhost`, for a server that listens at `address`.
    pub fn of(allowed: Vec<String>, address: IpAddr) -> Names {
        Names { allowed, open: !address.is_loopback() }
    }

    /// Whether a request may be answered, as far as its name goes. Programs that are no browsers say neither where a page comes from nor how it was fetched.
    ///
    /// # Errors
    /// A page asks by a name that anybody can have.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let browser = headers.contains_key("sec-fetch-site") || headers.contains_key(ORIGIN);
        if !browser || self.open {
            return Ok(());
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        match host.parse::<Authority>() {
            Ok(authority) if self.allows(authority.host()) => Ok(()),
            _ => {
                let message =
                    "a page may ask by an address or by `localhost`: `runner serve --allow-host NAME` adds a name";
                Err(Refusal::new(StatusCode::FORBIDDEN, message))
            }
        }
    }

    fn allows(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let local = bare.eq_ignore_ascii_case("localhost") || bare.to_ascii_lowercase().ends_with(".localhost");
        let is = |name: &String| name.eq_ignore_ascii_case(bare);
        local || bare.parse::<IpAddr>().is_ok() || self.allowed.iter().any(is)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(names: &Names, host: &str, browser: bool) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if browser {
            headers.insert("sec-fetch-site", "same-origin".parse().unwrap());
        }
        names.check(&headers).is_ok()
    }

    #[test]
    fn pages_ask_by_addresses_and_names_of_this_machine() {
        let names = Names::of(vec!["demo.example".into()], [127, 0, 0, 1].into());
        for host in ["127.0.0.1:8080", "localhost", "LOCALHOST:80", "[::1]:8080", "a.localhost:1", "demo.example:8080"]
        {
            assert!(answer(&names, host, true), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "a b",
            "127.0.0.1@evil.example",
        ] {
            assert!(!answer(&names, host, true), "{host}");
            assert!(answer(&names, host, false), "{host}");
        }
        let open = Names::of(Vec::new(), [0, 0, 0, 0].into());
        assert!(answer(&open, "box.example:8080", true));
    }
}
