#!/usr/bin/env bash
# The tests that reach `unsafe` code, under AddressSanitizer:
#     scripts/asan.sh [WORD]       (only tests with WORD in their names)
# It needs the nightly compiler (`rustup toolchain install nightly`) on x86-64 Linux. Builds go to target/asan.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "the nightly compiler is not installed: rustup toolchain install nightly" >&2
    exit 2
fi
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/target/asan
export RUSTFLAGS="-Zsanitizer=address ${RUSTFLAGS:-}"
# Threads of the pool live as long as the process where a test ends early: no leak.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:allocator_may_return_null=1}
word=${1:-}

log=$(mktemp)
# What is kept until a process ends: checksums that tests make up, and the tables of the emulated driver, which is C++.
allowed=$(mktemp)
trap 'rm -f "$log" "$allowed"' EXIT
printf 'leak:%s\n' fetch::tests::remote libstdc++ >"$allowed"
export LSAN_OPTIONS=suppressions=$allowed:print_suppressions=0
status=0
# The library's own tests (kernels, planner, formats, threads), the operations with all their cases, random programs on random
# data, the files that fuzzers left.
# `--target` keeps the flags from build scripts and procedural macros.
for tests in "--lib" "--test products" "--test corpora" "--test soak" "--test ops" "--test semantics passes::"; do
    # shellcheck disable=SC2086
    if ! cargo +nightly test --target "$host" --no-fail-fast $tests -- $word >"$log" 2>&1; then
        status=1
        grep -aE '^(error|test .* FAILED|==[0-9]+==ERROR|SUMMARY)|panicked at' "$log" | head -40 || true
    fi
    echo "$tests: $(grep -a '^test result' "$log" | sed 's/test result: //' | tr '\n' ' ' || true)"
done
echo "covered: the CPU backend on every level of this machine ($(grep -m1 '^flags' /proc/cpuinfo | tr ' ' '\n' | grep -xE 'avx2|avx512f' | tr '\n' ' ')and scalar)"
echo "not covered: code of other machines (NEON), GPUs, memory that the program maps itself beyond its pages, races (ThreadSanitizer)"
exit $status
