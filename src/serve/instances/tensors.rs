//! Tensors as nested lists, one a sample or several in an object.

use super::super::nested::Nested;
use super::super::samples::put_nested;
use super::Take;
use crate::data::Field;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;

/// Tensors, one or several a sample.
pub struct Tensors<'a> {
    fields: &'a [Field],
    rows: Vec<Vec<u8>>,
    count: usize,
}

impl<'a> Tensors<'a> {
    /// None yet, for a model that takes these.
    pub fn of(fields: &'a [Field]) -> Self {
        Tensors { fields, rows: vec![Vec::new(); fields.len()], count: 0 }
    }

    /// The bytes of all samples, for each field, and how many there are.
    pub fn read(self) -> (Vec<Vec<u8>>, usize) {
        (self.rows, self.count)
    }

    fn put<E: de::Error>(&mut self, at: usize, nested: &Nested) -> Result<(), E> {
        let what = format!("sample {}", self.count);
        put_nested(&self.fields[at], nested, &what, &mut self.rows[at]).map_err(|refusal| E::custom(refusal.reason))
    }
}

impl Take for Tensors<'_> {
    fn take<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        match self.fields {
            [_] => {
                let nested = Nested::deserialize(deserializer)?;
                self.put(0, &nested)?;
            }
            _ => deserializer.deserialize_map(Sample(self))?,
        }
        self.count += 1;
        Ok(())
    }
}

/// A sample of several tensors.
struct Sample<'a, 'b>(&'a mut Tensors<'b>);

impl<'de> Visitor<'de> for Sample<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let names: Vec<String> = self.0.fields.iter().map(|field| format!("`{}`", field.name)).collect();
        write!(f, "an object of the tensors {}", names.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let tensors = self.0;
        let number = tensors.count;
        let mut seen = vec![false; tensors.fields.len()];
        while let Some(key) = map.next_key::<String>()? {
            let Some(at) = tensors.fields.iter().position(|field| field.name == key) else {
                let key: String = key.chars().take(40).collect();
                return Err(de::Error::custom(format!("sample {number}: the model takes no `{key}`")));
            };
            if std::mem::replace(&mut seen[at], true) {
                return Err(de::Error::custom(format!("sample {number}: `{key}` is there twice")));
            }
            let nested = map.next_value::<Nested>()?;
            tensors.put(at, &nested)?;
        }
        match seen.iter().zip(tensors.fields).find(|(seen, _)| !**seen) {
            Some((_, field)) => Err(de::Error::custom(format!("sample {number}: there is no `{}`", field.name))),
            None => Ok(()),
        }
    }
}
