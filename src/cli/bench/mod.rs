//! `runner bench`.

mod chrome;
mod matmul;
mod product;
mod profile;
mod step;
mod table;

use super::args::BenchArgs;
use crate::api::failure::Failure;
use crate::backend::Backend;
use crate::config::Loaded;
use crate::data::DataSpec;
use std::process::ExitCode;
use std::time::Instant;

/// Steps before the clock starts.
const WARM_UP: u32 = 3;

/// Runs the benchmark that the arguments name.
pub(super) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    if args.what == "matmul" { matmul::run(args) } else { step::run(args) }
}

/// Steps that a profile for a report is made of.
const REPORT_STEPS: u32 = 5;

/// The training step's time and those of its operations, as `bench --profile --json` has them: `step_ms`, `nodes`.
///
/// # Errors
/// The model does not fit its data; there is not enough memory; the device failed.
pub(super) fn profile_of(
    loaded: &Loaded,
    data: &DataSpec,
    backend: &dyn Backend,
) -> Result<serde_json::Value, Failure> {
    step::profile_of(loaded, data, backend, REPORT_STEPS)
}

/// Milliseconds of a training step, the median of `steps`.
///
/// # Errors
/// As for [`profile_of`].
pub(super) fn step_ms(loaded: &Loaded, data: &DataSpec, backend: &dyn Backend, steps: u32) -> Result<f64, Failure> {
    step::step_ms(loaded, data, backend, steps)
}

/// Median, smallest and largest of some times in milliseconds.
struct Times {
    median: f64,
    min: f64,
    max: f64,
}

impl Times {
    fn of(mut list: Vec<f64>) -> Times {
        list.sort_by(f64::total_cmp);
        let n = list.len();
        let median = if n.is_multiple_of(2) { (list[n / 2 - 1] + list[n / 2]) / 2.0 } else { list[n / 2] };
        Times { median, min: list[0], max: list[n - 1] }
    }
}

/// Runs `f` until warm, then `steps` times; milliseconds.
fn time(steps: u32, mut f: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Times> {
    for _ in 0..WARM_UP {
        f()?;
    }
    let mut list = Vec::with_capacity(steps as usize);
    for _ in 0..steps {
        let start = Instant::now();
        f()?;
        list.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Times::of(list))
}
