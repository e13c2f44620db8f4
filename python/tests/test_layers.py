"""MultiHeadAttention and rotary against numpy in float64."""

import numpy as np
import oracle
import pytest
from test_arrays import bf16_bits, of_bf16
from test_cache import CODES, STEP, code_cache

import heed

RNG = np.random.default_rng(14)


# ---- rotary --------------------------------------------------------------------------------------------


def turned(x, positions, style="half", dims=None, base=10000.0, scale=1.0, mscale=1.0, freq=None):
    """x [batch, heads, rows, dim] at positions [batch, rows], in float64."""
    x = np.array(x, np.float64)
    dims = dims or x.shape[-1]
    angle = np.asarray(positions, float)[:, None, :, None] / scale
    angle = angle * (base ** (-2 * np.arange(dims // 2) / dims) if freq is None else freq)
    first, second = (slice(0, dims // 2), slice(dims // 2, dims)) if style == "half" else (slice(0, dims, 2), slice(1, dims, 2))
    a, b = x[..., first].copy(), x[..., second].copy()
    x[..., first] = (a * np.cos(angle) - b * np.sin(angle)) * mscale
    x[..., second] = (b * np.cos(angle) + a * np.sin(angle)) * mscale
    return x


@pytest.mark.parametrize("options", [{}, {"style": "interleaved"}, {"dims": 6, "base": 500.0}, {"scale": 4.0, "mscale": 1.25},
                                     {"dims": 4, "freq": [0.5, 0.015625]}], ids=str)
def test_rotary(options):
    x = oracle.normal(RNG, 3, 2, 5, 8)
    at = np.arange(5)[None] + np.array([[0], [7], [100]])
    # Angles are f64. A cosine, its product and the sum round by 2^-24 each, of numbers that the norm of their pair
    # bounds, and so the row's, with mscale. What is given is exact in f32.
    near = lambda got, want: (np.abs(got - want) <= 3 * 2.0**-24 * np.linalg.norm(want, axis=-1, keepdims=True)).all()
    assert near(heed.rotary(x, **options), turned(x, np.arange(5)[None] + np.zeros((3, 1)), **options))
    assert near(heed.rotary(x, offsets=[0, 7, 100], **options), turned(x, at, **options))
    tree = RNG.integers(0, 50, (3, 5)).astype(np.int32)
    assert near(heed.rotary(x, positions=tree, **options), turned(x, tree, **options))
    assert near(heed.rotary(x.transpose(0, 2, 1, 3), offsets=[0, 7, 100], layout="bshd", **options).transpose(0, 2, 1, 3), turned(x, at, **options))
    want = turned(x, at, **options)
    assert heed.rotary(x, offsets=[0, 7, 100], out=x, **options) is x
    assert near(x, want)


def test_rotary_errors():
    x = oracle.normal(RNG, 1, 1, 2, 6)
    for options in ({"dims": 3}, {"dims": 8}, {"style": "quarter"}, {"freq": [1.0]}, {"offsets": [1, 2]},
                    {"positions": np.zeros((1, 3), np.int32)}, {"positions": np.zeros((1, 2), np.int32), "offsets": [1]}, {"base": -1.0}):
        with pytest.raises(ValueError):
            heed.rotary(x, **options)


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, 1e-60, np.float32(0)])
@pytest.mark.parametrize("name", ["base", "scale", "mscale"])
def test_rotary_by_zero(name, zero):
    """In C 0 says that the number is not given."""
    x = oracle.normal(RNG, 1, 1, 2, 6)
    with pytest.raises(ValueError, match=f"^{name} is .*other than 0"):
        heed.rotary(x, **{name: zero})
    with pytest.raises(ValueError, match=f"^{name} is .*other than 0"):
        Layer().made(rotary={name: zero})


# ---- MultiHeadAttention --------------------------------------------------------------------------------


class Layer:
    """A layer's weights, and what it computes."""

    def __init__(self, q_heads=4, kv_heads=2, dim=8, v_dim=6, d_model=20, d_kv=20, biases=True):
        self.heads = q_heads, kv_heads
        sizes = (q_heads * dim, d_model), (kv_heads * dim, d_kv), (kv_heads * v_dim, d_kv), (d_model, q_heads * v_dim)
        self.w = [oracle.normal(RNG, *size) / np.float32(np.sqrt(size[1])) for size in sizes]
        self.b = [oracle.normal(RNG, size[0]) if biases else None for size in sizes]

    def made(self, layout="out_in", with_out=True, **options):
        w = [x if layout == "out_in" else np.ascontiguousarray(x.T) for x in self.w]
        names = ("bq", "bk", "bv", "bo")[:4 if with_out else 3]
        return heed.MultiHeadAttention(self.heads[0], *w[:4 if with_out else 3], kv_heads=self.heads[1], layout=layout,
                                       **dict(zip(names, self.b)), **options)

    def project(self, i, x, heads):
        y = x.astype(float) @ self.w[i].astype(float).T + (0 if self.b[i] is None else self.b[i])
        return y.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def qkv(self, x, x_kv=None):
        x_kv = x if x_kv is None else x_kv
        return self.project(0, x, self.heads[0]), self.project(1, x_kv, self.heads[1]), self.project(2, x_kv, self.heads[1])

    def finish(self, o, with_out=True):
        o = o.transpose(0, 2, 1, 3).reshape(o.shape[0], o.shape[2], -1)
        return o @ self.w[3].astype(float).T + (0 if self.b[3] is None else self.b[3]) if with_out else o


# Three linear layers and a softmax behind each other, each within its own 1e-6 and none amplifying it much.
LAYER_BOUND = 4e-6


@pytest.mark.parametrize("layout", ["out_in", "in_out"])
@pytest.mark.parametrize("biases", [True, False])
def test_layer(layout, biases):
    layer = Layer(biases=biases)
    x = oracle.normal(RNG, 3, 7, 20)
    for options in ({}, {"causal": True}, {"window": (2, 1), "softcap": 2.0, "scale": 0.4}):
        want = oracle.attention(*layer.qkv(x), **options)
        y, lse, weights = layer.made(layout, **options)(x, return_lse=True, return_weights=True)
        assert oracle.error(y, layer.finish(want[0])) <= LAYER_BOUND
        assert oracle.error(lse, want[1]) <= LAYER_BOUND and oracle.error(weights, want[2]) <= 3 * LAYER_BOUND
    bare = layer.made(layout, with_out=False)
    assert oracle.error(bare(x), layer.finish(oracle.attention(*layer.qkv(x))[0], False)) <= LAYER_BOUND


def test_layer_masks_lens_and_out():
    layer = Layer()
    made = layer.made(causal=True)
    x = oracle.normal(RNG, 3, 7, 20)
    extra = {"mask": RNG.random((3, 1, 7, 7)) < 0.8, "bias": oracle.normal(RNG, 4, 7, 7), "alibi": [0.5, 0.2, 0.1, 0.0],
             "sinks": [0.0, 1.0, -1.0, 2.0]}
    for name, value in extra.items():
        want = layer.finish(oracle.attention(*layer.qkv(x), causal=True, **{name: value})[0])
        assert oracle.error(made(x, **{name: value}), want) <= LAYER_BOUND, name
    want = layer.finish(oracle.attention(*layer.qkv(x), causal=True, q_lens=[7, 3, 0], kv_lens=[7, 3, 0])[0])
    out = np.zeros((3, 7, 40), np.float32)[..., ::2]
    assert made(x, q_lens=[7, 3, 0], out=out) is out
    assert oracle.error(out[0], want[0]) <= LAYER_BOUND and oracle.error(out[1, :3], want[1, :3]) <= LAYER_BOUND
    assert (out[1, 3:] == 0).all() and (out[2] == 0).all()
    assert (made(x, q_lens=[7, 3, 0]) == out).all()


def test_cross():
    layer = Layer(d_kv=12)
    made = layer.made(cross=True)
    x, other = oracle.normal(RNG, 2, 5, 20), oracle.normal(RNG, 2, 9, 12)
    for lens in (None, [9, 4]):
        want = layer.finish(oracle.attention(*layer.qkv(x, other), kv_lens=lens)[0])
        assert oracle.error(made(x, other, kv_lens=lens), want) <= LAYER_BOUND
    cache = heed.KVCache(batch=2, capacity=9, kv_heads=2, dim=8, v_dim=6)
    first = made(x, other, cache=cache)
    assert cache.lens == [9, 9] and (made(x, cache=cache) == first).all()
    with pytest.raises(ValueError, match="x_kv is needed"):
        made(x)
    with pytest.raises(ValueError, match="cross"):
        Layer().made()(x, other)


@pytest.mark.parametrize("page_len", [None, 4])
@pytest.mark.parametrize("rotary", [None, True, {"style": "interleaved", "dims": 4, "base": 100.0}])
def test_layer_with_cache(page_len, rotary):
    layer = Layer()
    made = layer.made(causal=True, rotary=rotary)
    x = oracle.normal(RNG, 2, 11, 20)
    q, k, v = layer.qkv(x)
    if rotary:
        options = {} if rotary is True else rotary
        at = np.arange(11)[None] + np.zeros((2, 1))
        q, k = turned(q, at, **options), turned(k, at, **options)
    want = layer.finish(oracle.attention(q, k, v, causal=True)[0])
    assert oracle.error(made(x), want) <= LAYER_BOUND
    cache = heed.KVCache(batch=2, capacity=11, kv_heads=2, dim=8, v_dim=6, page_len=page_len)
    got = np.concatenate([made(x[:, i:j], cache=cache) for i, j in ((0, 5), (5, 6), (6, 7), (7, 11))], 1)
    assert oracle.error(got, want) <= LAYER_BOUND and cache.lens == [11, 11]
    with pytest.raises(ValueError, match="capacity"):
        made(x[:, :1], cache=cache)


@pytest.mark.parametrize("page_len", [None, 4])
@pytest.mark.parametrize("code", CODES)
def test_layer_with_cache_of_codes(code, page_len):
    """What the layer appends is within the code's step of its projections, and its rows are those of attention
    over the numbers that the codes stand for."""
    layer = Layer(dim=32, v_dim=64)
    made = layer.made(causal=True)
    cache = code_cache(batch=2, capacity=12, kv_heads=2, dim=32, v_dim=64, k_dtype=code, v_dtype=code, page_len=page_len)
    x = oracle.normal(RNG, 2, 11, 20)
    q, k, v = layer.qkv(x)
    got = []
    for i, j in ((0, 5), (5, 6), (6, 11)):
        got.append(made(x[:, i:j], cache=cache))
        dk, dv = cache.decoded()
        for near, exact in ((dk, k), (dv, v)):
            gap = np.abs(near[:, :, :j] - exact[:, :, :j]).max()
            assert 0 < gap <= STEP[code] * np.abs(exact).max(), (code, gap)
    want = layer.finish(oracle.attention(q, dk[:, :, :11], dv[:, :, :11], causal=True)[0])
    assert oracle.error(np.concatenate(got, 1), want) <= LAYER_BOUND


@pytest.mark.parametrize("k_dtype, v_dtype", [("i8", "f16"), ("f16", "u4")])
def test_layer_with_cache_of_codes_on_one_side(k_dtype, v_dtype):
    layer = Layer(dim=32, v_dim=32)
    made = layer.made(causal=True)
    cache = code_cache(batch=1, capacity=6, kv_heads=2, dim=32, k_dtype=k_dtype, v_dtype=v_dtype)
    x = oracle.normal(RNG, 1, 6, 20)
    y = np.concatenate([made(x[:, :4], cache=cache), made(x[:, 4:], cache=cache)], 1)
    want = layer.finish(oracle.attention(layer.qkv(x)[0], *cache.decoded(), causal=True)[0])
    assert oracle.error(y, want) <= LAYER_BOUND and np.abs(cache.decoded()[0]).max() > 0


def test_failed_layer_takes_no_pages():
    layer = Layer()
    made = layer.made(causal=True)
    x = oracle.normal(RNG, 2, 8, 20)
    whole, paged = (heed.KVCache(batch=2, capacity=8, kv_heads=2, dim=8, v_dim=6, page_len=n) for n in (None, 2))
    for i in range(0, 8, 2):
        for failing in ({"mask": np.ones((3, 3), bool)}, {"bias": np.ones((3, 3), np.float32)}, {"out": x[:1]}):
            for _ in range(5):
                with pytest.raises(ValueError):
                    made(x[:, i:i + 2], cache=paged, **failing)
        assert oracle.error(made(x[:, i:i + 2], cache=paged), made(x[:, i:i + 2], cache=whole)) <= LAYER_BOUND
    assert all((a == b).all() for a, b in zip(paged.decoded(), whole.decoded()))


def test_layer_position_of_each_call():
    layer = Layer(d_kv=12)
    made = layer.made(cross=True, causal=True)
    x, other = oracle.normal(RNG, 2, 3, 20), oracle.normal(RNG, 2, 5, 12)
    for position in (None, "start", "end", [1, 0], 2, "start", None):  # each asks for another than before
        want = layer.finish(oracle.attention(*layer.qkv(x, other), causal=True, position=position or "end")[0])
        assert oracle.error(made(x, other, position=position), want) <= LAYER_BOUND, position


@pytest.mark.parametrize("where", ["layer", "call"])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (4, 4)}], ids=["plain", "causal", "window"])
def test_rows_are_turned_by_the_position(options, where):
    """With nothing else that goes by positions as well, and in a cache."""
    layer = Layer(v_dim=8)
    x = oracle.normal(RNG, 2, 3, 20)
    q, k, v = layer.qkv(x)
    for position in (None, "start", "end", [5, -1], 2):
        made = layer.made(rotary=True, **options, **({"position": position} if where == "layer" else {}))
        call = {} if where == "layer" else {"position": position}
        offsets = position if isinstance(position, list) else [position if isinstance(position, int) else 0] * 2
        turned_q = np.concatenate([turned(q[b:b + 1], [np.arange(3) + offsets[b]]) for b in range(2)])
        turned_k = turned(k, [np.arange(3)] * 2)
        want = layer.finish(oracle.attention(turned_q, turned_k, v, position=position or "end", **options)[0])
        assert oracle.error(made(x, **call), want) <= LAYER_BOUND, position
        cache = heed.KVCache(batch=2, capacity=3, kv_heads=2, dim=8)
        assert oracle.error(made(x, cache=cache, **call), want) <= LAYER_BOUND, position


