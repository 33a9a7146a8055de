//! `"$name"`, `"$planes * 4"` and `"$p * {i} / 11"`: parameters, and arithmetic over numbers.

use std::cell::RefCell;
use std::collections::HashSet;

use crate::config::declare::part::with_suggestion;
use crate::config::text::diagnostics::{Diagnostic, SourceId, Span};
use crate::config::text::sink::{Lost, Sink};
use crate::config::text::spelling::{list, shorten};
use crate::config::text::tree::{Entry, Node, Table, Value};

/// The parameters that every model sees and that are what is counted in the data: its classes, and the tokens of its text.
pub const COUNTED: [&str; 2] = ["classes", "vocabulary"];
/// What the number of classes of a head begins with; its name follows.
pub const OF_HEAD: &str = "classes.";
/// The parameter that every model sees and that is the number of tokens of a sample of text.
pub const CONTEXT: &str = "context";
const MAX_LENGTH: usize = 1000;
const MAX_DEPTH: usize = 64;
/// Lists as parameters are kernel sizes and the like.
const MAX_LIST: usize = 16;
/// The index of the copy of a repeated block.
pub const INDEX: &str = "{i}";
/// Parameters of a file or a block; they are evaluated at every use.
const MAX_PARAMS: usize = 256;

/// The parameters that can be seen somewhere: a block's own and the file's. Inner ones hide outer ones.
#[derive(Debug)]
pub struct Scope<'a> {
    /// Names, the places of their definitions, and values without expressions.
    params: Vec<(String, Span, Node)>,
    /// Names of those whose values are wrong, which was reported.
    broken: Vec<String>,
    outer: Option<&'a Scope<'a>>,
    /// What `{i}` stands for: the index of a copy of a repeated block.
    index: Option<usize>,
    /// The names of heads, whose classes are counted.
    heads: &'a [String],
    used: &'a RefCell<HashSet<Span>>,
}

impl<'a> Scope<'a> {
    /// No parameters, in a model with these heads; definitions that are used are noted in `used`.
    pub fn new(heads: &'a [String], used: &'a RefCell<HashSet<Span>>) -> Self {
        Self { params: Vec::new(), broken: Vec::new(), outer: None, index: None, heads, used }
    }

    /// A scope within this one, in the copy of a repeated block with that index.
    pub fn inner(&'a self, index: Option<usize>) -> Self {
        Self { params: Vec::new(), broken: Vec::new(), outer: Some(self), index, heads: self.heads, used: self.used }
    }

    /// Adds the parameters of a table; `given` has values in the place of their own. A parameter comes after those of the table that it names and that
    /// are seen nowhere else: a file may define what a parameter of the file that it extends is made of.
    pub fn define_all(&mut self, table: &Table, given: impl Fn(&str) -> Option<Node>, sink: &Sink) {
        let mut left: Vec<&Entry> = table.entries.iter().collect();
        // Of more than there may be, which is reported, the order does not matter.
        let in_order = left.len() > MAX_PARAMS;
        while !left.is_empty() {
            let waits = |entry: &&Entry| {
                let needs = |other: &&Entry| {
                    other.key != entry.key && names(&entry.node, &other.key) && !self.knows(&other.key)
                };
                !in_order && given(&entry.key).is_none() && left.iter().any(needs)
            };
            let Some(at) = left.iter().position(|entry| !waits(entry)) else {
                let all = list(left.iter().map(|entry| entry.key.as_str()), "and");
                let error = Diagnostic::error(format!("the parameters {all} need one another"));
                sink.push(error.at(left[0].node.span, "needs another of them").help("give one of them a number"));
                self.broken.extend(left.iter().map(|entry| entry.key.clone()));
                return;
            };
            let entry = left.remove(at);
            if let Some(value) = given(&entry.key).or_else(|| self.evaluate(&entry.node, sink)) {
                self.define(&entry.key, entry.key_span, value, sink);
            }
            if self.params.last().is_none_or(|(name, ..)| *name != entry.key) {
                self.broken.push(entry.key.clone());
            }
        }
    }

    /// Whether there is a parameter of that name.
    fn knows(&self, name: &str) -> bool {
        self.all().any(|(known, ..)| known == name)
    }

    /// All parameters that are seen, the innermost first.
    fn all(&self) -> impl Iterator<Item = &(String, Span, Node)> {
        std::iter::successors(Some(self), |scope| scope.outer).flat_map(|scope| &scope.params)
    }

