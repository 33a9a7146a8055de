//! `runner data`.

use super::{OutputArgs, Overrides, Suggest, whole};
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `runner data`
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Download a data set, with checksums
    Fetch {
        /// mnist, fashion_mnist, cifar10 or cifar100
        #[arg(value_parser = Suggest::sets(), hide_possible_values = true)]
        source: String,
        /// Folder [default: data/mnist, data/fashion-mnist, data/cifar-10 or data/cifar-100]
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        root: Option<PathBuf>,
        /// Base URL to download from, instead of the known mirrors (repeatable)
        #[arg(long = "mirror", value_name = "URL", value_hint = ValueHint::Url)]
        mirrors: Vec<String>,
        #[command(flatten)]
        #[allow(missing_docs)]
        output: OutputArgs,
    },
    /// Draw images as the model gets them, and measure them all: sizes, classes, mean, deviation; of a table, its columns
    Show(ShowArgs),
    /// Make files of tokens from texts, of any size, for `source = "tokens"`; and learn the tokenizer, if none is given
    Tokenize(TokenizeArgs),
}

/// `runner data tokenize`
#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// Text files in UTF-8, patterns, or folders of .txt, .md and .text; or tables
    #[arg(required = true, value_name = "TEXT", value_hint = ValueHint::AnyPath)]
    pub texts: Vec<PathBuf>,
    /// The column of tables (.csv, .tsv, .jsonl, .parquet, also as .gz and .zst) that has the texts, one in each row [default: the only one with texts, of tables that are no plain .csv or .tsv]
    #[arg(long, value_name = "COLUMN")]
    pub column: Option<String>,
    /// Folder for `train.bin`, `val.bin` and, if it is learnt, `tokenizer.json`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// A `tokenizer.json` of Hugging Face, `bytes`, or `bpe`: byte pairs that are learnt from what is trained on [default: bpe]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tokenizer: Option<String>,
    /// How many tokens `bpe` has at most, 256 of which are the bytes [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(257..=16_777_216))]
    pub vocab_size: Option<u32>,
    /// The part of the text, at its end, whose tokens go to `val.bin`, such as 0.1
    #[arg(long, value_name = "PART")]
    pub validation_split: Option<f64>,
    /// A token to put after each file or row, such as `<|endoftext|>`; `bpe` learns it
    #[arg(long, value_name = "TOKEN")]
    pub end_of_text: Option<String>,
    /// Replace the files of an earlier run, and remove a `val.bin` that is not made anew
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// `runner data show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The configuration (.toml)
    #[arg(value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    /// Draw images after all transforms but the normalisation, with their classes below, into FILE (.png, or `-` for standard output)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// How many images to draw
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000), requires = "out")]
    pub count: u32,
    /// Samples to train on, or to validate on
    #[arg(long, value_enum, default_value_t = ShownSplit::Train)]
    pub split: ShownSplit,
    /// The epoch whose first images are drawn, in its order and with its random changes [default: 1]
    #[arg(long, value_name = "N", value_parser = whole(1..=u64::MAX), requires = "out")]
    pub epoch: Option<u64>,
    /// Write the measured mean and standard deviation into the configuration, as `normalize` in `transforms`
    #[arg(long)]
    pub write_normalize: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// Which samples are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ShownSplit {
    /// Those to train on
    Train,
    /// Those to validate on
    Val,
}
