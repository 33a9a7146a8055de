//! The samples of an experiment: from the `[data]` section to splits in memory.

use crate::config::declare::part::with_suggestion;
use crate::config::declare::tagged::Tagged;
use crate::config::language::sections::{
    Classes, Download, Fallback, Fitted, ImageList, LabelKind, OnError, Source as Written,
};
use crate::config::language::values::ValidationSplit;
use crate::config::load::paths::shown;
use crate::config::text::spelling::shorten;
use crate::config::{Diagnostic, Experiment};
use crate::data::image_folder::ImageFolderOptions;
use crate::data::image_list::{ImageListOptions, Kind};
use crate::data::progress::Event;
use crate::data::synthetic::{SyntheticOptions, Task};
use crate::data::tensors::TensorsOptions;
use crate::data::webdataset::{Labels, WebDatasetOptions};
use crate::data::{
    self, Cache, Classes as KnownClasses, DataSpec, FieldKind, Fingerprint, Footprint, HoldOut, Missing, Source, Split,
    UnknownField,
};
use crate::graph::op::TargetRange;
pub use crate::model::{mixing, transforms};
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::sync::Arc;

mod counts;
mod divided;
mod named;
mod table;
mod text;

pub use counts::{counts, counts_of};
use named::{at_columns, is_elsewhere};
pub use table::codec as table_codec;

/// The data layer's source for a `[data]` section, and what to do if its files are not there.
pub fn source(experiment: &Experiment) -> (Source, Missing) {
    let files = |d: &Download| Missing {
        download: d.download,
        mirrors: d.mirrors.clone().unwrap_or_default(),
        fallback_digits: d.fallback == Some(Fallback::Digits),
    };
    // Messages name the paths that go in here and below.
    let at = |d: &Download| data::Files { root: shown(&d.root), verify: d.verify };
    match &experiment.data.source {
        Written::Mnist(d) => (Source::Mnist(at(d)), files(d)),
        Written::FashionMnist(d) => (Source::FashionMnist(at(d)), files(d)),
        Written::Cifar10(d) => (Source::Cifar10(at(d)), files(d)),
        Written::Cifar100(d) => (Source::Cifar100(at(&d.files), d.labels.coarse), files(&d.files)),
        Written::Digits(_) => (Source::Digits, Missing::default()),
        Written::ImageFolder(f) => {
            let (root, classes) = (shown(&f.root), f.classes.clone().or_else(|| trained_names(experiment)));
            let trained = f.classes.is_none() && classes.is_some();
            let options = ImageFolderOptions { root, classes, trained, strict: f.on_error == OnError::Fail };
            (Source::ImageFolder(options), Missing::default())
        }
        Written::ImageList(list) => (Source::ImageList(image_list(list, experiment)), Missing::default()),
        Written::WebDataset(set) => {
            let (shards, val_shards) = (shown(&set.shards), set.val_shards.as_deref().map(shown));
            let classes = set.classes.as_ref().map(|classes| match classes {
                Classes::Number(number) => Labels::Number(*number),
                Classes::Names(names) => Labels::Names(names.clone()),
            });
            let (label_key, strict) = (set.label_key.clone(), set.on_error == OnError::Fail);
            let options = WebDatasetOptions { shards, val_shards, classes, label_key, strict };
            (Source::WebDataset(options), Missing::default())
        }
        Written::Tensors(t) => {
            let ignore_index = experiment.loss.describe().ignore_index();
            let inputs = input_names(experiment);
            let sample_weight = t.sample_weight.clone();
            let (path, range) = (shown(&t.path), target_range(experiment));
            let options = TensorsOptions { path, num_classes: None, ignore_index, inputs, sample_weight, range };
            (Source::Tensors(options), Missing::default())
        }
        Written::Text(written) => (Source::Text(Box::new(text::of_text(written, experiment))), Missing::default()),
        Written::TextClasses(written) => {
            (Source::LabelledTexts(Box::new(text::of_classes(written, experiment))), Missing::default())
        }
        Written::TextTags(written) => {
            (Source::TaggedTexts(Box::new(text::of_tags(written, experiment))), Missing::default())
        }
        Written::TextToText(written) => {
            (Source::AnsweredTexts(Box::new(text::of_answers(written, experiment))), Missing::default())
        }
        Written::TextPairs(written) => {
            (Source::PromptedTexts(Box::new(text::of_pairs(written, experiment))), Missing::default())
        }
        Written::Tokens(written) => (Source::Text(Box::new(text::of_tokens(written, experiment))), Missing::default()),
        Written::Csv(csv) | Written::Parquet(csv) => {
            (Source::Table(Box::new(table::options(csv, experiment))), Missing::default())
        }
        Written::Synthetic(s) => {
            let task = match (s.classes, s.targets) {
                (Some(n), _) => Task::Classes(n),
                (None, n) => Task::Values(n.unwrap_or(1)),
            };
            let (shape, samples, val_samples) = (s.shape.clone(), s.samples, s.val_samples);
            let seed = experiment.data_seed();
            (Source::Synthetic(SyntheticOptions { shape, task, samples, val_samples, seed }), Missing::default())
        }
    }
}

