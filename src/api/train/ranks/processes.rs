//! Ranks that are processes: each reads its data itself, and has the rest from the leader.

use super::super::data::balanced;
use super::super::outcome::Trained;
use super::super::request::{Interrupt, Request};
use super::super::team::Agreed;
use super::follower::{self, Follower};
use super::world::{self, Found, Transport};
use super::{ReportsPanic, gpus, lead, mpi, threads_of};
use crate::api::failure::Failure;
use crate::api::memory::Planned;
use crate::api::model::{build, describe_data};
use crate::api::samples;
use crate::backend::Backend;
use crate::backend::cpu::CpuBackend;
use crate::backend::cpu::simd::SimdLevel;
use crate::backend::cpu::simd::bf16::Bf16Unit;
use crate::checkpoint::Best;
use crate::collective::Collective;
use crate::collective::tcp::{Limits, Warn, World, join};
use crate::config;
use crate::data::{Fingerprint, Missing, UnknownClasses, listed};
use crate::passes::PassOptions;
use crate::terminal::say;
use crate::train::files::sample::Sample;
use crate::train::files::state::{Extra, RunState};
use crate::train::run::Run;
use crate::train::setup::device::{Wanted, gpu_of_rank};
use crate::train::setup::input::{self, Samples, Take};
use crate::train::setup::memory::{Needs, Use};
use crate::train::setup::photos::{Keeping, PhotoPlan};
use crate::train::setup::programs::Sizes;
use crate::train::setup::session::Session;
use anyhow::{Context, Result, anyhow};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// For others to come, without a sign of life of one, and for one that is slow.
const LIMITS: Limits =
    Limits { join: Duration::from_secs(300), silence: Duration::from_secs(30), patience: Duration::from_secs(20) };

/// Another number of seconds without a sign of life.
const SILENCE: &str = "RUNNER_RANK_TIMEOUT";

/// The other ranks, as the leader sees them.
pub struct Processes {
    /// The leader's device.
    pub backend: Box<dyn Backend>,
    member: Arc<dyn Collective>,
    on_gpus: bool,
}

/// What every rank says first.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Hello {
    version: String,
    program: String,
    level: String,
    /// There is a unit for bf16, and whether it is far faster than single precision: else it leaves products to that.
    bf16: Option<bool>,
}

/// What the leader says before data is read.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    config: String,
    without: Vec<String>,
    digits: bool,
    /// Each rank has a GPU.
    gpus: bool,
    /// What the leader's device has chosen by measuring.
    choices: Option<String>,
    /// What the samples are to the model.
    sample: Sample,
}

/// Where the run is, and on which data.
#[derive(Debug, Serialize, Deserialize)]
struct Place {
    fingerprint: String,
    epoch: u64,
    batch: u64,
    step: u64,
    best: Option<Best>,
    extra: Extra,
}

/// Joins the other ranks.
///
/// # Errors
/// They do not come, or are not those that were meant.
pub fn connect(found: &Found) -> Result<Arc<dyn Collective>, Failure> {
    let mut limits = LIMITS;
    if let Ok(text) = std::env::var(SILENCE) {
        let seconds: Option<f64> = text.trim().parse().ok().filter(|s| (0.1..=86_400.0).contains(s));
        let wrong =
            || Failure::Usage(format!("`{SILENCE}` is `{text}`, and must be a number of seconds from 0.1 to 86400"));
        limits.silence = Duration::from_secs_f64(seconds.ok_or_else(wrong)?);
        limits.join = limits.silence;
    }
    let warn: Warn = Box::new(|text| say(&format!("warning: {text}")));
    let Found { rank, ranks, .. } = *found;
    match &found.transport {
        Transport::Tcp { meeting, shared_memory } => {
            let world = World {
                rank,
                ranks,
                meeting: meeting.clone(),
                shared_memory: *shared_memory,
                secret: world::secret()?,
            };
            Ok(join(&world, limits, warn)?)
        }
        Transport::Mpi(name) => join_mpi((rank, ranks), name, limits, warn),
    }
}

/// Joins them over MPI, which `name` has started as rank `rank` of `ranks`.
fn join_mpi(
    (rank, ranks): (usize, usize),
    name: &str,
    limits: Limits,
    warn: Warn,
) -> Result<Arc<dyn Collective>, Failure> {
    let join = mpi::join().ok_or_else(world::without_mpi)?;
    let member = join(limits, warn)?;
    if (member.rank(), member.ranks()) != (rank, ranks) {
        return Err(Failure::Usage(format!(
            "this is rank {rank} of {ranks} by the variables of {name}, and rank {} of {} by MPI\nhelp: start it by the `mpirun` \
             of the MPI that it was built with; for `srun`, `srun --mpi=list` says what there is; or set `RUNNER_TRANSPORT=tcp`",
            member.rank(),
            member.ranks()
        )));
    }
    Ok(member)
}

