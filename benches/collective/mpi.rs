//! The bench `collective` over MPI: `cargo bench -p runner-mpi --bench collective_mpi --no-run`, and what that builds started by `mpirun`, with `--bench`.

mod measure;

use measure::{LIMITS, measure};

fn main() -> anyhow::Result<()> {
    if !measure::asked_for() {
        return Ok(());
    }
    let member = runner_mpi::join(LIMITS, Box::new(|text| println!("{text}")))?;
    let first = member.rank() == 0;
    measure("mpi", &[member], |line| {
        if first {
            println!("{line}")
        }
    })
}
