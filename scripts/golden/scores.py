"""Figures of scores and of regressions by scikit-learn, from outputs and targets that a seed draws: tests/golden/scores.json.

There are ties, classes without samples, sets of one class only, and targets that are all the same. All outputs are exact in
single precision.
"""

import json
import warnings
from pathlib import Path

import numpy as np
from sklearn import metrics


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    """Without the largest, whose share is 1, in the sum: what is left of a sure prediction is not rounded away."""
    best = logits.argmax(1)[:, None]
    shifted = logits - logits.max(1, keepdims=True)
    others = np.exp(shifted)
    np.put_along_axis(others, best, 0.0, 1)
    return shifted - np.log1p(others.sum(1, keepdims=True))


def _mean_over(classes, targets: np.ndarray, scores: np.ndarray, figure, defined) -> float | None:
    """One class against the rest, in the mean over the classes for which that is defined."""
    values = [figure(targets == c, scores[:, c]) for c in classes if defined(targets == c)]
    return float(np.mean(values)) if values else None


def _calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Guo et al. 2017, equations 2 and 3: a bin has its upper end."""
    bin_of = (confidence[:, None] > np.arange(1, bins) / bins).sum(1)
    of = [bin_of == b for b in range(bins) if (bin_of == b).any()]
    return float(sum(m.sum() * abs(right[m].mean() - confidence[m].mean()) for m in of) / len(confidence))


def _classes(logits: np.ndarray, targets: np.ndarray, ignored: int | None = None) -> dict:
    case = {"logits": logits.tolist(), "targets": targets.tolist(), "ignored": ignored}
    if ignored is not None:
        logits, targets = logits[targets != ignored], targets[targets != ignored]
    count = logits.shape[1]
    logs = _log_softmax(logits)
    # In single precision, so that what is equal stays equal, in whatever order it was summed.
    scores = logs.astype(np.float32)
    # Of two classes it is the second, as of scikit-learn's binary targets.
    classes = [1] if count == 2 else range(count)
    some, mixed = (lambda is_it: is_it.any()), (lambda is_it: 0 < is_it.sum() < len(is_it))
    return case | {
        "expected": {
            "auroc": _mean_over(classes, targets, scores, metrics.roc_auc_score, mixed),
            "average_precision": _mean_over(classes, targets, scores, metrics.average_precision_score, some),
            "calibration_error": _calibration_error(np.exp(logs.max(1)), logits.argmax(1) == targets),
            # Not from scikit-learn's `log_loss`, which keeps probabilities from 0; `make` holds it to that where it does not.
            "log_loss": float(-logs[np.arange(len(targets)), targets].mean()),
            "perplexity": float(np.exp(-logs[np.arange(len(targets)), targets].mean())),
        },
    }


def _labels(logits: np.ndarray, labels: np.ndarray) -> dict:
    some, mixed = (lambda is_it: is_it.any()), (lambda is_it: 0 < is_it.sum() < len(is_it))
    each = range(logits.shape[1])

    def mean(figure, defined):
        values = [figure(labels[:, c], logits[:, c]) for c in each if defined(labels[:, c] == 1)]
        return float(np.mean(values)) if values else None

    sure = 1 / (1 + np.exp(-np.abs(logits.ravel())))
    right = (logits.ravel() > 0) == (labels.ravel() == 1)
    return {
        "logits": logits.tolist(),
        "labels": labels.tolist(),
        "expected": {
            "auroc": mean(metrics.roc_auc_score, mixed),
            "average_precision": mean(metrics.average_precision_score, some),
            "calibration_error": _calibration_error(sure, right),
            # In the mean over the labels, each of which is a question of yes or no.
            "log_loss": float(np.logaddexp(0, np.where(labels == 1, -logits, logits)).mean()),
        },
    }


def _numbers(predictions: np.ndarray, targets: np.ndarray) -> dict:
    return {
        "predictions": predictions.tolist(),
        "values": targets.tolist(),
        "expected": {
            "mae": metrics.mean_absolute_error(targets, predictions),
            "rmse": float(np.sqrt(metrics.mean_squared_error(targets, predictions))),
            "r2": float(metrics.r2_score(targets, predictions)) if len(targets) > 1 else None,
            "mape": metrics.mean_absolute_percentage_error(targets, predictions),
        },
    }


def make(path: Path) -> None:
    draw = np.random.default_rng(5)
    # In sixteenths, and in whole numbers, of which many are equal.
    fine = lambda *shape: np.round(draw.normal(0, 2, shape) * 16) / 16  # noqa: E731
    coarse = lambda *shape: draw.integers(-1, 2, shape).astype(float)  # noqa: E731
    targets = draw.integers(0, 4, 60)
    some = np.where(targets == 2, 1, targets)
    ignored = np.where(draw.random(60) < 0.3, -100, targets)
    values = np.round(draw.normal(3, 2, (40, 3)) * 16) / 16
    near = values + np.round(draw.normal(0, 0.5, (40, 3)) * 16) / 16
    logits = fine(60, 4)
    whole = metrics.roc_auc_score(targets, np.exp(_log_softmax(logits)), multi_class="ovr")
    labels = draw.integers(0, 2, (50, 3))
    lone = np.concatenate([labels[:, :1], np.zeros((50, 1), int), np.ones((50, 1), int)], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cases = {
            "four classes": _classes(logits, targets),
            "ties": _classes(coarse(60, 4), targets),
            "a class without samples": _classes(fine(60, 4), some),
            "all of one class": _classes(fine(20, 3), np.full(20, 2)),
            "two classes": _classes(fine(50, 2), draw.integers(0, 2, 50)),
            "two classes with ties": _classes(coarse(50, 2), draw.integers(0, 2, 50)),
            "some are ignored": _classes(fine(60, 4), ignored, -100),
            "sure of itself": _classes(fine(30, 3) * 40, draw.integers(0, 3, 30)),
            "labels": _labels(fine(50, 3), labels),
            "labels with ties": _labels(coarse(50, 3), labels),
            "labels of which one is always and one never": _labels(fine(50, 3), lone),
            "one label": _labels(fine(50, 1), labels[:, :1]),
            "three outputs": _numbers(near, values),
            "one output": _numbers(near[:, :1], values[:, :1]),
            "far from 0": _numbers(near[:, :1] + 1000, values[:, :1] + 1000),
            "worse than the mean": _numbers(-near[:, :1], values[:, :1]),
            "targets that are the same": _numbers(near[:, :1], np.full((40, 1), 0.75)),
            "perfect": _numbers(np.full((5, 1), 0.75), np.full((5, 1), 0.75)),
            "targets that are 0": _numbers(near[:6, :1], np.array([[0.0], [1.0], [0.0], [2.0], [-1.0], [3.0]])),
            "a single number": _numbers(near[:1, :1], values[:1, :1]),
        }
    expected = cases["four classes"]["expected"]
    assert abs(expected["auroc"] - whole) < 1e-12
    assert abs(np.log(expected["perplexity"]) - metrics.log_loss(targets, np.exp(_log_softmax(logits)))) < 1e-12
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")
