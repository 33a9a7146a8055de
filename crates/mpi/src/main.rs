//! The `runner-mpi` binary: `runner`, whose ranks speak by MPI where `mpirun`, `mpiexec` or `srun` has started them.

use runner::api::train::ranks::carry_by_mpi;
use runner::cli;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: cli::allocator::Allocator = cli::allocator::Allocator;

fn main() -> ExitCode {
    carry_by_mpi(runner_mpi::join);
    cli::main(std::env::args_os().collect())
}
