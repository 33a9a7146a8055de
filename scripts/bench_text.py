"""Times training steps of language models in PyTorch, beside `runner bench CONFIG` on the same machine.

    python scripts/bench_text.py gpt --layers 4 --heads 4 --width 128 --context 64 --batch 12
    python scripts/bench_text.py lstm --layers 2 --width 256 --context 128 --batch 32

Prints the median of each mode in milliseconds: eager with scaled_dot_product_attention, and torch.compile of the same. AdamW is fused. The model is that of
models/gpt.toml with `bias = false`: GPT-2's layers, the matrix of the outputs tied to the embedding; or that of models/lstm.toml.
"""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.attn, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.fc, self.out = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = (t.view(n, length, self.heads, -1).transpose(1, 2) for t in self.attn(self.ln_1(x)).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, length, width))
        return x + self.out(F.gelu(self.fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(args.vocabulary, args.width), nn.Embedding(args.context, args.width)
        self.h = nn.ModuleList(Layer(args.width, args.heads) for _ in range(args.layers))
        self.ln_f = nn.LayerNorm(args.width, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for layer in self.h:
            x = layer(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class Lstm(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embedding = nn.Embedding(args.vocabulary, args.width)
        self.lstm = nn.LSTM(args.width, args.width, args.layers, batch_first=True)
        self.head = nn.Linear(args.width, args.vocabulary)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


def median(step, seconds: float) -> float:
    for _ in range(3):
        step()
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return 1000 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["gpt", "lstm"])
    for name, value in [("layers", 4), ("heads", 4), ("width", 128), ("context", 64), ("batch", 12), ("vocabulary", 65), ("threads", 2)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--modes", nargs="*", default=["eager", "compile"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    tokens = torch.randint(args.vocabulary, (args.batch, args.context))
    targets = torch.randint(args.vocabulary, (args.batch * args.context,))
    for mode in args.modes:
        net = {"gpt": Gpt, "lstm": Lstm}[args.model](args)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
        forward = torch.compile(net) if mode == "compile" else net

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
                loss = F.cross_entropy(forward(tokens).flatten(0, 1).float(), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()

        try:
            print(f"{mode}: {median(step, args.seconds):.2f} ms", flush=True)
        except Exception as error:
            print(f"{mode}: {type(error).__name__}", flush=True)


main()
