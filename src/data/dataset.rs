//! A source's data: its samples for training and those for validation, with their looks and their identity.

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
    /// The samples that are validated on: the source's test set, unless it has both. May be empty.
    pub val: Split,
    /// The source's test set, where it is another than `val`.
    pub test: Option<Split>,
    /// A warning for the user that the run's files record: the data are not what was asked for.
    pub note: Option<String>,
    /// What the user should know of the files, such as those that are left out. The data are what was asked for all the same.
    pub notes: Vec<String>,
    /// Identifies these samples.
    pub fingerprint: Fingerprint,
}

impl Dataset {
    /// Puts a set together, and the splits' sizes into its description.
    pub fn new(mut spec: DataSpec, train: Split, val: Split) -> Self {
        (spec.train, spec.val) = (Some(train.len()), Some(val.len()));
        let fingerprint = Fingerprint::of(&train, &val);
        Dataset { spec, train, val, test: None, note: None, notes: Vec::new(), fingerprint }
    }

    /// The samples of a public set, from files that have been verified.
    pub(super) fn known(set: Known, mut spec: DataSpec, train: Split, val: Split) -> Self {
        (spec.train, spec.val) = (Some(train.len()), Some(val.len()));
        let fingerprint = Fingerprint::of_known(set).unwrap_or_else(|| Fingerprint::of(&train, &val));
        Dataset { spec, train, val, test: None, note: None, notes: Vec::new(), fingerprint }
    }
}