/// The numbers that the targets of the data may be, if those are not all. A loss that learns a field of the model has nothing to do with them.
fn target_range(experiment: &Experiment) -> Option<TargetRange> {
    experiment.loss.describe().target_range().filter(|_| experiment.loss.target().is_none())
}

fn image_list(list: &ImageList, experiment: &Experiment) -> ImageListOptions {
    let label_columns = list.label_column.as_ref().map(|columns| columns.names().to_vec()).unwrap_or_default();
    let separator = list.label_separator.clone().unwrap_or_else(|| "|".to_owned());
    let trained = trained_names(experiment);
    let mut classes = list.classes.clone();
    let kind = match list.label_kind {
        LabelKind::Class => Kind::Class,
        LabelKind::Classes => Kind::Classes { separator },
        LabelKind::Number => Kind::Numbers { range: target_range(experiment) },
        LabelKind::Mask => {
            let (names, values) = mask_classes(list, trained.as_deref());
            classes = Some(names);
            // What the loss ignores is a value of the files. In a batch another number may stand for it.
            let [value, index] = [experiment.loss.describe(), experiment.engine_loss()].map(|loss| loss.ignore_index());
            let ignored = value.and_then(|value| u8::try_from(value).ok()).zip(index);
            Kind::Mask { values, ignored }
        }
    };
    let known = trained.filter(|_| list.classes.is_none() && list.label_kind != LabelKind::Number);
    ImageListOptions {
        path: shown(&list.path),
        val_path: list.val_path.as_deref().map(shown),
        root: list.root.as_deref().map(shown),
        image_column: list.image_column.clone(),
        label_columns,
        kind,
        sample_weight: list.sample_weight.clone(),
        trained: known.is_some(),
        classes: classes.or(known),
        strict: list.on_error == OnError::Fail,
    }
}

/// The classes of masks, and the value that each has in the files: those that a model was `trained` on, in its order, if it knows all
/// that the list has. Otherwise the error comes where the data is compared with the model.
fn mask_classes(list: &ImageList, trained: Option<&[String]>) -> (Vec<String>, Vec<Option<u8>>) {
    let own = list.classes.as_deref().unwrap_or_default();
    let names = trained.filter(|trained| own.iter().all(|name| trained.contains(name))).unwrap_or(own);
    let value = |name: &String| {
        let class = own.iter().position(|one| one == name)?;
        u8::try_from(list.mask_values.as_ref().map_or(class, |values| values[class])).ok()
    };
    (names.to_vec(), names.iter().map(value).collect())
}

/// Whether a training was on samples such as these. A classifier of texts may begin with the weights of a language model, whose classes are tokens.
fn is_of_this_kind(fitted: &Fitted, experiment: &Experiment) -> bool {
    match (&experiment.data.source, data::text::samples_of(fitted.source.as_deref())) {
        (Written::TextClasses(_), Some(samples)) => matches!(samples, data::text::Samples::Labelled { .. }),
        (Written::TextTags(_), Some(samples)) => matches!(samples, data::text::Samples::Tagged { .. }),
        (Written::TextPairs(_), Some(samples)) => matches!(samples, data::text::Samples::Prompted { .. }),
        _ => true,
    }
}

/// What a training has found on samples such as these.
fn found_before(experiment: &Experiment) -> Option<&Fitted> {
    experiment.data.fitted.as_ref().filter(|fitted| is_of_this_kind(fitted, experiment))
}

/// What the classes are called that a model was trained on, if it is trained already.
fn trained_names(experiment: &Experiment) -> Option<Vec<String>> {
    found_before(experiment)?.class_names.clone()
}

