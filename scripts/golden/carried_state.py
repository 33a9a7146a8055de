"""Language models of recurrent layers that go on from batch to batch, as PyTorch's example `word_language_model` trains them: `batchify`, `get_batch`, `repackage_hidden`.

Writes tests/golden/carried_state/{lstm,gru,rnn}: `start.safetensors` (parameters as they start), `config.toml` (the same training here), `golden.json` (the loss of each
step, and of an evaluation after each epoch). Needs torch.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "carried_state"
TEXT = "a cat sat on a mat and a rat ran at a bat that sat on a hat in a vat "
VAL = "the cat ate the rat that sat on the mat and ran at the hat"
CONTEXT, BATCH, EVAL_BATCH, EPOCHS, LR, WIDTH, HIDDEN = 5, 3, 2, 2, 0.5, 6, 7


class Model(torch.nn.Module):
    def __init__(self, kind, layers):
        super().__init__()
        self.wte = torch.nn.Embedding(256, WIDTH)
        self.states = getattr(torch.nn, kind)(WIDTH, HIDDEN, layers, batch_first=True)
        self.head = torch.nn.Linear(HIDDEN, 256)

    def forward(self, tokens, state):
        y, state = self.states(self.wte(tokens), state)
        return self.head(y), state


def batches(text, streams):
    tokens = torch.tensor(list(text.encode()))
    length = len(tokens) // streams
    rows = tokens[: length * streams].view(streams, length)
    # Whole pieces alone.
    for start in range(0, (length - 1) // CONTEXT * CONTEXT, CONTEXT):
        yield rows[:, start : start + CONTEXT], rows[:, start + 1 : start + CONTEXT + 1]


def repackage(state):
    return tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()


def loss_of(model, tokens, targets, state):
    logits, state = model(tokens, state)
    return torch.nn.functional.cross_entropy(logits.reshape(-1, 256), targets.reshape(-1)), repackage(state)


def write(name, kind, layers, more):
    folder = FOLDER / name
    folder.mkdir()
    model = Model(kind, layers)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    save_file({key: tensor.clone().contiguous() for key, tensor in model.state_dict().items()}, folder / "start.safetensors")
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    steps, evaluations = [], []
    for _ in range(EPOCHS):
        state = None
        for tokens, targets in batches(TEXT, BATCH):
            loss, state = loss_of(model, tokens, targets, state)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.append(loss.item())
        state, losses = None, []
        with torch.no_grad():
            for tokens, targets in batches(VAL, EVAL_BATCH):
                loss, state = loss_of(model, tokens, targets, state)
                losses.append(loss.item())
        evaluations.append(sum(losses) / len(losses))
    assert len(steps) == 2 * 4 and len(losses) == 5, (len(steps), len(losses))
    (folder / "golden.json").write_text(json.dumps({"steps": steps, "evaluations": evaluations}) + "\n")
    (folder / "config.toml").write_text(
        f'device = "cpu"\n[data]\nsource = "text"\npath = "text.txt"\nval_path = "val.txt"\ntokenizer = "bytes"\ncontext = {CONTEXT}\ncarry_state = true\n'
        f"batch_size = {BATCH}\neval_batch_size = {EVAL_BATCH}\n"
        f'[model]\nweights = "start.safetensors"\nlayers = [\n  {{ name = "wte", type = "embedding", num_embeddings = 256, embedding_dim = {WIDTH} }},\n'
        f'  {{ name = "states", type = "{name}", hidden_size = {HIDDEN}, num_layers = {layers}{more} }},\n'
        f'  {{ name = "head", type = "linear", out_features = 256 }},\n]\n'
        f'[loss]\ntype = "cross_entropy"\n[optimizer]\ntype = "sgd"\nlr = {LR}\n[train]\nepochs = {EPOCHS}\n[log]\nevery_steps = 1\n'
    )


def main():
    torch.manual_seed(11)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    (FOLDER / "text.txt").write_text(TEXT)
    (FOLDER / "val.txt").write_text(VAL)
    write("lstm", "LSTM", 2, "")
    write("gru", "GRU", 1, "")
    write("rnn", "RNN", 2, "")


main()
