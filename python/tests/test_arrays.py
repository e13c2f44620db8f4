"""Arrays of every kind and type are taken without copies, and results are of the same kind."""

import array
import collections
import ctypes
import sys

import numpy as np
import oracle
import pytest

import heed

RNG = np.random.default_rng(12)
SHAPES = (2, 4, 9, 16), (2, 2, 13, 16), (2, 2, 13, 12)


def qkv():
    return [oracle.normal(RNG, *shape) for shape in SHAPES]


def bf16_bits(x):
    """Rounds to bf16, to nearest even, as integers."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def of_bf16(bits):
    return (np.asarray(bits).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


# ---- numpy ---------------------------------------------------------------------------------------------


def test_numpy_types():
    q, k, v = qkv()
    half = [x.astype(np.float16) for x in (q, k, v)]
    out, lse = heed.attention(*half, return_lse=True)
    assert type(out) is np.ndarray and out.dtype == np.float16 and lse.dtype == np.float32
    oracle.check(out, oracle.attention(*half)[0], "f16")
    mixed = heed.attention(q, half[1], v)
    assert mixed.dtype == np.float32
    oracle.check(mixed, oracle.attention(q, half[1], v)[0])


def test_numpy_bf16_as_uint16():
    bits = [bf16_bits(x) for x in qkv()]
    out = heed.attention(*bits, dtype="bf16")
    assert out.dtype == np.uint16
    want = oracle.attention(*map(of_bf16, bits))[0]
    oracle.check(of_bf16(out), want, "bf16")
    own = np.empty_like(out)
    assert heed.attention(*bits, dtype="bf16", out=own) is own and (own == out).all()
    with pytest.raises(ValueError, match="bf16"):
        heed.attention(*bits)


def test_bf16_results_of_numpy_are_uint16():
    """As help says: numpy has no bf16, so what arrays of its own types give is bits."""
    q, k, v = qkv()
    x, w = oracle.normal(RNG, 5, 16), oracle.normal(RNG, 8, 16)
    y = heed.Linear(w, y_dtype="bf16")(x)
    assert y.dtype == np.uint16 and (y == bf16_bits(heed.Linear(w)(x))).all()
    part = heed.attention(q, k, v, return_lse=True)
    out, _ = heed.merge(*part, *part, dtype="bf16")
    assert out.dtype == np.uint16 and (out == bf16_bits(heed.merge(*part, *part)[0])).all()


def test_bf16_as_uint16_everywhere():
    """With dtype="bf16" every array of numbers may be uint16, in calls of layers too."""
    q, k, v = qkv()
    bits = [bf16_bits(x) for x in (q, k, v)]
    slopes, sinks, bias = bf16_bits([0.5, 0.25, 0.125, 1]), bf16_bits([1, 0, -1, 2]), bf16_bits(oracle.normal(RNG, 4, 9, 13))
    near = {"alibi": of_bf16(slopes), "sinks": of_bf16(sinks), "bias": of_bf16(bias)}
    given = {"alibi": slopes, "sinks": sinks, "bias": bias}
    for name in near:
        out = heed.attention(*bits, dtype="bf16", **{name: given[name]})
        assert (out == heed.attention(*bits, dtype="bf16", **{name: near[name]})).all(), name
        out = heed.attention(q, k, v, dtype="bf16", **{name: given[name]})  # the array that has the type
        assert (out == heed.attention(q, k, v, **{name: near[name]})).all(), name
    w = bf16_bits(oracle.normal(RNG, 16, 16))
    layer, x = heed.MultiHeadAttention(4, w, w, w, w, dtype="bf16"), bf16_bits(oracle.normal(RNG, 2, 9, 16))
    for name in near:
        cut = (lambda a: a[..., :9]) if name == "bias" else lambda a: a
        assert (layer(x, **{name: cut(given[name])}) == layer(x, **{name: cut(near[name])})).all(), name
    with pytest.raises(ValueError, match="sinks is of uint16"):
        heed.attention(q, k, v, sinks=sinks)


def test_dtype_that_no_array_has():
    """dtype= converts nothing: it says what uint16 holds, or what the arrays are."""
    q, k, v = qkv()
    half, bits = q.astype(np.float16), bf16_bits(k)
    out, lse = heed.attention(q, k, v, dtype="f32", return_lse=True)
    assert (heed.attention(q, bits, v, dtype="bf16") == heed.attention(q, of_bf16(bits), v)).all()
    assert heed.attention(half, k, v, dtype="f16").dtype == np.float16
    assert heed.attention(q, k, v, dtype=np.float16, out=np.empty(out.shape, np.float16)).dtype == np.float16
    cache, w = heed.KVCache(batch=2, capacity=40, kv_heads=2, dim=16, v_dim=12, k_dtype="bf16"), oracle.normal(RNG, 8, 16)
    cache.append(k.astype(np.float16), v, dtype="f16"), cache.append(k, v, dtype="f32"), cache.append(bits, v, dtype="bf16")
    assert heed.Linear(w, dtype="f32")(q).dtype == heed.merge(out, lse, out, lse, dtype="f32")[0].dtype == np.float32
    wrong = {"dtype is f16, which none of the arrays has: q is of f32": (
                 lambda: heed.attention(q, k, v, dtype="f16"), lambda: heed.explain(q, k, v, dtype="f16"),
                 lambda: cache.attention(q, dtype="f16"), lambda: heed.varlen(q[0], k[0], v[0], [0, 1], [0, 1], dtype="f16")),
             "dtype is bf16, which none of the arrays has: q is of f32": (
                 lambda: heed.attention(q, k, v, dtype="bf16"), lambda: cache.attention(q, dtype="bf16")),
             "dtype is f32, which none of the arrays has: q is of f16": (lambda: heed.attention(half, half, half, dtype="f32"),),
             "dtype is f16, but k is of f32 and v of f32": (lambda: cache.append(k, v, dtype="f16"),),
             "weight is of f32; f16 is needed": (lambda: heed.Linear(w, dtype="f16"),),
             "x is of f32; f16 is needed": (lambda: heed.rotary(q, dtype="f16"),),
             "out is of f32, dtype is f16": (lambda: heed.merge(out, lse, out, lse, dtype="f16", out=out),)}
    for words, calls in wrong.items():
        for call in calls:
            with pytest.raises(ValueError, match=f"^{words}"):
                call()
    assert cache.lens == [39, 39]


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    given = [x.astype(ml_dtypes.bfloat16) for x in qkv()]
    out = heed.attention(*given)
    assert out.dtype == ml_dtypes.bfloat16
    oracle.check(out.astype(np.float32), oracle.attention(*(x.astype(np.float32) for x in given))[0], "bf16")
    own = np.empty(out.shape, ml_dtypes.bfloat16)
    heed.attention(*given, out=own)
    assert (own == out).all()
    plan = heed.plan(q_heads=4, kv_heads=2, dim=16, v_dim=12, dtype=ml_dtypes.bfloat16)
    assert (plan.run(*given) == out).all()


def test_ml_dtypes_e4m3():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = qkv()
    k8, v8 = (x.astype(ml_dtypes.float8_e4m3fn) for x in (k, v))
    plan, one = heed.plan(q_heads=4, kv_heads=2, dim=16, v_dim=12, kv_dtype=ml_dtypes.float8_e4m3fn), np.ones((1, 1, 1, 1), np.float32)
    want = oracle.attention(q, k8.astype(np.float32), v8.astype(np.float32))[0]
    oracle.check(plan.run(q, k8, v8, k_scale=one, v_scale=one), want)
    oracle.check(plan.run(q, *(np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1] for x in (k8, v8)), k_scale=one, v_scale=one), want)
    with pytest.raises(ValueError, match="^k is of f8_e4m3; f32, f16 or bf16 is needed"):
        heed.attention(q, k8, v8)


def test_types_of_numpy_that_have_no_buffer():
    """numpy's own words for that name no argument."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, w = oracle.normal(RNG, 1, 1, 8, 8), oracle.normal(RNG, 8, 8)
    for other in (x.astype(ml_dtypes.float8_e5m2), x.astype("M8[s]"), x.astype(ml_dtypes.int4)):
        cache = heed.KVCache(batch=1, capacity=8, kv_heads=1, dim=8)
        plan = heed.plan(q_heads=1, dim=8, kv_dtype="i8")
        calls = {"q is of": lambda: heed.attention(other, x, x), "k is of": lambda: heed.attention(x, other, x),
                 "out is of": lambda: heed.attention(x, x, x, out=other), "mask is of": lambda: heed.attention(x, x, x, mask=other),
                 "bias is of": lambda: heed.attention(x, x, x, bias=other), "kv_lens is of": lambda: heed.attention(x, x, x, kv_lens=other),
                 "sinks is of": lambda: heed.attention(x, x, x, sinks=other), "k is of another": lambda: plan.run(x, other, other),
                 "k is of another type and v of f32": lambda: cache.append(other, x), "x is of": lambda: heed.rotary(other),
                 "weight is of": lambda: heed.Linear(other[0, 0]), "a_lse is of": lambda: heed.merge(x, other[0], x, x[0]),
                 "ranges is": lambda: heed.attention(x, x, x, ranges=other), "ids is": lambda: heed.masks.segments(other),
                 "bits is": lambda: heed.masks.blocks(other, block_rows=1, block_keys=1),
                 "positions is": lambda: heed.rotary(x, positions=other), "x is of another": lambda: heed.Linear(w)(other),
                 "wq is of": lambda: heed.MultiHeadAttention(1, other[0, 0], w, w),
                 "k_scale is": lambda: plan.run(x, *(np.zeros((1, 1, 8, 8), np.int8),) * 2, k_scale=other, v_scale=other)}
        for words, call in calls.items():
            with pytest.raises(ValueError, match=f"^{words}"):
                call()


