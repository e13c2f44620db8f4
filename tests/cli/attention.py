"""The definition of attention in plain Python, in float64: the results of the command are compared
with it. Tensors are npy.Array in the order [batch, head, row, dim].
"""

import dataclasses
import math

import npy

INF = math.inf


@dataclasses.dataclass
class Problem:
    """The tensors and the options of attention; the defaults leave every option out."""

    q: npy.Array
    k: npy.Array
    v: npy.Array
    scale: float | None = None
    softcap: float = 0
    causal: bool = False
    offset: list | None = None
    window: tuple = (-1, -1)
    kv_len: list | None = None
    mask: npy.Array | None = None
    bias: npy.Array | None = None
    alibi: list | None = None
    sinks: list | None = None

    def scores(self, b, h, i):
        """The scores {raw, softcapped, biased} of a row, with -inf for keys that it does not see by
        position or length; biased has -inf for masked keys too."""
        _, heads, _, dim = self.q.shape
        _, kv_heads, keys, _ = self.k.shape
        g = h // (heads // kv_heads)
        scale = 1 / math.sqrt(dim) if self.scale is None else self.scale
        at = i + (self.offset[b] if self.offset else 0)
        left, right = self.window
        stages = {"raw": [], "softcapped": [], "biased": []}
        for j in range(keys):
            inside = (
                j < (self.kv_len[b] if self.kv_len else keys)
                and (not self.causal or j <= at)
                and (left < 0 or j >= at - left)
                and (right < 0 or j <= at + right)
            )
            seen = (
                inside
                and (self.mask is None or self.mask.broadcast((b, h, i, j)))
                and (self.bias is None or self.bias.broadcast((b, h, i, j)) != -INF)
            )
            s = -INF
            if inside:
                s = scale * sum(self.q[b, h, i, d] * self.k[b, g, j, d] for d in range(dim))
            stages["raw"].append(s)
            if inside and self.softcap > 0:
                s = self.softcap * math.tanh(s / self.softcap)
            stages["softcapped"].append(s)
            if seen and self.alibi:
                s += self.alibi[h] * (j - at)
            if seen and self.bias:
                s += self.bias.broadcast((b, h, i, j))
            stages["biased"].append(s if seen else -INF)
        return stages


def softmax(scores, sink):
    """(weights, lse) of a row; sink is [its logit] or []."""
    logits = scores + sink
    most = max(logits, default=-INF)
    total = sum(math.exp(s - most) for s in logits) if most > -INF else 0
    weights = [math.exp(s - most) / total if total else 0.0 for s in scores]
    return weights, most + math.log(total) if total else -INF


def attention(q, k, v, **options):
    """{out, lse, weights, raw, softcapped, biased} of Problem(q, k, v, **options)."""
    p = Problem(q, k, v, **options)
    batch, heads, q_len, _ = q.shape
    _, kv_heads, keys, _ = k.shape
    v_dim = v.shape[3]
    got = {name: [] for name in ("out", "lse", "weights", "raw", "softcapped", "biased")}
    for b in range(batch):
        for h in range(heads):
            g = h // (heads // kv_heads)
            for i in range(q_len):
                stages = p.scores(b, h, i)
                weights, lse = softmax(stages["biased"], [p.sinks[h]] if p.sinks else [])
                got["lse"].append(lse)
                got["weights"] += weights
                for d in range(v_dim):
                    got["out"].append(sum(w * v[b, g, j, d] for j, w in enumerate(weights) if w))
                for name, row in stages.items():
                    got[name] += row
    pairs = (batch, heads, q_len, keys)
    shapes = {"out": (batch, heads, q_len, v_dim), "lse": pairs[:3]}
    return {name: npy.Array(shapes.get(name, pairs), data) for name, data in got.items()}


def worst(got, want, code="f4", unit=1.0):
    """The largest error as a share of what is allowed; inf if shapes or infinities differ.

    naive sums in f64, keeps the sum, the maximum and the values of a row in f32, each rounded once
    or twice, and rounds the result once to its type. Allowed are 16 roundings of f32 relative to
    `unit`, the largest number in the sums (|v| for out, |score| for the others), and one of the
    type.
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
