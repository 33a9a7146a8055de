//! The columns of a table, each an input of its own name, and how their cells become the numbers that the model takes: what
//! `ColumnCodec` does, in the same order and with the same precision.
//!
//! Columns of a kind are computed together, as the columns of a matrix, so that a wide table has hardly more nodes than a narrow one.
//! In the end they are put into the order that the model knows.

mod numbers;

use super::graph::{Attribute, Graph, float, floats, int, signed, value_info, words};
use super::proto::{DataType, ValueInfo};
use super::{Translator, Value};
use crate::data::table::{Codec, ColumnCodec, MISSING, TRUTHS, TableCodec, Words};
use serde_json::{Value as Json, json};
use std::collections::HashSet;
use std::ops::Range;

/// A column with the name of its input.
struct Taken<'a> {
    input: String,
    codec: &'a ColumnCodec,
    /// Its places in a sample.
    places: Range<usize>,
}

impl Taken<'_> {
    /// Its places but for that of a missing cell.
    fn own(&self) -> Range<usize> {
        self.places.start..self.places.end - usize::from(self.codec.has_indicator())
    }

    fn input_info(&self) -> ValueInfo {
        let (r#type, width) = match self.codec.codec() {
            Codec::Category { .. } | Codec::Boolean => (DataType::String, 1),
            Codec::Hashed { buckets, .. } | Codec::Text(Words { buckets, .. }) => (DataType::Float, *buckets),
            _ => (DataType::Double, 1),
        };
        value_info(&self.input, r#type, &[1, width])
    }
}

/// Some numbers of a sample.
struct Part {
    name: String,
    places: Vec<usize>,
}

impl Translator<'_> {
    /// Declares an input for each column; what they become, in one matrix.
    pub(super) fn columns(&mut self, table: &TableCodec) -> Value {
        let g = &mut self.graph;
        let taken: Vec<Taken> =
            table.placed().map(|(places, codec)| Taken { input: g.fresh(&codec.name), codec, places }).collect();
        self.inputs.extend(taken.iter().map(Taken::input_info));
        g.scope = "columns".into();
        let mut parts = numbers::encoded(g, &taken);
        for encoded in [categories, booleans, vectors] {
            parts.extend(encoded(g, &taken));
        }
        let names: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
        let mut name = g.joined(&names, 1);
        let places: Vec<usize> = parts.into_iter().flat_map(|part| part.places).collect();
        if !places.is_sorted() {
            let mut order: Vec<usize> = (0..places.len()).collect();
            order.sort_unstable_by_key(|at| places[*at]);
            name = g.gather(&name, 1, &order);
        }
        g.scope.clear();
        let features = Value { name, shape: vec![1, table.width()] };
        self.shown(&features);
        features
    }

    /// What the file says of its inputs.
    pub(super) fn inputs_in_words(&self, table: &TableCodec) -> Json {
        let said = |(input, codec): (&ValueInfo, &ColumnCodec)| {
            let (kind, missing) = match codec.codec() {
                Codec::Category { .. } => ("category", ""),
                Codec::Boolean => ("boolean", ""),
                Codec::Date { .. } => ("date", "NaN"),
                Codec::Hashed { .. } => ("hashed", "NaN"),
                Codec::Text(_) => ("text", "NaN"),
                _ => ("number", "NaN"),
            };
            let mut entry = json!({ "column": codec.name, "type": kind, "missing": missing });
            match codec.codec() {
                Codec::Date { .. } => entry["unit"] = json!("days since 1970-01-01"),
                Codec::Hashed { buckets, plain } => {
                    entry["buckets"] = json!(buckets);
                    entry["plain"] = json!(plain);
                }
                Codec::Text(Words { buckets, norm, alternate_sign }) => {
                    entry["buckets"] = json!(buckets);
                    entry["norm"] = json!(norm);
                    entry["alternate_sign"] = json!(alternate_sign);
                }
                _ => {}
            }
            (input.name().to_owned(), entry)
        };
        Json::Object(self.inputs.iter().zip(&table.columns).map(said).collect())
    }
}

/// The inputs of some columns side by side; none of no columns.
fn side_by_side(g: &mut Graph, columns: &[&Taken]) -> Option<String> {
    let names: Vec<String> = columns.iter().map(|column| column.input.clone()).collect();
    (!names.is_empty()).then(|| g.joined(&names, 1))
}

/// The columns with a place for what is missing; `missing` has a truth for each column, in the place that `at` says.
fn indicators(g: &mut Graph, columns: &[&Taken], missing: &str, at: impl Fn(usize) -> usize) -> Option<Part> {
    let with = || columns.iter().enumerate().filter(|(_, column)| column.codec.has_indicator());
    let of: Vec<usize> = with().map(|(number, _)| at(number)).collect();
    if of.is_empty() {
        return None;
    }
    let missing = g.gather(missing, 1, &of);
    Some(Part { name: g.single(&missing), places: with().map(|(_, column)| column.places.end - 1).collect() })
}

