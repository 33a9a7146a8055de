//! What `train` is asked to do: a new run, or one to go on with. Whether a word is a configuration, a run's folder or a
//! checkpoint is seen from what it names.

use super::super::args::TrainArgs;
use crate::api::failure::Failure;
use crate::api::train::{Asked, Resume};
use crate::api::what::{expect_checkpoint, expect_configuration};
use crate::checkpoint::newest_whole;
use crate::config::name_of;
use crate::train::files::folder::{Folder, InUse, file, is_run};
use std::path::{Path, PathBuf};

/// In the place of a run to go on with: whichever there is, or a new one.
pub const AUTO: &str = "auto";

/// What a word names.
enum Named {
    Config,
    Folder,
    Checkpoint,
}

fn named(path: &Path) -> Named {
    let suffix = path.extension().and_then(|e| e.to_str());
    match suffix {
        _ if path.is_dir() => Named::Folder,
        Some("toml") => Named::Config,
        Some("safetensors") => Named::Checkpoint,
        _ if path.is_file() => Named::Config,
        _ => Named::Checkpoint,
    }
}

/// The run that the command line asks for.
///
/// # Errors
/// Words that contradict each other, or name nothing of the kind.
pub fn of(args: &TrainArgs) -> Result<Asked, Failure> {
    match (&args.resume, &args.config) {
        (None, Some(config)) => new(config).map(Asked::New),
        // The command line is not taken without either.
        (None, None) => Err(Failure::Usage("no configuration is given".into())),
        (Some(Some(from)), config) if from.as_os_str() == AUTO => auto(config.as_deref(), args.out.as_deref()),
        (Some(from), config) => resume(config.as_deref(), from.as_deref(), args.out.as_deref()).map(Asked::Resume),
    }
}

/// Goes on with the run of a configuration where there is one, and begins it where there is none: the same command line does for
/// a job that is ended and started again.
fn auto(config: Option<&Path>, out: Option<&Path>) -> Result<Asked, Failure> {
    let Some(config) = config.filter(|path| matches!(named(path), Named::Config)) else {
        return Err(Failure::Usage(format!(
            "`--resume {AUTO}` begins a run where there is none, and no configuration is given\nhelp: as in `runner train \
             configs/mnist_cnn.toml --resume {AUTO}`"
        )));
    };
    let config = new(config)?;
    Ok(match begun(out, &name_of(&config)) {
        Some(folder) => Asked::Resume(Resume { config: Some(config), folder: Some(folder), checkpoint: None }),
        None => Asked::New(config),
    })
}

/// The folder of a run that has saved something: the one that is named, or the newest of a configuration of that name.
fn begun(out: Option<&Path>, name: &str) -> Option<PathBuf> {
    let folder = match Folder::existing(out, name) {
        Ok(folder) => folder.path.clone(),
        // The attempt to go on with it reports the process that uses it.
        Err(error) => return error.downcast_ref::<InUse>().map(|in_use| in_use.folder.clone()),
    };
    // A checkpoint that is not whole counts, too: the attempt to go on reports it.
    let newest = newest_whole(&folder).ok()?;
    (newest.found.is_some() || !newest.refused.is_empty()).then_some(folder)
}

fn new(config: &Path) -> Result<PathBuf, Failure> {
    let path = config.display();
    // What is in the file says more than its name.
    if config.is_file() {
        expect_configuration(config)?;
    }
    match named(config) {
        Named::Folder => Err(Failure::Usage(if is_run(config) {
            format!(
                "`{path}` is the folder of a run\nhelp: go on with it by `runner train --resume {path}`, or repeat it by `runner train {}`",
                config.join(file::CONFIG).display()
            )
        } else {
            format!("`{path}` is a folder\nhelp: give a configuration, a `.toml` file")
        })),
        Named::Checkpoint if config.is_file() => Err(Failure::Usage(format!(
            "`{path}` is a checkpoint, not a configuration\nhelp: go on from it by `runner train --resume {path}`; to start a new run \
             from its weights, give a configuration with `--set model.weights={path}`"
        ))),
        _ => Ok(config.to_path_buf()),
    }
}

