"""OpenVINO on the CPU: attention over a state, which its plugin keeps in the type of
KV_CACHE_PRECISION. Every call appends the row that it gets, like a step of decode; that row is the
last of the problem."""

import numpy as np
import openvino
from openvino import opset13 as ops
from openvino.op import util

F32 = openvino.Type.f32
CORE = openvino.Core()


def version():
    return openvino.__version__.split("-")[0]


def model(problem):
    """A model with q, the new row of k and v, and the sequence that goes on as inputs. Models
    exported to OpenVINO have this form, which its plugin turns into one operation."""
    heads, dim = problem.kv_heads, problem.dim
    q = ops.parameter([1, problem.q_heads, -1, dim], F32, name="q")
    new = [ops.parameter([1, heads, -1, dim], F32, name=name) for name in "kv"]
    beam = ops.parameter([-1], openvino.Type.i32, name="beam")
    whole, sinks = [], []
    for name, row in zip("kv", new):
        info = util.VariableInfo()
        info.data_shape, info.data_type = openvino.PartialShape([1, heads, -1, dim]), F32
        info.variable_id = name
        variable = util.Variable(info)
        past = ops.read_value(ops.constant(np.zeros((1, heads, 0, dim), np.float32)), variable)
        past = ops.gather(past, beam, ops.constant(np.int64(0)))
        both = ops.concat([past, row], 2)
        sinks.append(ops.assign(both, variable))
        wide = ops.broadcast(
            ops.unsqueeze(both, ops.constant(np.int64(2))),
            ops.constant(np.array([1, 1, problem.group, 1, 1])),
            broadcast_spec="BIDIRECTIONAL",
        )
        whole.append(ops.reshape(wide, ops.constant(np.array([0, problem.q_heads, -1, dim])), True))
    out = ops.scaled_dot_product_attention(q, *whole, causal=False)
    return openvino.Model([ops.result(out)], sinks, [q, *new, beam])


class Attention:
    """A request, which has a state of its own, for each set of keys and values."""

    def __init__(self, problem, threads):
        self.problem = problem
        compiled = CORE.compile_model(
            model(problem),
            "CPU",
            {
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1,
                "KV_CACHE_PRECISION": problem.dtype,
                "INFERENCE_PRECISION_HINT": "f32",
                "ENABLE_CPU_PINNING": False,
                "PERFORMANCE_HINT": "LATENCY",
            },
        )
        past, rows = {}, ({}, {})
        for name, numbers in zip("kv", problem.numbers):
            past[name] = openvino.Tensor(np.ascontiguousarray(numbers[:, :, :-2]))
            for row, at in zip(rows, (-2, -1)):
                row[name] = np.ascontiguousarray(numbers[:, :, at:][:, :, :1])
        before, self.input = ({"q": problem.q, "beam": np.zeros(1, np.int32), **row} for row in rows)
        self.requests = []
        for _ in problem.k:
            request = compiled.create_infer_request()
            for state in request.query_state():
                state.state = past[state.name]
            request.infer(before)  # the first row finds no room: it moves the state to a larger one
            self.requests.append(request)

    def call(self, i):
        self.request = self.requests[i]
        self.request.infer(self.input, share_inputs=True)

    def output(self):
        return np.array(self.request.get_output_tensor(0).data).reshape(self.problem.q_heads, -1)


def variants(problem, threads):
    if problem.dtype != "u8":
        return [("state", f"it has no type {problem.dtype}")]
    return [("state", Attention(problem, threads))]
