//! Going on with a run: its folder, its checkpoint, and the configuration, which is the one that it was started with but
//! for what the command line and the file say otherwise.

use super::super::failure::{Failure, warn};
use super::super::members::Members;
use super::super::model::{carried_by, load_config, load_config_of};
use super::folder::in_folder;
use super::past::Past;
use super::request::{Request, Resume};
use super::words::quoted;
use crate::checkpoint::{self, Meta};
use crate::config::declare::tagged::Tagged;
use crate::config::language::keys;
use crate::config::language::sections::Source;
use crate::config::text::diagnostics::SourceKind;
use crate::config::{self, Loaded, UNSET_OPTION};
use crate::train::files::folder::{Folder, Replaces, is_run};
use crate::train::files::resume::{Change, Effect, changes};
use crate::train::files::state::{Extra, Started};
use crate::train::run::report::Reporter;
use crate::train::setup::programs::pass_names;
use anyhow::Context;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The most bytes of options that a checkpoint may have kept.
const MAX_OPTIONS: usize = 1 << 18;

/// A run to go on with.
pub struct Resumed {
    /// Its folder, locked if it is there.
    pub folder: Folder,
    /// Where it has been until now, if it goes on elsewhere.
    pub past: Option<Past>,
    /// The file to go on from.
    pub path: PathBuf,
    /// The state in it.
    pub meta: Meta,
    /// The configuration that it goes on with.
    pub loaded: Loaded,
    /// How it was started, and what has been said since.
    pub started: Started,
    /// Whether it was begun on other samples than those asked for.
    pub stands_in: bool,
}

/// Finds the run and its checkpoint, and sees what has changed in the configuration since.
///
/// # Errors
/// There is no such run, or nothing whole in it; another process is at work there; it cannot go on with these changes.
pub fn find(request: &Request, asked: &Resume, reporter: &Reporter) -> Result<Resumed, Failure> {
    if let Some(config) = asked.config.as_deref().filter(|config| !config.exists()) {
        // The message for that is the one of every configuration.
        load_config(config, &[])?;
    }
    if let Some(missing) = asked.checkpoint.as_deref().filter(|path| !path.exists()) {
        checkpoint::verify(missing).map_err(anyhow::Error::new)?;
    }
    let name = asked.config.as_deref().map(config::name_of).unwrap_or_default();
    let to_be_made = asked.folder.as_deref().filter(|folder| asked.checkpoint.is_some() && names_nothing(folder));
    let mut folder = match to_be_made {
        Some(new) => Folder::new(Some(new), &name, Replaces::Nothing),
        None => Folder::existing(asked.folder.as_deref(), &name),
    }
    .map_err(in_folder)?;
    let past = asked.checkpoint.as_deref().and_then(|checkpoint| Past::of(checkpoint, &folder.path));
    if let Some(warning) = folder.unlocked() {
        reporter.warn(&warning);
    }
    let (path, meta) = match &asked.checkpoint {
        Some(path) => (path.clone(), checkpoint::verify(path).map_err(anyhow::Error::new)?),
        None => newest(&folder, reporter)?,
    };
    let extra: Extra = serde_json::from_value(meta.extra.clone())
        .with_context(|| format!("the run's state in `{}` cannot be read", path.display()))?;
    let fitted = extra.fitted();
    let before = extra.started;
    let typed: usize = before.sets.iter().map(String::len).sum();
    if typed > MAX_OPTIONS {
        return Err(Failure::Usage(format!(
            "the options in `{}` have {typed} bytes: more than {MAX_OPTIONS} are too many for a command line",
            path.display()
        )));
    }
    let what = carried_by(&path);
    let old = config::load_effective(&what, &meta.config, &[])?;
    let new_sets = request.sets.clone();
    let mut loaded = match &asked.config {
        Some(config) => {
            let (naming_files, usable): (Vec<String>, _) =
                before.sets.iter().cloned().partition(|set| names_files(set));
            if !naming_files.is_empty() {
                reporter.warn(&format!(
                    "the run was started with {}: what files of text are read is not for a checkpoint to say, so give that again if \
                     it is meant",
                    as_options(&naming_files)
                ));
            }
            let kept = kept(&usable, &new_sets);
            if !kept.is_empty() {
                reporter.info(&format!("as when the run was started: {}", as_options(&kept)));
            }
            load_config_of(config, &[kept, new_sets.clone()].concat(), fitted.as_ref())?
        }
        None => {
            let loaded = config::load_effective(&what, &meta.config, &new_sets)?;
            warn(&loaded.sources, &loaded.warnings);
            loaded
        }
    };
    if loaded.experiment.data.auto_batch_size {
        let batch = old.experiment.data.loading.batch_size;
        loaded.experiment.set_batch_size(batch);
        reporter.info(&format!("batch_size = \"auto\" is {batch}, as in `{}`", path.display()));
    }
    if loaded.experiment.devices.is_some() && loaded.experiment.span_of("distributed.shards").is_none() {
        // As many as there were GPUs then.
        loaded.experiment.distributed.shards = old.experiment.distributed.shards;
    }
    let heads = loaded.experiment.heads.iter_mut().map(|head| &mut head.loss.0);
    let of_heads = old.experiment.heads.iter().map(|head| &head.loss.0);
    let now = std::iter::once(&mut loaded.experiment.loss).chain(heads);
    for (loss, kept) in
        now.zip(std::iter::once(&old.experiment.loss).chain(of_heads)).filter(|(loss, _)| loss.is_to_be_balanced())
    {
        if let (Some(weights), Some(kept)) = (loss.class_weights(), kept.clone().class_weights()) {
            weights.clone_from(kept);
        }
    }
    loaded.experiment.data.fitted = fitted;
    keep_paths(&mut loaded.experiment.data.source, &old.experiment.data.source, &new_sets);
    if asked.config.is_none() {
        loaded.experiment.name = name_for(&before.name, &folder.path);
    }
    let found = Found { folder: &folder.path, path: &path, new_sets: &new_sets };
    found.report(&changes(&old.experiment, &loaded.experiment), reporter)?;
    let started = Started {
        name: loaded.experiment.name.clone(),
        sets: in_force(&before.sets, &new_sets, &loaded),
        without: match request.left_out() {
            names if names.is_empty() => before.without,
            names => names,
        },
    };
    Ok(Resumed { folder, past, path, meta, loaded, started, stands_in: extra.data_note.is_some() })
}

