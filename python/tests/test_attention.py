"""attention, varlen, plan and merge against the float64 oracle."""

import itertools
import re

import numpy as np
import oracle
import pytest

import heed

RNG = np.random.default_rng(11)


def qkv(batch=2, q_heads=4, kv_heads=2, q_len=9, kv_len=13, dim=16, v_dim=12):
    return (oracle.normal(RNG, batch, q_heads, q_len, dim), oracle.normal(RNG, batch, kv_heads, kv_len, dim),
            oracle.normal(RNG, batch, kv_heads, kv_len, v_dim))


def all_close(q, k, v, **options):
    """out, lse and weights of a call, in turn, against the oracle."""
    want = oracle.attention(q, k, v, **options)
    out, lse, weights = heed.attention(q, k, v, **options, return_lse=True, return_weights=True)
    oracle.check(out, want[0])
    oracle.check_lse(lse, want[1])
    oracle.check(weights, want[2])
    only = heed.attention(q, k, v, **options)
    assert (only == out).all()
    pair = heed.attention(q, k, v, **options, return_weights=True)
    assert len(pair) == 2 and (pair[1] == weights).all()


OPTIONS = {
    "plain": {},
    "causal end": {"causal": True},
    "causal start": {"causal": True, "position": "start"},
    "causal given": {"causal": True, "position": np.array([3, -2], np.int32)},
    "causal int": {"causal": True, "position": 1},
    "window": {"window": (3, 2)},
    "window int": {"window": 2},
    "window left": {"window": (2, None), "causal": True},
    "window right": {"window": (None, 1)},
    "scale": {"scale": 0.3},
    "negative scale": {"scale": -0.2},
    "softcap": {"softcap": 1.5, "scale": 1.0},
    "alibi": {"alibi": [0.5, 0.25, 0.125, 0.0625]},
    "alibi array": {"alibi": np.array([0.5, 0.25, 0.125, 0.0625]), "causal": True},
    "sinks": {"sinks": np.array([0.5, -1.0, 3.0, -np.inf], np.float32)},
    "kv_lens": {"kv_lens": [5, 13]},
    "lens": {"q_lens": [9, 4], "kv_lens": np.array([13, 6], np.int64), "causal": True},
    "q_lens": {"q_lens": (3, 0)},
    "bool mask": {"mask": RNG.random((9, 13)) < 0.6},
    "batch mask": {"mask": RNG.random((2, 1, 1, 13)) < 0.6},
    "head mask": {"mask": RNG.random((4, 9, 13)) < 0.6, "causal": True},
    "bias": {"bias": oracle.normal(RNG, 4, 9, 13)},
    "bias that masks": {"bias": np.where(RNG.random((2, 1, 9, 13)) < 0.3, -np.inf, 0.25).astype(np.float32)},
    "f16 bias": {"bias": oracle.normal(RNG, 9, 13).astype(np.float16)},
    "mask and bias": {"mask": RNG.random((9, 13)) < 0.7, "bias": oracle.normal(RNG, 9, 13), "softcap": 5.0},
    "rows that see nothing": {"mask": np.arange(9)[:, None] % 3 > 0, "sinks": [0.0, 1.0, 2.0, 3.0]},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(options):
    all_close(*qkv(), **options)


@pytest.mark.parametrize("heads", [(1, 1), (6, 6), (6, 3), (8, 1)], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 40, 3, 20), (17, 5, 8, 8), (64, 130, 64, 80)], ids=str)
def test_shapes(heads, shape):
    all_close(*qkv(2, *heads, *shape), causal=True)


def test_empty():
    q, k, v = qkv()
    assert heed.attention(q[:0], k[:0], v[:0]).shape == (0, 4, 9, 12)
    assert heed.attention(q[:, :, :0], k, v).shape == (2, 4, 0, 12)
    out, lse = heed.attention(q, k[:, :, :0], v[:, :, :0], return_lse=True)
    assert (out == 0).all() and np.isneginf(lse).all()


