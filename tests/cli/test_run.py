"""heed run: the file formats, and every option compared with attention in plain Python.

Usage: test_run.py HEED...
"""

import math
import sys

import harness
import npy
from harness import attend, check, finish, folder, run
from problem import (
    BATCH,
    DIM,
    HEADS,
    KEYS,
    KV_HEADS,
    ROWS,
    V_DIM,
    K,
    Q,
    V,
    compare,
    files,
    numbers,
    per,
    plain_files,
    rng,
    save,
)

SLOPES = [npy.f32(s) for s in (0.5, 0.25, 0.125, 0.0625)]
SINKS = [0.5, -math.inf, 2.0, -1.0]


def lens():
    return per([BATCH], "i4", "lens", [7, 4])


def alibi():
    return per([HEADS], "f4", "alibi", SLOPES)


def sinks():
    return per([HEADS], "f8", "sinks", SINKS)


def scales():
    """What is applied to scores after the product: a scale, a softcap."""
    compare("plain", [])
    compare("--scale", ["--scale", "0.25"], scale=0.25)
    compare("--scale with a minus", ["--scale", "-0.5"], scale=-0.5)
    compare("--scale=", ["--scale=-5e-1"], scale=-0.5)
    compare("--softcap", ["--softcap", "1.5", "--scale", "2"], softcap=1.5, scale=2)
    compare("--softcap 0 is off", ["--softcap", "0"])


def positions():
    """Which keys a row sees by its position and the number of keys."""
    compare("--causal", ["--causal"], causal=True)
    compare("--causal and an offset", ["--causal", "--q-offset", "2"], causal=True, offset=[2, 2])
    compare("a negative offset", ["--causal", "--q-offset", "-2"], causal=True, offset=[-2, -2])
    compare("--kv-len", ["--kv-len", lens()], kv_len=[7, 4])
    compare("--kv-len i8", ["--kv-len", per([BATCH], "i8", "lens8", [0, 5])], kv_len=[0, 5])
    compare("--causal=bottom-right", ["--causal=bottom-right"], causal=True, offset=[2, 2])
    compare(
        "--causal=bottom-right with lengths",
        ["--causal=bottom-right", "--kv-len", lens()],
        causal=True,
        offset=[2, -1],
        kv_len=[7, 4],
    )
    for code in ("i4", "i8"):
        offsets = per([BATCH], code, "offsets", [3, -1])
        compare(
            f"--q-offset {code}", ["--q-offset", offsets, "--causal"], causal=True, offset=[3, -1]
        )
    compare("--window", ["--window", "2,1"], window=(2, 1))
    compare("--window -1,2", ["--window", "-1,2"], window=(-1, 2))
    compare("--window=1,-1", ["--window=1,-1"], window=(1, -1))
    compare("--window -1,-1 is off", ["--window", "-1,-1"])
    compare(
        "the offset acts on the window",
        ["--window", "1,0", "--q-offset", "2"],
        window=(1, 0),
        offset=[2, 2],
    )


def heads():
    """Options with a number for each head."""
    compare("--alibi", ["--alibi", alibi()], alibi=SLOPES)
    compare(
        "the offset acts on ALiBi",
        ["--alibi", alibi(), "--q-offset", "-3"],
        alibi=SLOPES,
        offset=[-3, -3],
    )
    compare(
        "bottom-right acts on all",
        ["--alibi", alibi(), "--causal=bottom-right", "--window", "2,-1"],
        alibi=SLOPES,
        causal=True,
        offset=[2, 2],
        window=(2, -1),
    )
    compare("--sinks", ["--sinks", sinks()], sinks=SINKS)
    compare("an offset without use", ["--q-offset", "3"])


def everything():
    """All options together, and the scores of each stage."""
    mask4 = npy.Array(
        (BATCH, HEADS, ROWS, KEYS), (rng.random() < 0.6 for _ in range(BATCH * HEADS * ROWS * KEYS))
    )
    bias = numbers(BATCH, HEADS, ROWS, KEYS).map(lambda x: -math.inf if x > 1 else x)
    given = ["--causal", "--q-offset", "2", "--window", "4,-1", "--scale", "0.75", "--softcap", "3"]
    given += ["--alibi", alibi(), "--sinks", sinks(), "--mask", save("mask", mask4, "b1")]
    given += ["--bias", save("bias", bias, "f4"), "--kv-len", lens()]
    problem = {
        "causal": True,
        "offset": [2, 2],
        "window": (4, -1),
        "scale": 0.75,
        "softcap": 3,
        "alibi": SLOPES,
        "sinks": SINKS,
        "mask": mask4,
        "bias": bias,
        "kv_len": [7, 4],
    }
    compare("everything", given, **problem)
    for stage in ("raw", "softcapped", "biased"):
        compare(f"--scores {stage}", given, keep=(stage,), **problem)
        compare(
            f"--scores {stage} beside the rest",
            given,
            keep=("lse", stage, "out", "weights"),
            **problem,
        )
    for name in ("lse", "weights"):
        compare(f"--{name} without --out", given, keep=(name,), **problem)


