"""Small language models of transformers with random weights, as folders that `runner import` reads, and what they make of a text.

Writes tests/golden/language_models/{gpt2,llama,qwen2,mistral}. Needs torch, transformers and tokenizers.
"""

import json
import pathlib
import shutil

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM,
)  # fmt: skip

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "language_models"
TEXT = (
    "The wind came up from the sea, and the sea came up with the wind. It took the sand from the shore, and the shore went back to the hills. "
    "What the hills had, they kept; what the sea had, it gave back — an old boat, two ropes, and a naïve sailor.\n"
) * 3
CONTEXT = 32


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    made.train_from_iterator([TEXT], trainer)
    return made


def write(name, model, made):
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    # Larger weights than at the start of a training: then every part of the model matters.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.15 if parameter.dim() > 1 else 0.05))
    model.eval()
    model.save_pretrained(folder)
    made.save(str(folder / "tokenizer.json"))
    ids = made.encode(TEXT).ids
    losses = []
    # As an evaluation reads a text: windows one after the other.
    for start in range(0, (len(ids) - 1) // CONTEXT * CONTEXT, CONTEXT):
        window = torch.tensor([ids[start : start + CONTEXT]])
        target = torch.tensor(ids[start + 1 : start + CONTEXT + 1])
        with torch.no_grad():
            losses.append(torch.nn.functional.cross_entropy(model(window).logits[0].double(), target).item())
    prompt = made.encode("The sea").ids
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(CONTEXT - len(prompt)):
            tokens.append(model(torch.tensor([tokens])).logits[0, -1].argmax().item())
    golden = {"loss": sum(losses) / len(losses), "tokens": tokens[len(prompt) :]}
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    for extra in ["generation_config.json"]:
        (folder / extra).unlink(missing_ok=True)


def main():
    torch.manual_seed(7)
    made = tokenizer()
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "text.txt").write_text(TEXT)
    vocabulary = made.get_vocab_size()
    write("gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, n_positions=CONTEXT, n_embd=16, n_head=2, n_layer=2)), made)
    common = dict(vocab_size=vocabulary, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    llama = LlamaConfig(**common, max_position_embeddings=CONTEXT, tie_word_embeddings=True, rms_norm_eps=1e-5)
    write("llama", LlamaForCausalLM(llama), made)
    qwen2 = Qwen2Config(**common, max_position_embeddings=CONTEXT, tie_word_embeddings=False, rope_theta=1e6)
    write("qwen2", Qwen2ForCausalLM(qwen2), made)
    # A position sees no more than the last few.
    mistral = MistralConfig(**common, max_position_embeddings=CONTEXT, sliding_window=7, tie_word_embeddings=False)
    write("mistral", MistralForCausalLM(mistral), made)


main()