def test_a_row_that_sees_nothing_is_zero_whatever_keys_hold():
    q, k, v = qkv()
    k[:, :, 5:] = np.nan
    v[:, :, 5:] = np.inf
    out, lse = heed.attention(q, k, v, kv_lens=[5, 0], return_lse=True)
    oracle.check(out[:1], oracle.attention(q[:1], k[:1, :, :5], v[:1, :, :5])[0])
    assert (out[1] == 0).all() and np.isneginf(lse[1]).all()


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "hbsd", "bhds", "sbhd"])
def test_layouts(layout):
    q, k, v = qkv()
    order = ["bhsd".index(axis) for axis in layout]
    back = np.argsort(order)
    out, lse = heed.attention(*(x.transpose(order) for x in (q, k, v)), layout=layout, causal=True, return_lse=True)
    want = oracle.attention(q, k, v, causal=True)
    oracle.check(out.transpose(back), want[0])
    oracle.check_lse(lse, want[1])
    # the same, copied into that order
    again = heed.attention(*(np.ascontiguousarray(x.transpose(order)) for x in (q, k, v)), layout=layout, causal=True)
    oracle.check(again.transpose(back), want[0])


def test_layouts_of_fewer_axes():
    q, k, v = qkv(1, 2, 2)
    want = oracle.attention(q, k, v)
    out, lse, weights = heed.attention(q[0], k[0], v[0], layout="hsd", return_lse=True, return_weights=True)
    oracle.check(out, want[0][0])
    oracle.check_lse(lse, want[1][0])
    oracle.check(weights, want[2][0])
    out, lse = heed.attention(q[0, 0], k[0, 0], v[0, 0], layout="sd", return_lse=True)
    oracle.check(out, want[0][0, 0])
    assert lse.shape == (9,)


@pytest.mark.parametrize("accuracy", [None, "default", "exact", "bf16", "split"])
def test_accuracy(accuracy):
    q, k, v = qkv(1, 2, 2, 33, 65, 64, 64)
    # split: 1e-5 relative L2 (heed/attention.h); the others are exact for f32
    e = oracle.error(heed.attention(q, k, v, accuracy=accuracy), oracle.attention(q, k, v)[0])
    assert e <= (1e-5 if accuracy == "split" else 1e-6)


def test_out():
    q, k, v = qkv()
    want = heed.attention(q, k, v)
    wide = np.full((2, 4, 9, 24), 7, np.float32)
    out = wide[..., ::2]
    assert heed.attention(q, k, v, out=out) is out
    assert (out == want).all() and (wide[..., 1::2] == 7).all()
    half = np.empty((2, 4, 9, 12), np.float16)
    heed.attention(q, k, v, out=half)
    oracle.check(half, oracle.attention(q, k, v)[0], "f16")
    # rows past q_lens stay as they are where out is the caller's
    kept = np.full((2, 4, 9, 12), 7, np.float32)
    heed.attention(q, k, v, q_lens=[9, 4], out=kept)
    assert (kept[1, :, 4:] == 7).all() and (kept[1, :, :4] == want[1, :, :4]).all()


def test_out_in_the_memory_of_an_input():
    """Packed q, k and v beside each other, and out in the place of nothing that is read."""
    packed = oracle.normal(RNG, 2, 9, 4, 4, 16)  # batch, rows, (q, k, v, out), heads, dim
    q, k, v, out = (packed[:, :, i] for i in range(4))
    want = oracle.attention(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)))[0]
    heed.attention(q, k, v, layout="bshd", out=out)
    oracle.check(out.transpose(0, 2, 1, 3), want)


ERRORS = {
    "shape of k": (lambda q, k, v: heed.attention(q, k[..., :8], v), "head dim"),
    "heads of v": (lambda q, k, v: heed.attention(q, k, v[:, :1]), "heads of v"),
    "batch": (lambda q, k, v: heed.attention(q, k[:1], v[:1]), "batch"),
    "length": (lambda q, k, v: heed.attention(q, k, v[:, :, 1:]), "length of v"),
    "q_heads": (lambda q, k, v: heed.attention(q[:, :3], k, v), "multiple of desc.kv_heads"),
    "axes": (lambda q, k, v: heed.attention(q[0], k, v), "q has 3 axes"),
    "layout": (lambda q, k, v: heed.attention(q, k, v, layout="bhs"), "layout"),
    "f64": (lambda q, k, v: heed.attention(q.astype(float), k, v), "float64"),
    "int": (lambda q, k, v: heed.attention(q, k, v.astype(np.int32)), "int32"),
    "no array": (lambda q, k, v: heed.attention(q, k, 3), "v is no array"),
    "none": (lambda q, k, v: heed.attention(q, k, None), "v is None"),
    "float mask": (lambda q, k, v: heed.attention(q, k, v, mask=np.zeros((9, 13), np.float32)), "bias"),
    "mask's shape": (lambda q, k, v: heed.attention(q, k, v, mask=np.ones((8, 13), bool)), "broadcast"),
    "softcap": (lambda q, k, v: heed.attention(q, k, v, softcap=-1.0), "softcap"),
    "scale": (lambda q, k, v: heed.attention(q, k, v, scale=float("nan")), "scale"),
    "window": (lambda q, k, v: heed.attention(q, k, v, window=(-2, 0)), "window"),
    "kv_lens": (lambda q, k, v: heed.attention(q, k, v, kv_lens=[14, 0]), "kv_lens"),
    "lens' number": (lambda q, k, v: heed.attention(q, k, v, kv_lens=[1]), "kv_lens has 1"),
    "position": (lambda q, k, v: heed.attention(q, k, v, causal=True, position="middle"), "position"),
    "accuracy": (lambda q, k, v: heed.attention(q, k, v, accuracy="best"), "accuracy"),
    "sinks": (lambda q, k, v: heed.attention(q, k, v, sinks=[1.0]), "sinks has 1"),
    "out's shape": (lambda q, k, v: heed.attention(q, k, v, out=q), "out has the shape"),
    "device": (lambda q, k, v: heed.backend("none"), "unknown"),
    "threads": (lambda q, k, v: heed.threads(0), "n is 0"),
}


