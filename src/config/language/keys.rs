//! Which sections and options there are, from their declarations.

use std::collections::HashSet;
use std::sync::LazyLock;

use schemars::SchemaGenerator;
use serde_json::Value as Json;

use super::sections::{
    Checkpoint, Curve, Distributed, EarlyStopping, Ema, FileKeys, Lints, Loading, Log, Lora, Loss, Metrics, ModelKeys,
    ModelLayers, MuonAdamW, OptimizerRule, ParamGroups, Pipeline, Source, Swa, Sweep, TopKeys, Train, Warmup,
};
use crate::config::declare::declaration::{Declaration, Declare, Declared, Effect, Rule};
use crate::config::declare::options::Options;
use crate::config::declare::tagged::Tagged;
use crate::config::text::sink::Elsewhere;
use crate::config::text::spelling::list;
use crate::config::text::tree::{Node, Table};
use crate::config::text::words::nearest;

/// A section, and the options that it may have.
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Its name in messages: `` `[data]` ``.
    pub heading: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// A line that it may begin with, if it must be there.
    pub required: Option<&'static str>,
    /// The key whose word decides its kind, if it has kinds.
    pub tag: Option<&'static str>,
    /// Its kind if that key is not there.
    pub default: Option<&'static str>,
    /// What another kind does to a run that is resumed.
    pub resume: Effect,
    /// All kinds.
    pub types: &'static [&'static str],
    /// The keys of a kind.
    pub fields: fn(&str) -> &'static [&'static str],
    /// What each kind declares.
    pub kinds: fn(&mut SchemaGenerator) -> Vec<(&'static str, Declaration)>,
    /// The keys of every kind.
    pub common: Vec<&'static str>,
    /// What is declared for every kind.
    pub shared: Vec<Declare>,
    /// What its options must agree on.
    pub rules: Vec<Rule>,
    /// What gives the keys, of whatever kind, that name a file or a folder.
    paths: Vec<fn() -> Vec<&'static str>>,
}

impl Section {
    fn new(heading: &'static str, about: &'static str) -> Self {
        Self {
            name: heading.trim_matches(['`', '[', ']']),
            heading,
            about,
            required: None,
            tag: None,
            default: None,
            resume: Effect::Breaks,
            types: &[],
            fields: |_| &[],
            kinds: |_| Vec::new(),
            common: Vec::new(),
            shared: Vec::new(),
            rules: Vec::new(),
            paths: Vec::new(),
        }
    }

    fn required(mut self, example: &'static str) -> Self {
        self.required = Some(example);
        self
    }

    fn of<T: Tagged>(mut self, default: Option<&'static str>) -> Self {
        self.tag = Some(T::TAG);
        self.default = default;
        self.resume = T::RESUME;
        self.types = T::TYPES;
        self.fields = T::fields;
        self.kinds = T::declarations;
        self.common.insert(0, T::TAG);
        self.rules.extend(T::rules());
        self.paths.push(T::paths);
        self
    }

    fn with<T: Options>(mut self) -> Self {
        self.common.extend(T::KEYS);
        self.shared.push(T::declaration);
        self.rules.extend(T::RULES);
        self.paths.push(T::paths);
        self
    }

    /// The keys of all kinds.
    pub fn keys(&self) -> Vec<&'static str> {
        let mut keys = self.common.clone();
        for key in self.types.iter().flat_map(|word| (self.fields)(word)) {
            if !keys.contains(key) {
                keys.push(key);
            }
        }
        keys
    }

    /// The kinds that have a key of their own.
    fn types_with(&self, key: &str) -> Vec<&'static str> {
        self.types.iter().copied().filter(|word| (self.fields)(word).contains(&key)).collect()
    }

    /// Whether a kind has a key.
    pub fn knows(&self, word: &str, key: &str) -> bool {
        self.common.contains(&key) || (self.fields)(word).contains(&key)
    }

    /// The kind of a section as it is written.
    pub fn kind<'t>(&self, table: &'t Table) -> Option<&'t Node> {
        table.get(self.tag?)
    }
}

