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
from tensorboard.plugins.hparams import plugin_data_pb2


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
    sizes = {"scalars": 0, "histograms": 0, "tensors": 0, "images": 0}
    accumulator = EventAccumulator(str(run / "tensorboard"), size_guidance=sizes)
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
    groups = [{name.split("/", 1)[1] for name in tags["histograms"] if name.startswith(group + "/")} for group in ("weights", "gradients")]
    assert groups[1] and groups[1] <= groups[0], groups
    started = accumulator.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    settings = plugin_data_pb2.HParamsPluginData.FromString(started).session_start_info.hparams
    assert settings["optimizer.type"].string_value and settings["train.epochs"].number_value > 0, sorted(settings)
    text = accumulator.Tensors("config")[-1].tensor_proto.string_val[0].decode()
    assert "[optimizer]" in text, text
    pictures = 0
    for name in tags["images"]:
        for event in accumulator.Images(name):
            # The first bytes of a PNG file, then its width and height.
            png = event.encoded_image_string
            assert png[:8] == b"\x89PNG\r\n\x1a\n", name
            assert struct.unpack(">II", png[16:24]) == (event.width, event.height), name
            pictures += 1
    if pictures:
        rows = sum(e.tensor_proto.string_val[0].decode().count("\n") - 2 for e in accumulator.Tensors("mistakes"))
        assert rows == pictures, f"{rows} rows for {pictures} pictures"
    # As the page of graphs asks for it: parsed, and every input is a node.
    nodes = {node.name: node for node in accumulator.Graph().node}
    assert all(name in nodes for node in nodes.values() for name in node.input), sorted(nodes)
    assert all("_output_shapes" in node.attr for node in nodes.values())
    print(
        f"{len(expected)} scalars, {len(tags['histograms'])} histograms of {epochs} epochs, {pictures} pictures, a graph of {len(nodes)} nodes, "
        "and the configuration are as they were written"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
