//! All cases of a command, or a part of them that is spread evenly.

use crate::faults::{self, Fault};
use crate::library::library;
use crate::operation::Operation;
use crate::place::{Ended, Place};
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// One fault.
pub struct Case {
    /// The number of the operation, from 1.
    pub n: usize,
    /// The operation as it was without faults.
    pub operation: Operation,
    pub fault: Fault,
}

/// A command whose operations are to fail.
pub struct Sweep<'a> {
    /// For messages.
    pub name: &'a str,
    /// What is there before.
    pub start: &'a Place,
    /// The command.
    pub args: &'a str,
    /// It does the same operations every time.
    pub steady: bool,
    /// Without `RUNNER_FAULTS=all`: every so manieth case, and the first of some of the kinds.
    pub every: usize,
    /// Whether the command has done all of its work, given how the folder looks and what it said.
    pub done: &'a (dyn Fn(&Place, &Ended) -> Result<(), String> + Sync),
    /// What must hold after a fault, however the command ended; it may run commands of its own, without faults.
    pub after: &'a (dyn Fn(&Place, &Case, &Ended) -> Result<(), String> + Sync),
}

/// Says something at once; what a test prints is only seen if it fails.
pub fn say(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether all cases are to be run.
pub fn all() -> bool {
    std::env::var("RUNNER_FAULTS").is_ok_and(|v| v == "all")
}

/// The part of the kinds of cases of which a command has the first one in an ordinary run.
const PART: u64 = 5;

/// Whether a kind of case is one of those of a command: others have others.
fn is_taken(command: &str, kind: &(String, String, Fault)) -> bool {
    let text = format!("{command} {} {} {}", kind.0, kind.1, kind.2);
    // FNV-1a: the same in every build.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash >> 32).is_multiple_of(PART)
}

/// Sweeps one after the other: each takes all processors.
static TURN: Mutex<()> = Mutex::new(());

impl Sweep<'_> {
    /// Runs the cases.
    ///
    /// # Panics
    /// One of them ended badly: all that did are named.
    pub fn run(&self) {
        if library().is_none() {
            return;
        }
        let operations = self.undisturbed();
        let cases = self.cases(&operations);
        let counts = format!("{} operations", operations.len());
        in_parallel(self.name, &counts, &cases, |case| {
            let place = self.start.copy();
            let (ended, seen) = place.recorded(self.args, Some((case.n, case.fault)), false);
            self.judge(&place, case, &ended, &seen).map_err(|why| {
                let Case { n, operation, fault } = case;
                Failed { at: format!("{n}: {} {} {fault}: {ended:?}", operation.name, operation.path), why }
            })
        });
    }

    /// The operations of a run without faults, which are the same every time.
    fn undisturbed(&self) -> Vec<Operation> {
        let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        let [a, b] = [(); 2].map(|()| {
            let place = self.start.copy();
            let (ended, operations) = place.recorded(self.args, None, false);
            assert_eq!(ended.code, Some(0), "{}: {ended:?}", self.name);
            (self.done)(&place, &ended).unwrap_or_else(|e| panic!("{}: without faults: {e}", self.name));
            operations
        });
        assert!(!a.is_empty(), "{}: the library sees nothing", self.name);
        let brief =
            |list: &[Operation]| -> Vec<String> { list.iter().map(|o| format!("{} {}", o.name, o.role())).collect() };
        assert!(!self.steady || brief(&a) == brief(&b), "{}: not the same operations every time", self.name);
        a
    }

    fn cases(&self, operations: &[Operation]) -> Vec<Case> {
        let mut seen = HashSet::new();
        let mut cases = Vec::new();
        for (i, operation) in operations.iter().enumerate() {
            for (k, fault) in faults::of(operation).into_iter().enumerate() {
                let kind = (operation.name.clone(), operation.role(), fault);
                let first = is_taken(self.name, &kind) && seen.insert(kind);
                // Another place for each kind of fault.
                if all() || first || (i + 7 * k).is_multiple_of(self.every) {
                    cases.push(Case { n: i + 1, operation: operation.clone(), fault });
                }
            }
        }
        cases
    }

    fn judge(&self, place: &Place, case: &Case, ended: &Ended, seen: &[Operation]) -> Result<(), String> {
        // Before anything else touches the folder.
        let result = self.judge_end(place, case, ended, seen);
        let after = (self.after)(place, case, ended);
        match (result, after) {
            (Ok(()), Ok(())) => Ok(()),
            (Err(e), Ok(())) | (Ok(()), Err(e)) => Err(e),
            (Err(a), Err(b)) => Err(format!("{a}; and {b}")),
        }
    }

    fn judge_end(&self, place: &Place, case: &Case, ended: &Ended, seen: &[Operation]) -> Result<(), String> {
        let hits: Vec<&Operation> = seen.iter().filter(|o| o.hit).collect();
        if hits.first().is_some_and(|o| !faults::of(o).contains(&case.fault)) {
            // Where operations vary, another one was hit than was meant, which cannot fail in this way.
            return if self.steady { Err("another operation was hit".into()) } else { Ok(()) };
        }
        if hits.is_empty() && !self.steady && ended.code == Some(0) {
            // There were fewer operations than before.
            return (self.done)(place, ended);
        }
        let by_signal = case.fault.kills().then_some(libc::SIGKILL);
        if case.fault == Fault::Signal && ended.signal == Some(libc::SIGINT) {
            // Nothing was begun that would have to be ended well; a shell reports this as 130, too.
            return Ok(());
        }
        if ended.signal != by_signal {
            return Err(format!("ended by signal {:?}", ended.signal));
        }
        if by_signal.is_some() {
            return Ok(());
        }
        if ended.panicked() {
            return Err("a panic".into());
        }
        match (ended.code, case.fault) {
            (Some(0), _) => (self.done)(place, ended).map_err(|e| format!("there was no message, and {e}")),
            (Some(130), Fault::Signal) => Ok(()),
            (code, fault) if fault.is_harmless() || fault == Fault::Signal => {
                Err(format!("exit code {code:?}, though nothing is wrong"))
            }
            // The configuration that cannot be read is wrong usage; anything later has failed while running.
            (Some(1 | 2), fault) => expect_message(ended, &hits, fault),
            (code, _) => Err(format!("exit code {code:?}")),
        }
    }
}

