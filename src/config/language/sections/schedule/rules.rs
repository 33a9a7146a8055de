//! What a schedule must agree on with the length of the run and with the learning rates.

use super::{By, Cosine, CosineRestarts, Course, Curve, MultiStep, Plateau, Schedule, Sequential, Step};
use crate::config::language::sections::length::Length;
use crate::config::language::sections::optimizer::Optimizer;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::lints::Lint;
use crate::config::text::origins::Reporter;

/// What helps where a drop is a rise.
const DROP: &str = "a `gamma` below 1 lowers it: 0.1, the default, to a tenth";

/// What helps where what should fall at each step rises.
const FALL: &str = "a `gamma` below 1 lowers it: 0.95 by a twentieth each time";

/// What the rules look at.
struct Rules<'a> {
    length: Length,
    optimizer: &'a Optimizer,
    reporter: &'a Reporter<'a>,
}

impl Schedule {
    /// Reports what a schedule must agree on with the length of the run and with the learning rates.
    pub fn check(&self, length: Length, optimizer: &Optimizer, reporter: &Reporter) {
        let rules = Rules { length, optimizer, reporter };
        match &self.curve {
            Curve::Course(course) => rules.course(course, "schedule"),
            Curve::Plateau(plateau) => rules.plateau(plateau),
            Curve::Sequential(sequential) => rules.sequential(sequential),
        }
        self.check_warmup(&rules);
    }

    fn check_warmup(&self, rules: &Rules) {
        let Rules { length, reporter, .. } = *rules;
        let mut end = None;
        if let Curve::Course(Course::Cosine(cosine)) = &self.curve {
            end = cosine.epochs.map(|epochs| epochs as u64).or(length.in_epochs());
            if self.warmup.warmup_epochs.zip(end).is_some_and(|(warmup, end)| warmup as u64 >= end) {
                let error = Diagnostic::error("the warm-up leaves no time for the schedule").help(
                    "make the warm-up shorter, or the run longer; `--unset schedule.warmup_epochs` leaves it out",
                );
                let key = if cosine.epochs.is_some() { "schedule.epochs" } else { length.key() };
                reporter.at_keys(
                    error,
                    "schedule.warmup_epochs",
                    "too long",
                    key,
                    "the schedule ends with these epochs",
                );
            }
        }
        let takes_all = |warmup: usize| rules.ends_by(warmup, By::Epoch) && end.is_none_or(|end| (warmup as u64) < end);
        if self.warmup.warmup_epochs.is_some_and(takes_all) {
            let message = "the warm-up takes the whole run: the full learning rate is never reached";
            rules.beyond_run(message, "schedule.warmup_epochs");
        }
        let written = [
            ("schedule.warmup_epochs", self.warmup.warmup_epochs),
            ("schedule.warmup_steps", self.warmup.warmup_steps),
        ];
        if let (Curve::Course(Course::OneCycle(_)), Some((key, _))) =
            (&self.curve, written.iter().find(|(_, length)| length.is_some()))
        {
            let error = Diagnostic::error("`one_cycle` in `[schedule]` takes no warm-up")
                .help(format!("it begins by rising: `pct_start` says for how long, `div_factor` from where; take the warm-up away, on the command line by `--unset {key}`"));
            reporter.at_keys(error, key, "a second rise", "schedule.type", "rises already");
        }
    }
}

