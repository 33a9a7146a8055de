"""Each layer with several settings of its arguments, behind a layer with weights, so that its input's gradient shows."""

import math
from collections.abc import Callable

import rtdl_num_embeddings
import tabm
import torch
from coral_pytorch.losses import corn_loss
from rtdl_revisiting_models import CategoricalEmbeddings, FTTransformer, LinearEmbeddings, ResNet
from torch import nn
from torchvision.models.swin_transformer import ShiftedWindowAttention, _patch_merging_pad

from case import Case, toml

FLATTEN = '"flatten"'


def image(name, line, layer, channels=4, side=(7, 6), head=False, bias=True, **more) -> Case:
    """A layer on images: behind a convolution, before a classifier or nothing but a flattening."""
    front = f'{{ type = "conv2d", out_channels = {channels}, kernel_size = 2{"" if bias else ", bias = false"} }}'
    lines = [front, line, FLATTEN]
    more = {"samples": 3, "optimizer": {"type": "sgd", "lr": 0.3}} | more

    def net() -> nn.Module:
        modules = [nn.Conv2d(3, channels, 2, bias=bias), layer(channels), nn.Flatten()]
        if head:
            with torch.random.fork_rng():
                width = nn.Sequential(*modules).eval()(torch.zeros(1, 3, side[0] + 1, side[1] + 1)).shape[1]
            modules.append(nn.Linear(width, 5))
        return nn.Sequential(*modules)

    if head:
        lines.append('{ type = "linear", out_features = 5 }')
        more["classes"] = 5
    return Case(f"layers/{name}", lines, net, (3, side[0] + 1, side[1] + 1), **more)


def vector(name, line, layer, features=7, head=True, **more) -> Case:
    """A layer on vectors, between two linear ones."""
    lines = [f'{{ type = "linear", out_features = {features} }}', line]
    modules = [lambda: nn.Linear(5, features), lambda: layer(features)]
    if head:
        lines.append('{ type = "linear", out_features = 3 }')
        modules.append(lambda: nn.Linear(features, 3))
        more["classes"] = 3
    more = {"optimizer": {"type": "sgd", "lr": 0.3}} | more
    return Case(f"layers/{name}", lines, lambda: nn.Sequential(*[m() for m in modules]), (5,), samples=5, **more)


def linear() -> list[Case]:
    return [
        vector("linear", '{ type = "linear", out_features = 6 }', lambda c: nn.Linear(c, 6), head=False),
        vector("linear_no_bias", '{ type = "linear", out_features = 6, bias = false }', lambda c: nn.Linear(c, 6, bias=False), head=False),
        image("linear_after_flatten", '{ type = "conv2d", out_channels = 3, kernel_size = [3, 2] }', lambda c: nn.Conv2d(c, 3, (3, 2)), head=True),
        Case(
            "layers/linear_on_sequences",
            ['{ type = "conv2d", out_channels = 4, kernel_size = 3 }', '{ type = "flatten", start_dim = 2 }',
             '{ type = "linear", out_features = 5 }', '"tanh"', FLATTEN],
            lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(2), nn.Linear(15, 5), nn.Tanh(), nn.Flatten()),
            (2, 5, 7), samples=3, optimizer={"type": "sgd", "lr": 0.3},
        ),
    ]  # fmt: skip


def conv() -> list[Case]:
    """Arguments as in nn.Conv2d; the same words in TOML."""
    settings = {
        "plain": {"kernel_size": 3},
        "rectangular": {"kernel_size": [3, 2]},
        "wide": {"kernel_size": [1, 5], "padding": [0, 2]},
        "pointwise": {"kernel_size": 1},
        "pointwise_strided": {"kernel_size": 1, "stride": 2, "bias": False},
        "stride": {"kernel_size": 3, "stride": 2, "padding": 1},
        "stride_rectangular": {"kernel_size": [2, 3], "stride": [3, 2], "padding": [1, 0]},
        "stride_leaves_rest": {"kernel_size": 2, "stride": 3},
        "padding_larger_than_needed": {"kernel_size": 3, "padding": 2},
        "same": {"kernel_size": 3, "padding": "same"},
        "same_even": {"kernel_size": [4, 2], "padding": "same"},
        "same_dilated": {"kernel_size": [2, 3], "padding": "same", "dilation": [3, 2]},
        "valid": {"kernel_size": 3, "padding": "valid"},
        "dilation": {"kernel_size": 3, "dilation": 2, "padding": 2},
        "dilation_rectangular": {"kernel_size": [2, 3], "dilation": [3, 1], "stride": [1, 2], "padding": 1},
        "groups": {"kernel_size": 3, "groups": 2, "padding": 1},
        "groups_strided_dilated": {"kernel_size": [3, 2], "groups": 3, "stride": 2, "dilation": [1, 2], "padding": 1, "bias": False},
        "depthwise": {"kernel_size": 3, "groups": 6, "padding": 1, "bias": False},
        "depthwise_strided": {"kernel_size": 5, "groups": 6, "stride": 2, "padding": 2},
        "depthwise_multiplier": {"kernel_size": 3, "groups": 6, "out_channels": 12},
        "depthwise_dilated": {"kernel_size": 3, "groups": 6, "dilation": 2, "padding": "same"},
        "no_bias": {"kernel_size": 3, "bias": False},
        "large_kernel": {"kernel_size": 7, "padding": 3},
        "whole_image": {"kernel_size": [7, 6]},
    }  # fmt: skip
    out = []
    for name, arguments in settings.items():
        channels = 6 if "groups" in arguments else 5
        arguments = {"out_channels": 6 if "groups" in arguments else 7} | arguments
        words = ", ".join(f"{k} = {toml(v)}" for k, v in arguments.items())
        torch_arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()}
        out.append(
            image(
                f"conv2d_{name}",
                f'{{ type = "conv2d", {words} }}',
                lambda c, a=torch_arguments: nn.Conv2d(c, **a),
                channels=channels,
                samples=2,
                head=name in ("stride", "groups"),
            )
        )
    out.append(
        image(
            "conv2d_depthwise_by_word",
            '{ type = "conv2d", groups = "in_channels", kernel_size = 3 }',
            lambda c: nn.Conv2d(c, c, 3, groups=c),
            samples=2,
        )
    )
    first = '{ type = "conv2d", out_channels = 3, kernel_size = 3, padding = 1 }'
    grey = lambda: nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Flatten())  # noqa: E731
    out.append(Case("layers/conv2d_first_layer", [first, FLATTEN], grey, (1, 9, 11), samples=2))
    many = '{ type = "conv2d", out_channels = 20, kernel_size = 3 }'
    out.append(image("conv2d_many_channels", many, lambda c: nn.Conv2d(c, 20, 3), channels=18, side=(5, 5), samples=2))
    return out


