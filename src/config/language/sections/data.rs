//! `[data]`: where samples come from, and how they become batches.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::cache::{ByteSize, Cache};
use super::photos::{ImageFolder, ImageList, WebDataset};
use super::public::{AboutSource, Cifar100, Digits, Download};
use super::table::Csv;
use super::text::{Text, TextClasses, TokenFile, Tokenizer};
use super::text_pairs::TextPairs;
use super::text_tags::TextTags;
use super::text_to_text::TextToText;
use super::transforms::{Transform, for_all, for_evaluation, for_training};
use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::tagged::tagged;
use crate::config::declare::value::Value;
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
    "parquet" => Parquet(Csv),
    "text" => Text(Text),
    "tokens" => Tokens(TokenFile),
    "text_classes" => TextClasses(TextClasses),
    "text_tags" => TextTags(TextTags),
    "text_to_text" => TextToText(TextToText),
    "text_pairs" => TextPairs(TextPairs),
    "synthetic" => Synthetic(Synthetic),
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
            Source::Csv(set) | Source::Parquet(set) => set,
            Source::Text(set) => set,
            Source::Tokens(set) => set,
            Source::TextClasses(set) => set,
            Source::TextTags(set) => set,
            Source::TextToText(set) => set,
            Source::TextPairs(set) => set,
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
            Source::Csv(set) | Source::Parquet(set) => set,
            Source::Text(set) => set,
            Source::Tokens(set) => set,
            Source::TextClasses(set) => set,
            Source::TextTags(set) => set,
            Source::TextToText(set) => set,
            Source::TextPairs(set) => set,
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

    /// Whether its targets are tokens of a text, and the model predicts each token from those before it.
    pub fn is_text(&self) -> bool {
        matches!(self, Source::Text(_) | Source::Tokens(_) | Source::TextToText(_) | Source::TextPairs(_))
    }

    /// Whether it is known how many bytes of a text a token stands for that is learnt.
    pub fn knows_bytes(&self) -> bool {
        match self {
            Source::Text(_) => true,
            Source::Tokens(tokens) => tokens.tokenizer.is_some(),
            _ => false,
        }
    }

    /// Whether `val_path` names a file that is validated on.
    pub fn has_val_path(&self) -> bool {
        match self {
            Source::ImageList(_) | Source::Csv(_) | Source::Parquet(_) | Source::Text(_) | Source::Tokens(_) => true,
            Source::TextClasses(_) | Source::TextTags(_) | Source::TextToText(_) | Source::TextPairs(_) => true,
            Source::Mnist(_) | Source::FashionMnist(_) | Source::Cifar10(_) | Source::Cifar100(_) => false,
            Source::Digits(_) | Source::ImageFolder(_) | Source::WebDataset(_) | Source::Tensors(_) => false,
            Source::Synthetic(_) => false,
        }
    }

    /// Whether recurrent layers go on from batch to batch.
    pub fn carries_state(&self) -> bool {
        match self {
            Source::Text(text) => text.carry_state,
            Source::Tokens(tokens) => tokens.carry_state,
            _ => false,
        }
    }

    /// Whether its samples are tokens.
    pub fn has_tokens(&self) -> bool {
        self.is_text() || matches!(self, Source::TextClasses(_) | Source::TextTags(_))
    }

    /// How its texts become tokens, if its samples are texts and it says so.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        match self {
            Source::Text(text) => Some(&text.tokenizer),
            Source::Tokens(tokens) => tokens.tokenizer.as_ref(),
            Source::TextClasses(texts) => Some(&texts.tokenizer),
            Source::TextTags(texts) => Some(&texts.tokenizer),
            Source::TextToText(texts) => Some(&texts.tokenizer),
            Source::TextPairs(texts) => Some(&texts.tokenizer),
            _ => None,
        }
    }

    /// How many tokens there are, if its samples are texts and it says so.
    pub fn vocab_size(&self) -> Option<usize> {
        match self {
            Source::Text(text) => text.vocab_size,
            Source::Tokens(tokens) => tokens.vocab_size,
            Source::TextClasses(texts) => texts.vocab_size,
            Source::TextTags(texts) => texts.vocab_size,
            Source::TextToText(texts) => texts.vocab_size,
            Source::TextPairs(texts) => texts.vocab_size,
            _ => None,
        }
    }

    /// Whether its samples are rows of a table or texts, so that what is counted in it is known once it is read.
    pub fn is_counted_by_reading(&self) -> bool {
        self.has_tokens() || self.table().is_some()
    }

    /// The options of a table, whatever its file is.
    pub fn table(&self) -> Option<&Csv> {
        match self {
            Source::Csv(table) | Source::Parquet(table) => Some(table),
            _ => None,
        }
    }

    /// [`AboutSource::folds`]
    pub fn folds(&self) -> Option<usize> {
        self.about().folds()
    }

    /// [`AboutSource::divides_itself`]
    pub fn divides_itself(&self) -> bool {
        self.about().divides_itself()
    }

    /// [`AboutSource::has_classes`]
    pub fn has_classes(&self) -> Option<bool> {
        self.about().has_classes()
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
    /// Fixed tensors from a file.
    pub struct Tensors {
        /// A `.safetensors` file with `inputs` and `targets` and, optionally, `val_inputs` and `val_targets`.
        #[option(example = r#""batch.safetensors""#, resume = Differs)]
        pub path: PathBuf,
        /// A tensor of one number of at least 0 for each sample, which says what the sample weighs in the loss; with `val_` before its name that of the samples to
        /// validate on. The loss is the weighted mean, in training and in evaluation. All other figures count every sample alike.
        #[option(example = r#""weights""#)]
        pub sample_weight: Option<String>,
    }
}

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
        /// the default. A message says the number, and it goes into the run's configuration, so that a resumed run keeps it.
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
        /// find them. Kept is what the first transforms make of them, up to the first that is random. Of a table it says where the rows lie:
        /// `"memory"`, or `"disk"`, a file that is gone when the run ends; with `"none"` they are in memory unless they take more than a
        /// quarter of it. The batches do not depend on it.
        #[option(default = Cache::None, resume = Harmless)]
        pub cache: Cache,
        /// How many bytes of photos are kept at most. Photos beyond that are decoded in every epoch.
        #[option(otherwise = "`\"2 GiB\"` in memory, `\"20 GiB\"` on a disk", example = r#""8 GiB""#, resume = Harmless)]
        pub cache_size: Option<ByteSize>,
        /// The folder of what is kept on a disk. It may be deleted at any time.
        #[option(
            otherwise = "`runner/photos`, of a table `runner/tables`, in `XDG_CACHE_HOME` or in `~/.cache`", resume = Harmless,
        )]
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
        /// Decides what is drawn of the data before training: which samples are held out, folds, `limit`, the samples of `synthetic`. With the same
        /// number here, trainings with different seeds train and validate on the same samples.
        #[option(otherwise = "the `seed` at the top")]
        pub seed: Option<u64>,
        /// Train on so many samples only, drawn after the split: of each class the same part.
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
