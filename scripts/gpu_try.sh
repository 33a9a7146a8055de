#!/usr/bin/env bash
# Tries scripts/gpu_pack.sh and scripts/gpu_check.sh where there is no GPU, so that they cannot rot: a bundle of debug builds
# is packed, the working tree copied to another folder, and from there a few small families of every stage are run on the
# emulated driver. PyTorch is timed on the CPU if python3 has it, or the one that RUNNER_TEST_PYTORCH names. What is skipped is told.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "the GPU checks are not tried: they need python3 of version 3.11 or newer"
    exit 0
fi
# Built with what all else is built with, so that it is built once.
features=()
if [ -n "${FEATURES:-}" ]; then
    features=(--features "$FEATURES")
fi
said=$(cargo test "${features[@]}" --quiet --test emulated_driver -- --exact the_driver_is_built --nocapture 2>&1) || { echo "$said" >&2; exit 1; }
driver=$(sed -n 's/.*the emulated driver is in //p' <<<"$said")
if [ -z "$driver" ]; then
    echo "the GPU checks are not tried, as there is no emulated driver:"
    sed -n 's/.*skipped/skipped/p' <<<"$said"
    exit 0
fi

# What somebody has set for another purpose.
unset RUNNER_TEST_DATA RUNNER_TEST_GPU RUNNER_TEST_CASES DEVICE SCALE FAMILY_SECONDS CUDA_VISIBLE_DEVICES
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/tree"
bundle=$folder/bundle.tar.xz
BUILD=debug scripts/gpu_pack.sh "$bundle"
# What travels: tracked files, and those that git does not ignore.
git ls-files -z --cached --others --exclude-standard --deduplicate |
    while IFS= read -r -d '' file; do
        if [ -e "$file" ]; then printf '%s\0' "$file"; fi
    done | tar --null --no-recursion -T - -cf - | tar -xf - -C "$folder/tree"
cd "$folder/tree"

# check STAGE FAMILY...: what is asked for must have been run, and well.
check() {
    if ! scripts/gpu_check.sh "$bundle" "$@" >"$folder/said" 2>&1; then
        cat "$folder/said"
        cat "$OUT/$1"/*.log
        exit 1
    fi
    grep '^===== .*:' "$folder/said"
}

export OUT=$folder/out STEPS=1 BATCH=2 JOBS=2
export MODELS=mlp PRECISIONS=fp32
export LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# What compute-sanitizer says when it has found nothing; the cases that it is to run must exist.
mkdir "$folder/tools"
printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift 2; done\n"$@" || exit\necho "========= ERROR SUMMARY: 0 errors"\n' >"$folder/tools/compute-sanitizer"
chmod +x "$folder/tools/compute-sanitizer"
PATH=$folder/tools:$PATH check correctness devices ops/softmax ops/loss golden/losses cuda/trace cuda/limits program/bench::steps program/selection sanitizer/memcheck
# It has been unpacked once by the checks; from here on they take a folder.
python3 scripts/gpu_bundle.py unpack "$bundle" "$folder/bundle"
bundle=$folder/bundle
check training configs/linear_regression bits/digits_cnn.fp32 bits/digits_cnn.resumed precision/fp32 precision/bf16
MODELS="mlp mnist_cnn" check speed bench/mlp bench/mnist_cnn.fp32.own profile/mnist_cnn.fp32
# Something of every part of the quick stage; a file of the user's among what is profiled.
mkdir .gpu
cp configs/linear_regression.toml .gpu/a_file.toml
MODELS="mlp mnist_cnn" check quick checked/softmax checked/devices checked/cust ours/mlp threads/mnist_cnn
MODELS="mlp mnist_cnn" SCALE=4 check quick profiles/mnist profiles/a_file
DEVICE=cpu SCALE=2 check quick aim/fp32
# The emulated driver would take minutes for it.
MODELS=gpt_shakespeare PRECISIONS=bf16 DEVICE=cpu SCALE=4 check quick ours/gpt_shakespeare
if [ -n "${RUNNER_TEST_PYTORCH:-}" ]; then
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$(command -v "$RUNNER_TEST_PYTORCH")" >"$folder/tools/python3"
    chmod +x "$folder/tools/python3"
    PATH=$folder/tools:$PATH
fi
# Threads that wait for each other take all time where there are few cores.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
if python3 -c 'import torch' 2>/dev/null; then
    MODELS="mlp mnist_cnn" PRECISIONS=bf16 DEVICE=cpu check speed peer/eager peer/channels_last
    MODELS=resnet18_224 PRECISIONS=fp32 DEVICE=cpu check speed peer/channels_last
    MODELS="mlp mnist_cnn" DEVICE=cpu SCALE=4 check quick checked/pytorch theirs threads/torch
    # In bf16 it is slow on a processor without instructions for that.
    python3 scripts/gpu_peer.py --device cpu --seconds 300 --batch 1 --steps 1 --only eager/fp32/gpt_shakespeare >"$folder/said"
    grep step_ms "$folder/said"
else
    echo "PyTorch's steps are not timed: python3 has no PyTorch"
fi
