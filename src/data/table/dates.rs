//! Dates that are not written as ISO 8601 has them: by a format of `strftime`.

use super::kinds::Odd;
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

/// Cells that are all dates of one form, which is not that of ISO 8601: `9.2.2024`, `02/09/2024`, `2024/02/09`.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// How many there are.
    pub count: usize,
    first: Option<(String, Shape)>,
    /// The largest of the two numbers beside the year, in their order.
    largest: [u32; 2],
}

/// What separates the numbers of a date, and whether the year comes first.
type Shape = (u8, bool);

impl Written {
    /// Takes the next cell, if it is written as those before it.
    pub fn see(&mut self, cell: &str) {
        let Some((shape, pair)) = numbers_of(cell) else { return };
        match &self.first {
            None => self.first = Some((cell.to_owned(), shape)),
            Some((_, known)) if *known != shape => return,
            Some(_) => {}
        }
        self.count += 1;
        self.largest = [self.largest[0].max(pair[0]), self.largest[1].max(pair[1])];
    }

    /// Takes those of the rows behind.
    pub fn join(&mut self, next: Written) {
        match (&self.first, &next.first) {
            (Some((_, own)), Some((_, other))) if own != other => return,
            (None, _) => self.first = next.first,
            _ => {}
        }
        self.count += next.count;
        self.largest = [self.largest[0].max(next.largest[0]), self.largest[1].max(next.largest[1])];
    }

    /// The first of them, and their format. Where two do, points stand behind the day, and slashes behind the month, if no
    /// number says otherwise.
    pub fn odd(self) -> Option<Odd> {
        let (cell, (separator, year_first)) = self.first?;
        let s = char::from(separator);
        let [first, second] = self.largest;
        let format = match year_first {
            true if first <= 12 => format!("%Y{s}%m{s}%d"),
            true => return None,
            false if second > 12 || first <= 12 && separator == b'/' => format!("%m{s}%d{s}%Y"),
            false => format!("%d{s}%m{s}%Y"),
        };
        let read = |format: &str| DateForm::new(format).is_some_and(|form| form.days(&cell).is_some());
        read(&format).then(|| Odd::DateFormat(cell.clone(), format))
    }
}

/// The shape of a date, and the two numbers beside its year.
fn numbers_of(cell: &str) -> Option<(Shape, [u32; 2])> {
    let separator = cell.bytes().find(|byte| !byte.is_ascii_digit()).filter(|byte| b"./-".contains(byte))?;
    let mut parts = cell.split(char::from(separator));
    let parts = [parts.next()?, parts.next()?, parts.next()?, parts.next().unwrap_or_default()];
    let number = |part: &str| part.parse::<u32>().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()));
    let short = |part: &str| number(part).filter(|number| part.len() <= 2 && (1..=31).contains(number));
    let year = |part: &str| number(part).is_some_and(|_| part.len() == 4);
    match parts {
        [first, second, third, ""] if year(third) => Some(((separator, false), [short(first)?, short(second)?])),
        [first, second, third, ""] if year(first) => Some(((separator, true), [short(second)?, short(third)?])),
        _ => None,
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