def upsampling() -> list[Case]:
    """Layers that make images larger; arguments as in nn.ConvTranspose2d and nn.Upsample, the same words in TOML."""
    transposed = {
        "plain": {"kernel_size": 3},
        "doubled": {"kernel_size": 2, "stride": 2},
        "one_more": {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
        "rectangular": {"kernel_size": [3, 2], "stride": [1, 3], "padding": [2, 0], "output_padding": [0, 2], "bias": False},
        "dilated": {"kernel_size": [2, 3], "dilation": [3, 2], "stride": 2, "padding": 1},
        "groups": {"kernel_size": 4, "stride": 2, "padding": 1, "groups": 2},
        "depthwise": {"kernel_size": 2, "stride": 2, "groups": 6},
    }
    out = []
    for name, arguments in transposed.items():
        channels = 6 if "groups" in arguments else 5
        arguments = {"out_channels": 6 if "groups" in arguments else 3} | arguments
        words = ", ".join(f"{k} = {toml(v)}" for k, v in arguments.items())
        torch_arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()}
        layer = lambda c, a=torch_arguments: nn.ConvTranspose2d(c, **a)  # noqa: E731
        out.append(image(f"conv_transpose2d_{name}", f'{{ type = "conv_transpose2d", {words} }}', layer, channels, (4, 3), samples=2, head=name == "doubled"))
    upsample = {
        "nearest": {"scale_factor": 2},
        "nearest_size": {"size": [9, 2]},
        "nearest_factors": {"scale_factor": [1.7, 2.4]},
        "bilinear": {"scale_factor": 2, "mode": "bilinear"},
        "bilinear_size": {"size": [3, 7], "mode": "bilinear"},
        "bilinear_factors": {"scale_factor": [0.6, 1.4], "mode": "bilinear"},
        "bilinear_corners": {"size": [9, 5], "mode": "bilinear", "align_corners": True},
    }
    for name, arguments in upsample.items():
        words = ", ".join(f"{k} = {toml(v)}" for k, v in arguments.items())
        torch_arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()}
        layer = lambda c, a=torch_arguments: nn.Upsample(**a)  # noqa: E731
        out.append(image(f"upsample_{name}", f'{{ type = "upsample", {words} }}', layer, side=(5, 3)))
    for name, words, size in [("uneven", "[3, 4]", (3, 4)), ("larger", "[9, 5]", (9, 5)), ("one", "1", 1)]:
        line = f'{{ type = "adaptive_max_pool2d", output_size = {words} }}'
        out.append(image(f"adaptive_max_pool2d_{name}", line, lambda c, s=size: nn.AdaptiveMaxPool2d(s)))
    return out


def norm() -> list[Case]:
    def cumulative(net: nn.Module) -> None:
        net[1].num_batches_tracked.fill_(2)

    sgd = {"type": "sgd", "lr": 0.1}
    bn2 = [
        ("batch_norm2d", '"batch_norm2d"', lambda c: nn.BatchNorm2d(c)),
        ("batch_norm2d_arguments", '{ type = "batch_norm2d", eps = 0.1, momentum = 0.3 }', lambda c: nn.BatchNorm2d(c, 0.1, 0.3)),
        ("batch_norm2d_not_affine", '{ type = "batch_norm2d", affine = false }', lambda c: nn.BatchNorm2d(c, affine=False)),
        ("batch_norm2d_untracked", '{ type = "batch_norm2d", track_running_stats = false }', lambda c: nn.BatchNorm2d(c, track_running_stats=False)),
    ]  # fmt: skip
    out = [image(n, line, make, bias=False, head=True, optimizer=sgd) for n, line, make in bn2]
    out.append(
        image(
            "batch_norm2d_cumulative",
            '{ type = "batch_norm2d", momentum = "cumulative" }',
            lambda c: nn.BatchNorm2d(c, momentum=None),
            bias=False,
            head=True,
            optimizer=sgd,
            extra_init=cumulative,
        )
    )
    linear_front = '{ type = "linear", out_features = 6, bias = false }'
    for name, line, make in [
        ("batch_norm1d", '"batch_norm1d"', lambda: nn.BatchNorm1d(6)),
        ("batch_norm1d_not_affine", '{ type = "batch_norm1d", affine = false, momentum = 0.25 }', lambda: nn.BatchNorm1d(6, affine=False, momentum=0.25)),
    ]:  # fmt: skip
        net = lambda make=make: nn.Sequential(nn.Linear(5, 6, bias=False), make(), nn.Linear(6, 3))  # noqa: E731
        out.append(Case(f"layers/{name}", [linear_front, line, '{ type = "linear", out_features = 3 }'], net, (5,), samples=7, classes=3))
    out.append(
        Case(
            "layers/batch_norm1d_sequences",
            ['{ type = "conv2d", out_channels = 4, kernel_size = 3, bias = false }', '{ type = "flatten", start_dim = 2 }',
             '"batch_norm1d"', FLATTEN],
            lambda: nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.Flatten(2), nn.BatchNorm1d(4), nn.Flatten()),
            (2, 5, 6), samples=3,
        )
    )  # fmt: skip
    others = [
        ("group_norm", '{ type = "group_norm", num_groups = 2 }', lambda c: nn.GroupNorm(2, c)),
        ("group_norm_one_group", '{ type = "group_norm", num_groups = 1, eps = 0.05 }', lambda c: nn.GroupNorm(1, c, 0.05)),
        ("group_norm_not_affine", '{ type = "group_norm", num_groups = 3, affine = false }', lambda c: nn.GroupNorm(3, c, affine=False)),
        ("layer_norm_image", '{ type = "layer_norm", normalized_dims = 3 }', lambda c: nn.LayerNorm((c, 7, 6))),
        ("layer_norm_image_not_affine", '{ type = "layer_norm", normalized_dims = 3, elementwise_affine = false }', lambda c: nn.LayerNorm((c, 7, 6), elementwise_affine=False)),
    ]  # fmt: skip
    others += [
        ("local_response_norm", '{ type = "local_response_norm", size = 3, alpha = 0.8, beta = 0.6, k = 0.7 }', lambda c: nn.LocalResponseNorm(3, 0.8, 0.6, 0.7)),
        ("local_response_norm_even", '{ type = "local_response_norm", size = 4, alpha = 2 }', lambda c: nn.LocalResponseNorm(4, 2.0)),
    ]  # fmt: skip
    out += [image(n, line, make, channels=6, head=True, optimizer={"type": "sgd", "lr": 0.01}) for n, line, make in others]
    vectors = [
        ("layer_norm", '"layer_norm"', lambda c: nn.LayerNorm(c)),
        ("layer_norm_no_shift", '{ type = "layer_norm", bias = false, eps = 0.01 }', lambda c: nn.LayerNorm(c, 0.01, bias=False)),
        ("layer_norm_not_affine", '{ type = "layer_norm", elementwise_affine = false }', lambda c: nn.LayerNorm(c, elementwise_affine=False)),
        ("group_norm_vectors", '{ type = "group_norm", num_groups = 2 }', lambda c: nn.GroupNorm(2, c)),
    ]  # fmt: skip
    return out + [vector(n, line, make, features=8) for n, line, make in vectors]


