"""Types of the module. An array in is the same kind of array out, so most functions are generic in it."""

from types import TracebackType
from typing import Any, Literal, SupportsFloat, SupportsIndex, TypeAlias, TypedDict, TypeVar, Unpack, overload

_A = TypeVar("_A")  # an array of any library: numpy, torch, jax, memoryview, Array
_Ints: TypeAlias = Any  # a whole number of any kind, a sequence of them or an array of int32 or int64
_Floats: TypeAlias = Any  # a sequence of floats or an array
_DType: TypeAlias = Any  # "f32", "f16", "bf16", numpy.float32, torch.bfloat16, ...
_Int: TypeAlias = SupportsIndex
_Float: TypeAlias = SupportsFloat | SupportsIndex
_Window: TypeAlias = _Int | tuple[_Int | None, _Int | None] | list[Any] | None
_Accuracy: TypeAlias = Literal["default", "exact", "bf16", "split", "int8"] | None
_LinearAccuracy: TypeAlias = Literal["default", "exact", "bf16", "split"] | None
_WeightLayout: TypeAlias = Literal["in_out", "out_in"]
_KeyBlocks: TypeAlias = tuple[Any, int, int, int]

__version__: str

class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def tolist(self) -> Any: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(
        self,
        stream: Any = None,
        *,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Setting:
    def __enter__(self) -> Setting: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

# ---- keywords of the calls that attend: each call takes those of one class, and the defaults of its docstring

class _Hidden(TypedDict, total=False):
    mask: Any
    bias: Any
    alibi: _Floats
    sinks: _Floats
    position: _Ints
    ranges: Any
    key_blocks: _KeyBlocks | None
    mask_from: _Ints
    out: Any

class _Scored(_Hidden, total=False):
    window: _Window
    scale: _Float | None
    softcap: _Float | None
    accuracy: _Accuracy
    dtype: _DType

class _VarlenOptions(_Scored, total=False):
    causal: bool

class _CacheOptions(_Scored, total=False):
    q_lens: _Ints
    layout: str

class _AttentionOptions(_CacheOptions, total=False):
    causal: bool
    kv_lens: _Ints

class _RunOptions(_Hidden, total=False):
    q_lens: _Ints
    kv_lens: _Ints
    block_table: Any
    k_scale: Any
    k_zero: Any
    v_scale: Any
    v_zero: Any
    k_key_group: _Int | None
    v_key_group: _Int | None

class _LayerOptions(_Hidden, total=False):
    cache: KVCache | None
    q_lens: _Ints
    kv_lens: _Ints
    positions: Any

@overload
def attention(
    q: _A, k: Any, v: Any, *, return_lse: Literal[False] = False, return_weights: Literal[False] = False,
    **options: Unpack[_AttentionOptions],
) -> _A: ...
@overload
def attention(
    q: _A, k: Any, v: Any, *, return_lse: Literal[True], return_weights: Literal[False] = False,
    **options: Unpack[_AttentionOptions],
) -> tuple[_A, _A]: ...
@overload
def attention(
    q: _A, k: Any, v: Any, *, return_lse: Literal[False] = False, return_weights: Literal[True],
    **options: Unpack[_AttentionOptions],
) -> tuple[_A, _A]: ...
@overload
def attention(
    q: _A, k: Any, v: Any, *, return_lse: Literal[True], return_weights: Literal[True],
    **options: Unpack[_AttentionOptions],
) -> tuple[_A, _A, _A]: ...
@overload
def attention(
    q: _A, k: Any, v: Any, *, return_lse: bool = False, return_weights: bool = False,
    **options: Unpack[_AttentionOptions],
) -> Any: ...
def explain_arrays(q: Any, k: Any, v: Any, *, json: bool = False, **options: Any) -> str: ...
@overload
def varlen(
    q: _A, k: Any, v: Any, cu_q: _Ints, cu_k: _Ints, *, return_lse: Literal[False] = False, return_weights: Literal[False] = False,
    **options: Unpack[_VarlenOptions],
) -> _A: ...
@overload
def varlen(
    q: _A, k: Any, v: Any, cu_q: _Ints, cu_k: _Ints, *, return_lse: Literal[True], return_weights: Literal[False] = False,
    **options: Unpack[_VarlenOptions],
) -> tuple[_A, _A]: ...
@overload
def varlen(
    q: _A, k: Any, v: Any, cu_q: _Ints, cu_k: _Ints, *, return_lse: Literal[False] = False, return_weights: Literal[True],
    **options: Unpack[_VarlenOptions],
) -> tuple[_A, _A]: ...
@overload
def varlen(
    q: _A, k: Any, v: Any, cu_q: _Ints, cu_k: _Ints, *, return_lse: Literal[True], return_weights: Literal[True],
    **options: Unpack[_VarlenOptions],
) -> tuple[_A, _A, _A]: ...
@overload
def varlen(
    q: _A, k: Any, v: Any, cu_q: _Ints, cu_k: _Ints, *, return_lse: bool = False, return_weights: bool = False,
    **options: Unpack[_VarlenOptions],
) -> Any: ...
def merge(
    a: _A, a_lse: Any, b: Any, b_lse: Any, *, layout: str = "bhsd", dtype: _DType = None, out: Any = None
) -> tuple[_A, _A]: ...
def rotary(
    x: _A,
    *,
    offsets: _Ints = None,
    positions: Any = None,
    lens: _Ints = None,
    style: Literal["half", "interleaved"] = "half",
    dims: _Int | None = None,
    base: _Float = 10000.0,
    scale: _Float = 1.0,
    mscale: _Float = 1.0,
    freq: _Floats = None,
    layout: str = "bhsd",
    out: Any = None,
    dtype: _DType = None,
) -> _A: ...

class Plan:
    def __new__(
        cls,
        *,
        q_heads: _Int,
        kv_heads: _Int | None = None,
        dim: _Int,
        v_dim: _Int | None = None,
        dtype: _DType = "f32",
        kv_dtype: _DType = None,
        page_len: _Int | None = None,
        causal: bool = False,
        window: _Window = None,
        scale: _Float | None = None,
        softcap: _Float | None = None,
        position: _Ints = "end",
        accuracy: _Accuracy = None,
        layout: str = "bhsd",
        max_batch: _Int | None = None,
        max_q_len: _Int | None = None,
        max_kv_len: _Int | None = None,
    ) -> Plan: ...
    @overload
    def run(
        self, q: _A, k: Any, v: Any, *, return_lse: Literal[False] = False, return_weights: Literal[False] = False,
        **options: Unpack[_RunOptions],
    ) -> _A: ...
    @overload
    def run(
        self, q: _A, k: Any, v: Any, *, return_lse: Literal[True], return_weights: Literal[False] = False,
        **options: Unpack[_RunOptions],
    ) -> tuple[_A, _A]: ...
    @overload
    def run(
        self, q: _A, k: Any, v: Any, *, return_lse: Literal[False] = False, return_weights: Literal[True],
        **options: Unpack[_RunOptions],
    ) -> tuple[_A, _A]: ...
    @overload
    def run(
        self, q: _A, k: Any, v: Any, *, return_lse: Literal[True], return_weights: Literal[True],
        **options: Unpack[_RunOptions],
    ) -> tuple[_A, _A, _A]: ...
    @overload
    def run(
        self, q: _A, k: Any, v: Any, *, return_lse: bool = False, return_weights: bool = False,
        **options: Unpack[_RunOptions],
    ) -> Any: ...
    def explain(self, *, json: bool = False) -> str: ...
    def workspace(self, n: _Int = 1) -> int: ...

class KVCache:
    def __new__(
        cls,
        *,
        batch: _Int,
        capacity: _Int,
        kv_heads: _Int,
        dim: _Int,
        v_dim: _Int | None = None,
        k_dtype: _DType = "f32",
        v_dtype: _DType = None,
        page_len: _Int | None = None,
    ) -> KVCache: ...
    @property
    def lens(self) -> list[int]: ...
    @property
    def capacity(self) -> int: ...
    @property
    def page_len(self) -> int | None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def k_dtype(self) -> str: ...
    @property
    def v_dtype(self) -> str: ...
    def append(
        self, k: Any, v: Any, lens: _Ints = None, *, layout: str = "bhsd", dtype: _DType = None
    ) -> None: ...
    @overload
    def attention(
        self, q: _A, causal: bool = True, *, return_lse: Literal[False] = False, return_weights: Literal[False] = False,
        **options: Unpack[_CacheOptions],
    ) -> _A: ...
    @overload
    def attention(
        self, q: _A, causal: bool = True, *, return_lse: Literal[True], return_weights: Literal[False] = False,
        **options: Unpack[_CacheOptions],
    ) -> tuple[_A, _A]: ...
    @overload
    def attention(
        self, q: _A, causal: bool = True, *, return_lse: Literal[False] = False, return_weights: Literal[True],
        **options: Unpack[_CacheOptions],
    ) -> tuple[_A, _A]: ...
    @overload
    def attention(
        self, q: _A, causal: bool = True, *, return_lse: Literal[True], return_weights: Literal[True],
        **options: Unpack[_CacheOptions],
    ) -> tuple[_A, _A, _A]: ...
    @overload
    def attention(
        self, q: _A, causal: bool = True, *, return_lse: bool = False, return_weights: bool = False,
        **options: Unpack[_CacheOptions],
    ) -> Any: ...
    def decoded(self) -> tuple[Any, Any]: ...
    def clear(self) -> None: ...

class Linear:
    def __new__(
        cls,
        weight: Any,
        bias: Any = None,
        *,
        layout: _WeightLayout = "out_in",
        activation: Literal["none", "gelu", "gelu_tanh", "silu"] | None = None,
        residual: bool = False,
        accuracy: _LinearAccuracy = None,
        dtype: _DType = None,
        x_dtype: _DType = None,
        y_dtype: _DType = None,
    ) -> Linear: ...
    @property
    def in_dim(self) -> int: ...
    @property
    def out_dim(self) -> int: ...
    def __call__(self, x: _A, residual: Any = None, *, out: Any = None) -> _A: ...
    def explain(self, *, json: bool = False) -> str: ...

class MultiHeadAttention:
    def __new__(
        cls,
        q_heads: _Int,
        wq: Any,
        wk: Any,
        wv: Any,
        wo: Any = None,
        *,
        bq: Any = None,
        bk: Any = None,
        bv: Any = None,
        bo: Any = None,
        kv_heads: _Int | None = None,
        layout: _WeightLayout = "out_in",
        cross: bool = False,
        causal: bool = False,
        window: _Window = None,
        scale: _Float | None = None,
        softcap: _Float | None = None,
        position: _Ints = "end",
        rotary: bool | dict[str, Any] | None = None,
        accuracy: _Accuracy = None,
        dtype: _DType = None,
    ) -> MultiHeadAttention: ...
    @overload
    def __call__(
        self, x: _A, x_kv: Any = None, *, return_lse: Literal[False] = False, return_weights: Literal[False] = False,
        **options: Unpack[_LayerOptions],
    ) -> _A: ...
    @overload
    def __call__(
        self, x: _A, x_kv: Any = None, *, return_lse: Literal[True], return_weights: Literal[False] = False,
        **options: Unpack[_LayerOptions],
    ) -> tuple[_A, _A]: ...
    @overload
    def __call__(
        self, x: _A, x_kv: Any = None, *, return_lse: Literal[False] = False, return_weights: Literal[True],
        **options: Unpack[_LayerOptions],
    ) -> tuple[_A, _A]: ...
    @overload
    def __call__(
        self, x: _A, x_kv: Any = None, *, return_lse: Literal[True], return_weights: Literal[True],
        **options: Unpack[_LayerOptions],
    ) -> tuple[_A, _A, _A]: ...
    @overload
    def __call__(
        self, x: _A, x_kv: Any = None, *, return_lse: bool = False, return_weights: bool = False,
        **options: Unpack[_LayerOptions],
    ) -> Any: ...

def threads(n: _Int, /) -> Setting: ...
def backend(names: str, /) -> Setting: ...
def hint_threads(n: _Int, /) -> None: ...
def setting_now() -> int: ...
def backends_json() -> str: ...
def segments(ids: Any, q_len: _Int | None = None) -> Any: ...
def chunks(kv_len: _Int, length: _Int, q_len: _Int | None = None) -> Any: ...
def prefix(kv_len: _Int, prefix_len: _Ints, q_len: _Int | None = None) -> Any: ...
def tree(parents: Any, prefix: _Int = 0) -> Any: ...
def blocks(bits: Any, *, block_rows: _Int, block_keys: _Int) -> _KeyBlocks: ...
