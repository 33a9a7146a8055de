"""Attention between two sequences, within windows and by distance: tests/golden/combinations."""

import math

import torch
from combinations import FLATTEN, SGD, linear
from torch import nn
from torch.nn import functional as F

from case import Case

WIDTH, HEADS, HIDDEN = 12, 3, 20
FIELDS = {"inputs": (6, WIDTH), "answers": (4, WIDTH)}


def biases(net: nn.Module) -> None:
    """PyTorch starts them at zero, which would hide what they are for."""
    for name, p in net.named_parameters():
        if name.endswith(("in_proj_bias", "out_proj.bias")):
            p.normal_(0, 0.3)


class Two(nn.Module):
    """A net of two sequences, which come side by side."""

    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = math.prod(FIELDS["inputs"])
        return self.of(x[:, :first].reshape(-1, *FIELDS["inputs"]), x[:, first:].reshape(-1, *FIELDS["answers"]))


def two(name: str, lines: list[str], net, **more) -> Case:
    shape = (sum(math.prod(s) for s in FIELDS.values()),)
    return Case(f"combinations/{name}", lines, net, shape, fields=FIELDS, samples=3, extra_init=biases, optimizer=SGD, **more)


LAYER = f"d_model = {WIDTH}, nhead = {HEADS}, dim_feedforward = {HIDDEN}, dropout = 0.0"


def causal(length: int) -> torch.Tensor:
    return torch.full((length, length), -math.inf).triu(1)


def decoder_layer(name: str, words: str = "", **more) -> Case:
    """`nn.TransformerDecoderLayer`."""

    class Net(Two):
        def of(self, inputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
            y = self.layer(answers, inputs, tgt_mask=causal(answers.shape[1]).to(answers.dtype), tgt_is_causal=True)
            return self.head(y.flatten(1))

    layer_line = f'{{ name = "layer", type = "transformer_decoder_layer", from = ["answers", "inputs"], {LAYER}{words} }}'
    layer = lambda: nn.TransformerDecoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True, **more)  # noqa: E731
    net = lambda: Net(layer=layer(), head=nn.Linear(FIELDS["answers"][0] * WIDTH, 3))  # noqa: E731
    return two(name, [layer_line, FLATTEN, linear("head", 3)], net)


def transformer() -> Case:
    """`nn.Transformer` with two layers on each side."""

    class Net(Two):
        def of(self, inputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
            y = self.transformer(inputs, answers, tgt_mask=causal(answers.shape[1]).to(answers.dtype), tgt_is_causal=True)
            return self.head(y.flatten(1))

    lines = [
        '{ name = "transformer", layers = ['
        f'{{ name = "encoder", from = "inputs", layers = [{{ name = "layers", type = "transformer_encoder_layer", {LAYER}, repeat = 2 }}, '
        '{ name = "norm", type = "layer_norm" }] }, '
        f'{{ name = "decoder", layers = [{{ name = "layers", type = "transformer_decoder_layer", from = ["answers", "encoder"], {LAYER}, repeat = 2 }}, '
        '{ name = "norm", type = "layer_norm" }] }] }',
        FLATTEN,
        linear("head", 3),
    ]
    inner = lambda: nn.Transformer(WIDTH, HEADS, 2, 2, HIDDEN, dropout=0.0, batch_first=True)  # noqa: E731
    net = lambda: Net(transformer=inner(), head=nn.Linear(FIELDS["answers"][0] * WIDTH, 3))  # noqa: E731
    return two("transformer", lines, net)


def shared_keys() -> Case:
    """Queries of one sequence, and keys and values of another, of fewer heads."""
    heads, kv_heads, width = 4, 2, 5

    class Net(Two):
        def of(self, inputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
            q = self.q(answers).unflatten(2, (heads, width)).transpose(1, 2)
            k, v = self.kv(inputs).unflatten(2, (2, kv_heads, width)).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            return self.head(y.transpose(1, 2).flatten(1))

    lines = [
        linear("q", heads * width, ', from = "answers"'),
        linear("kv", 2 * kv_heads * width, ', from = "inputs"'),
        f'{{ type = "scaled_dot_product_attention", from = ["q", "kv"], num_heads = {heads}, num_kv_heads = {kv_heads} }}',
        FLATTEN,
        linear("head", 3),
    ]
    parts = lambda: {"q": nn.Linear(WIDTH, heads * width), "kv": nn.Linear(WIDTH, 2 * kv_heads * width)}  # noqa: E731
    return two("attention_to_shared_keys", lines, lambda: Net(**parts(), head=nn.Linear(FIELDS["answers"][0] * heads * width, 3)))


class GroupedAttention(nn.Module):
    """`nn.MultiheadAttention` of heads that share keys and values, with its names for keys of another width than queries."""

    def __init__(self, width: int, heads: int, kv_heads: int, bias: bool, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.is_causal = heads, kv_heads, is_causal
        narrow = width // heads * kv_heads
        for name, rows in [("q", width), ("k", narrow), ("v", narrow)]:
            self.register_parameter(f"{name}_proj_weight", nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, width))))
        self.in_proj_bias = nn.Parameter(torch.zeros(width + 2 * narrow)) if bias else None
        self.out_proj = nn.Linear(width, width, bias=bias)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        weights = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.split([len(w) for w in weights])
        heads = [self.heads, self.kv_heads, self.kv_heads]
        parts = zip([x, memory, memory], weights, biases, heads)
        q, k, v = [F.linear(of, w, b).unflatten(2, (h, -1)).transpose(1, 2) for of, w, b, h in parts]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal, enable_gqa=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))


