#!/usr/bin/env bash
# Runs everything that is to be known on a machine with a GPU; docs/gpu.md tells what and how to read it.
#     scripts/gpu_check.sh [FOLDER]         (a folder that scripts/gpu_pack.sh made; target/gpu, unless told otherwise)
# Needs NVIDIA's driver, bash, coreutils and Python 3 without packages; PyTorch with CUDA for the comparison, if it is there.
# OUT=FOLDER keeps all logs and figures. DEVICE=cpu tries the script itself where there is no GPU. PARTS="devices bench"
# runs only these parts. SCALE=4 gives every part four times its time.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

bundle=$(cd "${1:-target/gpu}" && pwd) || exit 2
device=${DEVICE:-cuda}
scale=${SCALE:-1}
steps=${STEPS:-100}
parts=${PARTS:-devices tests configs graph precision train bench peer}
work=$(mktemp -d) || exit 2
trap 'stop_watching; rm -rf "$work"' EXIT
runner=$bundle/runner
figures=(python3 scripts/gpu_figures.py)
rows=$work/rows.md
failed=0
watcher=

if [ ! -x "$runner" ]; then
    echo "$bundle has no program: make it with scripts/gpu_pack.sh" >&2
    exit 2
fi

data=
for place in "$bundle/data" "${RUNNER_TEST_DATA:-}"; do
    if [ -n "$place" ] && [ -d "$place/mnist" ]; then
        data=$place
        break
    fi
done

# part NAME SECONDS FUNCTION: runs a part within its time; what goes wrong in it stops no other. A part is a new shell,
# so that its time limit ends all that it has started.
part() {
    local name=$1 seconds=$(($2 * scale)) function=$3 start=$SECONDS status verdict
    case " $parts " in *" $name "*) ;; *) return ;; esac
    printf '\n===== %s\n' "$name"
    mkdir -p "$work/$name"
    timeout -k 5 "$seconds" bash -c "set -uo pipefail; $function" >"$work/$name/log" 2>&1
    status=$?
    case $status in
        0) verdict=ok ;;
        124 | 137) verdict="**out of time** ($seconds s)" ;;
        *) verdict="**failed** ($status)" ;;
    esac
    if [ "$status" -ne 0 ]; then
        failed=1
    fi
    tail -n 40 "$work/$name/log"
    echo "| $name | $verdict | $((SECONDS - start)) s |" >>"$rows"
}

stop_watching() {
    if [ -n "$watcher" ]; then
        kill "$watcher" 2>/dev/null
        wait "$watcher" 2>/dev/null
        watcher=
    fi
}

# watch NAME: notes the GPU's load and memory five times a second until stop_watching.
watch() {
    stop_watching
    mkdir -p "$work/$1"
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits -lms 200 >"$work/$1/load.csv" 2>/dev/null &
        watcher=$!
    fi
}

devices() {
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi || true
    fi
    "$runner" devices && "$runner" devices --json >"$work/devices/devices.json"
}

# Tests find their files under the folder that they were built in.
tests() {
    local root status=0
    root=$(sed -n 's/^root //p' "$bundle/manifest")
    if [ ! -e "$root/tests" ]; then
        mkdir -p "$(dirname "$root")"
        # An empty folder would swallow the link.
        rmdir "$root" 2>/dev/null
        ln -s "$PWD" "$root" || return 1
    fi
    if [ "$device" = cuda ]; then
        export RUNNER_TEST_GPU=1
    fi
    while read -r word name filter; do
        if [ "$word" = test ]; then
            echo "--- $name $filter"
            "$bundle/$name" ${filter:+"$filter"} || status=1
        fi
    done <"$bundle/manifest"
    return "$status"
}

# train FOLDER DEVICE CONFIG [OPTION…]: a run of at most `limit` seconds, with the data that there are.
train() {
    local out=$1 on=$2 config=$3
    shift 3
    local set=()
    case $config in
        configs/mnist_*) set=(--set "data.root=\"${data:-data}/mnist\"" --set data.download=false) ;;
        configs/fashion_*) set=(--set "data.root=\"${data:-data}/fashion-mnist\"" --set data.download=false) ;;
        configs/cifar10_*) set=(--set "data.root=\"${data:-data}/cifar-10\"" --set data.download=false) ;;
    esac
    timeout -k 5 "$((${limit:-60} * scale))" "$runner" train "$config" "${set[@]}" --device "$on" --out "$out" --quiet "$@"
}

# A ResNet on made-up images: it needs no data.
resnet() {
    cat <<TOML
seed = 1
[data]
source = "synthetic"
shape = [3, $1, $1]
classes = 10
samples = $((16 * $2))
val_samples = $2
batch_size = $2
[model]
use = "$PWD/models/resnet18.toml"
with = { num_classes = 10 }
[loss]
type = "cross_entropy"
label_smoothing = 0.1
[optimizer]
type = "sgd"
lr = 0.01
momentum = 0.9
weight_decay = 5e-4
nesterov = true
[train]
epochs = 1
TOML
}

