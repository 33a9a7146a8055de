//! Whole models against the CPU.

use super::emulator;
use super::harness::{Outcome, Steps, floats};
use super::root::root;
use runner::backend::cpu::CpuBackend;
use runner::backend::cuda::CudaBackend;
use runner::config;
use std::path::PathBuf;

/// The configurations of the repository, but for that of photos: its net is among the others, and a step at the size of photos
/// takes the emulated driver a minute; and but for those of texts, which are not in the repository.
fn configs() -> Vec<PathBuf> {
    let folder = root().join("configs");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    found.retain(|path| {
        path.file_stem().is_some_and(|name| {
            let others = [
                "ants_bees",
                "cifar10_hour",
                "gpt2_124m",
                "shakespeare_bpe",
                "shakespeare_char",
                "shakespeare_char_gpu",
                "shakespeare_lstm",
            ];
            !others.iter().any(|other| name == *other)
        })
    });
    found.sort();
    found
}

/// Fails where the two are further apart than 32-bit arithmetic makes them in a few steps.
fn compare(name: &str, cpu: &Outcome, cuda: &Outcome) {
    for (step, (a, b)) in cpu.losses.iter().zip(&cuda.losses).enumerate() {
        assert!((a - b).abs() <= 1e-4 * a.abs().max(1e-3), "{name}: loss of step {} is {b}, not {a}", step + 1);
    }
    assert_eq!(cpu.losses.len(), cuda.losses.len(), "{name}");
    assert!(cpu.state.keys().eq(cuda.state.keys()), "{name}: other variables");
    for (variable, a) in &cpu.state {
        let b = &cuda.state[variable];
        if variable.ends_with("num_batches_tracked") || variable == "optimizer.step" {
            assert_eq!(a, b, "{name}: `{variable}`");
            continue;
        }
        let (a, b) = (floats(a), floats(b));
        let norm = |v: &mut dyn Iterator<Item = f32>| v.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let error = norm(&mut a.iter().zip(&b).map(|(a, b)| a - b));
        let size = norm(&mut a.iter().copied());
        assert!(error <= 1e-3 * size + 1e-6, "{name}: `{variable}` is off by {error:e} of {size:e}");
    }
    match (cpu.eval, cuda.eval) {
        (Some(a), Some(b)) => assert!((a - b).abs() <= 1e-3 * a.abs().max(1e-3), "{name}: evaluation {b}, not {a}"),
        (a, b) => assert_eq!(a, b, "{name}"),
    }
}

#[test]
fn three_steps_of_every_configuration_are_as_on_the_cpu() {
    if !emulator::ready() {
        return;
    }
    let _turn = emulator::alone();
    for path in configs() {
        // Adam divides a gradient by its own size: where it is nothing but rounding, that decides of a whole step. With
        // a larger `eps` such steps are as small as their gradients. (Its usual one is compared in other tests.)
        let adam = std::fs::read_to_string(&path).unwrap().contains("type = \"adam");
        let sets = Vec::from_iter(adam.then(|| "optimizer.eps=1e-3".to_owned()));
        let loaded = config::load(&path, &sets).unwrap_or_else(|e| panic!("{e}"));
        let steps = Steps::new(3, 4);
        let cpu = steps.experiment(&loaded.experiment, &CpuBackend::new(Some(2)).unwrap());
        let cuda = steps.experiment(&loaded.experiment, &CudaBackend::new(0).unwrap());
        compare(&path.display().to_string(), &cpu, &cuda);
    }
}
