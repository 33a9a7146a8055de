//! Our training beside PyTorch's on the CPU, in turn on one machine:
//!
//! ```text
//! RUNNER_TEST_DATA=DIR cargo bench --bench pytorch -- --python venv/bin/python
//! ```
//!
//! prints tables in Markdown; `--model resnet50 --batch 16 --side 160` measures a file of `models/` instead, `--eval` evaluation;
//! `-- --help` lists the options. Without a Python that has PyTorch it measures ours alone.

mod figures;
mod machine;
mod peer;
mod process;
mod runs;
mod steps;

use anyhow::{Result, ensure};
use clap::Parser;
use machine::Machine;
use std::path::PathBuf;

/// What there is to measure: steps, and whole processes.
const WORKLOADS: [&str; 7] =
    ["mnist_cnn_256", "mnist_cnn_64", "mlp_256", "resnet18_128", "mobilenet_v3_small_16", "first_step", "epoch"];

/// Our training beside PyTorch's on the CPU, in turn on one machine.
#[derive(Debug, Parser)]
struct Options {
    /// A Python with PyTorch; for ResNet-18 with torchvision, too
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// Only this workload (repeatable)
    #[arg(long, value_name = "NAME", value_parser = WORKLOADS)]
    workload: Vec<String>,
    /// This file of models/ in place of the usual workloads, without the suffix (repeatable); torchvision must have it
    #[arg(long, value_name = "NAME", conflicts_with = "workload")]
    model: Vec<String>,
    /// Images of `--model` in a batch
    #[arg(long, value_name = "N", default_value_t = 16)]
    batch: usize,
    /// Height and width of the images of `--model`
    #[arg(long, value_name = "PIXELS", default_value_t = 224)]
    side: usize,
    /// Time the evaluation of a batch instead of the training step, beside ONNX Runtime and OpenVINO, too
    #[arg(long)]
    eval: bool,
    /// Precision of `--model`, for all: PyTorch's autocast and OpenVINO's hint in bf16
    #[arg(long, value_name = "NAME", value_parser = ["fp32", "bf16"], default_value = "fp32", requires = "model")]
    precision: String,
    /// Only this mode of PyTorch (repeatable)
    #[arg(long, value_name = "NAME", value_parser = peer::MODES)]
    mode: Vec<String>,
    /// Only with this allocator of PyTorch's: glibc's as it is, or told to keep what is freed (repeatable)
    #[arg(long, value_name = "NAME", value_parser = peer::ALLOCATORS)]
    allocator: Vec<String>,
    /// Threads of both
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Rounds, in each of which all are measured once; the median of them counts
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// How long each is measured in a round
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,
    /// Instructions that both are held to: avx512, avx2
    #[arg(long, value_name = "LEVEL")]
    simd: Option<String>,
    /// PyTorch's optimizer as one kernel, `fused=True`
    #[arg(long)]
    fused: bool,
    /// A variable for PyTorch's processes (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE")]
    envs: Vec<String>,
    /// Folder with `mnist/*.gz`, for whole runs [default: what RUNNER_TEST_DATA says]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Write what is measured of `--model` into this file, too: the table of docs/models.md is made from benches/figures/models.json
    #[arg(long, value_name = "FILE", requires = "model")]
    figures: Option<PathBuf>,
    /// Lock this file while measuring, so that other timings on this machine wait
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// What `cargo bench` says to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    // `cargo test --all-targets` runs this too, and without the flag: building is test enough.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let options = Options::parse();
    ensure!(options.rounds > 0, "without a round there is nothing to tell");
    let machine = Machine::new(&options)?;
    println!("{}\n", machine.describe());
    steps::compare(&machine, &options)?;
    runs::compare(&machine, &options)
}

impl Options {
    /// Whether a workload was asked for.
    fn wants(&self, name: &str) -> bool {
        (self.workload.is_empty() && self.model.is_empty()) || self.workload.iter().any(|w| w == name)
    }
}

/// The middle of some numbers; for an even count, the mean of the middle two.
fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    let n = list.len();
    if n.is_multiple_of(2) { (list[n / 2 - 1] + list[n / 2]) / 2.0 } else { list[n / 2] }
}
