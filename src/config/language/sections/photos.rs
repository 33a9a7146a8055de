//! Photos: in folders, in lists, in shards.

use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::public::AboutSource;
use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::{Value, values};
use crate::config::text::tree::{Node, Value as Written};

options! {
    /// Photos in folders, a folder for each class. `torchvision.datasets.ImageFolder`.
    pub struct ImageFolder {
        /// The folder: with `train` and `val`, which have a folder for each class, and perhaps `test`; or with the classes, of which
        /// `validation_split` holds out a part.
        #[option(example = r#""photos""#, resume = Differs)]
        pub root: PathBuf,
        /// The folders that are the classes, in this order. Others are left out.
        #[option(otherwise = "all, by name", length = 1..=MAX_SIZE, example = r#"["ants", "bees"]"#)]
        pub classes: Option<Vec<String>>,
        /// What to do about a file that cannot be read. Skipped files are reported and counted; in training the next one is taken in
        /// the place of each. If they are more than one and more than a twentieth, the run ends.
        #[option(default = OnError::Skip, resume = Harmless)]
        pub on_error: OnError,
    }

    /// Photos with their labels in a list: CSV, TSV or JSON Lines, as `metadata.csv` of Hugging Face's `ImageFolder`.
    pub struct ImageList {
        /// The list: a file `.csv`, `.tsv`, `.jsonl` or `.parquet`; or a folder that has one called `metadata`, or folders `train` and `val` that do.
        #[option(example = r#""photos.csv""#, resume = Differs)]
        pub path: PathBuf,
        /// A list of photos to validate on. Without, those of which a column `split` says so, or `validation_split`.
        #[option(resume = Differs)]
        pub val_path: Option<PathBuf>,
        /// The folder that the names in the lists are relative to.
        #[option(otherwise = "the folder of each list", resume = Differs)]
        pub root: Option<PathBuf>,
        /// The column of the photos' names.
        #[option(otherwise = "`file_name`, `image`, `filename`, `path` or `file`")]
        pub image_column: Option<String>,
        /// The column of the labels; with `label_kind = "number"` it may be a list of several.
        #[option(
            otherwise = "`label` or `class`; with `label_kind = \"mask\"` `mask`, `mask_file_name`, `mask_path` or `label`",
            example = r#""label""#,
        )]
        pub label_column: Option<Columns>,
        /// What the labels are.
        #[option(default = LabelKind::Class)]
        pub label_kind: LabelKind,
        /// What stands between the classes of a photo in CSV and TSV, with `label_kind = "classes"`. JSON Lines have lists.
        #[option(otherwise = "`|`")]
        pub label_separator: Option<String>,
        /// The classes, in this order.
        #[option(
            otherwise = "those in the list, by name, or in the order of numbers if all are numbers", length = 1..=MAX_SIZE,
            example = r#"["ants", "bees"]"#,
        )]
        pub classes: Option<Vec<String>>,
        /// The values that the classes have in masks, in the order of `classes`: from 0 to 255.
        #[option(otherwise = "0, 1, 2, …", length = 1..=MAX_SIZE, example = "[0, 255]")]
        pub mask_values: Option<Vec<usize>>,
        /// A column with what each photo weighs in the loss, a number of at least 0: the loss is the weighted mean, in training and in evaluation. `predict` does
        /// without it, and all other figures count every photo alike.
        #[option(example = r#""weight""#)]
        pub sample_weight: Option<String>,
        /// What to do about a photo that is not there or cannot be read. Skipped ones are reported and counted; if they are more than
        /// one and more than a twentieth, the run ends.
        #[option(default = OnError::Skip, resume = Harmless)]
        pub on_error: OnError,
    }

    /// Photos with their labels in tar archives, as `webdataset` writes them.
    pub struct WebDataset {
        /// The archives: a path with `{000000..000009}` or `{a,b}` for several, or a pattern as a shell has them: `*`, `?`, `[0-9]`, and `**` for any folders.
        #[option(example = r#""data/train-{000000..000009}.tar""#, resume = Differs)]
        pub shards: PathBuf,
        /// The archives to validate on.
        #[option(example = r#""data/val-*.tar""#, resume = Differs)]
        pub val_shards: Option<PathBuf>,
        /// How many classes there are, or their names in order.
        #[option(otherwise = "one more than the largest label", example = "1000")]
        pub classes: Option<Classes>,
        /// The key of the label in a sample's `json`, where it has no `cls`.
        #[option(default = "label".to_owned())]
        pub label_key: String,
        /// What to do about an image that cannot be read. Skipped ones are reported and counted; in training the next one is taken in
        /// the place of each. If they are more than one and more than a twentieth, the run ends.
        #[option(default = OnError::Skip, resume = Harmless)]
        pub on_error: OnError,
    }
}

