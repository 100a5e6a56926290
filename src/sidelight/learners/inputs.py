"""Arrays and frames as they come, for :class:`sidelight.BanditClassifier`: in as Arrow, out as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import ContextError, InputError
from sidelight.logs.schema.features import Category, Feature, Number

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_table", "free_name", "in_the_form_of", "known_features", "label_array", "null_answer"]


def as_table(X: Any, features: int | Sequence[str | Feature] | None) -> pa.Table:
    """``X`` as an Arrow table; the columns of an array are called after ``features``, or ``x0, x1, …``."""
    import pyarrow as pa

    kind = type(X).__module__.split(".")[0]
    if kind == "pandas":
        return pa.Table.from_pandas(X.rename(columns=str), preserve_index=False)
    if kind == "polars":
        return X.to_arrow()  # its own stream has text in a layout that few functions of Arrow take
    if isinstance(X, pa.Table) or hasattr(X, "__arrow_c_stream__"):
        return pa.table(X)
    try:
        array = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise ContextError(
            f"X must be a frame or numbers (n, features); got {type(X).__name__}. Text belongs into a frame."
        ) from None
    if array.ndim != 2:
        raise ContextError(f"X has shape {array.shape}; give a row for each context, (n, features).")
    named = None if features is None or isinstance(features, int | np.integer) else [_name(f) for f in features]
    names = [f"x{j}" for j in range(array.shape[1])] if named is None else named
    if array.shape[1] > len(names):
        raise ContextError(f"X has {array.shape[1]} columns, but there are {len(names)} features: {', '.join(names)}.")
    columns = [pa.array(np.ascontiguousarray(array[:, j]), from_pandas=True) for j in range(array.shape[1])]
    return pa.table(columns, names=names[: array.shape[1]])


def _name(feature: str | Feature) -> str:
    return feature if isinstance(feature, str) else feature.name


def known_features(table: pa.Table, features: int | Sequence[str | Feature] | None) -> list[Feature]:
    """The features of a full context; columns of text are categories."""
    import pyarrow as pa

    wanted: Sequence[str | Feature]
    if features is None:
        wanted = table.column_names
    elif isinstance(features, int | np.integer):
        if features < table.num_columns:
            raise InputError(f"features={features}, but X has {table.num_columns} columns.")
        wanted = [f"x{j}" for j in range(features)]
    else:
        wanted = features
    found: list[Feature] = []
    for feature in wanted:
        if isinstance(feature, str):
            here = feature in table.column_names
            kind = table.schema.field(feature).type if here else pa.float64()
            numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            numeric = numeric or pa.types.is_boolean(kind) or pa.types.is_null(kind)
            found.append(Number(feature) if numeric else Category(feature))
        else:
            found.append(feature)
    return found


def free_name(name: str, taken: Sequence[str]) -> str:
    """``name``, with as many underscores as keep it apart from ``taken``."""
    while name in taken:
        name += "_"
    return name


def label_array(labels: Sequence[Any]) -> NDArray[Any]:
    """Labels as an array that gives them back unchanged: text or integers where all are, else objects."""
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 and kinds <= {str, int, bool}:
        return np.array(labels)
    out = np.empty(len(labels), dtype=object)
    out[:] = labels
    return out


def null_answer(answer: Any) -> bool:
    """Whether the old policy was not asked in this row: None, NaN, or a row of NaN."""
    if answer is None:
        return True
    if isinstance(answer, float):
        return answer != answer
    return isinstance(answer, np.ndarray) and bool(np.isnan(answer).any())


def in_the_form_of(X: Any, table: pa.Table) -> Any:
    """``table`` as the kind of frame that ``X`` is, with the index of a pandas frame; else as it is."""
    kind = type(X).__module__.split(".")[0]
    if kind == "pandas":
        return table.to_pandas().set_index(X.index)
    if kind == "polars":
        import polars as pl

        return pl.from_arrow(table)
    return table
