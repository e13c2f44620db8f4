"""heed.masks by numpy, and attention under what it gives. Until the library serves ranges and key blocks the
second half is skipped with its reason."""

import numpy as np
import oracle
import pytest

import heed

RNG = np.random.default_rng(14)


def seen(ranges, kv_len):
    """[batch, heads, rows, kv_len] bool."""
    r = np.asarray(ranges)[..., None, :]
    j = np.arange(kv_len)[:, None]
    return ((r[..., 0] <= j[:, 0]) & (j[:, 0] < r[..., 1])).any(-2)


def well_formed(ranges, kv_len):
    r = np.asarray(ranges)
    assert r.dtype == np.int32 and r.ndim == 5 and r.shape[4] == 2 and 1 <= r.shape[3] <= 8
    assert (r[..., 0] <= r[..., 1]).all() and (r >= 0).all() and (r <= kv_len).all()
    assert (r[..., 1:, 0] >= r[..., :-1, 1]).all()


@pytest.mark.parametrize("q_len", [None, 3, 0])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_segments(q_len, dtype):
    ids = np.array([[0, 0, 1, 1, 1, 2, -1], [3, 3, 3, 0, 3, 0, 0]], dtype)
    ranges = heed.masks.segments(ids, q_len)
    assert type(ranges) is np.ndarray
    well_formed(ranges, 7)
    want = (ids[:, :, None] == ids[:, None, :]) & (ids[:, :, None] >= 0)
    rows = 7 if q_len is None else q_len
    assert (seen(ranges, 7)[:, 0] == want[:, 7 - rows:]).all()
    assert (heed.masks.segments(ids[0]) == heed.masks.segments(ids[:1])).all()