/// The classes that a model was trained on, if it is trained already.
fn trained(experiment: &Experiment) -> Option<KnownClasses> {
    let Fitted { classes, exact, class_names, .. } = found_before(experiment)?.clone();
    Some(KnownClasses { number: classes, exact, names: class_names })
}

/// The fields that the model takes, if it names them.
fn input_names(experiment: &Experiment) -> Vec<String> {
    experiment.model.inputs.iter().map(|(name, _)| name.clone()).collect()
}

/// The samples' description as the model sees them.
fn taken(spec: DataSpec, experiment: &Experiment) -> Result<DataSpec, UnknownField> {
    let names = input_names(experiment);
    if names.is_empty() {
        return Ok(spec);
    }
    let taken = spec.taking(&names)?;
    // It has all of its fields in an order of its own. Layers say which of them they take.
    Ok(if matches!(experiment.data.source, Written::TextToText(_)) { spec } else { taken })
}

/// The part of the training samples that is to be held out, unless the source has held it out itself.
fn split_of(experiment: &Experiment) -> Option<&ValidationSplit> {
    let itself = experiment.data.source.divides_itself();
    experiment.data.loading.validation_split.as_ref().filter(|_| !itself)
}

/// How much is held out.
fn held_out(how: &ValidationSplit) -> HoldOut {
    match how {
        ValidationSplit::Fraction(f) => HoldOut::Fraction(*f),
        ValidationSplit::Count(n) => HoldOut::Count(*n),
    }
}

/// The error for an input of the model that the samples do not have.
fn unknown_field(experiment: &Experiment, error: &UnknownField) -> Diagnostic {
    let known: Vec<&str> = error.known.iter().map(String::as_str).collect();
    let diagnostic = Diagnostic::error(format!("the samples have no field `{}`", shorten(&error.name)));
    let Some((_, span)) = experiment.model.inputs.iter().find(|(name, _)| *name == error.name) else {
        return diagnostic;
    };
    let diagnostic = with_suggestion(diagnostic, *span, "no such field", &error.name, &known);
    match experiment.nearest_span("data.path").filter(|_| experiment.span_of("data.path").is_some()) {
        Some(data) => diagnostic.context(data, "the samples"),
        None => diagnostic,
    }
}

/// What the samples look like and how many there will be, without reading them.
///
/// # Errors
/// A file of tensors cannot be read, or the validation split leaves nothing; with the place in the configuration.
pub fn describe(experiment: &Experiment) -> Result<DataSpec, Diagnostic> {
    let spec = described(experiment)?;
    expect_named(&spec, experiment)?;
    let mut spec = taken(spec, experiment).map_err(|e| unknown_field(experiment, &e))?;
    let loading = &experiment.data.loading;
    if let (Some(n), Some(how)) = (spec.train, split_of(experiment)) {
        let held = match how {
            ValidationSplit::Fraction(f) => (f * n as f64).round() as usize,
            ValidationSplit::Count(c) => *c,
        };
        if held == 0 || held >= n {
            let left = if held == 0 { "validate on" } else { "train on" };
            let message =
                format!("the validation split takes {held} of {n} training samples, which leaves none to {left}");
            return Err(at(experiment, message, "data.validation_split", "take another share, or a number of samples"));
        }
        spec.train = Some(n.saturating_sub(held));
        spec.val = Some(held);
    }
    spec.train = spec.train.map(|n| n.min(loading.limit.unwrap_or(n)));
    spec.val = spec.val.map(|n| n.min(loading.limit_val.unwrap_or(n)));
    Ok(spec)
}

/// Refuses a model that does not say which of the fields of a table's rows it takes, where there are several.
fn expect_named(spec: &DataSpec, experiment: &Experiment) -> Result<(), Diagnostic> {
    let inputs = spec.inputs().filter(|(_, field)| field.kind != FieldKind::Length);
    let names: Vec<String> = inputs.map(|(_, field)| format!("\"{}\"", field.name)).collect();
    let is_named = !experiment.model.inputs.is_empty() || experiment.data.source.table().is_none();
    if is_named || names.len() < 2 {
        return Ok(());
    }
    let message =
        format!("a row has {} inputs, {}, and the model does not say which it takes", names.len(), names.join(" and "));
    let help = format!(
        "write `inputs = [{}]` in `[model]`, and layers name them in `from`, or one of them for a model that takes one alone",
        names.join(", ")
    );
    Err(at(experiment, message, "data.columns", "makes tokens of a column").help(help))
}

