"""A case: a configuration, the same net in PyTorch, and what PyTorch makes of both.

A case becomes one safetensors file. Its metadata hold the configuration (`config`); its tensors are
`batch.inputs`, `batch.targets`, `batch.val_inputs`, `batch.val_targets`: the data file `batch.safetensors` (where a model takes
several inputs, `batch.NAME` and `batch.val_NAME` for each);
`init.NAME`: the state dict `init.safetensors` that training starts from;
`expected.output`, `expected.eval_output`: what the untrained model makes of the first batch, in training and evaluation mode;
`expected.loss`, `expected.grad.NAME`: loss and gradients of the first step (mean over its micro-batches, before clipping);
`expected.losses`, `expected.lr`: loss and learning rate of every step;
`expected.param.NAME`, `expected.buffer.NAME`: the state dict after the last step;
`expected.val_loss`, `expected.val_accuracy`: after every epoch, where there is validation data.
`file.NAME`: a file of that name, byte by byte; of a case whose configuration reads a table, whose columns are the inputs `x0`, `x1` and
so on, and the targets `y`.
"""

import copy
import dataclasses
import fnmatch
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torchvision
from papers import AdamWScheduleFree, Lamb, Lars, Lion, Muon, clip_grad_adaptive_
from safetensors.torch import save_file
from sklearn.metrics import mean_pinball_loss
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import swa_utils

OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "lion": Lion,
    "lamb": Lamb,
    "lars": Lars,
    "muon": Muon,
    "adafactor": torch.optim.Adafactor,
    "adamw_schedule_free": AdamWScheduleFree,
}