def broadcasting():
    """Masks and biases of 2 to 4 dimensions, aligned from the right: three are [heads, q, kv]."""
    for shape in (
        (ROWS, KEYS),
        (1, KEYS),
        (ROWS, 1),
        (1, 1),
        (HEADS, ROWS, KEYS),
        (1, ROWS, KEYS),
        (HEADS, 1, KEYS),
        (BATCH, HEADS, ROWS, KEYS),
        (BATCH, 1, 1, KEYS),
        (1, HEADS, ROWS, 1),
        (BATCH, 1, ROWS, KEYS),
    ):
        mask = npy.Array(shape, (rng.random() < 0.7 for _ in range(math.prod(shape))))
        compare(f"mask {shape}", ["--mask", save("mask", mask, "b1")], mask=mask)
        bias = numbers(*shape).map(lambda x: -math.inf if x > 1.2 else x)
        compare(f"bias {shape}", ["--bias", save("bias", bias, "f4", fortran=True)], bias=bias)


def formats():
    """The kinds of files: orders of axes and of bytes, and versions."""
    plain = attend(*plain_files())["out"][0].data
    for what, how in (
        ("Fortran order", {"fortran": True}),
        ("big endian", {"order": ">"}),
        ("both", {"order": ">", "fortran": True}),
        ("version 2", {"version": (2, 0)}),
        ("version 3", {"version": (3, 0)}),
    ):
        check(attend(*files(**how))["out"][0].data == plain, f"{what}: other bits than plain files")
    check(
        attend(*files("f8"))["out"][0].data == plain, "f8 files that f32 holds: other bits than f4"
    )
    check(
        attend(*files("f8", order=">", fortran=True))["out"][0].data == plain,
        "f8, big endian, Fortran",
    )
    mask = npy.Array((ROWS, KEYS), (rng.random() < 0.5 for _ in range(ROWS * KEYS)))
    compare(
        "Fortran mask", ["--mask", save("mask", mask, "b1", fortran=True)], given=files(), mask=mask
    )


def types():
    """The type that numbers are rounded to: that of the file, or that of --dtype."""
    half = [tensor.map(npy.f16) for tensor in (Q, K, V)]
    given = files("f2", *half)
    compare("f2 files are f16", [], given=given, tensors=half, code="f2")
    compare("f2 files as f32", ["--dtype", "f32"], given=given, tensors=half)
    compare(
        "f4 files as f16", ["--dtype", "f16"], given=files(), tensors=half, code="f2"
    )
    brain = [tensor.map(npy.bf16) for tensor in (Q, K, V)]
    bits = [tensor.map(npy.bf16_bits) for tensor in brain]
    for given in (files("f4"), files("f8"), files("u2", *bits)):
        for accuracy in ([], ["--accuracy", "exact"], ["--accuracy", "bf16"]):
            compare(
                f"bf16 {accuracy}",
                ["--dtype", "bf16", *accuracy],
                given=given,
                tensors=brain,
                code="bf16",
            )
    compare("--accuracy split", ["--accuracy", "split"], given=files())
    small = [half[0], K, half[2]]
    mixed = (
        "--query",
        save("q", half[0], "f2"),
        "--key",
        save("k", K, "f4"),
        "--value",
        save("v", half[2], "f2"),
    )
    compare(
        "each tensor has its own type", [], given=mixed, tensors=small, code="f2"
    )
    for code in ("f2", "f8"):
        sinks = [0.5, 1.0, -0.25, 4.0]
        compare(
            f"sinks {code}",
            ["--sinks", per([HEADS], code, "sinks", sinks)],
            given=files(),
            sinks=sinks,
        )


