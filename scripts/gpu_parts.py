"""What each part of scripts/gpu_check.sh does: a function of its name, which makes the part's families."""

import json
import os
import shutil
import sys
from pathlib import Path

import gpu_figures
from bench_pytorch import TUNED
from gpu_models import LARGE, MODELS, TEXTS, Text, configuration
from gpu_process import Done, Task
from gpu_stage import ALONE, ROOT, Failed, Part, Skipped, case_of, why

# What `bench`, `profile` and `peer` take where no variable says otherwise: these in every precision, those of `LARGE` and of `TEXTS` in bf16.
SMALLER = ["mlp", "mnist_cnn", "resnet18_32", "resnet18_224"]


def made_up(part: Part, name: str, batch: int | None = None) -> str:
    """A model of `models/` on made-up images or tokens, as a file."""
    size = batch or int(part.stage.batch or MODELS[name].batch)
    path = part.work / f"{name}_{size}.toml"
    path.write_text(configuration(MODELS[name], size, path.with_suffix(".bin")))
    return str(path)


def sets(*values: str) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def data(part: Part, config: str) -> list[str]:
    """Where the data of a configuration is; nothing is ever fetched."""
    for name, folder in (("mnist", "mnist"), ("fashion", "fashion-mnist"), ("cifar10", "cifar-10")):
        if Path(config).name.startswith(f"{name}_"):
            root = part.stage.data or ROOT / "data"
            return sets(f'data.root="{root / folder}"', "data.download=false")
    return []


def train(part: Part, family: str, out: str, device: str, config: str, *options: str, seconds: float = 40, env: dict | None = None) -> Path:
    """Trains in a folder of its own; the file with its metrics."""
    folder = part.work / out
    command = [part.stage.runner, "train", config, *data(part, config), "--device", device, "--out", str(folder), "--quiet", *options]
    part.good(family, command, seconds, env)
    return folder / "metrics.jsonl"


def devices(part: Part) -> None:
    """What the machine has, and how long a start takes: the first of all compiles or loads kernels that the others find."""
    stage = part.stage

    def listed() -> str:
        if shutil.which("nvidia-smi"):
            part.process("listed", ["nvidia-smi"], 10)
        done = part.good("listed", [stage.runner, "devices"], 20)
        part.good("listed", [stage.runner, "devices", "--json"], 20)
        if stage.device == "cuda" and not any(line.startswith("cuda:0") for line in done.lines):
            raise Failed("no GPU answers: " + why(done.lines))
        return ""

    def started(name: str) -> str:
        begun = part.left()
        train(part, name, name, stage.device, str(ROOT / "configs/digits_cnn.toml"), *sets("train.max_steps=1", "data.limit_val=16"))
        stage.figure(kind="start", name=name, seconds=round(begun - part.left(), 3))
        return ""

    part.family("listed", listed)
    for name in ("first start", "second start"):
        part.family(name, lambda name=name: started(name))


def ops(part: Part) -> None:
    """Every case of every operation against the reference, a process a family, by our own kernels and by libraries."""
    part.tests("ops", "cuda::", 90)


def golden(part: Part) -> None:
    """PyTorch's figures."""
    part.tests("golden_cuda", "", 60)


def cuda(part: Part) -> None:
    """Streams, graphs, precisions, whole models."""
    bundled = sorted(path.name for path in (part.stage.bundle / "bin").iterdir())
    for program in bundled:
        if "cuda" in program and program not in ("golden_cuda", "cuda_cli"):
            part.tests(program, "", 60)


def program(part: Part) -> None:
    """The program's command line on a GPU."""
    part.tests("cuda_cli", "", 30)


# A few cases of each kind of kernel, small enough to be run under a tool that slows them down a hundred times: a family,
# and a word of its cases' names.
SANITIZED = {
    "linear": "13×64 to 65",
    "conv": "3×3, same size",
    "tiles": "phases without taps",
    "attention": "2 × 33 positions",
    "norm": "[9, 33]",
    "optim": "amsgrad: true",
    "loss": "cross entropy of [33",
    "pool": "max pool of [2, 8, 6, 5]",
    "softmax": "softmax",
}


