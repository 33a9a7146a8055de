//! Dates that are not written as ISO 8601 has them: by a format of `strftime`.

use super::kinds::{At, Odd};
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

/// Cells that are all dates of one form, which is not that of ISO 8601: `9.2.2024`, `02/09/24 5:30 PM`, `Feb 9, 2024`.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// How many there are.
    pub count: usize,
    first: Option<At>,
    /// The forms that read all of them, the likeliest first.
    forms: Vec<DateForm>,
}

impl Written {
    /// Takes the next cell, if it is written as those before it; `line`: where it is.
    pub fn see(&mut self, cell: &str, line: impl FnOnce() -> String) {
        let left = match &self.first {
            None => forms_of(cell),
            Some(_) => self.forms.iter().copied().filter(|form| form.days(cell).is_some()).collect(),
        };
        if left.is_empty() {
            return;
        }
        self.first.get_or_insert_with(|| At { cell: cell.to_owned(), line: line() });
        self.forms = left;
        self.count += 1;
    }

    /// Takes those of the rows after.
    pub fn join(&mut self, next: Written) {
        if self.first.is_none() {
            *self = next;
        } else if next.first.is_some() {
            let both: Vec<DateForm> = self.forms.iter().copied().filter(|form| next.forms.contains(form)).collect();
            if !both.is_empty() {
                (self.forms, self.count) = (both, self.count + next.count);
            }
        }
    }

    /// The first of them, and their format.
    pub fn odd(self) -> Option<Odd> {
        let form = self.forms.first()?;
        Some(Odd::DateFormat(self.first?, form.as_str().to_owned()))
    }
}

/// Most characters of a cell that is taken for a date.
const LONGEST: usize = 40;

