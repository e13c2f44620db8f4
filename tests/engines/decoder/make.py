#!/usr/bin/env python3
"""Makes the fixtures of this folder with transformers' LlamaForCausalLM.

    python3 -m venv env && env/bin/pip install torch transformers && env/bin/python make.py

tiny/         a random checkpoint: grouped heads, an explicit head dim, weights in bf16
prompts.txt   token ids, one prompt on each line
tokens.txt    the 64 tokens that greedy decoding appends to each prompt, on a line each
logits.npy    float32 logits of every position but that of the last token, prompt after prompt
"""

import json
import os
import pathlib

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS, COUNT, VOCABULARY = (9, 1, 30), 64, 128
# The two best logits of a step have to be this far apart: then every implementation chooses the
# same token.
MARGIN = 1e-2


def make_model(seed):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=100,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=12,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_theta": 500.0, "rope_type": "default"},
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            wide = 0.1 if "norm" in name else 0.25
            shift = 1 if "norm" in name else 0
            weight.copy_((torch.randn(weight.shape) * wide + shift).bfloat16().float())
    return config, model


@torch.no_grad()
def generate(model, prompt):
    """Tokens and logits [len(prompt) + COUNT - 1, vocabulary], computed with a cache, as generation
    does; None if the two best tokens of a step are too near each other."""
    out = model(input_ids=torch.tensor([prompt]), use_cache=True)
    logits, tokens = [out.logits[0]], []
    while True:
        best = torch.topk(logits[-1][-1], 2)
        if best.values[0] - best.values[1] < MARGIN:
            return None
        tokens.append(int(best.indices[0]))
        if len(tokens) == COUNT:
            return tokens, torch.cat(logits).numpy()
        out = model(
            input_ids=torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True
        )
        logits.append(out.logits[0])


def main():
    torch.set_num_threads(1)
    for seed in range(1000):
        config, model = make_model(seed)
        prompts = [torch.randint(VOCABULARY, (n,)).tolist() for n in LENGTHS]
        results = [generate(model, prompt) for prompt in prompts]
        # A text that repeats a few tokens would test little.
        if all(results) and all(len(set(tokens)) > 16 for tokens, _ in results):
            break
    else:
        raise SystemExit("no seed gives clear tokens")
    tiny = HERE / "tiny"
    tiny.mkdir(exist_ok=True)
    state = {name: weight.bfloat16().contiguous() for name, weight in model.state_dict().items()}
    save_file(state, tiny / "model.safetensors", metadata={"format": "pt"})
    (tiny / "model.safetensors").chmod(0o644)
    all_of_it = json.loads(config.to_json_string())
    names = """model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
    num_key_value_heads head_dim max_position_embeddings rms_norm_eps rope_parameters hidden_act
    tie_word_embeddings attention_bias mlp_bias""".split()
    kept = {name: all_of_it[name] for name in names}
    (tiny / "config.json").write_text(json.dumps(kept, indent=1) + "\n")
    text = lambda lists: "".join(" ".join(map(str, ids)) + "\n" for ids in lists)
    (HERE / "prompts.txt").write_text(text(prompts))
    (HERE / "tokens.txt").write_text(text(tokens for tokens, _ in results))
    logits = np.concatenate([logits for _, logits in results]).astype(np.float32)
    np.save(HERE / "logits.npy", logits)
    print(f"seed {seed}, logits {logits.shape} of size {np.abs(logits).max():.3g}")


main()
