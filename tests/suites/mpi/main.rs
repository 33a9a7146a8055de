//! Ranks over MPI, where there is one: without a model, each test starting itself under `mpiexec`, and the program.

#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
#[path = "../../support/ranked.rs"]
mod ranked;
// Shared with tests that use all of it.
#[cfg(target_os = "linux")]
#[allow(dead_code)]
#[path = "../../support/command.rs"]
mod support;

use runner::collective::tcp::Limits;
use runner::collective::{Collective, Slots, team};
use runner::graph::DType;
use runner::shards::Shards;
use runner_mpi::join;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

/// Set for the processes that `mpiexec` starts.
const MEMBER: &str = "RUNNER_TEST_MPI_MEMBER";

const LIMITS: Limits =
    Limits { join: Duration::from_secs(60), silence: Duration::from_secs(20), patience: Duration::from_secs(20) };

/// Runs `part` as each of so many ranks; what they have said, and whether all have ended well.
fn ranks(ranks: usize, test: &str, part: impl FnOnce(Arc<dyn Collective>)) -> Option<(bool, String)> {
    if std::env::var_os(MEMBER).is_some() {
        part(join(LIMITS, Box::new(|_| ())).unwrap());
        return None;
    }
    let member = std::env::current_exe().unwrap();
    let start = |program: &str| -> Option<Output> {
        let mut command = Command::new(program);
        command.args(["-n", &ranks.to_string()]).arg(&member).args(["--exact", test, "--nocapture"]);
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        command.envs([
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
        ]);
        command.env(MEMBER, "1").output().ok()
    };
    let Some(output) = ["mpiexec", "mpirun"].into_iter().find_map(start) else {
        eprintln!("skipped: there is neither `mpiexec` nor `mpirun`");
        return None;
    };
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

/// The sum over 12 shards of so many numbers each.
fn sum(member: &dyn Collective, length: usize) -> Vec<f32> {
    let shards = Shards { count: 12, ranks: member.ranks() };
    let mut slots = vec![vec![0f32; length]; shards.slots()];
    for shard in shards.of(member.rank()) {
        let place = shards.place(member.rank(), shard, 12);
        let mut sum: Vec<f32> = (0..length).map(|at| ((at * 7 + shard * 131) % 1009) as f32 * 0.37 - 100.0).collect();
        for slot in (place.slot..place.slot + place.merged).rev() {
            sum.iter_mut().zip(&slots[slot]).for_each(|(sum, before)| *sum += *before);
        }
        slots[place.slot] = sum;
    }
    let addresses = slots.iter_mut().map(|slot| slot.as_mut_ptr().cast()).collect();
    let tensor = Slots { dtype: DType::F32, len: length, slots: addresses };
    // SAFETY: the slots live until the end of this function.
    unsafe { member.sum(&shards.total(12), &[tensor]) }.unwrap();
    slots.swap_remove(0)
}

#[test]
fn sums_over_mpi_have_the_bits_of_one_rank() {
    let outcome = ranks(3, "sums_over_mpi_have_the_bits_of_one_rank", |member| {
        for length in [1, 7, 100_003] {
            assert!(sum(member.as_ref(), length) == sum(team(1)[0].as_ref(), length), "{length}");
        }
        println!("rank {} of {} has the sums", member.rank(), member.ranks());
    });
    let Some((good, text)) = outcome else { return };
    assert!(good, "{text}");
    (0..3).for_each(|rank| assert!(text.contains(&format!("rank {rank} of 3 has the sums")), "{text}"));
}

/// Also of one piece to the byte, of a byte more, and of several.
#[test]
fn long_messages_over_mpi_arrive_as_they_were_sent() {
    let content = |rank: usize, len: usize| {
        let words = (0..len.div_ceil(8) as u64).flat_map(|at| (at * 3 + rank as u64).to_le_bytes());
        words.take(len).collect::<Vec<u8>>()
    };
    let outcome = ranks(3, "long_messages_over_mpi_arrive_as_they_were_sent", |member| {
        for len in [16 << 20, (16 << 20) + 1, 5, (50 << 20) + 3, 0] {
            let len_of = |rank: usize| if rank == 1 { len / 3 } else { len };
            let gathered = member.gather(&content(member.rank(), len_of(member.rank()))).unwrap();
            for (rank, given) in gathered.iter().enumerate() {
                assert!(*given == content(rank, len_of(rank)), "{len} bytes of rank {rank}");
            }
        }
        println!("rank {} has all", member.rank());
    });
    let Some((good, text)) = outcome else { return };
    assert!(good, "{text}");
    (0..3).for_each(|rank| assert!(text.contains(&format!("rank {rank} has all")), "{text}"));
}

#[test]
fn ranks_over_mpi_that_wait_for_a_failed_rank_get_its_error() {
    let outcome = ranks(3, "ranks_over_mpi_that_wait_for_a_failed_rank_get_its_error", |member| {
        // Another rank may hear of the failure while it is still in the exchange that the failing one has ended.
        let failed = member.gather(b"x").and_then(|_| {
            if member.rank() == 2 {
                member.fail("the disk is full");
            }
            member.gather(b"x")
        });
        println!("rank {} knows: {}", member.rank(), failed.unwrap_err());
        assert!(member.check().is_err() && member.gather(b"x").is_err());
    });
    let Some((_, text)) = outcome else { return };
    let known = |rank: usize| text.contains(&format!("rank {rank} knows: rank 2 has failed: the disk is full"));
    assert!((0..3).all(known) && !text.contains("panicked"), "{text}");
}

#[test]
fn a_rank_over_mpi_that_leaves_before_the_others_is_an_error() {
    let outcome = ranks(3, "a_rank_over_mpi_that_leaves_before_the_others_is_an_error", |member| {
        // Another rank may hear from the first that knows, while it is still in the exchange that the leaving one has ended.
        let first = member.gather(b"x");
        match member.rank() {
            1 => drop(member),
            rank => println!("rank {rank} knows: {}", first.and_then(|_| member.gather(b"x")).unwrap_err()),
        }
    });
    let Some((_, text)) = outcome else { return };
    for rank in [0, 2] {
        assert!(
            text.contains(&format!("rank {rank} knows: rank 1 has failed: it has ended before the others")),
            "{text}"
        );
    }
}
