//! `[data]`: where samples come from, and how they become batches.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::cache::{ByteSize, Cache};
use super::photos::{ImageFolder, ImageList, WebDataset};
use super::table::Csv;
use super::transforms::{Transform, for_all, for_evaluation, for_training};
use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::declaration::{Declaration, Rule};
use crate::config::declare::options::{Check, Options, options, probe};
use crate::config::declare::part::Part;
use crate::config::declare::tagged::{count, join, tagged};
use crate::config::declare::value::{Value, values};
use crate::config::language::values::ValidationSplit;
use crate::config::text::tree::{Node, Value as Written};

/// The largest number of made-up samples.
const MAX_SAMPLES: usize = 1 << 40;

/// Samples in a batch where nothing is said of it.
const BATCH_SIZE: usize = 64;

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Data {
    /// What the samples are.
    #[serde(flatten)]
    pub source: Source,
    /// How they become batches; the same keys for every source.
    #[serde(flatten)]
    pub loading: Loading,
    /// Applied to every sample, after `train_transforms` or `val_transforms`.
    pub transforms: Vec<Transform>,
    /// Applied to training samples only, before `transforms`.
    pub train_transforms: Vec<Transform>,
    /// Applied to samples that are not trained on, before `transforms`.
    pub val_transforms: Vec<Transform>,
    /// `batch_size` was written as `"auto"`, and no device has been asked yet what that is.
    #[serde(skip)]
    pub auto_batch_size: bool,
    /// What a training has found on its data, if the model is trained already: what is read besides is held to it. It is no part of a
    /// configuration, but of a checkpoint.
    #[serde(skip)]
    pub fitted: Option<Fitted>,
}

/// What a training has found on its data.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The number of classes; of a table without classes, how many numbers are learnt.
    pub classes: usize,
    /// False if that was only seen in the labels, so that the model may have more.
    pub exact: bool,
    /// The names of the classes, in the order of their numbers, if they have names.
    pub class_names: Option<Vec<String>>,
    /// What the source has fitted, as it writes that: how the rows of a table become samples.
    pub source: Option<Arc<serde_json::Value>>,
}

tagged! {
    /// A source of samples with its arguments.
    Source by "source", resume Breaks:
    "mnist" => Mnist(Download),
    "fashion_mnist" => FashionMnist(Download),
    "cifar10" => Cifar10(Download),
    "cifar100" => Cifar100(Cifar100),
    "digits" => Digits(Digits),
    "image_folder" => ImageFolder(ImageFolder),
    "image_list" => ImageList(ImageList),
    "webdataset" => WebDataset(WebDataset),
    "tensors" => Tensors(Tensors),
    "csv" => Csv(Csv),
    "synthetic" => Synthetic(Synthetic),
}

/// What is asked of every source. What a source does not say of itself is as for one that reads no files.
pub trait AboutSource {
    /// The keys of the paths that it reads from, and the paths; the first is the one without which there is nothing.
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        Vec::new()
    }

    /// The same, to be changed.
    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        Vec::new()
    }

    /// What may be done about files that are not there, if it has any that can be downloaded.
    fn download(&self) -> Option<&Download> {
        None
    }

    /// Whether its samples are photos, which are decoded when a batch asks for them.
    fn has_photos(&self) -> bool {
        false
    }

    /// Whether it has no samples to validate on but its test set, unless `validation_split` holds some out.
    fn validates_on_test(&self) -> bool {
        false
    }

    /// How many classes there are, if it names them or says how many.
    fn named_classes(&self) -> Option<usize> {
        None
    }

    /// Whether its targets are classes, if the configuration tells.
    fn has_classes(&self) -> Option<bool>;
}

impl Source {
    fn about(&self) -> &dyn AboutSource {
        match self {
            Source::Mnist(files) | Source::FashionMnist(files) | Source::Cifar10(files) => files,
            Source::Cifar100(set) => set,
            Source::Digits(set) => set,
            Source::ImageFolder(set) => set,
            Source::ImageList(set) => set,
            Source::WebDataset(set) => set,
            Source::Tensors(set) => set,
            Source::Csv(set) => set,
            Source::Synthetic(set) => set,
        }
    }

