//! What a run is asked for with.

use super::super::failure::Failure;
use super::super::members::Members;
use super::super::options::expect_valid;
use super::team::Team;
use crate::config::Loaded;
use crate::terminal::Listener;
use crate::train::run::report::Verbosity;
use crate::train::setup::programs::pass_names;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Which run.
#[derive(Debug, Clone)]
pub enum Asked {
    /// A new run of the configuration in this file.
    New(PathBuf),
    /// The same, where the file is a copy that the program has made of the one of this name, for which warnings were already shown.
    Copied(PathBuf, String),
    /// A new run of a configuration that is loaded already, with the values that lie over it.
    Loaded(Box<Loaded>),
    /// A run that is there goes on.
    Resume(Resume),
}

/// Which run goes on. At least one of the three is there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resume {
    /// The configuration's file, to be held against the run's own.
    pub config: Option<PathBuf>,
    /// The run's folder, or with a checkpoint another one in which it goes on.
    pub folder: Option<PathBuf>,
    /// The checkpoint, if not the newest.
    pub checkpoint: Option<PathBuf>,
}

/// Makes the flag by which the loop is asked to stop. It is called when the loop begins; with `false` by a rank that does not speak.
pub type Interrupt = Arc<dyn Fn(bool) -> Result<Arc<AtomicBool>, Failure> + Send + Sync>;

/// A run that is asked for.
#[derive(Clone)]
pub struct Request {
    /// Which.
    pub run: Asked,
    /// Values that lie over the configuration, in the form of `--set`: `KEY=VALUE`, `--unset KEY`. One that is loaded already has its own.
    pub sets: Vec<String>,
    /// Passes over the graph that are left out.
    pub without: Vec<String>,
    /// The run's folder; by default `runs/NAME/NUMBER`.
    pub out: Option<PathBuf>,
    /// A new run may take the place of another one in its folder.
    pub replace: bool,
    /// A run that goes on may download data that is not there. A new one does as its configuration says.
    pub allow_download: bool,
    /// Compute threads of the CPU, 1 to 1024; all cores, if `None`.
    pub threads: Option<usize>,
    /// Who makes a step together.
    pub team: Team,
    /// Stop when so many epochs of the run are done.
    pub pause_after: Option<u64>,
    /// What is shown of the run.
    pub verbosity: Verbosity,
    /// Leaves out the messages about the device and the batch.
    pub quiet: bool,
    /// Draw the losses in the terminal.
    pub plot: bool,
    /// Which of several trainings it is, as `seed` and its number from 1, for the lines that other programs read.
    pub member: Option<(&'static str, usize)>,
    /// Gets the messages; `None`: they go to the terminal.
    pub listener: Option<Listener>,
    /// By what the loop is asked to stop.
    pub interrupt: Interrupt,
}

impl Request {
    /// A run as the command `train` makes it without options. Its messages are dropped: [`Request::with_listener`] sets a listener.
    pub fn new(run: Asked) -> Request {
        let never: Interrupt = Arc::new(|_| Ok(Arc::default()));
        Request {
            run,
            sets: Vec::new(),
            without: Vec::new(),
            out: None,
            replace: false,
            allow_download: false,
            threads: None,
            team: Team::Threads(1),
            pause_after: None,
            verbosity: Verbosity::Heard,
            quiet: false,
            plot: false,
            member: None,
            listener: Some(Arc::new(|_| ())),
            interrupt: never,
        }
    }

    /// A new run of the configuration in this file.
    pub fn of_config(path: impl Into<PathBuf>) -> Request {
        Request::new(Asked::New(path.into()))
    }

    /// The run in this folder goes on, from its newest whole checkpoint.
    pub fn resume(folder: impl Into<PathBuf>) -> Request {
        Request::new(Asked::Resume(Resume { folder: Some(folder.into()), ..Resume::default() }))
    }

    /// The same, with a listener that gets the messages and every line of `metrics.jsonl`.
    pub fn with_listener(self, listener: Listener) -> Request {
        Request { verbosity: Verbosity::Heard, listener: Some(listener), ..self }
    }

    /// The same; it stops, with its state saved, after the update in which the flag is set.
    pub fn stopped_by(self, flag: Arc<AtomicBool>) -> Request {
        Request { interrupt: Arc::new(move |_| Ok(flag.clone())), ..self }
    }

    /// Refuses what no run can be asked for.
    ///
    /// # Errors
    /// An option is not what it may be, or goes with another one.
    pub(super) fn expect_valid(&self) -> Result<(), Failure> {
        expect_valid(self.threads, &self.without)?;
        if self.out.as_ref().is_some_and(|out| out.as_os_str().is_empty()) {
            return Err(Failure::Usage(
                "the path of the run's folder is empty\nhelp: name a folder, or leave it out: it is `runs/NAME/NUMBER` then".into(),
            ));
        }
        if let Asked::Resume(Resume { folder: Some(folder), .. }) = &self.run
            && let Some(members) = Members::of(folder)?
        {
            let (place, one) = (folder.display(), members.one());
            return Err(Failure::Usage(format!(
                "`{place}` holds {}, and a run is one training\nhelp: `runner train --resume {place}` goes on with all of them, and the \
                 library with each: `{place}/{one}-1`",
                members.counted()
            )));
        }
        if matches!(self.run, Asked::Loaded(_)) && !self.sets.is_empty() {
            return Err(Failure::Usage(format!(
                "`sets` does not change a configuration that is loaded already: `{}`\nhelp: load the configuration with them, as by `config::load_str`",
                self.sets.join("`, `")
            )));
        }
        Ok(())
    }

    /// The passes that are left out, each once, in the order in which they run.
    pub fn left_out(&self) -> Vec<String> {
        let left_out = pass_names(true).into_iter().filter(|name| self.without.iter().any(|w| w == name));
        left_out.map(String::from).collect()
    }
}
