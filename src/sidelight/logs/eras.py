"""Logs whose columns were added over the years: one summary for each set of recorded columns."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Container
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import InputError, SchemaError, SourceError
from sidelight.labels import Label, typed_labels
from sidelight.logs.cards import eras_card
from sidelight.logs.diagnosis.diagnosis import Diagnosis
from sidelight.logs.reduce.log_pass import LogPass, check_settings, label_columns, opened_with_kinds, threads_available
from sidelight.logs.schema.columns import distinct_labels
from sidelight.logs.schema.schema import Schema
from sidelight.logs.sources.base import Bundle
from sidelight.logs.sources.opening import open_source
from sidelight.logs.summary import LogSummary

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Diagnoses", "Eras", "era_title", "recorded_by_value", "rows_by_missing", "rows_by_value", "summarize_eras"]

_ROWS = 65_536
# With more sets of missing columns than this, values are missing here and there, not by era.
_MOST_ERAS = 64
# Characters that are replaced in names of files and settings.
_SIGNS = re.compile(r"[^\w]+")


class Eras(dict[Any, LogSummary]):
    """One summary per era, the largest first; a dictionary whose keys name the era.

    With ``by="missing"`` a key is the tuple of recorded feature names; with a column's name it is that column's value,
    ``None`` for rows that have none there (from CSV a number if all values are written as numbers, as arms are). All
    summaries have the same arms in the same order.
    """

    def diagnose(self, noise: float | None = None) -> Diagnoses:
        """What each era is worth, and what is wrong with it.

        Args:
            noise: the standard deviation ``σ`` of a reward given the full context, if it is known.
        """
        return Diagnoses((key, summary.diagnose(noise)) for key, summary in self.items())

    def names(self) -> dict[Any, str]:
        """A different name for each era that can be part of a file's name and of a setting.

        It is the era's value, letters and digits kept; ``era1``, ``era2``, …, by its position, where there is no such
        value or another era has that name.
        """
        found: dict[Any, str] = {}
        for key in self:
            text = "" if isinstance(key, tuple) or key is None else _SIGNS.sub("-", str(key)).strip("-")
            if text and text not in found.values():
                found[key] = text
        for number, key in enumerate(self, 1):
            if key not in found:
                numbers = itertools.count(number)
                found[key] = next(name for i in numbers if (name := f"era{i}") not in found.values())
        return {key: found[key] for key in self}

    def save(self, path: str | os.PathLike[str]) -> dict[str, Path]:
        """Write one summary file for each era beside ``path``: ``log.summary`` becomes ``log.2021.summary`` and so on.

        Returns:
            The file of each era by its name.
        """
        base = Path(path)
        files = {}
        for key, name in self.names().items():
            files[name] = base.with_name(f"{base.stem}.{name}{base.suffix}")
            self[key].save(files[name])
        return files

    def __repr__(self) -> str:
        lines = [f"  {key!r}: {summary!r}" for key, summary in self.items()]
        return "Eras({\n" + ",\n".join(lines) + "\n})"

    def _repr_html_(self) -> str:
        return eras_card(self)


class Diagnoses(dict[Any, Diagnosis]):
    """One diagnosis per era, the largest era first; prints as a page for each."""

    def to_dict(self) -> list[dict[str, Any]]:
        """Everything as plain values for JSON, an entry for each era."""
        return [
            {"era": list(key) if isinstance(key, tuple) else key, **diagnosis.to_dict()}
            for key, diagnosis in self.items()
        ]

    def __str__(self) -> str:
        return "\n".join(f"{era_title(key)}\n\n{diagnosis}" for key, diagnosis in self.items())


def era_title(key: Any) -> str:
    """An era as a heading."""
    if isinstance(key, tuple):
        return f"Era: rows that have {', '.join(key) or 'no recorded column'}"
    return "Era: rows that name no era" if key is None else f"Era: {key}"


def summarize_eras(
    source: Any, schema: Schema, by: str = "missing", on_invalid: str = "raise", progress: Any = False
) -> Eras:
    """Summarize a log whose columns were added over the years, dropping no row for a column it could not have.

    Args:
        source: as for ``summarize_log``; here a file may lack recorded columns.
        schema: the schema, with every column that some era recorded among ``recorded``.
        by: ``"missing"``: rows that lack the same recorded columns are one era. Otherwise the name of a column whose
            value names the era; a column is recorded in an era if any of its rows has a value there, and rows
            of that era without one are invalid.
        on_invalid: ``"raise"`` or ``"skip"``, for rows that are bad for another reason than a missing column.
        progress: as for ``summarize_log``.

    Returns:
        A dictionary from era to summary, the largest first. The fused learners take them all.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> world = sl.worlds.TrafficWorld(seed=0)
        >>> log = world.sample_eras_log(3_000, np.random.default_rng(0))
        >>> eras = sl.summarize_eras(log, world.eras_schema)
        >>> sorted(summary.n_recorded for summary in eras.values())
        [4, 8, 10]
    """
    check_settings(schema, on_invalid)
    recorded = tuple(feature.name for feature in schema.recorded_features)
    if by != "missing" and by in schema.columns:
        raise SchemaError(f"the era column {by!r} is already used as a feature, arm, reward or propensity.")
    more = () if by == "missing" else (by,)
    opened, schema = opened_with_kinds(source, schema, more, optional=recorded)
    columns, labels = (*schema.columns, *more), (*label_columns(schema), *more)
    if by != "missing" and not opened.rereadable:
        raise InputError(
            f"by={by!r} reads the log twice, first to see what each era recorded, and {opened.name} can be read only "
            "once. Write it to a file first."
        )
    with ThreadPoolExecutor(threads_available()) as pool:
        passes = _Passes(schema, recorded, on_invalid, pool, opened.text_labels)
        if by != "missing":
            passes.recorded_in = recorded_by_value(open_source(source, columns, labels, recorded), by, recorded)
        with opened.reporting(progress, "reading"):
            for bundle in opened.bundles(_ROWS):
                passes.feed(bundle, None if by == "missing" else by)
        return passes.finish(opened.name)


class _Passes:
    """One pass over a log that keeps a separate ``LogPass`` for each era."""

    def __init__(
        self, schema: Schema, recorded: tuple[str, ...], on_invalid: str, pool: Executor, text_labels: bool
    ) -> None:
        self._schema, self._recorded, self._on_invalid = schema, recorded, on_invalid
        self._pool, self._text_labels = pool, text_labels
        self._passes: dict[Any, LogPass] = {}
        self.recorded_in: dict[Any, tuple[str, ...]] = {}

    def feed(self, bundle: Bundle, by: str | None) -> None:
        """Send each row to the pass of its era."""
        groups: dict[Any, np.ndarray | None]
        if by is None:
            # gaps of a column that missing(...) covers do not mark another era
            groups = rows_by_missing(bundle.batch, self._recorded, self._schema.layout().fills)
        else:
            groups = rows_by_value(bundle.batch, by)
        for key, rows in groups.items():
            if key not in self._passes:
                names = key if by is None else self.recorded_in[key]
                self._passes[key] = LogPass(
                    self._schema.with_recorded(names),
                    self._on_invalid,
                    self._pool,
                    self._text_labels,
                    warns=not self._passes,
                )
                if len(self._passes) > _MOST_ERAS:
                    raise SourceError(
                        f"{bundle.origin(0)[0]} and what was read before it have more than {_MOST_ERAS} different "
                        "sets of missing columns: values are missing here and there rather than by era. Use "
                        'summarize_log(..., on_invalid="skip"), or name the column that tells the eras apart, by=...'
                    )
            self._passes[key].feed(bundle if rows is None else bundle.filtered(rows))

    def finish(self, name: str) -> Eras:
        """Summaries with the same arms, the largest first."""
        if not self._passes:
            raise SourceError(f"{name} has no rows: there is nothing to learn from.")
        arms: dict[Label, None] = {}
        levels: dict[str, dict[Label, None]] = {}
        # an era of skipped rows alone is no era; what was skipped there is counted with the largest one
        skipped = {key: log_pass.skipped() for key, log_pass in self._passes.items()}
        empty = [key for key, log_pass in self._passes.items() if log_pass.rows_seen == sum(skipped[key].values())]
        if len(empty) < len(self._passes):
            for key in empty:
                del self._passes[key]
        for log_pass in self._passes.values():
            found_arms, found_levels = log_pass.labels()
            arms.update(dict.fromkeys(found_arms))
            for feature, found in found_levels.items():
                levels.setdefault(feature, {}).update(dict.fromkeys(found))
        shared = {feature: list(found) for feature, found in levels.items()}
        rows = sum(log_pass.rows_seen for log_pass in self._passes.values())
        summaries = {key: log_pass.finish(name, list(arms), shared, rows) for key, log_pass in self._passes.items()}
        keys = self._typed(list(summaries))
        ordered = sorted(
            ((keys[key], summary) for key, summary in summaries.items()),
            key=lambda item: (-item[1].n_rows, str(item[0])),
        )
        for key in empty:
            for reason, count in skipped[key].items():
                largest = ordered[0][1].skipped
                largest[reason] = largest.get(reason, 0) + count
        return Eras(ordered)

    def _typed(self, keys: list[Any]) -> dict[Any, Any]:
        """Era names → with types, for a source in which everything is text: ``"2021"`` → 2021 if all are numbers."""
        texts = [key for key in keys if isinstance(key, str)]
        return {key: key for key in keys} | (
            dict(zip(texts, typed_labels(texts), strict=True)) if self._text_labels else {}
        )


def rows_by_missing(
    batch: pa.RecordBatch, recorded: tuple[str, ...], filled: Container[str] = ()
) -> dict[tuple[str, ...], np.ndarray | None]:
    """Recorded columns → rows that have exactly these, gaps of ``filled`` aside; ``None`` stands for all rows."""
    patterns = np.zeros((batch.num_rows, len(recorded)), dtype=bool)
    for j, name in enumerate(recorded):
        if name not in filled:
            patterns[:, j] = _missing(batch.column(name))
    if not patterns.any():
        return {recorded: None}
    distinct, which = np.unique(patterns, axis=0, return_inverse=True)
    if len(distinct) == 1:
        return {tuple(name for name, gone in zip(recorded, distinct[0], strict=True) if not gone): None}
    return {
        tuple(name for name, gone in zip(recorded, pattern, strict=True) if not gone): which.ravel() == i
        for i, pattern in enumerate(distinct)
    }


def _missing(column: pa.Array) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # a null or NaN may stand in the dictionary as well as in the rows
    if column.null_count == 0 and not pa.types.is_floating(column.type):
        return np.zeros(len(column), dtype=bool)
    gone: np.ndarray = pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
    return gone


def rows_by_value(batch: pa.RecordBatch, by: str) -> dict[Any, np.ndarray | None]:
    """Value of the era column → rows (n,) that have it; the key ``None`` is for rows without a value there."""
    indices, labels = distinct_labels(batch.column(by), by)
    groups: dict[Any, np.ndarray | None] = {}
    for i, label in enumerate([*labels, None]):
        rows = indices == (i if i < len(labels) else -1)
        if rows.any():
            known = groups.get(label)
            groups[label] = rows if known is None else known | rows
    return groups


def recorded_by_value(source: Any, by: str, recorded: tuple[str, ...]) -> dict[Any, tuple[str, ...]]:
    """For each value of the era column, the recorded columns that have a value in some row of it."""
    seen: dict[Any, np.ndarray] = {}
    for bundle in source.bundles(_ROWS):
        present = np.column_stack([~_missing(bundle.batch.column(name)) for name in recorded])
        for key, rows in rows_by_value(bundle.batch, by).items():
            here = present[rows].any(axis=0) if rows is not None else present.any(axis=0)
            seen[key] = np.asarray(here | seen[key] if key in seen else here)
    return {
        key: tuple(name for name, is_there in zip(recorded, columns, strict=True) if is_there)
        for key, columns in seen.items()
    }