    fn is_broken(&self, name: &str) -> bool {
        let mut scopes = std::iter::successors(Some(self), |scope| scope.outer);
        scopes.any(|scope| scope.broken.iter().any(|broken| broken == name))
    }

    /// Adds a parameter that was defined at `place`. Its value must be plain: a number, a word, a short list.
    pub fn define(&mut self, name: &str, place: Span, value: Node, sink: &Sink) {
        let plain = |node: &Node| match &node.value {
            Value::String(text) => text.len() <= MAX_LENGTH,
            other => !matches!(other, Value::Table(_) | Value::Array(_) | Value::Datetime(_)),
        };
        let fits = match &value.value {
            Value::Array(items) => items.len() <= MAX_LIST && items.iter().all(plain),
            _ => plain(&value),
        };
        let named = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !fits {
            sink.push(
                Diagnostic::error(format!("wrong value for the parameter `{}`", shorten(name)))
                    .at(value.span, "expected a number, a string, `true`, `false` or a short list of these"),
            );
        } else if !named {
            sink.push(
                Diagnostic::error(format!("`{}` cannot be the name of a parameter", shorten(name)))
                    .at(place, "use letters, digits and `_`"),
            );
        } else if self.params.len() >= MAX_PARAMS {
            let error = Diagnostic::error("there are too many parameters");
            sink.push(error.at(place, format!("a file or a block may have {MAX_PARAMS}")));
        } else {
            self.params.push((name.to_owned(), place, value));
        }
    }

    /// Adds a number that is counted in the data.
    pub fn count(&mut self, name: String, number: usize) {
        let place = Span { source: SourceId(usize::MAX), start: 0, end: 0 };
        self.params.push((name, place, Node { value: Value::Integer(number as i64), span: place }));
    }

    fn get(&self, name: &str) -> Option<&Node> {
        let Some((_, place, node)) = self.params.iter().find(|(known, ..)| known == name) else {
            return self.outer?.get(name);
        };
        self.used.borrow_mut().insert(*place);
        Some(node)
    }

    /// The value with parameters put in, at the place where it was written; `None` after reporting what is wrong.
    pub fn evaluate(&self, node: &Node, sink: &Sink) -> Option<Node> {
        match &node.value {
            Value::String(text) if text.contains('$') || text.contains(INDEX) => match self.expression(text) {
                Ok(value) => Some(Node { value, span: node.span }),
                // Without a file that this one extends, it is not known which parameters there are.
                Err(Problem::Unknown(_)) if sink.has_lost(Lost::Base) => None,
                Err(Problem::Unknown(name)) if self.is_broken(&name) => None,
                Err(problem) => {
                    sink.push(self.explain(problem, node.span));
                    None
                }
            },
            Value::Array(items) => {
                // All of them, so that every problem is reported.
                let items: Vec<Option<Node>> = items.iter().map(|item| self.evaluate(item, sink)).collect();
                let items = items.into_iter().collect::<Option<Vec<Node>>>()?;
                Some(Node { value: Value::Array(items), span: node.span })
            }
            _ => Some(node.clone()),
        }
    }

    /// The keys of a table that are not in `skip`, with parameters put in; and the keys for which that failed, which
    /// keep their values.
    pub fn evaluate_all(&self, table: &Table, skip: &[&str], sink: &Sink) -> (Table, Vec<String>) {
        let mut out = Table::default();
        let mut bad = Vec::new();
        for entry in table.entries.iter().filter(|entry| !skip.contains(&entry.key.as_str())) {
            let node = self.evaluate(&entry.node, sink).unwrap_or_else(|| {
                bad.push(entry.key.clone());
                entry.node.clone()
            });
            out.entries.push(Entry { key: entry.key.clone(), key_span: entry.key_span, node });
        }
        (out, bad)
    }