def views(x):
    """The same numbers with other strides."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
    wide[..., 1::2] = x
    yield "every second column", wide[..., 1::2]
    yield "backwards", np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1]
    yield "Fortran", np.asfortranarray(x)
    yield "transposed", np.ascontiguousarray(x.transpose(2, 0, 3, 1)).transpose(1, 3, 0, 2)
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
    raw[:] = np.frombuffer(x.tobytes(), np.uint8)
    yield "unaligned", raw.view(x.dtype).reshape(x.shape)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_views(dtype):
    q, k, v = (x.astype(dtype) for x in qkv())
    want = oracle.attention(q, k, v)[0]
    name = "f32" if dtype == np.float32 else "f16"
    for views_of in zip(views(q), views(k), views(v)):
        oracle.check(heed.attention(*(view for _, view in views_of)), want, name)
    one = np.broadcast_to(k[:, :1], k.shape)  # strides of 0
    oracle.check(heed.attention(q, one, v), oracle.attention(q, one, v)[0], name)


def test_subclass_and_read_only():
    class Own(np.ndarray):
        pass

    q, k, v = qkv()
    k.flags.writeable = False
    out = heed.attention(q.view(Own), k, v)
    oracle.check(out, oracle.attention(q, k, v)[0])


def test_axes_of_more_than_32_bits():
    """They repeat by strides of 0, so no memory is needed, and their lower 32 bits would fit."""
    x, huge = oracle.normal(RNG, 1, 1, 1, 1), 2**32 + 1
    heads, dims, pairs = (1, huge, 1, 1), (1, 1, 1, huge), (1, 1, 1, huge, 2)
    wide = lambda shape: np.broadcast_to(x, shape)
    ranges = np.broadcast_to(np.array([0, 1], np.int32), pairs)
    for call in (lambda: heed.explain(wide(heads), x, x), lambda: heed.explain(x, wide(heads), wide(heads)),
                 lambda: heed.explain(wide(dims), wide(dims), x), lambda: heed.explain(x, x, wide(dims)),
                 lambda: heed.explain(x, x, x, ranges=ranges), lambda: heed.rotary(wide(heads), dims=2, out=wide(heads)),
                 lambda: heed.rotary(wide(dims), dims=2, out=wide(dims))):
        with pytest.raises(ValueError, match=f"is {huge}, more than 2\\^31 - 1"):
            call()


def test_arrays_greater_than_memory():
    """They repeat by strides of 0; the bytes of what is made of them do not fit 64 bits."""
    wide = lambda *shape: memoryview(np.broadcast_to(np.float32(1), shape))
    with pytest.raises(MemoryError):
        heed.attention(wide(2**29, 1, 2**30, 1), wide(2**29, 1, 1, 1), wide(2**29, 1, 1, 2**10))
    with pytest.raises(MemoryError):
        heed.Linear(np.ones((2**10, 1), np.float32))(wide(2**31, 2**29, 1))
    with pytest.raises(MemoryError):
        heed.masks.blocks(np.broadcast_to(np.True_, (2**31, 2**30, 1, 1)), block_rows=1, block_keys=1)
    few = np.zeros(1, np.int32)
    for shape in ((2**31, 2**31), (2**32, 2**32), (2**60, 16)):
        with pytest.raises(MemoryError):
            heed.masks.segments(Absent(few.ctypes.data, *shape, code=0, bits=32, repeats=True))
        with pytest.raises(ValueError, match="ids has more elements than memory"):
            heed.masks.segments(Absent(few.ctypes.data, *shape, code=0, bits=32))


def test_stride_of_no_whole_element():
    packed = np.zeros((1, 1, 3), np.dtype([("x", np.float32, 4), ("y", np.uint8)]))["x"]
    with pytest.raises(ValueError, match="stride"):
        heed.attention(packed, packed, packed)


# ---- buffers -------------------------------------------------------------------------------------------


def test_unaligned():
    """Numbers that a run reads in place as int32, uint64 or float lie at multiples of their size; f32, f16 and
    bf16 arrays may lie anywhere."""
    def off(a):
        moved = np.zeros(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
        moved[...] = a
        assert not moved.flags.aligned
        return moved

    x = np.random.default_rng(2).standard_normal((1, 1, 4, 8)).astype(np.float32)
    ranges, blocks = heed.masks.prefix(4, 2), heed.masks.blocks(np.ones((1, 1, 1, 1), bool), block_rows=4, block_keys=4)
    codes, one = np.ones((1, 1, 4, 8), np.int8), np.ones((1, 1, 1, 1), np.float32)
    coded, paged = heed.plan(q_heads=1, dim=8, kv_dtype="i8"), heed.plan(q_heads=1, dim=8, page_len=4)
    table = np.zeros((1, 1), np.int32)
    oracle.check(heed.attention(off(x), off(x), off(x), bias=off(x[..., :4])), oracle.attention(x, x, x, bias=x[..., :4])[0])
    words = (off(np.asarray(blocks[0]).view(np.uint64)),) + tuple(blocks[1:])
    for what, call in {
            "ranges": lambda: heed.attention(x, x, x, ranges=off(ranges)),
            "key_blocks": lambda: heed.attention(x, x, x, key_blocks=words),
            "block_table": lambda: paged.run(x, x, x, block_table=off(table), kv_lens=[4]),
            "positions": lambda: heed.rotary(x, positions=off(np.arange(4, dtype=np.int32))),
            "a scale": lambda: coded.run(x, codes, codes, k_scale=off(one), v_scale=one),
            "a zero": lambda: coded.run(x, codes, codes, k_scale=one, k_zero=off(one), v_scale=one)}.items():
        with pytest.raises(ValueError, match=f"{what} does not lie at a multiple"):
            call()


def test_memoryview():
    q, k, v = qkv()
    out, lse = heed.attention(*map(memoryview, (q, k, v)), return_lse=True)
    assert type(out) is heed.Array and out.shape == (2, 4, 9, 12) and out.dtype == "f32"
    oracle.check(np.asarray(out), oracle.attention(q, k, v)[0])
    assert np.asarray(out).ctypes.data == np.from_dlpack(out).ctypes.data
    assert memoryview(lse).tolist() == lse.tolist() == np.asarray(lse).tolist()
    again = heed.attention(out, np.zeros((2, 2, 13, 12), np.float32), v)  # an Array comes in too
    assert type(again) is heed.Array
    del out
    assert repr(again) == "heed.Array(shape=[2, 4, 9, 12], dtype=f32)"


def test_bf16_of_our_own():
    """An Array knows that it is bf16, though its buffer has no format for it."""
    a, b = (heed.attention(*[memoryview(bf16_bits(oracle.normal(RNG, 1, 2, 5, 8)))] * 3, dtype="bf16") for _ in range(2))
    f32 = [of_bf16(np.asarray(x)) for x in (a, b)]
    out = heed.attention(a, b, b)
    assert out.dtype == "bf16" and heed.rotary(a).dtype == "bf16"
    oracle.check(of_bf16(np.asarray(out)), oracle.attention(f32[0], f32[1], f32[1])[0], "bf16")
    assert bytes(heed.attention(a, b, b, dtype="bf16")) == bytes(out)
    cache = heed.KVCache(batch=1, capacity=8, kv_heads=2, dim=8, k_dtype="bf16")
    cache.append(b, b)
    assert bytes(cache.attention(a, False)) == bytes(out)
    with pytest.raises(ValueError, match="k is of uint16"):
        heed.attention(a, memoryview(np.asarray(b)), b)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_lists_of_16_bits(dtype):
    """Python 3.11's memoryview reads neither."""
    part = heed.attention(*map(memoryview, qkv()), return_lse=True)
    out = heed.merge(*part, *part, dtype=dtype)[0]
    given = np.asarray(out)
    assert out.dtype == dtype and given.dtype == (np.float16 if dtype == "f16" else np.uint16)
    assert out.tolist() == (given.astype(float) if dtype == "f16" else of_bf16(given).astype(float)).tolist()


