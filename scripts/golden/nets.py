"""Modules for what nn.Sequential cannot say, with the state-dict names that the configurations give."""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import nn


def named(**modules: nn.Module) -> nn.Sequential:
    """A sequence of named modules."""
    return nn.Sequential(OrderedDict(modules))


class Residual(nn.Module):
    """Adds its input to its body's output. The body's modules lie directly in it, as a residual adds no name."""

    def __init__(self, downsample: nn.Module | None = None, if_same_shape: bool = False, **body: nn.Module):
        super().__init__()
        self.body = list(body)
        for name, module in body.items():
            self.add_module(name, module)
        self.downsample = downsample
        self.if_same_shape = if_same_shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for name in self.body:
            y = getattr(self, name)(y)
        if self.downsample is not None:
            return y + self.downsample(x)
        if self.if_same_shape and x.shape != y.shape:
            return y
        return y + x


class Gate(nn.Sequential):
    """Multiplies its input by what its modules make of it."""

    def __init__(self, **modules: nn.Module):
        super().__init__(OrderedDict(modules))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * super().forward(x)


class Branches(nn.Module):
    """Several modules on one input."""

    def __init__(self, combine: Callable[[list[torch.Tensor]], torch.Tensor], **branches: nn.Module):
        super().__init__()
        self.combine = combine
        self.names = list(branches)
        for name, module in branches.items():
            self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.combine([getattr(self, name)(x) for name in self.names])


class Wired(nn.Module):
    """Modules in order, each fed by the outputs that `wiring` names for it, by default by the one before. A module that
    is given several outputs is called with all of them."""

    def __init__(self, wiring: dict[str, list[str]], **modules: nn.Module | Callable):
        super().__init__()
        self.wiring = wiring
        self.order = list(modules)
        self.functions = {}
        for name, module in modules.items():
            if isinstance(module, nn.Module):
                self.add_module(name, module)
            else:
                self.functions[name] = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = {}
        for name in self.order:
            module = self.functions.get(name) or getattr(self, name)
            x = module(*[outputs[source] for source in self.wiring[name]]) if name in self.wiring else module(x)
            outputs[name] = x
        return x


class EncoderLayer(nn.TransformerEncoderLayer):
    """A layer of a transformer, normalised first. Causal: a position sees none after it."""

    def __init__(self, width: int, heads: int, hidden: int, bias: bool, is_causal: bool):
        more = {"activation": "gelu", "batch_first": True, "norm_first": True}
        super().__init__(width, heads, hidden, dropout=0.0, bias=bias, **more)
        self.is_causal = is_causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype) if self.is_causal else None
        return super().forward(x, src_mask=mask, is_causal=self.is_causal)


def add(xs: list[torch.Tensor]) -> torch.Tensor:
    """The sum."""
    return sum(xs[1:], xs[0])


def multiply(xs: list[torch.Tensor]) -> torch.Tensor:
    """The product."""
    out = xs[0]
    for x in xs[1:]:
        out = out * x
    return out


def concat(xs: list[torch.Tensor]) -> torch.Tensor:
    """Side by side along the channels."""
    return torch.cat(xs, 1)
