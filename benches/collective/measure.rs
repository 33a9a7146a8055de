//! What is measured of ranks, whatever carries their messages. Beside it the model: a latency, and a bandwidth that what each rank sends is divided by.

use runner::collective::tcp::Limits;
use runner::collective::{Collective, Slots};
use runner::graph::DType;
use runner::shards::Shards;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

pub type Member = Arc<dyn Collective>;

/// Numbers of gradients: a small perceptron's, those of the CNN for MNIST, of ResNet-18.
const SIZES: [usize; 4] = [1, 30_000, 824_458, 11_173_962];

pub const LIMITS: Limits =
    Limits { join: Duration::from_secs(30), silence: Duration::from_secs(30), patience: Duration::from_secs(20) };

/// For a measurement of one size.
const SECONDS: f64 = 0.5;

/// True if this is to measure: `cargo test --all-targets` runs benches without the flag, and that they are built is test enough.
pub fn asked_for() -> bool {
    std::env::args().any(|arg| arg == "--bench")
}

/// All sizes, on these ranks of a team, which are all of them or one of MPI's.
pub fn measure(name: &str, members: &[Member], print: impl Fn(String)) -> anyhow::Result<()> {
    let ranks = members[0].ranks();
    print(format!(
        "{:<8} {:>5} {:>12} {:>10} {:>12} {:>14}",
        "engine", "ranks", "gradients", "ms", "MB sent", "MB/s of a rank"
    ));
    let latency = median(members, |member| drop(member.gather(&[1]).map_err(fail)));
    print(format!("{name:<8} {ranks:>5} {:>12} {:>10.3}", "a byte", latency * 1e3));
    for size in SIZES {
        let seconds = sums(members, size);
        // Of each part its partial sums go to the rank that adds them, and the totals to all.
        let sent = 2.0 * 4.0 * (size * (ranks - 1)) as f64 / ranks as f64 / 1e6;
        let rate = sent / (seconds - latency).max(f64::MIN_POSITIVE);
        print(format!("{name:<8} {ranks:>5} {size:>12} {:>10.3} {sent:>12.2} {rate:>14.0}", seconds * 1e3));
    }
    Ok(())
}

fn fail(error: anyhow::Error) {
    println!("{error:#}");
    std::process::exit(1);
}

/// Sums over all ranks, each with so many numbers.
fn sums(members: &[Member], size: usize) -> f64 {
    let ranks = members[0].ranks();
    let order = Shards { count: ranks, ranks }.total(ranks);
    median(members, |member| {
        thread_local!(static GRADIENTS: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) });
        GRADIENTS.with_borrow_mut(|gradients| {
            gradients.resize(size, 1.0);
            let tensor = Slots { dtype: DType::F32, len: size, slots: vec![gradients.as_mut_ptr().cast()] };
            // SAFETY: the numbers live until the end of this function.
            unsafe { member.sum(&order, &[tensor]) }.unwrap_or_else(fail);
        });
    })
}

/// The median of the seconds that all ranks need.
fn median(members: &[Member], work: impl Fn(&Member) + Sync) -> f64 {
    let (start, work) = (&Barrier::new(members.len()), &work);
    let mut times: Vec<f64> = std::thread::scope(|scope| {
        let times = |member| {
            move || {
                work(member);
                start.wait();
                let began = Instant::now();
                work(member);
                // All of them make as many rounds.
                let rounds = (SECONDS / began.elapsed().as_secs_f64().max(1e-5)) as u8;
                let counts = member.gather(&[rounds.max(5)]).unwrap_or_else(|error| {
                    fail(error);
                    Vec::new()
                });
                let rounds = counts.iter().flatten().copied().min().unwrap_or(5);
                let round = |_| {
                    start.wait();
                    let began = Instant::now();
                    work(member);
                    began.elapsed().as_secs_f64()
                };
                (0..rounds).map(round).collect::<Vec<f64>>()
            }
        };
        let threads: Vec<_> = members.iter().map(|member| scope.spawn(times(member))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
