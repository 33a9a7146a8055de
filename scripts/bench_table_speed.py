"""The speed of tables beside Python's tools on the same machine: reading CSV, an epoch of an MLP, a training step of TabM-mini.

    RUNNER=target/release/runner python3 scripts/bench_table_speed.py [read|epoch|tabm] [--rounds 3] [--rows N] [--threads 2] [--precision bf16]

`read`: from a CSV file of 28 columns of numbers to the first batch, whole processes, beside `pandas.read_csv` (its quick parser, and the one of pyarrow if it is
there). `epoch`: an MLP of three layers of 256, batches of 256, data and all, beside PyTorch with a `DataLoader` and with tensors in memory. `tabm`: a
step of models/tabular.toml beside the package `tabm` of its authors, eager and by `torch.compile`. Both sides run in turn; medians are printed. Needs
PyTorch, pandas, numpy, tabm and rtdl_num_embeddings.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RUNNER = os.environ.get("RUNNER", "target/release/runner")
COLUMNS = 28

CONFIG = """
device = "cpu"
[data]
source = "csv"
path = "table.csv"
target = "y"
batch_size = 256
validation_split = 64
[model]
use = "{model}"
[loss]
type = "mse"
[optimizer]
type = "adamw"
lr = 1e-3
[train]
epochs = {epochs}
"""


def table(rows: int, columns: int = COLUMNS) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    return x, x[:, 0] * x[:, 1] + x[:, 2]


def write(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    header = ",".join([f"c{i}" for i in range(x.shape[1])] + ["y"])
    np.savetxt(path, np.column_stack([x, y]), delimiter=",", fmt="%.6g", header=header, comments="")


def runner(folder: Path, sets: list[str], threads: int) -> tuple[float, list[dict]]:
    """Seconds of the whole process, and the lines of its metrics."""
    more = [word for entry in sets for word in ("--set", entry)]
    begin = time.perf_counter()
    command = [RUNNER, "train", str(folder / "c.toml"), "--quiet", "--force", "--threads", str(threads), "--out", str(folder / "run"), *more]
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - begin
    return seconds, [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def told(name: str, ours: list[float], others: dict[str, list[float]], unit: str) -> None:
    own = statistics.median(ours)
    print(f"{name}: runner {own:.3f} {unit}")
    for other, values in others.items():
        value = statistics.median(values)
        print(f"  {other}: {value:.3f} {unit}, {value / own:.2f} of ours", flush=True)


PANDAS = """
import sys, time
begin = time.perf_counter()
import pandas
frame = pandas.read_csv(sys.argv[1], **eval(sys.argv[2])).to_numpy("float32")
print(time.perf_counter() - begin)
"""


def read(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "table.csv", *table(args.rows or 1_000_000))
        (folder / "c.toml").write_text(CONFIG.format(model="tabular_mlp", epochs=1))
        ours: list[float] = []
        others: dict[str, list[float]] = {}
        ways = {"pandas": "{}", "pandas, pyarrow": "{'engine': 'pyarrow'}"}
        for _ in range(args.rounds):
            ours.append(runner(folder, ["train.max_steps=1"], args.threads)[0])
            for way, options in ways.items():
                done = subprocess.run([sys.executable, "-c", PANDAS, str(folder / "table.csv"), options], capture_output=True, text=True)
                if done.returncode == 0:
                    others.setdefault(way, []).append(float(done.stdout))
        told("from CSV to the first step, the whole process", ours, others, "s")


def mlp(inputs: int):
    from torch import nn

    sizes = [inputs, 256, 256, 256]
    layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(256, 1))


def epoch(args: argparse.Namespace) -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(args.threads)
    rows = args.rows or 100_000
    x, y = table(rows)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "table.csv", x, y)
        (folder / "c.toml").write_text(CONFIG.format(model="tabular_mlp", epochs=4))
        xs, ys = torch.from_numpy(x), torch.from_numpy(y)[:, None]

        def batches(loader: bool):
            if loader:
                yield from DataLoader(TensorDataset(xs, ys), 256, shuffle=True)
                return
            order = torch.randperm(rows)
            for at in range(0, rows, 256):
                yield xs[order[at : at + 256]], ys[order[at : at + 256]]

        def one(loader: bool) -> float:
            net = mlp(COLUMNS)
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
            times = []
            for _ in range(2):
                begin = time.perf_counter()
                for a, b in batches(loader):
                    optimizer.zero_grad(set_to_none=True)
                    loss = torch.nn.functional.mse_loss(net(a), b)
                    loss.backward()
                    optimizer.step()
                times.append(time.perf_counter() - begin)
            return times[-1]

        ours: list[float] = []
        others: dict[str, list[float]] = {"DataLoader": [], "tensors in memory": []}
        for _ in range(args.rounds):
            lines = runner(folder, [], args.threads)[1]
            ours.append(statistics.median(line["seconds"] for line in lines if line["kind"] in ("epoch", "eval")))
            others["DataLoader"].append(one(True))
            others["tensors in memory"].append(one(False))
        told(f"an epoch of {rows} rows", ours, others, "s")


def tabm(args: argparse.Namespace) -> None:
    import rtdl_num_embeddings
    import torch
    from tabm import TabM

    torch.set_num_threads(args.threads)
    x, y = table(20_000, 8)
    bf16 = args.precision == "bf16"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "table.csv", x, y)
        (folder / "c.toml").write_text(CONFIG.format(model="tabular", epochs=1))

        def one(compiled: bool) -> float:
            bins = rtdl_num_embeddings.compute_bins(torch.from_numpy(x), n_bins=48)
            embeddings = rtdl_num_embeddings.PiecewiseLinearEmbeddings(bins, 16, activation=False, version="B")
            net = TabM(
                n_num_features=8,
                d_out=1,
                num_embeddings=embeddings,
                start_scaling_init="normal",
                arch_type="tabm-mini",
                k=16,
                n_blocks=2,
                d_block=256,
                dropout=0.1,
            )
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
            forward = torch.compile(net) if compiled else net
            a, b = torch.from_numpy(x[:256]), torch.from_numpy(y[:256])

            def step() -> None:
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                    out = forward(a).float()
                loss = torch.nn.functional.mse_loss(out.squeeze(-1), b[:, None].expand(-1, 16))
                loss.backward()
                optimizer.step()

            times = []
            for at in range(60):
                begin = time.perf_counter()
                step()
                if at >= 10:
                    times.append(1000 * (time.perf_counter() - begin))
            return statistics.median(times)

        ours: list[float] = []
        others: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            command = [RUNNER, "bench", str(folder / "c.toml"), "--threads", str(args.threads), "--json", "--set", f'precision="{args.precision}"']
            ours.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["step_ms"])
            for way, compiled in [("eager", False), ("torch.compile", True)]:
                try:
                    others.setdefault(way, []).append(one(compiled))
                except Exception as error:  # A compiler that is missing.
                    print(f"  {way}: {type(error).__name__}")
        told("a step of TabM-mini, 256 rows", ours, {way: values for way, values in others.items() if values}, "ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["read", "epoch", "tabm"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    args = parser.parse_args()
    for name, part in [("read", read), ("epoch", epoch), ("tabm", tabm)]:
        if args.what in (None, name):
            part(args)


main()
