//! What a part of the schema says of values, in words.

use serde_json::Value as Json;

/// A bound above this is one of the program's own, for which the manual has a sentence.
const LARGE: f64 = (1 << 20) as f64;

/// The whole schema, in which references are looked up.
pub struct Values<'s>(pub &'s Json);

impl Values<'_> {
    /// What a value may be, in Markdown.
    pub fn describe(&self, schema: &Json) -> String {
        if let Some(path) = schema["$ref"].as_str() {
            return match path {
                "#/$defs/Layer" => "layer".into(),
                "#/$defs/Transform" => "transform".into(),
                "#/$defs/EarlyStopping" | "#/$defs/Ema" | "#/$defs/Init" | "#/$defs/Lora" | "#/$defs/Loss" => {
                    "table".into()
                }
                "#/$defs/Course" => "schedule".into(),
                _ => self.describe(self.defined(path)),
            };
        }
        for key in ["anyOf", "oneOf"] {
            let Some(choices) = schema[key].as_array() else { continue };
            if let [side, pair] = &choices[..]
                && side["type"] == "integer"
                && pair["items"] == *side
                && pair["maxItems"] == 2
            {
                return self.describe(side).replace("integer", "pair");
            }
            // Every argument of a layer may be an expression, which the manual says once.
            let choices = choices.iter().filter(|choice| choice["$ref"] != "#/$defs/Expression");
            let values: Vec<String> = choices.map(|choice| self.describe(choice)).collect();
            let words = values.iter().all(|value| value.starts_with('`'));
            return values.join(if words { ", " } else { " or " });
        }
        let words = |all: &[Json]| all.iter().map(|word| format!("`{}`", toml(word))).collect::<Vec<_>>().join(", ");
        if let Some(all) = schema["enum"].as_array() {
            return words(all);
        }
        if let Some(word) = schema.get("const") {
            return words(std::slice::from_ref(word));
        }
        let items = &schema["items"];
        match schema["type"].as_str() {
            Some("array") if !items["properties"].is_null() => "list of tables".into(),
            Some("array") if !items["allOf"].is_null() => {
                format!("list of {}", plural(&self.describe(&items["allOf"][0])))
            }
            Some("array") if schema["maxItems"] == 1 => format!("list of 1 {}", self.describe(items)),
            Some("array") => format!("list of{} {}", count(schema), plural(&self.describe(items))),
            Some("object") => "table".into(),
            Some(word) => word.to_owned() + &range(schema),
            None => "any value".into(),
        }
    }

    /// A value of that kind, as TOML: for options that have neither an example nor a default.
    pub fn sample(&self, schema: &Json) -> String {
        if let Some(path) = schema["$ref"].as_str() {
            return match path {
                "#/$defs/Layer" | "#/$defs/Transform" | "#/$defs/Course" => "{ type = \"…\" }".into(),
                _ => self.sample(self.defined(path)),
            };
        }
        let first = ["anyOf", "oneOf", "enum"].iter().find_map(|key| schema[*key].as_array()?.first());
        match (first, schema.get("const"), schema["type"].as_str()) {
            (Some(word), _, _) if word.is_string() => toml(word),
            (Some(choice), _, _) if choice.is_object() => self.sample(choice),
            (Some(value), _, _) | (None, Some(value), _) => toml(value),
            (_, _, Some("boolean")) => "true".into(),
            (_, _, Some("integer")) => toml(schema.get("minimum").unwrap_or(&Json::from(1))),
            (_, _, Some("number")) => number(schema),
            (_, _, Some("array")) => {
                let items =
                    if schema["items"]["allOf"].is_null() { &schema["items"] } else { &schema["items"]["allOf"][0] };
                let least = schema["minItems"].as_u64().unwrap_or(1).clamp(1, 4) as usize;
                format!("[{}]", vec![self.sample(items); least].join(", "))
            }
            (_, _, Some("object")) => "{ … }".into(),
            _ => "\"…\"".into(),
        }
    }

    fn defined(&self, path: &str) -> &Json {
        self.0.pointer(path.trim_start_matches('#')).unwrap_or(&Json::Null)
    }
}

/// A number within its range.
fn number(schema: &Json) -> String {
    let bound = |keys: [&str; 2]| keys.iter().find_map(|key| schema[*key].as_f64());
    let (low, high) = (bound(["minimum", "exclusiveMinimum"]), bound(["maximum", "exclusiveMaximum"]));
    let value = match (low, high) {
        (Some(low), Some(high)) if low < 0.5 && high > 0.5 => 0.5,
        (Some(low), Some(high)) => (low + high) / 2.0,
        (Some(low), None) => low.max(0.0) + 1.0,
        (None, Some(high)) => high.min(0.0) - 1.0,
        (None, None) => 1.0,
    };
    format!("{value:?}")
}

/// How many elements a list has, as far as the schema says it.
fn count(schema: &Json) -> String {
    match (schema["minItems"].as_u64(), schema["maxItems"].as_u64()) {
        (Some(low), Some(high)) if low == high => format!(" {low}"),
        (Some(low), Some(high)) => format!(" {low} to {high}"),
        _ => String::new(),
    }
}

/// `integers from 1`, `layers or lists of layers`; words stay as they are.
fn plural(values: &str) -> String {
    let plural = |value: &str| match value.split_once(' ') {
        _ if value.starts_with('`') => value.to_owned(),
        Some((word, rest)) => format!("{word}s {rest}"),
        None => format!("{value}s"),
    };
    values.split(" or ").map(plural).collect::<Vec<_>>().join(" or ")
}

fn range(schema: &Json) -> String {
    let bound = |key: &str| schema[key].as_f64().filter(|bound| bound.abs() <= LARGE);
    let from = match (bound("minimum"), bound("exclusiveMinimum")) {
        (Some(low), _) => format!(" from {low}"),
        (_, Some(low)) => format!(" above {low}"),
        _ => String::new(),
    };
    let to = match (bound("maximum"), bound("exclusiveMaximum")) {
        (Some(high), _) => format!(" to {high}"),
        (_, Some(high)) => format!(" to below {high}"),
        _ => String::new(),
    };
    from + &to
}

/// A value as it would be written.
pub fn toml(value: &Json) -> String {
    match value {
        Json::Number(number) => match number.as_f64() {
            Some(small) if number.is_f64() && small != 0.0 && small.abs() < 0.005 => format!("{small:e}"),
            Some(float) => float.to_string(),
            None => number.to_string(),
        },
        Json::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}
