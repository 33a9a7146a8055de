//! Photos from folders into batches: our loader beside PyTorch's `DataLoader` with torchvision, in turn on one machine:
//!
//! ```text
//! cargo bench --bench loader -- --photos DIR --python venv/bin/python
//! ```
//!
//! `DIR` has a folder of photos for each class. Both read, decode, crop, resize and flip; PyTorch's makes normalised floats, too, which
//! `runner` does as the first operation of the model. Without a Python that has torchvision it measures ours alone.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use runner::backend::Backend as _;
use runner::backend::cpu::CpuBackend;
use runner::data::image_folder::ImageFolderOptions;
use runner::data::{Interpolation, Loader, LoaderOptions, Position, Size, Source, Split, Transform, open};
use runner::graph::{DType, Input, Shape};
use runner::plan::{SlotInput, SlotLayout};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Our loader beside PyTorch's `DataLoader`, in turn on one machine.
#[derive(Debug, Parser)]
struct Options {
    /// Folder with a folder of photos for each class
    #[arg(long, value_name = "DIR")]
    photos: PathBuf,
    /// A Python with PyTorch and torchvision
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// Threads of ours, and worker processes of PyTorch's
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: usize,
    /// Rows and columns of what the model is given
    #[arg(long, value_name = "PIXELS", default_value_t = 224)]
    size: usize,
    /// Rounds, in each of which all are measured once; the median of them counts
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// How long each is measured in a round
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// What `cargo bench` says to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// The usual transforms of training, and of validation.
const TRANSFORMS: [&str; 2] = ["train", "val"];

/// torchvision's ways to decode.
const DECODERS: [&str; 2] = ["pillow", "tensor"];

fn main() -> Result<()> {
    // `cargo test --all-targets` runs this too, and without the flag: building is test enough.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let options = Options::parse();
    ensure!(options.rounds > 0, "without a round there is nothing to tell");
    println!(
        "{} workers, batches of 32, {2}×{2} pixels, median of {1} rounds: images a second\n",
        options.workers, options.rounds, options.size
    );
    println!("| transforms | runner | Pillow | ratio | tensors | ratio |\n| --- | --- | --- | --- | --- | --- |");
    for transforms in TRANSFORMS {
        let mut ours = Ours::start(&options, transforms)?;
        let mut peers: Vec<_> = DECODERS.iter().map(|decoder| Peer::start(&options, decoder, transforms)).collect();
        let mut figures = vec![Vec::new(); 1 + peers.len()];
        for _ in 0..options.rounds {
            figures[0].push(ours.measure(options.seconds)?);
            for (peer, figures) in peers.iter_mut().zip(&mut figures[1..]) {
                figures.extend(peer.as_mut().map(|peer| peer.measure(options.seconds)).transpose()?);
            }
        }
        let ratio = |at: usize| median(figures[0].iter().zip(&figures[at]).map(|(a, b)| a / b).collect());
        let cell = |number: Option<f64>, digits: usize| number.map_or(String::new(), |n| format!("{n:.digits$}"));
        let row: Vec<String> =
            (1..figures.len()).flat_map(|at| [cell(median(figures[at].clone()), 0), cell(ratio(at), 2)]).collect();
        println!("| {transforms} | {} | {} |", cell(median(figures[0].clone()), 0), row.join(" | "));
    }
    Ok(())
}

/// The middle of some numbers, if there are any.
fn median(mut list: Vec<f64>) -> Option<f64> {
    list.sort_by(f64::total_cmp);
    list.get(list.len() / 2).copied()
}

/// Our loader. It stands still between measurements: its slots are full.
struct Ours {
    loader: Loader,
    ready: usize,
}

impl Ours {
    fn start(options: &Options, transforms: &str) -> Result<Ours> {
        let source = Source::ImageFolder(ImageFolderOptions {
            root: options.photos.clone(),
            classes: None,
            trained: false,
            strict: false,
        });
        let split: Split = open(&source)?.train;
        let side = options.size;
        let (bilinear, antialias) = (Interpolation::Bilinear, true);
        let transforms = match transforms {
            "train" => vec![
                Transform::RandomResizedCrop {
                    size: [side; 2],
                    scale: [0.08, 1.0],
                    ratio: [3.0 / 4.0, 4.0 / 3.0],
                    interpolation: bilinear,
                    antialias,
                },
                Transform::RandomHorizontalFlip { p: 0.5 },
            ],
            _ => vec![
                Transform::Resize { size: Size::Shorter(side * 256 / 224), interpolation: bilinear, antialias },
                Transform::CenterCrop { size: [side; 2] },
            ],
        };
        let batch = 32;
        let shape = Shape::from([batch, side, side, 3]);
        let bytes = shape.len();
        let layout = SlotLayout {
            inputs: vec![SlotInput { input: Input::Field(0), shape, dtype: DType::U8, offset: 0 }],
            bytes,
        };
        let ready = 2 + options.workers;
        let device = CpuBackend::new(Some(1))?;
        let buffers = (0..ready).map(|_| device.host_buffer(bytes)).collect::<Result<_>>()?;
        let loading =
            LoaderOptions { batch_size: batch, workers: options.workers, transforms, ..LoaderOptions::default() };
        let loader = Loader::start(&split, loading, &layout, buffers, Position::default())?;
        Ok(Ours { loader, ready })
    }

    fn next(&mut self) -> Result<usize> {
        let batch = self.loader.next()?.context("batches have come to an end")?;
        let n = batch.shape.samples;
        self.loader.release(batch);
        Ok(n)
    }

    fn measure(&mut self, seconds: f64) -> Result<f64> {
        // Batches that lie ready are not counted.
        for _ in 0..self.ready {
            self.next()?;
        }
        let (start, mut images) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs_f64(seconds) {
            images += self.next()?;
        }
        Ok(images as f64 / start.elapsed().as_secs_f64())
    }
}

/// `scripts/bench_dataloader.py --serve`. It stands still between measurements, and ends when its input does.
struct Peer {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// `None` without torchvision.
    fn start(options: &Options, decoder: &str, transforms: &str) -> Option<Peer> {
        let mut command = Command::new(&options.python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/bench_dataloader.py"));
        command.args(["--serve", "--decoder", decoder, "--transforms", transforms, "--root"]).arg(&options.photos);
        command.args(["--size", &options.size.to_string(), "--workers", &options.workers.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut output = BufReader::new(child.stdout.take()?);
        let mut line = String::new();
        let read = output.read_line(&mut line).ok()?;
        (read > 0).then_some(Peer { child, output })
    }

    fn measure(&mut self, seconds: f64) -> Result<f64> {
        writeln!(self.child.stdin.as_mut().context("PyTorch's process has ended")?, "{seconds}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let figures: serde_json::Value = serde_json::from_str(&line).with_context(|| format!("no figures: {line}"))?;
        figures["images_per_s"].as_f64().with_context(|| format!("no figure: {line}"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.stdin = None;
        let _ = self.child.wait();
    }
}
