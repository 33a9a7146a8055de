"""Mixed precision: what a few steps come to in single precision, and what PyTorch's autocast to bf16 makes of them.

A file is a case's (`case.py` tells the names of its tensors), with a configuration that asks for bf16; `expected` is in single precision.
`autocast.output`, `autocast.eval_output`, `autocast.losses` and `autocast.grad.NAME` are the same in bf16: how far PyTorch itself is off.
"""

import copy
import dataclasses
from pathlib import Path

import torch
from combinations import encoder
from nets import named
from safetensors.torch import save_file
from torch import nn

from case import Case, start, train


def cnn() -> Case:
    lines = [
        '{ name = "features", layers = ['
        '{ type = "conv2d", out_channels = 16, kernel_size = 3, padding = 1, bias = false }, "batch_norm2d", "silu", '
        '{ type = "conv2d", out_channels = 24, kernel_size = 3, stride = 2, padding = 1 }, "silu", '
        '{ type = "conv2d", out_channels = 32, kernel_size = 1 }, "silu", { type = "avg_pool2d", kernel_size = 2 }] }',
        '{ name = "classifier", layers = ["flatten", { type = "linear", out_features = 24 }, "silu", '
        '{ type = "linear", out_features = 10 }] }',
    ]

    def net() -> nn.Module:
        features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.SiLU(),
            nn.Conv2d(16, 24, 3, 2, 1), nn.SiLU(), nn.Conv2d(24, 32, 1), nn.SiLU(), nn.AvgPool2d(2),
        )  # fmt: skip
        return named(features=features, classifier=nn.Sequential(nn.Flatten(), nn.Linear(288, 24), nn.SiLU(), nn.Linear(24, 10)))

    sgd = {"type": "sgd", "lr": 0.05, "momentum": 0.9}
    return Case("mixed/cnn", lines, net, (3, 12, 12), samples=48, batch_size=16, classes=10, optimizer=sgd, epochs=2)


def transformer(is_causal: bool) -> Case:
    name = "transformer_causal" if is_causal else "transformer"
    case = encoder(name, is_causal, not is_causal, width=32, heads=2, hidden=48, shape=(64, 4))
    return dataclasses.replace(case, name=f"mixed/{name}", samples=32, batch_size=16, val_samples=0)


def autocast(net: nn.Module) -> nn.Module:
    """The same net, computed in mixed precision."""

    class Mixed(type(net)):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(x).float()

    net.__class__ = Mixed
    return net


def make(folder: Path) -> None:
    for case in [cnn(), transformer(False), transformer(True)]:
        begin = start(case, 1)
        exact = train(case, begin)
        mixed = train(case, dataclasses.replace(begin, net=autocast(copy.deepcopy(begin.net))))
        tensors = {"batch.inputs": begin.inputs, "batch.targets": begin.targets}
        tensors |= {f"init.{n}": t for n, t in begin.net.state_dict().items()}
        for kind, got in [("expected", exact), ("autocast", mixed)]:
            tensors |= {f"{kind}.output": got.output, f"{kind}.eval_output": got.eval_output}
            tensors[f"{kind}.losses"] = torch.tensor(got.losses, dtype=torch.float64)
            tensors |= {f"{kind}.grad.{n}": t for n, t in got.grads.items()}
        path = folder / f"{case.name.removeprefix('mixed/')}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        config = 'precision = "bf16"\n' + case.config()
        save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, path, metadata={"config": config})
        path.chmod(0o644)
        print(f"{case.name}: {path.stat().st_size} bytes", flush=True)