def pool() -> list[Case]:
    two = [
        ("max_pool2d", "kernel_size = 2", lambda c: nn.MaxPool2d(2)),
        ("max_pool2d_overlapping", "kernel_size = 3, stride = 2, padding = 1", lambda c: nn.MaxPool2d(3, 2, 1)),
        ("max_pool2d_rectangular", "kernel_size = [3, 2], stride = [1, 2], padding = [1, 0]", lambda c: nn.MaxPool2d((3, 2), (1, 2), (1, 0))),
        ("max_pool2d_ceil", "kernel_size = 2, stride = 2, ceil_mode = true", lambda c: nn.MaxPool2d(2, 2, ceil_mode=True)),
        ("max_pool2d_ceil_padded", "kernel_size = 3, stride = 3, padding = 1, ceil_mode = true", lambda c: nn.MaxPool2d(3, 3, 1, ceil_mode=True)),
        ("max_pool2d_ceil_larger", "kernel_size = [9, 8], stride = [4, 3], ceil_mode = true", lambda c: nn.MaxPool2d((9, 8), (4, 3), ceil_mode=True)),
        ("max_pool2d_dilated", "kernel_size = 2, stride = 1, dilation = [2, 3]", lambda c: nn.MaxPool2d(2, 1, dilation=(2, 3))),
        ("max_pool2d_gaps", "kernel_size = 2, stride = 3", lambda c: nn.MaxPool2d(2, 3)),
        ("avg_pool2d", "kernel_size = 2", lambda c: nn.AvgPool2d(2)),
        ("avg_pool2d_padded", "kernel_size = 3, stride = 2, padding = 1", lambda c: nn.AvgPool2d(3, 2, 1)),
        ("avg_pool2d_exclude_pad", "kernel_size = 3, stride = 2, padding = 1, count_include_pad = false", lambda c: nn.AvgPool2d(3, 2, 1, count_include_pad=False)),
        ("avg_pool2d_ceil", "kernel_size = [2, 3], stride = [2, 2], ceil_mode = true", lambda c: nn.AvgPool2d((2, 3), (2, 2), ceil_mode=True)),
        ("avg_pool2d_ceil_padded", "kernel_size = 3, stride = 3, padding = 1, ceil_mode = true", lambda c: nn.AvgPool2d(3, 3, 1, ceil_mode=True)),
        ("avg_pool2d_ceil_larger", "kernel_size = [10, 4], stride = [4, 2], padding = 1, ceil_mode = true", lambda c: nn.AvgPool2d((10, 4), (4, 2), 1, ceil_mode=True)),
        ("avg_pool2d_ceil_exclude_pad", "kernel_size = [2, 3], stride = [3, 2], padding = [1, 1], ceil_mode = true, count_include_pad = false", lambda c: nn.AvgPool2d((2, 3), (3, 2), 1, ceil_mode=True, count_include_pad=False)),
    ]  # fmt: skip
    out = [image(n, f'{{ type = "{n[:10]}", {words} }}', make) for n, words, make in two]
    adaptive = [("one", "1", 1), ("uneven", "[3, 4]", (3, 4)), ("larger", "[9, 5]", (9, 5)), ("flat", "[1, 6]", (1, 6)), ("same", "[7, 6]", (7, 6))]
    for name, words, size in adaptive:
        line = f'{{ type = "adaptive_avg_pool2d", output_size = {words} }}'
        out.append(image(f"adaptive_avg_pool2d_{name}", line, lambda c, s=size: nn.AdaptiveAvgPool2d(s)))
    wide = '{ type = "max_pool2d", kernel_size = [17, 16], stride = 1 }'
    out.append(image("max_pool2d_large_window", wide, lambda c: nn.MaxPool2d((17, 16), 1), channels=2, side=(18, 18), samples=2))
    return out


def activation() -> list[Case]:
    """Inputs are scaled so that every piece of the piecewise functions is met."""
    list_ = [
        ("relu", '"relu"', nn.ReLU),
        ("relu6", '"relu6"', nn.ReLU6),
        ("leaky_relu", '"leaky_relu"', nn.LeakyReLU),
        ("leaky_relu_slope", '{ type = "leaky_relu", negative_slope = 0.3 }', lambda: nn.LeakyReLU(0.3)),
        ("leaky_relu_negative_slope", '{ type = "leaky_relu", negative_slope = -0.2 }', lambda: nn.LeakyReLU(-0.2)),
        ("elu", '"elu"', nn.ELU),
        ("elu_alpha", '{ type = "elu", alpha = 0.6 }', lambda: nn.ELU(0.6)),
        ("gelu", '"gelu"', nn.GELU),
        ("gelu_tanh", '{ type = "gelu", approximate = "tanh" }', lambda: nn.GELU("tanh")),
        ("silu", '"silu"', nn.SiLU),
        ("tanh", '"tanh"', nn.Tanh),
        ("sigmoid", '"sigmoid"', nn.Sigmoid),
        ("sin", '"sin"', lambda: Function(torch.sin)),
        ("cos", '"cos"', lambda: Function(torch.cos)),
        ("hardsigmoid", '"hardsigmoid"', nn.Hardsigmoid),
        ("hardswish", '"hardswish"', nn.Hardswish),
        ("mish", '"mish"', nn.Mish),
        ("softplus", '"softplus"', nn.Softplus),
        ("softplus_arguments", '{ type = "softplus", beta = 1.7, threshold = 2.5 }', lambda: nn.Softplus(1.7, 2.5)),
        ("selu", '"selu"', nn.SELU),
        ("celu", '"celu"', nn.CELU),
        ("celu_alpha", '{ type = "celu", alpha = 0.6 }', lambda: nn.CELU(0.6)),
        ("softsign", '"softsign"', nn.Softsign),
        ("log_sigmoid", '"log_sigmoid"', nn.LogSigmoid),
        ("tanhshrink", '"tanhshrink"', nn.Tanhshrink),
        ("hardtanh", '"hardtanh"', nn.Hardtanh),
        ("hardtanh_arguments", '{ type = "hardtanh", min_val = -0.3, max_val = 2.2 }', lambda: nn.Hardtanh(-0.3, 2.2)),
        ("hardshrink", '"hardshrink"', nn.Hardshrink),
        ("softshrink_lambd", '{ type = "softshrink", lambd = 0.8 }', lambda: nn.Softshrink(0.8)),
    ]
    sgd = {"type": "sgd", "lr": 0.03}
    out = []
    for name, line, make in list_:
        out.append(image(f"{name}_image", line, lambda c, m=make: m(), head=True, scale=4.0, optimizer=sgd))
        out.append(vector(f"{name}_vector", line, lambda c, m=make: m(), features=9, scale=4.0, optimizer=sgd))
    out += [
        vector("softmax", '"softmax"', lambda c: nn.Softmax(-1), head=False),
        vector("softmax_inner", '{ type = "softmax", dim = 1 }', lambda c: nn.Softmax(1)),
        vector("log_softmax", '"log_softmax"', lambda c: nn.LogSoftmax(-1), head=False),
        image("log_softmax_channels", '{ type = "log_softmax", dim = 1 }', lambda c: nn.LogSoftmax(1)),
        image("softmax_channels", '{ type = "softmax", dim = 1 }', lambda c: nn.Softmax(1)),
    ]
    return out


def shape() -> list[Case]:
    return [
        vector("dropout_never", '{ type = "dropout", p = 0.0 }', lambda c: nn.Dropout(0.0)),
        vector("identity", '"identity"', lambda c: nn.Identity()),
        Case(
            "layers/flatten_rows",
            ['{ type = "conv2d", out_channels = 3, kernel_size = 2 }', '{ type = "flatten", end_dim = 2 }',
             '{ type = "linear", out_features = 2 }', FLATTEN],
            lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(1, 2), nn.Linear(4, 2), nn.Flatten()),
            (2, 6, 5), samples=3,
        ),
        Case("layers/flatten_first", [FLATTEN, '{ type = "linear", out_features = 3 }'],
             lambda: nn.Sequential(nn.Flatten(), nn.Linear(2 * 5 * 3, 3)), (2, 5, 3), samples=4, classes=3),
        image("flatten_after_one_pixel", '{ type = "adaptive_avg_pool2d", output_size = 1 }', lambda c: nn.AdaptiveAvgPool2d(1), head=True),
    ]  # fmt: skip


