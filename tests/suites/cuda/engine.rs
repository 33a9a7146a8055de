//! Streams, slots and graphs: what must hold whatever the order in which the device gets to its work.

use super::emulator;
use super::harness::{Outcome, Steps};
use super::root::root;
use runner::backend::cuda::CudaBackend;
use runner::config;

/// A model with every kind of operation, small enough to be run many times.
pub const MODEL: &str = r#"
seed = 1
[data]
source = "synthetic"
shape = [3, 8, 8]
classes = 5
samples = 64
val_samples = 16
batch_size = 8
transforms = [{ type = "normalize", mean = [0.5], std = [0.2] }]

[model]
layers = [
  { type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1, bias = false },
  "batch_norm2d",
  "relu",
  { name = "block", type = "residual", layers = [
    { type = "conv2d", out_channels = 16, kernel_size = 3, stride = 2, padding = 1 },
    { type = "group_norm", num_groups = 4 },
    "gelu",
    { type = "conv2d", kernel_size = 3, padding = 1, groups = "in_channels" },
  ], projection = [{ type = "conv2d", out_channels = 16, kernel_size = 1, stride = 2 }] },
  { type = "max_pool2d", kernel_size = 2 },
  "flatten",
  { type = "linear", out_features = 24 },
  "batch_norm1d",
  "silu",
  "dropout",
  "layer_norm",
  { type = "linear", out_features = 5 },
]

[loss]
type = "cross_entropy"

[optimizer]
type = "adamw"
lr = 1e-3

[train]
epochs = 1
clip_grad_norm = 1.0
"#;

fn run(graph: bool, seed: u64, steps: &Steps) -> Outcome {
    emulator::stream_order(seed);
    let backend = CudaBackend::new(0).unwrap().with_graph(graph);
    steps.run(MODEL, &root(), &backend)
}

#[test]
fn captured_or_not_and_in_whatever_order_a_run_gives_the_same_bits() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    let steps = Steps::new(6, 8);
    let plain = run(false, 0, &steps);
    assert!(plain.losses.iter().all(|l| l.is_finite()) && plain.losses.len() == 6, "{:?}", plain.losses);
    for seed in 0..12 {
        for graph in [true, false] {
            assert_eq!(run(graph, seed, &steps), plain, "graph = {graph}, order {seed}");
        }
    }
}

/// In every precision, and with updates that are a program of their own after two micro-batches, or two shards.
#[test]
fn captured_or_not_every_precision_and_micro_batches_give_the_same_bits() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    emulator::stream_order(0);
    for precision in ["fp32", "tf32", "bf16", "fp16"] {
        // The losses of four micro-batches; shards have one more for each update.
        // Shards that are computed together have that one alone.
        let together = ("[distributed]\nshards = 2\nsync_batch_norm = true", 2);
        for (train, losses) in
            [("accumulate = 1", 4), ("accumulate = 2", 4), ("[distributed]\nshards = 2", 6), together]
        {
            let train = match train.strip_prefix("[distributed]") {
                Some(_) => format!("{train}\n[train]\n"),
                None => format!("[train]\n{train}\n"),
            };
            let text = format!("precision = {precision:?}\n{}", MODEL.replace("[train]\n", &train));
            let outcome = |graph: bool| {
                let backend = CudaBackend::new(0).unwrap().with_graph(graph).with_tf32(precision == "tf32");
                Steps::new(4, 8).run(&text, &root(), &backend)
            };
            let (captured, plain) = (outcome(true), outcome(false));
            assert!(plain.losses.len() == losses && plain.losses.iter().all(|l| l.is_finite()), "{:?}", plain.losses);
            assert_eq!(captured, plain, "{precision}, {train}");
        }
    }
}

/// Planted faults: one stream after the other leaves out its waits. The computing one then starts before its batch is
/// there; the copying one fills a slot of the device that is still computed on; the third reads losses that are not
/// there yet.
#[test]
fn each_wait_between_streams_is_needed() {
    if !emulator::only_emulated() {
        return;
    }
    let _turn = emulator::alone();
    let steps = Steps::new(20, 8);
    let plain = run(true, 0, &steps);
    for (stream, what) in [(1, "computing"), (2, "copying"), (3, "fetching losses")] {
        let caught = (1..25).any(|seed| {
            emulator::configure("deaf", stream);
            run(true, seed, &steps) != plain
        });
        assert!(caught, "no order of the streams shows that {what} waits for nothing");
    }
}

/// The steps after a loss that is not finite are enqueued before anybody can know; they change nothing.
#[test]
fn nothing_changes_after_a_loss_that_is_not_finite() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    emulator::stream_order(0);
    let path = root().join("configs/linear_regression.toml");
    let experiment = config::load(&path, &[]).unwrap_or_else(|e| panic!("{e}")).experiment;
    let outcome = |steps: Steps| steps.experiment(&experiment, &CudaBackend::new(0).unwrap());
    // One batch is spoilt, and those after it are sound: without more ado their losses would be finite again.
    let before = outcome(Steps::new(2, 8));
    let after = outcome(Steps { spoilt: Some(2), ..Steps::new(12, 8) });
    assert!(after.losses[..2] == before.losses && before.losses.iter().all(|loss| loss.is_finite()));
    assert!(after.losses[2].is_nan(), "{:?}", after.losses);
    assert_eq!(after.state, before.state);
}

/// The planted fault: a host buffer is filled again before it has been read.
#[test]
fn a_host_buffer_reused_too_early_is_caught() {
    if !emulator::only_emulated() {
        return;
    }
    let _turn = emulator::alone();
    let plain = run(true, 0, &Steps::new(6, 8));
    let early = Steps { wait: false, ..Steps::new(6, 8) };
    let caught = (1..12).filter(|seed| run(true, *seed, &early) != plain).count();
    assert!(caught > 0, "no order of the streams shows it");
}
