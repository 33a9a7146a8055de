#!/usr/bin/env bash
# Fuzzes what reads files from outside:
#     scripts/fuzz.sh [TARGET [SECONDS]]     (`all`: one after the other; 60 seconds each, unless told otherwise)
#     scripts/fuzz.sh --keep [TARGET]        (takes what was found into fuzz/corpus and fuzz/crashes)
# It needs the nightly compiler (`rustup toolchain install nightly`) and cargo-fuzz (`cargo install cargo-fuzz`). What it finds
# stays in target/fuzz/work, also between runs, until it is kept. The exit code is 1 if a target failed.
set -euo pipefail
cd "$(dirname "$0")/.."

keep=
if [ "${1:-}" = --keep ]; then
    keep=1
    shift
fi
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "the nightly compiler is not installed: rustup toolchain install nightly" >&2
    exit 2
fi
if ! command -v cargo-fuzz >/dev/null; then
    echo "cargo-fuzz is not installed: cargo install cargo-fuzz" >&2
    exit 2
fi
all=$(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"|\1|p' fuzz/Cargo.toml)
targets=$all
if [ "${1:-all}" != all ]; then
    targets=$1
fi
seconds=${2:-60}
for target in $targets; do
    if ! grep -qx "$target" <<<"$all"; then
        echo "there is no target \`$target\`, only:" $all >&2
        exit 2
    fi
done

host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/target/fuzz
work=$CARGO_TARGET_DIR/work
# Files are written and read at every try.
if [ -z "${TMPDIR:-}" ] && [ -d /dev/shm ]; then
    export TMPDIR=/dev/shm
fi
if [ "$targets" = "$all" ]; then
    cargo +nightly fuzz build --fuzz-dir fuzz
else
    cargo +nightly fuzz build --fuzz-dir fuzz "$targets"
fi

# As many as are there of a folder's files.
files() {
    find "$@" -type f 2>/dev/null | wc -l
}

failed=0
for target in $targets; do
    binary=$CARGO_TARGET_DIR/$host/release/$target
    mkdir -p "$work/corpus/$target" "$work/finds/$target" "fuzz/corpus/$target" "fuzz/crashes/$target"
    # Like the limits of `cargo test --test corpora`, with what AddressSanitizer takes.
    limits=(-timeout=20 -rss_limit_mb=3072 -malloc_limit_mb=1280)
    if [ -n "$keep" ]; then
        before=$(files "fuzz/corpus/$target" "fuzz/crashes/$target")
        for find in "$work/finds/$target"/*; do
            [ -e "$find" ] || continue
            # Their names end with the SHA-1 of the content, as those of the corpus are.
            cp "$find" "fuzz/crashes/$target/${find##*-}"
        done
        "$binary" -merge=1 "${limits[@]}" "fuzz/corpus/$target" "$work/corpus/$target" >"$work/$target.log" 2>&1
        rmdir "fuzz/crashes/$target" 2>/dev/null || true
        echo "$target: $(($(files "fuzz/corpus/$target" "fuzz/crashes/$target") - before)) files kept"
        continue
    fi
    dictionary=()
    case $target in
        check | checkpoint | config) dictionary=(-dict=fuzz/dict/config.dict) ;;
        pickle | safetensors) dictionary=(-dict="fuzz/dict/$target.dict") ;;
    esac
    before=$(files "$work/corpus/$target")
    result="nothing found"
    if ! "$binary" -max_total_time="$seconds" -print_final_stats=1 "${limits[@]}" "${dictionary[@]}" \
        -artifact_prefix="$work/finds/$target/" "$work/corpus/$target" "fuzz/corpus/$target" "fuzz/crashes/$target" \
        >"$work/$target.log" 2>&1; then
        failed=1
        result="FAILED: $(grep -aE '^SUMMARY|panicked at|Test unit written' "$work/$target.log" | tr '\n' ' ')"
    fi
    rmdir "fuzz/crashes/$target" 2>/dev/null || true
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target.log")
    coverage=$(grep -aoE 'cov: [0-9]+ ft: [0-9]+' "$work/$target.log" | tail -1 | sed 's/cov: \([0-9]*\) ft: \([0-9]*\)/\1 edges, \2 features/')
    echo "$target: ${runs:-?} executions in ${seconds}s, ${coverage:-no coverage}, $(($(files "$work/corpus/$target") - before)) new inputs; $result"
done
exit $failed
