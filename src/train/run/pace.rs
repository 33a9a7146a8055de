//! The remaining time of a run, estimated from what its parts have taken so far.

use crate::config::Experiment;
use crate::config::language::sections::EvalEvery;
use crate::train::setup::schedule::updates;

/// What a run is made of, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// Epochs in all.
    pub epochs: u64,
    /// What its rows are counted in, and how many there are of that.
    pub counted: (&'static str, u64),
    /// Training samples of an epoch.
    pub samples: u64,
    /// Samples of an evaluation; 0 if there is none.
    pub val_samples: u64,
    /// From one evaluation to the next.
    pub eval_every: EvalEvery,
    /// Updates after which the run ends, wherever that is.
    pub steps: u64,
    /// Samples of an update.
    pub step_samples: u64,
    /// Early stopping may end it before.
    pub may_stop_early: bool,
}

impl Horizon {
    /// Of a run from its beginning, on so many samples.
    pub fn new(experiment: &Experiment, train_samples: usize, val_samples: usize) -> Horizon {
        let (train, loading) = (&experiment.train, &experiment.data.loading);
        let updates = updates(experiment, train_samples);
        let steps = train.length().updates(updates);
        let epochs = train.length().epochs(updates);
        let left_out = if loading.drop_last { train_samples % loading.batch_size } else { 0 };
        Horizon {
            epochs,
            counted: if train.counts_steps() { ("step", steps) } else { ("epoch", epochs) },
            samples: (train_samples - left_out) as u64,
            val_samples: val_samples as u64,
            eval_every: train.eval_every(),
            steps: train.max_steps.map_or(steps, |max| max.min(steps)),
            step_samples: (loading.batch_size * train.accumulate) as u64,
            may_stop_early: train.early_stopping.is_some(),
        }
    }

    /// How often it evaluates in all.
    pub fn evaluations(&self) -> u64 {
        self.ahead(&Place::default()).evaluations
    }

    /// Checkpoints that it writes in all, with one more for each `step-N` after every so many updates. The copies as `best` are not
    /// counted: their number is not known in advance.
    pub fn checkpoints(&self, every_steps: Option<u64>) -> u64 {
        let epoch = self.samples.div_ceil(self.step_samples.max(1)).max(1);
        let steps = self.steps.min(self.epochs.saturating_mul(epoch));
        let (ends, within) = match self.eval_every {
            EvalEvery::Epochs(_) => (steps / epoch, 0),
            // Those at ends of epochs are one with these.
            EvalEvery::Steps(every) => {
                (steps / epoch, steps / every - steps / (every / gcd(every, epoch)).saturating_mul(epoch))
            }
        };
        let evaluates = matches!(self.eval_every, EvalEvery::Steps(every) if steps.is_multiple_of(every));
        let last = u64::from(!steps.is_multiple_of(epoch) && !evaluates);
        // Each of these is written as `last`, too.
        let more = every_steps.map_or(0, |every| 2 * (steps / every));
        ends + within + last + more
    }

    /// What lies ahead of a place.
    fn ahead(&self, at: &Place) -> Ahead {
        let later = self.epochs.saturating_sub(at.epoch + 1).saturating_mul(self.samples);
        let all = self.samples.saturating_sub(at.done).saturating_add(later);
        let steps = self.steps.saturating_sub(at.step).saturating_mul(self.step_samples.max(1));
        let samples = all.min(steps);
        // The epochs that will have ended by then.
        let behind = at.done.saturating_add(samples);
        let ended = at.epoch.saturating_add(behind / self.samples.max(1));
        let (evaluations, pauses) = match self.eval_every {
            EvalEvery::Epochs(every) => {
                let every = every.max(1);
                let last = u64::from(ended == self.epochs && !ended.is_multiple_of(every));
                // A run that ends within an epoch evaluates there.
                let within = u64::from(samples < all && !behind.is_multiple_of(self.samples.max(1)));
                let whole = (ended / every).saturating_sub(at.epoch / every);
                (whole + last + within, ended.saturating_sub(at.epoch))
            }
            EvalEvery::Steps(every) => {
                // One that goes on is of the last update.
                let before = at.step.saturating_sub(u64::from(at.evaluated.is_some()));
                let last = u64::from(!self.steps.is_multiple_of(every) && self.steps > before);
                let evaluations = (self.steps / every).saturating_sub(before / every) + last;
                (evaluations, evaluations)
            }
        };
        Ahead { samples, evaluations, pauses }
    }
}

