//! Rows of a table, as objects of columns or lists of cells.

use super::super::served::Served;
use super::Take;
use crate::data::table::{Cell, Given, TableCodec};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

/// Rows of a table.
pub struct Rows<'a> {
    /// As each of the models reads them, with the places of its columns.
    given: Vec<(Given<'a>, Vec<usize>)>,
    /// The places of columns by their names.
    places: HashMap<&'a str, usize>,
    id: Option<&'a str>,
}

impl<'a> Rows<'a> {
    /// None yet, as this model takes them.
    pub fn new(served: &'a Served) -> Self {
        let places: HashMap<&str, usize> = served.columns().into_iter().zip(0..).collect();
        let of = |codec: &'a TableCodec| {
            let own = codec.taken().filter_map(|column| places.get(column).copied());
            (Given::new(codec), own.collect())
        };
        let given = served.tables().map(of).collect();
        Rows { given, places, id: served.table.as_ref().and_then(TableCodec::row_id) }
    }

    /// All of them, as each of the models reads them.
    pub fn read(self) -> Vec<Given<'a>> {
        self.given.into_iter().map(|(given, _)| given).collect()
    }

    /// The number of the one that is read.
    fn number(&self) -> usize {
        self.given.first().map_or(0, |(given, _)| given.rows())
    }

    fn add<E: de::Error>(&mut self, cells: &[Option<Cell>], id: Option<&Cell>) -> Result<(), E> {
        let all = self.places.len();
        for (given, own) in &mut self.given {
            let number = given.rows();
            if cells.len() != all {
                let given = cells.len();
                let what = format!("sample {number}: there are {given} cells, and the model takes {all} columns");
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
            given.add(cells, id).map_err(|error| E::custom(format!("sample {number}: {error:#}")))?;
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
            let before = match place {
                Some(place) => cells[*place].replace(cell.clone()),
                None => None,
            };
            let before = if is_id { before.or(id.replace(cell)) } else { before };
            if before.is_some() {
                let number = rows.number();
                return Err(de::Error::custom(format!("sample {number}: the column `{key}` is there twice")));
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