def test_array_array():
    x = memoryview(array.array("f", range(6))).cast("B").cast("f", (3, 2))
    out = heed.attention(x, x, x, layout="sd")
    oracle.check(np.asarray(out)[None, None], oracle.attention(*[np.asarray(x)[None, None]] * 3)[0])


def test_ctypes():
    """Their buffers have no strides: they lie row by row."""
    q = oracle.normal(RNG, 2, 3, 4)
    given = (ctypes.c_float * 4 * 3 * 2).from_buffer_copy(q)
    out = heed.attention(given, given, given, layout="hsd")
    assert type(out) is heed.Array
    oracle.check(np.asarray(out)[None], oracle.attention(q[None], q[None], q[None])[0])
    own = (ctypes.c_float * 4 * 3 * 2)()
    assert heed.attention(q, q, q, layout="hsd", out=own) is own
    assert bytes(own) == bytes(out)
    lens = (ctypes.c_int32 * 1)(2)
    oracle.check(heed.attention(q, q, q, kv_lens=lens, layout="hsd")[None],
                 oracle.attention(q[None], q[None], q[None], kv_lens=[2])[0])
    with pytest.raises(ValueError, match="q has 1 axes"):
        heed.attention((ctypes.c_float * 4)(), q, q)


def test_elements_of_no_bytes():
    """numpy has a type of no bytes, and so has a struct of ctypes without members."""
    class Nothing(ctypes.Structure):
        _fields_ = []

    x = oracle.normal(RNG, 1, 1, 4, 8)
    for empty in (np.zeros((1, 1, 4, 8), "V0"), (Nothing * 8 * 4 * 1 * 1)()):
        for arguments in ((empty, x, x), (x, empty, x), (x, x, empty)):
            with pytest.raises(ValueError, match="elements of no bytes"):
                heed.attention(*arguments)
        with pytest.raises(ValueError, match="mask has elements of no bytes"):
            heed.attention(x, x, x, mask=empty)


