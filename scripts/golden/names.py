"""Names and shapes of everything in the state dicts of torchvision's models, for those that `models/` has."""

from pathlib import Path

MODELS = ["resnet18", "mobilenet_v3_small"]


def make(folder: Path) -> None:
    """Writes `MODEL.txt` for each: a line for every tensor, its name and its dimensions."""
    from torchvision import models

    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        state = models.get_model(name).state_dict()
        lines = [" ".join([key, *map(str, value.shape)]) for key, value in state.items()]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
