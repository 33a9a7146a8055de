"""Images changed by torchvision and Pillow: what the transforms of images are held to.

One file of tensors, images as `[H, W, C]` bytes. The cases are in its metadata: each names the image that goes in and the change
with its parameters, which are given and not drawn; what comes out is the tensor of the case's number.
"""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision.transforms import AutoAugmentPolicy, InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

MODES = {
    "nearest": InterpolationMode.NEAREST,
    "bilinear": InterpolationMode.BILINEAR,
    "bicubic": InterpolationMode.BICUBIC,
}


def _pil(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def _array(image: Image.Image) -> np.ndarray:
    array = np.asarray(image)
    return array[:, :, None] if array.ndim == 2 else array


def _resized_plainly(image: np.ndarray, size: list[int], mode: InterpolationMode) -> np.ndarray:
    """Without antialiasing, which Pillow cannot do."""
    floats = torch.from_numpy(image).permute(2, 0, 1).float()
    resized = F.resize(floats, size, interpolation=mode, antialias=False)
    return resized.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().numpy()


def change(image: np.ndarray, case: dict) -> np.ndarray:
    pil, mode = _pil(image), MODES.get(case.get("interpolation"))
    match case["change"]:
        case "resize" if case["antialias"]:
            return _array(F.resize(pil, case["size"], interpolation=mode))
        case "resize":
            return _resized_plainly(image, case["size"], mode)
        case "resized_crop":
            return _array(F.resized_crop(pil, *case["window"], size=case["size"], interpolation=mode))
        case "center_crop":
            return _array(F.center_crop(pil, case["size"]))
        case "horizontal_flip":
            return _array(F.horizontal_flip(pil))
        case "vertical_flip":
            return _array(F.vertical_flip(pil))
        case "grayscale":
            return _array(F.rgb_to_grayscale(pil, case["channels"]))
        case "brightness":
            return _array(F.adjust_brightness(pil, case["amount"]))
        case "contrast":
            return _array(F.adjust_contrast(pil, case["amount"]))
        case "saturation":
            return _array(F.adjust_saturation(pil, case["amount"]))
        case "hue":
            return _array(F.adjust_hue(pil, case["amount"]))
        case "rotate":
            fill = [float(case["fill"])] * image.shape[2]
            return _array(F.rotate(pil, case["amount"], interpolation=mode, fill=fill))
        case "blur":
            return _array(F.gaussian_blur(pil, [case["kernel"]] * 2, [case["amount"]] * 2))
        case "erase":
            top, left, height, width = case["window"]
            value = torch.tensor(case["value"], dtype=torch.uint8)
            tensor = torch.from_numpy(image).permute(2, 0, 1)
            erased = F.erase(tensor, top, left, height, width, value)
            return erased.permute(1, 2, 0).contiguous().numpy()
        case "affine":
            fill = [float(case["fill"])] * image.shape[2]
            how = {key: case[key] for key in ("translate", "scale", "shear")}
            return _array(F.affine(pil, case["amount"], **how, interpolation=mode, fill=fill))
        case "operation":
            fill = {type(pil): [float(case["fill"])] * image.shape[2]}
            # Solarize is given as a share of all values.
            amount = case["amount"] / 255 if case["operation"] == "Solarize" else case["amount"]
            return _array(v2.RandAugment()._apply_image_or_video_transform(pil, case["operation"], amount, mode, fill))
    raise ValueError(case["change"])


def magnitudes() -> list[dict]:
    """The strengths of each kind of change, for two sizes of images."""
    every = []
    for wide, transform in ((False, v2.AutoAugment), (True, v2.TrivialAugmentWide)):
        for bins, height, width in ((10, 32, 48), (31, 224, 131)):
            for operation, (table, signed) in transform._AUGMENTATION_SPACE.items():
                values = table(bins, height, width)
                values = None if values is None else [float(v) * (255.0 if operation == "Solarize" else 1.0) for v in values]
                every.append({"operation": operation, "wide": wide, "bins": bins, "sides": [height, width], "signed": signed, "values": values})
    return every


def policies() -> dict[str, list]:
    return {policy.name: v2.AutoAugment(policy)._policies for policy in AutoAugmentPolicy}


def images() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    y, x = np.mgrid[0:23, 0:31]
    waves = np.stack([np.sin(x / 3), np.cos(y / 2), np.sin((x + 2 * y) / 5)], axis=2)
    photo = np.clip(128 + 110 * waves + draw.normal(0, 25, waves.shape), 0, 255).astype(np.uint8)
    noise = draw.integers(0, 256, (17, 12, 3), dtype=np.uint8)
    # Full contrast: where cubic curves go beyond 0 and 255.
    board = (np.indices((12, 9)).sum(0) // 2 % 2 * 255).astype(np.uint8)[:, :, None]
    return {
        "photo": photo,
        "grey": photo[:, :, :1].copy(),
        "noise": noise,
        "board": board,
        "row": noise[:1],
        "pixel": noise[:1, :1],
        # Few values, not all of them, and one channel of a single one.
        "dull": np.stack([photo[:, :, 0] // 4 + 90, photo[:, :, 1] // 9, np.full(photo.shape[:2], 33, np.uint8)], axis=2),
        "wide": draw.integers(0, 256, (9, 140, 3), dtype=np.uint8),
    }


def cases() -> list[dict]:
    every = []

    def add(images: str, change: str, **parameters: object) -> None:
        every.extend({"image": image, "change": change, **parameters} for image in images.split())

    for mode in ("bilinear", "bicubic"):
        for antialias in (True, False):
            for size in ([11, 17], [40, 13], [9, 47]):
                add("photo board", "resize", size=size, interpolation=mode, antialias=antialias)
        for size in ([12], [30]):
            add("photo noise grey", "resize", size=size, interpolation=mode, antialias=True)
        add("row pixel", "resize", size=[5, 7], interpolation=mode, antialias=True)
        add("wide", "resize", size=[5, 70], interpolation=mode, antialias=True)
        for window, size in (([2, 5, 14, 17], [8, 8]), ([9, 0, 14, 31], [14, 10]), ([0, 30, 23, 1], [6, 6]), ([1, 2, 8, 8], [8, 8])):
            add("photo", "resized_crop", window=window, size=size, interpolation=mode)
    for size in ([11, 17], [40, 47], [23, 10]):
        add("photo", "resize", size=size, interpolation="nearest", antialias=True)
    add("photo", "resized_crop", window=[3, 4, 9, 13], size=[12, 7], interpolation="nearest")
    for size in ([10, 10], [9, 12], [23, 31], [30, 40], [30, 12], [10, 34]):
        add("photo", "center_crop", size=size)
    add("photo", "horizontal_flip")
    add("photo", "vertical_flip")
    add("photo", "grayscale", channels=1)
    add("noise grey", "grayscale", channels=3)
    for amount in (0.0, 0.4, 1.0, 1.7):
        add("photo grey", "brightness", amount=amount)
        add("photo grey", "contrast", amount=amount)
        add("photo grey", "saturation", amount=amount)
    for amount in (-0.5, -0.13, 0.0, 0.002, 0.1, 0.5):
        add("photo noise", "hue", amount=amount)
    add("grey", "hue", amount=0.3)
    for mode in ("nearest", "bilinear", "bicubic"):
        for amount in (-37.5, 12.0, 90.0, 180.0, 261.3):
            add("photo", "rotate", amount=amount, interpolation=mode, fill=0)
        add("noise board", "rotate", amount=30.0, interpolation=mode, fill=77)
    for kernel, amount in ((1, 0.5), (3, 0.1), (3, 2.0), (5, 1.1), (11, 4.0)):
        add("photo", "blur", kernel=kernel, amount=amount)
    add("grey", "blur", kernel=5, amount=0.7)
    for mode in ("nearest", "bilinear", "bicubic"):
        for amount, translate, scale, shear in (
            (0.0, [0, 0], 1.0, [0.0, 0.0]),
            (0.0, [4, -3], 1.0, [0.0, 0.0]),
            (0.0, [0, 0], 1.7, [0.0, 0.0]),
            (0.0, [-2, 1], 0.6, [0.0, 0.0]),
            (25.0, [3, 2], 0.8, [10.0, -20.0]),
            (-140.0, [0, 5], 1.3, [-35.0, 0.0]),
        ):
            add("photo", "affine", amount=amount, translate=translate, scale=scale, shear=shear, interpolation=mode, fill=9)
        for operation, amount in (("ShearX", 0.21), ("ShearX", -0.3), ("ShearY", -0.45), ("TranslateX", 5.9), ("TranslateY", -7.2)):
            add("photo", "operation", operation=operation, amount=amount, interpolation=mode, fill=128)
        add("grey", "operation", operation="Rotate", amount=-20.0, interpolation=mode, fill=0)
    for operation, amounts in (
        ("Identity", (0.0,)),
        ("Brightness", (0.27, -0.9)),
        ("Color", (0.27, -0.9)),
        ("Contrast", (0.27, -0.9)),
        ("Sharpness", (0.27, -0.9, -1.0, 4.0)),
        ("Posterize", (8, 7, 4, 1)),
        ("Solarize", (255.0, 178.5, 128.0, 0.0)),
        ("AutoContrast", (0.0,)),
        ("Equalize", (0.0,)),
        ("Invert", (0.0,)),
    ):
        for amount in amounts:
            add("photo grey dull", "operation", operation=operation, amount=amount, interpolation="nearest", fill=0)
    for operation in ("AutoContrast", "Equalize", "Sharpness"):
        add("wide row pixel noise", "operation", operation=operation, amount=0.5, interpolation="nearest", fill=0)
    add("photo", "erase", window=[3, 5, 7, 11], value=0)
    add("photo", "erase", window=[22, 0, 1, 30], value=200)
    return every


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    given, every = images(), cases()
    tensors = {name: torch.from_numpy(image) for name, image in given.items()}
    for number, case in enumerate(every):
        tensors[str(number)] = torch.from_numpy(change(given[case["image"]], case).copy())
    path = folder / "transforms.safetensors"
    tables = {"cases": every, "magnitudes": magnitudes(), "policies": policies()}
    save_file(tensors, path, metadata={name: json.dumps(table) for name, table in tables.items()})
    print(f"transforms: {len(every)} cases, {path.stat().st_size} bytes", flush=True)
