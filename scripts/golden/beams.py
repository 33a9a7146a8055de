"""Beam search with small models of random weights: what transformers' `generate(num_beams = …)` finds with GPT-2, and what a search that is written here, which computes every
answer from its first token on, finds with the encoder-decoder of torch.nn.Transformer.

Writes tests/golden/beams/{gpt2,pairs}. Needs torch, transformers and tokenizers.
"""

import json
import math
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "beams"
CONTEXT, END = 32, "<|endoftext|>"


def tokenizer() -> Tokenizer:
    # The bytes alone, and a token that ends texts.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([END])
    return made


def gpt2():
    folder = FOLDER / "gpt2"
    made = tokenizer()
    end = made.token_to_id(END)
    config = GPT2Config(vocab_size=made.get_vocab_size(), n_positions=CONTEXT, n_embd=12, n_head=2, n_layer=2, bos_token_id=end, eos_token_id=end)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.25 if parameter.dim() > 1 else 0.1))
        # The end comes now and then.
        model.eval()
        mean = model.transformer(torch.randint(end, (16, CONTEXT))).last_hidden_state.mean((0, 1))
        model.transformer.wte.weight[end] = 0.8 * mean / mean.norm()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    made.save(str(folder / "tokenizer.json"))
    cases = []
    for prompt in ["The sea", "a", "What the hills had"]:
        ids = made.encode(prompt).ids
        for beams, penalty, early, repetition, longest in [
            (1, 1.0, False, 1.0, 8), (2, 1.0, False, 1.0, 12), (3, 1.0, True, 1.0, 12), (4, 0.0, False, 1.0, 10), (4, 2.0, False, 1.0, 12),
            (4, 2.0, True, 1.0, 12), (5, -1.0, False, 1.0, 8), (3, 1.0, False, 1.3, 10), (7, 0.5, True, 1.0, 6),
        ]:  # fmt: skip
            # One beam is no beam search there.
            how = dict(num_beams=beams, num_return_sequences=beams, length_penalty=penalty, early_stopping=early) if beams > 1 else {}
            with torch.no_grad():
                out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False, max_new_tokens=longest,
                                     repetition_penalty=repetition, pad_token_id=end, return_dict_in_generate=True, output_scores=True, **how)
            found = []
            for row, sequence in enumerate(out.sequences.tolist()):
                tokens = sequence[len(ids) :]
                finish = "end" if end in tokens else "length"
                tokens = tokens[: tokens.index(end)] if end in tokens else tokens
                found.append({"tokens": tokens, "finish": finish, "score": out.sequences_scores[row].item() if beams > 1 else None})
            cases.append({"prompt": prompt, "beams": beams, "length_penalty": penalty, "early_stopping": early, "repetition_penalty": repetition,
                          "max_tokens": longest, "found": found})
    ended = sum(found["finish"] == "end" for case in cases for found in case["found"])
    assert 20 < ended < 79, ended
    (folder / "golden.json").write_text(json.dumps(cases) + "\n")


WIDTH, HEADS, LAYERS, HIDDEN, LONGEST = 12, 2, 2, 20, 6
LETTERS = "abcde"
START, STOP = len(LETTERS), len(LETTERS) + 1


def positions(length: int) -> torch.Tensor:
    at = torch.arange(length).unsqueeze(1)
    rates = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
    table = torch.zeros(length, WIDTH)
    table[:, 0::2], table[:, 1::2] = torch.sin(at * rates), torch.cos(at * rates)
    return table


class Pairs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.src_tok_emb = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(len(LETTERS) + 2, WIDTH)})
        self.tgt_tok_emb = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(len(LETTERS) + 2, WIDTH)})
        self.transformer = torch.nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, HIDDEN, dropout=0.0, batch_first=True)
        self.generator = torch.nn.Linear(WIDTH, len(LETTERS) + 2)

    def forward(self, text, answer):
        text = self.src_tok_emb["embedding"](text) + positions(text.shape[1])
        answer = self.tgt_tok_emb["embedding"](answer) + positions(answer.shape[1])
        mask = torch.nn.Transformer.generate_square_subsequent_mask(answer.shape[1])
        return self.generator(self.transformer(text, answer, tgt_mask=mask, tgt_is_causal=True))


def following(model, text, answer):
    with torch.no_grad():
        logits = model(torch.tensor([text]), torch.tensor([answer]))[0, -1].double()
    # It stands at the beginning alone.
    logits[START] = -math.inf
    return torch.log_softmax(logits, 0).tolist()


def search(model, text, beams, penalty, early):
    """As transformers does it, with lists."""
    running, found = [([START], 0.0)], []
    while True:
        generated = len(running[0][0])
        every = [(score + more, tokens + [token]) for tokens, score in running for token, more in enumerate(following(model, text, tokens)) if more > -math.inf]
        best = sorted(every, key=lambda one: -one[0])[: 2 * beams]
        running = []
        for rank, (score, tokens) in enumerate(best):
            if tokens[-1] == STOP or generated == LONGEST:
                if rank < beams:
                    found.append((score / generated**penalty, tokens[1:]))
            elif len(running) < beams:
                running.append((tokens, score))
        found = sorted(found, key=lambda one: -one[0])[:beams]
        full = len(found) == beams
        if not running or full and (early or running[0][1] / generated**penalty <= found[-1][0]):
            return found


def pairs():
    folder = FOLDER / "pairs"
    folder.mkdir(parents=True)
    model = Pairs()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.4 if parameter.dim() > 1 else 0.2))
    model.eval()
    save_file({name: tensor.clone().contiguous() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")
    cases = []
    for text in ["abc", "de", "e", "aabbc", "dcab"]:
        for beams, penalty, early in [(1, 1.0, False), (2, 1.0, False), (3, 0.0, True), (4, 2.0, False), (4, 2.0, True), (6, -1.0, False)]:
            found = search(model, [LETTERS.index(letter) for letter in text], beams, penalty, early)
            texts = ["".join(LETTERS[token] for token in tokens if token != STOP) for _, tokens in found]
            ends = ["end" if tokens[-1] == STOP else "length" for _, tokens in found]
            found = [{"text": t, "finish": finish, "score": score} for t, finish, (score, _) in zip(texts, ends, found)]
            cases.append({"text": text, "beams": beams, "length_penalty": penalty, "early_stopping": early, "found": found})
    best = {case["text"]: set() for case in cases}
    for case in cases:
        best[case["text"]].add(case["found"][0]["text"])
    # The answers are of several lengths, and the search finds others than the most probable token each time.
    assert any(len(texts) > 2 for texts in best.values()), best
    (folder / "golden.json").write_text(json.dumps(cases) + "\n")


def main():
    torch.manual_seed(5)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    gpt2()
    pairs()


main()
