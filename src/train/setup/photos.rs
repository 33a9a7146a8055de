//! Photos: the memory that decoding them takes, and `[data] cache`, which keeps them once they are decoded.

use super::input::{Samples, source, transforms};
use crate::config::Experiment;
use crate::config::language::sections::Cache as Written;
use crate::config::load::paths::shown;
use crate::data::{self, Cache, DataSpec, Footprint, Keep, Split, Survey, Taken, Transform, bytes_per_pixel};
use crate::files::caches;
use crate::terminal::human_bytes;
use anyhow::{Context, Result};
use std::sync::Arc;

/// Bytes of memory of a thread that decodes photos, beside the photo.
const WORKER: usize = 1 << 20;
/// Bytes of memory for what is known of a photo that is kept on a disk.
const KNOWN: usize = 128;

/// What is kept of photos, and what they take.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PhotoPlan {
    /// Bytes of memory for photos that are decoded at a time.
    pub decoding: usize,
    /// Bytes of memory for those that are kept.
    pub cache: usize,
    /// Those that are trained on and those that are validated on, if they are kept.
    pub kept: Vec<KeptPart>,
}

/// What is kept of a part of the photos.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptPart {
    /// `training` or `validation`.
    pub name: &'static str,
    /// The transforms that they are kept after.
    pub after: Vec<&'static str>,
    /// The first that is not kept, as it draws numbers.
    pub random: Option<&'static str>,
    /// What they take, if that is known.
    pub taken: Option<Taken>,
}

impl PhotoPlan {
    /// Of a training with its evaluations on data of that kind, or of an evaluation alone. There is nothing without photos.
    pub fn new(experiment: &Experiment, spec: &DataSpec, training: bool) -> PhotoPlan {
        let (loading, data) = (&experiment.data.loading, &experiment.data.source);
        if !data.has_photos() {
            return PhotoPlan::default();
        }
        let [train, val] = data::survey(&source(experiment).0).unwrap_or_default();
        // A part of those that are trained on may be held out.
        let val = if loading.validation_split.is_some() { train.clone() } else { val };
        let [train_bytes, val_bytes] = [(&train, true), (&val, false)].map(|(survey, train)| {
            match at_work(survey, &transforms(experiment, train)) {
                0 => 0,
                photo => photo.saturating_add(WORKER),
            }
        });
        // When an evaluation begins, the loader of the training still makes batches ahead.
        let decoding = match (training, loading.workers) {
            (true, 0) => train_bytes.max(val_bytes),
            (true, workers) => workers.saturating_mul(train_bytes.saturating_add(val_bytes)),
            (false, workers) => workers.max(1).saturating_mul(train_bytes.max(val_bytes)),
        };
        // What goes to a disk or comes from there is one more image.
        let decoding = if loading.cache == Written::Disk { decoding.saturating_mul(2) } else { decoding };
        if loading.cache == Written::None || !training {
            return PhotoPlan { decoding, ..PhotoPlan::default() };
        }
        let parts = [("training", train, spec.train, true), ("validation", val, spec.val, false)];
        let kept: Vec<KeptPart> = parts
            .into_iter()
            .filter(|(_, _, photos, _)| *photos != Some(0))
            .map(|(name, survey, photos, train)| part_of(name, &survey, photos, &transforms(experiment, train)))
            .collect();
        let limit = usize::try_from(loading.cache_size()).unwrap_or(usize::MAX);
        let most = |part: &KeptPart| part.taken.and_then(|taken| taken.most);
        let cache = match loading.cache {
            Written::Disk => KNOWN * (spec.train.unwrap_or(0) + spec.val.unwrap_or(0)),
            _ => kept.iter().map(most).sum::<Option<usize>>().map_or(limit, |all| all.min(limit)),
        };
        PhotoPlan { decoding, cache, kept }
    }

    /// The memory of samples with that of their photos.
    pub fn with(&self, samples: Footprint) -> Footprint {
        Footprint { decoding: self.decoding, cache: self.cache, ..samples }
    }
}

