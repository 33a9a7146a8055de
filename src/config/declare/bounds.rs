//! The range of a number: the error for a number outside of it, and its form in the JSON Schema.

use std::ops::{Range, RangeFrom, RangeInclusive};

use serde_json::{Map, Value, json};

use crate::config::text::tree::Node;

/// The largest size of anything that a layer makes: sums and products of sizes stay far from overflow.
pub const MAX_SIZE: usize = 1 << 24;

/// A bound above this is one of the program's own. Only the error for a larger number names it.
const LARGE: f64 = (1 << 20) as f64;

/// Bounds of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    low: f64,
    high: f64,
    /// The number lies above `low`, and may not be equal to it.
    above: bool,
    /// The number lies below `high`, and may not be equal to it.
    below: bool,
    whole: bool,
}

/// Numbers above one.
pub fn above(low: f64) -> Bounds {
    Bounds { low, above: true, ..Bounds::NONE }
}

impl Bounds {
    /// The same, and at most `high`.
    pub fn to(self, high: f64) -> Bounds {
        Bounds { high, ..self }
    }

    /// The same, and below `high`.
    pub fn below(self, high: f64) -> Bounds {
        Bounds { high, below: true, ..self }
    }

    /// None: any finite number.
    pub const NONE: Self =
        Self { low: f64::NEG_INFINITY, high: f64::INFINITY, above: false, below: false, whole: false };

    fn contains(&self, number: f64) -> bool {
        let low = if self.above { self.low < number } else { self.low <= number };
        let high = if self.below { number < self.high } else { number <= self.high };
        number.is_finite() && low && high
    }

    /// The rule that a negative number breaks, where zero breaks it, too.
    pub fn broken_below_zero(&self, node: &Node) -> Option<String> {
        let number = node.as_number().filter(|number| *number < 0.0 && !self.contains(0.0))?;
        self.broken_by(number)
    }

    /// The rule that a number breaks: "must be at least 1".
    pub fn broken_by(&self, number: f64) -> Option<String> {
        if self.contains(number) {
            return None;
        }
        let Self { low, high, .. } = *self;
        let too_large = number > high;
        let (has_low, has_high) = (low.is_finite(), high.is_finite() && (high <= LARGE || too_large));
        let low_needs_no_mention = self.whole && low == 0.0 || high > LARGE && too_large;
        let from = if self.above { format!("above {low}") } else { format!("at least {low}") };
        let to = if self.below { format!("below {high}") } else { format!("at most {high}") };
        Some(match (has_low, has_high) {
            (true, true) if low_needs_no_mention => format!("must be {to}"),
            (true, true) if self.above || self.below => format!("must be {from} and {to}"),
            (true, true) => format!("must be from {low} to {high}"),
            (true, false) if self.whole => format!("must be {from}"),
            (true, false) if self.above => format!("must be a finite number {from}"),
            (true, false) => format!("must be a finite number of {from}"),
            (false, true) => format!("must be {to}"),
            (false, false) => "must be a finite number".into(),
        })
    }

    /// The rule that a list of so many elements breaks.
    pub fn broken_by_length(&self, length: usize) -> Option<String> {
        let Self { low, high, .. } = *self;
        if self.contains(length as f64) {
            return None;
        }
        Some(match high.is_finite() {
            true => format!("must be a list of {low} to {high}"),
            false if low == 1.0 => "must not be empty".into(),
            false => format!("must be a list of {low} or more"),
        })
    }

    /// Writes the bounds to all numbers of a schema: its own, or those of its elements and choices.
    pub fn restrict_numbers(&self, schema: &mut Value) {
        let Value::Object(schema) = schema else { return };
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(choices)) = schema.get_mut(key) {
                choices.iter_mut().for_each(|choice| self.restrict_numbers(choice));
            }
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("integer" | "number") => {
                self.write(schema, ["minimum", "exclusiveMinimum"], ["maximum", "exclusiveMaximum"])
            }
            Some("array") => {
                if let Some(items) = schema.get_mut("items") {
                    self.restrict_numbers(items);
                }
            }
            _ => {}
        }
    }

    /// Writes the bounds to the length of a list.
    pub fn restrict_length(&self, schema: &mut Value) {
        if let Value::Object(schema) = schema
            && *self != Self::NONE
        {
            self.write(schema, ["minItems"; 2], ["maxItems"; 2]);
        }
    }

    fn write(&self, schema: &mut Map<String, Value>, low: [&str; 2], high: [&str; 2]) {
        if self.low.is_finite() {
            schema.remove(low[0]);
            schema.insert(low[usize::from(self.above)].into(), number(self.low));
        }
        if self.high.is_finite() {
            schema.remove(high[0]);
            schema.insert(high[usize::from(self.below)].into(), number(self.high));
        }
    }
}

