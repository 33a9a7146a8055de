//! What is watched of the figures of evaluations: the best one, early stopping, a learning rate that drops.

use super::Run;
use crate::checkpoint::Best;
use crate::config::Experiment;
use crate::config::language::sections::{EarlyStopping, Monitor};
use crate::graph::op::Figure;
use crate::train::files::state::{Extra, RunState};
use crate::train::setup::figures::Figures;

impl Run<'_> {
    /// The monitored figure of an epoch; `None` if it was not evaluated.
    pub(super) fn figure(monitor: &Monitor, train: Option<&Figures>, val: Option<&Figures>) -> Option<f64> {
        Self::figures_with(monitor, train, val)?.get(monitor.figure())
    }

    /// The figures that the monitored one is among: those of the main target, or of a head.
    fn figures_with<'f>(
        monitor: &Monitor,
        train: Option<&'f Figures>,
        val: Option<&'f Figures>,
    ) -> Option<&'f Figures> {
        let all = if monitor.of_validation() { val } else { train }?;
        match monitor {
            Monitor::Model(_) => Some(all),
            Monitor::Head(of) => all.of_head(&of.head),
        }
    }

    pub(super) fn note_best(&mut self, train: Option<&Figures>, val: Option<&Figures>) -> bool {
        let monitor = self.experiment.checkpoint.monitor();
        let Some(value) = Self::figure(monitor, train, val).filter(|v| v.is_finite()) else { return false };
        let of = Self::figures_with(monitor, train, val);
        let loss = of.and_then(|figures| figures.get(Figure::Loss)).filter(|loss| loss.is_finite());
        let extra = &mut self.state.extra;
        // The run goes on with another monitor: the value of the one before is no match for it.
        if self.state.best.as_ref().is_some_and(|best| best.monitor != monitor.name()) {
            (self.state.best, extra.best_loss, extra.best_from) = (None, None, self.state.step);
        }
        let better = is_best(monitor, self.state.best.as_ref(), extra.best_loss, (value, loss));
        if better {
            self.state.best = Some(Best { monitor: monitor.name().to_string(), value });
            extra.best_loss = loss;
        }
        better
    }

    pub(super) fn out_of_patience(&mut self, train: Option<&Figures>, val: Option<&Figures>) -> bool {
        let Some(early) = &self.experiment.train.early_stopping else { return false };
        let Some(value) = Self::figure(&early.monitor, train, val) else { return false };
        wait(early, &mut self.state.extra, value)
    }

    /// What the drops so far multiply the learning rate with; 1 where the schedule is, or has become, another one.
    pub(super) fn plateau_factor(&self) -> f64 {
        if self.schedule.plateau.is_some() { self.state.extra.plateau.factor } else { 1.0 }
    }

    /// Lets the learning rate drop if its figure has not improved for long enough; then what is to be said of it.
    pub(super) fn note_plateau(&mut self, train: Option<&Figures>, val: Option<&Figures>) -> Option<String> {
        let rule = self.schedule.plateau.as_ref()?;
        let value = Self::figure(&rule.monitor, train, val)?;
        let state = &mut self.state.extra.plateau;
        state.note(rule, value, self.schedule.base).then(|| {
            // As an `f32`, it is shown with fewer digits.
            let rate = (self.schedule.base * state.factor) as f32;
            let at = match self.experiment.train.counts_steps() {
                true => format!("step {}", self.state.step),
                false => format!("epoch {}", self.state.epoch + 1),
            };
            format!("{at}: `{}` no longer improves: the learning rate is {rate} from here on", rule.monitor.name())
        })
    }
}

/// Whether early stopping has ended a run already.
pub fn stopped_early(experiment: &Experiment, state: &RunState) -> bool {
    let (early, extra) = (experiment.train.early_stopping.as_ref(), &state.extra);
    let at_evaluation = state.batch == 0 || extra.evaluated == state.step;
    at_evaluation && early.is_some_and(|e| extra.early_waited >= e.patience)
}

/// Takes the figure of a validation into what early stopping knows; whether its patience is at its end.
fn wait(early: &EarlyStopping, extra: &mut Extra, value: f64) -> bool {
    let better = extra.early_best.is_none_or(|best| improves(&early.monitor, value, best, early.min_delta));
    if value.is_finite() && better {
        extra.early_best = Some(value);
        extra.early_waited = 0;
    } else {
        extra.early_waited += 1;
    }
    extra.early_waited >= early.patience
}