impl Resumed {
    /// The passes that the run leaves out.
    pub fn without(&self) -> Vec<String> {
        let known = pass_names(true);
        self.started.without.iter().filter(|name| known.contains(&name.as_str())).cloned().collect()
    }
}

/// Whether there is nothing of this name. That of the folder in which the program runs is empty.
fn names_nothing(folder: &Path) -> bool {
    !folder.as_os_str().is_empty() && folder.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

fn newest(folder: &Folder, reporter: &Reporter) -> Result<(PathBuf, Meta), Failure> {
    let newest = checkpoint::newest_whole(&folder.path)
        .with_context(|| format!("cannot read the folder `{}`", folder.path.display()))?;
    for refused in &newest.refused {
        reporter.warn(&format!("{refused}; looking for an older one"));
    }
    let found = newest.found.with_context(|| {
        let place = folder.path.display();
        let help = match Members::without_file(&folder.path) {
            None => {
                let force = if is_run(&folder.path) { " --force" } else { "" };
                format!("begin a run there with its configuration: `runner train CONFIG --out {place}{force}`")
            }
            Some(members) => format!(
                "there are {}, and `{}`, which says how many there are to be, is lost: write it, as `{}`",
                members.counted(),
                folder.file(&members.file()).display(),
                serde_json::json!(members)
            ),
        };
        format!("there is no whole checkpoint in `{place}`\nhelp: {help}")
    })?;
    Ok(found)
}

/// The name of a run whose configuration's file is not at hand; in early checkpoints there is none.
fn name_for(name: &str, folder: &Path) -> String {
    let plain = !name.is_empty() && name.len() <= 255 && !name.chars().any(char::is_control);
    if plain {
        return name.to_string();
    }
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    folder.file_name().map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned())
}

/// Whether an override may name a file of configuration: the author of the checkpoint could choose which file is read.
fn names_files(set: &str) -> bool {
    let key = key(set);
    let unset = set.starts_with(UNSET_OPTION);
    !unset && (inside(key, "extends") || key == "model" || inside(key, "model.use"))
}

/// Overrides as they are typed.
fn as_options(sets: &[String]) -> String {
    let option = |set: &String| match set.strip_prefix(UNSET_OPTION) {
        Some(key) => format!("{UNSET_OPTION}{}", quoted(key)),
        None => format!("--set {}", quoted(set)),
    };
    sets.iter().map(option).collect::<Vec<_>>().join(" ")
}

