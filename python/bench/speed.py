#!/usr/bin/env python3
"""What the package costs and gains, each pair in turn in one process. Of the turns the one is taken that a tenth
of them are faster than, which is the same on a machine that has other things to do too.

  call     heed.attention with numpy arrays and torch tensors beside the same call in C (--build: a build folder)
  sdpa     heed.torch.sdpa beside PyTorch's own, shapes of bench/shapes.h
  model    all-MiniLM-L6-v2 in transformers, attention "heed", and that with Heed's linear layers, beside the
           default, 32 texts of 128 tokens (--model FOLDER: its weights, else random ones of that architecture)

torch is needed for the last two; without it, call times numpy alone.

Usage: speed.py [--build FOLDER] [--model FOLDER] [--threads N] [--seconds S] [--shapes RE] [call|sdpa|model ...]
"""

import argparse
import copy
import ctypes
import functools
import pathlib
import re
import statistics
import subprocess
import tempfile
import time
import typing


class Shape(typing.NamedTuple):
    name: str
    batch: int
    heads: int
    kv_heads: int
    rows: int
    keys: int
    dim: int
    causal: bool = False
    token_major: bool = False  # [batch, rows, heads, dim] in memory
    mask: str = ""  # random: half of the pairs; bias: numbers; drafts: the rows are the last keys'
    v_dim: int = 0  # dim

    def mask_of(self, dtype):
        import torch

        pairs = self.rows, self.keys
        return {"": lambda: None, "random": lambda: torch.rand(pairs) < 0.5,
                "bias": lambda: torch.randn(pairs).to(dtype),
                "drafts": lambda: torch.ones(pairs, dtype=torch.bool).tril(self.keys - self.rows)}[self.mask]()


def prefill(keys, dim, causal=False, mask=""):
    what = {"random": "randommask", "bias": "bias"}.get(mask, "causal" if causal else "full")
    return Shape(f"prefill_b1_h8_s{keys}_d{dim}_{what}", 1, 8, 8, keys, keys, dim, causal, mask=mask)


def decode(keys, batch=1, heads=32, rows=1, token_major=False):
    kind = "decodetm" if token_major else "batchdecode" if batch > 1 else f"spec_q{rows}" if rows > 1 else "decode"
    return Shape(f"{kind}_b{batch}_hq{heads}_hkv8_kv{keys}_d128", batch, heads, 8, rows, keys, 128,
                 token_major=token_major, mask="drafts" if rows > 1 else "")


# Those of bench/shapes.h that scaled_dot_product_attention can do, in less than 4 GiB and a minute; but for masks
# with structure, for which bench/peers takes its dense mask and FlexAttention.
SHAPES = [
    Shape("small_b4_h4_s10_d8", 4, 4, 4, 10, 10, 8),
    Shape("small_b4_h4_s1_d8", 4, 4, 4, 1, 1, 8),
    Shape("bert_b4_h12_s128_d64", 4, 12, 12, 128, 128, 64),
    *(prefill(keys, dim, causal) for keys in (512, 2048) for dim in (64, 128) for causal in (False, True)),
    prefill(2048, 64, mask="random"),
    prefill(2048, 64, mask="bias"),
    *(prefill(keys, 64, causal) for keys in (4096, 8192) for causal in (False, True)),
    *(prefill(8192, 128, causal) for causal in (False, True)),
    Shape("bshd_b1_h32_s512_d128_full", 1, 32, 32, 512, 512, 128, token_major=True),
    Shape("vision_b1_h16_s5776_d72", 1, 16, 16, 5776, 5776, 72),
    *(decode(keys) for keys in (1024, 8192, 32768, 65536)),
    decode(8192, heads=64),
    *(decode(keys, token_major=True) for keys in (1024, 8192, 32768)),
    *(decode(keys, batch=16) for keys in (1024, 8192)),
    *(decode(8192, rows=rows) for rows in (4, 16)),
    Shape("mla_d576_dv512_kv8192", 1, 16, 1, 1, 8192, 576, v_dim=512),
]

