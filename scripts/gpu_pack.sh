#!/usr/bin/env bash
# Builds what scripts/gpu_check.sh needs on a machine with a GPU and without Rust, and puts it into a folder:
#     scripts/gpu_pack.sh [FOLDER]          (target/gpu, unless told otherwise)
# The folder then has the program, the tests that run on a GPU, a manifest that names them, and MNIST where
# RUNNER_TEST_DATA has it. It stays below 64 MiB, so that it travels easily. BUILD=debug takes the debug builds.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-target/gpu}
limit=$((64 << 20))
profile=()
if [ "${BUILD:-release}" = release ]; then
    profile=(--release)
fi

rm -rf "$folder"
mkdir -p "$folder"

cargo build "${profile[@]}" --bin runner
binary=target/${BUILD:-release}/runner
strip -o "$folder/runner" "$binary"

# Of all tests, those on a GPU alone: building takes long enough.
wanted=(--test ops)
for test in tests/*cuda*; do
    wanted+=(--test "$(basename "$test" .rs)")
done
# Cargo says "Executable tests/ops/main.rs (target/release/deps/ops-0123456789abcdef)".
tests=$(cargo test "${profile[@]}" --no-run "${wanted[@]}" 2>&1 | tee /dev/stderr | sed -n 's/^ *Executable .*(\(.*\))$/\1/p')

# The root is where the tests look for their files: it was compiled into them.
{
    echo "root $PWD"
    echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
} >"$folder/manifest"
for test in $tests; do
    name=$(basename "$test")
    name=${name%-*}
    case $name in
        # Of the operations' tests, those on a GPU; the word is a filter of the test binary.
        ops) filter=cuda ;;
        *cuda*) filter= ;;
        *) continue ;;
    esac
    strip -o "$folder/$name" "$test"
    echo "test $name $filter" >>"$folder/manifest"
done
grep -q '^test ops ' "$folder/manifest" || { echo "the tests of operations were not built" >&2; exit 1; }

if [ -n "${RUNNER_TEST_DATA:-}" ] && [ -d "$RUNNER_TEST_DATA/mnist" ]; then
    mkdir -p "$folder/data"
    cp -r "$RUNNER_TEST_DATA/mnist" "$folder/data/mnist"
fi

size=$(du -sb "$folder" | cut -f1)
cat "$folder/manifest"
echo "$folder: $((size >> 20)) MiB"
if [ "$size" -ge "$limit" ]; then
    echo "that is more than the $((limit >> 20)) MiB that may be carried" >&2
    exit 1
fi
