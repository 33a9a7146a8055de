//! `runner export --like`: a folder that transformers reads, with the weights of a model that was imported from such a folder.

use super::Parts;
use crate::api::failure::Failure;
use crate::api::what::{expect_no_input, expect_no_run_file, output};
use crate::checkpoint::{self, Tensor};
use crate::cli::args::ExportArgs;
use crate::cli::{print, print_json};
use crate::config::language::sections::Source;
use crate::files;
use crate::terminal::thousands;
use crate::train::files::folder::is_run;
use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// What says what the model is.
const CONFIG: &str = "config.json";
/// The file of the weights.
const WEIGHTS: &str = "model.safetensors";
/// That of weights in several files.
const INDEX: &str = "model.safetensors.index.json";
/// What else such a folder has, if it has it: the tokenizer, and how texts are written.
const BESIDE: [&str; 10] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
];
/// Largest of these files, in bytes.
const MOST: u64 = 64 << 20;
/// Suffixes of what is exported to files.
const FORMATS: [&str; 4] = ["safetensors", "pth", "pt", "onnx"];
/// Tensors that a message names.
const NAMED: usize = 5;
/// What a classifier of a class of transformers is called, by the `model_type`.
const CLASSIFIERS: [(&str, &str); 2] = [("bert", "Bert"), ("distilbert", "DistilBert")];