CALLER = """
#include <heed/heed.h>
#include <stdlib.h>
static heed_context *context;
static float x[3][4 * 4 * 10 * 8], out[4 * 4 * 10 * 8];
int start(void)
{
    heed_context_options desc = {.struct_size = sizeof desc, .n_threads = 1};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 1280; j++)
            x[i][j] = (float)(rand() % 1000) / 500 - 1;
    return heed_context_create(&desc, &context);
}
int calls(int n)
{
    const heed_attn_desc desc = {.struct_size = sizeof desc, .q_heads = 4, .kv_heads = 4, .qk_dim = 8, .v_dim = 8,
        .q_type = HEED_F32, .k_type = HEED_F32, .v_type = HEED_F32, .out_type = HEED_F32};
    const heed_attn_args args = {.struct_size = sizeof args, .batch = 4, .q_len = 10, .kv_len = 10,
        .q = {x[0], {320, 80, 8, 1}}, .k = {x[1], {320, 80, 8, 1}}, .v = {x[2], {320, 80, 8, 1}},
        .out = {out, {320, 80, 8, 1}}};
    for (int i = 0; i < n; i++)
        if (heed_attention(context, &desc, &args))
            return 1;
    return 0;
}
"""


def turns(calls, seconds):
    """The seconds that each call takes, with the calls in turn, again and again."""
    for call in calls:
        call()
    once = max(min(_timed(call, 1) for call in calls), 1e-7)
    n = max(1, int(1e-3 / once))
    took = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(took[0]) < 10:
        for list_, call in zip(took, calls):
            list_.append(_timed(call, n))
    return took


def tenth(took):
    """The time than which a tenth of the turns are faster."""
    return [statistics.quantiles(list_, n=10)[0] for list_ in took]


def in_turn(calls, seconds):
    return tenth(turns(calls, seconds))


def _timed(call, n):
    start = time.perf_counter()
    for _ in range(n):
        call()
    return (time.perf_counter() - start) / n


def call_overhead(options):
    import numpy as np

    import heed

    try:
        import torch
    except ImportError:
        torch = None
    if not options.build:
        raise SystemExit("speed.py: call needs --build, a folder with core/libheed.so")
    root, build = pathlib.Path(__file__).resolve().parents[2], pathlib.Path(options.build).resolve()
    with tempfile.TemporaryDirectory() as folder:
        source, made = pathlib.Path(folder, "caller.c"), pathlib.Path(folder, "caller.so")
        source.write_text(CALLER)
        subprocess.run(["cc", "-O2", "-std=c17", "-shared", "-fPIC", f"-I{root}/include", str(source), f"-L{build}/core",
                        f"-Wl,-rpath,{build}/core", "-lheed", "-o", str(made)], check=True)
        library = ctypes.CDLL(str(made))
    if library.start():
        raise SystemExit("speed.py: no context in C")
    numpy_q, numpy_k, numpy_v = np.random.default_rng(0).standard_normal((3, 4, 4, 10, 8)).astype(np.float32)
    numpy_out = np.empty_like(numpy_q)
    calls = [
        lambda: library.calls(20),
        lambda: [heed.attention(numpy_q, numpy_k, numpy_v) for _ in range(20)],
        lambda: [heed.attention(numpy_q, numpy_k, numpy_v, out=numpy_out) for _ in range(20)],
    ]
    if torch:
        torch_q, torch_k, torch_v = (torch.from_numpy(x) for x in (numpy_q, numpy_k, numpy_v))
        torch_out = torch.empty_like(torch_q)
        calls += [
            lambda: [heed.attention(torch_q, torch_k, torch_v) for _ in range(20)],
            lambda: [heed.attention(torch_q, torch_k, torch_v, out=torch_out) for _ in range(20)],
        ]
    with heed.threads(1):
        c, *python = in_turn(calls, options.seconds)
    print(f"\ncall, batch 4, 4 heads, 10 rows, dim 8: in C {c * 5e4:.2f} us; over it")
    for name, took in zip(("numpy", "numpy, out=", "torch", "torch, out="), python):
        print(f"  {name:12} {(took - c) * 5e4:6.2f} us")