@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=["plain", "causal"])
def test_rows_of_a_cross_attention_are_turned_by_the_position(options):
    """None is "end" there, too: the last row stands at the last key."""
    layer = Layer(d_kv=12, v_dim=8)
    x, other = oracle.normal(RNG, 2, 3, 20), oracle.normal(RNG, 2, 5, 12)
    q, k, v = layer.qkv(x, other)
    turned_k = turned(k, [np.arange(5)] * 2)
    made = layer.made(cross=True, rotary=True, **options)
    for position, first in ((None, 2), ("end", 2), ("start", 0), (7, 7)):
        turned_q = turned(q, [np.arange(3) + first] * 2)
        want = layer.finish(oracle.attention(turned_q, turned_k, v, position=first, **options)[0])
        assert oracle.error(made(x, other, position=position), want) <= LAYER_BOUND, position
        cache = heed.KVCache(batch=2, capacity=8, kv_heads=2, dim=8)
        assert oracle.error(made(x, other, cache=cache, position=position), want) <= LAYER_BOUND, position


def test_layer_lists():
    """Ranges, key blocks and masks that begin late, as attention takes them; of a cache, to its capacity."""
    layer = Layer()
    made, x = layer.made(), oracle.normal(RNG, 2, 6, 20)
    begin = np.repeat(RNG.integers(0, 2, (2, 1, 6, 1, 1)), 2, 3)
    ranges = np.concatenate([begin, begin + 2], -1).astype(np.int32)
    ranges[..., 1, :] += 3
    bits = RNG.integers(0, 2, (2, 4, 3, 2)).astype(bool)
    mask = RNG.integers(0, 2, (2, 1, 6, 4)).astype(bool)
    cases = [({"ranges": ranges}, {"ranges": ranges}), ({"ranges": ranges[..., :1, :]}, {"ranges": ranges[..., :1, :]}),
             ({"mask": mask, "mask_from": [2, 3]}, {"mask": mask, "mask_from": [2, 3]})]
    for some, rows, keys in ((bits, 2, 3), (bits[:, :, :2], 3, 3), (bits[..., :1], 2, 6)):  # each in a layer of its own
        cases.append(({"key_blocks": heed.masks.blocks(some, block_rows=rows, block_keys=keys)},
                      {"bits": some, "block_rows": rows, "block_keys": keys}))
    cases.append(({**cases[0][0], **cases[3][0]}, {**cases[0][1], **cases[3][1]}))
    for given, want in cases:
        o, lse, _ = oracle.attention(*layer.qkv(x), **want)
        y, got = made(x, return_lse=True, **given)
        seen = np.isfinite(lse)
        assert oracle.error(y, layer.finish(o)) <= LAYER_BOUND, given
        assert (np.isfinite(got) == seen).all() and oracle.error(got[seen], lse[seen]) <= LAYER_BOUND
        cache = heed.KVCache(batch=2, capacity=6, kv_heads=2, dim=8, v_dim=6)
        assert oracle.error(made(x, cache=cache, **given), layer.finish(o)) <= LAYER_BOUND
    for wrong, words in (({"ranges": ranges.astype(np.int64)}, "ranges is no int32"), ({"key_blocks": bits}, "key_blocks is no tuple"),
                         ({"key_blocks": heed.masks.blocks(bits, block_rows=2, block_keys=2)}, "key_blocks has 2 blocks of 2 keys; 3"),
                         ({"mask": mask, "mask_from": [-1, 0]}, r"mask_from\[0\] is -1; 0 to the 6 keys"), ({"mask": mask, "mask_from": [1, 9]}, r"mask_from\[1\] is 9; 0 to the 6 keys"), ({"mask_from": [1, 1]}, "HEED_HAS_MASK_FROM without")):
        with pytest.raises(ValueError, match=words):
            made(x, **wrong)


