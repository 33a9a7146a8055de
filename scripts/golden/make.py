"""Makes the files under tests/golden with PyTorch: what the tests hold this program to.

    pip install -r scripts/golden/requirements.txt
    python scripts/golden/make.py            # all; or only those whose name contains a word: make.py conv2d

The files are committed; the tests never need Python. `case.py` tells what is in them.
"""

import argparse
import sys
import tomllib
from pathlib import Path

import architectures
import attention
import combinations
import extremes
import figures
import jpegs
import layers
import mixed
import names
import optimizers
import pth
import runs
import schedules
import scores
import starts
import structure
import text
import torch
import transforms

import case as golden

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", default="", help="make only the cases whose name contains this")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "tests" / "golden")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    cases = layers.cases() + structure.cases() + optimizers.cases() + runs.cases() + combinations.cases() + attention.cases()
    case_names = [c.name for c in cases]
    assert len(set(case_names)) == len(case_names), "two cases have one name"
    total, failed = 0, []
    for case in cases:
        if arguments.only in case.name:
            tomllib.loads(case.config())
            try:
                path = golden.make(case, arguments.out)
            except golden.NoGoodSeed as e:
                failed.append(str(e))
                continue
            total += path.stat().st_size
            print(f"{case.name}: {path.stat().st_size} bytes", flush=True)
    if arguments.only in "pth":
        pth.make(arguments.out / "pth")
    if arguments.only in "extremes":
        extremes.make(arguments.out / "activations")
    if arguments.only in "jpeg":
        jpegs.make(arguments.out / "jpeg")
    if arguments.only in "names":
        names.make(arguments.out / "names")
    if arguments.only in "starts":
        starts.make(arguments.out / "starts")
    if arguments.only in "transforms":
        transforms.make(arguments.out / "transforms")
    if arguments.only in "scores":
        scores.make(arguments.out / "scores.json")
    if arguments.only in "figures":
        figures.make(arguments.out / "figures.json")
    if arguments.only in "text":
        text.make(arguments.out / "text.json")
    if arguments.only in "mixed":
        mixed.make(arguments.out / "mixed")
    if arguments.only in "learning_rates":
        schedules.make(arguments.out / "learning_rates.json")
    architectures.make(arguments.out / "architectures", arguments.only)
    print(f"{total / 1e6:.2f} MB of cases")
    if failed:
        sys.exit("no good seed for\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
