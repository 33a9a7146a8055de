"""Times training steps in PyTorch on a GPU: the peer of `runner bench` there. Prints a JSON object a line, as soon as it is known.

    python scripts/gpu_peer.py --device cuda --seconds 120

All ways to run a step, precisions and models in one process, in the order of `MODES`, or those that `--only` names, in that order; it
stops when its time is over and says what it has left out. A way that fails is a line with `error`, the others are still measured, and
the exit code is 1; so it is if nothing could be measured. The nets are those of `bench_pytorch.py`, and the language model of `bench_text.py`. What begins is told on standard
error, so that one that crashes is known.

A step is what a step of `runner bench` is: a batch from page-locked memory to the GPU, on a stream beside the computing and into two
places in turn; normalisation where the configuration has it, forward, loss, backward, clipping where the configuration has it,
update; the loss and the right answers added up on the GPU. Steps are enqueued without waiting, in five rounds of at least `--steps`
steps and 0.1 s, each timed from its beginning to the reading of its sums; the time is the median round's by its steps.
"""

import argparse
import gc
import json
import math
import statistics
import sys
import time
import warnings
from contextlib import nullcontext

import torch
from bench_pytorch import build
from gpu_models import LEARNING_RATE, MODELS, Model, Text

# From quickly started to slowly. `graph`: the whole step in a CUDA graph, with a fused optimizer, channels-last.
MODES = ["eager", "channels_last", "graph", "compile", "max-autotune"]
FUSED = ["graph", "compile", "max-autotune"]
PRECISIONS = ["bf16", "fp32", "tf32"]
ROUNDS, ROUND_SECONDS = 5, 0.1
SLOTS = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try this script")
    parser.add_argument("--seconds", type=float, default=120, help="begin nothing that would take longer")
    parser.add_argument("--steps", type=int, default=50, help="the fewest steps of a round")
    parser.add_argument("--batch", type=int, help="another number of samples: to try this script")
    parser.add_argument("--modes", nargs="*", choices=MODES, default=MODES)
    parser.add_argument("--precisions", nargs="*", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--cases", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--only", nargs="*", type=way, metavar="MODE/PRECISION/CASE", help="these, instead of all that the options above name")
    parser.add_argument("--threads", nargs="*", type=int, default=[0], help="of the CPU, one after the other; 0: as many as PyTorch takes")
    return parser.parse_args()


def way(text: str) -> tuple[str, str, str]:
    """What an element of `--only` names."""
    mode, precision, name = text.split("/")
    if mode not in MODES or precision not in PRECISIONS or name not in MODELS:
        raise ValueError(text)
    return mode, precision, name


class Slots:
    """The batches: in page-locked memory, and where they are copied to."""

    def __init__(self, args: argparse.Namespace, case: Model | Text, batch: int, layout: torch.memory_format):
        self.cuda = args.device == "cuda"

        def made_up():
            if isinstance(case, Text):
                tokens = torch.randint(case.vocabulary, (batch, case.context + 1))
                return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
            return torch.randn(batch, case.channels, case.side, case.side).to(memory_format=layout), torch.randint(10, (batch,))

        self.host = [made_up() for _ in range(SLOTS)]
        self.device = self.host
        if not self.cuda:
            return
        # Pinning would not keep the layout of a tensor that is not contiguous: the pinned one is made first.
        pinned = [(torch.empty_like(x, pin_memory=True), torch.empty_like(y, pin_memory=True)) for x, y in self.host]
        for (x, y), (from_x, from_y) in zip(pinned, self.host):
            x.copy_(from_x), y.copy_(from_y)
        self.host = pinned
        self.device = [(torch.empty_like(x, device="cuda"), torch.empty_like(y, device="cuda")) for x, y in self.host]
        for k in range(SLOTS):
            self.copy(k)
        self.stream = torch.cuda.Stream()
        self.filled = [torch.cuda.Event() for _ in range(SLOTS)]
        self.used = [torch.cuda.Event() for _ in range(SLOTS)]
        torch.cuda.synchronize()

    def copy(self, k: int) -> None:
        for to, data in zip(self.device[k], self.host[k]):
            to.copy_(data, non_blocking=True)

    def fill(self, k: int) -> None:
        """Enqueues the copy of batch `k` behind its last use, and lets the computing wait for it."""
        if self.cuda:
            with torch.cuda.stream(self.stream):
                self.stream.wait_event(self.used[k])
                self.copy(k)
                self.filled[k].record(self.stream)
            torch.cuda.current_stream().wait_event(self.filled[k])

    def release(self, k: int) -> None:
        """Batch `k` is used by what has been enqueued so far."""
        if self.cuda:
            self.used[k].record()


