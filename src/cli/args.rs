//! The command line, as typed.

mod about;
mod check;
mod data;
mod explain;
mod export;
mod generate;
mod init;
mod launch;
mod lr_find;
mod runs;
mod serve;
mod sweep;

pub use about::{DocsArgs, DoctorArgs, ManArgs, VerifyArgs};
pub use check::CheckArgs;
pub use data::{DataCommand, ShowArgs, ShownSplit, TokenizeArgs};
pub use explain::{ExplainArgs, POINTS, REPEATS, ROWS};
pub use export::ExportArgs;
pub use generate::{GenerateArgs, ImportArgs, ModelsArgs, WritingArgs};
pub use init::InitArgs;
pub use launch::LaunchArgs;
pub use lr_find::LrFindArgs;
pub use runs::{CompareArgs, PlotArgs, ReportArgs, RunsArgs};
pub use serve::{LogFormat, ServeArgs};
pub use sweep::{Jobs, SweepArgs};

use super::suggest::Suggest;
use super::version::VERSION;
use crate::api::options::MAX_THREADS;
use crate::config::UNSET_OPTION;
use crate::passes::{FORWARD, PassOptions};
use crate::train::setup::programs::pass_names;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Trains standard neural networks from a TOML file.
#[derive(Debug, Parser)]
#[command(name = "runner", version = VERSION, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a configuration for a folder of photos, a table, a text or an architecture, to train as it stands
    Init(InitArgs),
    /// Train the model that a configuration describes
    Train(TrainArgs),
    /// Train on several ranks, which share the shards of each batch: `launch --ranks 2 -- train CONFIG`
    Launch(LaunchArgs),
    /// Train trials of a configuration with other values, and say which is best
    Sweep(SweepArgs),
    /// Evaluate a checkpoint, or a configuration with `[model] weights`
    Eval(EvalArgs),
    /// Apply a checkpoint, or a configuration with `[model] weights`, to image files, tables, texts or tensors
    Predict(PredictArgs),
    /// Say which columns a model of a table depends on, and how its answers change with a column
    Explain(ExplainArgs),
    /// Write a configuration for a language model or a classifier of texts of Hugging Face's: its folder with `config.json`, `tokenizer.json` and `model.safetensors`
    Import(ImportArgs),
    /// Go on with a text: tokens of a language model, one after the other
    Generate(GenerateArgs),
    /// Answer over HTTP from trained models, until Ctrl-C
    Serve(ServeArgs),
    /// Validate a configuration: layers, shapes, parameters, FLOPs, exact memory plan; needs no data
    Check(CheckArgs),
    /// Time the training step of a configuration, or a matrix product (`bench matmul`)
    Bench(BenchArgs),
    /// Look for a learning rate: train with one that rises from step to step, and write nothing
    LrFind(LrFindArgs),
    /// List runs: state, best and last figures, time; choose, sort, find the best
    Runs(RunsArgs),
    /// Compare runs: what differs in their configurations, and what came of it
    Compare(CompareArgs),
    /// Draw the curves of runs in the terminal
    Plot(PlotArgs),
    /// Write a page about runs: curves, mistakes, configuration, layers, memory, time
    Report(ReportArgs),
    /// See whether the files of a run agree: checkpoints with their checksums, metrics, configuration
    Verify(VerifyArgs),
    /// List the models that are a part of the program, for `use` in `[model]`; `--show NAME` prints the file of one
    Models(ModelsArgs),
    /// Say what a key, a layer, a transform, a loss, an optimizer, a schedule, a source or a warning is: `docs optimizer.lr`, `docs conv2d`
    Docs(DocsArgs),
    /// List the devices that can be trained on
    Devices(OutputArgs),
    /// Say what this machine is and what this program can use of it: a page for a bug report
    Doctor(DoctorArgs),
    /// Write a model for other programs: its weights (.safetensors, .pth), all of it (.onnx), or its tokenizer (.json)
    Export(ExportArgs),
    /// Print the JSON Schema of the configuration language, for editors
    Schema(OutputArgs),
    /// Download data sets, and look at samples
    #[command(subcommand)]
    Data(DataCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the pages of the manual and the completions into a folder, for packages
    Man(ManArgs),
}