    fn about_mut(&mut self) -> &mut dyn AboutSource {
        match self {
            Source::Mnist(files) | Source::FashionMnist(files) | Source::Cifar10(files) => files,
            Source::Cifar100(set) => set,
            Source::Digits(set) => set,
            Source::ImageFolder(set) => set,
            Source::ImageList(set) => set,
            Source::WebDataset(set) => set,
            Source::Tensors(set) => set,
            Source::Csv(set) => set,
            Source::Synthetic(set) => set,
        }
    }

    /// The folder that it reads from where none is named.
    pub fn usual_root(&self) -> Option<&'static str> {
        match self {
            Source::Mnist(_) => Some("data/mnist"),
            Source::FashionMnist(_) => Some("data/fashion-mnist"),
            Source::Cifar10(_) => Some("data/cifar-10"),
            Source::Cifar100(_) => Some("data/cifar-100"),
            _ => None,
        }
    }

    /// [`AboutSource::paths`]
    pub fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        self.about().paths()
    }

    /// [`AboutSource::paths_mut`]
    pub fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        self.about_mut().paths_mut()
    }

    /// [`AboutSource::download`]
    pub fn download(&self) -> Option<&Download> {
        self.about().download()
    }

    /// [`AboutSource::has_photos`]
    pub fn has_photos(&self) -> bool {
        self.about().has_photos()
    }

    /// [`AboutSource::validates_on_test`]
    pub fn validates_on_test(&self) -> bool {
        self.about().validates_on_test()
    }

    /// [`AboutSource::named_classes`]
    pub fn named_classes(&self) -> Option<usize> {
        self.about().named_classes()
    }

    /// [`AboutSource::has_classes`]
    pub fn has_classes(&self) -> Option<bool> {
        self.about().has_classes()
    }
}

impl AboutSource for Download {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        vec![("root", &self.root)]
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        vec![("root", &mut self.root)]
    }

    fn download(&self) -> Option<&Download> {
        Some(self)
    }

    fn validates_on_test(&self) -> bool {
        true
    }

    fn has_classes(&self) -> Option<bool> {
        Some(true)
    }
}

impl AboutSource for Cifar100 {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        self.files.paths()
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        self.files.paths_mut()
    }

    fn download(&self) -> Option<&Download> {
        Some(&self.files)
    }

    fn validates_on_test(&self) -> bool {
        true
    }

    fn has_classes(&self) -> Option<bool> {
        Some(true)
    }
}

impl AboutSource for Digits {
    fn validates_on_test(&self) -> bool {
        true
    }

    fn has_classes(&self) -> Option<bool> {
        Some(true)
    }
}

impl AboutSource for Tensors {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        vec![("path", &self.path)]
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        vec![("path", &mut self.path)]
    }

    fn has_classes(&self) -> Option<bool> {
        None
    }
}

impl AboutSource for Synthetic {
    fn named_classes(&self) -> Option<usize> {
        self.classes
    }

    fn has_classes(&self) -> Option<bool> {
        Some(self.classes.is_some())
    }
}

options! {
    /// A public data set in files that can be downloaded.
    pub struct Download {
        /// The folder of the files.
        #[option(
            default = PathBuf::new(), otherwise = "`data/mnist`, `data/fashion-mnist`, `data/cifar-10` or `data/cifar-100`", resume = Harmless,
        )]
        pub root: PathBuf,
        /// Fetch files that are missing when a run begins; `eval`, and a run that goes on, ask for `--allow-download`.
        /// SHA-256 is verified, and a transfer that broke off is continued.
        #[option(default = true, resume = Harmless)]
        pub download: bool,
        /// The files must be those of the public set, by their SHA-256, wherever they came from. `false`: a set of your own in
        /// the same format.
        #[option(default = true, resume = Harmless)]
        pub verify: bool,
        /// Base URLs to fetch from, tried in this order, instead of those that are built in.
        #[option(otherwise = "built in", length = 1.., schema_by = urls, resume = Harmless)]
        pub mirrors: Option<Vec<String>>,
        /// What to train on, after a warning, if files are missing and cannot be had; it also stands in the run's
        /// configuration and checkpoints. Without it that is an error. Only for a run that begins: `eval` wants
        /// `--set data.fallback=digits`.
        pub fallback: Option<Fallback>,
    }
}

