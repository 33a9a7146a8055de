"""The models of `models/` in PyTorch: torchvision's, and some of their own.

`MODEL.json` of `tests/golden/architectures` holds what PyTorch makes, in double precision, of two images and of parameters that both
sides make by a formula (`values`): the logits in evaluation mode, the loss in training mode, and of some gradients their norm and
their product with the numbers of `table`.
"""

import dataclasses
import json
import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

CLASSES = 5
HIDDEN = 64
# Where an earlier seed is good for PyTorch's roundings, but not for all of this program's instructions.
FIRST_SEED = {"wide_resnet50_2": 2}
TARGETS = [1, 3]
# Of the pixels of an image that a model puts out, some are told: the numbers that are so many apart that there are no more than this.
MOST_OUTPUTS = 100
# The period of the parameters is prime, so that the rows of a matrix differ.
PERIOD = 8191

# Side of the images in `MODEL.json`: small, but no batch normalisation has less than eight values.
SMALL = 64
# What torchvision's constructors are told: no dropout, no stochastic depth, no auxiliary classifiers, which leave the names of all else.
DROPOUT: dict[str, Any] = {"dropout": 0.0}
# Options that `models/` has under other names.
SAID = {"stochastic_depth_prob": "stochastic_depth"}
TORCHVISION: dict[str, tuple[int, dict[str, Any]]] = {
    "alexnet": (SMALL, DROPOUT),
    "convnext_tiny": (SMALL, {"stochastic_depth_prob": 0.0}),
    "densenet121": (SMALL, {}),
    "efficientnet_b0": (SMALL, DROPOUT | {"stochastic_depth_prob": 0.0}),
    "googlenet": (SMALL, DROPOUT | {"aux_logits": False, "init_weights": False}),
    "mnasnet1_0": (SMALL, DROPOUT),
    "mobilenet_v2": (SMALL, DROPOUT),
    "mobilenet_v3_large": (SMALL, DROPOUT),
    "mobilenet_v3_small": (SMALL, DROPOUT),
    "regnet_y_400mf": (SMALL, {}),
    "resnet101": (SMALL, {}),
    "resnet18": (SMALL, {}),
    "resnet34": (SMALL, {}),
    "resnet50": (SMALL, {}),
    "resnext50_32x4d": (SMALL, {}),
    "shufflenet_v2_x1_0": (SMALL, {}),
    "squeezenet1_1": (SMALL, DROPOUT),
    "swin_t": (SMALL, {}),
    "vgg11": (32, DROPOUT),
    "vgg11_bn": (32, DROPOUT),
    "vgg16": (32, DROPOUT),
    "vit_b_16": (SMALL, {}),
    "wide_resnet50_2": (SMALL, {}),
}


def resnet18_cifar(num_classes: int) -> nn.Module:
    from torchvision import models

    net = models.resnet18(num_classes=num_classes)
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net


def conv(inputs: int, outputs: int) -> nn.Module:
    layers = [("conv", nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)), ("bn", nn.BatchNorm2d(outputs)), ("relu", nn.ReLU())]
    return nn.Sequential(OrderedDict(layers))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.res1, self.res2 = conv(channels, channels), conv(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.res2(self.res1(x))


def resnet9(num_classes: int) -> nn.Module:
    def stage(inputs: int, outputs: int, residual: bool = True) -> nn.Module:
        layers = OrderedDict(conv=conv(inputs, outputs), pool=nn.MaxPool2d(2))
        if residual:
            layers["residual"] = Residual(outputs)
        return nn.Sequential(layers)

    return nn.Sequential(
        OrderedDict(
            prep=conv(3, 64),
            layer1=stage(64, 128),
            layer2=stage(128, 256, residual=False),
            layer3=stage(256, 512),
            pool=nn.MaxPool2d(4),
            flatten=nn.Flatten(),
            linear=nn.Linear(512, num_classes, bias=False),
        )
    )


def lenet5(num_classes: int) -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(3, 6, 5),
            tanh1=nn.Tanh(),
            pool1=nn.AvgPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            tanh2=nn.Tanh(),
            pool2=nn.AvgPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(400, 120),
            tanh3=nn.Tanh(),
            fc2=nn.Linear(120, 84),
            tanh4=nn.Tanh(),
            fc3=nn.Linear(84, num_classes),
        )
    )


