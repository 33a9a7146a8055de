//! A rank that is not the leader.

use super::super::outcome::nothing_to_do;
use crate::backend::Backend;
use crate::config::Experiment;
use crate::train::files::folder::{Folder, Replaces, file};
use crate::train::files::metrics_file::MetricsFile;
use crate::train::files::state::RunState;
use crate::train::run::Run;
use crate::train::run::pending::Pending;
use crate::train::run::report::{Reporter, Verbosity};
use crate::train::run::waiting::Waiting;
use crate::train::setup::input::Samples;
use crate::train::setup::schedule::Schedule;
use crate::train::setup::session::Session;
use anyhow::{Context, Result};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// What a follower's run is of.
pub struct Follower<'a> {
    /// The configuration.
    pub experiment: &'a Experiment,
    /// Its effective text.
    pub config: &'a str,
    /// The samples.
    pub samples: &'a Samples,
    /// The epoch to stop after.
    pub pause_after: Option<u64>,
}

impl<'a> Follower<'a> {
    /// Its run, and a folder that is removed with it.
    ///
    /// # Errors
    /// A folder cannot be made.
    pub fn run(
        &self,
        (rank, backend): (usize, &'a dyn Backend),
        session: Session,
        state: RunState,
    ) -> Result<(Run<'a>, TempDir)> {
        let Follower { experiment, config, samples, pause_after } = *self;
        let place = tempfile::tempdir().with_context(|| format!("cannot make a folder for rank {rank}"))?;
        let folder = Folder::new(Some(place.path()), &experiment.name, Replaces::Nothing)?;
        let metrics = MetricsFile::open(&folder.file(file::METRICS), 0)?;
        let run = Run {
            experiment,
            config,
            backend,
            samples,
            session,
            state,
            schedule: Schedule::new(experiment, samples.train.len()),
            folder,
            metrics,
            reporter: Reporter::new(Verbosity::Silent),
            pending: Pending::default(),
            waiting: Waiting::default(),
            pause_after,
            evaluated: None,
            empty: None,
            texts: None,
            any_stopped: None,
        };
        Ok((run, place))
    }
}

/// Trains as the leader does.
///
/// # Errors
/// As [`Run::run`].
pub fn follow(run: &mut Run, interrupt: &AtomicBool) -> Result<()> {
    match nothing_to_do(run.experiment, &run.state) {
        Some(_) => Ok(()),
        None => run.run(interrupt).map(drop),
    }?;
    run.session.leave()
}
