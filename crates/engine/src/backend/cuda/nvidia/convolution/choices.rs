//! The cache of choices on disk: what is chosen for a convolution by measuring is chosen once on a machine. Every later start
//! takes it from here, so that results are the same bits.
//!
//! There is a file for each GPU, driver, cuDNN and version of this program. A file that is torn, of something else or cannot
//! be read counts for nothing, and the next choice replaces it. Of processes that choose at the same time the first one's
//! choice holds for all.

use crate::backend::gpu::target::Form;
use crate::files::{self, durable};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Version of the form of what is kept.
const VERSION: u32 = 1;

/// Most bytes of a file: a convolution takes about two hundred.
const MOST_BYTES: u64 = 4 << 20;

/// What computes a convolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Our own kernels.
    Own,
    /// The plan of this tag.
    Plan {
        /// How the library was asked.
        form: Form,
        /// See [`super::engines`].
        tag: String,
    },
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Own => f.write_str("own"),
            Choice::Plan { form: Form::Plain, tag } => write!(f, "plain {tag}"),
            Choice::Plan { form: Form::Fused, tag } => write!(f, "fused {tag}"),
            Choice::Plan { form: Form::Narrow, tag } => write!(f, "narrow {tag}"),
        }
    }
}

impl Choice {
    /// From the form of its `Display`.
    pub fn parse(text: &str) -> Option<Choice> {
        let Some((form, tag)) = text.split_once(' ') else { return (text == "own").then_some(Choice::Own) };
        let form = match form {
            "plain" => Form::Plain,
            "fused" => Form::Fused,
            "narrow" => Form::Narrow,
            _ => return None,
        };
        Some(Choice::Plan { form, tag: tag.into() })
    }
}

/// For what choices hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The GPU's name.
    pub gpu: String,
    /// Release of the driver, and the CUDA version that it knows.
    pub driver: String,
    /// Version of cuDNN.
    pub cudnn: usize,
    /// Version of this program, whose own kernels a choice may be.
    pub program: String,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { gpu, driver, cudnn, program } = self;
        write!(f, "{gpu}, driver {driver}, cuDNN {cudnn}, runner {program}")
    }
}

/// Choices with what they hold for: the content of a file, and of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    version: u32,
    /// For what they hold.
    pub machine: Machine,
    /// By the convolution.
    plans: BTreeMap<String, String>,
}

impl Choices {
    /// None yet.
    pub fn new(machine: Machine) -> Choices {
        Choices { version: VERSION, machine, plans: BTreeMap::new() }
    }

    /// From JSON; `None` if that is nothing of this version.
    pub fn parse(json: &[u8]) -> Option<Choices> {
        serde_json::from_slice(json).ok().filter(|choices: &Choices| choices.version == VERSION)
    }

    /// As JSON for people.
    fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).expect("text and numbers have a form in JSON")
    }

    /// As JSON in one line.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("text and numbers have a form in JSON")
    }

    /// Those of `machine` that are kept in `folder`.
    pub fn kept_in(folder: &Path, machine: &Machine) -> Choices {
        Choices::read(&folder.join(file_name(machine)), machine)
    }

    fn read(file: &Path, machine: &Machine) -> Choices {
        let read = files::read(file, MOST_BYTES).ok().and_then(|bytes| Choices::parse(&bytes));
        read.filter(|choices| choices.machine == *machine).unwrap_or_else(|| Choices::new(machine.clone()))
    }

    /// What was chosen for a convolution.
    pub fn get(&self, problem: &str) -> Option<Choice> {
        Choice::parse(self.plans.get(problem)?)
    }

    /// Notes a choice.
    pub fn insert(&mut self, problem: &str, choice: &Choice) {
        self.plans.insert(problem.to_owned(), choice.to_string());
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }
}

/// The file of a machine's choices.
#[derive(Debug)]
pub struct Store {
    file: PathBuf,
    lock: File,
    machine: Machine,
}

