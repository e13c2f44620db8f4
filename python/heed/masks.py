"""Masks with structure: what ``ranges=`` and ``key_blocks=`` of heed.attention take."""

from ._heed import blocks, chunks, prefix, segments, tree

__all__ = ["blocks", "chunks", "prefix", "segments", "tree"]
