//! Stages with planted families.

use super::{Place, ready, root, text};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time to wait for something; only reached where something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process is there and does anything; one that has ended and is not yet waited for does not.
fn lives(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
}

/// The planted process that hangs, and what it has started, are gone.
fn nothing_hangs_on(place: &Place) {
    for process in place.read("hangs").split_whitespace() {
        wait_for("a process that hung was left behind", || !lives(process));
    }
}

#[test]
fn what_is_planted_in_one_family_takes_no_result_of_another() {
    if !ready() {
        return;
    }
    let place = Place::new();
    let done = place.stage("correctness").env("FAMILY_SECONDS", "5").env("JOBS", "3").output().unwrap();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(1), "{out}{err}");
    let results = place.results("correctness");
    for (part, name, verdict, note) in [
        ("devices", "listed", "ok", ""),
        ("ops", "agrees::good", "ok", ""),
        ("ops", "agrees::wrong", "failed (status 101)", "element 3 is 1, not 2"),
        ("ops", "agrees::faults", "failed (status 101)", "CUDA_ERROR_ILLEGAL_ADDRESS (700) (in case second)"),
        ("ops", "agrees::hangs", "out of time", "case endless"),
        ("ops", "agrees::crashes", "ended by SIGSEGV", "case first"),
        ("ops", "agrees::later", "ok", ""),
        ("ops", "agrees::part", "ok", "in part skipped: only the emulated driver"),
        ("ops", "agrees::faults +1", "ok", ""),
        ("ops", "agrees::hangs +1", "ok", ""),
        ("ops", "agrees::crashes +1", "ended by SIGSEGV", "case behind first"),
        ("ops", "agrees::crashes +5", "ended by SIGSEGV", "case behind behind behind behind behind first"),
        ("golden", "losses", "ok", ""),
        ("golden", "garbage", "ok", ""),
        ("cuda", "engine::bits", "ok", ""),
        ("cuda", "engine::emulated", "skipped", "only the emulated driver"),
        ("cuda", "engine::babbles", "out of time", "xxx"),
        ("program", "bench::good", "ok", ""),
        ("program", "missing", "failed", "no such test was run"),
        ("sanitizer", "all", "skipped", "compute-sanitizer"),
    ] {
        let (found, said) = results.of(part, name);
        assert!(found.starts_with(verdict) && said.contains(note), "{part} {name}: {found}: {said}");
        assert!(out.contains(&format!("{part} {name}: {found} (")), "{part} {name} was not printed: {out}");
    }
    let counts = |name: &str| {
        let found = results.0.iter().find(|r| r["part"] == "ops" && r["name"] == name).unwrap();
        ["ran", "wrong", "left_out"].map(|count| found[count].as_u64().unwrap())
    };
    assert_eq!(counts("agrees::part"), [2, 0, 7]);
    assert_eq!(counts("agrees::wrong"), [2, 1, 0]);
    assert_eq!(counts("agrees::crashes"), [0, 0, 0], "the case that ended it was not run to its end");
    let verdicts =
        ["devices", "ops", "golden", "cuda", "program", "sanitizer"].map(|part| results.ended(part).unwrap());
    assert_eq!(verdicts, ["ok", "**failed**", "ok", "**failed**", "**failed**", "skipped"]);
    // Everything that was said is in the log of its part, which ends with the part's verdict.
    let log = place.read("out/correctness/ops.log");
    assert!(log.contains("agrees::faults +1 | test cuda::agrees::faults ... case behind second\n"), "{log}");
    assert!(["wrong +1", "good +1", "crashes +6"].iter().all(|name| !log.contains(name)), "{log}");
    assert!(log.contains("agrees::hangs | test cuda::agrees::hangs ... case endless\n"), "{log}");
    assert!(log.lines().last().unwrap().starts_with("===== ops: **failed**: 6 ok, 0 skipped, 9 not well"), "{log}");
    let summary = place.read("out/correctness/summary.md");
    assert!(out.ends_with(&summary), "{out}\n{summary}");
    assert!(
        summary.contains("cuda:0: a GPU; driver 580.1, CUDA 13.0; cuDNN 9.1") && summary.contains("0123abc"),
        "{summary}"
    );
    assert!(
        summary.contains("- **ops agrees::wrong**: failed (status 101): FAILED first: element 3 is 1"),
        "{summary}"
    );
    assert!(fs::read_dir(place.path("out/correctness")).unwrap().count() <= 8, "more files than may come back");
    let babble = fs::metadata(place.path("out/correctness/cuda.log")).unwrap().len();
    assert!((1 << 20..16 << 20).contains(&babble), "a log of {babble} bytes");
    let log = fs::read(place.path("out/correctness/cuda.log")).unwrap();
    let end = text(&log[log.len() - 2000..]);
    assert!(end.contains("cuda engine::babbles: out of time") && end.contains("===== cuda: **failed**"), "{end}");
    nothing_hangs_on(&place);
}

