"""Writes the arrays of tools/demo as .npy files, with nothing but Python's own library.

    sentence.npy               the words of a sentence as scaled letter counts, [1, 1, words, 26]
    query, key, value .npy     random numbers, [2, 8, 192, 64] and [2, 2, 192, 64]: grouped queries

Usage: demo_arrays.py FOLDER
"""
import array
import math
import pathlib
import random
import struct
import sys

import usage

SENTENCE = "the cat saw the dog and the dog saw that cat"


def write_npy(path, shape, numbers):
    """Writes version 1.0 of numpy's format: magic, header length, header, float32 data in C
    order."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    data = array.array("f", numbers)
    if sys.byteorder == "big":
        data.byteswap()
    assert len(data) == math.prod(shape)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
                     + data.tobytes())


def letters(word):
    counts = [word.count(chr(ord("a") + i)) for i in range(26)]
    length = math.sqrt(sum(c * c for c in counts))
    return [c / length for c in counts]


def main():
    folder = pathlib.Path(*usage.words(__doc__, 1, 1))
    folder.mkdir(parents=True, exist_ok=True)
    words = SENTENCE.split()
    write_npy(folder / "sentence.npy", (1, 1, len(words), 26),
              [x for word in words for x in letters(word)])
    numbers = random.Random(1)
    for name, heads in (("query", 8), ("key", 2), ("value", 2)):
        shape = (2, heads, 192, 64)
        write_npy(folder / f"{name}.npy", shape,
                  [numbers.gauss(0, 1) for _ in range(math.prod(shape))])
    print(", ".join(f"{i} {word}" for i, word in enumerate(words)))


main()
