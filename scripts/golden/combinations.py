"""Layers in odd company: what comes out wrong only when two things meet."""

import pth
import torch
from nets import Branches, EncoderLayer, Gate, Residual, Wired, add, concat, multiply, named
from torch import nn

from case import Case, toml

FLATTEN = '"flatten"'
SGD = {"type": "sgd", "lr": 0.1}


def conv(name: str, channels: int, more: str = "") -> str:
    """A 3×3 convolution that keeps the size."""
    return f'{{ name = "{name}", type = "conv2d", out_channels = {channels}, kernel_size = 3, padding = 1{more} }}'


def linear(name: str, outputs: int, more: str = "") -> str:
    return f'{{ name = "{name}", type = "linear", out_features = {outputs}{more} }}'


def image_to_image() -> Case:
    """No flattening at the end: outputs and targets are images."""
    lines = [conv("down", 5, ", stride = 2"), '"silu"', '{ type = "adaptive_avg_pool2d", output_size = [7, 9] }', conv("out", 2)]
    net = lambda: named(down=nn.Conv2d(3, 5, 3, 2, 1), act=nn.SiLU(), up=nn.AdaptiveAvgPool2d((7, 9)), out=nn.Conv2d(5, 2, 3, padding=1))  # noqa: E731
    return Case("combinations/image_to_image", lines, net, (3, 8, 10), samples=5, batch_size=2, val_samples=3, optimizer=SGD)


def autoencoder() -> Case:
    """Images that become small and large again; the targets are images."""
    up = lambda name, channels: f'{{ name = "{name}", type = "conv_transpose2d", out_channels = {channels}, kernel_size = 4, stride = 2, padding = 1 }}'  # noqa: E731
    lines = [
        conv("first", 4, ", stride = 2"), '"relu"', conv("second", 6, ", stride = 2, bias = false"), '{ name = "norm", type = "batch_norm2d" }', '"relu"',
        up("third", 4), '"silu"', up("fourth", 3), '{ type = "upsample", size = [7, 9], mode = "bilinear" }', '"sigmoid"',
    ]  # fmt: skip
    net = lambda: named(  # noqa: E731
        first=nn.Conv2d(3, 4, 3, 2, 1), act1=nn.ReLU(), second=nn.Conv2d(4, 6, 3, 2, 1, bias=False), norm=nn.BatchNorm2d(6), act2=nn.ReLU(),
        third=nn.ConvTranspose2d(6, 4, 4, 2, 1), act3=nn.SiLU(), fourth=nn.ConvTranspose2d(4, 3, 4, 2, 1),
        size=nn.Upsample((7, 9), mode="bilinear"), act4=nn.Sigmoid(),
    )  # fmt: skip
    return Case("combinations/autoencoder", lines, net, (3, 8, 12), samples=5, batch_size=2, val_samples=3, optimizer=SGD)


def sequences() -> Case:
    """Layers on [N, C, L]: channels are not the last dimension there."""
    lines = [
        conv("stem", 6),
        '"tanh"',
        '{ type = "flatten", start_dim = 2 }',
        '{ name = "bn", type = "batch_norm1d" }',
        linear("mix", 7),
        '{ name = "gn", type = "group_norm", num_groups = 2 }',
        '"gelu"',
        '{ name = "ln", type = "layer_norm" }',
        '"silu"',
        '{ type = "softmax", dim = 1 }',
        '{ name = "ln2", type = "layer_norm", normalized_dims = 2 }',
        FLATTEN,
        linear("head", 4),
    ]

    def net() -> nn.Module:
        return named(
            stem=nn.Conv2d(2, 6, 3, padding=1), first=nn.Tanh(), flat=nn.Flatten(2), bn=nn.BatchNorm1d(6), mix=nn.Linear(20, 7),
            gn=nn.GroupNorm(2, 6), act=nn.GELU(), ln=nn.LayerNorm(7), silu=nn.SiLU(), soft=nn.Softmax(1), ln2=nn.LayerNorm([6, 7]),
            flatten=nn.Flatten(), head=nn.Linear(42, 4),
        )  # fmt: skip

    return Case("combinations/sequences", lines, net, (2, 5, 4), samples=5, batch_size=3, classes=4, optimizer=SGD)