/// Starts a stage whose second part hangs, and waits until it does.
fn hanging(place: &Place) -> std::process::Child {
    let mut command = place.stage("correctness devices ops/good ops/hangs golden");
    let child = command.env("JOBS", "1").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("nothing hangs", || fs::read_to_string(place.path("hangs")).is_ok_and(|text| text.ends_with('\n')));
    // What was said is written down at once.
    let log = place.path("out/correctness/ops.log");
    wait_for("the log has nothing yet", || fs::read_to_string(&log).is_ok_and(|text| text.contains("case endless\n")));
    child
}

fn signal(child: &std::process::Child, number: i32) {
    // SAFETY: `kill` takes plain numbers; the process is our child and not waited for yet, so the number is its own.
    unsafe { libc::kill(child.id() as libc::pid_t, number) };
}

#[test]
fn a_stage_that_is_ended_reports_what_it_has() {
    if !ready() {
        return;
    }
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let place = Place::new();
        let mut child = hanging(&place);
        signal(&child, number);
        assert_eq!(child.wait().unwrap().code(), Some(1));
        let summary = place.read("out/correctness/summary.md");
        assert!(summary.contains("**Ended early**: it got SIG"), "{summary}");
        assert!(summary.contains("| devices | ok |") && summary.contains("| golden | **not started** |"), "{summary}");
        assert!(summary.contains("| ops | **cut off** | 1 ok |"), "{summary}");
        nothing_hangs_on(&place);
    }
}

#[test]
fn a_stage_that_is_killed_leaves_a_summary_that_can_be_made_anew() {
    if !ready() {
        return;
    }
    let place = Place::new();
    let mut child = hanging(&place);
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    let rows = ["| devices | ok | 3 ok |", "| ops | **cut off** | 1 ok |", "| golden | **not started** |"];
    let before = place.read("out/correctness/summary.md");
    // A line that was being written.
    let results = place.path("out/correctness/results.jsonl");
    let cut = fs::read_to_string(&results).unwrap() + "{\"part\": \"ops\", \"na";
    fs::write(&results, cut).unwrap();
    fs::remove_file(place.path("out/correctness/summary.md")).unwrap();
    let mut again = Command::new("python3");
    again.arg("-B").arg(root().join("scripts/gpu_figures.py")).arg("summary").arg(place.path("out/correctness"));
    let again = again.output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    for summary in [before, place.read("out/correctness/summary.md"), text(&again.stdout)] {
        assert!(rows.iter().all(|row| summary.contains(row)), "{summary}");
    }
    for process in place.read("hangs").split_whitespace() {
        // No process was left to end it.
        signal_number(process);
    }
    let missing = Command::new("python3")
        .arg("-B")
        .arg(root().join("scripts/gpu_figures.py"))
        .args(["summary", "/nowhere"])
        .output();
    let missing = missing.unwrap();
    assert!(missing.status.code() == Some(1) && text(&missing.stderr).contains("results.jsonl"), "{missing:?}");
}