def test_array_gives_dlpack_of_the_cpu_alone():
    out = heed.attention(*map(memoryview, qkv()))
    for device in (None, (1, 0)):
        for version in (None, (1, 0)):
            assert "dltensor" in repr(out.__dlpack__(dl_device=device, max_version=version))
    for device in ((2, 0), (1, 1), (10, 0)):
        with pytest.raises(BufferError, match="the Array lies on the CPU"):
            out.__dlpack__(dl_device=device)
    for device in ("cuda", 2, ("cpu", 0), (1,)):
        with pytest.raises((TypeError, IndexError)):
            out.__dlpack__(dl_device=device)


@pytest.mark.parametrize("copy", [np.array([1, 2]), "no"], ids=["array", "word"])
def test_array_copies_by_what_is_true_or_false(copy):
    """What has no truth is refused, and not answered with a capsule and an exception both."""
    x = memoryview(np.ones((1, 1, 2, 2), np.float32))
    out = heed.attention(x, x, x)
    with pytest.raises(ValueError, match="copy is .*; True or False is needed|copy is of type ndarray and neither"):
        out.__dlpack__(copy=copy)
    assert "dltensor" in repr(out.__dlpack__(copy=np.False_))


def test_array_is_in_the_order_of_c():
    """Who asks for Fortran's order is refused, unless there is one axis to order."""
    import ctypes

    view = ctypes.create_string_buffer(256)  # more than a Py_buffer
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    for shape, has_fortran in (((1, 1, 1, 5), True), ((1, 2, 3, 0), True), ((1, 2, 3, 5), False)):
        out = heed.merge(*(memoryview(np.zeros(n, np.float32)) for n in (shape, shape[:3]) * 2))[0]
        for flags, served in ((0x38, True), (0x58, has_fortran), (0x98, True)):  # C, Fortran, either
            if not served:
                with pytest.raises(BufferError, match="C-contiguous"):
                    get(ctypes.py_object(out), view, flags)
            else:
                assert get(ctypes.py_object(out), view, flags) == 0
                release(view)


