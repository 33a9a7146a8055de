//! By which names a server of this machine alone may be asked.
//!
//! A page of another site can have its own name lead to 127.0.0.1 (DNS rebinding): to the browser the server is then a part of that site, and `Host` alone says by
//! which name it asks. No other header marks a browser: over plain HTTP it sends neither `Sec-Fetch-Site` nor, to read, `Origin`.

use super::refusal::Refusal;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use std::net::IpAddr;

/// Most characters of a client's name in an error.
const SHOWN: usize = 80;

/// Names by which requests may come.
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

    /// Whether a request may be answered, as far as its name goes.
    ///
    /// # Errors
    /// It comes by a name that every site can have lead here, or it is a browser's and has none.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.open {
            return Ok(());
        }
        let refused = |what: &str| {
            let reason = format!(
                "{what}: ask by an address, as 127.0.0.1, or by `localhost`; `runner serve --allow-host NAME` adds a name"
            );
            Err(Refusal::new(StatusCode::FORBIDDEN, reason))
        };
        if let Some(other) = headers.get_all(HOST).iter().find(|host| !self.allows(host)) {
            let other: String = String::from_utf8_lossy(other.as_bytes()).chars().take(SHOWN).collect();
            return refused(&format!("`{other}` is not a name of this server"));
        }
        // HTTP/1.0 and some tools name no host. Browsers do.
        let is_browser = headers.contains_key("sec-fetch-site") || headers.contains_key(ORIGIN);
        if is_browser && !headers.contains_key(HOST) {
            return refused("the request has no `Host`");
        }
        Ok(())
    }

    fn allows(&self, host: &HeaderValue) -> bool {
        let Some(authority) = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) else { return false };
        let bare = authority.host().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let local = bare.eq_ignore_ascii_case("localhost") || bare.to_ascii_lowercase().ends_with(".localhost");
        let is = |name: &String| name.eq_ignore_ascii_case(bare);
        local || bare.parse::<IpAddr>().is_ok() || self.allowed.iter().any(is)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(names: &Names, hosts: &[&str], more: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        hosts.iter().for_each(|host| _ = headers.append(HOST, host.parse().unwrap()));
        if let Some(name) = more {
            headers.insert(name, "same-origin".parse().unwrap());
        }
        names.check(&headers).is_ok()
    }

    #[test]
    fn requests_come_by_addresses_and_names_of_this_machine() {
        let names = Names::of(vec!["demo.example".into()], [127, 0, 0, 1].into());
        // To a name of its own a browser sends nothing else that a program does not.
        for more in [None, Some("sec-fetch-site"), Some("origin")] {
            for host in
                ["127.0.0.1:8080", "localhost", "LOCALHOST:80", "[::1]:8080", "a.localhost:1", "demo.example:8080"]
            {
                assert!(answer(&names, &[host], more), "{host} {more:?}");
                assert!(!answer(&names, &[host, "evil.example"], more), "{host} {more:?}");
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
                assert!(!answer(&names, &[host], more), "{host} {more:?}");
            }
            assert_eq!(answer(&names, &[], more), more.is_none(), "{more:?}");
        }
        let open = Names::of(Vec::new(), [0, 0, 0, 0].into());
        assert!(answer(&open, &["box.example:8080"], Some("sec-fetch-site")));
    }

    #[test]
    fn a_refusal_says_by_which_name_to_ask() {
        let names = Names::of(Vec::new(), [127, 0, 0, 1].into());
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "evil.example:80".parse().unwrap());
        let refusal = names.check(&headers).unwrap_err();
        assert_eq!(refusal.status, StatusCode::FORBIDDEN);
        for part in ["`evil.example:80` is not a name of this server", "`localhost`", "--allow-host"] {
            assert!(refusal.reason.contains(part), "{refusal:?}");
        }
    }
}
