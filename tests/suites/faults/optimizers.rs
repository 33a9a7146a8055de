//! Optimizers with state of their own kind: wherever a run is killed that is about to give a file its name, it goes on to the same bits.

use crate::faults::Fault;
use crate::library::library;
use crate::place::Place;
use crate::train::{CONFIG, TRAIN, recovers, undisturbed};
use runner::checkpoint;

/// An optimizer, and a part of its state that the others do not have.
const OPTIMIZERS: [(&str, &str); 6] = [
    ("type = \"adafactor\"\nlr = 0.05", "row_var.1.weight"),
    ("type = \"adamw_schedule_free\"\nlr = 0.01\nwarmup_steps = 4", "average.2.running_mean"),
    ("type = \"muon\"\nlr = 0.02\nadamw = { lr = 3e-3 }", "exp_avg_sq.1.bias"),
    ("type = \"lamb\"\nlr = 0.01\nweight_decay = 0.01", "exp_avg_sq.1.weight"),
    ("type = \"lars\"\nlr = 1.0\nmomentum = 0.9\nweight_decay = 0.01", "momentum_buffer.1.weight"),
    ("type = \"lion\"\nlr = 1e-3\nweight_decay = 0.1", "exp_avg.1.weight"),
];

#[test]
fn runs_that_are_killed_go_on() {
    if library().is_none() {
        return;
    }
    let plain = "type = \"sgd\"\nlr = 0.1\nmomentum = 0.9";
    assert!(CONFIG.contains(plain));
    for (optimizer, state) in OPTIMIZERS {
        let config = CONFIG.replace(plain, optimizer);
        let expected = undisturbed(&config);
        let place = Place::with("c.toml", &config);
        let whole = place.copy();
        let (_, operations) = whole.recorded(TRAIN, None, false);
        let last = checkpoint::read(&whole.file("run/last.safetensors")).unwrap();
        let has: Vec<&String> = last.tensors.keys().collect();
        assert!(last.tensors.contains_key(&format!("optimizer.{state}")), "{optimizer}: {has:?}");
        let is_named =
            |(_, o): &(usize, &crate::operation::Operation)| o.name == "rename" && o.other.starts_with("run/");
        let renames: Vec<usize> = operations.iter().enumerate().filter(is_named).map(|(i, _)| i + 1).collect();
        assert!(renames.len() >= 4, "{optimizer}: {}", renames.len());
        for n in renames {
            let place = place.copy();
            let (ended, _) = place.recorded(TRAIN, Some((n, Fault::Kill)), false);
            assert_eq!(ended.signal, Some(libc::SIGKILL), "{optimizer}, operation {n}: {ended:?}");
            recovers(&place, &expected).unwrap_or_else(|e| panic!("{optimizer}, killed at operation {n}: {e}"));
        }
    }
}
