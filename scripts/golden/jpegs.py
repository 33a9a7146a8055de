"""Small JPEG files of all kinds that `crates/jpeg/` decodes, and what Pillow (libjpeg-turbo) makes of them: the SHA-256 of the pixels.

`crates/jpeg/tests/goldens.rs` compares. Of kinds that are left to another decoder there is no sum, but a dash.
"""

import hashlib
import io
import itertools
from pathlib import Path

import numpy
from PIL import Image, features

SIDES = [(1, 1), (2, 3), (3, 5), (5, 40), (8, 8), (17, 9), (16, 33), (37, 53)]
QUALITIES = [75, 30, 95, 100]
SAMPLINGS = {"444": "4:4:4", "422": "4:2:2", "420": "4:2:0", "grey": None}
# In turn: plain, tables made for the image, markers after every so many MCUs, after every row of them.
OPTIONS = [
    {},
    {"optimize": True},
    {"restart_marker_blocks": 3},
    {"restart_marker_rows": 1, "optimize": True},
    {"restart_marker_blocks": 1},
]


def picture(width: int, height: int, noise: bool) -> Image.Image:
    """Edges and slopes of all colours, or noise, which has all frequencies."""
    if noise:
        random = numpy.random.default_rng(width * 100 + height)
        return Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=numpy.uint8))
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [7 * x + 3 * y, 255 - 5 * x + 2 * y, 200 * ((x // 5 + y // 3) % 2)]
    return Image.fromarray(numpy.stack(planes, axis=-1).clip(0, 255).astype(numpy.uint8))


def encoded(image: Image.Image, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def as_440(file: bytes) -> bytes:
    """A 4:2:2 image of 32×32 with its factors exchanged, which nobody here can write: an MCU has the same blocks."""
    frame = file.index(b"\xff\xc0")
    assert file[frame + 11] == 0x21
    return file[: frame + 11] + b"\x12" + file[frame + 12 :]


def with_colours(file: bytes, jfif: bool, adobe: int | None, names: bytes) -> bytes:
    """What a file says of its colours, changed: a JFIF segment, the transform in one of Adobe's, the names of the components."""
    assert file[2:4] == b"\xff\xe0"
    begin = file[:20] if jfif else file[:2]
    segment = b"" if adobe is None else b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + bytes([adobe])
    rest = bytearray(file[20:])
    frame, scan = rest.index(b"\xff\xc0"), rest.index(b"\xff\xda")
    for number, name in enumerate(names):
        rest[frame + 10 + 3 * number] = name
        rest[scan + 5 + 2 * number] = name
    return begin + segment + bytes(rest)


def files() -> dict[str, bytes]:
    made = {}
    options, qualities = itertools.cycle(OPTIONS), itertools.cycle(QUALITIES)
    for (name, sampling), (width, height), noise in itertools.product(SAMPLINGS.items(), SIDES, [False, True]):
        image, quality = picture(width, height, noise), next(qualities)
        if sampling is None:
            file = encoded(image.convert("L"), quality=quality, **next(options))
        else:
            file = encoded(image, quality=quality, subsampling=sampling, **next(options))
        made[f"{name}-{width}x{height}-{'noise' if noise else 'edges'}"] = file
        if not noise and (width, height) == SIDES[-1]:
            next(qualities)
    for kind, noise in [("edges", False), ("noise", True)]:
        made[f"440-32x32-{kind}"] = as_440(encoded(picture(32, 32, noise), quality=85, subsampling="4:2:2"))
    image = picture(17, 9, False)
    plain = encoded(image, quality=90, subsampling="4:4:4")
    for name, jfif, adobe, names in [
        ("jfif-adobe-0", True, 0, b"\1\2\3"),
        ("jfif-rgb", True, None, b"RGB"),
        ("adobe-2-rgb", False, 2, b"RGB"),
        ("adobe-1", False, 1, b"\1\2\3"),
        ("names", False, None, b"\5\6\7"),
    ]:
        made[f"colours-{name}"] = with_colours(plain, jfif, adobe, names)
    made["other-adobe-0"] = with_colours(plain, False, 0, b"\1\2\3")
    made["other-names-rgb"] = with_colours(plain, False, None, b"RGB")
    made["other-progressive"] = encoded(image, progressive=True)
    made["other-cmyk"] = encoded(image.convert("CMYK"))
    made["other-rgb"] = encoded(image, keep_rgb=True)
    return made


def make(folder: Path) -> None:
    assert features.version("libjpeg_turbo"), "another libjpeg has other pixels"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    sums = []
    for name, file in sorted(files().items()):
        (folder / f"{name}.jpg").write_bytes(file)
        pixels = Image.open(io.BytesIO(file)).convert("RGB").tobytes()
        told = "-" if name.startswith("other-") else hashlib.sha256(pixels).hexdigest()
        sums.append(f"{name} {told}\n")
    (folder / "sums.txt").write_text("".join(sums))
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"jpeg: {len(sums)} files, {size} bytes")


if __name__ == "__main__":
    make(Path(__file__).resolve().parents[2] / "tests" / "golden" / "jpeg")