/// Where a file's path leads nowhere, as from another folder it may, and none was given anew, it is the run's.
fn keep_paths(now: &mut Source, before: &Source, new_sets: &[String]) {
    if now.type_name() != before.type_name() {
        return;
    }
    for (key, path) in now.paths_mut() {
        let before = before.paths().into_iter().find(|(known, _)| *known == key);
        if let Some((_, before)) =
            before.filter(|_| !leads_somewhere(path) && !is_asked(&format!("data.{key}"), new_sets))
        {
            path.clone_from(before);
        }
    }
}

/// Whether there is a file, or for the path of several, their folder.
fn leads_somewhere(path: &Path) -> bool {
    let several = path.to_string_lossy().contains(['{', '*', '?']);
    path.exists() || several && path.parent().is_some_and(Path::is_dir)
}

/// The key of an override.
fn key(set: &str) -> &str {
    let set = set.strip_prefix(UNSET_OPTION).unwrap_or(set);
    set.split_once('=').map_or(set, |(key, _)| key).trim()
}

/// All overrides that hold from now on, in their order. One that is given anew takes the place of the earlier; paths
/// become those that they meant here.
pub fn in_force(before: &[String], new: &[String], loaded: &Loaded) -> Vec<String> {
    let experiment = &loaded.experiment;
    let typed = |path: &String| {
        experiment.span_of(path).is_some_and(|span| loaded.sources.get(span.source).kind == SourceKind::Set)
    };
    let paths = keys::paths().into_iter().filter(typed).filter_map(|path| {
        let value = match path.as_str() {
            "model.weights" => experiment.model.weights.as_ref()?,
            key => {
                experiment.data.source.paths().into_iter().find(|(name, _)| key.strip_prefix("data.") == Some(name))?.1
            }
        };
        Some(format!("{path}={}", toml::Value::String(value.to_str()?.into())))
    });
    let all: Vec<String> = kept(before, new).into_iter().chain(new.iter().cloned()).chain(paths).collect();
    // A table is laid over what is there, so it does not replace it.
    let replaced = |i: usize, set: &String| {
        let later = &all[i + 1..];
        let table = |set: &str| set.split_once('=').is_some_and(|(_, value)| value.trim().starts_with('{'));
        later.iter().any(|l| l == set || (key(l) == key(set) && !table(l)))
    };
    all.iter().enumerate().filter(|(i, set)| !replaced(*i, set)).map(|(_, set)| set.clone()).collect()
}

/// Whether a key is another one, or inside of it.
fn inside(key: &str, table: &str) -> bool {
    key == table || key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'))
}

/// The earlier overrides that still count: none of what is unset now.
fn kept(before: &[String], new: &[String]) -> Vec<String> {
    let unset = || new.iter().filter_map(|option| option.strip_prefix(UNSET_OPTION)).map(str::trim);
    before.iter().filter(|set| !unset().any(|table| inside(key(set), table))).cloned().collect()
}

/// Whether one of the overrides is what changed `changed`: it names that key, one around it or inside of it. Another type
/// brings other keys with it.
fn is_asked(changed: &str, sets: &[String]) -> bool {
    sets.iter().map(|set| key(set)).any(|key| {
        let table = key.strip_suffix(".type").or(key.strip_suffix(".source")).unwrap_or(key);
        inside(changed, table) || inside(key, changed)
    })
}

/// Where a run was found, for messages.
struct Found<'a> {
    folder: &'a Path,
    path: &'a Path,
    new_sets: &'a [String],
}