def nested() -> Case:
    """A residual in branches in a residual, and a gate on what branches joined."""
    left = f'{{ name = "left", layers = [{conv("a", 4)}, {{ name = "in", layers = [{{ type = "residual", layers = ["tanh", {conv("b", 4)}] }}] }}] }}'
    right = '{ name = "right", layers = ["silu", { type = "avg_pool2d", kernel_size = 3, stride = 1, padding = 1 }] }'
    gate = (
        '{ name = "gate", type = "gate", layers = [{ type = "adaptive_avg_pool2d", output_size = 1 }, '
        '{ name = "fc", type = "conv2d", out_channels = 8, kernel_size = 1 }, "hardsigmoid"] }'
    )
    body = f'{{ name = "fork", type = "branches", combine = "concat", branches = [{left}, {right}] }}, {gate}, {conv("back", 4)}'
    lines = [conv("stem", 4), f'{{ name = "outer", layers = [{{ type = "residual", layers = [{body}] }}, "relu"] }}', FLATTEN, linear("head", 3)]

    class Outer(Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).relu()

    def net() -> nn.Module:
        inner = Residual(act=nn.Tanh(), b=nn.Conv2d(4, 4, 3, padding=1))
        fork = Branches(
            concat,
            left=nn.Sequential(),
            right=nn.Sequential(nn.SiLU(), nn.AvgPool2d(3, 1, 1)),
        )
        fork.left = named(a=nn.Conv2d(4, 4, 3, padding=1), **{"in": inner})
        outer = Outer(
            fork=fork,
            gate=Gate(pool=nn.AdaptiveAvgPool2d(1), fc=nn.Conv2d(8, 8, 1), scale=nn.Hardsigmoid()),
            back=nn.Conv2d(8, 4, 3, padding=1),
        )
        return named(stem=nn.Conv2d(2, 4, 3, padding=1), outer=outer, flat=nn.Flatten(), head=nn.Linear(80, 3))

    return Case("combinations/nested", lines, net, (2, 5, 4), samples=5, batch_size=3, classes=3, optimizer=SGD)


