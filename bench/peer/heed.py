"""Heed itself, through its C API by ctypes."""

import ctypes
import glob
import os

import numpy as np

from . import problem as problems

DTYPE = {"f32": 1, "f16": 2, "bf16": 3}
HAS_SOFTCAP, HAS_CAUSAL, HAS_WINDOW, HAS_MASK, HAS_BIAS = (1 << n for n in (1, 2, 3, 5, 6))
HAS_RANGES, HAS_KEY_BLOCKS = 1 << 17, 1 << 18
POS_BOTTOM_RIGHT = 2


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_int64 * 4)]


class Quant(ctypes.Structure):
    _fields_ = [
        ("scale", ctypes.c_void_p),
        ("zero", ctypes.c_void_p),
        ("stride", ctypes.c_int64 * 4),
        ("group", ctypes.c_uint32),
        ("key_group", ctypes.c_uint32),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("n_threads", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("executor", ctypes.c_void_p),
        ("backends", ctypes.c_char_p),
        ("max_isa", ctypes.c_char_p),
        ("plugin_path", ctypes.c_char_p),
        ("verbose", ctypes.c_char_p),
        ("user", ctypes.c_void_p),
        ("alloc", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("log", ctypes.c_void_p),
    ]


class Desc(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_size_t), ("features", ctypes.c_uint64)]
        + [
            (name, ctypes.c_uint32)
            for name in (
                "q_heads",
                "kv_heads",
                "qk_dim",
                "v_dim",
                "q_type",
                "k_type",
                "v_type",
                "out_type",
                "bias_type",
                "position",
                "scores_stage",
                "page_len",
                "accuracy",
                "n_ranges",
                "block_rows",
                "block_keys",
            )
        ]
        + [("scale", ctypes.c_float), ("softcap", ctypes.c_float)]
        + [
            (name, ctypes.c_int64)
            for name in (
                "window_left",
                "window_right",
                "max_batch",
                "max_q_len",
                "max_kv_len",
                "max_rows",
            )
        ]
    )


class KernelInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("backend", ctypes.c_char_p),
        ("kernel", ctypes.c_char_p),
    ]


class Args(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_size_t), ("error", ctypes.c_void_p), ("executor", ctypes.c_void_p)]
        + [(name, ctypes.c_int64) for name in ("batch", "q_len", "kv_len")]
        + [
            (name, View)
            for name in ("q", "k", "v", "out", "mask", "bias", "lse", "weights", "scores")
        ]
        + [("k_quant", Quant), ("v_quant", Quant)]
        + [
            (name, ctypes.c_void_p)
            for name in ("q_lens", "kv_lens", "q_offsets", "q_starts", "kv_starts", "block_table")
        ]
        + [("block_table_stride", ctypes.c_int64), ("n_pages", ctypes.c_int64)]
        + [(name, ctypes.c_void_p) for name in ("alibi_slope", "bias_slope", "sink")]
        + [("ranges", View), ("key_blocks", View), ("mask_from", ctypes.c_void_p)]
    )


def runs_of(mask):
    """int32 [rows, n, 2]: the intervals in which a bool mask is True, padded with empty ones."""
    edges = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    n = int((edges == 1).sum(axis=1).max())
    runs = np.zeros((len(mask), n, 2), np.int32)
    for side, edge in enumerate((1, -1)):
        row, key = np.nonzero(edges == edge)
        place = np.arange(len(row)) - np.searchsorted(row, row)
        runs[row, place, side] = key
    for at in range(1, n):  # an empty one lies where the one before it ends
        none = runs[:, at, 1] == 0
        runs[none, at] = runs[none, at - 1, 1:]
    return runs


def block_words(mask, size):
    """uint64 [row blocks, words]: a bit for each block of keys that a row block sees."""
    seen = mask[::size, ::size]
    seen = np.pad(seen, ((0, 0), (0, -seen.shape[1] % 64)))
    return np.packbits(seen, axis=1, bitorder="little").view(np.uint64)


class Library:
    def __init__(self, build, backends=""):
        found = glob.glob(os.path.join(build, "core", "libheed.so")) or glob.glob(
            os.path.join(build, "libheed.so")
        )
        if not found:
            raise SystemExit(f"peers: there is no libheed.so in {build}/core: build Heed first")
        self.c = ctypes.CDLL(found[0])
        self.backends = backends
        self.c.heed_last_error.restype = ctypes.c_char_p
        self.c.heed_attn_workspace_bytes.restype = ctypes.c_size_t
        self.c.heed_version.restype = ctypes.c_uint32
        self.contexts = {}

    def version(self):
        v = self.c.heed_version()
        return f"{v >> 16}.{v >> 8 & 255}.{v & 255}"

    def context(self, threads):
        if threads not in self.contexts:
            options = Options(
                struct_size=ctypes.sizeof(Options),
                n_threads=threads,
                backends=self.backends.encode() or None,
            )
            context = ctypes.c_void_p()
            if self.c.heed_context_create(ctypes.byref(options), ctypes.byref(context)):
                raise SystemExit(f"peers: {self.c.heed_last_error().decode()}")
            self.contexts[threads] = context
        return self.contexts[threads]

    def variants(self, problem, threads):
        try:
            variant = Attention(self, problem, threads)
            return [(variant.kernel(), variant)]
        except RuntimeError as refusal:
            return [("heed", str(refusal))]


