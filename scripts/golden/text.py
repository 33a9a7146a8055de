"""Operations of text models: values and gradients by PyTorch in double precision, tests/golden/text.json.

Numbers are multiples of 1/256, which are exact in single precision and short in the file.
"""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def _numbers(draw: torch.Generator, *shape: int) -> torch.Tensor:
    return (torch.randn(*shape, generator=draw, dtype=torch.float64) * 256).round() / 256


def _list(x: torch.Tensor) -> list:
    """What is no operand needs no more digits than single precision has."""
    return [float(f"{v:.9g}") for v in x.detach().flatten().tolist()]


def _embedding(draw: torch.Generator) -> dict:
    """`torch.nn.Embedding` with a row of padding."""
    table = _numbers(draw, 7, 5).requires_grad_()
    ids = torch.randint(0, 7, (2, 9), generator=draw)
    y = F.embedding(ids, table, padding_idx=3)
    dy = _numbers(draw, *y.shape)
    y.backward(dy)
    return {
        "table": _list(table),
        "ids": ids.flatten().tolist(),
        "dy": _list(dy),
        "y": _list(y),
        "dtable": _list(table.grad),
    }


def _tied(draw: torch.Generator) -> dict:
    """A table that is the weight of the projection to logits as well."""
    table = _numbers(draw, 11, 6).requires_grad_()
    ids, targets = (torch.randint(0, 11, (2, 4), generator=draw) for _ in range(2))
    logits = F.linear(F.embedding(ids, table), table)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    return {
        "table": _list(table),
        "ids": ids.flatten().tolist(),
        "targets": targets.flatten().tolist(),
        "loss": loss.item(),
        "dtable": _list(table.grad),
    }


def _rotary(draw: torch.Generator) -> dict:
    """As Llama turns queries and keys: three heads of queries, one of keys and of values, samples that begin somewhere."""
    heads, width, length = 3, 8, 5
    first = torch.tensor([0, 4])
    angles = torch.outer(torch.arange(10.0, dtype=torch.float64), 1 / 10000 ** (torch.arange(0, width, 2) / width))
    table = torch.cat([angles.cos(), angles.sin()], -1).float().double()
    x = _numbers(draw, 2, length, heads + 2, width).requires_grad_()
    of = table[first[:, None] + torch.arange(length)][:, :, None, :]
    cos, sin = (torch.cat([part, part], -1) for part in of.chunk(2, -1))
    turned, values = x[:, :, : heads + 1], x[:, :, heads + 1 :]
    a, b = turned.chunk(2, -1)
    y = torch.cat([turned * cos + torch.cat([-b, a], -1) * sin, values], 2)
    dy = _numbers(draw, *y.shape)
    y.backward(dy)
    return {
        "x": _list(x),
        "table": _list(table),
        "first": first.tolist(),
        "dy": _list(dy),
        "y": _list(y),
        "dx": _list(x.grad),
    }


def _lengths(draw: torch.Generator, causal: bool) -> dict:
    """`scaled_dot_product_attention` with a mask that hides what is behind a sample's length; padding gives 0."""
    heads, width, length = 2, 4, 6
    lengths = torch.tensor([4, 6, 1])
    qkv = _numbers(draw, 3, length, 3, heads, width).requires_grad_()
    there = torch.arange(length) < lengths[:, None]
    mask = there[:, None, None, :].expand(-1, 1, length, -1)
    mask = mask & torch.ones(length, length).tril().bool() if causal else mask
    y = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), attn_mask=mask).transpose(1, 2)
    y = y * there[:, :, None, None]
    dy = _numbers(draw, *y.shape)
    y.backward(dy)
    return {
        "qkv": _list(qkv),
        "lengths": lengths.tolist(),
        "dy": _list(dy),
        "y": _list(y),
        "dqkv": _list(qkv.grad),
    }


def _grouped(draw: torch.Generator) -> dict:
    """Four heads of queries, of which two share a head of keys and values each."""
    heads, kv_heads, width = 4, 2, 4
    x = _numbers(draw, 2, 5, heads + 2 * kv_heads, width).requires_grad_()
    q, k, v = x.transpose(1, 2).split([heads, kv_heads, kv_heads], 1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
    dy = _numbers(draw, *y.shape)
    y.backward(dy)
    return {"x": _list(x), "dy": _list(dy), "y": _list(y), "dx": _list(x.grad)}


def _recurrent(draw: torch.Generator, kind: type[nn.Module], **more: str) -> dict:
    """Two layers in both directions, of samples packed by their lengths."""
    net = kind(3, 4, 2, batch_first=True, bidirectional=True, dtype=torch.float64, **more)
    lengths = torch.tensor([4, 6, 1])
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(_numbers(draw, *p.shape) / 2)
    x = _numbers(draw, 3, 6, 3).requires_grad_()
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    y, _ = pad_packed_sequence(net(packed)[0], batch_first=True, total_length=6)
    dy = _numbers(draw, *y.shape)
    y.backward(dy)
    numbers = {"x": _list(x), "lengths": lengths.tolist(), "dy": _list(dy), "y": _list(y), "dx": _list(x.grad)}
    numbers |= {name: _list(p) for name, p in net.named_parameters()}
    return numbers | {f"d{name}": _list(p.grad) for name, p in net.named_parameters()}


def make(path: Path) -> None:
    draw = torch.Generator().manual_seed(5)
    cases = {"embedding": _embedding(draw), "tied": _tied(draw), "rotary": _rotary(draw), "grouped": _grouped(draw)}
    cases |= {f"lengths, causal: {str(causal).lower()}": _lengths(draw, causal) for causal in (False, True)}
    recurrent = {"lstm": (nn.LSTM, {}), "gru": (nn.GRU, {}), "rnn tanh": (nn.RNN, {}), "rnn relu": (nn.RNN, {"nonlinearity": "relu"})}
    cases |= {name: _recurrent(draw, kind, **more) for name, (kind, more) in recurrent.items()}
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")
