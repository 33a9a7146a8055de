//! The training step on made-up batches: forward, loss, backward, update; or the evaluation of one.

use super::machine::Machine;
use super::peer::{ALLOCATORS, EVALUATION_MODES, MODES, Measured, Peer, TRAINING_MODES};
use super::{Options, figures, median};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A configuration and the same mathematics in `scripts/bench_pytorch.py`.
struct Workload {
    name: String,
    title: String,
    config: &'static str,
    /// What is set over the configuration.
    set: Vec<String>,
    /// What the script gets of the model.
    peer: Vec<String>,
    batch: usize,
    /// Time the evaluation of a batch instead.
    eval: bool,
}

/// The usual workloads: name, title, configuration, model, batch.
const USUAL: [(&str, &str, &str, &str, usize); 5] = [
    ("mnist_cnn_256", "MNIST CNN, batch 256", "configs/mnist_cnn.toml", "mnist_cnn", 256),
    ("mnist_cnn_64", "MNIST CNN, batch 64", "configs/mnist_cnn.toml", "mnist_cnn", 64),
    ("mlp_256", "MLP 784-256-128-10, batch 256", "configs/mnist_mlp.toml", "mlp", 256),
    ("resnet18_128", "ResNet-18 on 32×32, batch 128", "configs/cifar10_resnet18.toml", "resnet18", 128),
    (
        "mobilenet_v3_small_16",
        "MobileNetV3-Small on 224×224, batch 16",
        "benches/configs/photos.toml",
        "mobilenet_v3_small",
        16,
    ),
];

impl Workload {
    /// Those that `options` asks for: of files in `models/`, or the usual ones.
    fn list(options: &Options) -> Vec<Workload> {
        let Options { model, side, batch, eval, .. } = options;
        if model.is_empty() {
            let usual = USUAL.iter().filter(|(name, ..)| options.wants(name));
            return usual
                .map(|(name, title, config, model, batch)| Workload {
                    name: name.to_string(),
                    title: title.to_string(),
                    config,
                    set: Vec::new(),
                    peer: vec!["--model".to_string(), model.to_string()],
                    batch: *batch,
                    eval: *eval,
                })
                .collect();
        }
        let workload = |name: &String| Workload {
            name: name.clone(),
            title: format!("{name}, {batch} × {side}×{side}"),
            config: "benches/configs/photos.toml",
            set: vec![format!("model.use=\"models/{name}.toml\""), format!("data.shape=[3, {side}, {side}]")],
            peer: ["--model", name, "--classes", "1000", "--optimizer", "sgd", "--side", &side.to_string()]
                .map(str::to_string)
                .to_vec(),
            batch: *batch,
            eval: *eval,
        };
        model.iter().map(workload).collect()
    }
}

/// One of PyTorch's modes with what it measured.
struct Contestant {
    mode: String,
    /// None if it has failed.
    peer: Option<Peer>,
    times: Vec<f64>,
    rss_mib: f64,
}

/// Milliseconds and MiB of one of PyTorch's modes with either allocator; nothing where it failed.
type Figures = Vec<Option<(f64, f64)>>;

/// What the rounds have come to.
struct Row {
    title: String,
    ours_ms: f64,
    ours_mib: f64,
    /// Operations of the mathematics in a step.
    flops: f64,
    /// GFLOP/s of multiply-adds in registers.
    peak: f64,
    theirs: Vec<(String, Figures)>,
    /// PyTorch's fastest by ours: the median over rounds, so that a drift of the machine weighs little.
    ratio: Option<f64>,
}

impl Row {
    /// The least of the others' times.
    fn fastest(&self) -> Option<f64> {
        let all = self.theirs.iter().flat_map(|(_, list)| list.iter().flatten());
        all.map(|(ms, _)| *ms).min_by(f64::total_cmp)
    }
}

/// Measures and prints what `options` asks for.
///
/// # Errors
/// A program fails; the models differ.
pub fn compare(machine: &Machine, options: &Options) -> Result<()> {
    let mut rows = Vec::new();
    for workload in Workload::list(options) {
        eprintln!("{} …", workload.title);
        let name = workload.name.clone();
        let row = measure(machine, options, workload)?;
        if let (Some(path), Some(ratio)) = (&options.figures, row.ratio) {
            let theirs_ms = row.fastest().context("a ratio to nothing")?;
            figures::keep(path, &name, options, [row.ours_ms, theirs_ms, ratio])?;
        }
        rows.push(row);
    }
    if !rows.is_empty() {
        print(&rows, options);
    }
    Ok(())
}

