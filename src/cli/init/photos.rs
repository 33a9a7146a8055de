//! A configuration for a folder of photos.

use super::architecture::{Takes, expect, takes, weights};
use super::writing::{Writing, quoted};
use super::{Made, Wanted, described, draft, named, run_name};
use crate::api::failure::Failure;
use crate::data::image_folder::class_counts;
use crate::data::image_list::has_list;
use crate::data::{self, Source};
use crate::terminal::thousands;
use crate::train::setup::input;

/// Classes that the comment lists.
const LISTED: usize = 20;
/// One class has so many times as many photos as another: that is worth a remark.
const UNEVEN: usize = 4;
/// Sides that photos are brought to; the largest that the usual photo has.
const SIDES: [usize; 6] = [224, 160, 128, 96, 64, 32];

/// The sources of photos.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// A folder for each class.
    Folders,
    /// A list with the names of photos and their classes.
    List,
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
    sizes: Option<[[usize; 2]; 3]>,
}

impl Of {
    fn section(self, path: &str, split: bool) -> String {
        let (source, key) = match self {
            Of::Folders => ("image_folder", "root"),
            Of::List => ("image_list", "path"),
        };
        let split = if split { "validation_split = 0.2\n" } else { "" };
        format!("source = \"{source}\"\n{key} = {}\n{split}", quoted(path))
    }

    fn look(self, path: &str) -> Result<Found, Failure> {
        let rest = "[model]\nuse = \"resnet18\"\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adamw\"\n[train]\nepochs = 1\n";
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
        let sizes = data::survey(&source).and_then(|[train, _]| train.sizes());
        let classes = spec.class_names().map(<[String]>::to_vec).unwrap_or_default();
        Ok(Found {
            of: self,
            train: spec.train.unwrap_or(0),
            val: spec.val.unwrap_or(0),
            split,
            classes,
            counts,
            sizes,
        })
    }
}

/// A configuration that learns the classes of photos.
pub fn configuration(wanted: &Wanted) -> Result<Made, Failure> {
    expect(wanted.model, |takes| matches!(takes, Takes::Images { .. }), "photos with a class each")?;
    let of = if has_list(wanted.source) { Of::List } else { Of::Folders };
    let found = of.look(wanted.source.to_str().unwrap_or_default())?;
    Ok(written(wanted, &found))
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
    out.comment(&format!(
        "It finds which of {} classes a photo is of, from those in {source}: written by `runner init`.",
        found.classes.len()
    ));
    let held = if found.split { ", drawn from the same folders" } else { "" };
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
        "`runner predict runs/{} PHOTO.jpg` names the class of a photo, once it is trained.",
        run_name(file)
    ));
    out.gap().key("seed", "1", "");
    out.section("data");
    let key = if found.of == Of::Folders { "root" } else { "path" };
    out.key("source", if found.of == Of::Folders { "\"image_folder\"" } else { "\"image_list\"" }, "");
    out.key(key, &quoted(&wanted.written), "from the folder of this file");
    if found.split {
        out.key(
            "validation_split",
            "0.2",
            "photos that are held out; or move some to `val/CLASS/`, beside `train/CLASS/`",
        );
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
    out.section("loss").key("type", "\"cross_entropy\"", "");
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
    out.section("checkpoint").key("monitor", "\"val_accuracy\"", "which epoch is the best");
    let what =
        format!("it finds which of {} classes a photo is of, with {train} photos to train on", found.classes.len());
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
