"""Names and shapes of everything in the state dicts of torchvision's models, and of the few others that `models/` has."""

from pathlib import Path

from architectures import MODELS, build


def make(folder: Path) -> None:
    """Writes `MODEL.txt` for each: a line for every tensor, its name and its dimensions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        state = build(name, 1000).state_dict()
        lines = [" ".join([key, *map(str, value.shape)]) for key, value in state.items()]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
