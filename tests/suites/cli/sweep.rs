//! `runner sweep`: which trials there are, that each is a run like any other, and that nothing changes what comes of them: how many
//! run at a time, or how often the sweep is killed.

use super::support::{Place, assert_same_runs};
use runner::random::{Purpose, Stream};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// A small net on synthetic samples; `sweep` is the section of that name.
fn config(epochs: usize, sweep: &str) -> String {
    format!(
        "seed = 5\ndevice = \"cpu\"\n[data]\nsource = \"synthetic\"\nshape = [6]\nclasses = 3\nsamples = 120\nval_samples = 60\n\
         batch_size = 20\n[params]\nwidth = 8\n[model]\nlayers = [{{ type = \"linear\", out_features = \"$width\" }}, \"relu\", \
         {{ type = \"dropout\", p = 0.2 }}, {{ type = \"linear\", out_features = 3 }}]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"adam\"\nlr = 0.01\n[train]\nepochs = {epochs}\n[log]\nevery_steps = 1\n{sweep}"
    )
}

const GRID: &str =
    "[sweep]\nmethod = \"grid\"\nparameters = { \"optimizer.lr\" = [1e-3, 1e-2], \"params.width\" = [4, 8, 16] }\n";

/// What was printed as JSON, without the times.
fn table(text: &str) -> Value {
    let mut table: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    for trial in table["trials"].as_array_mut().unwrap() {
        trial.as_object_mut().unwrap().remove("seconds");
    }
    table["best"].as_object_mut().map(|best| best.remove("seconds"));
    table
}

fn sweep(place: &Place, args: &str) -> Value {
    table(&place.ok(&format!("sweep c.toml --json --quiet --threads 1 {args}")).out)
}

/// The same with folders named as if it had been in `out`.
fn in_folder(table: &Value, from: &str, to: &str) -> Value {
    serde_json::from_str(
        &table
            .to_string()
            .replace(&format!("{from}/"), &format!("{to}/"))
            .replace(&format!("\"{from}\""), &format!("\"{to}\"")),
    )
    .unwrap()
}

fn trials(table: &Value) -> &[Value] {
    table["trials"].as_array().unwrap()
}

#[test]
fn a_grid_has_every_combination_and_each_is_a_run_of_its_own() {
    let place = Place::with(&config(2, GRID));
    let table = sweep(&place, "--set train.max_steps=2 --out short");
    assert!(trials(&table).iter().all(|t| t["state"] == "finished" && t["why"] == "`max_steps` is 2"), "{table}");
    let table = sweep(&place, "");
    assert_eq!(trials(&table).len(), 6, "{table}");
    let mut seen: Vec<String> = trials(&table).iter().map(|trial| trial["values"].to_string()).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6, "{seen:?}");
    let values: Vec<f64> = trials(&table).iter().map(|trial| trial["value"].as_f64().unwrap()).collect();
    assert!(values.is_sorted_by(|a, b| a >= b), "the best accuracy comes first: {values:?}");
    assert!(trials(&table).iter().all(|trial| trial["state"] == "finished" && trial["epochs"] == 2), "{table}");
    // Trial 6 is what `train` makes of the same options.
    let run = trials(&table).iter().find(|trial| trial["trial"] == 6).unwrap();
    assert_eq!(run["values"].to_string(), r#"{"optimizer.lr":0.01,"params.width":16}"#);
    place.ok("train c.toml --quiet --unset sweep --set optimizer.lr=0.01 --set params.width=16 --out alone");
    assert_same_runs((&place, "alone"), (&place, run["run"].as_str().unwrap()));
    assert_eq!(run["run"], "runs/c/sweep/trials/6");
    // The commands over runs take them as they are.
    assert_eq!(place.ok("runs runs/c/sweep --json").json().as_array().unwrap().len(), 6);
    let page = place.read("runs/c/sweep/report.html");
    assert!(page.contains("<h2 id=\"lead\">Sweep</h2>") && page.contains("runs/c/sweep/trials/6"), "{}", page.len());
    // Once more, there is nothing left to do.
    let before = fs::metadata(place.path("runs/c/sweep/trials/6/last.safetensors")).unwrap().modified().unwrap();
    assert_eq!(sweep(&place, ""), table);
    assert_eq!(fs::metadata(place.path("runs/c/sweep/trials/6/last.safetensors")).unwrap().modified().unwrap(), before);
    let text = place.ok("sweep c.toml --threads 1").out;
    let best = &trials(&table)[0];
    assert!(text.lines().nth(1).unwrap().trim().starts_with(&best["trial"].to_string()), "{text}");
    assert!(text.contains(&format!("the best is trial {}", best["trial"])), "{text}");
}

