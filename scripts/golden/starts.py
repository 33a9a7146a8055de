"""How the parameters of torchvision's models start: of each parameter the mean, the standard deviation and the kurtosis of one draw.

`MODEL.txt` of `tests/golden/starts` has a line for each. `stochastic_depth.txt` has the probabilities of torchvision's blocks to be left
out: of those that have a shortcut, in their order.
"""

import warnings
from pathlib import Path

import torch
from architectures import TORCHVISION
from torchvision import models
from torchvision.models.efficientnet import MBConv
from torchvision.ops import StochasticDepth


def moments(tensor: torch.Tensor) -> tuple[float, float, float]:
    """Mean, standard deviation, kurtosis; of equal numbers the last two are 0."""
    x = tensor.detach().double().flatten()
    # `trunc_normal_` puts some of many millions of numbers on the cut at 2, a hundred standard deviations away, by rounding.
    x = x[x.abs() < 2] if x.abs().median() < 0.1 else x
    if bool((x == x[0]).all()):
        return float(x[0]), 0.0, 0.0
    off = x - x.mean()
    variance = off.square().mean()
    return float(x.mean()), float(variance.sqrt()), float(off.pow(4).mean() / variance**2)


def probabilities(net: torch.nn.Module) -> list[float]:
    without = {id(block.stochastic_depth) for block in net.modules() if isinstance(block, MBConv) and not block.use_res_connect}
    return [layer.p for layer in net.modules() if isinstance(layer, StochasticDepth) and id(layer) not in without]


def make(folder: Path) -> None:
    """Writes them all."""
    folder.mkdir(parents=True, exist_ok=True)
    dropped = []
    for name in sorted(TORCHVISION):
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # GoogLeNet's auxiliary classifiers are not in `models/`.
            net = models.get_model(name, num_classes=1000, **({"aux_logits": False, "init_weights": True} if name == "googlenet" else {}))
        lines = [" ".join([key, *(f"{x:.6g}" for x in moments(p))]) for key, p in net.named_parameters()]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
        if probabilities(net):
            dropped.append(" ".join([name, *map(repr, probabilities(net))]))
    (folder / "stochastic_depth.txt").write_text("\n".join(dropped) + "\n")
