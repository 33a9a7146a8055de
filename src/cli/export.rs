//! `runner export`.

mod adapter;
mod like;
mod tokenizer;

use super::args::ExportArgs;
use crate::api::failure::Failure;
use crate::api::model::{Model, base_of, load_any_model, read_weights, refuse};
use crate::api::what::{checkpoint_of, expect_apart, expect_file, expect_no_input, expect_no_run_file, output};
use crate::checkpoint::{self, Tensor};
use crate::config::language::sections::Lora;
use crate::files::output::Output;
use crate::graph::{Storage, Variables};
use crate::model::{Forward, Mode, forward, init};
use crate::onnx;
use crate::terminal::{say, thousands};
use crate::train::files::adapters;
use crate::train::setup::transfer::in_state_dict;
use anyhow::{Context, anyhow};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What is written.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    Safetensors,
    StateDict,
    Onnx,
    Tokenizer,
}

impl Format {
    /// By the suffix of the file's name.
    fn of(path: &Path) -> Option<Format> {
        let suffix = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match suffix.as_str() {
            "safetensors" => Format::Safetensors,
            "pth" | "pt" => Format::StateDict,
            "onnx" => Format::Onnx,
            "json" => Format::Tokenizer,
            _ => return None,
        })
    }
}

/// Writes the weights of a checkpoint, without the state of its training, or the whole model for other programs.
pub(super) fn run(args: &ExportArgs) -> Result<ExitCode, Failure> {
    if args.adapter {
        return adapter::run(args);
    }
    if let Some(folder) = &args.like {
        return like::run(args, folder);
    }
    let (from, out) = (&checkpoint_of(&args.checkpoint)?, &args.out);
    let options = onnx::Options { softmax: args.softmax, preprocess: args.preprocess };
    let streamed = || match options == onnx::Options::default() {
        true => Format::Safetensors,
        // Options of the whole model say that it is meant.
        false => Format::Onnx,
    };
    let is_stream = || Output::at(out).is_ok_and(|out| out.is_stream());
    let Some(format) = Format::of(out).or_else(|| is_stream().then(streamed)) else {
        return Err(Failure::Usage(format!(
            "cannot write `{}`: its ending gives the format\nhelp: .safetensors or .pth (PyTorch) for the weights, .onnx for the whole model, .json for the tokenizer of a model of texts",
            out.display()
        )));
    };
    let to = output(out)?;
    expect_no_input(&to, [from.as_path()])?;
    expect_apart(&to, "", args.output.json)?;
    super::expect_no_terminal(&to, "a file of weights")?;
    if format != Format::Onnx && options != onnx::Options::default() {
        let option = if args.softmax { "--softmax" } else { "--preprocess" };
        return Err(Failure::Usage(format!(
            "`{option}` changes the model, and `{}` has its {} alone\nhelp: write a .onnx file, or leave it out",
            out.display(),
            if format == Format::Tokenizer { "tokenizer" } else { "weights" }
        )));
    }
    if format == Format::Tokenizer {
        return tokenizer::run(args, &to);
    }
    let mut missing = None;
    let mut report = if format == Format::Onnx {
        // The tokenizer is among its metadata.
        whole(args, options, &to)?
    } else {
        missing = tokenizer::of_checkpoint(from);
        let tensors = match from.extension().is_some_and(|e| e == "toml") {
            true => {
                let parts = Parts::of(args)?;
                expect_no_input(&to, parts.model.files().iter().map(PathBuf::as_path))?;
                missing = tokenizer::of(&parts.data)?;
                parts.merged()?
            }
            // Its base may be named besides.
            false if has_adapters(from) => {
                let parts = Parts::of(args)?;
                expect_no_input(&to, parts.model.files().iter().map(PathBuf::as_path))?;
                parts.merged()?
            }
            false if args.set.is_empty() => match copied(from)? {
                tensors if adapters::are_alone(tensors.keys().map(String::as_str)) => {
                    let why = "has what LoRA adds to the weights of a model, and not these";
                    return Err(anyhow!("`{}` {why}\nhelp: {}", from.display(), adapters::TO_MERGE).into());
                }
                tensors if tensors.keys().any(|name| Lora::has(name)) => Parts::of(args)?.merged()?,
                tensors => tensors,
            },
            false => {
                return Err(Failure::Usage(
                    "`--set` changes a configuration, and weights are copied as they are\nhelp: leave it out, or give a configuration with `[model] weights`"
                        .into(),
                ));
            }
        };
        expect_no_run_file(&to)?;
        let views: Vec<_> = tensors.iter().map(|(name, t)| t.view(name)).collect();
        match format {
            Format::StateDict => checkpoint::write_state_dict(out, &views),
            Format::Safetensors | Format::Onnx | Format::Tokenizer => checkpoint::write_weights(out, &views),
        }
        .map_err(anyhow::Error::new)?;
        let elements: usize = tensors.values().map(Tensor::len).sum();
        json!({ "tensors": tensors.len(), "elements": elements })
    };
    if let Some(note) = missing.and_then(|tokenizer| tokenizer::note(&tokenizer, args)) {
        say(&note);
    }
    if args.output.json {
        report["file"] = out.to_string_lossy().into();
        super::print_json(&report)?;
    } else {
        let n = thousands(report["elements"].as_u64().unwrap_or_default());
        let text = format!("wrote {} tensors with {n} elements to `{}`", report["tensors"], out.display());
        super::print_beside(Some(&to), &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a file is a checkpoint whose model has adapters.
fn has_adapters(from: &Path) -> bool {
    checkpoint::peek(from).is_ok_and(|meta| meta.config.lines().any(|line| line == "[model.lora]"))
}

/// The weights in any file that has some.
fn copied(from: &Path) -> Result<BTreeMap<String, Tensor>, Failure> {
    expect_file(from)?;
    let mut loaded = checkpoint::load_tensors(from).map_err(anyhow::Error::new)?;
    // That weights are taken of a checkpoint goes without saying here.
    let of_others = loaded.notes.iter().filter(|_| !checkpoint::is_checkpoint(from));
    of_others.for_each(|note| say(&format!("note: {note}")));
    if let Some(note) = checkpoint::unwrap_all_names(&mut loaded.tensors) {
        say(&note);
    }
    if loaded.tensors.is_empty() && !loaded.unread.is_empty() {
        return Err(anyhow!("`{}` has no tensor that is read", from.display()).into());
    }
    loaded.tensors.retain(|name, _| !checkpoint::is_optimizer_state(name));
    Ok(loaded.tensors)
}

/// Writes the whole model; returns its counts.
fn whole(args: &ExportArgs, options: onnx::Options, to: &Output) -> Result<serde_json::Value, Failure> {
    let parts = Parts::of(args)?;
    let tensors = parts.merged()?;
    let Parts { model, data, variables, forward, .. } = parts;
    expect_no_input(to, model.files().iter().map(PathBuf::as_path))?;
    expect_no_run_file(to)?;
    let loaded = &model.loaded;
    let source =
        onnx::Source { experiment: &loaded.experiment, data: &data, rows: &forward.rows, variables: &variables };
    let exported = onnx::export(source, tensors, options).map_err(|error| refuse(loaded, error))?;
    exported.notes.iter().for_each(|note| say(&format!("note: {note}")));
    to.put(&exported.bytes).with_context(|| format!("cannot write `{}`", to.path().display()))?;
    Ok(json!({ "tensors": exported.tensors, "elements": exported.elements, "nodes": exported.nodes }))
}

/// A model with its weights.
struct Parts {
    model: Model,
    data: crate::data::DataSpec,
    variables: Variables,
    forward: Forward,
    /// Parameters and buffers, in PyTorch's layout.
    tensors: BTreeMap<String, Tensor>,
}

impl Parts {
    fn of(args: &ExportArgs) -> Result<Self, Failure> {
        let model = load_any_model(&args.checkpoint, &args.set)?;
        let data = model.sample()?;
        let experiment = &model.loaded.experiment;
        let mut variables = Variables::new();
        // Batch normalisation without running statistics takes two samples or more.
        let forward = forward(experiment, &data, &mut variables, 2, Mode::Predict)
            .map_err(|diagnostics| Failure::Config { sources: model.loaded.sources.clone(), diagnostics })?;
        let mut tensors = match &model.checkpoint {
            Some((path, meta)) => {
                let base = base_of(&model.loaded, path, meta)?.unwrap_or_default();
                trained(path, base, &variables)?
            }
            None => match read_weights(&model.loaded, &variables, &data)? {
                Some(weights) => {
                    let named = |(id, tensor)| (variables[id].name.clone(), tensor);
                    weights.into_tensors().into_iter().map(named).collect()
                }
                None => {
                    say(&format!(
                        "`{}` names no weights: the file has the values that training starts from",
                        args.checkpoint.display()
                    ));
                    BTreeMap::new()
                }
            },
        };
        for (_, variable) in variables.iter().filter(|(_, v)| in_state_dict(v)) {
            tensors.entry(variable.name.clone()).or_insert_with(|| Tensor {
                dtype: variable.dtype,
                shape: variable.storage.outside.dims().to_vec(),
                data: init::initial_outside(variable, experiment.seed),
            });
        }
        Ok(Parts { model, data, variables, forward, tensors })
    }

    /// The tensors with adapters added to the weights that they change.
    fn merged(&self) -> Result<BTreeMap<String, Tensor>, Failure> {
        let mut tensors = self.tensors.clone();
        let Some(lora) = &self.model.loaded.experiment.model.lora else { return Ok(tensors) };
        adapters::merge(&mut tensors, lora.scale(), |layer| self.is_transposed(layer))?;
        Ok(tensors)
    }

    /// Whether the file has the weight of a linear layer as `[in, out]`.
    fn is_transposed(&self, layer: &str) -> bool {
        let named = self.variables.iter().find(|(_, v)| v.name.strip_suffix(".weight") == Some(layer));
        named.is_some_and(|(_, v)| matches!(*v.shape.dims(), [out, inp] if v.storage == Storage::transposed(out, inp)))
    }
}

/// The weights of a checkpoint, and of the file that it leaves some to, for a model of these variables.
fn trained(
    path: &Path,
    base: BTreeMap<String, Tensor>,
    variables: &Variables,
) -> Result<BTreeMap<String, Tensor>, Failure> {
    let mut loaded = checkpoint::load_tensors(path).map_err(anyhow::Error::new)?;
    loaded.tensors.extend(base);
    let wanted = || variables.iter().map(|(_, v)| v).filter(|v| in_state_dict(v));
    let names = wanted().map(|v| (v.name.as_str(), v.storage.outside.dims()));
    if let Err(mismatch) = checkpoint::match_names(names, &loaded.tensors, true) {
        return Err(anyhow!("the tensors of `{}` do not fit the model\n{mismatch}", path.display()).into());
    }
    let mut tensors = loaded.tensors;
    for variable in wanted() {
        if let Some(tensor) = tensors.get_mut(&variable.name).filter(|tensor| tensor.dtype != variable.dtype) {
            let place = || format!("`{}` of `{}`", variable.name, path.display());
            *tensor = tensor.cast(variable.dtype).with_context(place)?;
        }
    }
    Ok(tensors)
}