def test_lengths_beyond_are_called_what_the_call_calls_them():
    layer = Layer(v_dim=8)
    x = oracle.normal(RNG, 2, 3, 20)
    made, cross = layer.made(), layer.made(cross=True)
    caches = [heed.KVCache(batch=2, capacity=8, kv_heads=2, dim=8) for _ in range(2)]
    with pytest.raises(ValueError, match=r"^q_lens\[1\] is 9; 0 to 3 rows"):
        made(x, cache=caches[0], q_lens=[3, 9])
    for keys in (x, None):
        with pytest.raises(ValueError, match=rf"^kv_lens\[0\] is 4; 0 to {0 if keys is None else 3} rows"):
            cross(x, keys, cache=caches[1], kv_lens=[4, 0])
    with pytest.raises(ValueError, match=r"^lens\[0\] is 4; 0 to 3 rows"):
        caches[0].append(*(oracle.normal(RNG, 2, 2, 3, 8),) * 2, lens=[4, 0])
    assert caches[0].lens == caches[1].lens == [0, 0]


def test_layer_tree():
    """Drafts of a tree behind what a cache holds: each has the output of its own path."""
    layer = Layer(v_dim=8)
    made = layer.made(rotary=True, causal=False)
    held, drafts = oracle.normal(RNG, 1, 5, 20), oracle.normal(RNG, 1, 6, 20)
    parents = np.array([[-1, 0, 0, 1, 2, 2]], np.int32)
    depth = np.array([0, 1, 1, 2, 2, 2], np.int32)
    cache = heed.KVCache(batch=1, capacity=16, kv_heads=2, dim=8)
    made(held, cache=cache)
    tree = heed.masks.tree(parents, prefix=5)
    y = made(drafts, cache=cache, ranges=tree, positions=5 + depth)
    for i in range(6):
        path = [i]
        while parents[0, path[0]] >= 0:
            path.insert(0, parents[0, path[0]])
        x = np.concatenate([held, drafts[:, path]], 1)
        q, k, v = layer.qkv(x)
        at = [np.arange(x.shape[1])]
        o = oracle.attention(turned(q, at)[:, :, -1:], turned(k, at), v)[0]
        assert oracle.error(y[:, i:i + 1], layer.finish(o)) <= LAYER_BOUND, i
    for wrong, words in ((np.zeros((1, 5), np.int32), "positions is no int32"), (depth.astype(np.int64), "positions is no int32")):
        with pytest.raises(ValueError, match=words):
            made(drafts, positions=wrong)
    with pytest.raises(ValueError, match="positions is given, but the layer was made without rotary"):
        layer.made()(drafts, positions=depth)