/// A number of the schema, without a fraction if it has none.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 { json!(value as i64) } else { json!(value) }
}

/// Bounds from ranges of one type of number.
macro_rules! ranges {
    ($($number:ty, $whole:literal;)*) => {$(
        impl From<RangeFrom<$number>> for Bounds {
            fn from(range: RangeFrom<$number>) -> Self {
                Self { low: range.start as f64, whole: $whole, ..Self::NONE }
            }
        }

        impl From<RangeInclusive<$number>> for Bounds {
            fn from(range: RangeInclusive<$number>) -> Self {
                Self { low: *range.start() as f64, high: *range.end() as f64, whole: $whole, ..Self::NONE }
            }
        }

        impl From<Range<$number>> for Bounds {
            fn from(range: Range<$number>) -> Self {
                Self { low: range.start as f64, high: range.end as f64, below: true, whole: $whole, ..Self::NONE }
            }
        }
    )*};
}

// Numbers that are written without a type are `i32` and `f64`.
ranges! {
    i32, true;
    usize, true;
    f64, false;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(bounds: impl Into<Bounds>, numbers: &[f64]) -> Vec<String> {
        let bounds = bounds.into();
        numbers.iter().map(|number| bounds.broken_by(*number).unwrap_or_default()).collect()
    }

    #[test]
    fn bounds_are_described_in_plain_words() {
        assert_eq!(broken(1.., &[1.0, 0.0]), ["", "must be at least 1"]);
        assert_eq!(broken(0..=256, &[0.0, 256.0, 257.0]), ["", "", "must be at most 256"]);
        assert_eq!(broken(1..=256, &[0.0, 257.0]), ["must be from 1 to 256"; 2]);
        assert_eq!(broken(-8..=7, &[-8.0, 8.0]), ["", "must be from -8 to 7"]);
        assert_eq!(broken(1..=1usize << 24, &[0.0, 1e9]), ["must be at least 1", "must be at most 16777216"]);
        assert_eq!(broken(0.0..=1.0, &[1.0, -0.5, f64::NAN]), ["", "must be from 0 to 1", "must be from 0 to 1"]);
        assert_eq!(broken(0.0..1.0, &[0.0, 1.0]), ["", "must be at least 0 and below 1"]);
        assert_eq!(
            broken(0.0.., &[0.0, -1.0, f64::INFINITY]),
            ["", "must be a finite number of at least 0", "must be a finite number of at least 0"]
        );
        assert_eq!(broken(above(0.0), &[1e-9, 0.0]), ["", "must be a finite number above 0"]);
        assert_eq!(broken(Bounds::NONE, &[-1.0, f64::INFINITY]), ["", "must be a finite number"]);
        let lengths =
            [Bounds::from(1..), Bounds::from(1..=4)].map(|bounds| [0, 1, 5].map(|n| bounds.broken_by_length(n)));
        assert_eq!(lengths[0], [Some("must not be empty".to_owned()), None, None]);
        assert_eq!(lengths[1][0], Some("must be a list of 1 to 4".to_owned()));
        assert_eq!(lengths[1][0], lengths[1][2]);
        assert_eq!(lengths[1][1], None);
    }

    #[test]
    fn bounds_reach_all_numbers_of_a_schema() {
        let mut schema = json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "array", "items": { "type": "number" } }, { "const": "a" }] });
        Bounds::from(1..=9).restrict_numbers(&mut schema);
        assert_eq!(
            schema,
            json!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 9 }, { "type": "array", "items": { "type": "number", "minimum": 1, "maximum": 9 } }, { "const": "a" }] })
        );
        above(0.5).restrict_numbers(&mut schema["anyOf"][0]);
        assert_eq!(schema["anyOf"][0], json!({ "type": "integer", "exclusiveMinimum": 0.5, "maximum": 9 }));
    }
}
