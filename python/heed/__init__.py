"""Attention on CPUs, for arrays of any library.

>>> import heed, numpy as np
>>> q = k = v = np.eye(4, dtype=np.float32).reshape(1, 1, 4, 4)
>>> heed.attention(q, k, v, causal=True)[0, 0, 0]
array([1., 0., 0., 0.], dtype=float32)

Arrays of numpy, torch, jax and whatever else has DLPack or the buffer protocol come in without a copy,
with any strides; results are arrays of the same library. ``heed.torch`` puts Heed under PyTorch's
scaled_dot_product_attention, ``heed.transformers`` under models of transformers.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is not imported: that would be most of the time of `import heed`
    from typing import Any, Literal, overload
else:

    def overload(function: object) -> None: ...


from . import masks
from ._heed import (
    Array,
    KVCache,
    Linear,
    MultiHeadAttention,
    Plan,
    Setting,
    __version__,
    attention,
    backend,
    merge,
    rotary,
    threads,
    varlen,
)
from ._heed import Plan as plan
from ._heed import backends_json as _backends_json
from ._heed import explain_arrays as _explain_arrays

__all__ = [
    "Array",
    "KVCache",
    "Linear",
    "MultiHeadAttention",
    "Plan",
    "Setting",
    "__version__",
    "attention",
    "backend",
    "explain",
    "info",
    "masks",
    "merge",
    "plan",
    "rotary",
    "threads",
    "varlen",
]


@overload
def explain(*arrays: Any, json: Literal[False] = False, **options: Any) -> str: ...
@overload
def explain(*arrays: Any, json: Literal[True], **options: Any) -> dict[str, Any]: ...
def explain(*arrays: Any, json: bool = False, **options: Any) -> str | dict[str, Any]:
    """Tells which backend and kernel a call would use, and why not others.

    Takes what :func:`attention` takes, or, without arrays, what :func:`plan` takes. Returns text;
    with ``json=True`` a dict.

    Errors: those of :func:`attention` or :func:`plan`.

    >>> import heed
    >>> "naive" in heed.explain(q_heads=2, dim=8)
    True
    """
    if arrays or "q" in options:
        text = _explain_arrays(*arrays, json=json, **options)
    else:
        text = plan(**options).explain(json=json)
    if not json:
        return text
    from json import loads

    found: dict[str, Any] = loads(text)
    return found


def info() -> dict[str, Any]:
    """What there is: the version, this machine and its backends, as a dict.

    >>> import heed
    >>> any(backend["name"] == "naive" for backend in heed.info()["backends"])
    True
    """
    import json

    return {"version": __version__, **json.loads(_backends_json())}
