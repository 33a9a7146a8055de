//! Mixed precision: as near to single precision as the type of its products allows.

use super::emulator;
use super::harness::{AVERAGE_SHARE, Outcome, Steps, floats};
use super::root::root;
use runner::backend::Backend;
use runner::backend::cpu::CpuBackend;
use runner::backend::cuda::CudaBackend;
use runner::config::{self, Experiment};

/// Networks with convolutions, normalisation and attention, and without.
fn configs() -> [&'static str; 4] {
    // ResNet-18 takes the emulated driver most of the time of all tests here.
    let normalised = if emulator::on_gpu() { "cifar10_resnet18.toml" } else { "fashion_cnn.toml" };
    ["mnist_mlp.toml", "digits_cnn.toml", "digits_transformer.toml", normalised]
}

/// The precisions with their unit roundoff: half the distance from 1 to the next number.
const PRECISIONS: [(&str, f32); 3] = [("tf32", 1.0 / 2048.0), ("bf16", 1.0 / 256.0), ("fp16", 1.0 / 2048.0)];

fn experiment(name: &str, precision: &str) -> Experiment {
    let path = root().join("configs").join(name);
    config::load(&path, &[format!("precision={precision:?}")]).unwrap_or_else(|e| panic!("{e}")).experiment
}

fn run(name: &str, precision: &str, steps: u64, backend: &dyn Backend) -> Outcome {
    Steps::new(steps, 8).experiment(&experiment(name, precision), backend)
}

fn cuda(precision: &str, graph: bool) -> CudaBackend {
    CudaBackend::new(0).unwrap().with_tf32(precision == "tf32").with_graph(graph)
}

#[test]
fn losses_are_those_of_single_precision_but_for_rounding() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    for name in configs() {
        let single = run(name, "fp32", 1, &CpuBackend::new(Some(2)).unwrap());
        for (precision, unit) in PRECISIONS {
            let mixed = run(name, precision, 2, &cuda(precision, true));
            // A product of two rounded factors is off by two units, and a loss after a few layers by a few of those.
            let allowed = 8.0 * unit * single.losses[0];
            let error = (single.losses[0] - mixed.losses[0]).abs();
            assert!(error <= allowed, "{name}, {precision}: the loss is off by {error}, {allowed} allowed");
            assert!(error > 0.0, "{name}: {precision} gives the bits of fp32, so nothing was rounded");
            assert!(mixed.losses.iter().all(|loss| loss.is_finite()), "{name}, {precision}: {:?}", mixed.losses);
        }
    }
}

#[test]
fn captured_steps_give_the_bits_of_those_that_are_not() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    for (precision, _) in PRECISIONS {
        let captured = run("digits_cnn.toml", precision, 3, &cuda(precision, true));
        assert_eq!(captured, run("digits_cnn.toml", precision, 3, &cuda(precision, false)), "{precision}");
    }
}

/// Averages are of the single-precision weights and of the statistics, captured or not, and evaluation is of them.
#[test]
fn moving_averages_follow_the_weights() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    for (precision, graph) in [("bf16", false), ("fp16", true)] {
        let path = root().join("configs/digits_cnn.toml");
        let sets = [format!("precision={precision:?}"), "optimizer.ema.decay=0.9".into()];
        let experiment = config::load(&path, &sets).unwrap_or_else(|e| panic!("{e}")).experiment;
        let after = |steps| Steps::new(steps, 8).experiment(&experiment, &cuda(precision, graph));
        let (start, end) = (after(0), after(2));
        let (one, two) = (floats_of(&after(1)), floats_of(&end));
        let mut averages = 0;
        for (name, start) in floats_of(&start) {
            let Some(average) = two.get(&format!("optimizer.average.{name}")) else { continue };
            averages += 1;
            let share = AVERAGE_SHARE as f32;
            for (i, average) in average.iter().enumerate() {
                let first = start[i] + share * (one[&name][i] - start[i]);
                let wanted = first + share * (two[&name][i] - first);
                assert!(
                    (average - wanted).abs() <= 1e-6 * wanted.abs().max(1.0),
                    "{precision} {name}: {average} {wanted}"
                );
            }
        }
        assert_eq!(averages, 8);
        let cpu = Steps::new(2, 8).experiment(&experiment, &CpuBackend::new(Some(2)).unwrap());
        let (a, b) = (cpu.eval.unwrap(), end.eval.unwrap());
        assert!((a - b).abs() < 0.02 * a, "{precision}: {b}, not {a}");
    }
}

/// The variables of floats.
fn floats_of(outcome: &Outcome) -> std::collections::BTreeMap<String, Vec<f32>> {
    let counts = |name: &str| name.ends_with("_step") || name.ends_with(".step") || name.ends_with("tracked");
    let floats = outcome.state.iter().filter(|(name, _)| !counts(name)).map(|(n, bytes)| (n.clone(), floats(bytes)));
    floats.collect()
}

