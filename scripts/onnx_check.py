"""Holds what `runner export` writes as .onnx, computed by ONNX Runtime, to PyTorch and to `runner` itself.

- every layer, and what holds layers: the cases of `tests/golden`, in which PyTorch's outputs are;
- every file of `models/` that takes images: the logits of PyTorch in `tests/golden/architectures`;
- models of texts from files of Hugging Face's: the probabilities and losses of transformers in `tests/golden`;
- every file of `configs/` that takes images or numbers, with the values that training starts from: the probabilities of `runner predict`, from pixels;
- photos of any size, with resizing and cropping inside: the probabilities of `runner predict`;
- tables from raw columns: the numbers that every codec makes of them, and the answers of `runner predict`;
- a model of the bundled digits, trained: the classes of `runner predict`, for all of scikit-learn's copy of them.

Usage: `RUNNER=target/release/runner python scripts/onnx_check.py [WORD]` for what has WORD in its name. Needs onnx, onnxruntime, safetensors, tokenizers,
torch and scikit-learn.
"""

import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def answer(said: dict[str, Any], like: Array) -> Array:
    """What `runner predict --json` says of a sample: probabilities of all classes, or values."""
    if "values" in said:
        return np.array(said["values"]).reshape(like.shape)
    want = np.zeros(like.shape)
    for one in said["top"]:
        want[one["class"]] = one["probability"]
    return want


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
            session = onnxruntime.InferenceSession(str(out))
            want = part["expected"]["eval_output"]
            rows = len(want)
            if 'source = "csv"' in config:
                inputs = {name: cells[:rows] for name, cells in raw(folder / "table.csv", session).items()}
            else:
                names = [value.name for value in session.get_inputs()]
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

    for path in wanted([ROOT / f"models/{name}.toml" for name in architectures.MODELS]):
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


def texts(folder: Path, findings: Findings) -> None:
    """Models of texts with the files of transformers, from tokens to probabilities and to the loss."""
    from tokenizers import Tokenizer

    golden = ROOT / "tests/golden"
    for path in wanted([*golden.glob("text_classifiers/*/golden.json"), *golden.glob("language_models/*/golden.json")]):
        try:
            source, name = path.parent, path.parent.name
            want, config, out = json.loads(path.read_text()), folder / f"{name}.toml", folder / f"{name}.onnx"
            runner("import", source, "--out", config)
            classifier = "probabilities" in want
            width = 16 if classifier else 32    # as it was made
            runner("export", config, out, "--set", f"data.{'max_length' if classifier else 'context'}={width}")
            tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
            if classifier:
                tokenizer.enable_truncation(width)
                with (source.parent / "texts.csv").open(newline="") as file:
                    rows = [tokenizer.encode(row["text"]).ids for row in csv.DictReader(file)]
                tokens = np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
                logits = compute(out, {"input": tokens, "lengths": np.array([len(row) for row in rows], np.int32)})
                made = np.exp(logits - logits.max(1, keepdims=True))
                findings.near(f"{name}, probabilities", made / made.sum(1, keepdims=True), np.array(want["probabilities"]))
            else:
                ids = np.array(tokenizer.encode((source.parent / "text.txt").read_text()).ids, np.int32)
                count = (len(ids) - 1) // width
                logits = compute(out, {"input": ids[: count * width].reshape(count, width)}).astype(np.float64)
                right = np.take_along_axis(logits, ids[1 : count * width + 1].reshape(count, width, 1).astype(np.int64), 2)[:, :, 0]
                most = logits.max(2)
                loss = most + np.log(np.exp(logits - most[:, :, None]).sum(2)) - right
                findings.near(f"{name}, loss", np.array([loss.mean()]), np.array([want["loss"]]))
        except Exception as error:
            findings.failed(str(path.parent.name), error)


def configs(folder: Path, findings: Findings) -> None:
    """The configurations of images and of numbers, from pixels to probabilities."""
    from PIL import Image

    random = np.random.default_rng(1)
    # What takes tokens or the rows of a table is no matter of pixels.
    others = ("text", "tokens", "csv")
    for path in wanted([path for path in (ROOT / "configs").glob("*.toml") if not any(f'= "{word}' in path.read_text() for word in others)]):
        try:
            out, start, samples = folder / "config.onnx", folder / "start.safetensors", folder / "samples.safetensors"
            runner("export", path, start)
            weights = ["--set", f"model.weights={start}", "--set", "model.weights_strict=true"]
            classes = "cross_entropy" in runner("check", path, "--print")    # with what the file extends
            runner("export", path, out, *weights, "--preprocess", *(["--softmax"] if classes else []))
            (value,) = onnxruntime.InferenceSession(str(out)).get_inputs()
            # Height and width of photos are open.
            photos = any(isinstance(side, str) for side in value.shape[1:])
            shape = [2, *(side if isinstance(side, int) else 150 + 75 * axis for axis, side in enumerate(value.shape[1:]))]
            if value.type == "tensor(uint8)":
                inputs = random.integers(0, 256, shape, dtype=np.uint8)
            else:
                inputs = random.standard_normal(shape, dtype=np.float32)
            files = [samples]
            if photos:
                files = [folder / f"{at}.png" for at in range(len(inputs))]
                for file, pixels in zip(files, inputs, strict=True):
                    Image.fromarray(pixels.transpose(1, 2, 0)).save(file)
            else:
                save_file({"inputs": inputs}, samples)
            told = json.loads(runner("predict", path, *files, *weights, "--json", "--top", "100000"))
            got = compute(out, {"input": inputs})
            for row, said in zip(got, told, strict=True):
                findings.near(path.stem, row, answer(said, row))
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
                (row,) = compute(out, {"input": pixels})
                findings.near(f"photos {name} {file.stem}", row, answer(said, row))
        except Exception as error:
            findings.failed(f"photos {name}", error)


