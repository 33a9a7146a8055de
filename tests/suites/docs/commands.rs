//! Command lines in the documentation.

use clap::{CommandFactory, Parser};
use runner::cli::args::Cli;
use runner::train::setup::programs::pass_names;
use std::collections::{BTreeMap, BTreeSet};

use crate::markdown::{document, manual};

/// The words of a line as a shell would take them apart; a comment ends it. Quotes are single or double, without
/// escapes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (c, quote) {
            (_, Some(q)) if c == q => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The arguments of `runner` in a line, if it calls it.
fn arguments(line: &str) -> Option<Vec<String>> {
    let mut words = words(line);
    let assignments = words.iter().take_while(|word| word.split('=').next().is_some_and(is_variable)).count();
    words.drain(..assignments);
    let prefix = match words.first()?.as_str() {
        "runner" | "target/release/runner" => 1,
        "cargo" if words.get(1)? == "run" => words.iter().position(|word| word == "--")? + 1,
        _ => return None,
    };
    let end = words.iter().position(|word| matches!(word.as_str(), "|" | ">")).unwrap_or(words.len());
    Some(std::iter::once("runner".to_owned()).chain(words.drain(prefix..end)).collect())
}

/// Whether the part before a `=` is a variable's name.
fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

#[test]
fn command_lines_parse() {
    let mut seen = 0;
    for document in manual() {
        for block in document.blocks.iter().filter(|block| block.info.starts_with("sh")) {
            for line in block.text.lines() {
                let Some(arguments) = arguments(line) else { continue };
                seen += 1;
                if let Err(error) = Cli::try_parse_from(&arguments) {
                    panic!("{}, block at line {}: `{line}`\n{error}", document.path.display(), block.line);
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} command lines were found");
}

#[test]
fn commands_and_options_in_the_text_exist() {
    let command = Cli::command();
    let names: BTreeSet<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    let options = options(&command);
    for document in manual() {
        for span in document.spans() {
            let mut words = span.split_whitespace();
            if words.next() == Some("runner")
                && let Some(word) = words.next()
            {
                assert!(names.contains(word), "{}: `{span}`: no such command", document.path.display());
            }
            let is_option = |word: &&str| word.starts_with("--") && word.len() > 2;
            for option in span.split(|c: char| c.is_whitespace() || c == '=').filter(is_option) {
                let known = options.contains(option) || option == "--help" || option == "--version";
                assert!(known || span.starts_with("cargo"), "{}: `{span}`: no such option", document.path.display());
            }
        }
    }
}

#[test]
fn every_command_and_option_is_described() {
    let manual = document("docs/cli.md");
    let text: String = manual.spans().join("\n") + &manual.blocks.iter().map(|block| &*block.text).collect::<String>();
    let known: BTreeSet<&str> = text
        .split(|c: char| c.is_whitespace() || matches!(c, '=' | '[' | ']'))
        .filter(|word| !word.is_empty())
        .collect();
    let command = Cli::command();
    for name in command.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help") {
        assert!(known.contains(name), "docs/cli.md does not describe the command `{name}`");
    }
    for pass in pass_names(false) {
        assert!(known.contains(pass), "docs/cli.md does not name the pass `{pass}`");
    }
    for option in options(&command) {
        assert!(known.contains(option.as_str()), "docs/cli.md does not describe the option `{option}`");
    }
}

/// The table of options in docs/cli.md, as the command line declares them: which there are, of which commands, and what they do.
fn table() -> String {
    fn collect(path: &str, command: &clap::Command, rows: &mut Vec<(String, Vec<String>, String)>) {
        for argument in
            command.get_arguments().filter(|argument| !["help", "version"].contains(&argument.get_id().as_str()))
        {
            let Some(long) = argument.get_long() else { continue };
            let mut option = format!("--{long}");
            if argument.get_action().takes_values() {
                let name = argument.get_value_names().map_or(String::new(), |names| names.join(" "));
                let optional = argument.get_num_args().is_some_and(|range| range.min_values() == 0);
                option += &if optional { format!(" [{name}]") } else { format!(" {name}") };
            }
            let short = argument.get_short().map(|short| format!("`, `-{short}")).unwrap_or_default();
            let option = format!("`{option}{short}`");
            let help = argument.get_long_help().or(argument.get_help()).expect("is described").to_string();
            let mut sentences: Vec<String> =
                help.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            for sentence in sentences.iter_mut().filter(|sentence| !sentence.ends_with('.')) {
                sentence.push('.');
            }
            if argument.get_action().takes_values() && !argument.is_hide_possible_values_set() {
                let values = argument.get_possible_values();
                let choices: Vec<String> = values
                    .iter()
                    .map(|value| match value.get_help() {
                        Some(help) => format!("`{}` ({help})", value.get_name()),
                        None => format!("`{}`", value.get_name()),
                    })
                    .collect();
                sentences.extend((!choices.is_empty()).then(|| format!("One of {}.", choices.join(", "))));
            }
            if let [default] = argument.get_default_values() {
                sentences.push(format!("Default: `{}`.", default.to_string_lossy()));
            }
            let meaning = sentences.join(" ").replace('|', "\\|");
            match rows.iter_mut().find(|(known, _, text)| *known == option && *text == meaning) {
                Some((_, commands, _)) => commands.push(format!("`{path}`")),
                None => rows.push((option, vec![format!("`{path}`")], meaning)),
            }
        }
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            collect(format!("{path} {}", inner.get_name()).trim(), inner, rows);
        }
    }
    let mut rows = Vec::new();
    collect("", &Cli::command(), &mut rows);
    let rows: String =
        rows.iter().map(|(option, of, text)| format!("| {option} | {} | {text} |\n", of.join(", "))).collect();
    format!("| option | of | meaning |\n| --- | --- | --- |\n{rows}")
}

#[test]
fn the_table_of_options_is_fresh() {
    let tables = BTreeMap::from([("command line".to_owned(), table())]);
    crate::options::hold_fresh(&["docs/cli.md".into()], &tables);
}

/// The long options of a command and all below it.
fn options(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|argument| Some(format!("--{}", argument.get_long()?)));
    own.chain(command.get_subcommands().flat_map(options)).collect()
}

#[test]
fn lines_are_taken_apart() {
    assert_eq!(words("a 'b c' --d=\"e f\"  # g"), ["a", "b c", "--d=e f"]);
    assert_eq!(arguments("RUNNER_SIMD=avx2 cargo run --release -- check x | less").unwrap(), ["runner", "check", "x"]);
    assert!(arguments("cargo test").is_none() && arguments("python x.py").is_none());
}