/// What all ranks do alike.
///
/// # Errors
/// They are of different builds.
pub fn agree(member: &dyn Collective) -> Result<Agreed, Failure> {
    let own = Hello {
        version: env!("CARGO_PKG_VERSION").into(),
        program: program()?,
        level: SimdLevel::from_env()?.name().into(),
        bf16: Bf16Unit::from_env()?.map(Bf16Unit::is_far_faster),
    };
    let all: Vec<Hello> = exchange(member, &own)?;
    for (rank, other) in all.iter().enumerate() {
        let first = &all[0];
        if (&other.version, &other.program) != (&first.version, &first.program) {
            return Err(anyhow!(
                "rank {rank} is another build of runner than rank 0: version {} ({}), not {} ({})\nhelp: the same file must be there for all ranks",
                other.version,
                other.program,
                first.version,
                first.program
            )
            .into());
        }
    }
    let level = SimdLevel::ALL.into_iter().find(|level| all.iter().any(|hello| hello.level == level.name()));
    let level = level.context("the instructions of the ranks are not known")?;
    if member.rank() == 0 && own.level != level.name() {
        say(&format!("note: all ranks compute with {}, which is what all of them have", level.name()));
    }
    // Units that leave other products to single precision come to other sums.
    let bf16 = own.bf16.is_some() && all.iter().all(|hello| hello.bf16 == own.bf16);
    Ok(Agreed { level, bf16 })
}

/// A hash that identifies this build.
fn program() -> Result<String> {
    let path = std::env::current_exe().context("cannot find the program")?;
    let mut hash = blake3::Hasher::new();
    let cannot = || format!("cannot read `{}`", path.display());
    hash.update_reader(File::open(&path).with_context(cannot)?).with_context(cannot)?;
    Ok(hash.finalize().to_hex()[..12].to_owned())
}

/// What every rank gives, in their order.
fn exchange<T: Serialize + DeserializeOwned>(member: &dyn Collective, own: &T) -> Result<Vec<T>> {
    let given = serde_json::to_vec(own).context("the message to the other ranks")?;
    member.gather(&given)?.iter().enumerate().map(|(rank, given)| read(rank, given)).collect()
}

fn read<T: DeserializeOwned>(rank: usize, given: &[u8]) -> Result<T> {
    serde_json::from_slice(given).with_context(|| format!("the message of rank {rank} cannot be read"))
}

impl Processes {
    /// The leader's.
    ///
    /// # Errors
    /// It is to have a GPU, and there is none for it, or no NCCL.
    pub fn new(
        member: Arc<dyn Collective>,
        agreed: &Agreed,
        wanted: &Wanted,
        on_gpus: bool,
    ) -> Result<Processes, Failure> {
        Ok(Processes { backend: agreed.backend(&member, wanted, on_gpus)?, member, on_gpus })
    }

    /// Lets the others read their data, and build what the leader has.
    ///
    /// # Errors
    /// One of them has failed.
    pub fn read_data(&self, config: &str, without: &[String], samples: &Samples) -> Result<(), Failure> {
        let plan = Plan {
            config: config.into(),
            without: without.into(),
            digits: samples.note.is_some(),
            gpus: self.on_gpus,
            choices: self.backend.choices(),
            sample: Sample::of(&samples.spec),
        };
        self.member.gather(&serde_json::to_vec(&plan).context("the message to the other ranks")?)?;
        Ok(())
    }

    /// Gives the others the state of the run, and trains.
    ///
    /// # Errors
    /// Any of them failed.
    pub fn train(&self, leader: &mut Run, request: &Request, resumed: bool) -> Result<Trained, Failure> {
        let RunState { epoch, batch, step, best, extra } = leader.state.clone();
        let fingerprint = leader.samples.fingerprint.to_string();
        let place = Place { fingerprint: fingerprint.clone(), epoch, batch, step, best, extra };
        let text = serde_json::to_vec(&place).context("the message to the other ranks")?;
        let all = self.member.gather(&text)?;
        for (rank, given) in all.iter().enumerate().skip(1) {
            let other: String = read(rank, given)?;
            if other != fingerprint {
                let fingerprints = other.parse::<Fingerprint>().ok().zip(fingerprint.parse::<Fingerprint>().ok());
                let what = fingerprints.and_then(|(other, own)| own.difference(&other));
                let what = what.unwrap_or_else(|| "the samples".to_owned());
                return Err(anyhow!(
                    "rank {rank} has other data than rank 0: {what} differ\nhelp: all ranks need the same files"
                )
                .into());
            }
        }
        lead(leader, self.member.as_ref(), request, resumed)
    }
}