/// Whether a figure is better than the best so far, which came with `best_loss`: of several that are the same, the one with the least loss is, and the first
/// of those. An accuracy of few samples is often the same for two models, while their losses differ.
fn is_best(monitor: &Monitor, best: Option<&Best>, best_loss: Option<f64>, (value, loss): (f64, Option<f64>)) -> bool {
    let Some(best) = best else { return true };
    let less = loss.zip(best_loss).is_some_and(|(loss, least)| loss < least);
    improves(monitor, value, best.value, 0.0) || value == best.value && less
}

fn improves(monitor: &Monitor, new: f64, old: f64, min_delta: f64) -> bool {
    if monitor.higher_is_better() { new > old + min_delta } else { new < old - min_delta }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::language::sections::Metric;

    /// After each of the figures, which are binary fractions so that their differences are exact: the best one, how many have been waited
    /// for, and whether that is enough.
    fn waits(monitor: Metric, min_delta: f64, figures: &[f64]) -> Vec<(f64, usize, bool)> {
        let early = EarlyStopping { monitor: monitor.into(), patience: 2, min_delta };
        let mut extra = Extra::default();
        let waits = figures.iter().map(|value| {
            let ends = wait(&early, &mut extra, *value);
            (extra.early_best.unwrap_or(f64::NAN), extra.early_waited, ends)
        });
        waits.collect()
    }

    #[test]
    fn an_improvement_is_larger_than_min_delta() {
        let below = 0.75f64.next_down();
        let falling = waits(Metric::ValLoss, 0.25, &[1.0, 0.75, below, 0.625]);
        assert_eq!(falling, [(1.0, 0, false), (1.0, 1, false), (below, 0, false), (below, 1, false)]);
        let above = 0.75f64.next_up();
        let rising = waits(Metric::ValAccuracy, 0.25, &[0.5, 0.75, above, 0.875]);
        assert_eq!(rising, [(0.5, 0, false), (0.5, 1, false), (above, 0, false), (above, 1, false)]);
        // Many small steps are one large one: they are measured from the last that counted.
        let slow = waits(Metric::ValLoss, 0.25, &[1.0, 0.875, 0.625]);
        assert_eq!(slow[2], (0.625, 0, false));
    }

    #[test]
    fn without_min_delta_any_improvement_counts_and_the_same_is_none() {
        let (less, more) = (0.5f64.next_down(), 0.5f64.next_up());
        assert_eq!(
            waits(Metric::ValLoss, 0.0, &[0.5, 0.5, less]),
            [(0.5, 0, false), (0.5, 1, false), (less, 0, false)]
        );
        assert_eq!(waits(Metric::ValLoss, 0.0, &[0.5, more, more]), [(0.5, 0, false), (0.5, 1, false), (0.5, 2, true)]);
        assert_eq!(waits(Metric::ValAccuracy, 0.0, &[0.5, more]), [(0.5, 0, false), (more, 0, false)]);
        assert_eq!(waits(Metric::ValAccuracy, 0.0, &[0.5, less]), [(0.5, 0, false), (0.5, 1, false)]);
    }

    #[test]
    fn of_several_best_the_one_with_the_least_loss_is_kept() {
        for (metric, better, worse) in [(Metric::ValAccuracy, 0.75, 0.25), (Metric::ValLoss, 0.25, 0.75)] {
            let monitor = &Monitor::from(metric);
            let best = Best { monitor: monitor.name().to_owned(), value: 0.5 };
            let is_best_with = |value, loss| is_best(monitor, Some(&best), Some(0.5), (value, loss));
            assert_eq!([0.5, better, worse].map(|value| is_best_with(value, Some(0.5))), [false, true, false]);
            assert_eq!([Some(0.25), Some(0.75), None].map(|loss| is_best_with(0.5, loss)), [true, false, false]);
            assert!(!is_best_with(worse, Some(0.25)) && is_best_with(better, Some(0.75)));
            // Of an older checkpoint, which does not know its loss.
            assert!(!is_best(monitor, Some(&best), None, (0.5, Some(0.25))));
            assert!(is_best(monitor, None, None, (0.5, None)));
        }
    }

    /// A figure that is no number is none that others are held to.
    #[test]
    fn what_is_not_finite_is_waited_for() {
        let waits = waits(Metric::ValLoss, 0.0, &[f64::NAN, 1.0, f64::NEG_INFINITY, f64::NAN]);
        assert!(waits[0].0.is_nan() && waits[0].1 == 1);
        assert_eq!(waits[1..], [(1.0, 0, false), (1.0, 1, false), (1.0, 2, true)]);
    }
}