# Every way to encode a column.
COLUMNS = """
size = { type = "number", scaling = "quantile" }
count = { type = "number", scaling = "quantile", missing = "mean" }
age = { type = "number", missing = "zero" }
plain = { type = "number", scaling = "none" }
income = { type = "number", scaling = "log" }
bins = { type = "number", scaling = "piecewise_linear", bins = 4 }
code = { type = "category", min_count = 5 }
flag = "boolean"
user = { type = "category", hash_buckets = 16 }
comment = { type = "text", hash_buckets = 8, norm = "none" }
note = { type = "text", hash_buckets = 8, alternate_sign = false }
"""
TABLE = """seed = 1
[data]
source = "csv"
path = "{folder}/train.csv"
validation_split = 0.2
batch_size = 64
{data}
[data.columns]
{columns}
[model]
{model}
{loss}
[optimizer]
type = "adamw"
lr = 1e-3
[train]
epochs = 2
"""
TABLES = {
    "regression": ('target = "price"\ndrop = ["sold"]', 'use = "tabular"', '[loss]\ntype = "mse"'),
    "transformer": ('target = "sold"\ndrop = ["price"]', 'use = "ft_transformer"', '[loss]\ntype = "cross_entropy"'),
    "quantiles": ('target = "price"\ndrop = ["sold"]', 'use = "tabular_mlp"', '[loss]\ntype = "quantile"\nquantile = [0.1, 0.5, 0.9]'),
    "heads": (
        'target = "price"',
        'layers = [{ name = "body", type = "linear", out_features = 8 }, { name = "sold", type = "linear", out_features = 3 },'
        ' { type = "linear", out_features = 1, from = "body" }]',
        '[loss]\ntype = "mse"\n[[heads]]\ntarget = "sold"\nloss = "cross_entropy"',
    ),
}
TABLES |= {
    model: ('target = "price"\ndrop = ["sold"]', f'use = "{model}"', '[loss]\ntype = "mse"')
    for model in ("dlrm", "linear", "tabm", "tabular_resnet")
}
MISSING = ["", "NA"]


def write_table(path: Path, rows: int, new: bool, targets: int) -> None:
    """A table; a `new` one has what no training row has: texts, spellings, numbers far away, cells that are missing."""
    random = np.random.default_rng(rows)

    def missing(value: object, share: float) -> object:
        return random.choice(MISSING) if random.random() < share else value

    def date(first: int, last: int) -> str:
        return str(np.datetime64("1970-01-01") + np.timedelta64(int(random.integers(first, last)), "D"))

    def words() -> str:
        return " ".join(random.choice(["good", "bad", "very", "Old", "new"], size=random.integers(1, 6)))

    with path.open("w", newline="") as file:
        names = "size age plain income bins count town code flag day moment user comment note price sold".split()
        table = csv.writer(file)
        table.writerow(names + [f"t{at}" for at in range(targets)])
        for row in range(rows):
            far = 1e5 if new and row % 9 == 0 else 1.0
            town = "moon" if new and row % 7 == 0 else random.choice(["sea", "hill", "Größe, neu", "a b"])
            code = f"rare{row}" if row % 8 == 0 else random.choice(["00062", "00100", "-0.0", "1e3x"])
            flag = random.choice(["true", "FALSE", "Yes", "no", "1", "0", "2.5"] if new else ["true", "FALSE", "Yes", "no"])
            moment = date(15000, 20000) + random.choice([" 12:30", " 06:00:15", "T23:59:59Z"])
            size = random.normal(100, 30)
            cells = [
                f"{far * size:.4f}",
                missing(random.integers(0, 30), 0.2),
                missing(f"{random.uniform(-1, 1):.3f}", 0.2 * new),
                f"{far * np.exp(random.normal(0, 3)) * random.choice([-1, 1]):.6g}",
                missing(random.poisson(4), 0.1),
                missing(random.poisson(2), 0.1),
                missing(town, 0.1),
                missing(code, 0.1 * new),
                missing(flag, 0.1),
                date(-20000, 30000),
                missing(moment, 0.1),
                missing(f"u{random.integers(0, 300)}", 0.1),
                missing(words(), 0.1),
                words(),
                f"{3 * size + random.normal():.3f}",
                random.choice(["yes", "no", "maybe"]),
            ]
            table.writerow(cells + [row / rows] * targets)


