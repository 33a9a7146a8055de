//! Ranks whose network is slow, stands still or breaks, and whatever else happens to one of them at any moment.

use super::processes::{SOON, free_port, variables};
use super::ranked::{SILENCE, config};
use super::support::{Done, Place, Running, assert_same_runs};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

const RANKS: usize = 3;

/// How a network is.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(u8)]
enum Weather {
    Good,
    /// Some megabytes a second.
    Slow,
    /// Nothing arrives, and no connection ends.
    Still,
    /// Connections are reset.
    Broken,
}

/// A network between the first rank and the others, which come through a port of it.
struct Network {
    port: u16,
    weather: Arc<AtomicU8>,
}

impl Network {
    fn to(first: u16) -> Network {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (port, weather) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU8::new(0)));
        let of_thread = weather.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten().take(RANKS - 1) {
                let began = Instant::now();
                let far = loop {
                    match TcpStream::connect(("127.0.0.1", first)) {
                        Ok(far) => break far,
                        Err(error) => assert!(began.elapsed() < SOON, "{error}"),
                    }
                    std::thread::sleep(Duration::from_millis(5));
                };
                for end in [&near, &far] {
                    end.set_nodelay(true).unwrap();
                }
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let weather = of_thread.clone();
                    std::thread::spawn(move || carry(from, to, &weather));
                }
            }
        });
        Network { port, weather }
    }

    fn be(&self, weather: Weather) {
        self.weather.store(weather as u8, Ordering::Relaxed);
    }
}

