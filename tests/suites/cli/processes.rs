//! Ranks that are processes: the same bits as one, and a clear end when one is killed, stopped or does not fit.

use super::bf16;
use super::photos;
use super::ranked::{SILENCE, TENSORS, config, tensors};
use super::support::{Done, Place, Running, assert_same_runs};
use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// For all to have ended after that: much more than they take.
pub const SOON: Duration = Duration::from_secs(60);

/// A model whose gradients are many enough to go through memory that processes share.
fn wide(train: &str) -> String {
    let config = config(train, "");
    assert!(config.contains("out_features = 24 }"));
    config.replace("out_features = 24 }", "out_features = 400 }")
}

/// Through memory that they share, and over TCP alone.
#[test]
fn processes_come_to_what_one_comes_to() {
    let place = Place::with(&wide("epochs = 2\naccumulate = 2"));
    place.ok("train c.toml --quiet --out one");
    for (ranks, transport) in [(2, ""), (3, ""), (2, "tcp"), (3, "tcp")] {
        let out = format!("p{ranks}{transport}");
        let command = format!("launch --ranks {ranks} --processes -- train c.toml --quiet --out {out}");
        let (_, done) = place.start_with(&command, &[("RUNNER_TRANSPORT", transport.into())]).wait();
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_same_runs((&place, "one"), (&place, &out));
    }
}

#[test]
fn a_run_goes_on_as_processes_and_as_threads() {
    let place = Place::with(&config("epochs = 3", ""));
    place.ok("train c.toml --quiet --out whole");
    place.ok("launch --ranks 2 --processes -- train c.toml --quiet --out r --set train.max_steps=3");
    place.ok("launch --ranks 3 -- train --resume r --quiet --set train.max_steps=9");
    place.ok("launch --ranks 4 --processes -- train --resume r --quiet --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
}

/// The variables of the environment with which a launcher starts each process.
pub fn variables(rank: usize, ranks: usize, port: u16) -> Vec<(&'static str, String)> {
    let [rank, ranks, port] = [rank, ranks, port.into()].map(|n| n.to_string());
    let local = ranks.clone();
    let (silence, seconds) = SILENCE;
    vec![
        ("RANK", rank),
        ("WORLD_SIZE", ranks),
        ("LOCAL_WORLD_SIZE", local),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", port),
        (silence, seconds.into()),
    ]
}

pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// How all of them end, one for each place.
fn together(places: &[&Place], args: &str) -> Vec<Done> {
    let port = free_port();
    let start = |(rank, place): (usize, &&Place)| place.start_with(args, &variables(rank, places.len(), port));
    let running: Vec<Running> = places.iter().enumerate().map(start).collect();
    running.into_iter().map(|running| running.wait().1).collect()
}

#[test]
fn ranks_meet_at_an_address_and_the_first_one_speaks() {
    let (first, second) = (Place::with(&config("epochs = 1", "")), Place::with("this is not read"));
    first.ok("train c.toml --quiet --out one");
    let done = together(&[&first, &second], "train c.toml --out two");
    assert_eq!(done.iter().map(|done| done.code).collect::<Vec<_>>(), [Some(0); 2], "{done:?}");
    assert!(done[0].err.contains("for each of 2 ranks") && done[0].err.contains("done: 7 steps"), "{done:?}");
    assert!(done[1].err.is_empty() && done[1].out.is_empty(), "{done:?}");
    assert_same_runs((&first, "one"), (&first, "two"));
    assert!(!second.path("two").exists());
}

#[test]
fn a_secret_that_can_be_guessed_is_refused() {
    let place = Place::with(&config("epochs = 1", ""));
    let mut variables = variables(0, 2, free_port());
    variables.push(("RUNNER_SECRET", "guess".into()));
    let (_, done) = place.start_with("train c.toml --out r", &variables).wait();
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("`RUNNER_SECRET` has 5 characters, and must have 16 at least"), "{done:?}");
}