def test_positions_of_a_cross_attention():
    layer = Layer(d_kv=12, v_dim=8)
    x, other = oracle.normal(RNG, 2, 3, 20), oracle.normal(RNG, 2, 5, 12)
    at = RNG.integers(-9, 50, (2, 3)).astype(np.int32)
    q, k, v = layer.qkv(x, other)
    o = oracle.attention(turned(q, at), turned(k, [np.arange(5)] * 2), v)[0]
    assert oracle.error(layer.made(cross=True, rotary=True)(x, other, positions=at), layer.finish(o)) <= LAYER_BOUND


class Clearing:
    """A whole number of a dict that is empty once the number was asked for."""

    def __init__(self, into):
        self.into = into

    def __index__(self):
        self.into.clear()
        return 4


def test_rotary_that_changes_while_it_is_read():
    w = oracle.normal(RNG, 8, 8)
    options = {"freq": [float(n) for n in (1, 2)]}
    options["dims"] = Clearing(options)
    layer = heed.MultiHeadAttention(1, w, w, w, rotary=options)
    x = oracle.normal(RNG, 1, 3, 8)
    assert (layer(x) == heed.MultiHeadAttention(1, w, w, w, rotary={"dims": 4, "freq": [1.0, 2.0]})(x)).all() and not options