fn signal_number(process: &str) {
    let number: libc::pid_t = process.parse().unwrap();
    // SAFETY: `kill` takes plain numbers; the process was started by this test and sleeps for minutes.
    unsafe { libc::kill(number, libc::SIGKILL) };
}

#[test]
fn parts_that_no_time_is_left_for_are_reported() {
    if !ready() {
        return;
    }
    let place = Place::new();
    let done = place.stage("correctness devices golden cuda").env("SCALE", "0.0001").output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stdout));
    let results = place.results("correctness");
    assert_eq!(results.of("devices", "listed").0, "not started: no time was left");
    for part in ["devices", "golden", "cuda"] {
        assert_eq!(results.ended(part), Some("**failed**"), "{part}");
    }
}

#[test]
fn steps_are_timed_and_the_share_of_computing_is_shown() {
    if !ready() {
        return;
    }
    let place = Place::new();
    let mut command = place.stage("speed bench/mlp bench/mnist_cnn.bf16");
    let done = command.env("PRECISIONS", "fp32 bf16").output().unwrap();
    let out = text(&done.stdout);
    assert!(done.status.success(), "{out}{}", text(&done.stderr));
    assert!(out.contains("| mlp | fp32 |  | 2.000 ms | 0.500 ms | 1.500 ms | 0.500 ms | 75 % | 1 MiB |"), "{out}");
    assert!(out.contains("| mlp | fp32 | no graph | 2.000 ms |"), "{out}");
    assert!(out.contains("| mnist_cnn | bf16 | 2.000 ms | 2.000 ms |\n"), "own kernels beside all: {out}");
    assert!(!out.contains("tf32") && !out.contains("resnet") && out.contains("PyTorch was not measured"), "{out}");
}

/// The training stage, with a run that comes to something else if `fault` is among its options.
fn trained(place: &Place, fault: &str) -> (Option<i32>, super::Results, String) {
    let done = place.stage("training").env("PLANTED_FAULT", fault).output().unwrap();
    (done.status.code(), place.results("training"), text(&done.stdout))
}

#[test]
fn a_training_that_comes_to_something_else_is_found() {
    if !ready() {
        return;
    }
    let place = Place::new();
    let (code, results, out) = trained(&place, "nowhere");
    let ended = ["configs", "bits", "precision", "learning"].map(|part| results.ended(part));
    assert!(code == Some(0) && ended == [Some("ok"); 4], "{out}");
    let rows = ["| bf16 | 3 | 2.00000 | 2.00000 | 0.50000 |", "| fp32 | digits | 1 | 0.9910 | 64000 |", " 100 % |"];
    assert!(rows.iter().all(|row| out.contains(row)), "{out}");

    for (fault, part, names, note) in [
        ("--device cuda", "configs", &["mnist_cnn", "resnet18_made_up"][..], "the losses differ"),
        (
            "graph=true",
            "bits",
            &["digits_cnn.fp32.graph", "digits_cnn.fp16.graph", "resnet18.bf16.graph"],
            "other bits: w",
        ),
        ("--resume", "bits", &["digits_cnn.resumed"], "other bits: w"),
        ("resnet18.repeated.2 ", "bits", &["resnet18.repeated"], "other bits: w"),
        ("precision=\"fp16\"", "precision", &["fp16"], "does not learn as fp32 does"),
        ("precision=\"bf16\"", "learning", &["bf16"], "the best accuracy is 0.94, the aim 0.95"),
    ] {
        let (code, results, out) = trained(&place, fault);
        assert!(code == Some(1) && results.ended(part) == Some("**failed**"), "{fault}: {out}");
        for name in names {
            let (verdict, said) = results.of(part, name);
            assert!(verdict == "failed" && said.contains(note), "{fault}: {name}: {verdict}: {said}");
        }
        let well = |r: &&serde_json::Value| r["part"] == part && r["verdict"] == "ok";
        assert_eq!(results.0.iter().any(|r| well(&r)), fault != "--device cuda", "{fault}: {out}");
    }
}

