//! Ranks that MPI starts and whose messages it carries: the same bits as one without it, and a clear end of all when one ends.

use super::ranked::{SILENCE, TENSORS, config, tensors};
use super::support::{Done, Place, Running, assert_same_runs};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What an MPI calls the number of a rank.
const RANK: [&str; 2] = ["PMI_RANK", "OMPI_COMM_WORLD_RANK"];

/// What starts ranks.
struct Mpi {
    program: &'static str,
    /// It has an option to leave the others alone when a rank has ended.
    hydra: bool,
}

impl Mpi {
    /// `None` where the machine has none.
    fn found() -> Option<Mpi> {
        let version = |program| Some((program, Command::new(program).arg("--version").output().ok()?));
        let Some((program, version)) = ["mpiexec", "mpirun"].into_iter().find_map(version) else {
            eprintln!("skipped: there is neither `mpiexec` nor `mpirun`");
            return None;
        };
        Some(Mpi { program, hydra: String::from_utf8_lossy(&version.stdout).contains("HYDRA") })
    }

    /// So many ranks, which are not started yet; `by` is what starts each of them, if it is not this itself.
    fn command(&self, place: &Place, by: &[&str], ranks: usize, args: &str) -> Command {
        let mut command = Command::new(self.program);
        if !by.is_empty() {
            command.arg("-disable-auto-cleanup");
        }
        command
            .args(["-n", &ranks.to_string()])
            .args(by)
            .arg(place.command("").get_program())
            .args(args.split_whitespace())
            .current_dir(place.path("."))
            .stdin(Stdio::null())
            // Open MPI starts as many as there are cores, and none for root, unless it is asked to.
            .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
            .envs([
                ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
                ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
            ])
            .envs([SILENCE]);
        command
    }

    fn ok(&self, place: &Place, ranks: usize, args: &str) -> Done {
        let done = ended(Running::new(&mut self.command(place, &[], ranks, args)));
        assert_eq!(done.code, Some(0), "{ranks} ranks, `{args}`: {done:?}");
        done
    }

    /// Starts three ranks whose run does not end by itself, and waits until it has saved something and a moment of its own.
    fn under_way(&self, place: &Place, by: &[&str], moment: u64) -> Running {
        let args = "train c.toml --out r --set train.epochs=2000";
        let mut running = Running::new(&mut self.command(place, by, 3, args));
        assert!(running.until(|| place.path("r/last.safetensors").exists()), "{:?}", running.wait());
        std::thread::sleep(Duration::from_millis(moment));
        running
    }
}

/// How it ends, which it must soon.
fn ended(mut running: Running) -> Done {
    assert!(!running.until(|| false));
    running.wait().1
}

/// The process of a rank that works in this folder.
fn process_of(place: &Place, rank: usize) -> i32 {
    let folder = fs::canonicalize(place.path(".")).unwrap();
    let program = fs::canonicalize(place.command("").get_program()).unwrap();
    let wanted = RANK.map(|name| format!("{name}={rank}"));
    let is_rank = |pid: &i32| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let is = |link: &str, what: &Path| fs::read_link(format!("/proc/{pid}/{link}")).is_ok_and(|at| at == what);
        is("cwd", &folder)
            && is("exe", &program)
            && variables.split(|byte| *byte == 0).any(|own| wanted.iter().any(|wanted| wanted.as_bytes() == own))
    };
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_rank).unwrap()
}

/// Whether a process has a thread that calls MPI.
fn uses_mpi(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads.into_iter().any(|thread| fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name == "mpi\n"))
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: plain numbers; the process is of this test, and is not waited for before its parent is.
    unsafe { libc::kill(pid, signal) };
}

#[test]
fn ranks_over_mpi_come_to_what_one_comes_to() {
    let Some(mpi) = Mpi::found() else { return };
    let place = Place::with(&config("epochs = 2\naccumulate = 2", ""));
    place.ok("train c.toml --quiet --out one");
    for ranks in [1, 2, 3] {
        mpi.ok(&place, ranks, &format!("train c.toml --quiet --out m{ranks}"));
        assert_same_runs((&place, "one"), (&place, &format!("m{ranks}")));
    }
    // Their own connections, beside MPI's.
    let mut tcp = mpi.command(&place, &[], 2, "train c.toml --quiet --out tcp");
    let done = ended(Running::new(tcp.env("RUNNER_TRANSPORT", "tcp")));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_same_runs((&place, "m2"), (&place, "tcp"));
}

