"""Optimizers, schedules, accumulation, clipping, groups and freezing, on one small net."""

from nets import named
from torch import nn

from case import Case

LINES = [
    '{ name = "a", type = "linear", out_features = 6 }',
    '"tanh"',
    '{ name = "norm", type = "layer_norm" }',
    '{ name = "b", type = "linear", out_features = 4 }',
]


def net() -> nn.Module:
    return named(a=nn.Linear(5, 6), act=nn.Tanh(), norm=nn.LayerNorm(6), b=nn.Linear(6, 4))


def one(name: str, optimizer: dict, **more) -> Case:
    """Two epochs of three batches, the last one smaller: six steps."""
    more = {"samples": 11, "batch_size": 4, "epochs": 2, "classes": 4} | more
    return Case(name, LINES, net, (5,), optimizer=optimizer, **more)


def averaged(name: str, optimizer: dict, **more) -> Case:
    """With batch norm, whose statistics belong to the weights, and validation."""
    lines = [LINES[0], LINES[1], '{ name = "norm", type = "batch_norm1d" }', LINES[3]]
    make = lambda: named(a=nn.Linear(5, 6), act=nn.Tanh(), norm=nn.BatchNorm1d(6), b=nn.Linear(6, 4))
    more = {"samples": 14, "batch_size": 6, "epochs": 3, "classes": 4, "val_samples": 6} | more
    return Case(name, lines, make, (5,), optimizer=optimizer, **more)


