//! Values that may be written in more than one way: `3` or `[3, 5]`, a number or a word.

use std::borrow::Cow;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::written::Written;
use crate::config::declare::part::Part;
use crate::config::declare::value::{Value, deserialize, values};
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::Node;

values!(Pair, Padding, Groups, Momentum, ValidationSplit, Device, Precision, Anneal);

/// A whole number for both directions of an image, or `[height, width]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pair(pub [usize; 2]);

impl Pair {
    /// `[1, 1]`.
    pub fn one() -> Self {
        Self([1, 1])
    }

    fn of<E: de::Error>(written: Written<usize>, expected: &'static str) -> Result<Self, E> {
        match written {
            Written::One(one) => Ok(Self([one, one])),
            Written::List(list) => list.try_into().map(Self).map_err(|list| Written::List(list).refused(expected)),
            word @ Written::Word(_) => Err(word.refused(expected)),
        }
    }
}

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a whole number or [height, width]";
        Pair::of(Written::read(deserializer, EXPECTED)?, EXPECTED)
    }
}

impl Serialize for Pair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            [h, w] if h == w => h.serialize(serializer),
            pair => pair.serialize(serializer),
        }
    }
}

impl JsonSchema for Pair {
    // Inline, so that each use has its own range and says whether an expression may stand there.
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Pair".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a whole number, or [height, width]",
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 2, "maxItems": 2 },
            ],
        })
    }
}

/// The zeros around an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Rows, columns; on each side.
    Explicit(Pair),
    /// As many as keep the image's size; of an odd number the extra zero is at the end, as in PyTorch.
    Same,
}

impl Default for Padding {
    fn default() -> Self {
        Self::Explicit(Pair::default())
    }
}

impl<'de> Deserialize<'de> for Padding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a whole number, [height, width], \"same\" or \"valid\"";
        match Written::read(deserializer, EXPECTED)? {
            Written::Word(word) => match word.as_str() {
                "same" => Ok(Self::Same),
                "valid" => Ok(Self::default()),
                _ => Err(de::Error::invalid_value(de::Unexpected::Str(&word), &EXPECTED)),
            },
            numbers => Pair::of(numbers, EXPECTED).map(Self::Explicit),
        }
    }
}

impl Serialize for Padding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Explicit(pair) => pair.serialize(serializer),
            Self::Same => serializer.serialize_str("same"),
        }
    }
}

impl JsonSchema for Padding {
    // Inline, so that each use has its own range and says whether an expression may stand there.
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Padding".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a whole number, [height, width], \"same\" or \"valid\"",
            "anyOf": [generator.subschema_for::<Pair>(), { "enum": ["same", "valid"] }],
        })
    }
}

/// The groups of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Groups {
    /// That many.
    Count(usize),
    /// One for each channel that comes in: depthwise.
    InChannels,
}

impl<'de> Deserialize<'de> for Groups {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GroupsVisitor;

        impl Visitor<'_> for GroupsVisitor {
            type Value = Groups;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a whole number or \"in_channels\"")
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Groups, E> {
                let v = usize::try_from(v).map_err(|_| E::invalid_value(de::Unexpected::Signed(v), &self))?;
                Ok(Groups::Count(v))
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Groups, E> {
                let v = usize::try_from(v).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(v), &self))?;
                Ok(Groups::Count(v))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Groups, E> {
                match v {
                    "in_channels" => Ok(Groups::InChannels),
                    _ => Err(E::invalid_value(de::Unexpected::Str(v), &self)),
                }
            }
        }

        deserializer.deserialize_any(GroupsVisitor)
    }
}

impl Serialize for Groups {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => count.serialize(serializer),
            Self::InChannels => serializer.serialize_str("in_channels"),
        }
    }
}

impl JsonSchema for Groups {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Groups".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a whole number, or \"in_channels\" for one group to each channel",
            "anyOf": [{ "type": "integer" }, { "const": "in_channels" }],
        })
    }
}

/// How running statistics take in a new batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Momentum {
    /// The share of the new batch.
    Share(f64),
    /// The mean over all batches so far: PyTorch's `momentum=None`.
    Cumulative,
}

impl<'de> Deserialize<'de> for Momentum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MomentumVisitor;

        impl Visitor<'_> for MomentumVisitor {
            type Value = Momentum;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a number or \"cumulative\"")
            }

            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Momentum, E> {
                Ok(Momentum::Share(v))
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Momentum, E> {
                Ok(Momentum::Share(v as f64))
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Momentum, E> {
                Ok(Momentum::Share(v as f64))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Momentum, E> {
                match v {
                    "cumulative" => Ok(Momentum::Cumulative),
                    _ => Err(E::invalid_value(de::Unexpected::Str(v), &self)),
                }
            }
        }

        deserializer.deserialize_any(MomentumVisitor)
    }
}

