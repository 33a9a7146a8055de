//! Sweeps that cannot come to anything are refused before the first trial is trained.

use super::support::Place;

/// A small net on synthetic samples.
fn place(val_samples: usize, train: &str) -> Place {
    Place::with(&format!(
        "seed = 5\ndevice = \"cpu\"\n[data]\nsource = \"synthetic\"\nshape = [6]\nclasses = 3\nsamples = 120\nval_samples = {val_samples}\n\
         batch_size = 20\n[model]\nlayers = [{{ type = \"linear\", out_features = 8 }}, \"relu\", {{ type = \"linear\", out_features = 3 }}]\n\
         [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 0.01\n[train]\nepochs = 9\n{train}"
    ))
}

/// What is said of a sweep that is refused, which leaves nothing behind.
fn refused(place: &Place, args: &str) -> String {
    let said = place.fails(&format!("sweep c.toml --out s {args}"), 2);
    assert!(!place.path("s").exists(), "{args}: {said}");
    said
}

#[test]
fn rounds_of_halving_end_where_something_was_validated() {
    let halving = "--sweep optimizer.lr=1e-3,1e-2 --method halving";
    let by_epochs = place(60, "eval_every = 3\n");
    let said = refused(&by_epochs, halving);
    assert!(said.contains("ends after epoch 1, and nothing is validated until epoch 3"), "{said}");
    assert!(said.contains("`min_epochs = 3`") && said.contains("eval_every = 3"), "{said}");
    by_epochs.ok(&format!("sweep c.toml -q --out s {halving} --set sweep.min_epochs=3"));
    // An epoch has six steps. The end of the run is validated, too.
    let by_steps = place(60, "eval_every_steps = 13\n");
    assert!(refused(&by_steps, halving).contains("until epoch 3"));
    assert!(refused(&by_steps, &format!("{halving} --set train.eval_every_steps=1000")).contains("until epoch 9"));
    by_steps.ok(&format!("sweep c.toml -q --out s {halving} --monitor train_loss"));
    // Where one of the trials validates too late, too.
    let said = refused(&place(60, ""), "--sweep train.eval_every=1,2 --method halving");
    assert!(said.contains("until epoch 2") && said.contains("in trial"), "{said}");
}

#[test]
fn trials_are_compared_by_a_figure_that_they_have() {
    let place = place(0, "");
    for method in ["random", "grid", "halving"] {
        let said = refused(&place, &format!("--sweep optimizer.lr=1e-3,1e-2 --method {method}"));
        assert!(said.contains("`val_accuracy`, by which trials are compared, never has a value"), "{said}");
        assert!(said.contains("train_loss"), "{said}");
    }
    place.ok("sweep c.toml -q --out s --sweep optimizer.lr=1e-3,1e-2 --monitor train_loss");
}
