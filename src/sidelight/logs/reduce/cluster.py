"""``summarize_log`` on a Dask cluster: one task per piece of a file, then the summaries are added up in a tree.

A task reads its piece where it runs and hands back a summary of a few kilobytes, so nothing but summaries travels.
Dask runs a lost task again on another worker; the additions have a fixed order, so the result does not depend on
which worker was faster.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sidelight import errors
from sidelight.errors import (
    InputError,
    InvalidRowsError,
    MissingExtraError,
    SidelightError,
    SourceError,
    how_to_install,
)
from sidelight.labels import typed_labels
from sidelight.logs.reduce.batch import show_reasons
from sidelight.logs.reduce.log_pass import LogPass, batch_rows, label_columns, opened_with_kinds
from sidelight.logs.schema.features import Category, Number
from sidelight.logs.schema.fitting import check_levels
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.base import LogFile, Source, check_columns
from sidelight.logs.sources.opening import open_source
from sidelight.logs.sources.paths import find_files, row_groups
from sidelight.logs.summary import LogSummary

__all__ = ["is_dask_frame", "summarize_on_cluster"]

# Row groups are joined to tasks of about this many rows: seconds of work, so that a lost worker costs little.
_ROWS_PER_TASK = 2_000_000
_FAN_IN = 8
# What names files that every worker can read.
_PATHS = (str, os.PathLike, list, tuple, set, frozenset)
_RETRIES = 3
# First rows of a frame from which columns of text are recognized.
_HEAD = 1_000


@dataclass(frozen=True)
class Part:
    """What a task hands back: a summary as bytes, or none if no row of it can be used, or what went wrong.

    Plain values only: an exception object might not survive pickling, a message does.
    """

    summary: bytes | None = None
    rows: int = 0
    skipped: tuple[tuple[str, int], ...] = ()
    error: tuple[str, str] | None = None


def is_dask_frame(source: Any) -> bool:
    """Whether it is a Dask frame, without importing Dask."""
    return type(source).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(source, "to_delayed")


def summarize_on_cluster(source: Any, schema: Schema, on_invalid: str, progress: Any, client: Any) -> LogSummary:
    """Summarize files or a Dask frame on a cluster.

    Args:
        source: paths that every worker can read, or a Dask frame.
        schema: the schema.
        on_invalid: ``"raise"`` or ``"skip"``.
        progress: ``True`` or a function of rows done and rows expected.
        client: a ``distributed.Client``, the address of a scheduler, or ``None`` for a Dask frame: then the current
            client, or Dask's threads where there is none.
    """
    dask = _module("dask")
    if isinstance(client, str):
        with _module("distributed").Client(client) as connected:
            return summarize_on_cluster(source, schema, on_invalid, progress, connected)
    schema = _with_kinds(source, schema)
    description = schema.to_dict()
    if is_dask_frame(source):
        parts = _frame_tasks(source, schema, description, on_invalid)
        name, expected, text = "the Dask frame", None, False
    elif isinstance(source, _PATHS):
        files = find_files(source)
        pieces = [piece for file in files for piece in row_groups(file, _ROWS_PER_TASK)]
        task = dask.delayed(_summarize_file, pure=False)
        parts = [task(piece, description, on_invalid) for piece, _ in pieces]
        name = files[0].path if len(files) == 1 else f"{len(files)} files"
        counts = [rows for _, rows in pieces]
        expected = None if None in counts else sum(rows for rows in counts if rows is not None)
        text = files[0].kind == "csv"
    else:
        raise SourceError(
            f"a cluster reads files that every worker can see, or a Dask frame, not {type(source).__name__}."
        )
    if not parts:
        raise SourceError(f"{name} has no rows: there is nothing to learn from.")
    total = _computed(parts, client, progress, name, expected)
    return _finished(total, name, text)


def _with_kinds(source: Any, schema: Schema) -> Schema:
    """The schema with the kinds that it leaves open, found in the files, or in the first rows of a frame."""
    if not is_dask_frame(source):
        return opened_with_kinds(source, schema)[1] if isinstance(source, _PATHS) else schema
    if schema.unfitted:
        raise InputError(
            f"{schema.unfitted[0].label} takes its knots from a first pass over the log, which a Dask frame is not "
            "made for: give knots and edges, or schema.fit(a sample of the rows)."
        )
    check_columns([str(column) for column in source.columns], schema.columns, "the Dask frame")
    open_ = [f.name for f in schema.recorded_features if isinstance(f, Number) and f.assumed]
    text = [name for name in open_ if getattr(source[name].dtype, "kind", "O") in "OUS"]
    return schema.fit(source[text].head(_HEAD, npartitions=-1)) if text else schema


def _frame_tasks(frame: Any, schema: Schema, description: dict[str, Any], on_invalid: str) -> list[Any]:
    check_columns([str(column) for column in frame.columns], schema.columns, "the Dask frame")
    task = _module("dask").delayed(_summarize_frame, pure=False)
    partitions = frame[list(schema.columns)].to_delayed()
    return [task(partition, number, description, on_invalid) for number, partition in enumerate(partitions)]


def _computed(parts: list[Any], client: Any, progress: Any, name: str, expected: int | None) -> Part:
    """Run the tasks and the tree of additions, reporting rows as tasks end."""
    dask = _module("dask")
    client = client or _current_client()
    if client is None:
        (total,) = dask.compute(_tree(parts, dask.delayed(_add_parts, pure=False)))
    else:
        futures = client.compute(parts, retries=_RETRIES)
        _report(futures, progress, name, expected)
        total = _tree(futures, partial(client.submit, _add_parts, retries=_RETRIES, pure=False)).result()
    assert isinstance(total, Part)
    return total


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"a cluster needs {name}: {how_to_install('cluster')}.") from error


def _current_client() -> Any:
    try:
        return importlib.import_module("distributed").get_client()
    except (ImportError, ValueError):
        return None


def _tree(parts: Sequence[Any], add: Callable[[list[Any]], Any]) -> Any:
    """The sum of all parts by a tree: neighbours are added, a few at a time, until one is left."""
    level = list(parts)
    while len(level) > 1:
        level = [
            group[0] if len(group) == 1 else add(group)
            for group in (level[i : i + _FAN_IN] for i in range(0, len(level), _FAN_IN))
        ]
    return level[0]


def _report(futures: list[Any], progress: Any, name: str, expected: int | None) -> None:
    """Wait for the tasks; stop at the first that found something wrong."""
    source = Source(name, lambda: iter(()), (), expected)
    done = 0
    with source.reporting(progress, "reading"):
        for future in _module("distributed").as_completed(futures):
            part = future.result()
            if part.error is not None:
                for other in futures:
                    other.cancel()
                raise _rebuilt(part.error)
            done += part.rows
            if source.report is not None:
                source.report(done, expected)


def _rebuilt(error: tuple[str, str]) -> SidelightError:
    kind = getattr(errors, error[0], SidelightError)
    rebuilt: SidelightError = kind(error[1])
    return rebuilt


def _finished(total: Part, name: str, text: bool) -> LogSummary:
    if total.error is not None:
        raise _rebuilt(total.error)
    if total.summary is None:
        if total.rows == 0:
            raise SourceError(f"{name} has no rows: there is nothing to learn from.")
        reasons = show_reasons(dict(total.skipped))
        raise InvalidRowsError(f"none of the {total.rows:,} rows of {name} can be used: {reasons}.")
    summary = LogSummary.from_bytes(total.summary)
    summary.skipped = dict(sorted(total.skipped))
    for feature in summary.schema.recorded_features:
        if isinstance(feature, Category) and feature.discovered:
            check_levels(feature.name, feature.levels or (), total.rows, name)
    return summary.with_labels(typed_labels) if text else summary


# What runs on the workers


class _Inline(Executor):
    """An executor that runs each call at once in the calling thread: a Dask worker has threads of its own."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` in this process and return a finished future, like an executor without workers."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except SidelightError as error:
            future.set_exception(error)
        return future


