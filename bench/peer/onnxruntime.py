"""ONNX Runtime on the CPU, with each of its attention operators that can express the problem:
MultiHeadAttention and GroupQueryAttention (its own), and Attention (ONNX opset 23). Each gets its
inputs in the layout that it requires.
"""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

TYPE = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}


def version():
    return onnxruntime.__version__


class Attention:
    """A graph of one node. sets[i] are the inputs {name: array} of set i; all sets share those of
    fixed."""

    def __init__(self, problem, threads, node, sets, fixed, out_shape, shares=()):
        self.problem, self.sets, self.fixed = problem, sets, fixed
        inputs = {**sets[0], **fixed}
        integers = {np.dtype(np.int32): TensorProto.INT32, np.dtype(np.bool_): TensorProto.BOOL}
        graph = helper.make_graph(
            [node],
            "attention",
            [
                helper.make_tensor_value_info(
                    name, integers.get(a.dtype, TYPE[problem.dtype]), a.shape
                )
                for name, a in inputs.items()
            ],
            [
                helper.make_tensor_value_info(name, TYPE[problem.dtype], None)
                for name in node.output
            ],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)],
            ir_version=10,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.out = np.zeros(
            out_shape, {"bf16": np.uint16, "f16": np.float16}.get(problem.dtype, np.float32)
        )
        self.bindings = []
        for one in sets:
            binding = self.session.io_binding()
            for name, array in {**one, **fixed}.items():
                self._bind(binding.bind_input, name, array)
            self._bind(binding.bind_output, node.output[0], self.out)
            for (
                name,
                source,
            ) in shares:  # the new state of a cache is the old one, grown in place
                self._bind(binding.bind_output, name, one[source])
            self.bindings.append(binding)

    @staticmethod
    def _bind(bind, name, array):
        assert array.flags.c_contiguous
        kind = TensorProto.BFLOAT16 if array.dtype == np.uint16 else array.dtype
        bind(name, "cpu", 0, kind, array.shape, array.ctypes.data)

    def call(self, i):
        self.session.run_with_iobinding(self.bindings[i])

    def output(self):
        p, out = self.problem, self.out
        if out.ndim == 3:
            out = out.reshape(p.batch, p.q_len, p.q_heads, p.v_dim).transpose(0, 2, 1, 3)
        return out.astype(np.float32)


def rows(array):
    """Turns [batch, heads, rows, dim] into contiguous [batch, rows, heads * dim]."""
    b, h, s, d = array.shape
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(b, s, h * d)


def multi_head(problem, threads):
    if problem.group > 1:
        return "as many key/value heads as query heads only"
    causal = problem.mask_kind == "causal" and problem.q_len == problem.kv_len
    names, fixed = ["q", "k", "v"], {"q": rows(problem.q)}
    if problem.score == "softcap":
        return "it caps no scores"
    if problem.bias is not None:
        names += ["", "", "bias"]
        fixed["bias"] = problem.bias[None, None]
    if problem.mask_kind != "full" and not causal:
        kind = np.dtype(np.float16 if problem.dtype == "f16" else np.float32)
        names += ["", "", "bias"]
        fixed["bias"] = np.where(problem.mask(), kind.type(0), kind.type(np.finfo(kind).min))[
            None, None
        ]
    node = helper.make_node(
        "MultiHeadAttention",
        names,
        ["out"],
        domain="com.microsoft",
        num_heads=problem.q_heads,
        unidirectional=int(causal),
    )
    sets = [{"k": rows(k), "v": rows(v)} for k, v in zip(problem.k, problem.v)]
    return Attention(
        problem,
        threads,
        node,
        sets,
        fixed,
        (problem.batch, problem.q_len, problem.q_heads * problem.v_dim),
    )


def group_query(problem, threads):
    """The cache holds all keys but the last. The call appends that one in place, where it already
    is."""
    if problem.q_len != 1:
        return "used for decode, one query row"
    if problem.score != "plain":
        return "used without bias and cap"
    if problem.qk_dim != problem.v_dim:
        return "qk_dim = v_dim only"
    node = helper.make_node(
        "GroupQueryAttention",
        ["q", "k_new", "v_new", "k_past", "v_past", "last", "total"],
        ["out", "k_present", "v_present"],
        domain="com.microsoft",
        num_heads=problem.q_heads,
        kv_num_heads=problem.kv_heads,
    )
    sets = [
        {
            "k_past": np.ascontiguousarray(k),
            "v_past": np.ascontiguousarray(v),
            "k_new": rows(k[:, :, -1:]),
            "v_new": rows(v[:, :, -1:]),
        }
        for k, v in zip(problem.k, problem.v)
    ]
    fixed = {
        "q": rows(problem.q),
        "last": np.full(problem.batch, problem.kv_len - 1, np.int32),
        "total": np.array(problem.kv_len, np.int32),
    }
    return Attention(
        problem,
        threads,
        node,
        sets,
        fixed,
        (problem.batch, 1, problem.q_heads * problem.v_dim),
        [("k_present", "k_past"), ("v_present", "v_past")],
    )


def attention(problem, threads):
    causal = problem.mask_kind == "causal" and problem.q_len == problem.kv_len
    names, fixed = ["q", "k", "v"], {"q": np.ascontiguousarray(problem.q)}
    if problem.mask_kind != "full" and not causal:
        names.append("mask")
        fixed["mask"] = problem.mask()
    if problem.bias is not None:
        names.append("mask")
        fixed["mask"] = problem.bias
    cap = problem.capped_at if problem.score == "softcap" else 0
    node = helper.make_node("Attention", names, ["out"], is_causal=int(causal), softcap=float(cap))
    sets = [
        {"k": np.ascontiguousarray(k), "v": np.ascontiguousarray(v)}
        for k, v in zip(problem.k, problem.v)
    ]
    return Attention(
        problem,
        threads,
        node,
        sets,
        fixed,
        (problem.batch, problem.q_heads, problem.q_len, problem.v_dim),
    )


def variants(problem, threads):
    found = []
    for name, make in (
        ("MultiHeadAttention", multi_head),
        ("GroupQueryAttention", group_query),
        ("Attention", attention),
    ):
        scores = 4 * problem.batch * problem.q_heads * problem.q_len * problem.kv_len
        if name == "Attention" and scores > 4 << 30:
            found.append((name, f"its score matrix would have {scores >> 30} GiB"))
            continue
        try:
            found.append((name, make(problem, threads)))
        except Exception as error:  # raised for problems that its kernels do not support
            found.append((name, str(error).replace(" with name ''", "")))
    return found
