//! What is wrong with a command line, and how it was probably meant.

use super::args::Cli;
use crate::config::keys_for_option;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use std::ffi::OsString;

/// The command with options that take a number below zero as their value, and say themselves whether it may be one: else `-1` would be an
/// option that is unknown.
pub fn negative_numbers(command: Command) -> Command {
    let takes = |arg: Arg| match arg.get_action().takes_values() && !arg.is_positional() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(takes).mut_subcommands(negative_numbers)
}

/// An error of the command line. For an option that is a key of the configuration, `--epochs 3`, it says how to set that.
pub fn explain(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return error };
    let Some(name) = option.strip_prefix("--").map(|rest| rest.split('=').next().unwrap_or(rest).to_owned()) else {
        return error;
    };
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let takes_sets = Cli::command()
        .find_subcommand(words.get(1).map_or("", String::as_str))
        .is_some_and(|command| command.get_arguments().any(|argument| argument.get_long() == Some("set")));
    let mut keys = if takes_sets { keys_for_option(&name) } else { Vec::new() };
    // An option of the command itself that is nearer is what was meant.
    if let Some(ContextValue::String(own)) = error.get(ContextKind::SuggestedArg) {
        let edits = |word: &str| strsim::damerau_levenshtein(&name, word);
        let last = |key: &String| edits(key.rsplit('.').next().unwrap_or(key));
        if keys.iter().map(last).min() > Some(edits(own.trim_start_matches('-'))) {
            keys.clear();
        }
    }
    // clap proposes to pass it as a value, which is never what was meant.
    error.remove(ContextKind::Suggested);
    if keys.is_empty() {
        return error;
    }
    let value = words.iter().enumerate().find_map(|(i, word)| match word.strip_prefix(&format!("--{name}"))? {
        "" => words.get(i + 1).filter(|next| !next.starts_with("--")).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    });
    let value = value.filter(|value| !value.contains(char::is_control)).unwrap_or_else(|| "…".into());
    let sets: Vec<String> = keys.iter().map(|key| format!("'--set {key}={value}'")).collect();
    error.remove(ContextKind::SuggestedArg);
    error.insert(
        ContextKind::Suggested,
        ContextValue::StyledStrs(vec![format!("values of the configuration are set by {}", sets.join(" or ")).into()]),
    );
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_negative_number_is_the_value_of_an_option() {
        let read = |line: &str| negative_numbers(Cli::command()).try_get_matches_from(line.split(' '));
        for (line, range) in [
            ("generate r --temperature -1", "from 0 to"),
            ("generate r --top-p -0.1", "from 0 to 1"),
            ("generate r --min-p -0.5", "from 0 to 1"),
            ("generate r --repetition-penalty -1e3", "above 0"),
            ("generate r --seed -1", "from 0 to 18446744073709551615"),
            ("generate r --top-k -1", "1..=4294967295"),
            ("generate r --max-tokens -1", "1..=4294967295"),
            ("generate r --threads -1", "from 1 to 1024"),
            ("explain r --seed -1", "from 0 to"),
            ("explain r --rows -1", "from 1 on"),
            ("train a.toml --pause-after -1", "from 1 to"),
            ("data tokenize a.txt --out t --vocab-size -1", "257..=16777216"),
            ("data show a.toml --out a.png --epoch -1", "from 1 to"),
            ("serve r --max-delay-ms -1", "from 0 to 60000"),
            ("serve r --max-pixels -1", "from 1 to"),
            ("serve r --receive-timeout -1", "from 1 to 86400"),
            ("serve r --answer-timeout -1", "from 1 to 86400"),
            ("serve r --drain-timeout -1", "from 0 to 86400"),
            ("lr-find a.toml --from -1", "above 0"),
        ] {
            let text = read(&format!("runner {line}")).unwrap_err().to_string();
            assert!(text.contains("invalid value '-") && text.contains(range), "{line}\n{text}");
        }
        // Elsewhere it is as wrong as before, and a text may be a number.
        assert!(read("runner generate r -1").is_err());
        assert!(read("runner generate r --prompt -5 --beams 2 --length-penalty -0.5").is_ok());
    }

    #[test]
    fn an_option_that_is_a_key_is_answered_with_how_to_set_it() {
        let message = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            explain(Cli::try_parse_from(&words).unwrap_err(), &words).to_string()
        };
        for (line, tip) in [
            ("runner train a.toml --epochs 3", "'--set train.epochs=3' or '--set schedule.epochs=3'"),
            ("runner train a.toml --lr=3e-4", "'--set optimizer.lr=3e-4'"),
            ("runner check a.toml --batch-size 32", "'--set data.batch_size=32'"),
            ("runner eval a.toml --seed", "'--set seed=…'"),
            ("runner bench a.toml --learning-rate --quiet", "'--set optimizer.lr=…'"),
            ("runner train a.toml --optimizer.lr 1", "'--set optimizer.lr=1'"),
        ] {
            let text = message(line);
            assert!(text.contains(tip) && !text.contains("as a value"), "{line}\n{text}");
        }
        // Options of our own are still proposed, and nothing where there is nothing to set.
        assert!(message("runner train a.toml --forse").contains("'--force'"));
        for line in ["runner devices --epochs 3", "runner train a.toml --frobnicate", "runner --epochs 3"] {
            let text = message(line);
            assert!(!text.contains("--set") && !text.contains("as a value"), "{line}\n{text}");
        }
    }
}
