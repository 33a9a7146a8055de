//! Dates that are not written as ISO 8601 has them: by a format of `strftime`.

use chrono::format::{Item, Parsed, StrftimeItems, parse};
use chrono::{Datelike, Timelike};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Most bytes of a format.
const MOST: usize = 47;
/// Days from the first of the year 1 to 1970-01-01, of which the former has the number 1.
const BEFORE_1970: i32 = 719_163;

/// How the dates of a column are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DateForm {
    bytes: [u8; MOST],
    len: u8,
}

impl DateForm {
    /// That of a format of `strftime`, such as `%d.%m.%Y`; `None` if it is none, or a long one.
    pub fn new(format: &str) -> Option<DateForm> {
        let mut bytes = [0; MOST];
        bytes.get_mut(..format.len())?.copy_from_slice(format.as_bytes());
        let known = StrftimeItems::new(format).all(|item| item != Item::Error);
        known.then_some(DateForm { bytes, len: format.len() as u8 })
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    /// Days since 1970-01-01 of a cell. Its time zone is not looked at: days are those of the place where it was written.
    pub fn days(&self, cell: &str) -> Option<f64> {
        let mut parsed = Parsed::new();
        parse(&mut parsed, cell, StrftimeItems::new(self.as_str())).ok()?;
        let date = parsed.to_naive_date().ok()?;
        if parsed.minute().is_none() {
            parsed.set_minute(0).ok()?;
        }
        let seconds = match parsed.hour_mod_12() {
            None => 0,
            Some(_) => parsed.to_naive_time().ok()?.num_seconds_from_midnight(),
        };
        let days = f64::from(date.num_days_from_ce() - BEFORE_1970);
        (1..=9999).contains(&date.year()).then(|| days + f64::from(seconds) / 86_400.0)
    }
}

impl fmt::Debug for DateForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl Serialize for DateForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for DateForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        DateForm::new(&text).ok_or_else(|| serde::de::Error::custom("no format of dates"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_the_format_says() {
        // As `datetime.strptime` of Python reads them, in days since 1970-01-01.
        for (format, cell, days) in [
            ("%d.%m.%Y", "26.11.2026", 20_783.0),
            ("%d.%m.%Y", "1.3.1900", -25_508.0),
            ("%m/%d/%y", "11/26/26", 20_783.0),
            ("%Y%m%d", "20261126", 20_783.0),
            ("%d %b %Y", "26 Nov 2026", 20_783.0),
            ("%A, %B %d, %Y", "Thursday, November 26, 2026", 20_783.0),
            ("%d.%m.%Y %H:%M", "26.11.2026 12:00", 20_783.5),
            ("%d/%m/%Y %I:%M:%S %p", "26/11/2026 06:00:00 PM", 20_783.75),
            ("%Y-%m-%dT%H:%M:%S%z", "2026-11-26T06:00:00+0530", 20_783.25),
            ("%d.%m.%Y %Hh", "26.11.2026 6h", 20_783.25),
            ("%Y-%j", "2026-330", 20_783.0),
        ] {
            let form = DateForm::new(format).unwrap_or_else(|| panic!("{format}"));
            assert_eq!(form.days(cell), Some(days), "{format}, {cell}");
        }
        let form = DateForm::new("%d.%m.%Y").unwrap();
        for cell in ["2026-11-26", "31.02.2026", "26.11.", "26.11.2026 12:00", "", "26.13.2026", "26.11.20261"] {
            assert_eq!(form.days(cell), None, "{cell}");
        }
    }

    #[test]
    fn a_format_is_kept_as_its_text() {
        for format in ["%Q", "%", &"%d".repeat(24)] {
            assert_eq!(DateForm::new(format), None, "{format}");
        }
        let written = serde_json::to_value(DateForm::new("%d.%m.%Y").unwrap()).unwrap();
        assert_eq!(written, "%d.%m.%Y");
        assert!(serde_json::from_value::<DateForm>(written).unwrap().days("26.11.2026").is_some());
        assert!(serde_json::from_value::<DateForm>("%Q".into()).is_err());
    }
}
