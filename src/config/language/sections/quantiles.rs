//! One quantile that is learnt, or several.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::config::declare::part::Part;
use crate::config::declare::value::Value;
use crate::config::text::tree::Node;

/// The shares of targets that are to lie below the predictions: a number, or a list of several.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantiles(Vec<f64>);

/// The median.
pub const MEDIAN: f64 = 0.5;

impl Quantiles {
    /// One alone.
    pub fn one(quantile: f64) -> Self {
        Quantiles(vec![quantile])
    }

    /// That which figures of single predictions go by: the nearest to the median, of two the lower one.
    pub fn middle(&self) -> f64 {
        self.0[middle(&self.0)]
    }

    /// All of them, if there are several; else none.
    pub fn several(&self) -> &[f64] {
        if self.0.len() > 1 { &self.0 } else { &[] }
    }

    /// Reports what is not in order.
    pub fn check(&self, part: &Part) {
        let ascending = self.0.windows(2).all(|pair| pair[0] < pair[1]);
        part.require("quantile", ascending, "must be in ascending order, each once");
    }
}

/// The place of the quantile that is nearest to the median, of two that of the lower one; 0 if there is none.
pub fn middle(quantiles: &[f64]) -> usize {
    let far = |q: &f64| (q - MEDIAN).abs();
    (1..quantiles.len()).fold(0, |best, i| if far(&quantiles[i]) < far(&quantiles[best]) { i } else { best })
}

impl Value for Quantiles {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        let list: Vec<f64> = match node.as_array() {
            Some(_) => Vec::read(part, key, node)?,
            None => vec![f64::read(part, key, node)?],
        };
        if list.is_empty() || !list.iter().all(|q| *q > 0.0 && *q < 1.0) {
            part.wrong_value(key, node, "expected a number above 0 and below 1, or a list of at least one");
            return None;
        }
        Some(Quantiles(list))
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        let one = json_schema!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 });
        let list = json_schema!({ "type": "array", "items": one, "minItems": 1, "uniqueItems": true });
        json_schema!({ "anyOf": [one, list] })
    }
}

impl Serialize for Quantiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0[..] {
            [one] => one.serialize(serializer),
            _ => self.0.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_nearest_to_the_median() {
        assert_eq!(
            [&[0.05, 0.5, 0.95][..], &[0.1, 0.4, 0.6, 0.9], &[0.9], &[0.2, 0.3], &[]].map(middle),
            [1, 1, 0, 1, 0]
        );
    }
}
