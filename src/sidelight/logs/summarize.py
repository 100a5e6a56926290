"""``summarize_log``: one pass over a log, here or on a cluster, and a second one where it is asked for."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sidelight.errors import InputError, SidelightWarning, calls_inside
from sidelight.logs.reduce.cluster import is_dask_frame, summarize_on_cluster
from sidelight.logs.reduce.log_pass import (
    LogPass,
    batch_rows,
    check_settings,
    label_columns,
    opened_with_kinds,
    threads_available,
)
from sidelight.logs.reduce.sandwich import with_meat
from sidelight.logs.schema.fitting import check_arms
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.opening import open_source
from sidelight.logs.summary import LogSummary

__all__ = ["summarize_here", "summarize_log"]

# Warn if more than this share of the rows is skipped.
_MANY_SKIPPED = 0.05


def summarize_log(
    source: Any,
    schema: Schema,
    on_invalid: str = "raise",
    progress: Any = False,
    client: Any = None,
    *,
    sandwich: bool = False,
) -> LogSummary:
    """Read a log once and keep, per arm, a count and the triangular factor of ``[x_o | r]``.

    Args:
        source: a path, list or glob of Parquet, CSV (plain, gzip, zstd) or Arrow files, a partitioned folder, a
            pandas, polars or Dask frame, an Arrow table, dataset or reader, a DuckDB relation, a mapping of arrays,
            a triple ``(X, arms, rewards)`` of arrays, or an iterator of batches. Only the schema's columns are
            read, and memory does not grow with the number of rows.
        schema: which columns are what.
        on_invalid: ``"raise"`` stops at rows that cannot be used and says which; ``"skip"`` leaves them out and
            counts them by reason in ``summary.skipped``.
        progress: ``True`` shows a progress bar; or a function called with the rows read and the rows expected
            (``None`` if not known).
        client: a Dask client: the same reduction on its cluster.
        sandwich: also keep ``Σ (ε/(1 − h))² x_o x_oᵀ`` per arm, ``h`` the rows' leverages (``summary.meat``), which
            needs a second pass over the source.

    Returns:
        The summary; its schema is resolved.

    Raises:
        SchemaError: the source does not have the schema's columns, or they cannot be encoded.
        InvalidRowsError: rows that cannot be used, and ``on_invalid="raise"``.
        SourceError: the source cannot be read, its files do not agree, or it has no rows.

    Examples:
        >>> import sidelight as sl
        >>> log = {"age": [61.0, 48.0, 70.0], "dose": ["low", "high", "low"], "outcome": [0.2, 0.9, 0.1]}
        >>> schema = sl.Schema(features=["age", "income"], recorded=["age"], arm="dose", reward="outcome")
        >>> sl.summarize_log(log, schema)
        LogSummary(3 rows, 2 arms, 1 of 2 columns recorded)
    """
    check_settings(schema, on_invalid)
    if client is None and not is_dask_frame(source):
        summary = summarize_here(source, schema, on_invalid, progress, sandwich)
    elif sandwich:
        raise InputError("sandwich=True is not available on a cluster: summarize on one machine for that.")
    else:
        summary = summarize_on_cluster(source, schema, on_invalid, progress, client)
    skipped = sum(summary.skipped.values())
    if schema.arms is None:
        check_arms(schema.arm, summary.arms, summary.counts.tolist(), skipped, "the log")
    if skipped > _MANY_SKIPPED * (skipped + summary.n_rows):
        most = max(summary.skipped, key=lambda reason: summary.skipped[reason])
        warnings.warn(
            f"{skipped:,} of {skipped + summary.n_rows:,} rows were skipped, most of them for: {most}. If whether a "
            "row can be used depends on its arm or reward, the remaining rows are a biased sample.",
            SidelightWarning,
            stacklevel=calls_inside(),
        )
    return summary


def summarize_here(
    source: Any,
    schema: Schema,
    on_invalid: str = "raise",
    progress: Any = False,
    sandwich: bool = False,
    threads: int | None = None,
) -> LogSummary:
    """The summary of a log that this machine reads; ``threads`` is by default the cores it may use, eight at most."""
    opened, schema = opened_with_kinds(source, schema)
    if sandwich and not opened.rereadable:
        raise InputError(
            f"sandwich=True reads the log twice, and {opened.name} can be read only once. Write it to a file first."
        )
    with ThreadPoolExecutor(threads or threads_available()) as pool, opened.reporting(progress, "reading"):
        log_pass = LogPass(schema, on_invalid, pool, opened.text_labels, warns=True)
        try:
            for bundle in opened.bundles(batch_rows(schema)):
                log_pass.feed(bundle)
            summary = log_pass.finish(opened.name)
        except BaseException:
            log_pass.cancel()
            raise
    if sandwich:
        again = open_source(source, schema.columns, labels=label_columns(schema))
        with again.reporting(progress, "residuals"):
            return with_meat(summary, again.bundles(batch_rows(schema)), again.text_labels)
    return summary
