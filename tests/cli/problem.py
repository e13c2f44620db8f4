"""The problem of test_run.py: its tensors, files of them, and a run that is compared with attention
in plain Python. Random numbers come from one sequence, in the order in which the tests draw them.
"""

import functools
import math
import random

import npy
from attention import attention, worst
from harness import attend, check, folder

rng = random.Random(1)
BATCH, HEADS, KV_HEADS, ROWS, KEYS, DIM, V_DIM = 2, 4, 2, 5, 7, 3, 6


def numbers(*shape, rounded=npy.f32):
    return npy.Array(shape, (rounded(rng.gauss(0, 1)) for _ in range(math.prod(shape))))


Q, K, V = (
    numbers(BATCH, HEADS, ROWS, DIM),
    numbers(BATCH, KV_HEADS, KEYS, DIM),
    numbers(BATCH, KV_HEADS, KEYS, V_DIM),
)


def save(name, array, code, **how):
    return npy.save(folder / f"{name}.npy", array, code, **how)


def files(code="f4", q=None, k=None, v=None, **how):
    return (
        "--query",
        save("q", q or Q, code, **how),
        "--key",
        save("k", k or K, code, **how),
        "--value",
        save("v", v or V, code, **how),
    )


def per(shape, code, name, values):
    return save(name, npy.Array(shape, values), code)


def compare(
    what,
    options,
    keep=("out", "lse", "weights"),
    unit=16.0,
    code="f4",
    tensors=(Q, K, V),
    given=None,
    **problem,
):
    """Runs with the options and compares the outputs with attention(problem). code is the type that
    numbers are rounded to, unit the size of the largest. If .npy has no such type, out is f4."""
    want = attention(*tensors, **problem)
    out_code = "f2" if code == "f2" else "f4"
    for name, (got, file_code) in attend(*(given or plain_files()), *options, keep=keep).items():
        error = worst(got, want[name], code if name == "out" else "f4", unit)
        check(error <= 1, f"{what}: {name} is off by {error:.3g} times what is allowed")
        check(file_code == (out_code if name == "out" else "f4"), f"{what}: {name} is {file_code}")


@functools.cache
def plain_files():
    """Q, K and V in files of their own, which files() does not overwrite."""
    return (
        "--query",
        save("plain_q", Q, "f4"),
        "--key",
        save("plain_k", K, "f4"),
        "--value",
        save("plain_v", V, "f4"),
    )
