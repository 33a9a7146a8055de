"""Activations far from 0, very near to it, and at their kinks: values and derivatives, which PyTorch computes in double precision."""

from pathlib import Path

import torch
from torch import nn


def single(x: float) -> float:
    """The nearest number in single precision."""
    return torch.tensor(x, dtype=torch.float32).double().item()


# As the engine writes them, and PyTorch's.
ACTIVATIONS = {
    "Mish": nn.Mish(),
    "Softplus { beta: 1.0, threshold: 20.0 }": nn.Softplus(),
    "Softplus { beta: 1.7, threshold: 2.0 }": nn.Softplus(single(1.7), 2.0),
    "Selu": nn.SELU(),
    "Celu { alpha: 0.6 }": nn.CELU(single(0.6)),
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Softsign": nn.Softsign(),
    "LogSigmoid": nn.LogSigmoid(),
    "Tanhshrink": nn.Tanhshrink(),
    "Hardtanh { low: -1.3, high: 0.8 }": nn.Hardtanh(single(-1.3), single(0.8)),
    "Hardshrink { lambda: 0.6 }": nn.Hardshrink(single(0.6)),
    "Softshrink { lambda: 0.4 }": nn.Softshrink(single(0.4)),
}

NEAR = [0.0, 1e-40, 1e-20, 1e-8, 1e-4, 0.01, 0.1, 0.4, 0.6, 0.7, 0.8, 1.3]
FAR = [3.0, 6.0, 9.0, 15.0, 17.0, 20.0, 20.5, 88.0, 90.0, 100.0, 1e4, 1e30]


def make(folder: Path) -> None:
    """Writes `extremes.txt`: for each activation its name, and a line with x, y and the derivative for each x."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, module in ACTIVATIONS.items():
        lines.append(name)
        for x in [single(sign * x) for x in NEAR + FAR for sign in (1, -1)]:
            at = torch.tensor(x, dtype=torch.float64, requires_grad=True)
            y = module(at)
            y.backward()
            lines.append(f"  {x!r} {y.item()!r} {at.grad.item()!r}")
    (folder / "extremes.txt").write_text("\n".join(lines) + "\n")
