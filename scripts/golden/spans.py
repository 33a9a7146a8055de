"""Spans of rows of tags, and the figures of predictions by them, as seqeval has them with `mode="strict"`.

Writes tests/golden/spans.json. Needs seqeval.
"""

import json
import pathlib
import random

from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.scheme import BILOU, IOB2, IOBES, Entities

TARGET = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "spans.json"
SCHEMES = [
    (IOB2, ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]),
    (IOB2, ["B", "I", "O"]),
    (IOBES, ["B-X", "I-X", "E-X", "S-X", "O", "B-Y", "I-Y", "E-Y", "S-Y"]),
    (BILOU, ["O", "B-X", "I-X", "L-X", "U-X", "U-Y"]),
]


def main():
    draws = random.Random(7)
    schemes, figures = [], []
    for scheme, tags in SCHEMES:
        rows = [[draws.randrange(len(tags)) for _ in range(draws.randrange(1, 12))] for _ in range(60)]
        named = [[tags[tag] for tag in row] for row in rows]
        found = Entities(named, scheme).entities
        spans = [[(entity.tag, entity.start, entity.end) for entity in row] for row in found]
        schemes.append({"tags": tags, "sequences": rows, "entities": spans})
        # What a model might say: most tags are right.
        said = [[tag if draws.random() < 0.8 else draws.randrange(len(tags)) for tag in row] for row in rows]
        names = [[tags[tag] for tag in row] for row in said]
        how = {"mode": "strict", "scheme": scheme}
        figures.append(
            {
                "tags": tags,
                "targets": rows,
                "predictions": said,
                "span_f1": f1_score(named, names, **how),
                "span_precision": precision_score(named, names, **how),
                "span_recall": recall_score(named, names, **how),
            }
        )
    TARGET.write_text(json.dumps({"schemes": schemes, "figures": figures}) + "\n")


main()
