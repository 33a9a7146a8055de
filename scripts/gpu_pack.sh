#!/usr/bin/env bash
# Builds what scripts/gpu_check.sh runs on a machine with a GPU and without Rust, and puts it into one archive:
#     scripts/gpu_pack.sh [ARCHIVE]         (target/gpu/bundle.tar.xz, unless told otherwise)
# It has the program, the tests that run on a GPU, and MNIST where RUNNER_TEST_DATA has it. Together with the working tree,
# which travels beside it, it stays below 64 MiB. TESTS="ops" takes these tests alone, all that the stage `quick` runs.
# BUILD=debug takes the debug builds, which may be larger. FEATURES names features to build with: `cust`, where that can be built.
set -euo pipefail
start=$PWD
cd "$(dirname "$0")/.."

archive=${1:-$PWD/target/gpu/bundle.tar.xz}
case $archive in
    /*) ;;
    *) archive=$start/$archive ;;
esac
build=${BUILD:-release}
profile=() limit=512
if [ "$build" = release ]; then
    profile=(--release) limit=64
fi
features=cust
if [ "$(uname -sm)" != "Linux x86_64" ]; then
    features=
fi
features=${FEATURES-$features}
if [ -n "$features" ]; then
    # The empty library in that folder is taken for a CUDA toolkit.
    export CUDA_LIBRARY_PATH=${CUDA_LIBRARY_PATH:-$PWD/scripts/cust}
    profile+=(--features "$features")
fi
mkdir -p "$(dirname "$archive")"
# Debug builds are too large for many a /tmp.
folder=$(mktemp -d "$(dirname "$archive")/packing.XXXXXX")
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"

# Symbols are most of a program, and nobody looks at them there.
place() {
    if ! strip -o "$2" "$1" 2>/dev/null; then
        echo "strip could not be used on $1: it stays as it is"
        cp "$1" "$2"
    fi
}

# Of all tests, those on a GPU alone: building takes long enough.
tests=${TESTS:-ops $(for test in tests/suites/*cuda*; do basename "$test"; done)}
wanted=()
for test in $tests; do
    wanted+=(--test "$test")
done
log=$folder/cargo.log
# The program is built along with the tests that run it: `cargo build` would build it once more, with dependencies that have
# other features. Cargo says "Executable tests/suites/ops/main.rs (target/release/deps/ops-0123456789abcdef)".
if ! cargo test "${profile[@]}" --no-run "${wanted[@]}" 2>"$log"; then
    cat "$log" >&2
    exit 1
fi
built=$(sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$log")
rm "$log"
place "${CARGO_TARGET_DIR:-target}/$build/runner" "$folder/bin/runner"
for test in $built; do
    name=$(basename "$test")
    name=${name%-*}
    case " $(echo $tests) " in
        *" $name "*) place "$test" "$folder/bin/$name" ;;
    esac
done
for name in $tests; do
    [ -e "$folder/bin/$name" ] || { echo "the tests \`$name\` were not built" >&2; exit 1; }
done

if [ -n "${RUNNER_TEST_DATA:-}" ] && [ -d "$RUNNER_TEST_DATA/mnist" ]; then
    mkdir -p "$folder/data/mnist"
    cp "$RUNNER_TEST_DATA"/mnist/*.gz "$folder/data/mnist/"
    chmod -R u+w "$folder/data"
fi
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
if [ -n "$(git status --porcelain 2>/dev/null)" ]; then
    commit="$commit, changed"
fi
python3 scripts/gpu_bundle.py pack "$folder" "$archive" "$commit" "$limit"
