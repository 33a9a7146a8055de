"""The loss over answers alone of small language models of transformers, on rows that are filled up to one length, and what they answer.

Reads tests/golden/language_models/{gpt2,llama}; writes tests/golden/prompted: `pairs.jsonl`, `settings.json` (a tokenizer's settings with a template for
conversations) and `golden.json`. Needs torch, transformers and jinja2.
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

GOLDEN = pathlib.Path(__file__).parents[2] / "tests" / "golden"
FOLDER = GOLDEN / "prompted"
PAIRS = [("the sea", "the wind"), ("the shore and the hills", "sand"), ("a boat", "two ropes and a sailor")]
TEMPLATE = "Q: {text}\nA:"
# The tokenizer has no token that ends texts: this one is taken for it.
END = "!"
CHAT = (
    "{% for m in messages %}{{ m['role'].upper() }} {{ m.content }}{{ '!' if m['role'] == 'assistant' else '.' }}\n{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT {% endif %}"
)
SYSTEM = "Be short"
STEPS, LR = 4, 0.01


def rows(tokenizer, chat):
    """The tokens of each prompt, and of its answer with the token that ends it."""
    end = tokenizer.convert_tokens_to_ids(END)
    for text, answer in PAIRS:
        if chat:
            messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
            prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            messages.append({"role": "assistant", "content": answer})
            rest = tokenizer.apply_chat_template(messages, tokenize=False).removeprefix(prompt)
            # Behind it stands a new line, which a model that ends there never comes to.
            rest = tokenizer.encode(rest.removesuffix("\n"))
            assert rest[-1] == end
        else:
            prompt, rest = TEMPLATE.replace("{text}", text), [*tokenizer.encode(answer), end]
        yield tokenizer.encode(prompt), rest


def batch(all_rows):
    longest = max(len(prompt) + len(rest) for prompt, rest in all_rows)
    filled = [(prompt + rest + [0] * (longest - len(prompt) - len(rest))) for prompt, rest in all_rows]
    labels = [[-100] * len(p) + r + [-100] * (longest - len(p) - len(r)) for p, r in all_rows]
    mask = [[1] * (len(p) + len(r)) + [0] * (longest - len(p) - len(r)) for p, r in all_rows]
    return {"input_ids": torch.tensor(filled), "labels": torch.tensor(labels), "attention_mask": torch.tensor(mask)}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "pairs.jsonl").write_text("".join(json.dumps({"text": t, "answer": a}) + "\n" for t, a in PAIRS))
    (FOLDER / "settings.json").write_text(json.dumps({"chat_template": CHAT, "eos_token": END}, indent=1) + "\n")
    golden = {"template": TEMPLATE, "end_token": END, "system": SYSTEM, "lr": LR, "models": {}}
    for name in ["gpt2", "llama"]:
        folder = GOLDEN / "language_models" / name
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), chat_template=CHAT)
        found = {}
        # A conversation has more tokens than that GPT-2 has places.
        for chat in [False, True] if name == "llama" else [False]:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
            all_rows = list(rows(tokenizer, chat))
            longest = max(len(prompt) + len(rest) for prompt, rest in all_rows) - 1
            answers = []
            for prompt, _ in all_rows:
                tokens = list(prompt)
                with torch.no_grad():
                    # As many as a sample has room for.
                    while len(tokens) <= longest and tokens[-1] != all_rows[0][1][-1]:
                        tokens.append(model(torch.tensor([tokens])).logits[0, -1].argmax().item())
                answers.append(tokens[len(prompt) :])
            given = batch(all_rows)
            optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
            losses = []
            for _ in range(STEPS):
                loss = model(**given).loss
                losses.append(loss.item())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            found["chat" if chat else "template"] = {"longest": longest, "losses": losses, "answers": answers}
        golden["models"][name] = found
    (FOLDER / "golden.json").write_text(json.dumps(golden) + "\n")


main()
