"""Tokenizers of the kinds of GPT-2, Llama and BERT, and what they make of a million characters: tests/golden/tokenized.

    python scripts/golden/tokenized.py tinyshakespeare/input.txt

Writes `llama.json` and `bert.json`, which are tokenizers, and `ids.json`: of each tokenizer and each text how many tokens there are, the SHA-256 of all of them as
little-endian numbers of 32 bits, the first and the last, and the SHA-256 of the text that comes back. The second text is the beginning of the first, with
characters of two to four bytes in place of some letters. The tokenizer of GPT-2's kind has no file here: the program learns the same one. Needs tokenizers.
"""

import hashlib
import json
import struct
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = Path(__file__).parents[2] / "tests" / "golden" / "tokenized"
CHANGED = {"e": "é", "W": "名", "!": "😀", "x": "\u2581"}
LENGTH = 100_000
SHOWN = 8


def gpt2(text: str) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator([text], trainers.BpeTrainer(vocab_size=1024, initial_alphabet=alphabet, show_progress=False))
    return made


def llama(text: str) -> Tokenizer:
    """With a token for each byte, of which characters are made that were too seldom to have one."""
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    given = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=1024, special_tokens=given, limit_alphabet=48, show_progress=False)
    made.train_from_iterator([text], trainer)
    file = json.loads(made.to_str())
    file["added_tokens"] = file["added_tokens"][:3]
    made = Tokenizer.from_str(json.dumps(file))
    # As in Llama's file: the text is one word.
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])
    return made


def bert(text: str) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    given = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # Rare characters have no token.
    made.train_from_iterator([text], trainers.WordPieceTrainer(vocab_size=1024, special_tokens=given, limit_alphabet=32, show_progress=False))
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def told(ids: list[int], back: str) -> dict:
    packed = struct.pack(f"<{len(ids)}I", *ids)
    return {
        "count": len(ids),
        "sha256": hashlib.sha256(packed).hexdigest(),
        "first": ids[:SHOWN],
        "last": ids[-SHOWN:],
        "text_sha256": hashlib.sha256(back.encode()).hexdigest(),
    }


def main() -> None:
    plain = Path(sys.argv[1]).read_bytes().decode()
    FOLDER.mkdir(exist_ok=True)
    texts = {"plain": plain, "changed": plain[:LENGTH].translate(str.maketrans(CHANGED))}
    made = {"gpt2": gpt2(plain), "llama": llama(plain), "bert": bert(plain)}
    found = {name: {} for name in ["bytes", "characters", *made]}
    for name, tokenizer in made.items():
        for which, text in texts.items():
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            found[name][which] = told(ids, tokenizer.decode(ids, skip_special_tokens=False))
        if name != "gpt2":
            (FOLDER / f"{name}.json").write_text(tokenizer.to_str() + "\n")
    for which, text in texts.items():
        found["bytes"][which] = told(list(text.encode()), text)
        numbers = {c: number for number, c in enumerate(sorted(set(text)))}
        found["characters"][which] = told([numbers[c] for c in text], text)
    (FOLDER / "ids.json").write_text(json.dumps(found, indent=1) + "\n")


main()
