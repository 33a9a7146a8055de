//! Values of the options of transforms.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::config::declare::part::Part;
use crate::config::declare::value::{Value, values};
use crate::config::language::values::Pair;
use crate::config::text::tree::Node;

/// The largest byte.
pub(super) const MAX_BYTE: usize = 255;

values!(Interpolation, Policy);

/// How pixels of one size are made of pixels of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// The pixel that lies there.
    Nearest,
    /// Linear in both directions.
    Bilinear,
    /// Cubic in both directions.
    Bicubic,
}

/// The pairs of changes that `auto_augment` draws from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Found on ImageNet.
    Imagenet,
    /// Found on CIFAR-10.
    Cifar10,
    /// Found on SVHN.
    Svhn,
}

/// The size that an image is resized to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizedTo {
    /// Its shorter side; the ratio of the sides stays.
    Shorter(usize),
    /// Height and width.
    Both([usize; 2]),
}

impl Serialize for ResizedTo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Shorter(side) => side.serialize(serializer),
            Self::Both(sides) => sides.serialize(serializer),
        }
    }
}

impl Value for ResizedTo {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        let Pair(sides) = Pair::read(part, key, node)?;
        Some(if node.as_array().is_some() { Self::Both(sides) } else { Self::Shorter(sides[0]) })
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Pair::schema(generator)
    }
}

/// What a number is drawn from: one that says how far, or the least and the largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DrawnFrom {
    /// A number.
    Number(f64),
    /// `[least, largest]`.
    Range([f64; 2]),
}

impl DrawnFrom {
    /// The least and the largest, if one number is the distance from `middle` in both directions.
    pub fn around(self, middle: f64) -> [f64; 2] {
        match self {
            Self::Number(far) => [middle - far, middle + far],
            Self::Range(range) => range,
        }
    }

    /// The least and the largest, if one number is the only one.
    pub fn range(self) -> [f64; 2] {
        match self {
            Self::Number(only) => [only, only],
            Self::Range(range) => range,
        }
    }
}

impl Serialize for DrawnFrom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => number.serialize(serializer),
            Self::Range(range) => range.serialize(serializer),
        }
    }
}

impl Value for DrawnFrom {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        match (node.as_array(), node.as_number()) {
            (Some(_), _) => <[f64; 2]>::read(part, key, node).map(Self::Range),
            (_, Some(_)) => f64::read(part, key, node).map(Self::Number),
            _ => {
                part.wrong_value(key, node, "expected a number or [least, largest]");
                None
            }
        }
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "number" },
                { "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 },
            ],
        })
    }
}

impl Part<'_> {
    /// Reports a range whose ends are in the wrong order.
    pub(super) fn require_range(&self, key: &str, [least, largest]: [f64; 2]) {
        self.require(key, least <= largest, "must be the least and then the largest");
    }

    /// Reports a distance below 0.
    pub(super) fn require_distance(&self, key: &str, from: DrawnFrom) {
        self.require(
            key,
            !matches!(from, DrawnFrom::Number(far) if far < 0.0),
            "must be at least 0, or [least, largest]",
        );
    }
}

/// Angles that an image is sheared by along x, and along y.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shear {
    /// Along x alone.
    X(DrawnFrom),
    /// The least and the largest along x, and the same along y.
    Both([f64; 4]),
}

impl Shear {
    /// The least and the largest along x and along y; one number goes in both directions.
    pub fn ranges(self) -> [[f64; 2]; 2] {
        match self {
            Self::X(x) => [x.around(0.0), [0.0; 2]],
            Self::Both([a, b, c, d]) => [[a, b], [c, d]],
        }
    }
}

impl Serialize for Shear {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::X(x) => x.serialize(serializer),
            Self::Both(both) => both.serialize(serializer),
        }
    }
}

impl Value for Shear {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        match (node.as_array().map(<[Node]>::len), node.as_number()) {
            (Some(4), _) => <[f64; 4]>::read(part, key, node).map(Self::Both),
            (Some(2), _) | (_, Some(_)) => DrawnFrom::read(part, key, node).map(Self::X),
            _ => {
                part.wrong_value(
                    key,
                    node,
                    "expected a number, [least, largest] along x, or the same along x and along y in one list",
                );
                None
            }
        }
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        let list = |n: usize| serde_json::json!({ "type": "array", "items": { "type": "number" }, "minItems": n, "maxItems": n });
        json_schema!({ "anyOf": [{ "type": "number" }, list(2), list(4)] })
    }
}
