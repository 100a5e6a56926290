"""Anything tabular → Arrow record batches with the wanted columns, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import SourceError
from sidelight.logs.encoding import check_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_batches"]


def as_batches(source: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The wanted columns of a source, batch by batch."""
    import pyarrow as pa

    if isinstance(source, Mapping):
        check_columns(list(source), columns, "the mapping")
        source = pa.table({name: np.asarray(source[name]) for name in columns})
    elif hasattr(source, "__arrow_c_stream__") and not isinstance(source, pa.Table):
        source = pa.table(source)
    elif isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if not isinstance(source, pa.Table):
        raise SourceError(f"cannot read a log from {type(source).__name__}.")
    check_columns(source.column_names, columns, "the table")
    yield from source.select(list(columns)).to_batches(max_chunksize=65536)