/// An error at a key of the section, or at the section.
fn at(experiment: &Experiment, message: String, key: &str, label: &str) -> Diagnostic {
    let error = Diagnostic::error(message);
    match experiment.span_of(key).or_else(|| experiment.nearest_span("data")) {
        Some(span) => error.at(span, label),
        None => error,
    }
}

/// What the samples of the source look like: to a model that is trained already, if it is that.
fn described(experiment: &Experiment) -> Result<DataSpec, Diagnostic> {
    let spec = data::describe(&source(experiment).0).and_then(|spec| match trained(experiment) {
        Some(trained) => spec.held_to(&trained),
        None => Ok(spec),
    });
    spec.map_err(|e| match e.downcast_ref() {
        Some(unknown) => unknown_field(experiment, unknown),
        None => at_columns(experiment, &e).unwrap_or_else(|| {
            let paths = experiment.data.source.paths();
            let key = match e.downcast_ref::<data::text::WrongColumn>() {
                Some(_) if experiment.span_of("data.column").is_some() => "column",
                None if e.downcast_ref::<data::table::OfValidation>().is_some() => "val_path",
                _ => wrong_file(experiment, &e).or(paths.first().map(|(key, _)| *key)).unwrap_or("path"),
            };
            let error = at(experiment, format!("{e:#}"), &format!("data.{key}"), "the data is described here")
                .missing(data::is_missing(&e));
            match is_elsewhere(experiment, &e) {
                true => error.help("if the data is elsewhere, name its classes with `classes` in `[data]`: `check` needs no more of it"),
                false => error,
            }
        }),
    })
}

/// The key of the file that an error is about, if it is about one and the configuration has the key.
fn wrong_file(experiment: &Experiment, error: &anyhow::Error) -> Option<&'static str> {
    let key = error.downcast_ref::<data::WrongFile>()?.key;
    experiment.span_of(&format!("data.{key}")).map(|_| key)
}

/// An error of samples that could not be read, at the key of the file that it is about; the error itself, if it is about none.
///
/// # Errors
/// It is about none.
pub fn placed(experiment: &Experiment, error: anyhow::Error) -> Result<Diagnostic> {
    if let Some(placed) = at_columns(experiment, &error) {
        return Ok(placed);
    }
    match wrong_file(experiment, &error) {
        Some(key) => {
            let placed = at(experiment, format!("{error:#}"), &format!("data.{key}"), "the data is described here");
            Ok(placed.missing(data::is_missing(&error)))
        }
        None => Err(error),
    }
}

/// What samples of text look like to a model whose tokenizer the configuration names: no text is read. `None`: it takes the text to know.
///
/// # Errors
/// The tokenizer cannot be read.
pub fn text_without_reading(experiment: &Experiment) -> Result<Option<DataSpec>> {
    let (Source::Text(options), _) = source(experiment) else { return Ok(None) };
    data::text::without_reading(&options)
}

/// The columns of a table, what they are like and what becomes of them; `None`: the samples are no rows of a table.
pub fn table_columns(experiment: &Experiment) -> Option<Result<Vec<data::table::Shown>>> {
    let (Source::Table(options), _) = source(experiment) else { return None };
    Some(data::table::columns(&options))
}

/// What the user should know of a table before it is trained on; nothing, if the samples are no rows of one.
///
/// # Errors
/// As for opening it.
pub fn table_notes(experiment: &Experiment) -> Result<Vec<String>> {
    let (Source::Table(options), _) = source(experiment) else { return Ok(Vec::new()) };
    data::table::notes(&options)
}

/// The memory that the samples of an experiment take, without reading them.
pub fn footprint(experiment: &Experiment) -> Footprint {
    data::footprint(&source(experiment).0)
}

