"""Decode over a cache of codes: inputs, with the same bits for every library, and their encoders,
which compute the formulas of heed/formats.h with numpy."""

import numpy as np

from . import problem as problems

BLOCK = 32


def q8_0(x):
    """Blocks of 32: d = amax / 127 in f16, then round(x / d) as int8."""
    blocks = x.reshape(-1, BLOCK)
    d = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    codes = np.rint(blocks / np.where(d == 0, 1, d)).astype(np.int8)
    out = np.empty((len(blocks), 34), np.uint8)
    out[:, :2] = d.astype(np.float16).view(np.uint8)
    out[:, 2:] = codes.view(np.uint8)
    return out.reshape(*x.shape[:-1], -1)


def q4_0(x):
    """Blocks of 32: d = the element of greatest magnitude / -8 in f16, then floor(x / d + 8.5), at
    most 15, two in a byte: element i in the low bits, element i + 16 in the high ones."""
    blocks = x.reshape(-1, BLOCK)
    widest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    d = widest / np.float32(-8)
    codes = np.minimum(blocks / np.where(d == 0, 1, d) + np.float32(8.5), 15).astype(np.uint8)
    out = np.empty((len(blocks), 18), np.uint8)
    out[:, :2] = d.astype(np.float16).view(np.uint8)
    out[:, 2:] = codes[:, :16] | codes[:, 16:] << 4
    return out.reshape(*x.shape[:-1], -1)


def u8(x):
    """A scale and a zero for each key of a head: (code - zero) * scale covers the range of its
    numbers."""
    least, most = x.min(axis=-1, keepdims=True), x.max(axis=-1, keepdims=True)
    scale = (most - least) / np.float32(255)
    zero = -least / scale
    return np.rint(x / scale + zero).astype(np.uint8), scale[..., 0].copy(), zero[..., 0].copy()


class Problem:
    """A query row for each of q_heads, in f32. numbers are k and v, [1, kv_heads, kv_len, dim];
    self.k has, for each set that is rotated over, what the encoder returned for k and for v."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype
        self.q_heads, self.kv_heads = shape["q_heads"], shape["kv_heads"]
        self.kv_len, self.dim = shape["kv_len"], shape["qk_dim"]
        self.group = self.q_heads // self.kv_heads
        random = np.random.default_rng(1)
        self.q = random.standard_normal((1, self.q_heads, 1, self.dim), dtype=np.float32)
        size = (1, self.kv_heads, self.kv_len, self.dim)
        self.numbers = [random.standard_normal(size, dtype=np.float32) for _ in range(2)]
        first = [{"q8_0": q8_0, "q4_0": q4_0, "u8": u8}[dtype](x) for x in self.numbers]
        self.bytes = sum(part.nbytes for code in first for part in parts(code))
        sets = -(-problems.rotation_bytes() // self.bytes)
        free = problems.available_bytes()
        if free and 3 * sets * self.bytes > free:
            raise MemoryError(f"needs {3 * sets * self.bytes >> 20} MiB, {free >> 20} are available")
        # Each set has its own memory.
        self.k = [[tuple(part.copy() for part in parts(code)) for code in first] for _ in range(sets)]

    def oracle(self, _):
        """Attention over the numbers before they were encoded, in float64."""
        q = self.q.reshape(self.kv_heads, self.group, self.dim).astype(np.float64)
        k, v = (x[0].astype(np.float64) for x in self.numbers)
        s = q @ k.transpose(0, 2, 1) / np.sqrt(self.dim)
        w = np.exp(s - s.max(axis=-1, keepdims=True))
        return (w @ v / w.sum(axis=-1, keepdims=True)).reshape(self.q_heads, self.dim)

    def error(self, output, oracle):
        """The relative L2 error of an output [q_heads, dim]."""
        return float(np.linalg.norm(output - oracle) / np.linalg.norm(oracle))


def parts(code):
    return code if isinstance(code, tuple) else (code,)
