"""Heed as an attention implementation of transformers, by the name "heed".

>>> import heed.transformers
>>> heed.transformers.register()

and then ``AutoModel.from_pretrained(..., attn_implementation="heed")`` or
``model.set_attn_implementation("heed")``. Causal and bidirectional models, sliding windows, chunks, soft
caps, sinks, relative position biases, grouped heads, padding on either side and packed sequences are served.
Masks become causality, windows, lengths and ranges where that says it all and are dense else; what Heed does
not serve raises NotImplementedError with the reason, and never runs unmasked. Where a gradient or dropout is
needed the model's attention is PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import AttentionInterface, masking_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from . import masks as _masks
from ._heed import attention as _attention
from ._heed import hint_threads as _hint_threads

__all__ = ["computed", "register"]

_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_count = 0


def computed() -> int:
    """How many attentions of models Heed has computed in this process."""
    return _count


def register() -> None:
    """Makes "heed" known to AttentionInterface and AttentionMaskInterface. Twice does no harm."""
    AttentionInterface.register("heed", _forward)
    AttentionMaskInterface.register("heed", _mask)


# ---- masks ---------------------------------------------------------------------------------------------


class StructuredMask(torch.Tensor):
    """A bool mask [batch, 1, rows, keys] that is not in memory: ``options`` say the same to heed.attention.

    A model that does anything with it but pass it on gets the dense mask's result. What it did may have been
    to write, to the mask or a view of it, so from then on the mask in memory counts, and not the options.
    """

    options: dict[str, Any]
    _make: Callable[[], torch.Tensor]
    _dense: torch.Tensor | None

    @staticmethod
    def __new__(
        cls, shape: tuple[int, ...], options: dict[str, Any], make: Callable[[], torch.Tensor]
    ) -> StructuredMask:
        self: StructuredMask = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=torch.device("cpu"))
        self.options, self._make, self._dense = options, make, None
        return self

    def dense(self) -> torch.Tensor:
        """The mask in memory."""
        if self._dense is None:
            self._dense = self._make()
        return self._dense

    __torch_function__: Any = torch._C._disabled_torch_function_impl  # type: ignore[assignment, unused-ignore]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override, unused-ignore]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        def dense(x: Any) -> Any:
            return x.dense() if isinstance(x, StructuredMask) else x

        args, kwargs = torch.utils._pytree.tree_map(dense, (args, kwargs or {}))
        return func(*args, **kwargs)


_ranges_are_served: bool | None = None


def _ranges() -> bool:
    """Does the library serve ranges?"""
    global _ranges_are_served
    if _ranges_are_served is None:
        x = torch.ones(1, 1, 1, 1)
        try:
            _attention(x, x, x, ranges=_masks.chunks(1, 1))
            _ranges_are_served = True
        except NotImplementedError:
            _ranges_are_served = False
    return _ranges_are_served


def _closure(function: Any) -> dict[str, Any]:
    """The variables that a closure holds, by name."""
    cells = function.__closure__ or ()
    return dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in cells)))


def _read(function: Any, found: dict[str, Any], inside_segments: bool = False) -> bool:
    """Takes a mask function of masking_utils apart into found; False if a part of it is not known."""
    if function is masking_utils.causal_mask_function:
        found["causal"] = True
        return True
    if function is masking_utils.bidirectional_mask_function:
        return True
    if getattr(function, "__module__", None) != masking_utils.__name__:
        return False
    held = _closure(function)
    made_by = function.__qualname__.split(".")[0]
    if made_by == "and_masks":
        return all(_read(part, found, inside_segments) for part in held["mask_functions"])
    if made_by == "sliding_window_overlay":
        found["left"] = min(int(held["sliding_window"]) - 1, found.get("left", 2**62))
        return bool(found["left"] >= 0)
    if made_by == "sliding_window_bidirectional_overlay":
        if "left" in found or "right" in found:
            return False
        found["left"] = found["right"] = int(held["sliding_window"])
        return True
    if made_by == "chunked_overlay" and not inside_segments and "chunk" not in found:
        found["chunk"], found["chunk_padding"] = int(held["chunk_size"]), held["left_padding"]
        return True
    if made_by == "packed_sequence_mask_function" and "segments" not in found:
        found["segments"] = held["packed_sequence_mask"]
        return True
    if made_by == "remap_positions_for_packed_sequence":
        # Within a segment positions differ as indices do, and beyond it the segments' mask hides all.
        return _read(held["mask_function"], found, True)
    return False


def _chunk_ranges(
    size: int, padding: Any, batch: int, rows: int, keys: int, q_offset: int, kv_offset: int
) -> torch.Tensor:
    """Ranges of chunks that begin at each sequence's first token that is not padding."""
    first = torch.as_tensor(padding).reshape(-1, 1)
    begin = (torch.arange(rows)[None] + q_offset - first) // size * size + first - kv_offset
    pair = torch.stack([begin, begin + size], -1).clamp(0, keys).to(torch.int32)
    return pair.expand(batch, rows, 2)[:, None, :, None, :].contiguous()


