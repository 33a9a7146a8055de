//! `runner export --adapter`: the adapters of a model as `peft` reads them.

use super::Parts;
use crate::api::failure::Failure;
use crate::api::what::{expect_no_input, expect_no_run_file, output};
use crate::checkpoint::{self, Tensor};
use crate::cli::args::ExportArgs;
use crate::cli::{print, print_json};
use crate::config::language::pattern::Pattern;
use crate::config::language::sections::{Lora, Rename};
use crate::terminal::thousands;
use anyhow::{Context, anyhow};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What stands before the names of a model's tensors.
const PREFIX: &str = "base_model.model.";

/// Parameters of a GPT-2, which its class has below `transformer`, whether its file has that before its names or not.
const GPT2: [&str; 4] = ["wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "ln_f.weight"];
/// What classes with a head have before the names of a model that was saved without one.
const CLASSES: [&str; 3] = ["bert.", "distilbert.", "model."];

/// The name that a parameter has in the class of the model: that of the file of weights, unless the file is of the model without the class's head.
fn original(rules: &[Rename], name: &str) -> String {
    let of_class = |rule: &&Rename| CLASSES.iter().any(|class| rule.to == format!("{class}{}", rule.from));
    let rule = rules.iter().filter(|rule| !rule.from.contains('*')).find(|rule| name.starts_with(&rule.to));
    match rule {
        Some(rule) if !of_class(&rule) => format!("{}{}", rule.from, &name[rule.to.len()..]),
        _ => name.to_owned(),
    }
}

/// Writes the two files of an adapter into a folder.
pub(super) fn run(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let folder = &args.out;
    let parts = Parts::of(args)?;
    let experiment = &parts.model.loaded.experiment;
    let Some(lora) = &experiment.model.lora else {
        return Err(Failure::Usage(format!(
            "`{}` has no adapters\nhelp: leave `--adapter` out; `[model] lora` trains adapters",
            args.checkpoint.display()
        )));
    };
    let is_gpt2 = GPT2.iter().all(|own| parts.variables.iter().any(|(_, variable)| variable.name == *own));
    let rules = &experiment.model.weights_rename;
    let original = |name: &str| match is_gpt2 {
        true if name.starts_with("lm_head.") => name.to_owned(),
        true => format!("transformer.{name}"),
        false => original(rules, name),
    };
    let layer = |name: &str| Some(original(name.rsplit_once('.')?.0));
    let layers = |pattern: &Pattern| -> BTreeSet<String> {
        let own = parts.tensors.keys().filter(|name| pattern.matches(name) && !Lora::has(name));
        own.filter_map(|name| layer(name)).collect()
    };
    // PEFT saves layers, and knows no `*`.
    let of_layers = |pattern: &&Pattern| !pattern.text.contains('*') && !parts.tensors.contains_key(&pattern.text);
    let modules: BTreeSet<String> = lora
        .modules_to_save
        .iter()
        .flat_map(|pattern| match of_layers(&pattern) {
            true => BTreeSet::from([pattern.text.clone()]),
            false => layers(pattern),
        })
        .collect();
    // It takes all layers whose names end so, also `pre_classifier` for `classifier`.
    let saved = |name: &str| {
        let is_module = |layer: String| modules.iter().any(|module| layer.ends_with(module));
        Lora::has(name) || layer(name).is_some_and(is_module)
    };
    let tensors: BTreeMap<&String, &Tensor> = parts.tensors.iter().filter(|(name, _)| saved(name)).collect();
    let adapted: Vec<&str> = tensors.keys().filter_map(|name| name.strip_suffix(Lora::A)).collect();
    if adapted.is_empty() {
        let targets: Vec<String> = lora.targets.iter().map(|target| format!("`{}`", target.text)).collect();
        return Err(
            anyhow!("no `linear` layer of the model is named by `targets` of `lora`: {}", targets.join(", ")).into()
        );
    }
    let targets: Vec<String> = match lora.targets.iter().any(|target| target.text.contains('*')) {
        true => adapted.iter().map(|layer| original(layer.trim_end_matches('.'))).collect(),
        false => lora.targets.iter().map(|target| target.text.clone()).collect(),
    };
    let transposed = adapted.iter().filter(|layer| parts.is_transposed(layer.trim_end_matches('.'))).count();
    if transposed > 0 && transposed < adapted.len() {
        return Err(anyhow!(
            "some of the layers with adapters have `transposed` and others do not, and PEFT has one word for all of them: export the \
             whole model, without `--adapter`"
        )
        .into());
    }
    let config = json!({
        "peft_type": "LORA",
        "task_type": null,
        "base_model_name_or_path": null,
        "inference_mode": true,
        "r": lora.rank,
        "lora_alpha": lora.scale() * lora.rank as f64,
        "lora_dropout": lora.dropout,
        "target_modules": targets,
        "modules_to_save": modules,
        "fan_in_fan_out": transposed > 0,
        "bias": "none",
    });
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    let [weights, keys] = ["adapter_model.safetensors", "adapter_config.json"].map(|file| folder.join(file));
    let to = |path: &Path| -> Result<_, Failure> {
        let to = output(path)?;
        expect_no_input(&to, parts.model.files().iter().map(PathBuf::as_path))?;
        expect_no_run_file(&to)?;
        Ok(to)
    };
    let keys = to(&keys)?;
    to(&weights)?;
    let names: Vec<(String, &Tensor)> =
        tensors.iter().map(|(name, tensor)| (format!("{PREFIX}{}", original(name)), *tensor)).collect();
    let views: Vec<_> = names.iter().map(|(name, tensor)| tensor.view(name)).collect();
    checkpoint::write_weights(&weights, &views).map_err(anyhow::Error::new)?;
    let text = serde_json::to_string_pretty(&config).map_err(anyhow::Error::new)? + "\n";
    keys.put(text.as_bytes()).with_context(|| format!("cannot write `{}`", keys.path().display()))?;
    let elements: usize = tensors.values().map(|tensor| tensor.len()).sum();
    if args.output.json {
        print_json(&json!({ "folder": folder, "tensors": tensors.len(), "elements": elements }))?;
    } else {
        let n = thousands(elements as u64);
        print(&format!("wrote {} tensors with {n} elements of adapters to `{}`", tensors.len(), folder.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
