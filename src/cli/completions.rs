//! `runner completions` and `runner schema`.

mod words;

use super::args::Cli;
use super::suggest::{KEYS, SETTINGS};
use crate::api::failure::Failure;
use crate::config::schema::schema as language_schema;
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

/// The function that bash calls.
const WHOLE_WORDS: &str = include_str!("completions/bash.sh");
/// What `clap` says of the words behind `launch`, in zsh, up to who completes them.
const LAUNCHED: &str = "'*::command -- What to run\\: `train`, with all its arguments:";

/// Prints the completion script of a shell.
pub(super) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    super::print(&script(shell))?;
    Ok(ExitCode::SUCCESS)
}

/// The completion script of a shell.
pub(super) fn script(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "runner", &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    let (settings, keys) = words::words();
    let both = [(SETTINGS, settings), (KEYS, keys)];
    match shell {
        Shell::Bash => {
            for (name, words) in both {
                text = text.replace(&format!("\"{name}\""), &format!("\"${{_{name}}}\""));
                text += &format!("\n_{name}=\"{}\"\n", words.join(" "));
            }
            text + WHOLE_WORDS
        }
        Shell::Zsh => {
            let mut functions = LAUNCHED_IN_ZSH.to_owned();
            for (name, words) in both {
                text = text.replace(&format!("({name})"), &format!("_{name}"));
                // After `=` a value follows, and no space.
                let (open, whole): (Vec<&str>, Vec<&str>) =
                    words.iter().map(String::as_str).partition(|word| word.ends_with('='));
                functions += &format!(
                    "\n_{name}() {{\n    local -a open=({}) whole=({})\n    compadd \"$@\" -S '' -a open\n    compadd \"$@\" -a whole\n}}\n",
                    open.join(" "),
                    whole.join(" ")
                );
            }
            let text = text.replace(&format!("{LAUNCHED}_default'"), &format!("{LAUNCHED}_runner_launched'"));
            // The last lines call the function.
            let (before, last) = text.split_at(text.rfind("\nif ").unwrap_or(text.len()));
            format!("{before}\n{functions}{last}")
        }
        Shell::Fish => {
            for (name, words) in both {
                text = text.replace(&format!("\"{name}\\t''\""), &format!("\"(__{name})\""));
                text += &format!("\nfunction __{name}\n    string split ' ' '{}'\nend\n", words.join(" "));
            }
            text + LAUNCHED_IN_FISH
        }
        _ => text,
    }
}

/// What stands after `launch` and its options is a command line of its own.
const LAUNCHED_IN_ZSH: &str = r#"_runner_launched() {
    if ((CURRENT == 1)); then
        compadd train
    else
        words=(runner "${words[@]}")
        ((CURRENT++))
        _runner
    fi
}
"#;
const LAUNCHED_IN_FISH: &str = r#"
function __runner_launched
    set -l before (commandline -opc)
    set -l at (contains -i -- train $before)
    if test -n "$at"
        complete -C "runner "(string join ' ' -- (string escape -- $before[$at..-1]))" "(commandline -ct)
    else
        echo train
    end
end
complete -c runner -n "__fish_runner_using_subcommand launch" -f -a "(__runner_launched)"
"#;

/// Prints the JSON Schema of the configuration language.
pub(super) fn schema() -> Result<ExitCode, Failure> {
    super::print(&format!("{:#}", language_schema()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gate changes what would steer a terminal; a script with such characters would no longer be the same.
    #[test]
    fn scripts_pass_as_they_are() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let text = script(shell);
            assert!(!text.contains(crate::terminal::is_hidden), "{shell}");
            assert_eq!(crate::terminal::visible(&text), text, "{shell}");
            // What stands for words has been replaced.
            for name in [SETTINGS, KEYS] {
                let known = text.matches(name).count();
                assert_eq!(known, text.matches(&format!("_{name}")).count(), "{name} in {shell}");
                assert!(known > 10 || matches!(shell, Shell::PowerShell | Shell::Elvish), "{name} in {shell}");
            }
        }
        let schema = format!("{:#}", language_schema());
        assert_eq!(crate::terminal::visible(&schema), schema);
    }
}
