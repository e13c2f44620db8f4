"""What out= may be: apart from what is read, or the very same where that is allowed."""

import numpy as np
import oracle
import pytest

import heed

RNG = np.random.default_rng(21)
OVERLAP = "out overlaps {}: "


def one_part(rng, buffer):
    """A view of a random part of each axis, in either direction."""
    at = []
    for length in buffer.shape:
        step = int(rng.integers(1, 4))
        at.append(slice(int(rng.integers(length)), None, step) if rng.random() < 0.5 else slice(None, None, -step))
    return buffer[tuple(at)]


def test_only_shared_elements_are_refused():
    """As numpy finds them, exactly, on views of one buffer."""
    rng, refused, done = np.random.default_rng(6), 0, 0
    weight = np.eye(2, dtype=np.float32)
    layer = heed.Linear(weight)
    while refused < 300 or done < 300:
        buffer = oracle.normal(rng, *rng.integers(2, 7, 3), 4)
        x, y = (one_part(rng, buffer).transpose(*rng.permutation(4)) for _ in range(2))
        shape = [min(*n) for n in zip(x.shape, y.shape)]
        shape[3] = 2
        x, y = (a[tuple(map(slice, shape))] for a in (x, y))
        if x.shape != y.shape or x.shape[3] != 2:
            continue
        if np.shares_memory(x, y):
            refused += 1
            before = buffer.copy()
            with pytest.raises(ValueError, match=OVERLAP.format("x")):
                layer(x, out=y)
            assert (buffer == before).all()
        else:
            done += 1
            want = x.copy()
            assert layer(x, out=y) is y
            assert (y == want).all()


def test_packed_and_interleaved():
    """A buffer may hold inputs and the result side by side."""
    buffer = oracle.normal(RNG, 2, 700, 4, 3, 8)
    q, k, v, out = (buffer[:, :, n].transpose(0, 2, 1, 3) for n in range(4))
    want = oracle.attention(q, k, v)[0]
    oracle.check(heed.attention(q, k, v, out=out), want)
    heads = oracle.normal(RNG, 1, 8, 5, 8)
    want = oracle.attention(heads[:, ::2], heads[:, ::2], heads[:, ::2])[0]
    oracle.check(heed.attention(*(heads[:, ::2],) * 3, out=heads[:, 1::2]), want)


@pytest.mark.parametrize("rows", [5, 64, 1000])
def test_shifted_rows(rows):
    buffer, x = oracle.normal(RNG, 1, 2, rows + 1, 8), oracle.normal(RNG, 1, 2, rows, 8)
    front, behind = buffer[:, :, :-1], buffer[:, :, 1:]
    linear, wide = heed.Linear(np.eye(8, dtype=np.float32)), oracle.normal(RNG, rows, rows + 16)
    for name, call in (("q", lambda: heed.attention(front, x, x, out=behind)), ("k", lambda: heed.attention(x, behind, x, out=front)),
                       ("v", lambda: heed.attention(x, x, behind, out=front)), ("v", lambda: heed.attention(x, x, behind, out=behind)),
                       ("q", lambda: heed.attention(front, x, x, out=front[:, ::-1])), ("x", lambda: linear(front, out=front)),
                       ("x", lambda: heed.rotary(front, out=behind)), ("x", lambda: heed.rotary(front, out=front[:, :, ::-1])),
                       ("bias", lambda: heed.attention(x[0, 0], x[0, 0], x[0, 0], layout="sd", bias=wide[:, :rows], out=wide[:, rows - 1:rows + 7]))):
        before = buffer.copy(), wide.copy()
        with pytest.raises(ValueError, match=OVERLAP.format(name)):
            call()
        assert (buffer == before[0]).all() and (wide == before[1]).all()


def test_in_place():
    """Where each element may take the place of its own, others may not."""
    x, w = oracle.normal(RNG, 2, 4, 8), oracle.normal(RNG, 8, 8)
    layer, plain = heed.MultiHeadAttention(2, w, w, w, w), heed.MultiHeadAttention(2, w, w, w)
    want = layer(x)
    for other in (x[:, ::-1], x[::-1]):
        with pytest.raises(ValueError, match=OVERLAP.format("x")):
            layer(x, out=other)
    with pytest.raises(ValueError, match=OVERLAP.format("x")):
        plain(x, out=x)
    assert (layer(x, out=x) == want).all()
    cross, keys = heed.MultiHeadAttention(2, w, w, w, w, cross=True), oracle.normal(RNG, 2, 5, 8)
    want = cross(x, keys)
    with pytest.raises(ValueError, match=OVERLAP.format("x_kv")):
        cross(x, keys, out=keys[:, 1:])
    assert (cross(x, keys, out=keys[:, 1:].copy()) == want).all()
    added, y = heed.Linear(w, residual=True), oracle.normal(RNG, 2, 4, 8)
    want = added(x, y)
    with pytest.raises(ValueError, match=OVERLAP.format("residual")):
        added(x, y, out=y[:, ::-1])
    assert (added(x, y, out=y) == want).all()


