#!/usr/bin/env python3
"""Writes the bundled data set, data/digits/*.gz, from scikit-learn's copy of the UCI hand-written digits.

Pixels run from 0 to 16 in the original; the IDX files hold round(value * 255 / 16), so that the set looks like any
other set of byte images. The original order is kept: it runs from writer to writer, so the last 297 of the 1,797
samples, which become the test set, come for the most part from hands that the training set has not seen.

The files are the same, byte for byte, on every run (no time stamp in the gzip header).
Usage: python scripts/make_digits.py [FOLDER]     (needs scikit-learn)
"""

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TEST = 297


def write_idx(path: Path, array: np.ndarray) -> None:
    """One IDX file: two zero bytes, type 0x08 (unsigned byte), rank, dimensions (big-endian), data."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes(), compresslevel=9, mtime=0))


def main() -> None:
    default = Path(__file__).resolve().parent.parent / "data" / "digits"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    images = np.floor(digits.images * 255 / 16 + 0.5).astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    cut = len(images) - TEST
    for name, part in (("train", slice(0, cut)), ("test", slice(cut, None))):
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", images[part])
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", labels[part])
        print(name, images[part].shape, "labels", np.bincount(labels[part]).tolist())


if __name__ == "__main__":
    main()