impl Serialize for Momentum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Share(share) => share.serialize(serializer),
            Self::Cumulative => serializer.serialize_str("cumulative"),
        }
    }
}

impl JsonSchema for Momentum {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Momentum".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a number from 0 to 1, or \"cumulative\"",
            "anyOf": [{ "type": "number" }, { "const": "cumulative" }],
        })
    }
}

/// Samples to hold out of the training set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValidationSplit {
    /// A share, above 0 and below 1.
    Fraction(f64),
    /// A number.
    Count(usize),
}

impl<'de> Deserialize<'de> for ValidationSplit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SplitVisitor;

        impl Visitor<'_> for SplitVisitor {
            type Value = ValidationSplit;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a share between 0 and 1, or a whole number of samples; a table has `fraction` or `count`, with `stratify`, `group` or `time`")
            }

            fn visit_f64<E: de::Error>(self, v: f64) -> Result<ValidationSplit, E> {
                if v > 0.0 && v < 1.0 {
                    return Ok(ValidationSplit::Fraction(v));
                }
                Err(E::invalid_value(de::Unexpected::Float(v), &self))
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<ValidationSplit, E> {
                match usize::try_from(v) {
                    Ok(v) if v > 0 => Ok(ValidationSplit::Count(v)),
                    _ => Err(E::invalid_value(de::Unexpected::Signed(v), &self)),
                }
            }
        }

        deserializer.deserialize_any(SplitVisitor)
    }
}

impl Serialize for ValidationSplit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fraction(share) => share.serialize(serializer),
            Self::Count(count) => count.serialize(serializer),
        }
    }
}

impl JsonSchema for ValidationSplit {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ValidationSplit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a share between 0 and 1, or a whole number of samples; of a table also how they are drawn",
            "anyOf": [
                { "type": "integer", "minimum": 1 },
                { "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 },
                {
                    "type": "object",
                    "properties": {
                        "fraction": { "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 },
                        "count": { "type": "integer", "minimum": 1 },
                        "stratify": { "type": "string" },
                        "group": { "type": "string" },
                        "time": { "type": "string" },
                    },
                    "additionalProperties": false,
                    "oneOf": [{ "required": ["fraction"] }, { "required": ["count"] }],
                },
            ],
        })
    }
}

/// Where to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// On a GPU if one answers, else on the CPU.
    Auto,
    /// On the CPU.
    Cpu,
    /// On the GPU of that number; `"cuda"` is number 0.
    Cuda(usize),
}

impl std::str::FromStr for Device {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => s
                .strip_prefix("cuda:")
                .filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|n| n.parse().ok())
                .map(Self::Cuda)
                .ok_or_else(|| format!("`{s}` is no device: use \"auto\", \"cpu\", \"cuda\" or \"cuda:1\"")),
        }
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(0) => f.write_str("cuda"),
            Self::Cuda(n) => write!(f, "cuda:{n}"),
        }
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Device {
    fn schema_name() -> Cow<'static, str> {
        "Device".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(auto|cpu|cuda(:[0-9]+)?)$", "examples": ["auto", "cpu", "cuda", "cuda:1"] })
    }
}

/// How to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Single precision.
    Fp32,
    /// Single precision, products with TF32's shorter factors.
    Tf32,
    /// Mixed with bfloat16, as PyTorch's autocast does it.
    Bf16,
    /// Mixed with half precision and a scaled loss, as PyTorch's autocast does it.
    Fp16,
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Precision::Fp32 => "fp32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
            Precision::Fp16 => "fp16",
        })
    }
}

impl Value for PathBuf {
    const IS_PATH: bool = true;

    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        if let Some((scheme, _)) = node.as_str().and_then(|text| text.split_once("://"))
            && scheme.len() > 1
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        {
            let error = Diagnostic::error(format!("`{key}` in {} is an address, and files are not fetched", part.what))
                .help("fetch the file first, as by `curl -LO` and the address, and name the file");
            part.sink.push(error.at(node.span, "no path of a file"));
            return None;
        }
        deserialize(part, key, node)
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// How a learning rate goes from one value to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Anneal {
    /// Along half a cosine.
    Cos,
    /// Along a line.
    Linear,
}
