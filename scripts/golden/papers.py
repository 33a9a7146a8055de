"""Optimizers that PyTorch does not have, or not in every type, each written from its paper."""

import torch


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                c = beta1 * m + (1 - beta1) * p.grad
                p -= group["lr"] * (c.sign() + group["weight_decay"] * p)
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def _ratio(coefficient: float, p: torch.Tensor, denominator: float) -> float:
    """How long a step is in proportion to its parameter; 1 where there is no proportion."""
    norm = p.norm().item()
    return coefficient * norm / denominator if norm > 0 and denominator > 0 else 1.0


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", algorithm 2."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, always_adapt=False):
        adapt = {"weight_decay": weight_decay, "always_adapt": always_adapt}
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps} | adapt)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                t = state["t"] = state.get("t", 0) + 1
                m = state.setdefault("m", torch.zeros_like(p))
                v = state.setdefault("v", torch.zeros_like(p))
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                r = (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + group["eps"])
                r += group["weight_decay"] * p
                adapts = group["always_adapt"] or group["weight_decay"] != 0
                p -= group["lr"] * (_ratio(1.0, p, r.norm().item()) if adapts else 1.0) * r


class Lars(torch.optim.Optimizer):
    """You et al. 2017, "Large Batch Training of Convolutional Networks", algorithm 1."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=5e-4, trust_coefficient=1e-3, eps=1e-8, always_adapt=False):
        adapt = {"trust_coefficient": trust_coefficient, "eps": eps, "always_adapt": always_adapt}
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay} | adapt)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            decay = group["weight_decay"]
            for p in group["params"]:
                v = self.state[p].setdefault("v", torch.zeros_like(p))
                grad = p.grad.norm().item()
                adapts = (group["always_adapt"] or decay != 0) and grad > 0
                denominator = grad + decay * p.norm().item() + group["eps"]
                rate = _ratio(group["trust_coefficient"], p, denominator) if adapts else 1.0
                v.mul_(group["momentum"]).add_(p.grad + decay * p, alpha=group["lr"] * rate)
                p -= v


def orthogonalized(x: torch.Tensor, coefficients, steps: int, eps: float) -> torch.Tensor:
    """Jordan 2024: Newton-Schulz iterations, as torch.optim.Muon does them, but in the type of `x`, which may be any shape."""
    a, b, c = coefficients
    y = x.flatten(1)
    y = y / y.norm().clamp(min=eps)
    for _ in range(steps):
        gram = y @ y.T
        y = a * y + (b * gram + c * gram @ gram) @ y
    return y.view_as(x)


LENGTHS = {
    "original": lambda rows, columns: max(1, rows / columns) ** 0.5,
    "match_rms_adamw": lambda rows, columns: 0.2 * max(rows, columns) ** 0.5,
    "spectral_unclamped": lambda rows, columns: (rows / columns) ** 0.5,
}


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon in the parameters' own type for groups with `matrices`, torch.optim.AdamW for the others."""

    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.775, 2.0315), eps=1e-7, ns_steps=5, adjust_lr_fn="original"):  # fmt: skip
        own = {"momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps}
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "adjust_lr_fn": adjust_lr_fn, "betas": (0.9, 0.999)} | own)
        self.rest = torch.optim.AdamW([g for g in self.param_groups if not g["matrices"]] or [{"params": []}])

    @torch.no_grad()
    def step(self):
        # Schedules change the groups here; theirs are the same tables but for what AdamW adds.
        for theirs, ours in zip(self.rest.param_groups, [g for g in self.param_groups if not g["matrices"]]):
            theirs["lr"] = ours["lr"]
        self.rest.step()
        for group in self.param_groups:
            if not group["matrices"]:
                continue
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - group["momentum"])
                d = p.grad.lerp(m, group["momentum"]) if group["nesterov"] else m
                d = orthogonalized(d, group["ns_coefficients"], group["ns_steps"], group["eps"])
                length = LENGTHS[group["adjust_lr_fn"]](p.shape[0], p[0].numel())
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(d, alpha=group["lr"] * length)


class AdamWScheduleFree(torch.optim.Optimizer):
    """Defazio et al. 2024, "The Road Less Scheduled", with Adam's denominator and weight decay at y. The parameters are y, where gradients
    are taken; z descends, and x is the average of z that is evaluated: y = (1 - beta1) z + beta1 x."""

    def __init__(self, params, lr=2.5e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, warmup_steps=0, r=0.0, weight_lr_power=2.0):  # fmt: skip
        average = {"warmup_steps": warmup_steps, "r": r, "weight_lr_power": weight_lr_power}
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay} | average)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            t = group["t"] = group.get("t", 0) + 1
            lr = group["scheduled_lr"] = group["lr"] * min(1.0, t / max(1, group["warmup_steps"]))
            largest = group["largest"] = max(lr, group.get("largest", 0.0))
            weight = t ** group["r"] * largest ** group["weight_lr_power"]
            total = group["total"] = group.get("total", 0.0) + weight
            c = weight / total
            for y in group["params"]:
                state = self.state[y]
                z = state.setdefault("z", y.clone())
                v = state.setdefault("v", torch.zeros_like(y))
                v.mul_(beta2).addcmul_(y.grad, y.grad, value=1 - beta2)
                d = y.grad / ((v / (1 - beta2**t)).sqrt() + group["eps"]) + group["weight_decay"] * y
                # x is not kept: what it becomes shows in y.
                y.copy_((1 - c) * y + c * z - lr * (1 - beta1 * (1 - c)) * d)
                z.sub_(lr * d)

    @torch.no_grad()
    def average(self, y: torch.Tensor) -> torch.Tensor:
        """x of the parameter y."""
        beta1 = next(g["betas"][0] for g in self.param_groups if any(y is p for p in g["params"]))
        z = self.state[y]["z"]
        return z + (y - z) / beta1


@torch.no_grad()
def clip_grad_adaptive_(parameters, factor: float, eps: float = 1e-3) -> None:
    """Brock et al. 2021, "High-Performance Large-Scale Image Recognition Without Normalization", equation 3: by rows."""
    for p in parameters:
        if p.grad is None:
            continue
        norm = lambda x: x.norm() if x.dim() < 2 else x.flatten(1).norm(dim=1).view(-1, *[1] * (x.dim() - 1))
        limit, size = factor * norm(p).clamp(min=eps), norm(p.grad)
        p.grad.copy_(torch.where(size > limit, p.grad * limit / size.clamp(min=1e-6), p.grad))
