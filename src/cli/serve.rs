//! `runner serve`.

use super::args::{LogFormat, ServeArgs};
#[cfg(unix)]
use super::signals;
use super::{print, print_json};
use crate::api::failure::Failure;
use crate::serve::access::Log;
use crate::serve::{How, Identity, Keys, Limits, Options, Signals, serve};
use crate::terminal::say;
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Answers over HTTP from models until the process is asked to stop.
pub(super) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let models = named(&args.models, args.name.as_deref())?;
    let names: Vec<String> = models.iter().map(|(name, _)| name.clone()).collect();
    let keys = args.api_key_file.as_deref().map(Keys::read).transpose()?;
    let is_open = keys.is_none();
    let identity = match (&args.tls_cert, &args.tls_key) {
        (Some(certificates), Some(key)) => Some(Identity::read(certificates, key)?),
        _ => None,
    };
    let scheme = if identity.is_some() { "https" } else { "http" };
    let mib = |n: u32| (n as usize).saturating_mul(1 << 20);
    let options = Options {
        models,
        host: args.host.clone(),
        port: args.port,
        how: How {
            sets: args.overrides.sets(),
            threads: args.threads,
            executables: args.executables as usize,
            texts: args.texts as usize,
            batch: args.max_batch.map(|batch| batch as usize),
            delay: Duration::from_millis(args.max_delay_ms),
            queue: args.queue as usize,
            memory: mib(args.max_memory),
        },
        limits: Limits {
            body: mib(args.max_body),
            pixels: args.max_pixels,
            rows: args.max_rows as usize,
            tokens: args.max_tokens as usize,
        },
        patience: Duration::from_secs(args.receive_timeout),
        answer_time: Duration::from_secs(args.answer_timeout),
        connections: args.max_connections as usize,
        drain: Duration::from_secs(args.drain_timeout),
        keys,
        names: args.allow_host.clone(),
        identity,
        log: match args.log {
            LogFormat::Text => Log::Text,
            LogFormat::Json => Log::Json,
            LogFormat::Off => Log::Off,
        },
        top: args.top as usize,
        invert: args.invert,
        signals: heeded()?,
    };
    let ignores_reload = !options.signals.hang_up;
    let listening = |address: SocketAddr| {
        if ignores_reload {
            say("note: SIGHUP loads no models anew: it was ignored when the program was started, as `nohup` has it");
        }
        if is_open && !address.ip().is_loopback() {
            say("note: everyone who reaches this address may ask: --api-key-file asks them for a key");
        }
        // Who started it may not read what it prints.
        let _ = match args.output.json {
            true => print_json(&json!({ "address": format!("{scheme}://{address}"), "models": names })),
            false => print(&format!("listening on {scheme}://{address}, models: {}", names.join(", "))),
        };
    };
    let all = serve(options, listening)?;
    say(if all { "stopped: all requests are answered" } else { "stopped: requests were cut off" });
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Those that were not ignored when the program was started.
fn heeded() -> Result<Signals, Failure> {
    #[cfg(unix)]
    {
        let ignored = signals::ignored()?;
        let heeded = |signal| !ignored.contains(&signal);
        Ok(Signals { interrupt: heeded(libc::SIGINT), terminate: heeded(libc::SIGTERM), hang_up: heeded(libc::SIGHUP) })
    }
    #[cfg(not(unix))]
    Ok(Signals { interrupt: true, terminate: false, hang_up: true })
}