@pytest.mark.parametrize("causal", [False, True])
def test_unknown_position(causal):
    """A word that is no position is refused where it is given, whether or not the position matters."""
    x = oracle.normal(RNG, 1, 1, 3, 8)
    layer, rows = Layer().made(causal=causal), oracle.normal(RNG, 1, 3, 20)
    plan = heed.plan(q_heads=1, dim=8, causal=causal)
    cache = heed.KVCache(batch=1, capacity=3, kv_heads=1, dim=8)
    for call in (lambda p: heed.attention(x, x, x, causal=causal, position=p), lambda p: plan.run(x, x, x, position=p),
                 lambda p: heed.plan(q_heads=1, dim=8, causal=causal, position=p),
                 lambda p: Layer().made(causal=causal, position=p), lambda p: layer(rows, position=p),
                 lambda p: cache.attention(x, causal=causal, position=p)):
        for word in ("middle", "", "END"):
            with pytest.raises(ValueError, match='position is .*; "start", "end" or'):
                call(word)
        call("start"), call("end")


@pytest.mark.parametrize("causal", [False, True])
def test_positions_that_are_none(causal):
    """They are refused where they are given, whether or not the position matters; their number, with a batch."""
    x, rows = oracle.normal(RNG, 2, 1, 3, 8), oracle.normal(RNG, 2, 3, 20)
    layer, plan = Layer().made(causal=causal), heed.plan(q_heads=1, dim=8, causal=causal)
    for given in (object(), 1.5, [1.5, 2], {}, np.zeros(2), np.zeros((2, 1), np.int32), [2**31, 0]):
        for call in (lambda: heed.plan(q_heads=1, dim=8, causal=causal, position=given), lambda: Layer().made(causal=causal, position=given),
                     lambda: layer(rows, position=given), lambda: plan.run(x, x, x, position=given)):
            with pytest.raises(ValueError, match="position"):
                call()
    few = [1, 2, 3]
    for call in (lambda: layer(rows, position=few), lambda: plan.run(x, x, x, position=few),
                 lambda: Layer().made(causal=causal, position=few)(rows), lambda: heed.plan(q_heads=1, dim=8, causal=causal, position=few).run(x, x, x)):
        with pytest.raises(ValueError, match="position has 3 entries where 2 are needed"):
            call()


