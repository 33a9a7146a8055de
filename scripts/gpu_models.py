"""The models whose steps are timed on a GPU: what `runner` and PyTorch both compute. Needs no packages."""

from dataclasses import dataclass
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


def of_torchvision(net: str) -> Model:
    """A classifier of torchvision, as `models/` has it."""
    return Model(net, f"models/{net}.toml", 3, 224, 64, 1000)


LARGE = ["resnet50", "vit_b_16", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny", "swin_t"]
MODELS = {
    "mlp": Model("mlp", "configs/mnist_mlp.toml", 1, 28, 256, 10),
    "mnist_cnn": Model("mnist_cnn", "configs/mnist_cnn.toml", 1, 28, 256, 10),
    "mnist_cnn_64": Model("mnist_cnn", "configs/mnist_cnn.toml", 1, 28, 64, 10),
    "resnet18_32": Model("resnet18", "models/resnet18.toml", 3, 32, 128, 10),
    "resnet18_224": Model("resnet18", "models/resnet18.toml", 3, 224, 64, 10),
} | {net: of_torchvision(net) for net in LARGE}

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


def configuration(model: Model, batch: int) -> str:
    """A model of `models/` on made-up images: it needs no data."""
    text = DATA + (RESNET18 if model.net == "resnet18" else PLAIN)
    shape = {"channels": model.channels, "side": model.side, "classes": model.classes, "file": model.file}
    return text.format(**shape, batch=batch, samples=16 * batch, root=ROOT, rate=LEARNING_RATE)
