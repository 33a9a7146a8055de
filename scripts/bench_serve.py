"""Times `runner serve` beside ONNX Runtime behind FastAPI and uvicorn, and behind BentoML: photos over HTTP from many clients at once.

    pip install fastapi uvicorn bentoml onnxruntime pillow numpy       and wrk, which asks
    python scripts/bench_serve.py --runner target/release/runner --run runs/ants_bees/1 --photo ant.jpg

A photo is decoded, resized to 256, cropped to 224 and normalised in each request, and the answer has the probabilities as JSON. The model of the
others is `runner export` of the same run. Sides take turns. Printed are the medians of requests a second and of the latency that 99 % stay below,
and what the program's own batches took a sample: with N clients that ask again at once, no server answers below N times that in the mean.
"""

import argparse
import io
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

BOUNDARY = "frontier"


class Model:
    """A photo's probabilities by ONNX Runtime."""

    def __init__(self):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["BENCH_THREADS"])
        self.session = onnxruntime.InferenceSession(os.environ["BENCH_ONNX"], options, providers=["CPUExecutionProvider"])
        self.name = self.session.get_inputs()[0].name

    def answer(self, image):
        import numpy

        image = image.convert("RGB")
        scale = 256 / min(image.size)
        image = image.resize([round(side * scale) for side in image.size], resample=2)
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        pixels = numpy.asarray(image.crop((left, top, left + 224, top + 224)), numpy.float32) / 255
        pixels = (pixels - numpy.float32([0.485, 0.456, 0.406])) / numpy.float32([0.229, 0.224, 0.225])
        (logits,) = self.session.run(None, {self.name: pixels.transpose(2, 0, 1)[None]})
        weights = numpy.exp(logits[0] - logits[0].max())
        return (weights / weights.sum()).tolist()


def fastapi_app():
    import fastapi
    from fastapi.concurrency import run_in_threadpool
    from PIL import Image

    app, model = fastapi.FastAPI(), Model()

    @app.post("/predict")
    async def predict(request: fastapi.Request):
        body = await request.body()
        return {"probabilities": await run_in_threadpool(lambda: model.answer(Image.open(io.BytesIO(body))))}

    return app


def bento():
    import bentoml
    from PIL.Image import Image

    @bentoml.service(workers=int(os.environ["BENCH_WORKERS"]), traffic={"timeout": 600, "max_concurrency": 256})
    class Photos:
        def __init__(self):
            self.model = Model()

        @bentoml.api
        def predict(self, image: Image) -> list[float]:
            return self.model.answer(image)

    return Photos


if "BENCH_BENTO" in os.environ:
    Photos = bento()


def wait(address, process, seconds=90):
    for _ in range(seconds * 20):
        if process.poll() is not None:
            sys.exit(f"{process.args} ended with {process.returncode}")
        try:
            with urllib.request.urlopen(address, timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{address} does not answer")


def sides(args, folder):
    """Name, command, environment, port, address of readiness, whether photos are parts of a form."""
    onnx = folder / "model.onnx"
    subprocess.run([args.runner, "export", args.run, onnx], check=True, stdout=subprocess.DEVNULL)
    here = pathlib.Path(__file__).resolve()
    port = 8300
    for precision in args.precision:
        set_precision = [] if precision == "fp32" else ["--set", f'precision="{precision}"']
        command = [args.runner, "serve", f"m={args.run}", "--port", port, "--log", "off", *set_precision, *args.option]
        yield f"runner, {precision}", command, {}, port, "/v2/health/ready", False
        port += 1
    for workers, threads in [(1, args.threads), (args.threads, 1)]:
        how = {"BENCH_ONNX": onnx, "BENCH_THREADS": threads, "BENCH_WORKERS": workers}
        name = f"{workers} of {threads} threads"
        command = [args.python, "-m", "uvicorn", f"{here.stem}:fastapi_app", "--factory", "--workers", workers]
        yield f"FastAPI, {name}", [*command, "--port", port, "--log-level", "error"], how, port, "/docs", False
        how = {**how, "BENCH_BENTO": 1, "BENTOML_HOME": folder / "bento", "BENTOML_DO_NOT_TRACK": "True"}
        command = [args.python, "-m", "bentoml", "serve", f"{here.stem}:Photos", "--port", port + 1]
        yield f"BentoML, {name}", command, how, port + 1, "/readyz", True
        port += 2


def wrk_script(folder, photo, form):
    """What wrk sends: the photo, as it is or as a part of a form."""
    body, kind = photo.read_bytes(), "image/jpeg"
    if form:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\nContent-Type: image/jpeg\r\n\r\n'
        body, kind = head.encode() + body + f"\r\n--{BOUNDARY}--\r\n".encode(), f"multipart/form-data; boundary={BOUNDARY}"
    file = folder / f"body-{form}"
    file.write_bytes(body)
    script = folder / f"post-{form}.lua"
    script.write_text(
        f'local f = io.open("{file}", "rb")\nwrk.body = f:read("*a")\nwrk.method = "POST"\nwrk.headers["Content-Type"] = "{kind}"\n'
    )
    return script


def load(address, script, clients, seconds):
    """Requests a second, and milliseconds that 99 % stay below."""
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--timeout", "60s", "--latency", "-s", script, address]
    text = subprocess.run(map(str, command), check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        sys.exit(text)
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s|m)\b", text).groups()
    return rate, float(number) * {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}[unit]


def batch_milliseconds(port):
    """What the program's batches took a sample."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    total = lambda name: sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))
    return 1e3 * total("runner_batch_duration_seconds_sum") / total("runner_batch_samples_sum")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--run", required=True, help="a run's folder, or a checkpoint, of a model of photos")
    parser.add_argument("--photo", required=True, type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable, help="that has the packages of the other sides")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", nargs="*", default=["fp32"])
    parser.add_argument("--option", action="append", default=[], help="one more word for `runner serve`")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        rates, latencies, batches = {}, {}, {}
        everyone = list(sides(args, folder))
        for _ in range(args.rounds):
            for name, command, more, port, ready, form in everyone:
                environment = {**os.environ, **{key: str(value) for key, value in more.items()}}
                here = pathlib.Path(__file__).resolve().parent
                process = subprocess.Popen(
                    [str(word) for word in command],
                    env=environment,
                    cwd=here if more else None,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                try:
                    wait(f"http://127.0.0.1:{port}{ready}", process)
                    script = wrk_script(folder, args.photo, form)
                    address = f"http://127.0.0.1:{port}/predict"
                    load(address, script, args.clients, 2)
                    rate, latency = load(address, script, args.clients, args.seconds)
                    if not more:
                        batches.setdefault(name, []).append(batch_milliseconds(port))
                finally:
                    process.terminate()
                    process.wait()
                rates.setdefault(name, []).append(rate)
                latencies.setdefault(name, []).append(latency)
        for name in rates:
            rate, latency = statistics.median(rates[name]), statistics.median(latencies[name])
            of = {"name": name, "requests_per_s": round(rate, 1), "p99_ms": round(latency, 1)}
            if name in batches:
                of["batch_ms_per_sample"] = round(statistics.median(batches[name]), 2)
                together = int(args.option[args.option.index("--executables") + 1]) if "--executables" in args.option else 1
                of["p99_by_bare_forward"] = round(latency * together / (args.clients * of["batch_ms_per_sample"]), 2)
            print(json.dumps(of), flush=True)


if __name__ == "__main__":
    main()
