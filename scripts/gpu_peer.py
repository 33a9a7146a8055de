"""Times training steps in PyTorch on a GPU: the peer of `runner bench` there. Prints a JSON object a line, as soon as it is known.

    python scripts/gpu_peer.py --device cuda --seconds 120

All models, precisions and ways to run them in one process, the cheap ways first; it stops when its time is over. The nets are those of
`bench_pytorch.py`. A batch is made up and stays on the GPU; a step is forward, loss, backward, update; times come from CUDA events.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from contextlib import nullcontext

import torch
from bench_pytorch import build

# Model, side of its images, batch: as in scripts/gpu_check.sh.
CASES = {"mlp": ("mlp", 28, 256), "mnist_cnn": ("mnist_cnn", 28, 256), "resnet18_32": ("resnet18", 32, 128), "resnet18_224": ("resnet18", 224, 64)}
MODES = ["eager", "channels_last", "compile", "max-autotune"]
PRECISIONS = ["fp32", "tf32", "bf16"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try this script")
    parser.add_argument("--seconds", type=float, default=120, help="when to stop")
    parser.add_argument("--steps", type=int, default=50, help="steps to measure")
    parser.add_argument("--modes", nargs="*", choices=MODES, default=MODES)
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    return parser.parse_args()


class Clock:
    """Milliseconds between two points of the device's work."""

    def __init__(self, device: str):
        self.cuda = device == "cuda"

    def now(self):
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin, end) -> float:
        return begin.elapsed_time(end) if self.cuda else 1e3 * (end - begin)

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


def measure(args: argparse.Namespace, case: str, mode: str, precision: str) -> dict:
    model, side, batch = CASES[case]
    torch.manual_seed(1)
    for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
        backend.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    # `build` makes the optimizer of the parameters, which stay the same objects when the net is moved.
    net, shape, optimizer, criterion = build(argparse.Namespace(model=model, hidden=[256, 128]))
    net = net.to(args.device).train()
    inputs = torch.randn(batch, shape[0], side, side, device=args.device)
    targets = torch.randint(10, (batch,), device=args.device)
    if mode != "eager":
        net, inputs = net.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    forward = {"compile": lambda: torch.compile(net), "max-autotune": lambda: torch.compile(net, mode="max-autotune")}.get(mode, lambda: net)()
    mixed = torch.autocast(args.device, torch.bfloat16) if precision == "bf16" else nullcontext()

    def step() -> None:
        optimizer.zero_grad()
        with mixed:
            loss = criterion(forward(inputs), targets)
        loss.backward()
        optimizer.step()

    clock = Clock(args.device)
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(10 if args.device == "cuda" else 1):
        step()
    clock.wait()
    points = [clock.now()]
    for _ in range(args.steps):
        step()
        points.append(clock.now())
    clock.wait()
    times = [clock.between(a, b) for a, b in itertools.pairwise(points)]
    return {
        "program": f"PyTorch {torch.__version__}",
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "model": case,
        "batch": batch,
        "precision": precision,
        "mode": mode,
        "steps": len(times),
        "step_ms": round(statistics.median(times), 4),
        "step_ms_min": round(min(times), 4),
        "peak_bytes": torch.cuda.max_memory_allocated() if args.device == "cuda" else None,
    }


def main() -> None:
    args = arguments()
    end = time.monotonic() + args.seconds
    for mode, precision, case in itertools.product(args.modes, PRECISIONS, args.cases):
        if time.monotonic() > end:
            print("the time is over", file=sys.stderr)
            break
        try:
            print(json.dumps(measure(args, case, mode, precision)), flush=True)
        except Exception as error:  # One way that fails leaves the others.
            print(f"{case} {mode} {precision}: {type(error).__name__}: {error}", file=sys.stderr)
        # What one case compiled and allocated must not slow down or crowd out the next.
        torch.compiler.reset()
        if args.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