def test_array_outlives_its_name():
    x = np.ones((1, 1, 2, 2), np.float32)
    view = np.asarray(heed.attention(memoryview(x), x, x))
    dl = np.from_dlpack(heed.attention(memoryview(x), x, x))
    assert (view == 1).all() and (dl == 1).all()
    with pytest.raises(TypeError):
        heed.Array()


# ---- DLPack --------------------------------------------------------------------------------------------


class Producer:
    """Speaks DLPack and nothing else, versioned or not."""

    def __init__(self, x, versioned):
        self.x, self.versioned = x, versioned

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __dlpack__(self, **options):
        if not self.versioned:
            if options:
                raise TypeError("an old library knows no max_version")
            return self.x.__dlpack__()
        return self.x.__dlpack__(**options)

    def __array_namespace__(self):
        return np


@pytest.mark.parametrize("versioned", [False, True])
def test_capsules(versioned):
    q, k, v = qkv()
    before = [sys.getrefcount(x) for x in (q, k, v)]
    for _ in range(10):
        out = heed.attention(*(Producer(x, versioned) for x in (q, k, v)))
        assert type(out) is np.ndarray  # by from_dlpack of the namespace
        oracle.check(out, oracle.attention(q, k, v)[0])
    assert [sys.getrefcount(x) for x in (q, k, v)] == before


