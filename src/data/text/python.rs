//! What templates that were written for Python call: methods of its texts, its operator `%`, filters of Jinja that are made of them.

use chrono::format::{Item, Numeric, StrftimeItems};
use chrono::{NaiveDateTime, Timelike};
use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind, State, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use std::fmt::Write;

/// A method of a value.
///
/// # Errors
/// There is none of the name, or it does not take these arguments.
pub(super) fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return unknown_method_callback(state, value, name, arguments) };
    let parts = |parts: [&str; 3]| Value::from(Tuple::from(parts.map(Value::from)));
    let padded = || -> Result<(usize, char), Error> {
        let (width, fill): (usize, Option<char>) = from_args(arguments)?;
        Ok((width, fill.unwrap_or(' ')))
    };
    match name {
        "split" if arguments.iter().any(Value::is_kwargs) => {
            let (separator, most) = split_at(arguments)?;
            unknown_method_callback(state, value, name, &[separator.into(), most.into()])
        }
        "rsplit" => {
            let (separator, most) = split_at(arguments)?;
            Ok(rsplit(text, separator.as_deref(), most)?.into_iter().map(Value::from).collect())
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            let found = match name {
                _ if separator.is_empty() => return Err(wrong("the separator is empty")),
                "partition" => text.split_once(separator),
                _ => text.rsplit_once(separator),
            };
            Ok(match found {
                Some((before, behind)) => parts([before, separator, behind]),
                None if name == "partition" => parts([text, "", ""]),
                None => parts(["", "", text]),
            })
        }
        "center" => padded().and_then(|(width, fill)| center(state, text, width, fill)).map(Value::from),
        "ljust" => {
            padded().and_then(|(width, fill)| pad(state, text, [0, missing(text, width)], fill)).map(Value::from)
        }
        "rjust" => {
            padded().and_then(|(width, fill)| pad(state, text, [missing(text, width), 0], fill)).map(Value::from)
        }
        "title" => Ok(title(text).into()),
        "swapcase" => Ok(text.chars().map(swapped).collect::<String>().into()),
        "zfill" => {
            let (width,): (usize,) = from_args(arguments)?;
            let sign = text.strip_prefix(['-', '+']).map_or(0, |digits| text.len() - digits.len());
            let (sign, digits) = text.split_at(sign);
            pad(state, digits, [missing(text, width), 0], '0').map(|digits| format!("{sign}{digits}").into())
        }
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(arguments)?;
            let at = if name == "index" { text.find(part) } else { text.rfind(part) };
            let at = at.ok_or_else(|| wrong(format!("`{name}`: the text has no `{part}`")))?;
            Ok(text[..at].chars().count().into())
        }
        "removeprefix" => {
            let (part,): (&str,) = from_args(arguments)?;
            Ok(text.strip_prefix(part).unwrap_or(text).into())
        }
        "removesuffix" => {
            let (part,): (&str,) = from_args(arguments)?;
            Ok(text.strip_suffix(part).unwrap_or(text).into())
        }
        _ => unknown_method_callback(state, value, name, arguments),
    }
}

/// Python's operator `%`: texts are formatted, of numbers it is the rest of a division.
///
/// # Errors
/// The arguments do not fit.
pub(super) fn percent(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    if left.as_str().is_some() {
        let several = right.downcast_object_ref::<Tuple>().map(|several| several.to_vec());
        let arguments: Vec<Value> = [left.clone()].into_iter().chain(several.unwrap_or(vec![right.clone()])).collect();
        return state.apply_filter("format", &arguments);
    }
    let whole = |value: &Value| value.is_integer().then(|| i64::try_from(value.clone()).ok()).flatten();
    if let (Some(left), Some(right)) = (whole(left), whole(right))
        && let Some(rest) = left.checked_rem(right)
    {
        // The sign is that of the divisor.
        return Ok(Value::from(if rest != 0 && (rest < 0) != (right < 0) { rest + right } else { rest }));
    }
    // An expression takes some time to be read.
    state.consume_fuel(64)?;
    state.env().compile_expression("left % right")?.eval(context! { left, right })
}

/// A moment in the form that Python's `strftime` has of it.
///
/// # Errors
/// The format has a part that there is not.
pub(super) fn strftime(state: &State, now: NaiveDateTime, format: &str) -> Result<String, Error> {
    // A part of two characters may write two dozen.
    state.consume_fuel(format.len() as u64)?;
    let mut text = String::new();
    for item in StrftimeItems::new(format) {
        let written = match item {
            Item::Error => Err(std::fmt::Error),
            // Python has microseconds there.
            Item::Numeric(Numeric::Nanosecond, _) => write!(text, "{:06}", now.nanosecond() / 1000 % 1_000_000),
            item => write!(text, "{}", now.format_with_items(std::iter::once(item))),
        };
        written.map_err(|_| wrong(format!("`{format}` is no format of `strftime` for a date without a time zone")))?;
    }
    Ok(text)
}