def rounding():
    """f8 becomes f16 or bf16 in a single rounding, which shows because with one key the output is v
    itself: rounded to f32 first, the first number would be a tie and become 1."""
    values = [
        1 + 2**-11 + 2**-40,
        1 + 2**-8 + 2**-40,
        1 + 3 * 2**-8 - 2**-40,
        -(1 + 2**-11 + 2**-50),
        2.0**-25,
        2.0**-25 + 2.0**-60,
        65519.99999999999,
        1e-300,
        -0.1,
        3.0,
    ]
    one = npy.Array((1, 1, 1, 1), [1.0])
    v = npy.Array((1, 1, 1, len(values)), values)
    given = files("f8", one, one, v)
    for dtype, rounded in (("f16", npy.f16), ("bf16", npy.bf16), ("f32", npy.f32)):
        got = attend(*given, "--dtype", dtype)["out"][0].data
        want = [rounded(x) for x in values]
        if dtype != "f16":  # subnormals of f32 may be flushed to zero; 1e-300 is far below them
            want = [0.0 if abs(x) < 2.0**-126 else x for x in want]
        check(list(got) == want, f"f8 as {dtype}: {got} instead of {want}")


def layouts():
    """--layout gives the order of the axes of query, key, value and out, and of nothing else."""
    turned = [t.transposed((0, 2, 1, 3)) for t in (Q, K, V)]
    plain = attend(*files(), keep=("out", "lse", "weights"))
    given = files("f4", *turned)
    keep = attend(*given, "--layout", "bshd", keep=("out", "lse", "weights"))
    if plain and keep:
        check(keep["out"][0].shape == (BATCH, ROWS, HEADS, V_DIM), "bshd: shape of out")
        check(keep["out"][0].transposed((0, 2, 1, 3)).data == plain["out"][0].data, "bshd: out")
        check(keep["lse"][0].data == plain["lse"][0].data, "bshd: lse stays")
        check(keep["weights"][0].data == plain["weights"][0].data, "bshd: weights stay")
    again = attend(*files(), "--layout", "bhsd")
    check(again and again["out"][0].data == plain["out"][0].data, "--layout bhsd is the default")
    half = files("f4", *turned)
    check(
        attend(*half, "--layout", "bshd", "--dtype", "bf16")["out"][0].shape
        == (BATCH, ROWS, HEADS, V_DIM),
        "bshd: shape of a bf16 out",
    )


def threads_and_empty():
    plain = attend(*files(), "--threads", "1")["out"][0].data
    for n in ("2", "3", "7"):
        check(
            attend(*files(), "--threads", n)["out"][0].data == plain, f"--threads {n} changes bits"
        )
    check(
        attend(*files(), backend=None)["out"][0].shape == (BATCH, HEADS, ROWS, V_DIM),
        "automatic choice",
    )
    for shape, what in (
        ((BATCH, HEADS, 0, DIM), "no rows"),
        ((0, HEADS, ROWS, DIM), "no sequences"),
    ):
        k = npy.Array((shape[0], KV_HEADS, KEYS, DIM), [0.0] * (shape[0] * KV_HEADS * KEYS * DIM))
        got = attend(*files("f4", npy.Array(shape, []), k, k), keep=("out", "lse", "weights"))
        check(got and got["out"][0].shape == shape and got["out"][0].data == [], what)
        check(got and got["weights"][0].shape == shape[:3] + (KEYS,), f"{what}: weights")
        for start in ("2", per([shape[0]], "i4", "start", [2] * shape[0])):
            columns = KEYS - 2 if shape[0] or start == "2" else KEYS
            mask = per([shape[2], columns], "b1", "mask", [True] * (shape[2] * columns))
            got = attend(*files("f4", npy.Array(shape, []), k, k), "--mask", mask, "--mask-from", start)
            check(got and got["out"][0].shape == shape, f"{what}: --mask-from {start}")
    none = npy.Array((BATCH, KV_HEADS, 0, DIM), [])
    sinks = per([HEADS], "f4", "sinks", [0.5, 1, 2, -3])
    got = attend(*files("f4", Q, none, none), "--sinks", sinks, keep=("out", "lse"))
    check(got and set(got["out"][0].data) == {0.0}, "no keys: out is 0")
    check(
        got
        and got["lse"][0].data
        == [s for _ in range(BATCH) for s in (0.5, 1, 2, -3) for _ in range(ROWS)],
        "no keys: lse is the sink",
    )


def shades(stdout):
    return [line.split("|")[1] for line in stdout.splitlines() if line.count("|") == 2]