/// The message names a file that failed, or its folder, and says what the system said.
fn expect_message(ended: &Ended, hits: &[&Operation], fault: Fault) -> Result<(), String> {
    let Some(errno) = fault.errno() else { return Err("failed without an error".into()) };
    let system = std::io::Error::from_raw_os_error(errno).to_string();
    let system = system.split(" (os error").next().unwrap_or_default();
    // With `--json`, on standard output.
    let text = format!("{}{}", ended.err, ended.out);
    // The place of temporary files is named as an absolute path.
    let folder =
        |o: &Operation| ["`", "/"].iter().any(|before| text.contains(&format!("{before}{}`", o.known_folder())));
    let names = |o: &&Operation| text.contains(o.known_as()) || folder(o);
    if !hits.iter().any(names) {
        return Err("the message does not name the file".into());
    }
    // Where one cannot look at a folder, the message says that it cannot be made, since it is there.
    let in_the_way = hits.iter().any(|o| o.name == "stat") && text.contains("File exists");
    if !text.contains(system) && !in_the_way {
        return Err(format!("the message does not say `{system}`"));
    }
    Ok(())
}

/// A case that ended badly.
pub struct Failed {
    /// Which, and what was seen.
    pub at: String,
    /// What is wrong.
    pub why: String,
}

/// Runs the cases on all processors, and says how many.
///
/// # Panics
/// Some failed: the message has them.
pub fn in_parallel<T: Sync>(name: &str, of: &str, cases: &[T], run: impl Fn(&T) -> Result<(), Failed> + Sync) {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = run(case) {
                        failed.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    say(&format!("{name}: {of}, {} cases, {} failed, {:.1?}", cases.len(), failed.len(), start.elapsed()));
    assert!(failed.is_empty(), "{name}: {} of {} cases failed:\n{}", failed.len(), cases.len(), shown(&failed));
}

/// What is wrong, with the first cases of each.
fn shown(failed: &[Failed]) -> String {
    let mut kinds: BTreeMap<String, Vec<&Failed>> = BTreeMap::new();
    for case in failed {
        // Numbers of processes and bytes make no difference.
        kinds.entry(case.why.replace(|c: char| c.is_ascii_digit(), "")).or_default().push(case);
    }
    let mut text = String::new();
    for cases in kinds.values() {
        text.push_str(&format!("\n{} cases: {}\n", cases.len(), cases[0].why));
        cases.iter().take(3).for_each(|case| text.push_str(&format!("   {}\n", case.at)));
    }
    text
}