/// Where the configuration's values come from.
#[derive(Debug, Clone, Default, Args)]
pub struct Overrides {
    /// Replace a value of the configuration, as in `--set train.epochs=5` (repeatable)
    ///
    /// All of them lie over the files, in their order. A value that is no TOML is taken as text, and so is any value of a key that takes text alone.
    #[arg(long = "set", value_name = "KEY=VALUE", value_hint = ValueHint::Other, value_parser = Suggest::settings(), hide_possible_values = true)]
    pub set: Vec<String>,
    /// Take a key or a section out of the configuration, as in `--unset schedule` (repeatable)
    ///
    /// It applies before any `--set`.
    #[arg(long, value_name = "KEY", value_hint = ValueHint::Other, value_parser = Suggest::keys(), hide_possible_values = true)]
    pub unset: Vec<String>,
    /// Device to run on, instead of the configuration's: auto, cpu, cuda, cuda:N
    ///
    /// Short for `--set device=DEVICE`.
    #[arg(long, value_name = "DEVICE", value_parser = Suggest::devices(), hide_possible_values = true)]
    pub device: Option<String>,
}

impl Overrides {
    /// All overrides as the configuration takes them: `KEY=VALUE`, `--unset KEY`.
    pub fn sets(&self) -> Vec<String> {
        let unset = self.unset.iter().map(|key| format!("{UNSET_OPTION}{key}"));
        let device = self.device.iter().map(|d| format!("device={}", toml::Value::String(d.clone())));
        unset.chain(self.set.iter().cloned()).chain(device).collect()
    }

    /// Whether the command line says on which device to run. A device that a file alone names may be that of another machine.
    pub fn names_device(&self) -> bool {
        let mut keys = self.set.iter().filter_map(|set| set.split_once('=')).map(|(key, _)| key.trim());
        self.device.is_some() || keys.any(|key| ["device", "devices"].contains(&key))
    }
}

/// Which passes make the programs.
#[derive(Debug, Clone, Default, Args)]
pub struct Passes {
    /// Leave out a pass over the graph, to see whether it is at fault, or what it gains (repeatable)
    #[arg(long, value_name = "PASS", value_parser = optional_pass())]
    pub without: Vec<String>,
}

impl Passes {
    /// As the builder of programs takes them.
    pub fn options(&self) -> PassOptions {
        PassOptions { without: self.without.clone(), stop_after: None }
    }

    /// As messages show it: nothing, or ` without pool and fuse`.
    pub fn note(&self) -> String {
        match self.names().as_slice() {
            [] => String::new(),
            names => format!(" without {}", names.join(" and ")),
        }
    }

    /// The names of those that are left out, each once, in the order in which passes run.
    pub fn names(&self) -> Vec<&'static str> {
        pass_names(true).into_iter().filter(|name| self.without.iter().any(|w| w == name)).collect()
    }
}

/// The name of a pass that may be left out.
fn optional_pass() -> PossibleValuesParser {
    PossibleValuesParser::new(pass_names(true))
}

/// How results are printed.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct OutputArgs {
    /// Print only JSON on standard output
    ///
    /// For `train` the lines of `metrics.jsonl` as they are written, for the others one value.
    #[arg(long)]
    pub json: bool,
}

