//! The tables of the manual. Those of docs/config.md are made from what options declare. Between `<!-- options: NAME -->` and `<!-- end -->` stands what
//! this makes; `UPDATE_DOCS=1 cargo test --test docs` renews it.

use std::collections::BTreeMap;
use std::path::Path;

use runner::config::declare::declaration::{Declaration, Declare, Declared, Effect};
use runner::config::declare::options::Options;
use runner::config::declare::tagged::Tagged;
use runner::config::language::keys::{self};
use runner::config::language::layers::{Block, CONTAINERS, CommonKeys, Layer, RopeScaling, container};
use runner::config::language::sections::{
    EarlyStopping, Ema, Init, InitKeys, Lora, MuonAdamW, ParamGroup, Rename, Source, Swa, Transform,
};
use runner::config::schema::schema;
use runner::config::text::lints::Lint;
use schemars::SchemaGenerator;
use serde_json::Value as Json;

/// A bound above this is one of the program's own, for which the text has a sentence.
const LARGE: f64 = (1 << 20) as f64;

/// All tables by name, those of layers and transforms by type.
struct Tables {
    schema: Json,
    tables: BTreeMap<String, String>,
}

impl Tables {
    fn new() -> Self {
        let mut made = Self { schema: schema(), tables: BTreeMap::new() };
        let generator = &mut SchemaGenerator::default();
        made.plain("top", &keys::TOP, generator);
        for section in keys::sections() {
            if !section.shared.is_empty() {
                made.plain(section.name, &section.shared, generator);
            }
            let kinds = (section.kinds)(generator);
            if section.name == "data" {
                made.sources(&kinds);
            } else if !kinds.is_empty() {
                let kinds: Vec<(&str, &Declaration)> = kinds.iter().map(|(word, kind)| (*word, kind)).collect();
                made.kinds(&format!("{} types", section.name), &kinds, Some(section.resume));
            }
        }
        made.plain("train early_stopping", &[EarlyStopping::declaration], generator);
        made.plain("model lora", &[Lora::declaration], generator);
        made.plain("layers rope_scaling", &[RopeScaling::declaration], generator);
        made.plain("optimizer ema", &[Ema::declaration], generator);
        made.plain("optimizer swa", &[Swa::declaration], generator);
        made.plain("optimizer adamw", &[MuonAdamW::declaration], generator);
        made.plain("model weights_rename", &[Rename::declaration], generator);
        made.plain("model init", &[InitKeys::declaration], generator);
        let starts = Init::declarations(generator);
        made.kinds("model init types", &starts.iter().map(|(word, kind)| (*word, kind)).collect::<Vec<_>>(), None);
        made.plain("optimizer groups", &[ParamGroup::declaration], generator);
        let transforms = Transform::declarations(generator);
        made.kinds("transforms", &transforms.iter().map(|(word, kind)| (*word, kind)).collect::<Vec<_>>(), None);
        for (word, kind) in &Layer::declarations(generator) {
            made.kinds(&format!("layers {word}"), &[(word, kind)], None);
        }
        made.plain("layer", &[CommonKeys::declaration], generator);
        made.plain("block", &[Block::declaration], generator);
        let containers = CONTAINERS.map(|word| (word, container(word).expect("is declared").1(generator)));
        made.kinds("containers", &containers.each_ref().map(|(word, kind)| (*word, kind)), None);
        let lints: String =
            Lint::ALL.iter().map(|lint| format!("| `{}` | {} |\n", lint.name(), lint.meaning())).collect();
        made.tables.insert("lints".into(), format!("| lint | tells |\n| --- | --- |\n{lints}"));
        made
    }

    /// A table of options that are not of one kind or another.
    fn plain(&mut self, name: &str, declare: &[Declare], generator: &mut SchemaGenerator) {
        let resumed = !matches!(
            name,
            "train early_stopping"
                | "optimizer groups"
                | "optimizer ema"
                | "optimizer swa"
                | "optimizer adamw"
                | "model weights_rename"
                | "model init"
                | "layer"
                | "block"
        );
        let mut rows = String::new();
        for option in declare.iter().flat_map(|declare| declare(generator).options) {
            rows += &line(self.row(&option, resumed));
        }
        self.tables.insert(name.into(), head(None, resumed) + &rows);
    }

