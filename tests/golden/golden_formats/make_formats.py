#!/usr/bin/env python3
"""Golden blocks of codes: numbers, the codes they become, and the numbers that codes stand for.

    python make_formats.py           writes formats.bin next to this script
    python make_formats.py --check   writes nothing; compares the file with what would be written

Needs numpy. Every formula is written here a second time, from the publications that
include/heed/formats.h names, in numpy's f32 one operation at a time; E4M3 by a search in the list
of its numbers. Where gguf and PyTorch are installed, their own conversions have to agree, on every
finite block for which they have one (last run: numpy 2.4, gguf 0.19, PyTorch 2.15).

formats.bin is a sequence of records, little endian:

    u32 what, type, n       what 0: n numbers, x[n] alone, for the records after it
    f32 scale, zero              1: those numbers become the codes, by scale and zero
    u8  code[bytes of n]         2: the same, where scale and zero are chosen anew
    f32 x[n]                     3: the codes stand for the record's own x
"""
import pathlib
import struct
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
F = np.float32
NAN, INF = F("nan"), F("inf")
MOST = np.finfo(F).max
NUMBERS, ENCODE, FRESH, DECODE = 0, 1, 2, 3
I8, U8, U4, F8, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL = range(4, 14)
Q_TYPES = (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL)
TABLE = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], F)
QUIET = b"\x00\x7e"


# ---- E4M3 ----------------------------------------------------------------------------------------

def e4m3_value(code):
    sign, exponent, fraction = -1.0 if code & 128 else 1.0, code >> 3 & 15, code & 7
    if exponent == 15 and fraction == 7:
        return float("nan")
    if exponent == 0:
        return sign * fraction / 8 * 2.0**-6
    return sign * (1 + fraction / 8) * 2.0 ** (exponent - 7)


POSITIVE = np.array([e4m3_value(code) for code in range(127)])  # ascending


def e4m3_code(x):
    """The nearest number, in f64, where all distances are exact; between two, the even code."""
    if np.isnan(x):
        return 127 | (128 if np.signbit(x) else 0)
    size = min(abs(float(x)), 448.0)
    distance = np.abs(POSITIVE - size)
    near = np.flatnonzero(distance == distance.min())
    return int(near[0] if len(near) == 1 or near[0] % 2 == 0 else near[1]) | (128 if np.signbit(x) else 0)


# ---- the types with scales -----------------------------------------------------------------------

def codes_by(kind, x, scale, zero):
    if scale == 0:
        return np.zeros(len(x), np.uint8)
    quotient = x / scale
    if kind == F8:
        return np.array([e4m3_code(v) for v in quotient], np.uint8)
    least, most = {I8: (-128, 127), U8: (0, 255), U4: (0, 15)}[kind]
    rounded = np.rint(quotient + zero)
    rounded[np.isnan(rounded)] = 0
    return np.clip(rounded, least, most).astype(np.int64).astype(np.uint8)


def fresh(kind, x):
    if np.isnan(x).any():
        return NAN, F(0)
    if np.isinf(x).any():
        return INF, F(0)
    if kind in (I8, F8):
        return np.abs(x).max() / F(127 if kind == I8 else 448), F(0)
    least, most = x.min(), x.max()
    scale = (most - least) / F(255 if kind == U8 else 15)
    if scale == 0:
        scale = np.abs(least)
    if scale == 0 or np.isinf(scale):
        return scale, F(0)
    return scale, (F(0) - least) / scale


def packed(kind, codes):
    if kind != U4:
        return codes.tobytes()
    return (codes[0::2] + 16 * codes[1::2]).astype(np.uint8).tobytes()


def values_by(kind, codes, scale, zero):
    if kind == F8:
        return np.array([e4m3_value(int(c)) for c in codes], F) * scale
    number = codes.astype(np.int8) if kind == I8 else codes
    return (number.astype(F) - zero) * scale


# ---- the Q formats -------------------------------------------------------------------------------

def f16(x):
    return QUIET if np.isnan(x) else np.float16(x).tobytes()


def cut(x, most):
    """Truncates toward zero and saturates; NaN becomes 0."""
    x = np.where(np.isnan(x), F(0), x)
    return np.clip(np.trunc(x), 0, most).astype(np.uint8)


