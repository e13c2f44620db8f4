"""What works without any other library: memoryviews in, Arrays out. Run it where numpy is not installed."""

import array
import math

import pytest

import heed


def view(*shape, values=None):
    n = math.prod(shape)
    return memoryview(array.array("f", values or [(7 * i % 11) / 11 for i in range(n)])).cast("B").cast("f", shape)


def attention(q, k, v):
    """Of nested lists [rows][dim], by Python's own floats."""
    out = []
    for row in q:
        s = [sum(a * b for a, b in zip(row, key)) / math.sqrt(len(row)) for key in k]
        e = [math.exp(x - max(s)) for x in s]
        out.append([sum(w * value[d] for w, value in zip(e, v)) / sum(e) for d in range(len(v[0]))])
    return out


def test_attention():
    q, k, v = view(3, 4), view(5, 4), view(5, 2)
    out = heed.attention(q, k, v, layout="sd")
    want = attention(q.tolist(), k.tolist(), v.tolist())
    assert out.shape == (3, 2)
    for row, other in zip(out.tolist(), want):
        assert row == pytest.approx(other, rel=1e-6)
    room = view(3, 2)
    assert heed.attention(q, k, v, layout="sd", out=room) is room and room.tolist() == out.tolist()


def test_the_rest():
    x = view(1, 2, 3, 4)
    cache = heed.KVCache(batch=1, capacity=4, kv_heads=2, dim=4)
    cache.append(x, x)
    assert cache.lens == [3]
    near = [row for head in cache.attention(x).tolist()[0] for row in head]
    full = [row for head in heed.attention(x, x, x, causal=True).tolist()[0] for row in head]
    assert near == full
    k, v = cache.decoded()
    assert [row for row in k.tolist()[0][0][:3]] == x.tolist()[0][0]
    linear = heed.Linear(view(2, 2, values=[1.0, 2.0, 3.0, 4.0]))
    assert linear(view(1, 2, values=[1.0, 1.0])).tolist() == [[3.0, 7.0]]
    assert heed.masks.chunks(4, 2).tolist()[0][0] == [[[0, 2]], [[0, 2]], [[2, 4]], [[2, 4]]]
    assert heed.rotary(view(1, 1, 1, 4)).tolist() == view(1, 1, 1, 4).tolist()
    assert heed.info()["backends"]
    with pytest.raises(ValueError):
        heed.attention(x, x, 3)
