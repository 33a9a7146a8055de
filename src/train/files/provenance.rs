//! Whether samples are those that a checkpoint's weights were trained on.

use super::state::Extra;
use crate::config::Experiment;
use crate::data::Fingerprint;
use crate::train::setup::input::Samples;

/// What differs between the samples that a checkpoint's run had and these, in words; `None` if nothing does, or if the
/// checkpoint has no fingerprint.
pub fn difference(before: &Extra, samples: &Samples) -> Option<String> {
    let before: Fingerprint = before.data_fingerprint.as_ref()?.parse().ok()?;
    before.difference(&samples.fingerprint)
}

/// An addition to the message about a difference, where samples are held out. Which those are depends on how many samples there are.
pub fn held_out_anew(experiment: &Experiment) -> &'static str {
    match experiment.data.loading.validation_split {
        Some(_) => {
            "; with another number of samples `validation_split` holds others out, some of which were trained on, and figures on them are too good"
        }
        None => "",
    }
}

/// How `data.limit` and `data.limit_val` draw their samples: 0 took the first ones, 1 draws them by the seed. A number more where the same
/// configuration comes to other samples.
pub const DRAW: u32 = 1;

/// What is to be said of a run that goes on with samples that are drawn otherwise than those that it began with.
pub fn other_draw(before: &Extra, experiment: &Experiment) -> Option<String> {
    let loading = &experiment.data.loading;
    let keys = [("limit", loading.limit), ("limit_val", loading.limit_val)];
    let limits: Vec<String> = keys.iter().filter(|(_, n)| n.is_some()).map(|(key, _)| format!("`{key}`")).collect();
    (before.draw != DRAW && !limits.is_empty()).then(|| {
        format!(
            "the run was begun by another version, for which {} in `[data]` may have taken other samples; it goes on with those of this \
             version, and figures of before and after are not of the same samples",
            limits.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::setup::input;

    #[test]
    fn a_checkpoint_without_a_fingerprint_differs_in_nothing() {
        let text = "[data]\nsource = \"digits\"\n[model]\nlayers = [\"flatten\"]\n[loss]\ntype = \"cross_entropy\"\n\
                    [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";
        let loaded = crate::config::load_str("c.toml", text, &[]).unwrap_or_else(|failure| panic!("{failure}"));
        let samples = input::load(&loaded.experiment, &mut |_| ()).unwrap();
        let found = |fingerprint: Option<&str>| {
            difference(&Extra { data_fingerprint: fingerprint.map(String::from), ..Extra::default() }, &samples)
        };
        let own = samples.fingerprint.to_string();
        assert_eq!([found(None), found(Some("of a later version")), found(Some(&own))], [None, None, None]);
        let other = format!("{}{}", "0".repeat(32), &own[32..]);
        assert_eq!(found(Some(&other)).as_deref(), Some("the training inputs"));
    }
}
