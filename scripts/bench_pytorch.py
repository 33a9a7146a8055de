"""Times a training step in PyTorch on the CPU: the peer of `runner bench CONFIG`. Prints one JSON object.

    python scripts/bench_pytorch.py --model mnist_cnn --batch 256 --threads 2 --mode channels_last --allocator tuned

The batch is made up and the same every time, as in `runner bench`; a step is forward, loss, backward, update. With
`--serve` it prints an object when it is warm, and then one for each line with a number of seconds that it reads:
`cargo bench --bench pytorch` keeps such a process for every mode, idle while another is measured.

Started by `torchrun`, each process is a rank of `DistributedDataParallel` with gloo, and `--batch` is what each has;
`bench_ranks.py` does that.

    python scripts/bench_pytorch.py --attention --threads 2 --allocator tuned

times scaled_dot_product_attention alone, forward and backward, in each of PyTorch's ways (`--precision bf16`: of numbers in bf16, as
autocast hands them over): the peer of
`cargo bench --bench sweeps -- attention`.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import time

# glibc gives large blocks back to the system after every step; with these it keeps them.
TUNED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33), "MALLOC_TOP_PAD_": str(1 << 28)}


MODES = ["eager", "channels_last", "compile", "compile_channels_last"]
# Other programs that evaluate the same model.
RUNTIMES = ["onnxruntime", "openvino"]
# Nets for images of 32×32; the second has a first convolution of 3×3, as `models/resnet18_cifar.toml`.
SMALL = ["resnet18", "resnet18_cifar"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mnist_cnn", help="mlp, mnist_cnn, resnet18_cifar, or the name of a classifier of torchvision")
    parser.add_argument("--side", type=int, help="height and width of torchvision's images; without: 32 for resnet18 and resnet18_cifar, 224 for others")
    parser.add_argument("--classes", type=int, help="of torchvision's models; without: 10 for resnet18 and resnet18_cifar, 1000 for others")
    parser.add_argument("--hidden", type=int, nargs="*", default=[256, 128], help="widths of the MLP's hidden layers")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as PyTorch takes")
    parser.add_argument("--mode", choices=[*MODES, *RUNTIMES], default="eager")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast, and OpenVINO's hint")
    parser.add_argument("--evaluate", action="store_true", help="time the evaluation of the batch instead of a training step")
    parser.add_argument("--optimizer", choices=["config", "sgd"], default="config", help="config: as in `configs/`")
    parser.add_argument("--allocator", choices=["stock", "tuned"], default="stock", help="tuned: glibc keeps freed memory")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure")
    parser.add_argument("--steps", type=int, default=5, help="the fewest steps to measure")
    parser.add_argument("--fused", action="store_true", help="the optimizer as one kernel, `fused=True`")
    parser.add_argument("--attention", action="store_true", help="time attention alone")
    parser.add_argument("--serve", action="store_true", help="measure when told to on standard input, until its end")
    return parser.parse_args()


def build(model: str, *, hidden=(256, 128), side: int | None = None, classes: int | None = None, optimizer: str = "config", fused: bool = False):
    """Net, input shape, optimizer, loss, norm to clip gradients to: as in `configs/`. What each option means, `arguments` tells."""
    import torch
    from torch import nn

    if model == "mlp":
        layers, width = [nn.Flatten()], 784
        for units in hidden:
            layers += [nn.Linear(width, units), nn.ReLU()]
            width = units
        net, shape = nn.Sequential(*layers, nn.Linear(width, 10)), (1, 28, 28)
    elif model == "mnist_cnn":
        features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        classifier = nn.Sequential(nn.Flatten(), nn.Linear(64 * 7 * 7, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10))
        net, shape = nn.Sequential(features, classifier), (1, 28, 28)
    else:
        from torchvision.models import get_model

        usual = (10, 32) if model in SMALL else (1000, 224)
        options = {"aux_logits": False, "init_weights": False} if model == "googlenet" else {}
        net = get_model(model.removesuffix("_cifar"), num_classes=classes or usual[0], **options)
        if model == "resnet18_cifar":
            net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        shape = (3, side or usual[1], side or usual[1])
    one_kernel = {"fused": True} if fused else {}
    if optimizer == "config" and model in SMALL:
        sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True, **one_kernel)
        return net, shape, sgd, nn.CrossEntropyLoss(label_smoothing=0.1), 1.0
    if model not in ["mlp", "mnist_cnn"]:
        return net, shape, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, **one_kernel), nn.CrossEntropyLoss(), None
    return net, shape, torch.optim.Adam(net.parameters(), lr=1e-3, **one_kernel), nn.CrossEntropyLoss(), None


def in_precision(args: argparse.Namespace):
    """A context in which PyTorch computes in the precision asked for."""
    import torch

    return torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16")


def evaluation(args: argparse.Namespace, net, inputs):
    """A function that evaluates the batch."""
    import torch

    net.eval()
    if args.mode in MODES:
        forward = torch.compile(net) if args.mode.startswith("compile") else net

        def step() -> None:
            with torch.inference_mode(), in_precision(args):
                forward(inputs)

        return step
    if args.mode == "openvino":
        import openvino

        model = openvino.convert_model(net, example_input=inputs)
        model.reshape(list(inputs.shape))
        threads = {"INFERENCE_NUM_THREADS": args.threads} if args.threads else {}
        # Unless told otherwise it computes in bfloat16 where the processor can.
        hint = {"fp32": "f32", "bf16": "bf16"}[args.precision]
        options = {"INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "LATENCY", **threads}
        request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
        tensor = openvino.Tensor(inputs.numpy())
        return lambda: request.infer([tensor])
    import tempfile

    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        torch.onnx.export(net, (inputs,), file.name, dynamo=False)
        session = onnxruntime.InferenceSession(file.name, options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: inputs.numpy()}
    return lambda: session.run(None, given)


def attention(seconds: float, precision: str) -> None:
    """Prints a table: queries, keys and values as nn.MultiheadAttention makes them, views of one packed projection."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    print("| samples, heads, positions, width | way | forward, ms | forward and backward, ms |\n| --- | --- | --- | --- |")
    for samples, heads, length, width, causal in [(16, 6, 128, 32, True), (8, 12, 197, 64, False), (64, 4, 64, 16, False)]:
        embedding = heads * width
        qkv = torch.randn(samples, length, 3 * embedding, dtype=dtype, requires_grad=True)
        dy = torch.randn(samples, length, embedding, dtype=dtype)

        def forward(qkv: torch.Tensor) -> torch.Tensor:
            q, k, v = (x.view(samples, length, heads, width).transpose(1, 2) for x in qkv.chunk(3, -1))
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return y.transpose(1, 2).reshape(samples, length, embedding)

        def evaluate(f) -> None:
            with torch.no_grad():
                f(qkv)

        def train(f) -> None:
            qkv.grad = None
            f(qkv).backward(dy)

        for way in ["flash", "math", "compile"]:
            f = torch.compile(forward) if way == "compile" else forward
            with sdpa_kernel(SDPBackend.MATH if way == "math" else SDPBackend.FLASH_ATTENTION):
                medians = [median(lambda step=step: step(f), seconds, 5) for step in [evaluate, train]]
            cells = " | ".join(f"{ms:.3f}" for ms in medians)
            print(f"| {samples}, {heads}, {length}, {width}{', causal' if causal else ''} | {way} | {cells} |", flush=True)