/// Writes the folder.
pub(super) fn run(args: &ExportArgs, like: &Path) -> Result<ExitCode, Failure> {
    let parts = Parts::of(args)?;
    let weights = [WEIGHTS, INDEX].map(|name| like.join(name)).into_iter().find(|path| files::is_there(path));
    let weights = weights.with_context(|| format!("`{}` has no `{WEIGHTS}`", like.display()))?;
    let own = checkpoint::load_tensors(&weights).map_err(anyhow::Error::new)?.tensors;
    let tensors = parts.merged()?;
    let names = names(&tensors, &own).with_context(|| {
        format!("`{}` is not the folder that the model of `{}` came from", like.display(), args.checkpoint.display())
    })?;
    drop(own);
    let config = config(&parts, &like.join(CONFIG))?;
    let folder = &args.out;
    let is_format = |suffix: &OsStr| FORMATS.iter().any(|format| suffix == *format);
    if folder.extension().is_some_and(is_format) || folder.is_file() {
        return Err(Failure::Usage(format!(
            "`--like` writes a folder, and `{}` is a file\nhelp: name a folder, which is made if it is not there",
            folder.display()
        )));
    }
    if is_run(folder) {
        return Err(Failure::Usage(format!(
            "`{}` is the folder of a run, whose files would lie among those of the model\nhelp: name another folder",
            folder.display()
        )));
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    let to = |name: &str| -> Result<_, Failure> {
        let to = output(&folder.join(name))?;
        let read = [CONFIG, WEIGHTS, INDEX].into_iter().chain(BESIDE).map(|name| like.join(name));
        let read: Vec<_> = read.chain(parts.model.files()).collect();
        expect_no_input(&to, read.iter().map(|path| path.as_path()))?;
        expect_no_run_file(&to)?;
        Ok(to)
    };
    let beside = BESIDE.into_iter().filter(|name| files::is_there(&like.join(name)));
    let written: Vec<&str> = [CONFIG, WEIGHTS].into_iter().chain(beside.clone()).collect();
    // All of them before the first one is written: half a folder is of no use. The largest is named first.
    to(WEIGHTS)?;
    written.iter().try_for_each(|name| to(name).map(|_| ()))?;
    let put = |name: &str, bytes: &[u8]| -> Result<(), Failure> {
        let to = to(name)?;
        to.put(bytes).with_context(|| format!("cannot write `{}`", to.path().display()))?;
        Ok(())
    };
    for name in beside {
        put(name, &files::read(&like.join(name), MOST).map_err(anyhow::Error::new)?)?;
    }
    let views: Vec<_> = names.iter().map(|(name, tensor)| tensor.view(name)).collect();
    checkpoint::write_weights(&folder.join(WEIGHTS), &views).map_err(anyhow::Error::new)?;
    let text = serde_json::to_string_pretty(&config).map_err(anyhow::Error::new)? + "\n";
    put(CONFIG, text.as_bytes())?;
    let elements: usize = names.iter().map(|(_, tensor)| tensor.len()).sum();
    if args.output.json {
        let report = json!({ "folder": folder, "files": written, "tensors": names.len(), "elements": elements });
        print_json(&report)?;
    } else {
        let n = thousands(elements as u64);
        print(&format!(
            "wrote {} tensors with {n} elements to `{}`, with {}",
            names.len(),
            folder.display(),
            written.join(", ")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The tensors under the names that the folder has for them. A prefix that all names of one side have, as `transformer.`, makes no difference.
fn names<'a>(
    tensors: &'a BTreeMap<String, Tensor>,
    own: &BTreeMap<String, Tensor>,
) -> Result<Vec<(String, &'a Tensor)>> {
    // The prefix with which most names are there.
    let mut prefixes: HashMap<&str, usize> = HashMap::from([("", 0)]);
    for name in own.keys() {
        for (at, _) in name.match_indices('.') {
            if tensors.contains_key(&name[at + 1..]) {
                *prefixes.entry(&name[..=at]).or_default() += 1;
            }
        }
        if tensors.contains_key(name) {
            *prefixes.entry("").or_default() += 1;
        }
    }
    let prefix = prefixes.into_iter().max_by_key(|(prefix, count)| (*count, std::cmp::Reverse(prefix.len())));
    let prefix = prefix.map_or("", |(prefix, _)| prefix);
    let (mut named, mut taken, mut wrong) = (Vec::new(), HashSet::new(), Vec::new());
    let layers: HashSet<String> = own.keys().map(|name| numberless(name)).collect();
    for (name, tensor) in tensors {
        let whole = format!("{prefix}{name}");
        let bare = name.split_once('.').map_or("", |(_, rest)| rest);
        let there = [whole.as_str(), name, bare].into_iter().find_map(|name| own.get_key_value(name));
        let there = there.map(|(name, tensor)| (name.as_str(), tensor));
        // One of an encoder that has a classifier now keeps its whole name: transformers knows both.
        let is_bare = there.is_some_and(|(there, _)| there == bare && there != name && there != whole);
        match there {
            Some((there, _)) => _ = taken.insert(there),
            None if [whole.as_str(), name, bare].into_iter().any(|name| layers.contains(&numberless(name))) => {
                wrong.push(format!("`{name}` is in the model alone"));
            }
            None => {}
        }
        if let Some((there, other)) = there.filter(|(_, other)| other.shape != tensor.shape) {
            wrong.push(format!("`{there}` has {:?} there, and {:?} in the model", other.shape, tensor.shape));
        }
        let keeps = is_bare || there.is_none() || there.is_some_and(|(there, _)| there == name);
        named.push((if keeps { name.clone() } else { whole.clone() }, tensor));
    }
    // Transformers would make up the weights of a layer that is in its configuration alone.
    let layers: HashSet<String> = taken.iter().map(|name| numberless(name)).collect();
    let lacks = own.keys().filter(|name| !taken.contains(name.as_str()) && layers.contains(&numberless(name)));
    wrong.extend(lacks.map(|name| format!("the model has no `{name}`")));
    // A classifier may be another one.
    wrong.retain(|wrong| !wrong.starts_with("`classifier."));
    let mistakes = wrong.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    ensure!(wrong.is_empty(), "{mistakes}");
    let found = taken.len();
    ensure!(2 * found > tensors.len(), "{found} of the model's {} tensors have a name that is there", tensors.len());
    Ok(named)
}

/// A name without its numbers, which is the same in all layers of a kind.
fn numberless(name: &str) -> String {
    let parts = name.split('.').map(|part| if part.bytes().all(|byte| byte.is_ascii_digit()) { "#" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

/// The folder's `config.json`, with the classes of a classifier that was trained.
fn config(parts: &Parts, path: &Path) -> Result<Value, Failure> {
    let text = files::read(path, MOST).map_err(anyhow::Error::new)?;
    let mut config: Value =
        serde_json::from_slice(&text).with_context(|| format!("`{}` is no JSON", path.display()))?;
    let keys = config.as_object_mut().ok_or_else(|| anyhow!("`{}` is no object", path.display()))?;
    // The weights are in single precision, whatever they were.
    for key in ["torch_dtype", "dtype"] {
        if let Some(value) = keys.get_mut(key) {
            *value = "float32".into();
        }
    }
    let source = &parts.model.loaded.experiment.data.source;
    let kind = keys.get("model_type").and_then(Value::as_str);
    let base = CLASSIFIERS.iter().find(|(name, _)| Some(*name) == kind).map(|(_, base)| *base);
    let what = match source {
        Source::TextClasses(_) => Some("ForSequenceClassification"),
        Source::TextTags(_) => Some("ForTokenClassification"),
        _ => None,
    };
    if let (Some(base), Some(what), Some(classes)) = (base, what, parts.data.class_names()) {
        keys.insert("architectures".into(), json!([format!("{base}{what}")]));
        let numbered = classes.iter().enumerate();
        keys.insert("id2label".into(), numbered.clone().map(|(n, name)| (n.to_string(), json!(name))).collect());
        keys.insert("label2id".into(), numbered.map(|(n, name)| (name.clone(), json!(n))).collect());
    }
    Ok(config)
}
