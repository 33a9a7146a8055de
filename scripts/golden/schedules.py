"""The learning rate of every update, from PyTorch's schedulers.

`learning_rates.json` is a list of cases. `schedule` is the section of the configuration, `lr` the optimizer's, `epochs` and
`per_epoch` (updates) the run; `rates` has the learning rate of every update. `figures`, where there are some, are what a validation after
every epoch comes to.
"""

import json
import math
from pathlib import Path

import torch
from torch.optim import lr_scheduler as torch_schedules

LR = 0.2
EPOCHS, PER_EPOCH = 12, 17


def optimizer(lr: float = LR) -> torch.optim.SGD:
    return torch.optim.SGD([torch.zeros(1)], lr=lr)


def scheduler(o: torch.optim.Optimizer, s: dict, length: int):
    """PyTorch's scheduler for a table; `length` is what is left of the run, in what it counts."""
    match s["type"]:
        case "constant":
            return torch_schedules.ConstantLR(o, factor=1.0)
        case "multi_step":
            return torch_schedules.MultiStepLR(o, s["milestones"], s.get("gamma", 0.1))
        case "exponential":
            return torch_schedules.ExponentialLR(o, s["gamma"])
        case "linear":
            return torch_schedules.LinearLR(o, s.get("start_factor", 1.0) or 1e-300, s["end_factor"], s.get("total_iters", length))
        case "polynomial":
            return torch_schedules.PolynomialLR(o, s.get("total_iters", length), s.get("power", 1.0))
        case "cosine":
            return torch_schedules.CosineAnnealingLR(o, length, s.get("min_lr", 0.0))
        case "cosine_restarts":
            return torch_schedules.CosineAnnealingWarmRestarts(o, s["t_0"], s.get("t_mult", 1), s.get("min_lr", 0.0))
        case "one_cycle":
            keys = ("pct_start", "anneal_strategy", "div_factor", "final_div_factor", "three_phase")
            total = s.get("total_steps", length)
            return torch_schedules.OneCycleLR(o, LR, total, cycle_momentum=False, **{k: s[k] for k in keys if k in s})
    raise ValueError(s["type"])


def by(s: dict) -> str:
    return s.get("by", "epoch" if s["type"] in ("multi_step", "exponential", "cosine_restarts", "sequential") else "step")


def rates(s: dict) -> list[float]:
    """Those of a run with the schedule `s`."""
    o = optimizer()
    total = EPOCHS * PER_EPOCH if by(s) == "step" else EPOCHS
    warm = s.get("warmup_steps", 0)
    follows = s["type"] in ("linear", "polynomial", "cosine_restarts")
    rising = lambda o: torch_schedules.LinearLR(o, s.get("warmup_start_factor", 1 / warm), 1.0, warm)
    factors = [1.0] * (EPOCHS * PER_EPOCH)
    if warm and follows:
        assert by(s) == "step"
        moves = torch_schedules.SequentialLR(o, [rising(o), scheduler(o, s, total - warm)], [warm])
    elif s["type"] == "sequential":
        ends = s["milestones"][1:] + [total]
        lengths = s["milestones"][:1] + [end - begin for begin, end in zip(s["milestones"], ends)]
        parts = [scheduler(o, part, length) for part, length in zip(s["schedules"], lengths)]
        moves = torch_schedules.SequentialLR(o, parts, s["milestones"])
    else:
        moves = scheduler(o, s, total)
        if warm:
            other = optimizer(1.0)
            rise = rising(other)
            for i in range(len(factors)):
                factors[i] = other.param_groups[0]["lr"]
                other.step()
                rise.step()
    got = []
    for update in range(EPOCHS * PER_EPOCH):
        got.append(o.param_groups[0]["lr"] * factors[update])
        o.step()
        if by(s) == "step" or (update + 1) % PER_EPOCH == 0:
            last = update + 1 == EPOCHS * PER_EPOCH
            # OneCycleLR counts its own steps, and has an error for one more.
            if not last and not (s["type"] == "one_cycle" and moves.last_epoch + 1 >= moves.total_steps):
                moves.step()
    return got


def plateau(s: dict, figures: list[float]) -> list[float]:
    o = optimizer()
    keys = ("factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps")
    mode = "max" if "accuracy" in s.get("monitor", "") else "min"
    moves = torch_schedules.ReduceLROnPlateau(o, mode, **{k: s[k] for k in keys if k in s})
    got = []
    for figure in figures:
        got.append(o.param_groups[0]["lr"])
        moves.step(figure)
    return got


