//! Photos with their labels in tar archives, the shards that the Python library `webdataset` writes. Files of one name, but for their
//! endings, are a sample: `0001.jpg` and `0001.cls`.
//!
//! The archives are not unpacked. Their headers are read once, when the source is opened, and where each image begins is kept. Any
//! sample can be read from there, so that the order of samples is drawn from all of them.

mod shard;

use super::cache::Stamp;
use super::field::{INPUTS, TARGETS};
use super::found::Found;
use super::image_folder::photos::{Images, Photos, Targets};
use super::progress::Event;
use super::{Classes, DataSpec, Dataset, Describes, Field, FieldKind, Footprint, Split, Survey};
use crate::files::{self, pattern};
use anyhow::{Context, Result, anyhow, bail, ensure};
use shard::{Label, Sample};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The options of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebDatasetOptions {
    /// The archives that are trained on.
    pub shards: PathBuf,
    /// Those that are validated on.
    pub val_shards: Option<PathBuf>,
    /// The classes; `None`: one more than the largest label.
    pub classes: Option<Labels>,
    /// The key of the label in JSON.
    pub label_key: String,
    /// An image that cannot be read ends the run; else it is left out.
    pub strict: bool,
}

/// The classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Labels {
    /// So many.
    Number(usize),
    /// These.
    Names(Vec<String>),
}

/// What the shards that were described last hold.
static FOUND: Found<WebDatasetOptions, Parts> = Found::new();

/// The samples that are trained on and those that are validated on.
struct Parts {
    train: Part,
    val: Part,
    notes: Vec<String>,
}

/// Images in archives.
#[derive(Default)]
struct Part {
    shards: Vec<Shard>,
    images: Vec<Place>,
    labels: Vec<i32>,
}

/// An archive, as it was when its headers were read.
struct Shard {
    path: PathBuf,
    bytes: u64,
}

/// Where an image is.
struct Place {
    offset: u64,
    bytes: u32,
    shard: u32,
}

impl Part {
    /// Reads the first bytes of image number `at`.
    fn read_head(&self, at: usize, most: u64, file: &mut Vec<u8>) -> Result<()> {
        let Place { offset, bytes, shard } = self.images[at];
        let shard = &self.shards[shard as usize];
        let opened = files::open(&shard.path)?;
        ensure!(opened.size == shard.bytes, "`{}` is another file than when the run began", shard.path.display());
        file.clear();
        file.resize(u64::from(bytes).min(most) as usize, 0);
        files::read_at(&opened.file, file, offset)?;
        Ok(())
    }
}

impl Images for Part {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn name(&self, at: usize) -> String {
        let Place { offset, shard, .. } = self.images[at];
        let shard = &self.shards[shard as usize];
        let name = shard::name_before(&shard.path, offset).unwrap_or_else(|| format!("the image at byte {offset}"));
        format!("{}/{name}", shard.path.display())
    }

    fn read(&self, at: usize, file: &mut Vec<u8>) -> Result<()> {
        self.read_head(at, u64::MAX, file)
    }

    fn stamp(&self, at: usize) -> Option<Stamp> {
        let shard = &self.shards[self.images[at].shard as usize];
        Stamp::of(&files::uninterrupted(|| std::fs::metadata(&shard.path)).ok()?)
    }

    /// That of the first shard. Others may be elsewhere.
    fn folder(&self) -> &Path {
        self.shards.first().and_then(|shard| shard.path.parent()).unwrap_or(Path::new(""))
    }

    fn locate(&self, at: usize, take: &mut dyn FnMut(&[u8])) {
        let Place { offset, bytes, shard } = self.images[at];
        take(self.shards[shard as usize].path.as_os_str().as_encoded_bytes());
        take(&offset.to_le_bytes());
        take(&bytes.to_le_bytes());
    }

    /// By its place, and the archive's name and size in bytes.
    fn identify(&self, at: usize, take: &mut dyn FnMut(&[u8])) {
        let Place { offset, bytes, shard } = self.images[at];
        let shard = &self.shards[shard as usize];
        take(shard.path.file_name().unwrap_or_default().as_encoded_bytes());
        take(&[0]);
        take(&shard.bytes.to_le_bytes());
        take(&offset.to_le_bytes());
        take(&bytes.to_le_bytes());
    }

    fn held_bytes(&self) -> usize {
        let shards: usize = self.shards.iter().map(|shard| shard.path.as_os_str().len() + size_of::<Shard>()).sum();
        shards + self.images.len() * size_of::<Place>()
    }
}

impl Describes for &WebDatasetOptions {
    fn describe(&self) -> Result<DataSpec> {
        match &self.classes {
            // What the model depends on is known without the files.
            Some(classes) if pattern::paths(&self.shards).is_err() => Ok(spec(classes, true, None)),
            _ => FOUND.look(self, || self.parts(), |parts| self.spec(parts)),
        }
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        let parts = FOUND.take(self, || self.parts())?;
        let spec = self.spec(&parts);
        let split = |mut part: Part| {
            let labels = std::mem::take(&mut part.labels).into_iter().flat_map(i32::to_ne_bytes).collect();
            Split::new(Arc::new(Photos::new(part, Targets::Values(labels), spec.fields.clone(), self.strict)))
        };
        let (train, val) = (split(parts.train)?, split(parts.val)?);
        Ok(Dataset { notes: parts.notes, ..Dataset::new(spec, train, val) })
    }

