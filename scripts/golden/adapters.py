"""Ten steps of `peft` with adapters of low rank on small models of transformers with random weights.

Writes tests/golden/adapters/{llama,gpt2}: `start.safetensors` (the model, and adapters as they start), `config.toml` (the same model and training here),
`adapter_model.safetensors` (what `peft` saves at the end), `golden.json` (the loss before each step, and at the end).
Needs torch, transformers and peft.
"""

import json
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "adapters"
# One sample: 32 bytes, and the byte behind each of them.
TEXT = "the bread was old, the soup cold."
STEPS, LR = 10, 0.01


def write(name, model, lora, use, targets):
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Larger weights than at the start of a training: then every part of the model matters.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.15 if parameter.dim() > 1 else 0.05))
    model = get_peft_model(model, lora)
    start = {}
    for key, tensor in model.state_dict().items():
        key = key.removeprefix("base_model.model.").replace(".base_layer", "").replace(".default", "")
        if not key.startswith("lm_head"):
            start[key] = tensor.clone().contiguous()
    save_file(start, folder / "start.safetensors")
    tokens = torch.tensor([list(TEXT.encode())])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.0)
    model.train()
    losses = []
    for _ in range(STEPS):
        logits = model(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits[0], tokens[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).logits[0].double(), tokens[0, 1:]).item()
    model.save_pretrained(folder)
    for extra in ["README.md", "adapter_config.json"]:
        (folder / extra).unlink(missing_ok=True)
    (folder / "golden.json").write_text(json.dumps({"losses": losses, "loss": loss}) + "\n")
    (folder / "config.toml").write_text(
        f'device = "cpu"\n[data]\nsource = "text"\npath = "text.txt"\nval_path = "text.txt"\ntokenizer = "bytes"\ncontext = {len(TEXT) - 1}\nbatch_size = 1\n'
        f'[model]\n{use}\nweights = "start.safetensors"\n'
        f"lora = {{ rank = {lora.r}, alpha = {float(lora.lora_alpha)}, targets = {json.dumps(targets)} }}\n"
        f'[loss]\ntype = "cross_entropy"\n[optimizer]\ntype = "adamw"\nlr = {LR}\nweight_decay = 0.0\n[train]\nepochs = {STEPS}\n'
    )


def main():
    torch.manual_seed(3)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    (FOLDER / "text.txt").write_text(TEXT)
    llama = LlamaConfig(vocab_size=256, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                        max_position_embeddings=32, tie_word_embeddings=True, rms_norm_eps=1e-5, rope_theta=10000.0)
    with_ = "with = { vocabulary = 256, width = 16, heads = 4, kv_heads = 2, head_width = 4, layers = 2, hidden = 24 }"
    targets = ["q_proj", "v_proj", "down_proj"]
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=targets, lora_dropout=0.0)
    write("llama", LlamaForCausalLM(llama), lora, f'use = "models/llama.toml"\n{with_}', targets)
    gpt2 = GPT2Config(vocab_size=256, n_positions=32, n_embd=16, n_head=2, n_layer=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    lora = LoraConfig(r=2, lora_alpha=2, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
    use = 'use = "models/gpt2.toml"\nwith = { vocabulary = 256, context = 32, width = 16, heads = 2, layers = 2 }\nweights_rename = [{ from = "transformer.", to = "" }]'
    write("gpt2", GPT2LMHeadModel(gpt2), lora, use, ["c_attn", "c_proj"])


main()
