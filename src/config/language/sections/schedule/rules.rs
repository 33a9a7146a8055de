//! What a schedule must agree on with the length of the run and with the learning rates.

use super::{By, Cosine, CosineRestarts, Course, Curve, MultiStep, Plateau, Schedule, Sequential, Step};
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
    epochs: usize,
    optimizer: &'a Optimizer,
    reporter: &'a Reporter<'a>,
}

impl Schedule {
    /// Reports what a schedule must agree on with the length of the run and with the learning rates.
    pub fn check(&self, epochs: usize, optimizer: &Optimizer, reporter: &Reporter) {
        let rules = Rules { epochs, optimizer, reporter };
        match &self.curve {
            Curve::Course(course) => rules.course(course, "schedule"),
            Curve::Plateau(plateau) => rules.plateau(plateau),
            Curve::Sequential(sequential) => rules.sequential(sequential),
        }
        self.check_warmup(&rules);
    }

    fn check_warmup(&self, rules: &Rules) {
        let Rules { epochs, reporter, .. } = *rules;
        let mut end = usize::MAX;
        if let Curve::Course(Course::Cosine(cosine)) = &self.curve {
            end = cosine.epochs.unwrap_or(epochs);
            if self.warmup.warmup_epochs.is_some_and(|warmup| warmup >= end) {
                let error = Diagnostic::error("the warm-up leaves no time for the schedule");
                let key = if cosine.epochs.is_some() { "schedule.epochs" } else { "train.epochs" };
                reporter.at_keys(
                    error,
                    "schedule.warmup_epochs",
                    "too long",
                    key,
                    "the schedule ends with these epochs",
                );
            }
        }
        if self.warmup.warmup_epochs.is_some_and(|warmup| (epochs..end).contains(&warmup)) {
            let warning = rules.beyond("the warm-up takes the whole run: the full learning rate is never reached");
            reporter.at_keys(warning, "schedule.warmup_epochs", "not within the run", "train.epochs", &rules.run());
        }
        let written = [
            ("schedule.warmup_epochs", self.warmup.warmup_epochs),
            ("schedule.warmup_steps", self.warmup.warmup_steps),
        ];
        if let (Curve::Course(Course::OneCycle(_)), Some((key, _))) =
            (&self.curve, written.iter().find(|(_, length)| length.is_some()))
        {
            let error = Diagnostic::error("`one_cycle` in `[schedule]` takes no warm-up")
                .help("it begins by rising: `pct_start` says for how long, `div_factor` from where");
            reporter.at_keys(error, key, "a second rise", "schedule.type", "rises already");
        }
    }
}

impl Rules<'_> {
    fn run(&self) -> String {
        format!("the run has {} epoch{}", self.epochs, if self.epochs == 1 { "" } else { "s" })
    }

    fn beyond(&self, message: &str) -> Diagnostic {
        Diagnostic::warning(Lint::ScheduleBeyondRun, message)
    }

    /// Reports a number of epochs at `key` that the run does not have.
    fn beyond_run(&self, message: &str, key: &str) {
        self.reporter.at_keys(self.beyond(message), key, "not within the run", "train.epochs", &self.run());
    }

    /// A course that is written at `key` and goes on to the end of the run.
    fn course(&self, course: &Course, key: &str) {
        let too_long = |length: Option<usize>, by: By| by == By::Epoch && length.is_some_and(|n| n > self.epochs);
        let ends_late = |name: &str| {
            let message = "the schedule ends after the run: the learning rate never gets there";
            self.beyond_run(message, &format!("{key}.{name}"));
        };
        match course {
            Course::Constant(_) => {}
            Course::Step(step) => self.step(step, key),
            Course::MultiStep(steps) => {
                if steps.by == By::Epoch {
                    self.milestones(&steps.milestones, key);
                }
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

    fn milestones(&self, milestones: &[usize], key: &str) {
        if let Some(late) = milestones.iter().position(|&milestone| milestone >= self.epochs) {
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
        self.milestones(step.milestones.as_deref().unwrap_or_default(), key);
        self.rises(step.gamma, key, DROP);
        if step.step_epochs.is_some_and(|every| every >= self.epochs) {
            self.beyond_run("the schedule never takes a step", &format!("{key}.step_epochs"));
        }
    }

    fn cosine(&self, cosine: &Cosine, key: &str) {
        self.min_lr(cosine.min_lr, key);
        if cosine.epochs.is_some_and(|end| end > self.epochs) {
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

    /// Each is held against the part of the run that it has, as far as that is known in epochs.
    fn sequential(&self, sequential: &Sequential) {
        if sequential.by == By::Epoch {
            self.milestones(&sequential.milestones, "schedule");
        }
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
