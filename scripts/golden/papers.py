"""Optimizers that PyTorch does not have, each written from its paper."""

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