/// The greatest common divisor of numbers above 0.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What a run has still to do.
struct Ahead {
    /// Training samples.
    samples: u64,
    /// Evaluations, with one that goes on.
    evaluations: u64,
    /// Times that training pauses.
    pauses: u64,
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Epochs that are done.
    pub epoch: u64,
    /// Training samples of this epoch that are done.
    pub done: u64,
    /// Updates that are done.
    pub step: u64,
    /// Samples of the evaluation that are done, if that is what goes on.
    pub evaluated: Option<u64>,
}

/// Forward alone takes about a third of forward, backward and update: the estimate for an evaluation before there was one.
const EVALUATION: f64 = 1.0 / 3.0;

/// What the parts have taken: samples with seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pace {
    /// Training.
    pub trained: (u64, f64),
    /// Evaluation.
    pub evaluated: (u64, f64),
    /// Seconds for which training pauses at an epoch's end or an evaluation, without that itself: writing files.
    pub between: f64,
}

impl Pace {
    /// Training samples a second; `None` before the first.
    pub fn rate(&self) -> Option<f64> {
        rate(self.trained)
    }

    /// Seconds to the end of the run, at this pace and if nothing ends it early; `None` while nothing is known.
    pub fn left(&self, run: &Horizon, at: &Place) -> Option<f64> {
        let second = 1.0 / self.rate()?;
        let Ahead { samples, evaluations, pauses } = run.ahead(at);
        let to_evaluate = evaluations.saturating_mul(run.val_samples).saturating_sub(at.evaluated.unwrap_or(0));
        let each = rate(self.evaluated).map_or(second * EVALUATION, |rate| 1.0 / rate);
        let between = self.between * pauses as f64;
        Some(samples as f64 * second + to_evaluate as f64 * each + between)
    }
}

