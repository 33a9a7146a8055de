//! Whether the runs of a folder are of one training.

use super::Members;
use crate::checkpoint;
use crate::runs::folder::values;
use crate::train::files::folder::file;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Keys in which the configurations of one training's runs differ.
const OWN_KEYS: [&str; 2] = ["seed", "data.fold"];

/// In what the runs do not go together, in words; `None` where they are of one training. Of a run whose checkpoint cannot be read nothing is
/// said.
pub fn difference(members: Members, folders: &[PathBuf]) -> Option<String> {
    let configs = folders.iter().map(|folder| values(&config(folder)?));
    differing(members, &configs.collect::<Vec<_>>())
}

/// The configuration with which a run was last trained.
fn config(folder: &Path) -> Option<String> {
    let path = [file::LAST, file::BEST].into_iter().map(|name| folder.join(name)).find(|path| path.is_file())?;
    Some(checkpoint::peek(&path).ok()?.config)
}

fn differing(members: Members, configs: &[Option<BTreeMap<String, Value>>]) -> Option<String> {
    let one = members.one();
    let all: Vec<(usize, &BTreeMap<String, Value>)> =
        (1..).zip(configs).filter_map(|(number, config)| Some((number, config.as_ref()?))).collect();
    for (at, (number, config)) in all.iter().enumerate() {
        match members {
            Members::Folds(_) => {
                let fold = config.get("data.fold").filter(|fold| fold.as_u64() != Some(*number as u64));
                if let Some(fold) = fold {
                    return Some(format!(
                        "`{one}-{number}` has a run of fold {fold}: once that folder is moved away, `--resume` trains fold {number}"
                    ));
                }
            }
            Members::Seeds(_) => {
                let same = |(_, other): &&(usize, &BTreeMap<String, Value>)| other.get("seed") == config.get("seed");
                if let Some((other, _)) = all[..at].iter().find(same) {
                    return Some(format!("`{one}-{number}` has a run of the same seed as `{one}-{other}`"));
                }
            }
        }
    }
    let ((first, base), others) = all.split_first()?;
    others.iter().find_map(|(number, config)| {
        let differs =
            |key: &&String| is_shared(key, base.get(*key).or(config.get(*key))) && base.get(*key) != config.get(*key);
        let key = base.keys().chain(config.keys()).find(differs)?;
        let shown = |value: Option<&Value>| value.map_or("not set".to_owned(), Value::to_string);
        let (was, is) = (shown(base.get(key)), shown(config.get(key)));
        Some(format!("`{key}` is {was} in {one} {first}, and {is} in {one} {number}"))
    })
}

/// Whether all runs of a training have the same there. Classes that are balanced weigh what is counted in the rows that a fold is trained on.
fn is_shared(key: &str, value: Option<&Value>) -> bool {
    let is_weights = key.rsplit('.').next() == Some("weight") && value.is_some_and(Value::is_array);
    !OWN_KEYS.contains(&key) && !is_weights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folds(configs: &[&str]) -> Option<String> {
        differing(Members::Folds(configs.len()), &configs.iter().map(|config| values(config)).collect::<Vec<_>>())
    }

    #[test]
    fn configurations_of_one_training_differ_in_few_keys() {
        let config = |fold: u64, epochs: u64| format!("seed = 1\n[data]\nfold = {fold}\n[train]\nepochs = {epochs}\n");
        assert_eq!(folds(&[&config(1, 2), &config(2, 2)]), None);
        assert_eq!(folds(&[&config(1, 2), "broken", &config(3, 2)]), None);
        let said = folds(&[&config(1, 2), &config(2, 2), &config(3, 9)]).unwrap();
        assert_eq!(said, "`train.epochs` is 2 in fold 1, and 9 in fold 3");
        let said = folds(&[&config(1, 2), &config(1, 2)]).unwrap();
        assert!(said.starts_with("`fold-2` has a run of fold 1: "), "{said}");
        let seeds = |numbers: [u64; 3]| {
            let configs = numbers.map(|seed| values(&format!("seed = {seed}\n[data]\nseed = 1\n")));
            differing(Members::Seeds(3), &configs)
        };
        assert_eq!(seeds([1, 2, 3]), None);
        assert_eq!(seeds([1, 2, 1]).unwrap(), "`seed-3` has a run of the same seed as `seed-1`");
    }

    #[test]
    fn weights_of_classes_are_those_of_a_fold() {
        let weights = |one: f64, other: f64| {
            let loss = format!("{{ type = \"cross_entropy\", weight = [{one}, 2.0] }}");
            format!("heads = [{{ loss = {loss}, weight = 0.5 }}]\npos_weight = [{other}]\nweight = [{one}]")
        };
        assert_eq!(folds(&[&weights(0.5, 1.0), &weights(0.7, 1.0)]), None);
        assert!(folds(&[&weights(0.5, 1.0), &weights(0.5, 2.0)]).unwrap().contains("pos_weight"));
    }
}
