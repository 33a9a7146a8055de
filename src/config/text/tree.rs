//! TOML as a tree in which every key and every value knows its place.

use std::collections::BTreeMap;

use super::diagnostics::Span;

/// A value and its place.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it stands; of a `[table]`, its header.
    pub span: Span,
}

/// What a [`Node`] holds.
#[derive(Debug, Clone)]
pub enum Value {
    /// `"text"`.
    String(String),
    /// `3`.
    Integer(i64),
    /// `0.5`, also `inf` and `nan`.
    Float(f64),
    /// `true`.
    Boolean(bool),
    /// A date or a time, which no key takes.
    Datetime(String),
    /// `[1, 2]`.
    Array(Vec<Node>),
    /// `{ a = 1 }` or `[a]`.
    Table(Table),
}

/// A key, its place and its value.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its place.
    pub key_span: Span,
    /// Its value.
    pub node: Node,
}

/// Keys in the order in which they were written.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// The keys with their values; no key twice.
    pub entries: Vec<Entry>,
}

impl Table {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// A key with its value.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(at))
    }

    /// Sets a key, in its old place if it was there.
    pub fn set(&mut self, new: Entry) {
        match self.entries.iter_mut().find(|entry| entry.key == new.key) {
            Some(old) => *old = new,
            None => self.entries.push(new),
        }
    }

    /// Lays another table over this one: tables merge, everything else is replaced.
    pub fn merge(&mut self, over: Table) {
        for new in over.entries {
            match self.entries.iter_mut().find(|entry| entry.key == new.key) {
                Some(old) if old.node.as_table().is_some() && new.node.as_table().is_some() => {
                    old.key_span = new.key_span;
                    old.node.span = new.node.span;
                    if let (Some(below), Value::Table(above)) = (old.node.as_table_mut(), new.node.value) {
                        below.merge(above);
                    }
                }
                Some(old) => *old = new,
                None => self.entries.push(new),
            }
        }
    }
}

impl Entry {
    /// Whether a place is the key, or within the value.
    pub fn has(&self, span: Span) -> bool {
        self.key_span == span || self.node.has(span)
    }
}

impl Node {
    /// Whether a place is within it.
    fn has(&self, span: Span) -> bool {
        let own = self.span;
        let within = own.source == span.source && own.start <= span.start && span.end <= own.end;
        within
            || match &self.value {
                Value::Array(items) => items.iter().any(|item| item.has(span)),
                Value::Table(table) => table.entries.iter().any(|entry| entry.has(span)),
                _ => false,
            }
    }

    /// The number, if it is one.
    pub fn as_number(&self) -> Option<f64> {
        match self.value {
            Value::Integer(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        }
    }

    /// True or false, if it is one of them.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Boolean(truth) => Some(truth),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The table, if it is one.
    pub fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The table, if it is one, to be changed.
    pub fn as_table_mut(&mut self) -> Option<&mut Table> {
        match &mut self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The list, if it is one.
    pub fn as_array(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// What it is, for a message: `the string "x"`, `3.5`, `a list`.
    pub fn describe(&self) -> String {
        match &self.value {
            Value::String(text) if text.chars().count() > 40 => "a long string".into(),
            Value::String(text) => format!("the string {text:?}"),
            Value::Integer(number) => format!("{number}"),
            Value::Float(number) => format!("{number:?}"),
            Value::Boolean(truth) => format!("{truth}"),
            Value::Datetime(_) => "a date or time".into(),
            Value::Array(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
        }
    }

    /// Puts the place of every value below `path` into `places`.
    pub fn places(&self, path: &str, places: &mut BTreeMap<String, Span>) {
        places.insert(path.to_owned(), self.span);
        match &self.value {
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    item.places(&format!("{path}.{i}"), places);
                }
            }
            Value::Table(table) => {
                for entry in &table.entries {
                    entry.node.places(&format!("{path}.{}", entry.key), places);
                }
            }
            _ => {}
        }
    }
}