def rules() -> list[Case]:
    settings = {
        "sgd": {"type": "sgd", "lr": 0.1},
        "sgd_momentum": {"type": "sgd", "lr": 0.1, "momentum": 0.9},
        "sgd_dampening": {"type": "sgd", "lr": 0.1, "momentum": 0.8, "dampening": 0.3},
        "sgd_nesterov": {"type": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True},
        "sgd_weight_decay": {"type": "sgd", "lr": 0.1, "weight_decay": 0.05},
        "sgd_all": {"type": "sgd", "lr": 0.1, "momentum": 0.7, "weight_decay": 0.02, "nesterov": True},
        "adam": {"type": "adam", "lr": 0.01},
        "adam_defaults": {"type": "adam"},
        "adam_arguments": {"type": "adam", "lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1},
        "adam_amsgrad": {"type": "adam", "lr": 0.02, "betas": [0.7, 0.6], "amsgrad": True},
        "adamw": {"type": "adamw", "lr": 0.01},
        "adamw_arguments": {"type": "adamw", "lr": 0.02, "betas": [0.85, 0.9], "eps": 1e-4, "weight_decay": 0.3},
        "adamw_amsgrad": {"type": "adamw", "lr": 0.02, "betas": [0.7, 0.6], "weight_decay": 0.2, "amsgrad": True},
        "rmsprop": {"type": "rmsprop"},
        "rmsprop_alpha": {"type": "rmsprop", "lr": 0.005, "alpha": 0.9, "eps": 1e-3},
        "rmsprop_momentum": {"type": "rmsprop", "lr": 0.005, "momentum": 0.6},
        "rmsprop_centered": {"type": "rmsprop", "lr": 0.003, "alpha": 0.8, "eps": 1e-2, "centered": True},
        "rmsprop_all": {"type": "rmsprop", "lr": 0.003, "alpha": 0.8, "eps": 1e-2, "centered": True, "momentum": 0.5, "weight_decay": 0.1},
    }  # fmt: skip
    later = {
        "nadam": {"type": "nadam"},
        "nadam_arguments": {"type": "nadam", "lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1, "momentum_decay": 0.3},
        "nadam_decoupled": {"type": "nadam", "lr": 0.02, "weight_decay": 0.3, "decoupled_weight_decay": True},
        # With these decays the variance is taken from the sixth step on; it never is with such a second decay.
        "radam": {"type": "radam", "lr": 0.01},
        "radam_never": {"type": "radam", "lr": 0.02, "betas": [0.8, 0.5], "weight_decay": 0.1},
        "radam_decoupled": {"type": "radam", "lr": 0.02, "betas": [0.9, 0.95], "weight_decay": 0.3, "decoupled_weight_decay": True},
        "adagrad": {"type": "adagrad"},
        "adagrad_arguments": {"type": "adagrad", "lr": 0.03, "lr_decay": 0.2, "weight_decay": 0.1, "initial_accumulator_value": 0.02, "eps": 1e-3},
        "adadelta": {"type": "adadelta"},
        "adadelta_arguments": {"type": "adadelta", "lr": 0.6, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1},
        "adamax": {"type": "adamax"},
        "adamax_arguments": {"type": "adamax", "lr": 0.01, "betas": [0.8, 0.9], "eps": 1e-3, "weight_decay": 0.1},
        "lion": {"type": "lion", "lr": 1e-3},
        "lion_arguments": {"type": "lion", "lr": 3e-3, "betas": [0.8, 0.9], "weight_decay": 0.4},
        "lamb": {"type": "lamb"},
        "lamb_arguments": {"type": "lamb", "lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.2},
        # The bias of the layer norm begins with zeros, which have no norm.
        "lamb_always": {"type": "lamb", "lr": 0.01, "weight_decay": 0.0, "always_adapt": True},
        "lamb_never": {"type": "lamb", "lr": 0.01, "weight_decay": 0.0},
        "lars": {"type": "lars", "lr": 2.0},
        "lars_arguments": {"type": "lars", "lr": 0.5, "momentum": 0.7, "weight_decay": 0.1, "trust_coefficient": 0.05, "eps": 1e-3},
        "lars_always": {"type": "lars", "lr": 0.5, "weight_decay": 0.0, "trust_coefficient": 0.02, "always_adapt": True},
        "lars_never": {"type": "lars", "lr": 0.1, "weight_decay": 0.0},
    }  # fmt: skip
    muon = {
        "muon": {"type": "muon"},
        # Wide and tall matrices: that of the last layer is wide.
        "muon_all": {"type": "muon", "lr": 0.02, "adamw": {"match": []}},
        "muon_arguments": {"type": "muon", "lr": 0.01, "weight_decay": 0.5, "momentum": 0.8, "nesterov": False, "ns_coefficients": [2.0, -1.5, 0.5], "ns_steps": 3, "eps": 1.0, "adjust_lr_fn": "match_rms_adamw"},
        "muon_adamw": {"type": "muon", "lr": 0.02, "adjust_lr_fn": "spectral_unclamped", "adamw": {"match": ["a.*"], "lr": 0.003, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.4}},
    }  # fmt: skip
    groups = [{"match": ["*.bias", "norm.*"], "weight_decay": 0.0}, {"match": ["b.*"], "lr": 0.005, "weight_decay": 0.4}]
    schedule = {"schedule": {"type": "cosine", "min_lr": 0.002}, "train": {"clip_grad_norm": 0.3, "accumulate": 2}}
    grouped = {"type": "muon", "lr": 0.01, "adamw": {"match": []}}
    images = [
        '{ name = "a", type = "conv2d", out_channels = 4, kernel_size = 2 }',
        '"tanh"',
        '{ name = "d", type = "conv2d", out_channels = 4, kernel_size = 2, groups = 4 }',
        '"flatten"',
        '{ name = "b", type = "linear", out_features = 5 }',
    ]
    convolutions = lambda: named(a=nn.Conv2d(3, 4, 2), act=nn.Tanh(), d=nn.Conv2d(4, 4, 2, groups=4), f=nn.Flatten(), b=nn.Linear(16, 5))
    more = [
        one("optimizers/muon_groups", grouped, epochs=4, groups=groups, freeze=["a.bias"], **schedule),
        Case("optimizers/muon_conv", images, convolutions, (3, 4, 4), samples=11, batch_size=4, epochs=4, classes=5, optimizer={"type": "muon", "lr": 0.01, "adamw": {"match": []}}),
    ]  # fmt: skip
    adafactor = {
        "adafactor": {"type": "adafactor"},
        "adafactor_arguments": {"type": "adafactor", "lr": 0.3, "beta2_decay": -0.5, "eps": [0.01, 0.3], "d": 1.5, "weight_decay": 0.2},
    }  # fmt: skip
    free = {
        "schedule_free": {"type": "adamw_schedule_free", "lr": 0.02},
        "schedule_free_arguments": {"type": "adamw_schedule_free", "lr": 0.05, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.3, "warmup_steps": 7, "r": 0.5, "weight_lr_power": 1.5},
        "schedule_free_defaults": {"type": "adamw_schedule_free"},
    }  # fmt: skip
    # Kernels of one pixel, of several rows and columns, and of single channels; columns that are permuted; tensors of three dimensions.
    kernels = [
        '{ name = "a", type = "conv2d", out_channels = 4, kernel_size = [2, 3] }',
        '"tanh"',
        '{ name = "p", type = "conv2d", out_channels = 6, kernel_size = 1 }',
        '{ name = "norm", type = "layer_norm", normalized_dims = 3 }',
        '{ name = "d", type = "conv2d", out_channels = 6, kernel_size = 2, groups = 6 }',
        '"tanh"',
        '"flatten"',
        '{ name = "b", type = "linear", out_features = 5 }',
    ]
    kernels_net = lambda: named(a=nn.Conv2d(3, 4, (2, 3)), act=nn.Tanh(), p=nn.Conv2d(4, 6, 1), norm=nn.LayerNorm((6, 4, 3)), d=nn.Conv2d(6, 6, 2, groups=6), act2=nn.Tanh(), f=nn.Flatten(), b=nn.Linear(36, 5))
    sequence = ['{ name = "a", type = "conv1d", out_channels = 4, kernel_size = 3 }', '"tanh"', '"flatten"', '{ name = "b", type = "linear", out_features = 5 }']
    sequence_net = lambda: named(a=nn.Conv1d(2, 4, 3), act=nn.Tanh(), f=nn.Flatten(), b=nn.Linear(24, 5))
    sizes = {"samples": 11, "batch_size": 4, "epochs": 8, "classes": 5}
    decayed = {"type": "adafactor", "lr": 0.05, "weight_decay": 0.1}
    limits = {"clip_grad_adaptive": 0.02, "clip_grad_adaptive_except": ["b.*"]}
    more += [
        Case("optimizers/adafactor_conv", kernels, kernels_net, (3, 5, 5), optimizer=decayed, **sizes),
        Case("optimizers/adafactor_sequence", sequence, sequence_net, (2, 8), optimizer=decayed, **sizes),
        one("optimizers/adafactor_groups", {"type": "adafactor", "lr": 0.05}, epochs=4, groups=groups, freeze=["a.bias"], **schedule),
        one("optimizers/schedule_free_groups", free["schedule_free"], epochs=4, groups=groups, freeze=["a.bias"], train=schedule["train"]),
        averaged("optimizers/schedule_free_norm", free["schedule_free"], epochs=4),
        averaged("optimizers/schedule_free_norm_accumulate", free["schedule_free_arguments"], epochs=6, train={"accumulate": 2}),
        Case("training/clip_adaptive_conv", kernels, kernels_net, (3, 5, 5), optimizer={"type": "sgd", "lr": 0.1, "momentum": 0.9}, train=limits, **sizes),
    ]  # fmt: skip
    # Eight epochs, 24 steps: what depends on the number of the step has changed by then.
    return [one(f"optimizers/{name}", settings[name]) for name in settings] + [
        one(f"optimizers/{name}", later[name], epochs=8) for name in later
    ] + [one(f"optimizers/{name}", muon[name], epochs=8) for name in muon] + [
        one(f"optimizers/{name}", arguments, epochs=8) for name, arguments in (adafactor | free).items()
    ] + more


def training() -> list[Case]:
    momentum = {"type": "sgd", "lr": 0.1, "momentum": 0.9}
    adamw = {"type": "adamw", "lr": 0.01}
    groups = [
        {"match": ["*.bias", "norm.*"], "weight_decay": 0.0},
        {"match": ["b.*"], "lr": 0.02, "weight_decay": 0.4},
    ]
    return [
        one("training/clip", momentum, train={"clip_grad_norm": 0.5}),
        one("training/clip_not_reached", momentum, train={"clip_grad_norm": 100.0}),
        one("training/clip_value", momentum, train={"clip_grad_value": 0.02}),
        one("training/clip_adaptive", momentum, train={"clip_grad_adaptive": 0.01}),
        one("training/clip_adaptive_accumulate", adamw, epochs=4, train={"clip_grad_adaptive": 0.05, "accumulate": 2}),
        one("training/clip_value_adamax", {"type": "adamax", "weight_decay": 0.1}, train={"clip_grad_value": 0.05, "accumulate": 2}),
        one("training/clip_adam", {"type": "adam", "lr": 0.01, "eps": 0.01}, train={"clip_grad_norm": 0.1}),
        # Three batches an epoch, two to a step: the last step of an epoch has one.
        one("training/accumulate", momentum, epochs=3, train={"accumulate": 2}),
        # Micro-batches of four, four and three in a step.
        one("training/accumulate_all", adamw, epochs=6, train={"accumulate": 3}),
        one("training/accumulate_more_than_there_are", momentum, epochs=4, train={"accumulate": 5}),
        one("training/accumulate_clip", momentum, epochs=3, train={"accumulate": 2, "clip_grad_norm": 0.3}),
        one("training/groups", adamw, groups=groups),
        one("training/groups_sgd", {"type": "sgd", "lr": 0.1, "momentum": 0.5, "weight_decay": 0.1}, groups=groups),
        one("training/groups_nadam", {"type": "nadam", "lr": 0.01, "weight_decay": 0.1}, groups=groups, freeze=["a.bias"]),
        one("training/groups_schedule", adamw, groups=groups, schedule={"type": "cosine"}),
        one("training/freeze", momentum, freeze=["a.*"]),
        one("training/freeze_middle", adamw, freeze=["norm.*", "b.bias"]),
        averaged("training/swa", {"type": "sgd", "lr": 0.1, "momentum": 0.9, "swa": {"start": 2}}, epochs=5),
        averaged("training/swa_lr", {"type": "sgd", "lr": 0.1, "swa": {"start": 1, "lr": 0.03, "anneal_epochs": 3}}, epochs=6, schedule={"type": "cosine", "min_lr": 0.02}),
        averaged("training/swa_linear", {"type": "adamw", "lr": 0.01, "swa": {"start": 0, "lr": 0.005, "anneal_epochs": 2, "anneal_strategy": "linear"}}, train={"accumulate": 2}),
        averaged("training/swa_at_once", {"type": "sgd", "lr": 0.1, "swa": {"start": 2, "lr": 0.02, "anneal_epochs": 0}}, epochs=4),
        one("training/max_steps", momentum, epochs=2, train={"max_steps": 4}),
    ]


def schedules() -> list[Case]:
    sgd = {"type": "sgd", "lr": 0.2}
    settings = {
        "constant": ({"type": "constant"}, 2),
        "constant_warmup": ({"type": "constant", "warmup_steps": 4}, 2),
        "step": ({"type": "step", "step_epochs": 1, "gamma": 0.5}, 3),
        "step_two": ({"type": "step", "step_epochs": 2}, 5),
        "milestones": ({"type": "step", "milestones": [1, 3], "gamma": 0.3}, 4),
        "step_warmup": ({"type": "step", "step_epochs": 1, "gamma": 0.5, "warmup_steps": 4}, 3),
        "cosine": ({"type": "cosine"}, 3),
        "cosine_min": ({"type": "cosine", "min_lr": 0.05}, 3),
        "cosine_shorter": ({"type": "cosine", "min_lr": 0.01, "epochs": 2}, 3),
        "cosine_warmup_epochs": ({"type": "cosine", "warmup_epochs": 1}, 3),
        "cosine_warmup_steps": ({"type": "cosine", "warmup_steps": 2, "warmup_start_factor": 0.1, "min_lr": 0.02}, 3),
    }
    out = [one(f"schedules/{name}", sgd, schedule=s, epochs=epochs) for name, (s, epochs) in settings.items()]
    accumulated = {"schedule": {"type": "cosine", "warmup_epochs": 1}, "train": {"accumulate": 2}}
    return out + [one("schedules/cosine_accumulate", sgd, epochs=4, **accumulated)]


def cases() -> list[Case]:
    return rules() + training() + schedules()