def heatmap():
    """The heatmap has a character for each row and key: '@' for a weight of 1, blank for 0."""
    n = 6
    eye = npy.Array(
        (1, 2, n, n),
        [
            40.0 * (i == (j if h == 0 else n - 1 - j))
            for h in range(2)
            for i in range(n)
            for j in range(n)
        ],
    )
    given = ("run", *files("f4", eye, eye, eye), "--scale", "1")

    def drawn(*options, environment=None):
        status, stdout, stderr = run(*given, *options, environment=environment)
        check(status == 0 and stderr == "", f"heat map {options}: status {status}, {stderr}")
        return shades(stdout), stdout

    rows, text = drawn("--heatmap")
    check(
        rows == [" " * i + "@" + " " * (n - 1 - i) for i in range(n)],
        f"heat map of one-hot rows: {rows}",
    )
    check("sequence 0, head 0: 6 rows x 6 keys" in text, "heat map says what it shows")
    rows, _ = drawn("--heatmap=0,1", "--out", folder / "out.npy")
    check(rows and rows[0].strip() == "@", "heat map beside --out")
    flat = npy.Array((1, 1, 1, 4), [0.0] * 4), npy.Array((1, 1, 4, 4), [0.0] * 16)
    status, stdout, _ = run("run", *files("f4", flat[0], flat[1], flat[1]), "--heatmap")
    check(
        status == 0 and "|++++|" in stdout,
        f"a quarter of the weight is halfway between the shades: {stdout}",
    )


def heatmap_sizes():
    """Heatmaps of many keys, of hidden keys and of NaNs."""
    none = npy.Array((1, 1, 1, 600), [0.0] * 600), npy.Array((1, 1, 600, 600), [0.0] * 360000)
    status, stdout, _ = run(
        "run", *files("f4", none[0], none[1], none[1]), "--heatmap", environment={"COLUMNS": "1000"}
    )
    check(status == 0 and "|" + "." * 600 + "|" in stdout, "weights of 1 / 600 are seen, as dots")
    segments = npy.Array((8,), [0, 0, 0, 1, 1, 2, 2, 2])
    two = npy.Array((1, 1, 8, 4), [0.0] * 32)
    status, stdout, _ = run(
        "run", *files("f4", two, two, two), "--segments", save("segments", segments, "i4"), "--heatmap"
    )
    rows = shades(stdout)
    check(
        status == 0
        and [[c != " " for c in row] for row in rows]
        == [[a == b for b in segments.data] for a in segments.data],
        f"a heat map shows what segments hide: {stdout}",
    )
    few = npy.Array((1, 1, 500, 600), [0.0] * 300000)
    status, stdout, _ = run(
        "run", *files("f4", none[0], few, few), "--heatmap", environment={"COLUMNS": "1000"}
    )
    check(status == 0 and "|" + "." * 500 + "|" in stdout, "weights of 1 / 500 are dots")
    wide = [numbers(1, 1, 100, 4), numbers(1, 1, 300, 4), numbers(1, 1, 300, 4)]
    status, stdout, _ = run("run", *files("f4", *wide), "--heatmap", environment={"COLUMNS": "60"})
    check(
        status == 0
        and max(map(len, stdout.splitlines()[1:-2])) <= 60
        and len(stdout.splitlines()) < 60,
        "a heat map fits the terminal",
    )
    bad = npy.Array((1, 1, 1, 1), [math.nan])
    status, stdout, _ = run("run", *files("f4", bad, bad, bad), "--heatmap")
    check(status == 0 and "|?|" in stdout, "a NaN shows in the heat map")


def explain():
    status, stdout, _ = run(
        "run", *files(), "--explain", "--out", folder / "out.npy", "--backend", "naive"
    )
    check(status == 0 and "naive" in stdout, "--explain says what ran")


