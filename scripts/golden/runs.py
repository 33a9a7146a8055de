"""Whole runs: three epochs over a small set whose last batch is smaller, with validation after each."""

import torch
from nets import Gate, Residual, named
from torch import nn

from case import Case

FLATTEN = '"flatten"'
COMMON = {"samples": 22, "batch_size": 8, "val_samples": 10, "epochs": 3, "randomize": False}


def mlp() -> Case:
    lines = [
        FLATTEN,
        '{ type = "linear", out_features = 24 }',
        '"relu"',
        '{ type = "dropout", p = 0.0 }',
        '{ type = "linear", out_features = 12 }',
        '"relu"',
        '{ type = "linear", out_features = 5 }',
    ]

    def net() -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(36, 24), nn.ReLU(), nn.Dropout(0.0), nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, 5)
        )

    return Case("runs/mlp", lines, net, (1, 6, 6), classes=5, optimizer={"type": "adam", "lr": 0.003}, **COMMON)


def regression() -> Case:
    lines = ['{ type = "linear", out_features = 9 }', '"silu"', '{ type = "linear", out_features = 2 }']
    net = lambda: nn.Sequential(nn.Linear(6, 9), nn.SiLU(), nn.Linear(9, 2))  # noqa: E731
    return Case("runs/regression", lines, net, (6,), optimizer={"type": "rmsprop", "lr": 0.002}, **COMMON)


def linear_regression() -> Case:
    lines = ['{ type = "linear", out_features = 1 }']
    more = COMMON | {"samples": 20, "batch_size": 20, "epochs": 100}
    return Case("runs/linear_regression", lines, lambda: nn.Sequential(nn.Linear(10, 1)), (10,), optimizer={"type": "sgd", "lr": 0.01}, **more)


def everything_at_once() -> Case:
    """Accumulation, clipping, groups, a schedule and AdamW together."""
    lines = [
        '{ name = "embed", type = "conv2d", out_channels = 6, kernel_size = 3, stride = 3, bias = false }',
        '{ name = "norm1", type = "group_norm", num_groups = 3 }',
        '"gelu"',
        FLATTEN,
        '{ name = "norm2", type = "layer_norm" }',
        '{ name = "hidden", type = "linear", out_features = 18 }',
        '{ type = "gelu", approximate = "tanh" }',
        '{ name = "head", type = "linear", out_features = 4 }',
    ]

    def net() -> nn.Module:
        return named(
            embed=nn.Conv2d(2, 6, 3, 3, bias=False),
            norm1=nn.GroupNorm(3, 6),
            act1=nn.GELU(),
            flatten=nn.Flatten(),
            norm2=nn.LayerNorm(54),
            hidden=nn.Linear(54, 18),
            act2=nn.GELU("tanh"),
            head=nn.Linear(18, 4),
        )

    more = COMMON | {"batch_size": 4, "epochs": 4}
    return Case(
        "runs/everything_at_once", lines, net, (2, 10, 9), classes=4, label_smoothing=0.05,
        optimizer={"type": "adamw", "lr": 0.004, "weight_decay": 0.1, "betas": [0.9, 0.95]},
        groups=[{"match": ["*.bias", "norm*"], "weight_decay": 0.0}, {"match": ["head.*"], "lr": 0.008}],
        schedule={"type": "cosine", "warmup_steps": 3}, train={"accumulate": 4, "clip_grad_norm": 0.5}, **more,
    )  # fmt: skip


def cnn() -> Case:
    lines = [
        '{ name = "features", layers = ['
        '{ type = "conv2d", out_channels = 6, kernel_size = 3, padding = 1, bias = false }, "batch_norm2d", "relu", '
        '{ type = "max_pool2d", kernel_size = 2 }, '
        '{ type = "conv2d", out_channels = 10, kernel_size = 3 }, "relu", '
        '{ type = "max_pool2d", kernel_size = 3, stride = 2, padding = 1 }] }',
        '{ name = "classifier", layers = ["flatten", { type = "linear", out_features = 16 }, "relu", '
        '{ type = "linear", out_features = 7 }] }',
    ]

    def net() -> nn.Module:
        features = nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 10, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        return named(features=features, classifier=nn.Sequential(nn.Flatten(), nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 7)))

    sgd = {"type": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}
    return Case("runs/cnn", lines, net, (2, 11, 9), classes=7, optimizer=sgd, label_smoothing=0.1, train={"clip_grad_norm": 2.0}, **COMMON)


RESNET_BLOCKS = """
[blocks.basic]
params = { planes = 64, stride = 1 }
layers = [
  { type = "residual", layers = [
    { name = "conv1", type = "conv2d", out_channels = "$planes", kernel_size = 3, stride = "$stride", padding = 1, bias = false },
    { name = "bn1", type = "batch_norm2d" },
    "relu",
    { name = "conv2", type = "conv2d", out_channels = "$planes", kernel_size = 3, padding = 1, bias = false },
    { name = "bn2", type = "batch_norm2d" },
  ], projection = { name = "downsample", layers = [
    { type = "conv2d", out_channels = "$planes", kernel_size = 1, stride = "$stride", bias = false },
    { type = "batch_norm2d" },
  ] } },
  "relu",
]
"""


