//! `runner completions` and `runner schema`.

use super::args::Cli;
use crate::api::failure::Failure;
use crate::config::schema::schema as language_schema;
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

/// Bash ends words at `=` and `:`, which stand within ours (`data.source=mnist`, `cuda:0`). This joins them for the
/// function above, and takes off its answers what bash has as a word of its own.
const WHOLE_WORDS: &str = r#"
_runner_whole_words() {
    local -a words=()
    local i n=0 word glue="" cur prev="" cut=""
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word="${COMP_WORDS[i]}"
        if ((n > 1)) && [[ -n "$glue" || "$word" == [=:]* ]]; then
            words[n - 1]+="$word"
        else
            words[n]="$word"
            n=$((n + 1))
        fi
        case "$word" in
            *[=:]) glue=1 ;;
            *) glue="" ;;
        esac
    done
    cur="${words[n - 1]}"
    ((n > 1)) && prev="${words[n - 2]}"
    case "$cur" in
        *[=:]*) cut="${cur%"${cur##*[=:]}"}" ;;
    esac
    local -a COMP_WORDS=("${words[@]}")
    local COMP_CWORD=$((n - 1))
    _runner "$1" "$cur" "$prev"
    COMPREPLY=("${COMPREPLY[@]#"$cut"}")
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _runner_whole_words -o nosort -o bashdefault -o default runner
else
    complete -F _runner_whole_words -o bashdefault -o default runner
fi
"#;

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
    if shell == Shell::Bash {
        text.push_str(WHOLE_WORDS);
    }
    text
}

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
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "runner", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(!text.contains(crate::terminal::is_hidden), "{shell}");
            assert_eq!(crate::terminal::visible(&text), text, "{shell}");
        }
        assert_eq!(crate::terminal::visible(WHOLE_WORDS), WHOLE_WORDS);
        let schema = format!("{:#}", language_schema());
        assert_eq!(crate::terminal::visible(&schema), schema);
    }
}
