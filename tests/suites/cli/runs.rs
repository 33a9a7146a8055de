//! The commands over runs: what they find, choose, compare and draw.

use super::support::{Place, plain};
use std::fs;

/// Folders of runs as `train` leaves them, made by hand: no test has to train.
fn runs() -> Place {
    let place = Place::new();
    let run = |name: &str, lr: f64, losses: &[f64], rest: &str| {
        let config = format!(
            "seed = 0\n[optimizer]\ntype = \"sgd\"\nlr = {lr}\n[train]\nepochs = 2\n[checkpoint]\nmonitor = \"val_accuracy\"\n"
        );
        let mut metrics = String::new();
        for (i, loss) in losses.iter().enumerate() {
            let (epoch, step) = (i + 1, 10 * (i + 1));
            metrics +=
                &format!("{{\"kind\":\"step\",\"step\":{},\"epoch\":{epoch},\"loss\":{loss},\"lr\":{lr}}}\n", step - 5);
            metrics += &format!(
                "{{\"kind\":\"epoch\",\"epoch\":{epoch},\"step\":{step},\"train_loss\":{loss},\"val_loss\":{loss},\
                 \"val_accuracy\":{},\"seconds\":61.0,\"samples_per_s\":9}}\n",
                1.0 - loss
            );
        }
        place.write(&format!("{name}/config.toml"), config);
        place.write(&format!("{name}/metrics.jsonl"), metrics + rest);
    };
    run("runs/net/2", 0.1, &[0.5, 0.25], "");
    run("runs/net/10", 0.01, &[0.75], "{\"kind\":\"st");
    run("runs/other/1", 0.01, &[], "{\"kind\":\"failed\",\"why\":\"the loss is NaN at step 1\"}\n");
    place
}

fn names(place: &Place, args: &str) -> String {
    let list = place.ok(&format!("runs {args} --json")).json();
    let name = |run: &serde_json::Value| run["run"].as_str().unwrap().trim_start_matches("runs/").to_owned();
    list.as_array().unwrap().iter().map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn runs_are_listed_chosen_and_sorted() {
    let place = runs();
    let done = place.ok("runs");
    assert!(done.err.is_empty(), "a line that is cut off is usual: {}", done.err);
    let lines: Vec<&str> = done.out.lines().collect();
    assert!(lines[0].starts_with("run           state     epochs  best"), "{}", done.out);
    assert!(lines[1].starts_with("runs/net/2    finished     2/2  val_accuracy 75.00 % @2"), "{}", done.out);
    assert!(lines[1].contains("2m 02s"), "{}", done.out);
    assert!(lines[2].starts_with("runs/net/10   stopped      1/2  val_accuracy 25.00 % @1"), "{}", done.out);
    assert_eq!(lines[4], "`runs/other/1` failed: the loss is NaN at step 1");
    for (args, expected) in [
        ("", "net/2 net/10 other/1"),
        ("--filter lr=0.01", "net/10 other/1"),
        ("--filter state!=failed --filter val_loss<0.5", "net/2"),
        ("--sort val_accuracy --reverse", "other/1 net/10 net/2"),
        ("--sort optimizer.lr", "net/10 other/1 net/2"),
        ("--best", "net/2"),
        ("--best --sort val_loss --reverse", "other/1"),
        ("runs/other", "other/1"),
        ("runs/net/10", "net/10"),
    ] {
        assert_eq!(names(&place, args), expected, "{args}");
    }
    let best = &place.ok("runs --best --json").json()[0];
    assert_eq!((best["state"].as_str(), best["best"]["value"].as_f64()), (Some("finished"), Some(0.75)), "{best}");
    assert_eq!(place.ok("runs --filter epochs>5").out, "no run meets the conditions below `runs`\n");
}

/// Away from a terminal all columns are there, however long a path is; what the list is sorted by has one anywhere.
#[test]
fn the_list_has_the_columns_that_are_asked_for() {
    let place = runs();
    let long = format!("runs/{}/{}", "a".repeat(90), "b".repeat(90));
    std::fs::create_dir_all(place.path(&long)).unwrap();
    for file in ["config.toml", "metrics.jsonl"] {
        std::fs::copy(place.path(&format!("runs/net/2/{file}")), place.path(&format!("{long}/{file}"))).unwrap();
    }
    let all = "run state epochs best train_loss val_loss val_accuracy time size";
    for (key, head, cell) in [
        ("", String::new(), "61.0"),
        ("val_loss", String::new(), "0.25"),
        ("seconds", String::new(), "2m 02s"),
        ("best.val_loss", " best.val_loss".into(), "0.25000"),
        ("lr", " lr".into(), "0.1"),
        ("optimizer.type", " optimizer.type".into(), "sgd"),
        ("modified", " modified".into(), " ago"),
    ] {
        let sort = if key.is_empty() { String::new() } else { format!("--sort {key}") };
        let done = place.ok(&format!("runs runs {sort}"));
        let lines: Vec<&str> = done.out.lines().collect();
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>().join(" "), format!("{all}{head}"), "{sort}");
        let row = lines.iter().find(|line| line.contains("runs/net/2")).unwrap();
        assert!(key.is_empty() || row.contains(cell), "{sort}: {row}");
    }
}