#[test]
fn ranks_that_differ_are_refused_before_the_first_step() {
    let places = [Place::with(TENSORS), Place::with(TENSORS)];
    tensors(&places[0], 0.0);
    let both = [&places[0], &places[1]];
    let refused = |expected: &str, code: i32| {
        let done = together(&both, "train c.toml --out r");
        assert_eq!(done[0].code, Some(code), "{done:?}");
        assert!(done[1].code != Some(0) && done[0].err.contains(expected), "{done:?}");
        assert!(!done.iter().any(|done| done.err.contains("panicked")), "{done:?}");
        assert!(!places[0].path("r/last.safetensors").exists());
        fs::remove_dir_all(places[0].path("r")).ok();
        done
    };
    let done = refused("rank 1 has failed: ", 1);
    assert!(done[1].err.starts_with("error: rank 1: ") && done[1].err.contains("t.safetensors"), "{done:?}");
    tensors(&places[1], 0.5);
    refused("rank 1 has other data than rank 0: the training inputs differ\n", 1);
    tensors(&places[1], 0.0);
    places[0].write("c.toml", TENSORS.replace("shards = 4", "shards = 1"));
    refused("2 ranks cannot share 1 shards equally", 2);
    places[0].write("c.toml", TENSORS.replace("\"mse\"", "\"mse\"\nweigth = 2"));
    refused("weigth", 2);
    places[0].write("c.toml", TENSORS);
    let done = together(&both, "train c.toml --out r");
    assert!(done.iter().all(|done| done.code == Some(0)), "{done:?}");
}

/// A file with another byte after its end is another build that computes the same.
#[test]
fn another_build_is_refused() {
    let place = Place::with(&config("epochs = 1", ""));
    let other = place.path("other");
    fs::copy(place.command("").get_program(), &other).unwrap();
    let mut bytes = fs::read(&other).unwrap();
    bytes.push(0);
    fs::write(&other, bytes).unwrap();
    let port = free_port();
    let first = place.start_with("train c.toml --out r", &variables(0, 2, port));
    let second = std::process::Command::new(other)
        .args(["train", "c.toml", "--out", "r"])
        .envs(variables(1, 2, port))
        .current_dir(place.path("."))
        .output()
        .unwrap();
    let (_, first) = first.wait();
    assert_eq!((first.code, second.status.code()), (Some(1), Some(1)), "{first:?}");
    assert!(first.err.contains("rank 1 is another build of runner than rank 0"), "{first:?}");
}

#[test]
fn variables_that_do_not_say_enough_are_refused() {
    let place = Place::with(&config("epochs = 1", ""));
    let run = |variables: &[(&str, &str)]| {
        Done::of(place.command("train c.toml").envs(variables.iter().copied()).output().unwrap())
    };
    for (variables, expected) in [
        (&[("RANK", "1"), ("WORLD_SIZE", "2")][..], "set `MASTER_ADDR`"),
        (&[("RANK", "2"), ("WORLD_SIZE", "2")], "`RANK` is 2"),
        (
            &[("RANK", "0"), ("WORLD_SIZE", "2"), ("RUNNER_RENDEZVOUS", "x"), ("RUNNER_RANK_TIMEOUT", "0")],
            "RUNNER_RANK_TIMEOUT",
        ),
    ] {
        let done = run(variables);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains(expected), "{done:?}");
    }
    assert!(!place.path("runs").exists());
}

/// The process of a rank that `launch` has started.
pub fn process_of(launch: u32, rank: usize) -> Option<i32> {
    let wanted = format!("RANK={rank}");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim();
        let variables = fs::read(entry.path().join("environ")).ok()?;
        let is_rank = variables.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes());
        (parent == launch.to_string() && is_rank).then_some(pid)
    })
}

/// Starts a run that does not end by itself, and waits until it has saved something and a moment of its own.
fn under_way(place: &Place, out: &str, moment: Duration) -> Running {
    let command = format!("launch --ranks 3 --processes -- train c.toml --out {out} --set train.epochs=2000");
    fs::create_dir_all(place.path("tmp")).unwrap();
    let tmp = place.path("tmp").display().to_string();
    let mut running = place.start_with(&command, &[(SILENCE.0, SILENCE.1.into()), ("TMPDIR", tmp)]);
    assert!(running.until(|| place.path(&format!("{out}/last.safetensors")).exists()));
    std::thread::sleep(moment);
    running
}

