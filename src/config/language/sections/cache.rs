//! `[data] cache`: photos that are kept once they are decoded, and where a table lies.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::config::declare::part::Part;
use crate::config::declare::value::{Value, values};
use crate::config::text::tree::Node;

values!(Cache);

/// Where photos are kept, or the rows of a table lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Nowhere: photos are decoded in every epoch. A table lies where there is room.
    None,
    /// In memory, as long as the run takes.
    Memory,
    /// In files of `cache_dir`; photos for later runs as well.
    Disk,
}

/// What each unit is in bytes. The first that goes into a size without a rest writes it.
const UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("KB", 1000),
    ("B", 1),
];

/// The largest size.
const MOST: f64 = (1u64 << 50) as f64;

/// A number of bytes, written with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// The size that a text like `2 GiB` says.
    fn parse(text: &str) -> Option<Self> {
        let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = text.split_at(unit);
        let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
        let bytes = number.parse::<f64>().ok()? * *bytes as f64;
        (1.0..=MOST).contains(&bytes).then_some(ByteSize(bytes as u64))
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let unit = UNITS.iter().find(|(_, bytes)| self.0.is_multiple_of(*bytes));
        let (name, bytes) = unit.copied().unwrap_or(("B", 1));
        serializer.collect_str(&format_args!("{} {name}", self.0 / bytes))
    }
}

impl Value for ByteSize {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        let size = node.as_str().and_then(ByteSize::parse);
        if size.is_none() {
            part.wrong_value(key, node, "expected a size with its unit, such as \"2 GiB\" or \"500 MB\"");
        }
        size
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? *(B|[kKMGT]B|[KMGT]iB)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        let of = |text: &str| ByteSize::parse(text).map(|size| size.0);
        assert_eq!(of("2 GiB"), Some(2 << 30));
        assert_eq!(of("1.5KiB"), Some(1536));
        assert_eq!(of("500 MB"), Some(500_000_000));
        for wrong in ["", "2", "GiB", "2 gib", "-1 MB", "1e3 MB", "0 B", "0.5 B", "2048 TiB", "1.2.3 MB", "2 GiB more"]
        {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        for (bytes, text) in
            [(2 << 30, "2 GiB"), (1536, "1536 B"), (500_000_000, "500 MB"), (3 << 20, "3 MiB"), (1, "1 B")]
        {
            let written = serde_json::to_value(ByteSize(bytes)).expect("a text");
            assert_eq!(written, text);
            assert_eq!(of(text), Some(bytes));
        }
    }
}