/// Bytes of memory that the photo takes which takes most, while it is decoded or transforms work on all of it.
fn at_work(survey: &Survey, transforms: &[Transform]) -> usize {
    let pixels = survey.sizes().map_or(0, |[.., [height, width]]| height.saturating_mul(width));
    survey.decoding.max(pixels.saturating_mul(bytes_per_pixel(transforms)))
}

fn part_of(name: &'static str, survey: &Survey, photos: Option<usize>, transforms: &[Transform]) -> KeptPart {
    let (first, rest) = transforms.split_at(data::fixed(transforms));
    KeptPart {
        name,
        after: first.iter().map(Transform::name).collect(),
        random: rest.first().map(Transform::name),
        taken: survey.kept(transforms, photos.unwrap_or(0)),
    }
}

/// What a cache is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// A training with its evaluations.
    Training,
    /// A few steps of one: what is kept is looked at, and nothing is added.
    Rehearsal,
    /// An evaluation. Samples are gone through once: what is in memory would never be looked at.
    Evaluation,
}

/// The cache that the configuration asks for.
fn of(experiment: &Experiment, what: Keeping) -> Result<Option<Arc<Cache>>> {
    let loading = &experiment.data.loading;
    if !experiment.data.source.has_photos() {
        return Ok(None);
    }
    let keep = match loading.cache {
        Written::None => return Ok(None),
        Written::Memory if what == Keeping::Evaluation => return Ok(None),
        Written::Memory => Keep::Memory,
        Written::Disk => {
            let folder = match &loading.cache_dir {
                Some(folder) => shown(folder),
                None => caches::folder()
                    .with_context(|| {
                        format!("there is no folder to keep photos in: {}; set `data.cache_dir`", caches::why_none())
                    })?
                    .join("photos"),
            };
            if what == Keeping::Rehearsal { Keep::ReadOnly(folder) } else { Keep::Disk(folder) }
        }
    };
    Ok(Some(Cache::new(keep, loading.cache_size())))
}

/// The name of the part of the source that a split looks into.
fn part(samples: &Samples, split: &Split) -> &'static str {
    let shares = |other: &Split| split.shares_memory_with(other);
    match () {
        () if shares(&samples.train) => "train",
        () if shares(&samples.val) => "val",
        () => "test",
    }
}

impl Samples {
    /// Has photos kept as they are decoded, for a training and its evaluations or a `what` that is a part of it, if the configuration
    /// says so.
    ///
    /// # Errors
    /// The folder for them cannot be used.
    pub fn keep_photos(&mut self, experiment: &Experiment, what: Keeping) -> Result<()> {
        let Some(cache) = of(experiment, what)? else { return Ok(()) };
        let [train, val] = [true, false].map(|train| transforms(experiment, train));
        self.train = self.train.clone().kept_in(&cache, part(self, &self.train), &train)?;
        self.val = self.val.clone().kept_in(&cache, part(self, &self.val), &val)?;
        self.cache = Some(cache);
        Ok(())
    }

    /// The same for the evaluation of one of the splits.
    ///
    /// # Errors
    /// As [`Samples::keep_photos`].
    pub fn keep_photos_of(&mut self, experiment: &Experiment, split: &Split) -> Result<Split> {
        let Some(cache) = of(experiment, Keeping::Evaluation)? else { return Ok(split.clone()) };
        let split = split.clone().kept_in(&cache, part(self, split), &transforms(experiment, false))?;
        self.cache = Some(cache);
        Ok(split)
    }
}

/// The message about a cache after the first epoch.
pub fn in_words(cache: &Cache) -> String {
    let kept = cache.kept();
    let photos = if kept.images == 1 { "1 photo is".to_owned() } else { format!("{} photos are", kept.images) };
    let size = |bytes: u64| human_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    match kept.full {
        false => format!("cache: {photos} kept, {}", size(kept.bytes)),
        true => format!(
            "cache: {photos} kept, {} of at most {}; the others are decoded in every epoch, unless `cache_size` is larger",
            size(kept.bytes),
            size(kept.limit)
        ),
    }
}
