//! The configurations that come with the program.

use super::support::{Place, repository};
use serde_json::Value;
use std::fs;
#[cfg(target_os = "linux")]
use std::io::Write;
#[cfg(target_os = "linux")]
use std::process::Stdio;

#[test]
fn every_configuration_is_right() {
    let place = Place::new();
    let mut n = 0;
    for entry in fs::read_dir(repository("configs")).unwrap() {
        let path = entry.unwrap().path();
        // What a text has of tokens only the text says: a test of text trains it.
        if path.file_stem().is_some_and(|name| name.to_string_lossy().starts_with("shakespeare_")) {
            continue;
        }
        // That of a large GPU: a sample of it has room here.
        let large = if path.ends_with("gpt2_124m.toml") { "--set data.batch_size=1" } else { "" };
        // From anywhere: architectures are found from the configuration's place.
        let json: Value = place.ok(&format!("check {} --json {large}", path.display())).json();
        assert!(json["parameters"].as_u64().unwrap() > 0, "{}", path.display());
        assert_eq!(json["warnings"].as_array().map(Vec::len), Some(0), "{}", path.display());
        n += 1;
    }
    assert!(n >= 6, "{n}");
}

/// A pipe gives its text once, and a command reads its configuration several times: once more where the model names the number of classes.
#[cfg(target_os = "linux")]
#[test]
fn a_configuration_comes_through_a_pipe() {
    let place = Place::new();
    let text = super::support::plain().replace("out_features = 10", "out_features = \"$classes\"");
    assert!(text.contains("$classes"), "{text}");
    for command in ["check /dev/stdin", "train /dev/stdin --quiet --out r", "train /dev/stdin --dry-run"] {
        let [out, err] = [(); 2].map(|()| Stdio::piped());
        let mut child = place.command(command).stdin(Stdio::piped()).stdout(out).stderr(err).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    }
    place.ok("verify r");
}

#[test]
fn a_model_is_looked_for_in_the_two_folders_above() {
    let place = Place::new();
    let model = fs::read_to_string(repository("models/resnet18.toml")).unwrap();
    let config = fs::read_to_string(repository("configs/cifar10_resnet18.toml")).unwrap();
    let config = config
        .replace("models/resnet18.toml", "models/own.toml")
        .replace("models/resnet18_cifar.toml", "models/own.toml");
    assert!(config.contains("models/own.toml"));
    for name in ["top/c.toml", "top/a/c.toml", "top/a/b/c.toml", "top/a/b/c/c.toml"] {
        place.write(name, &config);
    }
    place.write("top/models/own.toml", model);
    for (name, found) in
        [("top/c.toml", true), ("top/a/c.toml", true), ("top/a/b/c.toml", true), ("top/a/b/c/c.toml", false)]
    {
        let done = place.run(&format!("check {name}"));
        assert_eq!(done.code, Some(if found { 0 } else { 2 }), "{name}: {done:?}");
        assert_eq!(found, !done.err.contains("looked for"), "{name}: {done:?}");
    }
    // The file's own name without a folder.
    let output = place.command("check c.toml").current_dir(place.path("top/a")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn linear_regression_learns() {
    let place = Place::new();
    let config = repository("configs/linear_regression.toml");
    place.ok(&format!("train {} --out r --quiet", config.display()));
    let lines = place.metrics("r");
    let loss = |i: usize| lines.iter().filter(|l| l["kind"] == "epoch").nth(i).unwrap()["val_loss"].as_f64().unwrap();
    assert!(loss(99) < 0.02 * loss(0), "{} to {}", loss(0), loss(99));
    assert!(lines.last().unwrap()["val_mae"].is_f64() && lines.last().unwrap()["val_rmse"].is_f64());
}

#[test]
fn the_digits_are_learnt() {
    for (config, epochs, aim) in [("digits_cnn", 3, 0.8), ("digits_transformer", 4, 0.8)] {
        let place = Place::new();
        let config = repository(&format!("configs/{config}.toml"));
        place.ok(&format!("train {} --out r --quiet --set train.epochs={epochs}", config.display()));
        let accuracy = place.metrics("r").last().unwrap()["val_accuracy"].as_f64().unwrap();
        assert!(accuracy > aim, "{}: {accuracy}", config.display());
    }
}

/// Models are a part of the program: a name is enough, in any folder. A file of that name comes first.
#[test]
fn models_have_names_in_any_folder() {
    let place = Place::new();
    let config = |name: &str| {
        format!(
            "[data]\nsource = \"digits\"\n[model]\nuse = \"{name}\"\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n\
             [train]\nepochs = 1\n"
        )
    };
    let text = config("tabular_mlp")
        .replace("use = ", "with = { width = 8 }\nuse = ")
        .replace("source = \"digits\"", "source = \"synthetic\"\nshape = [4]\nclasses = 3");
    place.write("c.toml", &text);
    place.ok("check c.toml");
    place.write("c.toml", text.replace("\"tabular_mlp\"", "\"models/tabular_mlp.toml\""));
    place.ok("check c.toml");
    fs::create_dir(place.path("models")).unwrap();
    place.write("models/tabular_mlp.toml", "[params]\nnum_classes = 2\nwidth = 1\n[model]\nlayers = [{ type = \"linear\", out_features = \"$num_classes\", bias = false }]\n");
    let own = place.run("check c.toml");
    assert!(own.err.contains("`width` is not used") || own.out.contains("12 parameters"), "{own:?}");
    place.write("d.toml", config("resnt18"));
    let message = place.fails("check d.toml", 2);
    assert!(message.contains("the program has a model `resnet18`"), "{message}");
    let listed = place.ok("models").out;
    assert!(listed.lines().any(|line| line.starts_with("resnet18 ")) && listed.contains("gpt2"), "{listed}");
    assert!(place.ok("models --show gpt").out.contains("[blocks.decoder_layer]"));
    assert!(place.fails("models --show gpt9", 2).contains("did you mean `gpt"));
    let json = place.ok("models --json").json();
    assert!(json["models"].as_array().unwrap().len() > 30);
}