def view(array):
    return View(
        array.ctypes.data, (ctypes.c_int64 * 4)(*(s // array.itemsize for s in array.strides))
    )


class Attention:
    """A plan with its own workspace."""

    def __init__(self, library, problem, threads):
        self.c, self.problem = library.c, problem
        desc = self._describe()
        self.out = problem._view(
            np.zeros(
                problem.batch * problem.q_heads * problem.q_len * problem.v_dim,
                problems.ELEMENT[problem.dtype],
            ),
            problem.q_heads,
            problem.q_len,
            problem.v_dim,
        )
        self.args = Args(
            struct_size=ctypes.sizeof(Args),
            batch=problem.batch,
            q_len=problem.q_len,
            kv_len=problem.kv_len,
            q=view(problem.q),
            k=view(problem.k[0]),
            v=view(problem.v[0]),
            out=view(self.out),
        )
        self._position(desc)
        self._score(desc)
        self._mask(desc)
        self.plan = ctypes.c_void_p()
        if self.c.heed_attn_create(
            library.context(threads), ctypes.byref(desc), ctypes.byref(self.plan)
        ):
            raise RuntimeError(self.c.heed_last_error().decode())
        self._prepare(threads)

    def _describe(self):
        """Describes the shape and the types."""
        problem = self.problem
        kind = DTYPE[problem.dtype]
        return Desc(
            struct_size=ctypes.sizeof(Desc),
            q_heads=problem.q_heads,
            kv_heads=problem.kv_heads,
            qk_dim=problem.qk_dim,
            v_dim=problem.v_dim,
            q_type=kind,
            k_type=kind,
            v_type=kind,
            out_type=kind,
            max_batch=problem.batch,
            max_q_len=problem.q_len,
            max_kv_len=problem.kv_len,
        )

    def _position(self, desc):
        problem = self.problem
        if problem.mask_kind in ("causal", "window512"):
            desc.features |= HAS_CAUSAL
            desc.position = POS_BOTTOM_RIGHT
        if problem.mask_kind == "window512":
            desc.features |= HAS_WINDOW
            desc.window_left, desc.window_right = 511, -1

    def _score(self, desc):
        """Describes what is applied to scores after the product."""
        problem = self.problem
        if problem.score == "softcap":
            desc.features |= HAS_SOFTCAP
            desc.softcap = problem.capped_at
        if problem.score == "bias":
            desc.features |= HAS_BIAS
            desc.bias_type = DTYPE[problem.dtype]
            self.args.bias = View(
                problem.bias.ctypes.data, (ctypes.c_int64 * 4)(0, 0, problem.kv_len, 1)
            )

    def _mask(self, desc):
        """Describes a mask as bools, ranges or blocks of keys; self.mask owns its memory."""
        problem = self.problem
        if problem.mask_kind in ("half", "random"):
            desc.features |= HAS_MASK
            self.mask = problem.mask().astype(np.uint8)
            self.args.mask = View(
                self.mask.ctypes.data, (ctypes.c_int64 * 4)(0, 0, problem.kv_len, 1)
            )
        if problem.mask_kind in problems.RANGES:
            self.mask = runs_of(problem.mask())
            desc.features |= HAS_RANGES
            desc.n_ranges = self.mask.shape[1]
            self.args.ranges = View(
                self.mask.ctypes.data, (ctypes.c_int64 * 4)(0, 0, self.mask.shape[1], 1)
            )
        if problem.mask_kind in problems.KEY_BLOCK:
            size = problems.KEY_BLOCK[problem.mask_kind]
            self.mask = block_words(problem.mask(), size)
            desc.features |= HAS_KEY_BLOCKS
            desc.block_rows = desc.block_keys = size
            self.args.key_blocks = View(
                self.mask.ctypes.data, (ctypes.c_int64 * 4)(0, 0, self.mask.shape[1], 1)
            )

    def _prepare(self, threads):
        """Makes the workspace and the arguments of the call."""
        problem = self.problem
        size = self.c.heed_attn_workspace_bytes(self.plan, ctypes.c_uint32(threads))
        memory = np.empty(size + 64, np.uint8)
        self.workspace = memory[-memory.ctypes.data % 64 :][:size]
        self.sets = [(k.ctypes.data, v.ctypes.data) for k, v in zip(problem.k, problem.v)]
        # Converted once, so that only the call is timed.
        self.words = (
            self.plan,
            ctypes.byref(self.args),
            ctypes.c_void_p(self.workspace.ctypes.data),
            ctypes.c_size_t(size),
        )
        self.run = self.c.heed_attn_run

    def kernel(self):
        info = KernelInfo(struct_size=ctypes.sizeof(KernelInfo))
        q_len, kv_len = ctypes.c_int64(self.problem.q_len), ctypes.c_int64(self.problem.kv_len)
        if self.c.heed_attn_kernel_of(self.plan, q_len, kv_len, ctypes.byref(info)):
            return "heed"
        return info.kernel.decode()

    def call(self, i):
        self.args.k.data, self.args.v.data = self.sets[i]
        if self.run(*self.words):
            raise RuntimeError(self.c.heed_last_error().decode())

    def output(self):
        return problems.to_f32(self.out)

    def close(self):
        self.c.heed_attn_release(self.plan)
