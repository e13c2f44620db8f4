"""Arrays and .npy files with Python's own library: enough to give the heed command its inputs and
to read its outputs. Written from numpy's description of the format, deliberately independent of
tools/npy.c.
"""

import itertools
import math
import struct

CODES = {"f2": "e", "f4": "f", "f8": "d", "b1": "?", "i4": "i", "i8": "q", "u2": "H"}


class Array:
    """A shape, and the elements in C order."""

    def __init__(self, shape, data):
        self.shape, self.data = tuple(shape), list(data)
        assert len(self.data) == math.prod(self.shape), (self.shape, len(self.data))

    def __getitem__(self, index):
        at = 0
        for i, n in zip(index, self.shape):
            assert 0 <= i < n
            at = at * n + i
        return self.data[at]

    def broadcast(self, index):
        """The element at a full index when this array is broadcast, axes aligned from the right."""
        tail = index[len(index) - len(self.shape) :]
        return self[tuple(0 if n == 1 else i for i, n in zip(tail, self.shape))]

    def transposed(self, order):
        shape = [self.shape[a] for a in order]
        back = [order.index(a) for a in range(len(order))]
        return Array(
            shape,
            (
                self[tuple(index[b] for b in back)]
                for index in itertools.product(*map(range, shape))
            ),
        )

    def map(self, function):
        return Array(self.shape, map(function, self.data))


def header_bytes(text, version=(1, 0)):
    size = "<H" if version[0] == 1 else "<I"
    pad = -(6 + 2 + struct.calcsize(size) + len(text) + 1) % 64
    body = (text + " " * pad + "\n").encode()
    return b"\x93NUMPY" + bytes(version) + struct.pack(size, len(body)) + body


def save(path, array, code, fortran=False, order="<", version=(1, 0)):
    data = array.data
    if fortran:
        data = array.transposed(range(len(array.shape))[::-1]).data
    descr = ("|" if code == "b1" else order) + code
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {array.shape}, }}"
    packed = struct.pack(f"{order}{len(data)}{CODES[code]}", *data)
    with open(path, "wb") as file:
        file.write(header_bytes(text, version) + packed)
    return path


def load(path):
    """(Array, code) of a file. Reads only the kind that the command writes: version 1, C order,
    little endian."""
    with open(path, "rb") as file:
        content = file.read()
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:8]
    (size,) = struct.unpack("<H", content[8:10])
    assert (10 + size) % 64 == 0 and content[9 + size : 10 + size] == b"\n"
    header = eval(content[10 : 10 + size].decode(), {"__builtins__": {}})
    assert set(header) == {"descr", "fortran_order", "shape"} and not header["fortran_order"]
    assert header["descr"][0] == "<"
    code, count = header["descr"][1:], math.prod(header["shape"])
    data = struct.unpack(f"<{count}{CODES[code]}", content[10 + size :])
    return Array(header["shape"], data), code


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def f16(x):
    return struct.unpack("e", struct.pack("e", x))[0]


def bf16(x):
    """Rounds a double to bf16, once, to nearest even: by its exponent, in integers."""
    if x == 0 or math.isinf(x) or math.isnan(x):
        return x
    ulp = 2.0 ** (max(math.frexp(x)[1], -125) - 8)
    return round(x / ulp) * ulp


def bf16_bits(x):
    """The bits of a bf16 number."""
    return struct.unpack("<I", struct.pack("<f", x))[0] >> 16
