//! Photos in folders, a folder a class, as torchvision's `ImageFolder` has them. They are read when a batch asks for them.

mod identity;
pub(super) mod photos;
mod scan;
pub(super) mod twice;

use super::classes::alike;
use super::field::{INPUTS, TARGETS};
use super::found::Found;
use super::held::{UnknownClasses, listed, nearest};
use super::progress::Event;
use super::{Classes, DataSpec, Dataset, Describes, Field, FieldKind, Footprint, Split, Survey};
use crate::files;
use anyhow::{Context, Result, bail, ensure};
use photos::{ENDINGS, Files, Photos, Targets};
use scan::{Listing, list, part};
pub use scan::{images_below, is_image as has_ending, unread_in_words};
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use twice::several;

/// The folder of the samples that are trained on, where there is one for each part. Names of parts are found without regard to case.
const TRAIN: &str = "train";
/// Names of the folder of the samples that are validated on; the first that is there counts.
const VAL: [&str; 3] = ["val", "valid", "validation"];
/// The folder of the samples that are tested on.
const TEST: &str = "test";

/// Other names that folders of parts have. They are no classes where all of their photos lie in folders of their own.
const OTHER_PARTS: [&str; 7] = ["training", "val", "valid", "validation", "dev", "test", "testing"];

/// The options of the source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageFolderOptions {
    /// The folder: with `train` and `val` in it, or with the classes.
    pub root: PathBuf,
    /// The names of the classes, in order; `None`: all folders there are, by name.
    pub classes: Option<Vec<String>>,
    /// The classes are those that a model was trained on: photos of any other are an error.
    pub trained: bool,
    /// A file that cannot be read ends the run; else it is left out.
    pub strict: bool,
}

/// What the folder that was described last holds.
static FOUND: Found<ImageFolderOptions, Parts> = Found::new();

/// What the folder holds.
struct Parts {
    train: Listing,
    val: Listing,
    test: Option<Listing>,
}

impl Describes for &ImageFolderOptions {
    fn describe(&self) -> Result<DataSpec> {
        match &self.classes {
            // What the model depends on is known without the files.
            Some(classes) if !files::is_there(&self.root) => Ok(spec(classes, &[], None)),
            _ => {
                let of = |Parts { train, val, .. }: &Parts| {
                    spec(&train.classes, &train.empty, Some([train.images.len(), val.images.len()]))
                };
                FOUND.look(self, || self.parts(), of)
            }
        }
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        let Parts { mut train, mut val, mut test } = FOUND.take(self, || self.parts())?;
        let parts = [Some(&mut train), Some(&mut val), test.as_mut()];
        let mut notes: Vec<String> =
            parts.into_iter().flatten().flat_map(|part| std::mem::take(&mut part.notes)).collect();
        let (spec, names) = (spec(&train.classes, &train.empty, None), train.classes.clone());
        let split = |part: Listing| {
            let labels = part.labels.into_iter().flat_map(i32::to_ne_bytes).collect();
            let (files, identities) = Files::identified(part.folder, part.images, self.strict)?;
            let photos = Photos::new(files, Targets::Values(labels), spec.fields.clone(), self.strict);
            anyhow::Ok((Split::new(Arc::new(photos))?, identities))
        };
        let ((train, trained), (val, validated)) = (split(train)?, split(val)?);
        let test = test.map(split).transpose()?.map(|(test, _)| test);
        notes.extend(twice::notes(&self.root, (&train, &trained), (&val, &validated), Some(&names)));
        Ok(Dataset { test, notes, ..Dataset::new(spec, train, val) })
    }

    fn footprint(&self) -> Footprint {
        // Names and labels. Errors are reported when it is opened.
        let held = |Parts { train, val, test }: &Parts| {
            [Some(train), Some(val), test.as_ref()].into_iter().flatten().map(Listing::held_bytes).sum()
        };
        Footprint { held: FOUND.look(self, || self.parts(), held).unwrap_or_default(), ..Footprint::default() }
    }

    fn survey(&self) -> Option<[Survey; 2]> {
        let of = |part: &Listing| Survey::of_files(&part.folder, &part.images);
        FOUND.look(self, || self.parts(), |Parts { train, val, .. }| [train, val].map(of)).ok()
    }
}

