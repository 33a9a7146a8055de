"""A network with three outputs, a regression, classes and a question of yes or no, whose losses are summed with weights, as PyTorch trains it.

Writes tests/golden/heads: `t.csv` and `val.csv`, `start.safetensors` (parameters as they start), `config.toml` (the same training here), `golden.json` (the loss of
each step, figures of an evaluation after it, and the outputs at the end). Needs torch.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "heads"
KINDS = ["flat", "house", "loft"]
TRAIN, VAL, STEPS, LR, WEIGHTS = 24, 9, 6, 0.1, (0.5, 2.0)


def table(rows):
    x = (torch.randn(rows, 3) * 16).round() / 16
    price = ((x[:, 0] * 3 - x[:, 1] + 20 + torch.randn(rows)) * 16).round() / 16
    kind = torch.stack([x[:, 0], x[:, 1], x[:, 2]], 1).argmax(1)
    sold = (x[:, 1] + x[:, 2] > 0).float()
    weight = torch.randint(1, 4, (rows,)).float()
    return x, price, kind, sold, weight


def write(name, rows):
    lines = ["a,b,c,price,kind,sold,weight"]
    for x, price, kind, sold, weight in zip(*rows):
        numbers = [*x.tolist(), price.item()]
        lines.append(",".join([*(f"{n:g}" for n in numbers), KINDS[kind], f"{sold.item():g}", f"{weight.item():g}"]))
    (FOLDER / name).write_text("\n".join(lines) + "\n")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(3, 5)
        self.kind = torch.nn.Linear(5, 3)
        self.sold = torch.nn.Linear(5, 1)
        self.price = torch.nn.Linear(5, 1)

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return self.price(h)[:, 0], self.kind(h), self.sold(h)[:, 0]


def losses(outputs, rows, standard):
    (price, kind, sold), (_, price_t, kind_t, sold_t, weight) = outputs, rows
    mean, deviation = standard
    each = [
        (price - (price_t - mean) / deviation) ** 2,
        F.cross_entropy(kind, kind_t, reduction="none"),
        F.binary_cross_entropy_with_logits(sold, sold_t, reduction="none"),
    ]
    return [(loss * weight).sum() / weight.sum() for loss in each]


def main():
    torch.manual_seed(5)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    train, val = table(TRAIN), table(VAL)
    write("t.csv", train)
    write("val.csv", val)
    standard = train[1].mean(), train[1].std(correction=0)
    model = Model()
    save_file({key: tensor.clone().contiguous() for key, tensor in model.state_dict().items()}, FOLDER / "start.safetensors")
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    total = lambda parts: parts[0] + WEIGHTS[0] * parts[1] + WEIGHTS[1] * parts[2]
    steps, evaluations = [], []
    for _ in range(STEPS):
        loss = total(losses(model(train[0]), train, standard))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps.append(loss.item())
        with torch.no_grad():
            price, kind, sold = model(val[0])
            parts = losses((price, kind, sold), val, standard)
            own = price * standard[1] + standard[0]
            evaluations.append(
                {
                    "loss": total(parts).item(),
                    "mae": (own - val[1]).abs().mean().item(),
                    "kind_loss": parts[1].item(),
                    "kind_accuracy": (kind.argmax(1) == val[2]).float().mean().item(),
                    "sold_loss": parts[2].item(),
                    "sold_accuracy": ((sold > 0) == (val[3] > 0.5)).float().mean().item(),
                }
            )
    outputs = {"price": own.tolist(), "kind": kind.softmax(1).tolist(), "sold": sold.sigmoid().tolist()}
    (FOLDER / "golden.json").write_text(json.dumps({"steps": steps, "evaluations": evaluations, "outputs": outputs}) + "\n")
    (FOLDER / "config.toml").write_text(
        'device = "cpu"\nseed = 1\n[data]\nsource = "csv"\npath = "t.csv"\nval_path = "val.csv"\ntarget = "price"\nsample_weight = "weight"\n'
        f'columns = {{ "*" = {{ type = "number", scaling = "none" }} }}\nbatch_size = {TRAIN}\n'
        '[model]\nweights = "start.safetensors"\nlayers = [\n  { name = "trunk", type = "linear", out_features = 5 },\n  { name = "shared", type = "tanh" },\n'
        '  { name = "kind", type = "linear", out_features = 3 },\n  { name = "sold", type = "linear", out_features = 1, from = "shared" },\n'
        '  { name = "price", type = "linear", out_features = 1, from = "shared" },\n]\n[loss]\ntype = "mse"\n'
        f'[[heads]]\ntarget = "kind"\nloss = "cross_entropy"\nweight = {WEIGHTS[0]}\n'
        f'[[heads]]\ntarget = "sold"\nloss = {{ type = "bce_with_logits" }}\nweight = {WEIGHTS[1]}\n'
        f'[optimizer]\ntype = "sgd"\nlr = {LR}\nmomentum = 0.9\n[train]\nepochs = {STEPS}\n[log]\nevery_steps = 1\n'
    )


main()