def sanitizer(part: Part) -> None:
    """A few cases under each of compute-sanitizer's tools, and a few steps of training."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        raise Skipped("compute-sanitizer is not on the PATH")
    binary, tasks = part.stage.program("ops"), []
    few = sets("train.max_steps=2", "data.limit=64", "data.limit_val=16", "data.batch_size=16")
    for check in ("memcheck", "racecheck", "initcheck", "synccheck"):
        under = [tool, "--tool", check, "--error-exitcode", "99", "--print-limit", "20"]
        steps = [part.stage.runner, "train", str(ROOT / "configs/digits_cnn.toml"), "--device", part.stage.device]
        tasks.append(Task(f"{check} training", [*under, *steps, "--out", str(part.work / check), "--quiet", *few], 60))
        for family, word in SANITIZED.items():
            test = [binary, "--exact", f"cuda::agrees_with_the_reference::{family}", *ALONE]
            tasks.append(Task(f"{check} {family}", [*under, *test], 60, {"RUNNER_TEST_CASES": word}))

    def judge(done: Done) -> None:
        told = [line for line in done.lines if "SUMMARY:" in line]
        word = done.task.env.get("RUNNER_TEST_CASES")
        verdict, note = done.verdict(), " ".join(told)
        if not done.good:
            note += f" {why([line for line in done.lines if line.startswith('=========')] or done.lines)}"
        elif not told:
            verdict, note = "failed", "the tool gave no summary: " + why(done.lines)
        elif word and not any(map(case_of, done.lines)):
            verdict, note = "failed", f"no case has `{word}` in its name"
        part.verdict(done.task.name, verdict, done.seconds, note)

    part.side_by_side(tasks, judge)


def configs(part: Part) -> None:
    """Every configuration for a few steps on the CPU and on the GPU."""
    few = sets("train.max_steps=6", "log.every_steps=1", "data.limit_val=64", f"data.batch_size={part.stage.batch or 32}")

    def agrees(name: str, config: str) -> str:
        if name == "cifar10_resnet18" and not (part.stage.data and (part.stage.data / "cifar-10").is_dir()):
            raise Skipped("there is no CIFAR-10; resnet18_made_up stands for it")
        if name.startswith("fashion") and not (part.stage.data and (part.stage.data / "fashion-mnist").is_dir()):
            part.say(name, "there is no Fashion-MNIST: digits stand for it")
        cpu = train(part, name, f"{name}.cpu", "cpu", config, *few)
        gpu = train(part, name, f"{name}.gpu", part.stage.device, config, *few)
        fine, said = gpu_figures.losses(cpu, gpu)
        for line in said:
            part.say(name, line)
        if not fine:
            raise Failed("the losses differ: " + said[-1])
        return ""

    files = {path.stem: str(path) for path in sorted((ROOT / "configs").glob("*.toml"))} | {"resnet18_made_up": made_up(part, "resnet18_32", 32)}
    for name, config in files.items():
        part.family(name, lambda name=name, config=config: agrees(name, config))


def bits(part: Part) -> None:
    """The same bits: replayed from a CUDA graph or launched one by one, run twice, interrupted and resumed."""
    device, batch, last = part.stage.device, part.stage.batch or 32, min(20, 4 * part.stage.steps)
    few = sets("log.every_steps=1", "data.limit_val=64", f"data.batch_size={batch}")

    def weights(family: str, out: str, config: str, *options: str, steps: int = last) -> Path:
        run = train(part, family, out, device, config, *few, *options, *sets(f"train.max_steps={steps}")).parent
        return exported(family, run)

    def exported(family: str, run: Path) -> Path:
        to = run / "weights.safetensors"
        part.good(family, [part.stage.runner, "export", str(run / "last.safetensors"), str(to)], 20)
        return to

    def same(a: Path, b: Path) -> str:
        other = gpu_figures.other_bits(a, b)
        if other:
            raise Failed(f"{len(other)} tensors have other bits: {', '.join(other[:8])}")
        return ""

    def graph(family: str, config: str, precision: str) -> str:
        options = sets(f'precision="{precision}"')
        a, b = (weights(family, f"{family}.{on}", config, *options, *sets(f"graph={on}")) for on in ("true", "false"))
        return same(a, b)

    def resumed(family: str, config: str) -> str:
        whole = weights(family, f"{family}.whole", config)
        weights(family, f"{family}.parts", config, steps=last // 3)
        run = part.work / f"{family}.parts"
        part.good(family, [part.stage.runner, "train", "--resume", str(run), "--device", device, "--quiet", *sets(f"train.max_steps={last}")], 40)
        return same(whole, exported(family, run))

    def repeated(family: str, config: str) -> str:
        return same(weights(family, f"{family}.1", config), weights(family, f"{family}.2", config))

    files = {"digits_cnn": str(ROOT / "configs/digits_cnn.toml"), "resnet18": made_up(part, "resnet18_32", 32)}
    for name, precision in (("digits_cnn", "fp32"), ("digits_cnn", "fp16"), ("resnet18", "fp32"), ("resnet18", "bf16")):
        family = f"{name}.{precision}.graph"
        part.family(family, lambda f=family, c=files[name], p=precision: graph(f, c, p))
    part.family("resnet18.repeated", lambda: repeated("resnet18.repeated", files["resnet18"]))
    part.family("digits_cnn.resumed", lambda: resumed("digits_cnn.resumed", files["digits_cnn"]))


def precision(part: Part) -> None:
    """The MNIST CNN in each precision, and the errors of its gradients layer by layer."""
    config = str(ROOT / "configs/mnist_cnn.toml")
    # Ten times as many as are timed elsewhere: a loss scale has the time to grow, too.
    few = sets(f"train.max_steps={10 * part.stage.steps}", "train.epochs=50", "log.every_steps=1")
    few += sets(f"data.batch_size={part.stage.batch}", "data.limit_val=8") if part.stage.batch else sets("data.limit_val=256")
    paths: dict[str, Path] = {}

    def learns(name: str) -> str:
        paths[name] = train(part, name, name, part.stage.device, config, *few, *sets(f'precision="{name}"'))
        wrong, rows = gpu_figures.curves(paths)
        if not rows or rows[-1]["precision"] != name:
            raise Failed("it has written no losses")
        part.stage.figure(kind="curve", **rows[-1])
        if name in wrong:
            raise Failed(f"does not learn as fp32 does: {rows[-1]} beside {rows[0]}")
        return ""

    def gradients() -> str:
        if part.stage.device != "cuda":
            raise Skipped("that test needs a GPU")
        command = [part.stage.program("cuda"), "--exact", "precision::errors_of_gradients_by_layer", "--nocapture"]
        done = part.process("gradients", command, 60)
        for line in done.lines:
            if line.startswith("|"):
                part.stage.figure(kind="gradient", row=line)
        if not done.good or not any("1 passed;" in line for line in done.lines):
            raise Failed(f"{done.verdict()}: {why(done.lines)}")
        return ""

    for name in ("fp32", "tf32", "bf16", "fp16"):
        part.family(name, lambda name=name: learns(name))
    part.family("gradients", gradients)


def learning(part: Part) -> None:
    """From nothing to 99 %, as a user would; without MNIST the bundled digits to 95 %."""
    stage, mnist = part.stage, part.stage.data is not None
    if mnist:
        config, aim, epochs, batch = str(ROOT / "configs/mnist_cnn.toml"), 0.99, int(os.environ.get("EPOCHS", "10")), 256
    else:
        config, aim, epochs, batch = str(ROOT / "configs/digits_cnn.toml"), 0.95, int(os.environ.get("EPOCHS", "20")), 64

    def learns(name: str) -> str:
        # `auto` must find the GPU.
        device = "cpu" if stage.device == "cpu" else "auto"
        begun, options = part.left(), sets(f"train.epochs={epochs}", f'precision="{name}"')
        metrics = train(part, name, name, device, config, *options, seconds=80)
        seconds = begun - part.left()
        epoch = [r for r in gpu_figures.lines(metrics) if r.get("kind") == "epoch"]
        found = [r["val_accuracy"] for r in epoch if r.get("val_accuracy") is not None]
        told = part.good(name, [stage.runner, "eval", str(metrics.parent / "best.safetensors"), "--device", device, "--json", *data(part, config)], 30)
        part.say(name, f"validation accuracy after each epoch: {found}; evaluated: {told.lines[-1:]}")
        # Of the time of a step, the share in which programs ran.
        timed = step(part, name, config, name, data(part, config))
        speed = epoch[-1].get("samples_per_s") if epoch else None
        busy = min(timed["compute_ms"] * 1e-3 * speed / batch, 1.0) if speed and "compute_ms" in timed else None
        stage.figure(kind="training", name=name, data="MNIST" if mnist else "digits", epochs=len(epoch), accuracy=max(found, default=None),
                     samples_per_s=speed, seconds=round(seconds, 2), busy=busy)  # fmt: skip
        if max(found, default=0.0) < aim:
            raise Failed(f"the best accuracy is {max(found, default=None)}, the aim {aim}")
        return ""

    for name in ("fp32", "bf16"):
        part.family(name, lambda name=name: learns(name))


def step(part: Part, family: str, config: str, precision: str, options: list[str], env: dict | None = None, seconds: float = 40) -> dict:
    """What `runner bench` tells of a step."""
    stage = part.stage
    command = [stage.runner, "bench", config, "--device", stage.device, *sets(f'precision="{precision}"')]
    command += ["--steps", str(stage.steps), "--json", *options]
    lines = [line for line in part.good(family, command, seconds, env).lines if line.startswith("{")]
    if not lines:
        raise Failed("it printed no figures")
    return json.loads(lines[-1])


def model(part: Part, name: str) -> tuple[str, list[str]]:
    """The configuration of a model that is timed, on images or tokens that are made up."""
    known = MODELS[name]
    batch = int(part.stage.batch or known.batch)
    if isinstance(known, Text) or known.file.startswith("models/"):
        return made_up(part, name), []
    shape = f"data.shape=[{known.channels}, {known.side}, {known.side}]"
    data = sets('data.source="synthetic"', shape, f"data.classes={known.classes}", f"data.samples={16 * batch}", f"data.val_samples={batch}")
    return str(ROOT / known.file), [*data, *sets(f"data.batch_size={batch}")]


def wanted(variable: str, known: list[str], usual: list[str] | None = None) -> list[str]:
    """What of `known` a variable names; if it names nothing, what is usual: all, unless told otherwise."""
    named = os.environ.get(variable, "").split()
    return [name for name in known if name in named] if named else (known if usual is None else usual)


def pairs() -> list[tuple[str, str]]:
    """Models and precisions that are timed, the smaller models first."""
    usual = [(name, precision) for precision in ["fp32", "tf32", "bf16"] for name in SMALLER] + [(name, "bf16") for name in [*LARGE, *TEXTS]]
    models, precisions = wanted("MODELS", list(MODELS), []), wanted("PRECISIONS", ["fp32", "tf32", "bf16"])
    chosen = [(name, precision) for precision in precisions for name in models] if models else usual
    return [pair for pair in chosen if pair[1] in precisions]


def timed(part: Part, name: str, precision: str, way: str = "", *options: str, env: dict | None = None, seconds: float = 40) -> str:
    config, images = model(part, name)
    family = f"{name}.{precision}" + (f".{way.replace(' ', '_')}" if way else "")
    found = step(part, family, config, precision, [*images, *options], env, seconds)
    part.stage.figure(kind="bench", model=name, way=way, **(found | {"precision": precision}))
    return f"{found['step_ms']:.3f} ms"


def bench(part: Part) -> None:
    """Training steps in each precision; without NVIDIA's libraries; without a CUDA graph; matrix products."""
    for name, precision in pairs():
        part.family(f"{name}.{precision}", lambda n=name, p=precision: timed(part, n, p))
    for name, precision in [(n, p) for n, p in pairs() if p != "tf32" and n in SMALLER and n != "mlp"]:
        own = lambda n=name, p=precision: timed(part, n, p, "own kernels", env={"RUNNER_CUDA_LIBRARIES": "0"})
        part.family(f"{name}.{precision}.own_kernels", own)
    for name in [n for n, p in pairs() if p == "fp32" and n in ("mlp", "mnist_cnn")]:
        part.family(f"{name}.fp32.no_graph", lambda n=name: timed(part, n, "fp32", "no graph", *sets("graph=false")))
    part.family("matmul", lambda: part.good("matmul", [part.stage.runner, "bench", "matmul", "--n", "4096", "--steps", "20"], 30).lines[-1])


