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
            "optimizer.momentum=",
            "train.early_stopping",
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
    let cases: [(&[&str], &[&str]); 21] = [
        (&["runner", "data", "fetch", "ci"], &["cifar10", "cifar100"]),
        (&["runner", "train", "c.toml", "--device", "c"], &["cpu", "cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        (&["runner", "train", "c.toml", "--device", "cuda", ":", ""], &["0", "1", "2", "3"]),
        (&["runner", "train", "c.toml", "--device", "cuda", ":"], &["0", "1", "2", "3"]),
        (&["runner", "eval", "c.toml", "--split", "t"], &["test", "train"]),
        (&["runner", "bench", "c.toml", "--without", "p"], &["pool"]),
        (&["runner", "check", "c.toml", "--graph", "f"], &["forward", "fusions", "fold", "fuse"]),
        (&["runner", "train", "c.toml", "--set", "train.ep"], &["train.epochs="]),
        (
            &["runner", "train", "c.toml", "--set", "optimizer.type", "=", "adam"],
            &["adam", "adamw", "adamax", "adamw_schedule_free"],
        ),
        (&["runner", "train", "c.toml", "--set", "data.on_error", "=", ""], &["skip", "fail"]),
        (&["runner", "train", "c.toml", "--set", "data.shuffle", "=", "t"], &["true"]),
        (&["runner", "sweep", "c.toml", "--sweep", "optimizer.lr_d"], &["optimizer.lr_decay="]),
        (&["runner", "train", "c.toml", "--unset", "schedule.ga"], &["schedule.gamma"]),
        (&["runner", "launch", "--ranks", "2", "--", "train", "--res"], &["--resume"]),
        (&["runner", "launch", "--ranks", "2", "train", "c.toml", "--set", "data.source", "=", "mn"], &["mnist"]),
        (&["runner", "launch", "--ranks", "2", "--", ""], &["train"]),
        (&["runner", "launch", "--pro"], &["--processes"]),
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

#[test]
fn fish_completes_keys_and_what_is_launched() {
    let script = Place::new().ok("completions fish").out;
    for (line, expected) in [
        ("runner train c.toml --set data.on_error=", &["data.on_error=fail", "data.on_error=skip"][..]),
        ("runner check c.toml --unset sched", &["schedule", "schedule.by"]),
        ("runner launch --ranks 2 -- tr", &["train"]),
        ("runner launch --ranks 2 -- train c.toml --resu", &["--resume"]),
    ] {
        let output = match Command::new("fish").arg("-c").arg(format!("{script}\ncomplete -C '{line}'")).output() {
            Ok(output) => String::from_utf8(output.stdout).unwrap(),
            Err(e) => return eprintln!("skipped: there is no fish ({e})"),
        };
        let offered: Vec<&str> = output.lines().map(|line| line.split('\t').next().unwrap_or(line)).collect();
        assert!(expected.iter().all(|word| offered.contains(word)), "{line}: {offered:?}");
        assert!(offered.len() < 40, "{line}: {offered:?}");
    }
}
