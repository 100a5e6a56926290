"""Conversion of arrays and frames to Arrow tables, and of results back to the kind of input."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sidelight.errors import ContextError, InputError, SidelightWarning
from sidelight.logs.schema.features import Category, Feature, Number

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "as_column",
    "as_table",
    "free_name",
    "in_the_form_of",
    "is_frame",
    "known_features",
    "label_array",
    "not_fitted",
]


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
    if hasattr(X, "toarray"):
        raise ContextError(f"Sparse input ({type(X).__name__}) is not supported: give a dense array, X.toarray().")
    try:
        raw = np.asarray(X)
        if np.iscomplexobj(raw):
            raise ContextError("Complex data not supported: a feature is a real number.")
        array = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, ContextError):
            raise
        raise ContextError(
            f"X must be a frame or numbers (n, features); got {type(X).__name__}. Text belongs into a frame."
        ) from error
    if array.ndim != 2:
        raise ContextError(
            f"X has shape {array.shape}; give a row for each context, (n, features). Reshape your data: "
            "X.reshape(1, -1) for one context, X.reshape(-1, 1) for one feature."
        )
    if array.shape[1] == 0:
        raise ContextError(
            f"X has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required: give at least one column."
        )
    named = None if features is None or isinstance(features, int | np.integer) else [_name(f) for f in features]
    names = [f"x{j}" for j in range(array.shape[1])] if named is None else named
    if array.shape[1] > len(names):
        raise ContextError(
            f"X has {array.shape[1]} features, but BanditClassifier is expecting {len(names)} features as input: "
            f"{', '.join(names)}."
        )
    columns = [pa.array(np.ascontiguousarray(array[:, j]), from_pandas=True) for j in range(array.shape[1])]
    return pa.table(columns, names=names[: array.shape[1]])


def as_column(values: Any, n: int, name: str) -> pa.Array:
    """One value for each of ``n`` contexts, as an Arrow array; ``name`` is what messages call it."""
    import pyarrow as pa

    if values is None:
        raise InputError(f"BanditClassifier requires y to be passed, but the target {name} is None.")
    if hasattr(values, "__arrow_c_stream__"):
        column = pa.chunked_array(values).combine_chunks()
    else:
        array = np.asarray(values) if hasattr(values, "__array__") or not hasattr(values, "__len__") else None
        if array is not None and array.ndim == 2 and array.shape[1] == 1:
            kind = getattr(_scikit_learn("sklearn.exceptions"), "DataConversionWarning", SidelightWarning)
            warnings.warn(
                f"A column-vector {name} was passed when a 1d array was expected: it is read as {len(array)} values.",
                kind,
                stacklevel=3,
            )
            array = array.ravel()
        if array is not None and array.ndim != 1:
            raise InputError(f"{name} has shape {array.shape}: give one value for each context, a 1d array.")
        listed = list(values) if array is None else array.tolist()
        column = pa.array(listed, from_pandas=True)  # so that NaN among text is a missing value
    if len(column) != n:
        raise InputError(f"{name} has {len(column)} values and X {n} rows: give one for each.")
    return column


def not_fitted(message: str) -> InputError:
    """The error for predicting before ``fit``; also a ``NotFittedError`` where scikit-learn is installed."""
    theirs = getattr(_scikit_learn("sklearn.exceptions"), "NotFittedError", None)
    if theirs is None:
        return InputError(message)
    made: InputError = type("NotFittedError", (InputError, theirs), {})(message)
    return made


def _scikit_learn(module: str) -> Any:
    """A module of scikit-learn, or ``None`` where it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        return None


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
        if not isinstance(feature, str):
            found.append(feature)
            continue
        kind = table.schema.field(feature).type if feature in table.column_names else pa.float64()
        is_label = pa.types.is_dictionary(kind) and not pa.types.is_floating(kind.value_type)
        # text is looked at where the log is read: what reads as numbers is numbers, dates are told to be dates
        found.append(Category(feature) if is_label else Number(feature, assumed=True))
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


def is_frame(X: Any) -> bool:
    """Whether ``X`` is a pandas or a polars frame."""
    return type(X).__module__.split(".")[0] in ("pandas", "polars") and type(X).__name__ == "DataFrame"


def in_the_form_of(X: Any, table: pa.Table) -> Any:
    """``table`` as the kind of frame that ``X`` is, with the index of a pandas frame; else as it is."""
    kind = type(X).__module__.split(".")[0]
    if kind == "pandas":
        return table.to_pandas().set_index(X.index)
    if kind == "polars":
        import polars as pl

        return pl.from_arrow(table)
    return table
