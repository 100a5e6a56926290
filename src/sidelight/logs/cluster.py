"""The same reduction on a Dask cluster."""

from __future__ import annotations

from typing import Any

from sidelight.logs.schema import Schema
from sidelight.logs.summary import LogSummary


def is_dask_frame(source: Any) -> bool:
    """Whether it is a Dask frame, without importing Dask."""
    return type(source).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(source, "to_delayed")


def summarize_on_cluster(source: Any, schema: Schema, on_invalid: str, progress: Any, client: Any) -> LogSummary:
    raise NotImplementedError
