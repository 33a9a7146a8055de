//! What `runner export` is given.

use super::OutputArgs;
use crate::cli::suggest::Suggest;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `runner export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// A checkpoint (.safetensors), a run's folder, a configuration (.toml), or, to copy weights, another file that has some (.safetensors, .pth, .pt)
    ///
    /// A configuration without `[model] weights` is written with the values that training would start from.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub checkpoint: PathBuf,
    /// The file to write; its suffix is the format: .safetensors, .pth (or .pt), .onnx, or .json for the tokenizer of a model of texts
    ///
    /// `-` is standard output: the weights as .safetensors, or with `--softmax` or `--preprocess` the whole model as .onnx.
    #[arg(value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
    /// Write the adapters of `lora` alone, to a folder, as PEFT has them
    ///
    /// The folder gets `adapter_model.safetensors` and `adapter_config.json`. Without it, adapters are added to the weights that they change.
    #[arg(long, conflicts_with_all = ["softmax", "preprocess"])]
    pub adapter: bool,
    /// Write a folder that transformers reads, as FOLDER is one, from which the model was imported
    ///
    /// The folder gets the weights as `model.safetensors`, under the names that FOLDER has, and `config.json` and the tokenizer's files of FOLDER. A classifier's
    /// classes are those that it was trained on.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, conflicts_with_all = ["softmax", "preprocess", "adapter"])]
    pub like: Option<PathBuf>,
    /// Replace a value of the configuration, as in `--set train.epochs=5` (repeatable)
    ///
    /// All of them lie over the files, in their order. A value that is no TOML is taken as text, and so is any value of a key that takes text alone.
    #[arg(long = "set", value_name = "KEY=VALUE", value_hint = ValueHint::Other, value_parser = Suggest::settings(), hide_possible_values = true)]
    pub set: Vec<String>,
    /// Put out probabilities instead of logits (.onnx)
    ///
    /// A softmax over the classes, or a sigmoid for each label.
    #[arg(long)]
    pub softmax: bool,
    /// Take samples as they are, and prepare them inside: images as bytes, a table by its columns (.onnx)
    ///
    /// Pixels go in from 0 to 255, and are resized, cropped and normalised inside. The cells of a table go in as they are, with an input for each
    /// column. Without it the model takes what comes out of the configuration's `transforms`, and the numbers that a table's columns become.
    #[arg(long)]
    pub preprocess: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}