/// All sections but those of parameters and blocks.
pub fn sections() -> Vec<Section> {
    vec![
        Section::new("`[data]`", "Where samples come from, and how they become batches.")
            .required("source = \"mnist\"")
            .of::<Source>(None)
            .with::<Loading>()
            .with::<Pipeline>(),
        Section::new("`[model]`", "The layers, and where their parameters start.")
            .required("layers = [ … ]")
            .with::<ModelKeys>()
            .with::<ModelLayers>(),
        Section::new("`[loss]`", "What training makes smaller.").required("type = \"cross_entropy\"").of::<Loss>(None),
        Section::new("`[optimizer]`", "How gradients change parameters.")
            .required("type = \"adam\"")
            .of::<OptimizerRule>(None)
            .with::<ParamGroups>(),
        Section::new("`[train]`", "How long to train, and how.").required("epochs = 10").with::<Train>(),
        Section::new("`[schedule]`", "The course of the learning rate.").of::<Curve>(Some("constant")).with::<Warmup>(),
        Section::new("`[distributed]`", "How a batch is divided among ranks.").with::<Distributed>(),
        Section::new("`[checkpoint]`", "Which checkpoints to write and keep.").with::<Checkpoint>(),
        Section::new("`[log]`", "What to write down.").with::<Log>(),
        Section::new("`[metrics]`", "What evaluation measures besides what the loss comes with.").with::<Metrics>(),
        Section::new("`[lint]`", "Which warnings not to give.").with::<Lints>(),
        Section::new("`[sweep]`", "Trials with other values: `runner sweep` runs them.").with::<Sweep>(),
    ]
}

/// The names of all sections but those of parameters and blocks.
pub fn section_names() -> Vec<&'static str> {
    sections().iter().map(|section| section.name).collect()
}

/// What is declared of the keys that are in no section.
pub const TOP: [Declare; 2] = [TopKeys::declaration, FileKeys::declaration];

/// The dotted keys whose values are files or folders.
pub fn paths() -> Vec<String> {
    let of = |section: Section| {
        let keys = section.paths.into_iter().flat_map(|paths| paths());
        keys.map(move |key| format!("{}.{key}", section.name))
    };
    let mut all: Vec<String> = sections().into_iter().flat_map(of).collect();
    let mut seen = HashSet::new();
    all.retain(|key| seen.insert(key.clone()));
    all
}

/// Whether the value of a dotted key is always a string.
pub fn is_text(key: &str) -> bool {
    // Trials of a sweep ask again and again.
    static ALL: LazyLock<Vec<(String, Declared)>> = LazyLock::new(declared);
    let mut options = ALL.iter().filter(|(declared, _)| declared == key).map(|(_, option)| option).peekable();
    let is_text = |option: &Declared| option.schema.get("type").and_then(Json::as_str) == Some("string");
    options.peek().is_some() && options.all(is_text)
}

/// All options of sections, whatever their kind, with their dotted keys; one of several kinds comes several times.
fn declared() -> Vec<(String, Declared)> {
    let mut generator = SchemaGenerator::default();
    let mut all = Vec::new();
    for section in sections() {
        let shared: Vec<Declaration> = section.shared.iter().map(|declare| declare(&mut generator)).collect();
        let kinds = (section.kinds)(&mut generator).into_iter().map(|(_, declaration)| declaration);
        let options = kinds.chain(shared).flat_map(|declaration| declaration.options);
        all.extend(options.map(|option| (format!("{}.{}", section.name, option.key), option)));
    }
    all
}

/// What a change of a dotted key does to a run that is resumed. What stands inside of an option goes with it.
pub fn effect(key: &str) -> Effect {
    let mut generator = SchemaGenerator::default();
    let mut names = key.split('.');
    let (first, second) = (names.next().unwrap_or_default(), names.next());
    let Some(section) = sections().into_iter().find(|section| section.name == first) else {
        return worst(TOP.iter().map(|declare| declare(&mut generator)), Some(first));
    };
    if second.is_some() && second == section.tag {
        return section.resume;
    }
    let shared: Vec<Declaration> = section.shared.iter().map(|declare| declare(&mut generator)).collect();
    let kinds = (section.kinds)(&mut generator).into_iter().map(|(_, declaration)| declaration);
    worst(kinds.chain(shared), second)
}

/// The worst that a change of a key does, in whatever table it stands; without a key, that of any. An undeclared key
/// breaks the continuation.
fn worst(declarations: impl Iterator<Item = Declaration>, key: Option<&str>) -> Effect {
    let options = declarations.flat_map(|declaration| declaration.options);
    options
        .filter(|option| key.is_none_or(|key| option.key == key))
        .map(|option| option.resume)
        .max()
        .unwrap_or(Effect::Breaks)
}

/// The keys that are in no section.
pub fn top() -> &'static [&'static str] {
    TopKeys::KEYS
}

