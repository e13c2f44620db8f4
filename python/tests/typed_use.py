"""What mypy --strict accepts: the package as a typed program uses it. Never run."""

from typing import assert_type

import numpy as np
import numpy.typing as npt

import heed
import heed.masks

x: npt.NDArray[np.float32] = np.ones((1, 1, 4, 8), np.float32)
assert_type(heed.attention(x, x, x, causal=True, window=(3, None)), npt.NDArray[np.float32])
assert_type(heed.attention(x, x, x, position=[0], return_lse=False), npt.NDArray[np.float32])
out, lse = heed.attention(x, x, x, return_lse=True)
out, weights = heed.attention(x, x, x, return_weights=True)
out, lse, weights = heed.attention(x, x, x, return_lse=True, return_weights=True, ranges=heed.masks.chunks(4, 2))
assert_type(heed.attention(x, x, x, key_blocks=heed.masks.blocks(x, block_rows=4, block_keys=4)), npt.NDArray[np.float32])
plan = heed.plan(q_heads=1, dim=8, dtype=np.float32)
assert_type(plan, heed.Plan)
assert_type(plan.workspace(2), int)
y: npt.NDArray[np.float32] = plan.run(x, x, x, kv_lens=[4])
cache = heed.KVCache(batch=1, capacity=4, kv_heads=1, dim=8, k_dtype="q8_0")
cache.append(x, x, lens=[2])
assert_type(cache.lens, list[int])
y = heed.attention(x, x, x, kv_lens=range(4, 5), scale=np.float32(0.5), window=(np.int64(3), None), softcap=5)
setting: heed.Setting = heed.threads(np.int64(2))
heed.Linear(x, accuracy="int8")  # type: ignore[arg-type]  # that is attention's alone
with heed.threads(2), heed.backend("avx2"):
    y = cache.attention(x)
y = heed.Linear(np.ones((8, 8), np.float32), activation="gelu")(x)
y = heed.MultiHeadAttention(1, x, x, x)(x, cache=cache)
y = heed.rotary(x, offsets=3)
y, lse = heed.merge(x, lse, x, lse)
assert_type(heed.explain(x, x, x), str)
