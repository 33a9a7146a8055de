#!/usr/bin/env bash
# The library's tests that Miri can run: undefined behaviour, out of bounds, data races, in what reads files and in what is plain Rust.
#     scripts/miri.sh [WORD ...]   (only tests with one of the words in their names, instead of those below)
# It needs the nightly compiler with Miri (`rustup component add --toolchain nightly miri rust-src`). Builds go to target/miri.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "Miri is not installed: rustup component add --toolchain nightly miri rust-src" >&2
    exit 2
fi
export CARGO_TARGET_DIR=$PWD/target/miri
# Tests write to temporary folders; `Rc` in pickles and scoped threads are fine with the stricter model.
export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}"
# Without what opens files as this program does: Miri knows neither O_NONBLOCK nor copy_file_range. Some thousand times slower than the machine: a few cases of each property, and none of the large tests.
# Building takes minutes, and is not to count.
cargo +nightly miri test --lib --no-run >/dev/null 2>&1 || { cargo +nightly miri test --lib --no-run; exit 1; }
export PROPTEST_CASES=${PROPTEST_CASES:-4}
modules=(checkpoint::matching checkpoint::pth::tests::windows checkpoint::pth::tests::pickles
    config::text config::declare plan:: graph:: random:: run::threads)
[ $# -eq 0 ] || modules=("$@")

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
for module in "${modules[@]}"; do
    code=0
    timeout "${MIRI_SECONDS:-900}" cargo +nightly miri test --lib -- "$module" >"$log" 2>&1 || code=$?
    if [ "$code" -ne 0 ]; then
        status=1
        grep -aE '^error|panicked at|FAILED|unsupported operation' "$log" | head -20 || true
        [ "$code" -ne 124 ] || echo "$module: not done in ${MIRI_SECONDS:-900} seconds; the last: $(grep -a '^test ' "$log" | tail -1 || true)"
    fi
    echo "$module: $(grep -a '^test result' "$log" | sed 's/test result: //' | tr '\n' ' ' || true)"
done
echo "not covered: files, kernels (vector instructions, and minutes for what takes a millisecond), memory maps, GPUs, whole runs; scripts/asan.sh has those"
exit $status