/// Whatever is done to one of them: all end soon, the message names that one, and what is saved is whole.
fn hit(rank: usize, signal: i32, messages: &[String], moment: u64) {
    let place = Place::with(&wide("epochs = 3").replace("[log]", "[checkpoint]\nevery_steps = 2\n[log]"));
    let running = under_way(&place, "r", Duration::from_millis(moment));
    let pid = process_of(running.id(), rank).unwrap();
    let began = Instant::now();
    // SAFETY: plain numbers; the process is of this test, and is not waited for before its parent is.
    unsafe { libc::kill(pid, signal) };
    let (_, done) = running.wait();
    assert!(began.elapsed() < SOON, "{done:?}");
    assert_eq!(done.code, Some(1), "{done:?}");
    for text in messages {
        assert!(done.err.contains(text), "{text}: {done:?}");
    }
    assert!(!done.err.contains("panicked"), "{done:?}");
    let step = place.checkpoint("r/last.safetensors").meta.step;
    // From there it comes to what one that nothing was done to comes to.
    let steps = step + 5;
    place.ok(&format!("launch --ranks 2 --processes -- train --resume r --quiet --set train.max_steps={steps}"));
    place.ok(&format!("train c.toml --quiet --out whole --set train.epochs=2000 --set train.max_steps={steps}"));
    assert_same_runs((&place, "whole"), (&place, "r"));
}

#[test]
fn a_rank_that_is_killed_ends_all() {
    for (rank, moment) in [(1, 30), (2, 170), (1, 311)] {
        let messages = [
            format!("rank {rank} has failed: it has ended without a word"),
            format!("rank {rank} was ended: signal: 9"),
        ];
        hit(rank, libc::SIGKILL, &messages, moment);
    }
}

#[test]
fn the_first_rank_that_is_killed_ends_all() {
    hit(0, libc::SIGKILL, &["rank 0 was ended: signal: 9".into()], 120);
}

#[test]
fn a_rank_that_is_stopped_ends_the_others() {
    let killed = "rank 2 was killed by `launch`: another rank had failed, and it did not end within 10 s";
    hit(2, libc::SIGSTOP, &["rank 2 has failed: nothing was heard of it for".into(), killed.into()], 90);
}

/// Of the first one the next reports it.
#[test]
fn the_first_rank_that_is_stopped_ends_the_others() {
    let messages = ["error: rank 1: rank 0 has failed: nothing was heard of it for", "rank 0 was killed by `launch`"];
    hit(0, libc::SIGSTOP, &messages.map(String::from), 90);
}

#[test]
fn a_file_of_the_user_is_no_place_to_meet() {
    let place = Place::with(&config("epochs = 1", ""));
    let file = place.write("mine.csv", "important\n1,2,3\n");
    for rank in [0, 1] {
        let mut variables = variables(rank, 2, free_port());
        variables.push(("RUNNER_RENDEZVOUS", file.display().to_string()));
        let (_, done) = place.start_with("train c.toml --out r", &variables).wait();
        assert_eq!(done.code, Some(2 - rank as i32), "{done:?}");
        assert!(done.err.contains("mine.csv`: it is there, and no rank has written it"), "{done:?}");
        assert_eq!(place.read("mine.csv"), "important\n1,2,3\n");
    }
}

/// One that has not come is named when the time is over.
#[test]
fn ranks_wait_as_long_for_one_another_as_they_are_told() {
    let place = Place::with(&config("epochs = 1", ""));
    let port = free_port();
    let began = Instant::now();
    let running = [0, 1].map(|rank| place.start_with("train c.toml --out r", &variables(rank, 3, port)));
    let done = running.map(|running| running.wait().1);
    assert!(began.elapsed() < SOON, "{done:?}");
    let expected = format!("rank 0 has waited {} s for rank 2", SILENCE.1);
    assert!(done[0].code == Some(1) && done[0].err.contains(&expected), "{done:?}");
    assert!(done[1].code == Some(1) && done[1].err.contains("rank 1: rank 2 did not come"), "{done:?}");
}

