//! The language as a reference: every table of options, from what is declared. The manual's tables and `runner docs` are made
//! of it.

use schemars::SchemaGenerator;
use serde_json::Value as Json;

use super::schema;
use super::values::{Values, toml};
use crate::config::declare::declaration::{Declaration, Declare, Declared, Effect};
use crate::config::declare::options::Options;
use crate::config::declare::tagged::Tagged;
use crate::config::language::keys;
use crate::config::language::layers::{
    Block, CONTAINERS, CommonKeys, DECODER_LAYER, ENCODER_LAYER, Layer, RopeScaling, container,
};
use crate::config::language::sections::{
    ColumnType, EarlyStopping, Ema, Head, Init, InitKeys, Lora, MuonAdamW, ParamGroup, Rename, Source, Swa, Transform,
};
use crate::config::text::lints::Lint;

/// Options that are described together.
#[derive(Debug)]
pub struct Table {
    /// Its name in the markers of the manual: `train`, `optimizer types`, `layers conv2d`.
    pub name: String,
    /// What its kinds are: `layer`, `loss`; none of options that are not of one kind or another.
    pub kind: Option<&'static str>,
    /// Whether it says what a change of an option does to a run that is resumed.
    pub resumed: bool,
    /// Its kinds; a single one without a word if it has none.
    pub entries: Vec<Entry>,
}

/// A kind of a thing, such as a layer, with its options.
#[derive(Debug)]
pub struct Entry {
    /// Its types: several have the same options.
    pub words: Vec<&'static str>,
    /// What it is for, in Markdown.
    pub about: String,
    /// What another kind does to a run that is resumed.
    pub resume: &'static str,
    /// Its options.
    pub options: Vec<Described>,
}

/// An option in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its key.
    pub key: &'static str,
    /// Type and range of its values, in Markdown.
    pub values: String,
    /// Its default, in Markdown; `required`, or nothing.
    pub default: String,
    /// What a change does to a run that is resumed.
    pub resume: &'static str,
    /// What it is for, in Markdown.
    pub about: String,
    /// A line of TOML that has it.
    pub example: String,
}

/// All tables.
pub fn tables() -> Vec<Table> {
    let mut made = Maker { schema: schema(), tables: Vec::new() };
    let generator = &mut SchemaGenerator::default();
    made.plain("top", &keys::TOP, true, generator);
    for section in keys::sections() {
        if !section.shared.is_empty() {
            made.plain(section.name, &section.shared, true, generator);
        }
        let kinds = (section.kinds)(generator);
        match section.name {
            "data" => made.sources(&kinds),
            name if !kinds.is_empty() => made.kinds(&format!("{name} types"), name, &kinds, Some(section.resume)),
            _ => {}
        }
    }
    made.kinds("data columns types", "type of column", &ColumnType::declarations(generator), None);
    made.plain("train early_stopping", &[EarlyStopping::declaration], false, generator);
    made.plain("model lora", &[Lora::declaration], true, generator);
    made.plain("layers rope_scaling", &[RopeScaling::declaration], false, generator);
    made.plain("optimizer ema", &[Ema::declaration], false, generator);
    made.plain("optimizer swa", &[Swa::declaration], false, generator);
    made.plain("optimizer adamw", &[MuonAdamW::declaration], false, generator);
    made.plain("model weights_rename", &[Rename::declaration], false, generator);
    made.plain("model init", &[InitKeys::declaration], false, generator);
    made.kinds("model init types", "start of parameters", &Init::declarations(generator), None);
    made.plain("heads", &[Head::declaration], false, generator);
    made.plain("optimizer groups", &[ParamGroup::declaration], false, generator);
    made.kinds("transforms", "transform", &Transform::declarations(generator), None);
    for kind in Layer::declarations(generator) {
        made.kinds(&format!("layers {}", kind.0), "layer", &[kind], None);
    }
    made.plain("layer", &[CommonKeys::declaration], false, generator);
    made.plain("block", &[Block::declaration], false, generator);
    let all = CONTAINERS.map(|word| (word, container(word).expect("is declared").1(generator)));
    let (whole, containers): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(word, _)| [ENCODER_LAYER, DECODER_LAYER].contains(word));
    made.kinds("containers", "layer", &containers, None);
    for kind in whole {
        made.kinds(&format!("layers {}", kind.0), "layer", &[kind], None);
    }
    let lint = |lint: &Lint| Entry {
        words: vec![lint.name()],
        about: lint.meaning().into(),
        resume: "yes",
        options: Vec::new(),
    };
    let entries = Lint::ALL.iter().map(lint).collect();
    made.tables.push(Table { name: "lints".into(), kind: Some("warning"), resumed: false, entries });
    made.tables
}

