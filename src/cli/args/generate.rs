//! `runner generate`.

use super::{OutputArgs, Overrides, threads};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `runner generate`
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// A checkpoint (.safetensors), a run's folder (its best checkpoint, else its last), or a configuration (.toml) with `[model] weights`
    #[arg(value_hint = ValueHint::AnyPath)]
    pub model: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    /// The text to go on with [default: the token that ends texts, else a new line]; or that is to be answered, by a model that answers texts
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file")]
    pub prompt: Option<String>,
    /// The file with this text; `-`: standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub prompt_file: Option<PathBuf>,
    /// How many tokens to generate at most
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: u32,
    /// How many texts to generate, each with draws of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: u32,
    /// What logits are divided by: below 1 probable tokens become more probable; 0 takes the most probable one each time [default: 1; of answers to texts 0]
    #[arg(long, value_name = "T", value_parser = temperature)]
    pub temperature: Option<f32>,
    /// Draw one of the K most probable tokens [default: of all]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub top_k: Option<u32>,
    /// Draw one of the most probable tokens whose probabilities come to P
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = share)]
    pub top_p: f32,
    /// Leave out tokens whose probability is less than P of that of the most probable one
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = share)]
    pub min_p: f32,
    /// Make tokens that are there already less probable: positive logits are divided by this, negative ones multiplied
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = penalty)]
    pub repetition_penalty: f32,
    /// A text that ends the generated one, and is not written; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Keys the draws: the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Compute every token from the whole text before it, and keep nothing: slow, the same tokens
    #[arg(long)]
    pub without_cache: bool,
    /// Compute threads of the CPU [default: all cores]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// `runner import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The folder; or `hf:OWNER/MODEL`, whose files are fetched from Hugging Face's hub
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Write the configuration to this file [default: the model's name with .toml, in the current folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Tags of words are to be learnt: each token of the encoder has a class, in the place of each text
    #[arg(long)]
    pub tags: bool,
    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// `runner models`
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// Print the file of this model, to copy and change
    #[arg(long, value_name = "NAME")]
    pub show: Option<String>,
    /// List the weights that `[model] weights` takes by name
    #[arg(long, conflicts_with = "show")]
    pub weights: bool,
    /// Fetch weights by name, `torchvision/MODEL` or `hf:OWNER/MODEL`, into the user's caches, and print where they are
    #[arg(long, value_name = "NAME", conflicts_with_all = ["show", "weights"])]
    pub fetch: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// A number within bounds, in words that say which.
fn within(text: &str, fits: impl Fn(f32) -> bool, expected: &str) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|number: &f32| number.is_finite() && fits(*number))
        .ok_or_else(|| format!("expected {expected}"))
}

fn temperature(text: &str) -> Result<f32, String> {
    within(text, |t| t >= 0.0, "a number from 0 to 3.4e38")
}

fn share(text: &str) -> Result<f32, String> {
    within(text, |p| (0.0..=1.0).contains(&p), "a number from 0 to 1")
}

fn penalty(text: &str) -> Result<f32, String> {
    within(text, |x| x > 0.0, "a number above 0, up to 3.4e38")
}
