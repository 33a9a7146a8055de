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
    refused_with(2, place, args)
}

fn refused_with(code: i32, place: &Place, args: &str) -> String {
    let said = place.fails(&format!("sweep c.toml --out s {args}"), code);
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

#[test]
fn what_check_finds_is_found_before_anything_is_trained() {
    let place = place(60, "");
    let said = refused_with(1, &place, "--sweep model.weights=nowhere.safetensors,neither.pth");
    assert!(
        said.contains("nowhere.safetensors") && said.contains("neither.pth") && said.contains("in trial 2"),
        "{said}"
    );
    let said = refused(&place, "--sweep sweep.trials=1,2");
    assert!(said.contains("is a key of the sweep itself, and not of a trial"), "{said}");
    // There is no GPU of that number.
    for set in ["device=cpu,cuda:99", "devices=[[98,99]]"] {
        let said = place.fails(&format!("sweep c.toml --out s --method grid --sweep {set}"), 3);
        assert!(!place.path("s").exists() && !said.contains("failed"), "{said}");
    }
}

#[test]
fn a_sweep_that_cannot_go_on_says_which_key_has_changed() {
    let place = place(60, "");
    let sweep = "--sweep optimizer.lr=1e-3,1e-2 --set train.epochs=1";
    place.ok(&format!("sweep c.toml -q --out s {sweep}"));
    let said =
        place.fails(&format!("sweep c.toml -q --out s {sweep} --set train.epochs=2 --set optimizer.eps=1e-6"), 2);
    assert!(said.contains("`optimizer.eps` was 1e-8, and is 1e-6; `train.epochs` was 1, and is 2"), "{said}");
    let said = place.fails(&format!("sweep c.toml -q --out s {sweep} --monitor val_loss"), 2);
    assert!(said.contains(r#"`checkpoint.monitor` was "val_accuracy", and is "val_loss""#), "{said}");
    place.ok(&format!("sweep c.toml -q --out s {sweep} --monitor val_accuracy --set sweep.stop=median"));
}

#[test]
fn values_of_parameters_may_be_anything_that_a_key_takes() {
    let place = place(60, "");
    let trials = |args: &str| {
        let table = place
            .ok(&format!("sweep c.toml -q --json --force --out s --method grid --set train.epochs=1 {args}"))
            .json();
        let mut trials = table["trials"].as_array().unwrap().clone();
        trials.sort_by_key(|trial| trial["trial"].as_u64());
        trials
            .iter()
            .map(|trial| trial["values"].as_object().unwrap().values().next().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        trials("--sweep train.early_stopping={patience=1},{patience=2}"),
        [r#"{"patience":1}"#, r#"{"patience":2}"#]
    );
    let layers = r#"--sweep model.layers=[{type="linear",out_features=3}],["relu",{type="linear",out_features=3}]"#;
    assert_eq!(trials(layers).len(), 2);
    assert_eq!(trials("--sweep optimizer.betas=[0.9,0.99],[0.8,0.9]"), ["[0.9,0.99]", "[0.8,0.9]"]);
    assert_eq!(trials("--sweep seed=[1,2]"), ["1", "2"]);
    assert_eq!(trials("--sweep optimizer.type=sgd,adam"), [r#""sgd""#, r#""adam""#]);
    for (weights, named) in [(r#""../a.pth","../b.pth""#, "../b.pth"), ("../a.pth,../b.pth", "../b.pth")] {
        let said = place.fails(&format!("sweep c.toml --out w --sweep model.weights={weights}"), 1);
        assert!(said.contains(named) && said.contains("in trial 2"), "{said}");
    }
    for (values, reason) in [
        ("seed=0..99999999999999999999", "a whole number"),
        ("seed=99999999999999999999", "found 1e20"),
        ("model.layers.0.out_features=8..10:linear:4", "there are only 3 different values"),
        ("optimizer.lr=1e-3,1e-2,0.001 --method grid", "a grid has a value of `optimizer.lr` twice"),
        ("optimizer.betas=[0.9,0.99],[0.8", "not TOML"),
    ] {
        let said = place.fails(&format!("sweep c.toml --out w --sweep {values}"), 2);
        assert!(said.contains(reason), "{values}: {said}");
    }
    let said = place.fails("check c.toml --set seed=99999999999999999999", 2);
    assert!(said.contains("found 1e20"), "{said}");
}

#[test]
fn a_range_has_its_ends_and_no_value_twice() {
    let place = place(60, "");
    let values = |args: &str| {
        let table = place.ok(&format!("sweep c.toml -q --json --force --out s --set train.epochs=1 {args}")).json();
        let value =
            |trial: &serde_json::Value| trial["values"].as_object().unwrap().values().next().unwrap().to_string();
        let mut values: Vec<String> = table["trials"].as_array().unwrap().iter().map(value).collect();
        values.sort();
        values
    };
    assert_eq!(values("--method grid --sweep optimizer.lr=0.0123456..0.0987654:linear:2"), ["0.0123456", "0.0987654"]);
    assert_eq!(values("--sweep train.epochs=1..3"), ["1", "2", "3"]);
    let mut close = values("--set optimizer.type=sgd --sweep optimizer.momentum=0.99991..0.99999 --trials 3");
    close.dedup();
    assert_eq!(close.len(), 3, "{close:?}");
}

#[test]
fn force_removes_what_the_sweep_has_written() {
    let place = place(60, "");
    let sweep = "sweep c.toml -q --out s --sweep optimizer.lr=1e-3,1e-2 --set train.epochs=1";
    place.ok(sweep);
    for name in ["s/trials/mine/notes.txt", "s/trials/1/notes.txt", "s/trials/9.txt"] {
        place.write(name, "");
        let said = place.fails(&format!("{sweep} --force"), 2);
        assert!(said.contains("is not of the sweep") && place.path(name).exists(), "{said}");
        std::fs::remove_file(place.path(name)).unwrap();
        let _ = std::fs::remove_dir(place.path("s/trials/mine"));
    }
    place.ok(&format!("{sweep} --force"));
}

#[test]
fn a_best_checkpoint_that_is_gone_is_noted() {
    let place = place(60, "");
    let sweep = "sweep c.toml -q --out s --sweep optimizer.lr=1e-2 --set train.epochs=2 --monitor val_loss";
    assert!(!place.ok(sweep).out.contains("is gone"));
    std::fs::remove_file(place.path("s/trials/1/best.safetensors")).unwrap();
    let said = place.ok(sweep).out;
    assert!(said.contains("1/last.safetensors`, the newest") && said.contains("`best.safetensors` is gone"), "{said}");
}

#[test]
fn options_without_effect_are_noted() {
    let place = place(60, "");
    let grid = "sweep c.toml -q --out s --method grid --sweep optimizer.lr=1e-2 --set train.epochs=2";
    let said = place.ok(&format!("{grid} --set sweep.reduction=2 --set sweep.stop_after=2")).err;
    assert!(said.contains("`reduction` in `[sweep]` has no effect") && said.contains("`stop_after`"), "{said}");
    let said =
        place.ok(&format!("{grid} --set sweep.stop=median --set sweep.min_epochs=1 --set sweep.stop_after=2")).err;
    assert!(!said.contains("no effect"), "{said}");
    let said = place.fails(&format!("{grid} --monitor val_mae"), 2);
    assert!(said.contains("`train_loss`"), "{said}");
}

/// Trials would inherit the variables, and wait for ranks that are sweeps, too.
#[test]
fn a_sweep_of_several_ranks_is_refused() {
    let place = place(60, "");
    let openmpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")];
    let torch = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")];
    for variables in [openmpi, torch] {
        let variables = variables.map(|(name, value)| (name, value.to_owned()));
        let (_, done) = place.start_with("sweep c.toml --out s --sweep optimizer.lr=1e-3,1e-2", &variables).wait();
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains("a sweep is run by one process"), "{done:?}");
        assert!(!place.path("s").exists());
    }
}

/// A figure that is another one in each trial names no best: `check` and `sweep` say so before, and which figure does.
#[test]
fn figures_that_cannot_be_compared_are_warned_of() {
    let place = Place::with(
        "device = \"cpu\"\n[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\nvalidation_split = 0.25\nbatch_size = 8\n[model]\nuse = \"linear\"\n\
         [loss]\ntype = \"mse\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 1\n[sweep]\nmethod = \"grid\"\n\
         parameters = { \"loss.type\" = [\"mse\", \"l1\"], \"data.standardize_target\" = [true, false] }\n",
    );
    let rows: String = (0..40).map(|i| format!("{},{}\n", i * 7 % 11, i * 3 % 17)).collect();
    place.write("t.csv", format!("x,y\n{rows}"));
    for key in ["loss.type", "data.standardize_target"] {
        let warned = format!("trials are compared by `val_loss`, and `{key}` makes it another figure in each");
        for command in ["check c.toml", "sweep c.toml -q --force --out s"] {
            let said = place.ok(command).err;
            assert!(said.contains(&warned) && said.contains("--monitor val_rmse"), "{command}: {said}");
        }
        for rest in ["--monitor val_rmse", "--set lint.allow=[\"incomparable_trials\"]"] {
            let said = place.ok(&format!("sweep c.toml -q --force --out s {rest}")).err;
            assert!(!said.contains("trials are compared by"), "{rest}: {said}");
        }
    }
}