def test_masks_of_a_layer():
    """Without wo attention writes the result, while it may still read what hides keys."""
    w, x = oracle.normal(RNG, 8, 8), oracle.normal(RNG, 1, 40, 8)
    plain, layer = heed.MultiHeadAttention(2, w, w, w), heed.MultiHeadAttention(2, w, w, w, w)
    wide = oracle.normal(RNG, 1, 40, 48)
    hidden = wide.view(np.bool_)
    for name, given in (("bias", wide[..., :40]), ("mask", hidden[..., :40])):
        want, before = layer(x, **{name: given.copy()}), wide.copy()
        with pytest.raises(ValueError, match=OVERLAP.format(name)):
            plain(x, out=wide[:, ::-1, :8], **{name: given})
        assert (wide == before).all()
        apart = plain(x, **{name: given.copy()})
        assert (plain(x, out=wide[..., 40:], **{name: given}) == apart).all()
        wide[:] = before
        assert (layer(x, out=wide[:, ::-1, :8], **{name: given}) == want).all()
        wide[:] = before


def test_in_place_of_merge():
    q, k = oracle.normal(RNG, 2, 2, 4, 8), oracle.normal(RNG, 2, 2, 6, 8)
    a, a_lse = heed.attention(q, k, k, return_lse=True)
    b, b_lse = heed.attention(q, k[:, :, ::-1] * 2, k, return_lse=True)
    want = heed.merge(a, a_lse, b, b_lse)[0]
    for other in (a[::-1], a[:, :, ::-1]):
        with pytest.raises(ValueError, match=OVERLAP.format("a")):
            heed.merge(a, a_lse, b, b_lse, out=other)
    with pytest.raises(ValueError, match=OVERLAP.format("b_lse")):
        heed.merge(a[..., :1], a_lse, b[..., :1], b_lse, out=b_lse[..., None])
    with pytest.raises(ValueError, match=OVERLAP.format("a")):
        heed.merge(a, a_lse, b, b_lse, out=a.view(np.float16)[..., :8])
    assert heed.merge(a, a_lse, b, b_lse, out=b)[0] is b and (b == want).all()


def test_outputs_that_are_repeated():
    """On whichever axis."""
    a = oracle.normal(RNG, 3, 2, 4, 8)
    lse, weight, memory = np.zeros((3, 2, 4), np.float32), np.eye(8, dtype=np.float32), np.zeros(1000, np.float32)
    for axis in range(4):
        strides = [n * (i != axis) for i, n in enumerate((256, 128, 32, 4))]
        out = np.lib.stride_tricks.as_strided(memory, (3, 2, 4, 8), strides)
        for call in (lambda: heed.merge(a, lse, a, lse, out=out), lambda: heed.attention(a, a, a, out=out),
                     lambda: heed.rotary(a, out=out), lambda: heed.Linear(weight)(a, out=out)):
            with pytest.raises(ValueError, match="outputs cannot broadcast"):
                call()
    assert not memory.any()


def test_tensors_that_require_a_gradient():
    """As PyTorch's own out= does, they are refused while gradients are recorded."""
    torch = pytest.importorskip("torch")
    x, leaf = torch.ones(1, 1, 4, 8), torch.zeros(1, 1, 4, 8, requires_grad=True)
    for out in (leaf, leaf * 2):
        for call in (lambda: heed.attention(x, x, x, out=out), lambda: heed.rotary(x, out=out)):
            with pytest.raises(ValueError, match=r"out requires a gradient, and Heed records none; within torch.no_grad"):
                call()
        assert not out.any()
    with torch.no_grad():
        assert heed.attention(x, x, x, out=leaf) is leaf and leaf.all()
    heed.attention(x, x, x, out=leaf.detach())
    with torch.inference_mode():
        fresh = torch.zeros(1, 1, 4, 8)
        assert heed.attention(x, x, x, out=fresh) is fresh and fresh.all()


def test_writes_are_counted():
    """A backward pass that needs what was there before says so."""
    torch = pytest.importorskip("torch")
    x, w = torch.ones(1, 1, 4, 8), np.eye(8, dtype=np.float32)
    lse = torch.zeros(1, 1, 4)
    layer, linear = heed.MultiHeadAttention(1, w, w, w), heed.Linear(w)
    for call in (lambda out: heed.attention(x, x, x, out=out), lambda out: heed.rotary(x, out=out), lambda out: linear(x, out=out),
                 lambda out: layer(x[0], out=out[0]), lambda out: heed.merge(x, lse, x, lse, out=out),
                 lambda out: heed.plan(q_heads=1, dim=8).run(x, x, x, out=out)):
        leaf, out = torch.ones(1, 1, 4, 8, requires_grad=True), torch.ones(1, 1, 4, 8)
        product, version = leaf * out, out._version
        call(out)
        assert out._version > version
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()
