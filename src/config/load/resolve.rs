//! From the tree to the [`Experiment`]: each section is read, then what one says is held against the others.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use crate::config::experiment::{Experiment, LayerNode, Model};
use crate::config::text::diagnostics::{Diagnostic, Sources, Span};
use crate::config::text::origins::Origins;

use super::classes::{Classes, NUM_CLASSES};
use super::files::Files;
use super::merge::{LeftBehind, Reason};
use super::model::unroll;
use super::paths::{absolute, place};
use super::rules;
use crate::config::declare::options::{Check, Options};
use crate::config::declare::part::Part;
use crate::config::declare::tagged::Tagged;
use crate::config::language::devices::Devices;
use crate::config::language::keys::{self, Section};
use crate::config::language::pretrained::{Pretrained, Unknown};
use crate::config::language::sections::{
    Checkpoint, Data, Distributed, FileKeys, InitRule, Lints, Loading, Log, Loss, Metrics, ModelKeys, ModelLayers,
    Optimizer, OptimizerRule, ParamGroups, Pipeline, Schedule, Source, Sweep, TopKeys, Train, Warmup,
};
use crate::config::text::lints::Lint;
use crate::config::text::parse::parse;
use crate::config::text::sink::{Lost, Sink};
use crate::config::text::tree::{Node, Table, Value};
use crate::config::text::words::nearest;
use crate::files::caches;

/// What stands in for sections that cannot be read, so that the others can be held against each other.
const STAND_IN: &str = r#"
    data = { source = "digits", batch_size = 1 }
    model = { layers = ["flatten"] }
    loss = { type = "cross_entropy" }
    optimizer = { type = "adam" }
    train = { epochs = 1 }
"#;

/// A configuration that was read, also where something is wrong with it.
pub(super) struct Resolved {
    pub experiment: Experiment,
    /// The sections that could not be read, and keys beside them. Stand-ins have taken their place.
    pub unread: Vec<&'static str>,
}

/// Reads everything; `sink` gets the problems.
pub(super) fn resolve(
    name: &str,
    (root, start): (&Table, Span),
    Files { sources, classes, sink, left, .. }: &Files,
) -> Resolved {
    let top = Part { table: root, span: start, what: "the configuration", bad: &[], sink };
    top.known_keys(&[TopKeys::KEYS, &keys::section_names(), &["params", "blocks"], FileKeys::KEYS]);
    let nothing = Table::default();
    let written = Reader { root, start, nothing: &nothing, sources, classes, left, sink, sections: keys::sections() };
    let (stand_in, _) = parse(start.source, STAND_IN);
    let silent = Sink::default();
    let readers = Readers {
        stand_in: Reader { root: &stand_in, sink: &silent, sections: keys::sections(), ..written },
        written,
        unread: RefCell::default(),
    };
    let top_keys = top.read::<TopKeys>().unwrap_or_else(|| {
        readers.unread.borrow_mut().extend(TopKeys::KEYS);
        Part { table: &nothing, sink: &silent, ..top }.read().expect("each of these keys has a default")
    });
    let sweep = root.get("sweep").and_then(|_| readers.written.plain::<Sweep>("sweep"));

    let mut places = BTreeMap::new();
    for entry in &root.entries {
        entry.node.places(&entry.key, &mut places);
    }
    let mut experiment = Experiment {
        name: name.to_owned(),
        seed: top_keys.seed,
        device: top_keys.device,
        devices: top_keys.devices,
        precision: top_keys.precision,
        graph: top_keys.graph,
        data: readers.section("data", Reader::data),
        model: readers.section("model", Reader::model),
        loss: readers.section("loss", |reader| reader.tagged::<Loss>("loss")),
        heads: top_keys.heads,
        optimizer: readers.optimizer(),
        schedule: readers.section("schedule", Reader::schedule),
        train: readers.plain::<Train>("train"),
        distributed: readers.plain::<Distributed>("distributed"),
        checkpoint: readers.plain::<Checkpoint>("checkpoint"),
        log: readers.plain::<Log>("log"),
        metrics: readers.plain::<Metrics>("metrics"),
        class_counts: false,
        lint: readers.plain::<Lints>("lint"),
        sweep,
        origins: Origins(places),
    };
    let unread = readers.unread.into_inner();
    fill_in(&mut experiment);
    // What a rule misses may be in a file that cannot be read.
    if !sink.has_lost(Lost::Base) {
        rules::check(&experiment, &unread, sink);
    }
    Resolved { experiment, unread }
}