@pytest.mark.parametrize("call, words", ERRORS.values(), ids=ERRORS)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call(*qkv())


def test_read_only_out():
    q, k, v = qkv()
    out = np.empty((2, 4, 9, 12), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out"):
        heed.attention(q, k, v, out=out)


@pytest.mark.parametrize("value", [2**63, -2**63 - 1, 10**400, "one", object(), 1.5], ids=lambda value: str(value)[:8])
def test_numbers_that_are_none(value):
    """The sentence names the argument, whatever Python says of the number."""
    q, k, v = qkv()
    whole = {"kv_lens": lambda: heed.attention(q, k, v, kv_lens=value), "q_lens": lambda: heed.attention(q, k, v, q_lens=[value, 3]),
             "window": lambda: heed.attention(q, k, v, window=(0, value)), "n": lambda: heed.threads(value),
             "position": lambda: heed.attention(q, k, v, causal=True, position=[0, value]), "cu_q": lambda: heed.varlen(q[0], k[0], v[0], [0, value], [0, 1]),
             "capacity": lambda: heed.KVCache(batch=1, capacity=value, kv_heads=1, dim=1), "dims": lambda: heed.rotary(q, dims=value),
             "q_heads": lambda: heed.plan(q_heads=value, dim=4), "length": lambda: heed.masks.chunks(4, value)}
    real = {"scale": lambda: heed.attention(q, k, v, scale=value), "base": lambda: heed.rotary(q, base=value),
            "sinks": lambda: heed.attention(q, k, v, sinks=[0, 0, 0, value]), "alibi": lambda: heed.attention(q, k, v, alibi=[value, 0, 0, 0]),
            "freq": lambda: heed.rotary(q, dims=2, freq=[value])}
    if value not in (2**63, -2**63 - 1, 1.5):
        whole.update(real)
    for name, call in whole.items():
        with pytest.raises(ValueError, match=f"^{name} "):
            call()


def test_window_of_one_number():
    """n is (n, n), and -1 all keys on both sides."""
    q, k, v = qkv()
    for n in (-1, 0, 3):
        assert (heed.attention(q, k, v, window=n) == heed.attention(q, k, v, window=(n, n))).all()
    oracle.check(heed.attention(q, k, v, window=-1), oracle.attention(q, k, v)[0])
    with pytest.raises(ValueError, match="^window is -2, less than -1$"):
        heed.attention(q, k, v, window=-2)


@pytest.mark.parametrize("value", [1.5, object(), "middle"], ids=["float", "object", "word"])
def test_positions_that_are_none(value):
    """The sentence names what is allowed."""
    q, k, v = qkv()
    words = re.escape(f"position is {value!r}; \"start\", \"end\" or the position of each sequence's row 0, a whole number or a list")
    w = np.eye(16, dtype=np.float32)
    for call in (lambda: heed.attention(q, k, v, causal=True, position=value), lambda: heed.attention(q, k, v, position=value),
                 lambda: heed.plan(q_heads=4, dim=16, position=value), lambda: heed.MultiHeadAttention(4, w, w, w, position=value)):
        with pytest.raises(ValueError, match=words):
            call()
    if not isinstance(value, str):
        words = re.escape(f"kv_lens is {value!r}; a whole number, a list or an array of whole numbers is needed")
        with pytest.raises(ValueError, match=words):
            heed.attention(q, k, v, kv_lens=value)
        with pytest.raises(ValueError, match=re.escape(f"cu_q is {value!r}; a list or an array of whole numbers is needed")):
            heed.varlen(q[0], k[0], v[0], value, [0, 1])


def test_truths():
    """Options that are true or false take no words, since "no" would be true, and no arrays; the sentence names the option."""
    q, k, v = qkv()
    plan = heed.plan(q_heads=4, kv_heads=2, dim=16, v_dim=12)
    linear = heed.Linear(np.ones((4, 4), np.float32))
    options = {"causal": heed.attention, "return_lse": heed.attention, "return_weights": plan.run, "json": heed.explain}
    calls = {name: (lambda value, name=name, call=call: call(q, k, v, **{name: value})) for name, call in options.items()}
    calls["residual"] = lambda value: heed.Linear(np.ones((4, 4), np.float32), residual=value)
    for name, call in calls.items():
        for value in ("no", "True", b"yes", bytearray(b"1")):
            with pytest.raises(ValueError, match=f"^{name} is {re.escape(repr(value))}; True or False is needed$"):
                call(value)
        with pytest.raises(ValueError, match=f"^{name} is of type ndarray and neither true nor false; True or False is needed$"):
            call(np.ones(2, bool))
    with pytest.raises(ValueError, match="^causal is 'start'; True or False is needed, with position='start' beside it$"):
        heed.attention(q, k, v, causal="start")
    with pytest.raises(ZeroDivisionError):  # what is not about the truth itself stays as it is
        heed.attention(q, k, v, causal=type("Broken", (), {"__bool__": lambda self: 1 / 0})())
    causal, full = heed.attention(q, k, v, causal=True), heed.attention(q, k, v)
    for value in (1, np.True_, np.array(True)):
        assert (heed.attention(q, k, v, causal=value) == causal).all()
    for value in (0, np.False_, None):
        assert (heed.attention(q, k, v, causal=value) == full).all()
    assert isinstance(linear.explain(json=np.True_), str)


def test_maxima_that_are_left_out():
    """As help says: rows and keys together, and then one sequence unless max_batch is given; none at all: any size."""
    x = np.ones((2, 1, 3, 4), np.float32)
    for maxima in ({"max_q_len": 3}, {"max_kv_len": 3}, {"max_batch": 2}, {"max_batch": 2, "max_q_len": 3}):
        with pytest.raises(ValueError, match="max_q_len and max_kv_len are given both or not at all"):
            heed.plan(q_heads=1, dim=4, **maxima)
    plan = heed.plan(q_heads=1, dim=4, max_q_len=3, max_kv_len=3)
    assert (plan.run(x[:1], x[:1], x[:1]) == 1).all()
    with pytest.raises(ValueError, match="max_batch = 1"):
        plan.run(x, x, x)
    assert (heed.plan(q_heads=1, dim=4).run(x, x, x) == 1).all()


def test_keywords():
    q, k, v = qkv()
    with pytest.raises(TypeError, match="unexpected keyword argument 'casual'"):
        heed.attention(q, k, v, casual=True)
    with pytest.raises(TypeError, match="multiple values for argument 'v'"):
        heed.attention(q, k, v, v=v)
    with pytest.raises(TypeError, match="missing required argument 'v'"):
        heed.attention(q, k)
    with pytest.raises(TypeError, match="positional"):
        heed.attention(q, k, v, None)
    assert (heed.attention(v=v, k=k, q=q) == heed.attention(q, k, v)).all()


# ---- varlen --------------------------------------------------------------------------------------------


def test_varlen():
    lens = [(3, 5), (0, 4), (7, 7), (1, 0), (4, 9)]
    cu_q, cu_k = (np.cumsum([0] + [pair[i] for pair in lens]).astype(np.int32) for i in range(2))
    q, k, v = oracle.normal(RNG, 16, 4, 8), oracle.normal(RNG, 26, 2, 8), oracle.normal(RNG, 26, 2, 6)
    for options in ({}, {"causal": True}, {"window": (2, 0), "position": "start"}, {"sinks": [1.0, 2.0, 3.0, 4.0]},
                    {"alibi": [0.5, 0.25, 0.1, 0.0]}, {"softcap": 2.0, "scale": 0.5}):
        out, lse, weights = heed.varlen(q, k, v, cu_q, cu_k, **options, return_lse=True, return_weights=True)
        assert out.shape == (16, 4, 6) and lse.shape == (4, 16) and weights.shape == (5, 4, 7, 9)
        for b, (n, m) in enumerate(lens):
            one = [x[start:start + count].transpose(1, 0, 2)[None]
                   for x, start, count in ((q, cu_q[b], n), (k, cu_k[b], m), (v, cu_k[b], m))]
            want = oracle.attention(*one, **options)
            if n:
                oracle.check(out[cu_q[b]:cu_q[b + 1]].transpose(1, 0, 2)[None], want[0])
                oracle.check_lse(lse[:, cu_q[b]:cu_q[b + 1]][None], want[1])
                if m:
                    oracle.check(weights[b, :, :n, :m][None], want[2])


def test_varlen_rows_of_no_sequence():
    q = oracle.normal(RNG, 6, 1, 4)
    out, lse = heed.varlen(q, q, q, [1, 4], [0, 3], return_lse=True)
    assert (out[[0, 4, 5]] == 0).all() and np.isneginf(lse[0, [0, 4, 5]]).all()
    oracle.check(out[None, 1:4, 0][:, None], oracle.attention(q[None, None, 1:4, 0], q[None, None, :3, 0], q[None, None, :3, 0])[0])
    for cu in ([0, 7], [-1, 3], [2, 1], []):
        with pytest.raises(ValueError, match="cu_q"):
            heed.varlen(q, q, q, cu, [0, 3])
    with pytest.raises(ValueError, match="cu_k"):
        heed.varlen(q, q, q, [0, 3], [0, 3, 6])


# ---- plan ----------------------------------------------------------------------------------------------


def test_plan():
    q, k, v = qkv()
    for maxima in ({}, {"max_batch": 2, "max_q_len": 9, "max_kv_len": 13}):
        plan = heed.plan(q_heads=4, kv_heads=2, dim=16, v_dim=12, causal=True, window=(5, 0), softcap=3.0, **maxima)
        mask = RNG.random((9, 13)) < 0.8
        out, lse = plan.run(q, k, v, mask=mask, kv_lens=[13, 10], return_lse=True)
        want = oracle.attention(q, k, v, mask=mask, kv_lens=[13, 10], causal=True, window=(5, 0), softcap=3.0)
        oracle.check(out, want[0])
        oracle.check_lse(lse, want[1])
        assert plan.workspace(1) > 0 and plan.workspace(4) > plan.workspace(1)
        assert "prefill" in plan.explain() or "naive" in plan.explain()
    with pytest.raises(ValueError):
        plan.run(np.concatenate([q, q]), np.concatenate([k, k]), np.concatenate([v, v]))
    with pytest.raises(ValueError, match="q_heads"):
        plan.run(q[:, :2], k, v)
    with pytest.raises(ValueError, match="f16"):
        plan.run(q.astype(np.float16), k, v)
    with pytest.raises(ValueError, match="multiple"):
        heed.plan(q_heads=3, kv_heads=2, dim=4)
    with pytest.raises(ValueError, match="block_table"):
        plan.run(q, k, v, block_table=np.zeros((2, 1), np.int32))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_plan_of_pages(layout):
    page_len, lens = 4, [11, 3]
    q, k, v = qkv(2, 4, 2, 3, 12)
    table = np.array([[5, 0, 3], [2, -1, -1]], np.int32)
    pages = [np.full((6, 2, page_len, x.shape[3]), np.nan, np.float32) for x in (k, v)]
    for b, j in itertools.chain(((0, j) for j in range(11)), ((1, j) for j in range(3))):
        for store, x in zip(pages, (k, v)):
            store[table[b, j // page_len], :, j % page_len] = x[b, :, j]
    plan = heed.plan(q_heads=4, kv_heads=2, dim=16, v_dim=12, page_len=page_len, causal=True, layout=layout)
    arrays = [q, *pages] if layout == "bhsd" else [x.transpose(0, 2, 1, 3) for x in (q, *pages)]
    out = plan.run(*arrays, block_table=table, kv_lens=lens)
    want = oracle.attention(q, k, v, kv_lens=lens, causal=True)[0]
    oracle.check(out if layout == "bhsd" else out.transpose(0, 2, 1, 3), want)
    with pytest.raises(ValueError, match="kv_lens"):
        plan.run(*arrays, block_table=table, kv_lens=[13, 3])
    with pytest.raises(ValueError):
        plan.run(*arrays, block_table=table + 3, kv_lens=lens)
    with pytest.raises(ValueError, match="block_table is needed"):
        plan.run(*arrays, kv_lens=lens)


def coded(x, code):
    """Codes of x, their scales and the numbers that they stand for."""
    if code == "i8":
        scale = np.abs(x).max(-1, keepdims=True) / np.float32(127)
        codes = np.rint(x / scale).astype(np.int8)
        return codes, scale, codes * scale
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    d = (np.abs(blocks).max(-1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(blocks / d.astype(np.float32)).clip(-127, 127).astype(np.int8)
    held = np.concatenate([d.view(np.uint8), codes.view(np.uint8)], -1)  # q8_0: an f16 and 32 bytes
    return held.reshape(*x.shape[:-1], -1), None, (codes * d.astype(np.float32)).reshape(x.shape)


@pytest.mark.parametrize("code", ["i8", "q8_0"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_plan_of_codes(code, layout):
    q, k, v = qkv(2, 4, 2, 5, 13, 64, 32)
    (k_codes, k_scale, k_near), (v_codes, v_scale, v_near) = coded(k, code), coded(v, code)
    scales = {} if k_scale is None else {"k_scale": k_scale, "v_scale": v_scale}
    turn = (lambda x: x) if layout == "bhsd" else (lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)))
    try:
        plan = heed.plan(q_heads=4, kv_heads=2, dim=64, v_dim=32, kv_dtype=code, causal=True, layout=layout)
        out = plan.run(turn(q), turn(k_codes), turn(v_codes), **scales)
    except NotImplementedError as refusal:
        pytest.skip(f"the library refuses: {refusal}")
    oracle.check(turn(out), oracle.attention(q, k_near, v_near, causal=True)[0])
    with pytest.raises(ValueError, match="k"):
        plan.run(turn(q), turn(k), turn(v))


@pytest.mark.parametrize("per", ["tensor", "head", "key", "group of keys", "group of dims"])
@pytest.mark.parametrize("keys", [12, 13])
def test_scales_and_zeros(keys, per):
    """What u8 stands for, of every shape that scales may have."""
    rng = np.random.default_rng(3)
    n = -(-keys // 4)
    shape = {"tensor": (1, 1, 1, 1), "head": (2, 2, 1, 1), "key": (2, 2, keys, 1), "group of keys": (2, 2, n, 1),
             "group of dims": (2, 2, keys, 4)}[per]
    codes = rng.integers(0, 256, (2, 2, keys, 64), dtype=np.uint8)
    scale = (rng.random(shape) / 64).astype(np.float32)
    zero = (rng.random(shape) * 255).astype(np.float32)
    whole = lambda x: np.repeat(np.repeat(x, 4, 2)[:, :, :keys] if per == "group of keys" else x, 64 // shape[3], 3)
    near = (codes.astype(float) - whole(zero)) * whole(scale)
    q = oracle.normal(rng, 2, 4, 3, 64)
    plan = heed.plan(q_heads=4, kv_heads=2, dim=64, kv_dtype="u8")
    given = {"k_scale": scale, "k_zero": zero, "v_scale": scale, "v_zero": zero}
    if per == "group of keys":
        given |= {"k_key_group": 4, "v_key_group": 4}
    oracle.check(plan.run(q, codes, codes, **given), oracle.attention(q, near, near)[0])


@pytest.mark.parametrize("keys", [1, 8, 9, 31, 32, 33, 64, 65, 100])
@pytest.mark.parametrize("group", [1, 4, 32, 100, 2**31 - 1])
def test_key_groups(keys, group):
    """Scales of groups of keys, the last of which may be short, are those of the group that is named. Without
    a name they are right or refused."""
    rng = np.random.default_rng(4)
    codes, q = rng.integers(0, 256, (1, 1, keys, 32), dtype=np.uint8), oracle.normal(rng, 1, 1, 2, 32)
    k_scale, v_scale = ((rng.random((1, 1, -(-keys // n), 1)) / 64).astype(np.float32) for n in (group, 8))
    near = [codes * scale.astype(float)[:, :, np.arange(keys) // n] for scale, n in ((k_scale, group), (v_scale, 8))]
    want = oracle.attention(q, *near)[0]
    plan = heed.plan(q_heads=1, dim=32, kv_dtype="u8")
    scales = {"k_scale": k_scale, "v_scale": v_scale}
    oracle.check(plan.run(q, codes, codes, **scales, k_key_group=np.int64(group), v_key_group=8), want)
    try:
        oracle.check(plan.run(q, codes, codes, **scales), want)
    except ValueError as error:
        assert "_key_group, how many keys share a scale, is needed" in str(error)


def test_key_groups_of_pages():
    rng = np.random.default_rng(5)
    codes, q = rng.integers(0, 256, (3, 1, 8, 32), dtype=np.uint8), oracle.normal(rng, 1, 1, 2, 32)
    scale = (rng.random((3, 1, 2, 1)) / 64).astype(np.float32)
    near = (codes * np.repeat(scale.astype(float), 5, 2)[:, :, :8])[[2, 0]].reshape(1, 1, 16, 32)
    plan = heed.plan(q_heads=1, dim=32, kv_dtype="u8", page_len=8)
    out = plan.run(q, codes, codes, block_table=np.array([[2, 0]], np.int32), kv_lens=[13], k_scale=scale, v_scale=scale,
                   k_key_group=5, v_key_group=5)
    oracle.check(out, oracle.attention(q, near[:, :, :13], near[:, :, :13])[0])


def test_signs_of_codes():
    """200 as uint8 is -56 as int8."""
    x, k = oracle.normal(RNG, 1, 2, 3, 8), RNG.integers(0, 256, (1, 2, 4, 8), dtype=np.uint8)
    scale = np.full((1, 1, 1, 1), 2.0**-7, np.float32)
    scales = {"k_scale": scale, "v_scale": scale}
    for code, own, other in (("u8", k, k.view(np.int8)), ("i8", k.view(np.int8), k)):
        plan = heed.plan(q_heads=2, dim=8, kv_dtype=code)
        near = own / 2.0**7
        oracle.check(plan.run(x, own, own, **scales), oracle.attention(x, near, near)[0])
        for given, name in (((other, own), "k"), ((own, other), "v")):
            with pytest.raises(ValueError, match=f"^{name} is of .8; {own.dtype} is needed"):
                plan.run(x, *given, **scales)


def test_wrong_scales_and_zeros():
    q, (codes, ones) = oracle.normal(RNG, 1, 2, 3, 8), (np.ones((1, 2, 10, 8), t) for t in (np.uint8, np.float32))
    plan = heed.plan(q_heads=2, dim=8, kv_dtype="u8")
    run = lambda k_scale, k_zero: plan.run(q, codes, codes, k_scale=k_scale, k_zero=k_zero, v_scale=ones[:, :1, :1, :1])
    for n in (1, 3, 4, 5, 10):  # groups of one size have so many
        run(ones[:, :, :n, :1], None)
    with pytest.raises(ValueError, match="k_scale has 2 along 10 keys, as groups of 5 to 9 have; k_key_group"):
        run(ones[:, :, :2, :1], None)
    for n in (6, 7, 8, 9, 11, 20):
        with pytest.raises(ValueError, match=f"k_scale has {n} along 10 keys"):
            run(np.ones((1, 2, n, 1), np.float32), None)
    for group, words in ((0, "a key group is 0"), (2**31, "more than 2"), (4, r"groups of 4 \(k_key_group\) have 3"), (1, "have 10")):
        with pytest.raises(ValueError, match=words):
            plan.run(q, codes, codes, k_scale=ones[:, :, :2, :1], v_scale=ones[:, :1, :1, :1], k_key_group=group)
    with pytest.raises(ValueError, match="v_key_group is given without v_scale"):
        plan.run(q, codes, codes, k_scale=ones[:, :1, :1, :1], v_key_group=4)
    repeated, own = np.broadcast_to(ones[:1, :1, :1, :1], (1, 2, 10, 1)), ones[..., :1].copy()
    run(repeated, repeated)
    run(own, own.copy())
    for scale, zero in ((repeated, own), (own, repeated), (own, own[:, :, ::-1]), (own, own[:, :1])):
        with pytest.raises(ValueError, match="k_zero differs from k_scale in shape or strides"):
            run(scale, zero)


# ---- merge ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("cut", [0, 1, 6, 13])
def test_merge(layout, cut):
    q, k, v = qkv()
    order = (0, 1, 2, 3) if layout == "bhsd" else (0, 2, 1, 3)
    q, k, v = (x.transpose(order) for x in (q, k, v))
    rows = 2 if layout == "bhsd" else 1
    part = [np.take(x, range(cut), rows) for x in (k, v)], [np.take(x, range(cut, 13), rows) for x in (k, v)]
    a = heed.attention(q, *part[0], layout=layout, return_lse=True)
    b = heed.attention(q, *part[1], layout=layout, return_lse=True)
    out, lse = heed.merge(*a, *b, layout=layout)
    want = oracle.attention(*(x.transpose(order) for x in (q, k, v)))
    oracle.check(out.transpose(order), want[0])
    oracle.check_lse(lse, want[1])
    half, _ = heed.merge(*a, *b, layout=layout, dtype="f16")
    assert half.dtype == np.float16
    oracle.check(half.transpose(order), want[0], "f16")
    again, _ = heed.merge(*a, *b, layout=layout, out=a[0])
    assert again is a[0] and (again == out).all()
    with pytest.raises(ValueError, match="differ in shape"):
        heed.merge(a[0][:1], a[1][:1], *b, layout=layout)


# ---- what there is -------------------------------------------------------------------------------------


def test_info_and_explain():
    names = [backend["name"] for backend in heed.info()["backends"]]
    assert "naive" in names and heed.info()["version"] == heed.__version__
    q, k, v = qkv()
    assert isinstance(heed.explain(q, k, v, causal=True), str)
    assert heed.explain(q, k, v, json=True).keys() == heed.explain(q_heads=4, kv_heads=2, dim=16, json=True).keys()


def test_explain_reads_what_the_call_would_write():
    q, k, v = qkv()
    plain = heed.explain(q, k, v)
    assert heed.explain(q, k, v, out=np.empty((2, 4, 9, 12), np.float32)) == plain
    heed.explain(q, k, v, out=np.empty((2, 4, 9, 12), np.float16), dtype="f16")  # which no other array has
    for out in ("nonsense", q, np.empty((2, 4, 9, 12)), np.broadcast_to(np.float32(0), (2, 4, 9, 12))):
        with pytest.raises(ValueError, match="^out "):
            heed.explain(q, k, v, out=out)
    if "naive" not in plain.splitlines()[0]:  # its loops need no more room for weights; kernels do
        assert heed.explain(q, k, v, return_weights=True) != plain


@pytest.mark.parametrize("name", ["naive", "avx2", "avx512"])
def test_backend(name):
    q, k, v = qkv()
    usable = {backend["name"] for backend in heed.info()["backends"] if backend["usable"]}
    if name not in usable:
        pytest.skip(f"this machine does not run {name}")
    with heed.backend(name), heed.threads(2):
        oracle.check(heed.attention(q, k, v), oracle.attention(q, k, v)[0])
        assert name in heed.explain(q, k, v).splitlines()[0]
        with heed.backend("naive"):
            assert "naive" in heed.explain(q, k, v).splitlines()[0]
        assert name in heed.explain(q, k, v).splitlines()[0]


def test_words_with_a_nul():
    """They are no words that end there."""
    x = oracle.normal(RNG, 1, 1, 2, 4)
    for call in (lambda: heed.backend("naive\0x"), lambda: heed.attention(x, x, x, dtype="f32\0x"),
                 lambda: heed.attention(x, x, x, layout="bhsd\0x"), lambda: heed.attention(x, x, x, position="end\0x"),
                 lambda: heed.KVCache(batch=1, capacity=1, kv_heads=1, dim=4, k_dtype="f16\0x")):
        with pytest.raises(ValueError, match="x00x"):
            call()


def test_settings_do_not_change_bits():
    q, k, v = qkv(2, 4, 2, 70, 300, 64, 64)
    want = heed.attention(q, k, v, causal=True)
    for n in (1, 2, 5):
        with heed.threads(n):
            assert (heed.attention(q, k, v, causal=True) == want).all()


@pytest.mark.parametrize("make", [list, np.array], ids=["list", "array"])
def test_a_plan_keeps_the_positions_that_it_was_given(make):
    """What becomes of the caller's list or array afterwards is nothing to it, nor to a layer."""
    x, w = np.ones((1, 1, 4, 2), np.float32), np.eye(2, dtype=np.float32)
    v = np.arange(8, dtype=np.float32).reshape(1, 1, 4, 2)
    position = make([0])
    plan = heed.plan(q_heads=1, dim=2, causal=True, position=position)
    layer = heed.MultiHeadAttention(1, w, w, w, causal=True, position=position)
    want, rows = plan.run(x, x, v).copy(), layer(v[0]).copy()
    position[0] = 3
    assert (plan.run(x, x, v) == want).all() and (layer(v[0]) == rows).all()
