"""Heed under PyTorch's scaled_dot_product_attention, and under torch.nn.Linear.

>>> import torch, heed.torch
>>> q = k = v = torch.ones(1, 2, 4, 8)
>>> heed.torch.sdpa(q, k, v, is_causal=True).shape
torch.Size([1, 2, 4, 8])
>>> with heed.torch.enabled():
...     out = torch.nn.functional.scaled_dot_product_attention(q, k, v)

Heed computes on CPU tensors of f32, f16 and bf16 where no gradient is needed and nothing is dropped; every
other call is PyTorch's own, so training, autocast and other devices work as before. Importing this module changes
nothing in PyTorch but for the operator ``torch.ops.heed.sdpa``, which keeps torch.compile's graphs whole.
Heed uses as many threads as torch.get_num_threads() says, unless inside ``heed.threads``.
:func:`use_linear` has a model's linear layers computed by Heed, too, from packed copies of their weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, get_args

import torch
from torch.autograd import forward_ad

from ._heed import Linear as _HeedLinear
from ._heed import attention as _attention
from ._heed import hint_threads as _hint_threads
from ._heed import setting_now as _setting_now

__all__ = ["Linear", "computed", "disable", "enable", "enabled", "sdpa", "use_linear"]

_broadcast: Any = torch.broadcast_shapes
_torch_sdpa = torch.nn.functional.scaled_dot_product_attention
_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_Accuracy = Literal["default", "exact", "bf16", "split"]
_count = 0
_lock = Lock()
_within, _before = 0, _torch_sdpa  # how many are inside enabled(), and what the first one found


def computed() -> int:
    """How many calls Heed has computed in this process, in place of PyTorch.

    >>> import torch, heed.torch
    >>> x, before = torch.ones(1, 1, 2, 4), heed.torch.computed()
    >>> out = heed.torch.sdpa(x, x, x)
    >>> heed.torch.computed() - before
    1
    """
    return _count


def _is_plain(x: torch.Tensor) -> bool:
    """Is x memory of this machine that can be read as it is: no subclass, no lazy sign, not sparse?"""
    return type(x) in _PLAIN and x.is_cpu and x.layout is torch.strided and not x.is_neg() and not x.is_nested


def _no_modes() -> bool:
    """Is nothing active that watches or transforms operators (vmap, jvp, fake tensors, tracing, autocast)?"""
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
        and torch._C._get_tracing_state() is None
        and not torch.is_autocast_enabled("cpu")
    )


def _fits(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None, is_causal: bool,
    enable_gqa: bool,
) -> bool:
    """Do both compute this problem alike? What PyTorch refuses is left to PyTorch to refuse."""
    if query.dtype not in _TYPES or key.dtype is not query.dtype or value.dtype is not query.dtype:
        return False
    q, k, v = query.shape, key.shape, value.shape
    if len(q) < 2 or len(k) < 2 or len(v) < 2 or k[-1] != q[-1] or v[-2] != k[-2]:
        return False
    if 0 in q or 0 in k or 0 in v:
        return False
    if enable_gqa and (len(q) < 3 or len(k) < 3 or len(v) < 3 or k[-3] != v[-3] or q[-3] % k[-3]):
        return False
    if attn_mask is not None:
        if is_causal or not 2 <= attn_mask.dim() <= max(len(q), len(k)):
            return False
        if attn_mask.dtype is not torch.bool and attn_mask.dtype is not query.dtype:
            return False
    return True


def _four_axes(x: torch.Tensor, outer: tuple[int, ...], heads: int) -> torch.Tensor:
    """x as [batch, heads, rows, columns], outer being all axes before the heads."""
    x = x.expand(*outer, heads, *x.shape[-2:])
    return x if len(outer) == 1 else x.reshape(-1, *x.shape[-3:])


def _room(q: torch.Tensor, columns: int) -> torch.Tensor:
    """Memory for the result, with axes in the order of q's, as PyTorch's own kernel returns it."""
    batch, heads, rows, dim = q.shape
    if columns == dim:
        return torch.empty_like(q)
    if q.stride(1) < q.stride(2):
        return q.new_empty((batch, rows, heads, columns)).transpose(1, 2)
    return q.new_empty((batch, heads, rows, columns))


def _compute(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None, is_causal: bool,
    scale: float | None, enable_gqa: bool,
) -> torch.Tensor:
    """Computes the result by Heed. The arguments have passed _fits."""
    global _count
    q, k, v, mask, shape = query, key, value, attn_mask, None
    q_shape, k_shape, v_shape = q.shape, k.shape, v.shape
    if not (
        len(q_shape) == 4 and k_shape[:-1] == v_shape[:-1] and len(k_shape) == 4 and q_shape[0] == k_shape[0]
        and (q_shape[1] == k_shape[1] or enable_gqa) and (mask is None or mask.dim() <= 4)
    ):  # PyTorch lets all axes before the rows broadcast
        q, k, v = (x[None] if x.dim() == 2 else x for x in (q, k, v))
        outer = _broadcast(q.shape[:-3], k.shape[:-3], v.shape[:-3])
        if enable_gqa:
            heads, kv_heads = q.shape[-3], k.shape[-3]
        else:
            heads = kv_heads = _broadcast(q.shape[-3:-2], k.shape[-3:-2], v.shape[-3:-2])[0]
        shape = (*outer, heads) if max(query.dim(), key.dim(), value.dim()) > 2 else ()
        if mask is not None and mask.dim() > 3:
            mask = _four_axes(mask, outer or (1,), mask.shape[-3])
        q, k, v = (_four_axes(x, outer or (1,), n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
    out = _room(q, v_shape[-1])
    if q.requires_grad or k.requires_grad or v.requires_grad or (mask is not None and mask.requires_grad):
        q, k, v = q.detach(), k.detach(), v.detach()
        mask = None if mask is None else mask.detach()
    is_bool = mask is not None and mask.dtype is torch.bool
    _hint_threads(torch.get_num_threads())
    try:
        _attention(
            q, k, v, mask=mask if is_bool else None, bias=None if is_bool else mask, causal=is_causal,
            position="start", scale=scale, out=out,
            # bf16 products of a few keys gain no time, and PyTorch does not round their weights either
            accuracy="exact" if k_shape[-2] <= 16 else None,
        )
    finally:
        _hint_threads(0)
    _count += 1
    return out if shape is None else out.reshape(*shape, *out.shape[-2:])


@torch.library.custom_op("heed::sdpa", mutates_args=(), device_types="cpu")
def _operator(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:
    return _compute(query, key, value, attn_mask, is_causal, scale, enable_gqa)


@_operator.register_fake
def _fake(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:
    return _room(query, value.shape[3])


def _needs_grad(*tensors: torch.Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _common(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool, scale: float | None, enable_gqa: bool
) -> torch.Tensor | None:
    """Computes the common form without a mask, with few checks: they take most of a small call. None: not this form."""
    global _count
    if not (type(query) is type(key) is type(value) is torch.Tensor):
        return None
    if query.is_nested or key.is_nested or value.is_nested:  # which have no shape
        return None
    q_shape, k_shape, v_shape, dtype = query.shape, key.shape, value.shape, query.dtype
    if not len(q_shape) == len(k_shape) == len(v_shape) == 4:
        return None
    batch, heads, rows, dim = q_shape
    k_batch, k_heads, keys, k_dim = k_shape
    v_batch, v_heads, v_keys, columns = v_shape
    if (
        not batch == k_batch == v_batch or k_heads != v_heads or keys != v_keys or dim != k_dim
        or not (batch and heads and rows and dim and k_heads and keys and columns)
        or not (heads == k_heads or (enable_gqa and heads % k_heads == 0))
        or dtype not in _TYPES or key.dtype is not dtype or value.dtype is not dtype
        or query.requires_grad or key.requires_grad or value.requires_grad
        or not (query.is_cpu and key.is_cpu and value.is_cpu)
        or query.is_neg() or key.is_neg() or value.is_neg()
        or not query.layout is key.layout is value.layout is torch.strided
        or not _no_modes()
    ):
        return None
    out = torch.empty_like(query) if columns == dim else _room(query, columns)
    _hint_threads(torch.get_num_threads())
    try:
        _attention(
            query, key, value, causal=is_causal, position="start", scale=scale, out=out,
            accuracy="exact" if keys <= 16 else None,  # as in _compute
        )
    finally:
        _hint_threads(0)
    _count += 1
    return out


def sdpa(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention, by Heed where it can, else by PyTorch.

    Shapes, types, errors and meaning are PyTorch's: query [..., heads, rows, dim]; attn_mask bool (true:
    attend) or of query's type (added); is_causal counts rows and keys from the first (top-left).

    >>> import torch, heed.torch
    >>> x = torch.eye(3).reshape(1, 1, 3, 3)
    >>> torch.allclose(heed.torch.sdpa(x, x, x), torch.nn.functional.scaled_dot_product_attention(x, x, x))
    True
    """
    if torch.compiler.is_compiling():
        # One operator in the graph, of the common form; everything else is traced as PyTorch's own.
        if (
            dropout_p == 0 and query.is_cpu and not _needs_grad(query, key, value, attn_mask)
            and query.dim() == key.dim() == value.dim() == 4
            and query.shape[0] == key.shape[0] == value.shape[0] and key.shape[1] == value.shape[1]
            and (query.shape[1] == key.shape[1] or enable_gqa)
            and (attn_mask is None or attn_mask.dim() <= 4)
            and not torch.is_autocast_enabled("cpu")
            and _fits(query, key, value, attn_mask, is_causal, enable_gqa)
        ):
            result: torch.Tensor = torch.ops.heed.sdpa(query, key, value, attn_mask, is_causal, scale, enable_gqa)
            return result
    elif attn_mask is None and dropout_p == 0 and (
        out := _common(query, key, value, is_causal, scale, enable_gqa)
    ) is not None:
        return out
    elif (
        dropout_p == 0
        and _is_plain(query) and _is_plain(key) and _is_plain(value)
        and (attn_mask is None or _is_plain(attn_mask))
        and not _needs_grad(query, key, value, attn_mask)
        and _no_modes()
        and _fits(query, key, value, attn_mask, is_causal, enable_gqa)
    ):
        return _compute(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    theirs: torch.Tensor = _torch_sdpa(
        query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
        enable_gqa=enable_gqa,
    )
    return theirs


def enable() -> None:
    """Puts :func:`sdpa` in the place of torch.nn.functional.scaled_dot_product_attention, for all threads.

    Code that took PyTorch's function out of torch.nn.functional before keeps it.
    """
    torch.nn.functional.scaled_dot_product_attention = sdpa


def disable() -> None:
    """Restores PyTorch's own function."""
    torch.nn.functional.scaled_dot_product_attention = _torch_sdpa


@contextmanager
def enabled() -> Iterator[None]:
    """with enabled(): what enable does, and afterwards as it was before.

    Threads and tasks may be inside at once: the last to leave restores what the first one found.

    >>> import torch, heed.torch
    >>> x, before = torch.ones(1, 1, 2, 4), heed.torch.computed()
    >>> with heed.torch.enabled():
    ...     out = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    >>> heed.torch.computed() - before
    1
    """
    global _within, _before
    with _lock:
        if not _within:
            _before = torch.nn.functional.scaled_dot_product_attention
        _within += 1
        enable()
    try:
        yield
    finally:
        with _lock:
            _within -= 1
            if not _within:
                torch.nn.functional.scaled_dot_product_attention = _before


# ---- linear layers -------------------------------------------------------------------------------------


class _Packed:
    """Weights in the form that Heed reads fastest, and the tensors that they are a copy of."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, accuracy: _Accuracy | None) -> None:
        self.of = tuple(None if x is None else x.detach() for x in (weight, bias))  # their memory stays theirs
        self.versions = tuple(0 if x is None else x._version for x in (weight, bias))
        self.setting = _setting_now(), torch.get_num_threads()
        _hint_threads(torch.get_num_threads())
        try:
            self.linear = _HeedLinear(*self.of, accuracy=accuracy)
        finally:
            _hint_threads(0)

    def is_of(self, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
        """Are these the same tensors, not written to since?"""
        for x, mine, version in zip((weight, bias), self.of, self.versions):
            if x is None or mine is None:
                if x is not mine:
                    return False
            elif (
                x._version != version or x.data_ptr() != mine.data_ptr() or x.dtype is not mine.dtype
                or x.shape != mine.shape or x.stride() != mine.stride()
            ):
                return False
        return self.setting == (_setting_now(), torch.get_num_threads())


class Linear(torch.nn.Linear):
    """A torch.nn.Linear that Heed computes where it can; :func:`use_linear` makes them.

    Parameters, names and state_dict are torch.nn.Linear's. The packed copy of the weights, as large as they
    are, is made by the first call that needs it, and again where a parameter was exchanged or written to, or
    torch.get_num_threads() or the settings of heed.threads and heed.backend are not those of the call before;
    it is not part of copies and files of the module.
    """

    _heed_accuracy: _Accuracy | None = None
    _heed_packed: _Packed | None = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """input [..., in_features] -> [..., out_features]."""
        global _count
        weight, bias = self.weight, self.bias
        if torch.compiler.is_compiling() or not self._is_served(input, weight, bias):
            theirs: torch.Tensor = super().forward(input)
            return theirs
        packed = self._heed_packed
        if packed is None or not packed.is_of(weight, bias):
            packed = self._heed_packed = _Packed(weight, bias, self._heed_accuracy)
        out = input.new_empty((*input.shape[:-1], self.out_features))
        packed.linear(input.detach() if input.requires_grad else input, out=out)
        _count += 1
        return out

    def _is_served(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
        dtype = input.dtype
        return (
            dtype in _TYPES and _is_plain(input) and weight.dtype is dtype and _is_plain(weight)
            and not weight.is_inference()  # what is written to such a tensor is not counted
            and (bias is None or (bias.dtype is dtype and _is_plain(bias) and not bias.is_inference()))
            and not _needs_grad(input, weight, bias)
            and input.dim() > 0 and input.shape[-1] == self.in_features and input.numel() > 0
            and weight.shape == (self.out_features, self.in_features) and weight.numel() > 0
            and _no_modes()
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_heed_packed"}


def use_linear(model: torch.nn.Module, use: bool = True, *, accuracy: _Accuracy | None = None) -> int:
    """Has Heed compute the linear layers of a model, on CPU tensors of f32, f16 and bf16 where no gradient is
    needed; every other call is PyTorch's own. How many layers they are.

    model     each torch.nn.Linear in it, but no other subclass of it, becomes a :class:`Linear`
    use       False: each becomes a torch.nn.Linear again, and the packed copies are gone
    accuracy  as of heed.Linear: None, "exact", "bf16" or "split"

    Changes of weights are noticed as PyTorch counts them (load_state_dict, optimizers, assignments). It does
    not count what is written through ``weight.data`` or an array that shares the memory: call use_linear again
    then. Layers that are used under autocast, with other types or on other devices are PyTorch's.
    Errors: ValueError for an unknown accuracy, NotImplementedError from the first call where nothing serves it.

    >>> import torch, heed.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    >>> with torch.inference_mode():
    ...     x = torch.ones(3, 4)
    ...     want = model(x)
    ...     print(heed.torch.use_linear(model), torch.allclose(model(x), want))
    2 True
    """
    if accuracy is not None and accuracy not in get_args(_Accuracy):
        raise ValueError(f'accuracy is {accuracy!r}; None, "exact", "bf16" or "split" is needed')
    count = 0
    for module in model.modules():
        if type(module) is Linear or (use and type(module) is torch.nn.Linear):
            module.__class__ = Linear if use else torch.nn.Linear
            module.__dict__.pop("_heed_packed", None)
            module.__dict__.pop("_heed_accuracy", None)
            if use and accuracy is not None:
                module.__dict__["_heed_accuracy"] = accuracy
            count += 1
    return count
