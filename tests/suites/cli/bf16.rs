//! `precision = "bf16"` on the CPU.

use super::support::{Place, digits};

const LAYERS: &str = r#"
[model]
layers = [
  { type = "conv2d", out_channels = 16, kernel_size = 3, padding = 1 }, "batch_norm2d", "relu",
  { type = "conv2d", out_channels = 32, kernel_size = 3, padding = 1, stride = 2 }, "relu",
  { type = "conv2d", out_channels = 32, kernel_size = 1 }, "relu", { type = "max_pool2d", kernel_size = 2 },
  "flatten", { type = "linear", out_features = 64 }, "relu", { type = "linear", out_features = 10 },
]
"#;

pub fn place() -> Place {
    let sections = "[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[train]\nepochs = 4\n[log]\nevery_steps = 1\n";
    Place::with(&digits("validation_split = 0.2", &format!("{LAYERS}\n{sections}")))
}

/// Trains with `unit`, and gives back what is said.
fn train(place: &Place, out: &str, unit: &str, more: &str) -> String {
    let args = format!("train c.toml --out {out} --set precision=\"bf16\" {more}");
    let (_, done) = place.start_with(&args, &[("RUNNER_BF16", unit.to_owned())]).wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    done.err
}

/// The unit that this machine has beside plain code.
fn unit(place: &Place) -> Option<String> {
    place.ok("devices --json").json()["devices"][0]["bf16"].as_str().map(str::to_owned)
}

#[test]
fn the_bits_depend_neither_on_the_unit_nor_on_threads() {
    let place = place();
    let said = train(&place, "first", "plain", "--threads 1");
    assert!(said.contains("made by plain code, which is slower than `fp32`"), "{said}");
    let tensors = |run: &str| place.checkpoint(&format!("{run}/last.safetensors")).tensors;
    let first = tensors("first");
    let found = unit(&place);
    if found.is_none() {
        eprintln!("neither AMX nor AVX512-BF16 here: plain code is compared with itself alone");
    }
    let units = ["plain"].into_iter().chain(found.as_deref());
    for unit in units {
        let runs = [1, 2, 5].map(|threads| (threads, format!("{unit}{threads}")));
        for (threads, out) in &runs {
            let said = train(&place, out, unit, &format!("--threads {threads}"));
            assert_eq!(said.contains("plain code"), unit == "plain", "{said}");
            assert!(tensors(out) == tensors(&runs[0].1), "{unit}, {threads} threads");
        }
        // This one leaves small convolutions to single precision.
        assert_eq!(tensors(&runs[0].1) == first, unit != "avx512_bf16", "{unit}");
    }
}

#[test]
fn training_comes_as_far_as_in_single_precision() {
    let place = place();
    place.ok("train c.toml --out single");
    train(&place, "bf16", "plain", "");
    let tensors = |run: &str| place.checkpoint(&format!("{run}/last.safetensors")).tensors;
    assert!(tensors("single") != tensors("bf16"), "nothing was computed in bf16");
    let [single, bf16] = ["single", "bf16"].map(|run| {
        let last = place.metrics(run).into_iter().rev().find_map(|line| line["val_loss"].as_f64());
        last.expect("an epoch was evaluated")
    });
    assert!((single - bf16).abs() < 0.1, "{single} {bf16}");
    // It goes on in the other precision, and is evaluated in its own.
    place.ok("train c.toml --out bf16 --resume --set train.epochs=5 --set precision=\"fp32\"");
    place.ok("eval bf16/last.safetensors");
}
