//! Speed over odd and even sizes on the CPU: `cargo bench --bench sweeps`, or with `-- NAME…` only the sweeps of these names:
//! batches, eval, conv, depthwise, grouped, linear, attention. `RUNNER_SIMD` chooses the instructions, `--threads N` their number (2).

mod attention;
mod models;
mod operations;

use anyhow::{Result, bail};

/// All sweeps.
const NAMES: [&str; 7] = ["batches", "eval", "conv", "depthwise", "grouped", "linear", "attention"];

fn main() -> Result<()> {
    // `cargo test --all-targets` runs this too, and without the flag: building is test enough.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let (mut names, mut threads) = (Vec::new(), 2);
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--threads" => threads = args.next().unwrap_or_default().parse()?,
            name if NAMES.contains(&name) => names.push(name.to_string()),
            other => bail!("there is no sweep `{other}`; there are {}", NAMES.join(", ")),
        }
    }
    for name in NAMES.into_iter().filter(|name| names.is_empty() || names.iter().any(|n| n == name)) {
        match name {
            "batches" => models::batches(threads)?,
            "eval" => models::evaluation(threads)?,
            "attention" => attention::sweep(threads)?,
            name => operations::sweep(name, threads)?,
        }
    }
    Ok(())
}
