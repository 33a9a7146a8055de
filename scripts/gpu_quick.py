"""The parts of the stage `quick`: a little of everything, what tells most first, on a machine that is lent for minutes."""

import json
import os
import sys
import time
from pathlib import Path

from gpu_models import LARGE, MODELS, TEXTS, Text
from gpu_parts import ROOT, model, peers, profiled, sets, timed, train, wanted
from gpu_process import Done, Task
from gpu_stage import Failed, Part, Skipped, why

# What is timed, in this order.
STEPS = [
    *[(name, precision) for name in ("mnist_cnn", "mlp", "resnet18_32") for precision in ("bf16", "fp32")],
    *[(name, "bf16") for name in ("resnet18_224", *LARGE, *TEXTS)],
    *[("resnet18_224", "fp32"), ("resnet18_224", "tf32"), ("mnist_cnn_64", "bf16"), ("mnist_cnn_64", "fp32")],
]
# Dense, depthwise of 7 × 7, of 3 × 3 and 5 × 5; the rest where time is left.
PROFILED = [
    *[(name, "bf16") for name in ("resnet50", "convnext_tiny", "mobilenet_v3_large", "efficientnet_b0", "vit_b_16", "resnet18_224")],
    ("mnist_cnn", "fp32"), ("gpt2_124m", "bf16"),
]
COMPILED = ["resnet18_224", "gpt2_124m", "resnet50", "vit_b_16"]
# Seconds that a test of many cases begins new ones in, and that it may take. A library's algorithms for a convolution are chosen
# for each case, which takes longest.
CASES, CONVOLUTIONS, TEST = 12, 30, 45
# Models that the CPU is timed with: file, batch.
ON_CPU = ["mnist_cnn", "resnet18_32"]


def steps() -> list[tuple[str, str]]:
    """Those of `STEPS` that `MODELS` and `PRECISIONS` name, or all."""
    models, precisions = wanted("MODELS", list(MODELS)), wanted("PRECISIONS", ["fp32", "tf32", "bf16"])
    return [(name, precision) for name, precision in STEPS if name in models and precision in precisions]


def checked(part: Part) -> None:
    """Cases of every operation, taken evenly from all, with libraries and without; through `cust`, too. PyTorch is read from the disk meanwhile."""
    stage = part.stage

    def listed() -> str:
        done = part.good("devices", [stage.runner, "devices"], 20)
        if stage.device == "cuda" and not any(line.startswith("cuda:0") for line in done.lines):
            raise Failed("no GPU answers: " + why(done.lines))
        return ""

    part.family("devices", listed)
    tests = part.test_tasks("ops", "cuda::", TEST)
    if not any("through_cust" in task.name for task in tests):
        part.verdict("cuda_through_cust", "skipped", 0, "the program was packed without the feature `cust`")
    for task in tests:
        task.env["RUNNER_TEST_SECONDS"] = str((CONVOLUTIONS if "::conv" in task.name else CASES) * stage.scale)
    # The longest first.
    tests.sort(key=lambda task: "::conv" not in task.name)
    look = "import torch, torchvision; print(torch.__version__, torch.cuda.is_available())"
    warm = Task("pytorch", [sys.executable, "-c", look], TEST)

    def judge(done: Done) -> Task | None:
        if done.task.name != warm.name:
            return part.tested(done)
        good = done.good and (stage.device == "cpu" or done.lines[-1:] and done.lines[-1].endswith("True"))
        part.verdict(warm.name, "ok" if good else "skipped", done.seconds, "" if good else f"there is none that finds a GPU: {why(done.lines)}")
        return None

    jobs = int(os.environ.get("JOBS", "0")) or max(2, (os.cpu_count() or 1) - 4)
    part.side_by_side([*tests[:2], warm, *tests[2:]], judge, jobs)


def ours(part: Part) -> None:
    """Our own steps."""
    for name, precision in steps():
        part.family(f"{name}.{precision}", lambda n=name, p=precision: timed(part, n, p, seconds=25))


def theirs(part: Part) -> None:
    """PyTorch's: what is fastest as a rule first."""
    ways = [f"graph/{p}/{n}" for n, p in steps()] if part.stage.device == "cuda" else []
    # Of small images the graph is by far the fastest.
    ways += [f"channels_last/{p}/{n}" for n, p in steps() if not isinstance(MODELS[n], Text) and MODELS[n].side == 224]
    ways += [f"eager/{p}/{n}" for n, p in steps()]
    part.family("torch", lambda: with_pytorch(part, ways, 25))


