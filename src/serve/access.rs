//! A line on standard error for every request.

use crate::terminal::{json_line, say};
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// In which form requests are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// A line for people.
    Text,
    /// A JSON object a line.
    Json,
    /// Not at all.
    Off,
}

/// A request that was answered.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Who asked.
    pub from: SocketAddr,
    /// How.
    pub method: &'a str,
    /// For what, without what follows a `?`.
    pub path: &'a str,
    /// How it ended.
    pub status: u16,
    /// How long it took.
    pub took: Duration,
    /// The model that was asked, if one was.
    pub model: &'a str,
    /// Samples that were answered.
    pub samples: usize,
}

/// Longest path and longest method that are written down, in characters.
const LONGEST: usize = 200;

impl Log {
    /// Writes a request down.
    pub fn write(self, entry: &Entry) {
        let path: String = entry.path.chars().take(LONGEST).collect();
        let method: String = entry.method.chars().take(LONGEST).collect();
        let milliseconds = entry.took.as_secs_f64() * 1e3;
        let time = time(SystemTime::now());
        match self {
            Log::Off => {}
            Log::Text => {
                let s = if entry.samples == 1 { "" } else { "s" };
                let samples = match entry.model {
                    "" => String::new(),
                    model => format!(", {} sample{s} of {model}", entry.samples),
                };
                say(&format!("{time} {} {method} {path} {} {milliseconds:.2} ms{samples}", entry.from, entry.status));
            }
            Log::Json => say(&json_line(&json!({
                "time": time,
                "from": entry.from.to_string(),
                "method": method,
                "path": path,
                "status": entry.status,
                "milliseconds": (milliseconds * 1e3).round() / 1e3,
                "model": if entry.model.is_empty() { None } else { Some(entry.model) },
                "samples": entry.samples,
            }))),
        }
    }
}

/// A time as RFC 3339 writes it, in UTC and to the millisecond.
fn time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days: years begin in March, so that the leap day is their last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + 400 * era + u64::from(month <= 2);
    let (hours, minutes, seconds, milliseconds) =
        (seconds / 3600, seconds / 60 % 60, seconds % 60, since.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (milliseconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (1_795_725_713_250, "2026-11-26T20:41:53.250Z"),
        ] {
            assert_eq!(time(UNIX_EPOCH + Duration::from_millis(milliseconds)), expected);
        }
    }
}