def nibbles(codes):
    return (codes[:16] % 16 + 16 * (codes[16:] % 16)).astype(np.uint8).tobytes()


def high_bits(codes):
    return struct.pack("<I", sum(1 << i for i in range(32) if codes[i] >= 16))


def first_extreme(x):
    """The first number of the greatest magnitude; 0 if all are zeros, of whichever sign."""
    size = np.abs(x).max()
    return x[np.flatnonzero(np.abs(x) == size)[0]] if size else F(0)


def block(kind, x):
    if np.isnan(x).any():
        parts = {Q8_0: 32, Q4_0: 16, Q4_1: 16, Q5_0: 20, Q5_1: 20, IQ4_NL: 16}[kind]
        return QUIET * (2 if kind in (Q4_1, Q5_1) else 1) + bytes(parts)
    if kind == Q8_0:
        d = np.abs(x).max() / F(127)
        scaled = (x * (F(1) / d if d else F(0))).astype(np.float64)
        scaled = np.where(np.isnan(scaled), 0, scaled)
        codes = np.clip(np.copysign(np.floor(np.abs(scaled) + 0.5), scaled), -127, 127)  # exact in f64
        return f16(d) + codes.astype(np.int8).tobytes()
    if kind in (Q4_0, Q5_0):
        half = 8 if kind == Q4_0 else 16
        d = first_extreme(x) / F(-half)
        codes = cut(x * (F(1) / d if d else F(0)) + F(half + 0.5), 2 * half - 1)
        return f16(d) + (high_bits(codes) if kind == Q5_0 else b"") + nibbles(codes)
    if kind in (Q4_1, Q5_1):
        last = 15 if kind == Q4_1 else 31
        below, above = x[x < MOST], x[x > -MOST]
        least = below[np.flatnonzero(below == below.min())[0]] if len(below) else MOST  # the first of 0 and -0
        most = above[np.flatnonzero(above == above.max())[0]] if len(above) else -MOST
        d = (most - least) / F(last)
        codes = cut((x - least) * (F(1) / d if d else F(0)) + F(0.5), last)
        return f16(d) + f16(least) + (high_bits(codes) if kind == Q5_1 else b"") + nibbles(codes)
    if np.abs(x).max() < F(1e-15):
        return bytes(18)
    scaled = x * (F(1) / (first_extreme(x) / F(-127)))
    codes = np.zeros(32, np.int64)
    for i, v in enumerate(scaled):
        if np.isnan(v) or v >= TABLE[15]:
            codes[i] = 15
        elif v > TABLE[0]:
            upper = int(np.searchsorted(TABLE, v, side="right"))
            codes[i] = upper - 1 if v - TABLE[upper - 1] < TABLE[upper] - v else upper
    up = down = F(0)
    for v, c in zip(x, codes):
        weight = v * v
        up = up + weight * TABLE[c] * v
        down = down + weight * TABLE[c] * TABLE[c]
    return f16(up / down) + nibbles(codes)


