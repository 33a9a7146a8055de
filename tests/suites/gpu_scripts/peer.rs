//! PyTorch's side. Where a Python with PyTorch is found it is timed on the CPU; `RUNNER_TEST_PYTORCH` names another.

use super::{python, ready, root, text};
use serde_json::Value;
use std::process::{Command, Output};

/// The lines that are figures.
fn figures(done: &Output) -> Vec<Value> {
    text(&done.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

/// A Python with PyTorch; says why there is none.
fn pytorch() -> Option<String> {
    let named = std::env::var("RUNNER_TEST_PYTORCH").ok();
    let python = named.clone().unwrap_or_else(|| "python3".into());
    let found = Command::new(&python).args(["-c", "import torch"]).output().is_ok_and(|o| o.status.success());
    assert!(found || named.is_none(), "RUNNER_TEST_PYTORCH: `{python}` has no PyTorch");
    if !found {
        eprintln!("skipped: python3 has no PyTorch (RUNNER_TEST_PYTORCH names a Python that has)");
    }
    found.then_some(python)
}

/// A tiny case on the CPU.
fn tiny(python: &str, modes: &[&str]) -> Output {
    let mut command = Command::new(python);
    command.arg("-B").arg(root().join("scripts/gpu_peer.py"));
    command.args([
        "--device",
        "cpu",
        "--batch",
        "2",
        "--steps",
        "1",
        "--cases",
        "mlp",
        "mnist_cnn",
        "--precisions",
        "fp32",
        "bf16",
    ]);
    // Threads that wait for each other take all time where other tests run beside.
    command.env("OMP_NUM_THREADS", "1").arg("--modes").args(modes).output().unwrap()
}

#[test]
fn a_tiny_case_fills_the_table() {
    let Some(python) = pytorch() else { return };
    let done = tiny(&python, &["eager", "channels_last"]);
    let found = figures(&done);
    assert!(done.status.success() && found.len() == 8, "{found:?}{}", text(&done.stderr));
    for figure in &found {
        assert!(figure["step_ms"].as_f64().unwrap() > 0.0 && figure["batch"] == 2, "{figure}");
        assert!(figure["loss"].as_f64().is_some(), "{figure}");
    }
}

/// A CUDA graph cannot be had on a CPU: that way fails, as another might on a GPU.
#[test]
fn a_way_that_fails_is_reported_and_leaves_the_others() {
    let Some(python) = pytorch() else { return };
    let done = tiny(&python, &["graph", "eager"]);
    let found = figures(&done);
    assert_eq!(done.status.code(), Some(1));
    let (failed, measured): (Vec<_>, Vec<_>) = found.iter().partition(|f| f["mode"] == "graph");
    assert!(
        failed.len() == 4 && failed.iter().all(|f| f["error"].as_str().unwrap().contains("--device cuda")),
        "{found:?}"
    );
    assert!(measured.len() == 4 && measured.iter().all(|f| f["step_ms"].is_number()), "{found:?}");
    let said = text(&done.stderr);
    assert!(said.contains("mlp, graph, bf16: RuntimeError") && said.contains("4 of 8 could not be measured"), "{said}");
}

/// What an option means is said in one place: every net of the list can be built with what the scripts say of it, and no more.
#[test]
fn every_model_is_built_as_the_list_has_it() {
    let Some(python) = pytorch() else { return };
    let code = "import torch, gpu_models, bench_pytorch, bench_text\n\
                torch.set_default_device('meta')\n\
                for name, model in gpu_models.TEXTS.items():\n\
                \x20   answers = bench_text.Gpt(model)(torch.zeros(2, model.context, dtype=torch.int64))\n\
                \x20   print(name, True, tuple(answers.shape) == (2, model.context, model.vocabulary))\n\
                images = {name: model for name, model in gpu_models.MODELS.items() if name not in gpu_models.TEXTS}\n\
                for name, model in images.items():\n\
                \x20   net, shape, *_ = bench_pytorch.build(model.net, classes=model.classes, side=model.side)\n\
                \x20   answers = net(torch.empty(2, *shape))\n\
                \x20   square = (model.channels, model.side, model.side)\n\
                \x20   print(name, shape == square, tuple(answers.shape) == (2, model.classes))";
    let mut command = Command::new(python);
    let done = command.args(["-B", "-c", code]).env("PYTHONPATH", root().join("scripts")).output().unwrap();
    let said = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(said.lines().count() > 12 && said.lines().all(|line| line.ends_with("True True")), "{said}");
}

/// The output and the exit code, whatever it is that measures. Nothing of PyTorch is needed for that, so a module
/// that has only names stands for it, and a function for the measuring; time passes as that function says.
fn measured_by(measure: &str, args: &str) -> Output {
    let code = format!(
        "import sys\nfrom types import SimpleNamespace\nfrom unittest.mock import MagicMock\n\
         sys.modules['torch'] = MagicMock()\nimport gpu_peer\nclock = [100.0]\n\
         gpu_peer.time = SimpleNamespace(monotonic=lambda: clock[0])\n\
         def measure(args, name, mode, precision):\n{measure}\n\
         gpu_peer.measure = measure\nsys.argv[1:] = '{args}'.split()\nsys.exit(gpu_peer.main())"
    );
    python(&code, &[])
}

#[test]
fn an_error_is_a_line_and_an_empty_table_a_failure() {
    if !ready() {
        return;
    }
    let args = "--cases mlp resnet18_32 --precisions fp32 --modes eager graph max-autotune";
    let done = measured_by("  if mode == 'graph': raise ValueError(name)\n  return {'step_ms': 1.0}", args);
    let found = figures(&done);
    let lines: Vec<_> =
        found.iter().map(|f| (f["mode"].as_str().unwrap(), f["error"].as_str(), f["step_ms"].as_f64())).collect();
    assert_eq!(
        lines,
        [
            ("eager", None, Some(1.0)),
            ("eager", None, Some(1.0)),
            ("graph", Some("ValueError: mlp"), None),
            ("graph", Some("ValueError: resnet18_32"), None),
            ("max-autotune", None, Some(1.0)),
            ("max-autotune", None, Some(1.0)),
        ]
    );
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("graph, fp32: ValueError: mlp"), "{}", text(&done.stderr));
    assert_eq!(measured_by("  return {'step_ms': 1.0}", args).status.code(), Some(0));

    // Without time nothing is begun, and a message says so.
    let done = measured_by("  return {'step_ms': 1.0}", &format!("{args} --seconds -1"));
    assert!(figures(&done).iter().all(|f| f["left_out"] == "the time is over") && figures(&done).len() == 6);
    assert!(done.status.code() == Some(1) && text(&done.stderr).contains("nothing was measured"));

    // What would take longer than is left is not begun; another way may be quicker.
    let slow = "  clock[0] += 30 if mode == 'eager' else 1\n  return {'step_ms': 1.0}";
    let done = measured_by(slow, &format!("{args} --seconds 50"));
    let left: Vec<bool> = figures(&done).iter().map(|f| f["left_out"].is_string()).collect();
    assert_eq!(left, [false, true, false, false, false, false], "{done:?}");
    assert_eq!(done.status.code(), Some(0));
}
