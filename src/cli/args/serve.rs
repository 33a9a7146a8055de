//! `runner serve`.

use super::{OutputArgs, Overrides, threads, whole};
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// `runner serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Models, each as PATH or NAME=PATH: a checkpoint (.safetensors), a run's folder, or a configuration (.toml) with `[model] weights`
    ///
    /// A model without a name is called after its run: `mnist` for runs/mnist/1/best.safetensors.
    #[arg(required = true, value_name = "MODEL", value_hint = ValueHint::AnyPath)]
    pub models: Vec<String>,
    /// The name of the model, where one is given; of several each has its own, as NAME=PATH
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The address to listen on
    ///
    /// By default programs of this machine alone can ask. `0.0.0.0` stands for all addresses of the machine.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: String,
    /// The port to listen on; 0: one that is free
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    pub port: u16,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub overrides: Overrides,
    /// Classes that an answer has, unless a request says how many with `?top=K`
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
    /// Swap black and white of images first, unless a request says so with `?invert=false`
    #[arg(long)]
    pub invert: bool,
    /// Samples that are computed at once [default: as many as take about a millisecond, at most 32]
    ///
    /// Every batch has this size, also when fewer samples wait, so an answer has the same bits in any batch. A larger batch raises the throughput and the time of a single request.
    #[arg(long, alias = "batch", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_batch: Option<u32>,
    /// Milliseconds that a request waits for others at most, where requests come in crowds
    ///
    /// One that comes alone is computed at once.
    #[arg(long, alias = "batch-delay", value_name = "MS", default_value_t = 2, value_parser = whole(0..=60_000))]
    pub max_delay_ms: u64,
    /// Requests of a model that may wait to be computed; the next one is refused with 429
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub queue: u32,
    /// Batches of a model that are computed at a time, each with weights and compute threads of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub executables: u32,
    /// Texts that a language model writes at a time, a token of each in one run, with keys and values of its own; further requests wait
    ///
    /// Where there is no memory for so many, there are fewer. With several executables each of them writes so many.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub texts: u32,
    /// Compute threads of the CPU, for each executable [default: all cores]
    ///
    /// By default as many as the process may use. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Largest body of a request, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_body: u32,
    /// Most pixels of an image
    #[arg(long, value_name = "N", default_value_t = 50_000_000, value_parser = whole(1..=u64::MAX))]
    pub max_pixels: u64,
    /// Most samples of a request, and most prompts
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_rows: u32,
    /// Most tokens that a request may have a language model generate
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: u32,
    /// Memory of all requests together beside the models, in MiB; one that there is no room for is refused with 503
    ///
    /// Bodies, what is made of them, and answers.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_memory: u32,
    /// Most connections at a time; another one waits a second for a place, and is refused with 503
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Seconds that the head of a request may take to arrive, its body, and a client to take an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole(1..=86_400))]
    pub receive_timeout: u64,
    /// Seconds after which a request is refused with 503 that still waits for what is computed of it, or for the first piece of a text
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = whole(1..=86_400))]
    pub answer_timeout: u64,
    /// Seconds that requests have which are under way when the server is asked to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole(0..=86_400))]
    pub drain_timeout: u64,
    /// Ask for a key of this file, which has one a line: requests send it as `Authorization: Bearer KEY`
    ///
    /// The page and the addresses below /v2/health need none.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub api_key_file: Option<PathBuf>,
    /// Answer requests to this host name, too (repeatable)
    ///
    /// Without keys, and on the loopback device, requests to an address or to `localhost` alone are answered: any other name can be made to lead to this machine by a page in a browser.
    #[arg(long, value_name = "NAME", conflicts_with = "api_key_file")]
    pub allow_host: Vec<String>,
    /// Speak TLS with this certificate: a PEM file with it, and with those that lead to one that clients know
    ///
    /// SIGHUP reads it and the key anew.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// How requests are written down on standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log: LogFormat,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
}

/// How requests are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object a line
    Json,
    /// Not at all
    Off,
}
