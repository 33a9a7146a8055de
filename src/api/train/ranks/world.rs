//! Which rank this process is, by what starts processes: `runner launch`, `torchrun` and Kubernetes, `mpirun`, `srun`.

use super::mpi;
use super::private::private_folder;
use crate::api::failure::Failure;
use crate::collective::tcp::{Meeting, Secret};
use crate::system;

/// A file through which ranks find each other.
pub const RENDEZVOUS: &str = "RUNNER_RENDEZVOUS";

/// What proves to ranks that they are of one job.
pub const SECRET: &str = "RUNNER_SECRET";

/// What carries messages: `mpi`, or `tcp`, also between processes of one machine.
pub const TRANSPORT: &str = "RUNNER_TRANSPORT";

/// The port of `torchrun`, unless another one is named.
const PORT: u16 = 29500;

/// A rank, and how it finds the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Which rank this is, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// What carries their messages.
    pub transport: Transport,
}

/// What carries the messages of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// Connections of their own, made where they meet.
    Tcp {
        /// Where that is.
        meeting: Meeting,
        /// Those of one machine give each other what is long through memory that they share.
        shared_memory: bool,
    },
    /// MPI, as this has started them.
    Mpi(&'static str),
}

/// What starts processes, by its variables.
struct Launcher {
    name: &'static str,
    /// It starts processes of MPI.
    mpi: bool,
    rank: &'static str,
    ranks: &'static str,
    /// How many ranks are on this machine, or on how many machines they are.
    here: Here,
    /// Which of those on this machine it is.
    local: &'static str,
    /// What belongs to this job and no other.
    job: &'static [&'static str],
}