/// Images of any size, and the number of their class.
fn spec(classes: &[String], empty: &[String], counts: Option<[usize; 2]>) -> DataSpec {
    let target = Field::target(TARGETS, FieldKind::Category(Classes::named(classes.to_vec())), []);
    DataSpec {
        empty_folders: empty.to_vec(),
        train: counts.map(|[train, _]| train),
        val: counts.map(|[_, val]| val),
        ..DataSpec::new(vec![Field::photo(INPUTS, 3), target])
    }
}

/// How many photos there are of each class, to train on and to validate on.
///
/// # Errors
/// As for describing them.
pub fn class_counts(options: &ImageFolderOptions) -> Result<Vec<[usize; 2]>> {
    let of = |Parts { train, val, .. }: &Parts| {
        let mut counts = vec![[0; 2]; train.classes.len()];
        for (part, labels) in [&train.labels, &val.labels].into_iter().enumerate() {
            labels.iter().for_each(|label| counts[*label as usize][part] += 1);
        }
        counts
    };
    FOUND.look(options, || options.parts(), of)
}

impl ImageFolderOptions {
    /// Lists the files.
    fn parts(&self) -> Result<Parts> {
        let root = &self.root;
        let name = || format!("cannot read the photos in `{}`", root.display());
        let metadata = std::fs::metadata(root).with_context(name)?;
        ensure!(
            metadata.is_dir(),
            "`{}` is a file; `root` is a folder with a folder of photos for each class",
            root.display()
        );
        let Some((train, beside)) = part(root, &[TRAIN])? else {
            let mut all = list(root, self.classes.as_deref())?;
            self.require_images(&all, root)?;
            self.require_known(&all)?;
            require_named(&all)?;
            if self.classes.is_none() {
                require_no_parts(&all)?;
            }
            self.note_alike(&mut all);
            let none = Listing { classes: all.classes.clone(), ..Listing::default() };
            return Ok(Parts { train: all, val: none, test: None });
        };
        let mut trained = list(&train, self.classes.as_deref())?;
        require_part(root, &trained)?;
        self.require_images(&trained, &train)?;
        self.require_known(&trained)?;
        require_named(&trained)?;
        trained.notes.extend(beside);
        self.note_alike(&mut trained);
        let other = |(folder, beside): (PathBuf, Option<String>)| -> Result<Listing> {
            let mut part = list(&folder, Some(&trained.classes))?;
            part.notes.extend(beside);
            self.require_known(&part)?;
            // Where the configuration names the classes, other folders are left out.
            if self.classes.is_none() {
                same_classes(&part, &trained)?;
            }
            Ok(part)
        };
        let none = Listing { classes: trained.classes.clone(), ..Listing::default() };
        let val = part(root, &VAL)?.map(other).transpose()?.unwrap_or(none);
        let test = part(root, &[TEST])?.map(other).transpose()?;
        Ok(Parts { train: trained, val, test })
    }

    /// Notes classes that may be meant to be one, unless the configuration names them.
    fn note_alike(&self, part: &mut Listing) {
        if self.classes.is_none() {
            part.notes.extend(alike(&part.folder, &part.classes));
        }
    }

    /// Refuses photos of classes that the model does not know.
    fn require_known(&self, part: &Listing) -> Result<()> {
        if self.trained && !part.others.is_empty() {
            let has = |class: usize| part.labels.binary_search(&(class as i32)).is_ok();
            let with_photos = part.classes.iter().enumerate().filter(|(class, _)| has(*class)).map(|(_, name)| name);
            let mut own: Vec<String> = with_photos.chain(&part.others).cloned().collect();
            own.sort_unstable();
            let unknown = UnknownClasses::new(&part.others, &own, &part.classes);
            return Err(anyhow::Error::new(unknown).context(format!("`{}`", part.folder.display())));
        }
        Ok(())
    }