class UNet(nn.Module):
    """Down, up, and a bridge from a layer inside of one group to one inside of another."""

    def __init__(self):
        super().__init__()
        self.enc = named(first=nn.Conv2d(2, 4, 3, padding=1), act=nn.Tanh(), pool=nn.MaxPool2d(2), second=nn.Conv2d(4, 6, 3, padding=1))
        self.dec = named(up=nn.AdaptiveAvgPool2d((6, 5)), last=nn.Conv2d(10, 2, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bridge = self.enc.act(self.enc.first(x))
        y = self.dec.up(self.enc.second(self.enc.pool(bridge)))
        return self.dec.last(torch.cat([y, bridge], 1)).flatten(1)


def unet() -> Case:
    encoder = f'{conv("first", 4)}, {{ name = "act", type = "tanh" }}, {{ type = "max_pool2d", kernel_size = 2 }}, {conv("second", 6)}'
    up = '{ name = "up", type = "adaptive_avg_pool2d", output_size = [6, 5] }'
    decoder = f'{up}, {{ type = "concat", from = ["up", "enc.act"] }}, {conv("last", 2)}'
    lines = [f'{{ name = "enc", layers = [{encoder}] }}', f'{{ name = "dec", layers = [{decoder}] }}', FLATTEN]
    return Case("combinations/unet", lines, UNet, (2, 6, 5), samples=3, optimizer=SGD)


def two_inputs() -> Case:
    """An image and a vector, each with layers of its own; one of them is taken twice."""
    lines = [
        conv("stem", 4, ', from = "photo"'),
        '"relu"',
        '{ type = "max_pool2d", kernel_size = 2 }',
        '{ name = "seen", type = "flatten" }',
        linear("known", 6, ', from = "numbers"'),
        '{ name = "act", type = "tanh" }',
        '{ type = "concat", from = ["seen", "act", "numbers"] }',
        linear("head", 3),
    ]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.known, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(5, 6), nn.Linear(47, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            numbers, photo = x[:, :5], x[:, 5:].reshape(-1, 2, 6, 7)
            seen = nn.functional.max_pool2d(self.stem(photo).relu(), 2).flatten(1)
            return self.head(torch.cat([seen, self.known(numbers).tanh(), numbers], 1))

    fields = {"numbers": (5,), "photo": (2, 6, 7)}
    return Case(
        "combinations/two_inputs", lines, Net, (89,), fields=fields, samples=7, batch_size=4, val_samples=5, classes=3,
        optimizer={"type": "adam", "lr": 0.01},
    )  # fmt: skip


def flattened() -> Case:
    """A flattened image, which the engine keeps in its own order as long as it can, read by layers of all kinds."""
    lines = [
        conv("stem", 3),
        FLATTEN,
        '{ type = "dropout", p = 0.0 }',
        '{ name = "flat", type = "hardswish" }',
        linear("a", 5),
        '{ name = "norm", type = "batch_norm1d", from = "flat" }',
        linear("b", 4, ", bias = false"),
        '{ name = "twice", type = "add", from = ["flat", "norm"] }',
        '{ name = "gate", type = "gate", layers = [{ name = "fc", type = "linear", out_features = 60 }, "sigmoid"], from = "flat" }',
        '{ type = "concat", from = ["a", "twice", "b", "flat", "gate"] }',
        linear("head", 3),
    ]

    def net() -> nn.Module:
        return Wired(
            {"norm": ["flat"], "twice": ["flat", "norm"], "gate": ["flat"], "joined": ["a", "twice", "b", "flat", "gate"]},
            stem=nn.Conv2d(2, 3, 3, padding=1),
            flatten=nn.Flatten(),
            flat=nn.Hardswish(),
            a=nn.Linear(60, 5),
            norm=nn.BatchNorm1d(60),
            b=nn.Linear(60, 4, bias=False),
            twice=lambda *xs: add(xs),
            gate=Gate(fc=nn.Linear(60, 60), act=nn.Sigmoid()),
            joined=lambda *xs: concat(xs),
            head=nn.Linear(189, 3),
        )

    return Case("combinations/flattened", lines, net, (2, 4, 5), samples=7, batch_size=4, val_samples=3, classes=3, optimizer={"type": "sgd", "lr": 0.02})


def layer_norms() -> Case:
    """Over one, two and three dimensions of an image, with what could be taken for another order between them."""
    lines = [
        conv("stem", 3),
        '"tanh"',
        '{ name = "one", type = "layer_norm", normalized_dims = 1 }',
        '"gelu"',
        '{ name = "two", type = "layer_norm", normalized_dims = 2 }',
        conv("mid", 4),
        '{ name = "three", type = "layer_norm", normalized_dims = 3 }',
        '{ type = "softmax", dim = -1 }',
        '{ name = "gn", type = "group_norm", num_groups = 2 }',
        FLATTEN,
        '{ name = "last", type = "layer_norm", bias = false }',
        linear("head", 2),
    ]

    def net() -> nn.Module:
        return named(
            stem=nn.Conv2d(2, 3, 3, padding=1), first=nn.Tanh(), one=nn.LayerNorm(6), act=nn.GELU(), two=nn.LayerNorm([4, 6]),
            mid=nn.Conv2d(3, 4, 3, padding=1), three=nn.LayerNorm([4, 4, 6]), soft=nn.Softmax(-1), gn=nn.GroupNorm(2, 4),
            flat=nn.Flatten(), last=nn.LayerNorm(96, bias=False), head=nn.Linear(96, 2),
        )  # fmt: skip

    return Case("combinations/layer_norms", lines, net, (2, 4, 6), samples=3, optimizer=SGD)


def attention() -> Case:
    """A softmax in the middle; a value multiplied by itself and added to itself."""
    lines = [
        conv("value", 4),
        conv("score", 4, ', from = "value"'),
        '{ name = "weight", type = "softmax", dim = 1 }',
        '{ name = "mix", type = "multiply", from = ["value", "weight", "value"] }',
        '{ name = "double", type = "add", from = ["mix", "mix"] }',
        '{ type = "residual", layers = ["silu"] }',
        '{ type = "residual", layers = ["identity"] }',
        FLATTEN,
    ]

    def net() -> nn.Module:
        return Wired(
            {"mix": ["value", "weight", "value"], "double": ["mix", "mix"]},
            value=nn.Conv2d(3, 4, 3, padding=1),
            score=nn.Conv2d(4, 4, 3, padding=1),
            weight=nn.Softmax(1),
            mix=lambda *xs: multiply(xs),
            double=lambda *xs: add(xs),
            first=Residual(act=nn.SiLU()),
            second=Residual(same=nn.Identity()),
            flat=nn.Flatten(),
        )

    return Case("combinations/attention", lines, net, (3, 5, 4), samples=3, optimizer={"type": "sgd", "lr": 0.05})


def grouped() -> Case:
    """A grouped, strided, dilated convolution, a last batch of one sample, and every option of training."""
    lines = [
        conv("stem", 6),
        '"leaky_relu"',
        '{ name = "odd", type = "conv2d", out_channels = 9, kernel_size = [3, 2], stride = [2, 3], padding = [2, 1], dilation = [2, 3], groups = 3 }',
        '{ name = "gn", type = "group_norm", num_groups = 3 }',
        '"elu"',
        '{ type = "avg_pool2d", kernel_size = 2, stride = 3, padding = 1, ceil_mode = true, count_include_pad = false }',
        FLATTEN,
        linear("head", 4),
    ]

    def net() -> nn.Module:
        return named(
            stem=nn.Conv2d(2, 6, 3, padding=1), act=nn.LeakyReLU(), odd=nn.Conv2d(6, 9, (3, 2), (2, 3), (2, 1), (2, 3), 3),
            gn=nn.GroupNorm(3, 9), elu=nn.ELU(), pool=nn.AvgPool2d(2, 3, 1, True, False), flat=nn.Flatten(), head=nn.Linear(36, 4),
        )  # fmt: skip

    return Case(
        "combinations/grouped", lines, net, (2, 9, 11), samples=10, batch_size=3, val_samples=5, classes=4, label_smoothing=0.1,
        optimizer={"type": "adamw", "lr": 0.003, "weight_decay": 0.1, "eps": 1e-4},
        groups=[{"match": ["*.bias", "gn.*"], "weight_decay": 0.0}, {"match": ["head.*"], "lr": 0.009}],
        schedule={"type": "cosine", "warmup_steps": 2, "min_lr": 0.001}, train={"accumulate": 3, "clip_grad_norm": 0.5},
    )  # fmt: skip


def nesterov() -> Case:
    """Weight decay with Nesterov's momentum, groups, steps and a warm-up."""
    lines = [linear("a", 9), '"tanh"', '{ name = "norm", type = "group_norm", num_groups = 3 }', linear("b", 2)]
    net = lambda: named(a=nn.Linear(5, 9), act=nn.Tanh(), norm=nn.GroupNorm(3, 9), b=nn.Linear(9, 2))  # noqa: E731
    return Case(
        "combinations/nesterov", lines, net, (5,), samples=7, batch_size=2, val_samples=5,
        optimizer={"type": "sgd", "lr": 0.02, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05},
        groups=[{"match": ["norm.*"], "lr": 0.05, "weight_decay": 0.0}, {"match": ["*.bias"], "lr": 0.01}],
        schedule={"type": "step", "milestones": [1, 2], "gamma": 0.5, "warmup_epochs": 1, "warmup_start_factor": 0.1},
    )  # fmt: skip


def min_lr() -> Case:
    """Groups with learning rates of their own, which all fall to one `min_lr`."""
    lines = [linear("a", 6), '"sigmoid"', linear("b", 2)]
    net = lambda: named(a=nn.Linear(4, 6), act=nn.Sigmoid(), b=nn.Linear(6, 2))  # noqa: E731
    return Case(
        "combinations/min_lr", lines, net, (4,), samples=6, batch_size=2, optimizer={"type": "sgd", "lr": 0.05, "momentum": 0.5},
        groups=[{"match": ["b.*"], "lr": 0.3}], schedule={"type": "cosine", "min_lr": 0.04, "warmup_steps": 2},
    )  # fmt: skip


def from_pth() -> Case:
    """Starts from the state dict that lies in tests/golden/pth as files of PyTorch's own."""
    lines = ['{ type = "conv2d", out_channels = 3, kernel_size = [3, 2] }', '"batch_norm2d"', FLATTEN, '{ type = "linear", out_features = 4 }']

    def net() -> nn.Module:
        with torch.random.fork_rng():
            return pth.net()

    # Batch norm takes off what the bias before it adds: its gradient is nothing but rounding errors.
    more = {"freeze": ["0.bias"], "randomize": False}
    return Case("combinations/from_pth", lines, net, (2, 4, 3), samples=5, classes=4, optimizer=SGD, **more)


def encoder(name: str, is_causal: bool, bias: bool, width=12, heads=3, hidden=20, shape=(7, 4)) -> Case:
    """Two layers of a transformer: attention and a small net, each behind a normalisation and added to its input."""
    length, features = shape
    layer = f'd_model = {width}, nhead = {heads}, dim_feedforward = {hidden}, dropout = 0.0, activation = "gelu", norm_first = true'
    layer = f'{{ name = "layers", type = "transformer_encoder_layer", {layer}, bias = {toml(bias)}, is_causal = {toml(is_causal)}, repeat = 2 }}'
    lines = [linear("embed", width), layer, FLATTEN, linear("head", 3)]

    def net() -> nn.Module:
        encoders = [EncoderLayer(width, heads, hidden, bias, is_causal) for _ in range(2)]
        return named(
            embed=nn.Linear(features, width), layers=nn.Sequential(*encoders), flat=nn.Flatten(), head=nn.Linear(length * width, 3)
        )

    def biases(net: nn.Module) -> None:
        # PyTorch starts them at zero, which would hide what they are for.
        for n, p in net.named_parameters():
            if n.endswith(("in_proj_bias", "out_proj.bias")):
                p.normal_(0, 0.3)

    return Case(
        f"combinations/{name}", lines, net, shape, samples=5, batch_size=3, val_samples=2, classes=3, extra_init=biases,
        optimizer={"type": "adamw", "lr": 0.003, "weight_decay": 0.05, "eps": 1e-3}, train={"clip_grad_norm": 1.0},
    )  # fmt: skip


def cases() -> list[Case]:
    return [
        image_to_image(), autoencoder(), sequences(), nested(), unet(), two_inputs(), flattened(), layer_norms(), attention(), grouped(), nesterov(), min_lr(), from_pth(),
        encoder("encoder", False, True), encoder("encoder_causal", True, False),
    ]  # fmt: skip
