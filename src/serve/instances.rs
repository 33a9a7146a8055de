//! The body `{"instances": […]}`: rows as objects or lists, texts, tensors as nested lists, several tensors as objects. What is made of an instance is made while the
//! text is read, so that the text becomes no tree.

use super::nested::Nested;
use super::reader::{READING, READING_TEXTS, Reader};
use super::refusal::Refusal;
use super::samples::{Names, Samples, looked_up, put_nested};
use super::served::Served;
use crate::data::Field;
use crate::data::table::{Cell, Given, TableCodec};
use crate::data::text::{Passage, TextCodec};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

impl Reader<'_> {
    /// Samples of a JSON text.
    ///
    /// # Errors
    /// It is no JSON; an instance is not what the model takes; there are too many.
    pub fn instances(&mut self, text: &[u8]) -> Result<Samples, Refusal> {
        let texts = self.served.table.is_none() && self.served.texts.is_some() && are_texts(text);
        self.charge.add(text.len().saturating_mul(if texts { READING_TEXTS } else { READING }))?;
        let most = self.limits.rows;
        match &self.served.table {
            None if texts => {
                let mut texts = Texts { texts: Vec::new(), sentences: Vec::new() };
                read(text, &mut texts, most)?;
                match (texts.texts.is_empty(), texts.sentences.is_empty()) {
                    (_, true) => self.texts(texts.texts),
                    (true, false) if self.served.texts.as_ref().is_some_and(TextCodec::has_tags) => {
                        self.sentences(texts.sentences)
                    }
                    (true, false) => {
                        Err(Refusal::unfit("the model takes texts, and `tokens` are for one that tags words"))
                    }
                    (false, false) => Err(Refusal::unfit("some instances are texts and others have `tokens`")),
                }
            }
            Some(_) => {
                // Each of the others keeps the cells once more.
                self.charge.add(text.len().saturating_mul(READING).saturating_mul(self.served.other_tables.len()))?;
                let mut rows = Rows::new(self.served);
                read(text, &mut rows, most)?;
                self.given(rows.given.into_iter().map(|(given, _)| given).collect())
            }
            None => {
                let fields = &self.served.seen.fields;
                let mut tensors = Tensors { fields, rows: vec![Vec::new(); fields.len()], count: 0 };
                read(text, &mut tensors, most)?;
                let Tensors { rows, count, .. } = tensors;
                self.expect(count)?;
                looked_up(fields, &rows)?;
                Ok(Samples { rows, count, names: Names::Rows(None) })
            }
        }
    }
}

/// Whether the first instance is a text, a list of two, or an object with a `text` or `tokens`: a model of texts takes tensors, too.
fn are_texts(body: &[u8]) -> bool {
    let list = body.iter().position(|byte| *byte == b'[').map_or(&[][..], |at| body[at + 1..].trim_ascii_start());
    match list.first() {
        Some(b'"') => true,
        Some(b'[') => list[1..].trim_ascii_start().first() == Some(&b'"'),
        // Of a text in pieces that are escaped nothing is known; a key with a name like that is written plainly.
        Some(b'{') => [&b"\"text"[..], b"\"tokens\""].iter().any(|key| list[1..].trim_ascii_start().starts_with(key)),
        _ => false,
    }
}

/// What takes instances one by one.
trait Take {
    /// Reads one, and keeps it.
    fn take<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error>;
}

fn read(text: &[u8], take: &mut impl Take, most: usize) -> Result<(), Refusal> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let mut too_many = false;
    let body = Body { take, most, too_many: &mut too_many };
    let read = deserializer.deserialize_map(body).and_then(|()| deserializer.end());
    read.map_err(|error| match error.classify() {
        _ if too_many => {
            Refusal::too_large(format!("there are more samples than the {most} that a request may have (--max-rows)"))
        }
        serde_json::error::Category::Data => Refusal::unfit(error.to_string()),
        _ => Refusal::bad(format!("the body is no JSON: {error}")),
    })
}

struct Body<'a, T> {
    take: &'a mut T,
    most: usize,
    too_many: &'a mut bool,
}

impl<'de, T: Take> Visitor<'de> for Body<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object as {\"instances\": [...]}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Body { take, most, too_many } = self;
        let mut seen = false;
        while let Some(key) = map.next_key::<String>()? {
            if key != "instances" || seen {
                let key: String = key.chars().take(40).collect();
                return Err(de::Error::custom(format!(
                    "`{key}` is not expected here: the body is {{\"instances\": [...]}}"
                )));
            }
            seen = true;
            map.next_value_seed(List { take: &mut *take, most, too_many: &mut *too_many })?;
        }
        if !seen {
            return Err(de::Error::custom("there is no `instances`: the body is {\"instances\": [...]}"));
        }
        Ok(())
    }
}

struct List<'a, T> {
    take: &'a mut T,
    most: usize,
    too_many: &'a mut bool,
}

impl<'de, T: Take> DeserializeSeed<'de> for List<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Take> Visitor<'de> for List<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of instances")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut count = 0;
        while list.next_element_seed(One(&mut *self.take))?.is_some() {
            count += 1;
            if count > self.most {
                *self.too_many = true;
                return Err(de::Error::custom("too many instances"));
            }
        }
        Ok(())
    }
}

struct One<'a, T>(&'a mut T);

impl<'de, T: Take> DeserializeSeed<'de> for One<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.take(deserializer)
    }
}

