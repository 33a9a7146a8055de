
# Bash ends words at `=` and `:`, which stand within ours (`data.source=mnist`, `cuda:0`). This joins them for the function above, and
# takes off its answers what bash has as a word of its own. Behind `launch` and its options stands a command line of its own.
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
    if [[ "${words[1]}" == launch ]]; then
        for ((i = 2; i < n - 1; i++)); do
            if [[ "${words[i]}" == train ]]; then
                words=("${words[0]}" "${words[@]:i}")
                n=$((n - i + 1))
                break
            fi
        done
    fi
    cur="${words[n - 1]}"
    ((n > 1)) && prev="${words[n - 2]}"
    if [[ "${words[1]}" == launch && "$cur" != -* && "$prev" != --ranks ]]; then
        COMPREPLY=($(compgen -W train -- "$cur"))
        return
    fi
    case "$cur" in
        *[=:]*) cut="${cur%"${cur##*[=:]}"}" ;;
    esac
    local -a COMP_WORDS=("${words[@]}")
    local COMP_CWORD=$((n - 1))
    _runner "$1" "$cur" "$prev"
    COMPREPLY=("${COMPREPLY[@]#"$cut"}")
    # A value follows.
    if [[ "${#COMPREPLY[@]}" -eq 1 && "${COMPREPLY[0]}" == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _runner_whole_words -o nosort -o bashdefault -o default runner
else
    complete -F _runner_whole_words -o bashdefault -o default runner
fi