def vit_small_32(num_classes: int, num_layers: int = 6) -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(image_size=32, patch_size=4, num_layers=num_layers, num_heads=6, hidden_dim=192, mlp_dim=384, num_classes=num_classes)


def mlp(inputs: int, wide: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, wide), nn.GELU(), nn.Linear(wide, inputs))


class Mixer(nn.Module):
    def __init__(self, positions: int, channels: int, tokens_mlp_dim: int, channels_mlp_dim: int) -> None:
        super().__init__()
        self.norm1, self.mlp_tokens = nn.LayerNorm(channels, 1e-6), mlp(positions, tokens_mlp_dim)
        self.norm2, self.mlp_channels = nn.LayerNorm(channels, 1e-6), mlp(channels, channels_mlp_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mlp_channels(self.norm2(x))


class MlpMixer(nn.Module):
    def __init__(self, num_classes: int, num_layers: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 128, 4, 4)
        self.blocks = nn.Sequential(*[Mixer(64, 128, 64, 512) for _ in range(num_layers)])
        self.norm, self.head = nn.LayerNorm(128, 1e-6), nn.Linear(128, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.stem(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


class DoubleConv(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = lambda i: [nn.Conv2d(i, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]  # noqa: E731
        self.double_conv = nn.Sequential(*half(inputs), *half(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(inputs, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.up, self.conv = nn.ConvTranspose2d(inputs, outputs, 2, 2), DoubleConv(inputs, outputs)

    def forward(self, x: torch.Tensor, beside: torch.Tensor) -> torch.Tensor:
        return self.conv(torch.cat([beside, self.up(x)], 1))


class UNet(nn.Module):
    def __init__(self, num_classes: int, width: int = 64) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(5)]
        self.inc = DoubleConv(3, width)
        self.down1, self.down2, self.down3, self.down4 = (Down(w, 2 * w) for w in widths[:4])
        self.up1, self.up2, self.up3, self.up4 = (Up(2 * w, w) for w in widths[3::-1])
        self.outc = nn.Sequential(OrderedDict(conv=nn.Conv2d(width, num_classes, 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = [self.inc(x)]
        for down in (self.down1, self.down2, self.down3, self.down4):
            levels.append(down(levels[-1]))
        x = levels.pop()
        for up in (self.up1, self.up2, self.up3, self.up4):
            x = up(x, levels.pop())
        return self.outc(x)


def autoencoder(_classes: int, channels: int = 3) -> nn.Module:
    half = {"kernel_size": 3, "stride": 2, "padding": 1}
    encoder = nn.Sequential(nn.Conv2d(3, 16, **half), nn.ReLU(), nn.Conv2d(16, 32, **half), nn.ReLU(), nn.Conv2d(32, 8, 1))
    double = half | {"output_padding": 1}
    decoder = nn.Sequential(
        nn.Conv2d(8, 32, 1), nn.ReLU(), nn.ConvTranspose2d(32, 16, **double), nn.ReLU(), nn.ConvTranspose2d(16, channels, **double)
    )
    return nn.Sequential(OrderedDict(encoder=encoder, decoder=decoder))


OWN: dict[str, Callable[[int], nn.Module]] = {"autoencoder": autoencoder, "vit_small_32": vit_small_32, "mlp_mixer": MlpMixer, "lenet5": lenet5, "resnet18_cifar": resnet18_cifar, "resnet9": resnet9, "unet": UNet}
MODELS = sorted([*TORCHVISION, *OWN])


def build(name: str, num_classes: int) -> nn.Module:
    """The model of that name, without anything random in training."""
    if name in OWN:
        return OWN[name](num_classes)
    from torchvision import models

    return models.get_model(name, num_classes=num_classes, **TORCHVISION[name][1])


def narrow(net: nn.Module) -> dict[str, int]:
    """Makes the hidden layers of AlexNet and the VGGs small, which have nearly all of their parameters. What `with` says of it."""
    from torchvision import models

    if not isinstance(net, (models.AlexNet, models.VGG)):
        return {}
    for i, layer in enumerate(net.classifier):
        if isinstance(layer, nn.Linear):
            sizes = (HIDDEN if size == 4096 else size for size in (layer.in_features, layer.out_features))
            net.classifier[i] = nn.Linear(*sizes)
    return {"hidden": HIDDEN}


def smaller(name: str) -> tuple[nn.Module, dict[str, Any]] | None:
    """A net with fewer and narrower layers, and what `with` says of it; `None` for those that are small enough."""
    from torchvision.models import SwinTransformer, VisionTransformer, convnext

    if name == "convnext_tiny":
        widths, depths = [16, 32, 64, 128], [1, 1, 2, 1]
        blocks = [convnext.CNBlockConfig(w, None if w == 128 else 2 * w, n) for w, n in zip(widths, depths)]
        given = {f"depth{i + 1}": n for i, n in enumerate(depths)}
        return convnext.ConvNeXt(blocks, num_classes=CLASSES), {"width": 16, "stochastic_depth": 0.0} | given
    if name == "swin_t":
        sizes = {"width": 16, "heads": 1, "depth3": 2, "depth4": 1, "stochastic_depth": 0.0}
        net = SwinTransformer([4, 4], 16, [2, 2, 2, 1], [1, 2, 4, 8], [7, 7], stochastic_depth_prob=0.0, num_classes=CLASSES)
        return net, sizes
    if name == "vit_b_16":
        sizes = {"num_layers": 2, "num_heads": 4, "hidden_dim": 32, "mlp_dim": 48}
        return VisionTransformer(image_size=SMALL, patch_size=16, num_classes=CLASSES, **sizes), sizes
    if name == "unet":
        return UNet(CLASSES, width=4), {"width": 4}
    if name == "autoencoder":
        # A class for each pixel, as the others: another number of channels goes out than comes in.
        return autoencoder(CLASSES, CLASSES), {"channels": CLASSES}
    if name in ("vit_small_32", "mlp_mixer"):
        return OWN[name](CLASSES, num_layers=1), {"num_layers": 1}
    return None


def table(seed: int) -> np.ndarray:
    """Numbers from -1 to 1, exact in single precision."""
    state, numbers = seed, []
    for _ in range(PERIOD):
        state = (state * 1103515245 + 12345) % 2**31
        numbers.append((state >> 7) / 2**23 - 1)
    return np.array(numbers, dtype=np.float32)


def spread(period: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A tensor of numbers that repeat themselves. Where they begin depends on its name."""
    start = 0
    for byte in name.encode():
        start = (start * 31 + byte) % PERIOD
    return np.resize(np.roll(period, -start), math.prod(shape)).reshape(shape)


def values(numbers: np.ndarray, name: str, shape: tuple[int, ...], variance: float = 1.0) -> np.ndarray:
    """Made of the table `numbers`: the elements of the parameter, of the running statistics or of the images of that name. Each is a product and at most one sum in
    single precision. `variance` is a power of two, the mean of running variances."""
    single = np.float32
    if len(shape) > 1 and name != "inputs":
        # Through a ReLU the mean square stays what it is.
        period = numbers * single(math.sqrt(6 / math.prod(shape[1:])))
    elif name.endswith("bn3.weight"):
        # The last of a bottleneck: were the sums not mostly their shortcuts, rounding would grow from block to block.
        period = single(0.125) * (single(0.75) + single(0.25) * numbers)
    elif name.endswith("weight"):
        period = single(0.75) + single(0.25) * numbers
    elif name.endswith(".bn.bias"):
        # GoogLeNet has no shortcuts: more numbers stay off the bend of the ReLU.
        period = single(1.0) + single(0.125) * numbers
    elif name.endswith("running_var"):
        period = single(variance) * (single(1.0) + single(0.5) * numbers)
    elif name == "inputs":
        period = single(2.0) * numbers
    else:
        period = single(0.125) * numbers
    return spread(period, name, shape)


def fill(net: nn.Module, numbers: np.ndarray, variance: float) -> None:
    """Gives all parameters and running statistics their values."""
    for name, tensor in net.state_dict().items():
        if tensor.dtype.is_floating_point:
            tensor.copy_(torch.from_numpy(values(numbers, name, tuple(tensor.shape), variance)))


def make(folder: Path, only: str) -> None:
    """Writes `MODEL.json` of every model whose name contains `only`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        if only in name:
            lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden(name).items()]
            text = "{\n  " + ",\n  ".join(lines) + "\n}\n"
            (folder / f"{name}.json").write_text(text)
            print(f"architectures/{name}: {len(text)} bytes", flush=True)


def short(numbers: torch.Tensor) -> list[float]:
    """More digits than single precision has."""
    return [float(f"{x:.9g}") for x in numbers.flatten().tolist()]


@dataclasses.dataclass
class Result:
    output: torch.Tensor
    loss: torch.Tensor
    gradients: dict[str, torch.Tensor]  # norm and product

    def near(self, other: "Result") -> bool:
        """Within a fifth of what the test allows."""
        off = (self.output - other.output).abs().max() / self.output.abs().max()
        lost = (self.loss - other.loss).abs() / self.loss
        gradients = [(g - other.gradients[key]).abs().max() / g[0] for key, g in self.gradients.items()]
        return bool(max(off, lost) < 2e-5 and max(gradients) < 2e-4)


def targets_of(output: torch.Tensor) -> torch.Tensor:
    """The class of each sample, or of each of its pixels: the next one from row to row."""
    targets = torch.tensor(TARGETS)
    if output.dim() == 2:
        return targets
    n, _, h, w = output.shape
    return ((targets[:, None, None] + torch.arange(h)[:, None]) % CLASSES).expand(n, h, w)


def compute(net: nn.Module, numbers: np.ndarray, inputs: torch.Tensor) -> Result:
    net.eval()
    with torch.no_grad():
        output = net(inputs)
    # Evaluation leaves the state as it is; training changes running statistics, which nothing looks at any more.
    net.train()
    net.zero_grad()
    out = net(inputs)
    loss = functional.cross_entropy(out, targets_of(out))
    loss.backward()
    parameters = list(net.named_parameters())
    gradients = {}
    for key, p in [parameters[0], parameters[len(parameters) // 2], parameters[-2], parameters[-1]]:
        # Not the numbers of the parameter itself: in front of a normalisation its product with the gradient is zero.
        other = torch.from_numpy(spread(numbers, f"gradient of {key}", tuple(p.shape))).double()
        gradients[key] = torch.stack([p.grad.double().norm(), (p.grad.double() * other).sum()])
    return Result(output.double(), loss.detach().double(), gradients)


def golden(name: str) -> dict[str, Any]:
    """Takes the first seed with which rounding leads to the same: with others some number is so near to the bend of a ReLU, or to another
    in the window of a maximum, that even PyTorch in single precision comes to other gradients than in double precision."""
    torch.use_deterministic_algorithms(False)
    side, options = TORCHVISION.get(name, (32, {}))
    shape = (len(TARGETS), 3, side, side)
    net, given = smaller(name) or (build(name, CLASSES), {})
    given |= narrow(net)
    for seed in range(FIRST_SEED.get(name, 1), 100):
        numbers = table(seed)
        inputs = torch.from_numpy(values(numbers, "inputs", shape))
        # What tells the images apart must not vanish on its way through the layers.
        for variance in [1.0, 0.5, 0.25, 0.125, 0.0625]:
            fill(net.float().eval(), numbers, variance)
            with torch.no_grad():
                output = net(inputs)
            if (output[0] - output[1]).abs().max() > 0.05 * output.abs().max():
                break
        else:
            continue
        result = compute(net.double(), numbers, inputs.double())
        near = True
        for factor, layout in [(1, torch.contiguous_format), (1, torch.channels_last), (1 + 1e-6, torch.contiguous_format)]:
            if not near:
                break
            net.float().to(memory_format=layout)
            fill(net, numbers, variance)
            near = result.near(compute(net, numbers, (factor * inputs).to(memory_format=layout)))
        if near:
            every = result.output.numel() // MOST_OUTPUTS + 1
            pixels = {"pixels": True, "every": every} if result.output.dim() == 4 else {}
            return pixels | {
                "inputs": shape,
                "targets": TARGETS,
                "with": ({} if name == "autoencoder" else {"num_classes": CLASSES}) | given | {SAID.get(k, k): v for k, v in options.items() if k in ("dropout", *SAID)},
                "seed": seed,
                "variance": variance,
                "output": short(result.output.flatten()[::every]),
                "loss": short(result.loss)[0],
                "gradients": {key: short(g) for key, g in result.gradients.items()},
            }
        print(f"{name}: seed {seed} depends on rounding", flush=True)
    raise ValueError(f"{name}: no good seed")
