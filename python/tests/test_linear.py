"""Linear against numpy in float64."""

import json
import math
import re
import time

import numpy as np
import oracle
import pytest

import heed

RNG = np.random.default_rng(15)

ERF = np.vectorize(math.erf, otypes=[float])
ACTIVATIONS = {
    None: lambda s: s,
    "none": lambda s: s,
    "gelu": lambda s: s / 2 * (1 + ERF(s / np.sqrt(2))),
    "gelu_tanh": lambda s: s / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (s + 0.044715 * s**3))),
    "silu": lambda s: s / (1 + np.exp(-s)),
}


@pytest.mark.parametrize("layout", ["in_out", "out_in"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear(layout, activation):
    w, bias = oracle.normal(RNG, 24, 10), oracle.normal(RNG, 10)
    linear = heed.Linear(w if layout == "in_out" else np.ascontiguousarray(w.T), bias, layout=layout,
                         activation=activation, residual=True)
    assert (linear.in_dim, linear.out_dim) == (24, 10)
    for shape in ((24,), (1, 24), (7, 24), (2, 3, 4, 24), (0, 24)):
        x, r = oracle.normal(RNG, *shape), oracle.normal(RNG, *shape[:-1], 10)
        want = ACTIVATIONS[activation](x.astype(float) @ w.astype(float) + bias) + r
        y = linear(x, r)
        if y.size:
            oracle.check(y, want)
        assert y.shape == want.shape
        assert linear(x, r, out=r) is r  # in place
        assert (r == y).all()
    with pytest.raises(ValueError, match="residual is needed"):
        linear(x)
    assert isinstance(linear.explain(), str)


def test_linear_of_views():
    w = oracle.normal(RNG, 10, 24)
    linear = heed.Linear(w[:, ::-1])
    x = oracle.normal(RNG, 4, 5, 6, 48)[:, ::2, ::-1, ::2]
    out = np.zeros((4, 6, 3, 20), np.float32).transpose(0, 2, 1, 3)[..., ::2]
    linear(x, out=out)
    oracle.check(out, x.astype(float) @ w[:, ::-1].astype(float).T)
    oracle.check(linear(np.asfortranarray(x)), x.astype(float) @ w[:, ::-1].astype(float).T)
    for axis in 0, 1, 2:  # an out whose parts would be written one over the other
        strides = [0 if i == axis else out.strides[i] for i in range(4)]
        with pytest.raises(ValueError, match="outputs cannot broadcast"):
            linear(x, out=np.lib.stride_tricks.as_strided(out, strides=strides))


def best_time(call):
    times = []
    for _ in range(15):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def test_axes_of_length_1_are_joined():
    """The last rows of sequences, x[:, -1:], are computed at once, as they are without that axis, and not one by one:
    4096 calls of the library would take ten times as long."""
    with heed.threads(1):
        linear = heed.Linear(oracle.normal(RNG, 8, 8), residual=True)
    x, r = oracle.normal(RNG, 4096, 3, 8), oracle.normal(RNG, 4096, 8)
    want = linear(x[:, -1], r)
    for shape, given in (((4096, 1, 8), x[:, -1:]), ((4096, 1, 1, 8), x[:, -1:, None]), ((1, 4096, 1, 8), x[None, :, -1:]),
                         ((4096, 1, 8), np.ascontiguousarray(x[::-1, -1])[::-1, None])):
        assert (linear(given, r.reshape(shape)) == want.reshape(shape)).all()
    wide = np.zeros((4096, 5, 8), np.float32)
    out = wide[:, 2:3]
    linear(x[:, -1:], r[:, None], out=out)
    assert (wide[:, 2] == want).all() and (wide[:, [0, 1, 3, 4]] == 0).all()
    assert best_time(lambda: linear(x[:, -1:], r[:, None], out=out)) < 4 * best_time(lambda: linear(x[:, -1], r, out=want))


def test_linear_types_and_heads():
    w = oracle.normal(RNG, 3, 8, 16)  # heads, out, in
    x = oracle.normal(RNG, 5, 16)
    want = np.concatenate([x.astype(float) @ m.astype(float).T for m in w], 1)
    oracle.check(heed.Linear(w)(x), want)
    half = heed.Linear(w.astype(np.float16), x_dtype="f32")
    oracle.check(half(x), np.concatenate([x.astype(float) @ m.astype(np.float16).astype(float).T for m in w], 1))
    for one in w[:1], np.asfortranarray(w[:1]):
        oracle.check(heed.Linear(one)(x), want[:, :8])
        oracle.check(heed.Linear(one.swapaxes(1, 2), layout="in_out")(x), want[:, :8])
    y = heed.Linear(w, y_dtype="f16")(x)
    assert y.dtype == np.float16
    oracle.check(y, want, "f16")
    with pytest.raises(ValueError, match="x is of f16"):
        heed.Linear(w)(x.astype(np.float16))
    for bad in (lambda: heed.Linear(x[0]), lambda: heed.Linear(w, np.ones(3, np.float32)), lambda: heed.Linear(w)(x[:, :3]),
                lambda: heed.Linear(w, activation="relu"), lambda: heed.Linear(w)(x, out=x), lambda: heed.Linear(w)(x, x)):
        with pytest.raises(ValueError):
            bad()


def test_costs_say_what_they_are_of():
    """It is a number of rows that is the same whatever the layer is called with."""
    linear = heed.Linear(np.ones((64, 64), np.float32))
    for other in json.loads(linear.explain(json=True))["others"]:
        if other["can"]:
            assert re.search(r" costs less \(128 rows on one core: \d+ us, it \d+ us\)$", other["reason"]), other
