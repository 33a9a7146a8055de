//! The texts that are gone on with, or answered.

use crate::api::failure::Failure;
use crate::cli::args::GenerateArgs;
use crate::data::text::MARK;
use crate::files;
use crate::terminal;
use anyhow::{Context, Result, ensure};
use std::io::Read;
use std::path::Path;

/// In the place of a text or of a file: standard input.
const STANDARD_INPUT: &str = "-";

/// Largest file with prompts, in bytes.
const MOST: u64 = 16 << 20;

/// A text to go on with, or to be answered.
pub(super) struct Prompt {
    pub text: String,
    /// What errors call it.
    pub called: String,
}

/// What the arguments ask for. Where that is nothing, it is what comes through standard input, and an empty one if that is a terminal.
pub(super) fn read(args: &GenerateArgs) -> Result<Vec<Prompt>> {
    if let Some(path) = args.prompts.as_deref() {
        let (name, whole) = (name(path), whole(path)?);
        let lines = (1..).zip(whole.lines()).filter(|(_, line)| !line.is_empty());
        let prompt = |(at, text): (usize, &str)| Prompt { text: text.into(), called: format!("{name}, prompt {at}") };
        let prompts: Vec<Prompt> = lines.map(prompt).collect();
        ensure!(!prompts.is_empty(), "{name} has no prompts\nhelp: `--prompts` takes a file with one on each line");
        return Ok(prompts);
    }
    let one = |text| Prompt { text, called: "the prompt".into() };
    if let Some(path) = args.prompt_file.as_deref() {
        return Ok(vec![one(whole(path)?)]);
    }
    Ok(match args.prompt.as_slice() {
        [] if terminal::is_typed() => vec![one(String::new())],
        [] => vec![one(whole(Path::new(STANDARD_INPUT))?)],
        [text] if text == STANDARD_INPUT => vec![one(whole(Path::new(STANDARD_INPUT))?)],
        [text] => vec![one(text.clone())],
        several => {
            let prompt = |(at, text): (usize, &String)| Prompt { text: text.clone(), called: format!("prompt {at}") };
            (1..).zip(several).map(prompt).collect()
        }
    })
}

/// Makes them texts that are answered, of which the end of a file's last line is no part.
pub(super) fn as_texts(prompts: &mut [Prompt]) -> Result<(), Failure> {
    for Prompt { text, .. } in prompts {
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
        if text.is_empty() {
            return Err(Failure::Usage(
                "the model answers texts, and there is none\nhelp: give one with --prompt, --prompt-file or --prompts"
                    .into(),
            ));
        }
    }
    Ok(())
}

/// The text of a file, or of standard input.
fn whole(path: &Path) -> Result<String> {
    let bytes = match path == Path::new(STANDARD_INPUT) {
        true => {
            let mut bytes = Vec::new();
            std::io::stdin().take(MOST + 1).read_to_end(&mut bytes).context("cannot read standard input")?;
            ensure!(bytes.len() as u64 <= MOST, "standard input has more than {} MiB", MOST >> 20);
            bytes
        }
        false => files::read(path, MOST)?,
    };
    let text = String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", name(path)))?;
    // It is no part of the text, as in data.
    Ok(text.strip_prefix(MARK).map(str::to_owned).unwrap_or(text))
}

fn name(path: &Path) -> String {
    if path == Path::new(STANDARD_INPUT) { "standard input".into() } else { format!("`{}`", path.display()) }
}