# Every configuration for a few steps on the CPU and on the GPU.
configs() {
    local status=0 name limit=30 few=(--set train.max_steps=6 --set log.every_steps=1 --set data.limit_val=256 --set data.batch_size=32)
    resnet 32 32 >"$work/configs/resnet18_made_up.toml"
    for config in configs/*.toml "$work/configs/resnet18_made_up.toml"; do
        name=$(basename "$config" .toml)
        if [ "$name" = cifar10_resnet18 ] && [ ! -d "$data/cifar-10" ]; then
            echo "$name: skipped, there is no CIFAR-10 (resnet18_made_up stands for it)"
            continue
        fi
        train "$work/configs/$name.cpu" cpu "$config" "${few[@]}" &&
            train "$work/configs/$name.gpu" "$device" "$config" "${few[@]}" &&
            "${figures[@]}" losses "$name" "$work/configs/$name".{cpu,gpu}/metrics.jsonl || {
            echo "$name: FAILED, or was not done within $((limit * scale)) s"
            status=1
        }
    done
    return "$status"
}

# Replayed from a CUDA graph or launched one by one: the same bits.
graph() {
    local status=0 name few=(--set train.max_steps=20 --set log.every_steps=1 --set data.limit_val=256)
    resnet 32 32 >"$work/graph/resnet18.toml"
    for config in configs/mnist_cnn.toml "$work/graph/resnet18.toml"; do
        name=$(basename "$config" .toml)
        for graph in true false; do
            train "$work/graph/$name.$graph" "$device" "$config" "${few[@]}" --set graph="$graph" &&
                "$runner" export "$work/graph/$name.$graph/last.safetensors" "$work/graph/$name.$graph.safetensors" || status=1
        done
        if cmp "$work/graph/$name".{true,false}.safetensors; then
            echo "$name: the same bits with and without a graph"
        else
            status=1
        fi
    done
    return "$status"
}

precision() {
    local status=0 few=(--set train.max_steps="$steps" --set log.every_steps=1 --set data.limit_val=256)
    for precision in fp32 tf32 bf16 fp16; do
        train "$work/precision/$precision" "$device" configs/mnist_cnn.toml "${few[@]}" --set "precision=\"$precision\"" || status=1
    done
    "${figures[@]}" curves "$work"/precision/{fp32,tf32,bf16,fp16}/metrics.jsonl || status=1
    if [ "$device" = cuda ] && [ -x "$bundle/cuda" ]; then
        RUNNER_TEST_GPU=1 "$bundle/cuda" --exact precision::errors_of_gradients_by_layer --nocapture |
            grep '^|' | tee "$work/precision/layers.md" || status=1
    fi
    return "$status"
}

# From nothing to 99 %, as a user would.
learn() {
    local on=auto config=configs/mnist_cnn.toml aim=0.99 epochs=${EPOCHS:-10}
    if [ "$device" = cpu ]; then
        on=cpu
    fi
    if [ -z "$data" ]; then
        echo "no MNIST was found: the bundled digits stand for it"
        config=configs/digits_cnn.toml aim=0.97
    fi
    train "$work/train/run" "$on" "$config" --set train.epochs="$epochs" &&
        "${figures[@]}" accuracy "$work/train/run/metrics.jsonl" "$aim"
}

bench() {
    local status=0 at=$work/bench
    resnet 32 128 >"$at/resnet18_32.toml"
    resnet 224 64 >"$at/resnet18_224.toml"
    for precision in fp32 tf32 bf16; do
        for case in mlp:configs/mnist_mlp.toml mnist_cnn:configs/mnist_cnn.toml resnet18_32:$at/resnet18_32.toml resnet18_224:$at/resnet18_224.toml; do
            local name=${case%%:*} report=$at/${case%%:*}.$precision.json
            echo "--- $name $precision"
            timeout -k 5 "$((30 * scale))" "$runner" bench "${case#*:}" --device "$device" --set "precision=\"$precision\"" \
                --steps "$steps" --json >"$report" || status=1
            cat "$report"
        done
    done
    # What NVIDIA's libraries bring: the same without them.
    for precision in fp32 bf16; do
        for case in mnist_cnn:configs/mnist_cnn.toml "resnet18_32:$at/resnet18_32.toml"; do
            RUNNER_CUDA_LIBRARIES=0 timeout -k 5 "$((15 * scale))" "$runner" bench "${case#*:}" --device "$device" \
                --set "precision=\"$precision\"" --steps "$steps" --json >"$at/${case%%:*} (own kernels).$precision.json" || status=1
        done
    done
    return "$status"
}

peer() {
    if ! python3 -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2>/dev/null && [ "$device" = cuda ]; then
        echo "skipped: there is no PyTorch with CUDA"
        return 0
    fi
    python3 scripts/gpu_peer.py --device "$device" --seconds "${PEER_SECONDS:-$((90 * scale))}" >"$work/peer/peer.jsonl"
}

export bundle device runner data work scale steps
export -f devices tests train resnet configs graph precision learn bench peer
# Arrays are not exported: every part makes its own.
figures_line='figures=(python3 scripts/gpu_figures.py);'

part devices 30 devices
part tests 120 tests
part configs 90 "$figures_line configs"
part graph 30 graph
part precision 50 "$figures_line precision"
watch train
part train 60 "$figures_line learn"
watch bench
part bench 110 bench
stop_watching
part peer 110 peer

{
    echo "Commit $(sed -n 's/^commit //p' "$bundle/manifest"), device \`$device\`."
    echo
    echo "| part | result | time |"
    echo "| --- | --- | --- |"
    cat "$rows" 2>/dev/null
    "${figures[@]}" tables "$work" || failed=1
} >"$work/summary.md"

if [ -n "${OUT:-}" ]; then
    mkdir -p "$OUT"
    cp "$work/summary.md" "$OUT/summary.md"
    # Checkpoints are large, and nobody reads them.
    tar -C "$work" --exclude='*.safetensors' -czf "$OUT/logs.tar.gz" .
fi
printf '\n===== summary\n'
cat "$work/summary.md"
exit "$failed"
