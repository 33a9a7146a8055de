"""Asks a server many times, half of them with broken requests, and looks at what it answers, at its memory and at its life.

    runner train configs/digits_cnn.toml
    python scripts/serve_soak.py --runner target/release/runner --run runs/digits_cnn/1 --requests 100000
    python scripts/serve_soak.py --runner target/release/runner --run runs/digits_cnn/1 --text runs/gpt/1 --table runs/prices/1 --row rooms=3 --row town=sea --minutes 10

A good request is a drawing whose answer is known, alone, as rows or as tensors, of a model of the Open Inference Protocol, too; with `--text` a text that a
language model goes on with, whole or as a stream whose client goes away; with `--table` a row. It must have that answer, to the byte; a text, its words. A broken one is cut, of another
type or size than it says, a bomb, a path that leads elsewhere, no HTTP at all, or slow. It may be refused (4xx) or its connection ended. It fails where
an answer is another one, where a broken request is answered as a good one or by a fault of the server (500), where the program ends, or where its memory
still grows in the last two thirds.
"""

import argparse
import asyncio
import itertools
import json
import random
import struct
import subprocess
import sys
import time
import zlib


def png(width, height, rows):
    """A grey PNG file; `rows` may be fewer than its header says."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b"")


def drawing(seed):
    draw = random.Random(seed)
    return png(8, 8, [bytes(draw.randrange(256) for _ in range(8)) for _ in range(8)])


def request(path, kind, body, method="POST", length=None):
    length = len(body) if length is None else length
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n".encode() + body


def good(number):
    """One of 64 requests for a drawing that can be answered."""
    rows = [[[(number * 7 + x * y) % 17 for x in range(8)] for y in range(8)]]
    if number % 4 == 3:
        return request("/predict/m", "application/json", json.dumps({"instances": [rows] * 3}).encode())
    if number % 8 == 2:
        tensor = {"name": "inputs", "shape": [1, 1, 8, 8], "datatype": "UINT8", "data": [rows]}
        return request("/v2/models/m/infer", "application/json", json.dumps({"inputs": [tensor]}).encode())
    return request("/predict/m", "image/png", DRAWINGS[number])


def all_good(args):
    """All requests that can be answered."""
    asked = [good(number) for number in range(64)]
    if args.text:
        for seed in range(16):
            how = {"model": "t", "prompt": "a", "max_tokens": 20, "seed": seed, "n": 1 + seed % 2, "stream": seed % 4 == 3}
            asked.append(request("/v1/completions", "application/json", json.dumps(how).encode()))
    if args.table:
        names, cells = zip(*(cell.split("=", 1) for cell in args.row))
        rows = "".join(",".join(row) + "\n" for row in (names, cells, cells))
        asked += [request("/predict/r", "text/csv", rows.encode())] * 16
    return asked


def told(given):
    """What of an answer is the same each time: texts have a number and a date."""
    if given is not None and b'"object":"text_completion"' in given[1]:
        return given[0], [choice["text"] for choice in json.loads(given[1])["choices"]]
    return given


# Made once: they take long.
DRAWINGS = [drawing(number) for number in range(64)]
BOMB = png(60_000, 60_000, [bytes(1000)] * 1000)
MANY = json.dumps({"instances": [[[[0] * 8] * 8]] * 3000}).encode()


def broken(draw):
    """A request that cannot be answered, and whether it is sent slowly."""
    body = draw.choice(DRAWINGS)
    path = draw.choice(["/predict/../../etc/passwd", "/v2/models/%2e%2e/infer", "/predict/nothing", "//", "/v2/models/m/versions/2/infer"])
    cases = [
        (request("/predict/m", "image/png", body[: draw.randrange(1, len(body) - 12)]), False),
        (request("/predict/m", "image/png", body, length=len(body) + 50), False),
        (request("/predict/m", "image/png", BOMB), False),
        (request("/predict/m", "image/png", draw.randbytes(draw.randrange(2000))), False),
        (request("/predict/m", "text/csv", body), False),
        (request("/predict/m", "application/json", MANY), False),
        (request("/predict/m", "application/json", b'{"instances": [[' + b"[" * draw.randrange(100_000)), False),
        (request("/predict/m", "application/json", b'{"instances": [[1e999, "a", null]]}'), False),
        (request("/v2/models/m/infer", "application/json", b'{"inputs": [{"name": "inputs", "shape": [99999999, 9999999], "datatype": "FP32", "data": []}]}'), False),
        (request(path, "image/png", body), False),
        (request("/predict/m", "image/png", body, method=draw.choice(["GET", "DELETE", "BREW"])), False),
        (request("/predict/m", "image/png", body, length="-5"), False),
        (draw.randbytes(draw.randrange(1, 400)), False),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", False),
        (b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc", False),
    ]
    if draw.random() < 0.001:
        return request("/predict/m", "image/png", body, length=len(body) + 10), True
    return draw.choice(cases)


async def answer(reader):
    """Status and body of an answer; `None` if the connection ended without one."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
        return None
    status, length = int(head.split()[1]), 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    try:
        return status, await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def ask(port, bytes_, slowly=False, cut=False):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if slowly:
            for at in range(0, len(bytes_), 40):
                writer.write(bytes_[at : at + 40])
                await asyncio.sleep(0.2)
        else:
            writer.write(bytes_)
            await writer.drain()
        if cut:
            writer.write_eof()
        return await answer(reader)
    except ConnectionError:
        return None
    finally:
        writer.close()


