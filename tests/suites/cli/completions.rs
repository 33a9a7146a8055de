//! What shells complete.

use super::support::Place;
use std::process::Command;

#[test]
fn scripts_know_what_can_be_named() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.ok(&format!("completions {shell}")).out;
        // In zsh a colon ends a word of a list unless it is escaped.
        let script = script.replace("\\:", ":").replace("\\\\:", ":");
        for word in [
            "mnist",
            "fashion_mnist",
            "cifar10",
            "cifar100",
            "auto",
            "cpu",
            "cuda",
            "cuda:0",
            "val",
            "test",
            "train",
            "reorder",
            "update_early",
            "forward",
            "precision",
            "data.source=digits",
            "data.source=mnist",
            "train.epochs=",
        ] {
            assert!(script.contains(word), "{word} in {shell}'s script");
        }
    }
}

/// What bash offers after `line`, of which every word is given apart as bash takes it apart.
fn bash(script: &str, words: &[&str]) -> Option<Vec<String>> {
    let quoted = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let (last, before) = (words.len() - 1, words[words.len() - 2]);
    let test = format!(
        "{script}\ncompopt() {{ :; }}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={last}\n_runner_whole_words runner '{}' '{before}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words[last]
    );
    let output = match Command::new("bash").arg("-c").arg(test).output() {
        Ok(output) => output,
        Err(e) => {
            eprintln!("skipped: there is no bash ({e})");
            return None;
        }
    };
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(str::to_string).filter(|line| !line.is_empty()).collect())
}

#[test]
fn bash_completes_words_with_colons_and_equals_signs() {
    let script = Place::new().ok("completions bash").out;
    let cases: [(&[&str], &[&str]); 12] = [
        (&["runner", "data", "fetch", "ci"], &["cifar10", "cifar100"]),
        (&["runner", "train", "c.toml", "--device", "c"], &["cpu", "cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        (&["runner", "train", "c.toml", "--device", "cuda", ":", ""], &["0", "1", "2", "3"]),
        (&["runner", "train", "c.toml", "--device", "cuda", ":"], &["0", "1", "2", "3"]),
        (&["runner", "eval", "c.toml", "--split", "t"], &["test", "train"]),
        (&["runner", "bench", "c.toml", "--without", "p"], &["pool"]),
        (&["runner", "check", "c.toml", "--graph", "f"], &["forward", "fusions", "fold", "fuse"]),
        (&["runner", "train", "c.toml", "--set", "train.e"], &["train.epochs="]),
        (&["runner", "train", "c.toml", "--set", "data.source", "=", "mn"], &["mnist"]),
        (
            &["runner", "train", "c.toml", "--set", "data.source", "=", ""],
            &[
                "mnist",
                "fashion_mnist",
                "cifar10",
                "cifar100",
                "digits",
                "image_folder",
                "image_list",
                "webdataset",
                "tensors",
                "csv",
                "parquet",
                "text",
                "tokens",
                "text_classes",
                "text_tags",
                "text_to_text",
                "text_pairs",
                "synthetic",
            ],
        ),
        (&["runner", "train", "c.toml", "--set", "data.source", "=", "mnist", "--dev"], &["--device"]),
        (&["runner", "ch"], &["check"]),
    ];
    for (words, expected) in cases {
        let Some(offered) = bash(&script, words) else { return };
        assert_eq!(offered, expected, "{words:?}");
    }
}