def test_layer_errors():
    layer = Layer()
    w = layer.w
    x = oracle.normal(RNG, 1, 3, 20)
    for call in (lambda: heed.MultiHeadAttention(3, *w, kv_heads=2), lambda: heed.MultiHeadAttention(4, w[0], w[2], w[2]),
                 lambda: layer.made()(x[..., :4]), lambda: layer.made()(x[0]), lambda: layer.made(rotary={"angle": 1}),
                 lambda: layer.made(rotary=3), lambda: layer.made()(x, kv_lens=[1]), lambda: layer.made()(x, cache=3)):
        with pytest.raises(ValueError):
            call()


def test_layer_types():
    layer = Layer(biases=False)
    x = oracle.normal(RNG, 2, 5, 20)
    half = heed.MultiHeadAttention(4, *(w.astype(np.float16) for w in layer.w), kv_heads=2)
    y = half(x.astype(np.float16))
    assert y.dtype == np.float16
    # q, k, v, o and y are each rounded to f16
    assert oracle.error(y, layer.finish(oracle.attention(*layer.qkv(x))[0])) <= 6 * 2.0**-11
    mixed = heed.MultiHeadAttention(4, *(w.astype(np.float16) for w in layer.w), kv_heads=2, dtype="f32")
    assert mixed(x).dtype == np.float32


