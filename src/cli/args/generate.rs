//! `runner generate`.

use super::{OutputArgs, Overrides, threads, whole};
use crate::api::generate::{AT_A_TIME, Beams, Options};
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
    /// The text to go on with; or that is to be answered, by a model that answers texts: it is put into the template that the model was trained with; may be given several times; `-`: standard input [default: standard input where that is no terminal]
    ///
    /// Without a text, or with an empty one, the model begins with the token that ends texts, else with a new line.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["prompt_file", "prompts"])]
    pub prompt: Vec<String>,
    /// The file with this text; `-`: standard input
    #[arg(long, value_name = "FILE", conflicts_with = "prompts", value_hint = ValueHint::FilePath)]
    pub prompt_file: Option<PathBuf>,
    /// A file with a prompt on each line, of which empty ones are left out; `-`: standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub prompts: Option<PathBuf>,
    /// Go on with the text as it is, of a model that was trained on `text_pairs`: without the template that it was trained with
    #[arg(long)]
    pub raw: bool,
    /// How many tokens to generate at most
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: u32,
    /// How many texts to generate to each prompt, each with draws of its own; with `--beams`, which has no draws, the N best
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: u32,
    /// What logits are divided by: below 1 probable tokens become more probable; 0 takes the most probable one each time [default: 1; of answers to texts 0]
    #[arg(long, conflicts_with = "beams", value_name = "T", value_parser = temperature)]
    pub temperature: Option<f32>,
    /// Draw one of the K most probable tokens [default: of all]
    #[arg(long, conflicts_with = "beams", value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub top_k: Option<u32>,
    /// Draw one of the most probable tokens whose probabilities come to P
    #[arg(long, conflicts_with = "beams", value_name = "P", default_value_t = 1.0, value_parser = share)]
    pub top_p: f32,
    /// Leave out tokens whose probability is less than P of that of the most probable one
    #[arg(long, conflicts_with = "beams", value_name = "P", default_value_t = 0.0, value_parser = share)]
    pub min_p: f32,
    /// Make tokens that are there already less probable: positive logits are divided by this, negative ones multiplied
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = penalty)]
    pub repetition_penalty: f32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub writing: WritingArgs,
    /// A text that ends the generated one, and is not written; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Keys the draws: the same seed gives the same text
    #[arg(long, conflicts_with = "beams", value_name = "N", default_value_t = 0, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// Compute every token from the whole text before it, and keep nothing: slow, the same tokens, in bf16 but for rounding
    #[arg(long, conflicts_with = "texts")]
    pub without_cache: bool,
    /// Compute threads of the CPU [default: all cores]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// How texts are written.
#[derive(Debug, Clone, Args)]
pub struct WritingArgs {
    /// Texts that are written at a time, a token of each in one run, with keys and values of its own; where there is no memory for so many, there are fewer [default: as many as there are to write, 8 at most; answers of a model of `text_to_text`: `eval_batch_size`]
    #[arg(long = "texts", id = "texts", conflicts_with = "beams", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub at_a_time: Option<u32>,
    /// Look for the most probable text by going on with N at a time (beam search), in place of a draw or of the most probable token each time; it is written when it is found
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub beams: Option<u32>,
    /// With `--beams`: the score of a text is its log-probability divided by its number of tokens to the power of X; above 0 prefers longer texts, below 0 shorter ones
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "beams", value_parser = power)]
    pub length_penalty: f32,
    /// With `--beams`: end as soon as N texts have ended [default: when none that goes on has a better score than the worst of them]
    #[arg(long, requires = "beams")]
    pub early_stopping: bool,
}

impl WritingArgs {
    /// How many of `count` texts are written at a time; beam search goes on with several of one.
    pub fn texts(&self, count: usize) -> usize {
        if self.beams.is_some() { 1 } else { count.min(self.at_a_time.map_or(AT_A_TIME, |texts| texts as usize)) }
    }

    /// How a model is opened to answer `count` texts, or more; by default `batch` of them together, where answers stand in a sequence of their own.
    pub fn options(&self, count: usize, batch: usize) -> Options {
        let batch = self.at_a_time.map_or(batch, |texts| texts as usize);
        Options { texts: self.texts(count), batch, beams: self.beams(), ..Options::default() }
    }

    /// The option that asks for something, if one does.
    pub fn asked(&self) -> Option<&'static str> {
        let beams = self.beams.map(|_| "--beams");
        beams.or(self.at_a_time.map(|_| "--texts"))
    }

    /// What the search needs, if one is asked for.
    pub fn beams(&self) -> Option<Beams> {
        let (length_penalty, early_stopping) = (f64::from(self.length_penalty), self.early_stopping);
        self.beams.map(|count| Beams { count: count as usize, length_penalty, early_stopping })
    }
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

fn power(text: &str) -> Result<f32, String> {
    within(text, |x| x.abs() <= 100.0, "a number from -100 to 100")
}

fn penalty(text: &str) -> Result<f32, String> {
    within(text, |x| x > 0.0, "a number above 0, up to 3.4e38")
}
