"""PyTorch's own files of state dicts, and a few that must be refused."""

import argparse
import collections
import pickle
import warnings
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn


class _Shell:
    """Pickles as a call of `posix.system("true")`. Readers must refuse it; nothing here runs it."""

    def __reduce__(self):
        import posix

        return posix.system, ("true",)


def _zip_with_pickle(path: Path, pickled: bytes) -> None:
    """A file of the same make as torch.save's, around any pickle."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in [("data.pkl", pickled), ("byteorder", b"little"), ("version", b"3\n")]:
            entry = zipfile.ZipInfo(f"archive/{name}", date_time=(2020, 1, 1, 0, 0, 0))
            archive.writestr(entry, content)


def net() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(2, 3, (3, 2)), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4))


def layouts(folder: Path, state: dict) -> None:
    """Checkpoints as training scripts leave them: the state dict somewhere beside other things."""
    arguments = argparse.Namespace(arch="resnet18", lr=0.1)
    torch.save({"epoch": 3, "state_dict": state, "best_acc1": torch.tensor(71.2)}, folder / "loose.pth")
    torch.save({"args": arguments, "model": {"state_dict": state}, "epoch": 3}, folder / "namespace.pth")
    averaged = torch.optim.swa_utils.AveragedModel(net())
    torch.save(averaged.state_dict(), folder / "averaged.pth")
    ema = {name: value + 1 if value.is_floating_point() else value for name, value in state.items()}
    torch.save({"model": state, "model_ema": ema}, folder / "ema.pth")


def unread(folder: Path) -> None:
    """Tensors that are none of floats, whole numbers or truth values with all elements there."""
    weight = torch.arange(6.0).reshape(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        some = {
            "weight": weight,
            "complex": weight.to(torch.complex64),
            "per_tensor": torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8),
            "sparse": weight.to_sparse(),
        }
        more = {
            "compressed": weight.to_sparse_csr(),
            "float8": weight.to(torch.float8_e4m3fn),
            "meta": torch.empty(2, 3, device="meta"),
            "parameter": nn.Parameter(weight.to(torch.float8_e5m2), requires_grad=False),
            "per_channel": torch.quantize_per_channel(weight, torch.ones(2), torch.zeros(2), 0, torch.quint8),
            "uint16": weight.to(torch.uint16),
        }
        torch.save({**some, **more}, folder / "unread.pth")
        torch.save(some, folder / "unread_legacy.pth", _use_new_zipfile_serialization=False)
        torch.save(nn.Linear(1, 1), folder / "whole_module_legacy.pth", _use_new_zipfile_serialization=False)
        torch.save({"net": nn.Linear(1, 1), "epoch": 3}, folder / "module_within.pth")


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    state = net().state_dict()
    torch.save(state, folder / "plain.pth")

    # What every other file below must read as, where it says nothing else.
    save_file(state, folder / "plain.safetensors")
    (folder / "plain.safetensors").chmod(0o644)

    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    torch.save(
        collections.OrderedDict(
            transposed=base.t(),
            offset=base[1:3, 2:5],
            stepped=base[::2, ::3],
            column=base[:, 1],
            expanded=torch.tensor([7.0, 8.0]).unsqueeze(1).expand(2, 3),
            scalar=torch.tensor(3.5),
            empty=torch.empty(0, 3),
            channels_last=torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        ),
        folder / "strided.pth",
    )
    values = [0.0, 1.5, -2.25, 100.0]
    torch.save(
        {
            "half": torch.tensor(values, dtype=torch.float16),
            "bfloat16": torch.tensor(values, dtype=torch.bfloat16),
            "double": torch.tensor(values, dtype=torch.float64),
            "int64": torch.tensor([1, -(2**40)]),
            "int32": torch.tensor([1, -2], dtype=torch.int32),
            "int16": torch.tensor([1, -2], dtype=torch.int16),
            "int8": torch.tensor([1, -2], dtype=torch.int8),
            "uint8": torch.tensor([1, 255], dtype=torch.uint8),
            "bool": torch.tensor([True, False]),
            "parameter": nn.Parameter(torch.tensor(values)),
        },
        folder / "types.pth",
    )
    torch.save(nn.DataParallel(net()).state_dict(), folder / "module_prefix.pth")

    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2, 4, 3)).sum().backward()
    optimizer.step()
    training = {"epoch": 3, "state_dict": state, "optimizer": optimizer.state_dict(), "best": 0.5, "name": "net"}
    torch.save(training, folder / "nested.pth")
    torch.save({"model": state, "model_ema": state}, folder / "ambiguous.pth")
    # The old format holds addresses, so this file changes every time.
    torch.save(state, folder / "legacy.pth", _use_new_zipfile_serialization=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(net(), folder / "whole_module.pth")
    torch.save([1, 2], folder / "list.pth")
    layouts(folder, state)
    unread(folder)
    _zip_with_pickle(folder / "malicious.pth", pickle.dumps({"weight": _Shell()}, protocol=2))
    _zip_with_pickle(folder / "malicious_protocol4.pth", pickle.dumps({"weight": _Shell()}, protocol=4))
