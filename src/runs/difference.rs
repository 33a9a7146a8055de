//! Where the configurations of runs differ.

use super::datum::natural;
use super::folder::Run;
use serde_json::Value;

/// A key whose values are not the same in all runs; `None` where a run has not got it.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// The value in each run.
    pub values: Vec<Option<Value>>,
}

/// The keys in which runs differ, sorted; the type of a section comes before what goes with it.
pub fn differences(runs: &[Run]) -> Vec<Difference> {
    let mut keys: Vec<&str> = runs.iter().flat_map(|run| &run.config).map(|(key, _)| key.as_str()).collect();
    let place = |key: &str| -> String {
        let section = [".type", ".source"].iter().find_map(|end| key.strip_suffix(end));
        section.map_or_else(|| key.to_owned(), |section| format!("{section}.\0"))
    };
    keys.sort_by(|a, b| natural(&place(a), &place(b)));
    keys.dedup();
    let values = |key: &str| runs.iter().map(|run| run.key(key).cloned()).collect::<Vec<_>>();
    let all = keys.into_iter().map(|key| Difference { key: key.to_owned(), values: values(key) });
    all.filter(|found| found.values.windows(2).any(|pair| pair[0] != pair[1])).collect()
}

/// A value as a table shows it.
pub fn shown(value: Option<&Value>) -> String {
    match value {
        None => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::lines::Wanted;

    #[test]
    fn keys_that_differ_are_listed_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let run = |name: &str, config: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("config.toml"), config).unwrap();
            Run::read(&path, Wanted::Epochs).unwrap()
        };
        let a = run("a", "seed = 1\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\nmomentum = 0.9\n[train]\nepochs = 2\n");
        let b =
            run("b", "seed = 1\n[optimizer]\ntype = \"adam\"\nlr = 0.1\nbetas = [0.9, 0.99]\n[train]\nepochs = 3\n");
        let found = differences(&[a, b]);
        let lines: Vec<String> = found
            .iter()
            .map(|d| format!("{} {}", d.key, d.values.iter().map(|v| shown(v.as_ref())).collect::<Vec<_>>().join(" ")))
            .collect();
        assert_eq!(
            lines,
            ["optimizer.type sgd adam", "optimizer.betas - [0.9,0.99]", "optimizer.momentum 0.9 -", "train.epochs 2 3"]
        );
    }
}
