"""The bytes of TensorBoard's own messages, to which `src/train/files/tensorboard` is held: tests/golden/tensorboard.tfevents.

    pip install tensorboard
    python scripts/golden/tensorboard_events.py
"""

import math
import struct
from pathlib import Path

from tensorboard.compat.proto import attr_value_pb2, event_pb2, graph_pb2, node_def_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
from tensorboard.plugins.hparams import metadata, plugin_data_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

WALL_TIME = 1_700_000_000.25
OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tensorboard.tfevents"


def limits():
    """The buckets of TensorFlow's `histogram.cc`."""
    up, limit = [], 1e-12
    while limit < 1e20:
        up.append(limit)
        limit *= 1.1
    most = struct.unpack("<d", struct.pack("<Q", 0x7FEFFFFFFFFFFFFF))[0]
    return [-most] + [-x for x in reversed(up)] + [0.0] + up + [most]


def histogram(values):
    values = [struct.unpack("<f", struct.pack("<f", v))[0] for v in values]
    ends = limits()
    counts = [0.0] * len(ends)
    for v in values:
        counts[next(i for i, end in enumerate(ends) if end > v)] += 1
    out = summary_pb2.HistogramProto(
        min=min(values, default=ends[-1]),
        max=max(values, default=ends[0]),
        num=len(values),
        sum=math.fsum(values),
        sum_squares=math.fsum(v * v for v in values),
    )
    i = 0
    while i < len(ends):
        end, count = ends[i], counts[i]
        i += 1
        if count == 0:
            while i < len(ends) and counts[i] == 0:
                end = ends[i]
                i += 1
        out.bucket_limit.append(end)
        out.bucket.append(count)
    return out


def scalars(**values):
    return [summary_pb2.Summary.Value(tag=tag.replace("__", "/"), simple_value=v) for tag, v in values.items()]


def text(tag, content):
    return summary_pb2.Summary.Value(
        tag=tag,
        tensor=tensor_pb2.TensorProto(
            dtype="DT_STRING",
            tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)]),
            string_val=[content.encode()],
        ),
        metadata=summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text")),
    )


def node(name, op, inputs, shape, **numbers):
    shape = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=n) for n in shape])
    shapes = attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(shape=[shape]))
    numbers = {key: attr_value_pb2.AttrValue(i=n) for key, n in numbers.items()}
    return node_def_pb2.NodeDef(name=name, op=op, input=inputs, attr={"_output_shapes": shapes, **numbers})


def graph():
    """A linear layer with a bias, as `src/train/files/tensorboard/tests.rs` has it."""
    return graph_pb2.GraphDef(
        node=[
            node("inputs/inputs", "input", [], [2, 4]),
            node("fc.linear/weight", "parameter", [], [3, 4]),
            node("fc.linear/bias", "parameter", [], [3]),
            node("fc.linear/linear", "linear", ["inputs/inputs", "fc.linear/weight", "fc.linear/bias"], [2, 3], parameters=15, flops=48),
            node("targets/targets", "input", [], [2]),
            node("loss", "cross_entropy", ["fc.linear/linear", "targets/targets"], []),
        ]
    )


def main():
    Event = event_pb2.Event
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    events = [
        Event(wall_time=WALL_TIME, step=0, file_version="brain.Event:2"),
        Event(wall_time=WALL_TIME, step=7, session_log=start),
    ]

    def summary(step, values):
        events.append(Event(wall_time=WALL_TIME, step=step, summary=summary_pb2.Summary(value=values)))

    summary(0, [text("config", '    seed = 1\n    name = "ä"\n')])
    summary(7, scalars(train__loss=0.5, val__loss=math.nan, time__samples_per_s=1234.0))
    values = [-1.5, -0.25, 0.0, 0.0, 1e-3, 0.25, 0.26, 2.0]
    summary(7, [summary_pb2.Summary.Value(tag="weights/fc.weight", histo=histogram(values))])
    summary(8, [summary_pb2.Summary.Value(tag="weights/empty", histo=histogram([]))])
    events.append(Event(wall_time=WALL_TIME, step=9, graph_def=graph().SerializeToString(deterministic=True)))
    image = summary_pb2.Summary.Image(height=2, width=3, colorspace=1, encoded_image_string=b"\x89PNG, but for its bytes")
    summary(9, [summary_pb2.Summary.Value(tag="mistakes/1", image=image)])
    summary(9, [text("mistakes", "| a |\n| --- |\n| 1 |\n")])
    start = plugin_data_pb2.SessionStartInfo(start_time_secs=WALL_TIME)
    start.hparams["seed"].number_value = 1
    start.hparams["optimizer.type"].string_value = "adam"
    start.hparams["optimizer.lr"].number_value = 0.25
    start.hparams["optimizer.betas"].string_value = "[0.5, 0.75]"
    start.hparams["optimizer.amsgrad"].bool_value = True
    # As `metadata.create_summary_metadata` does it, but for the order of a table's keys.
    content = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, session_start_info=start)
    plugin = summary_pb2.SummaryMetadata.PluginData(
        plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString(deterministic=True)
    )
    of_plugin = summary_pb2.SummaryMetadata(plugin_data=plugin)
    summary(0, [summary_pb2.Summary.Value(tag=metadata.SESSION_START_INFO_TAG, metadata=of_plugin)])
    with open(OUT, "wb") as out:
        writer = RecordWriter(out)
        for event in events:
            writer.write(event.SerializeToString(deterministic=True))
        out.flush()
    print(f"{OUT}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