/// `runner train`
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// The configuration (TOML); with --resume it may be left out, or be the run's folder
    #[arg(required_unless_present = "resume", value_hint = ValueHint::AnyPath)]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub passes: Passes,
    /// The run's folder [default: runs/NAME/NUMBER]
    ///
    /// NAME is the configuration's file name, NUMBER the next one that is free.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Continue a run with all that it was started with: from the newest whole checkpoint in its folder, or from this one
    ///
    /// `auto` goes on with the run of CONFIG, or in the folder of --out, if it has saved something, and begins it if not.
    #[arg(long, value_name = "RUN or CHECKPOINT", value_hint = ValueHint::AnyPath, num_args = 0..=1, conflicts_with = "force")]
    pub resume: Option<Option<PathBuf>>,
    /// Start anew in a folder that already holds a run
    ///
    /// The old run stays, whole, until the new one has saved its first checkpoint; then its files are removed. Other files stay. A folder
    /// without a run in which a file or folder has the name of one of a run's, such as a `config.toml` of your own, is refused; so is a run
    /// of which the new one reads a file.
    #[arg(long)]
    pub force: bool,
    /// Download data that is not there for a run that goes on
    ///
    /// A new run does as its configuration says; one that goes on never downloads without this.
    #[arg(long, requires = "resume")]
    pub allow_download: bool,
    /// Compute threads of the CPU [default: all cores]
    ///
    /// By default as many as the process may use. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Stop when so many epochs of the run are done, with everything saved; `--resume` goes on
    ///
    /// The schedule is that of the whole run, and so are the numbers when the run has gone on.
    #[arg(long, value_name = "EPOCH", value_parser = whole(1..=u64::MAX))]
    pub pause_after: Option<u64>,
    /// Do one of everything in a temporary folder, tell what each takes, and keep nothing of it
    ///
    /// A training step with all its batches, the evaluation of a batch, a checkpoint written and read again, and one more step from
    /// there. It fails as the run would, with the same exit codes. The folder is in the one that TMPDIR names, and has the checkpoint in it until
    /// the end. Photos that are kept on a disk are read; none is added to them.
    #[arg(long, conflicts_with = "resume")]
    pub dry_run: bool,
    /// Stop as by Ctrl-C when standard input ends: for programs that start this one, and may be killed
    #[arg(long)]
    pub watch_stdin: bool,
    /// Draw the losses in the terminal, anew after every epoch
    #[arg(long, conflicts_with_all = ["quiet", "json"])]
    pub plot: bool,
    /// Print nothing but warnings and errors
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// `runner eval`
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// A checkpoint (.safetensors), a run's folder (its best checkpoint, else its last), or a configuration (.toml) with `[model] weights`
    #[arg(value_hint = ValueHint::AnyPath)]
    pub model: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub passes: Passes,
    /// Which samples
    #[arg(long, value_enum, default_value_t = SplitName::Val)]
    pub split: SplitName,
    /// Evaluate on this file, of the same kind as that of the training, which need not be there
    ///
    /// A text, a file of tokens, a table, or a list of photos; several by a pattern. Short for `--set data.path=FILE --set data.val_path=FILE`, without the keys that
    /// hold samples out.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, conflicts_with = "split")]
    pub data: Option<PathBuf>,
    /// Write what the model says of every sample to FILE: a table (.csv, or `-` for standard output) or JSON Lines (.jsonl)
    ///
    /// A row for each sample: its number, its file or (of a table) its line or what `id` calls it, target, prediction, probabilities or numbers and, where it is simple, the
    /// loss.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub predictions: Option<PathBuf>,
    /// In the table of `--predictions`, put a `'` before names that a spreadsheet would run as a formula
    ///
    /// Those are names of files and of classes that begin with `=`, `+`, `-`, `@`, a tab or the end of a line. Without it names are written as they are.
    #[arg(long, requires = "predictions")]
    pub guard_formulas: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub writing: WritingArgs,
    /// Download the data if it is not there
    ///
    /// Without it nothing is downloaded, whatever the configuration says.
    #[arg(long)]
    pub allow_download: bool,
    /// Compute threads of the CPU [default: all cores]
    ///
    /// By default as many as the process may use. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// A part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SplitName {
    /// What training validates on: the validation split where there is one, else the test set
    Val,
    /// The source's test set
    Test,
    /// The training set, without augmentation
    Train,
}

