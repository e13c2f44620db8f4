"""Attention in float64, step by step, and the same by PyTorch's own operators.

`attend` computes the definition of attention with matmul, tanh, masked_fill and logsumexp, in
float64. `confirm` compares its results, to 1e-12 relative to the largest score, with those of two
operators of PyTorch:

    torch.nn.functional.scaled_dot_product_attention   everything but softcap and sinks; out
    torch.nn.attention.flex_attention                  everything; out and lse. It has no sinks: a
                                                       sink is one more key, with a value of 0, that
                                                       is merged into the result afterwards

Needs PyTorch 2.5 or newer.
"""
import sys
import warnings

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

INF = float("inf")


# ---- attention, line by line ---------------------------------------------------------------------

def per_head(array):
    """[q_heads] as float64, to broadcast over [batch, q_heads, q_len, kv_len]."""
    return torch.from_numpy(array).double().reshape(1, -1, 1, 1)


def visible_pairs(shape, options, arrays):
    """Which keys each row sees, bool [batch, q_heads, q_len, kv_len], and pos, [batch, q_len]."""
    batch, q_len, kv_len = shape["batch"], shape["q_len"], shape["kv_len"]
    pos = torch.arange(q_len) + torch.tensor(options.get("q_offset", [0] * batch)).reshape(batch, 1)
    row, key = pos.reshape(batch, 1, q_len, 1), torch.arange(kv_len).reshape(1, 1, 1, kv_len)
    seen = key < torch.tensor(options.get("kv_len", [kv_len] * batch)).reshape(batch, 1, 1, 1)
    seen = seen.expand(batch, shape["q_heads"], q_len, kv_len).clone()
    if options.get("causal"):
        seen &= key <= row
    if options.get("window_left", -1) >= 0:
        seen &= key >= row - options["window_left"]
    if options.get("window_right", -1) >= 0:
        seen &= key <= row + options["window_right"]
    if "mask" in arrays:
        seen &= torch.from_numpy(arrays["mask"])
    if "bias" in arrays:
        seen &= torch.from_numpy(arrays["bias"]) != -INF
    return seen, pos


def attend(q, k, v, shape, options, arrays):
    """Every output in float64."""
    group = shape["q_heads"] // shape["kv_heads"]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    seen, pos = visible_pairs(shape, options, arrays)

    raw = options.get("scale", shape["qk_dim"] ** -0.5) * torch.matmul(q, k.transpose(2, 3))
    softcap = options.get("softcap", 0.0)
    softcapped = softcap * torch.tanh(raw / softcap) if softcap > 0 else raw
    s = softcapped
    if "alibi_slope" in arrays:
        s = s + per_head(arrays["alibi_slope"]) * (torch.arange(s.shape[3]) - pos[:, None, :, None])
    if "bias" in arrays:
        s = s + torch.from_numpy(arrays["bias"]).double()
    biased = s.masked_fill(~seen, -INF)

    # Every row gets one more logit, the sink or -inf, so that logsumexp works for rows without keys
    # too: their lse is that logit. exp(-inf - 0) is 0, so that they need no further care.
    last = per_head(arrays["sink"]) if "sink" in arrays else torch.full((1, 1, 1, 1), -INF).double()
    lse = torch.logsumexp(torch.cat([biased, last.expand(*biased.shape[:3], 1)], dim=3), dim=3)
    weights = torch.exp(biased - lse.masked_fill(lse == -INF, 0.0).unsqueeze(3))
    return {"out": torch.matmul(weights, v), "lse": lse, "weights": weights, "raw": raw,
            "softcapped": softcapped, "biased": biased, "seen": seen, "pos": pos}


# ---- the same from PyTorch's own operators -------------------------------------------------------

def by_sdpa(q, k, v, shape, options, arrays, ours):
    """out by scaled_dot_product_attention; None if it cannot express the problem."""
    if "softcap" in options or "sink" in arrays or not shape["kv_len"]:
        return None
    plain = not arrays and not set(options) - {"scale", "causal"}
    added = ours["biased"] - ours["softcapped"] if {"alibi_slope", "bias"} & set(arrays) else None
    mask = None if plain else ours["seen"] if added is None else added
    # Not the fused CPU kernel: that of PyTorch 2.15 gives NaN for is_causal with a negative scale.
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=plain and options.get("causal", False),
            scale=options.get("scale"), enable_gqa=True)


def by_flex(q, k, v, shape, options, arrays, ours):
    """out and lse by flex_attention, whose score function does softcap, ALiBi, bias and masking."""
    if not shape["kv_len"]:
        return None
    softcap, seen, pos = options.get("softcap", 0.0), ours["seen"], ours["pos"]
    slope = torch.from_numpy(arrays["alibi_slope"]).double() if "alibi_slope" in arrays else None
    bias = None
    if "bias" in arrays:
        bias = torch.from_numpy(arrays["bias"]).double().expand(seen.shape)

    def score(s, b, h, i, j):
        if softcap > 0:
            s = torch.tanh(s / softcap) * softcap
        if slope is not None:
            s = s + slope[h] * (j - pos[b, i])
        if bias is not None:
            s = s + bias[b, h, i, j]
        return torch.where(seen[b, h, i, j], s, -INF)

    torch.compiler.reset()               # or shapes and numbers of earlier cases become symbols
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that it is slow without torch.compile
        out, lse = flex_attention(q, k, v, score_mod=score, scale=options.get("scale"),
                                  enable_gqa=True, return_lse=True)
    if "sink" in arrays:
        sink = torch.from_numpy(arrays["sink"]).double().reshape(1, -1, 1)
        with_sink = torch.logaddexp(lse, sink)
        out, lse = out * torch.exp(lse - with_sink).unsqueeze(3), with_sink
    return out, lse


def confirm(name, q, k, v, shape, options, arrays, ours):
    """The names of the operators that gave the same result; a different result ends the program."""
    rows = ours["seen"].any(dim=3)
    # The rounding error of a float64 score grows with its size, and exp passes it on. Rows that see
    # nothing are left out: other implementations do not agree on their results.
    largest = ours["biased"][ours["seen"]].abs().max().item() if ours["seen"].any() else 0.0
    tol = 1e-12 * max(1.0, largest)

    def same(what, got, want):
        got, want = got[rows], want[rows]
        wrong = ~((got - want).abs() <= tol * want.abs().clamp(min=1.0))
        if wrong.any():
            sys.exit(f"{name}: {what} differs in {wrong.sum().item()} values")

    names = []
    sdpa = by_sdpa(q, k, v, shape, options, arrays, ours)
    if sdpa is not None:
        same("scaled_dot_product_attention out", sdpa, ours["out"])
        names.append("scaled_dot_product_attention")
    flex = by_flex(q, k, v, shape, options, arrays, ours)
    if flex is not None:
        same("flex_attention out", flex[0], ours["out"])
        same("flex_attention lse", flex[1], ours["lse"])
        names.append("flex_attention")
    return names
