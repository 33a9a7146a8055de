"""Gradients of the small models of transformers that `language_models.py` and `text_classifiers.py` have written, as transformers computes them.

Writes gradients.safetensors beside each: of language models, of the mean loss of two windows of the text; of classifiers, of that of all texts, filled to one
length. Needs torch, transformers, tokenizers and safetensors.
"""

import csv
import json
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden"
WINDOWS = 2


def write(folder, model, loss):
    loss.backward()
    save_file({name: parameter.grad.contiguous() for name, parameter in model.named_parameters()}, folder / "gradients.safetensors")
    (folder / "gradients.json").write_text(json.dumps({"loss": loss.item()}) + "\n")


def language_model(folder):
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode((folder.parent / "text.txt").read_text()).ids
    context = model.config.max_position_embeddings
    tokens = torch.tensor(ids[: WINDOWS * context]).view(WINDOWS, context)
    targets = torch.tensor(ids[1 : WINDOWS * context + 1])
    write(folder, model, torch.nn.functional.cross_entropy(model(tokens).logits.flatten(0, 1), targets))


def classifier(folder):
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(model.config.max_position_embeddings)
    tokenizer.enable_padding()
    with open(folder.parent / "texts.csv") as file:
        rows = list(csv.DictReader(file))
    encoded = tokenizer.encode_batch([row["text"] for row in rows])
    tokens, mask = (torch.tensor([getattr(one, name) for one in encoded]) for name in ("ids", "attention_mask"))
    targets = torch.tensor([model.config.label2id[row["label"]] for row in rows])
    write(folder, model, torch.nn.functional.cross_entropy(model(tokens, attention_mask=mask).logits, targets))


def main():
    for name in ["gpt2", "llama", "qwen2", "mistral"]:
        language_model(FOLDER / "language_models" / name)
    for name in ["bert", "distilbert"]:
        classifier(FOLDER / "text_classifiers" / name)


main()