    /// Each source has a chapter of its own; those with the same keys share one.
    fn sources(&mut self, kinds: &[(&str, Declaration)]) {
        let rows = |kind: &Declaration| kind.options.iter().map(|o| self.row(o, true)).collect::<Vec<_>>();
        let with_keys = || kinds.iter().filter(|(_, kind)| !kind.options.is_empty());
        let mut chapters: Vec<(&str, Vec<&str>, &Declaration)> = Vec::new();
        for (word, kind) in with_keys() {
            let words: Vec<&str> =
                with_keys().filter(|(_, other)| rows(other) == rows(kind)).map(|(w, _)| *w).collect();
            if words[0] == *word {
                chapters.push((word, words, kind));
            }
        }
        for (first, words, kind) in chapters {
            self.kinds(&format!("data {first}"), &[(&words.join("`, `"), kind)], Some(Source::RESUME));
        }
    }

    /// A table of some kinds of a thing, each followed by its own options; what another kind does to a run that is resumed.
    fn kinds(&mut self, name: &str, kinds: &[(&str, &Declaration)], resumed: Option<Effect>) {
        let mut rows = String::new();
        for (word, kind) in kinds {
            let mut cells = vec![format!("`{word}`"), String::new(), String::new(), String::new()];
            cells.extend(resumed.map(|effect| resume(effect).to_owned()));
            cells.push(cell(&kind.about));
            rows += &line(cells);
            for option in &kind.options {
                rows += &line([vec![String::new()], self.row(option, resumed.is_some())].concat());
            }
        }
        let tag = if name.starts_with("data ") { "source" } else { "type" };
        self.tables.insert(name.into(), head(Some(tag), resumed.is_some()) + &rows);
    }

    fn row(&self, option: &Declared, resumed: bool) -> Vec<String> {
        let default = match (&option.default, option.otherwise) {
            (_, Some(words)) => words.to_owned(),
            (Some(value), None) => format!("`{}`", toml(value)),
            (None, None) if option.required => "required".into(),
            (None, None) => String::new(),
        };
        let unit = option.unit.map(|unit| format!(" ({unit})")).unwrap_or_default();
        let values = self.values(&option.schema) + &unit;
        let mut cells = vec![format!("`{}`", option.key), values, default];
        cells.extend(resumed.then(|| resume(option.resume).to_owned()));
        cells.push(cell(&option.doc));
        cells
    }

    /// What a value may be.
    fn values(&self, schema: &Json) -> String {
        if let Some(path) = schema["$ref"].as_str() {
            return match path {
                "#/$defs/Layer" => "layer".into(),
                "#/$defs/Transform" => "transform".into(),
                "#/$defs/EarlyStopping" | "#/$defs/Ema" | "#/$defs/Init" | "#/$defs/Lora" => "table".into(),
                "#/$defs/Course" => "schedule".into(),
                _ => self.values(self.schema.pointer(path.trim_start_matches('#')).expect("is defined")),
            };
        }
        for key in ["anyOf", "oneOf"] {
            let Some(choices) = schema[key].as_array() else { continue };
            if let [side, pair] = &choices[..]
                && side["type"] == "integer"
                && pair["items"] == *side
                && pair["maxItems"] == 2
            {
                return self.values(side).replace("integer", "pair");
            }
            // Every argument of a layer may be an expression, which the text says once.
            let choices = choices.iter().filter(|choice| choice["$ref"] != "#/$defs/Expression");
            let values: Vec<String> = choices.map(|choice| self.values(choice)).collect();
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
                format!("list of {}", plural(&self.values(&items["allOf"][0])))
            }
            Some("array") if schema["maxItems"] == 1 => format!("list of 1 {}", self.values(items)),
            Some("array") => format!("list of{} {}", count(schema), plural(&self.values(items))),
            Some("object") => "table".into(),
            Some(word) => word.to_owned() + &range(schema),
            None => panic!("{schema} has no type"),
        }
    }
}

