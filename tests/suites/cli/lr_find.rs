//! `lr-find`: what it tries, what it suggests, and that it writes nothing.

use super::support::{LAYERS, Place, digits};

const OPTIMIZER: &str = "[optimizer]\ntype = \"sgd\"\nlr = 1e-9\n[schedule]\ntype = \"cosine\"\n[train]\nepochs = 1\n";

#[test]
fn rates_rise_until_the_loss_does() {
    let place = Place::with(&digits("", &format!("{LAYERS}\n{OPTIMIZER}")));
    let done = place.ok("lr-find c.toml --json --from 1e-4 --to 1e4 --tries 60 --threads 1").json();
    let tried = done["tried"].as_array().unwrap();
    let column = |key: &str| tried.iter().map(|t| t[key].as_f64().unwrap()).collect::<Vec<f64>>();
    let (rates, smoothed) = (column("lr"), column("smoothed"));
    assert!((rates[0] - 1e-4).abs() < 1e-18 && rates.windows(2).all(|pair| pair[1] > pair[0]), "{rates:?}");
    // The configuration's own rate would learn nothing; these do, and then go too far.
    let lowest = done["lowest"]["smoothed"].as_f64().unwrap();
    assert!(lowest < 0.9 * smoothed[0], "{smoothed:?}");
    assert!(tried.len() < 60, "the loss grows out of bounds at {rates:?}");
    let suggestion = done["suggestion"].as_f64().unwrap();
    assert!((1e-3..done["lowest"]["lr"].as_f64().unwrap() * 1.06).contains(&suggestion), "{suggestion}");

    let again = place.ok("lr-find c.toml --from 1e-4 --to 1e4 --tries 60 --threads 2");
    assert!(again.out.contains(&format!("--set optimizer.lr={suggestion:e}")), "{}", again.out);
    assert!(again.out.contains("smoothed loss") && again.out.contains('•'), "{}", again.out);
    assert!(!place.path("runs").exists(), "nothing is written");
}

/// Several batches to an update, and a rate for some parameters that is in proportion.
#[test]
fn an_update_may_have_several_batches() {
    let more = format!("{LAYERS}\n{OPTIMIZER}accumulate = 3\n").replace("[schedule]", "ema = {}\n[schedule]");
    let place = Place::with(&digits("", &more));
    let done = place.ok("lr-find c.toml --json --tries 20 --to 1e-3").json();
    assert_eq!(done["tried"].as_array().unwrap().len(), 20);
    assert!(done["tried"][19]["loss"].as_f64().unwrap() > 0.0);
}

/// The rates that are tried are those that are reported, whatever the optimizer's own warm-up makes of its rate.
#[test]
fn an_optimizers_own_warm_up_is_left_out() {
    let rule = |warmup: u64| {
        let optimizer =
            format!("[optimizer]\ntype = \"adamw_schedule_free\"\nwarmup_steps = {warmup}\n[train]\nepochs = 1\n");
        digits("", &format!("{LAYERS}\n{optimizer}"))
    };
    let tried = |warmup: u64| {
        let place = Place::with(&rule(warmup));
        place.ok("lr-find c.toml --json --tries 20 --from 1e-3 --to 1e-1").json()["tried"].clone()
    };
    assert_eq!(tried(0), tried(1000));
}