def raw(path: Path, session: onnxruntime.InferenceSession) -> dict[str, Array]:
    """The columns of a table as the model takes them."""
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.feature_extraction.text import HashingVectorizer

    inputs = {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name, said in json.loads(session.get_modelmeta().custom_metadata_map["inputs"]).items():
        cells = [row[said["column"]] for row in rows]
        if said["type"] in ("category", "boolean"):
            inputs[name] = np.array(cells, object)[:, None]
        elif said["type"] == "number":
            inputs[name] = np.array([np.nan if cell in MISSING else float(cell) for cell in cells])[:, None]
        elif said["type"] == "date":
            moments = np.array(["NaT" if cell in MISSING else cell.rstrip("Z") for cell in cells], "datetime64[s]")
            inputs[name] = (moments - np.datetime64(0, "s"))[:, None] / np.timedelta64(1, "D")
        else:
            if said["type"] == "hashed":
                made = FeatureHasher(said["buckets"], input_type="string", alternate_sign=False).transform([[cell] for cell in cells])
            else:
                norm = None if said["norm"] == "none" else said["norm"]
                made = HashingVectorizer(n_features=said["buckets"], norm=norm, alternate_sign=said["alternate_sign"]).transform(cells)
            inputs[name] = made.toarray().astype(np.float32)
            inputs[name][[cell in MISSING for cell in cells]] = np.nan
    return inputs


def features(folder: Path, findings: Findings) -> None:
    """The numbers that the columns become: a model that puts them out as they are, one for each of its targets."""
    width = 1
    for _ in range(2):    # how wide a sample is comes from the first attempt
        write_table(folder / "train.csv", 600, False, width)
        write_table(folder / "new.csv", 201, True, width)
        names = ", ".join(f'"t{at}"' for at in range(width))
        data = f'target = [{names}]\nstandardize_target = false\ndrop = ["price", "sold"]'
        layer = f'layers = [{{ name = "same", type = "linear", bias = false, out_features = {width} }}]'
        config, out, start = folder / "features.toml", folder / "features.onnx", folder / "same.safetensors"
        config.write_text(TABLE.format(folder=folder, data=data, columns=COLUMNS, model=layer, loss='[loss]\ntype = "mse"'))
        runner("export", config, start)
        width = load_file(start)["same.weight"].shape[1]
    save_file({"same.weight": np.eye(width, dtype=np.float32)}, start)
    weights = ["--set", f"model.weights={start}"]
    runner("export", config, out, *weights, "--preprocess")
    for table in ("train", "new"):
        told = json.loads(runner("predict", config, folder / f"{table}.csv", *weights, "--json"))
        want = np.array([said["values"] for said in told], np.float32)
        onnx.checker.check_model(str(out), full_check=True)
        session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
        (got,) = session.run(None, raw(folder / f"{table}.csv", session))
        # A logarithm or a sine may be rounded otherwise: then the last bit differs.
        findings.near(f"features {table}", got, want, 1e-7)
        same = (got == want).mean()
        if same < 0.999:
            findings.failed(f"features {table}", ValueError(f"only {100 * same:.2f} % are the same to the bit"))


def tables(folder: Path, findings: Findings) -> None:
    """Models of tables, from cells to answers."""
    try:
        if WORD in "tables features":
            features(folder, findings)
    except Exception as error:
        findings.failed("tables features", error)
    write_table(folder / "train.csv", 600, False, 0)
    write_table(folder / "new.csv", 201, True, 0)
    for name, (data, model, loss) in TABLES.items():
        if WORD not in f"tables {name}":
            continue
        try:
            config, run, out = folder / "table.toml", folder / f"run-{name}", folder / "table.onnx"
            config.write_text(TABLE.format(folder=folder, data=data, columns=COLUMNS, model=model, loss=loss))
            runner("train", config, "--out", run, "--quiet")
            runner("export", run, out, "--preprocess", *(["--softmax"] if name == "transformer" else []))
            told = json.loads(runner("predict", run, folder / "new.csv", "--json", "--top", "9"))
            onnx.checker.check_model(str(out), full_check=True)
            session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
            inputs = raw(folder / "new.csv", session)
            for at, output in enumerate(session.get_outputs()):
                (got,) = session.run([output.name], inputs)
                if at > 0:    # a head, of which the file has logits
                    told = [said["heads"][output.name] for said in told]
                    got = np.exp(got) / np.exp(got).sum(1, keepdims=True)
                findings.near(f"tables {name} {output.name}", got, np.array([answer(*pair) for pair in zip(told, got, strict=True)]))
        except Exception as error:
            findings.failed(f"tables {name}", error)


def main() -> None:
    findings = Findings()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases(folder, findings)
        models(folder, findings)
        texts(folder, findings)
        configs(folder, findings)
        photos(folder, findings)
        tables(folder, findings)
        if WORD in "digits":
            digits(folder, findings)
    findings.end()


if __name__ == "__main__":
    main()
