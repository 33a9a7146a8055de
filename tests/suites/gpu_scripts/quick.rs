//! The stage `quick`: a little of everything, whatever is planted in it.

use super::{Place, python, ready, root, text};
use std::fs;

/// The stage with a stand-in for PyTorch.
fn quick(place: &Place, args: &str) -> std::process::Command {
    let mut command = place.stage(&format!("quick {args}"));
    command
        .env("PYTHONPATH", root().join("tests/suites/gpu_scripts/pytorch"))
        .env("FAMILY_SECONDS", "5")
        .env("JOBS", "3");
    command
}

#[test]
fn a_part_that_fails_takes_no_figure_of_another() {
    if !ready() {
        return;
    }
    let place = Place::new();
    let done = quick(&place, "").output().unwrap();
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(1), "{out}{}", text(&done.stderr));
    let results = place.results("quick");
    for (part, name, verdict, note) in [
        ("checked", "devices", "ok", ""),
        ("checked", "agrees::good", "ok", ""),
        ("checked", "agrees::wrong", "failed (status 101)", "element 3 is 1, not 2"),
        ("checked", "agrees::hangs", "out of time", "case endless"),
        ("checked", "cuda_through_cust", "ok", ""),
        ("checked", "pytorch", "ok", ""),
        ("ours", "mlp.bf16", "ok", ""),
        ("theirs", "torch", "ok", " measured"),
        ("profiles", "resnet50.bf16", "ok", ""),
        ("aim", "fp32", "ok", ""),
        ("compiled", "compile", "ok", "4 measured"),
        ("threads", "torch", "ok", " measured"),
    ] {
        let (found, said) = results.of(part, name);
        assert!(found.starts_with(verdict) && said.contains(note), "{part} {name}: {found}: {said}");
    }
    let parts = ["checked", "ours", "theirs", "profiles", "aim", "compiled", "threads"];
    let ended = parts.map(|part| results.ended(part).unwrap());
    assert_eq!(ended, ["**failed**", "ok", "ok", "ok", "ok", "ok", "ok"]);
    // Twice as fast as the best of theirs, and three times as fast as eager.
    let rows = ["| resnet50 | bf16 | 2.000 ms | 6.000 ms | 6.000 ms | 4.000 ms | 6.000 ms | 3.00 | 2.00 (graph) |"];
    let threads = ["| mnist_cnn | 1 | 2.000 ms | 6.000 ms (channels_last) | 3.00 |"];
    assert!(rows.iter().chain(&threads).all(|row| out.contains(row)), "{out}");

    // Few files, and an archive of them.
    let files: Vec<_> = fs::read_dir(place.path("out/quick")).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(files.len() <= 8, "{files:?}");
    let code = "import sys, tarfile; print(*sorted(tarfile.open(sys.argv[1]).getnames()))";
    let names = text(&python(code, &[&place.path("out/quick/quick.tar.gz")]).stdout);
    let wanted = ["checked.log", "profiles.log", "results.jsonl", "steps.log", "summary.md"];
    assert_eq!(names.split_whitespace().collect::<Vec<_>>(), wanted.map(|name| format!("quick/{name}")));
}

#[test]
fn a_way_of_pytorch_that_crashes_or_hangs_costs_itself_alone() {
    if !ready() {
        return;
    }
    let place = Place::new();
    let (crash, hang) = ("graph/bf16/swin_t", "channels_last/bf16/resnet50");
    let mut command = quick(&place, "ours/resnet50 ours/swin_t theirs");
    let done = command.env("PLANTED_CRASH", crash).env("PLANTED_HANG", hang).output().unwrap();
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(1), "{out}{}", text(&done.stderr));
    for row in [
        "| resnet50 | bf16 | 2.000 ms | 6.000 ms |  | 4.000 ms | 3.00 | 2.00 (graph) |",
        "| swin_t | bf16 | 2.000 ms | 6.000 ms | 6.000 ms |  | 3.00 | 3.00 (channels_last) |",
        "- PyTorch graph, swin_t in bf16: ended by SIGSEGV",
        "- PyTorch channels_last, resnet50 in bf16: out of time",
    ] {
        assert!(out.contains(row), "{row}\n{out}");
    }
    let begun = place.read("begun");
    for way in begun.lines() {
        assert_eq!(begun.lines().filter(|line| *line == way).count(), 1, "{way} was begun twice");
    }
}

#[test]
fn a_process_that_says_nothing_for_too_long_is_ended() {
    if !ready() {
        return;
    }
    let code = "import time, gpu_process as p\n\
                said = []\n\
                task = p.Task('still', ['sh', '-c', 'echo one; sleep 600'], 500, silence=1)\n\
                done = p.run(task, time.monotonic() + 500, lambda name, line: said.append(line), {})\n\
                print(done.timed_out, done.seconds < 300, said)";
    assert_eq!(text(&python(code, &[]).stdout), "True True ['one']\n");
}

/// What is timed on a GPU can be read here, too, with as many classes, images and tokens as PyTorch gets.
#[test]
fn every_model_of_the_list_is_a_configuration() {
    if !ready() {
        return;
    }
    let place = Place::new();
    let code = "import sys, pathlib, gpu_models as m\n\
                for name, model in m.MODELS.items():\n\
                \x20   if name in m.TEXTS or model.file.startswith('models/'):\n\
                \x20       path = pathlib.Path(sys.argv[1], name + '.toml')\n\
                \x20       path.write_text(m.configuration(model, 2, path.with_suffix('.bin')))\n\
                \x20       print(path, model.vocabulary if name in m.TEXTS else model.classes)";
    let made = text(&python(code, &[&place.path("")]).stdout);
    assert!(made.lines().count() > 9, "{made}");
    for (path, classes) in made.lines().map(|line| line.split_once(' ').unwrap()) {
        let done = std::process::Command::new(env!("CARGO_BIN_EXE_runner")).args(["check", path]).output().unwrap();
        let said = text(&done.stdout);
        assert!(done.status.success() && said.contains(classes), "{path}: {said}{}", text(&done.stderr));
    }
}
