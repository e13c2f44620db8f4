"""Attention in float64 as the semantics say it, in plain Python: what the command's wiring is held
against. Tensors are npy.Array in [batch, head, row, dim] order.
"""

import math

import npy

INF = math.inf


def attention(
    q,
    k,
    v,
    scale=None,
    softcap=0,
    causal=False,
    offset=None,
    window=(-1, -1),
    kv_len=None,
    mask=None,
    bias=None,
    alibi=None,
    sinks=None,
):
    """{out, lse, weights, raw, softcapped, biased}"""
    batch, heads, q_len, dim = q.shape
    _, kv_heads, keys, _ = k.shape
    v_dim = v.shape[3]
    scale = 1 / math.sqrt(dim) if scale is None else scale
    got = {name: [] for name in ("out", "lse", "weights", "raw", "softcapped", "biased")}
    for b in range(batch):
        for h in range(heads):
            g = h // (heads // kv_heads)
            for i in range(q_len):
                at = i + (offset[b] if offset else 0)
                stages = {"raw": [], "softcapped": [], "biased": []}
                for j in range(keys):
                    inside = (
                        j < (kv_len[b] if kv_len else keys)
                        and (not causal or j <= at)
                        and (window[0] < 0 or j >= at - window[0])
                        and (window[1] < 0 or j <= at + window[1])
                    )
                    seen = (
                        inside
                        and (mask is None or mask.broadcast((b, h, i, j)))
                        and (bias is None or bias.broadcast((b, h, i, j)) != -INF)
                    )
                    s = (
                        scale * sum(q[b, h, i, d] * k[b, g, j, d] for d in range(dim))
                        if inside
                        else -INF
                    )
                    stages["raw"].append(s)
                    if inside and softcap > 0:
                        s = softcap * math.tanh(s / softcap)
                    stages["softcapped"].append(s)
                    if seen and alibi:
                        s += alibi[h] * (j - at)
                    if seen and bias:
                        s += bias.broadcast((b, h, i, j))
                    stages["biased"].append(s if seen else -INF)
                logits = stages["biased"] + ([sinks[h]] if sinks else [])
                most = max(logits, default=-INF)
                total = sum(math.exp(s - most) for s in logits) if most > -INF else 0
                weights = [math.exp(s - most) / total if total else 0.0 for s in stages["biased"]]
                got["lse"].append(most + math.log(total) if total else -INF)
                got["weights"] += weights
                for d in range(v_dim):
                    got["out"].append(sum(w * v[b, g, j, d] for j, w in enumerate(weights) if w))
                for name, row in stages.items():
                    got[name] += row
    pairs = (batch, heads, q_len, keys)
    shapes = {"out": (batch, heads, q_len, v_dim), "lse": pairs[:3]}
    return {name: npy.Array(shapes.get(name, pairs), data) for name, data in got.items()}


def worst(got, want, code="f4", unit=1.0):
    """The largest error over what is allowed; inf where shapes or infinities differ.

    naive sums in f64 and keeps sum, maximum and values of a row in f32, each rounded once or twice,
    and rounds the result once to its type: 16 roundings of f32 relative to `unit`, the largest
    number that went into the sums (|v| for out, |score| for the others), and one of the type.
    """
    if got.shape != want.shape:
        return INF
    rounding = {"f4": 2.0**-24, "f2": 2.0**-11, "bf16": 2.0**-8}[code]
    most = 0.0
    for x, y in zip(got.data, want.data):
        if math.isinf(y) or math.isnan(y):
            error = 0 if x == y or (x != x and y != y) else INF
        else:
            error = abs(x - y) / (16 * 2.0**-24 * max(unit, abs(y)) + rounding * abs(y) + 2.0**-25)
        most = max(most, error if error == error else INF)
    return most
