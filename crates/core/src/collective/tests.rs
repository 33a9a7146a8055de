//! What holds for all engines, and what only connections can have wrong.

use super::tcp::{Limits, Meeting, Secret, Warn, World, join};
use super::{Collective, Slots, team};
use crate::graph::DType;
use crate::shards::Shards;
use anyhow::Result;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Member = Arc<dyn Collective>;

const LIMITS: Limits =
    Limits { join: Duration::from_secs(60), silence: Duration::from_secs(20), patience: Duration::from_secs(20) };

fn world(rank: usize, ranks: usize, file: &Path) -> World {
    World { rank, ranks, meeting: Meeting::File(file.into()), shared_memory: true, secret: None }
}

/// Ranks that have joined, each by a thread of its own.
fn joined(worlds: Vec<World>, limits: Limits) -> Vec<Result<Member>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            worlds.iter().map(|world| scope.spawn(move || join(world, limits, Box::new(|_| ())))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Which of them share memory.
fn tcp(ranks: usize, shared_memory: fn(usize) -> bool) -> Vec<Member> {
    let folder = tempfile::tempdir().unwrap();
    let world = |rank| World { shared_memory: shared_memory(rank), ..world(rank, ranks, &folder.path().join("at")) };
    joined((0..ranks).map(world).collect(), LIMITS).into_iter().map(Result::unwrap).collect()
}

/// The teams of all engines: threads, and processes that share memory, that do not, and of which some do.
fn teams(ranks: usize) -> [Vec<Member>; 4] {
    [team(ranks), tcp(ranks, |_| true), tcp(ranks, |_| false), tcp(ranks, |rank| rank != 1)]
}

/// Each rank's part in a thread.
fn all<T: Send>(members: &[Member], part: impl Fn(&Member) -> T + Sync) -> Vec<T> {
    let part = &part;
    std::thread::scope(|scope| {
        let threads: Vec<_> = members.iter().map(|member| scope.spawn(move || part(member))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// All leave at once, as ranks do.
fn leave(members: Vec<Member>) {
    std::thread::scope(|scope| members.into_iter().for_each(|member| drop(scope.spawn(move || drop(member)))));
}

/// What the shards of a step have in two tensors, of `f32` and of `f64`, summed by ranks: the first slots of all of them.
fn summed(members: &[Member], shards: Shards, present: usize, values: &[Vec<f32>]) -> Vec<(Vec<f32>, Vec<f64>)> {
    all(members, |member| {
        let length = values[0].len();
        let mut small = vec![vec![0.0f32; length]; shards.slots()];
        let mut large = vec![vec![0.0f64; length + 3]; shards.slots()];
        for shard in shards.of(member.rank()).filter(|shard| *shard < present) {
            let place = shards.place(member.rank(), shard, present);
            let mut sum = values[shard].clone();
            let mut wide: Vec<f64> = (0..length + 3).map(|i| f64::from(values[shard][i % length]) / 3.0).collect();
            for slot in (place.slot..place.slot + place.merged).rev() {
                sum.iter_mut().zip(&small[slot]).for_each(|(sum, before)| *sum += *before);
                wide.iter_mut().zip(&large[slot]).for_each(|(sum, before)| *sum += *before);
            }
            (small[place.slot], large[place.slot]) = (sum, wide);
        }
        let tensors = [
            Slots { dtype: DType::F32, len: length, slots: small.iter_mut().map(|s| s.as_mut_ptr().cast()).collect() },
            Slots {
                dtype: DType::F64,
                len: length + 3,
                slots: large.iter_mut().map(|s| s.as_mut_ptr().cast()).collect(),
            },
        ];
        // SAFETY: the slots live until the end of this function.
        unsafe { member.sum(&shards.total(present), &tensors) }.unwrap();
        (small.swap_remove(0), large.swap_remove(0))
    })
}

#[test]
fn sums_have_the_same_bits_for_any_number_of_ranks() {
    let mut next = 1u32;
    let mut draw = || {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (next >> 8) as f32 / 1e4 - 800.0
    };
    // The longest goes through memory, where that is shared.
    let values: Vec<Vec<Vec<f32>>> = [1, 7, 1000, 60_000]
        .into_iter()
        .map(|length| (0..12).map(|_| (0..length).map(|_| draw()).collect()).collect())
        .collect();
    let alone = team(1);
    for ranks in [2, 3, 4, 6, 12] {
        for members in teams(ranks) {
            for values in &values {
                for present in [12, 11, 7, 1] {
                    let expected = summed(&alone, Shards::alone(12), present, values).swap_remove(0);
                    for sum in summed(&members, Shards { count: 12, ranks }, present, values) {
                        assert!(sum == expected, "{members:?} {present}");
                    }
                }
            }
            leave(members);
        }
    }
}

#[test]
fn what_ranks_give_is_gathered_in_their_order() {
    for members in teams(3) {
        let gathered = all(&members, |member| {
            let first = member.gather(&vec![member.rank() as u8; member.rank()]).unwrap();
            assert_eq!(member.gather(&[]).unwrap(), [[]; 3] as [[u8; 0]; 3]);
            first
        });
        assert!(gathered.iter().all(|gathered| *gathered == [vec![], vec![1], vec![2, 2]]));
        leave(members);
    }
}

/// More than any buffer of the system: two ranks that send do not wait for each other.
#[test]
fn much_is_gathered() {
    for members in teams(3) {
        let gathered = all(&members, |member| member.gather(&vec![member.rank() as u8; 20 << 20]).unwrap());
        for given in gathered.iter().flatten() {
            assert!(given.len() == 20 << 20 && given.iter().all(|byte| *byte == given[0]));
        }
        leave(members);
    }
}

#[test]
fn ranks_that_wait_for_a_failed_rank_get_its_error() {
    for members in teams(3) {
        let errors = all(&members, |member| match member.rank() {
            2 => {
                member.fail("the disk is full");
                member.check().unwrap_err().to_string()
            }
            _ => member.gather(b"x").unwrap_err().to_string(),
        });
        assert_eq!(errors, ["rank 2 has failed: the disk is full"; 3]);
        assert!(all(&members, |member| member.gather(b"x").is_err()).into_iter().all(|failed| failed));
        leave(members);
    }
}

#[test]
fn a_rank_that_leaves_before_the_others_is_an_error() {
    let mut members = tcp(3, |_| true);
    drop(members.remove(1));
    for error in all(&members, |member| member.gather(b"x").unwrap_err().to_string()) {
        assert_eq!(error, "rank 1 has failed: it has ended before the others");
    }
}

/// A rank whose connections are there and say nothing, as when it is stopped; one whose end comes without a word.
#[test]
fn silence_and_a_sudden_end_are_errors() {
    for (silent, why) in [(true, "nothing was heard of it for 1 s"), (false, "it has ended without a word")] {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { silence: Duration::from_millis(1000), ..LIMITS };
        let worlds: Vec<World> = (0..3).map(|rank| world(rank, 3, &folder.path().join("at"))).collect();
        let errors: Vec<String> = std::thread::scope(|scope| {
            let waits = |rank: usize| {
                let world = &worlds[rank];
                scope
                    .spawn(move || join(world, limits, Box::new(|_| ())).unwrap().gather(b"x").unwrap_err().to_string())
            };
            let others = [waits(0), waits(2)];
            let streams = super::tcp::connections(&worlds[1], LIMITS, &(Box::new(|_: &str| ()) as Warn)).unwrap();
            if !silent {
                drop(streams);
            }
            others.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(errors, [format!("rank 1 has failed: {why}"), format!("rank 1 has failed: {why}")]);
    }
}

#[test]
fn all_ranks_get_the_error_of_ranks_that_do_not_fit_or_do_not_come() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("at");
    let short = Limits { join: Duration::from_millis(500), ..LIMITS };
    for (worlds, limits, expected) in [
        (
            vec![world(0, 3, &file), world(1, 2, &file)],
            LIMITS,
            "rank 1 says that there are 2 ranks, and rank 0 that there are 3",
        ),
        (
            vec![world(0, 3, &file), world(1, 3, &file), world(1, 3, &file)],
            LIMITS,
            "two processes say that they are rank 1",
        ),
        (vec![world(0, 3, &file), world(1, 3, &file)], short, "rank 2"),
        (vec![world(1, 2, &file)], short, "rank 1 cannot reach rank 0 through"),
    ] {
        for outcome in joined(worlds, limits) {
            let message = format!("{:#}", outcome.unwrap_err());
            assert!(message.contains(expected), "{message}");
        }
        assert!(!file.exists());
    }
}

/// A rank that lives and does not come is reported, and is no failure.
#[test]
fn a_long_wait_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { patience: Duration::from_millis(100), ..LIMITS };
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let ranks = |rank: usize| {
        let (world, warnings) = (world(rank, 3, &folder.path().join("at")), warnings.clone());
        let warn = move |text: &str| warnings.lock().unwrap().push(text.to_owned());
        join(&world, limits, Box::new(warn)).unwrap()
    };
    let members: Vec<Member> = std::thread::scope(|scope| {
        let ranks = &ranks;
        let late = |rank: usize| {
            std::thread::sleep(Duration::from_millis(400) * rank as u32);
            ranks(rank)
        };
        let threads: Vec<_> = (0..3).map(|rank| scope.spawn(move || late(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let first = warnings.lock().unwrap().drain(..).next();
    assert!(
        first.as_ref().is_some_and(|text| text.starts_with("rank 0 waits for ranks 1 and 2 at port ")),
        "{first:?}"
    );
    all(&members, |member| {
        if member.rank() > 0 {
            std::thread::sleep(Duration::from_millis(600));
        }
        member.gather(b"x").unwrap()
    });
    leave(members);
    let warnings = warnings.lock().unwrap();
    assert!(warnings.iter().all(|text| text.starts_with("rank 0")), "{warnings:?}");
    assert!(warnings[0].starts_with("rank 0 has waited 0 s for ranks 1, 2, and goes on waiting"), "{warnings:?}");
}

/// A program that tries ports, and a file that an earlier job has left behind.
#[test]
fn strangers_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("at");
    let unused = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    std::fs::write(&file, unused.to_string()).unwrap();
    let host = || "localhost".to_owned();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    for meeting in [Meeting::File(file), Meeting::Address { host: host(), port, local: true }] {
        let worlds: Vec<World> =
            (0..2).map(|rank| World { meeting: meeting.clone(), ..world(rank, 2, Path::new("")) }).collect();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| join(&worlds[0], LIMITS, Box::new(|_| ())).unwrap());
            let reach = || {
                let place: SocketAddr = match &meeting {
                    Meeting::File(file) => std::fs::read_to_string(file).ok()?.lines().next()?.parse().ok()?,
                    Meeting::Address { port, .. } => ([127, 0, 0, 1], *port).into(),
                };
                TcpStream::connect(place).ok()
            };
            let mut stranger = std::iter::repeat_with(reach).flatten().next().unwrap();
            stranger.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let members = [join(&worlds[1], LIMITS, Box::new(|_| ())).unwrap(), first.join().unwrap()];
            assert_eq!(
                all(&members, |member| member.gather(&[member.rank() as u8]).unwrap()),
                [[[0], [1]], [[0], [1]]]
            );
        });
    }
}

/// Connections that say nothing, and one that says a byte every so often: each is heard by itself.
#[test]
fn slow_connections_delay_no_rank() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let meeting = Meeting::Address { host: "127.0.0.1".into(), port, local: true };
    let worlds: Vec<World> =
        (0..2).map(|rank| World { meeting: meeting.clone(), ..world(rank, 2, Path::new("")) }).collect();
    let limits = Limits { join: Duration::from_secs(20), ..LIMITS };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| join(&worlds[0], limits, Box::new(|_| ())));
        let reach = || TcpStream::connect(("127.0.0.1", port)).ok();
        let mut dripping = std::iter::repeat_with(reach).flatten().next().unwrap();
        let idle: Vec<TcpStream> = (0..20).filter_map(|_| reach()).collect();
        let drips = scope.spawn(move || {
            let header = [&b"runner\x01\0"[..], &1000u64.to_le_bytes()].concat();
            for byte in header.into_iter().chain(std::iter::repeat_n(b' ', 1000)) {
                if dripping.write_all(&[byte]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let second = join(&worlds[1], limits, Box::new(|_| ()));
        let members = [first.join().unwrap().unwrap(), second.unwrap()];
        assert_eq!(all(&members, |member| member.gather(b"x").unwrap()).len(), 2);
        // It is cut off in the midst of a word.
        drips.join().unwrap();
        drop(idle);
    });
}

#[test]
fn ranks_of_another_job_are_not_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let meeting = Meeting::Address { host: "127.0.0.1".into(), port, local: true };
    let of = |rank: usize, secret: Option<&str>| World {
        meeting: meeting.clone(),
        secret: secret.map(Secret::of),
        ..world(rank, 2, Path::new(""))
    };
    let short = Limits { join: Duration::from_secs(1), ..LIMITS };
    for (first, second) in [(Some("one secret"), Some("another")), (Some("one secret"), None), (None, Some("another"))]
    {
        let errors: Vec<String> = joined(vec![of(0, first), of(1, second)], short)
            .into_iter()
            .map(|outcome| format!("{:#}", outcome.unwrap_err()))
            .collect();
        // Without a secret of its own the first one takes any rank, which does not take it.
        assert!(errors[0].contains("rank 0 has waited 1 s for rank 1"), "{errors:?}");
        assert!(errors[0].contains("a process at 127.0.0.1 says that it is rank 1, and does not prove"), "{errors:?}");
        assert!(errors[1].contains("secret"), "{errors:?}");
    }
    let members = joined(vec![of(0, Some("one secret")), of(1, Some("one secret"))], LIMITS);
    leave(members.into_iter().map(Result::unwrap).collect());
    // Through a file that other users cannot read, which has the secret. A process that only knows the port is passed over.
    let file = folder.path().join("at");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| join(&world(0, 2, &file), LIMITS, Box::new(|_| ())).unwrap());
        let address = || std::fs::read_to_string(&file).ok()?.lines().next()?.parse::<SocketAddr>().ok();
        let at = std::iter::repeat_with(address).flatten().next().unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let by_port = Meeting::Address { host: "127.0.0.1".into(), port: at.port(), local: true };
        let stranger = World { meeting: by_port, ..world(1, 2, Path::new("")) };
        let message = format!("{:#}", join(&stranger, short, Box::new(|_| ())).unwrap_err());
        assert!(message.contains("is its secret another?"), "{message}");
        let second = join(&world(1, 2, &file), LIMITS, Box::new(|_| ())).unwrap();
        leave(vec![first.join().unwrap(), second]);
    });
}

/// To open it does not wait for its other end.
#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_the_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("at");
    let name = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
    // SAFETY: the name is a string with an end, alive for the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let short = Limits { join: Duration::from_millis(300), ..LIMITS };
    let message = format!("{:#}", join(&world(1, 2, &file), short, Box::new(|_| ())).unwrap_err());
    assert!(message.contains("is a pipe, not a file"), "{message}");
    // It stays where it is.
    let message = format!("{:#}", join(&world(0, 2, &file), short, Box::new(|_| ())).unwrap_err());
    assert!(message.contains("no rank has written it") && file.exists(), "{message}");
}

/// A rank that stops at any moment while they meet is the one that all others name.
#[test]
fn a_rank_that_stops_while_all_meet_is_named() {
    let limits = Limits { join: Duration::from_secs(2), silence: Duration::from_secs(1), ..LIMITS };
    for moment in [0, 1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("at");
        let worlds: Vec<World> = (0..4).map(|rank| world(rank, 4, &file)).collect();
        let errors: Vec<String> = std::thread::scope(|scope| {
            let waits = |rank: usize| {
                let world = &worlds[rank];
                scope.spawn(move || format!("{:#}", join(world, limits, Box::new(|_| ())).unwrap_err()))
            };
            let others = [waits(0), waits(1), waits(3)];
            // Before it comes; when it has come to the first one; when it is connected to all.
            let stopped = super::tcp::stopped(&worlds[2], limits, moment);
            let errors = others.into_iter().map(|thread| thread.join().unwrap()).collect();
            drop(stopped);
            errors
        });
        let expected = match moment {
            0 => ["rank 0 has waited 2 s for rank 2", "rank 2 did not come", "rank 2 did not come"],
            _ => ["rank 2 has failed: nothing was heard of it for 1 s"; 3],
        };
        assert_eq!(errors, expected, "{moment}");
    }
}

/// A length beyond that of any message of a rank: no memory is taken for it.
#[test]
fn a_length_that_cannot_be_is_no_message() {
    let folder = tempfile::tempdir().unwrap();
    let worlds: Vec<World> = (0..2).map(|rank| world(rank, 2, &folder.path().join("at"))).collect();
    std::thread::scope(|scope| {
        let first =
            scope.spawn(|| join(&worlds[0], LIMITS, Box::new(|_| ())).unwrap().gather(b"x").unwrap_err().to_string());
        let mut peers = super::tcp::connections(&worlds[1], LIMITS, &(Box::new(|_: &str| ()) as Warn)).unwrap();
        let stream = &mut peers.peers[0].as_mut().unwrap().stream;
        stream.write_all(&[&b"runner\x02\0"[..], &(1u64 << 44).to_le_bytes()].concat()).unwrap();
        let message = first.join().unwrap();
        assert!(message.contains("it sends 17592186044416 bytes, and at most 1073741824 are expected"), "{message}");
    });
}