impl Rules<'_> {
    /// The length of the run in epochs or in steps, where it is set in that unit.
    fn run(&self, by: By) -> Option<u64> {
        match (self.length, by) {
            (Length::Epochs(all), By::Epoch) | (Length::Steps(all), By::Step) => Some(all),
            (Length::Epochs(_), By::Step) | (Length::Steps(_), By::Epoch) => None,
        }
    }

    /// Whether the run is known to have no more than `n` of what is counted.
    fn ends_by(&self, n: usize, by: By) -> bool {
        self.run(by).is_some_and(|all| all <= n as u64)
    }

    /// Whether it is known to have fewer.
    fn ends_before(&self, n: usize, by: By) -> bool {
        self.run(by).is_some_and(|all| all < n as u64)
    }

    /// Reports a number of epochs or steps at `key` that the run does not have.
    fn beyond_run(&self, message: &str, key: &str) {
        let warning = Diagnostic::warning(Lint::ScheduleBeyondRun, message);
        let run = format!("the run has {}", self.length);
        self.reporter.at_keys(warning, key, "not within the run", self.length.key(), &run);
    }

    /// A course that is written at `key` and goes on to the end of the run.
    fn course(&self, course: &Course, key: &str) {
        let too_long = |length: Option<usize>, by: By| length.is_some_and(|n| self.ends_before(n, by));
        let ends_late = |name: &str| {
            let message = "the schedule ends after the run: the learning rate never gets there";
            self.beyond_run(message, &format!("{key}.{name}"));
        };
        match course {
            Course::Constant(_) => {}
            Course::Step(step) => self.step(step, key),
            Course::MultiStep(steps) => {
                self.milestones(&steps.milestones, steps.by, key);
                self.rises(steps.gamma, key, DROP);
            }
            Course::Exponential(exponential) => self.rises(exponential.gamma, key, FALL),
            Course::Linear(linear) if too_long(linear.total_iters, linear.by) => ends_late("total_iters"),
            Course::Polynomial(course) if too_long(course.total_iters, course.by) => ends_late("total_iters"),
            Course::OneCycle(cycle) if too_long(cycle.total_steps, cycle.by) => ends_late("total_steps"),
            Course::Linear(_) | Course::Polynomial(_) | Course::OneCycle(_) => {}
            Course::Cosine(cosine) => self.cosine(cosine, key),
            Course::CosineRestarts(CosineRestarts { min_lr, .. }) => self.min_lr(*min_lr, key),
        }
    }

    fn milestones(&self, milestones: &[usize], by: By, key: &str) {
        if let Some(late) = milestones.iter().position(|&milestone| self.ends_by(milestone, by)) {
            self.beyond_run("a milestone of the schedule is never reached", &format!("{key}.milestones.{late}"));
        }
    }

    fn rises(&self, gamma: f64, key: &str, help: &str) {
        if gamma > 1.0 {
            let message = format!("each step of the schedule raises the learning rate, by a factor of {gamma}");
            let warning = Diagnostic::warning(Lint::RisingSchedule, message).help(help);
            self.reporter.at_key(warning, &format!("{key}.gamma"), "above 1");
        }
    }

    fn step(&self, step: &Step, key: &str) {
        self.milestones(step.milestones.as_deref().unwrap_or_default(), By::Epoch, key);
        self.rises(step.gamma, key, DROP);
        if step.step_epochs.is_some_and(|every| self.ends_by(every, By::Epoch)) {
            self.beyond_run("the schedule never takes a step", &format!("{key}.step_epochs"));
        }
    }

    fn cosine(&self, cosine: &Cosine, key: &str) {
        self.min_lr(cosine.min_lr, key);
        if cosine.epochs.is_some_and(|end| self.ends_before(end, By::Epoch)) {
            let message = "the cosine ends after the run: the learning rate never falls to `min_lr`";
            self.beyond_run(message, &format!("{key}.epochs"));
        }
    }

    /// A rate that all others fall to must lie below them.
    fn min_lr(&self, min_lr: f64, key: &str) {
        let lr = self.optimizer.rule.lr();
        let key = format!("{key}.min_lr");
        if min_lr > lr {
            let error = Diagnostic::error("`min_lr` in `[schedule]` is above the learning rate");
            self.reporter.at_keys(error, &key, "where it ends", "optimizer.lr", "where it starts");
        }
        for (i, group) in self.optimizer.groups.iter().enumerate() {
            if group.lr.is_some_and(|own| own < min_lr && min_lr <= lr) {
                let message = "`min_lr` in `[schedule]` is above the learning rate of a group, which rises to it";
                let warning = Diagnostic::warning(Lint::RisingSchedule, message);
                let group = format!("optimizer.groups.{i}.lr");
                self.reporter.at_keys(warning, &group, "where this group starts", &key, "where all of them end");
            }
        }
    }

    fn plateau(&self, plateau: &Plateau) {
        let lr = self.optimizer.rule.lr();
        if plateau.min_lr > lr {
            let error = Diagnostic::error("`min_lr` in `[schedule]` is above the learning rate");
            self.reporter.at_keys(error, "schedule.min_lr", "where it ends", "optimizer.lr", "where it starts");
        }
    }

    /// Its milestones are held against the run, as far as both are set in the same unit.
    fn sequential(&self, sequential: &Sequential) {
        self.milestones(&sequential.milestones, sequential.by, "schedule");
        for (i, course) in sequential.schedules.iter().enumerate() {
            let key = format!("schedule.schedules.{i}");
            match course {
                Course::Step(Step { gamma, .. }) | Course::MultiStep(MultiStep { gamma, .. }) => {
                    self.rises(*gamma, &key, DROP);
                }
                Course::Exponential(exponential) => self.rises(exponential.gamma, &key, FALL),
                Course::Cosine(Cosine { min_lr, .. }) | Course::CosineRestarts(CosineRestarts { min_lr, .. }) => {
                    self.min_lr(*min_lr, &key);
                }
                Course::Constant(_) | Course::Linear(_) | Course::Polynomial(_) | Course::OneCycle(_) => {}
            }
        }
    }
}
