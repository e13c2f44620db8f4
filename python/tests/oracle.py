"""Attention in float64, by the formulas of heed/attention.h, with which every function is compared."""

import numpy as np


def positions(q_len, kv_len, position):
    """pos(i) of one sequence."""
    offset = {"start": 0, "end": kv_len - q_len}.get(position) if isinstance(position, str) else position
    return np.arange(q_len) + offset


def visible(q_len, kv_len, *, causal=False, window=None, position="end"):
    """[q_len, kv_len]: what causality and window let a row see."""
    pos = positions(q_len, kv_len, position)[:, None]
    j = np.arange(kv_len)[None, :]
    see = np.ones((q_len, kv_len), bool)
    if causal:
        see &= j <= pos
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window, window)
        if left is not None and left >= 0:
            see &= j >= pos - left
        if right is not None and right >= 0:
            see &= j <= pos + right
    return see


def attention(q, k, v, *, mask=None, bias=None, causal=False, window=None, scale=None, softcap=None,
              alibi=None, sinks=None, q_lens=None, kv_lens=None, position="end", ranges=None, bits=None,
              block_rows=1, block_keys=1, mask_from=None):
    """(out, lse, weights) of [batch, heads, rows, dim]; rows past q_lens are 0 and -inf."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    batch, heads, q_len, dim = q.shape
    kv_heads, kv_len = k.shape[1:3]
    out = np.zeros((batch, heads, q_len, v.shape[3]))
    lse = np.full((batch, heads, q_len), -np.inf)
    weights = np.zeros((batch, heads, q_len, kv_len))
    for b in range(batch):
        n = q_len if q_lens is None else int(q_lens[b])
        m = kv_len if kv_lens is None else int(kv_lens[b])
        where = position if isinstance(position, (str, int)) else int(position[b])
        first = 0 if mask_from is None else int(mask_from[b])
        pos = positions(n, m, where)
        for h in range(heads):
            g = h // (heads // kv_heads)
            s = (q[b, h, :n] @ k[b, g, :m].T) * (1 / np.sqrt(dim) if scale is None else scale)
            if softcap:
                s = softcap * np.tanh(s / softcap)
            if alibi is not None:
                s = s + float(alibi[h]) * (np.arange(m)[None, :] - pos[:, None])
            see = visible(n, m, causal=causal, window=window, position=where)
            columns = kv_len if mask_from is None else kv_len - min(map(int, mask_from))
            shape = (batch, heads, q_len, columns)
            if bias is not None:
                own = np.zeros((n, m))
                own[:, first:] = np.broadcast_to(np.asarray(bias, np.float64), shape)[b, h, :n, : m - first]
                s = s + own
                see = see & (own != -np.inf)
            if mask is not None:
                own = np.ones((n, m), bool)
                own[:, first:] = np.broadcast_to(np.asarray(mask) != 0, shape)[b, h, :n, : m - first]
                see = see & own
            if ranges is not None:
                r = np.asarray(ranges)
                r = np.broadcast_to(r[..., -q_len:, :, :], (batch, heads, q_len) + r.shape[-2:])[b, h, :n]
                j = np.arange(m)[None, None, :]
                see = see & ((r[:, :, :1] <= j) & (j < r[:, :, 1:])).any(1)
            if bits is not None:
                own = np.broadcast_to(bits, (batch, heads) + bits.shape[2:])[b, h]
                see = see & own[np.arange(n)[:, None] // block_rows, np.arange(m)[None, :] // block_keys]
            s = np.where(see, s, -np.inf)
            sink = -np.inf if sinks is None else float(sinks[h])
            top = np.maximum(s.max(1, initial=-np.inf), sink)
            safe = np.where(np.isinf(top), 0, top)
            e = np.where(see, np.exp(s - safe[:, None]), 0)
            total = e.sum(1) + np.exp(sink - safe)
            w = np.divide(e, total[:, None], out=np.zeros_like(e), where=total[:, None] > 0)
            weights[b, h, :n, :m] = w
            out[b, h, :n] = w @ v[b, g, :m]
            with np.errstate(divide="ignore"):
                lse[b, h, :n] = np.where(total > 0, safe + np.log(total), -np.inf)
    return out, lse, weights


# Relative L2 error of out: f32 below 2^-24 (8 + sqrt(dim)) (heed/attention.h), which is 1e-6 up to dim 64;
# 16-bit results are rounded once, each by at most 2^-11 or 2^-8 of its size, and bf16 may round the
# products' operands too (2.5e-3 beside that).
BOUND = {"f32": 1e-6, "f16": 2.0**-11 + 1e-6, "bf16": 2.0**-8 + 2.5e-3}


def error(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    return np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30)


def check(got, want, dtype="f32"):
    assert np.isfinite(np.asarray(got, np.float64)).all()
    e = error(got, want)
    assert e <= BOUND[dtype], f"relative error {e} exceeds {BOUND[dtype]}"


def check_lse(got, want):
    """An lse is off by no more than scores are: 2^-24 (8 + sqrt(dim)) of sums of size ten at most here."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert (np.isneginf(got) == np.isneginf(want)).all()
    seen = ~np.isneginf(want)
    assert np.abs(got[seen] - want[seen]).max(initial=0) <= 2e-5


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)
