"""When something is wrong, heed run ends with the right status and one clear line on stderr.

Usage: test_errors.py PLUGIN_FOLDER HEED...
"""

import math
import random
import struct
import sys

import harness
import npy
from harness import check, finish, folder, one_line, refused, run

SHAPE = (2, 4, 3, 5)


def save(name, shape, code="f4", value=1, **how):
    return npy.save(
        folder / f"{name}.npy", npy.Array(shape, [value] * math.prod(shape)), code, **how
    )


def arguments(*options, q=None, k=None, v=None, out=None):
    """The arguments of a call that is right, apart from the given ones."""
    plain = folder / "plain.npy"
    return [
        "run",
        "--query",
        q or plain,
        "--key",
        k or plain,
        "--value",
        v or plain,
        "--out",
        out or folder / "out.npy",
        *options,
    ]


def usage():
    refused([], "a command is required")
    refused(["walk"], "walk")
    refused(["run"], "--query is required")
    plain = folder / "plain.npy"
    for missing in ("query", "key", "value", "out"):
        given = {name: plain for name in ("query", "key", "value", "out") if name != missing}
        refused(
            ["run"] + [x for name, path in given.items() for x in (f"--{name}", path)],
            f"--{missing} is required",
        )
    refused(arguments("--sofcap", "3"), "--sofcap")
    refused(arguments("--scal", "3"), "--scal")  # options cannot be abbreviated
    refused(arguments("extra"), "'extra'")
    refused(arguments("-x"), "'-x'")
    refused(arguments("--scale"), "--scale needs")
    refused(arguments("--scores", "raw"), "--scores needs")
    refused(arguments("--explain=yes"), "--explain takes no value")
    refused(arguments("--scale", "1", "--scale", "1"), "--scale is given twice")
    for name, value in (
        ("scale", "two"),
        ("scale", "1x"),
        ("scale", ""),
        ("softcap", "much"),
        ("softcap", "1e-60"),
        ("scale", "-1e-60"),
        ("scale", "0x1p-999"),
        ("window", "3"),
        ("window", "1,2,3"),
        ("window", "a,b"),
        ("window", ","),
        ("window", "1,"),
        ("window", "99999999999999999999,1"),
        ("layout", "sbhd"),
        ("dtype", "f64"),
        ("accuracy", "best"),
        ("kv-type", "q4_2"),
        ("k-type", "none"),
        ("v-type", "F16"),
        ("threads", "0"),
        ("threads", "-1"),
        ("threads", "many"),
        ("q-offset", "3000000000"),
        ("q-offset", "9223372036854775808"),
    ):
        refused(arguments(f"--{name}", value), f"--{name}")
    odd = save("odd_dim", (2, 4, 3, 48))  # no whole number of blocks
    for name, value in (("kv-type", "q4_0"), ("k-type", "q8_0"), ("v-type", "iq4_nl")):
        sentence = f"--{name} {value}: a head has 48 elements, a multiple of 32 is required"
        refused(arguments(f"--{name}", value, q=odd, k=odd, v=odd), sentence)
        refused(["explain", f"--{name}", value, "--qk-dim", "48"], sentence)
    refused(["explain", "--kv-type", "u4", "--qk-dim", "64", "--v-dim", "33"], "a multiple of 2")
    refused(arguments("--scores", "cooked", folder / "s.npy"), "cooked")
    refused(arguments("--causal=top"), "bottom-right")
    refused(arguments("--causal=bottom-right", "--q-offset", "1"), "--q-offset")
    refused(arguments("--heatmap=0"), "--heatmap")
    refused(arguments("--heatmap=2,0"), "--heatmap")
    refused(arguments("--heatmap=0,4"), "--heatmap")
    refused(arguments("--heatmap=0,-1"), "--heatmap")


