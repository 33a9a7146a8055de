"""The small models of `language_models.py` with other words in their `config.json`, as transformers has them.

Reads tests/golden/language_models, and writes tests/golden/language_models/configs.json. Needs torch, transformers and tokenizers.
"""

import json
import pathlib
import shutil
import tempfile

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "language_models"
CONTEXT = 32
FULL, SLIDING = "full_attention", "sliding_attention"
# What `config.json` has besides. `head`: the file has a matrix of the outputs, which is that of the embedding with its rows moved on by so many.
CASES = [
    {"model": "mistral", "config": {"layer_types": [FULL, FULL]}},
    {"model": "mistral", "config": {"layer_types": [FULL, SLIDING]}},
    {"model": "mistral", "config": {"layer_types": [SLIDING, SLIDING]}},
    {"model": "qwen2", "config": {"use_sliding_window": True, "sliding_window": 5, "layer_types": None, "max_window_layers": 1}},
    {"model": "qwen2", "config": {"use_sliding_window": True, "sliding_window": 5, "layer_types": None, "max_window_layers": 0}},
    {"model": "qwen2", "config": {"use_sliding_window": False, "sliding_window": 5, "layer_types": None, "max_window_layers": 0}},
    {"model": "llama", "config": {"rope_theta": 777.0, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}},
    {"model": "llama", "config": {"rope_theta": 777.0}},
    {"model": "gpt2", "config": {"tie_word_embeddings": False}, "head": 1},
    {"model": "llama", "config": {}, "head": 0},
]


def loss(case):
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / case["model"]
        shutil.copytree(FOLDER / case["model"], folder)
        config = json.loads((folder / "config.json").read_text()) | case["config"]
        (folder / "config.json").write_text(json.dumps(config))
        if "head" in case:
            tensors = load_file(folder / "model.safetensors")
            embedding = next(tensor for name, tensor in tensors.items() if name.endswith(("wte.weight", "embed_tokens.weight")))
            tensors["lm_head.weight"] = embedding.roll(case["head"], dims=0).contiguous()
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = Tokenizer.from_file(str(FOLDER / case["model"] / "tokenizer.json")).encode((FOLDER / "text.txt").read_text()).ids
    losses = []
    for start in range(0, (len(ids) - 1) // CONTEXT * CONTEXT, CONTEXT):
        window = torch.tensor([ids[start : start + CONTEXT]])
        target = torch.tensor(ids[start + 1 : start + CONTEXT + 1])
        with torch.no_grad():
            losses.append(torch.nn.functional.cross_entropy(model(window).logits[0].double(), target).item())
    return sum(losses) / len(losses)


def main():
    all_of_them = [case | {"loss": loss(case)} for case in CASES]
    (FOLDER / "configs.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in all_of_them) + "\n]\n")


main()