/// Carries bytes in one direction, until there are none any more.
fn carry(mut from: TcpStream, mut to: TcpStream, weather: &AtomicU8) {
    let mut bytes = vec![0; 4096];
    from.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    loop {
        let now = weather.load(Ordering::Relaxed);
        if now == Weather::Still as u8 {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        if now == Weather::Broken as u8 {
            break;
        }
        let length = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        if now == Weather::Slow as u8 {
            std::thread::sleep(Duration::from_millis(1));
        }
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}

/// All ranks of a run, which go on until so many steps are done.
fn start(place: &Place, out: &str, steps: u64) -> (Vec<Running>, Network) {
    let first = free_port();
    let network = Network::to(first);
    let command = format!("train c.toml --out {out} --set train.epochs=2000 --set train.max_steps={steps}");
    let ranks = (0..RANKS).map(|rank| {
        let port = if rank == 0 { first } else { network.port };
        place.start_with(&command, &variables(rank, RANKS, port))
    });
    let mut ranks: Vec<Running> = ranks.collect();
    assert!(ranks[0].until(|| place.path(&format!("{out}/last.safetensors")).exists()));
    (ranks, network)
}

fn place() -> Place {
    Place::with(&config("epochs = 3", "").replace("[log]", "[checkpoint]\nevery_steps = 2\n[log]"))
}

fn all(ranks: Vec<Running>) -> Vec<Done> {
    let began = Instant::now();
    let done: Vec<Done> = ranks.into_iter().map(|rank| rank.wait().1).collect();
    assert!(began.elapsed() < SOON, "{done:?}");
    assert!(!done.iter().any(|done| done.err.contains("panicked")), "{done:?}");
    done
}

/// What is saved is whole, and from there a run comes to what an undisturbed one comes to.
fn goes_on(place: &Place, out: &str) {
    let steps = place.checkpoint(&format!("{out}/last.safetensors")).meta.step + 5;
    place.ok(&format!("launch --ranks 2 -- train --resume {out} --quiet --set train.max_steps={steps}"));
    is_undisturbed(place, out, steps);
}

fn is_undisturbed(place: &Place, out: &str, steps: u64) {
    place.ok(&format!(
        "train c.toml --quiet --out {out}-whole --set train.epochs=2000 --set train.max_steps={steps} --device cpu"
    ));
    assert_same_runs((place, &format!("{out}-whole")), (place, out));
}

#[test]
fn a_slow_network_changes_no_result() {
    let place = place();
    let (ranks, network) = start(&place, "r", 40);
    network.be(Weather::Slow);
    let done = all(ranks);
    assert!(done.iter().all(|done| done.code == Some(0)), "{done:?}");
    is_undisturbed(&place, "r", 40);
}

#[test]
fn a_broken_network_ends_all() {
    let place = place();
    let (ranks, network) = start(&place, "r", 1_000_000);
    network.be(Weather::Broken);
    let done = all(ranks);
    assert!(done.iter().all(|done| done.code == Some(1)), "{done:?}");
    assert!(done[0].err.contains(" has failed: it has ended without a word"), "{done:?}");
    goes_on(&place, "r");
}

#[test]
fn a_network_that_stands_still_ends_all() {
    let place = place();
    let (ranks, network) = start(&place, "r", 1_000_000);
    network.be(Weather::Still);
    let done = all(ranks);
    assert!(done.iter().all(|done| done.code == Some(1)), "{done:?}");
    assert!(done[0].err.contains(" has failed: nothing was heard of it for"), "{done:?}");
    goes_on(&place, "r");
}

/// What happens to a rank, or to the network.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Killed(usize),
    Stopped(usize),
    /// For less than the time after which it counts as gone.
    Paused(usize),
    Network(Weather),
    /// Likewise.
    Still,
}

/// Rounds of faults at other moments: three, or as many as `RUNNER_FAULT_ROUNDS` says.
#[test]
fn whatever_happens_at_any_moment() {
    let rounds = std::env::var("RUNNER_FAULT_ROUNDS").map_or(3, |text| text.parse().unwrap());
    let mut next = 20u64;
    let mut draw = |n: u64| {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (next >> 33) % n
    };
    for round in 0..rounds {
        let rank = draw(RANKS as u64) as usize;
        let fault = match draw(6) {
            0 => Fault::Killed(rank),
            1 => Fault::Stopped(rank),
            2 => Fault::Paused(rank),
            3 => Fault::Still,
            4 => Fault::Network(Weather::Broken),
            _ => Fault::Network(Weather::Still),
        };
        let moment = Duration::from_millis(draw(400));
        suffer(fault, moment, &format!("round {round}: {fault:?} after {moment:?}"));
    }
}

fn suffer(fault: Fault, moment: Duration, what: &str) {
    let place = place();
    let ends = matches!(fault, Fault::Killed(_) | Fault::Stopped(_) | Fault::Network(_));
    let steps = if ends { 1_000_000 } else { 150 };
    let (ranks, network) = start(&place, "r", steps);
    // SAFETY: plain numbers; the process is of this test, and is not waited for before.
    let signal = |rank: usize, signal: i32| unsafe { libc::kill(ranks[rank].id() as i32, signal) };
    let brief = Duration::from_secs_f64(SILENCE.1.parse::<f64>().unwrap() / 8.0);
    std::thread::sleep(moment);
    let mut stopped = None;
    match fault {
        Fault::Killed(rank) => drop(signal(rank, libc::SIGKILL)),
        Fault::Stopped(rank) => {
            signal(rank, libc::SIGSTOP);
            stopped = Some(rank);
        }
        Fault::Paused(rank) => {
            signal(rank, libc::SIGSTOP);
            std::thread::sleep(brief);
            signal(rank, libc::SIGCONT);
        }
        Fault::Network(weather) => network.be(weather),
        Fault::Still => {
            network.be(Weather::Still);
            std::thread::sleep(brief);
            network.be(Weather::Good);
        }
    }
    let mut ranks: Vec<Option<Running>> = ranks.into_iter().map(Some).collect();
    let stopped = stopped.and_then(|rank| ranks[rank].take());
    let done = all(ranks.into_iter().flatten().collect());
    if let Some(stopped) = stopped {
        // It has heard of nothing yet.
        stopped.signal(libc::SIGCONT);
        assert_ne!(stopped.wait().1.code, Some(0), "{what}");
    }
    if ends {
        assert!(done.iter().all(|done| done.code != Some(0)), "{what}: {done:?}");
        goes_on(&place, "r");
    } else {
        assert!(done.iter().all(|done| done.code == Some(0)), "{what}: {done:?}");
        is_undisturbed(&place, "r", steps);
    }
}
