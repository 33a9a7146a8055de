//! Signals before the first step of a training: all end it with the exit code of an interruption and one line, whatever it waits for.

use super::processes::{free_port, process_of, variables};
use super::ranked::config;
use super::support::{Done, Place, Running};
use std::fmt::Write as _;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1];

/// Whether a process listens to SIGUSR1, to which it does last.
fn listens(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & (1 << (libc::SIGUSR1 - 1)) != 0)
}

/// It has ended so, before its first step or within it.
fn assert_interrupted(done: &Done, what: &str) {
    assert_eq!(done.code, Some(130), "{what}: {done:?}");
    let [before, within] =
        ["interrupted before the first step", "interrupted at step"].map(|w| done.err.matches(w).count());
    assert_eq!(before + within, 1, "{what}: {done:?}");
    assert!(!done.err.contains("error") && !done.err.contains("failed"), "{what}: {done:?}");
}

#[test]
fn a_training_that_reads_its_data_ends_with_a_word() {
    let place = Place::with(
        "device = \"cpu\"\n[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\nvalidation_split = 0.2\nbatch_size = 100\n\
         [model]\nlayers = [{ type = \"linear\", out_features = 1 }]\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n\
         [train]\nepochs = 1\n[distributed]\nshards = 2\n",
    );
    let mut text = String::from("a,y\n");
    for i in 0..400_000 {
        let _ = writeln!(text, "{},{}", i % 7, i % 11);
    }
    place.write("t.csv", text);
    for (command, signal) in
        [("", libc::SIGUSR1), ("launch --ranks 2 -- ", libc::SIGUSR1), ("launch --ranks 2 -- ", libc::SIGTERM)]
    {
        let mut running = place.start(&format!("{command}train c.toml --quiet --out r"));
        let process = running.id();
        assert!(running.until(|| listens(process)));
        running.signal(signal);
        let (_, done) = running.wait();
        assert_interrupted(&done, command);
        assert!(!place.path("r").exists());
    }
}

#[test]
fn a_rank_that_waits_for_others_ends_with_a_word() {
    let place = Place::with(&config("epochs = 1", ""));
    for signal in SIGNALS {
        let port = free_port();
        let mut running = place.start_with("train c.toml --out r", &variables(0, 2, port));
        assert!(running.until(|| TcpStream::connect(("127.0.0.1", port)).is_ok()));
        running.signal(signal);
        let (_, done) = running.wait();
        assert_interrupted(&done, &signal.to_string());
        assert_eq!(done.err.lines().count(), 1, "{done:?}");
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let running = place.start_with("train c.toml --out r", &variables(1, 2, port));
    let _connection = listener.accept().unwrap();
    running.signal(libc::SIGUSR1);
    let (_, done) = running.wait();
    assert_interrupted(&done, "rank 1");
    assert!(done.err.starts_with("rank 1: interrupted"), "{done:?}");
}

/// To what has started them, and to each of them by itself, at moments from the start of the first one on.
#[test]
fn processes_that_start_end_with_a_word() {
    let place = Place::with(&config("epochs = 100000", ""));
    let start = |out: &str| -> Running {
        let mut running = place.start(&format!("launch --ranks 3 --processes -- train c.toml --out {out}"));
        let process = running.id();
        assert!(running.until(|| listens(process)));
        running
    };
    for (number, moment) in [0, 20, 60, 120, 250].into_iter().enumerate() {
        let signal = SIGNALS[number % SIGNALS.len()];
        for rank in [None, Some(0), Some(1), Some(2)] {
            let what = format!("signal {signal} to {rank:?} after {moment} ms");
            let mut running = start(&format!("r{number}-{rank:?}"));
            let mut process = running.id() as i32;
            if let Some(rank) = rank {
                let launch = running.id();
                assert!(running.until(|| process_of(launch, rank).is_some()));
                process = process_of(launch, rank).unwrap();
            }
            std::thread::sleep(Duration::from_millis(moment));
            // SAFETY: plain numbers; the process is of this test, and is not waited for before its parent is.
            unsafe { libc::kill(process, signal) };
            let (_, done) = running.wait();
            assert_interrupted(&done, &what);
        }
    }
}
