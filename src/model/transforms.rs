//! The transforms of `[data]`: which samples each of them changes, and what it is for the loader.

use crate::config::Experiment;
use crate::config::language::sections as cfg;
use crate::data::Transform;

/// Those of training samples (`train`) or of all others, in order, with their keys in the configuration.
pub(super) fn keyed(experiment: &Experiment, train: bool) -> impl Iterator<Item = (String, &cfg::Transform)> {
    let d = &experiment.data;
    let first = if train { d.train_transforms.as_slice() } else { &[] };
    let keyed = |section: &'static str| move |(i, t)| (format!("data.{section}.{i}"), t);
    let first = first.iter().enumerate().map(keyed("train_transforms"));
    first.chain(d.transforms.iter().enumerate().map(keyed("transforms")))
}

/// What the loader does; `None` for what the graph does.
pub(super) fn of_loader(transform: &cfg::Transform) -> Option<Transform> {
    match transform {
        cfg::Transform::RandomCrop(c) => {
            let [h, w] = c.padding.0;
            Some(Transform::RandomCrop { size: c.size.0, padding: [w, h, w, h] })
        }
        cfg::Transform::RandomHorizontalFlip(f) => Some(Transform::RandomHorizontalFlip { p: f.p }),
        cfg::Transform::Normalize(_) => None,
    }
}

/// The transforms that the loader applies to training samples (`train`) or to all others.
pub fn transforms(experiment: &Experiment, train: bool) -> Vec<Transform> {
    keyed(experiment, train).filter_map(|(_, transform)| of_loader(transform)).collect()
}
