#!/usr/bin/env bash
# Builds for Windows on Linux, and tries the program there under Wine:
#     scripts/windows_check.sh [code | tests [WORD] | program]   (that all compiles; the library's tests, with WORD in their names; the program; without a word, the last two)
# It needs a Rust that has the target (`rustup target add x86_64-pc-windows-gnu`) and MinGW, and to run what it builds Wine and curl; on Debian and Ubuntu: gcc-mingw-w64-x86-64, wine64, wine. On
# Windows itself `cargo test --lib` does the tests. Wine says whether results are right, and nothing about GPUs or other file systems.
set -euo pipefail
cd "$(dirname "$0")/.."

target=x86_64-pc-windows-gnu
part=${1:-all}
case $part in all | code | tests | program) ;; *) echo "expected code, tests, program or nothing, not $part" >&2; exit 2 ;; esac
tools=(x86_64-w64-mingw32-gcc)
[ "$part" = code ] || tools+=(wine curl)
for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || { echo "$tool was not found" >&2; exit 2; }
done
if [ "$part" = code ]; then
    # In the folder of other builds, with which it has macros and build scripts in common.
    RUSTFLAGS="-D warnings" CARGO_PROFILE_DEV_DEBUG=0 cargo check --target "$target" --lib --bins
    exit 0
fi
builds=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export WINEDEBUG=${WINEDEBUG:--all} WINEPREFIX=${WINEPREFIX:-$builds/wine} CARGO_PROFILE_DEV_DEBUG=0
place=$builds/$target/debug
folder=$(mktemp -d)
started=
trap '[ -z "$started" ] || kill -9 "$started"; rm -rf "$folder"' EXIT

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

if [ "$part" != program ]; then
    # Wine refuses a connection only after a long wait, which these two would not live to see.
    cargo test --target "$target" -p runner-ml -p runner-core --lib -- \
        --skip silence_and_a_sudden_end_are_errors --skip strangers_are_passed_over "${@:2}"
fi
[ "$part" != tests ] || exit 0

# The program does the same in a folder of each system, and what comes of it is compared.
# With a test, dependencies have the features that they have above, and are not built once more.
cargo build --bin runner
cargo build --target "$target" -p runner-ml -p runner-core --bin runner --test architecture
linux=$builds/debug/runner
for system in linux windows; do
    mkdir "$folder/$system"
    cp -r configs models data "$folder/$system/"
done
cd "$folder"
here() { (cd linux && "$linux" "$@"); }
there() { (cd windows && wine "$place/runner.exe" "$@"); }
# The same command on both, and what each prints, but for times and the `\\` of paths.
both() {
    here "$@" | plain >linux/printed
    there "$@" | plain >windows/printed
    same printed "$*"
}
plain() { sed -E 's/"seconds":[0-9.e-]+/"seconds":0/g; s#\\+#/#g'; }
same() { cmp "linux/$1" "windows/$1" && echo "the same on both: ${2:-$1}"; }
losses() { grep -o '"[a-z_]*loss":[^,}]*' "$1/metrics.jsonl"; }
same_losses() {
    losses "linux/$1" >linux/losses
    losses "windows/$2" >windows/losses
    same losses "losses of $3"
}

# A training to the bit, in one piece, in two, and by two ranks.
digits=(train configs/digits_cnn.toml --quiet --device cpu)
both "${digits[@]}" --out run
same_losses run run "digits"
there "${digits[@]}" --out parts --pause-after 3
there train --resume parts --quiet
same_losses run parts "digits, after a pause"
here "${digits[@]}" --set distributed.shards=2 --out ranks
there launch --ranks 2 "${digits[@]}" --set distributed.shards=2 --out ranks
same_losses ranks ranks "digits, by two ranks"

# What there is to do with a configuration and a model.
both models
both data show configs/digits_cnn.toml --out digits.png --count 6
same digits.png
both predict run digits.png --json
both export run model.onnx
same model.onnx
there export run model.pth
there report run --out report.html
there doctor --no-timing
there check configs/digits_cnn.toml
rm -r windows/run
cp -r linux/run windows/run
both eval run --json

# A sweep: two trials, of which the best is the same.
both sweep configs/digits_cnn.toml --quiet --sweep optimizer.lr=1e-3,1e-2 --method grid --set train.epochs=1 --out sweep --json

# A table, from the file to predictions.
for system in linux windows; do
    awk 'BEGIN { print "rooms,area,town,price"; for (i = 0; i < 300; i++) { town = i % 3; rooms = i % 5 + 1; area = 30 + i * 37 % 90
        print rooms "," area "," (town ? "sea" : "hill") "," 20 + 3 * rooms + area / 4 + 9 * town } }' >"$system/houses.csv"
done
both init houses.csv --target price
same houses.toml
both train houses.toml --quiet --device cpu --set train.epochs=3 --set train.early_stopping.patience=2 --set data.cache=disk --set data.cache_dir=cache --out table
same_losses table table "a table"
rmdir linux/cache windows/cache    # Files aside are gone.
both predict table houses.csv --keep-columns --out answers.csv
same answers.csv

# A small language model, and what it writes.
text=(--set data.path=data/README.md --set 'model.with={width=32,heads=2,layers=1}' --set schedule.warmup_steps=2 --set train.eval_every_steps=10)
both train configs/shakespeare_char.toml --quiet --device cpu "${text[@]}" --set train.steps=20 --out text
same_losses text text "a text"
both generate text --prompt "The " --max-tokens 40 --seed 3

# A server of all three, and what it answers.
asked() {
    local system=$1 signal=$2
    (cd "$system" && exec "${@:3}" serve run table text --port 0 --json --log off >served) &
    started=$!
    for _ in $(seq 300); do [ ! -s "$system/served" ] || break; sleep 0.1; done
    local address of=(curl -sS --fail --max-time 60)
    address=$(grep -o 'http://[0-9.:]*' "$system/served")
    {
        "${of[@]}" "$address/predict/run" -H 'Content-Type: image/png' --data-binary @linux/digits.png
        "${of[@]}" "$address/predict/table" -H 'Content-Type: text/csv' --data-binary @linux/houses.csv
        "${of[@]}" "$address/v1/completions" -H 'Content-Type: application/json' -d '{"model": "text", "prompt": "The", "max_tokens": 20, "seed": 3}'
    } | sed -E 's/"id":"[^"]*"|"created":[0-9]*//g' >"$system/answered"
    kill -s "$signal" "$started"
    wait "$started"
    started=
}
asked linux TERM "$linux"
asked windows INT wine "$place/runner.exe"
same answered "what serve answers"

# Ctrl-C in the midst of a training, which Wine makes of its signal.
(cd windows && exec wine "$place/runner.exe" "${digits[@]}" --set train.epochs=100000 --out stopped) &
started=$!
for _ in $(seq 300); do [ ! -s windows/stopped/metrics.jsonl ] || break; sleep 0.1; done
kill -INT "$started"
code=0
wait "$started" || code=$?
started=
[ "$code" = 130 ] || { echo "Ctrl-C ended the training with $code, not with 130" >&2; exit 1; }
there verify stopped
