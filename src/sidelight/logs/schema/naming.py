"""Contexts that say which value is which: mappings, a frame's rows, named tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["by_name", "rows_by_name"]


def by_name(context: Any) -> Mapping[str, Any] | None:
    """Name → value of a context that names its values; ``None`` for numbers in order.

    A mapping, a pandas ``Series``, a named tuple, an element of a structured array, an Arrow struct, or a frame or
    table with exactly one row.
    """
    if isinstance(context, Mapping):
        return context
    if isinstance(context, np.ndarray | list):
        if isinstance(context, np.ndarray) and context.ndim == 0 and context.dtype.names:
            return by_name(context[()])
        return None
    if isinstance(context, tuple):
        fields = getattr(context, "_fields", None)
        return None if fields is None else dict(zip(fields, context, strict=True))
    if isinstance(context, np.void) and context.dtype.names:
        return {name: context[name].item() for name in context.dtype.names}
    if hasattr(context, "as_py"):
        value = context.as_py()
        return value if isinstance(value, Mapping) else None
    if hasattr(context, "__arrow_c_stream__") and hasattr(context, "columns") and len(context) == 1:
        return _only_row(context)
    if hasattr(context, "index") and hasattr(context, "iloc") and not hasattr(context, "columns"):
        # a pandas Series; its values one by one, so that each keeps its type
        return {name: context.iloc[i] for i, name in enumerate(context.index)}
    return None


def _only_row(frame: Any) -> Mapping[str, Any]:
    if hasattr(frame, "iloc"):
        return {str(name): frame.iloc[0, i] for i, name in enumerate(frame.columns)}
    if hasattr(frame, "row"):
        row: Mapping[str, Any] = frame.row(0, named=True)
        return row
    first: Mapping[str, Any] = frame.to_pylist()[0]
    return first


def rows_by_name(contexts: Any) -> list[Mapping[str, Any]] | None:
    """The rows of a frame or of a sequence of contexts that name their values; ``None`` for anything else."""
    if hasattr(contexts, "__arrow_c_stream__") and hasattr(contexts, "columns"):
        if hasattr(contexts, "to_dicts"):
            return list(contexts.to_dicts())
        return contexts.to_dict("records") if hasattr(contexts, "iloc") else list(contexts.to_pylist())
    if isinstance(contexts, str) or not isinstance(contexts, Sequence) or not contexts or by_name(contexts) is not None:
        return None
    if by_name(contexts[0]) is None:
        return None
    rows = [by_name(context) for context in contexts]
    return None if any(row is None for row in rows) else rows  # type: ignore[return-value]
