//! Ranks that are threads of one process. They share the samples.

use super::super::outcome::Trained;
use super::super::request::Request;
use super::follower::{Follower, follow};
use super::{ReportsPanic, lead, threads_of};
use crate::api::failure::Failure;
use crate::backend::cpu::CpuBackend;
use crate::backend::{Backend, DeviceError};
use crate::collective::{Collective, team};
use crate::terminal::human_bytes;
use crate::train::run::Run;
use crate::train::run::unusable::Unusable;
use crate::train::setup::device::{Wanted, gpu_of_rank};
use crate::train::setup::memory::{MemoryPlan, available};
use crate::train::setup::programs::Programs;
use crate::train::setup::session::Session;
use anyhow::{Context, Result, anyhow};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The devices of all ranks.
pub struct Threads {
    backends: Vec<Box<dyn Backend>>,
    members: Vec<Arc<dyn Collective>>,
}

impl Threads {
    /// So many ranks, each with `threads` threads and, if that is wanted and possible, products in `bf16`.
    ///
    /// # Errors
    /// `RUNNER_SIMD` or `RUNNER_BF16` is wrong.
    pub fn new(ranks: usize, threads: Option<usize>, bf16: bool) -> Result<Threads> {
        let threads = threads_of(threads, ranks);
        let members = team(ranks);
        let backends = members
            .iter()
            .map(|member| -> Result<Box<dyn Backend>> {
                let backend = CpuBackend::new(Some(threads))?.in_bf16(bf16);
                Ok(Box::new(backend.in_team(Some(member.clone()))))
            })
            .collect::<Result<_>>()?;
        Ok(Threads { backends, members })
    }

    /// A rank on each of these GPUs.
    ///
    /// # Errors
    /// One of them cannot be used, or NCCL cannot.
    pub fn on_gpus(wanted: &Wanted, gpus: &[usize]) -> Result<Threads> {
        let members = team(gpus.len());
        let backends = gpus
            .iter()
            .zip(&members)
            .map(|(gpu, member)| gpu_of_rank(wanted, *gpu, member.clone()))
            .collect::<Result<_>>()?;
        Ok(Threads { backends, members })
    }

    /// Each GPU must have memory for its rank; what one takes is `planned`.
    ///
    /// # Errors
    /// One has not.
    pub fn require_on_gpus(&self, planned: &MemoryPlan) -> Result<()> {
        for backend in &self.backends {
            let Some(memory) = backend.memory()? else { continue };
            let (needed, free) = (planned.summary.total, available(memory));
            if needed > free {
                return Err(DeviceError(format!(
                    "not enough memory on {}: its rank needs {}, and {} can be had\nhelp: end other programs that use the GPU, or take a \
                     smaller batch",
                    backend.describe(),
                    human_bytes(needed),
                    human_bytes(free)
                ))
                .into());
            }
        }
        Ok(())
    }

    /// The device of the first rank.
    pub fn leader(&self) -> &dyn Backend {
        self.backends[0].as_ref()
    }

    /// How many there are.
    pub fn ranks(&self) -> usize {
        self.backends.len()
    }

    /// Trains: `leader` in this thread, the others in theirs, with what `programs` makes for their devices.
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
        let mut runs = Vec::new();
        let choices = self.leader().choices();
        for (rank, backend) in self.backends.iter().enumerate().skip(1) {
            let backend = backend.as_ref();
            // All compute alike, whatever each would find to be fastest.
            choices.iter().for_each(|said| drop(backend.take_choices(said)));
            let (experiment, config, samples) = (leader.experiment, leader.config, leader.samples);
            let session = Session::unset(programs(backend)?, backend, crate::model::task(experiment))?;
            let follower = Follower { experiment, config, samples, pause_after: request.pause_after };
            runs.push(follower.run((rank, backend), session, leader.state.clone())?);
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = runs
                .into_iter()
                .zip(&self.members[1..])
                .map(|((mut run, folder), member)| {
                    let name = format!("rank-{}", member.rank());
                    let work = move || {
                        let (_folder, _reports) = (folder, ReportsPanic(member.as_ref()));
                        // The leader gets Ctrl-C, and passes it on.
                        let followed = run.session.hand_out().and_then(|()| follow(&mut run, &AtomicBool::new(false)));
                        // What all ranks know is reported by the leader, which may still be saving.
                        if let Err(error) = followed
                            && !error.is::<Unusable>()
                        {
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
                None => lead(leader, leader_of, request, resumed),
            };
            // What they have to say has come to the leader.
            threads.into_iter().flatten().for_each(|thread| drop(thread.join()));
            outcome
        })
    }
}