#[test]
fn folders_without_runs_and_broken_lines_are_reported() {
    let place = runs();
    place.write("runs/net/3/metrics.jsonl", "{\"kind\":\"epoch\",\"epoch\":1}\n{\"kind\":\n\0\0\n");
    let err = place.ok("runs").err;
    assert!(err.contains("`runs/net/3/metrics.jsonl`, line 2, column"), "{err}");
    assert!(err.contains("line 3") && err.contains("`runs/net/3/config.toml`"), "{err}");
    fs::create_dir(place.path("empty")).unwrap();
    for (args, code, part) in [
        ("runs nowhere", 2, "there is no folder `nowhere`"),
        ("runs --filter val_los<1", 2, "did you mean `val_loss`?"),
        ("runs --sort best.val_los", 2, "did you mean `best.val_loss`?"),
        ("runs --filter lr", 2, "expected KEY=VALUE"),
        ("plot empty", 2, "`empty` is not the folder of a run: it has neither `metrics.jsonl` nor `last.safetensors`"),
        ("plot net/2", 2, "did you mean `runs/net/2`?"),
        ("plot runs/net", 2, "has 3 in it"),
        ("plot runs/net/2 --metric val_acc", 2, "did you mean `val_accuracy`?"),
        ("plot runs/other/1", 2, "nothing has been written down"),
        ("compare runs/net/2", 2, "2 values"),
        ("compare runs/net/2 runs/net/2/config.toml", 2, "is named twice"),
    ] {
        let err = place.fails(args, code);
        assert!(err.contains(part), "{args}: {err}");
    }
    assert!(Place::new().fails("runs", 2).contains("name the folder that yours are in"));
}