@pytest.mark.parametrize("q_len", [None, 4])
def test_chunks_and_prefix(q_len):
    rows = 10 if q_len is None else q_len
    at = np.arange(10 - rows, 10)[:, None]
    j = np.arange(10)[None]
    for length in (1, 3, 10, 11):
        ranges = heed.masks.chunks(10, length, q_len)
        well_formed(ranges, 10)
        assert (seen(ranges, 10)[0, 0] == (at // length == j // length)).all()
    for prefix in (0, 4, 10):
        ranges = heed.masks.prefix(10, prefix, q_len=q_len)
        well_formed(ranges, 10)
        assert (seen(ranges, 10)[0, 0] == ((j < prefix) | (j <= at))).all()
    many = heed.masks.prefix(10, [2, 7], q_len)
    assert (np.asarray(many)[1] == np.asarray(heed.masks.prefix(10, 7, q_len))[0]).all()


def ancestors(parents):
    see = np.eye(len(parents), dtype=bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            see[i] |= see[parent]
    return see


def test_tree():
    for _ in range(50):
        parents = [int(RNG.integers(max(-1, i - 4), i)) for i in range(9)]
        ranges = heed.masks.tree(parents)
        well_formed(ranges, 9)
        assert (seen(ranges, 9)[0, 0] == ancestors(parents)).all()
        assert (np.asarray(heed.masks.tree(np.array([parents, parents])))[1] == np.asarray(ranges)[0]).all()
        behind = seen(heed.masks.tree(parents, prefix=3), 12)[0, 0]
        assert behind[:, :3].all() and (behind[:, 3:] == ancestors(parents)).all()


def test_blocks():
    bits = RNG.random((2, 3, 4, 130)) < 0.5
    words, rows, keys, n = heed.masks.blocks(bits, block_rows=5, block_keys=2)
    words = np.asarray(words)
    assert words.dtype == np.uint64 and words.shape == (2, 3, 4, 3) and (rows, keys, n) == (5, 2, 130)
    unpacked = (words[..., None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)).reshape(2, 3, 4, 192)
    assert (unpacked[..., :130] == bits).all() and (unpacked[..., 130:] == 0).all()


def test_errors():
    for call in (lambda: heed.masks.segments(np.zeros((2, 2, 2), np.int32)), lambda: heed.masks.segments(np.zeros(3)),
                 lambda: heed.masks.segments(np.arange(40) % 2 * 7), lambda: heed.masks.segments(np.zeros(3, int), q_len=4),
                 lambda: heed.masks.chunks(5, 0), lambda: heed.masks.chunks(-1, 2), lambda: heed.masks.prefix(5, 6),
                 lambda: heed.masks.prefix(5, [-1]), lambda: heed.masks.tree([0, 0]), lambda: heed.masks.tree([-1, 5]),
                 lambda: heed.masks.blocks(np.ones((2, 2), bool), block_rows=1, block_keys=1),
                 lambda: heed.masks.blocks(np.ones((1, 1, 2, 2), bool), block_rows=0, block_keys=1)):
        with pytest.raises(ValueError):
            call()
    x = oracle.normal(RNG, 1, 1, 4, 8)
    for name, value in (("ranges", np.zeros((1, 1, 4, 1, 3), np.int32)), ("ranges", np.zeros((4, 1, 2))),
                        ("ranges", np.zeros((1, 1, 3, 1, 2), np.int32)), ("key_blocks", np.zeros(3)),
                        ("key_blocks", (np.zeros((1, 1, 1, 1)), 4, 4, 1)),
                        ("key_blocks", (np.zeros((1, 1, 1, 1), np.uint64), 4, 4)), ("mask_from", [1, 2])):
        with pytest.raises(ValueError):
            heed.attention(x, x, x, **{name: value})


# ---- attention under them --------------------------------------------------------------------------------


def served(call):
    try:
        return call()
    except NotImplementedError as refusal:
        pytest.skip(f"the library refuses: {refusal}")


def qkv(batch=2, q_len=11, kv_len=11):
    return (oracle.normal(RNG, batch, 4, q_len, 16), oracle.normal(RNG, batch, 2, kv_len, 16),
            oracle.normal(RNG, batch, 2, kv_len, 16))


def held(q, k, v, **options):
    out, lse = served(lambda: heed.attention(q, k, v, **options, return_lse=True))
    return out, lse


RANGES = {
    "segments": lambda n: heed.masks.segments(np.array([[0, 0, 0, 1, 1, 2, 2, 2, 2, 3, -1], [1, 0, 1, 1, 0, 0, 2, 2, 2, 2, 2]]), n),
    "chunks": lambda n: heed.masks.chunks(11, 4, n),
    "prefix": lambda n: heed.masks.prefix(11, [3, 6], n),
    "tree": lambda n: heed.masks.tree([-1, 0, 1, 1, 0, 4, 4, 2, 3, 8, 5]),
    "given": lambda n: np.sort(RNG.integers(0, 12, (2, 4, n or 11, 4)), -1).astype(np.int32).reshape(2, 4, -1, 2, 2),
}


@pytest.mark.parametrize("q_len", [11, 3, 1])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", RANGES)
def test_ranges(name, causal, q_len):
    ranges = RANGES[name](q_len)
    q, k, v = qkv(q_len=q_len)
    out, lse = held(q, k, v, ranges=ranges, causal=causal)
    want = oracle.attention(q, k, v, ranges=np.asarray(ranges), causal=causal)
    oracle.check(out, want[0])
    oracle.check_lse(lse, want[1])


@pytest.mark.parametrize("block_rows, block_keys", [(1, 1), (4, 2), (16, 3), (5, 64)])
def test_key_blocks(block_rows, block_keys):
    q, k, v = qkv()
    bits = RNG.random((1, 4, -(-11 // block_rows), -(-11 // block_keys))) < 0.6
    blocks = heed.masks.blocks(bits, block_rows=block_rows, block_keys=block_keys)
    out, lse = held(q, k, v, key_blocks=blocks, causal=True)
    want = oracle.attention(q, k, v, bits=bits, block_rows=block_rows, block_keys=block_keys, causal=True)
    oracle.check(out, want[0])
    oracle.check_lse(lse, want[1])


def test_key_blocks_that_do_not_cover():
    """Blocks of rows and keys neither repeat nor are left out; those of heads and sequences may repeat."""
    q, k, v = qkv(q_len=11, kv_len=200)
    blocks = lambda b, h, r, n: heed.masks.blocks(RNG.random((b, h, r, n)) < 0.6, block_rows=4, block_keys=2)
    for b in (1, 2):
        for h in (1, 4):
            held(q, k, v, key_blocks=blocks(b, h, 3, 100))
    for r in (1, 2, 4):
        with pytest.raises(ValueError, match=f"key_blocks has {r} blocks of 4 rows; 3 are needed, which cover the 11 rows"):
            heed.attention(q, k, v, key_blocks=blocks(1, 1, r, 100))
    for n in (1, 64, 65, 99, 101, 128, 200):
        with pytest.raises(ValueError, match=f"key_blocks has {n} blocks of 2 keys; 100 are needed, which cover the 200 keys"):
            heed.attention(q, k, v, key_blocks=blocks(1, 1, 3, n))
    words = np.asarray(blocks(1, 1, 3, 100)[0])
    for wrong in (words[..., :1], words[..., :0], np.repeat(words, 2, -1)):
        with pytest.raises(ValueError, match="words for 100 blocks of keys; 2 are needed"):
            heed.attention(q, k, v, key_blocks=(wrong, 4, 2, 100))
    with pytest.raises(ValueError, match="broadcast"):
        heed.attention(q, k, v, key_blocks=blocks(1, 3, 3, 100))
    none = k[:, :, :0]
    assert (served(lambda: heed.attention(q, none, none, key_blocks=blocks(1, 1, 3, 0))) == 0).all()


@pytest.mark.parametrize("what", ["mask", "bias"])
def test_mask_from(what):
    q, k, v = qkv(q_len=4)
    value = RNG.random((4, 5)) < 0.6 if what == "mask" else oracle.normal(RNG, 4, 4, 5)
    out, lse = held(q, k, v, **{what: value}, mask_from=[6, 8])
    want = oracle.attention(q, k, v, **{what: value}, mask_from=[6, 8])
    oracle.check(out, want[0])
    oracle.check_lse(lse, want[1])


def test_wrong_ranges():
    q, k, v = qkv()
    held(q, k, v, ranges=heed.masks.chunks(11, 4))
    for pair in ((5, 3), (0, 12), (-1, 3)):
        ranges = np.zeros((1, 1, 11, 1, 2), np.int32)
        ranges[0, 0, 3, 0] = pair
        with pytest.raises(ValueError):
            heed.attention(q, k, v, ranges=ranges)