/// `runner predict`
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// A checkpoint (.safetensors), a run's folder (its best checkpoint, else its last), or a configuration (.toml) with `[model] weights`
    #[arg(value_hint = ValueHint::AnyPath)]
    pub model: PathBuf,
    /// Image files, folders of images, tables (.csv, .jsonl, .parquet), tensors (.safetensors), patterns (`'photos/**/*.jpg'`), or `-` for standard input: names, the rows of a table, or texts
    ///
    /// A model takes what it was trained on; of a table or a file of tensors each row is a sample. For a model of a table, standard input is CSV or JSON Lines; for all others it has names. Names on standard input stand one a line. Folders are searched with all folders in them, by the endings of images. In a pattern `*` stands for any characters, `?` for
    /// one, `[a-z]` for one of a range, and `**` for any folders; it is in quotes, or the shell replaces it.
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub passes: Passes,
    /// How many classes to show for each sample
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
    /// Write a probability for each class or label: in a table a column `probability_CLASS`, in JSON an object `probabilities`
    ///
    /// The table has `class`, the likeliest, and the columns of all classes in their order, whatever `--top` says.
    #[arg(long)]
    pub probabilities: bool,
    /// Swap black and white of images first: MNIST's digits are light on dark, scans are not
    #[arg(long)]
    pub invert: bool,
    /// How results are written: `text`, `csv` (a row for each sample), `jsonl` (a JSON object a line) or `parquet` (the rows of `csv`)
    ///
    /// Rows and lines are written as they come, in the order of the files. A file that cannot be read has none.
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub format: Option<PredictFormat>,
    /// Write the results to this file instead of standard output; without `--format`, its ending (.csv, .jsonl, .parquet) is the format
    ///
    /// Where the name has no ending, the answers to tables are written in the form of the tables.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    pub out: Option<PathBuf>,
    /// Of tables, write all columns of the rows before what the model says of them
    ///
    /// Columns and cells are as they stand in the table, those of Parquet with their types. They take the place of `file`, `sample` and the `id`. Without `--format` and `--out`
    /// rows are written in the form of the table.
    #[arg(long, conflicts_with_all = ["json", "masks"])]
    pub keep_columns: bool,
    /// In a table, put a `'` before names that a spreadsheet would run as a formula
    ///
    /// Those are names of files and of classes that begin with `=`, `+`, `-`, `@`, a tab or the end of a line. Without it names are written as they are.
    #[arg(long)]
    pub guard_formulas: bool,
    /// Write the class of every pixel into this folder, a PNG file with a palette for each image
    ///
    /// Of a model with a class for every pixel. A file has the name of its image, and the size that the model sees.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub masks: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub writing: WritingArgs,
    /// Compute threads of the CPU [default: all cores]
    ///
    /// By default as many as the process may use. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// How `predict` writes results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PredictFormat {
    /// For people.
    Text,
    /// A table, as RFC 4180 has it.
    Csv,
    /// A JSON object a line.
    Jsonl,
    /// The same table as a Parquet file; it needs `--out`.
    Parquet,
}

/// `runner bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// A configuration (TOML), or the word `matmul`
    #[arg(value_hint = ValueHint::FilePath)]
    pub what: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub passes: Passes,
    /// Timed steps, after 3 that are not timed; on a GPU at least as many in each of five rounds
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Time the evaluation of a batch instead of a training step
    ///
    /// A batch of `eval_batch_size`: loss and metrics, no gradients.
    #[arg(long)]
    pub eval: bool,
    /// Rows and columns of the matrices, for `matmul`
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=32768))]
    pub n: u32,
    /// Compute threads of the CPU [default: all cores]
    ///
    /// By default as many as the process may use. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Time every operation of the step: GFLOP/s, share of what a matrix product reaches, bytes, GB/s
    ///
    /// On a terminal, operations that differ in their layers alone share a row, and so do those after the first 20 that take less than 1 % of the time each.
    /// A pipe or a file gets every operation.
    #[arg(long)]
    pub profile: bool,
    /// A row for each operation of the profile, on a terminal, too
    #[arg(long, requires = "profile")]
    pub all: bool,
    /// Write what was done when to FILE, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Steps in the trace
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trace_steps: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// What `--graph` is, with all passes.
fn graph_help() -> String {
    let passes = pass_names(false).join(", ");
    format!("Print the graph of the training step on the device instead, as it is after this pass: {FORWARD}, {passes}")
}

/// A whole number within bounds, in words that say which.
fn whole(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", bounds.start(), bounds.end()))
    }
}

/// A number of threads.
fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=MAX_THREADS).contains(&n) => Ok(n),
        _ => Err(format!("expected a number from 1 to {MAX_THREADS}")),
    }
}

#[cfg(test)]
mod tests;
