"""Reads what scripts/gpu_check.sh has written into its folder, and makes the summary. Needs no packages.

    gpu_figures.py summary FOLDER    writes FOLDER/summary.md anew from FOLDER/results.jsonl, and prints it

Also compares loss curves and weights, for gpu_check.py.
"""

import json
import statistics
import struct
import sys
from pathlib import Path

from gpu_models import MODELS

# Error of the first loss: rounding alone. Later ones grow apart with every step, the faster the larger the rate.
FIRST, LATER = 1e-4, 0.1
MODES = ["eager", "channels_last", "graph", "compile", "max-autotune"]


def lines(path: Path) -> list[dict]:
    """The objects of a file with one a line. Lines that are not whole are passed over: whoever wrote them may have been ended."""
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def step_losses(path: Path) -> list[float]:
    return [float("nan") if r["loss"] is None else r["loss"] for r in lines(path) if r.get("kind") == "step"]


def relative(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b), 1e-30)


def losses(cpu: Path, gpu: Path) -> tuple[bool, list[str]]:
    """Whether the losses of a few steps agree, and what there is to say."""
    a, b = step_losses(cpu), step_losses(gpu)
    errors = [relative(x, y) for x, y in zip(a, b)]
    said = [f"CPU {a}", f"GPU {b}", "relative differences " + " ".join(f"{e:.1e}" for e in errors)]
    fine = bool(a) and len(a) == len(b) and errors[0] <= FIRST and all(e <= LATER for e in errors)
    return fine, said


