//! What a cell of a table says: a number, a truth, a date, or nothing.

/// Texts that stand for nothing: those of pandas, and `?`.
pub const MISSING: [&str; 20] = [
    "", "?", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
];
/// Words that are truths, in upper case or lower.
pub const TRUTHS: [(&str, bool); 8] = [
    ("true", true),
    ("yes", true),
    ("t", true),
    ("y", true),
    ("false", false),
    ("no", false),
    ("f", false),
    ("n", false),
];

/// True for a cell that says nothing.
pub fn is_missing(cell: &str) -> bool {
    let bytes = cell.as_bytes();
    let unsigned = bytes.strip_prefix(b"-").unwrap_or(bytes);
    if unsigned.first().is_some_and(u8::is_ascii_digit) && !unsigned.starts_with(b"1.#") {
        return false;
    }
    // All of them are short.
    cell.len() <= 9 && MISSING.contains(&cell)
}

/// The number that a cell has, with `decimal` before its fraction; none that single precision does not hold.
pub fn number(cell: &str, decimal: char) -> Option<f64> {
    if decimal == '.'
        && let Some(number) = short(cell)
    {
        return Some(number);
    }
    // `inf` and `infinity` are words.
    if !cell.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: f64 = match decimal {
        '.' => cell.parse().ok()?,
        // `1.234,5`: points group digits there, three by three.
        _ => {
            let (whole, fraction) = cell.split_once(decimal).unwrap_or((cell, ""));
            if fraction.contains('.') || !is_grouped(whole) {
                return None;
            }
            cell.replace('.', "").replace(decimal, ".").parse().ok()?
        }
    };
    (number as f32).is_finite().then_some(number)
}

/// Powers of ten that double precision holds exactly.
const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
/// The first whole number after which double precision does not hold all of them.
const EXACT: u64 = 1 << 53;
/// A byte that is 1 in each of eight places.
const ONES: u64 = u64::MAX / 255;
/// Eight times `0`.
const ZEROS: u64 = ONES * b'0' as u64;
/// The highest bit of each byte.
const HIGH: u64 = ONES * 0x80;

/// A number of at most 16 characters with a point and no exponent, as nearly all of a table are. Its digits as a whole number and the power of ten are exact, so
/// that their quotient is the nearest double: Clinger 1990, "How to Read Floating Point Numbers Accurately". Eight digits are read at once: Lemire 2021,
/// "Number Parsing at a Gigabyte per Second". `str::parse` gives the same number.
#[inline]
pub fn short(cell: &str) -> Option<f64> {
    let (bytes, len) = (cell.as_bytes(), cell.len());
    // The characters in the last of 16 places, the first of them in the lowest byte of `before`. What two loads share is the same.
    let (mut before, mut behind) =
        if let (8..=16, Some(first), Some(last)) = (len, bytes.first_chunk(), bytes.last_chunk()) {
            let free = 8 * (16 - len as u32);
            let first = u64::from_le_bytes(*first).checked_shl(free).unwrap_or(0);
            (first | ZEROS & !u64::MAX.checked_shl(free).unwrap_or(0), u64::from_le_bytes(*last))
        } else if let (4..=7, Some(first), Some(last)) = (len, bytes.first_chunk(), bytes.last_chunk()) {
            let free = 8 * (8 - len as u32);
            let (first, last) = (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)));
            (ZEROS, last << 32 | first << free | ZEROS & !(u64::MAX << free))
        } else if let 1..=3 = len {
            (ZEROS, bytes.iter().fold(ZEROS, |all, byte| all >> 8 | u64::from(*byte) << 56))
        } else {
            return None;
        };
    let negative = bytes[0] == b'-';
    if negative {
        let sign = u64::from(b'-' ^ b'0');
        match len {
            9..=16 => before ^= sign << (8 * (16 - len)),
            _ => behind ^= sign << (8 * (8 - len)),
        }
    }
    // What stands before a point goes to its place.
    let mut fraction = 0;
    let mut pointed = true;
    if let Some((low, high, at)) = around_point(behind) {
        behind = high | low << 8 | before >> 56;
        before = before << 8 | u64::from(b'0');
        fraction = 7 - at;
    } else if let Some((low, high, at)) = around_point(before) {
        before = high | low << 8 | u64::from(b'0');
        fraction = 15 - at;
    } else {
        pointed = false;
    }
    let digits = eight(before) * 100_000_000 + eight(behind);
    let is_number = are_digits(before) && are_digits(behind) && len > usize::from(negative) + usize::from(pointed);
    let number = digits as f64 / POWERS[fraction];
    (is_number && digits <= EXACT).then_some(if negative { -number } else { number })
}