values!(OnError, LabelKind);

/// Most classes that a mask may have: of the values of a byte one is left for what is ignored.
const MOST_MASK_CLASSES: usize = 255;

/// What to do about a sample that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Go on without it.
    Skip,
    /// End the run.
    Fail,
}

/// What the labels of a list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LabelKind {
    /// A class a photo, for `cross_entropy`.
    Class,
    /// Any number of classes a photo, for `bce_with_logits`: targets `[classes]` of 0 and 1.
    Classes,
    /// Numbers, for `mse` and its relatives: targets `[columns]`.
    Number,
    /// A class for every pixel, for `cross_entropy`: the name of an image file of the photo's size, whose values are classes. Targets
    /// `[H, W]`.
    Mask,
}

impl ImageList {
    /// Whether `index` is the value of pixels in masks that count for nothing, and the number of another class: what stands for
    /// such a pixel in a batch must be another number.
    pub fn ignores_by_value(&self, index: i32) -> bool {
        let (Some(values), LabelKind::Mask) = (&self.mask_values, self.label_kind) else { return false };
        usize::try_from(index).is_ok_and(|index| index < values.len() && !values.contains(&index))
    }
}

/// A column, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Columns {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Columns {
    /// Their names.
    pub fn names(&self) -> &[String] {
        match self {
            Columns::One(name) => std::slice::from_ref(name),
            Columns::Several(names) => names,
        }
    }
}

impl Value for Columns {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        match (node.as_str(), node.as_array()) {
            (Some(name), _) => Some(Columns::One(name.to_owned())),
            (None, Some(names)) if !names.is_empty() => Vec::read(part, key, node).map(Columns::Several),
            _ => {
                part.wrong_value(key, node, "expected the name of a column, or a list of them");
                None
            }
        }
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        let names = json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
        json_schema!({ "anyOf": [{ "type": "string" }, names] })
    }
}

/// The number of classes, or their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Classes {
    /// So many.
    Number(usize),
    /// These.
    Names(Vec<String>),
}

impl Value for Classes {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        if node.as_array().is_some_and(|names| !names.is_empty()) {
            return Vec::read(part, key, node).map(Classes::Names);
        }
        let number = if let Written::Integer(number) = node.value { usize::try_from(number).ok() } else { None };
        match number {
            Some(number) if (1..=MAX_SIZE).contains(&number) => Some(Classes::Number(number)),
            _ => {
                part.wrong_value(key, node, "expected a whole number from 1, or a list of names");
                None
            }
        }
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        let names = json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": MAX_SIZE }, names] })
    }
}

/// Reports a class that is in `classes` twice.
pub(super) fn each_once(part: &Part, classes: &[String]) {
    let mut sorted: Vec<&String> = classes.iter().collect();
    sorted.sort_unstable();
    part.require("classes", !sorted.windows(2).any(|pair| pair[0] == pair[1]), "has a class twice");
}

