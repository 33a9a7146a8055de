//! `"$name"` and `"$planes * 4"`: parameters, and arithmetic over whole numbers.

use std::cell::RefCell;
use std::collections::HashSet;

use crate::config::declare::part::with_suggestion;
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::sink::Sink;
use crate::config::text::spelling::{list, shorten};
use crate::config::text::tree::{Entry, Node, Table, Value};

const MAX_LENGTH: usize = 1000;
const MAX_DEPTH: usize = 64;
/// Lists as parameters are kernel sizes and the like.
const MAX_LIST: usize = 16;
/// Parameters of a file or a block; they are evaluated at every use.
const MAX_PARAMS: usize = 256;

/// The parameters that can be seen somewhere: a block's own and the file's. Inner ones hide outer ones.
#[derive(Debug)]
pub struct Scope<'a> {
    /// Names, the places of their definitions, and values without expressions.
    params: Vec<(String, Span, Node)>,
    outer: Option<&'a Scope<'a>>,
    used: &'a RefCell<HashSet<Span>>,
}

impl<'a> Scope<'a> {
    /// No parameters; definitions that are used are noted in `used`.
    pub fn new(used: &'a RefCell<HashSet<Span>>) -> Self {
        Self { params: Vec::new(), outer: None, used }
    }

    /// A scope within this one.
    pub fn inner(&'a self) -> Self {
        Self { params: Vec::new(), outer: Some(self), used: self.used }
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
            Value::String(text) if text.contains('$') => match self.expression(text) {
                Ok(value) => Some(Node { value, span: node.span }),
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
            Problem::Unknown(name) => {
                let all = std::iter::successors(Some(self), |scope| scope.outer).flat_map(|scope| &scope.params);
                let mut known: Vec<&str> = all.map(|(known, ..)| known.as_str()).collect();
                known.sort_unstable();
                known.dedup();
                let error = Diagnostic::error(format!("there is no parameter `{}` here", shorten(&name)));
                let error = with_suggestion(error, span, "not defined", &name, &known);
                match known[..] {
                    [] => error.help("no parameters are defined here"),
                    _ => error.help(format!("the parameters here are {}", list(known, "and"))),
                }
            }
            Problem::Other(reason) => Diagnostic::error("this expression has no value")
                .at(span, reason)
                .help("an expression is made of `$name`, whole numbers, + - * / and parentheses"),
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
            None => Ok(Value::Integer(value)),
            Some(other) => Err(Problem::other(format!("unexpected `{}`", other.escape_debug()))),
        }
    }
}

enum Problem {
    Unknown(String),
    Other(String),
}

impl Problem {
    fn other(reason: impl Into<String>) -> Self {
        Self::Other(reason.into())
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Recursive descent: `sum = product {(+|-) product}`, `product = factor {(*|/) factor}`,
/// `factor = number | $name | -factor | (sum)`.
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

    fn word(&mut self) -> &str {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn sum(&mut self) -> Result<i64, Problem> {
        let mut value = self.product()?;
        while let Some(sign @ ('+' | '-')) = self.peek() {
            self.at += 1;
            let right = self.product()?;
            let result = if sign == '+' { value.checked_add(right) } else { value.checked_sub(right) };
            value = result.ok_or_else(|| Problem::other("a result is too large"))?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<i64, Problem> {
        let mut value = self.factor()?;
        while let Some(sign @ ('*' | '/')) = self.peek() {
            self.at += 1;
            let right = self.factor()?;
            value = match sign {
                '*' => value.checked_mul(right).ok_or_else(|| Problem::other("a result is too large"))?,
                _ if right == 0 => return Err(Problem::other("division by zero")),
                _ => match (value.checked_rem(right), value.checked_div(right)) {
                    (Some(0), Some(quotient)) => quotient,
                    (Some(rest), _) => {
                        return Err(Problem::other(format!("{value} / {right} leaves a remainder of {rest}")));
                    }
                    _ => return Err(Problem::other("a result is too large")),
                },
            };
        }
        Ok(value)
    }

    fn factor(&mut self) -> Result<i64, Problem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Problem::other("it is nested too deeply"));
        }
        let value = match self.peek() {
            Some('(') => {
                self.at += 1;
                let value = self.sum()?;
                if self.peek() != Some(')') {
                    return Err(Problem::other("a closing parenthesis is missing"));
                }
                self.at += 1;
                value
            }
            Some('-') => {
                self.at += 1;
                self.factor()?.checked_neg().ok_or_else(|| Problem::other("a result is too large"))?
            }
            Some('$') => {
                self.at += 1;
                let name = self.word().to_owned();
                if name.is_empty() {
                    return Err(Problem::other("a name must follow `$`"));
                }
                match self.scope.get(&name) {
                    Some(Node { value: Value::Integer(number), .. }) => *number,
                    Some(other) => {
                        let found = other.describe();
                        return Err(Problem::other(format!("`${name}` is {found}, not a whole number")));
                    }
                    None => return Err(Problem::Unknown(name)),
                }
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self.word().to_owned();
                digits.parse().map_err(|_| Problem::other(format!("`{}` is not a whole number", shorten(&digits))))?
            }
            Some(c) => return Err(Problem::other(format!("unexpected `{}`", c.escape_debug()))),
            None => return Err(Problem::other("it ends too early")),
        };
        self.depth -= 1;
        Ok(value)
    }
}
