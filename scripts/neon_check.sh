#!/usr/bin/env bash
# Builds for 64-bit ARM on another machine and runs the tests of the CPU backend there, under emulation:
#     scripts/neon_check.sh [WORD]          (only tests of the library with WORD in their names; without it, all of the below)
# It needs a Rust that has the target (`rustup target add aarch64-unknown-linux-gnu`), a C compiler that links for it and
# QEMU's user mode; on Debian and Ubuntu: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user-static. Others are named by
# CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER and CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER. On such a machine itself
# `cargo test` does all this and more. Emulation says whether results are right, and nothing about speed.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=${CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER:-aarch64-linux-gnu-gcc}
# Some dependencies have C and assembly.
export CC_aarch64_unknown_linux_gnu=${CC_aarch64_unknown_linux_gnu:-$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER}
if [ -z "${CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER:-}" ]; then
    emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
    [ -n "$emulator" ] || { echo "QEMU's user mode (qemu-aarch64-static or qemu-aarch64) was not found" >&2; exit 1; }
    # Where the compiler's C library lies.
    root=$("$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER" -print-sysroot)
    case $root in "" | /) root=/usr/aarch64-linux-gnu ;; esac
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$emulator -L $root"
fi

# Optimised: emulation is some hundred times slower than the machine.
run() {
    cargo test --release --target "$target" "$@"
}

if [ $# -gt 0 ]; then
    run --lib -- "$@"
    exit
fi
run -p runner-cpu
run -p runner-engine --lib -- backend::cpu
run --test golden
run --test ops -- parity coverage
run --test semantics

# A whole training at each level of instructions: the losses have to agree but for rounding, which is for people to judge.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for level in neon scalar; do
    echo "two epochs on the bundled digits, $level:"
    RUNNER_SIMD=$level cargo run --release --quiet --target "$target" -- \
        train configs/digits_cnn.toml --set train.epochs=2 --out "$folder/$level"
done