def median(step, seconds: float, steps: int) -> float:
    """Milliseconds of a step, after three that do not count."""
    for _ in range(3):
        step()
    times = []
    end = time.perf_counter() + seconds
    while len(times) < steps or time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def main() -> None:
    args = arguments()
    if args.allocator == "tuned" and any(os.environ.get(k) != v for k, v in TUNED.items()):
        # The allocator reads its settings when the process starts.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | TUNED)

    import torch

    torch.manual_seed(1)
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.attention:
        attention(args.seconds, args.precision)
        return
    net, shape, optimizer, criterion, clip = build(args.model, hidden=args.hidden, side=args.side, classes=args.classes, optimizer=args.optimizer, fused=args.fused)
    inputs, targets = torch.randn(args.batch, *shape), torch.randint(10, (args.batch,))
    if args.mode.endswith("channels_last"):
        net, inputs = net.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    if args.mode == "onnxruntime" and args.precision != "fp32":
        sys.exit("onnxruntime computes in single precision here")
    if args.mode in RUNTIMES and not args.evaluate:
        sys.exit(f"{args.mode} does not train here: --evaluate")
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo")
        net = torch.nn.parallel.DistributedDataParallel(net)
    forward = torch.compile(net) if args.mode.startswith("compile") else net
    net.train()

    def train() -> None:
        optimizer.zero_grad()
        with in_precision(args):
            loss = criterion(forward(inputs), targets)
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()

    step = evaluation(args, net, inputs) if args.evaluate else train

    def measure(seconds: float) -> dict:
        times = []
        end = time.perf_counter() + seconds
        while len(times) < args.steps or time.perf_counter() < end:
            begin = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - begin))
        median = statistics.median(times)
        return {
            "program": f"PyTorch {torch.__version__}",
            "device": "cpu",
            "model": args.model,
            "batch": args.batch,
            "threads": torch.get_num_threads(),
            "mode": args.mode,
            "precision": args.precision,
            "allocator": args.allocator,
            "steps": len(times),
            "step_ms": round(median, 4),
            "step_ms_min": round(min(times), 4),
            "samples_per_s": round(1e3 * args.batch / median, 1),
            "parameters": sum(p.numel() for p in net.parameters()),
            "peak_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }

    for _ in range(3):
        step()
    if not args.serve:
        said = measure(args.seconds)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(said))
        return
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        # The first steps after a pause find the caches cold and the threads asleep.
        for _ in range(2):
            step()
        print(json.dumps(measure(float(line))), flush=True)


if __name__ == "__main__":
    main()
