"""Decode over caches of 8 and 4 bits: Heed, exact and int8, compared with ggml and OpenVINO, in
turns."""

import ctypes
import importlib
import json
import os
import re
import statistics
import subprocess
import sys

import numpy as np

from . import codes, ggml, heed, session

TYPE = {"u8": 5, "q8_0": 8, "q4_0": 9}
ACCURACY = {"exact": 1, "int8": 4}
HAS_QUANT = 1 << 15


class Heed:
    def __init__(self, library):
        self.library = library

    def variants(self, problem, threads):
        found = []
        for name, accuracy in ACCURACY.items():
            try:
                found.append((name, Attention(self.library, problem, threads, accuracy)))
            except RuntimeError as refusal:
                found.append((name, str(refusal)))
        return found


class Attention:
    def __init__(self, library, problem, threads, accuracy):
        self.c, self.problem = library.c, problem
        kind, heads, dim = TYPE[problem.dtype], problem.kv_heads, problem.dim
        desc = heed.Desc(
            struct_size=ctypes.sizeof(heed.Desc),
            q_heads=problem.q_heads,
            kv_heads=heads,
            qk_dim=dim,
            v_dim=dim,
            q_type=heed.DTYPE["f32"],
            k_type=kind,
            v_type=kind,
            out_type=heed.DTYPE["f32"],
            accuracy=accuracy,
            max_batch=1,
            max_q_len=1,
            max_kv_len=problem.kv_len,
        )
        if problem.dtype == "u8":
            desc.features = HAS_QUANT
        self.plan = ctypes.c_void_p()
        if self.c.heed_attn_create(
            library.context(threads), ctypes.byref(desc), ctypes.byref(self.plan)
        ):
            raise RuntimeError(self.c.heed_last_error().decode())
        self.out = np.zeros((1, problem.q_heads, 1, dim), np.float32)
        rows = (ctypes.c_int64 * 4)(0, problem.kv_len * dim, dim, 1)
        self.args = heed.Args(
            struct_size=ctypes.sizeof(heed.Args),
            batch=1,
            q_len=1,
            kv_len=problem.kv_len,
            q=heed.view(problem.q),
            k=heed.View(None, rows),
            v=heed.View(None, rows),
            out=heed.view(self.out),
        )
        size = self.c.heed_attn_workspace_bytes(self.plan, ctypes.c_uint32(threads))
        memory = np.empty(size + 64, np.uint8)
        self.workspace = memory[-memory.ctypes.data % 64 :][:size]
        self.words = (
            self.plan,
            ctypes.byref(self.args),
            ctypes.c_void_p(self.workspace.ctypes.data),
            ctypes.c_size_t(size),
        )
        self.sets = [[[part.ctypes.data for part in code] for code in pair] for pair in problem.k]
        for quant in (self.args.k_quant, self.args.v_quant) if problem.dtype == "u8" else ():
            quant.stride[1:3] = [problem.kv_len, 1]

    def call(self, i):
        k, v = self.sets[i]
        self.args.k.data, self.args.v.data = k[0], v[0]
        if len(k) == 3:
            self.args.k_quant.scale, self.args.k_quant.zero = k[1:]
            self.args.v_quant.scale, self.args.v_quant.zero = v[1:]
        if self.c.heed_attn_run(*self.words):
            raise RuntimeError(self.c.heed_last_error().decode())

    def output(self):
        return self.out.reshape(self.problem.q_heads, -1)

    def close(self):
        self.c.heed_attn_release(self.plan)


def peers(options):
    """[(name, library)] of the peers; prints those that are missing."""
    found = []
    try:
        found.append(("ggml", ggml.Library(options.ggml)))
    except (ImportError, OSError) as error:
        print(f"ggml is left out: {error}", file=sys.stderr)
    try:
        found.append(("OpenVINO", importlib.import_module(".openvino_state", __package__)))
    except ImportError as error:
        print(f"OpenVINO is left out: {error}", file=sys.stderr)
    return found


def cell(result):
    if "cannot" in result:
        return result["cannot"]
    return f"{1e3 * statistics.median(result['seconds']):.3g} ms, {result['error']:.1e}"


def line(problem, threads, results):
    """A row of the table: Heed exact, Heed int8, then the peer that can read this type."""
    ours = [r for r in results if r["who"] == "heed"]
    theirs = [r for r in results if r["who"] != "heed" and r.get("seconds")]
    cells = [problem.shape["name"], problem.dtype, str(threads), *(cell(r) for r in ours)]
    for peer in theirs:
        its = statistics.median(peer["seconds"])
        cells += [f"{peer['who']}: {cell(peer)}"] + [
            f"{its / statistics.median(r['seconds']):.2f}" if r.get("seconds") else "-" for r in ours
        ]
    return "| " + " | ".join(cells + ["-"] * (8 - len(cells))) + " |"


def report(options):
    """Measures and writes a Markdown table. Returns the exit status."""
    library = heed.Library(options.build, options.backends)
    others = peers(options)
    told = subprocess.run(
        [os.path.join(options.build, "bench", "heed-bench"), "--shapes"],
        capture_output=True,
        text=True,
        check=True,
    )
    shapes = [
        shape
        for shape in json.loads(told.stdout)
        if shape["name"].startswith("decode_b1_") and shape["qk_dim"] == shape["v_dim"]
        and shape["qk_dim"] % codes.BLOCK == 0 and not shape["simple"]
        and re.search(options.shapes, shape["name"])
    ]
    versions = [f"Heed {library.version()} ({session.commit(options.build)})"]
    versions += [f"{name} {other.version()}" for name, other in others]
    lines = [
        f"{', '.join(versions)}; {session.cpu_name()}",
        "",
        "| shape | type | threads | Heed exact | Heed int8 | peer | peer / exact | peer / int8 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for shape in shapes:
        for dtype in TYPE:
            try:
                problem = codes.Problem(shape, dtype)
            except MemoryError as error:
                print(f"{shape['name']} {dtype}: {error}", file=sys.stderr)
                continue
            for threads in (int(n) for n in options.threads.split(",")):
                results = session.measure_problem(
                    problem, threads, [("heed", Heed(library)), *others], options.rounds
                )
                lines.append(line(problem, threads, results))
                print(lines[-1], flush=True)
            del problem
    if not shapes:
        print(f"peers: no shape matches {options.shapes}", file=sys.stderr)
        return 1
    with open(options.report, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return 0
