"""Trains the CNN of `configs/mnist_cnn.toml` as PyTorch's tutorials do: torchvision's data set, DataLoader, Adam. Prints JSON
lines as `runner train --json` does: the first step, and every epoch with its result on the test set.

    python scripts/tutorial_mnist.py --root FOLDER --threads 2

FOLDER is torchvision's: it holds MNIST/raw/train-images-idx3-ubyte and the others, unpacked.
"""

import argparse
import json
import os
import sys
import time

from bench_pytorch import TUNED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of torchvision's data sets")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as PyTorch takes")
    parser.add_argument("--workers", type=int, default=0, help="processes that make batches; 0: none, the default")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--tuned", action="store_true", help="glibc keeps freed memory")
    args = parser.parse_args()
    if args.tuned and any(os.environ.get(k) != v for k, v in TUNED.items()):
        # The allocator reads its settings when the process starts.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | TUNED)

    import torch
    from torch import nn
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    layout = torch.channels_last if args.channels_last else torch.contiguous_format

    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.5,))])
    train_set = datasets.MNIST(args.root, train=True, transform=transform)
    test_set = datasets.MNIST(args.root, train=False, transform=transform)
    workers = {"num_workers": args.workers, "persistent_workers": args.workers > 0}
    train_loader = DataLoader(train_set, batch_size=args.batch, shuffle=True, **workers)
    test_loader = DataLoader(test_set, batch_size=args.batch, **workers)

    net = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10),
    )  # fmt: skip
    net = net.to(memory_format=layout)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(1, args.epochs + 1):
        begin = time.perf_counter()
        net.train()
        for inputs, targets in train_loader:
            optimizer.zero_grad()
            loss = criterion(net(inputs.to(memory_format=layout)), targets)
            loss.backward()
            optimizer.step()
            step += 1
            if step == 1:
                print(json.dumps({"kind": "step", "step": step, "loss": loss.item()}), flush=True)
        seconds = time.perf_counter() - begin
        net.eval()
        right = 0
        with torch.no_grad():
            for inputs, targets in test_loader:
                right += (net(inputs.to(memory_format=layout)).argmax(1) == targets).sum().item()
        report = {"kind": "epoch", "epoch": epoch, "step": step, "val_accuracy": right / len(test_set), "seconds": seconds}
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
