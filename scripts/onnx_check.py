"""Holds what `runner export` writes as .onnx, computed by ONNX Runtime, to PyTorch and to `runner` itself.

- every layer, and what holds layers: the cases of `tests/golden`, in which PyTorch's outputs are;
- every file of `models/`: the logits of PyTorch in `tests/golden/architectures`;
- every file of `configs/`, with the values that training starts from: the probabilities of `runner predict`, from pixels;
- photos of any size, with resizing and cropping inside: the probabilities of `runner predict`;
- a model of the bundled digits, trained: the classes of `runner predict`, for all of scikit-learn's copy of them.

Usage: `RUNNER=target/release/runner python scripts/onnx_check.py [WORD]` for what has WORD in its name. Needs onnx, onnxruntime, safetensors,
torch and scikit-learn.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from export_common import ROOT, Array, Findings, model_config, runner
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

WORD = sys.argv[1] if len(sys.argv) > 1 else ""


def compute(path: Path, inputs: dict[str, Array]) -> Array:
    """The output of the model for a batch. The file is checked, shapes and all."""
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, inputs)
    return np.asarray(output)


def alone(path: Path, inputs: dict[str, Array], findings: Findings, name: str, together: Array) -> None:
    """A sample by itself, and more samples at once, come out as in the batch."""
    first = compute(path, {key: value[:1] for key, value in inputs.items()})
    findings.near(f"{name}, one sample", first, together[:1])
    several = compute(path, {key: np.concatenate([value] * 3) for key, value in inputs.items()})
    findings.near(f"{name}, more samples", several, np.concatenate([together] * 3))


def wanted(names: list[Path]) -> Iterator[Path]:
    return (path for path in sorted(names) if WORD in str(path.relative_to(ROOT)))


def cases(folder: Path, findings: Findings) -> None:
    """Layers, and what holds layers."""
    golden = ROOT / "tests/golden"
    for path in wanted([p for part in ("layers", "structure", "combinations") for p in golden.glob(f"{part}/*.safetensors")]):
        try:
            with safe_open(path, "np") as file:
                config = file.metadata()["config"]
            tensors = load_file(path)
            part = {
                prefix: {key.removeprefix(f"{prefix}."): value for key, value in tensors.items() if key.startswith(f"{prefix}.")}
                for prefix in ("batch", "init", "expected")
            }
            (folder / "config.toml").write_text(config)
            for prefix in ("batch", "init"):
                save_file(part[prefix], folder / f"{prefix}.safetensors")
            for key in [key for key in tensors if key.startswith("file.")]:
                (folder / key.removeprefix("file.")).write_bytes(tensors[key].tobytes())
            out = folder / "case.onnx"
            # The batch comes before its normalisation.
            runner("export", folder / "config.toml", out, "--preprocess")
            names = [value.name for value in onnxruntime.InferenceSession(str(out)).get_inputs()]
            want = part["expected"]["eval_output"]
            rows = len(want)
            inputs = {name: part["batch"]["inputs" if name == "input" else name][:rows] for name in names}
            got = compute(out, inputs)
            findings.near(path.stem, got, want.reshape(got.shape))
            if "untracked" not in path.stem:
                alone(out, inputs, findings, path.stem, got)
        except Exception as error:
            findings.failed(path.stem, error)


def models(folder: Path, findings: Findings) -> None:
    """The models, with parameters that are made by a formula."""
    import architectures

    for path in wanted(list((ROOT / "models").glob("*.toml"))):
        try:
            golden = json.loads((ROOT / f"tests/golden/architectures/{path.stem}.json").read_text())
            numbers = architectures.table(golden["seed"])
            inputs = architectures.values(numbers, "inputs", tuple(golden["inputs"]))
            config = model_config(folder, path, inputs, golden["with"], golden.get("pixels", False))
            start = folder / "start.safetensors"
            runner("export", config, start)
            weights = {
                key: architectures.values(numbers, key, value.shape, golden["variance"]).astype(np.float32) if value.dtype == np.float32 else value
                for key, value in load_file(start).items()
            }
            save_file(weights, start)
            out = folder / "model.onnx"
            runner("export", config, out, "--set", f"model.weights={start}")
            got = compute(out, {"input": inputs})
            told = got.ravel()[:: golden.get("every", 1)]
            findings.near(path.stem, told, np.array(golden["output"]))
            alone(out, {"input": inputs}, findings, path.stem, got)
        except Exception as error:
            findings.failed(path.stem, error)


def configs(folder: Path, findings: Findings) -> None:
    """The configurations, from pixels to probabilities."""
    random = np.random.default_rng(1)
    for path in wanted(list((ROOT / "configs").glob("*.toml"))):
        try:
            out, start, samples = folder / "config.onnx", folder / "start.safetensors", folder / "samples.safetensors"
            runner("export", path, start)
            weights = ["--set", f"model.weights={start}", "--set", "model.weights_strict=true"]
            classes = "cross_entropy" in runner("check", path, "--print")    # with what the file extends
            runner("export", path, out, *weights, "--preprocess", *(["--softmax"] if classes else []))
            (value,) = onnxruntime.InferenceSession(str(out)).get_inputs()
            # Height and width of photos are open.
            shape = [2, *(side if isinstance(side, int) else 150 + 75 * axis for axis, side in enumerate(value.shape[1:]))]
            if value.type == "tensor(uint8)":
                inputs = random.integers(0, 256, shape, dtype=np.uint8)
            else:
                inputs = random.standard_normal(shape, dtype=np.float32)
            save_file({"inputs": inputs}, samples)
            told = json.loads(runner("predict", path, samples, *weights, "--json", "--top", "100000"))
            got = compute(out, {"input": inputs})
            for row, said in zip(got, told, strict=True):
                if classes:
                    want = np.zeros_like(row)
                    for answer in said["top"]:
                        want[answer["class"]] = answer["probability"]
                else:
                    want = np.array(said["values"]).reshape(row.shape)
                findings.near(path.stem, row, want)
        except Exception as error:
            findings.failed(path.stem, error)


def digits(folder: Path, findings: Findings) -> None:
    """A trained model: every class as `runner predict` has it."""
    from sklearn.datasets import load_digits

    try:
        run, out, samples = folder / "run", folder / "digits.onnx", folder / "digits.safetensors"
        runner("train", ROOT / "configs/digits_cnn.toml", "--out", run, "--quiet", "--set", "train.epochs=2")
        runner("export", run / "last.safetensors", out, "--softmax", "--preprocess")
        images = np.floor(load_digits().images * 255 / 16 + 0.5).astype(np.uint8)[:, None]
        save_file({"inputs": images}, samples)
        told = json.loads(runner("predict", run / "last.safetensors", samples, "--json", "--top", "1"))
        probabilities = compute(out, {"input": images})
        findings.near("digits, classes", probabilities.argmax(1), np.array([said["top"][0]["class"] for said in told]), 0)
        findings.near("digits", probabilities.max(1), np.array([said["top"][0]["probability"] for said in told]))
        metadata = {entry.key: entry.value for entry in onnx.load(out).metadata_props}
        assert json.loads(metadata["class_names"]) == list("0123456789"), metadata
    except Exception as error:
        findings.failed("digits", error)


PHOTOS = """seed = 1
[data]
source = "image_folder"
root = "{root}"
classes = ["a", "b", "c"]
transforms = [{transforms}, {{ type = "normalize", mean = "imagenet", std = "imagenet" }}]
[model]
layers = [{{ type = "conv2d", out_channels = 8, kernel_size = 3 }}, "relu", {{ type = "adaptive_avg_pool2d", output_size = 1 }}, "flatten", {{ type = "linear", out_features = 3 }}]
[loss]
type = "cross_entropy"
[optimizer]
type = "sgd"
lr = 0.1
[train]
epochs = 1
"""
TRANSFORMS = {
    "shorter": '{ type = "resize", size = 40 }, { type = "center_crop", size = 32 }',
    "both": '{ type = "resize", size = [24, 33] }',
    "cubic": '{ type = "resize", size = 50, interpolation = "bicubic" }, { type = "center_crop", size = [49, 64] }',
    "grey": '{ type = "grayscale", num_output_channels = 3 }, { type = "resize", size = [32, 32] }',
}


def photos(folder: Path, findings: Findings) -> None:
    """Photos of any size go in as they are: the probabilities of `runner predict`."""
    from PIL import Image

    random = np.random.default_rng(2)
    sides = [(60, 80), (40, 40), (31, 90), (200, 41), (33, 17), (300, 500)]
    files = []
    for height, width in sides:
        # Coarse shapes and noise: a wrong pixel anywhere moves the mean.
        pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        files.append(folder / f"{height}x{width}.png")
        Image.fromarray(pixels).save(files[-1])
    for split in ("train", "val"):
        for name in "abc":
            (folder / "photos" / split / name).mkdir(parents=True)
            Image.open(files[0]).save(folder / "photos" / split / name / "0.png")
    for name, transforms in TRANSFORMS.items():
        if WORD not in f"photos {name}":
            continue
        try:
            config, start, out = folder / "photos.toml", folder / "start.safetensors", folder / "photos.onnx"
            config.write_text(PHOTOS.format(root=folder / "photos", transforms=transforms))
            runner("export", config, start)
            weights = ["--set", f"model.weights={start}"]
            runner("export", config, out, *weights, "--preprocess", "--softmax")
            told = json.loads(runner("predict", config, *files, *weights, "--json", "--top", "3"))
            for file, said in zip(files, told, strict=True):
                pixels = np.asarray(Image.open(file)).transpose(2, 0, 1)[None]
                want = np.zeros(3)
                for answer in said["top"]:
                    want[answer["class"]] = answer["probability"]
                findings.near(f"photos {name} {file.stem}", compute(out, {"input": pixels})[0], want)
        except Exception as error:
            findings.failed(f"photos {name}", error)


def main() -> None:
    findings = Findings()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases(folder, findings)
        models(folder, findings)
        configs(folder, findings)
        photos(folder, findings)
        if WORD in "digits":
            digits(folder, findings)
    findings.end()


if __name__ == "__main__":
    main()
