//! The messages of a run before its first step.

use crate::backend::Backend;
use crate::config::Loaded;
use crate::config::experiment::Validation;
use crate::graph::Variables;
use crate::terminal::{human_bytes, thousands};
use crate::train::files::folder::Folder;
use crate::train::files::tensors::Base;
use crate::train::run::report::Reporter;
use crate::train::setup::input::Samples;
use crate::train::setup::memory::MemoryPlan;
use crate::train::setup::programs::Programs;
use crate::train::setup::transfer::in_checkpoint;

/// Says what is about to be done.
pub fn announce(
    loaded: &Loaded,
    programs: &Programs,
    samples: &Samples,
    planned: &MemoryPlan,
    backend: &dyn Backend,
    place: &str,
    reporter: &Reporter,
) {
    let (trainable, all) = programs.parameters();
    let thawed = thousands(programs.thawed as u64);
    let frozen = match loaded.experiment.model.thaw_after {
        Some(1) => format!(" ({thawed} frozen in the first epoch)"),
        Some(after) => format!(" ({thawed} frozen in the first {after} epochs)"),
        None if trainable < all => format!(" ({} frozen)", thousands((all - trainable) as u64)),
        None => String::new(),
    };
    let pinned = planned.pinned.map_or(String::new(), |b| format!(" and {} on the host", human_bytes(b)));
    let e = &loaded.experiment;
    let on_test = e.validation() == Validation::TestSet && !samples.val.is_empty();
    let on_ranks = match backend.team().map_or(1, |team| team.ranks()) {
        1 => String::new(),
        ranks if planned.device.is_some() => format!(", as one of {ranks} GPUs"),
        ranks => format!(" for each of {ranks} ranks"),
    };
    let of_test = if on_test { " (the test set)" } else { "" };
    reporter.info(&format!(
        "{}: {} parameters{frozen}, {} training and {} validation samples{of_test}, {} of memory planned{pinned}, on {}{on_ranks}; {place}",
        e.name,
        thousands(all as u64),
        thousands(samples.train.len() as u64),
        thousands(samples.val.len() as u64),
        human_bytes(planned.summary.total),
        backend.describe(),
    ));
    if let Some(ema) = &e.optimizer.ema {
        reporter.info(&format!(
            "validation is of the moving average of the weights (`ema`, decay {}), and so is what is made of checkpoints",
            ema.decay
        ));
    }
    if e.optimizer.rule.is_schedule_free() {
        reporter.info("validation is of the optimizer's average of the weights, and so is what is made of checkpoints");
    }
    if let Some(swa) = &e.optimizer.swa {
        reporter.info(&format!(
            "from epoch {} on validation is of the mean of the weights at the ends of epochs (`swa`), and so is what is made of checkpoints",
            swa.start + 1
        ));
    }
}

/// The folder that a run writes to.
pub fn writing_to(folder: &Folder) -> String {
    let instead = if folder.keeps_another() { ", whose run stays until this one has saved a checkpoint" } else { "" };
    format!("writing to `{}`{instead}", folder.path.display())
}

/// The room that a dry run needs for a while, for all but what its checkpoint leaves to another file.
pub fn room(variables: &Variables, base: Option<&Base>) -> String {
    let bytes = variables
        .iter()
        .filter(|(_, var)| in_checkpoint(var) && !base.is_some_and(|base| base.has(&var.name)))
        .map(|(_, var)| var.bytes())
        .sum();
    let place = std::env::temp_dir();
    format!("a dry run, whose checkpoint takes {} in `{}` until its end", human_bytes(bytes), place.display())
}
