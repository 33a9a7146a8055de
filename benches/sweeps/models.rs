//! Whole models: a training step over sizes of the batch, and evaluation beside training.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;

/// Seconds that each measurement lasts, about.
const SECONDS: f64 = 0.5;

const BATCHES: [usize; 11] = [1, 2, 4, 7, 8, 16, 32, 64, 100, 128, 256];

/// A size whose sample takes so many times that of a neighbour is reported.
const STRANGE: f64 = 1.5;

/// The smallest sizes, which show the part of a step that is the same for any batch.
const FEW: usize = 5;

/// What `runner bench` tells.
struct Step {
    ms: f64,
    /// Of the update alone, which is the same for any batch.
    update_ms: f64,
    batch: f64,
}

/// Prints the time of a sample for each size of the batch.
///
/// # Errors
/// `runner` fails.
pub fn batches(threads: usize) -> Result<()> {
    // The last layers of ResNet-18 have one pixel: of one sample there is no variance.
    for (config, sizes) in [("configs/mnist_cnn.toml", &BATCHES[..]), ("configs/cifar10_resnet18.toml", &BATCHES[1..])]
    {
        println!("{config}, a training step by the size of its batch");
        println!("| batch | step, ms | update, ms | a sample, µs | by its neighbours | step by theirs |");
        println!("| --- | --- | --- | --- | --- | --- |");
        let steps = sizes
            .iter()
            .map(|n| step(config, &["--set", &format!("data.batch_size={n}"), "--profile"], threads))
            .collect::<Result<Vec<_>>>()?;
        let sample = |s: &Step| 1e3 * s.ms / s.batch;
        for (at, step) in steps.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &steps[at]);
            let near = [before, steps.get(at + 1)];
            let factor = sample(step) / near.iter().flatten().map(|s| sample(s)).fold(f64::INFINITY, f64::min);
            let flag = if factor > STRANGE { " **slow**" } else { "" };
            // Whatever part of a step does not depend on the batch, it lies on the line between its neighbours.
            let by_line = match near {
                [Some(a), Some(b)] => {
                    let part = (step.batch - a.batch) / (b.batch - a.batch);
                    format!("{:.2}", step.ms / (a.ms + part * (b.ms - a.ms)))
                }
                _ => String::new(),
            };
            let Step { ms, update_ms, batch } = step;
            println!("| {batch} | {ms:.3} | {update_ms:.3} | {:.1} | {factor:.2}{flag} | {by_line} |", sample(step));
        }
        let (fixed, each) = line(&steps[..FEW]);
        println!("\nA line through the first {FEW}: {fixed:.3} ms, and {:.1} µs a sample.\n", 1e3 * each);
    }
    Ok(())
}

/// The line `a + b n` through times of `n` samples, by least squares.
fn line(steps: &[Step]) -> (f64, f64) {
    let mean = |f: &dyn Fn(&Step) -> f64| steps.iter().map(f).sum::<f64>() / steps.len() as f64;
    let (n, ms) = (mean(&|s| s.batch), mean(&|s| s.ms));
    let b = mean(&|s| (s.batch - n) * (s.ms - ms)) / mean(&|s| (s.batch - n).powi(2));
    (ms - b * n, b)
}

/// Prints the time of a sample in evaluation as a part of that in training.
///
/// # Errors
/// `runner` fails.
pub fn evaluation(threads: usize) -> Result<()> {
    println!("| a sample, µs | training | evaluation | evaluation / training |\n| --- | --- | --- | --- |");
    for config in ["configs/mnist_cnn.toml", "configs/mnist_mlp.toml", "configs/cifar10_resnet18.toml"] {
        let sample = |more: &[&str]| step(config, more, threads).map(|s| 1e3 * s.ms / s.batch);
        let (train, eval) = (sample(&[])?, sample(&["--eval"])?);
        println!("| {config} | {train:.2} | {eval:.2} | {:.2} |", eval / train);
    }
    println!();
    Ok(())
}

/// `runner bench` with enough steps.
fn step(config: &str, more: &[&str], threads: usize) -> Result<Step> {
    let threads = threads.to_string();
    let bench = |steps: u32, more: &[&str]| -> Result<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runner"));
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        command.args(["bench", config, "--device", "cpu", "--json", "--threads", &threads]);
        let out = command.args(["--steps", &steps.to_string()]).args(more).output()?;
        ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stdout));
        serde_json::from_slice(&out.stdout).with_context(|| format!("{command:?}: no JSON"))
    };
    let number = |value: &Value, key: &str| value[key].as_f64().with_context(|| format!("no number `{key}`"));
    let plain: Vec<&str> = more.iter().copied().filter(|arg| *arg != "--profile").collect();
    let steps = (1e3 * SECONDS / number(&bench(5, &plain)?, "step_ms")?).clamp(5.0, 1e4) as u32;
    let found = bench(steps, more)?;
    // What belongs to no layer is the update.
    let nodes = found["nodes"].as_array().map_or(&[][..], |n| n);
    let update_ms = nodes.iter().filter(|n| n["layer"] == "").filter_map(|n| n["ms"].as_f64()).sum();
    Ok(Step { ms: number(&found, "step_ms")?, update_ms, batch: number(&found, "batch_size")? })
}