/// The dotted keys that may be set, without those inside of lists; of a section whose kind is written, only those of
/// that kind.
pub fn dotted(root: &Table) -> Vec<String> {
    let mut all: Vec<String> = top().iter().map(|key| (*key).to_owned()).collect();
    for section in sections() {
        let table = root.get(section.name).and_then(Node::as_table);
        let kind = table.and_then(|table| section.kind(table)).and_then(Node::as_str);
        let keys = section.keys();
        let fits = |key: &&str| kind.is_none_or(|kind| !section.types.contains(&kind) || section.knows(kind, key));
        all.extend(keys.into_iter().filter(fits).map(|key| format!("{}.{key}", section.name)));
    }
    all.extend(EarlyStopping::KEYS.iter().map(|key| format!("train.early_stopping.{key}")));
    all.extend(Lora::KEYS.iter().map(|key| format!("model.lora.{key}")));
    all.extend(Ema::KEYS.iter().map(|key| format!("optimizer.ema.{key}")));
    all.extend(Swa::KEYS.iter().map(|key| format!("optimizer.swa.{key}")));
    if all.iter().any(|key| key == "optimizer.adamw") {
        all.extend(MuonAdamW::KEYS.iter().map(|key| format!("optimizer.adamw.{key}")));
    }
    all
}

/// The dotted keys that end with what was written, else those whose last name is nearly the same.
pub fn ending_with(written: &[&str], root: &Table) -> Vec<String> {
    let all = dotted(root);
    let tail = format!(".{}", written.join("."));
    let exact: Vec<String> = all.iter().filter(|key| key.ends_with(&tail)).cloned().collect();
    // A key of a section, rather than one of the same name in a table of it.
    let is_inside = |key: &String| {
        let section = key.split('.').next().unwrap_or(key);
        let own = format!("{section}{tail}");
        *key != own && exact.contains(&own)
    };
    if !exact.is_empty() {
        return exact.iter().filter(|key| !is_inside(key)).cloned().collect();
    }
    let [word] = written else { return Vec::new() };
    let last = |key: &String| key.rsplit('.').next().unwrap_or(key).to_owned();
    let names: Vec<String> = all.iter().map(last).collect();
    let Some(near) = nearest(word, names.iter().map(String::as_str)) else { return Vec::new() };
    all.iter().filter(|key| last(key) == near).cloned().collect()
}

/// The dotted keys that an option of the command line, without its dashes, may have been meant for.
pub fn for_option(option: &str) -> Vec<String> {
    let written: Vec<String> = option.split('.').map(|word| word.replace('-', "_")).collect();
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    let all = dotted(&Table::default());
    match all.iter().find(|key| **key == written.join(".")) {
        Some(key) => vec![key.clone()],
        None => ending_with(&written, &Table::default()),
    }
}

/// What is said of keys that a section does not have.
pub const ELSEWHERE: Elsewhere = Elsewhere { belongs: elsewhere, nearly };

/// Where a key belongs that does not belong into this section.
fn elsewhere(place: &str, key: &str) -> Option<String> {
    let here = match place {
        "the configuration" => "",
        _ => place.strip_prefix("`[")?.strip_suffix("]`")?,
    };
    if key == "type" {
        // Of nearly all.
        return None;
    }
    let mut belongs: Vec<&str> = Vec::new();
    for section in sections().iter().filter(|section| section.keys().contains(&key)) {
        if section.name == here {
            return Some(format!("is a key of {}", list(section.types_with(key), "and")));
        }
        belongs.push(section.name);
    }
    if belongs.is_empty() && !here.is_empty() && top().contains(&key) {
        return Some("stands before the first section".into());
    }
    let names: Vec<String> = belongs.iter().map(|name| format!("[{name}]")).collect();
    (!names.is_empty()).then(|| format!("is a key of {}", list(names.iter().map(String::as_str), "and of")))
}

