"""Linear layers: heed_linear compared with PyTorch's matmul (weights [in, out]) and F.linear ([out,
in]), in turns, on the same numbers; each result is compared with float64. Where reading the weights
from memory is the limit, each call uses the next of several copies of them.
"""

import ctypes
import json
import os
import re
import statistics
import subprocess
import time

import numpy as np
import torch

from .heed import DTYPE, Library, View

TYPE = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
TURN, PAUSE = 0.1, 0.1  # seconds: the least of a turn; before it, as workers still spin
ROTATION = 1 << 29  # bytes of all copies of weights that come from memory
CHECKED = 64  # the rows and columns that are compared with float64


class Desc(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("features", ctypes.c_uint64)] + [
        (name, ctypes.c_uint32)
        for name in (
            "in_dim",
            "out_dim",
            "x_type",
            "w_type",
            "y_type",
            "bias_type",
            "layout",
            "activation",
            "accuracy",
            "heads",
        )
    ]


class Args(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("error", ctypes.c_void_p),
        ("executor", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("x", View),
        ("y", View),
        ("residual", View),
    ]


HAS_BIAS, ACT_GELU = 1 << 0, 1


def view(tensor):
    return View(tensor.data_ptr(), (ctypes.c_int64 * 4)(*tensor.stride()))


class Heed:
    def __init__(self, library, x, weights, bias, threads):
        self.c, kind = library.c, DTYPE[{v: k for k, v in TYPE.items()}[x.dtype]]
        self.c.heed_linear_workspace_bytes.restype = ctypes.c_size_t
        (rows, k), n = x.shape, weights[0].shape[1]
        self.x, self.y = x, torch.empty(rows, n, dtype=x.dtype)
        desc = Desc(
            struct_size=ctypes.sizeof(Desc), in_dim=k, out_dim=n, x_type=kind, w_type=kind, y_type=kind
        )
        if bias is not None:
            desc.features, desc.bias_type, desc.activation = HAS_BIAS, kind, ACT_GELU
        self.layers = []
        for weight in weights:
            layer, there = ctypes.c_void_p(), view(weight)
            if self.c.heed_linear_create(
                library.context(threads), ctypes.byref(desc), ctypes.byref(there),
                None if bias is None else ctypes.byref(view(bias)), ctypes.byref(layer)
            ):
                raise RuntimeError(self.c.heed_last_error().decode())
            self.layers.append(layer)
        self.args = Args(struct_size=ctypes.sizeof(Args), rows=rows, x=view(x), y=view(self.y))
        size = self.c.heed_linear_workspace_bytes(self.layers[0], ctypes.c_uint32(threads))
        memory = np.empty(size + 64, np.uint8)
        self.workspace = memory[-memory.ctypes.data % 64 :][:size]
        self.words = (
            ctypes.byref(self.args),
            ctypes.c_void_p(self.workspace.ctypes.data),
            ctypes.c_size_t(size),
        )

    def call(self, i):
        if self.c.heed_linear_run(self.layers[i], *self.words):
            raise RuntimeError(self.c.heed_last_error().decode())
        return self.y

    def close(self):
        for layer in self.layers:
            self.c.heed_linear_release(layer)


class Torch:
    """matmul and adding a bias, or F.linear, followed by GELU if there is a bias."""

    def __init__(self, whole, x, weights, bias):
        self.whole, self.x, self.weights, self.bias = whole, x, weights, bias

    def call(self, i):
        if self.whole:
            y = torch.nn.functional.linear(self.x, self.weights[i], self.bias)
        else:
            y = torch.matmul(self.x, self.weights[i])
            if self.bias is not None:
                y += self.bias
        return y if self.bias is None else torch.nn.functional.gelu(y)

    def close(self):
        pass


def error(got, x, weight, bias):
    """The relative L2 error of a corner of the result."""
    want = x[:CHECKED].double() @ weight[:, :CHECKED].double()
    if bias is not None:
        want = torch.nn.functional.gelu(want + bias[:CHECKED].double())
    return float((got[:CHECKED, :CHECKED].double() - want).norm() / want.norm())


def measure(ways, sets, rounds, threads):
    """{name: median seconds of a call}; in each round every way has a turn."""
    seconds = {name: [] for name in ways}
    calls, at = {}, 0
    for name, way in ways.items():
        way.call(0)
        start = time.perf_counter()
        way.call(1 % sets)
        calls[name] = max(1, round(TURN / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, way in ways.items():
            torch.set_num_threads(threads)
            if threads > 1:
                time.sleep(PAUSE)
            start = time.perf_counter()
            for _ in range(calls[name]):
                way.call(at)
                at = at + 1 if at + 1 < sets else 0
            seconds[name].append((time.perf_counter() - start) / calls[name])
    return {name: statistics.median(s) for name, s in seconds.items()}


@torch.inference_mode()
def report(options):
    """Measures and writes a Markdown table. Returns the exit status."""
    library = Library(options.build, options.backends)
    told = subprocess.run(
        [os.path.join(options.build, "bench", "heed-bench"), "--linear-shapes"],
        capture_output=True,
        text=True,
        check=True,
    )
    shapes = [s for s in json.loads(told.stdout) if re.search(options.shapes, s["name"])]
    lines = [
        f"PyTorch {torch.__version__}, Heed {library.version()}",
        "",
        "| shape | type | threads | Heed | matmul | Heed / it | F.linear | Heed / it | error, theirs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for shape in shapes:
        m, n, k = shape["m"], shape["n"], shape["k"]
        for dtype in options.dtypes.split(","):
            torch.manual_seed(1)
            size = n * k * TYPE[dtype].itemsize
            sets = ROTATION // size + 1 if shape["bound"] == "memory" else 1
            x = torch.randn(m, k).to(TYPE[dtype])
            first = torch.randn(k, n).mul_(k**-0.5).to(TYPE[dtype])
            weights = [first] + [first.clone() for _ in range(sets - 1)]
            bias = torch.randn(n).to(TYPE[dtype]) if shape["gelu"] else None
            transposed = [w.t().contiguous() for w in weights]
            for threads in (int(t) for t in options.threads.split(",")):
                ways = {
                    "heed": Heed(library, x, weights, bias, threads),
                    "matmul": Torch(False, x, weights, bias),
                    "linear": Torch(True, x, transposed, bias),
                }
                torch.set_num_threads(threads)
                off = {name: error(way.call(0), x, first, bias) for name, way in ways.items()}
                took = measure(ways, sets, options.rounds, threads)
                for way in ways.values():
                    way.close()
                speed = [f"{1e6 * took[name]:.0f} us" for name in ways]
                lines.append(
                    f"| {shape['name']} | {dtype} | {threads} | {speed[0]} | {speed[1]} | "
                    f"{took['matmul'] / took['heed']:.2f} | {speed[2]} | {took['linear'] / took['heed']:.2f} | "
                    f"{off['heed']:.1e}, {off['matmul']:.1e} |"
                )
                print(lines[-1], flush=True)
    if not shapes:
        print(f"peers: no shape matches {options.shapes}")
        return 1
    with open(options.report, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return 0
