"""Parquet files as pyarrow, pandas and polars write them, with what is in them, for `src/data/sheet/columns/tests.rs` and `tests/suites/cli/parquet.rs`.

    pip install pyarrow pandas polars
    python scripts/golden/parquet_files.py

`tests/golden/parquet/cells.json` has the cells of `types.parquet`, column by column, as they stand in a CSV of the same rows; `houses.csv` has
those of most others.
"""

import datetime as dt
import decimal
import io
import json
import random
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "parquet"


def texts(values):
    """Cells of CSV: nothing where a value is missing."""
    out = []
    for value in values:
        if value is None:
            out.append("")
        elif isinstance(value, bool):
            out.append("true" if value else "false")
        elif isinstance(value, dt.datetime):
            text = value.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
            out.append(text + ("+00:00" if value.tzinfo else ""))
        elif isinstance(value, dt.time):
            text = value.strftime("%H:%M:%S.%f").rstrip("0").rstrip(".")
            out.append(text)
        else:
            out.append(str(value).strip())
    return out


def types():
    """A column of each type that a cell can be of; the second value of each is missing."""
    utc = dt.timezone.utc
    moment = dt.datetime(2026, 11, 26, 17, 30, 5, 250_000)
    early = dt.datetime(1969, 12, 31, 23, 59, 59, 999_000)
    d = decimal.Decimal
    columns = {
        "int8": (pa.int8(), [-128, None, 127]),
        "int16": (pa.int16(), [-32768, None, 32767]),
        "int32": (pa.int32(), [-(2**31), None, 2**31 - 1]),
        "int64": (pa.int64(), [-(2**63), None, 2**63 - 1]),
        "uint8": (pa.uint8(), [0, None, 255]),
        "uint16": (pa.uint16(), [0, None, 65535]),
        "uint32": (pa.uint32(), [0, None, 2**32 - 1]),
        "uint64": (pa.uint64(), [0, None, 2**64 - 1]),
        "half": (pa.float16(), [np.float16(1.5), None, np.float16(-0.25)]),
        "float": (pa.float32(), [1.5, None, -0.25]),
        "double": (pa.float64(), [0.1, None, 1234.0]),
        "bool": (pa.bool_(), [True, None, False]),
        "text": (pa.string(), ["ü, ö", None, " in spaces "]),
        "large": (pa.large_string(), ["a", None, "b"]),
        "view": (pa.string_view(), ["long enough for a view", None, "b"]),
        "category": (pa.dictionary(pa.int8(), pa.string()), ["x", None, "y"]),
        "decimal32": (pa.decimal32(7, 2), [d("1.50"), None, d("-0.05")]),
        "decimal64": (pa.decimal64(15, 3), [d("1.500"), None, d("-12345678.901")]),
        "decimal128": (pa.decimal128(38, 10), [d("1234567890123456789.0123456789"), None, d("-0.0000000001")]),
        "decimal256": (pa.decimal256(50, 1), [d("12345678901234567890.1"), None, d("-2.5")]),
        "date32": (pa.date32(), [dt.date(2026, 11, 26), None, dt.date(1901, 3, 1)]),
        "date64": (pa.date64(), [dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)]),
        "ms": (pa.timestamp("ms"), [moment, None, early]),
        "us": (pa.timestamp("us"), [moment, None, early]),
        "ns": (pa.timestamp("ns"), [moment, None, early]),
        "s": (pa.timestamp("s"), [dt.datetime(2026, 1, 1), None, dt.datetime(1999, 12, 31, 23, 59, 59)]),
        "utc": (pa.timestamp("us", tz="UTC"), [moment.replace(tzinfo=utc), None, early.replace(tzinfo=utc)]),
        "time32": (pa.time32("ms"), [dt.time(17, 30), None, dt.time(0, 0, 1, 500_000)]),
        "time64": (pa.time64("us"), [dt.time(17, 30), None, dt.time(0, 0, 1, 500_001)]),
        "uuid": (pa.uuid(), [uuid.UUID(int=2**100 + 7).bytes, None, uuid.UUID(int=5).bytes]),
        "nothing": (pa.null(), [None, None, None]),
    }
    arrays = [pa.array(values, type=type) if name != "uuid" else pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16))) for name, (type, values) in columns.items()]
    cells = {}
    for name, (type, values) in columns.items():
        if name == "uuid":
            values = [value and uuid.UUID(bytes=value) for value in values]
        if name == "half":
            values = [None if value is None else float(value) for value in values]
        if name.startswith("decimal"):
            values = [None if value is None else format(value, "f") for value in values]
        cells[name] = texts(values)
    return pa.table(dict(zip(columns, arrays))), cells


