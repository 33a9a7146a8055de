//! `runner data tokenize`: texts as files of tokens.

use super::args::TokenizeArgs;
use crate::api::failure::Failure;
use crate::api::what::{expect_folder, expect_no_input, output};
use crate::data::text::{Choice, Texts, Tokenizing};
use crate::files::output::Output;
use crate::terminal::{Bar, human_bytes, say, thousands};
use anyhow::{Context, anyhow};
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const TRAIN: &str = "train.bin";
const VAL: &str = "val.bin";
const TOKENIZER: &str = "tokenizer.json";

/// A file that was written.
struct Written {
    path: PathBuf,
    /// Bytes of text.
    bytes: u64,
    /// Rows of tables that have no text.
    empty: u64,
    tokens: u64,
}

/// Learns a tokenizer from texts, if none is given, and writes their tokens.
pub(super) fn run(args: &TokenizeArgs) -> Result<ExitCode, Failure> {
    let choice = choice(args)?;
    if let Some(part) = args.validation_split
        && !(part > 0.0 && part < 1.0)
    {
        let message = format!("`--validation-split {part}`: a part of the text, between 0 and 1, is held out");
        return Err(Failure::Usage(message));
    }
    expect_folder(&args.out)?;
    expect_no_files(args, &choice)?;
    let mut bar = None;
    let end = args.end_of_text.as_deref();
    let mut seen = |bytes, all| {
        let bar = bar.get_or_insert_with(|| Bar::of_bytes("learning byte pairs", all, 0));
        bar.iter().for_each(|bar| bar.set(bytes));
    };
    let column = args.column.as_deref();
    let work = Tokenizing::new(&args.texts, column, &choice, args.validation_split, end, &mut seen)?;
    drop(bar);
    for table in work.plain_tables() {
        say(&format!(
            "note: `{}` is read as a text, with its separators: `--column` reads one of its columns",
            table.display()
        ));
    }
    let [train, val] = &work.parts;
    let inputs = || train.iter().chain(val).flat_map(Texts::paths);
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make the folder `{}`", args.out.display()))?;
    // Whether all can be written is known before hours of work.
    let place = |name: &str| -> Result<Output, Failure> {
        let out = output(&args.out.join(name))?;
        expect_no_input(&out, inputs().chain(args.tokenizer.as_deref().map(Path::new)))?;
        Ok(out)
    };
    let learnt = work.tokenizer().json().filter(|_| matches!(choice, Choice::Bpe(_)));
    let learnt = learnt.map(|json| Ok::<_, Failure>((place(TOKENIZER)?, json))).transpose()?;
    let mut outs = vec![(place(TRAIN)?, train)];
    if !val.is_empty() {
        outs.push((place(VAL)?, val));
    }
    if let Some((out, json)) = &learnt {
        out.put(json.as_bytes()).with_context(|| format!("cannot write `{}`", out.path().display()))?;
    }
    let bytes = |texts: &[Texts]| texts.iter().map(Texts::bytes).sum::<u64>();
    let bar = Bar::of_bytes("making tokens", bytes(train) + bytes(val), 0);
    let mut written = Vec::new();
    for (out, texts) in &outs {
        let before: u64 = written.iter().map(|written: &Written| written.bytes).sum();
        let tokens = work.write(texts, out, &mut |done| bar.iter().for_each(|bar| bar.set(before + done)))?;
        if tokens == 0 {
            let from = texts.iter().flat_map(Texts::paths).map(|path| format!("`{}`", path.display()));
            return Err(anyhow!(
                "no tokens for `{}`: there are none in the text of {}",
                out.path().display(),
                from.collect::<Vec<_>>().join(", ")
            )
            .into());
        }
        written.push(Written {
            path: out.path().to_owned(),
            bytes: bytes(texts),
            empty: texts.iter().map(Texts::empty).sum(),
            tokens,
        });
    }
    drop(bar);
    // Its tokens would be taken for those of these texts.
    let removed = Some(args.out.join(VAL)).filter(|path| val.is_empty() && path.is_file());
    if let Some(path) = &removed {
        std::fs::remove_file(path).with_context(|| format!("cannot remove `{}`", path.display()))?;
    }
    // A tokenizer may be of an earlier run, or of a model, which could not be used without it.
    let other = Some(args.out.join(TOKENIZER)).filter(|path| learnt.is_none() && is_another(path, &choice));
    if let Some(path) = &removed {
        say(&format!("note: removed `{}` of an earlier run, which does not belong to the new files", path.display()));
    }
    if let Some(path) = &other {
        say(&format!("note: `{}` stays as it is: the new files are not made with it", path.display()));
    }
    let tokenizer = match (&learnt, &choice) {
        (Some((out, _)), _) => out.path().display().to_string(),
        (None, Choice::Json(path)) => path.display().to_string(),
        (None, _) => "bytes".to_owned(),
    };
    let vocabulary = work.tokenizer().vocabulary();
    if args.output.json {
        super::print_json(&json!({
            "tokenizer": tokenizer,
            "vocab_size": vocabulary,
            "files": written.iter().map(|w| json!({ "path": w.path, "bytes": w.bytes, "tokens": w.tokens, "empty_rows": w.empty })).collect::<Vec<_>>(),
            "removed": removed.as_slice(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    super::print(&report(&written, &tokenizer, vocabulary, learnt.is_some()))?;
    Ok(ExitCode::SUCCESS)
}

/// Files in the folder that would be replaced or removed.
fn earlier(args: &TokenizeArgs, choice: &Choice) -> impl Iterator<Item = PathBuf> {
    let learnt = matches!(choice, Choice::Bpe(_)).then_some(TOKENIZER);
    learnt.into_iter().chain([TRAIN, VAL]).map(|name| args.out.join(name)).filter(|path| path.is_file())
}

/// Whether a file is there, and is not the tokenizer that is asked for.
fn is_another(path: &Path, choice: &Choice) -> bool {
    let is_used = |used: &Path| output(path).is_ok_and(|out| out.is_none_of([used]).is_err());
    path.is_file() && !matches!(choice, Choice::Json(used) if is_used(used))
}

/// Refuses to replace files of an earlier run, unless that is asked for; those that are read here in any case.
fn expect_no_files(args: &TokenizeArgs, choice: &Choice) -> Result<(), Failure> {
    for path in earlier(args, choice) {
        expect_no_input(&output(&path)?, args.texts.iter().map(PathBuf::as_path))?;
        if !args.force {
            return Err(Failure::Usage(format!(
                "`{}` is there already\nhelp: `--force` replaces the files of an earlier run, `--out DIR` writes to another folder",
                path.display()
            )));
        }
    }
    Ok(())
}

/// How text becomes tokens.
fn choice(args: &TokenizeArgs) -> Result<Choice, Failure> {
    let choice = match args.tokenizer.as_deref() {
        None | Some("bpe") => return Ok(Choice::Bpe(args.vocab_size.map_or(4096, |most| most as usize))),
        Some("bytes") => Choice::Bytes,
        Some(other @ ("characters" | "words")) => {
            return Err(Failure::Usage(format!(
                "a tokenizer of {other} has no file that a token file could go with\n\
                 help: train on the text itself, by `source = \"text\"` and `tokenizer = \"{other}\"`; or leave out `--tokenizer` for byte pairs"
            )));
        }
        Some(path) => Choice::Json(path.into()),
    };
    if args.vocab_size.is_some() {
        let message =
            "`--vocab-size` is of byte pairs that are learnt here: leave it out where `--tokenizer` names others";
        return Err(Failure::Usage(message.into()));
    }
    Ok(choice)
}

/// What was written, and the section of a configuration that reads it.
fn report(written: &[Written], tokenizer: &str, vocabulary: usize, learnt: bool) -> String {
    let mut text = String::new();
    if learnt {
        let _ = writeln!(text, "{tokenizer}: {} tokens, learnt from the text", thousands(vocabulary as u64));
    }
    for Written { path, bytes, tokens, empty } in written {
        let (size, count) = (human_bytes(usize::try_from(*bytes).unwrap_or(usize::MAX)), thousands(*tokens));
        let left_out = match empty {
            0 => String::new(),
            1 => "; 1 row has none".to_owned(),
            _ => format!("; {} rows have none", thousands(*empty)),
        };
        let _ = writeln!(text, "{}: {count} tokens of {size} of text{left_out}", path.display());
    }
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let _ = writeln!(text, "\n[data]\nsource = \"tokens\"");
    for (key, Written { path, .. }) in ["path", "val_path"].iter().zip(written) {
        let _ = writeln!(text, "{key} = {}", quoted(&path.display().to_string()));
    }
    let _ = writeln!(text, "tokenizer = {}\ncontext = 256", quoted(tokenizer));
    text
}
