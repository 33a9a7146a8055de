"""Figures of classes and labels by scikit-learn, from logits and targets that a seed draws: tests/golden/figures.json.

Some classes occur nowhere, some are never predicted, some never the target. Averages are scikit-learn's with its defaults.
"""

import json
import warnings
from pathlib import Path

import numpy as np
from sklearn import metrics


def _draw(seed: int, rows: int, classes: int, among: list[int], predicted: list[int], right: float) -> tuple:
    """Logits of few different values, so that there are ties; targets `among` classes, predictions among `predicted`."""
    draw = np.random.default_rng(seed)
    logits = draw.integers(0, 4, (rows, classes)).astype(float)
    targets = draw.choice(among, rows)
    for row, target in enumerate(targets):
        best = target if draw.random() < right and target in predicted else draw.choice(predicted)
        logits[row, best] = 5.0
    return logits, targets


def _classes(logits: np.ndarray, targets: np.ndarray) -> dict:
    count = logits.shape[1]
    predicted = logits.argmax(1)
    # Of equal logits the lower class comes first: a stable sort of what is negated.
    order = np.argsort(-logits, axis=1, kind="stable")
    expected = {f"top{k}_accuracy": float((order[:, :k] == targets[:, None]).any(1).mean()) for k in (2, 3, 5, 10) if k <= count}
    expected |= {
        "balanced_accuracy": metrics.balanced_accuracy_score(targets, predicted),
        "macro_precision": metrics.precision_score(targets, predicted, average="macro"),
        "macro_recall": metrics.recall_score(targets, predicted, average="macro"),
        "macro_f1": metrics.f1_score(targets, predicted, average="macro"),
        "weighted_f1": metrics.f1_score(targets, predicted, average="weighted"),
        "mean_iou": metrics.jaccard_score(targets, predicted, average="macro"),
    }
    of = {"labels": range(count), "average": None}
    nothing = lambda values, whole: [float(v) if w else None for v, w in zip(values, whole)]  # noqa: E731
    support, times = np.bincount(targets, minlength=count), np.bincount(predicted, minlength=count)
    return {
        "logits": logits.astype(int).tolist(),
        "targets": targets.tolist(),
        "expected": expected,
        "precision": nothing(metrics.precision_score(targets, predicted, **of), times),
        "recall": nothing(metrics.recall_score(targets, predicted, **of), support),
        "f1": nothing(metrics.f1_score(targets, predicted, **of), support + times),
        "iou": nothing(metrics.jaccard_score(targets, predicted, **of), support + times),
        "matrix": metrics.confusion_matrix(targets, predicted, labels=range(count)).ravel().tolist(),
    }


def _labels(seed: int, rows: int, labels: int) -> dict:
    draw = np.random.default_rng(seed)
    logits = draw.integers(-3, 4, (rows, labels)).astype(float)
    targets = draw.integers(0, 2, (rows, labels))
    # The last is neither predicted nor there, the one before never there.
    logits[:, -1], targets[:, -2:] = -1, 0
    predicted = (logits > 0).astype(int)
    expected = {
        "macro_precision": metrics.precision_score(targets, predicted, average="macro"),
        "macro_recall": metrics.recall_score(targets, predicted, average="macro"),
        "macro_f1": metrics.f1_score(targets, predicted, average="macro"),
        "weighted_f1": metrics.f1_score(targets, predicted, average="weighted"),
        "micro_f1": metrics.f1_score(targets, predicted, average="micro"),
        "mean_iou": metrics.jaccard_score(targets, predicted, average="macro"),
    }
    return {"logits": logits.astype(int).tolist(), "labels": targets.tolist(), "expected": expected}


def make(path: Path) -> None:
    with warnings.catch_warnings():
        # Of 0/0, which counts as 0.
        warnings.simplefilter("ignore")
        cases = {
            "ties": _classes(*_draw(0, 60, 12, list(range(12)), list(range(12)), 0.5)),
            "never predicted, never the target, neither": _classes(*_draw(1, 40, 6, [0, 1, 2, 4], [1, 2, 3], 0.6)),
            "two classes": _classes(*_draw(2, 20, 2, [0, 1], [0, 1], 0.7)),
            "one class": _classes(*_draw(3, 5, 1, [0], [0], 1.0)),
            "labels": _labels(4, 30, 5),
        }
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")