#[test]
fn what_differs_and_what_came_of_it_stand_beside_each_other() {
    let place = runs();
    let text = place.ok("compare runs/net/2 runs/net/10").out;
    for line in ["configuration  runs/net/2  runs/net/10", "optimizer.lr   0.1         0.01"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let row = text.lines().find(|line| line.starts_with("val_loss, best")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[2..], ["0.25000", "@2", "0.75000", "@1"], "{text}");
    assert!(text.contains("\nval_accuracy\n") && text.contains("* runs/net/2 val_accuracy"), "{text}");
    let json = place.ok("compare runs/net/2 runs/net/10 --json --metric loss").json();
    assert_eq!(json["differences"].as_array().unwrap().len(), 1, "{json}");
    assert_eq!(json["differences"][0]["values"], serde_json::json!([0.1, 0.01]));
    assert_eq!(json["curves"][0]["points"], serde_json::json!([[10, 0.5], [20, 0.25]]), "of the validation: {json}");
    assert!(place.ok("compare runs/net/2 runs/other/1").out.contains("failed"));
}

#[test]
fn curves_are_drawn_as_the_locale_allows() {
    let place = runs();
    let drawn = |locale: &str| {
        let mut command = place.command("plot runs/net/2 --log");
        let output = command.env_remove("LC_ALL").env("LC_CTYPE", locale).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(drawn("C").is_ascii() && drawn("C").contains("* loss   o val_loss"), "{}", drawn("C"));
    assert!(drawn("C.UTF-8").contains('┤'), "{}", drawn("C.UTF-8"));
    assert!(drawn("C").lines().all(|line| line.len() <= 80));
    let json = place.ok("plot runs/net/2 --json").json();
    let figures: Vec<&str> =
        json["curves"].as_array().unwrap().iter().map(|curve| curve["figure"].as_str().unwrap()).collect();
    assert_eq!(figures, ["loss", "val_loss"], "{json}");
}

/// What `train` itself writes, seen by the commands, while it is at work and after it has failed.
#[test]
fn a_run_is_seen_as_it_is() {
    let place = Place::with(&plain());
    let mut running = place.start("train c.toml --set train.epochs=100000 --quiet");
    assert!(running.until(|| place.path("runs/c/1/best.safetensors").exists()));
    let state = || place.ok("runs --json").json()[0]["state"].as_str().unwrap().to_owned();
    assert_eq!(state(), "running");
    running.signal(libc::SIGKILL);
    running.wait();
    assert_eq!(state(), "stopped");
    let err = place.fails("train c.toml --quiet --out runs/bad --set optimizer.lr=1e30 --set train.epochs=9", 1);
    assert!(err.contains("the loss is"), "{err}");
    let bad = place.ok("runs runs/bad --json").json();
    assert_eq!(bad[0]["state"], "failed", "{bad}");
    assert!(bad[0]["why"].as_str().unwrap().contains("the loss is"), "{bad}");
    let done = place.ok("train c.toml --plot --out runs/good");
    assert!(done.err.contains("val_loss") && done.out.lines().count() == 4, "{done:?}");
    assert_eq!(place.ok("runs runs/good --json").json()[0]["state"], "finished");
}

/// What a run has written down is there for others at once, and stays there when it is killed.
#[cfg(unix)]
#[test]
fn a_run_at_work_is_seen_before_its_first_checkpoint() {
    let place = Place::with(&plain());
    let mut running = place
        .start("train c.toml --quiet --out r --set train.epochs=1000000 --set data.batch_size=2 --unset data.limit");
    let lines = |name: &str| fs::read_to_string(place.path(name)).unwrap_or_default().lines().count();
    assert!(running.until(|| {
        lines("r/metrics.jsonl") >= 3 && lines("r/metrics.csv") >= 3 && !place.path("r/last.safetensors").exists()
    }));
    let plotted = place.ok("plot r --metric loss");
    running.signal(libc::SIGKILL);
    running.wait();
    assert!(plotted.out.contains("loss"), "{plotted:?}");
    assert!(place.metrics("r").len() >= 3);
}

#[test]
fn conditions_take_keys_as_they_are_set_and_say_what_they_cannot_mean() {
    let place = runs();
    assert_eq!(names(&place, "--filter lr==0.1"), "net/2");
    assert_eq!(names(&place, "--filter val_accuracy=75%"), "net/2");
    let said = place.fails("runs --filter lr=abc", 2);
    assert!(said.contains("`lr` is a number, and `abc` is none"), "{said}");
    // What came of a parameter is in the configuration; the parameter itself was given.
    place.write("c.toml", super::support::plain() + "[params]\nwidth = 4\n");
    for width in [3, 5] {
        place.ok(&format!("train c.toml --quiet --out p/{width} --set params.width={width} --set train.epochs=1"));
    }
    assert_eq!(names(&place, "p --filter params.width>4"), "p/5");
    assert_eq!(names(&place, "p --filter params.width=3"), "p/3");
}

#[cfg(unix)]
#[test]
fn a_name_stays_in_its_row_and_a_run_is_named_once() {
    let place = runs();
    fs::rename(place.path("runs/net/10"), place.path("runs/net/a\nb\u{1b}[2J")).unwrap();
    let text = place.ok("runs").out;
    assert!(text.contains("a\\nb\\x1b[2J"), "{text}");
    assert_eq!(place.ok("runs").out.lines().count(), 5, "a head, three runs, and why one failed");
    std::os::unix::fs::symlink(place.path("runs/net/2"), place.path("link")).unwrap();
    for other in ["./runs/net/2", "runs/net/../net/2", "link"] {
        assert!(place.fails(&format!("compare runs/net/2 {other}"), 2).contains("is named twice"));
    }
}

#[test]
fn lines_without_a_place_and_broken_configurations_are_noted() {
    let place = runs();
    place.write(
        "runs/net/2/metrics.jsonl",
        place.read("runs/net/2/metrics.jsonl") + "{\"kind\":\"epoch\",\"epoch\":\"x\"}\n",
    );
    let done = place.ok("runs");
    assert!(done.err.contains("line 5, whose `epoch` or `step` is no number: it is left out"), "{done:?}");
    place.write("c.toml", super::support::plain());
    place.ok("train c.toml --quiet --out whole --set train.epochs=1");
    place.write("whole/config.toml", "epochs = = 3\n");
    let run = &place.ok("runs whole --json").json()[0];
    assert_eq!(run["state"], "finished", "{run}");
    assert!(run["problems"].to_string().contains("config.toml"), "{run}");
}
