"""Operations of text models: values and gradients by PyTorch in double precision, tests/golden/text.json.

Numbers are multiples of 1/256, which are exact in single precision and short in the file.
"""

import json
from pathlib import Path

import torch
from torch.nn import functional as F


def _numbers(draw: torch.Generator, *shape: int) -> torch.Tensor:
    return (torch.randn(*shape, generator=draw, dtype=torch.float64) * 256).round() / 256


def _list(x: torch.Tensor) -> list:
    """What is no operand needs no more digits than single precision has."""
    return [float(f"{v:.9g}") for v in x.detach().flatten().tolist()]


def _embedding(draw: torch.Generator) -> dict:
    """`torch.nn.Embedding` with a row of padding."""
    table = _numbers(draw, 7, 5).requires_grad_()
    ids = torch.randint(0, 7, (2, 9), generator=draw)
    y = F.embedding(ids, table, padding_idx=3)
    dy = _numbers(draw, *y.shape)
    y.backward(dy)
    return {
        "table": _list(table),
        "ids": ids.flatten().tolist(),
        "dy": _list(dy),
        "y": _list(y),
        "dtable": _list(table.grad),
    }


def _tied(draw: torch.Generator) -> dict:
    """A table that is the weight of the projection to logits as well."""
    table = _numbers(draw, 11, 6).requires_grad_()
    ids, targets = (torch.randint(0, 11, (2, 4), generator=draw) for _ in range(2))
    logits = F.linear(F.embedding(ids, table), table)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    return {
        "table": _list(table),
        "ids": ids.flatten().tolist(),
        "targets": targets.flatten().tolist(),
        "loss": loss.item(),
        "dtable": _list(table.grad),
    }


def make(path: Path) -> None:
    draw = torch.Generator().manual_seed(5)
    cases = {"embedding": _embedding(draw), "tied": _tied(draw)}
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")