impl Check for Download {
    fn check(&self, part: &Part) {
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        let urls = self.mirrors.iter().flatten().all(is_url);
        part.require("mirrors", urls, "must be a list of URLs that begin with http:// or https://");
    }
}

fn urls(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "string", "pattern": "^https?://" } })
}

values!(Fallback);

/// A set that is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The bundled digits, resized to the shape that the source would have had.
    Digits,
}

options! {
    /// The bundled hand-written digits: 1,797 grey images of 8×8 pixels, ten classes.
    pub struct Digits {}

    /// Fixed tensors from a file.
    pub struct Tensors {
        /// A `.safetensors` file with `inputs` and `targets` and, optionally, `val_inputs` and `val_targets`.
        #[option(example = r#""batch.safetensors""#, resume = Differs)]
        pub path: PathBuf,
    }
}

options! {
    /// CIFAR-100: a public data set in files that can be downloaded.
    pub struct Granularity {
        /// Learn the 20 superclasses in the place of the 100 classes.
        #[option(default = false)]
        pub coarse: bool,
    }
}

impl Check for Granularity {}

/// CIFAR-100: the options of a public set, and which of its labels are learnt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cifar100 {
    /// Those of every public set.
    #[serde(flatten)]
    pub files: Download,
    /// Which labels.
    #[serde(flatten)]
    pub labels: Granularity,
}

impl Options for Cifar100 {
    const KEYS: &'static [&'static str] =
        &join::<{ count(&[Download::KEYS, Granularity::KEYS]) }>(&[Download::KEYS, Granularity::KEYS]);
    const RULES: &'static [Rule] = Download::RULES;

    fn read(part: &Part) -> Option<Self> {
        let (files, labels) = (part.read(), part.read());
        Some(Self { files: files?, labels: labels? })
    }

    fn declaration(generator: &mut SchemaGenerator) -> Declaration {
        let (files, labels) = (Download::declaration(generator), Granularity::declaration(generator));
        let options = files.options.into_iter().chain(labels.options).collect();
        Declaration { about: labels.about, options, probe: probe::<Self>, ..files }
    }
}

impl Check for Cifar100 {}

impl Check for Digits {}

impl Check for Tensors {}

options! {
    /// Random samples with something to learn in them, made from the seed: for tests, and to measure speed.
    #[rules(
        Excludes("classes", "targets", "classes are for `cross_entropy`, targets for `mse`"),
        OneOf("classes", "targets"),
    )]
    pub struct Synthetic {
        /// Shape of one sample: `[channels, height, width]` or `[features]`.
        #[option(length = 1..=4, range = 1..=MAX_SIZE, example = "[3, 32, 32]")]
        pub shape: Vec<usize>,
        /// Number of classes, for `cross_entropy`; either this or `targets`.
        #[option(range = 2..=MAX_SIZE)]
        pub classes: Option<usize>,
        /// Number of values to regress, for `mse`; either this or `classes`.
        #[option(range = 1..=MAX_SIZE)]
        pub targets: Option<usize>,
        /// Number of training samples.
        #[option(default = 1024, range = 1..=MAX_SAMPLES)]
        pub samples: usize,
        /// Number of test samples.
        #[option(default = 256, range = 0..=MAX_SAMPLES)]
        pub val_samples: usize,
    }
}

impl Check for Synthetic {
    fn check(&self, part: &Part) {
        let elements = self.shape.iter().try_fold(1usize, |product, &side| product.checked_mul(side));
        let fits = elements.is_some_and(|elements| elements <= MAX_SIZE);
        part.require("shape", fits, "must have at most 16777216 elements");
    }
}

