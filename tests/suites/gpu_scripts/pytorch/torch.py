"""Stands for PyTorch: gives a time for every way that `gpu_peer.py` is asked for, in its place. The way that $PLANTED_CRASH names ends
the process, the one that $PLANTED_HANG names never ends, and each is named in $PLANTED/begun."""

import json
import os
import signal
import sys
import time
from types import SimpleNamespace

__version__ = "0.0"
cuda = SimpleNamespace(is_available=lambda: True)

if sys.argv[0].endswith("gpu_peer.py"):
    after = sys.argv[sys.argv.index("--only") + 1 :]
    ways = after[: next((at for at, word in enumerate(after) if word.startswith("--")), len(after))]
    threads = after[after.index("--threads") + 1 :] if "--threads" in after else ["0"]
    for way, count in [(way, count) for way in ways for count in threads]:
        mode, precision, model = way.split("/")
        print(f"begins {way}", file=sys.stderr, flush=True)
        with open(os.environ["PLANTED"] + "/begun", "a") as begun:
            print(way, file=begun)
        if way == os.environ.get("PLANTED_CRASH"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if way == os.environ.get("PLANTED_HANG"):
            time.sleep(600)
        step = 4.0 if mode == "graph" else 6.0
        print(json.dumps({"mode": mode, "precision": precision, "model": model, "threads": int(count), "step_ms": step}), flush=True)
    os._exit(0)
