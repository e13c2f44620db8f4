"""ggml's own CPU backend, by ctypes: FLASH_ATTN_EXT over a cache that both ggml and Heed can
read."""

import ctypes
import os

import numpy as np

TYPE = {"f32": 0, "q4_0": 2, "q8_0": 8}


class InitParams(ctypes.Structure):
    _fields_ = [
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", ctypes.c_void_p),
        ("no_alloc", ctypes.c_bool),
    ]


class Plan(ctypes.Structure):
    """ggml_cplan."""

    _fields_ = [
        ("work_size", ctypes.c_size_t),
        ("work_data", ctypes.c_void_p),
        ("n_threads", ctypes.c_int),
        ("threadpool", ctypes.c_void_p),
        ("abort_callback", ctypes.c_void_p),
        ("abort_callback_data", ctypes.c_void_p),
        ("use_ref", ctypes.c_bool),
    ]


POINTERS = ("ggml_init", "ggml_new_tensor_4d", "ggml_flash_attn_ext", "ggml_new_graph", "ggml_get_data")


class Library:
    def __init__(self, folder):
        base, cpu = (os.path.join(folder, f"libggml-{name}.so") for name in ("base", "cpu"))
        if not os.path.exists(cpu):
            raise ImportError(f"there is no {cpu}: integrations/ggml/run.sh builds it")
        self.base = ctypes.CDLL(base, mode=ctypes.RTLD_GLOBAL)
        self.cpu = ctypes.CDLL(cpu)
        for name in POINTERS:
            getattr(self.base, name).restype = ctypes.c_void_p
        self.base.ggml_version.restype = ctypes.c_char_p
        self.cpu.ggml_graph_plan.restype = Plan
        self.cpu.ggml_cpu_init()

    def version(self):
        return self.base.ggml_version().decode()

    def variants(self, problem, threads):
        if problem.dtype not in TYPE:
            return [("FLASH_ATTN_EXT", f"it has no type {problem.dtype}")]
        return [("FLASH_ATTN_EXT", Attention(self, problem, threads))]


class Attention:
    """A graph with one operation for each set of keys and values."""

    def __init__(self, library, problem, threads):
        self.library, self.problem = library, problem
        base, cpu = library.base, library.cpu
        room = len(problem.k) * (problem.bytes + (4 << 20)) + problem.q.nbytes
        self.context = ctypes.c_void_p(base.ggml_init(InitParams(room, None, False)))
        q = self._tensor("f32", problem.dim, 1, problem.q_heads, problem.q)
        self.graphs = []
        for codes in problem.k:
            k, v = (
                self._tensor(problem.dtype, problem.dim, problem.kv_len, problem.kv_heads, part)
                for (part,) in codes
            )
            scale = ctypes.c_float(problem.dim**-0.5)
            none = ctypes.c_float(0)
            out = ctypes.c_void_p(
                base.ggml_flash_attn_ext(self.context, q, k, v, None, scale, none, none)
            )
            graph = ctypes.c_void_p(base.ggml_new_graph(self.context))
            base.ggml_build_forward_expand(graph, out)
            self.graphs.append((graph, out))
        self.plan = cpu.ggml_graph_plan(self.graphs[0][0], threads, None)
        self.work = np.empty(self.plan.work_size + 64, np.uint8)
        self.plan.work_data = self.work.ctypes.data
        self.words = ctypes.byref(self.plan)

    def _tensor(self, dtype, dim, rows, heads, data):
        base = self.library.base
        sizes = (ctypes.c_int64(n) for n in (dim, rows, heads, 1))
        tensor = ctypes.c_void_p(base.ggml_new_tensor_4d(self.context, TYPE[dtype], *sizes))
        ctypes.memmove(base.ggml_get_data(tensor), data.ctypes.data, data.nbytes)
        return tensor

    def call(self, i):
        self.last = i
        if self.library.cpu.ggml_graph_compute(self.graphs[i][0], self.words):
            raise RuntimeError("ggml_graph_compute failed")

    def output(self):
        """The output; ggml's is [dim, heads, rows] with the innermost axis first."""
        size = self.problem.q_heads * self.problem.dim
        at = self.library.base.ggml_get_data(self.graphs[self.last][1])
        data = np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(ctypes.c_float)), (size,))
        return data.reshape(self.problem.q_heads, self.problem.dim)

    def close(self):
        self.library.base.ggml_free(self.context)
