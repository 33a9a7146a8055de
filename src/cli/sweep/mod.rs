//! `runner sweep`: trials of one configuration with other values.

pub mod checked;
mod child;
mod pool;
mod table;
mod trial;

use super::args::{Jobs, OutputArgs, Overrides, ReportArgs, SweepArgs};
use super::signals::INTERRUPTED;
use super::{report, train};
use crate::api::failure::{Failure, warn};
use crate::api::model::training_device;
use crate::api::train::in_folder;
use crate::api::train::ranks::of_environment;
use crate::api::what::expect_folder;
use crate::backend::Backend;
use crate::files::durable;
use crate::files::host_memory::host_memory;
use crate::passes::PassOptions;
use crate::runs::folder::is_run;
use crate::sweep::record::{FILE, Kept, Record, TRIALS};
use crate::terminal::say;
use crate::train::files::folder::{Folder, file, is_run_file};
use crate::train::setup::memory::available;
use anyhow::{Context, anyhow};
use checked::{Checked, Read};
use pool::Pool;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trial::Trial;

/// The page about all trials.
const REPORT: &str = "report.html";
/// Trials that the page has, the best.
const MOST_REPORTED: usize = 100;

/// Runs a sweep, or goes on with it.
pub(super) fn run(args: &SweepArgs) -> Result<ExitCode, Failure> {
    // Trials would inherit the variables, and wait for the other ranks.
    if !matches!(of_environment(), Ok(None)) {
        return Err(Failure::Usage(
            "a sweep is run by one process, and by the environment this is one of several ranks\nhelp: run it without `mpirun`, `torchrun`, \
             `srun` or variables as `RANK` and `WORLD_SIZE`; it trains several trials at a time by itself (`--jobs`)"
                .into(),
        ));
    }
    let read = Read::new(&args.config, &args.sets())?;
    warn(&read.base.sources, &read.base.warnings);
    let backend = training_device(&read.base.experiment, args.threads)?;
    let (checked, warned) = read.check(backend.as_ref(), args.threads, &args.passes.options())?;
    let jobs = jobs(args, &checked, backend.as_ref())?;
    let cores = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    // The trials have processes of their own; this one needs no device.
    let described = backend.describe();
    drop(backend);
    let folder = args.out.clone().unwrap_or_else(|| Path::new("runs").join(&read.base.experiment.name).join("sweep"));
    expect_folder(&folder)?;
    let _lock = prepare(&folder, args.force)?;
    let record = record(&folder, &read, &checked, args.retry)?;
    let mut trials = Vec::with_capacity(checked.len());
    for (number, checked) in checked.iter().enumerate() {
        let mut trial = Trial::new(folder.join(TRIALS).join((number + 1).to_string()));
        trial.look(read.monitor.name(), checked.epochs)?;
        trial.failed = match args.retry {
            true => None,
            false => record.trials[number].failed.clone().or(trial.failed),
        };
        trial.course.ended = trial.failed.is_some() || trial.course.ended && !args.retry;
        trials.push(trial);
    }
    let threads = (cores / jobs).max(1);
    if !args.quiet {
        let at_a_time = if jobs > 1 { format!(", {jobs} at a time") } else { String::new() };
        say(&format!(
            "{}: {} trials ({}) by {}{at_a_time}, on {described}; writing to `{}`",
            read.base.experiment.name,
            checked.len(),
            read.sweep.method.name(),
            read.monitor.name(),
            folder.display()
        ));
    }
    let interrupt = train::on_interrupt()?;
    let mut pool = Pool::new(&read, &checked, args, &folder, (jobs, threads), trials, record);
    pool.warned = warned;
    let whole = pool.run(&interrupt)?;
    let rows = table::rows(&read, &checked, &pool.trials, &pool.verdicts(), pool.better())?;
    let page = if whole { page(&folder, args, &read, &pool, &rows) } else { Ok(None) };
    // The table of the trials is printed even if the page cannot be written.
    let report = page.as_ref().ok().and_then(Option::as_ref);
    if args.output.json {
        super::print_json(&table::as_json(&rows, &read, &folder, report.map(PathBuf::as_path)))?;
    } else {
        super::print(&table::as_text(&rows, read.monitor.name()))?;
        if let Some(report) = report {
            say(&format!("all curves are in `{}`: open it in a browser", report.display()));
        }
    }
    if let Err(failure) = page {
        say(&format!("error: {}", failure.in_words()));
        return Ok(ExitCode::FAILURE);
    }
    if !whole {
        say("interrupted; the same command goes on");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    if pool.trials.iter().all(|trial| trial.failed.is_some()) {
        if args.output.json {
            return Ok(ExitCode::FAILURE);
        }
        return Err(Failure::Other(anyhow!("all trials have failed\nhelp: `--retry` runs them again")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the trials of a configuration that has a `[sweep]`; what there is to be said of them, for people and for programs.
///
/// # Errors
/// All mistakes of all trials; one that the device has no memory for.
pub fn examine(
    config: &Path,
    sets: &[String],
    backend: &dyn Backend,
    passes: &PassOptions,
) -> Result<(String, Value), Failure> {
    let read = Read::new(config, sets)?;
    let (checked, _) = read.check(backend, None, passes)?;
    let (sweep, monitor) = (&read.sweep, read.monitor.name());
    let keys: Vec<&str> = sweep.parameters.0.iter().map(|axis| axis.key.as_str()).collect();
    let most = checked.iter().map(|trial| trial.device.unwrap_or(trial.host)).max().unwrap_or(0);
    let text = format!(
        "sweep: {} trials ({}) over {}, compared by {monitor}; each is valid, and the largest takes {}\n",
        checked.len(),
        sweep.method.name(),
        keys.join(", "),
        super::human_bytes(most)
    );
    let json = json!({
        "method": sweep.method.name(),
        "monitor": monitor,
        "trials": checked.len(),
        "parameters": keys,
        "largest_bytes": most,
    });
    Ok((text, json))
}

/// How many trials are trained at a time.
fn jobs(args: &SweepArgs, checked: &[Checked], backend: &dyn Backend) -> Result<usize, Failure> {
    // The largest ones may come together.
    let fit = |bytes: Vec<usize>, room: usize| {
        let mut bytes = bytes;
        bytes.sort_unstable_by(|a, b| b.cmp(a));
        let sums = bytes.iter().scan(0usize, |sum, one| {
            *sum = sum.saturating_add(*one);
            Some(*sum)
        });
        sums.take_while(|sum| *sum <= room).count().max(1)
    };
    let mut most = checked.len();
    if let Some(host) = host_memory() {
        most = most.min(fit(checked.iter().map(|trial| trial.host).collect(), host.available));
    }
    if let Some(memory) = backend.memory()? {
        most = most.min(fit(checked.iter().filter_map(|trial| trial.device).collect(), available(memory)));
    }
    Ok(match args.jobs {
        Jobs::Auto => {
            let cores = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
            most.min(cores)
        }
        Jobs::Count(asked) => {
            if asked > most && most < checked.len() {
                say(&format!("note: there is memory for {most} trials at a time, not for {asked}"));
            }
            asked.min(most)
        }
    })
}

/// Makes the folder of the sweep ready, and locks it.
fn prepare(folder: &Path, force: bool) -> Result<Folder, Failure> {
    let shown = folder.display();
    if is_run(folder) {
        return Err(Failure::Usage(format!("`{shown}` holds a run\nhelp: choose another folder with --out")));
    }
    durable::create_folders(folder).with_context(|| format!("cannot make the folder `{shown}`"))?;
    let locked = Folder::existing(Some(folder), "").map_err(in_folder)?;
    let (known, trials) = (folder.join(FILE), folder.join(TRIALS));
    if !known.exists() && trials.exists() {
        return Err(Failure::Usage(format!(
            "`{}` is there, and is of no sweep\nhelp: move it, or choose another folder with --out",
            trials.display()
        )));
    }
    if force && known.exists() {
        let other = not_its_own(&trials).with_context(|| format!("cannot read `{}`", trials.display()))?;
        if let Some(other) = other {
            return Err(Failure::Usage(format!(
                "`{}` is not of the sweep, whose trials --force removes\nhelp: move it, or choose another folder with --out",
                other.display()
            )));
        }
        // The file goes last: without it nothing would be known of what is left.
        for path in [trials, folder.join(REPORT), known] {
            let gone = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            match gone {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(anyhow::Error::new(e).context(format!("cannot remove `{}`", path.display())).into());
                }
                _ => {}
            }
        }
    }
    Ok(locked)
}

/// What is in the folder of the trials, or in that of one, and was not written by the sweep.
fn not_its_own(trials: &Path) -> std::io::Result<Option<PathBuf>> {
    let entries = |folder: &Path| -> std::io::Result<Vec<(PathBuf, String)>> {
        let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        Ok(entries.iter().map(|entry| (entry.path(), entry.file_name().to_string_lossy().into_owned())).collect())
    };
    if !trials.exists() {
        return Ok(None);
    }
    for (trial, name) in entries(trials)? {
        if name.parse::<u32>().is_err() || !trial.is_dir() {
            return Ok(Some(trial));
        }
        // What begins with a dot is a lock, or was to be a file of the run.
        let own = |name: &str| is_run_file(name) || name.starts_with('.');
        if let Some((other, _)) = entries(&trial)?.into_iter().find(|(_, name)| !own(name)) {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

/// What is kept of the trials, with what was known of them before.
fn record(folder: &Path, read: &Read, checked: &[Checked], retry: bool) -> Result<Record, Failure> {
    let kept = |(values, checked): (&Vec<crate::config::Assigned>, &Checked)| Kept {
        values: values.iter().map(|value| (value.key.clone(), value.value.clone())).collect(),
        config: checked.fingerprint.clone(),
        failed: None,
    };
    let mut record = Record { trials: read.values.iter().zip(checked).map(kept).collect() };
    if let Some(before) = Record::read(folder)?
        && let Some(number) = record.take_over(&before)
    {
        let trial_values = |record: &Record| {
            let values = &record.trials[number - 1].values;
            values.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
        };
        let (was, is) = (trial_values(&before), trial_values(&record));
        let difference = if was == is {
            let run = folder.join(TRIALS).join(number.to_string());
            let changed = (number <= read.values.len()).then(|| read.changed(number - 1, &run)).flatten();
            changed.unwrap_or("another key of the configuration has changed".into())
        } else {
            format!("it was {was}, and is {is}")
        };
        return Err(Failure::Usage(format!(
            "`{}` holds another sweep: trial {number} is not what it was: {difference}\nhelp: undo the change to go on, start anew in its \
             place with --force, or choose another folder with --out",
            folder.display()
        )));
    }
    if retry {
        record.trials.iter_mut().for_each(|trial| trial.failed = None);
    }
    record.write(folder)?;
    Ok(record)
}

/// Writes the page about the trials; where it is.
fn page(
    folder: &Path,
    args: &SweepArgs,
    read: &Read,
    pool: &Pool,
    rows: &[table::Row],
) -> Result<Option<PathBuf>, Failure> {
    let mut runs: Vec<PathBuf> = Vec::new();
    for row in rows {
        let folder = &pool.trials[row.trial].folder;
        let begun = table::is_there(&folder.join(file::METRICS))? || table::is_there(&folder.join(file::LAST))?;
        if begun && runs.len() < MOST_REPORTED {
            runs.push(folder.clone());
        }
    }
    if runs.is_empty() {
        return Ok(None);
    }
    let asked = ReportArgs {
        runs,
        out: Some(folder.join(REPORT)),
        no_evaluation: true,
        explain: false,
        no_timing: true,
        overrides: Overrides::default(),
        threads: args.threads,
        output: OutputArgs::default(),
    };
    report::of_runs(&asked, &table::lead(rows, read.monitor.name(), read.sweep.method))?;
    Ok(asked.out)
}
