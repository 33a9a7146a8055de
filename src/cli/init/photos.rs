//! A configuration for a folder of photos.

use super::architecture::{Takes, expect, takes, weights};
use super::numbers::are_amounts;
use super::writing::{Writing, quoted};
use super::{Made, Wanted, described, draft, named, run_name};
use crate::api::failure::Failure;
use crate::data::image_folder::class_counts;
use crate::data::image_list::{self, Columns, Numbers, Parted, is_list, is_list_of_photos, parted};
use crate::data::{self, Source, images_below, unread_in_words};
use crate::terminal::{say, thousands};
use crate::train::setup::input;
use std::path::Path;

/// Classes that the comment lists.
const LISTED: usize = 20;
/// One class has so many times as many photos as another: that is worth a remark.
const UNEVEN: usize = 4;
/// Sides that photos are brought to; the largest that the usual photo has.
const SIDES: [usize; 6] = [224, 160, 128, 96, 64, 32];

/// Folders of photos that have masks, and folders of those.
const IMAGES: [&str; 5] = ["images", "image", "imgs", "img", "photos"];
const MASKS: [&str; 6] = ["masks", "mask", "labels", "annotations", "segmentation", "segmentations"];

/// The sources of photos.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// A folder for each class.
    Folders,
    /// A list with the names of photos and their classes.
    List,
    /// One with several classes for each photo.
    Labels {
        /// What stands between them.
        separator: &'static str,
    },
    /// One with numbers in the place of classes.
    Numbers,
}

/// What was found.
struct Found {
    of: Of,
    train: usize,
    val: usize,
    /// Photos were held out of those to train on.
    split: bool,
    classes: Vec<String>,
    counts: Vec<[usize; 2]>,
    numbers: Option<Numbers>,
    sizes: Option<[[usize; 2]; 3]>,
}

impl Of {
    /// The source, the key of its path, and the loss.
    fn words(self) -> [&'static str; 3] {
        match self {
            Of::Folders => ["image_folder", "root", "cross_entropy"],
            Of::List => ["image_list", "path", "cross_entropy"],
            Of::Labels { .. } => ["image_list", "path", "bce_with_logits"],
            Of::Numbers => ["image_list", "path", "mse"],
        }
    }

    fn section(self, (path, column): (&str, Option<&str>), split: bool) -> String {
        let [source, key, _] = self.words();
        let split = if split { "validation_split = 0.2\n" } else { "" };
        let column = column.map_or(String::new(), |column| format!("label_column = {}\n", quoted(column)));
        let kind = match self {
            Of::Folders | Of::List => String::new(),
            Of::Labels { separator } => {
                format!("label_kind = \"classes\"\nlabel_separator = {}\n", quoted(separator))
            }
            Of::Numbers => "label_kind = \"number\"\n".to_owned(),
        };
        format!("source = \"{source}\"\n{key} = {}\n{column}{kind}{split}", quoted(path))
    }

    /// What there is at a path, with the labels in this column, if one is named.
    fn look(self, path: (&str, Option<&str>)) -> Result<Found, Failure> {
        let [_, _, loss] = self.words();
        let rest = format!(
            "[model]\nuse = \"resnet18\"\n[loss]\ntype = \"{loss}\"\n[optimizer]\ntype = \"adamw\"\n[train]\nepochs = 1\n"
        );
        let drafted = |split| draft(&format!("[data]\n{}{rest}", self.section(path, split)));
        let mut experiment = drafted(false)?;
        let mut spec = described(&experiment)?;
        let split = spec.val == Some(0);
        if split {
            experiment = drafted(true)?;
            spec = described(&experiment)?;
        }
        let source = input::source(&experiment).0;
        let counts = match &source {
            Source::ImageFolder(options) => class_counts(options).map_err(Failure::Other)?,
            _ => Vec::new(),
        };
        let numbers = match &source {
            Source::ImageList(options) if self == Of::Numbers => {
                Some(image_list::numbers(options).map_err(Failure::Other)?)
            }
            _ => None,
        };
        let sizes = data::survey(&source).and_then(|[train, _]| train.sizes());
        let classes = spec.class_names().map(<[String]>::to_vec).unwrap_or_default();
        Ok(Found {
            of: self,
            train: spec.train.unwrap_or(0),
            val: spec.val.unwrap_or(0),
            split,
            classes,
            counts,
            numbers,
            sizes,
        })
    }
}

