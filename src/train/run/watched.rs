//! What is watched of the figures of evaluations: the best one, early stopping, a learning rate that drops.

use super::Run;
use crate::checkpoint::Best;
use crate::config::language::sections::Metric;
use crate::train::setup::figures::Figures;

impl Run<'_> {
    /// The monitored figure of an epoch; `None` if it was not evaluated.
    pub(super) fn figure(metric: Metric, train: Option<&Figures>, val: Option<&Figures>) -> Option<f64> {
        if metric.of_validation() { val } else { train }?.get(metric.figure())
    }

    pub(super) fn note_best(&mut self, train: Option<&Figures>, val: Option<&Figures>) -> bool {
        let monitor = self.experiment.checkpoint.monitor();
        let Some(value) = Self::figure(monitor, train, val).filter(|v| v.is_finite()) else { return false };
        let better = self.state.best.as_ref().is_none_or(|b| improves(monitor, value, b.value, 0.0));
        if better {
            self.state.best = Some(Best { monitor: monitor.name().to_string(), value });
        }
        better
    }

    pub(super) fn out_of_patience(&mut self, train: Option<&Figures>, val: Option<&Figures>) -> bool {
        let Some(early) = &self.experiment.train.early_stopping else { return false };
        let Some(value) = Self::figure(early.monitor, train, val) else { return false };
        let extra = &mut self.state.extra;
        let better = extra.early_best.is_none_or(|b| improves(early.monitor, value, b, early.min_delta));
        if value.is_finite() && better {
            extra.early_best = Some(value);
            extra.early_waited = 0;
        } else {
            extra.early_waited += 1;
        }
        extra.early_waited >= early.patience
    }

    /// What the drops so far multiply the learning rate with; 1 where the schedule is, or has become, another one.
    pub(super) fn plateau_factor(&self) -> f64 {
        if self.schedule.plateau.is_some() { self.state.extra.plateau.factor } else { 1.0 }
    }

    /// Lets the learning rate drop if its figure has not improved for long enough; then what is to be said of it.
    pub(super) fn note_plateau(&mut self, train: Option<&Figures>, val: Option<&Figures>) -> Option<String> {
        let rule = self.schedule.plateau.as_ref()?;
        let value = Self::figure(rule.monitor, train, val)?;
        let state = &mut self.state.extra.plateau;
        state.note(rule, value, self.schedule.base).then(|| {
            // As short as it can be told.
            let rate = (self.schedule.base * state.factor) as f32;
            let at = match self.experiment.train.counts_steps() {
                true => format!("step {}", self.state.step),
                false => format!("epoch {}", self.state.epoch + 1),
            };
            format!("{at}: `{}` no longer improves: the learning rate is {rate} from here on", rule.monitor.name())
        })
    }

    /// Whether early stopping has ended the run already.
    pub fn stopped_early(&self) -> bool {
        let (early, extra) = (self.experiment.train.early_stopping.as_ref(), &self.state.extra);
        let at_evaluation = self.state.batch == 0 || extra.evaluated == self.state.step;
        at_evaluation && early.is_some_and(|e| extra.early_waited >= e.patience)
    }
}

fn improves(monitor: Metric, new: f64, old: f64, min_delta: f64) -> bool {
    if monitor.higher_is_better() { new > old + min_delta } else { new < old - min_delta }
}