/// The key of another type of the section that a misspelt one was probably meant for.
fn nearly(place: &str, key: &str) -> Option<String> {
    let here = place.strip_prefix("`[")?.strip_suffix("]`")?;
    let section = sections().into_iter().find(|section| section.name == here)?;
    let near = nearest(key, section.keys())?;
    let types = section.types_with(near);
    (!types.is_empty()).then(|| format!("did you mean `{near}`? It is a key of {}", list(types, "and")))
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::config::declare::part::Part;
    use crate::config::language::layers::{Block, CONTAINERS, CommonKeys, Layer, RopeScaling, container};
    use crate::config::language::sections::{Init, InitKeys, ParamGroup, Rename, Transform};
    use crate::config::text::diagnostics::{Diagnostic, SourceKind, Sources, Span};
    use crate::config::text::parse::parse;
    use crate::config::text::sink::Sink;

    /// Everything that is declared anywhere, with a name for it.
    fn all() -> Vec<(String, Declaration)> {
        let generator = &mut SchemaGenerator::default();
        let mut all: Vec<(String, Declaration)> =
            TOP.iter().map(|declare| (String::new(), declare(generator))).collect();
        for section in sections() {
            all.extend(section.shared.iter().map(|declare| (section.name.into(), declare(generator))));
            all.extend((section.kinds)(generator).into_iter().map(|(word, kind)| (word.into(), kind)));
        }
        let tagged =
            [Layer::declarations(generator), Transform::declarations(generator), Init::declarations(generator)];
        for (word, kind) in tagged.into_iter().flatten() {
            all.push((word.into(), kind));
        }
        let nested = [
            EarlyStopping::declaration,
            Ema::declaration,
            Lora::declaration,
            RopeScaling::declaration,
            Rename::declaration,
            InitKeys::declaration,
            ParamGroup::declaration,
            CommonKeys::declaration,
            Block::declaration,
        ];
        all.extend(nested.map(|declare| ("nested".into(), declare(generator))));
        all.extend(CONTAINERS.map(|word| (word.into(), container(word).unwrap().1(generator))));
        all
    }

    /// What is wrong with a table that has this one key, besides what it lacks.
    fn problems(declaration: &Declaration, key: &str, value: &str) -> Vec<Diagnostic> {
        let text = format!("{key} = {value}");
        let source = Sources::default().add("test", &text, SourceKind::File);
        let (table, wrong) = parse(source, &text);
        assert!(wrong.is_empty(), "`{text}` is no TOML");
        let sink = Sink::default();
        let span = Span { source, start: 0, end: 0 };
        (declaration.probe)(&Part { table: &table, span, what: "a table", bad: &[], sink: &sink });
        sink.into_vec().into_iter().filter(|problem| problem.message.contains(&format!("`{key}`"))).collect()
    }

    fn toml(value: &Json) -> String {
        toml::Value::try_from(value).unwrap().to_string()
    }

    #[test]
    fn examples_and_defaults_are_in_range() {
        let mut seen = 0;
        for (name, declaration) in all() {
            for option in &declaration.options {
                let default = option.default.as_ref().filter(|value| value.as_str() != Some("")).map(toml);
                for value in option.example.map(str::to_owned).into_iter().chain(default) {
                    seen += 1;
                    let problems = problems(&declaration, option.key, &value);
                    assert!(problems.is_empty(), "{name}: {} = {value}: {problems:?}", option.key);
                }
                assert!(option.doc.ends_with('.'), "{name}: {} is described by whole sentences", option.key);
            }
            assert!(declaration.about.ends_with('.'), "{name} is described by whole sentences");
        }
        assert!(seen > 100, "{seen}");
    }

    /// The schema says of each what it goes with.
    #[test]
    fn keys_of_files_and_folders_are_known() {
        let keys = paths();
        // Of a kind, of what kinds share, of what has no kinds, and of an optional value.
        for key in ["data.root", "data.path", "data.val_path", "model.weights", "data.cache_dir"] {
            assert!(keys.iter().any(|known| known == key), "{key}: {keys:?}");
        }
        for key in ["data.source", "optimizer.lr", "train.seed"] {
            assert!(!keys.iter().any(|known| known == key), "{key}: {keys:?}");
        }
    }

    #[test]
    fn every_loss_has_defaults() {
        let words: Vec<&str> = Loss::defaults().iter().map(Tagged::type_name).collect();
        assert_eq!(words, Loss::TYPES);
    }

    /// Numbers just beyond the bounds of a schema.
    fn beyond(schema: &Json) -> Vec<String> {
        let choices = schema["anyOf"].as_array().map_or(&[][..], Vec::as_slice);
        let mut beyond: Vec<String> = choices.iter().flat_map(beyond_one).collect();
        beyond.extend(beyond_one(schema));
        beyond
    }

    fn beyond_one(schema: &Json) -> Vec<String> {
        let at = |key: &str, by: i64| {
            let bound = schema[key].as_i64()? + by;
            Some(if schema["type"] == "number" { format!("{bound}.0") } else { bound.to_string() })
        };
        let all = [at("minimum", -1), at("exclusiveMinimum", 0), at("maximum", 1), at("exclusiveMaximum", 0)];
        all.into_iter().flatten().collect()
    }

    #[test]
    fn what_the_schema_excludes_is_refused() {
        let mut seen = 0;
        for (name, declaration) in all().iter().filter(|(name, _)| name != "nested" && container(name).is_none()) {
            for option in declaration.options.iter() {
                for value in beyond(&option.schema) {
                    seen += 1;
                    assert!(!problems(declaration, option.key, &value).is_empty(), "{name}: {} = {value}", option.key);
                }
            }
        }
        assert!(seen > 100, "{seen}");
    }
}
