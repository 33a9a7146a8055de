"""The small Llama of `language_models.py` with rotary positions that are scaled, as transformers has it.

Reads tests/golden/language_models/llama, and writes tests/golden/language_models/rope_scaling.json. Needs torch, transformers and tokenizers.
"""

import json
import pathlib
import shutil
import tempfile

import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "language_models"
CONTEXT = 32
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    # Without the positions of the first training: all that the model has.
    "llama3_whole": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    # Its pairs of numbers turn often, seldom, and neither.
    "llama3_base": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 0.05, "high_freq_factor": 2.0, "original_max_position_embeddings": 16},
}


def golden(scaling):
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / "llama"
        shutil.copytree(FOLDER / "llama", folder)
        config = json.loads((folder / "config.json").read_text())
        config["rope_scaling"] = scaling
        (folder / "config.json").write_text(json.dumps(config))
        model = LlamaForCausalLM.from_pretrained(folder).eval()
    made = Tokenizer.from_file(str(FOLDER / "llama" / "tokenizer.json"))
    ids = made.encode((FOLDER / "text.txt").read_text()).ids
    losses = []
    for start in range(0, (len(ids) - 1) // CONTEXT * CONTEXT, CONTEXT):
        window = torch.tensor([ids[start : start + CONTEXT]])
        target = torch.tensor(ids[start + 1 : start + CONTEXT + 1])
        with torch.no_grad():
            losses.append(torch.nn.functional.cross_entropy(model(window).logits[0].double(), target).item())
    prompt = made.encode("The sea").ids
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(CONTEXT - len(prompt)):
            tokens.append(model(torch.tensor([tokens])).logits[0, -1].argmax().item())
    return {"rope_scaling": scaling, "loss": sum(losses) / len(losses), "tokens": tokens[len(prompt) :]}


def main():
    all_of_them = {name: golden(scaling) for name, scaling in SCALINGS.items()}
    (FOLDER / "rope_scaling.json").write_text(json.dumps(all_of_them) + "\n")


main()