options! {
    /// The keys of `[data]` that every source has.
    pub struct Loading {
        /// Samples in a training batch. `"auto"`: on a GPU the largest batch for which the memory plan leaves a tenth of the free
        /// memory free, at most all training samples, rounded down to a multiple of 32 (below that, to a power of two); on the CPU
        /// the default. The number is told and goes into the run's configuration, so that a resumed run keeps it.
        #[option(
            default = BATCH_SIZE, range = 1..=MAX_SIZE, unit = "samples", read_by = batch_size, schema_by = batch_size_schema,
        )]
        pub batch_size: usize,
        /// Samples in a batch of an evaluation.
        #[option(otherwise = "`batch_size`", range = 1..=MAX_SIZE, unit = "samples", resume = Harmless)]
        pub eval_batch_size: Option<usize>,
        /// Threads that make batches ahead of need; 0 makes them in between steps. The batches do not depend on it.
        #[option(default = 2, range = 0..=256, unit = "threads", resume = Harmless)]
        pub workers: usize,
        /// Batches made ahead, all workers together; at least one for each worker.
        #[option(default = 2, range = 1..=256, unit = "batches", resume = Harmless)]
        pub prefetch: usize,
        /// Keep photos once they are decoded, so that later epochs need not decode them again: in memory, or on a disk, where later runs
        /// find them. Kept is what the first transforms make of them, up to the first that is random. The batches do not depend on it.
        #[option(default = Cache::None, resume = Harmless)]
        pub cache: Cache,
        /// How much is kept at most. What there is no room for is decoded in every epoch.
        #[option(otherwise = "`\"2 GiB\"` in memory, `\"20 GiB\"` on a disk", example = r#""8 GiB""#, resume = Harmless)]
        pub cache_size: Option<ByteSize>,
        /// The folder of what is kept on a disk. It may be deleted at any time.
        #[option(otherwise = "`runner/photos` in `XDG_CACHE_HOME`, or in `~/.cache`", resume = Harmless)]
        pub cache_dir: Option<PathBuf>,
        /// Draw a new order of the training samples for every epoch, from `seed` and the epoch's number.
        #[option(default = true)]
        pub shuffle: bool,
        /// Leave out the last batch of an epoch if it is not full. Without, that batch is trained on at its own size.
        #[option(default = false)]
        pub drop_last: bool,
        /// Hold out a share (`0.1`) or a number (`5000`) of the training samples, and validate on those instead of the test set,
        /// which is left for `runner eval --split test`.
        #[option(example = "0.1")]
        pub validation_split: Option<ValidationSplit>,
        /// Train on so many samples only, drawn by `seed` after the split: of each class the same part.
        #[option(range = 1.., unit = "samples")]
        pub limit: Option<usize>,
        /// Validate on so many samples only, drawn in the same way.
        #[option(range = 1.., unit = "samples", resume = Harmless)]
        pub limit_val: Option<usize>,
    }

    /// The transforms of `[data]`.
    pub struct Pipeline {
        /// Applied to every sample, after `train_transforms` or `val_transforms`.
        #[option(default = Vec::new(), schema_by = for_all, resume = Differs)]
        pub transforms: Vec<Transform>,
        /// Applied to training samples only, before `transforms`.
        #[option(default = Vec::new(), schema_by = for_training, resume = Differs)]
        pub train_transforms: Vec<Transform>,
        /// Applied to samples that are not trained on, before `transforms`.
        #[option(default = Vec::new(), schema_by = for_evaluation, resume = Differs)]
        pub val_transforms: Vec<Transform>,
    }
}

impl Check for Loading {}

impl Check for Pipeline {}

impl Loading {
    /// Most bytes of photos that are kept.
    pub fn cache_size(&self) -> u64 {
        let usual = match self.cache {
            Cache::None => 0,
            Cache::Memory => 2 << 30,
            Cache::Disk => 20 << 30,
        };
        self.cache_size.map_or(usual, |size| size.0)
    }

    /// Samples in a batch of an evaluation, with its default.
    pub fn eval_batch_size(&self) -> usize {
        self.eval_batch_size.unwrap_or(self.batch_size)
    }
}

/// A number, or the default in the place of `"auto"` until it is known what that is.
fn batch_size(part: &Part, key: &str, node: &Node) -> Option<usize> {
    match (&node.value, node.as_str()) {
        (_, Some("auto")) => Some(BATCH_SIZE),
        (Written::Integer(_), _) => usize::read(part, key, node),
        _ => {
            part.wrong_value(key, node, "expected a whole number or \"auto\"");
            None
        }
    }
}

fn batch_size_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "integer" }, { "const": "auto" }] })
}