#[test]
fn parameters_may_come_from_the_command_line() {
    let place = Place::with(&config(1, ""));
    let table = sweep(
        &place,
        "--sweep optimizer.lr=1e-3..1e-1:log --sweep params.width=4..6 --sweep data.batch_size=10,20 --trials 5 --monitor val_loss",
    );
    assert_eq!((trials(&table).len(), &table["method"], &table["monitor"]), (5, &"random".into(), &"val_loss".into()));
    for trial in trials(&table) {
        let value = |key: &str| trial["values"][key].as_f64().unwrap();
        assert!((1e-3..=1e-1).contains(&value("optimizer.lr")), "{trial}");
        assert!(trial["values"]["params.width"].is_i64() && (4.0..=6.0).contains(&value("params.width")), "{trial}");
        assert!([10.0, 20.0].contains(&value("data.batch_size")), "{trial}");
    }
    // More trials leave those that there are as they were.
    let more = sweep(
        &place,
        "--sweep optimizer.lr=1e-3..1e-1:log --sweep params.width=4..6 --sweep data.batch_size=10,20 --trials 6 --monitor val_loss",
    );
    for trial in trials(&table) {
        let again = trials(&more).iter().find(|other| other["trial"] == trial["trial"]).unwrap();
        assert_eq!((&again["values"], &again["value"]), (&trial["values"], &trial["value"]));
    }
    // Where all values are listed, none is tried twice.
    let listed = |more: &str| {
        let table =
            sweep(&place, &format!("--sweep optimizer.lr=1e-3..1e-1:log:3 --sweep data.batch_size=10,20 {more}"));
        let mut values: Vec<(u64, String)> = trials(&table)
            .iter()
            .map(|trial| (trial["trial"].as_u64().unwrap(), trial["values"].to_string()))
            .collect();
        values.sort();
        values
    };
    let (some, all) = (listed("--trials 4 --out some"), listed("--out all"));
    let different: BTreeSet<&String> = all.iter().map(|(_, values)| values).collect();
    assert_eq!((some.len(), all.len(), different.len()), (4, 6, 6), "{all:?}");
    assert_eq!(some, all[..4]);
    let grid = sweep(&place, "--sweep optimizer.lr=1e-3..1e-1:log:3 --method grid --out g");
    assert_eq!(trials(&grid).len(), 3);
    // What the command line says of a key lies over the file.
    place.write("s.toml", config(1, GRID));
    let over = place.ok("sweep s.toml --json --quiet --sweep params.width=4,5 --sweep optimizer.lr=0.5").json();
    assert_eq!(trials(&over).len(), 2);
    // A key of `[sweep]` is the sweep's alone: no trial gets it.
    let set = place.ok("sweep s.toml --json --quiet --out t --set sweep.monitor=val_loss").json();
    let ended: Vec<&str> = trials(&set).iter().map(|trial| trial["state"].as_str().unwrap()).collect();
    assert!(ended.iter().all(|state| *state == "finished") && set["monitor"] == "val_loss", "{set}");
}

