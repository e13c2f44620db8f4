"""Searches lines of text by meaning, with a sentence model of transformers on Heed: its attention, then its
linear layers too. Shows that the model's defaults find the same, and how long each takes.

    python sentence_search.py [--model NAME_OR_FOLDER] FILE TEXT      needs torch and transformers
    python sentence_search.py --random FILE TEXT                      a model with random weights, no download
"""

import argparse
import time

import torch
import transformers

import heed.torch
import heed.transformers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
parser.add_argument("--random", action="store_true")
parser.add_argument("file")
parser.add_argument("text")
options = parser.parse_args()

heed.transformers.register()
if options.random:
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(
        vocab_size=256, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536))

    def tokens(lines):
        rows = [list(line.encode())[:128] for line in lines]
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for row, line in zip(ids, rows):
            row[: len(line)] = torch.tensor(line)
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}
else:
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModel.from_pretrained(options.model)

    def tokens(lines):
        return tokenizer(lines, padding=True, truncation=True, max_length=128, return_tensors="pt")


def embed(lines):
    batch = tokens(lines)
    with torch.inference_mode():
        states = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)


with open(options.file, encoding="utf-8") as file:
    lines = [line.strip() for line in file if line.strip()]
model.eval()
found = {}
for name, attention, linear in (("defaults", "sdpa", False), ("attention", "heed", False), ("heed", "heed", True)):
    model.set_attn_implementation(attention)
    heed.torch.use_linear(model, linear)
    embed(lines[:2])  # so that the first calls are not timed
    start = time.perf_counter()
    found[name] = embed(lines)
    print(f"{name}: {len(lines)} lines in {time.perf_counter() - start:.3f} s")
same = (found["heed"] * found["defaults"]).sum(1).min().item()
print(f"least cosine between the two: {same:.7f}; Heed computed {heed.transformers.computed()} attentions and "
      f"{heed.torch.computed()} linear layers")
scores = found["heed"] @ embed([options.text])[0]
for score, n in zip(*scores.topk(min(3, len(lines)))):
    print(f"{score:.3f}  {lines[n]}")