    fn footprint(&self) -> Footprint {
        // Errors are reported when it is opened.
        let held = |Parts { train, val, .. }: &Parts| {
            [train, val].iter().map(|part| part.held_bytes() + part.labels.len() * size_of::<i32>()).sum()
        };
        Footprint { held: FOUND.look(self, || self.parts(), held).unwrap_or_default(), ..Footprint::default() }
    }

    fn survey(&self) -> Option<[Survey; 2]> {
        let of = |part: &Part| {
            let size = |at: usize| u64::from(part.images[at].bytes);
            Survey::of(part.images.len(), size, |at, most, file| part.read_head(at, most, file))
        };
        FOUND.look(self, || self.parts(), |Parts { train, val, .. }| [train, val].map(of)).ok()
    }
}

/// Images of any size, and the number of their class.
fn spec(classes: &Labels, exact: bool, counts: Option<[usize; 2]>) -> DataSpec {
    let classes = match classes {
        Labels::Number(number) => Classes::of(*number),
        Labels::Names(names) => Classes::named(names.clone()),
    };
    let target = Field::target(TARGETS, FieldKind::Category(Classes { exact, ..classes }), []);
    DataSpec {
        train: counts.map(|[train, _]| train),
        val: counts.map(|[_, val]| val),
        ..DataSpec::new(vec![Field::photo(INPUTS, 3), target])
    }
}

impl WebDatasetOptions {
    fn spec(&self, Parts { train, val, .. }: &Parts) -> DataSpec {
        let counts = Some([train.images.len(), val.images.len()]);
        match &self.classes {
            Some(classes) => spec(classes, true, counts),
            None => {
                let largest = train.labels.iter().chain(&val.labels).max().copied().unwrap_or(0);
                spec(&Labels::Number(largest as usize + 1), false, counts)
            }
        }
    }

    /// Reads the headers of all shards.
    fn parts(&self) -> Result<Parts> {
        let mut notes = Vec::new();
        let train = self.part(&self.shards, &mut notes)?;
        let val = self.val_shards.as_ref().map(|shards| self.part(shards, &mut notes)).transpose()?.unwrap_or_default();
        notes.extend(on_both_sides(&train, &val));
        Ok(Parts { train, val, notes })
    }

    fn part(&self, shards: &Path, notes: &mut Vec<String>) -> Result<Part> {
        let names = match &self.classes {
            Some(Labels::Names(names)) => (0..).zip(names).map(|(class, name)| (name.as_str(), class)).collect(),
            _ => HashMap::new(),
        };
        let mut part = Part::default();
        for path in pattern::paths(shards)? {
            let scanned = shard::scan(&path, &self.label_key)?;
            let shard = u32::try_from(part.shards.len()).context("there are more than 4,294,967,295 shards")?;
            for Sample { key, image, label } in scanned.samples {
                let of = || format!("`{}`: the sample `{key}`", path.display());
                part.labels.push(self.class(label, &names).with_context(of)?);
                part.images.push(Place { offset: image.0, bytes: image.1, shard });
            }
            notes.extend(scanned.notes);
            part.shards.push(Shard { path, bytes: scanned.bytes });
        }
        ensure!(
            !part.images.is_empty(),
            "`{}` holds no samples: a sample is an image (`0001.jpg`) with a label (`0001.cls`, or `0001.json`)",
            shards.display()
        );
        Ok(part)
    }

    /// The class that a label means.
    fn class(&self, label: Label, names: &HashMap<&str, i32>) -> Result<i32> {
        let text = match label {
            Label::Number(number) => {
                let classes = match &self.classes {
                    Some(Labels::Number(number)) => *number,
                    Some(Labels::Names(names)) => names.len(),
                    None => super::MAX_CLASSES,
                };
                let class = i32::try_from(number).ok().filter(|class| *class >= 0 && (*class as usize) < classes);
                return class.ok_or_else(|| anyhow!("its label {number} is not within 0 .. {}", classes - 1));
            }
            Label::Text(text) => text,
        };
        match (names.get(text.as_str()), &self.classes) {
            (Some(class), _) => Ok(*class),
            (None, Some(Labels::Names(_))) => bail!("its label `{text}` is none of `classes`"),
            (None, _) => bail!("its label `{text}` is a name: give the names of all classes, in order, with `classes`"),
        }
    }
}

/// That shards, by whatever names, are on both sides.
fn on_both_sides(train: &Part, val: &Part) -> Option<String> {
    let place = |shard: &Shard| shard.path.canonicalize().unwrap_or_else(|_| shard.path.clone());
    let trained: HashSet<PathBuf> = train.shards.iter().map(place).collect();
    let both: Vec<usize> = (0..val.shards.len()).filter(|at| trained.contains(&place(&val.shards[*at]))).collect();
    let first = val.shards[*both.first()?].path.display();
    let photos = val.images.iter().filter(|image| both.contains(&(image.shard as usize))).count();
    let (shards, they_have) = match both.len() {
        1 => (format!("`{first}` is"), "it has"),
        n => (format!("{n} shards, such as `{first}`, are"), "they have"),
    };
    let s = if photos == 1 { "" } else { "s" };
    Some(format!(
        "{shards} in `shards` and in `val_shards`: the {photos} photo{s} that {they_have} are both trained on and validated on, and what is validated is \
         better than on new photos"
    ))
}

#[cfg(test)]
mod tests;
