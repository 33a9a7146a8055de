//! What all measurements have in common: programs, threads, instructions, and the lock.

use super::Options;
use super::process::finish;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Between two measurements, so that threads of the last one are asleep.
const PAUSE: Duration = Duration::from_millis(50);

/// How programs are started here.
pub struct Machine {
    threads: usize,
    simd: Option<String>,
    /// A Python with PyTorch, and PyTorch's version; or why there is none.
    python: Result<(PathBuf, String), String>,
    /// Variables of PyTorch's processes.
    envs: Vec<(String, String)>,
    /// The variable that says where PyTorch keeps compiled code.
    cache: (&'static str, String),
    lock: Option<File>,
}

impl Machine {
    /// Looks for PyTorch.
    pub fn new(options: &Options) -> Result<Machine> {
        let mut envs = Vec::new();
        for pair in &options.envs {
            let (name, value) = pair.split_once('=').with_context(|| format!("`--env {pair}` is not NAME=VALUE"))?;
            envs.push((name.to_string(), value.to_string()));
        }
        let variables: &[(&str, &str)] = match options.simd.as_deref() {
            None | Some("avx512") => &[],
            Some("avx2") => {
                &[("ATEN_CPU_CAPABILITY", "avx2"), ("ONEDNN_MAX_CPU_ISA", "AVX2"), ("MKL_ENABLE_INSTRUCTIONS", "AVX2")]
            }
            Some(other) => bail!("PyTorch cannot be held to `{other}`; `--simd` takes avx512 or avx2"),
        };
        envs.extend(variables.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        // Code that was generated for other instructions has been taken from there, and gone wrong.
        let level = options.simd.as_deref().unwrap_or("best");
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("inductor-{level}"));
        let cache = ("TORCHINDUCTOR_CACHE_DIR", cache.to_string_lossy().into_owned());
        let lock = match &options.lock {
            Some(path) => {
                let file = File::options().create(true).append(true).open(path);
                Some(file.with_context(|| format!("cannot lock `{}`", path.display()))?)
            }
            None => None,
        };
        let mut machine = Machine {
            threads: options.threads,
            simd: options.simd.clone(),
            python: Err(String::new()),
            envs,
            cache,
            lock,
        };
        machine.python = find_torch(&options.python).map(|version| (options.python.clone(), version));
        Ok(machine)
    }

    /// What is compared, in a sentence.
    pub fn describe(&self) -> String {
        let level = self.simd.as_deref().unwrap_or("the best instructions of the machine");
        let peer = match &self.python {
            Ok((_, version)) => format!("PyTorch {version}"),
            Err(why) => format!("no PyTorch ({why})"),
        };
        let envs: String = self.envs.iter().map(|(name, value)| format!(", {name}={value}")).collect();
        format!("runner {} and {peer}{envs}; {} threads, {level}", env!("CARGO_PKG_VERSION"), self.threads)
    }

    /// Whether there is a PyTorch to compare with.
    pub fn has_torch(&self) -> bool {
        self.python.is_ok()
    }

    /// `runner` with `args`, in the folder of the repository.
    pub fn runner(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runner"));
        command.args(args).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
        if let Some(level) = &self.simd {
            command.env("RUNNER_SIMD", level);
        }
        command
    }

    /// What `runner` with `args` and `--json` prints, and the most memory that it had, in MiB.
    ///
    /// # Errors
    /// It fails, or prints something else.
    pub fn json(&self, args: &[&str]) -> Result<(Value, f64)> {
        let mut command = self.runner(args);
        let done = finish(command.arg("--json"), |_, _| true)?;
        ensure!(done.success, "{command:?} failed");
        Ok((serde_json::from_str(&done.out).with_context(|| format!("{command:?}: no JSON"))?, done.rss_mib))
    }

    /// The same of `runner bench` on the CPU, with the number of threads.
    ///
    /// # Errors
    /// As [`Machine::json`].
    pub fn bench(&self, args: &[&str]) -> Result<(Value, f64)> {
        self.json(&[&["bench", "--device", "cpu", "--threads", &self.threads.to_string()], args].concat())
    }

    /// A script of the repository in the Python that has PyTorch; `None` if there is none.
    pub fn script(&self, name: &str, args: &[&str]) -> Option<Command> {
        let (python, _) = self.python.as_ref().ok()?;
        let mut command = Command::new(python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name)).args(args);
        command.args(["--threads", &self.threads.to_string()]);
        let threads = self.threads.to_string();
        command.env("OMP_NUM_THREADS", &threads).env("MKL_NUM_THREADS", &threads);
        command.env(self.cache.0, &self.cache.1);
        command.envs(self.envs.iter().map(|(name, value)| (name, value)));
        Some(command)
    }

    /// Runs `f` while nobody else who keeps to the lock measures.
    ///
    /// # Errors
    /// Those of `f`; the lock cannot be taken.
    pub fn alone<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        std::thread::sleep(PAUSE);
        let Some(file) = &self.lock else { return f() };
        file.lock().context("cannot take the lock")?;
        let result = f();
        file.unlock().context("cannot give the lock back")?;
        result
    }
}

/// The version of PyTorch that `python` has, or why there is none.
fn find_torch(python: &Path) -> Result<String, String> {
    let mut command = Command::new(python);
    command.args(["-c", "import torch; print(torch.__version__)"]).stderr(Stdio::null());
    match command.output() {
        Ok(out) if out.status.success() => Ok(String::from_utf8_lossy(&out.stdout).trim().to_string()),
        Ok(_) => Err(format!("`{}` cannot import torch; name another with --python", python.display())),
        Err(e) => Err(format!("`{}` does not start: {e}; name another with --python", python.display())),
    }
}
