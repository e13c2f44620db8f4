"""KVCache against numpy in float64: appends, pages, layouts, errors, threads and codes."""

import threading
import time

import numpy as np
import oracle
import pytest

import heed

RNG = np.random.default_rng(13)


@pytest.mark.parametrize("page_len", [None, 1, 4])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_cache(page_len, dtype):
    batch, heads, kv_heads, dim, v_dim, capacity = 3, 4, 2, 16, 8, 21
    cache = heed.KVCache(batch=batch, capacity=capacity, kv_heads=kv_heads, dim=dim, v_dim=v_dim,
                         k_dtype=dtype, page_len=page_len)
    k = np.zeros((batch, kv_heads, capacity, dim), np.float32)
    v = np.zeros((batch, kv_heads, capacity, v_dim), np.float32)
    lens = [0] * batch
    for rows, given in ((5, [5, 3, 0]), (1, None), (7, None), (4, [2, 4, 1])):
        new_k, new_v = oracle.normal(RNG, batch, kv_heads, rows, dim), oracle.normal(RNG, batch, kv_heads, rows, v_dim)
        cache.append(new_k, new_v, lens=given)
        for b in range(batch):
            n = rows if given is None else given[b]
            k[b, :, lens[b]:lens[b] + n] = new_k[b, :, :n]
            v[b, :, lens[b]:lens[b] + n] = new_v[b, :, :n]
            lens[b] += n
        assert cache.lens == lens
        if dtype == "f16":  # what is cached is rounded once
            k, v = k.astype(np.float16).astype(np.float32), v.astype(np.float16).astype(np.float32)
        decoded = cache.decoded()
        assert (decoded[0] == k).all() and (decoded[1] == v).all()
        q = oracle.normal(RNG, batch, heads, min(rows, 2), dim)
        m = max(lens)
        out, lse = cache.attention(q, return_lse=True)
        want = oracle.attention(q, k[:, :, :m], v[:, :, :m], kv_lens=lens, causal=True)
        oracle.check(out, want[0])
        oracle.check_lse(lse, want[1])
        mask = RNG.random((q.shape[2], m)) < 0.8
        oracle.check(cache.attention(q, causal=False, mask=mask, window=(6, None)),
                     oracle.attention(q, k[:, :, :m], v[:, :, :m], kv_lens=lens, mask=mask, window=(6, -1))[0])
    with pytest.raises(ValueError, match="capacity"):
        cache.append(np.zeros((batch, kv_heads, 20, dim), np.float32), np.zeros((batch, kv_heads, 20, v_dim), np.float32))
    assert cache.lens == lens  # nothing was appended
    assert (cache.decoded()[0] == k).all()
    cache.clear()
    assert cache.lens == [0] * batch
    out = cache.attention(q)
    assert (out == 0).all()


def test_cache_pages_never_run_out():
    cache = heed.KVCache(batch=4, capacity=10, kv_heads=1, dim=4, page_len=4)
    for _ in range(3):
        x = oracle.normal(RNG, 4, 1, 10, 4)
        for n in range(10):
            cache.append(x[:, :, n:n + 1], x[:, :, n:n + 1])
        assert (cache.decoded()[0] == x).all()
        cache.clear()