/// The error for classes that the data of rank 0 does not have. There need not be a model that was trained on those.
fn other_classes(classes: &UnknownClasses) -> Failure {
    anyhow!(
        "its data has classes that the data of rank 0 does not have: {}; those of rank 0 are {}\nhelp: all ranks need the same files",
        listed(&classes.unknown),
        listed(&classes.known)
    )
    .into()
}

impl Agreed {
    fn backend(
        &self,
        member: &Arc<dyn Collective>,
        wanted: &Wanted,
        on_gpu: bool,
    ) -> Result<Box<dyn Backend>, Failure> {
        if on_gpu {
            return Ok(gpu_of_rank(wanted, gpus::of_process(wanted.device)?, member.clone())?);
        }
        let threads = wanted.threads.or_else(|| Some(threads_of(None, world::ranks_here()?)));
        let backend = CpuBackend::new(threads)?.at_level(self.level).in_bf16(wanted.bf16 && self.bf16);
        Ok(Box::new(backend.in_team(Some(member.clone()))))
    }
}

/// What a rank does that is not the leader: it has all but the number of its threads from that one, and writes nothing.
///
/// # Errors
/// It, or another rank, has failed.
pub fn follow(
    member: &Arc<dyn Collective>,
    agreed: Agreed,
    threads: Option<usize>,
    pause_after: Option<u64>,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let _reports = ReportsPanic(member.as_ref());
    let first = |all: Vec<Vec<u8>>| all.into_iter().next().unwrap_or_default();
    let plan: Plan = read(0, &first(member.gather(&[])?))?;
    let mut loaded = config::load_effective("the configuration of rank 0", &plan.config, &[])?;
    // A folder that looks otherwise on this machine must not give the classes other numbers.
    let extra = Extra { sample: Some(plan.sample.clone()), ..Extra::default() };
    loaded.experiment.data.fitted = extra.fitted().filter(|_| !plan.digits);
    let backend = agreed.backend(member, &Wanted::of(&loaded.experiment, threads), plan.gpus)?;
    let backend = backend.as_ref();
    // All compute alike, whatever each would find to be fastest.
    plan.choices.iter().for_each(|said| drop(backend.take_choices(said)));
    let take = match plan.digits {
        true => Take::Digits,
        false => Take::Source(Missing { download: false, mirrors: Vec::new(), fallback_digits: false }),
    };
    let experiment = &loaded.experiment;
    let mut samples = input::take(experiment, &take, &mut |_| ()).map_err(|error| match error.downcast_ref() {
        Some(classes) => other_classes(classes),
        None => samples::missing(error, experiment, "each rank reads its own"),
    })?;
    let described = describe_data(&loaded)?;
    samples.keep_photos(&loaded.experiment, Keeping::Training)?;
    balanced(&mut loaded, &samples)?;
    let passes = PassOptions { without: plan.without.clone(), stop_after: None };
    let sizes = Sizes::of_run(&loaded.experiment, &samples.spec);
    let programs = build(&loaded, &samples.spec, &sizes, backend, &passes)?;
    let photos = PhotoPlan::new(&loaded.experiment, &described, true);
    let needs = Needs::of_run(&loaded.experiment, &samples.spec, photos.with(samples.footprint()), false);
    let (data, of_programs) = (&samples.spec, &programs.plan);
    Planned { loaded: &loaded, data, plan: of_programs, backend, what: Use::Training, needs, passes: &passes }
        .require()?;
    let mut session = Session::unset(programs, backend, crate::model::task(&loaded.experiment))?;
    // From here on the leader may begin, and this rank stops with all others. The first rank says it.
    let interrupt = interrupt(false)?;
    let own = serde_json::to_vec(&samples.fingerprint.to_string()).context("the message to the other ranks")?;
    let Place { epoch, batch, step, best, extra, .. } = read(0, &first(member.gather(&own)?))?;
    session.hand_out()?;
    let state = RunState { epoch, batch, step, best, extra };
    let follower = Follower { experiment: &loaded.experiment, config: &plan.config, samples: &samples, pause_after };
    let (mut run, _folder) = follower.run((member.rank(), backend), session, state)?;
    Ok(follower::follow(&mut run, &interrupt)?)
}