def invalid():
    """Arguments that the library refuses with HEED_ERR_INVALID."""
    refused(arguments("--scale", "nan"), "scale")
    refused(arguments("--scale", "inf"), "scale")
    refused(arguments("--scale", "1e99"), "scale")
    refused(arguments("--softcap", "-1"), "softcap")
    refused(arguments("--softcap", "inf"), "softcap")
    refused(arguments("--window", "-2,0"), "window_left")
    refused(arguments("--window", "0,-7"), "window_right")
    lens = npy.save(folder / "lens.npy", npy.Array([2], [3, 4]), "i4")
    refused(arguments("--kv-len", lens), "kv_len")
    lens = npy.save(folder / "lens.npy", npy.Array([2], [-1, 3]), "i8")
    refused(arguments("--kv-len", lens), "kv_len")
    refused(arguments("--backend", "nothing"), "nothing")
    refused(arguments("--backend", "naive,nothing"), "nothing")
    if "backend amx" in run("info")[1]:
        message = "heed: refused: backend 'amx' cannot run here: "
        baseline = {"HEED_MAX_ISA": "baseline"}
        refused(["explain", "--backend", "amx,naive"], message, 3, baseline)
    refused(arguments(), "nothing", environment={"HEED_BACKEND": "nothing"})
    refused(arguments(), "HEED_MAX_ISA", environment={"HEED_MAX_ISA": "sse5"})
    odd = save("odd", (2, 3, 3, 5))
    refused(arguments(k=odd, v=odd), "multiple")
    empty = save("empty", (2, 4, 3, 0))
    refused(arguments(q=empty, k=empty), "dim")
    refused(arguments(v=empty), "dim")
    nobody = save("nobody", (2, 0, 3, 5))
    refused(arguments(q=nobody), "heads")


def shapes():
    for name in ("q", "k", "v"):
        for shape in ((), (5,), (3, 5), (4, 3, 5), (1, 2, 4, 3, 5)):
            refused(arguments(**{name: save("bad", shape)}), "four dimensions")
        for code in ("i4", "i8", "b1", "u2"):
            refused(arguments(**{name: save("bad", SHAPE, code)}), code)
        refused(arguments("--dtype", "f32", **{name: save("bad", SHAPE, "u2")}), "u2")
        refused(arguments("--dtype", "bf16", **{name: save("bad", SHAPE, "i4")}), "i4")
        refused(arguments(**{name: save("bad", (3, 4, 3, 5))}), "sequences")
    refused(arguments(k=save("bad", (2, 4, 3, 6))), "elements")
    refused(arguments(v=save("bad", (2, 2, 3, 5))), "heads")
    refused(arguments(v=save("bad", (2, 4, 2, 5))), "rows")
    refused(arguments("--layout", "bshd", k=save("bad", (2, 3, 2, 5))), "heads")
    refused(arguments(q=save("bad", (0, 1 << 31, 0, 5))), "2^31")
    for name, good in (("mask", "b1"), ("bias", "f4")):
        for shape in (
            (),
            (3,),
            (2, 3),
            (3, 2),
            (3, 4),
            (2, 3, 3),
            (3, 4, 3, 3),
            (1, 2, 4, 3, 3),
            (2, 4, 3, 2),
            (2, 4, 0, 3),
        ):
            refused(arguments(f"--{name}", save("bad", shape, good)), "broadcast")
        for code in {"f4", "i4", "b1", "i8", "u2"} - {good}:
            refused(arguments(f"--{name}", save("bad", (3, 3), code)), code)
    for start in ("4", "-1", "2147483647"):  # a mask of any width: its start is what is wrong
        for shape in ((3, 3), (3, 0)):
            mask = save("bad", shape, "b1")
            refused(
                arguments("--mask", mask, "--mask-from", start),
                f"--mask-from [0] is {start}: 0 to 3",
            )
    for name in ("alibi", "sinks"):
        for shape in ((), (3,), (5,), (1,), (4, 1), (2, 4)):
            refused(arguments(f"--{name}", save("bad", shape)), "[4] is required")
        refused(arguments(f"--{name}", save("bad", (4,), "i4")), "[4] is required")
    for name in ("kv-len", "q-offset"):
        for shape in ((), (1,), (3,), (2, 1)):
            refused(arguments(f"--{name}", save("bad", shape, "i4")), "[2] is required")
        for code in ("f4", "f8", "b1", "u2"):
            refused(arguments(f"--{name}", save("bad", (2,), code)), "[2] is required")
        refused(arguments(f"--{name}", save("bad", (2,), "i8", 1 << 40)), "beyond 32 bits")
    # No head makes the files empty; ranges would still have 16 numbers for each of 2^60 rows.
    many = 1 << 30
    q, k = save("many_rows", (many, 0, many, 1)), save("no_keys", (many, 0, 0, 1))
    segments = save("segments", (many, 0), "i4")
    no_memory = "no memory for --segments"
    refused(arguments("--segments", segments, q=q, k=k, v=k), no_memory, 1)
    rows = save("rows", (1, 1, 18, 4))
    segments = npy.save(folder / "segments.npy", npy.Array((18,), [0, 1] * 9), "i4")
    intervals = "--segments: some row sees its segment's keys in 9 intervals"
    refused(arguments("--segments", segments, q=rows, k=rows, v=rows), intervals)


