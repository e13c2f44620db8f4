"""The inputs of a shape, with the same bits for every library, and the float64 result with which
outputs are compared."""

import re

import numpy as np

GIB = 1 << 30
KEY_BLOCK = {"blocks64": 64, "blocks128": 128}
# Masks that heed/masks.h describes by ranges.
RANGES = ("documents16", "prefix", "chunked2048", "causal_ranges", "window_ranges", "tree")
ELEMENT = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}  # numpy has no bf16: its bits


def to_bf16(x):
    """The bits of float32 numbers rounded to bf16, to nearest even; none may be NaN."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_f32(x):
    if x.dtype == np.uint16:
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float32)


def rotation_bytes():
    """Four times the last-level cache, from 1 to 2 GiB, as in heed-bench."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size", encoding="ascii") as file:
            l3 = int(re.match(r"\d+", file.read())[0]) << 10
    except (OSError, TypeError):
        l3 = 0
    return min(max(4 * l3, GIB), 2 * GIB)


def available_bytes():
    """The bytes that Linux reports as available without swapping; 0 if it reports none."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return int(re.search(r"MemAvailable:\s*(\d+) kB", file.read())[1]) << 10
    except (OSError, TypeError):
        return 0


class Problem:
    """A problem of a shape, an entry of `heed-bench --shapes`. q, k[i] and v[i] are arrays [batch,
    heads, rows, dim], views of memory in the layout of the shape; k and v have a set for each i
    that is rotated over."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype
        self.batch, self.q_heads, self.kv_heads = (
            shape["batch"],
            shape["q_heads"],
            shape["kv_heads"],
        )
        self.q_len, self.kv_len = shape["q_len"], shape["kv_len"]
        self.qk_dim, self.v_dim = shape["qk_dim"], shape["v_dim"]
        self.mask_kind, self.token_major = shape["mask"], shape["layout"] == "bshd"
        self.score, self.capped_at = shape["score"], shape["capped_at"]
        self.group = self.q_heads // self.kv_heads
        numbers = np.random.default_rng(1).standard_normal((1 << 20) + 7, dtype=np.float32)
        self._numbers = (
            numbers.astype(np.float16)
            if dtype == "f16"
            else (to_bf16(numbers) if dtype == "bf16" else numbers)
        )
        itemsize = np.dtype(ELEMENT[dtype]).itemsize
        set_elements = int(shape["kv_elements"])
        sets = 1
        if shape["bound"] == "memory":
            most = max(2 * GIB // (set_elements * itemsize), 1)
            sets = min(-(-rotation_bytes() // (set_elements * itemsize)), most)
        # A bias is [q_len, kv_len], of the type of the rest, and shared by all heads.
        self.bias = None
        if self.score == "bias":
            size = self.q_len * self.kv_len
            self.bias = np.resize(self._numbers, size).reshape(self.q_len, self.kv_len)
        q_elements = self.batch * self.q_heads * self.q_len * self.qk_dim
        memory = self._repeat(q_elements + sets * set_elements)
        self.q = self._view(memory[:q_elements], self.q_heads, self.q_len, self.qk_dim)
        self.k, self.v = [], []
        k_elements = self.batch * self.kv_heads * self.kv_len * self.qk_dim
        for i in range(sets):
            one = memory[q_elements + i * set_elements :][:set_elements]
            self.k.append(self._view(one[:k_elements], self.kv_heads, self.kv_len, self.qk_dim))
            self.v.append(
                self.k[-1][..., : self.v_dim]
                if shape["v_in_k"]
                else self._view(one[k_elements:], self.kv_heads, self.kv_len, self.v_dim)
            )

    def _repeat(self, count):
        """The numbers, repeated. Memory is left for the copies that some peers make in their own
        layout."""
        need, free = 3 * count * self._numbers.itemsize, available_bytes()
        if free and need > free:
            raise MemoryError(
                f"needs {need >> 20} MiB of memory with copies, {free >> 20} MiB are available"
            )
        memory = np.empty(count, self._numbers.dtype)
        for at in range(0, count, len(self._numbers)):
            part = memory[at : at + len(self._numbers)]
            part[:] = self._numbers[: len(part)]
        return memory

    def _view(self, memory, heads, rows, dim):
        if self.token_major:
            return memory.reshape(self.batch, rows, heads, dim).transpose(0, 2, 1, 3)
        return memory.reshape(self.batch, heads, rows, dim)

    def mask(self, rows=None):
        """None, or bool [rows, kv_len], True where a row sees a key. By default all rows."""
        if self.mask_kind == "full":
            return None
        i = np.arange(self.q_len) if rows is None else np.asarray(rows)
        j = np.arange(self.kv_len)
        if self.mask_kind == "half":
            return np.broadcast_to(j >= self.kv_len // 2, (len(i), self.kv_len)).copy()
        if self.mask_kind == "random":  # hides one of every four keys, a different one in each row
            hidden = np.random.default_rng(2).integers(0, 4, (self.q_len, self.kv_len // 4), np.int8)
            return np.repeat(hidden, 4, axis=1)[i] != j % 4
        if self.mask_kind in KEY_BLOCK:  # the formula of shapes.h
            size = KEY_BLOCK[self.mask_kind]
            r, n = (i // size)[:, None], j // size
            return (n + 3 * r + (n // 4) * (r // 4)) % 4 == 0
        position = (i + self.kv_len - self.q_len)[:, None]
        visible = j <= position
        if self.mask_kind in ("window512", "window_ranges"):
            return visible & (j > position - 512)
        if self.mask_kind == "documents16":
            return visible & (position // (self.kv_len // 16) == j // (self.kv_len // 16))
        if self.mask_kind == "chunked2048":
            return visible & (position // 2048 == j // 2048)
        if self.mask_kind == "prefix":
            return visible | (j < self.kv_len // 4)
        if self.mask_kind == "tree":
            return np.concatenate(
                [np.ones((len(i), self.kv_len - self.q_len), bool), self.ancestors()[i]], axis=1
            )
        return visible

    def ancestors(self):
        """Bool [q_len, q_len]: whether a draft sees another. Three drafts branch from each."""
        sees = np.eye(self.q_len, dtype=bool)
        for i in range(1, self.q_len):
            sees[i] |= sees[(i - 1) // 3]
        return sees

    def sampled_rows(self):
        """The query rows that are checked: all, or 32 that include the first and the last."""
        if self.q_len <= 32:
            return np.arange(self.q_len)
        return np.unique(np.linspace(0, self.q_len - 1, 32).astype(int))

    def oracle(self, i):
        """Attention of the sampled rows over set i, in float64."""
        rows = self.sampled_rows()
        mask = self.mask(rows)
        out = np.empty((self.batch, self.q_heads, len(rows), self.v_dim))
        for b in range(self.batch):
            for g in range(self.kv_heads):
                k, v = to_f32(self.k[i][b, g]).astype(np.float64), to_f32(self.v[i][b, g]).astype(
                    np.float64
                )
                for h in range(g * self.group, (g + 1) * self.group):
                    s = to_f32(self.q[b, h, rows]).astype(np.float64) @ k.T / np.sqrt(self.qk_dim)
                    if self.score == "softcap":
                        s = self.capped_at * np.tanh(s / self.capped_at)
                    if self.bias is not None:
                        s += to_f32(self.bias[rows])
                    if mask is not None:
                        s[~mask] = -np.inf
                    w = np.exp(s - s.max(axis=-1, keepdims=True))
                    out[b, h] = w @ v / w.sum(axis=-1, keepdims=True)
        return out

    def error(self, output, oracle):
        """The relative L2 error of an output [batch, q_heads, q_len, v_dim] in the sampled rows."""
        difference = output[:, :, self.sampled_rows()].astype(np.float64) - oracle
        return float(np.linalg.norm(difference) / np.linalg.norm(oracle))