class BasicBlock(Residual):
    """torchvision's, by names and arithmetic."""

    def __init__(self, inputs: int, planes: int, stride: int = 1):
        down = None
        if inputs != planes or stride != 1:
            down = nn.Sequential(nn.Conv2d(inputs, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))
        super().__init__(
            down,
            conv1=nn.Conv2d(inputs, planes, 3, stride, 1, bias=False),
            bn1=nn.BatchNorm2d(planes),
            act=nn.ReLU(),
            conv2=nn.Conv2d(planes, planes, 3, 1, 1, bias=False),
            bn2=nn.BatchNorm2d(planes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).relu()


def resnet() -> Case:
    lines = [
        '{ name = "conv1", type = "conv2d", out_channels = 6, kernel_size = 5, stride = 2, padding = 2, bias = false }',
        '{ name = "bn1", type = "batch_norm2d" }',
        '"relu"',
        '{ type = "max_pool2d", kernel_size = 3, stride = 2, padding = 1 }',
        '{ name = "layer1", block = "basic", repeat = 2, with = { planes = 6 } }',
        '{ name = "layer2", block = "basic", repeat = 2, with = { planes = 10 }, first = { stride = 2 } }',
        '{ type = "adaptive_avg_pool2d", output_size = 1 }',
        FLATTEN,
        '{ name = "fc", type = "linear", out_features = 6 }',
    ]

    def net() -> nn.Module:
        return named(
            conv1=nn.Conv2d(3, 6, 5, 2, 2, bias=False),
            bn1=nn.BatchNorm2d(6),
            relu=nn.ReLU(),
            maxpool=nn.MaxPool2d(3, 2, 1),
            layer1=nn.Sequential(BasicBlock(6, 6), BasicBlock(6, 6)),
            layer2=nn.Sequential(BasicBlock(6, 10, 2), BasicBlock(10, 10)),
            avgpool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(10, 6),
        )

    sgd = {"type": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 5e-4}
    schedule = {"type": "cosine", "warmup_epochs": 1}
    return Case("runs/resnet", lines, net, (3, 17, 15), classes=6, optimizer=sgd, schedule=schedule, blocks=RESNET_BLOCKS, **COMMON)


MOBILE_BLOCKS = """
[blocks.inverted]
params = { expanded = 8, out = 8, kernel = 3, stride = 1, squeeze = 4 }
layers = [
  { type = "residual", shortcut = "if_same_shape", layers = [
    { name = "expand", layers = [{ type = "conv2d", out_channels = "$expanded", kernel_size = 1, bias = false }, "batch_norm2d", "hardswish"] },
    { name = "depthwise", layers = [{ type = "conv2d", out_channels = "$expanded", kernel_size = "$kernel", stride = "$stride", padding = "($kernel - 1) / 2", groups = "$expanded", bias = false }, "batch_norm2d", "hardswish"] },
    { name = "se", type = "gate", layers = [
      { type = "adaptive_avg_pool2d", output_size = 1 },
      { name = "fc1", type = "conv2d", out_channels = "$squeeze", kernel_size = 1 },
      "relu",
      { name = "fc2", type = "conv2d", out_channels = "$expanded", kernel_size = 1 },
      "hardsigmoid",
    ] },
    { name = "project", layers = [{ type = "conv2d", out_channels = "$out", kernel_size = 1, bias = false }, "batch_norm2d"] },
  ] },
  "hardswish",
]
"""


class Inverted(Residual):
    """MobileNetV3's block, with an activation behind it: without one, the next block's batch norm takes off what the
    shift of this one's adds, and its gradient is nothing but rounding errors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.hardswish(super().forward(x))


def inverted(inputs: int, expanded: int, outputs: int, kernel: int, stride: int, squeeze: int) -> nn.Module:
    """A block of the given sizes."""
    return Inverted(
        None,
        True,
        expand=nn.Sequential(nn.Conv2d(inputs, expanded, 1, bias=False), nn.BatchNorm2d(expanded), nn.Hardswish()),
        depthwise=nn.Sequential(
            nn.Conv2d(expanded, expanded, kernel, stride, (kernel - 1) // 2, groups=expanded, bias=False),
            nn.BatchNorm2d(expanded),
            nn.Hardswish(),
        ),
        se=Gate(
            pool=nn.AdaptiveAvgPool2d(1),
            fc1=nn.Conv2d(expanded, squeeze, 1),
            act=nn.ReLU(),
            fc2=nn.Conv2d(squeeze, expanded, 1),
            scale=nn.Hardsigmoid(),
        ),
        project=nn.Sequential(nn.Conv2d(expanded, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
    )


def mobilenet() -> Case:
    lines = [
        '{ name = "stem", layers = [{ type = "conv2d", out_channels = 8, kernel_size = 3, stride = 2, padding = 1, bias = false }, '
        '"batch_norm2d", "hardswish"] }',
        '{ name = "block1", block = "inverted", with = { expanded = 16 } }',
        '{ name = "block2", block = "inverted", with = { expanded = 20, out = 10, kernel = 5, stride = 2, squeeze = 6 } }',
        '{ type = "adaptive_avg_pool2d", output_size = 1 }',
        FLATTEN,
        '{ name = "head", type = "linear", out_features = 14 }',
        '"hardswish"',
        '{ name = "fc", type = "linear", out_features = 5 }',
    ]

    def net() -> nn.Module:
        return named(
            stem=nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()),
            block1=inverted(8, 16, 8, 3, 1, 4),
            block2=inverted(8, 20, 10, 5, 2, 6),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            head=nn.Linear(10, 14),
            act=nn.Hardswish(),
            fc=nn.Linear(14, 5),
        )

    sgd = {"type": "sgd", "lr": 0.05, "momentum": 0.9}
    return Case("runs/mobilenet", lines, net, (3, 13, 15), classes=5, optimizer=sgd, blocks=MOBILE_BLOCKS, **COMMON)


def cases() -> list[Case]:
    return [mlp(), regression(), linear_regression(), everything_at_once(), cnn(), resnet(), mobilenet()]
