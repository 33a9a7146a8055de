//! A source's data: its samples for training and those for validation, with what they look like and what tells them from others.

use super::field::DataSpec;
use super::fingerprint::Fingerprint;
use super::known::Known;
use super::split::Split;

/// A source's data, loaded.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// What the samples look like; counts are those of the two splits.
    pub spec: DataSpec,
    /// The training set.
    pub train: Split,
    /// The source's test set; may be empty.
    pub val: Split,
    /// Something that the user must be told, and that the run's files record: the data are not what was asked for.
    pub note: Option<String>,
    /// Tells these samples from any others.
    pub fingerprint: Fingerprint,
}

impl Dataset {
    /// Puts a set together, and the splits' sizes into its description.
    pub fn new(mut spec: DataSpec, train: Split, val: Split) -> Self {
        (spec.train, spec.val) = (Some(train.len()), Some(val.len()));
        let fingerprint = Fingerprint::of(&train, &val);
        Dataset { spec, train, val, note: None, fingerprint }
    }

    /// The samples of a public set, from files that have been verified.
    pub(super) fn known(set: Known, mut spec: DataSpec, train: Split, val: Split) -> Self {
        (spec.train, spec.val) = (Some(train.len()), Some(val.len()));
        Dataset { spec, train, val, note: None, fingerprint: Fingerprint::of_known(set) }
    }
}