fn rate((samples, seconds): (u64, f64)) -> Option<f64> {
    (samples > 0 && seconds > 0.0).then(|| samples as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Horizon = Horizon {
        epochs: 4,
        counted: ("epoch", 4),
        samples: 100,
        val_samples: 30,
        eval_every: EvalEvery::Epochs(1),
        steps: 40,
        step_samples: 10,
        may_stop_early: false,
    };

    /// 10 samples a second in training, 20 in evaluation, a second between epochs.
    const PACE: Pace = Pace { trained: (50, 5.0), evaluated: (60, 3.0), between: 1.0 };

    fn left(run: Horizon, at: Place) -> f64 {
        PACE.left(&run, &at).unwrap()
    }

    #[test]
    fn the_whole_run_counts_with_its_evaluations() {
        let half = Place { epoch: 0, done: 50, step: 5, evaluated: None };
        // 350 samples, four evaluations of 30, four ends of epochs.
        assert_eq!(left(RUN, half), 35.0 + 6.0 + 4.0);
        assert_eq!(left(RUN, Place { epoch: 3, ..half }), 5.0 + 1.5 + 1.0);
        assert_eq!(left(Horizon { val_samples: 0, ..RUN }, half), 35.0 + 4.0);
        // Every third epoch, and the last.
        assert_eq!(left(Horizon { eval_every: EvalEvery::Epochs(3), ..RUN }, half), 35.0 + 3.0 + 4.0);
        assert_eq!(left(Horizon { eval_every: EvalEvery::Epochs(2), ..RUN }, half), 35.0 + 3.0 + 4.0);
        assert_eq!(left(Horizon { eval_every: EvalEvery::Epochs(9), ..RUN }, half), 35.0 + 1.5 + 4.0);
    }

    #[test]
    fn an_evaluation_that_goes_on_is_not_counted_twice() {
        let at = Place { epoch: 1, done: 100, step: 20, evaluated: Some(10) };
        assert_eq!(left(RUN, at), 20.0 + (3.0 * 30.0 - 10.0) / 20.0 + 3.0);
        let at = Place { epoch: 3, done: 100, step: 40, evaluated: Some(30) };
        assert_eq!(left(RUN, at), 1.0);
    }

    #[test]
    fn a_number_of_steps_ends_it_before() {
        let half = Place { epoch: 0, done: 50, step: 5, evaluated: None };
        // 20 more steps: to the middle of the third epoch, and an evaluation there.
        assert_eq!(left(Horizon { steps: 25, ..RUN }, half), 20.0 + 4.5 + 2.0);
        assert_eq!(left(Horizon { steps: 20, ..RUN }, half), 15.0 + 3.0 + 2.0);
        assert_eq!(left(Horizon { steps: 5, ..RUN }, half), 1.5);
        assert_eq!(left(Horizon { steps: u64::MAX, ..RUN }, half), 45.0);
    }

    #[test]
    fn evaluations_by_steps_are_counted_by_steps() {
        let by_steps = |every| Horizon { eval_every: EvalEvery::Steps(every), ..RUN };
        let half = Place { epoch: 0, done: 50, step: 5, evaluated: None };
        // At 10, 20, 30 and 40; with as many pauses.
        assert_eq!(left(by_steps(10), half), 35.0 + 6.0 + 4.0);
        // At 15 and 30, and at the end.
        assert_eq!(left(by_steps(15), half), 35.0 + 4.5 + 3.0);
        assert_eq!(left(by_steps(1000), half), 35.0 + 1.5 + 1.0);
        // At 15, and where the run ends within an epoch.
        assert_eq!(left(Horizon { steps: 25, ..by_steps(15) }, half), 20.0 + 3.0 + 2.0);
        // The one that goes on has a third behind it.
        let at = Place { epoch: 1, done: 50, step: 15, evaluated: Some(10) };
        assert_eq!(left(by_steps(15), at), 25.0 + (3.0 * 30.0 - 10.0) / 20.0 + 3.0);
        let last = Place { epoch: 3, done: 100, step: 40, evaluated: Some(30) };
        assert_eq!(left(by_steps(15), last), 1.0);
    }

    #[test]
    fn checkpoints_are_counted() {
        let by_steps = |every| Horizon { eval_every: EvalEvery::Steps(every), ..RUN };
        assert_eq!(RUN.checkpoints(None), 4);
        // At 15 and 30, and as `last` as well.
        assert_eq!(RUN.checkpoints(Some(15)), 4 + 4);
        // At 15; 30 is the end of an epoch.
        assert_eq!(by_steps(15).checkpoints(None), 4 + 1);
        assert_eq!(by_steps(5).checkpoints(None), 4 + 4);
        assert_eq!(by_steps(20).checkpoints(None), 4);
        // Two ends of epochs, and the end of the run.
        assert_eq!(Horizon { steps: 25, ..RUN }.checkpoints(None), 3);
        assert_eq!(Horizon { steps: 25, ..by_steps(15) }.checkpoints(None), 4);
        // At 5, 15 and 25, which is the end of the run.
        assert_eq!(Horizon { steps: 25, ..by_steps(5) }.checkpoints(None), 5);
    }

    #[test]
    fn times_left_need_a_measurement() {
        assert_eq!(Pace::default().left(&RUN, &Place::default()), None);
        let first = Pace { trained: (10, 1.0), ..Pace::default() };
        // Evaluations are taken to be three times as fast.
        let seconds = first.left(&RUN, &Place { done: 10, step: 1, ..Place::default() }).unwrap();
        assert!((seconds - (39.0 + 4.0)).abs() < 1e-9, "{seconds}");
    }
}
