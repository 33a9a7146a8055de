"""Graphs that are no chains: `from`, residuals, gates, branches."""

from collections.abc import Callable

from nets import Branches, Gate, Residual, Wired, add, concat, multiply, named
from torch import nn

from case import Case

COMBINE = {"add": add, "multiply": multiply, "concat": concat}
FLATTEN = '"flatten"'


def case(name: str, lines: list[str], net: Callable[[], nn.Module]) -> Case:
    """A net of some layers, flattened."""
    return Case(f"structure/{name}", [*lines, FLATTEN], net, (3, 6, 5), samples=3, optimizer={"type": "sgd", "lr": 0.2})


def conv(name: str, channels: int, more: str = "") -> str:
    """A convolution that keeps the size, as a layer of the configuration."""
    return f'{{ name = "{name}", type = "conv2d", out_channels = {channels}, kernel_size = 3, padding = 1, bias = false{more} }}'


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    """The same in PyTorch."""
    return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)


STEM = conv("stem", 4)


def sources() -> list[Case]:
    """Layers that take others' outputs by name."""
    out = []
    for kind, combine in COMBINE.items():
        lines = [STEM, conv("a", 4), conv("b", 4, ', from = "stem"'), f'{{ type = "{kind}", from = ["a", "b", "stem"] }}']

        def net(combine=combine) -> nn.Module:
            return Wired(
                {"b": ["stem"], "joined": ["a", "b", "stem"]},
                stem=conv3x3(3, 4),
                a=conv3x3(4, 4),
                b=conv3x3(4, 4),
                joined=lambda *xs: combine(xs),
                flat=nn.Flatten(),
            )

        out.append(case(f"from_{kind}", lines, net))

    def broadcast() -> nn.Module:
        return Wired(
            {"joined": ["stem", "soft"]},
            stem=conv3x3(3, 4),
            pool=nn.AdaptiveAvgPool2d(1),
            weights=conv3x3(4, 4),
            soft=nn.Sigmoid(),
            joined=lambda *xs: multiply(xs),
            flat=nn.Flatten(),
        )

    lines = [
        STEM,
        '{ type = "adaptive_avg_pool2d", output_size = 1 }',
        conv("weights", 4),
        '{ name = "soft", type = "sigmoid" }',
        '{ type = "multiply", from = ["stem", "soft"] }',
    ]
    out.append(case("from_multiply_broadcast", lines, broadcast))

    def vectors() -> nn.Module:
        return Wired(
            {"joined": ["a", "b"]},
            flat=nn.Flatten(),
            a=nn.Linear(90, 5),
            b=nn.Linear(5, 3),
            joined=lambda *xs: concat(xs),
            head=nn.Linear(8, 2),
        )

    lines = [
        FLATTEN,
        '{ name = "a", type = "linear", out_features = 5 }',
        '{ name = "b", type = "linear", out_features = 3 }',
        '{ type = "concat", from = ["a", "b"] }',
        '{ name = "head", type = "linear", out_features = 2 }',
    ]
    out.append(case("from_concat_vectors", lines, vectors))
    return out


class Block(Residual):
    """Two convolutions with batch norm and a shortcut; an activation at the end."""

    def __init__(self, outputs: int, stride: int = 1, **options):
        super().__init__(
            conv1=conv3x3(4, outputs, stride),
            bn1=nn.BatchNorm2d(outputs),
            act=nn.ReLU(),
            conv2=conv3x3(outputs, outputs),
            bn2=nn.BatchNorm2d(outputs),
            **options,
        )

    def forward(self, x):
        return super().forward(x).relu()


def residuals() -> list[Case]:
    """Sums with the input, where shapes agree and where they do not."""

    def one(name: str, outputs: int, options: str, block: Callable[[], nn.Module], more: str = "") -> Case:
        body = [conv("conv1", outputs, more), '{ name = "bn1", type = "batch_norm2d" }', '"relu"']
        body += [conv("conv2", outputs), '{ name = "bn2", type = "batch_norm2d" }']
        residual = f'{{ type = "residual", layers = [{", ".join(body)}]{options} }}'
        lines = [STEM, f'{{ name = "block", layers = [{residual}, "relu"] }}']
        return case(name, lines, lambda: named(stem=conv3x3(3, 4), block=block(), flat=nn.Flatten()))

    def projected() -> nn.Module:
        return Block(6, 2, downsample=nn.Sequential(nn.Conv2d(4, 6, 1, 2, bias=False), nn.BatchNorm2d(6)))

    projection = (
        ', projection = { name = "downsample", layers = ['
        '{ type = "conv2d", out_channels = 6, kernel_size = 1, stride = 2, bias = false }, "batch_norm2d"] }'
    )
    same = ', shortcut = "if_same_shape"'
    return [
        one("residual", 4, "", lambda: Block(4)),
        one("residual_projection", 6, projection, projected, ", stride = 2"),
        one("residual_if_same_shape", 4, same, lambda: Block(4, if_same_shape=True)),
        one("residual_if_same_shape_left_out", 5, same, lambda: Block(5, if_same_shape=True)),
    ]


def gates() -> list[Case]:
    """Squeeze-and-excitation."""
    gate = (
        '{ name = "se", type = "gate", layers = [{ type = "adaptive_avg_pool2d", output_size = 1 }, '
        '{ name = "fc1", type = "conv2d", out_channels = 2, kernel_size = 1 }, "silu", '
        '{ name = "fc2", type = "conv2d", out_channels = 4, kernel_size = 1 }, "hardsigmoid"] }'
    )

    def net() -> nn.Module:
        se = Gate(
            pool=nn.AdaptiveAvgPool2d(1), fc1=nn.Conv2d(4, 2, 1), act=nn.SiLU(), fc2=nn.Conv2d(2, 4, 1), scale=nn.Hardsigmoid()
        )
        return named(stem=conv3x3(3, 4), se=se, flat=nn.Flatten())

    return [case("gate", [STEM, gate], net)]


def branches() -> list[Case]:
    """Two groups on one input."""
    left = f'{{ name = "left", layers = [{conv("conv", 4)}, "tanh"] }}'
    right = '{ name = "right", layers = [{ name = "conv", type = "conv2d", out_channels = 4, kernel_size = 1 }] }'
    out = []
    for kind, combine in COMBINE.items():
        fork = f'{{ name = "fork", type = "branches", combine = "{kind}", branches = [{left}, {right}] }}'

        def net(combine=combine) -> nn.Module:
            two = {"left": named(conv=conv3x3(4, 4), act=nn.Tanh()), "right": named(conv=nn.Conv2d(4, 4, 1))}
            return named(stem=conv3x3(3, 4), fork=Branches(combine, **two), flat=nn.Flatten())

        out.append(case(f"branches_{kind}", [STEM, fork], net))
    return out


def cases() -> list[Case]:
    return sources() + residuals() + gates() + branches()