    fn explain(&self, problem: Problem, span: Span) -> Diagnostic {
        match problem {
            Problem::Unknown(name) if name.starts_with(OF_HEAD) => {
                let head = &name[OF_HEAD.len()..];
                if self.heads.iter().any(|known| known == head) {
                    let error =
                        Diagnostic::error(format!("the number of classes of the head `{head}` is not known here"));
                    return error.at(span, "it is counted in the data").help("write a number");
                }
                let heads: Vec<&str> = self.heads.iter().map(String::as_str).collect();
                let error =
                    Diagnostic::error(format!("there is no head `{}`, whose classes are asked for", shorten(head)));
                let error = with_suggestion(error, span, "no head has this name", head, &heads);
                match heads[..] {
                    [] => error.help(
                        "the configuration has no `[[heads]]`; `$classes` is the number of classes of the target",
                    ),
                    _ => error.help(format!("the heads are {}", list(heads, "and"))),
                }
            }
            Problem::Unknown(name) => {
                let mut known: Vec<&str> = self.all().map(|(known, ..)| known.as_str()).collect();
                known.sort_unstable();
                known.dedup();
                let error = Diagnostic::error(format!("there is no parameter `{}` here", shorten(&name)));
                let error = with_suggestion(error, span, "not defined", &name, &known);
                match known[..] {
                    _ if COUNTED.contains(&name.as_str()) => {
                        error.help("it is counted in the data, which has none or is not known here: write a number")
                    }
                    _ if name == CONTEXT => {
                        error.help("it is `context` of `[data]`, or `max_length` of `text_pairs`: text alone has it")
                    }
                    [] => error.help("no parameters are defined here"),
                    _ => error.help(format!("the parameters here are {}", list(known, "and"))),
                }
            }
            Problem::NoIndex => Diagnostic::error("`{i}` stands for an index, and there is none here")
                .at(span, "neither `repeat` here nor a repeated block around it"),
            Problem::Other(reason) => Diagnostic::error("this expression has no value")
                .at(span, reason)
                .help("an expression is made of `$name`, `{i}`, numbers, + - * / %, `sqrt()` and parentheses"),
        }
    }

    fn expression(&self, text: &str) -> Result<Value, Problem> {
        if text.len() > MAX_LENGTH {
            return Err(Problem::other("it is too long"));
        }
        if let Some(name) = text.strip_prefix('$').filter(|rest| !rest.is_empty() && rest.chars().all(is_name)) {
            return self.get(name).map(|node| node.value.clone()).ok_or_else(|| Problem::Unknown(name.to_owned()));
        }
        let mut parser = Parser { scope: self, text, at: 0, depth: 0 };
        let value = parser.sum()?;
        match parser.peek() {
            None => Ok(match value {
                Number::Whole(whole) => Value::Integer(whole),
                Number::Fraction(fraction) => Value::Float(fraction),
            }),
            Some(other) => Err(Problem::other(format!("unexpected `{}`", other.escape_debug()))),
        }
    }
}

enum Problem {
    Unknown(String),
    NoIndex,
    Other(String),
}

impl Problem {
    fn other(reason: impl Into<String>) -> Self {
        Self::Other(reason.into())
    }
}

/// Whether a value names a parameter.
fn names(node: &Node, name: &str) -> bool {
    match &node.value {
        Value::String(text) => names_parameter(text, name),
        Value::Array(items) => items.iter().any(|item| names(item, name)),
        _ => false,
    }
}

/// Whether an expression names a parameter.
pub fn names_parameter(text: &str, name: &str) -> bool {
    let begins = |(at, _): (usize, &str)| {
        let rest = text[at + 1..].strip_prefix(name);
        rest.is_some_and(|rest| !rest.starts_with(is_name) && !rest.starts_with('.'))
    };
    text.match_indices('$').any(begins)
}

/// The heads whose classes an expression asks for.
pub fn heads_named<'t>(text: &'t str, heads: &'t [String]) -> impl Iterator<Item = &'t str> {
    text.match_indices('$').filter_map(|(at, _)| Some(head_at(text[at + 1..].strip_prefix(OF_HEAD)?, heads)))
}

/// The name of a head at the beginning of a text: the longest that there is or, where there is none, all that could be one. A name may have a `-`, as a
/// difference has.
fn head_at<'t>(text: &'t str, heads: &[String]) -> &'t str {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let begins = |head: &&String| text.strip_prefix(&***head).is_some_and(|rest| !rest.starts_with(part));
    let length = match heads.iter().filter(begins).map(String::len).max() {
        Some(length) => length,
        None => text.find(|c| !part(c) && c != '-').unwrap_or(text.len()),
    };
    &text[..length]
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A number on its way: whole as long as only whole numbers go into it.
#[derive(Clone, Copy)]
enum Number {
    Whole(i64),
    Fraction(f64),
}

