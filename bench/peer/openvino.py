"""OpenVINO on the CPU: its ScaledDotProductAttention operation, compiled for the type of the
problem."""

import numpy as np
import openvino
from openvino import opset13 as ops

TYPE = {"f32": openvino.Type.f32, "f16": openvino.Type.f16, "bf16": openvino.Type.bf16}


def version():
    return openvino.__version__.split("-")[0]


CORE = openvino.Core()


class Attention:
    def __init__(self, problem, threads):
        self.problem = problem
        kind = TYPE[problem.dtype]
        # Where no mask forbids it, the query heads of a group are query rows of their key/value
        # head; otherwise keys and values are broadcast to the query heads, as in models exported to
        # OpenVINO.
        self.fold = problem.group > 1 and problem.q_len == 1
        q = np.ascontiguousarray(problem.q)
        if self.fold:
            q = q.reshape(problem.batch, problem.kv_heads, problem.group, problem.qk_dim)
        keys = [problem.batch, problem.kv_heads, problem.kv_len]
        parameters = [
            ops.parameter(q.shape, kind),
            ops.parameter([*keys, problem.qk_dim], kind),
            ops.parameter([*keys, problem.v_dim], kind),
        ]
        inputs = list(parameters)
        if problem.group > 1 and not self.fold:
            inputs[1:] = [
                self._repeat(x, problem, dim)
                for x, dim in zip(inputs[1:], (problem.qk_dim, problem.v_dim))
            ]
        causal = problem.mask_kind == "causal" and problem.q_len == problem.kv_len
        tensors = [self._tensor(q, kind)]
        if problem.mask_kind != "full" and not causal:
            parameters.append(
                ops.parameter([1, 1, problem.q_len, problem.kv_len], openvino.Type.boolean)
            )
            inputs.append(parameters[-1])
            self.mask = problem.mask().reshape(1, 1, problem.q_len, problem.kv_len)
        if problem.bias is not None:
            parameters.append(ops.parameter([1, 1, *problem.bias.shape], kind))
            inputs.append(parameters[-1])
        result = ops.scaled_dot_product_attention(*inputs, causal=causal)
        self.compiled = CORE.compile_model(
            openvino.Model([result], parameters),
            "CPU",
            {
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1,
                "INFERENCE_PRECISION_HINT": kind,
                "ENABLE_CPU_PINNING": False,
                "PERFORMANCE_HINT": "LATENCY",
            },
        )
        self.request = self.compiled.create_infer_request()
        self.request.set_input_tensor(0, tensors[0])
        self.keep = [q]
        self.k = [self._tensor(k, kind) for k in problem.k]
        self.v = [self._tensor(v, kind) for v in problem.v]
        if len(parameters) == 4:
            if problem.bias is not None:
                self.request.set_input_tensor(3, self._tensor(problem.bias[None, None], kind))
            else:
                self.request.set_input_tensor(3, openvino.Tensor(self.mask, shared_memory=True))

    def _tensor(self, array, kind):
        array = np.ascontiguousarray(array)
        if array.dtype == np.uint16:
            return openvino.Tensor(array, list(array.shape), kind)
        return openvino.Tensor(array, shared_memory=True)

    @staticmethod
    def _repeat(x, problem, dim):
        wide = ops.broadcast(
            ops.unsqueeze(x, ops.constant(2)),
            ops.constant([problem.batch, problem.kv_heads, problem.group, problem.kv_len, dim]),
        )
        return ops.reshape(
            wide, ops.constant([problem.batch, problem.q_heads, problem.kv_len, dim]), False
        )

    def call(self, i):
        self.request.set_input_tensor(1, self.k[i])
        self.request.set_input_tensor(2, self.v[i])
        self.request.infer()

    def output(self):
        p, tensor = self.problem, self.request.get_output_tensor(0)
        if tensor.element_type == openvino.Type.bf16:
            bits = np.frombuffer(np.array(tensor.data, copy=True).tobytes(), np.uint16)
            data = (bits.astype(np.uint32) << 16).view(np.float32)
        else:
            data = np.array(tensor.data, dtype=np.float32)
        return data.reshape(p.batch, p.q_heads, p.q_len, p.v_dim)


def variants(problem, threads):
    if problem.score == "softcap":
        return [("sdpa", "it caps no scores")]
    scores = 4 * problem.batch * problem.q_heads * problem.q_len * problem.kv_len
    if scores > 4 << 30:
        return [("sdpa", f"its score matrix would have {scores >> 30} GiB")]
    return [
        (
            "sdpa, groups as rows" if problem.group > 1 and problem.q_len == 1 else "sdpa",
            Attention(problem, threads),
        )
    ]