/// The splits of an experiment.
#[derive(Debug, Clone)]
pub struct Samples {
    /// What they look like; the counts are those of `train` and `val`.
    pub spec: DataSpec,
    /// What is trained on.
    pub train: Split,
    /// What is validated on: the split held out, else the source's test set. May be empty.
    pub val: Split,
    /// The source's test set; where it has none, what it has to validate on. May be empty.
    pub test: Split,
    /// `test` is what is validated on: there are no other samples.
    pub test_is_val: bool,
    /// A note that the user must see: the samples are not what was asked for.
    pub note: Option<String>,
    /// What the user should know of the files. The samples are what was asked for all the same.
    pub notes: Vec<String>,
    /// Identifies the source's samples.
    pub fingerprint: Fingerprint,
    /// The name of the source that they are from: `digits`, where those stand in for another.
    pub name: &'static str,
    /// Where photos are kept.
    pub cache: Option<Arc<Cache>>,
}

/// Which samples are taken.
#[derive(Debug, Clone, PartialEq)]
pub enum Take {
    /// Those of the source; if its files are not there, what may be done about it.
    Source(Missing),
    /// The bundled digits in their place, whether they are there or not: a run that was begun on those goes on with them.
    Digits,
}

impl Samples {
    /// The memory that they take.
    pub fn footprint(&self) -> Footprint {
        let mut splits = vec![&self.train];
        for split in [&self.val, &self.test] {
            if !splits.iter().any(|s| s.shares_memory_with(split)) {
                splits.push(split);
            }
        }
        Footprint {
            held: splits.iter().map(|s| s.held_bytes()).sum(),
            filed: splits.iter().map(|s| s.filed_bytes()).sum(),
            ..Footprint::default()
        }
    }
}

/// Reads the samples, downloading them or falling back as the section says.
///
/// # Errors
/// The files are not there or not right, or the split leaves nothing.
pub fn load(experiment: &Experiment, progress: &mut dyn FnMut(Event)) -> Result<Samples> {
    take(experiment, &Take::Source(source(experiment).1), progress)
}

/// Reads the samples, whatever the section says of what is to be done if they are not there.
///
/// # Errors
/// As for [`load`]; [`data::MissingFiles`] is found by `downcast_ref`.
pub fn take(experiment: &Experiment, take: &Take, progress: &mut dyn FnMut(Event)) -> Result<Samples> {
    let (source, _) = source(experiment);
    let set = match take {
        Take::Source(missing) => data::obtain(&source, missing, progress)?,
        Take::Digits => data::digits::resized_like(&data::describe(&source)?)?,
    };
    let may_stand_in = match take {
        Take::Source(missing) => missing.fallback_digits,
        Take::Digits => true,
    };
    let stands_in = may_stand_in && set.note.is_some();
    // What stands in for the data has classes of its own.
    let set = match trained(experiment).filter(|_| !stands_in) {
        Some(trained) => set.held_to(&trained)?,
        None => set,
    };
    let loading = &experiment.data.loading;
    let mut notes = set.notes.clone();
    let (train, val) = match split_of(experiment) {
        Some(how) => {
            notes.extend(divided::unused(&set));
            let how = held_out(how);
            let by_class = matches!(
                source,
                Source::ImageFolder(_) | Source::ImageList(_) | Source::WebDataset(_) | Source::LabelledTexts(_)
            );
            let parts = set.train.hold_out(how, experiment.data_seed(), by_class).context("`data.validation_split`")?;
            notes.extend(divided::on_both_sides(&source, &parts.0, &parts.1));
            parts
        }
        None => (set.train, set.val.clone()),
    };
    let train = loading.limit.map_or(train.clone(), |n| train.limit(n, experiment.data_seed(), 0));
    let val = loading.limit_val.map_or(val.clone(), |n| val.limit(n, experiment.data_seed(), 1));
    let spec = DataSpec { train: Some(train.len()), val: Some(val.len()), ..taken(set.spec, experiment)? };
    let name = if stands_in { "digits" } else { experiment.data.source.type_name() };
    let test_is_val = set.test.is_none() && !set.val.is_empty() && split_of(experiment).is_none();
    let test_is_val = test_is_val && !experiment.data.source.divides_itself();
    // What such a source validates on is no test set.
    let test = match experiment.data.source.divides_itself() {
        true => set.test.unwrap_or_else(|| train.select(&[])),
        false => set.test.unwrap_or(set.val),
    };
    // A file that is read twice says the same twice.
    let mut heard = HashSet::new();
    notes.retain(|note| heard.insert(note.clone()));
    let (note, fingerprint) = (set.note, set.fingerprint);
    Ok(Samples { spec, train, val, test, test_is_val, note, notes, fingerprint, name, cache: None })
}
