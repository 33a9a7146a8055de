//! Which epoch is the best so far, and when there is no better one to be expected.

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
}

fn improves(monitor: Metric, new: f64, old: f64, min_delta: f64) -> bool {
    if monitor.higher_is_better() { new > old + min_delta } else { new < old - min_delta }
}
