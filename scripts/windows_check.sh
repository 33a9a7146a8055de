#!/usr/bin/env bash
# Builds for Windows on Linux, and tries the program there under Wine:
#     scripts/windows_check.sh [WORD]          (only tests of the library with WORD in their names; without it, all of the below)
# It needs a Rust that has the target (`rustup target add x86_64-pc-windows-gnu`), MinGW and Wine; on Debian and Ubuntu: gcc-mingw-w64-x86-64, wine64, wine. On
# Windows itself `cargo test --lib` does the tests. Wine says whether results are right, and nothing about GPUs or other file systems.
set -euo pipefail
cd "$(dirname "$0")/.."

target=x86_64-pc-windows-gnu
for tool in x86_64-w64-mingw32-gcc wine; do
    command -v "$tool" >/dev/null || { echo "$tool was not found" >&2; exit 2; }
done
export WINEDEBUG=${WINEDEBUG:--all} WINEPREFIX=${WINEPREFIX:-$PWD/target/wine} CARGO_PROFILE_DEV_DEBUG=0
place=$PWD/target/$target/debug
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Wine before 9 lacks a library that Rust takes random bytes from.
mkdir -p "$place/deps"
if [ ! -e "$place/deps/bcryptprimitives.dll" ] && [ "$(wine --version | sed 's/^wine-\([0-9]*\).*/\1/')" -lt 9 ]; then
    cat >"$folder/random.c" <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL ProcessPrng(PBYTE to, SIZE_T bytes) { return SystemFunction036(to, (ULONG)bytes); }
C
    x86_64-w64-mingw32-gcc -shared -o "$place/deps/bcryptprimitives.dll" "$folder/random.c" -ladvapi32
    cp "$place/deps/bcryptprimitives.dll" "$place/"
fi
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=wine

# Wine refuses a connection only after a long wait, which these two would not live to see.
cargo test --target "$target" -p runner-ml -p runner-core --lib -- \
    --skip silence_and_a_sudden_end_are_told --skip strangers_are_passed_over "$@"
if [ $# -gt 0 ]; then
    exit
fi

# The same training here and there, to the bit; then what else there is to do with it.
cargo build --bin runner
cargo build --target "$target" --bin runner
there() {
    wine "$place/runner.exe" "$@"
}
losses() {
    grep -o '"[a-z_]*loss":[^,}]*' "$1/metrics.jsonl"
}
cp -r configs models data "$folder/"
cd "$folder"
"$OLDPWD/target/debug/runner" train configs/digits_cnn.toml --quiet --device cpu --out here
there train configs/digits_cnn.toml --quiet --device cpu --out there
diff <(losses here) <(losses there) && echo "the same losses on both systems"
there train configs/digits_cnn.toml --quiet --device cpu --out parts --pause-after 3
there train --resume parts --quiet
diff <(losses here) <(losses parts) && echo "the same losses after a pause"
there launch --ranks 2 train configs/digits_cnn.toml --quiet --device cpu --set distributed.shards=2 --out two
"$OLDPWD/target/debug/runner" train configs/digits_cnn.toml --quiet --device cpu --set distributed.shards=2 --out one
diff <(losses one) <(losses two) && echo "the same losses of two ranks"
there eval there --json >there.json
"$OLDPWD/target/debug/runner" eval there --json >here.json
diff <(grep -o '"accuracy":[^,}]*' here.json) <(grep -o '"accuracy":[^,}]*' there.json) && echo "a checkpoint of Windows is read here"
there export there --out model.onnx
there report there --out report.html
there doctor --no-timing