def with_pytorch(part: Part, ways: list[str], silence: float, threads: list[int] | None = None) -> str:
    """Times these ways to run a step in PyTorch, in all the time that the part has left; on the CPU with so many threads, if there are any."""
    if not ways:
        raise Skipped("none of its models was asked for")
    there = part.process("pytorch", [sys.executable, "-c", "import importlib.util as u; raise SystemExit(u.find_spec('torch') is None)"], 20)
    if not there.good:
        raise Skipped(f"{sys.executable} has no PyTorch")
    device, steps = ("cpu", 3) if threads else (None, 50)
    return peers(part, "torch", ways, part.left(), device, threads, silence, steps)


def compiled(part: Part) -> None:
    """With `torch.compile`, which starts slowly: as far as time is left."""
    part.family("compile", lambda: with_pytorch(part, [f"compile/bf16/{name}" for name in COMPILED if (name, "bf16") in steps()], 60))


def profiles(part: Part) -> None:
    """The time of every operation of a step, of these models and of the files in `.gpu`."""
    for name, precision in [pair for pair in PROFILED if pair in steps()]:
        part.family(f"{name}.{precision}", lambda n=name, p=precision: profiled(part, n, p, 15))
    for path in sorted((ROOT / ".gpu").glob("*.toml")):
        command = [part.stage.runner, "bench", str(path), "--device", part.stage.device, "--profile", "--steps", str(part.stage.steps)]
        part.family(path.name, lambda name=path.name, command=command: part.good(name, command, 10) and "")


def aim(part: Part) -> None:
    """MNIST to 99 % as a user would, and the time of the whole process; a few samples of the digits where there is no MNIST."""
    stage, mnist = part.stage, part.stage.data is not None
    config = str(ROOT / ("configs/mnist_cnn.toml" if mnist else "configs/digits_cnn.toml"))
    epochs = int(os.environ.get("EPOCHS", "8" if mnist else "20"))

    def learns(precision: str) -> str:
        device = "cpu" if stage.device == "cpu" else "auto"
        begin = time.monotonic()
        metrics = train(part, precision, precision, device, config, *sets(f"train.epochs={epochs}", f'precision="{precision}"'), seconds=20)
        seconds = time.monotonic() - begin
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        epoch = [row for row in rows if row.get("kind") == "epoch"]
        found = max((row["val_accuracy"] for row in epoch if row.get("val_accuracy") is not None), default=None)
        stage.figure(kind="training", name=precision, data="MNIST" if mnist else "digits", epochs=len(epoch), accuracy=found,
                     samples_per_s=epoch[-1].get("samples_per_s") if epoch else None, seconds=round(seconds, 2), busy=None)  # fmt: skip
        if found is None or found < (0.99 if mnist else 0.95):
            raise Failed(f"the best accuracy is {found}")
        return f"{seconds:.1f} s"

    for precision in ("fp32", "bf16"):
        part.family(precision, lambda precision=precision: learns(precision))


def threads(part: Part) -> None:
    """The CPU's steps on so many threads, ours and PyTorch's."""
    cores = os.cpu_count() or 1
    models = wanted("MODELS", ON_CPU)
    counts = sorted({count for count in (1, 2, 4, 8) if count < cores} | {cores})

    def ours(name: str, count: int) -> str:
        config, images = model(part, name)
        command = [part.stage.runner, "bench", config, "--device", "cpu", "--threads", str(count), *images, "--steps", "5", "--json"]
        lines = [line for line in part.good(f"{name}.{count}", command, 10).lines if line.startswith("{")]
        if not lines:
            raise Failed("it printed no figures")
        part.stage.figure(kind="threads", model=name, mode="runner", threads=count, step_ms=json.loads(lines[-1])["step_ms"])
        return ""

    for count in reversed(counts):
        for name in models:
            part.family(f"{name}.{count}", lambda n=name, c=count: ours(n, c))
    ways = [f"{mode}/fp32/{name}" for mode in ("channels_last", "eager") for name in models]
    part.family("torch", lambda: with_pytorch(part, ways, 25, list(reversed(counts))))
