"""What the checks of `runner export` share."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts/golden"))

Array = npt.NDArray[Any]


def runner(*args: str | Path) -> str:
    """What the program prints; `RUNNER` names it."""
    program = os.environ.get("RUNNER", str(ROOT / "target/release/runner"))
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"runner {' '.join(map(str, args))}: {done.stderr.strip()}")
    return done.stdout


def model_config(folder: Path, model: Path, inputs: Array, options: dict[str, Any], pixels: bool) -> Path:
    """A configuration of a model for such images; with `pixels` it has a class for each of them."""
    shape = (len(inputs), *inputs.shape[2:]) if pixels else (len(inputs),)
    save_file({"inputs": inputs, "targets": np.zeros(shape, np.int64)}, folder / "batch.safetensors")
    given = ", ".join(f"{key} = {value}" for key, value in options.items())
    path = folder / "model.toml"
    path.write_text(
        f"[data]\nsource = 'tensors'\npath = 'batch.safetensors'\n[model]\nuse = '{model}'\nwith = {{ {given} }}\n"
        "[loss]\ntype = 'cross_entropy'\n[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n"
    )
    return path


# The data with which the models begin that take no images, and what is learnt of it.
VISITS = ("data/visits/visits.csv", "--target", "visits")
OPINIONS = ("data/opinions/train.csv", "--target", "opinion")
DATES = ("data/dates/train.csv", "--target", "iso")
TEXT = ("data/README.md",)
BEGUN = (
    dict.fromkeys(["dlrm", "ft_transformer", "linear", "lstm_forecaster", "tabm", "tabular", "tabular_mlp", "tabular_resnet"], VISITS)
    | dict.fromkeys(["bert", "distilbert", "lstm_classifier", "text_classifier"], OPINIONS)
    | dict.fromkeys(["gpt", "gpt2", "llama", "lstm"], TEXT)
    | dict.fromkeys(["gru_seq2seq", "transformer"], DATES)
)


def begun_config(folder: Path, model: str) -> Path:
    """A configuration of a model that takes no images, as `runner init` writes it for the data of this repository."""
    if model == "lstm_tagger":    # `init` knows no sentences
        return ROOT / "configs/sentences_lstm.toml"
    source, *more = BEGUN[model]
    config = folder / f"{model}.toml"
    runner("init", ROOT / source, *more, "--model", model, "--out", config)
    return config


class Findings:
    """What was compared, and what differs."""

    def __init__(self) -> None:
        self.done, self.faults, self.worst = 0, list[str](), 0.0

    def near(self, name: str, got: Array, want: Array, share: float = 1e-4) -> None:
        """Every number is right to `share` of the largest."""
        self.done += 1
        if got.shape != want.shape:
            self.faults.append(f"{name}: of shape {got.shape}, not {want.shape}")
            return
        scale = float(np.abs(want).max(initial=1e-30))
        off = float(np.abs(got.astype(np.float64) - want).max(initial=0.0)) / scale
        self.worst = max(self.worst, off)
        if not off <= share:
            self.faults.append(f"{name}: differs by {off:.2e} of the scale")

    def failed(self, name: str, error: Exception) -> None:
        self.done += 1
        self.faults.append(f"{name}: {error}")

    def end(self) -> None:
        print(f"{self.done} compared, the worst differs by {self.worst:.1e} of the scale; {len(self.faults)} faults")
        print(*self.faults, sep="\n", end="\n" * bool(self.faults))
        sys.exit(bool(self.faults))