def header(text, data=b"\0" * 4 * 120, version=(1, 0)):
    path = folder / "hostile.npy"
    path.write_bytes(npy.header_bytes(text, version) + data)
    return path


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4, 3, 5), }"


def header_changes():
    """(part of GOOD, its replacement): with each, the header no longer describes 120 elements of
    f4."""
    shape = "(2, 4, 3, 5)"
    changes = [
        ("<f4", new) for new in ("<c8", "|O", "<f3", "f4", "|f4", "<f8", "", "<", "<f4\x1b[31m")
    ]
    changes += [("'<f4'", new) for new in ("[('a', '<f4')]", "4", "'<f4", "None")]
    changes += [("False", new) for new in ("Maybe", "0", "", "'False'")]
    changes += [
        (shape, new)
        for new in (
            "[2, 4, 3, 5]",
            "120",
            "(-2, 4, 3, 5)",
            "(2 4, 3, 5)",
            "(2,, 4, 3, 5)",
            "(2.0, 4, 3, 5)",
            "(2, 4, 3, 5",
            "2, 4, 3, 5)",
            "(2, 4, 3, 6)",
            "(2, 4, 3, 4)",
            "(" + "1, " * 40 + ")",
            "(" + "9" * 30 + ", 4, 3, 5)",
            f"(1, 1, 1, {1 << 50})",
        )
    ]
    changes += [
        ("'shape'", "'form'"),
        ("'shape'", "'descr'"),
        ("'descr': '<f4', ", ""),
        ("'fortran_order': False, ", ""),
        (", 'shape': " + shape, ""),
        ("{", ""),
        ("}", ""),
        ("'descr'", "'" + "d" * 500 + "'"),
        ("'descr'", "'de\\x73cr'"),
        ("'descr'", "descr"),
        (" }", " 'more': 1, }"),
        ("}", "}{}"),
    ]
    return changes


def hostile_headers():
    """Headers that do not describe the file, which has 120 elements of f4."""
    status, _, stderr = run(*arguments(q=header(GOOD)))
    check(status == 0, f"the header that the others are made from is good: {stderr}")
    texts = [GOOD.replace(old, new) for old, new in header_changes()]
    check(GOOD not in texts, "every change changes something")
    for text in texts + ["", "{", "{}", "{'descr': ", "'" * 50, "\0" * 100]:
        refused(arguments(q=header(text)), "hostile.npy", what=f"header {text[:90]!r}")
    for shape in (
        f"({1 << 61}, 4, 3, 5)",
        f"({1 << 32}, {1 << 32}, 1, 1)",
        f"({1 << 40}, {1 << 40}, 0, 5)",
        f"({1 << 61}, 1, 1, 1)",
    ):
        refused(arguments(q=header(GOOD.replace("(2, 4, 3, 5)", shape))), "larger than any memory")


def hostile_files():
    """Files that are no .npy files, are truncated or have another version."""
    content = header(GOOD).read_bytes()
    path = folder / "hostile.npy"
    for what, changed in (
        ("empty", b""),
        ("not one", b"not an array\n" * 20),
        ("magic alone", content[:6]),
        ("magic and version", content[:8]),
        ("half a header", content[:40]),
        ("no data", content[:128]),
        ("short", content[:-1]),
        ("long", content + b"\0"),
        ("version 0", content[:6] + b"\0" + content[7:]),
        ("version 4", content[:6] + b"\4" + content[7:]),
        ("version 1.1", content[:7] + b"\1" + content[8:]),
        ("a header beyond the file", content[:8] + b"\xff\xff" + content[10:]),
        ("a header of 4 GiB", content[:6] + b"\2\0" + struct.pack("<I", 2**32 - 1) + content[10:]),
        ("a header of 0 bytes", content[:8] + b"\0\0" + content[10:]),
    ):
        path.write_bytes(changed)
        refused(arguments(q=path), "hostile.npy", what=f"file: {what}")