/// Classes of another name, where no model is there that could know them.
#[test]
fn a_class_that_one_rank_alone_has_is_refused() {
    let places = [0, 1].map(|_| photos::place("", photos::TRANSFORMS));
    let config = places[0].read("c.toml").replace("\"photos\"", "\"/proc/self/cwd/photos\"");
    places[0].write("c.toml", config.replace("batch_size = 5", "batch_size = 4") + "[distributed]\nshards = 2\n");
    for part in ["train", "val"] {
        let folder = places[1].path(&format!("photos/{part}"));
        fs::rename(folder.join("blue"), folder.join("azure")).unwrap();
    }
    let done = together(&[&places[0], &places[1]], "train c.toml --out r");
    let expected =
        "its data has classes that the data of rank 0 does not have: `azure`; those of rank 0 are `blue` and `red`";
    assert!(done.iter().all(|done| done.code == Some(1)), "{done:?}");
    assert!(done[0].err.contains(expected) && !done[0].err.contains("the model does not know"), "{done:?}");
}

/// Any of them may be asked, by any signal.
#[test]
fn all_processes_stop_with_everything_saved_when_one_is_asked_to() {
    let place = Place::with(&config("epochs = 3", ""));
    for (out, rank, signal) in [
        ("a", None, libc::SIGINT),
        ("b", None, libc::SIGUSR1),
        ("c", Some(2), libc::SIGTERM),
        ("d", Some(0), libc::SIGUSR1),
    ] {
        let running = under_way(&place, out, Duration::from_millis(50));
        match rank {
            None => running.signal(signal),
            // SAFETY: plain numbers; the process is of this test, and is not waited for before its parent is.
            Some(rank) => drop(unsafe { libc::kill(process_of(running.id(), rank).unwrap(), signal) }),
        }
        let (_, done) = running.wait();
        assert_eq!(done.code, Some(130), "{out}: {done:?}");
        assert_eq!(done.err.matches("interrupted at step").count(), 1, "{out}: {}", done.err);
        assert!(done.err.contains("saved in"), "{out}: {}", done.err);
        assert!(place.checkpoint(&format!("{out}/last.safetensors")).meta.step > 0);
    }
}

/// Instructions that one of them lacks are used by none, so that all come to the same.
#[test]
fn ranks_with_other_instructions_take_those_that_all_have() {
    let place = Place::with(&config("epochs = 1", ""));
    let scalar = ("RUNNER_SIMD", "scalar".to_owned());
    let (_, one) = place.start_with("train c.toml --quiet --out one", std::slice::from_ref(&scalar)).wait();
    assert_eq!(one.code, Some(0), "{one:?}");
    let port = free_port();
    let first = place.start_with("train c.toml --out two", &variables(0, 2, port));
    let second = place.start_with("train c.toml --out two", &[variables(1, 2, port), vec![scalar]].concat());
    let done = [first, second].map(|running| running.wait().1);
    assert!(done.iter().all(|done| done.code == Some(0)), "{done:?}");
    assert!(done[0].err.contains("1 thread, scalar"), "{done:?}");
    assert_same_runs((&place, "one"), (&place, "two"));
}