#[test]
fn all_mistakes_are_errors_at_their_places_before_anything_is_trained() {
    let sweep = "[sweep]\nmethod = \"random\"\ntrials = 4\nparameters = { \"optimizer.lr\" = { log = [0, 1e-1] }, \"params.width\" = [], \
                 \"train.epochs\" = 3, \"seed\" = { linear = [5, 1], step = 3 } }\n";
    let place = Place::with(&config(2, sweep));
    for command in ["sweep", "check", "train"] {
        let done = place.run(&format!("{command} c.toml --json"));
        assert_eq!(done.code, Some(2), "{done:?}");
        let errors = done.json()["errors"].as_array().unwrap().clone();
        let reasons: Vec<&str> = errors.iter().map(|error| error["reason"].as_str().unwrap()).collect();
        assert_eq!(
            reasons,
            [
                "must be above 0: a logarithm has no other",
                "the list is empty",
                "expected a list of values, or a range `{ linear = [a, b] }`, found 3",
                "the first number must be below the second",
                "a range has the keys `linear`, `log` and `steps`",
            ],
            "{errors:#?}"
        );
        assert!(errors.iter().all(|error| error["file"] == "c.toml" && error["line"] == 26), "{errors:#?}");
    }
    // Mistakes that only the whole configuration of a trial shows: a key, a value, shapes.
    let sweep = "[sweep]\nmethod = \"grid\"\n[sweep.parameters]\noptimizer.momentun = [0.9]\n\
                 optimizer.lr = [-1.0, 0.1, -2.0]\nmodel.layers.1 = [{ type = \"conv2d\", out_channels = 2, kernel_size = 3 }]\n";
    place.write("c.toml", config(2, sweep));
    for command in ["sweep", "check"] {
        let errors = place.run(&format!("{command} c.toml --json")).json()["errors"].as_array().unwrap().clone();
        let at = |line: u64| errors.iter().filter(|error| error["line"] == line).count();
        assert!(at(26) == 1 && at(27) == 2, "{errors:#?}");
    }
    let sweep = "[sweep]\nmethod = \"grid\"\n[sweep.parameters]\nmodel.layers.1 = [\"relu\", { type = \"conv2d\", out_channels = 2, kernel_size = 3 }]\n";
    place.write("c.toml", config(2, sweep));
    let errors = place.run("sweep c.toml --json").json()["errors"].as_array().unwrap().clone();
    assert!(errors.len() == 1 && errors[0]["line"] == 26 && errors[0]["notes"][0] == "in trial 2", "{errors:#?}");
    for (args, reason) in [
        ("--sweep optimizer.lr", "there is no `=`"),
        ("--sweep optimizer.lr=1..2:cubic", "expected `log`"),
        ("--sweep optimizer.lr=1e-3,nan", "must be a finite number"),
        ("--sweep optimizer.lr=a..b", "must be a number, found the string \"a\""),
        ("--sweep optimizer.lr=1..2 --method grid", "has no `steps`"),
        ("--sweep optimizer.lr=1,2 --method grid --trials 3", "as many as there are combinations"),
        ("--sweep optimizer.lr=1,2 --monitor val_mae", "never computed"),
        ("--sweep optimizer.lr=1,2 --monitor val_acuracy", "val_accuracy"),
        ("--sweep train.epochs=1,2 --method halving", "another length"),
        ("--sweep seed=1,2 --method halving --set train.epochs=1", "all epochs"),
        ("--sweep seed=1..4000:4 --set sweep.stop=\"median\" --method halving", "by itself"),
        ("", "--sweep optimizer.lr"),
        ("--sweep seed=1,2 --jobs none", "--jobs"),
    ] {
        place.write("c.toml", config(2, ""));
        let message = place.fails(&format!("sweep c.toml {args}"), 2);
        assert!(message.contains(reason), "{args}: {message}");
    }
    assert!(!place.path("runs").exists(), "nothing was made");
}

