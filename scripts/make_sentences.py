"""Makes data/sentences: English sentences whose words have tags of persons, places and organisations, from patterns.

Many names are names of more than one kind, so that what stands around them tells which. Every run writes the same bytes.
"""

import pathlib
import random

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "sentences"
NAMES = {
    "PER": ["Ada Lovelace", "Jordan", "Paris", "Florence", "Marie Curie", "Lincoln", "Sydney", "Alan Turing", "Austin", "Victoria", "Grace Hopper", "Carter"],
    "LOC": ["Jordan", "Paris", "Florence", "New York", "Lincoln", "Sydney", "Austin", "Victoria", "San Marino", "Cape Town", "Oslo", "Rio de Janeiro"],
    "ORG": ["Carter and Sons", "Victoria Works", "Lincoln", "Oslo Trust", "Paris Tea Company", "United Mills", "Acme", "Hopper Group", "Bank of Sydney"],
}
PATTERNS = [
    "PER lives in LOC .",
    "PER , who works for ORG , was born in LOC .",
    "ORG opens an office in LOC next year .",
    "a letter from PER reached LOC on monday .",
    "the train to LOC was late again .",
    "PER and PER met near LOC .",
    "shares of ORG fell after PER left the board .",
    "ORG bought ORG for a large sum .",
    "in LOC , PER told ORG that it would rain .",
    "nobody at ORG has heard of PER .",
    "it was a quiet day , and nothing happened .",
    "why does PER dislike LOC ?",
    "the mayor of LOC thanked PER and ORG .",
    "PER sold a house in LOC to ORG .",
    "the weather in LOC is fine , says PER .",
]


def sentence(draws):
    lines = []
    for word in draws.choice(PATTERNS).split():
        if word not in NAMES:
            lines.append(f"{word} O")
            continue
        for at, part in enumerate(draws.choice(NAMES[word]).split()):
            lines.append(f"{part} {'B' if at == 0 else 'I'}-{word}")
    return "".join(f"{line}\n" for line in lines)


def main():
    draws = random.Random(3)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, sentences in [("train", 500), ("val", 150)]:
        (FOLDER / f"{name}.conll").write_text("\n".join(sentence(draws) for _ in range(sentences)))


main()
