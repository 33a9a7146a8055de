//! What ranks on one machine need to tell each other something and to sum gradients, as threads, through memory that processes share, and
//! over TCP on the loopback device alone: `cargo bench --bench collective [-- RANKS...]`.

mod measure;

use measure::{LIMITS, Member, measure};
use runner::collective::tcp::{Meeting, World, join};
use runner::collective::team;

fn main() -> anyhow::Result<()> {
    if !measure::asked_for() {
        return Ok(());
    }
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let numbers = if asked.is_empty() { vec![2, 4, 8] } else { asked };
    for ranks in numbers {
        for (name, members) in [("threads", team(ranks)), ("memory", tcp(ranks, true)?), ("tcp", tcp(ranks, false)?)] {
            measure(name, &members, |line| println!("{line}"))?;
        }
    }
    Ok(())
}

fn tcp(ranks: usize, shared_memory: bool) -> anyhow::Result<Vec<Member>> {
    let file = std::env::temp_dir().join(format!("runner-bench-{}", std::process::id()));
    let join = |rank| {
        let world = World { rank, ranks, meeting: Meeting::File(file.clone()), shared_memory, secret: None };
        join(&world, LIMITS, Box::new(|text| println!("{text}")))
    };
    std::thread::scope(|scope| {
        let join = &join;
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || join(rank))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))?).collect()
    })
}
