"""Reads what scripts/gpu_check.sh has measured: compares loss curves, and prints tables in Markdown. Needs no packages.

    gpu_figures.py losses NAME CPU_METRICS GPU_METRICS    fails if the losses of the first steps differ
    gpu_figures.py curves METRICS…                         fails if a precision does not learn as fp32, the first, does
    gpu_figures.py accuracy METRICS AIM                    fails below the aim
    gpu_figures.py tables FOLDER                           benchmarks against PyTorch, memory, load
"""

import json
import statistics
import sys
from pathlib import Path

# Error of the first loss: rounding alone. Later ones grow apart with every step, the faster the larger the rate.
FIRST, LATER = 1e-4, 0.1


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def step_losses(path: Path) -> list[float]:
    return [float("nan") if r["loss"] is None else r["loss"] for r in lines(path) if r["kind"] == "step"]


def relative(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b), 1e-30)


def losses(name: str, cpu: str, gpu: str) -> bool:
    a, b = step_losses(Path(cpu)), step_losses(Path(gpu))
    errors = [relative(x, y) for x, y in zip(a, b)]
    print(f"{name}: CPU {a}\n{name}: GPU {b}\n{name}: relative differences " + " ".join(f"{e:.1e}" for e in errors))
    fine = bool(a) and len(a) == len(b) and errors[0] <= FIRST and all(e <= LATER for e in errors)
    print(f"{name}: {'agrees' if fine else 'DIFFERS'}")
    return fine


def curves(*paths: str) -> bool:
    fine, base = True, None
    print("| precision | " + " | ".join(["first loss", "after a tenth", "mean of the last tenth", "result"]) + " |\n" + "| --- " * 5 + "|")
    for path in map(Path, paths):
        curve = step_losses(path)
        if not curve:
            print(f"| {path.parent.name} | | | | did not run |")
            fine = False
            continue
        tenth = max(len(curve) // 10, 1)
        end = statistics.fmean(curve[-tenth:])
        base = base or (curve[0], end)
        # As good as single precision, but for a tenth of the way that the loss has come down.
        good = relative(curve[0], base[0]) < 0.02 and end < base[1] + 0.1 * abs(base[0] - base[1])
        fine &= good
        print(f"| {path.parent.name} | {curve[0]:.5f} | {curve[tenth - 1]:.5f} | {end:.5f} | {'ok' if good else '**does not learn as fp32**'} |")
    return fine


def accuracy(path: str, aim: str) -> bool:
    found = [r["val_accuracy"] for r in lines(Path(path)) if r["kind"] == "epoch" and "val_accuracy" in r]
    print(f"validation accuracy after each epoch: {found}; aim: {aim}")
    return bool(found) and max(found) >= float(aim)


def load(folder: Path) -> tuple[float, float, int] | None:
    """Mean load of the GPU in percent over the busy middle of a part, its largest memory use in MiB, samples."""
    path = folder / "load.csv"
    samples = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            samples.append([float(part) for part in line.split(",")[:2]])
        except ValueError:
            continue
    samples = [s for s in samples if len(s) == 2]
    if not samples:
        return None
    busy = [i for i, s in enumerate(samples) if s[0] > 0]
    middle = samples[busy[0] : busy[-1] + 1] if busy else samples
    return statistics.fmean(s[0] for s in middle), max(s[1] for s in samples), len(samples)


def tables(folder: str) -> bool:
    root = Path(folder)
    ours = {}
    for path in sorted((root / "bench").glob("*.json")):
        try:
            ours[tuple(path.stem.rsplit(".", 1))] = json.loads(path.read_text())
        except ValueError:
            continue
    peers: dict = {}
    for r in lines(root / "peer" / "peer.jsonl"):
        peers.setdefault((r["model"], r["precision"]), {})[r["mode"]] = r
    if ours or peers:
        modes = ["eager", "channels_last", "compile", "max-autotune"]
        print("\n| training step | precision | runner | planned | " + " | ".join(f"PyTorch {m}" for m in modes) + " | ratio to eager | to the best |")
        print("| --- " * (6 + len(modes)) + "|")
    for key in sorted(set(ours) | set(peers)):
        step = ours.get(key, {}).get("step_ms")
        planned = ours.get(key, {}).get("peak_bytes")
        theirs = {m: peers.get(key, {}).get(m, {}).get("step_ms") for m in modes}
        known = [t for t in theirs.values() if t]
        cells = [key[0], key[1], f"{step:.3f} ms" if step else "", f"{planned / 2**20:.0f} MiB" if planned else ""]
        cells += [f"{t:.3f} ms" if t else "" for t in theirs.values()]
        cells.append(f"{theirs['eager'] / step:.2f}" if step and theirs["eager"] else "")
        cells.append(f"{min(known) / step:.2f}" if step and known else "")
        print("| " + " | ".join(cells) + " |")
    timed = [(key, r) for key, r in sorted(ours.items()) if "transfer_ms" in r]
    if timed:
        print("\n| training step | precision | step | transfer | computing | waiting |\n| --- | --- | --- | --- | --- | --- |")
    for key, r in timed:
        cells = [f"{r[k]:.3f} ms" for k in ("step_ms", "transfer_ms", "compute_ms", "wait_ms")]
        print("| " + " | ".join([*key, *cells]) + " |")
    layers = root / "precision" / "layers.md"
    if layers.is_file():
        print("\nErrors of gradients by layer, relative to single precision on the CPU:\n\n" + layers.read_text().strip())
    for part in ["train", "bench"]:
        found = load(root / part)
        if found:
            print(f"\nDuring `{part}`: the GPU was at work {found[0]:.0f} % of the time, at most {found[1]:.0f} MiB of its memory were in use ({found[2]} samples).")
    seconds = [r for r in lines(root / "train" / "run" / "metrics.jsonl") if r["kind"] == "epoch"]
    if seconds:
        last = seconds[-1]
        print(f"\nTraining: {len(seconds)} epochs, {last['samples_per_s']:.0f} samples/s in the last, best accuracy {max(r.get('val_accuracy') or 0 for r in seconds):.4f}.")
    return True


if __name__ == "__main__":
    commands = {f.__name__: f for f in (losses, curves, accuracy, tables)}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    sys.exit(0 if commands[sys.argv[1]](*sys.argv[2:]) else 1)