/// A configuration that learns the classes of photos, or their numbers.
pub fn configuration(wanted: &Wanted) -> Result<Made, Failure> {
    expect(wanted.model, |takes| matches!(takes, Takes::Images { .. }), "photos with a class each")?;
    let path = wanted.source.to_str().unwrap_or_default();
    if is_list(wanted.source) {
        return Ok(written(wanted, &listed(wanted, path)?));
    }
    let found = Of::Folders.look((path, None)).map_err(|error| flat(wanted.source, error))?;
    if let Some(note) = unread_in_words(wanted.source).map_err(Failure::Other)? {
        say(&format!("note: {note}"));
    }
    match &found.classes[..] {
        [only] => Err(one_class(wanted.source, only)),
        [a, b] if is_one_of(a, &IMAGES) && is_one_of(b, &MASKS) || is_one_of(a, &MASKS) && is_one_of(b, &IMAGES) => {
            Err(masks_beside(wanted.source, a, b))
        }
        _ => Ok(written(wanted, &found)),
    }
}

/// What a list of photos has.
fn listed(wanted: &Wanted, path: &str) -> Result<Found, Failure> {
    let at = (path, wanted.target);
    let columns = Columns::of(wanted.source);
    let own = columns.as_ref().filter(|_| wanted.target.is_none());
    if let Some((columns, masks)) = own.and_then(|columns| Some((columns, columns.masks()?))) {
        return Err(Failure::Usage(format!(
            "the labels in `{}` are masks, in its column `{}`, and what the values in masks are called stands nowhere\nhelp: `runner docs \
             mask_values` says how a configuration for masks is written; if the column has labels, `--target {}` says so",
            columns.list.display(),
            named(masks),
            named(masks)
        )));
    }
    if wanted.classes {
        return Of::List.look(at);
    }
    let amounts = Of::Numbers
        .look(at)
        .ok()
        .filter(|found| found.numbers.is_some_and(|of| are_amounts(of.whole, of.distinct, found.train + found.val)));
    if let Some(found) = amounts {
        return Ok(found);
    }
    match Of::List.look(at) {
        Ok(found) => match parted(&found.classes) {
            Some(Parted { separator, .. }) => Of::Labels { separator }.look(at),
            None => Ok(found),
        },
        // JSON has lists of classes.
        Err(error) => Of::Labels { separator: "|" }.look(at).map_err(|_| match own {
            Some(columns) if !columns.has_labels() => Failure::Usage(format!(
                "`{}` has no column `label` or `class`; its columns are {}\nhelp: `--target COLUMN` names that of the labels",
                columns.list.display(),
                columns.names.iter().map(|name| format!("`{}`", named(name))).collect::<Vec<_>>().join(", ")
            )),
            _ => error,
        }),
    }
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// The error about two folders that are no classes: the photos, and their masks.
fn masks_beside(source: &Path, a: &str, b: &str) -> Failure {
    let shown = source.display();
    Failure::Usage(format!(
        "the folders in `{shown}` are `{}` and `{}`: by their names they have photos and their masks, and are no classes\nhelp: masks are read \
         by a list, `{shown}/metadata.csv`, with the columns `file_name` and `mask`; `runner docs mask_values` says how a configuration for \
         masks is written",
        named(a),
        named(b)
    ))
}

/// The error about a folder in which photos lie side by side: a list of another name may lie there, too.
fn flat(source: &Path, error: Failure) -> Failure {
    let lists = std::fs::read_dir(source).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut lists: Vec<_> = lists.filter(|path| path.is_file() && is_list_of_photos(path, None)).collect();
    lists.sort_unstable();
    match (lists.first(), error) {
        (Some(list), Failure::Usage(message)) => {
            Failure::Usage(format!("{message}\nhelp: a list of them is there: `runner init {}`", list.display()))
        }
        (None, Failure::Usage(message)) if message.starts_with("there are no folders") => Failure::Usage(format!(
            "{message}\nhelp: labels may stand in a list, `{}/metadata.csv`, with the columns `file_name` and `label`",
            source.display()
        )),
        (_, error) => error,
    }
}

/// The error about a folder with photos of one class alone: the folders of the classes may lie deeper in it.
fn one_class(source: &Path, only: &str) -> Failure {
    let images = images_below(source).unwrap_or_default();
    let mut folders = images.iter().filter_map(|image| image.parent());
    let mut common = folders.next().unwrap_or(source);
    for folder in folders {
        common = common.ancestors().find(|above| folder.starts_with(above)).unwrap_or(source);
    }
    let between = common.ancestors().take_while(|above| *above != source);
    let listed = between.filter(|folder| is_list(folder)).last();
    let deeper = images.iter().any(|image| image.parent() != Some(common)) && common != source;
    let (shown, only) = (source.display(), named(only));
    let help = match listed.or(deeper.then_some(common)) {
        Some(folder) => format!("give the folder in it that has them: `runner init {}`", folder.display()),
        None => format!("photos are expected in a folder for each class: `{shown}/CLASS/*.jpg`"),
    };
    Failure::Usage(format!(
        "the photos in `{shown}` are all in one folder, `{only}`, and a model learns to tell several classes apart\nhelp: {help}"
    ))
}

fn written(wanted: &Wanted, found: &Found) -> Made {
    let file = &wanted.file;
    let (train, val) = (thousands(found.train as u64), thousands(found.val as u64));
    let usual = found.sizes.map_or(224, |[_, median, _]| median[0].min(median[1]));
    let largest = SIDES.into_iter().find(|side| *side <= usual).unwrap_or(32);
    let model = wanted.model.unwrap_or(if largest <= 64 { "resnet18_cifar" } else { "resnet18" });
    let side = match takes(model) {
        Takes::Images { side, only: true } if model != "resnet18_cifar" => side,
        // From there on all of them have something left behind their last pooling.
        _ if model != "resnet18_cifar" => largest.max(64),
        _ => largest.min(64),
    };
    let mut out = Writing::default();
    let source =
        wanted.source.file_name().map_or_else(|| "this folder".to_owned(), |name| named(&name.to_string_lossy()));
    let labels = match found.of {
        Of::Labels { separator } => Some(separator),
        _ => None,
    };
    let task = match &found.numbers {
        Some(Numbers { width: 1, .. }) => "learns the number of a photo".to_owned(),
        Some(Numbers { width, .. }) => format!("learns the {width} numbers of a photo"),
        None if labels.is_some() => {
            format!("finds which of {} classes a photo has, of which it may have several", found.classes.len())
        }
        None => format!("finds which of {} classes a photo is of", found.classes.len()),
    };
    out.comment(&format!("It {task}, from those in {source}: written by `runner init`."));
    let held = match (found.split, found.of) {
        (false, _) => "",
        (true, Of::Folders) => ", drawn from the same folders",
        (true, Of::List | Of::Labels { .. } | Of::Numbers) => ", drawn from the same list",
    };
    out.comment(&format!("Found: {train} photos to train on, {val} to validate on{held}."));
    if let Some([least, median, most]) = found.sizes {
        let size = |[h, w]: [usize; 2]| format!("{h}×{w}");
        out.comment(&match least == most {
            true => format!("Their size: {} (height × width).", size(least)),
            false => {
                format!("Their sizes: {} to {}, usually {} (height × width).", size(least), size(most), size(median))
            }
        });
    }
    for (class, [train, val]) in found.classes.iter().zip(&found.counts).take(LISTED) {
        let val = if found.split { String::new() } else { format!(" and {}", thousands(*val as u64)) };
        out.comment(&format!("  {:<20} {:>7}{val}", named(class), thousands(*train as u64)));
    }
    if found.classes.len() > LISTED {
        out.comment(&format!("  … and {} more: `runner data show {file}`", found.classes.len() - LISTED));
    }
    out.comment("What to change: the size of the photos (smaller is quicker), the random changes in `train_transforms`, the architecture");
    out.comment(&format!(
        "(`runner models`), the learning rate. `runner data show {file} --out sheet.png` shows what the model is given;"
    ));
    out.comment(&format!(
        "`runner predict runs/{} PHOTO.jpg` {} of a photo, once it is trained.",
        run_name(file),
        match (&found.numbers, labels) {
            (Some(_), _) => "says the number",
            (None, Some(_)) => "says how probable each class",
            (None, None) => "names the class",
        }
    ));
    out.gap().key("seed", "1", "");
    out.section("data");
    let [name, key, loss] = found.of.words();
    out.key("source", &quoted(name), "");
    out.key(key, &quoted(&wanted.written), "from the folder of this file");
    if let Some(column) = wanted.target {
        out.key("label_column", &quoted(column), "");
    }
    if let Some(separator) = labels {
        out.key("label_kind", "\"classes\"", "each photo has any number of them");
        if separator != "|" {
            out.key("label_separator", &quoted(separator), "what stands between them");
        }
    }
    if let Some(Numbers { whole, distinct, .. }) = &found.numbers {
        let what = if *whole { "whole numbers" } else { "numbers" };
        out.key(
            "label_kind",
            "\"number\"",
            &format!("{distinct} different {what}; \"class\", with the loss \"cross_entropy\", if each is the name of a class"),
        );
    }
    if found.split {
        let how = match found.of {
            Of::Folders => "photos that are held out; or move some to `val/CLASS/`, beside `train/CLASS/`",
            Of::List | Of::Labels { .. } | Of::Numbers => {
                "photos that are held out; or say in a column `split` which those are"
            }
        };
        out.key("validation_split", "0.2", how);
    }
    out.key("batch_size", &batch(found.train).to_string(), "larger is quicker, as far as the memory goes");
    out.comment("Random crops and mirror images, each time others: leave out the flip where left and right matter, as with letters.");
    out.key(
        "train_transforms",
        &format!(
            "[{{ type = \"random_resized_crop\", size = {side}, scale = [0.5, 1.0] }}, \"random_horizontal_flip\"]"
        ),
        "",
    );
    let whole = if side > 64 { side * 8 / 7 } else { side };
    out.key(
        "val_transforms",
        &format!("[{{ type = \"resize\", size = {whole} }}, {{ type = \"center_crop\", size = {side} }}]"),
        "",
    );
    out.key("transforms", "[{ type = \"normalize\", mean = \"imagenet\", std = \"imagenet\" }]", "");
    out.maybe("cache", "\"memory\"", "keep decoded photos, where decoding is what takes the time");
    out.section("model");
    out.key("use", &format!("\"{model}\""), &format!("`runner models --show {model}`"));
    if !matches!(takes(model), Takes::Images { side: 32, .. }) {
        out.comment("A few hundred photos want weights that were trained on many.");
    }
    weights(&mut out, model);
    if let Some(Numbers { width, .. }) = &found.numbers {
        out.key("with", &format!("{{ num_classes = {width} }}"), "the outputs, one for each number");
    }
    let remark = match (&found.numbers, labels) {
        (Some(_), _) => "\"huber\" or \"l1\" where some numbers are far from all others",
        (None, Some(_)) => "yes or no for each class",
        (None, None) => "",
    };
    out.section("loss").key("type", &quoted(loss), remark);
    let totals: Vec<usize> = found.counts.iter().map(|[train, _]| *train).collect();
    if let (Some(most), Some(least)) = (totals.iter().max(), totals.iter().min())
        && *most >= UNEVEN * (*least).max(1)
    {
        out.maybe(
            "weight",
            "\"balanced\"",
            "rare classes count as much as frequent ones: here one has many more photos than another",
        );
    }
    out.section("optimizer").key("type", "\"adamw\"", "");
    out.key("lr", "5e-4", "the first thing to change: `runner lr-find` looks for one").key("weight_decay", "0.05", "");
    out.section("schedule").key("type", "\"cosine\"", "").key("warmup_epochs", "1", "");
    out.section("train").key("epochs", "20", "");
    let monitor = if found.numbers.is_some() || labels.is_some() { "val_loss" } else { "val_accuracy" };
    out.section("checkpoint").key("monitor", &quoted(monitor), "which epoch is the best");
    let what = format!("it {task}, with {train} photos to train on");
    Made { text: out.text(), what }
}

/// Photos of a batch: a tenth of them, so that an epoch has some updates. The last batch must not be one photo, of which batch
/// normalisation has no statistics.
fn batch(train: usize) -> usize {
    let most = (train / 10).clamp(4, 32);
    let batch = 1 << most.ilog2();
    if train < 2 { batch } else { (batch..).find(|size| train % size != 1).unwrap_or(batch) }
}

#[cfg(test)]
mod tests {
    use super::batch;

    #[test]
    fn no_batch_is_one_photo() {
        assert_eq!([0, 39, 320, 10_000].map(batch), [4, 4, 32, 32]);
        assert!((2..2000).all(|train| train % batch(train) != 1), "a last batch of one photo");
    }
}
