//! Whether samples are those that a checkpoint's weights were trained on.

use super::input::Samples;
use super::state::Extra;
use crate::data::Fingerprint;

/// What differs between the samples that a checkpoint's run had and these, in words; `None` if nothing does, or if the
/// checkpoint does not tell.
pub fn difference(before: &Extra, samples: &Samples) -> Option<String> {
    let before: Fingerprint = before.data_fingerprint.as_ref()?.parse().ok()?;
    before.difference(&samples.fingerprint)
}