def sdpa(options):
    import torch

    import heed.torch

    torch.set_num_threads(options.threads)
    print(f"\n{'sdpa':40} type  torch us   heed us   torch / heed  ({options.threads} threads)")
    for shape in SHAPES:
        if not re.search(options.shapes, shape.name):
            continue
        for dtype in (torch.float32, torch.bfloat16):
            def made(heads, rows, dim):
                x = (torch.randn(shape.batch, rows, heads, dim).transpose(1, 2) if shape.token_major
                     else torch.randn(shape.batch, heads, rows, dim))
                return x.to(dtype)

            q, k = made(shape.heads, shape.rows, shape.dim), made(shape.kv_heads, shape.keys, shape.dim)
            v = made(shape.kv_heads, shape.keys, shape.v_dim or shape.dim)
            named = {"is_causal": shape.causal, "enable_gqa": shape.heads != shape.kv_heads,
                     "attn_mask": shape.mask_of(dtype)}
            theirs, ours = in_turn([lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, **named),
                                    lambda: heed.torch.sdpa(q, k, v, **named)], options.seconds)
            print(f"{shape.name:40} {str(dtype)[6:9]}  {theirs * 1e6:9.1f} {ours * 1e6:9.1f}   {theirs / ours:9.2f}",
                  flush=True)


def model(options):
    import torch
    import transformers

    import heed.torch
    import heed.transformers

    heed.transformers.register()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.model:
        net = transformers.AutoModel.from_pretrained(options.model)
    else:
        net = transformers.BertModel(transformers.BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536))
    nets = {"default": net.eval(), "attention heed": copy.deepcopy(net), "attention and linear heed": copy.deepcopy(net)}
    for kind in list(nets)[1:]:
        nets[kind].set_attn_implementation("heed")
    heed.torch.use_linear(nets["attention and linear heed"])
    ids = torch.randint(1000, 20000, (32, 128))
    for what, lens in (("full", torch.full((32,), 128)), ("padded", torch.randint(20, 129, (32,)))):
        mask = (torch.arange(128) < lens[:, None]).long()

        def run(kind):
            with torch.inference_mode():
                return nets[kind](input_ids=ids, attention_mask=mask).last_hidden_state

        theirs, *ours = turns([functools.partial(run, kind) for kind in nets], max(options.seconds, 30))
        print(f"\nmodel, 32 texts of 128 tokens, {what}, {options.threads} threads: default {tenth([theirs])[0] * 1e3:.1f} ms")
        for kind, took in zip(list(nets)[1:], ours):
            fastest = tenth([theirs, took])
            pairs = statistics.quantiles((a / b for a, b in zip(theirs, took)), n=4)
            a, b = (run(name)[mask.bool()] for name in ("default", kind))
            cosine = torch.nn.functional.cosine_similarity(a.double(), b.double(), dim=1).min()
            print(f"  {kind}: {fastest[1] * 1e3:.1f} ms, ratio {fastest[0] / fastest[1]:.3f}; of the turns' ratios the median "
                  f"{pairs[1]:.3f}, half of them {pairs[0]:.3f} to {pairs[2]:.3f}; least cosine {cosine:.9f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build")
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--shapes", default=".")
    parser.add_argument("what", nargs="*", metavar="call|sdpa|model")
    options = parser.parse_args()
    parts = {"call": call_overhead, "sdpa": sdpa, "model": model}
    for what in options.what:
        if what not in parts:
            parser.error(f"'{what}' is none of {', '.join(parts)}")
    for what in options.what or ("sdpa", "model"):
        parts[what](options)


if __name__ == "__main__":
    main()