class Do(nn.Module):
    """A function without parameters."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Named(nn.Sequential):
    """Modules by number, and a parameter that belongs to none of them, which `function` joins with what modules before it put out."""

    def __init__(self, name: str, shape: tuple[int, ...], at: int, function: Callable[..., torch.Tensor], *modules: nn.Module) -> None:
        super().__init__()
        for i, module in enumerate(modules):
            self.add_module(str(i if i < at else i + 1), module)
        self.at, self.name, self.function = at, name, function
        self.register_parameter(name, nn.Parameter(torch.randn(shape)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, module in enumerate(self):
            if i == self.at:
                x = self.function(x, getattr(self, self.name))
            x = module(x)
        return x


def rearranged() -> list[Case]:
    """Behind a convolution, so that images come with their channels last; before a linear layer, which sees the order of what comes."""
    sgd = {"type": "sgd", "lr": 0.1}
    front = '{ type = "conv2d", out_channels = 4, kernel_size = 2 }'

    def one(name, lines, functions, samples=3, head=3) -> Case:
        def net() -> nn.Module:
            modules = [nn.Conv2d(2, 4, 2), *(f() if isinstance(f, type) else Do(f) for f in functions)]
            with torch.random.fork_rng():
                shape = nn.Sequential(*modules)(torch.zeros(1, 2, 7, 5)).shape
            return nn.Sequential(*modules, nn.Linear(shape[-1], head), nn.Tanh(), nn.Flatten())

        lines = [front, *lines, f'{{ type = "linear", out_features = {head} }}', '"tanh"', FLATTEN]
        return Case(f"layers/{name}", lines, net, (2, 7, 5), samples=samples, optimizer=sgd)

    flat = (FLATTEN, nn.Flatten)
    return [
        one("reshape_image_to_sequence", ['{ type = "reshape", shape = [8, -1] }'], [lambda x: x.reshape(-1, 8, 12)]),
        one("reshape_to_image_and_rows", ['{ type = "reshape", shape = [-1, 8, 2] }', '"relu"'], [lambda x: x.reshape(-1, 6, 8, 2), nn.ReLU]),
        one("reshape_to_image", ['{ type = "reshape", shape = [6, 4, 4] }', '{ type = "max_pool2d", kernel_size = 2 }', flat[0]],
            [lambda x: x.reshape(-1, 6, 4, 4), lambda x: nn.functional.max_pool2d(x, 2), flat[1]]),
        one("unflatten_channels", ['{ type = "unflatten", dim = 1, unflattened_size = [2, -1] }', '{ type = "transpose", dim0 = 1, dim1 = 2 }', '{ type = "flatten", start_dim = 1, end_dim = 3 }'],
            [lambda x: x.unflatten(1, (2, 2)), lambda x: x.transpose(1, 2), lambda x: x.flatten(1, 3)]),
        Case("layers/permute_channels_last",
             [front, '{ type = "permute", dims = [0, 2, 3, 1] }', '"layer_norm"', '{ type = "linear", out_features = 5 }', '"gelu"',
              '{ type = "permute", dims = [0, 3, 1, 2] }', '{ type = "avg_pool2d", kernel_size = 2 }', FLATTEN],
             lambda: nn.Sequential(nn.Conv2d(2, 4, 2), Do(lambda x: x.permute(0, 2, 3, 1)), nn.LayerNorm(4), nn.Linear(4, 5), nn.GELU(),
                                   Do(lambda x: x.permute(0, 3, 1, 2)), nn.AvgPool2d(2), nn.Flatten()), (2, 7, 5), samples=3, optimizer=sgd),
        one("permute_rows_first", ['{ type = "permute", dims = [0, 3, 1, 2] }'], [lambda x: x.permute(0, 3, 1, 2)]),
        one("transpose_sequence", ['{ type = "flatten", start_dim = 2 }', '{ type = "transpose", dim0 = 1, dim1 = -1 }'], [lambda x: x.flatten(2), lambda x: x.transpose(1, 2)]),
        one("chunk_channels", ['{ type = "chunk", chunks = 3, index = 1 }', flat[0]], [lambda x: x.chunk(3, 1)[1], flat[1]]),
        one("slice_columns", ['{ type = "slice", dim = 3, start = 1, end = -1 }', flat[0]], [lambda x: x[..., 1:-1], flat[1]]),
        one("select_row", ['{ type = "select", dim = 2, index = -2 }'], [lambda x: x.select(2, -2)]),
        one("mean_pixels", ['{ type = "mean", dim = [2, 3] }'], [lambda x: x.mean((2, 3))]),
        one("mean_channels_keepdim", ['{ type = "mean", dim = 1, keepdim = true }', flat[0]], [lambda x: x.mean(1, keepdim=True), flat[1]]),
        one("sum_rows_and_channels", ['{ type = "sum", dim = [1, -2] }'], [lambda x: x.sum((1, -2))]),
        one("roll_pixels", ['{ type = "roll", shifts = [2, -1], dims = [2, 3] }', flat[0]], [lambda x: x.roll((2, -1), (2, 3)), flat[1]]),
        one("channel_shuffle", ['{ type = "channel_shuffle", groups = 2 }', flat[0]], [lambda x: x.unflatten(1, (2, 2)).transpose(1, 2).flatten(1, 2), flat[1]]),
        one("pixel_shuffle", ['{ type = "pixel_shuffle", upscale_factor = 2 }', flat[0]], [lambda x: nn.functional.pixel_shuffle(x, 2), flat[1]]),
        one("pixel_unshuffle", ['{ type = "pixel_unshuffle", downscale_factor = 2 }', flat[0]], [lambda x: nn.functional.pixel_unshuffle(x, 2), flat[1]]),
        one("zero_pad2d", ['{ type = "zero_pad2d", padding = [1, 0, 2, 1] }', flat[0]], [lambda x: nn.ZeroPad2d((1, 0, 2, 1))(x), flat[1]]),
        one("reflection_pad2d", ['{ type = "reflection_pad2d", padding = [1, 2, 0, 3] }', flat[0]], [lambda x: nn.ReflectionPad2d((1, 2, 0, 3))(x), flat[1]]),
        one("replication_pad2d", ['{ type = "replication_pad2d", padding = 2 }', flat[0]], [lambda x: nn.ReplicationPad2d(2)(x), flat[1]]),
        Case("layers/shifted_window_attention",
             [front, '{ type = "permute", dims = [0, 2, 3, 1] }',
              '{ type = "shifted_window_attention", window_size = [3, 2], shift_size = [2, 1], num_heads = 2, qkv_bias = false }',
              '{ type = "merge_patches" }', FLATTEN],
             lambda: nn.Sequential(nn.Conv2d(2, 4, 2), Do(lambda x: x.permute(0, 2, 3, 1)), ShiftedWindowAttention(4, [3, 2], [2, 1], 2, qkv_bias=False),
                                   Do(_patch_merging_pad), nn.Flatten()), (2, 8, 6), samples=3, optimizer=sgd),
        one("glu_channels", ['{ type = "glu", dim = 1 }', flat[0]], [lambda x: nn.functional.glu(x, 1), flat[1]]),
    ]  # fmt: skip


def _sinusoids(length: int, width: int) -> torch.Tensor:
    """Vaswani et al. 2017, section 3.5, as the tutorials of PyTorch write it."""
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table


class FirstType(nn.Module):
    """Adds the first of some vectors to all positions."""

    def __init__(self, types: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(types, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight[0]


def transformer() -> list[Case]:
    sgd = {"type": "sgd", "lr": 0.1}
    tokens = ['{ type = "conv2d", out_channels = 4, kernel_size = 2 }', '{ type = "flatten", start_dim = 2 }', '{ type = "transpose", dim0 = 1, dim1 = 2 }']
    front = lambda: [nn.Conv2d(2, 4, 2), nn.Flatten(2), Do(lambda x: x.transpose(1, 2))]  # noqa: E731
    shape = (2, 4, 3)

    def one(name, line, parameter, function) -> Case:
        lines = [*tokens, line, '{ type = "linear", out_features = 3 }', FLATTEN]
        net = lambda: Named(name, parameter, 3, function, *front(), nn.Linear(4, 3), nn.Flatten())  # noqa: E731
        return Case(f"layers/{name}", lines, net, shape, samples=3, optimizer=sgd)

    return [
        one("class_token", '{ name = "class_token", type = "class_token" }', (1, 1, 4), lambda x, p: torch.cat([p.expand(len(x), -1, -1), x], 1)),
        one("position_embedding", '{ name = "position_embedding", type = "position_embedding" }', (1, 6, 4), lambda x, p: x + p),
        Case("layers/position_embedding_sinusoidal", [*tokens, '{ type = "position_embedding", kind = "sinusoidal" }', '{ type = "linear", out_features = 3 }', FLATTEN],
             lambda: nn.Sequential(*front(), Do(lambda x: x + _sinusoids(*x.shape[1:])), nn.Linear(4, 3), nn.Flatten()), shape, samples=3, optimizer=sgd),
        Case("layers/token_type_embedding", [*tokens, '{ type = "token_type_embedding" }', '{ type = "linear", out_features = 3 }', FLATTEN],
             lambda: nn.Sequential(*front(), FirstType(2, 4), nn.Linear(4, 3), nn.Flatten()), shape, samples=3, optimizer=sgd),
        one("layer_scale", '{ name = "layer_scale", type = "layer_scale" }', (4,), lambda x, p: x * p),
        Case("layers/layer_scale_image", [tokens[0], '{ name = "scale", type = "layer_scale" }', FLATTEN],
             lambda: Named("scale", (4, 1, 1), 1, lambda x, p: x * p, nn.Conv2d(2, 4, 2), nn.Flatten()), shape, samples=3, optimizer=sgd),
        image("instance_norm2d", '"instance_norm2d"', lambda c: nn.InstanceNorm2d(c), bias=False, head=True, optimizer={"type": "sgd", "lr": 0.01}),
        image("instance_norm2d_affine", '{ type = "instance_norm2d", affine = true, eps = 0.1 }', lambda c: nn.InstanceNorm2d(c, 0.1, affine=True), bias=False, head=True, optimizer={"type": "sgd", "lr": 0.01}),
        vector("rms_norm", '"rms_norm"', lambda c: nn.RMSNorm(c), features=8),
        vector("rms_norm_not_affine", '{ type = "rms_norm", eps = 0.01, elementwise_affine = false }', lambda c: nn.RMSNorm(c, 0.01, elementwise_affine=False), features=8),
        image("rms_norm_image", '{ type = "rms_norm", normalized_dims = 3 }', lambda c: nn.RMSNorm((c, 7, 6)), head=True, optimizer={"type": "sgd", "lr": 0.01}),
        vector("glu", '"glu"', lambda c: nn.GLU(), features=8, head=False),
        # `Phi3MLP` of transformers and `GEGLU` of diffusers, without their projections.
        vector("swiglu", '"swiglu"', lambda c: Do(lambda x: nn.functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]), features=8, head=False),
        vector("geglu", '"geglu"', lambda c: Do(lambda x: x.chunk(2, -1)[0] * nn.functional.gelu(x.chunk(2, -1)[1])), features=8, head=False),
        vector("prelu", '"prelu"', lambda c: nn.PReLU(), features=8),
        image("prelu_image", '{ type = "prelu", num_parameters = 4, init = 0.1 }', lambda c: nn.PReLU(4, 0.1), head=True),
    ]  # fmt: skip


class Function(nn.Module):
    """A function without parameters."""

    def __init__(self, of: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.of = of

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.of(x)


class Members(nn.Module):
    """Several models in one, of which what they predict is the mean, but in training: TabM by its authors' layers."""

    def __init__(self, mean: Callable[[torch.Tensor], torch.Tensor], *layers: nn.Module):
        super().__init__()
        self.mean = mean
        for name, layer in enumerate(layers):
            self.add_module(str(name), layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.children():
            # `EnsembleView` is a part of the layer behind it.
            x = layer(x[:, None].expand(-1, layer.weight.shape[0], -1) if isinstance(layer, tabm.ElementwiseAffine) and x.dim() == 2 else x)
        return x if self.training else self.mean(x)


MEANS = {
    "cross_entropy": lambda out: out.softmax(-1).mean(1).log(),
    "nll": lambda out: out.exp().mean(1).log(),
    "bce_with_logits": lambda out: out.sigmoid().mean(1).logit(),
    "mse": lambda out: out.mean(1),
}


def affine(members: int, features: int, bias: bool = False, init: str = "normal") -> nn.Module:
    return tabm.ElementwiseAffine((members, features), bias=bias, scaling_init=init)


def moved(net: nn.Module) -> None:
    """Draws what starts as ones and zeros."""
    for module in net.modules():
        if isinstance(module, tabm.ElementwiseAffine):
            module.weight.normal_(1, 0.3)
            if module.bias is not None:
                module.bias.normal_(0, 0.3)


def columns(samples: int) -> torch.Tensor:
    """Numbers of five columns: one of a few whole numbers, one of zeros and ones, and one that is either."""
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(samples, 5, generator=draw)
    x[:, 1] = x[:, 1].exp()
    x[:, 2] = (x[:, 2] > 0).float()
    x[:, 3] = (2 * x[:, 3]).round().clamp(-2, 2)
    x[:, 4] = (x[:, 4] > 0.4).float()
    return x


class Embedded(nn.Module):
    """A net behind what `rtdl_num_embeddings` makes of all columns but the third, which stands behind theirs."""

    def __init__(self, rows: torch.Tensor, bins: int, width: int):
        super().__init__()
        edges = rtdl_num_embeddings.compute_bins(rows[:, [0, 1, 3, 4]], n_bins=bins)
        self.embedding = rtdl_num_embeddings.PiecewiseLinearEmbeddings(edges, width, activation=False, version="B")
        # Bins are no parameters, and no file has them.
        self.embedding.impl._non_persistent_buffers_set.update(self.embedding.impl._buffers)
        self.output = nn.Linear(4 * width + 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = torch.cat([self.embedding(x[:, [0, 1, 3, 4]]).flatten(1), x[:, 2:3]], 1)
        return self.output(columns.tanh())


class Tabm(nn.Module):
    """TabM by its authors' layers, on the same columns, with the names that the parameters have in `models/tabm.toml`."""

    def __init__(self, rows: torch.Tensor, bins: int, width: int):
        super().__init__()
        edges = rtdl_num_embeddings.compute_bins(rows[:, [0, 1, 3, 4]], n_bins=bins)
        self.embedding = rtdl_num_embeddings.PiecewiseLinearEmbeddings(edges, width, activation=False, version="B")
        self.embedding.impl._non_persistent_buffers_set.update(self.embedding.impl._buffers)
        backbone = tabm.make_tabm_backbone(d_in=4 * width + 1, n_blocks=2, d_block=6, dropout=0.0, k=3, arch_type="tabm", start_scaling_init="normal",
                                           start_scaling_init_chunks=[width] * 4 + [1])  # fmt: skip
        # No module of this one: its parameters have names of their own here.
        self.whole = [tabm.EnsembleView(k=3), backbone]
        self.blocks = nn.ModuleList()
        for linear, *_ in backbone.blocks:
            block = Named(r=Named(), linear=Named(), s=Named())
            block.r.weight, block.linear.weight, block.s.weight, block.s.bias = linear.r, linear.weight, linear.s, linear.bias
            self.blocks.append(block)
        self.output = tabm.LinearEnsemble(6, 1, k=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        view, backbone = self.whole
        for (linear, *_), block in zip(backbone.blocks, self.blocks, strict=True):
            linear.r, linear.weight, linear.s, linear.bias = block.r.weight, block.linear.weight, block.s.weight, block.s.bias
        y = torch.cat([self.embedding(x[:, [0, 1, 3, 4]]).flatten(1), x[:, 2:3]], 1)
        y = self.output(backbone(view(y)))
        return y if self.training else y.mean(1)

    def drawn(self) -> None:
        """Draws what starts as ones and zeros."""
        self.embedding.linear.weight.normal_(0, 0.5)
        for block in self.blocks:
            block.s.weight.normal_(1, 0.3)
            block.s.bias.normal_(0, 0.3)
        self.blocks[1].r.weight.normal_(1, 0.3)


class Periodic(nn.Module):
    """The same with periodic embeddings."""

    def __init__(self, **options):
        super().__init__()
        self.embedding = rtdl_num_embeddings.PeriodicEmbeddings(4, 3, n_frequencies=5, frequency_init_scale=0.4, **options)
        self.output = nn.Linear(4 * 3 + 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = torch.cat([self.embedding(x[:, [0, 1, 3, 4]]).flatten(1), x[:, 2:3]], 1)
        return self.output(columns)


# The texts of the fourth column in the order of their places.
TEXTS = ["-1.0", "-2.0", "0.0", "1.0", "2.0"]


class Named(nn.Module):
    """Parts of another module under names of their own."""

    def __init__(self, **parts: nn.Module):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


class FtTransformer(nn.Module):
    """`rtdl_revisiting_models.FTTransformer` of four columns of numbers and one of texts, with the names that the parts have here."""

    def __init__(self, outputs: int, **options):
        super().__init__()
        self.cls_embedding = Named()
        self.cls_embedding.weight = nn.Parameter(torch.empty(1, 1, options["d_block"]).uniform_(-0.5, 0.5))
        whole = FTTransformer(n_cont_features=4, cat_cardinalities=[len(TEXTS)], d_out=outputs, ffn_d_hidden_multiplier=None,
                              attention_dropout=0.0, ffn_dropout=0.0, residual_dropout=0.0, **options)  # fmt: skip
        self.embeddings = Named(cont_embeddings=whole.cont_embeddings, cat_embeddings=whole.cat_embeddings)
        self.backbone = whole.backbone

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.tensor([TEXTS.index(f"{value:.1f}") for value in x[:, 3].round().add(0.0).tolist()])
        numbers, texts = self.embeddings.cont_embeddings(x[:, [0, 1, 2, 4]]), self.embeddings.cat_embeddings(places[:, None])
        return self.backbone(torch.cat([self.cls_embedding.weight.expand(len(x), 1, -1), numbers, texts], 1))


class DotInteraction(nn.Module):
    """`interact_features` of the DLRM's authors, without what they put before its products."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = torch.tril_indices(x.shape[1], x.shape[1], -1)
        return torch.bmm(x, x.mT)[:, rows, columns]


class Dlrm(nn.Module):
    """models/dlrm.toml on four columns of numbers and one of texts."""

    def __init__(self, d: int, bottom: int, width: int, depth: int):
        super().__init__()
        self.embeddings = Named(cont_embeddings=LinearEmbeddings(4, d), cat_embeddings=CategoricalEmbeddings([len(TEXTS)], d, True))
        self.bottom = Named(linear1=nn.Linear(4 + len(TEXTS), bottom), linear2=nn.Linear(bottom, d))
        vectors = 1 + 4 + 1
        widths = [d + vectors * (vectors - 1) // 2] + [width] * depth
        self.top = nn.ModuleList(Named(linear=nn.Linear(a, b)) for a, b in zip(widths, widths[1:]))
        self.output = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.tensor([TEXTS.index(f"{value:.1f}") for value in x[:, 3].round().add(0.0).tolist()])
        numbers, texts = self.embeddings.cont_embeddings(x[:, [0, 1, 2, 4]]), self.embeddings.cat_embeddings(places[:, None])
        row = torch.cat([x[:, :3], nn.functional.one_hot(places, len(TEXTS)).to(x.dtype), x[:, 4:]], 1)
        bottom = self.bottom.linear2(self.bottom.linear1(row).relu()).relu()
        y = torch.cat([bottom, DotInteraction()(torch.cat([bottom[:, None], numbers, texts], 1))], 1)
        for layer in self.top:
            y = layer.linear(y).relu()
        return self.output(y)


def tabular() -> list[Case]:
    """Several models in one, and columns of tables."""
    mini = ['{ type = "ensemble_affine", members = 3 }', '{ type = "linear", out_features = 6 }', '"tanh"', '{ type = "ensemble_linear", out_features = 4 }']
    full = [
        '{ type = "ensemble_affine", members = 3, init = "random_signs" }', '{ type = "linear", out_features = 6, bias = false }',
        '{ type = "ensemble_affine", members = 3, init = "ones", bias = true }', '"tanh"', '{ type = "ensemble_linear", out_features = 4, bias = false }',
    ]  # fmt: skip
    mini_net = lambda *end: [affine(3, 5), nn.Linear(5, 6), nn.Tanh(), tabm.LinearEnsemble(6, 4, k=3), *end]  # noqa: E731
    full_net = lambda: [affine(3, 5, init="random-signs"), nn.Linear(5, 6, bias=False), affine(3, 6, True, "ones"), nn.Tanh(), tabm.LinearEnsemble(6, 4, False, k=3)]  # noqa: E731

    def one(name: str, lines: list[str], net: Callable[[], list[nn.Module]], loss: str, **more) -> Case:
        more |= {"loss": {"type": loss}, "classes": 4 if loss in ("cross_entropy", "nll") else 0}
        return Case(f"layers/{name}", [*lines, '"ensemble_mean"'], lambda: Members(MEANS[loss], *net()), (5,), samples=7, val_samples=5,
                    batch_size=4, members=3, optimizer={"type": "sgd", "lr": 0.3}, extra_init=moved, **more)  # fmt: skip

    def table(name: str, lines: list[str], net: Callable[[torch.Tensor], nn.Module], **more) -> Case:
        samples = 30
        lines = ['{ name = "embedding", type = "piecewise_linear_embedding", bins = 6, embedding_dim = 3 }', *lines]
        return Case(f"layers/{name}", lines, lambda: net(columns(samples + 40)[:samples]), (5,), samples=samples, val_samples=40, batch_size=8, inputs=columns,
                    columns='{ x2 = "boolean", "*" = { type = "number", scaling = "none" } }', optimizer={"type": "sgd", "lr": 0.05},
                    extra_init=lambda net: net.embedding.linear.weight.normal_(0, 0.5), **more)  # fmt: skip

    def others(name: str, net: Callable[[], nn.Module], lines: list[str] = [], use: str = "", lr: float = 0.05, category: bool = False, freeze: list[str] = []) -> Case:
        columns_ = '{ x2 = "boolean", x3 = "category", "*" = { type = "number", scaling = "none" } }' if category else '{ x2 = "boolean", "*" = { type = "number", scaling = "none" } }'
        return Case(f"layers/{name}", lines, net, (5,), samples=30, val_samples=40, batch_size=8, inputs=lambda n: columns(n) + 0.0, columns=columns_,
                    optimizer={"type": "sgd", "lr": lr}, use=use, freeze=freeze)  # fmt: skip

    def periodic(words: str) -> list[str]:
        layer = f'{{ name = "embedding", type = "periodic_embedding", embedding_dim = 3, n_frequencies = 5, frequency_init_scale = 0.4{words} }}'
        return [layer, '{ name = "output", type = "linear", out_features = 1 }']

    # The softmax takes no notice of what is added to all keys, nor a batch normalisation of what is added to all samples: those biases have no gradient but rounding.
    ft = 'use = "ft_transformer"\nwith = { num_classes = 1, width = 8, num_blocks = 2, heads = 2, hidden = 6, attention_dropout = 0.0, ffn_dropout = 0.0 }'
    dlrm = 'use = "dlrm"\nwith = { num_classes = 1, embedding_dim = 3, bottom_width = 5, width = 6, depth = 2 }'
    whole = 'use = "tabm"\nwith = { num_classes = 1, members = 3, width = 6, depth = 2, dropout = 0.0, bins = 6, embedding_dim = 3 }'
    resnet = 'use = "tabular_resnet"\nwith = { num_classes = 1, width = 6, num_blocks = 2, hidden = 9, dropout = 0.0 }'
    return [
        others("periodic_embedding", lambda: Periodic(lite=False), periodic("")),
        others("periodic_embedding_lite", lambda: Periodic(lite=True), periodic(", lite = true")),
        others("periodic_embedding_linear", lambda: Periodic(lite=False, activation=False), periodic(", activation = false")),
        others("ft_transformer", lambda: FtTransformer(1, d_block=8, n_blocks=2, attention_n_heads=2, ffn_d_hidden=6), use=ft, category=True, freeze=["*.W_k.bias"]),
        others("dlrm", lambda: Dlrm(3, 5, 6, 2), use=dlrm, category=True),
        others("tabular_resnet", lambda: ResNet(d_in=5, d_out=1, n_blocks=2, d_block=6, d_hidden=9, d_hidden_multiplier=None, dropout1=0.0, dropout2=0.0), use=resnet,
               freeze=["input_projection.bias", "*.linear2.bias"]),
        Case("layers/tabm", [], lambda: Tabm(columns(70)[:30], 6, 3), (5,), samples=30, val_samples=40, batch_size=8, inputs=columns, members=3, use=whole,
             columns='{ x2 = "boolean", "*" = { type = "number", scaling = "none" } }', optimizer={"type": "sgd", "lr": 0.05}, extra_init=Tabm.drawn),
        one("tabm_mini_classes", mini, mini_net, "cross_entropy"),
        one("tabm_mini_log_probabilities", [*mini, '"log_softmax"'], lambda: mini_net(nn.LogSoftmax(-1)), "nll"),
        one("tabm_mini_labels", mini, mini_net, "bce_with_logits"),
        one("tabm_numbers", full, full_net, "mse"),
        table("piecewise_linear_embedding", ['"tanh"', '{ name = "output", type = "linear", out_features = 1 }'], lambda rows: Embedded(rows, 6, 3)),
    ]


def sequence() -> list[Case]:
    """On sequences [N, C, L]."""
    conv1d = lambda words: f'{{ type = "conv1d", {words} }}'  # noqa: E731

    def one(name, lines, *modules) -> Case:
        return Case(f"layers/{name}", [*lines, FLATTEN], lambda: nn.Sequential(*[m() for m in modules], nn.Flatten()), (3, 11), samples=3, optimizer={"type": "sgd", "lr": 0.1})

    first = conv1d("out_channels = 4, kernel_size = 2")
    head = lambda: nn.Conv1d(3, 4, 2)  # noqa: E731
    return [
        one("conv1d", [first, '"relu"', conv1d("out_channels = 5, kernel_size = 3, stride = 2, padding = 1")], head, nn.ReLU, lambda: nn.Conv1d(4, 5, 3, 2, 1)),
        one("conv1d_dilated_groups", [first, conv1d("out_channels = 6, kernel_size = 3, dilation = 2, groups = 2, bias = false")], head, lambda: nn.Conv1d(4, 6, 3, dilation=2, groups=2, bias=False)),
        one("conv1d_same", [first, conv1d('kernel_size = 4, padding = "same", groups = "in_channels", bias = false'), '"batch_norm1d"', conv1d("out_channels = 2, kernel_size = 1")],
            head, lambda: nn.Conv1d(4, 4, 4, padding="same", groups=4, bias=False), lambda: nn.BatchNorm1d(4), lambda: nn.Conv1d(4, 2, 1)),
        one("conv_transpose1d", [first, '"relu"', '{ type = "conv_transpose1d", out_channels = 5, kernel_size = 3, stride = 2, padding = 1, output_padding = 1 }'],
            head, nn.ReLU, lambda: nn.ConvTranspose1d(4, 5, 3, 2, 1, 1)),
        one("conv_transpose1d_groups", [first, '{ type = "conv_transpose1d", kernel_size = 4, stride = 3, groups = "in_channels", bias = false }', '"batch_norm1d"'],
            head, lambda: nn.ConvTranspose1d(4, 4, 4, 3, groups=4, bias=False), lambda: nn.BatchNorm1d(4)),
        one("max_pool1d", [first, '{ type = "max_pool1d", kernel_size = 3, stride = 2, padding = 1 }'], head, lambda: nn.MaxPool1d(3, 2, 1)),
        one("avg_pool1d", [first, '{ type = "avg_pool1d", kernel_size = 3, padding = 1, ceil_mode = true }'], head, lambda: nn.AvgPool1d(3, padding=1, ceil_mode=True)),
        one("dot_interaction", [first, '"tanh"', '"dot_interaction"', '{ type = "linear", out_features = 2 }'], head, nn.Tanh, DotInteraction, lambda: nn.Linear(6, 2)),
        one("adaptive_avg_pool1d", [first, '{ type = "adaptive_avg_pool1d", output_size = 3 }', '{ type = "linear", out_features = 2 }'], head, lambda: nn.AdaptiveAvgPool1d(3), lambda: nn.Linear(3, 2)),
    ]  # fmt: skip


def ordered(x: torch.Tensor) -> torch.Tensor:
    """Logits of being above a class for what is not below it, as logarithms of the probabilities of all classes. Their negative log-likelihood is the sum over a
    sample's steps of `corn_loss` (Shi, Cao, Raschka 2021), which divides by the number of all steps that are asked."""
    yes, no, classes = nn.functional.logsigmoid(x), nn.functional.logsigmoid(-x), x.shape[-1] + 1
    out = torch.stack([yes[..., :k].sum(-1) + (no[..., k] if k + 1 < classes else 0) for k in range(classes)], -1)
    if x.dim() == 2:
        y = torch.arange(len(x)) % classes
        asked = torch.minimum(y + 1, torch.tensor(classes - 1)).sum()
        torch.testing.assert_close(nn.functional.nll_loss(out, y, reduction="sum"), corn_loss(x, y, classes) * asked)
        above = torch.stack([out.exp()[:, k:].sum(-1) for k in range(1, classes)], -1)
        torch.testing.assert_close(above, torch.sigmoid(x).cumprod(-1))
    return out


class Ordinal(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ordered(x)


class OrdinalMembers(Members):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ordered(super().forward(x))


def loss() -> list[Case]:
    lines = ['{ type = "linear", out_features = 6 }', '"tanh"', '{ type = "linear", out_features = 4 }']
    net = lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4))  # noqa: E731
    positive, positive_net = [*lines, '"softplus"'], lambda: nn.Sequential(*net(), nn.Softplus())
    sgd = {"type": "sgd", "lr": 0.2}
    return [
        Case("losses/cross_entropy", lines, net, (5,), samples=7, classes=4, optimizer=sgd),
        Case("losses/cross_entropy_large_logits", lines, net, (5,), samples=7, classes=4, optimizer=sgd, extra_init=_large),
        Case("losses/cross_entropy_smoothed", lines, net, (5,), samples=7, classes=4, label_smoothing=0.1, optimizer=sgd),
        Case("losses/cross_entropy_smoothed_much", lines, net, (5,), samples=7, classes=4, label_smoothing=0.7, optimizer=sgd),
        Case("losses/cross_entropy_ignored", lines, net, (5,), samples=10, batch_size=4, val_samples=7, classes=4, ignored=0.3, optimizer=sgd),
        Case("losses/cross_entropy_weighted", lines, net, (5,), samples=9, batch_size=4, val_samples=7, classes=4,
             loss={"weight": [0.5, 2.0, 1.0, 3.5]}, train={"accumulate": 2}, optimizer=sgd),
        Case("losses/cross_entropy_all_options", lines, net, (5,), samples=9, batch_size=2, val_samples=7, classes=4, ignored=0.3,
             label_smoothing=0.2, loss={"weight": [0.5, 2.0, 0.25, 3.5], "ignore_index": 1}, train={"accumulate": 3}, optimizer=sgd),
        # One class for each place in a sequence, and for each pixel.
        Case("losses/cross_entropy_sequence", lines, net, (3, 5), samples=7, batch_size=2, val_samples=5, classes=4, ignored=0.4,
             label_smoothing=0.1, loss={"weight": [1.0, 2.0, 0.5, 1.5]}, train={"accumulate": 4}, optimizer=sgd),
        Case("losses/cross_entropy_image", ['{ type = "conv2d", out_channels = 3, kernel_size = 3, padding = 1 }', '"tanh"', '{ type = "conv2d", out_channels = 5, kernel_size = 1 }'],
             lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 5, 1)), (2, 4, 3), samples=5, batch_size=2,
             val_samples=3, classes=5, ignored=0.3, loss={"ignore_index": 255}, train={"accumulate": 3}, optimizer=sgd),
        # It learns its input; the targets of the file are others.
        Case("losses/mse_of_inputs", ['{ type = "conv2d", out_channels = 3, kernel_size = 2, stride = 2 }', '"tanh"', '{ type = "conv_transpose2d", out_channels = 2, kernel_size = 2, stride = 2 }'],
             lambda: nn.Sequential(nn.Conv2d(2, 3, 2, 2), nn.Tanh(), nn.ConvTranspose2d(3, 2, 2, 2)), (2, 4, 6), samples=5, batch_size=2,
             val_samples=3, loss={"type": "mse", "target": "inputs"}, train={"accumulate": 2}, optimizer=sgd),
        Case("losses/l1", lines, net, (5,), samples=7, val_samples=3, loss={"type": "l1"}, optimizer=sgd),
        Case("losses/smooth_l1", lines, net, (5,), samples=7, val_samples=3, loss={"type": "smooth_l1", "beta": 0.7}, optimizer=sgd),
        Case("losses/huber", lines, net, (5,), samples=7, val_samples=3, loss={"type": "huber", "delta": 0.6}, optimizer=sgd),
        Case("losses/quantile", lines, net, (5,), samples=7, val_samples=3, loss={"type": "quantile", "quantile": 0.9}, optimizer=sgd),
        Case("losses/quantiles", lines, net, (5,), samples=7, val_samples=3, loss={"type": "quantile", "quantile": [0.1, 0.8]}, optimizer=sgd),
        Case("losses/poisson_nll", positive, positive_net, (5,), samples=7, val_samples=3, loss={"type": "poisson_nll"}, optimizer=sgd),
        Case("losses/gamma_nll", positive, positive_net, (5,), samples=7, val_samples=3, loss={"type": "gamma_nll"}, optimizer=sgd),
        Case("losses/tweedie", positive, positive_net, (5,), samples=7, val_samples=3, loss={"type": "tweedie", "power": 1.3}, optimizer=sgd),
        Case("losses/bce_with_logits", lines, net, (5,), samples=7, val_samples=4, loss={"type": "bce_with_logits"}, optimizer=sgd),
        Case("losses/bce_with_logits_weighted", lines, net, (5,), samples=7, batch_size=3, val_samples=4,
             loss={"type": "bce_with_logits", "pos_weight": [0.5, 3.0, 1.0, 2.0]}, train={"accumulate": 2}, optimizer=sgd),
        Case("losses/sigmoid_focal", lines, net, (5,), samples=7, val_samples=4, loss={"type": "sigmoid_focal"}, optimizer=sgd),
        Case("losses/sigmoid_focal_all_options", lines, net, (5,), samples=7, val_samples=4, loss={"type": "sigmoid_focal", "alpha": -1.0, "gamma": 0.5}, optimizer=sgd),
        Case("losses/focal", lines, net, (5,), samples=7, val_samples=4, classes=4, loss={"type": "focal"}, optimizer=sgd),
        Case("losses/focal_all_options", lines, net, (3, 5), samples=7, batch_size=2, val_samples=5, classes=4, ignored=0.4,
             loss={"type": "focal", "gamma": 0.7, "weight": [1.0, 2.0, 0.5, 1.5], "ignore_index": 3}, train={"accumulate": 4}, optimizer=sgd),
        Case("losses/nll", [*lines, '"log_sigmoid"'], lambda: nn.Sequential(*net(), nn.LogSigmoid()), (5,), samples=9, batch_size=4, val_samples=7,
             classes=4, ignored=0.3, loss={"type": "nll", "weight": [0.5, 2.0, 1.0, 3.5]}, train={"accumulate": 2}, optimizer=sgd),
        Case("losses/nll_log_softmax", [*lines, '"log_softmax"'], lambda: nn.Sequential(*net(), nn.LogSoftmax(-1)), (5,), samples=7, val_samples=4,
             classes=4, loss={"type": "nll"}, optimizer=sgd),
        Case("losses/ordinal", lines, lambda: nn.Sequential(*net(), Ordinal()), (5,), samples=11, batch_size=4, val_samples=7, classes=5, ignored=0.2,
             loss={"type": "ordinal"}, train={"accumulate": 2}, optimizer=sgd),
        Case("losses/ordinal_sequence", lines, lambda: nn.Sequential(*net(), Ordinal()), (3, 5), samples=7, batch_size=2, val_samples=5, classes=5,
             loss={"type": "ordinal"}, optimizer=sgd),
        Case("losses/ordinal_members", ['{ type = "ensemble_affine", members = 3 }', '{ type = "linear", out_features = 6 }', '"tanh"', '{ type = "ensemble_linear", out_features = 3 }', '"ensemble_mean"'],
             lambda: OrdinalMembers(MEANS["bce_with_logits"], affine(3, 5), nn.Linear(5, 6), nn.Tanh(), tabm.LinearEnsemble(6, 3, k=3)),
             (5,), samples=7, val_samples=5, batch_size=4, members=3, classes=4, loss={"type": "ordinal"}, optimizer={"type": "sgd", "lr": 0.3}, extra_init=moved),
        Case("losses/mse", lines, net, (5,), samples=7, optimizer=sgd),
        Case("losses/mse_one_output", ['{ type = "linear", out_features = 1 }'], lambda: nn.Sequential(nn.Linear(10, 1)), (10,), samples=9, optimizer=sgd),
    ]  # fmt: skip


def _large(net: nn.Module) -> None:
    """Logits of some hundreds: an exponential without its maximum taken off would overflow."""
    net[2].weight.mul_(40)
    net[2].bias.copy_(torch.tensor([120.0, 118.0, 121.0, 119.0]))


def _states(kind: type[nn.Module]) -> type[nn.Module]:
    """A recurrent layer of PyTorch without its second result."""

    class States(kind):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)[0]

    return States


