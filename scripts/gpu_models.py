"""The models whose steps are timed on a GPU: what `runner` and PyTorch both compute. Needs no packages."""

import random
import sys
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Model:
    """A net of `bench_pytorch.build`, the file that has it here, the shape of its images, samples in a batch, and classes."""

    net: str
    file: str
    channels: int
    side: int
    batch: int
    classes: int

    @property
    def normalised(self) -> bool:
        """Whether the configuration normalises its images."""
        return self.file.startswith("configs/")


@dataclass(frozen=True)
class Text:
    """A language model of `bench_text.Gpt`, which is models/gpt.toml without biases, and the samples in a batch."""

    layers: int
    heads: int
    width: int
    context: int
    vocabulary: int
    batch: int


def of_torchvision(net: str) -> Model:
    """A classifier of torchvision, as `models/` has it."""
    return Model(net, f"models/{net}.toml", 3, 224, 64, 1000)


LARGE = ["resnet50", "vit_b_16", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny", "swin_t"]
MODELS: dict[str, Model | Text] = {
    "mlp": Model("mlp", "configs/mnist_mlp.toml", 1, 28, 256, 10),
    "mnist_cnn": Model("mnist_cnn", "configs/mnist_cnn.toml", 1, 28, 256, 10),
    "mnist_cnn_64": Model("mnist_cnn", "configs/mnist_cnn.toml", 1, 28, 64, 10),
    "resnet18_32": Model("resnet18", "models/resnet18.toml", 3, 32, 128, 10),
    "resnet18_224": Model("resnet18", "models/resnet18.toml", 3, 224, 64, 10),
} | {net: of_torchvision(net) for net in LARGE}
# nanoGPT's larger recipe for Shakespeare by characters, and GPT-2 with 124 million parameters.
TEXTS = {
    "gpt_shakespeare": Text(6, 6, 384, 256, 65, 64),
    "gpt2_124m": Text(12, 12, 768, 1024, 50257, 16),
}
MODELS |= TEXTS

DATA = """seed = 1
[data]
source = "synthetic"
shape = [{channels}, {side}, {side}]
classes = {classes}
samples = {samples}
val_samples = {batch}
batch_size = {batch}
[model]
use = "{root}/{file}"
with = {{ num_classes = {classes} }}
"""
OF_TEXT = """seed = 1
[data]
source = "tokens"
path = "{tokens}"
vocab_size = {vocabulary}
context = {context}
batch_size = {batch}
[model]
use = "{root}/models/gpt.toml"
with = {{ layers = {layers}, heads = {heads}, width = {width}, bias = false }}
[loss]
type = "cross_entropy"
[optimizer]
type = "adamw"
lr = 1e-3
[train]
epochs = 1
clip_grad_norm = 1.0
"""
# As `bench_pytorch.build` trains them.
RESNET18 = """[loss]
type = "cross_entropy"
label_smoothing = 0.1
[optimizer]
type = "sgd"
lr = {rate}
momentum = 0.9
weight_decay = 5e-4
nesterov = true
[train]
epochs = 1
clip_grad_norm = 1.0
"""
PLAIN = """[loss]
type = "cross_entropy"
[optimizer]
type = "sgd"
lr = {rate}
momentum = 0.9
[train]
epochs = 1
"""


def configuration(model: Model | Text, batch: int, tokens: Path) -> str:
    """A model of `models/` on made-up images, or on tokens that are written to `tokens`: it needs no data."""
    if isinstance(model, Text):
        draws = random.Random(1)
        some = array("H", (draws.randrange(model.vocabulary) for _ in range(4 * batch * model.context + 1)))
        if sys.byteorder == "big":
            some.byteswap()
        tokens.write_bytes(some.tobytes())
        return OF_TEXT.format(**asdict(model) | {"batch": batch}, tokens=tokens, root=ROOT)
    text = DATA + (RESNET18 if model.net == "resnet18" else PLAIN)
    shape = {"channels": model.channels, "side": model.side, "classes": model.classes, "file": model.file}
    return text.format(**shape, batch=batch, samples=16 * batch, root=ROOT, rate=LEARNING_RATE)
