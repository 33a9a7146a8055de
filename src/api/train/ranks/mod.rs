//! Training on several ranks: threads of this process, or processes of their own. The first one, the leader, is the run that there is without them:
//! it has the folder, and speaks. The others have its state, and write nothing that is kept.

mod follower;
mod gpus;
mod mpi;
mod private;
mod processes;
mod threads;
mod world;

pub use gpus::spread;
pub use mpi::{Join, carry_by_mpi, join as join_over_mpi};
pub use processes::{agree, connect, follow};
pub use world::{Found, RENDEZVOUS, SECRET, of_environment};

use super::super::failure::Failure;
use super::outcome::{self, Trained};
use super::request::Request;
use super::team::Team;
use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, DeviceError};
use crate::collective::{Collective, team};
use crate::config::Experiment;
use crate::terminal::human_bytes;
use crate::train::run::Run;
use crate::train::setup::device::{Wanted, planned_gpu_of_rank};
use crate::train::setup::input::Samples;
use crate::train::setup::memory::MemoryPlan;
use crate::train::setup::programs::Programs;
use anyhow::Result;
use processes::Processes;
use threads::Threads;

/// The other ranks.
pub enum Others {
    /// Threads of this process.
    Threads(Threads),
    /// Processes.
    Processes(Processes),
}

impl Others {
    /// Those of a team, each with `threads` threads, or a GPU if `found`, the device that one rank would have, is one; `None` if there is one rank.
    ///
    /// # Errors
    /// The configuration is not for ranks, or for another number of them; there are not enough GPUs, or no NCCL.
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
        let on_gpus = found.memory()?.is_some();
        let wanted = Wanted::of(experiment, threads);
        Ok(Some(match team {
            Team::Threads(ranks) if on_gpus => {
                Others::Threads(Threads::on_gpus(&wanted, &gpus::of_threads(experiment, ranks)?)?)
            }
            Team::Threads(ranks) => Others::Threads(Threads::new(ranks, threads, wanted.bf16)?),
            Team::Process(member, agreed) => Others::Processes(Processes::new(member, &agreed, &wanted, on_gpus)?),
        }))
    }

    /// The device of the first rank.
    pub fn leader(&self) -> &dyn Backend {
        match self {
            Others::Threads(others) => others.leader(),
            Others::Processes(others) => others.backend.as_ref(),
        }
    }

    /// There must be memory for all of them on this machine; what one takes is `planned`.
    ///
    /// # Errors
    /// There is not.
    pub fn require(&self, planned: &MemoryPlan) -> Result<(), Failure> {
        if let Others::Threads(others) = self {
            others.require_on_gpus(planned)?;
        }
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

    /// Has processes with data of their own read it, as the leader has: `samples`. They build what it has, by its effective
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

    /// Trains: `leader` in this thread. `programs` makes its programs anew for the device of another.
    ///
    /// # Errors
    /// Any of them failed.
    pub fn train(
        &self,
        leader: &mut Run,
        programs: &dyn Fn(&dyn Backend) -> Result<Programs, Failure>,
        request: &Request,
        resumed: bool,
    ) -> Result<Trained, Failure> {
        match self {
            Others::Threads(others) => others.train(leader, programs, request, resumed),
            Others::Processes(others) => others.train(leader, request, resumed),
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

/// The first of so many ranks, to plan what it does.
///
/// # Errors
/// As [`Others::new`].
pub fn planned(experiment: &Experiment, ranks: usize, found: &dyn Backend) -> Result<Box<dyn Backend>, Failure> {
    fits(experiment, ranks)?;
    let first = team(ranks).into_iter().next();
    if let (Some(_), Some(first)) = (found.memory()?, &first) {
        // They may be those of other machines.
        let gpu = experiment.devices.as_ref().map_or(0, |devices| devices.first());
        return Ok(planned_gpu_of_rank(&Wanted::of(experiment, None), gpu, first.clone())?);
    }
    let threads = threads_of(None, ranks);
    let bf16 = Wanted::of(experiment, None).bf16;
    Ok(Box::new(CpuBackend::new(Some(threads))?.in_bf16(bf16).in_team(first)))
}

/// How many threads each of so many ranks on this machine has.
fn threads_of(asked: Option<usize>, ranks: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    asked.unwrap_or((cores / ranks.max(1)).max(1))
}

/// Trains as the leader, and reports a failure to the others.
fn lead(leader: &mut Run, member: &dyn Collective, request: &Request, resumed: bool) -> Result<Trained, Failure> {
    let _reports = ReportsPanic(member);
    let given = leader.session.hand_out().map_err(Failure::from);
    let outcome = given.and_then(|()| outcome::train(leader, request, resumed));
    let outcome = outcome.and_then(|trained| leader.session.leave().map(|()| trained).map_err(Failure::from));
    if let Err(failure) = &outcome {
        member.fail(&failure.in_words());
    }
    outcome
}

/// Reports the panic of a rank to the others.
struct ReportsPanic<'a>(&'a dyn Collective);

impl Drop for ReportsPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("it has panicked, which is a bug of runner");
        }
    }
}