def random_headers():
    """Random changes to the bytes of a header never cause a crash; a refusal is one line."""
    content = header(GOOD).read_bytes()
    path = folder / "hostile.npy"
    rng = random.Random(2)
    for n in range(150):
        changed = bytearray(content)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(128)] = rng.randrange(256)
        path.write_bytes(changed)
        status, _, stderr = run(*arguments(q=path))
        check(
            status in (0, 2) and (status == 0 or one_line(stderr)),
            f"random header {n}: {status}, {stderr!r}",
        )


def unreadable_files():
    """For each option, the message names the file that cannot be read."""
    content = header(GOOD).read_bytes()
    path = folder / "hostile.npy"
    for name in ("mask", "bias", "alibi", "sinks", "kv-len", "q-offset"):
        path.write_bytes(content[:-1])
        refused(arguments(f"--{name}", path), f"--{name}")
        refused(arguments(f"--{name}", folder / "absent.npy"), "absent.npy")
    for name in ("q", "k", "v"):
        refused(arguments(**{name: folder / "absent.npy"}), "absent.npy")
    refused(arguments(q=folder), str(folder)[:20])
    refused(arguments(q=folder / ("long" * 60)), "cannot be opened")


def outputs():
    nowhere = folder / "nowhere" / "file.npy"
    refused(arguments(out=nowhere), "--out")
    for name in ("lse", "weights"):
        refused(arguments(f"--{name}", nowhere), f"--{name}")
    refused(arguments("--scores", "raw", nowhere), "--scores")
    refused(arguments(out="/dev/full"), "--out")
    out = folder / "kept.npy"
    out.write_bytes(b"kept")
    refused(arguments("--softcap", "-1", out=out), "softcap")
    refused(arguments("--lse", out, "--weights", out), f"--lse and --weights name the same file {out}")
    other = folder / "linked.npy"
    other.symlink_to(out)
    for name in ("kept.npy", "not_yet.npy"):  # a file that is there, and one that is not
        detour = f"{folder}/../{folder.name}/./{name}"
        refused(arguments("--lse", detour, out=folder / name), "--out and --lse name the same file")
    refused(arguments("--scores", "raw", other, out=out), "--out and --scores name the same file")
    (folder / "link_to_link.npy").symlink_to("link.npy")
    (folder / "link.npy").symlink_to(folder / "not_yet.npy")
    refused(
        arguments("--lse", folder / "link_to_link.npy", out=folder / "not_yet.npy"),
        "--out and --lse name the same file",
    )
    (folder / "loop.npy").symlink_to("loop.npy")
    refused(arguments("--lse", folder / "loop.npy"), "--lse")
    check(not (folder / "not_yet.npy").exists(), "a run that is refused makes no file")
    status, _, stderr = run(*arguments("--lse", "/dev/null", out="/dev/null"))
    check(status == 0, f"two outputs to a device: {stderr}")
    check(out.read_bytes() == b"kept", "a run that is refused writes nothing")


def backends(plugins):
    """The status is 3 when a backend refuses, and 1 when it fails."""
    with_plugins = {"HEED_PLUGIN_PATH": plugins}
    mask = save("mask", (3, 3), "b1")
    start = "heed: refused: stumbling: "
    refused(arguments("--backend", "stumbling", "--mask", mask), start, 3, with_plugins)
    refused(arguments("--mask", mask), start, 3, {**with_plugins, "HEED_BACKEND": "stumbling"})
    refused(
        arguments("--backend", "stumbling", "--dtype", "f16"),
        start + "q, k and v must be f32 here, not f16, f16 and f16\n",
        3,
        with_plugins,
    )
    refused(arguments("--backend", "stumbling,stumbling", "--mask", mask), start, 3, with_plugins)
    status, _, stderr = run(
        *arguments("--backend", "stumbling,naive", "--mask", mask), environment=with_plugins
    )
    check(status == 0, f"the next of a list serves what the first refuses: {stderr}")
    status, _, stderr = run(*arguments("--backend", "stumbling"), environment=with_plugins)
    check(status == 0, f"the plugin runs what it serves: {stderr}")
    refused(
        arguments("--backend", "stumbling", v=save("seven", (2, 4, 3, 7))),
        "HEED_ERR_BACKEND",
        1,
        with_plugins,
    )


def main():
    harness.heed = sys.argv[2:]
    save("plain", SHAPE)
    usage()
    invalid()
    shapes()
    hostile_headers()
    hostile_files()
    random_headers()
    unreadable_files()
    outputs()
    backends(sys.argv[1])
    finish()


main()