class Focal(nn.Module):
    """Lin et al. 2017 for classes: cross-entropy in which a row counts (1 - p)^gamma as much, divided by the rows' weights."""

    def __init__(self, gamma: float = 2.0, weight: torch.Tensor | None = None, ignore_index: int = -100):
        super().__init__()
        self.gamma, self.weight, self.ignore_index = gamma, weight, ignore_index

    def forward(self, out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        counts = targets != self.ignore_index
        log = out.log_softmax(1).movedim(1, -1)[counts].gather(1, targets[counts][:, None])[:, 0]
        weight = torch.ones_like(log) if self.weight is None else self.weight[targets[counts]]
        return -((1 - log.exp()) ** self.gamma * log * weight).sum() / weight.sum()


class SigmoidFocal(nn.Module):
    def __init__(self, alpha: float = 0.25, gamma: float = 2.0):
        super().__init__()
        self.options = {"alpha": alpha, "gamma": gamma, "reduction": "mean"}

    def forward(self, out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torchvision.ops.sigmoid_focal_loss(out, targets, **self.options)


class Quantile(nn.Module):
    """Koenker and Bassett 1978, as `sklearn.metrics.mean_pinball_loss`; of several quantiles, those of a target side by side, the mean of theirs."""

    def __init__(self, quantile: float | list[float] = 0.5):
        super().__init__()
        self.quantile = quantile

    def forward(self, out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        quantile = self.quantile
        if isinstance(quantile, list):
            out, targets = out.unflatten(-1, (-1, len(quantile))), targets[..., None]
            quantile = torch.tensor(quantile, dtype=out.dtype)
        below = (targets - out).clamp(min=0)
        loss = (quantile * below + (1 - quantile) * (out - targets).clamp(min=0)).mean()
        if isinstance(self.quantile, list):
            t = targets[..., 0].double().flatten().numpy()
            of = [mean_pinball_loss(t, x.detach().double().flatten().numpy(), alpha=q) for x, q in zip(out.unbind(-1), self.quantile)]
            assert abs(sum(of) / len(of) - loss.item()) < 1e-6
        return loss


class PoissonNll(nn.PoissonNLLLoss):
    def __init__(self):
        super().__init__(log_input=False)


class Tweedie(nn.Module):
    """Half the mean deviance of `sklearn.metrics.mean_tweedie_deviance`, less what does not depend on the output; a power of 2: gamma."""

    def __init__(self, power: float = 1.5):
        super().__init__()
        self.power = power

    def forward(self, out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        mean, p = out + 1e-8, self.power
        if p == 2:
            return (mean.log() + targets / mean).mean()
        return (mean ** (2 - p) / (2 - p) - targets * mean ** (1 - p) / (1 - p)).mean()


class GammaNll(Tweedie):
    def __init__(self):
        super().__init__(power=2)


BINARY = ("bce_with_logits", "sigmoid_focal")
# The targets of these are counts, or numbers above 0.
POSITIVE = {"poisson_nll": 0.0, "tweedie": 0.0, "gamma_nll": 0.25}

LOSSES = {
    "nll": nn.NLLLoss,
    "ordinal": nn.NLLLoss,
    "focal": Focal,
    "sigmoid_focal": SigmoidFocal,
    "cross_entropy": nn.CrossEntropyLoss,
    "mse": nn.MSELoss,
    "l1": nn.L1Loss,
    "smooth_l1": nn.SmoothL1Loss,
    "huber": nn.HuberLoss,
    "bce_with_logits": nn.BCEWithLogitsLoss,
    "quantile": Quantile,
    "poisson_nll": PoissonNll,
    "gamma_nll": GammaNll,
    "tweedie": Tweedie,
}


@dataclasses.dataclass
class Case:
    """What is trained and how. `optimizer`, `schedule`, `train` are the sections of the configuration."""

    name: str
    layers: list[str]
    net: Callable[[], nn.Module]
    shape: tuple[int, ...]
    samples: int = 4
    batch_size: int = 0  # 0: all samples
    val_samples: int = 0
    classes: int = 0  # 0: regression with mean squared error
    label_smoothing: float = 0.0
    loss: dict[str, Any] = dataclasses.field(default_factory=dict)  # type and options, where not those above
    ignored: float = 0.0  # share of the targets that do not count
    optimizer: dict[str, Any] = dataclasses.field(default_factory=lambda: {"type": "sgd", "lr": 0.1})
    groups: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    schedule: dict[str, Any] = dataclasses.field(default_factory=dict)
    train: dict[str, Any] = dataclasses.field(default_factory=dict)
    epochs: int = 3
    freeze: list[str] = dataclasses.field(default_factory=list)
    blocks: str = ""
    randomize: bool = True  # draw what starts as zeros and ones, too: scales, shifts, running statistics
    scale: float = 1.0  # of the inputs
    extra_init: Callable[[nn.Module], None] | None = None
    members: int = 0  # of a net that puts out [N, members, F] in training: each has a loss of its own
    inputs: Callable[[int], torch.Tensor] | None = None  # so many samples, where they are not drawn from the normal distribution
    use: str = ""  # the file of `models/` in place of `layers`, with its parameters
    columns: str = ""  # the samples are rows of a table: how its columns are encoded
    fields: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)  # several inputs: parts of a vector of that shape

    def config(self) -> str:
        """The configuration as TOML."""
        lines = ["seed = 1", 'device = "cpu"', "", "[data]"]
        if self.columns:
            lines += ['source = "csv"', 'path = "table.csv"', 'target = "y"', f"columns = {self.columns}"]
            lines += ["standardize_target = false"] + (['val_path = "val.csv"'] if self.val_samples else [])
        else:
            lines += ['source = "tensors"', 'path = "batch.safetensors"']
        lines += [f"batch_size = {self.batch_size or self.samples}", "shuffle = false", ""]
        if self.blocks:
            lines += [self.blocks.strip(), ""]
        lines += ["[model]", 'weights = "init.safetensors"']
        if self.fields:
            lines.append(f"inputs = {toml(list(self.fields))}")
        if self.freeze:
            lines.append(f"freeze = {toml(self.freeze)}")
        if self.use:
            lines += [self.use, ""]
        else:
            lines += ["layers = ["] + [f"  {line}," for line in self.layers] + ["]", ""]
        lines += ["[loss]", f'type = "{self.loss_type()}"']
        lines += [f"{k} = {toml(v)}" for k, v in self.loss.items() if k != "type"]
        if self.label_smoothing:
            lines.append(f"label_smoothing = {self.label_smoothing}")
        lines += ["", "[optimizer]"] + [f"{k} = {toml(v)}" for k, v in self.optimizer.items()]
        for group in self.groups:
            lines += ["", "[[optimizer.groups]]"] + [f"{k} = {toml(v)}" for k, v in group.items()]
        if self.schedule:
            lines += ["", "[schedule]"] + [f"{k} = {toml(v)}" for k, v in self.schedule.items()]
        lines += ["", "[train]", f"epochs = {self.epochs}"] + [f"{k} = {toml(v)}" for k, v in self.train.items()]
        lines += ["", "[log]", "every_steps = 1"]
        return "\n".join(lines) + "\n"

    def loss_type(self) -> str:
        return self.loss.get("type", "cross_entropy" if self.classes else "mse")

    def parts(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The inputs by the names that they have in the data file."""
        if not self.fields:
            return {"inputs": inputs}
        parts = inputs.split([math.prod(shape) for shape in self.fields.values()], 1)
        return {name: part.reshape(-1, *shape) for part, (name, shape) in zip(parts, self.fields.items())}


def criterion(case: Case, dtype: torch.dtype) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The loss of the configuration. Here the classes of a sequence's positions come last, in PyTorch second."""
    options = {k: v for k, v in case.loss.items() if k not in ("type", "target")}
    for key in ("weight", "pos_weight"):
        if key in options:
            options[key] = torch.tensor(options[key], dtype=dtype)
    if case.label_smoothing:
        options["label_smoothing"] = case.label_smoothing
    loss = LOSSES[case.loss_type()](**options)
    if case.members:
        return lambda out, targets: loss(*each_member(case, out, targets)) if out.dim() == 3 else loss(out, targets)
    return lambda out, targets: loss(out.movedim(-1, 1) if case.classes and out.dim() == 3 else out, targets)


def each_member(case: Case, out: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What members predict, and what they are to, one sample behind the other."""
    return out.flatten(0, 1), targets.repeat_interleave(case.members, 0)


def toml(value: Any) -> str:
    """A TOML value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    return repr(value)


@dataclasses.dataclass
class Start:
    """Data and state that a run begins with."""

    net: nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor
    val_inputs: torch.Tensor
    val_targets: torch.Tensor


def start(case: Case, seed: int) -> Start:
    """Draws data and initial state."""
    torch.manual_seed(seed)
    net = case.net()
    with torch.no_grad():
        for module in net.modules() if case.randomize else []:
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.InstanceNorm2d)):
                for name, p in module.named_parameters(recurse=False):
                    p.normal_(1.0 if name == "weight" else 0.0, 0.3)
            if getattr(module, "running_mean", None) is not None:
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 1.5)
                module.num_batches_tracked.fill_(3)
    if case.extra_init:
        with torch.no_grad():
            case.extra_init(net)
    n, v = case.samples, case.val_samples
    inputs = case.inputs(n + v) if case.inputs else case.scale * torch.randn(n + v, *case.shape)
    outputs = copy.deepcopy(net).eval()(inputs[:2]).shape[1:]
    if isinstance(case.loss.get("quantile"), list):
        outputs = (*outputs[:-1], outputs[-1] // len(case.loss["quantile"]))
    if case.classes:
        positions = {1: (), 2: outputs[:1], 3: outputs[1:]}[len(outputs)]
        targets = torch.randint(case.classes, (n + v, *positions))
        if case.ignored:
            targets[torch.rand(targets.shape) < case.ignored] = case.loss.get("ignore_index", -100)
    elif case.loss_type() in BINARY:
        targets = torch.randint(2, (n + v, *outputs)).float()
    elif case.loss_type() in POSITIVE:
        targets = torch.randint(5, (n + v, *outputs)).float() + POSITIVE[case.loss_type()]
    else:
        targets = torch.randn(n + v, *outputs)
    return Start(net, inputs[:n], targets[:n], inputs[n:], targets[n:])


@dataclasses.dataclass
class Result:
    """What came out."""

    output: torch.Tensor
    eval_output: torch.Tensor
    grads: dict[str, torch.Tensor]
    losses: list[float]
    lrs: list[float]
    state: dict[str, torch.Tensor]
    val_loss: list[float]
    val_accuracy: list[float]
    margin: float  # between the two largest outputs of a validation sample, the smallest


def matches(pattern: str, name: str) -> bool:
    """`*` stands for any characters, dots included."""
    return fnmatch.fnmatchcase(name, pattern)


def by_muon(case: Case, net: nn.Module, group: dict) -> list[dict]:
    """The group in two: what Muon updates, and what AdamW does, the last layer by default."""
    adamw = dict(case.optimizer.get("adamw", {}))
    names = {p: n for n, p in net.named_parameters()}
    matrices = [p for p in net.parameters() if p.dim() > 1 and p.shape[0] > 1 and p[0].numel() > 1]
    match = adamw.pop("match", None)
    left = matrices[-1:] if match is None else [p for p in matrices if any(matches(m, names[p]) for m in match)]
    mine = [p for p in matrices if all(p is not q for q in left)]
    is_mine = lambda p: any(p is q for q in mine)
    params = group["params"]
    return [
        {**group, "params": [p for p in params if is_mine(p)], "matrices": True},
        {"eps": 1e-8} | adamw | group | {"params": [p for p in params if not is_mine(p)], "matrices": False},
    ]


def make_optimizer(case: Case, net: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of the configuration; a parameter belongs to the first group that matches it."""
    for name, p in net.named_parameters():
        p.requires_grad_(not any(matches(f, name) for f in case.freeze))
    trainable = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    groups = [{"params": [], **{k: v for k, v in g.items() if k != "match"}} for g in case.groups]
    rest = []
    for name, p in trainable:
        index = next((i for i, g in enumerate(case.groups) if any(matches(m, name) for m in g["match"])), None)
        (rest if index is None else groups[index]["params"]).append(p)
    arguments = {k: v for k, v in case.optimizer.items() if k not in ("type", "swa")}
    if case.optimizer["type"] == "muon":
        groups = [part for group in [{"params": rest}] + groups for part in by_muon(case, net, group)]
        arguments.pop("adamw", None)
        return Muon(groups, **arguments)
    if case.optimizer["type"] == "adafactor":
        # That of single precision, also where this is computed in another one.
        arguments.setdefault("eps", [torch.finfo(torch.float32).eps, 1e-3])
    # First the group whose learning rate is reported.
    return OPTIMIZERS[case.optimizer["type"]]([{"params": rest}] + groups, **arguments)


def make_schedule(case: Case, optimizer: torch.optim.Optimizer, per_epoch: int) -> Callable[[int], None]:
    """Something to call after every step, with the number of steps done.

    `step` drops by epochs, `cosine` falls by steps from the end of the warm-up to the last step; the warm-up rises by
    steps from `warmup_start_factor` (1 / length if not given)."""
    s = case.schedule
    scheduler = torch.optim.lr_scheduler
    warm = s.get("warmup_steps", s.get("warmup_epochs", 0) * per_epoch)
    total = s.get("epochs", case.epochs) * per_epoch
    kind = s.get("type", "constant")
    rising = None
    if warm:
        factor = s.get("warmup_start_factor", 1 / warm)
        rising = scheduler.LinearLR(optimizer, start_factor=factor, total_iters=warm)
    if kind == "cosine":
        falling = scheduler.CosineAnnealingLR(optimizer, T_max=total - warm, eta_min=s.get("min_lr", 0.0))
        both = scheduler.SequentialLR(optimizer, [rising, falling], milestones=[warm]) if rising else falling
        # PyTorch's cosine rises again after T_max; a schedule that ended before the run stays where it is.
        return lambda done: both.step() if done <= total else None
    if kind == "step":
        if "milestones" in s:
            drops = scheduler.MultiStepLR(optimizer, s["milestones"], s.get("gamma", 0.1))
        else:
            drops = scheduler.StepLR(optimizer, s["step_epochs"], s.get("gamma", 0.1))

        def step(done: int) -> None:
            if rising:
                rising.step()
            if done % per_epoch == 0:
                drops.step()

        return step
    return lambda done: rising.step() if rising else None


def train(case: Case, begin: Start, dtype=torch.float32, channels_last=False, noise=0.0) -> Result:
    """Trains a copy of the net. `noise` disturbs data and state by that relative amount."""
    generator = torch.Generator().manual_seed(99)

    def prepared(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x
        x = (x * (1 + noise * torch.randn(x.shape, generator=generator))).to(dtype)
        return x.to(memory_format=torch.channels_last) if channels_last and x.dim() == 4 else x

    net = copy.deepcopy(begin.net)
    if noise:
        net.load_state_dict({k: prepared(v) for k, v in net.state_dict().items()})
    net = net.to(dtype)
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
    inputs, targets = prepared(begin.inputs), begin.targets
    val_inputs, val_targets = prepared(begin.val_inputs), begin.val_targets
    if case.loss.get("target") == "inputs":
        # The file has others, which nothing may look at.
        targets, val_targets = inputs, val_inputs
    if targets.is_floating_point():
        targets, val_targets = targets.to(dtype), val_targets.to(dtype)
    loss_of = criterion(case, dtype)

    size = case.batch_size or case.samples
    batches = [(inputs[i : i + size], targets[i : i + size]) for i in range(0, case.samples, size)]
    accumulate = case.train.get("accumulate", 1)
    steps = [batches[i : i + accumulate] for i in range(0, len(batches), accumulate)]
    optimizer = make_optimizer(case, net)
    schedule = make_schedule(case, optimizer, len(steps))
    with torch.no_grad():
        eval_output = copy.deepcopy(net).eval()(batches[0][0])
        output = copy.deepcopy(net).train()(batches[0][0])
    result = Result(output, eval_output, {}, [], [], {}, [], [], math.inf)

    swa, averaged, annealing = case.optimizer.get("swa"), None, None
    for epoch in range(case.epochs):
        net.train()
        if swa and "lr" in swa and epoch == swa["start"]:
            more = {k: v for k, v in swa.items() if k.startswith("anneal")}
            annealing = swa_utils.SWALR(optimizer, swa["lr"], **more)
        for step in steps:
            optimizer.zero_grad()
            # The mean over all that counts in the micro-batches of the step, as if they were one large batch.
            mean = loss_of(torch.cat([net(x) for x, _ in step]), torch.cat([y for _, y in step]))
            mean.backward()
            loss = mean.item()
            if not result.losses:
                result.grads = {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}
            if "clip_grad_norm" in case.train:
                clip_grad_norm_(net.parameters(), case.train["clip_grad_norm"])
            if "clip_grad_value" in case.train:
                clip_grad_value_(net.parameters(), case.train["clip_grad_value"])
            if "clip_grad_adaptive" in case.train:
                left = case.train.get("clip_grad_adaptive_except", [])
                clipped = [p for n, p in net.named_parameters() if not any(matches(m, n) for m in left)]
                clip_grad_adaptive_(clipped, case.train["clip_grad_adaptive"])
            result.losses.append(loss)
            optimizer.step()
            # The rate that was used, with what the optimizer's own warm-up makes of it.
            group = optimizer.param_groups[0]
            result.lrs.append(group.get("scheduled_lr", group["lr"]))
            if not annealing:
                schedule(len(result.losses))
            if len(result.losses) == case.train.get("max_steps"):
                break
        if annealing:
            annealing.step()
        if swa and epoch >= swa["start"]:
            averaged = averaged or swa_utils.AveragedModel(net)
            averaged.update_parameters(net)
            swa_utils.update_bn([x for x, _ in batches], averaged)
        if isinstance(optimizer, AdamWScheduleFree):
            averaged = copy.deepcopy(net)
            with torch.no_grad():
                for x, y in zip(averaged.parameters(), net.parameters()):
                    x.copy_(optimizer.average(y) if y in optimizer.state else y)
            swa_utils.update_bn([x for x, _ in batches], averaged)
        if case.val_samples:
            validate(case, averaged or net, loss_of, val_inputs, val_targets, result)
        if len(result.losses) == case.train.get("max_steps"):
            break
    result.state = {k: v.clone() for k, v in net.state_dict().items()}
    return result


def validate(case: Case, net, loss_of, inputs, targets, result: Result) -> None:
    """Loss and accuracy on the validation data, all at once."""
    net.eval()
    with torch.no_grad():
        out = net(inputs)
        result.val_loss.append(loss_of(out, targets).item())
        if case.classes:
            dim = 1 if out.dim() != 3 else 2
            right = (out.argmax(dim) == targets)[targets != case.loss.get("ignore_index", -100)]
            result.val_accuracy.append(right.double().mean().item())
            top = out.topk(2, dim=dim).values
            result.margin = min(result.margin, (top.select(dim, 0) - top.select(dim, 1)).min().item())
        elif case.loss_type() in BINARY:
            result.val_accuracy.append(((out > 0) == (targets > 0.5)).double().mean().item())
            result.margin = min(result.margin, out.abs().min().item())


def relative(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor | None = None) -> float:
    """‖a − b‖ over the norm of `scale`, by default of `b`."""
    norm = (b if scale is None else scale).double().norm().item()
    difference = (a.double() - b.double()).norm().item()
    return difference / norm if norm else (math.inf if difference else 0.0)


def faults(case: Case, begin: Start, got: Result) -> list[str]:
    """Why the case is a bad one: PyTorch itself comes to other results in another memory layout, in double precision, or
    from inputs that differ in the last bits (kinks, ties, gradients that are all rounding error)."""
    found = []
    others = {
        "channels last": train(case, begin, channels_last=True),
        "double precision": train(case, begin, dtype=torch.float64),
        "disturbed": train(case, begin, noise=3e-7),
    }
    initial = begin.net.state_dict()
    trained = {n for n, _ in begin.net.named_parameters()} - {n for n in initial if any(matches(f, n) for f in case.freeze)}
    for label, other in others.items():
        for i, (a, b) in enumerate(zip(got.losses + got.val_loss, other.losses + other.val_loss)):
            if abs(a - b) > 5e-6 * abs(b):
                found.append(f"{label}: loss {i}: {a} {b}")
        if relative(got.output, other.output) > 5e-6 or relative(got.eval_output, other.eval_output) > 5e-6:
            found.append(f"{label}: output")
        for name, gradient in got.grads.items():
            if relative(gradient, other.grads[name]) > 2e-5:
                found.append(f"{label}: gradient of {name}: {relative(gradient, other.grads[name]):.1e}")
        for name in trained:
            change = got.state[name] - initial[name]
            error = relative(got.state[name], other.state[name], change)
            if not error < 3e-3:
                found.append(f"{label}: {name}: {error:.1e} of the change")
    for name in trained:
        # A change of 1e-6 of the values would be lost in their rounding.
        if relative(got.state[name], initial[name]) < 2e-4:
            found.append(f"{name} hardly moves")
    if not all(math.isfinite(loss) for loss in got.losses + got.val_loss):
        found.append("a batch in which nothing counts")
    if got.margin < 1e-3:
        found.append("a tie between classes")
    return found


def table(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The bytes of a CSV file."""
    rows = [",".join([*(f"x{i}" for i in range(inputs.shape[1])), "y"])]
    rows += [",".join(repr(number) for number in [*x, y]) for x, (y,) in zip(inputs.tolist(), targets.tolist())]
    return torch.frombuffer(bytearray("\n".join(rows) + "\n", "utf-8"), dtype=torch.uint8)


class NoGoodSeed(Exception):
    """A case that PyTorch cannot repeat."""


def make(case: Case, folder: Path) -> Path:
    """Writes the file of a case, from the first seed that gives a good one."""
    for seed in range(40):
        begin = start(case, seed)
        got = train(case, begin)
        problems = faults(case, begin, got)
        if not problems:
            break
    else:
        raise NoGoodSeed(f"{case.name}: " + "; ".join(problems))

    parameters = {n for n, _ in begin.net.named_parameters()}
    tensors = {f"batch.{n}": t.contiguous() for n, t in case.parts(begin.inputs).items()} | {"batch.targets": begin.targets}
    if case.columns:
        tensors["file.table.csv"] = table(begin.inputs, begin.targets)
        if case.val_samples:
            tensors["file.val.csv"] = table(begin.val_inputs, begin.val_targets)
    if case.val_samples:
        tensors |= {f"batch.val_{n}": t.contiguous() for n, t in case.parts(begin.val_inputs).items()}
        tensors["batch.val_targets"] = begin.val_targets
        tensors["expected.val_loss"] = torch.tensor(got.val_loss, dtype=torch.float64)
        if got.val_accuracy:
            tensors["expected.val_accuracy"] = torch.tensor(got.val_accuracy, dtype=torch.float64)
    tensors |= {f"init.{n}": t for n, t in begin.net.state_dict().items()}
    tensors |= {
        "expected.output": got.output,
        "expected.eval_output": got.eval_output,
        "expected.loss": torch.tensor(got.losses[0], dtype=torch.float64),
        "expected.losses": torch.tensor(got.losses, dtype=torch.float64),
        "expected.lr": torch.tensor(got.lrs, dtype=torch.float64),
    }
    tensors |= {f"expected.grad.{n}": t for n, t in got.grads.items()}
    tensors |= {f"expected.{'param' if n in parameters else 'buffer'}.{n}": t for n, t in got.state.items()}
    path = folder / f"{case.name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    # One key of metadata only: with more, their order would change from run to run.
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, path, metadata={"config": case.config()})
    path.chmod(0o644)
    return path