def recurrent() -> list[Case]:
    def one(name, line, layer, width) -> Case:
        lines = ['{ type = "linear", out_features = 4 }', line, FLATTEN, '{ type = "linear", out_features = 3 }']
        net = lambda: nn.Sequential(nn.Linear(3, 4), layer(), nn.Flatten(), nn.Linear(6 * width, 3))  # noqa: E731
        return Case(f"layers/{name}", lines, net, (6, 3), samples=5, batch_size=3, val_samples=2, classes=3, optimizer={"type": "sgd", "lr": 0.3})

    lstm, gru, rnn = (_states(kind) for kind in (nn.LSTM, nn.GRU, nn.RNN))
    return [
        one("lstm", '{ type = "lstm", hidden_size = 5 }', lambda: lstm(4, 5, batch_first=True), 5),
        one("lstm_two_both", '{ type = "lstm", hidden_size = 5, num_layers = 2, bidirectional = true }',
            lambda: lstm(4, 5, 2, batch_first=True, bidirectional=True), 10),
        one("gru", '{ type = "gru", hidden_size = 5, bias = false }', lambda: gru(4, 5, bias=False, batch_first=True), 5),
        one("gru_two_both", '{ type = "gru", hidden_size = 3, num_layers = 2, bidirectional = true }',
            lambda: gru(4, 3, 2, batch_first=True, bidirectional=True), 6),
        one("rnn", '{ type = "rnn", hidden_size = 5, num_layers = 2 }', lambda: rnn(4, 5, 2, batch_first=True), 5),
        one("rnn_relu_both", '{ type = "rnn", hidden_size = 4, nonlinearity = "relu", bidirectional = true }',
            lambda: rnn(4, 4, nonlinearity="relu", batch_first=True, bidirectional=True), 8),
    ]  # fmt: skip


def cases() -> list[Case]:
    return linear() + conv() + upsampling() + norm() + pool() + activation() + shape() + rearranged() + transformer() + recurrent() + sequence() + tabular() + loss()