def _structure(
    function: Any, padding: torch.Tensor | None, batch: int, rows: int, keys: int, q_offset: int, kv_offset: int
) -> dict[str, Any] | None:
    """Options of heed.attention that say the same as the mask; None where only the dense mask can."""
    found: dict[str, Any] = {}
    if not _read(function, found):
        return None
    options: dict[str, Any] = {}
    if found.get("causal"):
        options["causal"] = True
    if "left" in found:
        options["window"] = (found["left"], found.get("right", -1))
    if options:
        options["position"] = q_offset - kv_offset
    if "chunk" in found or "segments" in found:
        if ("chunk" in found and "segments" in found) or not _ranges():
            return None
        if "chunk" in found:
            options["ranges"] = _chunk_ranges(
                found["chunk"], found["chunk_padding"], batch, rows, keys, q_offset, kv_offset
            )
        else:
            ids = found["segments"]
            if ids.shape[-1] != keys or rows != keys or q_offset or kv_offset:
                return None
            try:
                options["ranges"] = _masks.segments(ids.to(torch.int32).expand(batch, -1).contiguous())
            except ValueError:  # more pieces than a row has ranges
                return None
    if padding is not None and not bool(padding.all()):
        lens = padding.sum(-1)
        # With ranges, a length would have to shorten them too.
        if "ranges" not in options and bool((padding == (torch.arange(keys)[None] < lens[:, None])).all()):
            options["kv_lens"] = lens.to(torch.int32).expand(batch).contiguous()
        else:
            options["mask"] = padding[:, None, None, :]
    return options


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Any = masking_utils.causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    allow_is_causal_skip: bool = True,
    **options: Any,
) -> torch.Tensor | None:
    """The mask of a step of a model, which each layer hands to _forward."""

    def dense(skip: bool) -> torch.Tensor | None:
        made: torch.Tensor | None = sdpa_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
            mask_function=mask_function, attention_mask=attention_mask,
            allow_is_causal_skip=allow_is_causal_skip and skip,
            **{**options, "allow_is_bidirectional_skip": options.get("allow_is_bidirectional_skip", False) and skip},
        )
        return made

    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or torch.device(options.get("device", "cpu")).type != "cpu":
        return dense(True)
    first, first_key = int(q_offset), int(kv_offset)
    padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, first_key)
    if padding is not None:
        padding = padding[:, first_key : first_key + kv_length].to(torch.bool)
    found = _structure(mask_function, padding, batch_size, q_length, kv_length, first, first_key)
    if found is None:
        return dense(False)

    def make() -> torch.Tensor:
        made = dense(False)
        assert made is not None
        return made

    return StructuredMask((batch_size, 1, q_length, kv_length), found, make)


# ---- attention -----------------------------------------------------------------------------------------


def _refuse(reason: str) -> None:
    raise NotImplementedError(f'attn_implementation="heed": {reason}')


def _forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What a layer calls: query [batch, heads, rows, dim]; returns [batch, rows, heads, dim] and no weights
    unless output_attentions asks for them."""
    for name in ("cache", "indices", "block_indices", "sinks", "head_mask", "layer_head_mask"):
        if kwargs.get(name) is not None:
            _refuse(f"{type(module).__name__} gives {name}=, which Heed does not serve")
    tensors = (query, key, value, position_bias, s_aux)
    if dropout or (torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)):
        if softcap is not None or s_aux is not None:
            _refuse("gradients and dropout are PyTorch's part, which has no softcap and no sinks; use \"eager\"")
        mask = attention_mask.dense() if isinstance(attention_mask, StructuredMask) else attention_mask
        out, weights = sdpa_attention_forward(
            module, query, key, value, mask, dropout=dropout, scaling=scaling, is_causal=is_causal,
            position_bias=position_bias, **kwargs,
        )
        return out, weights
    if torch.is_autocast_enabled("cpu"):  # as PyTorch's function is under it
        query, key, value = (x.to(torch.get_autocast_dtype("cpu")) for x in (query, key, value))
    if not query.is_cpu or query.dtype not in _TYPES:
        _refuse(f"the query is of {query.dtype} on {query.device}; Heed computes f32, f16 and bf16 on the CPU")
    result: tuple[torch.Tensor, torch.Tensor | None] = _attend(
        module, query.detach(), key.detach(), value.detach(), attention_mask, scaling, is_causal, softcap, s_aux,
        position_bias, bool(kwargs.get("output_attentions")),
    )
    return result


@torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None,
    is_causal: bool | None,
    softcap: float | None,
    s_aux: torch.Tensor | None,
    position_bias: torch.Tensor | None,
    return_weights: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    global _count
    rows, keys = query.shape[2], key.shape[2]
    options: dict[str, Any] = {}
    if attention_mask is None:
        # As PyTorch's function would be called: one row sees all keys, several rows count from the first key.
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        if rows > 1 and causal:
            options = {"causal": True, "position": "start"}
    elif (
        isinstance(attention_mask, StructuredMask) and attention_mask._dense is None
        and attention_mask.shape[2:] == (rows, keys)
    ):
        options = dict(attention_mask.options)
    else:
        if isinstance(attention_mask, StructuredMask):
            attention_mask = attention_mask.dense()
        if attention_mask.dim() != 4:
            _refuse(f"a mask with {attention_mask.dim()} axes, where 4 are needed")
        options["mask" if attention_mask.dtype is torch.bool else "bias"] = attention_mask.detach()
    batch = max(query.shape[0], key.shape[0])
    if query.shape[0] != batch or key.shape[0] != batch:
        query, key, value = (x.expand(batch, *x.shape[1:]) for x in (query, key, value))
    if position_bias is not None:
        own = position_bias.detach()
        options["bias"] = own + options["bias"] if "bias" in options else own
    out = torch.empty((batch, rows, query.shape[1], value.shape[3]), dtype=query.dtype)
    _hint_threads(torch.get_num_threads())
    try:
        result: Any = _attention(
            query, key, value, scale=scaling, softcap=softcap, sinks=None if s_aux is None else s_aux.detach(),
            out=out.transpose(1, 2), return_weights=return_weights, **options,
        )
    finally:
        _hint_threads(0)
    _count += 1
    return out, result[1].to(query.dtype) if return_weights else None