#[test]
fn a_run_goes_on_over_mpi_and_without() {
    let Some(mpi) = Mpi::found() else { return };
    let place = Place::with(&config("epochs = 3", ""));
    place.ok("train c.toml --quiet --out whole");
    let first = mpi.ok(&place, 2, "train c.toml --out r --set train.max_steps=3");
    assert!(first.err.contains("for each of 2 ranks"), "{first:?}");
    place.ok("launch --ranks 4 --processes -- train --resume r --quiet --set train.max_steps=9");
    mpi.ok(&place, 3, "train --resume r --quiet --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
}

/// Both the rank that has met it and the first one say it, before `mpiexec` ends them.
#[test]
fn a_loss_that_is_not_finite_is_reported_by_its_rank_and_the_first_one() {
    let Some(mpi) = Mpi::found() else { return };
    let place = Place::with(&TENSORS.replace("batch_size = 4", "batch_size = 4\nshuffle = false"));
    tensors(&place, f32::NAN);
    let done = ended(Running::new(&mut mpi.command(&place, &[], 4, "train c.toml --out r")));
    assert_ne!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("error: rank 2 has failed: the loss is NaN at step 2"), "{done:?}");
    assert!(done.err.contains("error: rank 2: the loss is NaN at step 2"), "{done:?}");
    assert!(!done.err.contains("panicked"), "{done:?}");
}

#[test]
fn ranks_that_do_not_fit_are_refused_over_mpi() {
    let Some(mpi) = Mpi::found() else { return };
    let place = Place::with(&TENSORS.replace("shards = 4", "shards = 1"));
    tensors(&place, 0.0);
    let done = ended(Running::new(&mut mpi.command(&place, &[], 2, "train c.toml --out r")));
    // That of the first one.
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("error: 2 ranks cannot share 1 shards equally"), "{done:?}");
    // Each is alone for MPI, as if another one's `mpirun` had started it.
    let alone = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
    let done = ended(Running::new(place.command("train c.toml --out r").envs(alone)));
    assert!(done.err.contains("this is rank 1 of 2 by the variables of srun, and rank 0 of 1 by MPI"), "{done:?}");
    assert!(!place.path("r/last.safetensors").exists());
}

/// Whatever is done to one of them: all end soon, and what is saved is whole.
fn hit(started_by: &[&str], rank: usize, by: i32, messages: &[&str], moment: u64) {
    let Some(mpi) = Mpi::found() else { return };
    if !started_by.is_empty() && !mpi.hydra {
        return eprintln!("skipped: this MPI ends all ranks when one has ended");
    }
    let place = Place::with(&config("epochs = 3", "").replace("[log]", "[checkpoint]\nevery_steps = 2\n[log]"));
    let running = mpi.under_way(&place, started_by, moment);
    let pid = process_of(&place, rank);
    assert!(uses_mpi(pid));
    signal(pid, by);
    let done = ended(running);
    // Where something else starts them, `mpiexec` hears nothing of it.
    assert_eq!(done.code == Some(0), !started_by.is_empty(), "{done:?}");
    assert!(messages.is_empty() || messages.iter().any(|text| done.err.contains(text)), "{done:?}");
    assert!(!done.err.contains("panicked"), "{done:?}");
    // From there it comes to what one that nothing was done to comes to.
    let steps = place.checkpoint("r/last.safetensors").meta.step + 5;
    mpi.ok(&place, 2, &format!("train --resume r --quiet --set train.max_steps={steps}"));
    place.ok(&format!("train c.toml --quiet --out whole --set train.epochs=2000 --set train.max_steps={steps}"));
    assert_same_runs((&place, "whole"), (&place, "r"));
}

#[test]
fn a_rank_over_mpi_that_is_killed_ends_all() {
    hit(&[], 1, libc::SIGKILL, &[], 130);
}

/// Where `mpiexec` does not end the others itself. It sends them SIGUSR1 then, which ends them well if the one that is gone
/// has had its part in that step.
#[test]
fn ranks_over_mpi_notice_that_one_is_gone() {
    let survives = ["sh", "-c", "trap : USR1; \"$@\"; true", "sh"];
    hit(&survives, 1, libc::SIGKILL, &["rank 1 has failed: ", "interrupted at step"], 60);
}

#[test]
fn a_rank_over_mpi_that_is_stopped_ends_the_others() {
    hit(&[], 2, libc::SIGSTOP, &["rank 2 has failed: nothing was heard of it for 4 s"], 90);
}

#[test]
fn the_first_rank_over_mpi_that_is_stopped_ends_the_others() {
    hit(&[], 0, libc::SIGSTOP, &[], 90);
}

#[test]
fn all_ranks_over_mpi_stop_with_everything_saved_when_one_is_asked_to() {
    let Some(mpi) = Mpi::found() else { return };
    let place = Place::with(&config("epochs = 3", ""));
    let running = mpi.under_way(&place, &[], 50);
    signal(process_of(&place, 1), libc::SIGUSR1);
    let done = ended(running);
    assert_eq!(done.err.matches("interrupted at step").count(), 1, "{done:?}");
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(place.checkpoint("r/last.safetensors").meta.step > 0);
}

#[test]
fn a_process_that_mpi_did_not_start_ends_with_an_error() {
    let place = Place::with(&config("epochs = 1", ""));
    let done = Done::of(place.command("train c.toml").env("RUNNER_TRANSPORT", "mpi").output().unwrap());
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("this process was started by nothing that starts processes of MPI"), "{done:?}");
    assert!(!place.path("runs").exists());
}

#[test]
fn the_program_says_that_it_has_mpi() {
    assert_eq!(Place::new().ok("doctor --no-timing --json").json()["mpi"], serde_json::json!(true));
}
