//! The samples of a run, and what is found on them.

use super::super::failure::{Failure, refused};
use super::super::samples;
use crate::config::Loaded;
use crate::terminal::figure;
use crate::train::run::report::Reporter;
use crate::train::setup::balance::{Balanced, balance};
use crate::train::setup::input::{Samples, Take};

/// Puts numbers in the place of the loss's `weight = "balanced"`; whether it was there.
///
/// # Errors
/// As [`balanced`].
pub fn balance_classes(loaded: &mut Loaded, samples: &Samples, reporter: &Reporter) -> Result<bool, Failure> {
    let balanced = balanced(loaded, samples)?;
    for Balanced { head, weights } in &balanced {
        let extreme = |of: fn(f64, f64) -> f64| weights.iter().copied().reduce(of).unwrap_or(1.0);
        let (least, most) = (extreme(f64::min), extreme(f64::max));
        let of = head.as_ref().map_or(String::new(), |head| format!(" of the head `{head}`"));
        reporter.info(&format!(
            "weight = \"balanced\": the classes{of} weigh from {} to {}",
            figure(least, 3, 9),
            figure(most, 3, 9)
        ));
    }
    Ok(!balanced.is_empty())
}

/// The weights of classes that are put in the place of `weight = "balanced"`, wherever it is.
///
/// # Errors
/// The classes cannot be counted.
pub fn balanced(loaded: &mut Loaded, samples: &Samples) -> Result<Vec<Balanced>, Failure> {
    let balanced = balance(&mut loaded.experiment, &samples.train, &samples.spec);
    Ok(balanced.ok_or_else(|| anyhow::anyhow!("the classes cannot be counted: `weight` must be numbers"))?)
}

/// Reads them.
///
/// # Errors
/// They are not there, or not those that the run was trained on.
pub fn load_samples(loaded: &Loaded, take: &Take, resumed: bool, reporter: &Reporter) -> Result<Samples, Failure> {
    let experiment = &loaded.experiment;
    let samples = match resumed {
        false => samples::load(experiment, take).map_err(|error| refused(loaded, error))?,
        true => samples::load(experiment, take)
            .map_err(|e| samples::missing(e, experiment, "the run goes on with the data that it was begun with"))?,
    };
    if let Some(note) = &samples.note {
        reporter.warn(note);
    }
    if resumed && samples.note.is_some() && *take != Take::Digits {
        return Err(Failure::Other(anyhow::anyhow!(
            "the run was trained on other samples than there are now: the data asked for was there then, and is not now"
        )));
    }
    let naive = experiment.forecasts_numbers().then(|| samples.val.naive_errors()).flatten();
    if let Some(naive) = naive {
        reporter.info(&format!(
            "the naive forecast, the last value of the window, has mae {} and rmse {} on what is validated on",
            figure(naive.mae(), 5, 9),
            figure(naive.rmse(), 5, 9)
        ));
    }
    Ok(samples)
}
