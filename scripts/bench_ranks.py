"""Times training on two ranks: threads of `runner`, its processes, and `torch.distributed` with gloo, all in turn.

    cargo build --release && python scripts/bench_ranks.py --rounds 3

Prints a table of samples a second, medians of the rounds (docs/distributed.md has it). Needs Linux, PyTorch, torchvision
and two cores. Data is made up for both: `runner` loads and transforms its own while it trains, PyTorch has one batch
in memory. PyTorch is timed as it is, with channels last, and with an allocator that keeps memory; the fastest counts.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CNN = """
[data]
source = "synthetic"
shape = [1, 28, 28]
classes = 10
samples = SAMPLES
val_samples = 16
batch_size = BATCH
transforms = [{ type = "normalize", mean = [0.5], std = [0.5] }]

[model]
layers = [
  { type = "conv2d", out_channels = 32, kernel_size = 3, padding = 1 }, "relu", { type = "max_pool2d", kernel_size = 2 },
  { type = "conv2d", out_channels = 64, kernel_size = 3, padding = 1 }, "relu", { type = "max_pool2d", kernel_size = 2 },
  "flatten", { type = "linear", out_features = 256 }, "relu", { type = "dropout", p = 0.5 }, { type = "linear", out_features = 10 },
]

[loss]
type = "cross_entropy"

[optimizer]
type = "adam"
lr = 1e-3

[train]
epochs = 1
"""
RESNET = """
[data]
source = "synthetic"
shape = [3, 32, 32]
classes = 10
samples = SAMPLES
val_samples = 16
batch_size = BATCH
train_transforms = [{ type = "random_crop", size = 32, padding = 4 }, "random_horizontal_flip"]
transforms = [{ type = "normalize", mean = [0.4914, 0.4822, 0.4465], std = [0.2470, 0.2435, 0.2616] }]

[model]
use = "MODELS/resnet18_cifar.toml"
with = { num_classes = 10 }

[loss]
type = "cross_entropy"
label_smoothing = 0.1

[optimizer]
type = "sgd"
lr = 0.1
momentum = 0.9
weight_decay = 5e-4
nesterov = true

[train]
epochs = 1
clip_grad_norm = 1.0
"""
# Title, PyTorch's name, configuration, samples of a step, samples of a round.
NETS = [("CNN for MNIST", "mnist_cnn", CNN, 256, 40_960), ("ResNet-18 for 32×32", "resnet18_cifar", RESNET, 64, 640)]
SHARDS = ["--set", "distributed.shards=2"]
LAUNCH = ["launch", "--ranks", "2"]
# Rows: what comes before `train CONFIG` and behind it.
OURS = {
    "one rank, two threads, without shards": ([], ["--threads", "2"]),
    "one rank, two threads, `shards = 2`": ([], ["--threads", "2", *SHARDS]),
    "two ranks of one thread, threads": ([*LAUNCH, "--"], SHARDS),
    "two ranks of one thread, processes": ([*LAUNCH, "--processes", "--"], SHARDS),
}
THEIRS = "two processes of `torch.distributed`"
MODES = [(mode, allocator) for mode in ["eager", "channels_last"] for allocator in ["stock", "tuned"]]


def ours(before: list[str], after: list[str], config: pathlib.Path, run: pathlib.Path) -> float:
    command = [ROOT / "target/release/runner", *before, "train", config, "--device", "cpu", "--out", run, *after]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return next(line["samples_per_s"] for line in lines if line["kind"] == "epoch")


def theirs(net: str, batch: int, mode: str, allocator: str, steps: int) -> float:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python", sys.executable]
    command += [ROOT / "scripts/bench_pytorch.py", "--model", net, "--batch", str(batch // 2), "--threads", "1"]
    command += ["--mode", mode, "--allocator", allocator]
    # As many steps on both, or one would wait for ever.
    command += ["--seconds", "0", "--steps", str(steps)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    # Of the first rank; both take part in every step.
    return 2 * json.loads(said)["samples_per_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--net", choices=[net for _, net, *_ in NETS], help="only this one")
    args = parser.parse_args()
    columns, notes = [], []
    for title, net, text, batch, samples in NETS:
        if args.net not in (None, net):
            continue
        taken = {}
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "config.toml")
            values = {"SAMPLES": str(samples), "BATCH": str(batch), "MODELS": str(ROOT / "models")}
            for word, value in values.items():
                text = text.replace(word, value)
            config.write_text(text)
            for k in range(args.rounds):
                for row, (name, (before, after)) in enumerate(OURS.items()):
                    taken.setdefault(name, []).append(ours(before, after, config, pathlib.Path(folder, f"{k}.{row}")))
                for mode, allocator in MODES:
                    name = f"{mode}, {allocator} allocator"
                    taken.setdefault(name, []).append(theirs(net, batch, mode, allocator, samples // batch))
                print(f"{title}, round {k + 1}: " + "; ".join(f"{n} {v[-1]:,.0f}" for n, v in taken.items()), file=sys.stderr)
        medians = {name: statistics.median(values) for name, values in taken.items()}
        modes = {name: medians.pop(name) for name in list(medians) if name not in OURS}
        medians[THEIRS] = max(modes.values())
        columns.append((title, medians))
        notes.append(f"{title}, PyTorch: " + "; ".join(f"{name} {value:,.0f}" for name, value in modes.items()))
    print("| | " + " | ".join(title for title, _ in columns) + " |\n| --- |" + " --- |" * len(columns))
    for name in [*OURS, THEIRS]:
        print(f"| {name} | " + " | ".join(f"{medians[name]:,.0f}" for _, medians in columns) + " |")
    print("\n" + "\n".join(notes))


if __name__ == "__main__":
    main()
