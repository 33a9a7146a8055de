"""Photos from folders through torchvision and PyTorch's DataLoader: images a second.

    python3 scripts/bench_dataloader.py --root DIR --size 224 --batch 32 --workers 2 --decoder pillow --serve

`benches/loader` starts it: with `--serve` a line is read from standard input, so many seconds are measured, and a line with figures is
printed, until the input ends. `DIR` has a folder for each class. Needs PyTorch and torchvision.
"""

import argparse
import json
import sys
import time

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def decode(path):
    return decode_image(read_file(path), mode=ImageReadMode.RGB)


def dataset(options):
    if options.transforms == "train":
        change = [v2.RandomResizedCrop(options.size, antialias=True), v2.RandomHorizontalFlip()]
    else:
        change = [v2.Resize(options.size * 256 // 224, antialias=True), v2.CenterCrop(options.size)]
    # The usual recipe of each: Pillow's images become tensors at the end; the tensor decoder's are tensors from the start.
    if options.decoder == "pillow":
        change += [v2.PILToTensor()]
    change += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    loader = {} if options.decoder == "pillow" else {"loader": decode}
    return ImageFolder(options.root, v2.Compose(change), **loader)


def batches(options, data):
    loader = DataLoader(data, options.batch, shuffle=True, num_workers=options.workers,
                        persistent_workers=options.workers > 0)
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--decoder", choices=["pillow", "tensor"], default="pillow")
    parser.add_argument("--transforms", choices=["train", "val"], default="train")
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    # As in a DataLoader's worker processes; the main process only collects.
    torch.set_num_threads(1)
    stream = batches(options, dataset(options))
    next(stream)

    def measure(seconds):
        # Batches that lie ready are not counted.
        for _ in range(2 * max(options.workers, 1)):
            next(stream)
        images, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            images += next(stream)[0].shape[0]
        return images / (time.perf_counter() - start)

    if not options.serve:
        print(f"{measure(5):.0f} images/s")
        return
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps({"images_per_s": measure(float(line))}), flush=True)


if __name__ == "__main__":
    main()