enum Here {
    /// How many of them are on this machine.
    Ranks(&'static str),
    /// How many machines there are.
    Machines(&'static str),
}

/// In this order: what one sets inside of another counts.
const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "torchrun",
        mpi: false,
        rank: "RANK",
        ranks: "WORLD_SIZE",
        here: Here::Ranks("LOCAL_WORLD_SIZE"),
        local: "LOCAL_RANK",
        job: &["TORCHELASTIC_RUN_ID"],
    },
    Launcher {
        name: "mpirun",
        mpi: true,
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: "OMPI_COMM_WORLD_SIZE",
        here: Here::Ranks("OMPI_COMM_WORLD_LOCAL_SIZE"),
        local: "OMPI_COMM_WORLD_LOCAL_RANK",
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    },
    Launcher {
        name: "mpiexec",
        mpi: true,
        rank: "PMI_RANK",
        ranks: "PMI_SIZE",
        here: Here::Ranks("MPI_LOCALNRANKS"),
        local: "MPI_LOCALRANKID",
        job: &["PMI_PORT", "HYDRA_JOB_ID"],
    },
    // A batch script has the number of tasks, too, but is not one of them.
    Launcher {
        name: "srun",
        mpi: true,
        rank: "SLURM_PROCID",
        ranks: "SLURM_STEP_NUM_TASKS",
        here: Here::Machines("SLURM_STEP_NUM_NODES"),
        local: "SLURM_LOCALID",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
];

/// The rank that this process is; `None` if it is alone.
///
/// # Errors
/// The variables contradict each other, or do not say where the ranks meet; MPI is asked for and cannot be had.
pub fn of_environment() -> Result<Option<Found>, Failure> {
    of(&|name| std::env::var(name).ok(), parent, mpi::join().is_some())
}

/// The secret of the job, if whatever has started this rank has given it one.
///
/// # Errors
/// It is too short.
pub fn secret() -> Result<Option<Secret>, Failure> {
    let Ok(text) = std::env::var(SECRET) else { return Ok(None) };
    let text = text.trim();
    if text.len() < Secret::LEAST {
        return Err(Failure::Usage(format!(
            "`{SECRET}` has {} characters, and must have {} at least\nhelp: the same for all ranks of a job, as `openssl rand -hex 32` makes one",
            text.len(),
            Secret::LEAST
        )));
    }
    Ok(Some(Secret::of(text)))
}

/// MPI is asked for, and this program has none.
pub fn without_mpi() -> Failure {
    Failure::Usage(format!(
        "`{TRANSPORT}` is `mpi`, and this program has no MPI\nhelp: start `runner-mpi`, the program with MPI, which is \
         built where it is used (docs/distributed.md), or set `{TRANSPORT}=tcp`"
    ))
}

/// How many ranks are on this machine, if that is known.
pub fn ranks_here() -> Option<usize> {
    LAUNCHERS.iter().find_map(|launcher| match launcher.here {
        Here::Ranks(name) => std::env::var(name).ok()?.trim().parse().ok(),
        Here::Machines(_) => None,
    })
}

/// Which of the ranks on this machine this is, from 0, if that is known.
///
/// # Errors
/// It is no number.
pub fn local_rank() -> Result<Option<usize>, Failure> {
    local_rank_by(&|name| std::env::var(name).ok())
}

fn local_rank_by(read: &dyn Fn(&str) -> Option<String>) -> Result<Option<usize>, Failure> {
    for launcher in &LAUNCHERS {
        if let (Some(_), Some(local)) = (read(launcher.rank), number(read, launcher.local)?) {
            return Ok(Some(local));
        }
    }
    Ok(None)
}

/// The process that has started this one, which has started the others, too.
fn parent() -> u32 {
    system::parent().unwrap_or_default()
}

/// A number that a variable has.
fn number(read: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<Option<usize>, Failure> {
    let Some(text) = read(name) else { return Ok(None) };
    let parsed = text.trim().parse();
    parsed.map(Some).map_err(|_| Failure::Usage(format!("`{name}` is `{text}`, which is no number of ranks")))
}

/// `built_in` says whether this program can use MPI.
fn of(read: &dyn Fn(&str) -> Option<String>, parent: fn() -> u32, built_in: bool) -> Result<Option<Found>, Failure> {
    let mpi = match read(TRANSPORT).as_deref() {
        None | Some("") => None,
        Some("tcp") => Some(false),
        Some("mpi") if built_in => Some(true),
        Some("mpi") => return Err(without_mpi()),
        Some(other) => return Err(Failure::Usage(format!("`{TRANSPORT}` is `{other}`, and must be `mpi` or `tcp`"))),
    };
    let mut started = false;
    for launcher in LAUNCHERS.iter().filter(|launcher| launcher.mpi || mpi != Some(true)) {
        let (Some(rank), Some(ranks)) = (number(read, launcher.rank)?, number(read, launcher.ranks)?) else { continue };
        started = true;
        // A job of one process, or a variable that another program has left.
        if ranks <= 1 {
            continue;
        }
        if rank >= ranks {
            return Err(Failure::Usage(format!(
                "`{}` is {rank}, and there are {ranks} ranks, from 0 to {}",
                launcher.rank,
                ranks - 1
            )));
        }
        let transport = match launcher.mpi && mpi.unwrap_or(built_in) {
            true => Transport::Mpi(launcher.name),
            // If TCP is asked for, shared memory is not used either.
            false => {
                Transport::Tcp { meeting: launcher.meeting(read, ranks, parent)?, shared_memory: mpi != Some(false) }
            }
        };
        return Ok(Some(Found { rank, ranks, transport }));
    }
    if mpi != Some(true) {
        expect_both(read)?;
    }
    if mpi == Some(true) && !started {
        return Err(Failure::Usage(format!(
            "`{TRANSPORT}` is `mpi`, and this process was started by nothing that starts processes of MPI\n\
             help: `mpirun -n 4 runner-mpi train CONFIG`, or by `srun`"
        )));
    }
    Ok(None)
}

/// Refuses half of what says which rank this is, where nothing else does: the ranks that are missing would be waited for, or all would train alone.
fn expect_both(read: &dyn Fn(&str) -> Option<String>) -> Result<(), Failure> {
    let [torchrun, ..] = &LAUNCHERS;
    let (there, missing, value) = match (number(read, torchrun.rank)?, number(read, torchrun.ranks)?) {
        (None, Some(ranks)) if ranks != 1 => (torchrun.ranks, torchrun.rank, ranks),
        (Some(rank), None) => (torchrun.rank, torchrun.ranks, rank),
        _ => return Ok(()),
    };
    Err(Failure::Usage(format!(
        "`{there}` is {value}, and `{missing}` is not set\nhelp: set both, `{}` to the number of this rank, from 0, and `{}` to how many there are; \
         to train alone, unset `{there}`",
        torchrun.rank, torchrun.ranks
    )))
}

impl Launcher {
    fn meeting(
        &self,
        read: &dyn Fn(&str) -> Option<String>,
        ranks: usize,
        parent: fn() -> u32,
    ) -> Result<Meeting, Failure> {
        if let Some(file) = read(RENDEZVOUS) {
            return Ok(Meeting::File(file.into()));
        }
        let local = match &self.here {
            Here::Ranks(name) => number(read, name)? == Some(ranks),
            Here::Machines(name) => number(read, name)? == Some(1),
        };
        if let Some(host) = read("MASTER_ADDR") {
            let port = match read("MASTER_PORT") {
                None => PORT,
                Some(text) => text
                    .trim()
                    .parse()
                    .map_err(|_| Failure::Usage(format!("`MASTER_PORT` is `{text}`, which is no port")))?,
            };
            // There `torchrun` itself listens.
            let taken = read("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|text| text == "True");
            let port = if taken { port.wrapping_add(1).max(1024) } else { port };
            return Ok(Meeting::Address { host, port, local });
        }
        if local {
            return Ok(Meeting::File(private_folder()?.join(self.file(read, parent))));
        }
        if let (Some(host), Some(job)) =
            (read("SLURM_STEP_NODELIST").as_deref().and_then(first_node), number(read, "SLURM_JOB_ID")?)
        {
            // Other jobs on that machine are not to have the same one.
            let port = 20_000 + (job % 20_000) as u16;
            return Ok(Meeting::Address { host, port, local });
        }
        Err(Failure::Usage(format!(
            "{} has started {ranks} ranks, and it is not said where they meet\nhelp: set `MASTER_ADDR` to the name of the machine \
             that has rank 0, for all of them, and `MASTER_PORT` if port {PORT} is not free there",
            self.name
        )))
    }

    /// The name of a file of this job.
    fn file(&self, read: &dyn Fn(&str) -> Option<String>, parent: fn() -> u32) -> String {
        let known: Vec<String> = self.job.iter().filter_map(|name| read(name)).collect();
        let job = if known.is_empty() { parent().to_string() } else { known.join("-") };
        let plain: String = job.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!("{}-{plain}", self.name)
    }
}

/// The first machine of a list of Slurm's: `node[03-05,7]` begins with `node03`.
fn first_node(list: &str) -> Option<String> {
    let list = list.trim();
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let number = match rest.strip_prefix('[') {
        None => "",
        Some(range) => &range[..range.find([',', '-', ']'])?],
    };
    let host = format!("{name}{number}");
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_by(built_in: bool, variables: &[(&str, &str)]) -> Result<Option<Found>, Failure> {
        let read =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        of(&read, || 77, built_in)
    }

    fn found(variables: &[(&str, &str)]) -> Result<Option<Found>, Failure> {
        found_by(false, variables)
    }

    #[test]
    fn the_rank_on_a_machine_is_that_of_whatever_has_started_it() {
        let of = |variables: &[(&str, &str)]| {
            local_rank_by(&|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(
            of(&[("RANK", "5"), ("LOCAL_RANK", "1"), ("SLURM_PROCID", "5"), ("SLURM_LOCALID", "3")]).unwrap(),
            Some(1)
        );
        assert_eq!(of(&[("PMI_RANK", "5"), ("MPI_LOCALRANKID", "2"), ("LOCAL_RANK", "1")]).unwrap(), Some(2));
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "5"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")]).unwrap(), Some(0));
        assert_eq!(of(&[("SLURM_PROCID", "5"), ("SLURM_LOCALID", "3")]).unwrap(), Some(3));
        assert_eq!(of(&[("RANK", "5")]).unwrap(), None);
        assert!(
            of(&[("RANK", "5"), ("LOCAL_RANK", "first")]).unwrap_err().in_words().contains("`LOCAL_RANK` is `first`")
        );
    }

    fn address(host: &str, port: u16, local: bool) -> Meeting {
        Meeting::Address { host: host.into(), port, local }
    }

    fn file(name: &str) -> Meeting {
        let folder = private_folder().unwrap();
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&folder).unwrap());
            assert_eq!(mode & 0o777, 0o700);
        }
        Meeting::File(folder.join(name))
    }

    #[test]
    fn ranks_are_those_of_whatever_has_started_them() {
        let torch = [("RANK", "3"), ("WORLD_SIZE", "8"), ("MASTER_ADDR", "node0"), ("MASTER_PORT", "1234")];
        let with = |more: &[(&'static str, &'static str)]| [&torch[..], more].concat();
        for (variables, rank, ranks, meeting) in [
            (torch.to_vec(), 3, 8, address("node0", 1234, false)),
            (
                with(&[("TORCHELASTIC_USE_AGENT_STORE", "True"), ("LOCAL_WORLD_SIZE", "8")]),
                3,
                8,
                address("node0", 1235, true),
            ),
            (with(&[("LOCAL_WORLD_SIZE", "4")]), 3, 8, address("node0", 1234, false)),
            (with(&[(RENDEZVOUS, "/shared/at")]), 3, 8, Meeting::File("/shared/at".into())),
            (
                vec![
                    ("OMPI_COMM_WORLD_RANK", "0"),
                    ("OMPI_COMM_WORLD_SIZE", "2"),
                    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                    ("PMIX_NAMESPACE", "prterun-h-5@1"),
                ],
                0,
                2,
                file("mpirun-prterun-h-5-1"),
            ),
            (
                vec![
                    ("OMPI_COMM_WORLD_RANK", "0"),
                    ("OMPI_COMM_WORLD_SIZE", "4"),
                    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                    ("MASTER_ADDR", "a"),
                ],
                0,
                4,
                address("a", PORT, false),
            ),
            (vec![("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")], 1, 2, file("mpiexec-77")),
            (
                vec![
                    ("SLURM_PROCID", "1"),
                    ("SLURM_STEP_NUM_TASKS", "2"),
                    ("SLURM_STEP_NUM_NODES", "2"),
                    ("SLURM_STEP_NODELIST", "gpu[07-09]"),
                    ("SLURM_JOB_ID", "123456"),
                ],
                1,
                2,
                address("gpu07", 23456, false),
            ),
            (
                vec![
                    ("SLURM_PROCID", "1"),
                    ("SLURM_STEP_NUM_TASKS", "2"),
                    ("SLURM_STEP_NUM_NODES", "1"),
                    ("SLURM_JOB_ID", "5"),
                    ("SLURM_STEP_ID", "0"),
                ],
                1,
                2,
                file("srun-5-0"),
            ),
        ] {
            let transport = Transport::Tcp { meeting, shared_memory: true };
            assert_eq!(found(&variables).unwrap(), Some(Found { rank, ranks, transport }), "{variables:?}");
        }
    }

    #[test]
    fn mpi_carries_what_it_has_started_unless_that_is_not_wanted() {
        let open = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let hydra = [("PMI_RANK", "2"), ("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "4")];
        let slurm = [("SLURM_PROCID", "2"), ("SLURM_STEP_NUM_TASKS", "4")];
        let torch = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a")];
        let with = |more: &[(&'static str, &'static str)], transport| [more, &[(TRANSPORT, transport)]].concat();
        for (variables, name) in [(&open[..], "mpirun"), (&hydra, "mpiexec"), (&slurm, "srun")] {
            let by_mpi = Some(Found { rank: 2, ranks: 4, transport: Transport::Mpi(name) });
            assert_eq!(found_by(true, variables).unwrap(), by_mpi);
            assert_eq!(found_by(true, &with(&[&torch, variables].concat(), "mpi")).unwrap(), by_mpi);
        }
        let shared_memory = |found: Option<Found>| match found {
            Some(Found { transport: Transport::Tcp { shared_memory, .. }, .. }) => Some(shared_memory),
            _ => None,
        };
        assert_eq!(shared_memory(found_by(true, &with(&hydra, "tcp")).unwrap()), Some(false));
        assert_eq!(shared_memory(found_by(true, &[&torch[..], &hydra].concat()).unwrap()), Some(true));
        assert_eq!(found_by(true, &with(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")], "mpi")).unwrap(), None);
        assert_eq!(found_by(true, &[]).unwrap(), None);
        for (built_in, variables, expected) in [
            (false, with(&hydra, "mpi"), "this program has no MPI"),
            (true, with(&torch, "mpi"), "started by nothing that starts processes of MPI"),
            (true, with(&hydra, "nccl"), "`RUNNER_TRANSPORT` is `nccl`"),
        ] {
            let Err(Failure::Usage(text)) = found_by(built_in, &variables) else { panic!("{variables:?}") };
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_process_that_was_started_without_others_is_alone() {
        for variables in [
            &[][..],
            &[("RANK", "0"), ("WORLD_SIZE", "1")],
            &[("WORLD_SIZE", "1")],
            // In a batch script, before `srun`.
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "5")],
            &[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")],
        ] {
            assert_eq!(found(variables).unwrap(), None, "{variables:?}");
        }
    }

    #[test]
    fn unclear_variables_are_errors() {
        for (variables, expected) in [
            (&[("RANK", "8"), ("WORLD_SIZE", "8")][..], "`RANK` is 8, and there are 8 ranks, from 0 to 7"),
            (&[("RANK", "first"), ("WORLD_SIZE", "8")], "`RANK` is `first`"),
            (&[("RANK", "1"), ("WORLD_SIZE", "2")], "set `MASTER_ADDR`"),
            (&[("WORLD_SIZE", "2"), ("MASTER_ADDR", "a")], "`WORLD_SIZE` is 2, and `RANK` is not set"),
            (&[("RANK", "0")], "`RANK` is 0, and `WORLD_SIZE` is not set"),
            (&[("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "x")], "`MASTER_PORT` is `x`"),
            (
                &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")],
                "mpirun has started 4 ranks",
            ),
        ] {
            let Err(Failure::Usage(text)) = found(variables) else { panic!("{variables:?}") };
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn the_first_machine_of_a_list_is_found() {
        for (list, first) in [
            ("a", "a"),
            ("a,b", "a"),
            ("node[03-05,7]", "node03"),
            ("n[1,2]", "n1"),
            ("n[12],m", "n12"),
            ("x-1,y[2-3]", "x-1"),
        ] {
            assert_eq!(first_node(list).as_deref(), Some(first));
        }
        assert_eq!(first_node(""), None);
        assert_eq!(first_node("n[1"), None);
    }
}
