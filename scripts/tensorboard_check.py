"""Reads the event files of a run with TensorBoard's own reader, and holds them against its metrics.jsonl.

    pip install tensorboard
    runner train configs/digits_cnn.toml --set log.tensorboard=true --out /tmp/tb
    python scripts/tensorboard_check.py /tmp/tb
"""

import json
import math
import struct
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def tag(kind, key):
    if key in ("loss", "lr"):
        return f"step/{key}"
    if key in ("seconds", "samples_per_s"):
        return f"time/{key}"
    for group in ("train", "val", "memory"):
        if key.startswith(group + "_") and key != "val_unreadable":
            return f"{group}/{key[len(group) + 1:]}"
    return None


def main(run):
    accumulator = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    accumulator.Reload()
    tags = accumulator.Tags()
    expected = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        line = json.loads(line)
        for key, value in line.items():
            name = tag(line["kind"], key)
            if name:
                single = math.nan if value is None else struct.unpack("f", struct.pack("f", value))[0]
                expected.setdefault(name, []).append((line["step"], single))
    # Scalars of the first kind are brought up to tensors by the reader where the metadata says so.
    for name, points in expected.items():
        got = [(e.step, e.value) for e in accumulator.Scalars(name)]
        same = len(got) == len(points) and all(a[0] == b[0] and (a[1] == b[1] or a[1] != a[1] and b[1] != b[1]) for a, b in zip(got, points))
        assert same, f"{name}: {got[:5]}…, not {points[:5]}…"
    epochs = sum(json.loads(line)["kind"] in ("epoch", "eval") for line in (run / "metrics.jsonl").read_text().splitlines())
    for name in tags["histograms"]:
        list_ = accumulator.Histograms(name)
        assert len(list_) == epochs, f"{name}: {len(list_)} histograms of {epochs} epochs and evaluations"
        for event in list_:
            h = event.histogram_value
            assert sum(h.bucket) == h.num and h.min <= h.max, name
    text = accumulator.Tensors("config")[-1].tensor_proto.string_val[0].decode()
    assert "[optimizer]" in text, text
    print(f"{len(expected)} scalars, {len(tags['histograms'])} histograms of {epochs} epochs, and the configuration are as they were written")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