def curves(paths: dict[str, Path]) -> tuple[list[str], list[dict]]:
    """The precisions that do not learn as single precision, the first, does; and a row for each."""
    wrong, rows, base = [], [], None
    for precision, path in paths.items():
        curve = step_losses(path)
        if not curve:
            wrong.append(precision)
            continue
        tenth = max(len(curve) // 10, 1)
        end = statistics.fmean(curve[-tenth:])
        base = base or (curve[0], end)
        # As good as single precision, but for a tenth of the way that the loss has come down.
        if not (relative(curve[0], base[0]) < 0.02 and end < base[1] + 0.1 * abs(base[0] - base[1])):
            wrong.append(precision)
        rows.append({"precision": precision, "steps": len(curve), "first": curve[0], "tenth": curve[tenth - 1], "end": end})
    return wrong, rows


def tensors(path: Path) -> dict[str, tuple]:
    """The tensors of a safetensors file: what the header says of each, and its bytes. What else the header has is left out."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    data = content[8 + length :]
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def other_bits(a: Path, b: Path) -> list[str]:
    """The tensors that are not the same in both files."""
    x, y = tensors(a), tensors(b)
    return sorted(name for name in x.keys() | y.keys() if x.get(name) != y.get(name))


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    return ["", "| " + " | ".join(head) + " |", "| --- " * len(head) + "|"] + ["| " + " | ".join(row) + " |" for row in rows]


def ms(value: float | None) -> str:
    return f"{value:.3f} ms" if value is not None else ""


def counted(counts: dict[str, int]) -> str:
    """Cases of tests, in words."""
    words = {"ran": "{} cases ran", "wrong": "{} wrong", "left_out": "{} left out"}
    return ", ".join(text.format(counts[key]) for key, text in words.items() if counts.get(key) or key == "ran")


def parts(results: list[dict]) -> list[str]:
    """A row for each part of the stage, and what became of each family that is not well."""
    begun = {r["begin"]: r for r in results if "begin" in r}
    ended = {r["end"]: r for r in results if "end" in r}
    families: dict[str, list[dict]] = {}
    for r in results:
        if "verdict" in r and "name" in r:
            families.setdefault(r["part"], []).append(r)
    rows, wrong, skipped = [], [], {}
    stage = next((r for r in results if "stage" in r), {})
    for name, seconds in stage.get("parts", []):
        of = families.get(name, [])
        good = sum(r["verdict"] == "ok" for r in of)
        passed_over = sum(r["verdict"] == "skipped" for r in of)
        if name in ended:
            verdict, took = ended[name]["verdict"], f"{ended[name]['seconds']:.0f} s"
        elif name in begun:
            verdict, took = "**cut off**", ""
        else:
            verdict, took = "**not started**", ""
        said = f"{good} ok" + (f", {passed_over} skipped" if passed_over else "")
        bad = len(of) - good - passed_over
        said += f", **{bad} not**" if bad else ""
        cases = {key: sum(r.get(key, 0) for r in of) for key in ("ran", "wrong", "left_out")}
        rows.append([name, verdict, said if of else "", counted(cases) if cases["ran"] else "", took, f"{seconds:.0f} s"])
        for r in of:
            note = f": {r['note']}" if r.get("note") else ""
            if r["verdict"] == "skipped":
                skipped.setdefault((name, r.get("note", "")), []).append(r["name"])
            elif r["verdict"] != "ok":
                wrong.append(f"- **{name} {r['name']}**: {r['verdict']}{note}")
    text = table(["part", "result", "families", "cases", "time", "at most"], rows)
    if wrong:
        text += ["", "What is not well:", "", *wrong]
    if skipped:
        text += ["", "Skipped:", "", *[f"- {name}: {note}: {', '.join(of)}" for (name, note), of in skipped.items()]]
    return text


def best(theirs: dict[str, float]) -> tuple[str, float] | None:
    """PyTorch's fastest way of those that ran."""
    return min(theirs.items(), key=lambda item: item[1]) if theirs else None


def speed(figures: list[dict]) -> list[str]:
    ours: dict[tuple, dict] = {}
    peers: dict[tuple, dict[str, float]] = {}
    for r in figures:
        if r.get("kind") == "bench":
            ours.setdefault((r["model"], r["precision"]), {})[r.get("way", "")] = r
        elif r.get("kind") == "peer" and r.get("step_ms"):
            peers.setdefault((r["model"], r["precision"]), {})[r["mode"]] = r["step_ms"]
    # Only ways that ran somewhere have a column.
    modes = [mode for mode in MODES if any(mode in theirs for theirs in peers.values())]
    own = any("own kernels" in ways for ways in ours.values())
    rows, apart = [], []
    known = list(MODELS)
    for key in sorted(set(ours) | set(peers), key=lambda key: (known.index(key[0]) if key[0] in known else len(known), key[1])):
        ways, theirs = ours.get(key, {}), peers.get(key, {})
        step = ways.get("", {}).get("step_ms")
        cells = [*key, ms(step)]
        cells += [ms(ways.get("own kernels", {}).get("step_ms"))] if own else []
        cells += [ms(theirs.get(mode)) for mode in modes]
        if modes:
            fastest = best(theirs)
            cells.append(f"{theirs['eager'] / step:.2f}" if step and "eager" in theirs else "")
            cells.append(f"{fastest[1] / step:.2f} ({fastest[0]})" if step and fastest else "")
        rows.append(cells)
        for way, r in sorted(ways.items()):
            if "compute_ms" in r:
                # The launch of a short program counts with its computing, so that this can come to more than the step.
                busy = min(r["compute_ms"] / r["step_ms"], 1.0)
                times = [ms(r[k]) for k in ("step_ms", "transfer_ms", "compute_ms", "wait_ms")]
                apart.append([*key, way, *times, f"{100 * busy:.0f} %", f"{r['peak_bytes'] / 2**20:.0f} MiB"])
    head = ["training step", "precision", "runner"] + (["own kernels alone"] if own else [])
    head += [f"PyTorch {mode}" for mode in modes] + (["ratio to eager", "to the best"] if modes else [])
    text = table(head, rows)
    if rows and not modes:
        text += ["", "PyTorch was not measured."]
    text += table(["training step", "precision", "way", "step", "transfer", "computing", "waiting", "busy", "planned"], apart)
    wrong = [f"- PyTorch {r['mode']}, {r['model']} in {r['precision']}: {r['error']}" for r in figures if r.get("kind") == "peer" and "error" in r]
    left = [f"{r['mode']} of {r['model']} in {r['precision']}" for r in figures if r.get("kind") == "peer" and "left_out" in r]
    if wrong:
        text += ["", "What PyTorch did not do:", "", *[line[:400] for line in wrong]]
    if left:
        text += ["", "PyTorch's ways that no time was left for: " + "; ".join(left) + "."]
    return text


def threads(figures: list[dict]) -> list[str]:
    """Steps on the CPU by the number of threads."""
    steps: dict[tuple, dict[str, float]] = {}
    for r in figures:
        if r.get("kind") == "threads" and r.get("step_ms"):
            steps.setdefault((r["model"], r["threads"]), {})[r["mode"]] = r["step_ms"]
    rows = []
    for (model, count), of in sorted(steps.items()):
        ours, theirs = of.get("runner"), {mode: time for mode, time in of.items() if mode != "runner"}
        fastest = best(theirs)
        ratio = f"{fastest[1] / ours:.2f}" if ours and fastest else ""
        rows.append([model, str(count), ms(ours), f"{ms(fastest[1])} ({fastest[0]})" if fastest else "", ratio])
    return table(["training step on the CPU, fp32", "threads", "runner", "PyTorch's best", "ratio"], rows)


def learning(figures: list[dict]) -> list[str]:
    of = lambda kind: [r for r in figures if r.get("kind") == kind]
    number = lambda value, form: format(value, form) if value is not None else ""
    text = table(
        ["start of a process", "seconds"],
        [[r["name"], f"{r['seconds']:.2f}"] for r in of("start")],
    )
    text += table(
        ["precision", "steps", "first loss", "after a tenth", "mean of the last tenth"],
        [[r["precision"], str(r["steps"]), *(number(r[k], ".5f") for k in ("first", "tenth", "end"))] for r in of("curve")],
    )
    gradients = of("gradient")
    if gradients:
        text += ["", "Errors of gradients by layer, relative to single precision on the CPU:", "", *[r["row"] for r in gradients]]
    text += table(
        ["training", "samples", "epochs", "best accuracy", "samples/s in the last epoch", "seconds", "busy"],
        [
            [r["name"], r["data"], str(r["epochs"]), number(r["accuracy"], ".4f"), number(r["samples_per_s"], ".0f"), f"{r['seconds']:.1f}",
             f"{100 * r['busy']:.0f} %" if r.get("busy") is not None else ""]
            for r in of("training")
        ],
    )  # fmt: skip
    return text


def summary(folder: Path) -> str:
    """Makes the summary of whatever is there, and writes it down."""
    results = lines(folder / "results.jsonl")
    figures = [r for r in results if "kind" in r]
    stage = next((r for r in results if "stage" in r), None)
    if stage is None:
        text = ["There are no results."]
    else:
        text = [f"## {stage['stage'].capitalize()}", "", f"Commit {stage['commit']}, device `{stage['device']}`. {stage['machine']}"]
        stopped = next((r["stopped"] for r in results if "stopped" in r), None)
        if stopped:
            text += ["", f"**Ended early**: {stopped}."]
        text += parts(results) + speed(figures) + learning(figures) + threads(figures)
    whole = "\n".join(text) + "\n"
    partial = folder / "summary.part"
    partial.write_text(whole)
    partial.replace(folder / "summary.md")
    return whole


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "summary":
        sys.exit(__doc__)
    if not (Path(sys.argv[2]) / "results.jsonl").is_file():
        sys.exit(f"error: {sys.argv[2]} has no results.jsonl: name the folder that gpu_check.sh wrote into (OUT)")
    print(summary(Path(sys.argv[2])), end="")