def test_cache_layout_and_errors():
    cache = heed.KVCache(batch=2, capacity=5, kv_heads=2, dim=4)
    x = oracle.normal(RNG, 2, 3, 2, 4)
    cache.append(x, x, layout="bshd")
    assert (cache.decoded()[0][:, :, :3] == x.transpose(0, 2, 1, 3)).all()
    out = cache.attention(x, layout="bshd")
    x = x.transpose(0, 2, 1, 3)
    oracle.check(out.transpose(0, 2, 1, 3), oracle.attention(x, x, x, causal=True)[0])
    assert cache.nbytes == 2 * 2 * 5 * 4 * 4 * 2 and cache.capacity == 5 and cache.page_len is None
    for bad in (x[:1], x[:, :1], x[..., :3], x.astype(np.float64)):
        with pytest.raises(ValueError):
            cache.append(bad, bad)
    with pytest.raises(ValueError, match="lens"):
        cache.append(x, x, lens=[4, 0])
    with pytest.raises(ValueError, match="batch"):
        cache.attention(x[:1])
    with pytest.raises(ValueError, match="k_dtype"):
        heed.KVCache(batch=1, capacity=1, kv_heads=1, dim=1, k_dtype="f12")
    with pytest.raises((NotImplementedError, ValueError)):  # rows of q8_0 are whole blocks of 32
        heed.KVCache(batch=1, capacity=1, kv_heads=1, dim=33, k_dtype="q8_0")
    with pytest.raises(MemoryError, match="more than 2\\^60 bytes"):
        heed.KVCache(batch=2**20, capacity=2**30, kv_heads=2**10, dim=2**10)


@pytest.mark.parametrize("page_len", [None, 4])
def test_cache_of_many_threads(page_len):
    """What threads append at once lies one behind the other, whole."""
    threads, each, rows, dim = 4, 40, 8, 64
    cache = heed.KVCache(batch=1, capacity=threads * each * rows, kv_heads=4, dim=dim, page_len=page_len)
    wrong = []

    def work(n):
        try:
            for i in range(each):
                x = np.full((1, 4, rows, dim), 1 + n * each + i, np.float32)
                while True:
                    try:
                        cache.append(x, x)
                        break
                    except RuntimeError:
                        time.sleep(0)
        except Exception as e:
            wrong.append(e)

    every = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for t in every:
        t.start()
    for t in every:
        t.join()
    assert not wrong and cache.lens == [cache.capacity]
    for decoded in cache.decoded():
        parts = decoded[0].transpose(1, 0, 2).reshape(threads * each, -1)
        assert (parts == parts[:, :1]).all()
        assert sorted(parts[:, 0]) == list(range(1, 1 + threads * each))


CODES = ["i8", "u8", "u4", "f8_e4m3", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"]
# Greatest error of a code relative to the greatest number of its block of 32 or row: half a step, of 2^bits
# - 1 over twice the greatest; E4M3 has 3 bits behind the point; IQ4_NL's widest step is 24 of 127, and its
# range is uneven. One more step's half for the rounding of the scale itself.
STEP = {"i8": 1 / 127, "u8": 1 / 127, "u4": 2 / 15, "f8_e4m3": 1 / 8, "q8_0": 1 / 127, "q4_0": 1 / 7,
        "q4_1": 2 / 15, "q5_0": 1 / 15, "q5_1": 2 / 31, "iq4_nl": 1 / 5}


def code_cache(**options):
    try:
        return heed.KVCache(**options)
    except NotImplementedError as refusal:
        pytest.skip(f"the library refuses: {refusal}")


@pytest.mark.parametrize("page_len", [None, 4])
@pytest.mark.parametrize("code", CODES)
def test_cache_of_codes(code, page_len):
    cache = code_cache(batch=2, capacity=12, kv_heads=2, dim=64, k_dtype=code, v_dtype=code, page_len=page_len)
    k, v = oracle.normal(RNG, 2, 2, 9, 64), oracle.normal(RNG, 2, 2, 9, 64)
    try:
        cache.append(k, v, lens=[9, 5])
    except NotImplementedError as refusal:
        pytest.skip(f"the library refuses: {refusal}")
    dk, dv = cache.decoded()
    for near, x in ((dk, k), (dv, v)):
        for b, n in enumerate((9, 5)):
            gap = np.abs(near[b, :, :n] - x[b, :, :n]).max()
            assert 0 < gap <= STEP[code] * np.abs(x).max(), (code, gap)
            assert (near[b, :, n:] == 0).all()
    q = oracle.normal(RNG, 2, 4, 3, 64)
    oracle.check(cache.attention(q), oracle.attention(q, dk[:, :, :9], dv[:, :, :9], kv_lens=[9, 5], causal=True)[0])