impl Store {
    /// Opens the choices of `machine` in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub fn open(folder: &Path, machine: &Machine) -> io::Result<Store> {
        durable::create_folders(folder)?;
        let file = folder.join(file_name(machine));
        let lock = File::options().create(true).append(true).open(file.with_extension("lock"))?;
        let store = Store { file, lock, machine: machine.clone() };
        // Some file systems have no locks; to find that out now is cheaper than after having measured.
        store.locked(|| Ok(()))?;
        Ok(store)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    fn locked<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.lock.lock()?;
        let done = work();
        // It is let go of when the file is closed, at the latest.
        let _ = self.lock.unlock();
        done
    }

    /// The choices that are there.
    fn read(&self) -> Choices {
        Choices::read(&self.file, &self.machine)
    }

    /// What was chosen for a convolution, here or elsewhere.
    pub fn get(&self, problem: &str) -> Option<Choice> {
        self.read().get(problem)
    }

    /// Keeps a choice; the one that holds from now on. `instead_of` is one that is there and of no use.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, problem: &str, choice: Choice, instead_of: Option<&Choice>) -> io::Result<Choice> {
        self.locked(|| {
            let mut choices = self.read();
            if let Some(other) = choices.get(problem).filter(|other| Some(other) != instead_of) {
                return Ok(other);
            }
            choices.insert(problem, &choice);
            durable::write(&self.file, choices.to_text().as_bytes())?;
            Ok(choice)
        })
    }
}

/// A readable name for the file.
fn file_name(machine: &Machine) -> String {
    let Machine { gpu, driver, cudnn, program } = machine;
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let of: String = format!("{cudnn}-{gpu}-{driver}-{program}").chars().map(plain).take(200).collect();
    format!("cudnn-{of}.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine() -> Machine {
        let text = |s: &str| s.to_owned();
        Machine { gpu: text("NVIDIA H200"), driver: text("580.65.06 (13.0)"), cudnn: 91002, program: text("0.1.0") }
    }

    fn plan(tag: &str) -> Choice {
        Choice::Plan { form: Form::Plain, tag: tag.into() }
    }

    #[test]
    fn choices_are_written_as_they_are_read() {
        let [fused, narrow] = [Form::Fused, Form::Narrow].map(|form| Choice::Plan { form, tag: "eng3_k1=2".into() });
        let others = [(fused, "fused eng3_k1=2"), (narrow, "narrow eng3_k1=2")];
        for (choice, text) in [(Choice::Own, "own"), (plan("eng0"), "plain eng0")].into_iter().chain(others) {
            assert_eq!((choice.to_string().as_str(), Choice::parse(text)), (text, Some(choice)));
        }
        for wrong in ["", "owner", "plain", "else eng0"] {
            assert_eq!(Choice::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_first_choice_holds_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let (one, two) = (Store::open(&folder, &machine()).unwrap(), Store::open(&folder, &machine()).unwrap());
        assert_eq!(one.get("p"), None);
        assert_eq!(two.keep("p", plan("eng1"), None).unwrap(), plan("eng1"));
        assert_eq!(one.keep("p", plan("eng2"), None).unwrap(), plan("eng1"));
        assert_eq!(one.keep("q", Choice::Own, None).unwrap(), Choice::Own);
        assert_eq!((two.get("p"), two.get("q")), (Some(plan("eng1")), Some(Choice::Own)));
        // But for one that is of no use.
        assert_eq!(one.keep("p", plan("eng3"), Some(&plan("eng1"))).unwrap(), plan("eng3"));
        assert_eq!(two.keep("p", plan("eng4"), Some(&plan("eng1"))).unwrap(), plan("eng3"));
    }

    #[test]
    fn what_is_torn_or_of_something_else_counts_for_nothing_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), &machine()).unwrap();
        store.keep("p", plan("eng1"), None).unwrap();
        let whole = fs::read_to_string(store.path()).unwrap();
        let newer = whole.replace("\"version\": 1", "\"version\": 2");
        let other = whole.replace("H200", "H100");
        let senseless = whole.replace("plain eng1", "eng1");
        for text in [&whole[..whole.len() / 2], "", "{}", "[1]", "\0\u{1}", &newer, &other, &senseless] {
            assert_ne!(text, whole);
            fs::write(store.path(), text).unwrap();
            assert_eq!(store.get("p"), None, "{text}");
            assert_eq!(store.keep("p", plan("eng2"), None).unwrap(), plan("eng2"), "{text}");
            assert_eq!(Store::open(dir.path(), &machine()).unwrap().get("p"), Some(plan("eng2")), "{text}");
        }
        // Another machine's are in a file of their own.
        let elsewhere = Machine { cudnn: 91003, ..machine() };
        assert_eq!(Store::open(dir.path(), &elsewhere).unwrap().get("p"), None);
        assert_eq!(store.get("p"), Some(plan("eng2")));
    }

    #[test]
    fn where_nothing_can_be_written_there_is_no_store() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(Store::open(&dir.path().join("file/folder"), &machine()).is_err());
        assert!(Choices::kept_in(&dir.path().join("file/folder"), &machine()).is_empty());
        let store = Store::open(dir.path(), &machine()).unwrap();
        fs::create_dir(store.path()).unwrap();
        assert!(store.keep("p", Choice::Own, None).is_err());
    }
}