impl Found<'_> {
    /// Reports what has changed in the configuration since the checkpoint was written.
    ///
    /// # Errors
    /// The run cannot go on with a change, or would go on otherwise than it was without that having been asked for.
    fn report(&self, changes: &[Change], reporter: &Reporter) -> Result<(), Failure> {
        let folder = self.folder.display();
        let list = |effect: Effect| changes.iter().filter(move |c| c.effect == effect);
        let lines = |changes: &mut dyn Iterator<Item = &Change>| -> String {
            changes.map(|c| format!("  {c}")).collect::<Vec<_>>().join("\n")
        };
        let breaks = lines(&mut list(Effect::Breaks));
        if !breaks.is_empty() {
            return Err(Failure::Usage(format!(
                "the run in `{folder}` cannot go on with this configuration; what changed:\n{breaks}\nhelp: undo this, or leave the \
                 configuration out: `runner train --resume {folder}`; or start a new run from the weights with \
                 `--set model.weights={}`",
                self.path.display(),
            )));
        }
        let unasked: Vec<&Change> = list(Effect::Differs).filter(|c| !is_asked(&c.key, self.new_sets)).collect();
        if let Some(first) = unasked.first() {
            let simple = first.new.as_ref().filter(|v| v.is_number() || v.is_string() || v.is_boolean());
            let example = simple.map_or("KEY=VALUE".into(), |v| quoted(&format!("{}={v}", first.key)));
            return Err(Failure::Usage(format!(
                "the configuration's file is not what the run in `{folder}` was started with, and the run would no longer go on as \
                 it has begun:\n{}\nhelp: to go on as before, leave the configuration out: `runner train --resume {folder}`; to go on \
                 with a change, say so: `--set {example}`",
                lines(&mut unasked.iter().copied()),
            )));
        }
        let differs = lines(&mut list(Effect::Differs));
        if !differs.is_empty() {
            reporter.warn(&format!(
                "the configuration has changed; the run goes on, but no longer as it would have without that:\n{differs}"
            ));
        }
        let harmless = lines(&mut list(Effect::Harmless));
        if !harmless.is_empty() {
            reporter.info(&format!("the configuration has changed, without an effect on the numbers:\n{harmless}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_goes_by_keys() {
        let sets = |sets: &[&str]| sets.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        for (changed, set) in [
            ("optimizer.lr", "optimizer.lr=1"),
            ("optimizer.lr", " optimizer.lr = 1"),
            ("optimizer.lr", "optimizer={lr=1}"),
            ("data.transforms.0.mean", "data.transforms=[]"),
            ("data.transforms.0", "data.transforms.0.mean=[1]"),
            ("schedule.step_epochs", "schedule.type=cosine"),
            ("schedule.step_epochs", "--unset schedule"),
        ] {
            assert!(is_asked(changed, &sets(&[set])), "{changed} {set}");
        }
        for (changed, set) in
            [("optimizer.lr", "optimizer.lr_decay=1"), ("optimizer.lr", "train.epochs=1"), ("optimizer.lr", "optim=1")]
        {
            assert!(!is_asked(changed, &sets(&[set])), "{changed} {set}");
        }
    }

    #[test]
    fn a_checkpoint_does_not_say_what_is_read() {
        for set in ["extends=/x", " model.use = /x", "model={use=\"/x\"}"] {
            assert!(names_files(set), "{set}");
        }
        for set in ["model.weights=/x", "seed=1", "--unset model", "model.freeze=[]", "data.root=/x"] {
            assert!(!names_files(set), "{set}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_is_given_anew_takes_the_place_of_the_earlier() {
        let text = "[data]\nsource = \"mnist\"\n[model]\nlayers = [\"flatten\"]\n[loss]\ntype = \"cross_entropy\"\n\
                    [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";
        let sets = |sets: &[&str]| sets.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        let before = sets(&["seed=1", "optimizer.lr=1", "train={max_steps=3}"]);
        let new = sets(&["train={epochs=2}", "optimizer.lr=2", "data.root=here"]);
        let all: Vec<String> = before.iter().chain(&new).cloned().collect();
        let loaded = config::load_str("c", text, &all).unwrap_or_else(|e| panic!("{e}"));
        let root = std::env::current_dir().unwrap().join("here");
        let root = format!("data.root=\"{}\"", root.display());
        let expected = sets(&["seed=1", "train={max_steps=3}", "train={epochs=2}", "optimizer.lr=2", &root]);
        assert_eq!(in_force(&before, &new, &loaded), expected);
        // What is unset no longer counts, and an option that unsets lies before those that set.
        let unset = sets(&["--unset optimizer", "--unset train.max_steps", "seed=2"]);
        let before = sets(&["optimizer.lr=1", "optimizer={lr=1}", "train.max_steps=3", "seed=1"]);
        let loaded = config::load_str("c", text, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(kept(&before, &unset), ["seed=1"]);
        assert_eq!(in_force(&before, &unset, &loaded), unset);
        assert_eq!(
            in_force(&unset, &sets(&["train.max_steps=5"]), &loaded),
            ["--unset optimizer", "seed=2", "train.max_steps=5"]
        );
    }
}
