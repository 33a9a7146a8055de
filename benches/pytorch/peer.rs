//! A process of PyTorch's that stands by, idle, until it is asked to measure.

use super::Options;
use super::machine::Machine;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Ways to run the same step in PyTorch, and the same evaluation in ONNX Runtime and OpenVINO; each with glibc's allocator as it is,
/// and set to keep what is freed.
pub const MODES: [&str; 6] = ["eager", "channels_last", "compile", "compile_channels_last", "onnxruntime", "openvino"];

/// Those that are measured where none is named. The one that is missing has not been the fastest yet.
pub const TRAINING_MODES: [&str; 3] = ["eager", "channels_last", "compile"];

/// The same for `--eval`.
pub const EVALUATION_MODES: [&str; 4] = ["channels_last", "compile", "onnxruntime", "openvino"];

/// See [`MODES`].
pub const ALLOCATORS: [&str; 2] = ["stock", "tuned"];

/// `scripts/bench_pytorch.py --serve`, warm. Ends when dropped.
pub struct Peer {
    child: Child,
    /// Taken when it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What it has measured.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Measured {
    /// Median over the steps, in milliseconds.
    pub step_ms: f64,
    /// Trained numbers of the model.
    pub parameters: u64,
    /// Most memory that it ever had, in KiB.
    pub peak_rss_kib: f64,
}

impl Peer {
    /// Starts it and waits until it is warm; `None` without PyTorch.
    ///
    /// # Errors
    /// It does not start, or fails.
    pub fn start(
        machine: &Machine,
        options: &Options,
        model: &[String],
        mode: &str,
        allocator: &str,
    ) -> Result<Option<Peer>> {
        let args = ["--serve", "--mode", mode, "--allocator", allocator];
        let Some(mut command) = machine.script("bench_pytorch.py", &args) else { return Ok(None) };
        command.args(model);
        if options.fused {
            command.arg("--fused");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("no output of PyTorch's")?);
        let mut peer = Peer { child, input, output };
        peer.line().with_context(|| format!("PyTorch, {mode}"))?;
        Ok(Some(peer))
    }

    /// Runs steps for so many seconds.
    ///
    /// # Errors
    /// It has failed.
    pub fn measure(&mut self, seconds: f64) -> Result<Measured> {
        writeln!(self.input.as_mut().context("PyTorch's process has ended")?, "{seconds}")?;
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("no figures: {line}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let n = self.output.read_line(&mut line)?;
        anyhow::ensure!(n > 0, "the process ended before its time");
        Ok(line)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The end of its input is the sign to go; it may have gone already.
        self.input = None;
        let _ = self.child.wait();
    }
}