/// The forms that a cell may be a date of, the likeliest first. Where it may be the day or the month that comes first, points and hyphens stand after the day, and slashes after the
/// month.
fn forms_of(cell: &str) -> Vec<DateForm> {
    if cell.len() > LONGEST || !cell.is_ascii() || !cell.bytes().any(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    let (day, time) = parted(cell);
    let Some(time) = form_of_time(time) else { return Vec::new() };
    let formats = forms_of_day(day).into_iter().filter_map(|day| DateForm::new(&(day + &time)));
    formats.filter(|form| form.days(cell).is_some()).collect()
}

/// Whether a cell is a time of day without a date: `12:30`, `9:05:30 PM`.
pub fn is_time(cell: &str) -> bool {
    if cell.len() > LONGEST || !cell.contains(':') || !cell.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    let mut parsed = Parsed::new();
    form_of_time(cell).is_some_and(|form| parse(&mut parsed, cell, StrftimeItems::new(&form)).is_ok())
        && parsed.to_naive_time().is_ok()
}

/// What stands before the time of a date, and the time with what separates the two.
fn parted(cell: &str) -> (&str, &str) {
    let Some(colon) = cell.find(':') else { return (cell, "") };
    let hours = cell[..colon].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    let end = cell[..hours].trim_end_matches([' ', ',', 'T']).len();
    cell.split_at(end)
}

/// The format of a time: `, 5:30:00 PM`, `T17:30:00.5+01:00`; nothing of no time.
fn form_of_time(time: &str) -> Option<String> {
    let digits = time.find(|c: char| c.is_ascii_digit());
    let Some(digits) = digits else { return time.is_empty().then(String::new) };
    let (before, time) = time.split_at(digits);
    let (time, zone) = match time.find(['+', '-', 'Z', 'U', 'G']) {
        Some(at) => time.split_at(at),
        None => (time, ""),
    };
    let clock = time.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let half = match time[clock.len()..].trim() {
        "" => "",
        half if half.eq_ignore_ascii_case("am") || half.eq_ignore_ascii_case("pm") => "%p",
        _ => return None,
    };
    let mut form = before.to_owned() + if half.is_empty() { "%H:%M" } else { "%I:%M" };
    form += match clock.split_once('.') {
        Some(_) => ":%S%.f",
        None if clock.matches(':').count() == 2 => ":%S",
        None => "",
    };
    let gap = |text: &str| " ".repeat(text.chars().take_while(|c| *c == ' ').count());
    if !half.is_empty() {
        form += &(gap(&time[clock.len()..]) + half);
    }
    if !zone.is_empty() {
        let ends = time.len() - time.trim_end().len();
        form += &" ".repeat(if half.is_empty() || ends > 0 { ends } else { 0 });
        form += if zone.starts_with(['+', '-']) { "%z" } else { zone };
    }
    Some(form)
}

/// The formats that a date without a time may have.
fn forms_of_day(day: &str) -> Vec<String> {
    // Runs of digits, words, and what stands between them.
    let kind = |c: char| (c.is_ascii_digit(), c.is_ascii_alphabetic());
    let mut runs: Vec<&str> = Vec::new();
    let mut begin = 0;
    for (at, pair) in day.as_bytes().windows(2).enumerate() {
        if kind(pair[0].into()) != kind(pair[1].into()) {
            runs.push(&day[begin..=at]);
            begin = at + 1;
        }
    }
    runs.push(&day[begin..]);
    let is_number = |run: &&&str| run.starts_with(|c: char| c.is_ascii_digit());
    let lengths: Vec<usize> = runs.iter().filter(is_number).map(|run| run.len()).collect();
    let named = runs.iter().any(|run| is_month(run));
    let separator = runs.get(1).copied().unwrap_or_default();
    let orders: &[&[&str]] = match (&lengths[..], named) {
        ([1 | 2, 4], true) => &[&["%d", "%Y"]],
        ([4, 1 | 2], true) => &[&["%Y", "%d"]],
        ([1 | 2, 2], true) => &[&["%d", "%y"]],
        (_, true) => &[],
        _ if runs.len() != 5 || !["/", ".", "-"].contains(&separator) || runs[3] != separator => &[],
        ([4, 1 | 2, 1 | 2], _) => &[&["%Y", "%m", "%d"]],
        ([1 | 2, 1 | 2, 4], _) if separator == "/" => &[&["%m", "%d", "%Y"], &["%d", "%m", "%Y"]],
        ([1 | 2, 1 | 2, 4], _) => &[&["%d", "%m", "%Y"], &["%m", "%d", "%Y"]],
        // `1.2.20` is a version as well, and with hyphens the year may come first.
        ([1 | 2, 1 | 2, 2], _) if separator == "/" => &[&["%m", "%d", "%y"], &["%d", "%m", "%y"]],
        ([2, 2, 2], _) if separator == "." => &[&["%d", "%m", "%y"], &["%m", "%d", "%y"]],
        _ => &[],
    };
    let written = |order: &&[&str], month: &str| {
        let mut numbers = order.iter();
        let part = |run: &&str| match run {
            run if is_number(&run) => numbers.next().map(|part| (*part).to_owned()),
            run if is_month(run) => Some(month.to_owned()),
            run if WEEKDAYS.iter().any(|day| is_name(run, day)) => {
                Some(if run.len() == 3 { "%a" } else { "%A" }.into())
            }
            run if run.chars().all(|c| " ,.-/".contains(c)) => Some((*run).to_owned()),
            _ => None,
        };
        runs.iter().map(part).collect::<Option<String>>()
    };
    // May is short and long.
    let months: &[&str] = if named { &["%b", "%B"] } else { &[""] };
    orders.iter().flat_map(|order| months.iter().filter_map(|month| written(order, month))).collect()
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

fn is_month(word: &str) -> bool {
    MONTHS.iter().any(|month| is_name(word, month))
}

/// Whether a word is a name, or its first three letters.
fn is_name(word: &str, name: &str) -> bool {
    word.eq_ignore_ascii_case(name) || word.eq_ignore_ascii_case(&name[..3])
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
    fn times_of_day_are_distinguished_from_other_texts() {
        for cell in ["12:30", "0:05", "23:59:59", "9:05 PM", "12:00:01.5 am"] {
            assert!(is_time(cell), "{cell}");
        }
        for cell in ["24:30", "12:60", "1:2:3:4", "a 12:30", "12:30 soon", "2:1 odds", ":30", "12:", "2024-01-01 12:30"]
        {
            assert!(!is_time(cell), "{cell}");
        }
    }

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

    /// Cells in many forms, and the formats that read them.
    #[test]
    fn the_format_of_dates_is_found() {
        for (cells, format) in [
            (&["01.01.20", "26.11.26"][..], Some("%d.%m.%y")),
            (&["01.01.20", "11.26.26"], Some("%m.%d.%y")),
            (&["1/2/20", "12/3/20"], Some("%m/%d/%y")),
            (&["1/2/20", "13/3/20"], Some("%d/%m/%y")),
            (&["01.01.2020 12:30", "8.1.2020 9:05"], Some("%d.%m.%Y %H:%M")),
            (&["1/2/2020, 12:30:59 PM"], Some("%m/%d/%Y, %I:%M:%S %p")),
            (&["Feb 01, 2020", "May 12, 2021"], Some("%b %d, %Y")),
            (&["May 12, 2021", "February 1, 2020"], Some("%B %d, %Y")),
            (&["1 Feb 2020"], Some("%d %b %Y")),
            (&["26-NOV-26"], Some("%d-%b-%y")),
            (&["Thu, 26 Nov 2026 17:30:00 +0000"], Some("%a, %d %b %Y %H:%M:%S %z")),
            (&["2026/11/26 17:30:00.25+01:00"], Some("%Y/%m/%d %H:%M:%S%.f%z")),
            (&["26.11.2026 17:30 UTC"], Some("%d.%m.%Y %H:%M UTC")),
            (&["2024-1-5"], Some("%Y-%m-%d")),
            (&["1.2.20"], None),
            (&["20-11-26"], None),
            (&["1.2.3"], None),
            (&["31.02.2026"], None),
            (&["May"], None),
            (&["12:30"], None),
            (&["Room 5, 2020"], None),
            (&["5:30 of 1.1.2020"], None),
            (&["§ 1.1.2020"], None),
        ] {
            let mut written = Written::default();
            cells.iter().for_each(|cell| written.see(cell, String::new));
            let found = written.odd().map(|odd| match odd {
                Odd::DateFormat(first, format) => (first.cell, format),
                other => panic!("{other:?}"),
            });
            assert_eq!(found, format.map(|format| (cells[0].to_owned(), format.to_owned())), "{cells:?}");
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
