//! Numbers in nested lists of JSON, as a shape and a row of numbers.

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use std::fmt;

/// Most lists within one another.
const DEEPEST: usize = 8;

/// Numbers with their shape; a number alone has none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Nested {
    /// How many there are on each level, the outermost first.
    pub shape: Vec<usize>,
    /// All of them, the last level fastest.
    pub numbers: Vec<f64>,
}

impl<'de> Deserialize<'de> for Nested {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut nested = Nested::default();
        let mut known = Vec::new();
        Level { into: &mut nested, known: &mut known, level: 0 }.deserialize(deserializer)?;
        nested.shape = known.into_iter().map(|length| length.unwrap_or(0)).collect();
        Ok(nested)
    }
}

/// What stands on a level.
struct Level<'a> {
    into: &'a mut Nested,
    /// How long the lists of each level are; `None` while the first one is read.
    known: &'a mut Vec<Option<usize>>,
    level: usize,
}

impl Level<'_> {
    fn number<E: de::Error>(self, number: f64) -> Result<(), E> {
        // Numbers stand where the first one stood.
        if self.level < self.known.len() {
            return Err(E::custom("there is a number where the lists before it have a list"));
        }
        self.into.numbers.push(number);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number or a list of numbers")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.number(value as f64)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.number(value as f64)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.number(value)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.number(f64::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Level { into, known, level } = self;
        if level == DEEPEST {
            return Err(de::Error::custom(format!("there are more than {DEEPEST} lists within one another")));
        }
        if level == known.len() {
            if !into.numbers.is_empty() {
                return Err(de::Error::custom("there is a list where the lists before it have a number"));
            }
            known.push(None);
        }
        let mut length = 0;
        while list.next_element_seed(Level { into: &mut *into, known: &mut *known, level: level + 1 })?.is_some() {
            length += 1;
        }
        let expected = *known[level].get_or_insert(length);
        if length != expected {
            return Err(de::Error::custom(format!(
                "there is a list of {length} where those before it have {expected}"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Nested, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_have_a_shape() {
        let nested = read("[[1, 2.5, -3], [4, 5, 6]]").unwrap();
        assert_eq!((&nested.shape[..], &nested.numbers[..]), (&[2, 3][..], &[1.0, 2.5, -3.0, 4.0, 5.0, 6.0][..]));
        assert_eq!(read("7").unwrap(), Nested { shape: vec![], numbers: vec![7.0] });
        assert_eq!(read("[]").unwrap(), Nested { shape: vec![0], numbers: vec![] });
        assert_eq!(read("[[[1]], [[2]]]").unwrap().shape, [2, 1, 1]);
        assert_eq!(read("[true]").unwrap().numbers, [1.0]);
    }

    #[test]
    fn others_are_refused() {
        for (text, part) in [
            ("[[1, 2], [3]]", "a list of 1 where those before it have 2"),
            ("[1, [2]]", "a list where the lists before it have a number"),
            ("[[1], 2]", "a number where the lists before it have a list"),
            ("[[], [1]]", "a list of 1 where those before it have 0"),
            ("[\"1\"]", "invalid type: string"),
            ("[null]", "invalid type: null"),
            ("[{}]", "invalid type: map"),
            ("[[[[[[[[[1]]]]]]]]]", "more than 8 lists"),
            ("[1", "EOF"),
        ] {
            assert!(read(text).unwrap_err().contains(part), "{text}: {:?}", read(text));
        }
    }
}
