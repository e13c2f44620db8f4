"""PyTorch: torch.nn.functional.scaled_dot_product_attention."""

import numpy as np
import torch

TYPE = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def version():
    return torch.__version__


def tensor(array, dtype):
    """The same memory, the same strides."""
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


def variants(problem, threads):
    if problem.score == "softcap":
        return [("sdpa", "it caps no scores")]
    found = [("sdpa", Attention(problem, threads, False))]
    if problem.group > 1 and problem.q_len == 1:
        found.append(("sdpa, groups as rows", Attention(problem, threads, True)))
    return found