/// Units for bf16 that leave other products to single precision are used by none, as if one rank had no unit.
#[test]
fn ranks_with_other_units_for_bf16_compute_without_them() {
    let place = bf16::place();
    let unit = |name: &str| vec![("RUNNER_BF16", name.to_owned())];
    let own = place.ok("devices --json").json()["devices"][0]["bf16"] == "avx512_bf16";
    let other = if own { "avx512_bf16" } else { "off" };
    let words =
        "train c.toml --quiet --threads 1 --set precision=\"bf16\" --set train.epochs=1 --set distributed.shards=2";
    for (out, name) in [("one", "off"), ("plain", "plain")] {
        let (_, done) = place.start_with(&format!("{words} --out {out}"), &unit(name)).wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let port = free_port();
    let ranks = [(0, "plain"), (1, other)];
    let running = ranks.map(|(rank, name)| {
        place.start_with(&format!("{words} --out two"), &[variables(rank, 2, port), unit(name)].concat())
    });
    let done = running.map(|running| running.wait().1);
    assert!(done.iter().all(|done| done.code == Some(0)), "{done:?}");
    let tensors = |run: &str| place.checkpoint(&format!("{run}/last.safetensors")).tensors;
    assert!(tensors("two") == tensors("one") && tensors("one") != tensors("plain"));
}

/// No process is left behind, nor where they met.
#[test]
fn ranks_end_with_what_has_started_them() {
    let place = Place::with(&config("epochs = 3", ""));
    let running = under_way(&place, "r", Duration::from_millis(50));
    let pids: Vec<i32> = (0..3).map(|rank| process_of(running.id(), rank).unwrap()).collect();
    running.signal(libc::SIGKILL);
    drop(running);
    let began = Instant::now();
    while pids.iter().any(|pid| fs::metadata(format!("/proc/{pid}/cwd")).is_ok()) {
        assert!(began.elapsed() < SOON, "some are left");
        std::thread::sleep(Duration::from_millis(20));
    }
    // A rank that is killed may leave its own folder; that of the launcher is gone since all have met.
    let names = fs::read_dir(place.path("tmp")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("runner-ranks")).collect();
    assert!(left.is_empty(), "{left:?}");
    place.ok("train --resume r --quiet --set train.max_steps=1 --device cpu");
}

#[test]
fn a_loss_that_is_not_finite_in_a_process_is_an_error_with_its_place() {
    let place = Place::with(&TENSORS.replace("batch_size = 4", "batch_size = 4\nshuffle = false"));
    tensors(&place, f32::NAN);
    let done = place.run("launch --ranks 4 --processes -- train c.toml --out r");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("rank 2 has failed: the loss is NaN at step 2"), "{done:?}");
    assert!(done.err.contains("error: rank 2: the loss is NaN at step 2"), "{done:?}");
}

/// What `nohup`, and a shell for what outlives it, have the program ignore stays ignored; all else ends it in good order.
#[test]
fn signals_that_were_ignored_stay_ignored() {
    use std::os::unix::process::CommandExt;
    let config = config("epochs = 100000", "");
    for (ignored, ends) in [(libc::SIGHUP, libc::SIGTERM), (libc::SIGINT, libc::SIGHUP), (libc::SIGTERM, libc::SIGINT)]
    {
        let place = Place::with(&config);
        let mut command = place.command("train c.toml --quiet --out r");
        // SAFETY: between fork and exec it makes plain system calls.
        unsafe {
            command.pre_exec(move || {
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
                    libc::signal(signal, if signal == ignored { libc::SIG_IGN } else { libc::SIG_DFL });
                }
                Ok(())
            });
        }
        let mut running = Running::new(&mut command);
        // By its first checkpoint it has long been listening.
        assert!(running.until(|| place.path("r/last.safetensors").exists()));
        let begun = std::fs::metadata(place.path("r/metrics.jsonl")).unwrap().len();
        running.signal(ignored);
        let goes_on = || std::fs::metadata(place.path("r/metrics.jsonl")).is_ok_and(|file| file.len() > begun + 2000);
        assert!(running.until(goes_on), "signal {ignored} has ended it");
        running.signal(ends);
        assert_eq!(running.wait().1.code, Some(130));
    }
}

#[test]
fn a_missing_transport_is_an_error() {
    let place = Place::with(&config("epochs = 1", ""));
    for (transport, expected) in [("mpi", "this program has no MPI"), ("smoke", "must be `mpi` or `tcp`")] {
        let done = Done::of(place.command("train c.toml").env("RUNNER_TRANSPORT", transport).output().unwrap());
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains(expected) && done.err.contains("RUNNER_TRANSPORT"), "{done:?}");
    }
    assert!(!place.path("runs").exists());
}