/// Categories. Texts become numbers of places, of all columns together: −1 is none.
fn categories(g: &mut Graph, taken: &[Taken]) -> Vec<Part> {
    let (mut numbers, mut column_of, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for column in taken {
        let Codec::Category { values, other } = column.codec.codec() else { continue };
        if column.places.is_empty() {
            continue;
        }
        let first = places.len() as i64;
        let last = first + column.places.len() as i64 - 1;
        let missing = if column.codec.has_indicator() { last } else { -1 };
        let mut keys: Vec<(String, i64)> = MISSING.iter().map(|text| ((*text).to_owned(), missing)).collect();
        // A text that is a value itself comes before another way to write one.
        let mut taken: HashSet<String> = values.iter().cloned().collect();
        for (value, place) in values.iter().zip(first..) {
            let others = ColumnCodec::spellings(value).filter(|text| text == value || taken.insert(text.clone()));
            keys.extend(others.map(|text| (text, place)));
        }
        let rest = if *other { first + values.len() as i64 } else { -1 };
        let (texts, to): (Vec<&str>, Vec<i64>) = keys.iter().map(|(text, place)| (text.as_str(), *place)).unzip();
        let map = [words("keys_strings", &texts), signed("values_int64s", to), int("default_int64", rest)];
        column_of.resize(places.len() + column.places.len(), numbers.len());
        numbers.push(g.labels(&column.input, map));
        places.extend(column.places.clone());
    }
    if numbers.is_empty() {
        return Vec::new();
    }
    let mut number = g.joined(&numbers, 1);
    if numbers.len() > 1 {
        number = g.gather(&number, 1, &column_of);
    }
    let each = g.list(&(0..places.len() as i64).collect::<Vec<_>>());
    let ones = g.op("Equal", &[&number, &each], []);
    vec![Part { name: g.single(&ones), places }]
}

/// Truths: 1, 0, and a half for a missing value. A number is true if it is not zero.
fn booleans(g: &mut Graph, taken: &[Taken]) -> Vec<Part> {
    let columns: Vec<&Taken> = taken.iter().filter(|column| matches!(column.codec.codec(), Codec::Boolean)).collect();
    let Some(text) = side_by_side(g, &columns) else { return Vec::new() };
    const MISSES: f32 = 0.5;
    const UNKNOWN: f32 = -1.0;
    let mut keys: Vec<(String, f32)> = MISSING.iter().map(|text| ((*text).to_owned(), MISSES)).collect();
    for (word, truth) in TRUTHS {
        keys.extend(in_any_case(word).map(|text| (text, f32::from(truth))));
    }
    let (texts, to): (Vec<&str>, Vec<f32>) = keys.iter().map(|(text, truth)| (text.as_str(), *truth)).unzip();
    let map: [Attribute; 3] =
        [words("keys_strings", &texts), floats("values_floats", to), float("default_float", UNKNOWN)];
    let known = g.labels(&text, map);
    let (unknown, zero) = (g.scalar(UNKNOWN), g.text("0"));
    let unknown = g.op("Equal", &[&known, &unknown], []);
    let digits = g.op("Where", &[&unknown, &text, &zero], []);
    let number = g.op("Cast", &[&digits], [int("to", DataType::Double as i64)]);
    let zero = g.double(0.0);
    let is_zero = g.op("Equal", &[&number, &zero], []);
    let is_not = g.op("Not", &[&is_zero], []);
    let of_number = g.single(&is_not);
    let name = g.op("Where", &[&unknown, &of_number, &known], []);
    let half = g.scalar(MISSES);
    let missing = g.op("Equal", &[&name, &half], []);
    let own = Part { name, places: columns.iter().map(|column| column.places.start).collect() };
    [Some(own), indicators(g, &columns, &missing, |at| at)].into_iter().flatten().collect()
}

/// A word with each letter in upper case or lower.
fn in_any_case(word: &str) -> impl Iterator<Item = String> {
    (0..1u32 << word.len()).map(move |upper| {
        let letters = word.chars().enumerate();
        letters.map(|(at, letter)| if upper >> at & 1 == 1 { letter.to_ascii_uppercase() } else { letter }).collect()
    })
}

/// What goes in as numbers: hashed categories and texts. Rows of NaN are missing, and become zeros.
fn vectors(g: &mut Graph, taken: &[Taken]) -> Vec<Part> {
    let columns: Vec<&Taken> =
        taken.iter().filter(|column| matches!(column.codec.codec(), Codec::Hashed { .. } | Codec::Text(_))).collect();
    let Some(numbers) = side_by_side(g, &columns) else { return Vec::new() };
    let missing = g.op("IsNaN", &[&numbers], []);
    let zero = g.scalar(0.0);
    let name = g.op("Where", &[&missing, &zero, &numbers], []);
    let widths: Vec<usize> = columns.iter().map(|column| column.own().len()).collect();
    let missing = indicators(g, &columns, &missing, |at| widths[..at].iter().sum());
    let own = Part { name, places: columns.iter().flat_map(|column| column.own()).collect() };
    [Some(own), missing].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
