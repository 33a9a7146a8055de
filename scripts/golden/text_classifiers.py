"""Small classifiers of transformers with random weights, as folders that `runner import` reads, and what they say of some texts.

Writes tests/golden/text_classifiers/{bert,distilbert,encoder}. Needs torch, transformers and tokenizers.
"""

import json
import pathlib
import shutil

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    DistilBertConfig,
    DistilBertForSequenceClassification,
)

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "text_classifiers"
# The last text is longer than what is read of it.
TEXTS = [
    ("the soup was warm and the bread was fresh", "good"),
    ("cold soup, old bread", "bad"),
    ("fine", "good"),
    ("we waited for an hour, and then the kitchen was closed", "bad"),
    ("warm bread and cold soup", "so so"),
    ("the soup was cold and the bread was old, the kitchen was closed and we waited for an hour for fresh bread, fine bread", "so so"),
]
LENGTH = 16
CLASSES = ["good", "so so", "bad"]


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator([text for text, _ in TEXTS], trainers.WordPieceTrainer(vocab_size=60, special_tokens=special, show_progress=False))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", made.token_to_id("[CLS]")), ("[SEP]", made.token_to_id("[SEP]"))],
    )
    return made


def write(name, model, made):
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    # Larger weights than at the start of a training: then every part of the model matters.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.4 if parameter.dim() > 1 else 0.1))
        if hasattr(model, "classifier"):
            model.classifier.weight.copy_(torch.randn_like(model.classifier.weight))
    model.eval()
    model.save_pretrained(folder)
    made.save(str(folder / "tokenizer.json"))
    if not hasattr(model, "classifier"):
        return
    made.enable_truncation(LENGTH)
    probabilities, loss = [], 0.0
    for text, label in TEXTS:
        with torch.no_grad():
            logits = model(torch.tensor([made.encode(text).ids])).logits[0].double()
        probabilities.append(logits.softmax(0).tolist())
        loss += torch.nn.functional.cross_entropy(logits, torch.tensor(CLASSES.index(label))).item()
    made.no_truncation()
    golden = {"loss": loss / len(TEXTS), "probabilities": probabilities}
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def main():
    torch.manual_seed(11)
    made = tokenizer()
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = "".join(f'"{text}",{label}\n' for text, label in TEXTS)
    (FOLDER / "texts.csv").write_text("text,label\n" + rows)
    vocabulary = made.get_vocab_size()
    names = {"id2label": dict(enumerate(CLASSES)), "label2id": {name: number for number, name in enumerate(CLASSES)}}
    bert = dict(vocab_size=vocabulary, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=24)
    write("bert", BertForSequenceClassification(BertConfig(**bert, **names)), made)
    distilbert = DistilBertConfig(vocab_size=vocabulary, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=24, **names)
    write("distilbert", DistilBertForSequenceClassification(distilbert), made)
    write("encoder", BertModel(BertConfig(**bert)), made)


main()
