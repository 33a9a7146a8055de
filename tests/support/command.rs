//! Running the binary in a folder of its own, and reading what it leaves.

#[path = "root.rs"]
mod root;

use runner::checkpoint::{self, Checkpoint};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest time to wait for a process or for a file; only reached where something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder that runs take place in, and one for their temporary files, which a process that is killed leaves there; both are removed at the end.
pub struct Place {
    dir: tempfile::TempDir,
    temporary: tempfile::TempDir,
}

/// What a command did.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Self {
        Place { dir: tempfile::tempdir().unwrap(), temporary: tempfile::tempdir().unwrap() }
    }

    /// A place with the file `c.toml`.
    pub fn with(config: &str) -> Self {
        let place = Place::new();
        place.write("c.toml", config);
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The command, not yet started; words are split at spaces.
    pub fn command(&self, args: &str) -> Command {
        let mut command = Command::new(root::program());
        command.args(args.split_whitespace()).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("TMPDIR", self.temporary.path());
        root::heeding_signals(&mut command);
        command
    }

    /// Runs to the end.
    pub fn run(&self, args: &str) -> Done {
        Done::of(self.command(args).output().unwrap())
    }

    /// Runs to the end in a folder inside.
    pub fn run_in(&self, folder: &str, args: &str) -> Done {
        Done::of(self.command(args).current_dir(self.path(folder)).output().unwrap())
    }

    /// Runs to the end, which must be a good one.
    pub fn ok(&self, args: &str) -> Done {
        let done = self.run(args);
        assert_eq!(done.code, Some(0), "`runner {args}`: {done:?}");
        done
    }

    /// Runs to a good end with a text on standard input.
    pub fn given(&self, args: &str, input: &str) -> Done {
        self.write("given", input);
        let input = fs::File::open(self.path("given")).unwrap();
        let done = Done::of(self.command(args).stdin(input).output().unwrap());
        assert_eq!(done.code, Some(0), "`runner {args}`: {done:?}");
        done
    }

    /// Runs to a failure with this exit code, without a panic; what it says on standard error.
    pub fn fails(&self, args: &str, code: i32) -> String {
        let done = self.run(args);
        assert_eq!(done.code, Some(code), "`runner {args}`: {done:?}");
        assert!(!done.err.contains("panicked"), "`runner {args}`: {done:?}");
        done.err
    }

    /// Starts without waiting.
    pub fn start(&self, args: &str) -> Running {
        self.start_with(args, &[])
    }

    /// Starts without waiting, with these variables.
    pub fn start_with(&self, args: &str, variables: &[(&str, String)]) -> Running {
        let mut command = self.command(args);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        Running::new(&mut command)
    }

    /// A checkpoint in the folder of a run.
    pub fn checkpoint(&self, name: &str) -> Checkpoint {
        checkpoint::read(&self.path(name)).unwrap()
    }

    /// The lines of a run's `metrics.jsonl`, without the times.
    pub fn metrics(&self, run: &str) -> Vec<Value> {
        untimed(&self.read(&format!("{run}/metrics.jsonl")))
    }
}

/// JSON lines without the times.
pub fn untimed(text: &str) -> Vec<Value> {
    let mut lines: Vec<Value> =
        text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect();
    for line in &mut lines {
        let line = line.as_object_mut().unwrap();
        for key in ["seconds", "samples_per_s", "tokens_per_s"] {
            line.remove(key);
        }
    }
    lines
}

/// Two runs, named by their places' folders, ended alike: bits of parameters and optimizer, metrics, best figure.
pub fn assert_same_runs(a: (&Place, &str), b: (&Place, &str)) {
    for file in ["last", "best"] {
        let read = |(p, run): (&Place, &str)| p.checkpoint(&format!("{run}/{file}.safetensors"));
        let (x, y) = (read(a), read(b));
        let place = |c: &Checkpoint| (c.meta.epoch, c.meta.batch, c.meta.step);
        assert_eq!(place(&x), place(&y), "{file}: {} and {}", a.1, b.1);
        assert_eq!(x.meta.best, y.meta.best, "{file}: {} and {}", a.1, b.1);
        assert!(x.tensors.keys().eq(y.tensors.keys()));
        for (name, t) in &x.tensors {
            assert!(t.data == y.tensors[name].data, "{file}: `{name}` differs between {} and {}", a.1, b.1);
        }
    }
    assert_eq!(a.0.metrics(a.1), b.0.metrics(b.1), "{} and {}", a.1, b.1);
}

impl Done {
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Standard output as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("no JSON ({e}): {self:?}"))
    }
}

/// A process that is killed at the latest when the test ends.
pub struct Running {
    child: Child,
}

impl Running {
    pub fn new(command: &mut Command) -> Running {
        Running { child: command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap() }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: `kill` takes plain numbers; the process is our child and not waited for yet, so the number is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Waits until `condition`, or the process's end; whether the condition came first.
    pub fn until(&mut self, mut condition: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        loop {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if condition() {
                return true;
            }
            assert!(start.elapsed() < PATIENCE, "nothing happens");
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    pub fn wait(mut self) -> (ExitStatus, Done) {
        let read = |s: Option<&mut dyn std::io::Read>| {
            let mut text = String::new();
            s.map(|s| s.read_to_string(&mut text).unwrap());
            text
        };
        let mut out = self.child.stdout.take();
        let mut err = self.child.stderr.take();
        // Neither is long enough to fill a pipe while the other is read.
        let out = read(out.as_mut().map(|s| s as _));
        let err = read(err.as_mut().map(|s| s as _));
        let status = self.child.wait().unwrap();
        (status, Done { code: status.code(), out, err })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A small classifier of the bundled digits, on the CPU; `more` comes after its `[data]` keys, and may open other sections.
pub fn digits(more_data: &str, sections: &str) -> String {
    format!(
        r#"device = "cpu"
seed = 3
[data]
source = "digits"
batch_size = 32
limit = 320
limit_val = 100
{more_data}
[loss]
type = "cross_entropy"
{sections}
"#
    )
}

/// Layers with state of every kind: running statistics, dropout's counter.
pub const LAYERS: &str = r#"
[model]
layers = ["flatten", { type = "linear", out_features = 24 }, "batch_norm1d", "relu", { type = "dropout", p = 0.3 }, { type = "linear", out_features = 10 }]
"#;

/// Two epochs of a small model with Adam.
pub fn plain() -> String {
    digits(
        "",
        &format!("{LAYERS}\n[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[train]\nepochs = 2\n[log]\nevery_steps = 1\n"),
    )
}

/// Where real data is, if it is there.
pub fn real_data() -> Option<PathBuf> {
    let folder = std::env::var_os("RUNNER_TEST_DATA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: RUNNER_TEST_DATA is not set");
    }
    folder
}

/// A folder of the repository.
pub fn repository(name: &str) -> PathBuf {
    root::root().join(name)
}
