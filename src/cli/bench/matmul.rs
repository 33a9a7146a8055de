//! `runner bench matmul`: a matrix product on every device.

use super::{Times, product};
use crate::api::failure::Failure;
use crate::backend::Backend;
use crate::cli::args::BenchArgs;
use crate::config::language::values::Device;
use crate::graph::DType;
use crate::train::setup::device::{Wanted, select};
use serde_json::{Value, json};
use std::process::ExitCode;

/// What a device has done.
struct Row {
    device: String,
    times: Times,
    gflops: f64,
    /// GFLOP/s, and what has reached them.
    peak: (f64, String),
}

/// Times the product; on the CPU and the first GPU, if no device is named.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let wanted = match &args.overrides.device {
        Some(d) => d.parse::<Device>().map_err(Failure::Usage)?,
        None => Device::Auto,
    };
    if !args.overrides.set.is_empty() {
        return Err(Failure::Usage("`bench matmul` has no configuration to --set values in".into()));
    }
    if !args.passes.without.is_empty() {
        return Err(Failure::Usage(
            "`bench matmul` is one operation: no pass is run --without which it could be".into(),
        ));
    }
    if args.trace.is_some() {
        return Err(Failure::Usage("`bench matmul` is one operation: --trace is for a configuration".into()));
    }
    if args.eval {
        return Err(Failure::Usage("`bench matmul` has nothing to evaluate: --eval is for a configuration".into()));
    }
    let n = args.n as usize;
    let open = |device| select(&Wanted::plain(device, args.threads)).map(|selected| selected.backend);
    let mut no_gpu = None;
    let rows = match wanted {
        Device::Auto => {
            let mut rows = vec![measure(open(Device::Cpu)?.as_ref(), n, args.steps)?];
            match open(Device::Cuda(0)) {
                Ok(gpu) => rows.push(measure(gpu.as_ref(), n, args.steps)?),
                Err(e) => no_gpu = format!("{e:#}").lines().next().map(str::to_string),
            }
            rows
        }
        device => vec![measure(open(device)?.as_ref(), n, args.steps)?],
    };
    if args.output.json {
        let devices: Vec<Value> = rows.iter().map(Row::json).collect();
        let mut out = json!({ "n": n, "runs": args.steps, "devices": devices });
        if let Some(why) = no_gpu {
            out["no_gpu"] = why.into();
        }
        crate::cli::print_json(&out)?;
    } else {
        let mut text = format!("{n} × {n} × {n} in single precision, median of {}\n", args.steps);
        rows.iter().for_each(|row| text.push_str(&row.text()));
        if let Some(why) = no_gpu {
            text.push_str(&format!("  {why}\n"));
        }
        crate::cli::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(backend: &dyn Backend, n: usize, runs: u32) -> anyhow::Result<Row> {
    let times = product::time(backend, n, DType::F32, runs)?;
    let gflops = product::gflops(n, times.median);
    let peak = match backend.measured_peak()? {
        Some(peak) => (peak, "multiply-adds in registers on all threads".to_string()),
        None => {
            let (best, rows) = product::best(backend, DType::F32)?;
            let fastest = product::gflops(n, times.min);
            if fastest > best {
                (fastest, format!("the fastest product of matrices, this one of {n} rows"))
            } else {
                (best, format!("the fastest product of matrices, of {rows} rows"))
            }
        }
    };
    Ok(Row { device: backend.describe(), times, gflops, peak })
}

impl Row {
    fn json(&self) -> Value {
        json!({
            "device": self.device,
            "ms": self.times.median,
            "ms_min": self.times.min,
            "ms_max": self.times.max,
            "gflops": self.gflops,
            "peak_gflops": self.peak.0,
            "peak": self.peak.1,
            "peak_share": self.gflops / self.peak.0,
        })
    }

    fn text(&self) -> String {
        let Row { device, times, gflops, peak } = self;
        let share = 100.0 * gflops / peak.0;
        format!(
            "  {device}: {:.3} ms ({:.3} to {:.3}), {gflops:.0} GFLOP/s, {share:.0} % of {:.0} ({})\n",
            times.median, times.min, times.max, peak.0, peak.1
        )
    }
}
