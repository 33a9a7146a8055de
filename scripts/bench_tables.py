"""`models/tabular.toml` beside scikit-learn's HistGradientBoosting and XGBoost on the same rows: the mean over some seeds.

    RUNNER=target/release/runner python3 scripts/bench_tables.py DATA [--seeds 5] [--folds N] [--only WORD] [--set KEY=VALUE …]

    … --set 'precision="bf16"'    # on a CPU that has it

DATA is a folder with california_housing.csv, winequality-red.csv, mpg.csv, penguins.csv and iris.csv. Each seed divides the rows anew: 64 % to
train on, 16 % to choose the epoch by, 20 % to test on, in which no model has a part. Boosted trees are trained with their defaults ("default") and with
small steps that stop by the same rows ("stopped"). With `--folds N` the first two parts are one table of `folds = N`: `runner` trains N models, and their
mean answers. Needs scikit-learn, xgboost and pandas. What is told is the error on the rows of the test: RMSE in the
target's unit (houses: 100,000 dollars), or the share of wrong classes.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from xgboost import XGBClassifier, XGBRegressor

RUNNER = os.environ.get("RUNNER", "target/release/runner")
# File, target, whether it is a class, what its unit is divided by, separator.
TABLES = {
    "california": ("california_housing.csv", "median_house_value", False, 1e5, ","),
    "wine": ("winequality-red.csv", "quality", False, 1.0, ";"),
    "mpg": ("mpg.csv", "mpg", False, 1.0, ","),
    "penguins": ("penguins.csv", "species", True, 1.0, ","),
    "iris": ("iris.csv", "species", True, 1.0, ","),
}


def divided(rows: int, seed: int) -> np.ndarray:
    """Which part each row is of."""
    parts = np.full(rows, "train", dtype=object)
    order = np.random.default_rng(seed).permutation(rows)
    test, val = rows // 5, rows * 16 // 100
    parts[order[:test]] = "test"
    parts[order[test : test + val]] = "val"
    return parts


def ours(frame: pd.DataFrame, target: str, classes: bool, folder: Path, sets: list[str], seed: int, folds: int) -> float:
    test = frame["split"] == "test"
    if folds:
        frame[test].drop(columns="split").to_csv(folder / "test.csv", index=False)
        frame[~test].drop(columns="split").to_csv(folder / "table.csv", index=False)
    else:
        frame.to_csv(folder / "table.csv", index=False)
    config = folder / "c.toml"
    rows = (frame["split"] == "train").sum()
    config.write_text(
        f"""
seed = {seed}
device = "cpu"
[data]
source = "csv"
path = "table.csv"
target = "{target}"
{f'folds = {folds}' if folds else 'split_column = "split"'}
batch_size = {256 if rows > 5000 else 32}
[model]
use = "tabular"
[loss]
type = "{'cross_entropy' if classes else 'mse'}"
[optimizer]
type = "adamw"
lr = 4e-3
weight_decay = 3e-4
[schedule]
type = "cosine"
warmup_epochs = 1
[train]
epochs = 40
clip_grad_norm = 1.0
[checkpoint]
monitor = "val_loss"
"""
    )
    more = [word for entry in sets for word in ("--set", entry)]
    subprocess.run([RUNNER, "train", str(config), "--quiet", "--force", "--out", str(folder / "run"), *more], check=True)
    where = ["--set", f"data.val_path={folder / 'test.csv'}"] if folds else ["--split", "test"]
    told = subprocess.run([RUNNER, "eval", str(folder / "run"), *where, "--json"], check=True, capture_output=True, text=True)
    metrics = json.loads(told.stdout)["metrics"]
    return 1 - metrics["accuracy"] if classes else metrics["rmse"]


def error(predicted: np.ndarray, y: np.ndarray, classes: bool) -> float:
    return float((predicted != y).mean() if classes else np.sqrt(((predicted - y) ** 2).mean()))


def trees(frame: pd.DataFrame, target: str, classes: bool, seed: int) -> dict[str, float]:
    x = frame.drop(columns=[target, "split"])
    for column in x.columns:
        if not pd.api.types.is_numeric_dtype(x[column]):
            x[column] = x[column].astype("category")
    y = frame[target]
    y = y.astype("category").cat.codes.to_numpy() if classes else y.to_numpy(float)
    train, val, test = (np.flatnonzero(frame["split"] == part) for part in ("train", "val", "test"))
    fit = np.concatenate([train, val])
    hgb = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    xgb = XGBClassifier if classes else XGBRegressor
    told = {}
    model = hgb(categorical_features="from_dtype", random_state=seed).fit(x.iloc[fit], y[fit])
    told["sklearn default"] = error(model.predict(x.iloc[test]), y[test], classes)
    model = hgb(categorical_features="from_dtype", learning_rate=0.05, max_iter=2000, early_stopping=True, n_iter_no_change=50, random_state=seed)
    model.fit(x.iloc[train], y[train], X_val=x.iloc[val], y_val=y[val])
    told["sklearn stopped"] = error(model.predict(x.iloc[test]), y[test], classes)
    model = xgb(enable_categorical=True, random_state=seed).fit(x.iloc[fit], y[fit])
    told["xgboost default"] = error(model.predict(x.iloc[test]), y[test], classes)
    model = xgb(enable_categorical=True, learning_rate=0.05, n_estimators=3000, early_stopping_rounds=50, random_state=seed)
    model.fit(x.iloc[train], y[train], eval_set=[(x.iloc[val], y[val])], verbose=False)
    told["xgboost stopped"] = error(model.predict(x.iloc[test]), y[test], classes)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    arguments = parser.parse_args()
    for name, (file, target, classes, unit, separator) in TABLES.items():
        if arguments.only not in name:
            continue
        frame = pd.read_csv(arguments.data / file, sep=separator).dropna(subset=[target])
        # A name is no column to learn from.
        frame = frame.drop(columns=[column for column in frame.columns if column == "name"]).reset_index(drop=True)
        frame[target] = frame[target] if classes else frame[target] / unit
        found: dict[str, list[float]] = {}
        seconds = 0.0
        for seed in range(arguments.seeds):
            own = frame.assign(split=divided(len(frame), seed))
            with tempfile.TemporaryDirectory() as folder:
                begin = time.perf_counter()
                found.setdefault("runner", []).append(ours(own, target, classes, Path(folder), arguments.sets, seed, arguments.folds))
                seconds += time.perf_counter() - begin
            for kind, value in trees(own, target, classes, seed).items():
                found.setdefault(kind, []).append(value)
        of = "wrong classes" if classes else "RMSE"
        print(f"{name} ({len(frame)} rows, {of}; {seconds / arguments.seeds:.0f} s a training)")
        for kind, values in found.items():
            print(f"  {kind:16} {np.mean(values):.4f} ± {np.std(values):.4f}", flush=True)


if __name__ == "__main__":
    main()
