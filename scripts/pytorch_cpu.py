"""Installs PyTorch for the CPU into a virtual environment, to try the scripts that time it: FOLDER/bin/python3 has it then.

    python3 scripts/pytorch_cpu.py FOLDER

PyPI's PyTorch for x86-64 Linux is built for CUDA and is linked with gigabytes of NVIDIA's libraries, of which nothing is used without
a GPU. In their place come empty ones, with the names that PyTorch asks for and functions that fail; the CUDA runtime, which registers
kernels when PyTorch is loaded, is the real one. Needs pip, a C compiler, `nm` and `readelf`, and 1.5 GB of disk.
"""

import re
import subprocess
import sys
import venv
from pathlib import Path

PACKAGES = ["torch==2.11.0", "torchvision==0.26.0", "numpy", "pillow"]
# What PyTorch imports, and the CUDA runtime.
IMPORTED = ["filelock", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "MarkupSafe", "fsspec", "nvidia-cuda-runtime==13.0.96"]
# NVIDIA's libraries by their names, but for the driver's.
THEIRS = re.compile(r"lib(cu(?!da\.)|nccl|nv)")
FUNCTIONS = re.compile(r"cu|nccl|nv")


def said(*command: str | Path) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def versions(library: Path) -> dict[str, str]:
    """Of each version of symbols that a library asks for, the library that is to have it."""
    found, file = {}, ""
    for line in said("readelf", "-VW", library).splitlines():
        if named := re.search(r"File: (\S+)", line):
            file = named[1]
        elif named := re.search(r"Name: (\S+)\s+Flags", line):
            found[named[1]] = file
    return found


def symbols(library: Path, which: str) -> list[tuple[str, str]]:
    """Names and versions of the symbols that a library has (`--defined-only`) or asks for (`--undefined-only`)."""
    names = [line.split()[-1] for line in said("nm", "-D", which, library).splitlines()]
    return [(name.partition("@")[0], name.partition("@")[2].lstrip("@")) for name in names]


def stand_in(site: Path) -> None:
    """Makes the libraries that are missing, where PyTorch looks for them."""
    libraries = [path for path in (site / "torch/lib").glob("*.so*") if path.is_file()]
    present = [*libraries, *site.glob("nvidia/**/*.so*")]
    needed = {name for path in libraries for name in re.findall(r"\(NEEDED\).*\[(.*)\]", said("readelf", "-dW", path))}
    missing = sorted(name for name in needed - {path.name for path in present} if THEIRS.match(name))
    if not missing:
        return
    owners = {version: file for path in libraries for version, file in versions(path).items() if file in missing}
    defined = {name for path in present for name, _ in symbols(path, "--defined-only")}
    asked: dict[str, set] = {name: set() for name in missing}
    for path in libraries:
        for name, version in symbols(path, "--undefined-only"):
            if version in owners:
                asked[owners[version]].add((name, version))
            elif not version and name not in defined and FUNCTIONS.match(name):
                # Without a version it may be in any of them.
                asked[missing[0]].add((name, ""))
    folder = next(site.glob("nvidia/*/lib"))
    code, script = folder / "stand_in.s", folder / "stand_in.map"
    for library, functions in asked.items():
        labels = "\n".join(f".globl {name}\n.type {name}, @function\n{name}:" for name, _ in sorted(functions))
        code.write_text(f'.text\n{labels}\n  movl $1, %eax\n  ret\n.section .note.GNU-stack, "", @progbits\n')
        own = sorted(version for version, file in owners.items() if file == library)
        script.write_text("".join(f"{version} {{ {' '.join(f'{name};' for name, v in sorted(functions) if v == version)} }};\n" for version in own))
        options = [f"-Wl,--version-script={script}"] if own else []
        said("cc", "-shared", "-nostdlib", "-o", folder / library, f"-Wl,-soname,{library}", *options, code)
    code.unlink(), script.unlink()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", site]
    said(*pip, *PACKAGES, *IMPORTED)
    stand_in(site)
    print(said(folder / "bin/python3", "-c", "import torch, torchvision; print('PyTorch', torch.__version__)"), end="")


if __name__ == "__main__":
    main()