class Plain:
    """Speaks DLPack, and neither it nor its module makes arrays of it."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)


def test_libraries_without_from_dlpack():
    q, k, v = qkv()
    for module in (Plain.__module__, "json.decoder", "there.is.none", None, 3):
        out, lse = heed.attention(*map(type("Own", (Plain,), {"__module__": module}), (q, k, v)), return_lse=True)
        assert type(out) is heed.Array and type(lse) is heed.Array
        oracle.check(np.asarray(out), oracle.attention(q, k, v)[0])
    pyarrow = pytest.importorskip("pyarrow")
    ranges = heed.masks.segments(pyarrow.array([0, 0, 1], pyarrow.int32()))
    assert ranges.tolist() == heed.masks.segments(np.array([0, 0, 1], np.int32)).tolist()


def test_copied_capsule():
    """A result that is written to a copy would be lost; what is only read may be one."""

    class Copied:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **options):
            return self.x.__dlpack__(**{**options, "copy": True})

    q, k, v = qkv()
    out = Copied(np.zeros((2, 4, 9, 12), np.float32))
    with pytest.raises(ValueError, match="out comes as a copy"):
        heed.attention(q, k, v, out=out)
    assert not out.x.any()
    want = heed.attention(q, k, v)
    assert (np.from_dlpack(heed.attention(Copied(q), Copied(k), v)) == want).all()


def test_read_only_capsule():
    q, k, v = qkv()
    out = np.empty((2, 4, 9, 12), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        heed.attention(q, k, v, out=Producer(out, True))


def test_torch():
    torch = pytest.importorskip("torch")
    q, k, v = qkv()
    want = oracle.attention(q, k, v)[0]
    for dtype, name in ((torch.float32, "f32"), (torch.float16, "f16"), (torch.bfloat16, "bf16")):
        given = [torch.from_numpy(x).to(dtype) for x in (q, k, v)]
        out, lse = heed.attention(*given, return_lse=True)
        assert type(out) is torch.Tensor and out.dtype == dtype and lse.dtype == torch.float32
        oracle.check(out.float(), oracle.attention(*(x.float() for x in given))[0], name)
        own = torch.empty(2, 9, 4, 12, dtype=dtype).transpose(1, 2)
        assert heed.attention(*given, out=own) is own and torch.equal(own, out)
    out = heed.attention(*(torch.from_numpy(x).transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)))
    oracle.check(out, want)
    out.add_(1)  # it is a tensor like any other
    mask = torch.rand(9, 13) < 0.7
    oracle.check(heed.attention(*map(torch.from_numpy, (q, k, v)), mask=mask), oracle.attention(q, k, v, mask=mask.numpy())[0])
    with pytest.raises((ValueError, NotImplementedError, RuntimeError, BufferError)):
        heed.attention(*(torch.from_numpy(x).to("meta") for x in (q, k, v)))
    lens = heed.attention(*map(torch.from_numpy, (q, k, v)), kv_lens=torch.tensor([4, 13]))
    oracle.check(lens, oracle.attention(q, k, v, kv_lens=[4, 13])[0])


class Negated:
    """As a tensor of torch whose sign has not been carried out: DLPack does not tell."""

    def __init__(self, array):
        self.array = array

    def is_neg(self):
        return True

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def test_negated_views_are_refused():
    q, k, v = qkv()
    for given in ((Negated(q), k, v), (q, Negated(k), v), (q, k, Negated(v))):
        with pytest.raises(ValueError, match=r"^[qkv] is a negated view; [qkv].resolve_neg\(\) has its numbers$"):
            heed.attention(*given)


def test_negated_views_of_torch():
    torch = pytest.importorskip("torch")
    q, k, v = map(torch.from_numpy, qkv())
    imaginary = torch.complex(v, v).conj().imag
    assert imaginary.is_neg()
    for given in ((torch._neg_view(q), k, v), (q, k, imaginary)):
        with pytest.raises(ValueError, match="is a negated view"):
            heed.attention(*given)
    with pytest.raises(ValueError, match="out is a negated view"):
        heed.attention(q, k, v, out=torch._neg_view(torch.empty(2, 4, 9, 12)))
    want = heed.attention(q, k, -v)
    assert torch.equal(heed.attention(q, k, imaginary.resolve_neg()), want)


class Absent:
    """Speaks DLPack, unversioned, of a tensor at an address of choice, C-contiguous or one element that repeats."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                    ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                    ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
                    ("deleter", ctypes.c_void_p)]

    def __init__(self, address, *shape, code=2, bits=32, repeats=False):
        self.shape, self.strides = ((ctypes.c_int64 * len(shape))(*numbers) for numbers in (shape, [0] * len(shape)))
        strides = ctypes.cast(self.strides, ctypes.c_void_p) if repeats else None
        self.tensor = self.Tensor(address, (1, 0), len(shape), code, bits, 1, self.shape, strides, 0, None, None)

    def __dlpack__(self):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


@pytest.mark.parametrize("address", [0, 128])
def test_no_memory(address):
    x = oracle.normal(RNG, 1, 1, 4, 8)
    absent = Absent(address, 1, 1, 4, 8)
    for given in ((absent, x, x), (x, absent, x), (x, x, absent)):
        with pytest.raises(ValueError, match="has no memory"):
            heed.attention(*given)
    with pytest.raises(ValueError, match="out has no memory"):
        heed.attention(x, x, x, out=absent)
    none = Absent(address, 1, 1, 0, 8)  # an array of nothing needs no memory
    assert (heed.attention(x, none, none) == 0).all()


E4M3 = {0x00: 0.0, 0x38: 1.0, 0xB8: -1.0, 0x30: 0.5, 0x3C: 1.5, 0xC4: -3.0, 0x08: 2.0**-6}  # 4 bits of exponent, bias 7, and 3


