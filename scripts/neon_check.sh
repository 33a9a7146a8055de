#!/usr/bin/env bash
# Builds for 64-bit ARM on another machine and runs the tests of the CPU backend there, under emulation:
#     scripts/neon_check.sh [PART …]          (cpu engine golden ops semantics training; without one, all of them)
#     scripts/neon_check.sh lib WORD          (tests of the library with WORD in their names)
#     scripts/neon_check.sh code              (that all compiles, without a warning; without QEMU)
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
if [ "${1:-}" = code ]; then
    RUSTFLAGS="-D warnings" CARGO_PROFILE_DEV_DEBUG=0 cargo check --target "$target" --lib --bins
    exit
fi
if [ -z "${CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER:-}" ]; then
    emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
    [ -n "$emulator" ] || { echo "QEMU's user mode (qemu-aarch64-static or qemu-aarch64) was not found" >&2; exit 1; }
    # Where the compiler's C library lies.
    root=$("$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER" -print-sysroot)
    case $root in "" | /) root=/usr/aarch64-linux-gnu ;; esac
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$emulator -L $root"
fi
# Kernels are optimised in debug builds, too, which take a part of the time to build.
export CARGO_PROFILE_DEV_DEBUG=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

run() {
    cargo test --target "$target" "$@"
}
part() {
    case $1 in
    cpu) run -p runner-cpu ;;
    engine) run -p runner-engine --lib -- backend::cpu ;;
    golden) run --test golden ;;
    ops) run --test ops -- parity coverage ;;
    semantics) run --test semantics ;;
    training)
        # A whole training at each level of instructions: the losses have to agree but for rounding, which is for people to judge.
        for level in neon scalar; do
            echo "two epochs on the bundled digits, $level:"
            RUNNER_SIMD=$level cargo run --quiet --target "$target" -- \
                train configs/digits_cnn.toml --set train.epochs=2 --out "$folder/$level"
        done
        ;;
    *) echo "expected cpu, engine, golden, ops, semantics, training, lib WORD or code, not $1" >&2; exit 2 ;;
    esac
}

if [ "${1:-}" = lib ]; then
    run --lib -- "${@:2}"
    exit
fi
[ $# -gt 0 ] || set -- cpu engine golden ops semantics training
for name in "$@"; do
    SECONDS=0
    part "$name"
    echo "$name took $SECONDS s"
done
