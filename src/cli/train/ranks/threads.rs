//! Ranks that are threads of one process. They share the samples.

use super::super::super::args::TrainArgs;
use super::super::super::failure::Failure;
use super::super::super::model::build_run;
use super::follower::{Follower, follow};
use super::{TellsPanic, lead, threads_of};
use crate::backend::cpu::CpuBackend;
use crate::collective::{Collective, team};
use crate::config::Loaded;
use crate::passes::PassOptions;
use crate::train::run::Run;
use crate::train::setup::input::Samples;
use crate::train::setup::session::Session;
use anyhow::{Context, Result, anyhow};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The devices of all ranks.
pub struct Threads {
    backends: Vec<CpuBackend>,
    members: Vec<Arc<dyn Collective>>,
}

impl Threads {
    /// So many ranks, each with `threads` threads.
    ///
    /// # Errors
    /// `RUNNER_SIMD` is wrong.
    pub fn new(ranks: usize, threads: Option<usize>) -> Result<Threads> {
        let threads = threads_of(threads, ranks);
        let members = team(ranks);
        let backends = members
            .iter()
            .map(|member| Ok(CpuBackend::new(Some(threads))?.in_team(Some(member.clone()))))
            .collect::<Result<_>>()?;
        Ok(Threads { backends, members })
    }

    /// The device of the first rank.
    pub fn leader(&self) -> &CpuBackend {
        &self.backends[0]
    }

    /// How many there are.
    pub fn ranks(&self) -> usize {
        self.backends.len()
    }

    /// Trains: `leader` in this thread, the others in theirs.
    ///
    /// # Errors
    /// Any of them failed.
    pub fn train(
        &self,
        leader: &mut Run,
        (loaded, samples, passes): (&Loaded, &Samples, &PassOptions),
        args: &TrainArgs,
        resumed: bool,
    ) -> Result<ExitCode, Failure> {
        let mut runs = Vec::new();
        for (rank, backend) in self.backends.iter().enumerate().skip(1) {
            let programs = build_run(loaded, &samples.spec, backend, passes, &leader.session.programs.warnings)?;
            let task = crate::model::task(&loaded.experiment);
            let session = Session::unset(programs, backend, task)?;
            let follower = Follower { loaded, config: leader.config, samples, pause_after: args.pause_after };
            runs.push(follower.run((rank, backend), session, leader.state.clone())?);
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = runs
                .into_iter()
                .zip(&self.members[1..])
                .map(|((mut run, folder), member)| {
                    let name = format!("rank-{}", member.rank());
                    let work = move || {
                        let (_folder, _told) = (folder, TellsPanic(member.as_ref()));
                        // The leader hears of Ctrl-C, and tells.
                        let followed = run.session.hand_out().and_then(|()| follow(&mut run, &AtomicBool::new(false)));
                        if let Err(error) = followed {
                            member.fail(&format!("{error:#}"));
                        }
                    };
                    std::thread::Builder::new().name(name).spawn_scoped(scope, work)
                })
                .collect();
            let started =
                threads.iter().find_map(|thread| thread.as_ref().err().map(|e| anyhow!("cannot start a rank: {e}")));
            let leader_of = self.members[0].as_ref();
            let outcome = match started {
                Some(error) => {
                    leader_of.fail(&format!("{error:#}"));
                    Err(error).context("the ranks cannot be started").map_err(Failure::from)
                }
                None => lead(leader, leader_of, args, resumed),
            };
            // What they have to say has come to the leader.
            threads.into_iter().flatten().for_each(|thread| drop(thread.join()));
            outcome
        })
    }
}
