"""Times training steps of models of text in PyTorch, beside `runner bench CONFIG` on the same machine; and GPT-2 that writes, beside `runner generate`.

    python scripts/bench_text.py gpt --layers 4 --heads 4 --width 128 --context 64 --batch 12
    python scripts/bench_text.py gpt2 --context 1024 --batch 1
    python scripts/bench_text.py lstm --layers 2 --width 256 --context 128 --batch 32
    python scripts/bench_text.py lstm_classifier --layers 1 --width 256 --context 128 --batch 32
    python scripts/bench_text.py bert --context 128 --batch 8
    python scripts/bench_text.py generate --tokens 200 --save gpt2-random

Prints the median of each mode in milliseconds: eager with scaled_dot_product_attention, and torch.compile of the same. AdamW is fused.
`gpt` is models/gpt.toml with `bias = false`: GPT-2's layers, the matrix of the outputs tied to the embedding. `lstm` is models/lstm.toml.
`lstm_classifier` is models/lstm_classifier.toml with packed sequences, a quarter of which fill the context and the others half of it to all. `gpt2` and `bert` are
those of transformers with random weights (GPT-2 small, BERT base with a classifier), and so is the GPT-2 of `generate`, which writes one text greedily with a cache of keys and values.
`--save` keeps it as a folder that `runner import` takes, with a tokenizer of bytes.
"""

import argparse
import statistics
import time
from pathlib import Path

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


class LstmClassifier(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embedding = nn.Embedding(args.vocabulary, args.width)
        self.lstm = nn.LSTM(args.width, args.width, args.layers, batch_first=True, bidirectional=True)
        self.classes = nn.Linear(2 * args.width, 2)
        self.lengths = lengths(args)

    def forward(self, tokens):
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(tokens), self.lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, padding_value=float("-inf"))
        return self.classes(y.amax(dim=1))


def lengths(args):
    """How long the texts of a batch are: every fourth is as long as the context."""
    half = args.context // 2
    return torch.tensor([args.context if i % 4 == 0 else half + 1 + i * 31 % half for i in range(args.batch)])


def gpt2(args):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(attn_implementation="sdpa", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
    return GPT2LMHeadModel(config)


class Logits(nn.Module):
    """A model of transformers, of which only the logits are wanted."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, tokens):
        return self.net(tokens).logits


class Bert(nn.Module):
    def __init__(self, args):
        from transformers import BertConfig, BertForSequenceClassification

        super().__init__()
        self.net = BertForSequenceClassification(BertConfig(attn_implementation="sdpa", num_labels=2))
        self.mask = (torch.arange(args.context)[None] < lengths(args)[:, None]).long()

    def forward(self, tokens):
        return self.net(tokens, attention_mask=self.mask).logits


def make(args):
    """The model, how many tokens it knows, and whether it has a class for each text rather than for each position."""
    match args.model:
        case "gpt":
            return Gpt(args), args.vocabulary, False
        case "gpt2":
            return Logits(gpt2(args)), 50257, False
        case "lstm":
            return Lstm(args), args.vocabulary, False
        case "lstm_classifier":
            return LstmClassifier(args), args.vocabulary, True
        case "bert":
            return Bert(args), 30522, True


def write(args) -> None:
    """Times GPT-2 as it writes one text."""
    net = gpt2(args).eval()
    if args.save:
        save(net, args.save)
    prompt = torch.randint(256, (1, 16))
    for dtype in [torch.float32, torch.bfloat16] if args.precision == "bf16" else [torch.float32]:
        net = net.to(dtype)

        def generate():
            net.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, min_new_tokens=args.tokens, max_new_tokens=args.tokens, pad_token_id=0)

        with torch.inference_mode():
            print(f"{dtype}: {1000 * args.tokens / median(generate, args.seconds):.1f} tokens/s", flush=True)


def save(net, folder: str) -> None:
    """Writes the model and a tokenizer that knows bytes alone: its first 256 tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    net.save_pretrained(folder)
    vocabulary = {token: number for number, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(Path(folder) / "tokenizer.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["gpt", "gpt2", "lstm", "lstm_classifier", "bert", "generate"])
    for name, value in [("layers", 4), ("heads", 4), ("width", 128), ("context", 64), ("batch", 12), ("vocabulary", 65), ("threads", 2), ("tokens", 200)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--save", metavar="FOLDER")
    parser.add_argument("--modes", nargs="*", default=["eager", "compile"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.model == "generate":
        return write(args)
    for mode in args.modes:
        net, vocabulary, classifies = make(args)
        net.train()
        tokens = torch.randint(vocabulary, (args.batch, args.context))
        targets = torch.randint(2, (args.batch,)) if classifies else torch.randint(vocabulary, (args.batch * args.context,))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
        forward = torch.compile(net) if mode == "compile" else net

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
                logits = forward(tokens)
                loss = F.cross_entropy((logits if classifies else logits.flatten(0, 1)).float(), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()

        try:
            print(f"{mode}: {median(step, args.seconds):.2f} ms", flush=True)
        except Exception as error:
            print(f"{mode}: {type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