#[test]
fn wrong_arguments_are_errors() {
    if !ready() {
        return;
    }
    let place = Place::new();
    for (args, part) in [
        ("", "usage: "),
        ("correct", "usage: "),
        ("speed ops", "no part of `speed` is called `ops`: bench, profile, peer"),
    ] {
        let done = place.stage(args).output().unwrap();
        assert!(done.status.code() == Some(2) && text(&done.stderr).contains(part), "{args}: {done:?}");
    }
    let mut nowhere = Command::new("bash");
    nowhere.arg(root().join("scripts/gpu_check.sh")).args(["/nowhere.tar.gz", "speed"]);
    let nowhere = nowhere.output().unwrap();
    assert!(nowhere.status.code() == Some(2) && text(&nowhere.stderr).contains("gpu_pack.sh makes it"), "{nowhere:?}");
}

/// The stages of `plan`, each with its parts and their seconds.
fn plan() -> Vec<(String, Vec<(String, u64)>)> {
    let done = Command::new("bash").arg(root().join("scripts/gpu_check.sh")).arg("plan").output().unwrap();
    let mut stages: Vec<(String, Vec<(String, u64)>)> = Vec::new();
    for line in text(&done.stdout).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let seconds = words[2].parse().unwrap();
        match (stages.last_mut(), words[1]) {
            (Some((_, parts)), "together") => assert_eq!(parts.iter().map(|(_, s)| s).sum::<u64>(), seconds, "{line}"),
            (Some((stage, parts)), part) if *stage == words[0] => parts.push((part.into(), seconds)),
            (_, part) => stages.push((words[0].into(), vec![(part.into(), seconds)])),
        }
    }
    stages
}

/// Under eight minutes each, with a minute for unpacking and slow starts; the quick one five. The manual has the same figures.
#[test]
fn stages_keep_to_their_time() {
    if !ready() {
        return;
    }
    let stages = plan();
    let names: Vec<&str> = stages.iter().map(|(stage, _)| stage.as_str()).collect();
    assert_eq!(names, ["correctness", "training", "speed", "quick"]);
    let manual = fs::read_to_string(root().join("docs/gpu.md")).unwrap();
    for (stage, parts) in &stages {
        let most = if stage == "quick" { 5 * 60 } else { 8 * 60 - 60 };
        assert!(parts.iter().map(|(_, seconds)| seconds).sum::<u64>() <= most, "{stage}");
        assert!(manual.contains(&format!("scripts/gpu_check.sh target/gpu/bundle.tar.xz {stage}")), "{stage}");
        for (part, seconds) in parts {
            let row = manual.lines().find(|line| line.starts_with(&format!("| `{part}` |")));
            assert!(row.is_some_and(|row| row.contains(&format!("| {seconds} s |"))), "{part}, {seconds} s: {row:?}");
        }
    }
    assert_eq!(stages[2].1.last().unwrap().0, "peer", "PyTorch comes last");
}

/// Every variable that the scripts read is in the manual, and every one of the manual's is read.
#[test]
fn the_manual_has_every_variable() {
    let manual = fs::read_to_string(root().join("docs/gpu.md")).unwrap();
    let scripts = ["gpu_check.py", "gpu_stage.py", "gpu_parts.py", "gpu_quick.py"];
    let read = |name: &&str| fs::read_to_string(Path::new(root()).join("scripts").join(name)).unwrap();
    let code: String = scripts.iter().map(read).collect();
    let after = |word: &'static str| code.split(word).skip(1).map(|rest| rest.split('"').next().unwrap());
    let variables: Vec<&str> = after("environ.get(\"").chain(after("wanted(\"")).collect();
    assert!(variables.len() > 8, "{variables:?}");
    for name in variables {
        assert!(manual.contains(&format!("`{name}")), "docs/gpu.md has nothing of `{name}`");
    }
}