def _summarize_file(file: LogFile, description: dict[str, Any], on_invalid: str) -> Part:
    return _summarize(file, description, on_invalid, 0)


def _summarize_frame(frame: Any, number: int, description: dict[str, Any], on_invalid: str) -> Part:
    return _summarize(frame, description, on_invalid, number)


def _summarize(source: Any, description: dict[str, Any], on_invalid: str, number: int) -> Part:
    schema = Schema.from_dict(description)
    try:
        opened = open_source(source, schema.columns, label_columns(schema))
        if not isinstance(source, LogFile):
            opened = replace(opened, name=f"partition {number} of the Dask frame")
        log_pass = LogPass(schema, on_invalid, _Inline(), opened.text_labels, part=True)
        for bundle in opened.bundles(batch_rows(schema)):
            log_pass.feed(bundle)
        skipped = log_pass.skipped()
        if log_pass.rows_seen == sum(skipped.values()):
            return Part(None, log_pass.rows_seen, tuple(skipped.items()))
        summary = log_pass.finish(opened.name)
    except SidelightError as error:
        return Part(error=(type(error).__name__, str(error)))
    return Part(summary.to_bytes(), log_pass.rows_seen, tuple(skipped.items()))


def _add_parts(parts: list[Part]) -> Part:
    rows = 0
    skipped: dict[str, int] = {}
    total: LogSummary | None = None
    try:
        for part in parts:
            if part.error is not None:
                return part
            rows += part.rows
            for reason, count in part.skipped:
                skipped[reason] = skipped.get(reason, 0) + count
            if part.summary is not None:
                summary = LogSummary.from_bytes(part.summary)
                total = summary if total is None else total + summary
    except SidelightError as error:
        return Part(error=(type(error).__name__, str(error)))
    return Part(None if total is None else total.to_bytes(), rows, tuple(sorted(skipped.items())))
