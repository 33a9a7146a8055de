#!/usr/bin/env python3
"""Tokens a second of `runner serve` with a language model, for so many clients at a time that each ask for a text:

    python scripts/bench_completions.py --runner target/release/runner --model gpt2.toml --clients 1 4

Each round starts a server, has one text written to warm it up, and then lets all clients ask at once. It prints the median of the rounds. Two servers are compared in
turn with a second `--runner`. Options behind `--` go to `runner serve`. Needs Python alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import threading
import time
import urllib.request


def ask(address, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def measure(runner, args, clients):
    """Tokens a second, and the texts."""
    command = [runner, "serve", args.model, "--port", "0", *args.options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = server.stdout.readline()
        address = "http://" + line.split("://", 1)[1].split(",")[0].strip()
        texts = [None] * clients

        def one(number):
            body = {"prompt": args.prompt, "max_tokens": args.tokens, "seed": number}
            texts[number] = ask(address, "/v1/completions", body)

        one(0)
        threads = [threading.Thread(target=one, args=(number,)) for number in range(clients)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - begun
        tokens = sum(text["usage"]["completion_tokens"] for text in texts)
        return tokens / took, [text["choices"][0]["text"] for text in texts]
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", action="append", required=True, help="the program; may be given several times")
    parser.add_argument("--model", required=True, help="a checkpoint, a run's folder or a configuration")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--prompt", default="The cat")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("options", nargs="*", help="for `runner serve`, behind `--`")
    args = parser.parse_args()
    for clients in args.clients:
        rates, texts = {runner: [] for runner in args.runner}, set()
        for _ in range(args.rounds):
            for runner in args.runner:
                rate, written = measure(os.path.abspath(runner), args, clients)
                rates[runner].append(rate)
                texts.add(json.dumps(written))
        for runner, list_ in rates.items():
            print(f"{clients} clients, {runner}: {statistics.median(list_):.1f} tokens/s")
        if len(texts) > 1:
            print(f"{clients} clients: the texts differ from round to round")


if __name__ == "__main__":
    main()