#[test]
fn a_trial_that_fails_is_reported_and_the_others_go_on() {
    let sweep_of =
        |lr: &str| config(2, &format!("[sweep]\nmethod = \"grid\"\nparameters = {{ \"optimizer.lr\" = {lr} }}\n"));
    let place = Place::with(&sweep_of("[0.01, 1e30, 0.02]").replace("adam", "sgd"));
    let table = sweep(&place, "");
    let states: Vec<&str> = trials(&table).iter().map(|trial| trial["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["finished", "finished", "failed"], "{table}");
    let last = &trials(&table)[2];
    assert!(last["trial"] == 2 && last["why"].as_str().unwrap().contains("the loss is"), "{last}");
    let kept = place.read("runs/c/sweep/sweep.json");
    assert!(kept.contains("the loss is"), "{kept}");
    // It is not run again unless that is asked for.
    let failed = "trial 2 (optimizer.lr = 1e+30) failed: the loss is";
    let again = place.ok("sweep c.toml --threads 1");
    assert!(again.out.contains("trial 2 failed: the loss is") && !again.err.contains(failed), "{again:?}");
    let again = place.ok("sweep c.toml --threads 1 --retry");
    assert!(again.err.contains(failed) && !again.err.contains("trial 1"), "{again:?}");
    // What was warned of before, with its place, is not said again by the trial.
    assert_eq!(again.err.matches("a learning rate of 1e30 is far beyond").count(), 1, "{again:?}");
    assert_eq!(sweep(&place, "--retry"), table);
    place.write("c.toml", sweep_of("[1e30, 2e30]").replace("adam", "sgd"));
    assert!(place.fails("sweep c.toml --out all", 1).contains("all trials have failed"));
}

#[test]
fn a_folder_holds_one_sweep() {
    let place = Place::with(&config(1, GRID));
    let table = sweep(&place, "--out s");
    let other = place.fails("sweep c.toml --out s --set optimizer.eps=1e-7", 2);
    assert!(
        other.contains("holds another sweep") && other.contains("`optimizer.eps` was 1e-8, and is 1e-7"),
        "{other}"
    );
    let other = place.fails("sweep c.toml --out s --sweep params.width=5,6", 2);
    assert!(
        other.contains("trial 1 is not what it was") && other.contains("\"params.width\"")
            || other.contains("params.width = 5"),
        "{other}"
    );
    assert_eq!(sweep(&place, "--out s"), table, "nothing was changed");
    let anew = sweep(&place, "--out s --force --sweep params.width=5");
    assert_eq!(trials(&anew).len(), 2);
    assert!(!place.path("s/trials/3").exists());
    place.ok("train c.toml --quiet --out r");
    assert!(place.fails("sweep c.toml --out r", 2).contains("holds a run"));
    place.write("mine/trials/notes.txt", "");
    assert!(place.fails("sweep c.toml --out mine --force", 2).contains("is of no sweep"));
    assert!(place.path("mine/trials/notes.txt").exists());
}

#[test]
fn it_does_not_matter_how_many_run_at_a_time() {
    for sweep_section in [
        "[sweep]\ntrials = 7\nstop = \"median\"\nstop_after = 2\nparameters = { \"optimizer.lr\" = { log = [1e-5, 1e-1] } }\n",
        "[sweep]\nmethod = \"halving\"\ntrials = 6\nreduction = 2\nparameters = { \"optimizer.lr\" = { log = [1e-5, 1e-1] } }\n",
    ] {
        let place = Place::with(&config(4, sweep_section));
        let one = sweep(&place, "--out one");
        assert!(trials(&one).iter().any(|trial| trial["state"] == "out"), "some are stopped: {one}");
        let three = sweep(&place, "--out many --jobs 3");
        let without = |table: &Value| in_folder(table, "one", "many");
        assert_eq!(without(&one), three);
        for trial in trials(&one).iter().filter(|trial| trial["state"] == "finished") {
            let n = &trial["trial"];
            let (a, b) = (format!("one/trials/{n}"), format!("many/trials/{n}"));
            assert_same_runs((&place, &a), (&place, &b));
        }
    }
}

#[test]
fn halving_goes_on_with_the_best_from_where_they_were() {
    let sweep_section = "[schedule]\ntype = \"cosine\"\n[sweep]\nmethod = \"halving\"\ntrials = 8\nreduction = 2\nmonitor = \"val_loss\"\n\
                         parameters = { \"optimizer.lr\" = { log = [1e-5, 1e-1] } }\n";
    let place = Place::with(&config(8, sweep_section));
    let table = sweep(&place, "--out s");
    let mut epochs: Vec<u64> = trials(&table).iter().map(|trial| trial["epochs"].as_u64().unwrap()).collect();
    epochs.sort_unstable();
    assert_eq!(epochs, [1, 1, 1, 1, 2, 2, 4, 8], "{table}");
    let best = &trials(&table)[0];
    assert_eq!((&best["state"], &best["epochs"]), (&"finished".into(), &8.into()), "{table}");
    // The bits of one that was trained in one go, with the schedule of the whole run.
    let lr = &best["values"]["optimizer.lr"];
    place.ok(&format!(
        "train c.toml --quiet --unset sweep --set optimizer.lr={lr} --set checkpoint.monitor=val_loss --out alone"
    ));
    assert_same_runs((&place, "alone"), (&place, best["run"].as_str().unwrap()));
}

/// Epochs that all trials together have written down.
fn progress(place: &Place, folder: &str) -> usize {
    let lines =
        |n: usize| fs::read_to_string(place.path(&format!("{folder}/trials/{n}/metrics.jsonl"))).unwrap_or_default();
    (1..=20).map(|n| lines(n).matches("\"kind\":\"epoch\"").count()).sum()
}

#[test]
fn a_sweep_that_is_killed_ends_as_one_left_alone() {
    for (seed, method, jobs) in [(1, "stop = \"median\"\nstop_after = 3\n", 1), (2, "method = \"halving\"\n", 2)] {
        let section = format!(
            "[checkpoint]\nevery_steps = 2\n[sweep]\ntrials = 12\n{method}parameters = {{ \"optimizer.lr\" = {{ log = [1e-5, 1e-1] }}, \"params.width\" = [4, 8] }}\n"
        );
        let place = Place::with(&config(3, &section));
        let alone = sweep(&place, "--out alone");
        let all = progress(&place, "alone");
        let mut random = Stream::new(seed, Purpose::Synthetic, 0, 0);
        let mut kills = 0;
        for part in 0..2 {
            let target = all * part / 2 + random.below(all as u32 / 2) as usize;
            let mut running =
                place.start(&format!("sweep c.toml --json --quiet --threads 1 --out killed --jobs {jobs}"));
            let there = running.until(|| progress(&place, "killed") >= target);
            std::thread::sleep(Duration::from_micros(random.below(20_000).into()));
            running.signal(libc::SIGKILL);
            running.wait();
            kills += usize::from(there);
        }
        assert_eq!(kills, 2);
        let killed = sweep(&place, &format!("--out killed --jobs {jobs}"));
        assert_eq!(in_folder(&alone, "alone", "killed"), killed);
        for trial in trials(&alone).iter().filter(|trial| trial["state"] == "finished") {
            let n = &trial["trial"];
            let (a, b) = (format!("alone/trials/{n}"), format!("killed/trials/{n}"));
            assert_same_runs((&place, &a), (&place, &b));
        }
    }
}

#[test]
fn a_sweep_that_is_interrupted_saves_and_goes_on() {
    let section = "[sweep]\ntrials = 3\nparameters = { \"optimizer.lr\" = { log = [1e-4, 1e-1] } }\n";
    let place = Place::with(&config(400, section));
    let mut running = place.start("sweep c.toml --out s --quiet");
    assert!(running.until(|| progress(&place, "s") >= 3));
    running.signal(libc::SIGINT);
    let (status, done) = running.wait();
    assert_eq!(status.code(), Some(130), "{done:?}");
    assert!(done.err.contains("the same command goes on") && done.out.contains("waiting"), "{done:?}");
    let step = place.checkpoint("s/trials/1/last.safetensors").meta.step;
    assert!(step > 0 && !place.path("s/report.html").exists());
    // A trial alone goes on as any run does.
    place.ok("train --resume s/trials/1 --quiet --set train.max_steps=1");
}

/// A terminal's Ctrl-C goes to the trial, too, which may end before the sweep knows of it: it is no failure.
#[cfg(target_os = "linux")]
#[test]
fn a_trial_that_is_interrupted_first_has_not_failed() {
    let section = "[sweep]\ntrials = 1\nparameters = { \"optimizer.lr\" = { log = [1e-4, 1e-1] } }\n";
    let place = Place::with(&config(400, section));
    for first in ["sweep c.toml --out s --quiet", "sweep c.toml --out s --quiet --json"] {
        let mut running = place.start(first);
        let own = place.path("s/trials/1/last.safetensors");
        let before = fs::metadata(&own).and_then(|meta| meta.modified()).ok();
        assert!(running.until(|| fs::metadata(&own).and_then(|meta| meta.modified()).ok() != before));
        let children = fs::read_dir(format!("/proc/{}/task", running.id())).unwrap().filter_map(|task| {
            fs::read_to_string(task.unwrap().path().join("children"))
                .ok()?
                .split_whitespace()
                .next()?
                .parse::<i32>()
                .ok()
        });
        let trial = children.last().expect("a trial is at work");
        // SAFETY: plain numbers; a child of the sweep, which waits for it.
        unsafe { libc::kill(trial, libc::SIGINT) };
        assert!(running.until(|| !place.path(&format!("/proc/{trial}")).exists()));
        running.signal(libc::SIGINT);
        let (status, done) = running.wait();
        assert_eq!(status.code(), Some(130), "{done:?}");
        assert!(!done.out.contains("failed") && !done.err.contains("failed"), "{done:?}");
    }
}

#[test]
fn a_run_stops_where_pause_after_says_and_when_its_input_ends() {
    let place = Place::with(&config(4, ""));
    place.ok("train c.toml --quiet --out whole");
    let done = place.ok("train c.toml --out r --pause-after 2");
    assert!(done.err.contains("stopped after epoch 2, as `--pause-after` says"), "{done:?}");
    assert_eq!(place.checkpoint("r/last.safetensors").meta.epoch, 2);
    // There already, and beyond the end.
    place.ok("train --resume r --quiet --pause-after 1");
    assert_eq!(place.checkpoint("r/last.safetensors").meta.epoch, 2);
    place.ok("train --resume r --quiet --pause-after 9");
    assert_same_runs((&place, "whole"), (&place, "r"));
    // Its input is empty.
    let done = place.run("train c.toml --out w --watch-stdin --set train.epochs=100000");
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.err.contains("go on with: runner train --resume w"), "{done:?}");
}

#[test]
fn other_commands_know_of_a_sweep() {
    let place = Place::with(&config(1, GRID));
    let text = place.ok("check c.toml").out;
    assert!(
        text.contains("sweep: 6 trials (grid) over optimizer.lr, params.width, compared by val_accuracy"),
        "{text}"
    );
    let json = place.ok("check c.toml --json").json();
    assert_eq!((&json["sweep"]["trials"], &json["sweep"]["method"]), (&6.into(), &"grid".into()));
    let done = place.ok("train c.toml --out r");
    assert!(done.err.contains("`runner sweep` runs the 6 trials"), "{done:?}");
}

/// A short trial is whole at its own end, and long ones are compared with it all the same.
#[test]
fn trials_may_differ_in_their_epochs() {
    let section = "[sweep]\nmethod = \"grid\"\nstop = \"median\"\nstop_after = 2\nmin_epochs = 3\nmonitor = \"val_loss\"\n\
                   parameters = { \"train.epochs\" = [2, 5], \"optimizer.lr\" = [0.02, 0.01, 1e-7] }\n";
    let place = Place::with(&config(1, section));
    let table = sweep(&place, "--out one");
    let of = |epochs: u64| trials(&table).iter().filter(move |trial| trial["values"]["train.epochs"] == epochs);
    assert!(of(2).all(|trial| trial["state"] == "finished" && trial["epochs"] == 2), "{table}");
    let slow = of(5).find(|trial| trial["values"]["optimizer.lr"] == 1e-7).unwrap();
    assert_eq!((&slow["state"], &slow["why"]), (&"out".into(), &"below the median after epoch 3".into()), "{table}");
    assert!(of(5).any(|trial| trial["state"] == "finished" && trial["epochs"] == 5), "{table}");
    assert_eq!(in_folder(&table, "one", "many"), sweep(&place, "--out many --jobs 3"));
}

#[test]
fn trials_by_steps_are_reported_in_steps() {
    let section = "[sweep]\nmethod = \"grid\"\nparameters = { \"optimizer.lr\" = [0.02, 0.01] }\n";
    // An epoch has six.
    let place = Place::with(&config(1, section).replace("epochs = 1", "steps = 4\neval_every_steps = 3"));
    let done = place.ok("sweep c.toml --threads 1");
    assert_eq!(done.err.matches(": 4 of 4 steps, val_accuracy ").count(), 2, "{done:?}");
    assert!(done.err.contains(" at step ") && !done.err.contains("epoch"), "{done:?}");
    let head: Vec<&str> = done.out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["trial", "optimizer.lr", "val_accuracy", "at", "step", "steps", "time", "state"]);
    let table = sweep(&place, "");
    for trial in trials(&table) {
        assert_eq!((&trial["state"], &trial["steps"], &trial["epochs"]), (&"finished".into(), &4.into(), &0.into()));
        assert!([3, 4].map(Value::from).contains(&trial["best_step"]), "{trial}");
    }
    // The table shows how far an interrupted trial has come, too.
    let long = place.read("c.toml").replace("steps = 4\neval_every_steps = 3", "steps = 200000\neval_every_steps = 6");
    place.write("c.toml", long);
    let mut running = place.start("sweep c.toml --out s --quiet --json");
    assert!(running.until(|| {
        let lines = fs::read_to_string(place.path("s/trials/1/metrics.jsonl")).unwrap_or_default();
        lines.contains("\"kind\":\"eval\"") || lines.contains("\"kind\":\"epoch\"")
    }));
    running.signal(libc::SIGINT);
    let (status, done) = running.wait();
    assert_eq!(status.code(), Some(130), "{done:?}");
    let first = done.json()["trials"].as_array().unwrap().iter().find(|trial| trial["trial"] == 1).unwrap().clone();
    assert!(first["state"] == "stopped" && first["steps"].as_u64() >= Some(6) && first["value"].is_f64(), "{first}");
}

#[test]
fn of_equal_figures_that_with_the_least_loss_is_the_best() {
    let place =
        Place::with(&config(4, "[sweep]\nmethod = \"grid\"\nparameters = { \"optimizer.lr\" = [1e-6, 2e-6] }\n"));
    // The accuracy stays as it is, and the loss falls.
    let table = sweep(&place, "--set optimizer.type=sgd --set train.eval_every=1");
    for trial in trials(&table) {
        let run = trial["run"].as_str().unwrap();
        let lines = place.metrics(run);
        let epochs = || lines.iter().filter(|line| line["kind"] == "epoch");
        assert!(epochs().all(|line| line["val_accuracy"] == trial["value"]), "{lines:?}");
        let loss = |line: &&Value| line["val_loss"].as_f64().unwrap();
        let least = epochs().min_by(|a, b| loss(a).total_cmp(&loss(b))).unwrap();
        assert_eq!(trial["best_epoch"], least["epoch"], "{trial}");
    }
    assert_eq!(trials(&table)[0]["trial"], 2, "its loss falls faster: {table}");
}