impl Number {
    fn as_fraction(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Fraction(fraction) => fraction,
        }
    }

    /// The result of one of + - * / %.
    fn combine(self, sign: char, right: Self) -> Result<Self, Problem> {
        let large = || Problem::other("a result is too large");
        if let (Self::Whole(a), Self::Whole(b)) = (self, right) {
            let result = match sign {
                '+' => a.checked_add(b),
                '-' => a.checked_sub(b),
                '*' => a.checked_mul(b),
                '%' if b > 0 => a.checked_rem_euclid(b),
                '%' => return Err(Problem::other("a remainder is that of a division by a number above zero")),
                _ if b == 0 => return Err(Problem::other("division by zero")),
                _ => match a.checked_rem(b) {
                    Some(0) | None => a.checked_div(b),
                    Some(rest) => return Err(Problem::other(format!("{a} / {b} leaves a remainder of {rest}"))),
                },
            };
            return result.map(Self::Whole).ok_or_else(large);
        }
        let (a, b) = (self.as_fraction(), right.as_fraction());
        let result = match sign {
            '+' => a + b,
            '-' => a - b,
            '*' => a * b,
            '%' => return Err(Problem::other("a remainder is one of whole numbers")),
            _ if b == 0.0 => return Err(Problem::other("division by zero")),
            _ => a / b,
        };
        if result.is_finite() { Ok(Self::Fraction(result)) } else { Err(large()) }
    }
}

/// Recursive descent: `sum = product {(+|-) product}`, `product = factor {(*|/|%) factor}`,
/// `factor = number | $name | {i} | -factor | (sum) | sqrt(sum)`.
struct Parser<'a> {
    scope: &'a Scope<'a>,
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn word(&mut self, belongs: fn(char) -> bool) -> &str {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn sum(&mut self) -> Result<Number, Problem> {
        let mut value = self.product()?;
        while let Some(sign @ ('+' | '-')) = self.peek() {
            self.at += 1;
            value = value.combine(sign, self.product()?)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<Number, Problem> {
        let mut value = self.factor()?;
        while let Some(sign @ ('*' | '/' | '%')) = self.peek() {
            self.at += 1;
            value = value.combine(sign, self.factor()?)?;
        }
        Ok(value)
    }

    fn parentheses(&mut self) -> Result<Number, Problem> {
        self.at += 1;
        let value = self.sum()?;
        if self.peek() != Some(')') {
            return Err(Problem::other("a closing parenthesis is missing"));
        }
        self.at += 1;
        Ok(value)
    }

    fn factor(&mut self) -> Result<Number, Problem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Problem::other("it is nested too deeply"));
        }
        let value = match self.peek() {
            Some('(') => self.parentheses()?,
            Some('s') if self.text[self.at..].starts_with("sqrt(") => {
                self.at += "sqrt".len();
                let root = self.parentheses()?.as_fraction().sqrt();
                if root.is_nan() {
                    return Err(Problem::other("a number below zero has no square root"));
                }
                Number::Fraction(root)
            }
            Some('-') => {
                self.at += 1;
                Number::Whole(0).combine('-', self.factor()?)?
            }
            Some('$') => {
                self.at += 1;
                let name = match self.text[self.at..].strip_prefix(OF_HEAD) {
                    Some(rest) => OF_HEAD.to_owned() + head_at(rest, self.scope.heads),
                    None => self.text[self.at..].split(|c| !is_name(c)).next().unwrap_or_default().to_owned(),
                };
                self.at += name.len();
                if name.is_empty() || name == OF_HEAD {
                    let what = if name.is_empty() {
                        "a name must follow `$`"
                    } else {
                        "the name of a head must follow `$classes.`"
                    };
                    return Err(Problem::other(what));
                }
                match self.scope.get(&name) {
                    Some(Node { value: Value::Integer(number), .. }) => Number::Whole(*number),
                    Some(Node { value: Value::Float(number), .. }) if number.is_finite() => Number::Fraction(*number),
                    Some(other) => {
                        let found = other.describe();
                        return Err(Problem::other(format!("`${name}` is {found}, not a number")));
                    }
                    None => return Err(Problem::Unknown(name)),
                }
            }
            Some('{') if self.text[self.at..].starts_with(INDEX) => {
                self.at += INDEX.len();
                Number::Whole(self.scope.index.ok_or(Problem::NoIndex)? as i64)
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self.word(|c| is_name(c) || c == '.').to_owned();
                let whole = digits.parse().map(Number::Whole);
                let plain = digits.bytes().all(|c| c.is_ascii_digit() || c == b'.') && !digits.ends_with('.');
                let fraction = || digits.parse().ok().filter(|_| plain && digits.contains('.')).map(Number::Fraction);
                let number = whole.ok().or_else(fraction);
                number.ok_or_else(|| Problem::other(format!("`{}` is not a number", shorten(&digits))))?
            }
            Some(c) => return Err(Problem::other(format!("unexpected `{}`", c.escape_debug()))),
            None => return Err(Problem::other("it ends too early")),
        };
        self.depth -= 1;
        Ok(value)
    }
}