/// How many elements a list has, as far as it is told.
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

fn head(first: Option<&str>, resumed: bool) -> String {
    let names = first.into_iter().chain(["key", "values", "default"]);
    let names: Vec<&str> = names.chain(resumed.then_some("on resume")).chain(["meaning"]).collect();
    line(names.iter().map(|name| (*name).to_owned()).collect()) + &line(vec!["---".to_owned(); names.len()])
}

/// What a change does to a run that is resumed.
fn resume(effect: Effect) -> &'static str {
    match effect {
        Effect::Harmless => "yes",
        Effect::Differs => "with a warning",
        Effect::Breaks => "no",
    }
}

/// A row of a table.
fn line(cells: Vec<String>) -> String {
    let cells: Vec<String> =
        cells.iter().map(|cell| if cell.is_empty() { " ".into() } else { format!(" {cell} ") }).collect();
    format!("|{}|\n", cells.join("|"))
}

/// Paragraphs of a comment within a row.
fn cell(text: &str) -> String {
    text.replace("\n\n", " ").replace('|', "\\|")
}

/// A value as it would be written.
fn toml(value: &Json) -> String {
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

/// The document with every table made anew, and the names of those that it has.
fn renewed(text: &str, tables: &BTreeMap<String, String>) -> (String, Vec<String>) {
    let (mut out, mut names) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!-- options: ") {
        let (name, after) = after.split_once(" -->\n").expect("a marker ends with its line");
        let (_, after) = after.split_once("<!-- end -->").unwrap_or_else(|| panic!("`{name}` has no end"));
        // Several types of layers share a table.
        let all: Vec<String> = match name.strip_prefix("layers ") {
            Some(words) => words.split(' ').map(|word| format!("layers {word}")).collect(),
            None => vec![name.to_owned()],
        };
        let mut table = String::new();
        for one in &all {
            let made = tables.get(one).unwrap_or_else(|| panic!("there is no table `{one}`"));
            let rows = made.lines().skip(if table.is_empty() { 0 } else { 2 });
            table.extend(rows.map(|row| format!("{row}\n")));
        }
        out += &format!("{before}<!-- options: {name} -->\n{table}<!-- end -->");
        names.extend(all);
        rest = after;
    }
    (out + rest, names)
}

/// A document's tables are as they are made now, and each of them is there once. With `UPDATE_DOCS` they are written instead.
pub fn hold_fresh(document: &str, tables: &BTreeMap<String, String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = std::fs::read_to_string(&path).unwrap();
    let (fresh, mut names) = renewed(&text, tables);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    } else {
        assert!(fresh == text, "the tables of {document} are out of date: run this test with UPDATE_DOCS=1");
    }
    names.sort();
    assert_eq!(names, tables.keys().cloned().collect::<Vec<_>>(), "every table has one place in {document}");
}

#[test]
fn the_tables_of_options_are_fresh() {
    hold_fresh("docs/config.md", &Tables::new().tables);
}

#[test]
fn tables_are_put_between_their_markers() {
    let tables = BTreeMap::from([
        ("a".to_owned(), "| h |\n| - |\n| 1 |\n".to_owned()),
        ("layers b".into(), "| h |\n| - |\n| 2 |\n".into()),
    ]);
    let text = "x\n<!-- options: a -->\nold\n<!-- end -->\ny\n<!-- options: layers b b -->\n<!-- end -->\n";
    let (fresh, names) = renewed(text, &tables);
    let expected = "x\n<!-- options: a -->\n| h |\n| - |\n| 1 |\n<!-- end -->\ny\n<!-- options: layers b b -->\n| h |\n| - |\n| 2 |\n| 2 |\n<!-- end -->\n";
    assert_eq!((fresh.as_str(), names.len()), (expected, 3));
    assert_eq!(renewed(&fresh, &tables).0, fresh);
}
