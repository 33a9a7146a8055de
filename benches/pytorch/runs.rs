//! Whole runs: from their start to the first step, an epoch with its loader, the memory that they take.

use super::machine::Machine;
use super::process::finish;
use super::{Options, median};
use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

/// Rounds of whole epochs, which are long.
const EPOCH_ROUNDS: usize = 3;

/// Files of MNIST, in the folder `mnist` packed and in torchvision's unpacked.
const FILES: [&str; 4] =
    ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];

/// Times of whole runs.
#[derive(Default)]
struct Runs {
    first_step: Vec<f64>,
    epoch: Vec<f64>,
    whole: Vec<f64>,
    rss_mib: f64,
    accuracy: f64,
}

/// Measures and prints what `options` asks for.
///
/// # Errors
/// A program fails.
pub fn compare(machine: &Machine, options: &Options) -> Result<()> {
    let (first, epoch) = (options.wants("first_step"), options.wants("epoch"));
    if !first && !epoch {
        return Ok(());
    }
    let Some(data) = options.data.clone().or_else(|| std::env::var_os("RUNNER_TEST_DATA").map(Into::into)) else {
        println!("Whole runs are not measured: they need MNIST (`--data DIR`, with DIR/mnist/*.gz).");
        return Ok(());
    };
    let mnist = fs::canonicalize(data.join("mnist")).with_context(|| format!("no MNIST in `{}`", data.display()))?;
    let place = tempfile::tempdir()?;
    unpack(&mnist, &place.path().join("MNIST/raw"))?;
    let folder = place.path().to_str().context("the folder for temporary files has an odd name")?;
    let root = format!("data.root={}", toml::Value::String(mnist.to_string_lossy().into_owned()));
    let out = place.path().join("run");
    let threads = options.threads.to_string();

    let ours = || {
        let config = "configs/mnist_cnn.toml";
        let mut command =
            machine.runner(&["train", config, "--json", "--device", "cpu", "--threads", &threads, "--set", &root]);
        command.args(["--set", "train.epochs=1", "--set", "data.download=false", "--force", "--out"]).arg(&out);
        command
    };
    let script = |more: &[&str]| machine.script("tutorial_mnist.py", &[&["--root", folder], more].concat());
    let variants: [(&str, &[&str]); 3] = [
        ("PyTorch, as in the tutorial", &[]),
        ("PyTorch, channels last, allocator tuned", &["--channels-last", "--tuned"]),
        ("the same, two loader processes", &["--channels-last", "--tuned", "--workers", "2"]),
    ];
    let mut runs: Vec<(&str, Runs)> = vec![("runner", Runs::default())];
    if machine.has_torch() {
        runs.extend(variants.iter().map(|(name, _)| (*name, Runs::default())));
    }
    let mut round = |whole: bool| -> Result<()> {
        for (at, (name, runs)) in runs.iter_mut().enumerate() {
            let mut command = match at {
                0 => ours(),
                _ => script(variants[at - 1].1).context("no PyTorch")?,
            };
            machine.alone(|| runs.add(&mut command, whole).with_context(|| format!("{name}: {command:?}")))?;
        }
        Ok(())
    };
    for number in 1..=if first { options.rounds } else { 0 } {
        eprintln!("first step, round {number} …");
        round(false)?;
    }
    for number in 1..=if epoch { options.rounds.min(EPOCH_ROUNDS) } else { 0 } {
        eprintln!("an epoch, round {number} …");
        round(true)?;
    }
    print(runs, first, epoch);
    Ok(())
}

impl Runs {
    /// Runs a training, to its end or to its first step.
    fn add(&mut self, command: &mut Command, whole: bool) -> Result<()> {
        command.stderr(Stdio::null());
        let mut first_step = None;
        let done = finish(command, |line, seconds| {
            if first_step.is_none() && line.contains("\"step\"") {
                first_step = Some(seconds);
            }
            whole || first_step.is_none()
        })?;
        ensure!(done.success, "failed");
        if !whole {
            self.first_step.push(first_step.context("there was no step")?);
            return Ok(());
        }
        let last = done.out.lines().last().unwrap_or_default();
        let epoch: Value = serde_json::from_str(last).with_context(|| format!("no JSON: {last}"))?;
        self.epoch.push(epoch["seconds"].as_f64().context("no `seconds`")?);
        self.whole.push(done.seconds);
        self.rss_mib = self.rss_mib.max(done.rss_mib);
        self.accuracy = epoch["val_accuracy"].as_f64().context("no `val_accuracy`")?;
        Ok(())
    }
}

fn print(runs: Vec<(&str, Runs)>, first: bool, epoch: bool) {
    let mut head = vec!["MNIST CNN, batch 256, a process"];
    if first {
        head.push("start to end of the first step, s");
    }
    if epoch {
        head.extend(["an epoch of training with its loader, s", "start to end with evaluation, s"]);
        head.extend(["peak resident memory, MiB", "test accuracy"]);
    }
    println!("| {} |\n|{}", head.join(" | "), " --- |".repeat(head.len()));
    for (name, runs) in runs {
        let mut cells = vec![name.to_string()];
        if first {
            cells.push(format!("{:.2}", median(runs.first_step)));
        }
        if epoch {
            cells.extend([runs.epoch, runs.whole].map(|times| format!("{:.2}", median(times))));
            cells.extend([format!("{:.0}", runs.rss_mib), format!("{:.2} %", 100.0 * runs.accuracy)]);
        }
        println!("| {} |", cells.join(" | "));
    }
    println!();
}

/// Unpacks MNIST as torchvision keeps it.
fn unpack(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for name in FILES {
        let packed = from.join(format!("{name}.gz"));
        let file = File::open(&packed).with_context(|| format!("cannot read `{}`", packed.display()))?;
        std::io::copy(&mut GzDecoder::new(file), &mut File::create(to.join(name))?)?;
    }
    Ok(())
}