def rows(count, seed):
    """Rows with something to learn in them, and their cells."""
    draw = random.Random(seed)
    table = {"rooms": [], "area": [], "town": [], "sold": [], "garden": [], "price": []}
    for _ in range(count):
        rooms, area = draw.randint(1, 6), round(draw.uniform(20, 200), 2)
        town = draw.choice(["sea", "hill", "wood", "forest, deep"])
        sold = dt.date(2020, 1, 1) + dt.timedelta(days=draw.randrange(2000))
        garden = draw.random() < 0.5
        price = round(1000 * area + 20_000 * rooms + {"sea": 90_000, "hill": 30_000}.get(town, 0) + 9_000 * garden, 1)
        table["rooms"].append(rooms)
        table["area"].append(None if draw.random() < 0.1 else area)
        table["town"].append(None if draw.random() < 0.05 else town)
        table["sold"].append(sold)
        table["garden"].append(garden)
        table["price"].append(price)
    return table


SCHEMA = pa.schema([("rooms", pa.int64()), ("area", pa.float64()), ("town", pa.string()), ("sold", pa.date32()), ("garden", pa.bool_()), ("price", pa.float64())])


def csv(table):
    out = io.StringIO()
    pd.DataFrame({name: texts(values) for name, values in table.items()}).to_csv(out, index=False, lineterminator="\n")
    return out.getvalue()


def main():
    OUT.mkdir(parents=True, exist_ok=True)

    def write(name, table, **options):
        # Without Arrow's own schema and statistics, which nothing here reads, files are small.
        pq.write_table(table, OUT / name, store_schema=False, write_statistics=False, **options)

    table, cells = types()
    write("types.parquet", table)
    old = table.select(["us", "ns"])
    pq.write_table(old, OUT / "int96.parquet", use_deprecated_int96_timestamps=True)

    some = rows(300, 1)
    whole = pa.table(some, schema=SCHEMA)
    for packing in ["none", "snappy", "gzip", "zstd", "lz4"]:
        write(f"{packing}.parquet", whole, compression=packing, row_group_size=128)
    write("pages.parquet", whole, compression="zstd", data_page_size=256, write_batch_size=16, data_page_version="2.0", use_dictionary=False)
    plain = {"rooms": "DELTA_BINARY_PACKED", "area": "BYTE_STREAM_SPLIT", "town": "DELTA_BYTE_ARRAY", "sold": "DELTA_BINARY_PACKED", "garden": "RLE", "price": "PLAIN"}
    write("deltas.parquet", whole, compression="snappy", use_dictionary=False, column_encoding=plain, data_page_version="2.0")
    plain["town"] = "DELTA_LENGTH_BYTE_ARRAY"
    write("lengths.parquet", whole, compression="none", use_dictionary=False, column_encoding=plain)
    required = pa.schema([field.with_nullable(False) if field.name in ["rooms", "price"] else field for field in SCHEMA])
    write("required.parquet", pa.table(some, schema=required).select(["rooms", "price"]))
    pl.from_arrow(whole).write_parquet(OUT / "polars.parquet", statistics=False)
    # An index without a name is no column; categories and missing whole numbers are what pandas has.
    frame = whole.to_pandas().astype({"town": "category", "rooms": "Int64"})
    frame.index = [f"row {i}" for i in range(300)]
    frame["garden"] = frame["garden"].astype("boolean")
    frame.to_parquet(OUT / "pandas.parquet")
    (OUT / "houses.csv").write_text(csv(some))

    # The same in two files, of which the second has its columns in another order.
    first = whole.slice(0, 200)
    second = whole.slice(200).select(["price", "town", "rooms", "area", "garden", "sold"])
    pq.write_table(first, OUT / "part-1.parquet", store_schema=False, write_statistics=False)
    pq.write_table(second, OUT / "part-2.parquet", store_schema=False, write_statistics=False)

    nested = pa.table({"x": [1, 2, 3], "tags": [["a"], [], None], "place": [{"lat": 1.0, "lon": 2.0}] * 3, "raw": [b"\x00", b"\xff", None], "y": [0.5, 1.5, 2.5]})
    pq.write_table(nested, OUT / "nested.parquet", store_schema=False)
    pq.write_table(nested.select(["x", "y"]), OUT / "brotli.parquet", store_schema=False, compression="brotli")
    pq.write_table(whole.slice(0, 0), OUT / "none-at-all.parquet", store_schema=False)
    words = [("number {} was so good to me", "up"), ("of all I have seen, {} was very bad", "down")]
    reviews = {"review": [words[i % 2][0].format(i) for i in range(32)], "stars": [words[i % 2][1] for i in range(32)]}
    pq.write_table(pa.table(reviews), OUT / "reviews.parquet", store_schema=False)
    (OUT / "cells.json").write_text(json.dumps(cells, ensure_ascii=False, separators=(",", ":")) + "\n")
    for path in sorted(OUT.iterdir()):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
