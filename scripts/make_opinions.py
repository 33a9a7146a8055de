"""Makes data/opinions: English sentences that praise or find fault, from patterns.

Words alone do not tell which: praise may be denied, and one thing be held against another. Every run writes the same bytes.
"""

import csv
import pathlib
import random

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "opinions"
THINGS = ["soup", "film", "hotel", "book", "concert", "phone", "train", "garden", "museum", "coffee", "room", "service", "lamp", "tour", "bread", "keyboard"]
GOOD = ["good", "wonderful", "lovely", "excellent", "clean", "quick", "friendly", "bright", "worth the price", "a joy"]
BAD = ["bad", "awful", "dull", "poor", "dirty", "slow", "rude", "broken", "too expensive", "a waste of time"]
# A pattern, and what it says where GOOD and BAD stand at their places.
PATTERNS = [
    ("the THING was GOOD .", "good"),
    ("the THING was BAD .", "bad"),
    ("the THING was not GOOD at all .", "bad"),
    ("the THING was not BAD at all .", "good"),
    ("i feared that the THING would be BAD , but it was GOOD .", "good"),
    ("i hoped that the THING would be GOOD , but it was BAD .", "bad"),
    ("they call the THING GOOD . it is BAD .", "bad"),
    ("they call the THING BAD . it is GOOD .", "good"),
    ("never was a THING so GOOD .", "good"),
    ("never was a THING so BAD .", "bad"),
    ("the THING is GOOD , and the THING is GOOD , too .", "good"),
    ("the THING is BAD , and the THING is BAD , too .", "bad"),
    ("nothing about the THING was GOOD .", "bad"),
    ("nothing about the THING was BAD .", "good"),
    ("would i come again ? the THING is GOOD , so i would .", "good"),
    ("would i come again ? the THING is BAD , so i would not .", "bad"),
]
WORDS = {"THING": THINGS, "GOOD": GOOD, "BAD": BAD}


def row(draws):
    pattern, opinion = draws.choice(PATTERNS)
    return [" ".join(draws.choice(WORDS[word]) if word in WORDS else word for word in pattern.split()), opinion]


def main():
    draws = random.Random(5)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, rows in [("train", 800), ("val", 200)]:
        with open(FOLDER / f"{name}.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([["text", "opinion"], *(row(draws) for _ in range(rows))])


main()