def resident(process):
    with open(f"/proc/{process.pid}/status") as lines:
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


async def soak(args, process, port):
    asked = all_good(args)
    expected = [told(await ask(port, one)) for one in asked]
    if any(given is None or given[0] != 200 for given in expected):
        sys.exit(f"a good request was not answered: {expected}")
    counts, faults, memory, begun = {}, [], [], time.monotonic()
    seconds = 60 * args.minutes

    def wanted():
        for number in itertools.count():
            if time.monotonic() - begun > seconds if seconds else number == args.requests:
                return
            yield number

    def is_time_to_look():
        passed = (time.monotonic() - begun) / seconds if seconds else done[0] / max(args.requests, 1)
        return passed * 30 >= len(memory)

    numbers, done = wanted(), [0]

    async def client(seed):
        draw = random.Random(seed)
        for number in numbers:
            done[0] = number
            if is_time_to_look():
                memory.append(resident(process))
                print(f"{number} requests, {memory[-1]} MB resident", flush=True)
            if draw.random() < 0.5:
                which = draw.randrange(len(asked))
                given = told(await ask(port, asked[which]))
                # A full queue may send a client away.
                if given is not None and given[0] in (429, 503):
                    counts["sent away"] = counts.get("sent away", 0) + 1
                elif given != expected[which]:
                    faults.append(("good", which, given))
                else:
                    counts["good"] = counts.get("good", 0) + 1
            else:
                bytes_, slowly = broken(draw)
                given = await ask(port, bytes_, slowly, cut=True)
                what = "broken: " + ("ended" if given is None else str(given[0]))
                counts[what] = counts.get(what, 0) + 1
                if given is not None and not 400 <= given[0] < 500 and given[0] != 503:
                    faults.append((bytes_[:80], given))

    await asyncio.gather(*(client(args.seed + i) for i in range(args.clients)))
    if told(await ask(port, asked[0])) != expected[0]:
        faults.append("it does not answer as before")
    print(json.dumps({"counts": dict(sorted(counts.items())), "memory_mb": memory}))
    third = len(memory) // 3
    growth = max(memory[2 * third :]) - max(memory[third : 2 * third])
    if growth > max(memory) // 20:
        faults.append(f"memory grew by {growth} MB in the last third")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--run", required=True, help="a run of configs/digits_cnn.toml")
    parser.add_argument("--text", help="a run of a language model that knows the letter a")
    parser.add_argument("--table", help="a run of a table")
    parser.add_argument("--row", action="append", default=[], metavar="COLUMN=CELL", help="a cell of a row for it (repeatable)")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=0, help="as many requests as there is time for, instead")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    models = [f"{name}={run}" for name, run in (("m", args.run), ("t", args.text), ("r", args.table)) if run]
    command = [args.runner, "serve", *models, "--port", "0", "--json", "--log", "off", "--receive-timeout", "5"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    port = int(json.loads(process.stdout.readline())["address"].rsplit(":", 1)[1])
    faults = asyncio.run(soak(args, process, port))
    if process.poll() is not None:
        faults.append(f"the program ended with {process.returncode}")
    process.terminate()
    said = process.communicate()[1]
    if "panicked" in said or process.returncode != 0:
        faults.append(said[-2000:])
    for fault in faults[:20]:
        print("FAULT:", fault)
    sys.exit(1 if faults else 0)


main()