/// The page of the manual that has a table, below `docs/config`.
pub fn page(table: &str) -> &'static str {
    match table {
        "top" => "file.md",
        "data" => "data.md",
        "data image_folder" | "data image_list" | "data webdataset" => "photos.md",
        "data csv" | "data columns types" => "tables.md",
        "data text" | "data tokens" | "data text_classes" | "data text_tags" | "data text_to_text"
        | "data text_pairs" => "text.md",
        "data tensors" => "tensors.md",
        "transforms" => "transforms.md",
        "model lora" | "model weights_rename" => "weights.md",
        "model init" | "model init types" => "init.md",
        "model" => "model.md",
        "optimizer ema" | "optimizer swa" => "averages.md",
        "containers" => "containers.md",
        "block" => "blocks.md",
        "loss types" => "loss.md",
        "heads" => "heads.md",
        "schedule" | "schedule types" => "schedule.md",
        "train" | "train early_stopping" => "train.md",
        "checkpoint" | "log" => "output.md",
        "distributed" => "distributed.md",
        "metrics" => "metrics.md",
        "sweep" => "sweep.md",
        "lint" | "lints" => "lint.md",
        _ if table.starts_with("data ") => "public.md",
        _ if table.starts_with("optimizer") => "optimizer.md",
        _ => "layers.md",
    }
}

/// What a change does to a run that is resumed, in a word.
fn resume(effect: Effect) -> &'static str {
    match effect {
        Effect::Harmless => "yes",
        Effect::Differs => "with a warning",
        Effect::Breaks => "no",
    }
}

struct Maker {
    schema: Json,
    tables: Vec<Table>,
}

impl Maker {
    /// A table of options that are not of one kind or another.
    fn plain(&mut self, name: &str, declare: &[Declare], resumed: bool, generator: &mut SchemaGenerator) {
        let options = declare.iter().flat_map(|declare| declare(generator).options);
        let options = options.map(|option| self.described(&option)).collect();
        let entry = Entry { words: Vec::new(), about: String::new(), resume: "", options };
        self.tables.push(Table { name: name.into(), kind: None, resumed, entries: vec![entry] });
    }

    /// A table of some kinds of a thing, each with its own options.
    fn kinds(
        &mut self,
        name: &str,
        kind: &'static str,
        kinds: &[(&'static str, Declaration)],
        resumed: Option<Effect>,
    ) {
        let entries = kinds.iter().map(|(word, kind)| self.entry(vec![*word], kind, resumed)).collect();
        self.tables.push(Table { name: name.into(), kind: Some(kind), resumed: resumed.is_some(), entries });
    }

    /// Each source has a table of its own; those with the same keys share one, and those without have none.
    fn sources(&mut self, kinds: &[(&'static str, Declaration)]) {
        let mut entries: Vec<Entry> = Vec::new();
        for (word, kind) in kinds.iter().filter(|(_, kind)| !kind.options.is_empty()) {
            let made = self.entry(vec![*word], kind, Some(Source::RESUME));
            match entries.iter_mut().find(|entry| entry.options == made.options) {
                Some(entry) => entry.words.push(*word),
                None => entries.push(made),
            }
        }
        self.tables.extend(entries.into_iter().map(|entry| Table {
            name: format!("data {}", entry.words[0]),
            kind: Some("source"),
            resumed: true,
            entries: vec![entry],
        }));
    }

    fn entry(&self, words: Vec<&'static str>, kind: &Declaration, resumed: Option<Effect>) -> Entry {
        Entry {
            words,
            about: kind.about.clone(),
            resume: resumed.map_or("", resume),
            options: kind.options.iter().map(|option| self.described(option)).collect(),
        }
    }

    fn described(&self, option: &Declared) -> Described {
        let default = match (&option.default, option.otherwise) {
            (_, Some(words)) => words.to_owned(),
            (Some(value), None) => format!("`{}`", toml(value)),
            (None, None) if option.required => "required".into(),
            (None, None) => String::new(),
        };
        let unit = option.unit.map(|unit| format!(" ({unit})")).unwrap_or_default();
        let values = Values(&self.schema);
        let shown = match (option.example, &option.default) {
            (Some(toml), _) => toml.to_owned(),
            (None, Some(value)) if !value.is_null() => toml(value),
            _ => values.sample(&option.schema),
        };
        Described {
            key: option.key,
            values: values.describe(&option.schema) + &unit,
            default,
            resume: resume(option.resume),
            about: option.doc.clone(),
            example: format!("{} = {shown}", option.key),
        }
    }
}