/// Rows of a table.
struct Rows<'a> {
    /// As each of the models reads them, with the places of its columns.
    given: Vec<(Given<'a>, Vec<usize>)>,
    /// The places of columns by their names.
    places: HashMap<&'a str, usize>,
    id: Option<&'a str>,
}

impl<'a> Rows<'a> {
    fn new(served: &'a Served) -> Self {
        let places: HashMap<&str, usize> = served.columns().into_iter().zip(0..).collect();
        let of = |codec: &'a TableCodec| {
            let own = codec.taken().filter_map(|column| places.get(column).copied());
            (Given::new(codec), own.collect())
        };
        let given = served.tables().map(of).collect();
        Rows { given, places, id: served.table.as_ref().and_then(|table| table.id.as_deref()) }
    }

    fn add<E: de::Error>(&mut self, cells: &[Option<Cell>], id: Option<&Cell>) -> Result<(), E> {
        let all = self.places.len();
        for (given, own) in &mut self.given {
            let number = given.rows();
            if cells.len() != all {
                let given = cells.len();
                let what = format!("instance {number}: there are {given} cells, and the model takes {all} columns");
                return Err(E::custom(what));
            }
            let picked: Vec<Option<Cell>>;
            let cells = match own.iter().copied().eq(0..all) {
                true => cells,
                false => {
                    picked = own.iter().map(|at| cells[*at].clone()).collect();
                    &picked
                }
            };
            given.add(cells, id).map_err(|error| E::custom(format!("instance {number}: {error:#}")))?;
        }
        Ok(())
    }
}

impl Take for Rows<'_> {
    fn take<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(Row(self))
    }
}

struct Row<'a, 'b>(&'a mut Rows<'b>);

impl<'de> Visitor<'de> for Row<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a row: an object of columns, or a list of cells")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let rows = self.0;
        let mut cells = vec![None; rows.places.len()];
        let mut id = None;
        while let Some(key) = map.next_key::<String>()? {
            let place = rows.places.get(key.as_str());
            let is_id = rows.id == Some(key.as_str());
            // As in a file, columns that the model does not take may be there.
            if place.is_none() && !is_id {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let cell = map.next_value::<Read>()?.0;
            if let Some(place) = place {
                cells[*place] = Some(cell.clone());
            }
            if is_id {
                id = Some(cell);
            }
        }
        rows.add(&cells, id.as_ref())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let rows = self.0;
        let mut cells = Vec::with_capacity(rows.places.len());
        while let Some(Read(cell)) = list.next_element()? {
            cells.push(Some(cell));
        }
        rows.add(&cells, None)
    }
}

/// A cell.
struct Read(Cell);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CellVisitor).map(Read)
    }
}

struct CellVisitor;

impl Visitor<'_> for CellVisitor {
    type Value = Cell;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a cell: a number, a text, true, false or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Cell, E> {
        Ok(Cell::Missing)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Cell, E> {
        Ok(Cell::Truth(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Cell, E> {
        Ok(Cell::Whole(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Cell, E> {
        Ok(i64::try_from(value).map_or(Cell::Number(value as f64), Cell::Whole))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Cell, E> {
        Ok(Cell::Number(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Cell, E> {
        Ok(Cell::Text(value.to_owned()))
    }
}

/// Texts.
struct Texts {
    texts: Vec<Passage>,
    /// Words, sentence by sentence.
    sentences: Vec<Vec<String>>,
}

/// A text, two of them, or words.
#[derive(serde::Deserialize)]
#[serde(
    untagged,
    expecting = "expected a text, [text, text_pair], {\"text\": ..., \"text_pair\": ...} or {\"tokens\": [...]}"
)]
enum Text {
    One(String),
    Two([String; 2]),
    Named(NamedTexts),
    Words(NamedWords),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedTexts {
    text: String,
    text_pair: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedWords {
    tokens: Vec<String>,
}

impl Take for Texts {
    fn take<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        match Text::deserialize(deserializer)? {
            Text::One(text) => self.texts.push(text.into()),
            Text::Two([text, pair]) => self.texts.push(Passage { text, pair: Some(pair) }),
            Text::Named(NamedTexts { text, text_pair }) => self.texts.push(Passage { text, pair: text_pair }),
            Text::Words(NamedWords { tokens }) => self.sentences.push(tokens),
        }
        Ok(())
    }
}

/// Tensors, one or several a sample.
struct Tensors<'a> {
    fields: &'a [Field],
    rows: Vec<Vec<u8>>,
    count: usize,
}

impl Take for Tensors<'_> {
    fn take<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        let what = format!("instance {}", self.count);
        let put = |field: &Field, nested: &Nested, into: &mut Vec<u8>| {
            put_nested(field, nested, &what, into).map_err(|refusal| de::Error::custom(refusal.reason))
        };
        match (self.fields, &mut self.rows[..]) {
            ([field], [rows]) => put(field, &Nested::deserialize(deserializer)?, rows)?,
            (fields, rows) => {
                let mut given = HashMap::<String, Nested>::deserialize(deserializer)?;
                for (field, rows) in fields.iter().zip(rows) {
                    let Some(nested) = given.remove(&field.name) else {
                        return Err(de::Error::custom(format!("{what}: there is no `{}`", field.name)));
                    };
                    put(field, &nested, rows)?;
                }
                if let Some(name) = given.keys().next() {
                    let name: String = name.chars().take(40).collect();
                    return Err(de::Error::custom(format!("{what}: the model takes no `{name}`")));
                }
            }
        }
        self.count += 1;
        Ok(())
    }
}