    fn require_images(&self, part: &Listing, folder: &Path) -> Result<()> {
        let named = self.classes.as_ref().filter(|_| part.images.is_empty() && !part.others.is_empty());
        if let Some(named) = named {
            bail!(
                "`{}` has no photos of the classes that are asked for: {}; the folders with photos there are {}; {}",
                folder.display(),
                listed(named),
                listed(&part.others),
                if self.trained {
                    "the model was trained on the former: give them these names, or train a model anew"
                } else {
                    "name them in `classes`, or leave `classes` out (`--unset data.classes`) to take all folders"
                }
            );
        }
        ensure!(
            !part.classes.is_empty() || !part.empty.is_empty(),
            "there are no folders in `{}`: photos are expected in a folder for each class, `{}/train/CLASS/*.jpg` and \
             `{}/val/CLASS/*.jpg`, or `{}/CLASS/*.jpg` with `validation_split`",
            folder.display(),
            self.root.display(),
            self.root.display(),
            self.root.display()
        );
        ensure!(
            !part.images.is_empty(),
            "the folders of classes in `{}` hold no images: files with the endings {} are looked for",
            folder.display(),
            ENDINGS.join(", ")
        );
        Ok(())
    }
}

/// Refuses a folder that has the name of a part and no folders with photos, where other folders beside it have some: it may be meant
/// to be a class.
fn require_part(root: &Path, train: &Listing) -> Result<()> {
    if !train.images.is_empty() {
        return Ok(());
    }
    let is_part = |name: &String| [TRAIN, TEST].iter().chain(&VAL).any(|part| name.eq_ignore_ascii_case(part));
    let classes = list(root, None)?.classes;
    let beside: Vec<String> = classes.into_iter().filter(|name| !is_part(name)).collect();
    ensure!(
        beside.is_empty(),
        "`{}` has no folders with photos: by its name it is taken for the folder of all photos that are trained on, and {} beside it are \
         not looked at; if it is a class, give it another name, else move the folders of classes into it",
        train.folder.display(),
        listed(&beside)
    );
    Ok(())
}

/// Refuses folders of parts, with a folder for each class in them, where the one that is trained on is not called `train`: they would be
/// taken for the classes.
fn require_no_parts(all: &Listing) -> Result<()> {
    let is_part = |class: &str| OTHER_PARTS.iter().any(|part| class.eq_ignore_ascii_case(part));
    let has_folders = |class: usize| {
        let of = all.images.iter().zip(&all.labels).filter(|(_, label)| **label as usize == class);
        of.map(|(path, _)| path).all(|path| path.components().count() > 2)
    };
    let parts = all.classes.iter().enumerate().filter(|(class, name)| is_part(name) && has_folders(*class));
    let parts: Vec<String> = parts.map(|(_, name)| name.clone()).collect();
    ensure!(
        parts.is_empty(),
        "`{0}` has no folder `train`, and has folders of photos in {1}, by the name a part of the photos and no class: call the folder of those \
         that are trained on `train`, that of those that are validated on `val`; if the folders in `{0}` are the classes, name them with \
         `classes`",
        all.folder.display(),
        listed(&parts)
    );
    Ok(())
}

/// Refuses a class that is named and has no photos to train on, where a folder with photos is left out: the two may be meant to be one.
fn require_named(part: &Listing) -> Result<()> {
    let (Some(class), Some(_)) = (part.without.first(), part.others.first()) else { return Ok(()) };
    bail!(
        "`{}` has no photos of the class `{class}`, and photos in {}, which `classes` does not name{}; name the folders as they are, or \
         leave `{class}` out of `classes`",
        part.folder.display(),
        listed(&part.others),
        nearest(class, part.others.iter().map(String::as_str))
            .map_or(String::new(), |near| format!(" (did you mean `{near}`?)"))
    )
}

/// Refuses classes that are not trained on.
fn same_classes(part: &Listing, trained: &Listing) -> Result<()> {
    if let Some(other) = part.others.first() {
        let lacks = if trained.empty.contains(other) { "no images in its own" } else { "none of that name" };
        bail!(
            "`{}` has a folder `{other}` with images, and `{}` has {lacks}: the classes are those that are trained on, {}; move it \
             away, or name the classes with `classes`",
            part.folder.display(),
            trained.folder.display(),
            listed(&trained.classes)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