SCHEDULES = [
    {"type": "multi_step", "milestones": [3, 4, 9], "gamma": 0.3},
    {"type": "multi_step", "milestones": [10, 100, 101], "by": "step"},
    {"type": "multi_step", "milestones": [2, 30], "by": "step", "warmup_steps": 20},
    {"type": "exponential", "gamma": 0.8},
    {"type": "exponential", "gamma": 0.99, "by": "step", "warmup_steps": 9, "warmup_start_factor": 0.25},
    {"type": "linear", "end_factor": 0.0},
    {"type": "linear", "start_factor": 0.1, "end_factor": 0.9, "total_iters": 40},
    {"type": "linear", "start_factor": 1.0, "end_factor": 0.1, "total_iters": 7, "by": "epoch"},
    {"type": "linear", "end_factor": 0.05, "warmup_steps": 30},
    {"type": "polynomial"},
    {"type": "polynomial", "power": 0.9, "total_iters": 150},
    {"type": "polynomial", "power": 2.5, "by": "epoch"},
    {"type": "polynomial", "power": 2.0, "warmup_steps": 25},
    {"type": "cosine_restarts", "t_0": 5},
    {"type": "cosine_restarts", "t_0": 2, "t_mult": 2, "min_lr": 0.01},
    {"type": "cosine_restarts", "t_0": 11, "t_mult": 3, "min_lr": 0.02, "by": "step"},
    {"type": "cosine_restarts", "t_0": 50, "by": "step", "warmup_steps": 13},
    {"type": "one_cycle"},
    {"type": "one_cycle", "anneal_strategy": "linear", "pct_start": 0.2, "div_factor": 10.0, "final_div_factor": 100.0},
    {"type": "one_cycle", "three_phase": True, "total_steps": 180},
    {"type": "one_cycle", "three_phase": True, "anneal_strategy": "linear", "by": "epoch", "pct_start": 0.4},
    {"type": "one_cycle", "pct_start": 0.0, "by": "epoch"},
    {
        "type": "sequential", "milestones": [3, 8],
        "schedules": [
            {"type": "linear", "start_factor": 0.1, "end_factor": 1.0, "by": "epoch"},
            {"type": "exponential", "gamma": 0.7},
            {"type": "multi_step", "milestones": [1, 3], "gamma": 0.5},
        ],
    },
    {
        "type": "sequential", "milestones": [20, 90], "by": "step",
        "schedules": [
            {"type": "linear", "start_factor": 0.01, "end_factor": 1.0},
            {"type": "cosine", "min_lr": 0.05},
            {"type": "polynomial", "power": 2.0},
        ],
    },
    {
        "type": "sequential", "milestones": [31], "by": "step",
        "schedules": [{"type": "constant"}, {"type": "cosine_restarts", "t_0": 20, "t_mult": 2, "by": "step"}],
    },
]  # fmt: skip

# What improves, stands still, and improves by too little.
FALLING = [5.0, 4.0, 4.0, 4.1, 3.9999, 3.9, 3.9, 3.9, 3.9, 3.9, 3.8, 3.8, 3.8, 3.8, 3.79, 3.78, 3.78, 3.79, 3.78, 3.78] + [3.7] * 30
RISING = [0.1, 0.3, 0.3, 0.29, 0.30001, 0.5, 0.5, 0.5, 0.5, 0.49, 0.5, 0.5002, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.6, 0.6] + [0.6] * 10

PLATEAUS = [
    ({"type": "plateau", "patience": 2}, FALLING),
    ({"type": "plateau", "patience": 0, "factor": 0.5, "cooldown": 2, "min_lr": 0.01}, FALLING),
    ({"type": "plateau", "patience": 1, "threshold": 0.15, "threshold_mode": "abs", "factor": 0.3}, FALLING),
    ({"type": "plateau", "patience": 1, "factor": 0.1, "eps": 1e-4}, FALLING),
    ({"type": "plateau", "monitor": "val_accuracy", "patience": 1, "threshold": 0.01, "factor": 0.7}, RISING),
    ({"type": "plateau", "monitor": "val_accuracy", "patience": 3, "threshold_mode": "abs"}, RISING),
]


def toml(value) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def make(path: Path) -> None:
    cases = []
    run = {"lr": LR, "epochs": EPOCHS, "per_epoch": PER_EPOCH}
    for s in SCHEDULES:
        cases.append({"schedule": "\n".join(f"{k} = {toml(v)}" for k, v in s.items()), **run, "rates": rates(s)})
    for s, figures in PLATEAUS:
        text = "\n".join(f"{k} = {toml(v)}" for k, v in s.items())
        run = {"lr": LR, "epochs": len(figures), "per_epoch": 1}
        cases.append({"schedule": text, **run, "figures": figures, "rates": plateau(s, figures)})
    for case in cases:
        assert all(math.isfinite(rate) for rate in case["rates"])
        case["rates"] = [float(f"{rate:.13g}") for rate in case["rates"]]
    lines = [json.dumps(case) for case in cases]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{path.name}: {path.stat().st_size} bytes")
