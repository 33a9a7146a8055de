//! The training step on made-up batches: forward, loss, backward, update.

use super::machine::Machine;
use super::peer::{ALLOCATORS, MODES, Measured, Peer, USUAL_MODES};
use super::{Options, median};
use anyhow::{Result, ensure};
use serde_json::Value;

/// A configuration and the same mathematics in `scripts/bench_pytorch.py`.
struct Workload {
    name: &'static str,
    title: &'static str,
    config: &'static str,
    model: &'static str,
    batch: &'static str,
}

const WORKLOADS: [Workload; 5] = [
    Workload {
        name: "mnist_cnn_256",
        title: "MNIST CNN, batch 256",
        config: "configs/mnist_cnn.toml",
        model: "mnist_cnn",
        batch: "256",
    },
    Workload {
        name: "mnist_cnn_64",
        title: "MNIST CNN, batch 64",
        config: "configs/mnist_cnn.toml",
        model: "mnist_cnn",
        batch: "64",
    },
    Workload {
        name: "mlp_256",
        title: "MLP 784-256-128-10, batch 256",
        config: "configs/mnist_mlp.toml",
        model: "mlp",
        batch: "256",
    },
    Workload {
        name: "resnet18_128",
        title: "ResNet-18 on 32×32, batch 128",
        config: "configs/cifar10_resnet18.toml",
        model: "resnet18",
        batch: "128",
    },
    Workload {
        name: "mobilenet_v3_small_16",
        title: "MobileNetV3-Small on 224×224, batch 16",
        config: "benches/configs/mobilenet_v3_small.toml",
        model: "mobilenet_v3_small",
        batch: "16",
    },
];

/// One of PyTorch's modes with what it measured.
struct Contestant {
    mode: &'static str,
    /// None if it has failed.
    peer: Option<Peer>,
    times: Vec<f64>,
    rss_mib: f64,
}

/// Milliseconds and MiB of one of PyTorch's modes with either allocator; nothing where it failed.
type Figures = Vec<Option<(f64, f64)>>;