class Training:
    """A net with all that a step needs."""

    def __init__(self, args: argparse.Namespace, case: Model | Text, mode: str, precision: str, batch: int):
        # On the device from the start: filling a large net with random numbers takes long on the CPU.
        with torch.device(args.device):
            if isinstance(case, Text):
                from bench_text import Gpt

                self.net, self.criterion, self.clip = Gpt(case), torch.nn.CrossEntropyLoss(), 1.0
                self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, **({"fused": True} if mode in FUSED else {}))
            else:
                self.net, _, self.optimizer, self.criterion, self.clip = build(case.net, classes=case.classes, side=case.side, fused=mode in FUSED)
        self.net = self.net.train()
        for group in self.optimizer.param_groups:
            # As in the configurations of `gpu_models.py`: made-up labels are no reason to diverge.
            group["lr"] = min(group["lr"], LEARNING_RATE)
        self.case, self.device, self.precision = case, args.device, precision
        layout = torch.contiguous_format if mode == "eager" else torch.channels_last
        self.net = self.net.to(memory_format=layout)
        self.slots = Slots(args, case, batch, layout)
        self.loss = torch.zeros((), device=args.device)
        self.right = torch.zeros((), dtype=torch.int64, device=args.device)
        if mode == "compile":
            self.forward = torch.compile(self.forward)
        elif mode == "max-autotune":
            self.forward = torch.compile(self.forward, mode="max-autotune")
        if mode == "graph":
            self.graphs = self.capture()
            self.run = lambda k: self.graphs[k].replay()
        else:
            self.run = self.compute

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        text = isinstance(self.case, Text)
        if not text and self.case.normalised:
            inputs = (inputs - 0.5) / 0.5
        mixed = torch.autocast(self.device, torch.bfloat16) if self.precision == "bf16" else nullcontext()
        with mixed:
            answers = self.net(inputs)
            if text:
                answers, targets = answers.flatten(0, 1), targets.flatten()
            return self.criterion(answers, targets), answers

    def compute(self, k: int) -> None:
        """A step on slot `k`, whose batch is there."""
        inputs, targets = self.slots.device[k]
        self.optimizer.zero_grad()
        loss, answers = self.forward(inputs, targets)
        loss.backward()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.optimizer.step()
        self.loss += loss.detach()
        self.right += (answers.detach().argmax(1) == targets.flatten()).sum()

    def capture(self) -> list:
        """A graph of a whole step for each slot, as PyTorch's notes on CUDA graphs have it."""
        if self.device != "cuda":
            raise RuntimeError("a CUDA graph needs --device cuda")
        for group in self.optimizer.param_groups:
            # Adam asks for it; SGD counts no steps, and has nothing to ask.
            if "capturable" in group:
                group["capturable"] = True
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            for k in range(4):
                self.compute(k % SLOTS)
        torch.cuda.current_stream().wait_stream(warm)
        graphs = []
        for k in range(SLOTS):
            graph = torch.cuda.CUDAGraph()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                self.compute(k)
            graphs.append(graph)
        return graphs

    def round(self, steps: int, compiled: bool) -> float:
        """Seconds a step."""
        begin = time.perf_counter()
        for step in range(steps):
            k = step % SLOTS
            self.slots.fill(k)
            if compiled:
                torch.compiler.cudagraph_mark_step_begin()
            self.run(k)
            self.slots.release(k)
        # Reading the sums waits for everything.
        self.mean_loss = self.loss.item() / steps
        self.right.item()
        seconds = (time.perf_counter() - begin) / steps
        self.loss.zero_(), self.right.zero_()
        return seconds


def measure(args: argparse.Namespace, name: str, mode: str, precision: str) -> dict:
    case = MODELS[name]
    batch = args.batch or case.batch
    torch.manual_seed(1)
    for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
        backend.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    training = Training(args, case, mode, precision, batch)
    compiled = mode in ("compile", "max-autotune")
    training.round(4, compiled)
    started = time.perf_counter() - begin
    estimate = training.round(args.steps, compiled)
    steps = max(args.steps, math.ceil(ROUND_SECONDS / estimate))
    times = [1e3 * training.round(steps, compiled) for _ in range(ROUNDS)]
    return {
        "program": f"PyTorch {torch.__version__}",
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "batch": batch,
        "steps": steps,
        "step_ms": round(statistics.median(times), 5),
        "step_ms_min": round(min(times), 5),
        "step_ms_max": round(max(times), 5),
        "start_s": round(started, 2),
        "loss": training.mean_loss if math.isfinite(training.mean_loss) else None,
        "peak_bytes": torch.cuda.max_memory_allocated() if args.device == "cuda" else None,
    }


def usable(device: str) -> bool:
    """Whether anything can still be computed: after some errors a process must end."""
    try:
        if device == "cuda":
            torch.cuda.synchronize()
    except Exception:
        return False
    return True


def main() -> int:
    args = arguments()
    # Each way to ask for TF32 warns of another one.
    warnings.filterwarnings("ignore", message=".*TF32.*")
    end = time.monotonic() + args.seconds
    ways = args.only or [(mode, precision, name) for mode in args.modes for precision in args.precisions for name in args.cases]
    # Of each way to run a step: compiling takes by far the most.
    longest: dict[str, float] = {}
    measured = failed = 0
    for threads, (mode, precision, name) in [(threads, way) for way in ways for threads in args.threads]:
        line = {"model": name, "precision": precision, "mode": mode} | ({"threads": threads} if threads else {})
        begin = time.monotonic()
        if begin + longest.get(mode, 0.0) > end:
            print(json.dumps(line | {"left_out": "the time is over"}), flush=True)
            continue
        print(f"begins {mode}/{precision}/{name}", file=sys.stderr, flush=True)
        if threads:
            torch.set_num_threads(threads)
        try:
            line |= measure(args, name, mode, precision)
            measured += 1
        except Exception as error:  # One way that fails leaves the others.
            line["error"] = f"{type(error).__name__}: {error}"
            failed += 1
            print(f"{name}, {mode}, {precision}: {line['error']}", file=sys.stderr, flush=True)
        print(json.dumps(line), flush=True)
        if "error" in line and not usable(args.device):
            print("the device can no longer be used by this process", file=sys.stderr)
            return 1
        longest[mode] = max(longest.get(mode, 0.0), time.monotonic() - begin)
        # What one case compiled and allocated must not slow down or crowd out the next.
        torch.compiler.reset()
        gc.collect()
        if args.device == "cuda":
            torch.cuda.empty_cache()
    if failed:
        print(f"{failed} of {failed + measured} could not be measured", file=sys.stderr)
    elif not measured:
        print("nothing was measured", file=sys.stderr)
    return 0 if measured and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