/// All sections are read, so that all problems are reported.
struct Readers<'a> {
    written: Reader<'a>,
    stand_in: Reader<'a>,
    unread: RefCell<Vec<&'static str>>,
}

impl<'a> Readers<'a> {
    /// A section, or what stands in for it.
    fn section<T>(&self, name: &'static str, read: impl Fn(&Reader<'a>) -> Option<T>) -> T {
        read(&self.written).unwrap_or_else(|| {
            self.unread.borrow_mut().push(name);
            read(&self.stand_in).expect("what stands in for a section can be read")
        })
    }

    fn plain<T: Options + Check>(&self, name: &'static str) -> T {
        self.section(name, |reader| reader.plain::<T>(name))
    }

    /// Where only its rule could not be read, the patterns of groups can still be held against the names of the model's parameters.
    fn optimizer(&self) -> Optimizer {
        // Keys that are misspelt are found with the rule.
        let rule = self.section("optimizer", Reader::rule);
        let groups = self.section("optimizer", Reader::groups);
        let ParamGroups { groups, layer_decay, no_decay, ema, swa, lr_base_size, lr_base_scale } = groups;
        Optimizer { rule, groups, layer_decay, no_decay, ema, swa, lr_base_size, lr_base_scale }
    }
}

/// The text of a path within the values of a table's tables.
fn within<'a>(node: &'a Node, path: &Path) -> Option<&'a Node> {
    let inner = node.as_table()?.entries.iter().filter_map(|entry| entry.node.as_table());
    let values = inner.flat_map(|table| table.entries.iter().map(|entry| &entry.node));
    values.into_iter().find(|node| node.as_str().is_some_and(|text| Path::new(text) == path))
}

/// Defaults that depend on other values.
fn fill_in(experiment: &mut Experiment) {
    let loading = &mut experiment.data.loading;
    loading.eval_batch_size = Some(loading.eval_batch_size());
    let source = &mut experiment.data.source;
    if let Some(folder) = source.usual_root()
        && let Some((_, root)) = source.paths_mut().into_iter().next()
        && root.as_os_str().is_empty()
    {
        *root = absolute(Path::new(folder));
    }
    if let Some(Devices::Numbers(numbers)) = &experiment.devices {
        experiment.set_devices(numbers.len());
    }
    experiment.checkpoint.monitor = experiment.checkpoint.monitor.take().or_else(|| experiment.usual_monitor());
}

/// Whether one of the layers, or one inside of them, is of that type.
fn occurs(layers: &[LayerNode], word: &str) -> bool {
    layers
        .iter()
        .any(|node| node.kind_name() == word || node.kind.children().into_iter().any(|children| occurs(children, word)))
}

struct Reader<'a> {
    root: &'a Table,
    start: Span,
    nothing: &'a Table,
    sources: &'a Sources,
    classes: &'a Classes,
    left: &'a [LeftBehind],
    sink: &'a Sink,
    sections: Vec<Section>,
}