def profile(part: Part) -> None:
    """Where the time of a step goes: each operation's, in the part's log, and a trace."""
    for name, precision in [("mnist_cnn", "fp32"), ("resnet18_224", "bf16"), ("resnet18_224", "fp32"), ("resnet18_32", "bf16")]:
        if (name, precision) in pairs():
            trace = (name, precision) == ("mnist_cnn", "fp32")
            part.family(f"{name}.{precision}", lambda n=name, p=precision, t=trace: profiled(part, n, p, 40, t))


def profiled(part: Part, name: str, precision: str, seconds: float, trace: bool = False) -> str:
    """The time of every operation of a step in the part's log, and perhaps a trace."""
    config, images = model(part, name)
    command = [part.stage.runner, "bench", config, "--device", part.stage.device, *images, *sets(f'precision="{precision}"'), "--profile"]
    traced = ["--trace", str(part.stage.out / f"trace_{name}.json")] if trace else []
    part.good(f"{name}.{precision}", [*command, "--steps", str(part.stage.steps), *traced], seconds)
    return ""


# Each way's share of the part's time; what one leaves, those behind it may use.
PEER = {"eager": 25, "channels_last": 25, "graph": 40, "compile": 65, "max-autotune": 65}


def pytorch(part: Part) -> None:
    """Raises `Skipped` where there is no PyTorch for the device."""
    ask = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 3)" if part.stage.device == "cuda" else "import torch"
    there = part.process("torch", [sys.executable, "-c", ask], 30)
    if not there.good:
        raise Skipped(f"{sys.executable} has no PyTorch" + (" that finds a GPU" if there.status == 3 else ""))