def block_values(kind, data):
    d = F(np.frombuffer(data[:2], np.float16)[0])
    rest = data[2:]
    if kind == Q8_0:
        return d * np.frombuffer(rest, np.int8).astype(F)
    m = F(0)
    if kind in (Q4_1, Q5_1):
        m, rest = F(np.frombuffer(rest[:2], np.float16)[0]), rest[2:]
    high = 0
    if kind in (Q5_0, Q5_1):
        high, rest = struct.unpack("<I", rest[:4])[0], rest[4:]
    codes = [rest[j] % 16 for j in range(16)] + [rest[j] // 16 for j in range(16)]
    codes = [c + 16 * (high >> j & 1) for j, c in enumerate(codes)]
    if kind == IQ4_NL:
        return d * TABLE[codes]
    codes = np.array(codes, F)
    return d * codes + m if kind in (Q4_1, Q5_1) else d * (codes - F(8 if kind == Q4_0 else 16))


# ---- blocks of 32 numbers ------------------------------------------------------------------------

def with_values(x, **at):
    x = np.array(x, F)
    for place, value in at.items():
        x[int(place[1:])] = value
    return x


def inputs():
    draw = np.random.RandomState(19)

    def normal(n=32):
        """Sums of three uniform numbers on a grid, so that the bytes are the same everywhere."""
        return F(draw.randint(-(1 << 20), 1 << 20, size=(3, n)).sum(axis=0) / float(1 << 20))

    ramp, zero = np.arange(32).astype(F), np.zeros(32, F)
    halves = F([0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, -3.5, 4.5, 5.5, 6.5, 7.5, 0.49999997, -0.49999997, 0.50000006,
                2.4999998, 2.5000002, -2.4999998, 6.4999995, 6.5000005, 0, -0.0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5])
    yield from (zero, -zero, with_values(zero, _0=-0.0), with_values(-zero, _0=0.0), with_values(zero, _31=-0.0))
    yield from (with_values(zero, _7=1), with_values(zero, _7=-1), with_values(-zero, _3=2), with_values(zero, _3=-0.0, _4=2))
    yield from (np.full(32, F(v)) for v in (1, -3.7, 0.1, 1e-40, -1e-45, 3e38, -3e38, 65504, 1e-5, 1e-8))
    yield from (with_values(ramp / 8, _4=9, _20=-9), with_values(ramp / 8, _4=-9, _20=9), with_values(ramp * 0, _0=-1, _31=1))
    # For each extreme, d is 1 in one of the formats, and the codes are ties.
    for extreme in (127, -127, -8, 8, -16, 16):
        yield with_values(halves, _20=extreme)
        yield with_values(halves * F(3), _21=extreme)
    for most in (15, 31, 255):
        yield with_values(np.abs(halves), _31=most)
        yield with_values(np.abs(halves) * F(2) + F(0.5), _5=0, _30=most)
        yield with_values(np.abs(halves) - F(most), _22=-most, _30=0)
    middles = (TABLE[1:] + TABLE[:-1]) / F(2)
    yield np.concatenate([middles, np.nextafter(middles, INF), F([-127, 113])]).astype(F)
    yield np.concatenate([middles, np.nextafter(middles, -INF), F([-127, 126])]).astype(F)
    yield -np.concatenate([middles, TABLE, F([127])]).astype(F)
    for size in (1, 1e-15, 0.9e-15, 1.1e-15, 1e-30, 1e-38, 1e-39, 1e-44, 1e-7, 6e-8, 1e-3, 7e4, 9e6, 1e20, 1e38):
        yield normal() * F(size)
    yield from (with_values(normal(), _9=v) for v in (INF, -INF, MOST, -MOST, 1e4, -1e4))
    yield from (with_values(normal(), _0=NAN), with_values(normal(), _17=NAN), with_values(normal(), _31=NAN))
    yield from (with_values(normal(), _0=INF, _1=-INF), with_values(normal(), _0=MOST, _1=-MOST))
    yield from (np.full(32, INF), np.full(32, -INF), np.full(32, NAN), with_values(zero, _4=INF), with_values(zero, _4=NAN))
    yield with_values(normal(), _3=NAN, _8=INF)
    yield from (np.abs(normal()), -np.abs(normal()), np.abs(normal()) + F(5), F(100) - normal() / F(1000))
    yield 1 + ramp * F(2.0**-23)
    for _ in range(16):
        yield normal()
    for _ in range(8):
        yield normal() * F(2) ** draw.randint(-20, 20, size=32).astype(F)


def scales():
    """Scales of a cache: powers of two, which make ties, other numbers, zero and NaN."""
    yield from ((F(1), F(0)), (F(-0.25), F(3.5)), (F(0.037), F(7.3)), (F(0), F(9)), (NAN, F(0)), (F(1), NAN), (F(1e-40), F(0)),
                (F(2.0**-9), F(128)))


def records():
    for x in inputs():
        for kind in Q_TYPES:
            yield ENCODE, kind, F(1), F(0), x, block(kind, x)
        for kind in (I8, U8, U4, F8):
            for scale, zero in scales():
                yield ENCODE, kind, scale, zero, x, packed(kind, codes_by(kind, x, scale, zero))
            scale, zero = fresh(kind, x)
            yield FRESH, kind, scale, zero, x, packed(kind, codes_by(kind, x, scale, zero))
    # Around every E4M3 number and every midpoint of two.
    points = np.concatenate([POSITIVE, (POSITIVE[1:] + POSITIVE[:-1]) / 2, [464, 479, 480, 512, 1e30]]).astype(F)
    points = np.concatenate([points, np.nextafter(points, INF), np.nextafter(points, -INF)])
    points = np.concatenate([points, -points])
    points = np.concatenate([points, F([0] * (-len(points) % 32))])
    yield ENCODE, F8, F(1), F(0), points, packed(F8, codes_by(F8, points, F(1), F(0)))
    # Every code of every type.
    every = np.arange(256).astype(np.uint8)
    for kind in (I8, U8, F8):
        for scale, zero in ((F(1), F(0)), (F(0.3), F(17.7)), (F(-2e-40), F(-1)), (NAN, F(0)), (F(2), INF), (INF, F(3))):
            yield DECODE, kind, scale, zero, values_by(kind, every, scale, zero), every.tobytes()
    pairs = np.array([[b % 16, b // 16] for b in range(256)], np.uint8).reshape(-1)
    for scale, zero in ((F(1), F(0)), (F(0.3), F(7.7)), (F(-2e-40), F(-1)), (NAN, F(0)), (F(2), INF)):
        yield DECODE, U4, scale, zero, values_by(U4, pairs, scale, zero), every.tobytes()
    halves = [struct.pack("<H", bits) for bits in (0, 0x8000, 1, 0x8001, 0x3ff, 0x3c00, 0xbc01, 0x2e66, 0x7bff, 0x7c00, 0x7e00)]
    for i, d in enumerate(halves):
        m = halves[(i * 3 + 5) % len(halves)]
        for turn in range(8):
            codes = (every[32 * turn : 32 * turn + 32] * 3 + i).astype(np.uint8)
            low = nibbles((every[:32] * 5 + 2 * turn + i) % 16)
            high = struct.pack("<I", 0x9E3779B1 * (8 * i + turn + 1) & 0xFFFFFFFF)
            for kind, data in ((Q8_0, d + codes.tobytes()), (Q4_0, d + low), (Q4_1, d + m + low), (Q5_0, d + high + low),
                               (Q5_1, d + m + high + low), (IQ4_NL, d + low)):
                yield DECODE, kind, F(1), F(0), block_values(kind, data), data


# ---- what others say -----------------------------------------------------------------------------

def outside(kind, what, scale, x, codes):
    """The result of gguf or PyTorch for x; None where they are not installed or have none."""
    if what != ENCODE or not np.isfinite(x).all():
        return None
    try:
        if kind == F8 and scale == 1 and np.abs(x).max() <= 448:
            import torch
            return torch.tensor(x).to(torch.float8_e4m3fn).view(torch.uint8).numpy().tobytes()
        if kind in Q_TYPES and kind != IQ4_NL and 1e-30 < np.abs(x).max() < 1e30:
            from gguf import quants, GGMLQuantizationType as types
            name = {Q8_0: "Q8_0", Q4_0: "Q4_0", Q4_1: "Q4_1", Q5_0: "Q5_0", Q5_1: "Q5_1"}[kind]
            return quants.quantize(x.reshape(1, 32), types[name]).tobytes()
    except ImportError:
        pass
    return None


def main():
    out, n_outside, n_differ, n, numbers = [], 0, 0, 0, None
    with np.errstate(all="ignore"):
        for what, kind, scale, zero, x, codes in records():
            n += 1
            theirs = outside(kind, what, scale, x, codes)
            n_outside += theirs is not None
            if theirs is not None and theirs != codes:
                n_differ += 1
                print(f"type {kind} of {x}: {codes.hex()}, elsewhere {theirs.hex()}")
            if what != DECODE and numbers is not x:
                numbers = x
                out.append(struct.pack("<III", NUMBERS, 0, len(x)) + np.asarray(x, F).tobytes())
            out.append(struct.pack("<III", what, kind, len(x)) + F(scale).tobytes() + F(zero).tobytes() + codes)
            if what == DECODE:
                out.append(np.asarray(x, F).tobytes())
    data = b"".join(out)
    print(f"{n} records, {len(data)} bytes; {n_outside} compared with gguf or PyTorch, {n_differ} differ")
    if "--check" in sys.argv[1:]:
        same = (HERE / "formats.bin").read_bytes() == data
        print("formats.bin is what it would be" if same else "formats.bin differs")
        return not same or n_differ != 0
    (HERE / "formats.bin").write_bytes(data)
    return n_differ != 0


if __name__ == "__main__":
    sys.exit(main())
