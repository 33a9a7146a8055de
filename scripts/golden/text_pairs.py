"""What the small classifiers of `text_classifiers.py` say of pairs of texts, joined and cut as transformers does.

Reads tests/golden/text_classifiers/{bert,distilbert}, and writes `pairs.csv` and `*/pairs.json` there. Needs torch and transformers.
"""

import json
import pathlib

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "text_classifiers"
# Neither is cut; the first is; the second is; both are.
PAIRS = [
    ("the soup was warm", "the bread was fresh", "good"),
    ("fine", "cold soup", "bad"),
    ("we waited for an hour, and then the kitchen was closed", "fine", "so so"),
    ("old bread", "the soup was cold and the bread was old, the kitchen was closed and we waited for an hour", "bad"),
    ("the soup was warm and the bread was fresh", "we waited for an hour, and then the kitchen was closed", "good"),
    ("bread", "bread", "so so"),
]
LENGTH = 16
CLASSES = ["good", "so so", "bad"]


def main():
    rows = "".join(f'"{first}","{second}",{label}\n' for first, second, label in PAIRS)
    (FOLDER / "pairs.csv").write_text("premise,hypothesis,label\n" + rows)
    for name in ["bert", "distilbert"]:
        folder = FOLDER / name
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        logits, tokens, loss = [], [], 0.0
        for first, second, label in PAIRS:
            given = tokenizer(first, second, truncation=True, max_length=LENGTH, return_token_type_ids=name == "bert", return_tensors="pt")
            with torch.no_grad():
                row = model(**given).logits[0].double()
            logits.append(row.tolist())
            tokens.append(given["input_ids"][0].tolist())
            loss += torch.nn.functional.cross_entropy(row, torch.tensor(CLASSES.index(label))).item()
        golden = {"loss": loss / len(PAIRS), "tokens": tokens, "logits": logits}
        (folder / "pairs.json").write_text(json.dumps(golden) + "\n")


main()
