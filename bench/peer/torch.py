"""PyTorch: torch.nn.functional.scaled_dot_product_attention, and for structured masks also a
compiled FlexAttention."""

import numpy as np
import torch

from . import problem as problems

TYPE = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def version():
    return torch.__version__


def tensor(array, dtype):
    """A tensor with the same memory and strides as the array."""
    if dtype != "bf16":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


class Attention:
    def __init__(self, problem, threads, fold):
        torch.set_num_threads(threads)
        self.threads, self.fold, self.problem = threads, fold, problem
        self.q = tensor(problem.q, problem.dtype)
        self.k = [tensor(k, problem.dtype) for k in problem.k]
        self.v = [tensor(v, problem.dtype) for v in problem.v]
        self.options = {}
        if (
            fold
        ):  # the query heads of a group as query rows of their key/value head: no mask allows it
            self.q = self.q.reshape(
                problem.batch, problem.kv_heads, problem.group * problem.q_len, problem.qk_dim
            )
        elif problem.group > 1:
            self.options["enable_gqa"] = True
        if problem.mask_kind == "causal" and problem.q_len == problem.kv_len:
            self.options["is_causal"] = True
        elif problem.mask_kind != "full":
            self.options["attn_mask"] = torch.from_numpy(problem.mask())
        if problem.bias is not None:
            self.options["attn_mask"] = tensor(problem.bias, problem.dtype)
        self.out = None

    def call(self, i):
        self.out = torch.nn.functional.scaled_dot_product_attention(
            self.q, self.k[i], self.v[i], **self.options
        )

    def output(self):
        p = self.problem
        return self.out.float().reshape(p.batch, p.q_heads, p.q_len, p.v_dim).numpy()

    def before(self):
        torch.set_num_threads(self.threads)


def mask_mod(problem):
    """The mask in the form of FlexAttention, a function of (batch, head, row, key)."""
    kind, keys, offset = problem.mask_kind, problem.kv_len, problem.kv_len - problem.q_len

    def causal(b, h, i, j):
        return j <= i + offset

    def window(b, h, i, j):
        return (j <= i + offset) & (j > i + offset - 512)

    def documents(b, h, i, j):
        return (j <= i) & (i // (keys // 16) == j // (keys // 16))

    def chunked(b, h, i, j):
        return (j <= i) & (i // 2048 == j // 2048)

    def prefix(b, h, i, j):
        return (j <= i) | (j < keys // 4)

    if kind == "tree":
        sees = torch.from_numpy(problem.ancestors())

        def tree(b, h, i, j):
            return (j < offset) | sees[i, torch.clamp(j - offset, min=0)]

        return tree
    if kind in problems.KEY_BLOCK:
        size = problems.KEY_BLOCK[kind]

        def blocks(b, h, i, j):
            r, n = i // size, j // size
            return (n + 3 * r + (n // 4) * (r // 4)) % 4 == 0

        return blocks
    return {
        "causal_ranges": causal,
        "window_ranges": window,
        "documents16": documents,
        "chunked2048": chunked,
        "prefix": prefix,
    }[kind]


class Flex(Attention):
    """FlexAttention under torch.compile, with its block mask made in advance."""

    def __init__(self, problem, threads):
        super().__init__(problem, threads, False)
        from torch.nn.attention import flex_attention as flex

        self.options.pop("attn_mask", None)
        blocks = flex.create_block_mask(
            mask_mod(problem), None, None, problem.q_len, problem.kv_len, device="cpu"
        )
        compiled = torch.compile(flex.flex_attention, dynamic=False)
        gqa = problem.group > 1
        self.flex = lambda q, k, v: compiled(q, k, v, block_mask=blocks, enable_gqa=gqa)
        self.call(0)  # compiles

    def call(self, i):
        with torch.no_grad():
            self.out = self.flex(self.q, self.k[i], self.v[i])


def variants(problem, threads):
    if problem.score == "softcap":
        return [("sdpa", "it caps no scores")]
    found = [("sdpa", Attention(problem, threads, False))]
    if problem.mask_kind in problems.RANGES or problem.mask_kind in problems.KEY_BLOCK:
        try:
            found.append(("FlexAttention", Flex(problem, threads)))
        except (ImportError, RuntimeError) as error:  # PyTorch is older, or there is no compiler
            found.append(("FlexAttention", f"{type(error).__name__}: {error}"))
    if problem.group > 1 and problem.q_len == 1:
        found.append(("sdpa, groups as rows", Attention(problem, threads, True)))
    return found