/// What the rounds have come to.
struct Row {
    title: &'static str,
    ours_ms: f64,
    ours_mib: f64,
    /// Operations of the mathematics in a step.
    flops: f64,
    /// GFLOP/s of multiply-adds in registers.
    peak: f64,
    theirs: Vec<(&'static str, Figures)>,
    /// PyTorch's fastest by ours: the median over rounds, so that a drift of the machine weighs little.
    ratio: Option<f64>,
}

/// Measures and prints what `options` asks for.
///
/// # Errors
/// A program fails; the models differ.
pub fn compare(machine: &Machine, options: &Options) -> Result<()> {
    let mut rows = Vec::new();
    for workload in WORKLOADS.iter().filter(|w| options.wants(w.name)) {
        eprintln!("{} …", workload.title);
        rows.push(measure(machine, options, workload)?);
    }
    if !rows.is_empty() {
        print(&rows, options);
    }
    Ok(())
}

fn measure(machine: &Machine, options: &Options, workload: &Workload) -> Result<Row> {
    let batch = format!("data.batch_size={}", workload.batch);
    let ours = |steps: u32, more: &[&str]| {
        let steps = steps.to_string();
        machine.bench(&[&[workload.config, "--set", &batch, "--steps", &steps], more].concat())
    };
    let mut contestants = Vec::new();
    let usual = options.mode.is_empty();
    for (number, mode) in MODES.into_iter().enumerate() {
        if !(usual && number < USUAL_MODES || options.mode.iter().any(|m| m == mode)) {
            continue;
        }
        for allocator in ALLOCATORS {
            let start = || Peer::start(machine, options, workload.model, workload.batch, mode, allocator);
            let peer = match machine.alone(start) {
                Ok(None) => continue,
                Ok(peer) => peer,
                Err(why) => {
                    eprintln!("  {mode}, {allocator}, is left out: {why:#}");
                    None
                }
            };
            contestants.push(Contestant { mode, peer, times: Vec::new(), rss_mib: 0.0 });
        }
    }
    let (profile, _) = machine.alone(|| ours(5, &["--profile"]))?;
    let nodes = profile["nodes"].as_array().map_or(&[][..], |n| n);
    let flops = nodes.iter().map(|n| n["flops"].as_f64().unwrap_or(0.0)).sum();
    let steps = (1e3 * options.seconds / number(&profile, "step_ms")?).ceil().max(5.0) as u32;
    let (check, _) = machine.json(&["check", workload.config, "--device", "cpu", "--set", &batch])?;
    let parameters = check["parameters"].as_u64();

    let (mut times, mut mib, mut peak) = (Vec::new(), 0.0f64, 0.0f64);
    for round in 1..=options.rounds {
        machine.alone(|| {
            let (product, _) = machine.bench(&["matmul", "--n", "64", "--steps", "1"])?;
            peak = peak.max(number(&product["devices"][0], "peak_gflops")?);
            let (step, rss) = ours(steps, &[])?;
            times.push(number(&step, "step_ms")?);
            mib = mib.max(rss);
            for contestant in &mut contestants {
                let Some(peer) = &mut contestant.peer else { continue };
                let Measured { step_ms, parameters: theirs, peak_rss_kib } = peer.measure(options.seconds)?;
                ensure!(parameters == Some(theirs), "{}: {parameters:?} and {theirs} parameters", workload.title);
                contestant.times.push(step_ms);
                contestant.rss_mib = peak_rss_kib / 1024.0;
            }
            Ok(())
        })?;
        eprintln!("  round {round} of {}: ours {:.3} ms", options.rounds, times[times.len() - 1]);
    }
    let finished = contestants.iter().filter(|c| c.peer.is_some());
    let best = finished.min_by(|a, b| median(a.times.clone()).total_cmp(&median(b.times.clone())));
    let ratio = best.map(|best| median(best.times.iter().zip(&times).map(|(theirs, ours)| theirs / ours).collect()));
    let mut theirs: Vec<(&str, Figures)> = Vec::new();
    for Contestant { mode, peer, times, rss_mib } in contestants {
        let figures = peer.map(|_| (median(times), rss_mib));
        match theirs.last_mut().filter(|(last, _)| *last == mode) {
            Some((_, list)) => list.push(figures),
            None => theirs.push((mode, vec![figures])),
        }
    }
    Ok(Row { title: workload.title, ours_ms: median(times), ours_mib: mib, flops, peak, theirs, ratio })
}

fn number(value: &Value, key: &str) -> Result<f64> {
    value[key].as_f64().ok_or_else(|| anyhow::anyhow!("no number `{key}` in {value}"))
}

fn print(rows: &[Row], options: &Options) {
    let Options { rounds, seconds, .. } = options;
    let modes: Vec<&str> = rows[0].theirs.iter().map(|(mode, _)| *mode).collect();
    let allocators = if modes.is_empty() { "" } else { "; PyTorch with glibc's allocator as it is / tuned" };
    println!("Medians of {rounds} rounds of {seconds} s each{allocators}.\n");
    let torch: String = modes.iter().map(|mode| format!(" | {}", mode.replace('_', " "))).collect();
    let (best, rule) = if modes.is_empty() { ("", "") } else { (" | best / ours", " | ---") };
    println!("| training step, ms | runner{torch}{best} | GFLOP/s | of peak |");
    println!("| --- | ---{}{rule} | --- | --- |", " | ---".repeat(modes.len()));
    let peak = rows.iter().map(|r| r.peak).fold(0.0, f64::max);
    for row in rows {
        let torch = cells(row, |(ms, _)| figure(ms));
        let ratio = row.ratio.map_or(String::new(), |r| format!(" | **{r:.2}**"));
        let gflops = row.flops / row.ours_ms / 1e6;
        let share = 100.0 * gflops / peak;
        println!("| {} | {}{torch}{ratio} | {gflops:.0} | {share:.0} % |", row.title, figure(row.ours_ms));
    }
    println!("\nThe peak is that of multiply-adds in registers: {peak:.0} GFLOP/s.\n");
    println!("| peak resident memory of the process, MiB | runner{torch} |");
    println!("| --- | ---{} |", " | ---".repeat(modes.len()));
    for row in rows {
        println!("| {} | {:.0}{} |", row.title, row.ours_mib, cells(row, |(_, mib)| format!("{mib:.0}")));
    }
    println!();
}

/// What PyTorch's modes have come to, a cell for each.
fn cells(row: &Row, show: impl Fn((f64, f64)) -> String) -> String {
    let cell = |list: &[Option<(f64, f64)>]| {
        list.iter().map(|figures| figures.map_or("failed".to_string(), &show)).collect::<Vec<_>>().join(" / ")
    };
    row.theirs.iter().map(|(_, list)| format!(" | {}", cell(list))).collect()
}

/// Three digits.
fn figure(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}