def test_e4m3_is_a_type_of_its_own():
    """Its bytes are no numbers by themselves: keys of that type are what a plan for them takes, as are raw bytes."""
    codes = RNG.choice(np.array(list(E4M3), np.uint8), (1, 2, 5, 8))
    near = np.vectorize(E4M3.get, otypes=[np.float32])(codes)
    x, f8 = oracle.normal(RNG, 1, 2, 5, 8), Absent(codes.ctypes.data, *codes.shape, code=10, bits=8)
    plan, one = heed.plan(q_heads=2, dim=8, kv_dtype="f8_e4m3"), np.ones((1, 1, 1, 1), np.float32)
    for given in (f8, codes, codes.view(np.int8)):
        oracle.check(plan.run(x, given, given, k_scale=one, v_scale=one), oracle.attention(x, near, near)[0])
    for k, v, name in ((f8, x, "k"), (x, f8, "v")):
        with pytest.raises(ValueError, match=f"^{name} is of f8_e4m3; f32, f16 or bf16 is needed .a plan with kv_dtype"):
            heed.attention(x, k, v)
    for code, needed in (("i8", "int8 is"), ("u8", "uint8 is"), ("u4", "bytes of u4 are")):
        with pytest.raises(ValueError, match=f"k is of f8_e4m3; {needed} needed"):
            heed.plan(q_heads=2, dim=8, kv_dtype=code).run(x, f8, f8)
    w = oracle.normal(RNG, 8, 8)
    bits = Absent(codes.ctypes.data, 1, 1, 5, 5, code=10, bits=8)
    for call in (lambda: heed.attention(f8, x, x), lambda: heed.attention(x, x, x, mask=bits), lambda: plan.run(f8, f8, f8),
                 lambda: heed.attention(x, x, x, bias=bits), lambda: heed.masks.blocks(bits, block_rows=1, block_keys=1),
                 lambda: heed.MultiHeadAttention(1, w, w, w)(x[0], mask=bits), lambda: heed.rotary(f8), lambda: heed.Linear(w)(f8),
                 lambda: heed.KVCache(batch=1, capacity=5, kv_heads=2, dim=8, k_dtype="f8_e4m3").append(f8, f8)):
        with pytest.raises(ValueError, match="f8_e4m3|no bool array"):
            call()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_bytes_are_no_numbers(dtype):
    """Keys of bytes have no meaning without a plan that says which code they are."""
    x, k = oracle.normal(RNG, 1, 2, 5, 8), RNG.integers(0, 99, (1, 2, 5, 8)).astype(dtype)
    for call in (lambda: heed.attention(x, k, x), lambda: heed.attention(x, x, k), lambda: heed.explain(x, k, k),
                 lambda: heed.varlen(x[0], k[0], k[0], [0, 2], [0, 2]), lambda: heed.plan(q_heads=2, dim=8).run(x, k, k)):
        with pytest.raises(ValueError, match="is of [iu]8; f32, f16 or bf16 is needed .a plan with kv_dtype takes codes"):
            call()


def whole_numbers(n):
    """The same number, as other types than int have it."""
    for dtype in (np.int8, np.int32, np.uint32, np.int64):
        yield dtype(n)
        yield np.array(n, dtype)
    try:
        import torch

        yield torch.tensor(n)
        yield torch.tensor(n, dtype=torch.int16)
    except ImportError:
        pass


class Own:
    """A sequence that is no list."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def test_sequences():
    x = oracle.normal(RNG, 2, 2, 5, 8)
    want, sunk = heed.attention(x, x, x, kv_lens=[4, 5]), heed.attention(x, x, x, sinks=[1.0, 2.0])
    for made in (tuple, Own, collections.deque):
        assert (heed.attention(x, x, x, kv_lens=made([4, 5])) == want).all()
        assert (heed.attention(x, x, x, sinks=made([1.0, 2.0])) == sunk).all()
    assert (heed.attention(x, x, x, kv_lens=range(4, 6)) == want).all() and (heed.attention(x, x, x, sinks=range(1, 3)) == sunk).all()
    assert (heed.masks.tree(range(-1, 3)) == heed.masks.tree([-1, 0, 1, 2])).all()
    for wrong in ("45", b"\4\5", bytearray(b"\4\5"), {4, 5}, {0: 4, 1: 5}, object(), iter([4, 5])):
        with pytest.raises(ValueError, match="^kv_lens "):
            heed.attention(x, x, x, kv_lens=wrong)
        with pytest.raises(ValueError, match="^sinks "):
            heed.attention(x, x, x, sinks=wrong)


def test_whole_numbers():
    """One number for all sequences is an int, a scalar of an array's library or an array without axes."""
    x, q = oracle.normal(RNG, 3, 2, 5, 8), oracle.normal(RNG, 3, 2, 2, 8)
    layer = heed.MultiHeadAttention(2, *(oracle.normal(RNG, 16, 16) for _ in range(4)), causal=True, position="start", cross=True)
    rows = oracle.normal(RNG, 3, 5, 16)
    calls = [lambda n: heed.attention(q, x, x, causal=True, position=n), lambda n: heed.attention(q, x, x, kv_lens=n),
             lambda n: heed.plan(q_heads=2, dim=8, causal=True, position=n).run(q, x, x),
             lambda n: heed.attention(q, x, x, mask=np.ones((2, 3), bool), mask_from=n), lambda n: heed.rotary(x, offsets=n),
             lambda n: heed.rotary(x, lens=n), lambda n: layer(rows, rows, position=n),
             lambda n: np.asarray(heed.masks.prefix(5, n)), lambda n: np.asarray(heed.masks.chunks(5, n))]
    for i, call in enumerate(calls):
        want = call(2)
        for n in whole_numbers(2):
            assert (call(n) == want).all(), (i, type(n))
        for wrong in (2.0, np.float32(2), np.array(2.0), np.array([[2]])):
            with pytest.raises((TypeError, ValueError)):
                call(wrong)
    with pytest.raises(ValueError, match="32 bits"):
        calls[0](np.int64(2**40))


