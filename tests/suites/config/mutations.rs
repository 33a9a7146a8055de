//! Configurations with random damage: reading them never panics, and every error has a place.

use std::path::Path;

use proptest::prelude::*;
use runner::config::text::diagnostics;
use runner::config::{self, Severity};
use runner::train::setup::programs;

use super::effective::KITCHEN_SINK;

/// What a configuration has besides its model.
const REST: &str = "\n[data]\nsource = \"cifar10\"\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n";

fn originals() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> =
        std::fs::read_dir(root.join("configs")).expect("there").map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    let read = |path: &Path| std::fs::read_to_string(path).expect("text");
    let mut all: Vec<String> = paths.iter().map(|path| read(path)).collect();
    all.push(read(&root.join("models/resnet18.toml")) + REST);
    all.push(KITCHEN_SINK.to_owned());
    all
}

/// One way to damage a text; numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Damage {
    /// Characters go.
    Delete(usize, usize),
    /// Characters come twice.
    Duplicate(usize, usize),
    /// A character becomes another.
    Change(usize, char),
    /// A line goes.
    DeleteLine(usize),
    /// A line comes twice.
    DuplicateLine(usize),
    /// Two lines change places.
    SwapLines(usize, usize),
    /// A word, number or sign is replaced.
    Replace(usize, &'static str),
    /// Two words, numbers or signs change places.
    SwapTokens(usize, usize),
    /// A word loses its last letter.
    Shorten(usize),
}

const VALUES: [&str; 28] = [
    "0",
    "-1",
    "1",
    "3.5",
    "nan",
    "-inf",
    "1e308",
    "99999999999999999999",
    "9223372036854775807",
    "true",
    "\"\"",
    "\"x\"",
    "\"$x\"",
    "\"$planes * ($stride + 1)\"",
    "[]",
    "[[]]",
    "{}",
    "[1, 2]",
    "[-1, 3]",
    "2020-01-01",
    "\"relu\"",
    "\"residual\"",
    "{ layers = [] }",
    "{ block = \"basic\", repeat = 3 }",
    "\"{i}\"",
    "\"\\u0000é🙂\"",
    "type",
    "\"\"\"\na\nb\"\"\"",
];

fn damage() -> impl Strategy<Value = Damage> {
    let at = 0..100_000usize;
    prop_oneof![
        1 => (at.clone(), 1..12usize).prop_map(|(a, n)| Damage::Delete(a, n)),
        1 => (at.clone(), 1..40usize).prop_map(|(a, n)| Damage::Duplicate(a, n)),
        1 => (at.clone(), any::<char>()).prop_map(|(a, c)| Damage::Change(a, c)),
        1 => (at.clone(), prop::sample::select("\"'[]{}=.,#\n$-0é".chars().collect::<Vec<_>>()))
            .prop_map(|(a, c)| Damage::Change(a, c)),
        1 => at.clone().prop_map(Damage::DeleteLine),
        1 => at.clone().prop_map(Damage::DuplicateLine),
        1 => (at.clone(), at.clone()).prop_map(|(a, b)| Damage::SwapLines(a, b)),
        4 => (at.clone(), prop::sample::select(VALUES.to_vec())).prop_map(|(a, v)| Damage::Replace(a, v)),
        4 => (at.clone(), at.clone()).prop_map(|(a, b)| Damage::SwapTokens(a, b)),
        1 => at.prop_map(Damage::Shorten),
    ]
}

/// Words with their quotes, numbers, and single signs; spaces between them are tokens too.
fn tokens(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let word = |c: char| c.is_alphanumeric() || "_$\"-+.".contains(c);
    for c in text.chars() {
        match out.last_mut() {
            Some(last) if word(c) && last.ends_with(word) => last.push(c),
            _ => out.push(c.to_string()),
        }
    }
    out
}