fn resume(config: Option<&Path>, from: Option<&Path>, out: Option<&Path>) -> Result<Resume, Failure> {
    let mut asked = Resume::default();
    // The first word stands for a configuration unless it is plainly something else.
    if let Some(word) = config {
        let place = match named(word) {
            Named::Folder => &mut asked.folder,
            Named::Checkpoint if word.extension().is_some_and(|e| e == "safetensors") => &mut asked.checkpoint,
            _ => &mut asked.config,
        };
        *place = Some(word.to_path_buf());
    }
    if let Some(word) = from {
        let (place, what) = match named(word) {
            Named::Folder => (&mut asked.folder, "folders"),
            Named::Config if word.extension().is_some_and(|e| e == "toml") => (&mut asked.config, "configurations"),
            _ => (&mut asked.checkpoint, "checkpoints"),
        };
        if let Some(other) = place.replace(word.to_path_buf()) {
            let (one, two) = (other.display(), word.display());
            return Err(Failure::Usage(format!("two {what} are given: `{one}` and `{two}`")));
        }
    }
    if let Some(out) = out {
        let other = asked.folder.replace(out.to_path_buf());
        if let Some(other) = other.filter(|other| !same(other, out)) {
            return Err(Failure::Usage(format!(
                "two folders are given: `{}` and, with --out, `{}`\nhelp: a run goes on in its own folder",
                other.display(),
                out.display()
            )));
        }
    }
    if asked.folder.is_none() {
        let beside = asked.checkpoint.as_deref().or(asked.config.as_deref().filter(|path| is_its_own(path)));
        asked.folder = beside.map(|path| path.parent().unwrap_or(Path::new("")).to_path_buf());
    }
    if asked == Resume::default() {
        return Err(Failure::Usage(
            "it is not said which run goes on\nhelp: name its folder, as in `runner train --resume runs/mnist_cnn/1`"
                .into(),
        ));
    }
    if let Some(checkpoint) = &asked.checkpoint {
        expect_checkpoint(checkpoint)?;
    }
    Ok(asked)
}

/// Whether a configuration is the one that a run has written into its folder.
fn is_its_own(config: &Path) -> bool {
    config.file_name().is_some_and(|name| name == file::CONFIG)
        && config.parent().is_some_and(|folder| folder.join(file::LAST).is_file())
}

fn same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    fn asked(words: &str) -> Result<Asked, Failure> {
        let words = ["runner", "train"].into_iter().chain(words.split_whitespace());
        let Command::Train(args) = Cli::try_parse_from(words).unwrap().command else { unreachable!() };
        of(&args)
    }

    #[test]
    fn every_form_does_what_it_looks_like() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        std::fs::create_dir(&run).unwrap();
        for name in ["config.toml", "last.safetensors", "../c.toml"] {
            std::fs::write(run.join(name), "").unwrap();
        }
        let (d, r) = (dir.path().display().to_string(), run.display().to_string());
        let some = |path: &str| Some(PathBuf::from(path));
        let resumed = |config: Option<&str>, folder: Option<&str>, checkpoint: Option<&str>| {
            Asked::Resume(Resume {
                config: config.and_then(some),
                folder: folder.and_then(some),
                checkpoint: checkpoint.and_then(some),
            })
        };
        let (c, last, own) = (format!("{d}/c.toml"), format!("{r}/last.safetensors"), format!("{r}/config.toml"));
        for (words, expected) in [
            (c.clone(), Asked::New(c.clone().into())),
            ("nowhere".into(), Asked::New("nowhere".into())),
            (own.clone(), Asked::New(own.clone().into())),
            (format!("{r} --resume"), resumed(None, Some(&r), None)),
            (format!("--resume {r}"), resumed(None, Some(&r), None)),
            (format!("--resume --out {r}"), resumed(None, Some(&r), None)),
            (format!("--resume {r} --out {r}/."), resumed(None, Some(&format!("{r}/.")), None)),
            (format!("--resume {last}"), resumed(None, Some(&r), Some(&last))),
            (format!("{last} --resume"), resumed(None, Some(&r), Some(&last))),
            (format!("{c} --resume"), resumed(Some(&c), None, None)),
            (format!("--resume {c}"), resumed(Some(&c), None, None)),
            (format!("{c} --resume {last}"), resumed(Some(&c), Some(&r), Some(&last))),
            (format!("{c} --resume {r}"), resumed(Some(&c), Some(&r), None)),
            (format!("{c} --resume --out {r}"), resumed(Some(&c), Some(&r), None)),
            (format!("{c} --resume {last} --out {d}"), resumed(Some(&c), Some(&d), Some(&last))),
            (format!("{own} --resume"), resumed(Some(&own), Some(&r), None)),
        ] {
            assert_eq!(format!("{:?}", asked(&words).unwrap()), format!("{expected:?}"), "{words}");
        }
        for (words, reason) in [
            ("--resume".to_string(), "which run"),
            (r.clone(), "the folder of a run"),
            (d.clone(), "is a folder"),
            (last.clone(), "is a checkpoint"),
            (format!("{r} --resume {d}"), "two folders"),
            (format!("--resume {r} --out {d}"), "two folders"),
            (format!("{c} --resume {c}"), "two configurations"),
            (format!("{last} --resume {last}"), "two checkpoints"),
        ] {
            let Err(Failure::Usage(text)) = asked(&words) else { panic!("{words}") };
            assert!(text.contains(reason), "{words}: {text}");
        }
        let Err(Failure::Other(missing)) = asked("--resume nowhere") else { panic!("nothing is there") };
        assert!(missing.to_string().starts_with("nowhere: "), "{missing}");
    }
}