class Strict:
    """As the array API's arrays are: __index__ for those without axes, and no __len__."""

    def __init__(self, x):
        self.x, self.ndim = np.asarray(x), np.ndim(x)

    def __index__(self):
        if self.ndim:
            raise TypeError("only arrays without axes are numbers")
        return int(self.x)

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)


def strict_arrays():
    yield Strict
    try:
        import array_api_strict

        yield array_api_strict.asarray
    except ImportError:
        pass


@pytest.mark.parametrize("made", list(strict_arrays()))
def test_arrays_without_a_length(made):
    x = oracle.normal(RNG, 2, 2, 5, 8)
    for dtype in (np.int32, np.int64):
        lens = made(np.array([3, 5], dtype))
        assert (heed.attention(x, x, x, kv_lens=lens) == heed.attention(x, x, x, kv_lens=[3, 5])).all()
        assert (heed.attention(x, x, x, kv_lens=made(np.array(3, dtype))) == heed.attention(x, x, x, kv_lens=[3, 3])).all()
        assert (heed.masks.prefix(5, lens) == heed.masks.prefix(5, [3, 5])).all()
    with pytest.raises(ValueError, match="kv_lens has 3 entries where 2 are needed"):
        heed.attention(x, x, x, kv_lens=made(np.array([1, 2, 3])))
    with pytest.raises(ValueError, match="kv_lens has 2 axes where one is needed"):
        heed.attention(x, x, x, kv_lens=made(np.array([[1, 2]])))


def test_torch_without_memory():
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = torch.ones(1, 1, 4, 8)
    freed, offset = torch.ones(1, 1, 4, 8), torch.ones(2, 1, 4, 8)[1:]
    freed.untyped_storage().resize_(0)
    offset.untyped_storage().resize_(0)
    with FakeTensorMode():
        fake = torch.ones(1, 1, 4, 8)
        with pytest.raises(ValueError, match="an output has no memory"):  # it would be fake too
            heed.attention(x, x, x)
    for absent in (freed, offset, fake):
        for given in ((absent, x, x), (x, absent, x), (x, x, absent)):
            with pytest.raises(ValueError, match="has no memory"):
                heed.attention(*given)
        with pytest.raises(ValueError, match="x has no memory"):
            heed.Linear(torch.ones(3, 8))(absent)


def test_torch_capsules():
    """What happens with a torch that has no table of functions."""
    torch = pytest.importorskip("torch")

    class Old:
        __module__ = "torch"

        def __init__(self, x):
            self.x = x

        def __dlpack__(self, stream=None):
            return self.x.__dlpack__()

    given = [Old(torch.from_numpy(x)) for x in qkv()]
    out = heed.attention(*given)
    assert type(out) is torch.Tensor
    oracle.check(out, oracle.attention(*(x.x for x in given))[0])


def test_jax():
    jax = pytest.importorskip("jax")
    q, k, v = qkv()
    given = [jax.numpy.asarray(x) for x in (q, k, v)]
    out, lse = heed.attention(*given, causal=True, return_lse=True)
    assert isinstance(out, jax.Array) and isinstance(lse, jax.Array)
    want = oracle.attention(q, k, v, causal=True)
    oracle.check(out, want[0])
    oracle.check_lse(lse, want[1])
    half = heed.attention(*(x.astype(jax.numpy.bfloat16) for x in given))
    assert half.dtype == jax.numpy.bfloat16
    oracle.check(np.asarray(half.astype(jax.numpy.float32)), oracle.attention(*(np.asarray(x.astype(jax.numpy.bfloat16).astype(jax.numpy.float32)) for x in given))[0], "bf16")


def test_libraries_mixed():
    torch = pytest.importorskip("torch")
    q, k, v = qkv()
    out = heed.attention(torch.from_numpy(q), k, memoryview(v))
    assert type(out) is torch.Tensor
    oracle.check(out, oracle.attention(q, k, v)[0])


def test_arrays_that_are_needed():
    """None is no array, and which one it was is said."""
    x, w = np.ones((1, 1, 2, 8), np.float32), np.ones((8, 8), np.float32)
    cache = heed.KVCache(batch=1, capacity=4, kv_heads=1, dim=8)
    calls = {"q k v": heed.attention, "q k v cu_q cu_k": heed.varlen, "a a_lse b b_lse": heed.merge, "x": heed.rotary, "weight": heed.Linear,
             " q k v": heed.plan(q_heads=1, dim=8).run, " q": cache.attention, " k v": cache.append, " x": heed.Linear(w),
             "  x": heed.MultiHeadAttention(1, w, w, w)}
    for names, call in calls.items():
        for i, name in enumerate(names.split()):
            given = [x] * len(names.split())
            given[i] = None
            with pytest.raises(ValueError, match=f"^{name} is None; an array is needed$"):
                call(*given)