fn apply(text: &str, damage: &Damage) -> String {
    let characters = |change: &dyn Fn(&mut Vec<char>)| {
        let mut all: Vec<char> = text.chars().collect();
        if !all.is_empty() {
            change(&mut all);
        }
        all.into_iter().collect::<String>()
    };
    let pieces = |mut all: Vec<String>, joint: &str, change: &dyn Fn(&mut Vec<String>)| {
        if !all.is_empty() {
            change(&mut all);
        }
        all.join(joint)
    };
    let lines = || text.lines().map(str::to_owned).collect::<Vec<_>>();
    // Spaces are no targets.
    let solid = |all: &[String], at: usize| {
        let all: Vec<usize> = (0..all.len()).filter(|&i| !all[i].trim().is_empty()).collect();
        all.get(at % all.len().max(1)).copied().unwrap_or(0)
    };
    match damage {
        Damage::Delete(at, count) => characters(&|all| {
            let at = at % all.len();
            all.drain(at..(at + count).min(all.len()));
        }),
        Damage::Duplicate(at, count) => characters(&|all| {
            let at = at % all.len();
            let copy = all[at..(at + count).min(all.len())].to_vec();
            all.splice(at..at, copy);
        }),
        Damage::Change(at, c) => characters(&|all| {
            let at = at % all.len();
            all[at] = *c;
        }),
        Damage::DeleteLine(at) => pieces(lines(), "\n", &|all| drop(all.remove(at % all.len()))),
        Damage::DuplicateLine(at) => pieces(lines(), "\n", &|all| {
            let at = at % all.len();
            all.insert(at, all[at].clone());
        }),
        Damage::SwapLines(a, b) => pieces(lines(), "\n", &|all| {
            let length = all.len();
            all.swap(a % length, b % length);
        }),
        Damage::Replace(at, value) => pieces(tokens(text), "", &|all| {
            let at = solid(all, *at);
            all[at] = (*value).to_owned();
        }),
        Damage::SwapTokens(a, b) => pieces(tokens(text), "", &|all| {
            let (a, b) = (solid(all, *a), solid(all, *b));
            all.swap(a, b);
        }),
        Damage::Shorten(at) => pieces(tokens(text), "", &|all| {
            let at = solid(all, *at);
            all[at].pop();
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_configurations_are_refused_with_a_place(
        which in 0..100usize,
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let originals = originals();
        let mut text = originals[which % originals.len()].clone();
        for damage in &damages {
            text = apply(&text, damage);
        }
        match config::load_str("damaged.toml", &text, &[]) {
            Ok(loaded) => {
                prop_assert!(loaded.warnings.iter().all(|d| d.span().is_some()));
                let written = config::to_toml(&loaded);
                let again = config::load_str("again.toml", &written, &[]);
                prop_assert!(again.is_ok(), "{}\n{written}", again.err().map(|f| f.to_string()).unwrap_or_default());
                let json = |loaded: &config::Loaded| serde_json::to_value(&loaded.experiment).expect("plain data");
                prop_assert_eq!(json(&loaded), json(&again.expect("checked")));
            }
            Err(failure) => {
                prop_assert!(failure.diagnostics.iter().any(|d| d.severity == Severity::Error));
                prop_assert!(failure.diagnostics.iter().all(|d| d.span().is_some()), "{failure}");
                let more: Vec<_> = failure.rest.iter().flat_map(|rest| programs::mistakes(rest)).collect();
                prop_assert!(more.iter().all(|d| d.span().is_some()));
                for color in [false, true] {
                    prop_assert!(!diagnostics::render(&failure.sources, &failure.diagnostics, color).is_empty());
                }
                prop_assert!(diagnostics::to_json(&failure.sources, &failure.diagnostics).is_array());
            }
        }
    }

    #[test]
    fn any_override_is_taken_or_refused_with_a_place(set in "[a-z.]{0,12}=?[ -~]{0,8}", known in 0..6usize) {
        let keys = ["", "train.epochs=", "data.", "model.layers.0.", "optimizer=", "model.layers="];
        let set = format!("{}{set}", keys[known]);
        if let Err(failure) = config::load_str("config.toml", &originals()[0], &[set]) {
            prop_assert!(failure.diagnostics.iter().all(|d| d.span().is_some()), "{failure}");
            prop_assert!(!failure.to_string().is_empty());
        }
    }
}
