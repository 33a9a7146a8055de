"""The encoders of `text_classifiers.py` as taggers of words, with labels as in Hugging Face's tutorial on token classification.

Reads tests/golden/text_classifiers/{bert,distilbert}, and writes `tags.conll` and `*/tags.json` there. Needs torch and transformers.
"""

import json
import pathlib

import torch
from transformers import AutoModelForTokenClassification, PreTrainedTokenizerFast

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "text_classifiers"
TAGS = ["O", "B-FOOD", "I-FOOD"]
# Of the last sentence not all words are read.
SENTENCES = [
    "the/O warm/B-FOOD bread/I-FOOD was/O fine/O",
    "cold/B-FOOD soup/I-FOOD",
    "we/O waited/O for/O fresh/B-FOOD bread/I-FOOD ,/O and/O then/O the/O kitchen/O was/O closed/O",
]
LENGTH = 16


def main():
    sentences = [[word.rsplit("/", 1) for word in sentence.split()] for sentence in SENTENCES]
    (FOLDER / "tags.conll").write_text("\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences))
    for name in ["bert", "distilbert"]:
        folder = FOLDER / name
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        model = AutoModelForTokenClassification.from_pretrained(folder).eval()
        losses, tags = [], []
        for sentence in sentences:
            words = [word for word, _ in sentence]
            given = tokenizer(words, is_split_into_words=True, truncation=True, max_length=LENGTH, return_token_type_ids=False, return_tensors="pt")
            with torch.no_grad():
                logits = model(**given).logits[0].double()
            said, previous = [None] * len(words), None
            for position, word in enumerate(given.word_ids()):
                if word is not None and word != previous:
                    target = torch.tensor(TAGS.index(sentence[word][1]))
                    losses.append(torch.nn.functional.cross_entropy(logits[position], target).item())
                    said[word] = TAGS[logits[position].argmax().item()]
                previous = word
            tags.append(said)
        golden = {"loss": sum(losses) / len(losses), "words": len(losses), "tags": tags}
        (folder / "tags.json").write_text(json.dumps(golden) + "\n")


main()