def peer(part: Part) -> None:
    """The same steps in PyTorch: a process for each way to run them, the slowly started last."""
    pytorch(part)
    modes = [mode for mode in PEER if part.wants(mode)]
    # What is quickly measured first.
    order = [(n, p) for p in ["bf16", "fp32", "tf32"] for n, q in pairs() if q == p]

    def run(mode: str) -> str:
        behind = modes[modes.index(mode) + 1 :]
        limit = part.left() - sum(PEER[other] for other in behind)
        return peers(part, mode, [f"{mode}/{precision}/{name}" for name, precision in order], limit)

    for mode in modes:
        part.family(mode, lambda mode=mode: run(mode))


# How often what is left of PyTorch's ways is gone on with behind one that ended the process.
AGAIN = 3


def peers(
    part: Part,
    family: str,
    ways: list[str],
    seconds: float,
    device: str | None = None,
    threads: list[int] | None = None,
    silence: float = 60,
    steps: int = 50,
) -> str:
    """Times ways to run a step in PyTorch, MODE/PRECISION/MODEL each, in one process. One that crashes costs itself alone; so does one
    that hangs, which is ended after `silence` seconds."""
    stage, kept = part.stage, part.left() - seconds
    # On the CPU with an allocator that keeps what it has: the faster of its settings.
    env = TUNED if threads else None
    found: list[dict] = []
    wrong: list[str] = []

    def see(line: str) -> None:
        figure = parsed(line)
        if figure:
            found.append(figure)
            stage.figure(kind="threads" if threads else "peer", **figure)

    for _ in range(1 + AGAIN):
        limit = part.left() - kept
        command = [sys.executable, "-u", str(ROOT / "scripts/gpu_peer.py"), "--device", device or stage.device]
        # It ends by itself before it is ended, and tells what it has left out.
        command += ["--seconds", str(max(int(limit) - 5, 1)), "--steps", str(min(stage.steps, steps)), "--only", *ways]
        command += ["--batch", stage.batch] if stage.batch else []
        command += ["--threads", *map(str, threads)] if threads else []
        done = part.process(family, command, limit, env, see=see, silence=silence)
        wrong += [] if done.good else [f"{done.verdict()}: {why(done.lines)}"]
        told = [f"{line['mode']}/{line['precision']}/{line['model']}" for line in found]
        begun = [line.removeprefix("begins ") for line in done.lines if line.startswith("begins ")]
        if done.good or not begun or threads:
            break
        # The one that it was ended by is not tried again.
        last, ways = begun[-1], [way for way in ways if way not in told and way != begun[-1]]
        if last not in told:
            stage.figure(kind="peer", **dict(zip(("mode", "precision", "model"), last.split("/"))), error=done.verdict())
        if not ways or part.left() - kept < 10:
            break
    measured = sum("step_ms" in line for line in found)
    left = sum("left_out" in line for line in found)
    if wrong:
        first = next((line["error"] for line in found if "error" in line), None)
        raise Failed(f"{measured} measured: {first or wrong[0]}")
    return f"{measured} measured" + (f", {left} left out: the time was over" if left else "")


def parsed(line: str) -> dict | None:
    """A figure of `gpu_peer.py`."""
    try:
        value = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and "mode" in value else None