/// A text in the middle of so many characters.
///
/// # Errors
/// There is no fuel for them.
pub(super) fn center(state: &State, text: &str, width: usize, fill: char) -> Result<String, Error> {
    let missing = missing(text, width);
    // Of an odd number Python puts one more before texts whose place is odd.
    let before = missing / 2 + (missing & width & 1);
    pad(state, text, [before, missing - before], fill)
}

/// A text whose letters after anything else than a letter are large, and all others small.
fn title(text: &str) -> String {
    let (mut titled, mut in_word) = (String::with_capacity(text.len()), false);
    for letter in text.chars() {
        match in_word {
            true => titled.extend(letter.to_lowercase()),
            false => titled.extend(letter.to_uppercase()),
        }
        in_word = letter.is_alphabetic();
    }
    titled
}

/// A small letter as a large one, and a large one as a small one.
fn swapped(letter: char) -> String {
    match letter.is_uppercase() {
        true => letter.to_lowercase().collect(),
        false => letter.to_uppercase().collect(),
    }
}

/// Jinja's filter: a text for HTML, unless it is one.
pub(super) fn escape(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    let mut escaped = String::new();
    for character in value.to_string().chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    Value::from_safe_string(escaped)
}

/// Jinja's filter: a text as a part of an address.
pub(super) fn urlencode(text: &str) -> String {
    let encoded = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' | b'/' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encoded).collect()
}

fn missing(text: &str, width: usize) -> usize {
    width.saturating_sub(text.chars().count())
}

fn pad(state: &State, text: &str, [before, behind]: [usize; 2], fill: char) -> Result<String, Error> {
    state.consume_fuel(((before + behind) / 16) as u64)?;
    let fill = |count: usize| std::iter::repeat_n(fill, count);
    Ok(fill(before).chain(text.chars()).chain(fill(behind)).collect())
}

/// Jinja's filter: a text that is not much longer than `length`.
///
/// # Errors
/// The arguments do not fit.
pub(super) fn truncate(text: &str, arguments: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let (length, kill, end, leeway, keys): (Option<usize>, Option<bool>, Option<String>, Option<usize>, Kwargs) =
        from_args(&arguments.into_values())?;
    let length = length.or(keys.get("length")?).unwrap_or(255);
    let kill = kill.or(keys.get("killwords")?).unwrap_or(false);
    let end = end.or(keys.get("end")?).unwrap_or_else(|| "...".to_owned());
    let leeway = leeway.or(keys.get("leeway")?).unwrap_or(5);
    keys.assert_all_used()?;
    let Some(kept) = length.checked_sub(end.chars().count()) else {
        return Err(wrong(format!("`length` is {length}, and shorter than `{end}`")));
    };
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text.to_owned());
    }
    let cut: String = text.chars().take(kept).collect();
    let cut = if kill { cut.as_str() } else { cut.rsplit_once(' ').map_or(cut.as_str(), |(before, _)| before) };
    Ok(format!("{cut}{end}"))
}

/// Jinja's filter: how many words a text has.
pub(super) fn wordcount(text: &str) -> usize {
    let between = |character: char| !(character.is_alphanumeric() || character == '_');
    text.split(between).filter(|word| !word.is_empty()).count()
}

/// Where a text is split: at which separator, and how often.
fn split_at(arguments: &[Value]) -> Result<(Option<String>, Option<i64>), Error> {
    let (separator, most, keys): (Option<String>, Option<i64>, Kwargs) = from_args(arguments)?;
    let separator = separator.or(keys.get("sep")?);
    let most = most.or(keys.get("maxsplit")?);
    keys.assert_all_used()?;
    Ok((separator, most.filter(|most| *most >= 0)))
}

fn rsplit<'a>(text: &'a str, separator: Option<&str>, most: Option<i64>) -> Result<Vec<&'a str>, Error> {
    let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let mut parts = Vec::new();
    match separator {
        Some("") => return Err(wrong("the separator is empty")),
        Some(separator) => parts.extend(text.rsplitn(most.saturating_add(1), separator)),
        None => {
            let mut rest = text.trim_end();
            while parts.len() < most
                && let Some((before, word)) = rest.rsplit_once(char::is_whitespace)
            {
                parts.push(word);
                rest = before.trim_end();
            }
            parts.extend(Some(rest).filter(|rest| !rest.is_empty()));
        }
    }
    parts.reverse();
    Ok(parts)
}

fn wrong(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.into())
}