def exact_row(kind, dim):
    """A row that its codes represent exactly, because its scale is a power of two."""
    table = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
    least, most, ends = {
        "i8": (-127, 127, (127,)),
        "u8": (0, 255, (0, 255)),
        "u4": (-3, 12, (-3, 12)),
        "q8_0": (-127, 127, (-127,)),
        "q4_0": (-8, 7, (-8,)),
        "q4_1": (-5, 10, (-5, 10)),
        "q5_0": (-16, 15, (-16,)),
        "q5_1": (0, 31, (0, 31)),
    }.get(kind, (0, 0, ()))
    row = []
    for _ in range(dim // 32):
        block = [rng.randint(least, most) for _ in range(32)]
        if kind == "f8_e4m3":
            block = [rng.choice((-1, 1)) * rng.randint(8, 15) * 2.0 ** rng.randint(-9, 4) for _ in range(32)]
            ends = (448,)
        if kind == "iq4_nl":
            block = [rng.choice(table) for _ in range(32)]
            ends = (-127,)
        for value, place in zip(ends, rng.sample(range(32), len(ends))):
            block[place] = value
        row += block
    return row


def codes():
    """Keys and values that a type of codes represents exactly give the results of the plain
    numbers."""
    dim, types = 64, ("i8", "u8", "u4", "f8_e4m3", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
    q = numbers(BATCH, HEADS, ROWS, dim)

    def rows(kind):
        values = (exact_row(kind, dim) for _ in range(BATCH * KV_HEADS * KEYS))
        return npy.Array((BATCH, KV_HEADS, KEYS, dim), (npy.f32(x * 2.0**-6) for row in values for x in row))

    for kind, other in zip(types, types[1:] + types[:1]):
        k, v = rows(kind), rows(other)
        given = files(q=q, k=k, v=v)
        how = dict(tensors=(q, k, v), given=given, unit=128.0)
        compare(f"--k-type {kind} --v-type {other}", ["--k-type", kind, "--v-type", other], **how)
        compare(f"--kv-type {other} --k-type {kind}", ["--kv-type", other, "--k-type", kind, "--causal"], causal=True, **how)
        k = npy.Array(k.shape, (npy.f32(x * rng.uniform(0.7, 1.3)) for x in k.data))
        out = attend(*files(q=q, k=k, v=v), "--kv-type", kind)
        check(out and out["out"][0].data != attend(*files(q=q, k=k, v=v))["out"][0].data, f"{kind} rounds")
    status, _, stderr = run("run", *plain_files(), "--kv-type", "q8_0", "--out", folder / "o.npy")
    check(status == 2 and "--kv-type q8_0: a head has 3 elements, a multiple of 32" in stderr, f"rows of blocks: {stderr}")
    status, _, stderr = run("run", *plain_files(), "--v-type", "q9", "--out", folder / "o.npy")
    check(status == 2 and "--v-type q9 is none of" in stderr, f"a type that there is not: {stderr}")


def structure():
    """Structured masks give the results of the plain masks that they describe."""

    def masked(what, seen, *given, **problem):
        mask = npy.Array((1, 1, ROWS, KEYS), [seen(i, j) for i in range(ROWS) for j in range(KEYS)])
        compare(what, [*map(str, given)], mask=mask, **problem)

    ids, offset = [0, 0, 1, 1, 1, -1, 2], KEYS - ROWS
    segments = save("segments", npy.Array((KEYS,), ids), "i4")

    def in_segment(i, j):
        return ids[j] >= 0 and ids[i + offset] == ids[j]

    masked("segments", in_segment, "--segments", segments)
    masked("segments of shorter sequences", in_segment, "--segments", segments, "--kv-len", lens(), kv_len=[7, 4])
    each = save("each", npy.Array((BATCH, KEYS), ids * BATCH), "i4")
    masked("segments of each sequence", in_segment, "--segments", each, "--kv-len", lens(), kv_len=[7, 4])
    pairs = [[(0, 1 + i % 2), (3, 3 + i % 4)] for i in range(ROWS)]
    flat = [n for row in pairs for pair in row for n in pair]
    ranges = save("ranges", npy.Array((ROWS, 2, 2), flat), "i8")
    masked("ranges", lambda i, j: any(a <= j < b for a, b in pairs[i]), "--ranges", ranges)
    bits = [[True, False, True], [False, True, True], [True, True, False]]
    blocks = save("blocks", npy.Array((3, 3), sum(bits, [])), "b1")
    masked("key blocks", lambda i, j: bits[i // 2][j // 3], "--key-blocks", blocks, "--block", "2x3")
    late = [[(i + j) % 3 != 0 for j in range(4)] for i in range(ROWS)]
    mask = save("late", npy.Array((ROWS, 4), sum(late, [])), "b1")
    masked("a late mask", lambda i, j: j < 3 or late[i][j - 3], "--mask", mask, "--mask-from", 3)


def main():
    harness.heed = sys.argv[1:]
    for test in (
        scales,
        positions,
        heads,
        everything,
        broadcasting,
        formats,
        types,
        rounding,
        layouts,
        threads_and_empty,
        heatmap,
        heatmap_sizes,
        explain,
        codes,
        structure,
    ):
        test()
    finish()


main()