@pytest.mark.parametrize("weights", ["f32", "f16", "bf16", "mixed"])
def test_layer_in_bf16(weights):
    """dtype is the type of x and all between; weights and biases keep theirs, those of uint16 are bf16."""
    layer = Layer()
    kinds = {"f32": np.float32, "f16": np.float16}
    of = lambda i, x: bf16_bits(x) if weights == "bf16" or (weights == "mixed" and i % 2) else x.astype(kinds.get(weights, np.float32))
    w, b = ([of(i, x) for i, x in enumerate(xs)] for xs in (layer.w, layer.b))
    x = bf16_bits(oracle.normal(RNG, 2, 5, 20))
    made = heed.MultiHeadAttention(4, *w, kv_heads=2, dtype="bf16", **dict(zip(("bq", "bk", "bv", "bo"), b)))
    y = made(x)
    near = lambda x: of_bf16(x) if x.dtype == np.uint16 else x.astype(np.float32)
    layer.w, layer.b = ([near(x) for x in xs] for xs in (w, b))
    # q, k, v, o and y are each rounded to bf16, by at most 2^-8, and so are the operands of products
    assert y.dtype == np.uint16
    assert oracle.error(of_bf16(y), layer.finish(oracle.attention(*layer.qkv(near(x)))[0])) <= 5 * oracle.BOUND["bf16"]
    with pytest.raises(ValueError, match="x is of f32; bf16 is needed"):
        made(near(x))


class Meanwhile:
    """An array that does something else while it is read, as another thread might then."""

    def __init__(self, x, do):
        self.x, self.do = x, do

    def __dlpack__(self, **options):
        self.do()
        return self.x.__dlpack__(**options)

    def __array_namespace__(self):
        return np


def test_cache_in_use():
    """Calls that read a cache run side by side, and one that writes to it alone."""
    layer = Layer(dim=8, v_dim=8, d_kv=20)
    own, cross = layer.made(causal=True), layer.made(cross=True)
    cache = heed.KVCache(batch=2, capacity=9, kv_heads=2, dim=8)
    x, rows, q = oracle.normal(RNG, 2, 2, 1, 8), oracle.normal(RNG, 2, 1, 20), oracle.normal(RNG, 2, 4, 1, 8)
    mask = np.ones((1, 1), bool)
    cache.append(x, x)
    writes = {"append": lambda: cache.append(x, x), "clear": cache.clear, "layer": lambda: own(rows, cache=cache),
              "cross layer": lambda: cross(rows, rows, cache=cache)}
    reads = {"attention": lambda: cache.attention(q), "decoded": cache.decoded, "cross layer": lambda: cross(rows, cache=cache)}
    met = []

    def meet(calls, refusal):
        for name, call in calls.items():
            lens = cache.lens
            if refusal:
                with pytest.raises(RuntimeError, match=f"the cache is being {refusal} by another call"):
                    call()
                assert cache.lens == lens
            else:
                call()
            met.append(name)

    def at_once(what, call, calls, refusal):
        before = len(met)
        call(lambda x: Meanwhile(x, lambda: meet(calls, refusal)))
        assert len(met) == before + len(calls), what
        for free in (*reads.values(), lambda: cache.append(x[:, :, :0], x[:, :, :0])):
            free()  # nothing holds the cache any more

    wide = np.ones((1, cache.capacity), bool)  # a layer's masks are as wide as its cache
    for calls, refusal in ((writes, "read"), (reads, None)):
        at_once("attention", lambda m: cache.attention(q, mask=m(mask)), calls, refusal)
        at_once("a cross layer's", lambda m: cross(rows, cache=cache, mask=m(wide)), calls, refusal)
    for calls in (writes, reads):
        at_once("append", lambda m: cache.append(m(x[:, :, :0]), x[:, :, :0]), calls, "written to")
        at_once("a layer's", lambda m: own(rows, cache=cache, mask=m(wide)), calls, "written to")
    assert cache.lens == [3, 3]
    for failing in (lambda: cache.append(x, x[:1]), lambda: cache.attention(q, mask=np.ones((5, 5), bool)),
                    lambda: own(rows, cache=cache, mask=np.ones((5, 5), bool)),
                    lambda: cross(rows, cache=cache, mask=np.ones((5, 5), bool)),
                    lambda: cache.append(np.zeros((2, 2, 99, 8), np.float32), np.zeros((2, 2, 99, 8), np.float32))):
        with pytest.raises(ValueError):
            failing()
    cache.clear()  # so a call that failed holds nothing either