/// The models with their names, each of which is there once. `only` is the name of one that is alone.
fn named(words: &[String], only: Option<&str>) -> Result<Vec<(String, PathBuf)>, Failure> {
    let wrong = |name: &str, path: &str| {
        Failure::Usage(format!(
            "`{name}` cannot be the name of a model\nhelp: a name, as in NAME={path}, is made of letters of ASCII, digits, `-`, `_` and `.`, and not of dots alone"
        ))
    };
    if only.is_some() && words.len() > 1 {
        return Err(Failure::Usage(format!(
            "`--name` names one model, and {} are given\nhelp: name each as NAME=MODEL, as in `NAME={}`",
            words.len(),
            words[0]
        )));
    }
    let mut models: Vec<(String, PathBuf)> = Vec::new();
    for word in words {
        let (own, path) = match word.split_once('=') {
            // A path may have a `=` in it.
            _ if Path::new(word).exists() => (None, word.as_str()),
            Some((name, path)) if is_name(name) => (Some(name), path),
            Some((name, path)) if Path::new(path).exists() => return Err(wrong(name, path)),
            _ => (None, word.as_str()),
        };
        let name = match (own, only) {
            (Some(own), Some(only)) if own != only => {
                return Err(Failure::Usage(format!(
                    "the model has two names, `{own}` and, with --name, `{only}`\nhelp: leave one of them out"
                )));
            }
            (_, Some(only)) if !is_name(only) => return Err(wrong(only, path)),
            (Some(name), _) | (None, Some(name)) => name.to_owned(),
            (None, None) => name_of(Path::new(path)),
        };
        let path = PathBuf::from(path);
        if let Some((_, other)) = models.iter().find(|(known, _)| *known == name) {
            return Err(Failure::Usage(format!(
                "`{}` and `{}` are both called `{name}`\nhelp: give them names: NAME={}",
                other.display(),
                path.display(),
                path.display()
            )));
        }
        models.push((name, path));
    }
    Ok(models)
}

/// What may be the name of a model: a piece of an address as it is written.
fn is_name(text: &str) -> bool {
    text.chars().all(is_plain) && text.chars().any(|c| c != '.')
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// The name of a model that has been given none: that of its run.
fn name_of(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let file = whole.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let is_model = whole.extension().is_none_or(|ending| ending != "safetensors");
    let of_run = |name: &str| name == "best" || name == "last" || name.starts_with("epoch");
    // Of a run's checkpoint its folder, and of a run that has a number the folder of that.
    let folders = whole.parent().into_iter().flat_map(Path::components).rev();
    let folders = folders.filter(|part| matches!(part, Component::Normal(_)));
    let folders = folders.map(|part| part.as_os_str().to_string_lossy().into_owned());
    let first = (is_model || !of_run(&file)).then_some(file);
    let is_number = |name: &String| name.chars().all(|c| c.is_ascii_digit());
    let found = first.into_iter().chain(folders).find(|name| !is_number(name));
    let name = found.unwrap_or_default().replace(|c| !is_plain(c), "_");
    if is_name(&name) { name } else { "model".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_called_after_their_runs() {
        for (path, name) in [
            ("runs/mnist/1/best.safetensors", "mnist"),
            ("runs/mnist/1", "mnist"),
            ("/a/b/12/epoch-3.safetensors", "b"),
            ("weights/cat dog.safetensors", "cat_dog"),
            ("models/mine.toml", "mine"),
            ("/1/best.safetensors", "model"),
        ] {
            assert_eq!(name_of(Path::new(path)), name, "{path}");
        }
    }

    #[test]
    fn names_are_given_and_there_once() {
        let called = |words: &[&str], only: Option<&str>| {
            named(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), only)
        };
        let read = |words: &[&str]| called(words, None);
        let models = read(&["a=runs/x/1", "runs/lr=0.1/2", "b.c=y=z"]).unwrap();
        let shown: Vec<String> = models.iter().map(|(name, path)| format!("{name}:{}", path.display())).collect();
        assert_eq!(shown, ["a:runs/x/1", "lr_0.1:runs/lr=0.1/2", "b.c:y=z"]);
        for word in ["runs/x/1", "mine=runs/x/1"] {
            assert_eq!(called(&[word], Some("mine")).unwrap(), [("mine".to_owned(), PathBuf::from("runs/x/1"))]);
        }
        for (words, only, part) in [
            (&["a", "b"][..], "mine", "NAME=MODEL"),
            (&["other=a"], "mine", "two names, `other` and, with --name, `mine`"),
            (&["a"], "a/b", "`a/b` cannot be the name of a model"),
        ] {
            let message = called(words, Some(only)).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
        assert!(read(&["runs/x/1", "runs/x/2"]).unwrap_err().to_string().contains("both called `x`"));
        for name in ["", "a/b", "ü", "..", "a b"] {
            let message = read(&[&format!("{name}=/")]).unwrap_err().to_string();
            assert!(
                message.contains(&format!("`{name}` cannot be the name of a model")) && message.contains("NAME=/"),
                "{message}"
            );
        }
    }
}
