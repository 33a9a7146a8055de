//! Objects of JSON that are derived structures: serde reads those from lists as well, by the places of their keys, and its reasons are about the structure.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// What is written as an object.
pub trait Written {
    /// What it is, for the reason where there is something else.
    const WHAT: &'static str;
}

/// What is read from an object alone.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de> + Written> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Map(PhantomData)).map(Object)
    }
}

struct Map<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Written> Visitor<'de> for Map<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
