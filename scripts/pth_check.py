"""Loads what `runner export` writes as .pth of every file of `models/`: `torch.load(weights_only=True)` and every number; of torchvision's models
`load_state_dict`, too.

Usage: `RUNNER=target/release/runner python scripts/pth_check.py [WORD]` for the models with WORD in their name. Needs torch, torchvision,
safetensors.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from export_common import ROOT, Findings, begun_config, model_config, runner
from safetensors.torch import load_file

WORD = sys.argv[1] if len(sys.argv) > 1 else ""


def main() -> None:
    import architectures

    findings = Findings()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in sorted(path for path in (ROOT / "models").glob("*.toml") if WORD in path.stem):
            try:
                pth, plain = folder / "model.pth", folder / "model.safetensors"
                side = 224 if path.stem in architectures.TORCHVISION else 32
                images = np.zeros((2, 3, side, side), np.float32)
                options = {"num_classes": 10} if "num_classes" in path.read_text() else {}
                if path.stem in architectures.MODELS:
                    config = model_config(folder, path, images, options, path.stem in ("unet", "autoencoder"))
                else:
                    config = begun_config(folder, path.stem)
                runner("export", config, pth)
                runner("export", pth, plain)
                read = torch.load(pth, weights_only=True, mmap=True)
                assert {key: (t.dtype, t.shape) for key, t in read.items()} == {key: (t.dtype, t.shape) for key, t in load_file(plain).items()}
                for key, tensor in load_file(plain).items():
                    assert torch.equal(tensor, read[key]), key
                if path.stem in architectures.TORCHVISION:
                    from torchvision import models

                    options = {"aux_logits": False, "init_weights": False} if path.stem == "googlenet" else {}
                    net = models.get_model(path.stem, weights=None, num_classes=10, **options)
                    net.load_state_dict(torch.load(pth, weights_only=True))
                    own = net.state_dict()
                    assert {key: t.dtype for key, t in own.items()} == {key: t.dtype for key, t in read.items()}
                    for key, tensor in own.items():
                        assert torch.equal(tensor, read[key]), key
                findings.done += 1
            except Exception as error:
                findings.failed(path.stem, error)
    findings.end()


if __name__ == "__main__":
    main()
