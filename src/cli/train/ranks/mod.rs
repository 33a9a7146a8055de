//! Training on several ranks: threads of this process, or processes of their own. The first one, the leader, is the run that there is without them:
//! it has the folder, and speaks. The others have its state, and write nothing that is kept.

mod follower;
mod processes;
mod threads;
mod world;

pub use processes::run;
pub use world::RENDEZVOUS;

use super::super::args::TrainArgs;
use super::super::failure::Failure;
use super::outcome;
use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, DeviceError};
use crate::collective::{Collective, team};
use crate::config::{Experiment, Loaded};
use crate::passes::PassOptions;
use crate::terminal::human_bytes;
use crate::train::run::Run;
use crate::train::setup::input::Samples;
use crate::train::setup::memory::MemoryPlan;
use anyhow::Result;
use processes::Processes;
use std::process::ExitCode;
use std::sync::Arc;
use threads::Threads;

/// Who makes a step together.
pub enum Team {
    /// So many ranks, which are threads of this process.
    Threads(usize),
    /// This process is one of several.
    Process(Arc<dyn Collective>, processes::Agreed),
}

/// The other ranks.
pub enum Others {
    /// Threads of this process.
    Threads(Threads),
    /// Processes.
    Processes(Processes),
}

impl Others {
    /// Those of a team, each with `threads` threads; `None` if there is one rank. `found` is the device that one rank would have.
    ///
    /// # Errors
    /// The configuration is not for ranks, or for another number of them; the device is a GPU.
    pub fn new(
        experiment: &Experiment,
        team: Team,
        threads: Option<usize>,
        found: &dyn Backend,
    ) -> Result<Option<Others>, Failure> {
        let ranks = match &team {
            Team::Threads(ranks) => *ranks,
            Team::Process(member, _) => member.ranks(),
        };
        if ranks <= 1 {
            return Ok(None);
        }
        fits(experiment, ranks)?;
        on_cpu(found)?;
        Ok(Some(match team {
            Team::Threads(ranks) => Others::Threads(Threads::new(ranks, threads)?),
            Team::Process(member, agreed) => Others::Processes(Processes::new(member, &agreed, threads)),
        }))
    }

    /// The device of the first rank.
    pub fn leader(&self) -> &CpuBackend {
        match self {
            Others::Threads(others) => others.leader(),
            Others::Processes(others) => &others.backend,
        }
    }

    /// There must be memory for all of them on this machine; what one takes is `planned`.
    ///
    /// # Errors
    /// There is not.
    pub fn require(&self, planned: &MemoryPlan) -> Result<(), Failure> {
        let Some(host) = &planned.host.memory else { return Ok(()) };
        let (ranks, threads) = match self {
            Others::Threads(others) => (others.ranks(), true),
            Others::Processes(_) => (world::ranks_here().unwrap_or(1), false),
        };
        let needed = planned.of_ranks(ranks, threads);
        if needed <= host.available {
            return Ok(());
        }
        Err(DeviceError(format!(
            "not enough memory for {ranks} ranks: {} are needed, and {} can be had: {}\nhelp: take fewer ranks, or a smaller batch",
            human_bytes(needed),
            human_bytes(host.available),
            host.because
        ))
        .into())
    }

    /// Tells those who have data of their own to read it, as the leader has: `samples`. They build what it has, by its effective
    /// configuration and without the same passes.
    ///
    /// # Errors
    /// One of them has failed.
    pub fn read_data(&self, config: &str, without: &[String], samples: &Samples) -> Result<(), Failure> {
        match self {
            Others::Threads(_) => Ok(()),
            Others::Processes(others) => others.read_data(config, without, samples),
        }
    }

    /// Trains: `leader` in this thread.
    ///
    /// # Errors
    /// Any of them failed.
    pub fn train(
        &self,
        leader: &mut Run,
        about: (&Loaded, &Samples, &PassOptions),
        args: &TrainArgs,
        resumed: bool,
    ) -> Result<ExitCode, Failure> {
        match self {
            Others::Threads(others) => others.train(leader, about, args, resumed),
            Others::Processes(others) => others.train(leader, args, resumed),
        }
    }
}

/// Whether so many ranks can share the shards.
///
/// # Errors
/// They cannot: why, and which numbers can.
pub fn fits(experiment: &Experiment, ranks: usize) -> Result<(), Failure> {
    let usage = |text: String| Err(Failure::Usage(text));
    let Some(shards) = experiment.distributed.shards else {
        return usage(format!(
            "{ranks} ranks share the shards of a batch, and this configuration has none\nhelp: `[distributed]` with \
             `shards = {ranks}`, or a multiple of that"
        ));
    };
    if !shards.is_multiple_of(ranks) {
        let fits: Vec<String> = (1..=shards).filter(|n| shards.is_multiple_of(*n)).map(|n| n.to_string()).collect();
        return usage(format!(
            "{ranks} ranks cannot share {shards} shards equally\nhelp: of that many shards {} ranks have equal parts",
            fits.join(", ")
        ));
    }
    Ok(())
}

/// Whether ranks can compute on a device.
fn on_cpu(found: &dyn Backend) -> Result<(), Failure> {
    match found.memory()? {
        Some(_) => Err(DeviceError(
            "several ranks compute on the CPU, and the device is a GPU\nhelp: `--device cpu`, or one rank".into(),
        )
        .into()),
        None => Ok(()),
    }
}

/// The first of so many ranks, to plan what it does.
///
/// # Errors
/// As [`Others::new`].
pub fn planned(experiment: &Experiment, ranks: usize, found: &dyn Backend) -> Result<CpuBackend, Failure> {
    fits(experiment, ranks)?;
    on_cpu(found)?;
    let threads = threads_of(None, ranks);
    Ok(CpuBackend::new(Some(threads))?.in_team(team(ranks).into_iter().next()))
}

/// How many threads each of so many ranks on this machine has.
fn threads_of(asked: Option<usize>, ranks: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    asked.unwrap_or((cores / ranks.max(1)).max(1))
}

/// Trains as the leader, and tells the others if that fails.
fn lead(leader: &mut Run, member: &dyn Collective, args: &TrainArgs, resumed: bool) -> Result<ExitCode, Failure> {
    let _told = TellsPanic(member);
    let given = leader.session.hand_out().map_err(Failure::from);
    let outcome = given.and_then(|()| outcome::train(leader, args, resumed));
    if let Err(failure) = &outcome {
        member.fail(&failure.in_words());
    }
    outcome
}

/// Tells the others if a rank panics.
struct TellsPanic<'a>(&'a dyn Collective);

impl Drop for TellsPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("it has panicked, which is a bug of runner");
        }
    }
}