fn measure(machine: &Machine, options: &Options, workload: Workload) -> Result<Row> {
    let key = if workload.eval { "eval_batch_size" } else { "batch_size" };
    let set = [workload.set, vec![format!("data.{key}={}", workload.batch)]].concat();
    let set = [set, vec![format!("precision={}", options.precision)]].concat();
    let set: Vec<&str> = set.iter().flat_map(|value| ["--set", value.as_str()]).collect();
    let ours = |steps: u32, more: &[&str]| {
        let steps = steps.to_string();
        let kind: &[&str] = if workload.eval { &["--eval"] } else { &[] };
        machine.bench(&[&[workload.config, "--steps", &steps], &set[..], kind, more].concat())
    };
    let mut peer = workload.peer;
    peer.extend(["--batch".to_string(), workload.batch.to_string()]);
    peer.extend(workload.eval.then(|| "--evaluate".to_string()));
    let mut contestants = Vec::new();
    let usual = if workload.eval { &EVALUATION_MODES[..] } else { &TRAINING_MODES[..] };
    for mode in MODES {
        let wanted =
            if options.mode.is_empty() { usual.contains(&mode) } else { options.mode.iter().any(|m| m == mode) };
        if !wanted {
            continue;
        }
        let precisions = precisions(options, mode);
        for (precision, allocator) in precisions.iter().flat_map(|p| ALLOCATORS.map(|allocator| (*p, allocator))) {
            if !options.allocator.is_empty() && !options.allocator.iter().any(|a| a == allocator) {
                continue;
            }
            let peer = [&peer[..], &["--precision".to_string(), precision.to_string()]].concat();
            let start = || Peer::start(machine, options, &peer, mode, allocator);
            let peer = match machine.alone(start) {
                Ok(None) => continue,
                Ok(peer) => peer,
                Err(why) => {
                    eprintln!("  {mode}, {allocator}, is left out: {why:#}");
                    None
                }
            };
            let mode = if options.precision == precision { mode.to_string() } else { format!("{mode} in {precision}") };
            contestants.push(Contestant { mode, peer, times: Vec::new(), rss_mib: 0.0 });
        }
    }
    let (profile, _) = machine.alone(|| ours(5, &["--profile"]))?;
    let nodes = profile["nodes"].as_array().map_or(&[][..], |n| n);
    let flops = nodes.iter().map(|n| n["flops"].as_f64().unwrap_or(0.0)).sum();
    let steps = (1e3 * options.seconds / number(&profile, "step_ms")?).ceil().max(5.0) as u32;
    let (check, _) = machine.json(&[&["check", workload.config, "--device", "cpu"], &set[..]].concat())?;
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
                ensure!(parameters == Some(theirs), "{}: {parameters:?} and {theirs} parameters", workload.name);
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
    let mut theirs: Vec<(String, Figures)> = Vec::new();
    for Contestant { mode, peer, times, rss_mib } in contestants {
        let figures = peer.map(|_| (median(times), rss_mib));
        match theirs.last_mut().filter(|(last, _)| *last == mode) {
            Some((_, list)) => list.push(figures),
            None => theirs.push((mode, vec![figures])),
        }
    }
    Ok(Row { title: workload.title, ours_ms: median(times), ours_mib: mib, flops, peak, theirs, ratio })
}

/// The precisions that a mode of PyTorch's is measured in: that of the run, and for training in bf16 single precision as well, which may be the
/// faster one; ONNX Runtime has that alone here.
fn precisions(options: &Options, mode: &str) -> &'static [&'static str] {
    match (options.precision.as_str(), mode) {
        ("bf16", "onnxruntime") => &["fp32"],
        ("bf16", _) if options.eval => &["bf16"],
        ("bf16", _) => &["bf16", "fp32"],
        _ => &["fp32"],
    }
}

fn number(value: &Value, key: &str) -> Result<f64> {
    value[key].as_f64().ok_or_else(|| anyhow::anyhow!("no number `{key}` in {value}"))
}

fn print(rows: &[Row], options: &Options) {
    let Options { rounds, seconds, .. } = options;
    let modes: Vec<&str> = rows[0].theirs.iter().map(|(mode, _)| mode.as_str()).collect();
    let allocators = match (modes.is_empty(), &options.allocator[..]) {
        (true, _) => String::new(),
        (_, [one]) => format!("; PyTorch with glibc's allocator {one}"),
        _ => "; PyTorch with glibc's allocator as it is / tuned".to_string(),
    };
    println!("Medians of {rounds} rounds of {seconds} s each{allocators}.\n");
    let torch: String = modes.iter().map(|mode| format!(" | {}", mode.replace('_', " "))).collect();
    let (best, rule) = if modes.is_empty() { ("", "") } else { (" | best / ours", " | ---") };
    let what = if options.eval { "evaluation of a batch" } else { "training step" };
    println!("| {what}, ms | runner{torch}{best} | GFLOP/s | of peak |");
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
