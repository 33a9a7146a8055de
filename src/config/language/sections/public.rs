//! What is asked of every source of samples, and the public data sets.

use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::config::declare::declaration::{Declaration, Rule};
use crate::config::declare::options::{Check, Options, options, probe};
use crate::config::declare::part::Part;
use crate::config::declare::tagged::{count, join};
use crate::config::declare::value::values;

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

    /// How many parts of its samples are held out in turn, if they are.
    fn folds(&self) -> Option<usize> {
        None
    }

    /// Whether it holds out what is validated on itself, because what it fits depends on that, or because its samples are no rows that could be drawn; and has no test set
    /// but one of its own.
    fn divides_itself(&self) -> bool {
        false
    }

    /// Whether its targets are classes, if the configuration says.
    fn has_classes(&self) -> Option<bool>;
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

    fn paths() -> Vec<&'static str> {
        [<Download as Options>::paths(), Granularity::paths()].concat()
    }

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

options! {
    /// The bundled hand-written digits: 1,797 grey images of 8×8 pixels, ten classes.
    pub struct Digits {}

}

impl Check for Digits {}

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
