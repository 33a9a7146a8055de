//! Which keys there are, from the structs that read them.

use super::de::field_names;
use super::lints::Lints;
use super::resolve::{ModelKeys, TopKeys};
use super::sections::{Checkpoint, Curve, EarlyStopping, Loading, Log, Loss, OptimizerRule, Source, Train, Warmup};
use super::tagged::Tagged;
use super::tree::{Node, Table};

/// A section, and the keys that it may have.
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// The key whose word tells its kind, if it has kinds.
    pub tag: Option<&'static str>,
    /// All kinds.
    pub types: &'static [&'static str],
    /// The keys of a kind.
    pub fields: fn(&str) -> &'static [&'static str],
    /// The keys of every kind.
    pub common: Vec<&'static str>,
}

impl Section {
    fn plain(name: &'static str, common: Vec<&'static str>) -> Self {
        Self { name, tag: None, types: &[], fields: |_| &[], common }
    }

    fn tagged<T: Tagged>(name: &'static str, common: Vec<&'static str>) -> Self {
        let common = std::iter::once(T::TAG).chain(common).collect();
        Self { name, tag: Some(T::TAG), types: T::TYPES, fields: T::fields, common }
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
    let with = |keys: &'static [&'static str], more: &[&'static str]| [keys, more].concat();
    vec![
        Section::tagged::<Source>("data", with(field_names::<Loading>(), &["transforms", "train_transforms"])),
        Section::plain("model", with(field_names::<ModelKeys>(), &["layers", "use", "with"])),
        Section::tagged::<Loss>("loss", Vec::new()),
        Section::tagged::<OptimizerRule>("optimizer", vec!["groups"]),
        Section::plain("train", field_names::<Train>().to_vec()),
        Section::tagged::<Curve>("schedule", field_names::<Warmup>().to_vec()),
        Section::plain("checkpoint", field_names::<Checkpoint>().to_vec()),
        Section::plain("log", field_names::<Log>().to_vec()),
        Section::plain("lint", field_names::<Lints>().to_vec()),
    ]
}

/// The keys that are in no section.
pub fn top() -> &'static [&'static str] {
    field_names::<TopKeys>()
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
    all.extend(field_names::<EarlyStopping>().iter().map(|key| format!("train.early_stopping.{key}")));
    all
}

/// The dotted keys that end with what was written, else those whose last name is nearly the same.
pub fn ending_with(written: &[&str], root: &Table) -> Vec<String> {
    let all = dotted(root);
    let tail = format!(".{}", written.join("."));
    let exact: Vec<String> = all.iter().filter(|key| key.ends_with(&tail)).cloned().collect();
    if !exact.is_empty() {
        return exact;
    }
    let [word] = written else { return Vec::new() };
    let last = |key: &String| key.rsplit('.').next().unwrap_or(key).to_owned();
    let names: Vec<String> = all.iter().map(last).collect();
    let Some(near) = super::sink::nearest(word, names.iter().map(String::as_str)) else { return Vec::new() };
    all.iter().filter(|key| last(key) == near).cloned().collect()
}