impl AboutSource for ImageFolder {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        vec![("root", &self.root)]
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        vec![("root", &mut self.root)]
    }

    fn has_photos(&self) -> bool {
        true
    }

    fn named_classes(&self) -> Option<usize> {
        self.classes.as_ref().map(Vec::len)
    }

    fn has_classes(&self) -> Option<bool> {
        Some(true)
    }
}

impl AboutSource for ImageList {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        let others = [("val_path", &self.val_path), ("root", &self.root)];
        let others = others.into_iter().filter_map(|(key, path)| Some((key, path.as_ref()?)));
        [("path", &self.path)].into_iter().chain(others).collect()
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        let others = [("val_path", &mut self.val_path), ("root", &mut self.root)];
        let others = others.into_iter().filter_map(|(key, path)| Some((key, path.as_mut()?)));
        [("path", &mut self.path)].into_iter().chain(others).collect()
    }

    fn has_photos(&self) -> bool {
        true
    }

    fn named_classes(&self) -> Option<usize> {
        self.classes.as_ref().map(Vec::len)
    }

    fn has_classes(&self) -> Option<bool> {
        Some(matches!(self.label_kind, LabelKind::Class | LabelKind::Mask))
    }
}

impl AboutSource for WebDataset {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        let val = self.val_shards.as_ref().map(|path| ("val_shards", path));
        [("shards", &self.shards)].into_iter().chain(val).collect()
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        let val = self.val_shards.as_mut().map(|path| ("val_shards", path));
        [("shards", &mut self.shards)].into_iter().chain(val).collect()
    }

    fn has_photos(&self) -> bool {
        true
    }

    fn named_classes(&self) -> Option<usize> {
        self.classes.as_ref().map(|classes| match classes {
            Classes::Number(number) => *number,
            Classes::Names(names) => names.len(),
        })
    }

    fn has_classes(&self) -> Option<bool> {
        Some(true)
    }
}

impl Check for ImageFolder {
    fn check(&self, part: &Part) {
        let classes = self.classes.as_deref().unwrap_or_default();
        let is_name = |name: &String| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
        part.require("classes", classes.iter().all(is_name), "must be names of folders");
        each_once(part, classes);
    }
}

impl Check for ImageList {
    fn check(&self, part: &Part) {
        each_once(part, self.classes.as_deref().unwrap_or_default());
        let (masks, classes) = (self.label_kind == LabelKind::Mask, self.classes.as_ref().map_or(0, Vec::len));
        part.require("label_kind", !masks || classes > 0, "is \"mask\", which needs the names of the `classes`");
        part.require("classes", !masks || classes <= MOST_MASK_CLASSES, "has more than the 255 that a mask may have");
        let mut values = self.mask_values.clone().unwrap_or_default();
        values.sort_unstable();
        part.require("mask_values", values.iter().all(|value| *value <= 255), "must be from 0 to 255");
        part.require("mask_values", values.is_empty() || masks, "is for `label_kind = \"mask\"`");
        part.require("mask_values", !values.windows(2).any(|pair| pair[0] == pair[1]), "has a value twice");
        let each = values.is_empty() || !masks || values.len() == classes;
        part.require("mask_values", each, "must have a value for each of the `classes`");
        let numbers = self.label_kind == LabelKind::Number;
        part.require("classes", self.classes.is_none() || !numbers, "is for labels that are classes");
        let columns = self.label_column.as_ref().map_or(1, |columns| columns.names().len());
        part.require("label_column", columns == 1 || numbers, "may be several with `label_kind = \"number\"` alone");
        let separator = self.label_separator.as_ref();
        part.require("label_separator", separator.is_none_or(|text| !text.is_empty()), "is empty");
        let several = separator.is_none() || self.label_kind == LabelKind::Classes;
        part.require("label_separator", several, "is for `label_kind = \"classes\"`");
    }
}

impl Check for WebDataset {
    fn check(&self, part: &Part) {
        if let Some(Classes::Names(names)) = &self.classes {
            each_once(part, names);
        }
    }
}
