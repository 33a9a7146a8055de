//! A learning rate that drops when a figure no longer improves, as `torch.optim.lr_scheduler.ReduceLROnPlateau` has it.

use crate::config::language::sections::{Plateau, ThresholdMode};
use serde::{Deserialize, Serialize};

/// What is known of the figure so far: a part of a run's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlateauState {
    /// What the drops so far multiply the learning rate with.
    pub factor: f64,
    /// The best value of the figure.
    pub best: Option<f64>,
    /// Validations without improvement, but for those of the cooldown.
    pub waited: usize,
    /// Validations that still do not count.
    pub cooldown: usize,
}

impl Default for PlateauState {
    fn default() -> Self {
        Self { factor: 1.0, best: None, waited: 0, cooldown: 0 }
    }
}

impl PlateauState {
    /// Takes in the figure of a validation; whether the rate, which begins with `base`, has dropped.
    pub fn note(&mut self, rule: &Plateau, value: f64, base: f64) -> bool {
        let higher = rule.monitor.higher_is_better();
        let better = value.is_finite() && self.best.is_none_or(|best| improves(rule, higher, value, best));
        if better {
            self.best = Some(value);
            self.waited = 0;
        } else {
            self.waited = self.waited.saturating_add(1);
        }
        if self.cooldown > 0 {
            self.cooldown -= 1;
            self.waited = 0;
        }
        if self.waited <= rule.patience {
            return false;
        }
        self.cooldown = rule.cooldown;
        self.waited = 0;
        let old = base * self.factor;
        let new = (old * rule.factor).max(rule.min_lr);
        let drops = old - new > rule.eps;
        if drops {
            self.factor = new / base;
        }
        drops
    }
}

fn improves(rule: &Plateau, higher: bool, value: f64, best: f64) -> bool {
    match (rule.threshold_mode, higher) {
        (ThresholdMode::Rel, false) => value < best * (1.0 - rule.threshold),
        (ThresholdMode::Rel, true) => value > best * (1.0 + rule.threshold),
        (ThresholdMode::Abs, false) => value < best - rule.threshold,
        (ThresholdMode::Abs, true) => value > best + rule.threshold,
    }
}
