//! Values as Python writes them: `json.dumps`, and numbers with a fraction.

use minijinja::value::{Kwargs, Rest, Value, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

/// Most spaces before a line.
const MAX_INDENT: usize = 64;
/// Most bytes between two values, and between a key and its value.
const MAX_SEPARATOR: usize = 16;

/// How JSON is written.
struct Style {
    /// With characters that are not ASCII escaped.
    ascii: bool,
    /// Spaces before a line, by the depth; `None`: all of it stands on one line.
    indent: Option<usize>,
    /// What stands between two values, and between a key and its value.
    separators: [String; 2],
}

/// The filter `tojson` of transformers: `json.dumps` with `ensure_ascii=False`, and no character escaped for HTML.
///
/// # Errors
/// The arguments do not fit, or the value is none of JSON.
pub(super) fn tojson(value: &Value, arguments: Rest<ValueOrKwargs>) -> Result<String, Error> {
    type Four = (Option<Value>, Option<Value>, Option<Value>, Option<Value>, Kwargs);
    let (ascii, indent, separators, sorted, keys): Four = from_args(&arguments.into_values())?;
    let given = |argument: Option<Value>, key: &str| -> Result<Option<Value>, Error> {
        let value = argument.or(keys.get(key)?);
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ascii = given(ascii, "ensure_ascii")?.is_some_and(|ascii| ascii.is_true());
    let indent = given(indent, "indent")?.map(spaces).transpose()?;
    let separators = match given(separators, "separators")? {
        Some(both) => {
            let both = both.try_iter()?.take(3).map(|one| one.as_str().map(str::to_owned));
            let both = both.collect::<Option<Vec<_>>>().and_then(|both| <[String; 2]>::try_from(both).ok());
            both.filter(|both| both.iter().all(|one| one.len() <= MAX_SEPARATOR))
                .ok_or_else(|| wrong(format!("`separators` are two texts of at most {MAX_SEPARATOR} bytes")))?
        }
        None => [if indent.is_some() { "," } else { ", " }, ": "].map(str::to_owned),
    };
    let sorted = given(sorted, "sort_keys")?.is_some_and(|sorted| sorted.is_true());
    keys.assert_all_used()?;
    let none = |why| wrong(format!("cannot write this as JSON: {why}"));
    let mut json = serde_json::to_value(value).map_err(none)?;
    if sorted {
        json.sort_all_objects();
    }
    let mut text = Vec::new();
    let dumps = Dumps { style: &Style { ascii, indent, separators }, depth: 0, has_value: false };
    json.serialize(&mut Serializer::with_formatter(&mut text, dumps)).map_err(none)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// How many spaces stand before a line: no more than a text for people has.
///
/// # Errors
/// It is no such number.
pub(super) fn spaces(indent: Value) -> Result<usize, Error> {
    let spaces = usize::try_from(indent.clone()).ok().filter(|spaces| *spaces <= MAX_INDENT);
    spaces.ok_or_else(|| wrong(format!("`indent` is {indent}, and a whole number up to {MAX_INDENT} is expected")))
}

fn wrong(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

/// A number as Python's `repr` has it: `0.5`, `1.0`, `1e+16`, `1e-07`.
pub(super) fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    match scientific.split_once('e').and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?))) {
        Some((digits, power)) if !(-4..16).contains(&power) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", power.abs())
        }
        Some(_) => format!("{number:?}"),
        None => number.to_string().to_lowercase(),
    }
}

struct Dumps<'a> {
    style: &'a Style,
    depth: usize,
    /// The innermost list or object has something in it.
    has_value: bool,
}

impl Dumps<'_> {
    fn line<W: ?Sized + Write>(&self, to: &mut W) -> io::Result<()> {
        match self.style.indent {
            Some(indent) => write!(to, "\n{}", " ".repeat(indent.saturating_mul(self.depth))),
            None => Ok(()),
        }
    }

    fn open<W: ?Sized + Write>(&mut self, to: &mut W, bracket: &str) -> io::Result<()> {
        (self.depth, self.has_value) = (self.depth + 1, false);
        to.write_all(bracket.as_bytes())
    }

    fn next<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if !first {
            to.write_all(self.style.separators[0].as_bytes())?;
        }
        self.line(to)
    }

    fn close<W: ?Sized + Write>(&mut self, to: &mut W, bracket: &str) -> io::Result<()> {
        self.depth -= 1;
        if self.has_value {
            self.line(to)?;
        }
        self.has_value = true;
        to.write_all(bracket.as_bytes())
    }
}

impl Formatter for Dumps<'_> {
    fn begin_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.open(to, "[")
    }
    fn end_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.close(to, "]")
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.next(to, first)
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }
    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.open(to, "{")
    }
    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.close(to, "}")
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.next(to, first)
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(self.style.separators[1].as_bytes())
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }
    fn write_f64<W: ?Sized + Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        to.write_all(float(value).as_bytes())
    }
    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        let mut units = [0; 2];
        for c in fragment.chars() {
            match c {
                ' '..='~' => write!(to, "{c}")?,
                _ if !self.style.ascii => write!(to, "{c}")?,
                _ => c.encode_utf16(&mut units).iter().try_for_each(|unit| write!(to, "\\u{unit:04x}"))?,
            }
        }
        Ok(())
    }
}
