#!/usr/bin/env python3
"""Writes a Llama model of random weights as FILE.gguf, to measure speed with: no vocabulary, tokens are numbers.

Models of other architectures, as small ones to compare results with, come from llama.cpp's own
`run.sh test-llama-archs --out FOLDER`.

Usage: make_gguf.py FILE [--layers 4] [--heads 16] [--kv-heads 4] [--dim 128] [--ffn 2048] [--vocab 1024]
                    [--context 131072] [--type f16|f32|bf16|q8_0|q4_0] [--seed 1]
"""

import argparse
import random
import struct

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
UINT32, FLOAT32, STRING = 4, 6, 8  # types of metadata
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q8_0": (8, 32, 34), "bf16": (30, 1, 2)}
# of each its number, block, bytes


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", FLOAT32, value)
    return text(key) + struct.pack("<II", UINT32, value)


def metadata(o):
    width = o.heads * o.dim
    return {
        "general.architecture": "llama",
        "general.name": f"random-{o.heads}x{o.dim}",
        "llama.block_count": o.layers,
        "llama.context_length": o.context,
        "llama.embedding_length": width,
        "llama.feed_forward_length": o.ffn,
        "llama.attention.head_count": o.heads,
        "llama.attention.head_count_kv": o.kv_heads,
        "llama.attention.key_length": o.dim,
        "llama.attention.value_length": o.dim,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": o.dim,
        "llama.rope.freq_base": 10000.0,
        "llama.vocab_size": o.vocab,
        "tokenizer.ggml.model": "no_vocab",
    }


def tensors(o):
    """Name, shape (innermost axis first), type."""
    width, kv = o.heads * o.dim, o.kv_heads * o.dim
    yield "token_embd.weight", (width, o.vocab), o.type
    for i in range(o.layers):
        yield f"blk.{i}.attn_norm.weight", (width,), "f32"
        yield f"blk.{i}.attn_q.weight", (width, width), o.type
        yield f"blk.{i}.attn_k.weight", (width, kv), o.type
        yield f"blk.{i}.attn_v.weight", (width, kv), o.type
        yield f"blk.{i}.attn_output.weight", (width, width), o.type
        yield f"blk.{i}.ffn_norm.weight", (width,), "f32"
        yield f"blk.{i}.ffn_gate.weight", (width, o.ffn), o.type
        yield f"blk.{i}.ffn_up.weight", (width, o.ffn), o.type
        yield f"blk.{i}.ffn_down.weight", (o.ffn, width), o.type
    yield "output_norm.weight", (width,), "f32"
    yield "output.weight", (width, o.vocab), o.type


def size_of(shape, kind):
    elements = 1
    for length in shape:
        elements *= length
    _, block, block_bytes = TYPES[kind]
    return elements // block * block_bytes


def pattern(kind, deviation, numbers):
    """Blocks of random weights, a whole number of times the block of every type, to be repeated."""
    count = 1 << 16
    if kind == "f32":
        return struct.pack(f"<{count}f", *(numbers.gauss(0, deviation) for _ in range(count)))
    if kind == "f16":
        return struct.pack(f"<{count}e", *(numbers.gauss(0, deviation) for _ in range(count)))
    if kind == "bf16":
        return b"".join(struct.pack("<f", numbers.gauss(0, deviation))[2:] for _ in range(count))
    codes, scale = (32, deviation / 73) if kind == "q8_0" else (16, deviation / 4.6)
    return b"".join(struct.pack("<e", scale) + numbers.randbytes(codes) for _ in range(count // 32))


def pad(out):
    out.write(bytes(-out.tell() % ALIGNMENT))


def write(o):
    numbers, listed = random.Random(o.seed), list(tensors(o))
    header = MAGIC + struct.pack("<IQQ", VERSION, len(listed), len(metadata(o)))
    header += b"".join(pair(key, value) for key, value in metadata(o).items())
    at = 0
    for name, shape, kind in listed:
        header += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        header += struct.pack("<IQ", TYPES[kind][0], at)
        at += size_of(shape, kind) + -size_of(shape, kind) % ALIGNMENT
    ones = struct.pack("<f", 1.0)
    with open(o.file, "wb") as out:
        out.write(header)
        pad(out)
        for name, shape, kind in listed:
            if name.endswith("norm.weight"):
                out.write(ones * shape[0])
            else:
                data, left = pattern(kind, shape[0] ** -0.5, numbers), size_of(shape, kind)
                while left > 0:
                    left -= out.write(data[:left])
            pad(out)


def count(text):
    """A number of which there has to be one, and that a model's metadata can hold."""
    number = int(text)
    if not 1 <= number < 1 << 32:
        raise ValueError
    return number


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("file")
    defaults = {"layers": 4, "heads": 16, "kv-heads": 4, "dim": 128, "ffn": 2048, "vocab": 1024}
    for name, value in (defaults | {"context": 131072}).items():
        options.add_argument("--" + name, type=count, default=value)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--type", choices=TYPES, default="f16")
    o = options.parse_args()
    _, block, _ = TYPES[o.type]
    for name, length in (("heads times --dim", o.heads * o.dim), ("ffn", o.ffn)):
        if length % block:
            options.error(f"--{name} is {length}: rows of {o.type} are whole blocks of {block}")
    if o.heads % o.kv_heads:
        options.error(f"--heads is {o.heads}: it has to be a multiple of --kv-heads, {o.kv_heads}")
    write(o)


main()