/// The same errors in PyTorch 2.15, whose autocast (on the CPU, 16 images of random bytes) rounds the same network: in bf16,
/// and in fp16, whose products are as exact as TF32's. They are far larger than the rounding, for where rounding changes
/// which pixel is a window's maximum, or the sign before a ReLU, a gradient goes another way.
const AUTOCAST: [(&str, [f64; 2]); 8] = [
    ("classifier.1.bias", [0.072, 0.026]),
    ("classifier.1.weight", [0.072, 0.025]),
    ("classifier.4.bias", [0.0022, 0.00025]),
    ("classifier.4.weight", [0.0048, 0.00056]),
    ("features.0.bias", [0.086, 0.033]),
    ("features.0.weight", [0.13, 0.042]),
    ("features.3.bias", [0.076, 0.028]),
    ("features.3.weight", [0.091, 0.035]),
];

/// The relative error of every parameter's gradient in the first step, against single precision on the CPU: what rounding
/// does to a layer and to all after it. Prints a table. With other numbers, the errors may be twice PyTorch's.
#[test]
fn errors_of_gradients_by_layer() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    let path = root().join("configs/mnist_cnn.toml");
    let gradients = |precision: &str, backend: &dyn Backend| {
        // Gradients are kept where they are summed; after the first of two micro-batches nothing has been updated.
        let sets = [format!("precision={precision:?}"), "train.accumulate=2".into()];
        let experiment = config::load(&path, &sets).unwrap_or_else(|e| panic!("{e}")).experiment;
        let state = Steps::new(1, 16).experiment(&experiment, backend).state;
        let gradient = |(name, bytes): (String, Vec<u8>)| {
            let scale = if precision == "fp16" { 65536.0 } else { 1.0 };
            let values: Vec<f64> = floats(&bytes).into_iter().map(|x| f64::from(x) / scale).collect();
            Some((name.strip_prefix("gradient_sum.")?.to_owned(), values))
        };
        state.into_iter().filter_map(gradient).filter(|(name, _)| name != "loss").collect::<Vec<_>>()
    };
    let exact = gradients("fp32", &CpuBackend::new(Some(2)).unwrap());
    assert!(exact.iter().map(|(name, _)| name.as_str()).eq(AUTOCAST.map(|(name, _)| name)), "other parameters");
    println!("| gradient of | fp32 | tf32 | bf16 | fp16 |\n| --- | --- | --- | --- | --- |");
    let columns = [("fp32", f32::EPSILON / 2.0)].into_iter().chain(PRECISIONS);
    let columns: Vec<_> = columns.map(|(p, unit)| (p, unit, gradients(p, &cuda(p, true)))).collect();
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let mut wrong = Vec::new();
    for (i, (name, exact)) in exact.iter().enumerate() {
        let mut row = format!("| {name} |");
        for (precision, unit, found) in &columns {
            let difference = norm(&mut exact.iter().zip(&found[i].1).map(|(a, b)| a - b));
            let error = difference / norm(&mut exact.iter().copied());
            row += &format!(" {error:.1e} |");
            let allowed = match *precision {
                // The CPU's gradients err, too: convolutions by tiles of 4 × 4 pixels round two to three times as much as plain sums.
                "fp32" => (16.0 + 8.0) * f64::from(*unit),
                "bf16" => 2.0 * AUTOCAST[i].1[0],
                _ => 2.0 * AUTOCAST[i].1[1],
            };
            if error > allowed {
                wrong.push(format!("{name} in {precision}: {error:e}"));
            }
        }
        println!("{row}");
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Gradients that overflow binary16 are no reason to stop: the update is left out and the scale halved, until they fit.
#[test]
fn the_loss_scale_finds_its_size_on_the_device() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    let sets = ["precision=\"fp16\"".to_owned(), "optimizer.lr=0.1".to_owned()];
    let path = root().join("configs/linear_regression.toml");
    let experiment = config::load(&path, &sets).unwrap_or_else(|e| panic!("{e}")).experiment;
    // A batch of one has large gradients: twice the error times the scale of 65536 passes 65504 at once.
    let outcome = Steps::new(12, 1).experiment(&experiment, &cuda("fp16", true));
    let scale = floats(&outcome.state["grad_scaler.scale"])[0];
    let steps = i64::from_ne_bytes(outcome.state["optimizer.step"][..].try_into().unwrap());
    assert!((16.0..65536.0).contains(&scale), "the scale is {scale}");
    let halvings = (65536.0 / scale).log2().round() as i64;
    assert_eq!(steps, 12 - halvings, "every step either updates or halves the scale");
    assert!(outcome.losses.iter().all(|loss| loss.is_finite()), "{:?}", outcome.losses);
}
