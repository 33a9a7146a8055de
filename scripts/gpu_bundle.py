"""The archive that travels to a machine with a GPU: packs it, unpacks it.

    gpu_bundle.py pack FOLDER ARCHIVE COMMIT MIB    FOLDER has `bin` with programs, and perhaps `data`; so many MiB may travel
    gpu_bundle.py unpack ARCHIVE FOLDER

The archive goes to another machine together with the working tree. Every program has the compiled kernels in it, which are files of
the tree: such pieces are left out of the archive and taken from the tree when it is unpacked. The rest is packed as `xz` does it, with
room to look back over all programs, which have most of their code in common. Python unpacks it without packages.
"""

import hashlib
import json
import lzma
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A piece that is left out must be worth it.
LEAST = 4096
# MiB that may travel, beyond which an archive is packed quickly.
QUICKLY = 64


class Failed(Exception):
    pass


def pieces() -> list[tuple[str, bytes]]:
    """The tree's files that programs may have in them."""
    files = sorted(path for path in (ROOT / "kernels/packed").rglob("*") if path.is_file() and path.stat().st_size >= LEAST)
    return [(str(path.relative_to(ROOT)), path.read_bytes()) for path in files]


def cut(content: bytes, known: list[tuple[str, bytes]]) -> tuple[bytes, list]:
    """The content without pieces that are known, and where each was."""
    found = sorted((content.find(piece), name, len(piece)) for name, piece in known)
    rest, holes, at = bytearray(), [], 0
    for offset, name, length in found:
        if offset >= at:
            rest += content[at:offset]
            holes.append([offset, name, length])
            at = offset + length
    return bytes(rest + content[at:]), holes


def joined(name: str, rest: bytes, holes: list) -> bytes:
    """The content that was cut."""
    content, at = bytearray(), 0
    for offset, piece, length in holes:
        there = ROOT / piece
        if not there.is_file() or there.stat().st_size != length:
            raise Failed(f"`{name}` was packed with another `{piece}` than this tree has: pack and carry both together")
        take = offset - len(content)
        content += rest[at : at + take] + there.read_bytes()
        at += take
    return bytes(content + rest[at:])


def tree_bytes() -> int:
    """What the working tree weighs: tracked files, those that git does not ignore, and `shared`."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    files = {ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
    files |= {path for path in (ROOT / "shared").rglob("*")}
    return sum(path.lstat().st_size for path in files if path.is_file())


def pack(folder: Path, archive: Path, commit: str, limit: int) -> None:
    known = pieces()
    programs = {}
    for path in sorted((folder / "bin").iterdir()):
        content = path.read_bytes()
        rest, holes = cut(content, known)
        programs[path.name] = {"sha256": hashlib.sha256(content).hexdigest(), "holes": holes}
        path.write_bytes(rest)
    (folder / "manifest.json").write_text(json.dumps({"commit": commit, "programs": programs}, indent=1) + "\n")
    partial = archive.with_name(archive.name + ".part")
    # Large archives are those of debug builds, which do not travel.
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6 if limit <= QUICKLY else 0, "dict_size": 128 << 20}]
    with lzma.open(partial, "w", filters=filters) as file, tarfile.open(fileobj=file, mode="w|") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
    partial.replace(archive)
    size, tree = archive.stat().st_size, tree_bytes()
    data = ", ".join(path.name for path in sorted((folder / "data").glob("*"))) or "no data"
    print(f"{archive}: {size / 2**20:.1f} MiB ({', '.join(programs)}; {data})")
    print(f"with the working tree of {tree / 2**20:.1f} MiB: {(size + tree) / 2**20:.1f} of {limit} MiB")
    if size + tree > limit << 20:
        raise Failed(f"that is more than the {limit} MiB that may travel: leave out data, or files of the tree")


def unpack(archive: Path, folder: Path) -> dict:
    """Unpacks into a folder; the manifest."""
    try:
        with tarfile.open(archive) as tar:
            # Python 3.12 has filters, and asks for one.
            tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    except (OSError, tarfile.TarError, EOFError, lzma.LZMAError) as error:
        raise Failed(f"`{archive}` cannot be unpacked: {error}") from error
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, program in manifest["programs"].items():
        path = folder / "bin" / name
        content = joined(name, path.read_bytes(), program["holes"])
        if hashlib.sha256(content).hexdigest() != program["sha256"]:
            raise Failed(f"`{name}` is not what was packed: the tree has other kernels, or the archive is damaged; pack and carry both together")
        path.write_bytes(content)
        path.chmod(0o755)
    return manifest


def main(arguments: list[str]) -> int:
    commands = {"pack": (4, lambda a: pack(Path(a[0]), Path(a[1]), a[2], int(a[3]))), "unpack": (2, lambda a: unpack(Path(a[0]), Path(a[1])))}
    count, command = commands.get(arguments[0] if arguments else "", (None, None))
    if count != len(arguments) - 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        command(arguments[1:])
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