/// What stands before the first point among eight characters and what stands after it, and its place, if there is one.
#[inline]
fn around_point(characters: u64) -> Option<(u64, u64, usize)> {
    let others = characters ^ (ONES * u64::from(b'.'));
    let points = !(((others & !HIGH) + !HIGH) | others | !HIGH);
    let first = points & points.wrapping_neg();
    let (before, behind) = ((first >> 7).wrapping_sub(1), !(first << 1).wrapping_sub(1));
    (points != 0).then(|| (characters & before, characters & behind, points.trailing_zeros() as usize / 8))
}

/// Whether eight characters are digits.
#[inline]
fn are_digits(characters: u64) -> bool {
    let above = characters.wrapping_add(ONES * u64::from(0x7f - b'9'));
    (characters | above | characters.wrapping_sub(ZEROS)) & HIGH == 0
}

/// The number of eight digits, the first of them in the lowest byte.
#[inline]
fn eight(digits: u64) -> u64 {
    let pairs = (digits & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(10 << 8 | 1) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul(100 << 16 | 1) >> 16;
    (fours & 0x0000_ffff_0000_ffff).wrapping_mul(10_000 << 32 | 1) >> 32
}

/// Whether a cell is a number with a comma before its fraction, and no list. Three digits after a comma may be thousands, but not after a
/// zero.
pub fn is_decimal_comma(cell: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = cell.split_once(',');
    parts.is_some_and(|(whole, part)| {
        let whole = whole.trim_start_matches('-');
        digits(whole) && digits(part) && (part.len() != 3 || whole == "0")
    })
}

/// Whether a cell is a number with commas between its thousands: `1,000.5`, `12,345,678`.
pub fn is_thousands(cell: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = cell.split_once('.').unwrap_or((cell, "0"));
    let mut groups = whole.trim_start_matches(['-', '+']).split(',');
    let first = groups.next().unwrap_or_default();
    let others: Vec<&str> = groups.collect();
    let grouped =
        first.len() <= 3 && !others.is_empty() && others.iter().all(|group| group.len() == 3 && digits(group));
    digits(first) && grouped && digits(fraction)
}

/// What stands before an amount of money.
const CURRENCIES: [&str; 24] = [
    "$", "€", "£", "¥", "₹", "₽", "₩", "₺", "₪", "US$", "A$", "C$", "R$", "Rs", "Rs.", "kr", "USD", "EUR", "GBP",
    "CHF", "JPY", "CNY", "INR", "CAD",
];
/// Most characters of a unit.
const LONGEST_UNIT: usize = 12;

/// What stands before and after the number of a cell that has a currency or a unit: `$5.20`, `12 %`, `3 kg`. Where nothing does, it is a plain number or a text.
pub fn unit(cell: &str) -> Option<[&str; 2]> {
    let is_digit = |c: char| c.is_ascii_digit();
    let (first, last) = (cell.find(is_digit)?, cell.rfind(is_digit)?);
    let signed = cell[..first].strip_suffix('.').unwrap_or(&cell[..first]);
    let before = signed.strip_suffix(['-', '+']).unwrap_or(signed);
    let (digits, behind) = (&cell[before.len()..=last], &cell[last + 1..]);
    // A sign may stand before a currency, too.
    let before = before.strip_prefix('-').unwrap_or(before);
    let is_currency = |text: &str| CURRENCIES.contains(&text);
    let is_unit = |text: &str| {
        text.chars().count() <= LONGEST_UNIT
            && (is_currency(text) || text.starts_with(|c: char| c.is_alphabetic() || "%‰°".contains(c)))
    };
    let (front, back) = (before.trim(), behind.trim());
    let named = (front.is_empty() || is_currency(front)) && (back.is_empty() || is_unit(back));
    let is_number = || number(digits, '.').is_some() || number(digits, ',').is_some() || is_thousands(digits);
    (named && !(front.is_empty() && back.is_empty()) && is_number()).then_some([before, behind])
}

/// Whether a cell is a number that is written as a code is: `00062`, a zip code. Zeros before a number say that it names something.
pub fn is_code(cell: &str) -> bool {
    cell.len() > 1 && cell.starts_with('0') && cell.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether points stand after one to three digits and before each three, if there are any. No thousands stand after a zero: `0.942` has a point before its
/// fraction.
fn is_grouped(whole: &str) -> bool {
    let mut groups = whole.trim_start_matches(['-', '+']).split('.');
    let first = groups.next().unwrap_or_default();
    let mut others = groups.peekable();
    let ungrouped = others.peek().is_none();
    ungrouped || (1..=3).contains(&first.len()) && !first.starts_with('0') && others.all(|group| group.len() == 3)
}

/// The truth that a cell has.
pub fn truth(cell: &str) -> Option<bool> {
    TRUTHS.iter().find(|(word, _)| word.eq_ignore_ascii_case(cell)).map(|(_, truth)| *truth)
}

/// Days since 1970-01-01 of a cell that has a date of ISO 8601, `2026-11-26` or `2026-11-26 17:30:00` (with `T` or a space, seconds and
/// their fraction, and a time zone where wanted: `Z`, `+01:00`). The zone is not looked at: days are those of the place where it was written.
pub fn date(cell: &str) -> Option<f64> {
    let digits = |text: &str, most: u32| {
        let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|number| all && *number <= most)
    };
    let (day, time) = match cell.split_once(['T', ' ']) {
        Some((day, time)) => (day, without_zone(time)),
        None => (cell, "00:00"),
    };
    let mut parts = day.splitn(3, '-');
    let (y, m, d) = (parts.next()?, parts.next()?, parts.next()?);
    let (year, month, day) = (digits(y, 9999)?, digits(m, 12)?, digits(d, 31)?);
    if [y.len(), m.len(), d.len()] != [4, 2, 2] || month == 0 || day == 0 || day > days_of(year, month) {
        return None;
    }
    let mut parts = time.splitn(3, ':');
    let (hours, minutes) = (digits(parts.next()?, 23)?, digits(parts.next()?, 59)?);
    let seconds: f64 = parts.next().map_or(Some(0.0), |text| number(text, '.')).filter(|s| (0.0..61.0).contains(s))?;
    Some(f64::from(days(year, month, day)) + (f64::from(hours * 3600 + minutes * 60) + seconds) / 86_400.0)
}

/// By how many minutes the clock of a date with a time is ahead of UTC's, as its zone says; 0 without one.
pub fn minutes_ahead(cell: &str) -> i16 {
    let Some((_, time)) = cell.split_once(['T', ' ']) else { return 0 };
    let (clock, zone) = time.split_at(without_zone(time).len());
    let zone = zone.trim_start();
    let number = |at: usize| zone.get(at..at + 2).and_then(|digits| digits.parse::<i16>().ok()).unwrap_or(0);
    if !clock.contains(':') || !zone.starts_with(['+', '-']) {
        return 0;
    }
    let minutes = 60 * number(1) + number(zone.len().max(5) - 2);
    if zone.starts_with('-') { -minutes } else { minutes }
}

/// A time without its zone: `Z`, ` UTC`, `+01`, `+0100`, `+01:00`.
fn without_zone(time: &str) -> &str {
    if let Some(time) = time.strip_suffix('Z').or_else(|| time.strip_suffix(" UTC")) {
        return time;
    }
    let Some(at) = time.rfind(['+', '-']) else { return time };
    let (clock, zone) = time.split_at(at);
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let fits = match zone.len() {
        3 | 5 => digits(&zone[1..]),
        6 => digits(&zone[1..3]) && zone.as_bytes()[3] == b':' && digits(&zone[4..]),
        _ => false,
    };
    if fits { clock.strip_suffix(' ').unwrap_or(clock) } else { time }
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u32, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a day of the Gregorian calendar.
fn days(year: u32, month: u32, day: u32) -> i32 {
    let before = |year: i32| year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let in_year: u32 = (1..month).map(|month| days_of(year, month)).sum();
    before(year as i32 - 1) - before(1969) + (in_year + day - 1) as i32
}

/// The date of so many days since 1970-01-01, as ISO 8601 has it.
pub fn date_text(date: f64) -> String {
    let days_before = |year: u32, month: u32| f64::from(days(year, month, 1));
    let mut year = (1970 + (date / 365.2425).floor() as i64).clamp(1, 9999) as u32;
    while year > 1 && days_before(year, 1) > date {
        year -= 1;
    }
    while year < 9999 && days_before(year + 1, 1) <= date {
        year += 1;
    }
    let month = (2..=12).rev().find(|month| days_before(year, *month) <= date).unwrap_or(1);
    format!("{year:04}-{month:02}-{:02}", (date - days_before(year, month)) as i64 + 1)
}

/// A date as 2026-11-30 or, with a time of day, as 2026-11-30T17:30:00.
pub fn time_text(date: f64) -> String {
    let seconds = (date * 86_400.0).round();
    let (day, second) = ((seconds / 86_400.0).floor(), seconds.rem_euclid(86_400.0) as u32);
    let text = date_text(day);
    if second == 0 {
        return text;
    }
    format!("{text}T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// The part of the year that has gone by at so many days since 1970-01-01, from 0 to 1.
pub fn part_of_year(date: f64) -> f64 {
    let mut year = 1970 + (date / 365.2425).floor() as i64;
    let begin = |year: i64| f64::from(days(year.clamp(1, 10_000) as u32, 1, 1));
    while begin(year) > date && year > 1 {
        year -= 1;
    }
    while begin(year + 1) <= date && year < 9999 {
        year += 1;
    }
    ((date - begin(year)) / (begin(year + 1) - begin(year))).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_what_is_missing() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/config/tables.md"));
        let line = page.lines().find(|line| line.starts_with("An empty cell is missing")).unwrap();
        let (list, _) = line.split_once(", written so").unwrap();
        let mut listed: Vec<&str> = list.split('`').skip(1).step_by(2).chain([""]).collect();
        let mut known = MISSING;
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn cells_are_what_they_say() {
        assert_eq!([number("1e3", '.'), number("-0.5", '.'), number("1,5", '.')], [Some(1000.0), Some(-0.5), None]);
        assert_eq!(
            [number("1,5", ','), number("1.234,5", ','), number("12", ',')],
            [Some(1.5), Some(1234.5), Some(12.0)]
        );
        assert_eq!(["12.5", "-.5", "1.2345,6", "1,2.345", "1.234.5"].map(|cell| number(cell, ',')), [None; 5]);
        assert_eq!(["0.942", "-0.067", "+0.500", "012.345", "0.942,5"].map(|cell| number(cell, ',')), [None; 5]);
        assert_eq!([number("0,942", ','), number("100.942", ',')], [Some(0.942), Some(100_942.0)]);
        assert_eq!(
            [number("1.234.567", ','), number("-1.234", ','), number("1e39", '.')],
            [Some(1_234_567.0), Some(-1234.0), None]
        );
        // No number of ours: too large, or a word.
        assert_eq!(["1e999", "inf", "NaN", "", "0x10", "12 kg"].map(|cell| number(cell, '.')), [None; 6]);
        assert!(["", "NA", "n/a", "?", "null", "-1.#IND", "1.#QNAN", "-nan"].iter().all(|cell| is_missing(cell)));
        assert!(["0", "no", "na na na na", "none of it"].iter().all(|cell| !is_missing(cell)));
        assert_eq!(
            ["00062", "01", "0", "0.5", "10", "-01", "01e2"].map(is_code),
            [true, true, false, false, false, false, false]
        );
        let zoned = ["2026-11-26T17:30+01:00", "26.11.2026 17:30:00 -0530", "2026-11-26 17:30+05"].map(minutes_ahead);
        assert_eq!(zoned, [60, -330, 300]);
        let others =
            ["2026-11-26T17:30Z", "2026-11-26 17:30+00:00", "2026-11-26 17:30 UTC", "2026-11-26", "26-11-2026 5"];
        assert_eq!(others.map(minutes_ahead), [0; 5]);
        for text in ["2026-11-26", "2026-11-26T17:30:00", "1969-12-31T23:59:59"] {
            assert_eq!(time_text(date(text).unwrap()), text);
        }
        assert_eq!(["TRUE", "no", "1", "maybe"].map(truth), [Some(true), Some(false), None, None]);
    }

    #[test]
    fn decimal_commas_are_known_from_lists_and_texts() {
        let are = ["1,5", "-12,75", "0,1234", "0,844", "-0,500"];
        assert!(are.iter().all(|cell| is_decimal_comma(cell)));
        let others = ["1,5,2", "a,b", ",5", "1.5", "3", "1,500", "12,345,678"];
        assert!(!others.iter().any(|cell| is_decimal_comma(cell)));
    }

    /// Amounts, shares and measures are numbers with something around them; names with a number are not.
    #[test]
    fn thousands_and_units_are_known() {
        for cell in ["1,000.5", "1,000", "-12,345,678", "+1,234.50"] {
            assert!(is_thousands(cell), "{cell}");
        }
        for cell in ["1,00", "1000.5", "1,0000", ",000", "1,000.", "a,000", "1,000.5.5", "0001,000"] {
            assert!(!is_thousands(cell), "{cell}");
        }
        for (cell, expected) in [
            ("12%", ["", "%"]),
            ("-12.5 %", ["", " %"]),
            ("$5.20", ["$", ""]),
            ("-$5.20", ["$", ""]),
            ("$-.5", ["$", ""]),
            ("USD 1,234.50", ["USD ", ""]),
            ("5,20 €", ["", " €"]),
            ("1.5kg", ["", "kg"]),
            ("21°C", ["", "°C"]),
            ("$5 k", ["$", " k"]),
        ] {
            assert_eq!(unit(cell), Some(expected), "{cell}");
        }
        for cell in [
            "12",
            "A1",
            "room 3",
            "12:30",
            "1-2%",
            "1 000 m2",
            "2 of 3 beds",
            "12 ",
            "é1",
            "%",
            "12 (about)",
            "1,00,0 $",
        ] {
            assert_eq!(unit(cell), None, "{cell}");
        }
    }

    #[test]
    fn short_numbers_are_those_of_the_standard_library() {
        let mut draw = crate::random::Stream::new(1, crate::random::Purpose::Split, 0, 0);
        let mut next = |below: u64| u64::from(draw.next_u32()) % below;
        let mut seen = 0;
        for _ in 0..200_000 {
            let digits: String = (0..1 + next(18)).map(|_| char::from(b'0' + next(10) as u8)).collect();
            let at = next(1 + digits.len() as u64) as usize;
            let sign = ["", "-"][next(2) as usize];
            let point = [".", ""][next(2) as usize];
            let text = format!("{sign}{}{point}{}", &digits[..at], &digits[at..]);
            let Some(number) = short(&text) else { continue };
            seen += 1;
            assert_eq!(number.to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
        }
        assert!(seen > 150_000);
        let others =
            ["", "-", ".", "-.", "1e3", "1.2.3", "+1", "1 2", "--1", "1-", "1:", "1/", "9007199254740993", "é1", "1é"];
        assert_eq!(others.map(short), [None; 15]);
        // Each byte in each place of numbers of each length.
        for len in 1..=17 {
            for (at, byte) in (0..len).flat_map(|at| (0..128u8).map(move |byte| (at, byte))) {
                let mut text = vec![b'7'; len];
                text[at] = byte;
                let text = String::from_utf8(text).unwrap();
                let plain = text
                    .bytes()
                    .enumerate()
                    .all(|(at, byte)| byte.is_ascii_digit() || byte == b'.' || at == 0 && byte == b'-');
                let parsed = text.parse::<f64>().ok().filter(|_| plain);
                match short(&text) {
                    Some(number) => assert_eq!(Some(number.to_bits()), parsed.map(f64::to_bits), "{text}"),
                    None => assert!(parsed.is_none() || len > 15, "{text}"),
                }
            }
        }
        assert_eq!(
            [short("-0"), short("5."), short(".5")].map(Option::unwrap).map(f64::to_bits),
            [-0.0, 5.0, 0.5].map(f64::to_bits)
        );
    }

    #[test]
    fn dates_are_days_since_1970() {
        // As `datetime.date.toordinal` of Python counts them.
        for (cell, days) in [
            ("1970-01-01", 0.0),
            ("1969-12-31", -1.0),
            ("2000-02-29", 11_016.0),
            ("2026-11-26", 20_783.0),
            ("1900-03-01", -25_508.0),
            ("2026-11-26T12:00", 20_783.5),
            ("2026-11-26 06:00:00Z", 20_783.25),
            ("2026-11-26 06:00:00 UTC", 20_783.25),
            ("2026-11-26T06:00:00.0+05:30", 20_783.25),
            ("2026-11-26T06:00-0800", 20_783.25),
            ("2026-11-26 06:00:00 +00", 20_783.25),
        ] {
            assert_eq!(date(cell), Some(days), "{cell}");
        }
        for cell in [
            "2025-02-29",
            "2026-13-01",
            "2026-1-1",
            "26-11-2026",
            "2026-11-26T24:00",
            "2026-11-31",
            "hello",
            "2026-11-26+01:00",
            "2026-11-26T06:00+1",
            "2026-11-26T06:00+ab:cd",
            "2026-11-26T06:00+é12",
        ] {
            assert_eq!(date(cell), None, "{cell}");
        }
        assert_eq!(part_of_year(date("2025-01-01").unwrap()), 0.0);
        assert_eq!(part_of_year(date("2025-07-02T12:00").unwrap()), 0.5);
        assert!(part_of_year(date("1969-12-31").unwrap()) > 0.99);
        // The last year that a date may have.
        assert_eq!(part_of_year(date("9999-01-01").unwrap()), 0.0);
        assert_eq!(part_of_year(date("9999-12-31").unwrap()), 364.0 / 365.0);
    }
}
