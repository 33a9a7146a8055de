//! `runner export --adapter`: the adapters of a model as `peft` reads them.

use super::Parts;
use crate::api::failure::Failure;
use crate::api::what::{expect_no_input, expect_no_run_file, output};
use crate::checkpoint::{self, Tensor};
use crate::cli::args::ExportArgs;
use crate::cli::{print, print_json};
use crate::config::language::sections::Lora;
use crate::terminal::thousands;
use anyhow::{Context, anyhow};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What stands before the names of a model's tensors.
const PREFIX: &str = "base_model.model.";

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
    let saved = |name: &str| Lora::has(name) || lora.modules_to_save.iter().any(|pattern| pattern.matches(name));
    let tensors: BTreeMap<&String, &Tensor> = parts.tensors.iter().filter(|(name, _)| saved(name)).collect();
    // The names that the file of weights has.
    let rules = &experiment.model.weights_rename;
    let original = |name: &str| {
        let rule = rules.iter().filter(|rule| !rule.from.contains('*')).find(|rule| name.starts_with(&rule.to));
        rule.map_or_else(|| name.to_owned(), |rule| format!("{}{}", rule.from, &name[rule.to.len()..]))
    };
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
        "modules_to_save": lora.modules_to_save.iter().map(|pattern| pattern.text.clone()).collect::<Vec<_>>(),
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