impl<'a> Reader<'a> {
    /// A section. One that is required and not there is reported; any other then has nothing but defaults.
    fn section(&self, name: &str) -> Option<Part<'a>> {
        let section = self.sections.iter().find(|section| section.name == name)?;
        let (table, span) = match (self.root.get(name), section.required) {
            (None, None) => (self.nothing, self.start),
            (None, Some(_)) if self.sink.has_suggested(name, self.root) || self.sink.has_lost(Lost::Base) => {
                return None;
            }
            (None, Some(example)) => {
                let error = Diagnostic::error(format!("the configuration needs a section `[{name}]`"))
                    .help(format!("for example `[{name}]` with `{example}`"));
                let unset = self.left.iter().find(|left| left.key == name && left.reason == Reason::Unset);
                self.sink.push(match unset {
                    Some(left) => error.at(left.over, "takes it away").context(left.span, "it was here"),
                    None => error.at(self.start, format!("`[{name}]` is missing")),
                });
                return None;
            }
            (Some(node), _) => match node.as_table() {
                Some(table) => (table, node.span),
                None => {
                    let error = Diagnostic::error(format!("`{name}` must be a section"))
                        .at(node.span, format!("expected a table, found {}", node.describe()));
                    self.sink.push(match (section.tag, node.as_str()) {
                        (Some(tag), Some(kind)) => {
                            error.help(format!("its kind is its key `{tag}`: write `{name}.{tag} = {kind:?}`"))
                        }
                        _ => error,
                    });
                    return None;
                }
            },
        };
        Some(Part { table, span, what: section.heading, bad: &[], sink: self.sink })
    }

    fn plain<T: Options + Check>(&self, name: &str) -> Option<T> {
        let part = self.section(name)?;
        part.known_keys(&[T::KEYS]);
        part.read()
    }

    fn tagged<T: Tagged>(&self, name: &str) -> Option<T> {
        let part = self.section(name)?;
        self.of_kind(&part, None, &[])
    }

    /// A section whose kind a word selects, with the keys of `others` beside.
    fn of_kind<T: Tagged>(&self, part: &Part, default: Option<&'static str>, others: &[&[&str]]) -> Option<T> {
        let Some(word) = self.kind::<T>(part, default) else {
            part.of_any_kind::<T>(others);
            return None;
        };
        part.known_keys(&[&[&[T::TAG], T::fields(word)], others].concat());
        T::read(word, part)
    }

    /// The word that selects the kind of this section. Without it, it is not known which keys there are. Then only a key
    /// that may be a slip for this word's own key is reported.
    fn kind<T: Tagged>(&self, part: &Part, default: Option<&'static str>) -> Option<&'static str> {
        if part.table.get(T::TAG).is_none()
            && default.is_none()
            && let Some(entry) = part.table.entries.iter().find(|entry| nearest(&entry.key, [T::TAG]).is_some())
        {
            self.sink.push(part.unknown_key(entry, &[T::TAG]));
        }
        part.word::<T>(default)
    }

    fn data(&self) -> Option<Data> {
        let part = self.section("data")?;
        let source = self.of_kind::<Source>(&part, None, &[Pipeline::KEYS, Loading::KEYS]);
        let mut loading = part.read::<Loading>();
        let pipeline = part.read::<Pipeline>();
        let mut source = source?;
        for (key, path) in source.paths_mut() {
            let node = part.node(key);
            // The path of a tokenizer is inside the table of a column.
            if let Some(node) =
                node.and_then(|node| if node.as_table().is_some() { within(node, path) } else { Some(node) })
            {
                *path = self.path(node);
            }
        }
        if let (Some(loading), Some(node)) = (&mut loading, part.table.get("cache_dir")) {
            loading.cache_dir = Some(self.path(node));
        }
        // The only word that it can be.
        let auto_batch_size = part.table.get("batch_size").is_some_and(|node| node.as_str().is_some());
        let Pipeline { transforms, train_transforms, val_transforms } = pipeline?;
        let loading = loading?;
        Some(Data { source, loading, transforms, train_transforms, val_transforms, auto_batch_size, fitted: None })
    }

    /// The weights that a name stands for, if it is no path.
    fn pretrained(&self, node: &Node) -> Option<Pretrained> {
        let found = Pretrained::parse(node.as_str()?)?;
        let found = found.map_err(|Unknown { what, help }| {
            self.sink.push(Diagnostic::error(what).at(node.span, "weights by name").help(help));
        });
        let found = found.ok()?;
        if found.path().is_none() {
            let error = Diagnostic::error(format!("there is no folder to keep the weights `{}` in", found.name));
            self.sink.push(
                error.at(node.span, "weights by name").help(format!("{}: set XDG_CACHE_HOME", caches::why_none())),
            );
        }
        Some(found)
    }

    fn path(&self, node: &Node) -> std::path::PathBuf {
        let written = node.as_str().unwrap_or_default();
        if written.is_empty() {
            self.sink.push(Diagnostic::error("this path is empty").at(node.span, "names no file"));
        }
        place(self.sources, written, node.span)
    }

    /// The elements of a list; none if the key is not there.
    fn list<'p>(&self, part: &Part<'p>, key: &str) -> Option<&'p [Node]> {
        let Some(node) = part.table.get(key) else { return Some(&[]) };
        let items = node.as_array();
        if items.is_none() {
            self.sink.push(
                Diagnostic::error(format!("wrong value for `{key}` in {}", part.what))
                    .at(node.span, format!("expected a list, found {}", node.describe())),
            );
        }
        items
    }

    fn model(&self) -> Option<Model> {
        let part = self.section("model")?;
        part.known_keys(&[ModelKeys::KEYS, ModelLayers::KEYS]);
        if self.sink.has_lost(Lost::Model) {
            part.read::<ModelKeys>();
            return None;
        }
        let Some(written) = part.table.get("layers") else {
            if !part.is_missed("layers") {
                part.read::<ModelKeys>();
                return None;
            }
            self.sink.push(
                Diagnostic::error("`[model]` needs `layers` or `use`")
                    .at(part.span, "neither is there")
                    .help("`layers = [ … ]` lists the layers; `use = \"models/resnet18.toml\"` takes them from a file"),
            );
            return None;
        };
        let layers = self.list(&part, "layers")?;
        if layers.is_empty() {
            self.sink.push(Diagnostic::error("the model has no layers").at(written.span, "the list is empty"));
            return None;
        }
        // What is wrong with the list is reported where the keys are read.
        let named = |node: &Node| Some((node.as_str()?.to_owned(), node.span));
        let written = part.table.get("inputs").and_then(Node::as_array).into_iter().flatten();
        let inputs: Vec<(String, Span)> = written.filter_map(named).collect();
        let (layers, init) = unroll(self.root, layers, (&inputs, part.table.get("init")), self.classes, self.sink);
        let mut table = part.table.clone();
        if let (Some(old), Some(init)) = (table.get_mut("init"), init) {
            *old = init;
        }
        let part = Part { table: &table, ..part };
        let keys = part.read::<ModelKeys>()?;
        let pretrained = part.table.get("weights").and_then(|node| self.pretrained(node));
        let weights = match &pretrained {
            Some(named) => named.path(),
            None => part.table.get("weights").map(|node| self.path(node)),
        };
        if let (None, Some(strict)) = (&weights, part.table.entry("weights_strict")) {
            self.sink.push(
                Diagnostic::warning(Lint::NoEffect, "`weights_strict` in `[model]` has no effect")
                    .at(strict.key_span, "there is no `weights`"),
            );
        }
        if let (None, Some(rename)) = (&weights, part.table.entry("weights_rename")) {
            self.sink.push(
                Diagnostic::warning(Lint::NoEffect, "`weights_rename` in `[model]` has no effect")
                    .at(rename.key_span, "there is no `weights`"),
            );
        }
        if let (None, Some(key)) = (&weights, part.table.entry("weights_key")) {
            self.sink.push(
                Diagnostic::warning(Lint::NoEffect, "`weights_key` in `[model]` has no effect")
                    .at(key.key_span, "there is no `weights`"),
            );
        }
        // Without weights it says nothing, and is not written either.
        let weights_strict = keys.weights_strict || weights.is_none();
        let weights_rename = match &pretrained {
            Some(named) if keys.weights_rename.is_empty() => named.renames(),
            _ if weights.is_some() => keys.weights_rename,
            _ => Vec::new(),
        };
        let weights_key = keys.weights_key.filter(|_| weights.is_some());
        let ModelKeys { freeze, thaw_after, init, lora, .. } = keys;
        let doubtful = layers.iter().any(LayerNode::is_doubtful);
        for word in init.iter().flat_map(|rule| rule.keys.layers.iter().flatten()) {
            if !doubtful && !occurs(&layers, word.word) {
                self.sink.push(InitRule::no_layer(word));
            }
        }
        let params = self.root.get("params").and_then(Node::as_table);
        let num_classes = params.and_then(|params| params.get(NUM_CLASSES[0])).and_then(|node| match node.value {
            Value::Integer(number) => Some((usize::try_from(number).ok()?, node.span)),
            _ => None,
        });
        Some(Model {
            inputs,
            layers,
            init,
            weights,
            weights_key,
            weights_strict,
            freeze,
            thaw_after,
            lora,
            weights_rename,
            num_classes,
        })
    }

    fn groups(&self) -> Option<ParamGroups> {
        self.section("optimizer")?.read()
    }

    fn rule(&self) -> Option<OptimizerRule> {
        self.of_kind(&self.section("optimizer")?, None, &[ParamGroups::KEYS])
    }

    fn schedule(&self) -> Option<Schedule> {
        let part = self.section("schedule")?;
        let curve = self.of_kind(&part, Some("constant"), &[Warmup::KEYS]);
        let warmup = part.read::<Warmup>();
        Some(Schedule { curve: curve?, warmup: warmup? })
    }
}