def grouped(kv_heads: int, bias: bool, is_causal: bool) -> Case:
    """Heads of queries of one sequence that share its keys and values."""
    length, width, heads = 6, 12, 4

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Linear(5, width), nn.Linear(length * width, 3)
            self.attn = GroupedAttention(width, heads, kv_heads, bias, is_causal)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.embed(x)
            return self.head(self.attn(x, x).flatten(1))

    words = f"num_heads = {heads}, num_kv_heads = {kv_heads}" + ("" if bias else ", bias = false") + (", is_causal = true" if is_causal else "")
    lines = [linear("embed", width), f'{{ name = "attn", type = "multihead_attention", {words} }}', FLATTEN, linear("head", 3)]
    name = f"combinations/grouped_attention_{kv_heads}" + ("_causal" if is_causal else "")
    return Case(name, lines, Net, (length, 5), samples=3, extra_init=biases, optimizer=SGD)


def grouped_between() -> Case:
    """The same of queries of one sequence, and keys and values of another."""
    heads, kv_heads = 4, 2

    class Net(Two):
        def of(self, inputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
            return self.head(self.attn(answers, inputs).flatten(1))

    lines = [
        f'{{ name = "attn", type = "multihead_attention", from = ["answers", "inputs"], num_heads = {heads}, num_kv_heads = {kv_heads} }}',
        FLATTEN,
        linear("head", 3),
    ]
    attn = lambda: GroupedAttention(WIDTH, heads, kv_heads, True, False)  # noqa: E731
    return two("grouped_attention_between", lines, lambda: Net(attn=attn(), head=nn.Linear(FIELDS["answers"][0] * WIDTH, 3)))


def slopes(heads: int) -> torch.Tensor:
    """As `build_alibi_tensor` of transformers' BLOOM makes them."""
    power = 2 ** math.floor(math.log2(heads))
    base = 2.0 ** (-(2.0 ** -(math.log2(power) - 3)))
    found = [base**i for i in range(1, 1 + power)]
    if power != heads:
        extra = 2.0 ** (-(2.0 ** -(math.log2(2 * power) - 3)))
        found += [extra**i for i in range(1, 1 + 2 * min(power, heads - power), 2)]
    return torch.tensor(found)


def far(name: str, heads: int, words: str, is_causal: bool, window: int | None, alibi: bool) -> Case:
    """Attention of one sequence, with a mask that says what each position sees."""
    length, width = 9, 4 * heads

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.qkv, self.head = nn.Linear(5, width), nn.Linear(width, 3 * width), nn.Linear(length * width, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.embed(x)).unflatten(2, (3, heads, 4)).permute(2, 0, 3, 1, 4)
            distance = torch.arange(length)[:, None] - torch.arange(length)
            mask = -slopes(heads)[:, None, None] * distance.abs() if alibi else torch.zeros(length, length)
            hidden = torch.zeros(length, length, dtype=torch.bool)
            if is_causal:
                hidden |= distance < 0
            if window:
                hidden |= distance.abs() >= window
            mask = mask.to(x.dtype).masked_fill(hidden, -math.inf)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return self.head(y.transpose(1, 2).flatten(1))

    lines = [
        linear("embed", width),
        linear("qkv", 3 * width),
        f'{{ type = "scaled_dot_product_attention", num_heads = {heads}{words} }}',
        FLATTEN,
        linear("head", 3),
    ]
    return Case(f"combinations/{name}", lines, Net, (length, 5), samples=3, optimizer=SGD)


def cases() -> list[Case]:
    return [
        decoder_layer("decoder_layer"),
        decoder_layer("decoder_layer_norm_first", ', norm_first = true, activation = "gelu", layer_norm_eps = 1e-2, bias = false',
                      norm_first=True, activation="gelu", layer_norm_eps=1e-2, bias=False),
        transformer(),
        shared_keys(),
        grouped(2, True, True),
        grouped(1, False, False),
        grouped_between(),
        far("sliding_window", 2, ", is_causal = true, sliding_window = 3", True, 3, False),
        far("sliding_window_both_sides", 2, ", sliding_window = 2", False, 2, False),
        far("alibi", 2, ", is_causal = true, alibi = true", True, None, True),
        far("alibi_in_a_window", 3, ", is_causal = true, alibi = true, sliding_window = 4", True, 4, True),
        far("alibi_both_sides", 1, ", alibi = true", False, None, True),
    ]
