"""What is kept of a log: per arm a count and a triangular factor, and everything that follows from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidelight.arrays import as_numbers
from sidelight.errors import FileFormatError, InputError, InvalidRowsError, SchemaError
from sidelight.files import container_bytes, read_container, read_container_bytes, write_container
from sidelight.labels import Label, counted, plain_label
from sidelight.logs.cards import summary_card, summary_table
from sidelight.logs.diagnosis.diagnosis import Diagnosis
from sidelight.logs.reduce.batch import no_propensities
from sidelight.logs.reduce.moments import Moments, batch_moments, rows_per_batch
from sidelight.logs.regressions import ArmRegressions
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.uniting import column_map, common_schema
from sidelight.logs.sources.frames import matrix_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LogSummary", "hidden_blocks", "one_summary"]

_KIND = "summary"
# Version 2 keeps the sum of rewards of each arm; a version 1 file is read, and has it only with an intercept.
_VERSION = 2


class LogSummary(ArmRegressions):
    """What a log says about each arm, ``K`` arms and ``L`` recorded columns of ``d``.

    Made by :func:`summarize_log` or :meth:`from_arrays`. Arrays that depend on the arm have it as their first axis,
    in the order of :attr:`arms`.

    Attributes:
        schema: the resolved schema.
        counts: (K,) int64, ``n_a``, the rows of each arm.
        factors: (K, L+1, L+1), the upper-triangular ``R`` of ``[x_o | r]``, nonnegative diagonal.
        reward_sums: (K,) ``Σ r``; NaN if the summary comes from a version 1 file whose schema has no intercept.
        skipped: reason → how many rows were skipped for it.
        meat: (K, L, L), ``Σ (ε/(1 − h))² x_o x_oᵀ`` with the leverages ``h``, the middle of the sandwich covariance, or
            ``None`` if it was not requested, and in a sum of summaries, whose residuals differ. (Summaries
            without ``meat_freedom`` have ``Σ ε² x_o x_oᵀ``.)
        meat_freedom: (K,) degrees of freedom of ``meat``: those of a Wishart matrix that varies as much. ``None``
            where it is not known.
        propensities: (K, 4) with ``Σ p``, ``Σ 1/p``, ``Σ 1/p²`` and ``min p`` of the logged propensities, or ``None``.

    Examples:
        >>> import numpy as np, sidelight as sl
        >>> rng = np.random.default_rng(0)
        >>> schema = sl.Schema.for_arrays(3, recorded=2, n_arms=2)
        >>> X, arms = rng.normal(size=(200, 2)), np.arange(200) % 2
        >>> summary = sl.LogSummary.from_arrays(X, arms, X @ [1.0, -2.0], schema)
        >>> summary.counts.tolist(), summary.coefficients.round(6).tolist()
        ([100, 100], [[1.0, -2.0], [1.0, -2.0]])
    """

    @classmethod
    def from_arrays(cls, X_recorded: Any, arms: Any, rewards: Any, schema: Schema) -> LogSummary:
        """A summary of arrays that are already encoded.

        Args:
            X_recorded: (n, L) the recorded columns of the encoded context: an array in the schema's order, or a frame
                whose columns are named like ``schema.recorded_names``.
            arms: (n,) arm labels.
            rewards: (n,) rewards.
            schema: the schema; its arms may be left to be discovered.
        """
        X = _numbers(matrix_of(X_recorded, schema.recorded_names, "the frame of contexts"), "contexts")
        r = _numbers(rewards, "rewards")
        labels = np.asarray(arms, dtype=None if hasattr(arms, "dtype") else object)
        L = schema.n_recorded
        if X.ndim != 2 or X.shape[1] != L:
            raise SchemaError(
                f"the recorded contexts have shape {X.shape}, but the schema records {L} columns: give shape (n, {L})."
            )
        if r.shape != (len(X),) or labels.shape != (len(X),):
            raise InputError(
                f"{len(X)} contexts come with rewards of shape {r.shape} and arms of shape {labels.shape}: each "
                "needs one reward and one arm."
            )
        for name, values in (("contexts", X), ("rewards", r)):
            if not np.isfinite(values).all():
                where = np.argwhere(~np.isfinite(values))[0]
                raise InvalidRowsError(
                    f"the {name} hold {values[tuple(where)]} in row {where[0]}: every value must be finite."
                )
        distinct, codes = _distinct(labels)
        if schema.arms is None:
            schema = schema.resolve(distinct)
        at = np.array([schema.arm_index(label) for label in distinct], dtype=np.int64)
        codes = at[codes] if len(X) else np.zeros(0, dtype=np.int64)
        moments = Moments.empty(len(schema.arms or ()), L)
        step = rows_per_batch(L)
        for first in range(0, len(X), step):
            rows = slice(first, first + step)
            columns = [np.ascontiguousarray(X[rows, j]) for j in range(L)] + [np.ascontiguousarray(r[rows])]
            batch = batch_moments(columns, codes[rows], *moments.bases())
            assert batch is not None
            moments.fold(batch)
        return cls(schema, moments)

    def diagnose(self, noise: float | None = None, complete: LogSummary | None = None) -> Diagnosis:
        """What the log is worth, and what is wrong with it.

        Args:
            noise: the standard deviation ``σ`` of a reward given the full context, if it is known.
            complete: a summary of rows that have every feature, hidden ones too: how much of what the log leaves
                unexplained is the hidden features' doing is then measured.
        """
        return Diagnosis.of(self, noise, complete)

    # Adding

    def __add__(self, other: LogSummary) -> LogSummary:
        if not isinstance(other, LogSummary):
            return NotImplemented
        schema = common_schema(self.schema, other.schema)
        first, second = self.moved_to(schema), other.moved_to(schema)
        skipped = {
            reason: self.skipped.get(reason, 0) + other.skipped.get(reason, 0)
            for reason in sorted({*self.skipped, *other.skipped})
        }
        propensities = None
        if first.propensities is not None and second.propensities is not None:
            propensities = first.propensities + second.propensities
            propensities[:, 3] = np.minimum(first.propensities[:, 3], second.propensities[:, 3])
        return LogSummary(schema, first.moments.merge(second.moments), skipped, None, propensities)

    def __radd__(self, other: object) -> LogSummary:
        """``0 + summary`` is the summary, so that ``sum(summaries)`` works."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def moved_to(self, schema: Schema) -> LogSummary:
        """The same rows under a schema with at least these arms and levels, discovered ones united or reordered."""
        moments = self.moments
        T = column_map(self.schema, schema)
        if T is not None:
            moments = moments.with_columns(T)
        K = len(schema.arms or ())
        at = [schema.arm_index(label) for label in self.arms]
        if at != list(range(K)):
            moments = moments.with_arms(at, K)
        propensities = None
        if self.propensities is not None:
            propensities = no_propensities(K)
            propensities[at] = self.propensities
        meat, freedom = (self.meat, self.meat_freedom) if T is None and at == list(range(K)) else (None, None)
        return LogSummary(schema, moments, self.skipped, meat, propensities, freedom)

    def with_labels(self, retype: Callable[[Sequence[Label]], tuple[Label, ...]]) -> LogSummary:
        """The same rows with discovered arms and levels relabelled, one for one, and sorted again."""
        features = tuple(
            replace(feature, levels=retype(feature.levels or ()), baseline=None)
            if isinstance(feature, Category) and feature.discovered
            else feature
            for feature in self.schema.features
        )
        found = {f.name: f.levels for f in features if isinstance(f, Category) and f.discovered and f.levels}
        arms = retype(self.arms) if self.schema.arms_discovered else self.arms
        schema = self.schema.resolve(arms if self.schema.arms_discovered else None, found)
        order = [schema.arm_index(label) for label in arms]
        T = column_map(self.schema, schema)
        moments = self.moments if T is None else self.moments.with_columns(T)
        propensities = None if self.propensities is None else self.propensities[np.argsort(order)]
        return LogSummary(schema, moments.with_arms(order, len(arms)), self.skipped, None, propensities)

    # Saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the summary to one file, atomically."""
        write_container(path, _KIND, _VERSION, *self._content())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LogSummary:
        """Read what :meth:`save` wrote.

        Raises:
            FileFormatError: the file is cut off, altered, of another kind or from a newer version.
        """
        return cls._from_content(*read_container(path, _KIND, _VERSION), origin=str(path))

    def to_bytes(self) -> bytes:
        """The content of the file that :meth:`save` writes."""
        return container_bytes(_KIND, _VERSION, *self._content())

    @classmethod
    def from_bytes(cls, content: bytes) -> LogSummary:
        """The inverse of :meth:`to_bytes`."""
        return cls._from_content(*read_container_bytes(content, _KIND, _VERSION), origin="these bytes")

    def _content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = {
            "counts": self.counts,
            "sums": self._sums,
            "factors": self.factors,
            "reward_sums": self.reward_sums,
        }
        optional = {"meat": self.meat, "propensities": self.propensities, "meat_freedom": self.meat_freedom}
        arrays.update({name: array for name, array in optional.items() if array is not None})
        return {"schema": self.schema.to_dict(), "skipped": self.skipped}, arrays

    @classmethod
    def _from_content(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray], origin: str) -> LogSummary:
        try:
            return cls(
                Schema.from_dict(meta["schema"]),
                Moments(arrays["counts"], arrays["sums"], arrays["factors"], arrays.get("reward_sums", np.empty(0))),
                meta["skipped"],
                arrays.get("meat"),
                arrays.get("propensities"),
                arrays.get("meat_freedom"),
            )
        except (KeyError, InputError) as error:
            raise FileFormatError(f"{origin} is not a summary this Sidelight understands: {error}") from error

    def to_table(self) -> pa.Table:
        """One row for each arm: ``arm, rows, share, residual_variance`` and ``b_a``, a column ``b[feature]`` each."""
        return summary_table(self)

    def _repr_html_(self) -> str:
        return summary_card(self)

    def __repr__(self) -> str:
        columns = f"{self.n_recorded} of {counted(self.n_features, 'column')} recorded"
        return f"LogSummary({counted(self.n_rows, 'row')}, {counted(self.n_arms, 'arm')}, {columns})"


def _distinct(values: np.ndarray) -> tuple[list[Label], np.ndarray]:
    """The distinct labels among values (n,), and the position (n,) of each value among them."""
    if values.dtype != object:
        found, codes = np.unique(values, return_inverse=True)
        return [plain_label(value) for value in found.tolist()], codes
    position = {value: i for i, value in enumerate(dict.fromkeys(values.tolist()))}  # text and numbers have no order
    return [plain_label(value) for value in position], np.array([position[value] for value in values.tolist()])


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidRowsError(
            f"the {what} are not numbers: {error}. Text and categories are for summarize_log."
        ) from error


def hidden_blocks(
    summary: LogSummary, values: ArrayLike, name: str, error: type[InputError] = InputError
) -> NDArray[np.float64]:
    """``values`` as finite numbers (K, L, m): for each arm one for each recorded and each hidden feature.

    Args:
        summary: the log, which has the sizes.
        values: the numbers.
        name: what to call them in errors.
        error: the class of the error where they do not fit.
    """
    blocks = as_numbers(values, name)
    K, L, m = summary.n_arms, summary.n_recorded, summary.n_features - summary.n_recorded
    if blocks.shape != (K, L, m):
        raise error(
            f"{name} has shape {blocks.shape}; this log has K = {K} arms, L = {L} recorded and m = {m} hidden "
            f"features, so it must be {(K, L, m)}."
        )
    if not np.isfinite(blocks).all():
        raise error(f"{name} has a value that is not finite.")
    return blocks


def one_summary(value: Any, taker: str) -> LogSummary:
    """``value`` if it is the summary of one log, else an error that says what ``taker`` wants.

    Raises:
        InputError: it is something else; for eras the message says which learner takes them.
    """
    if isinstance(value, LogSummary):
        return value
    if isinstance(value, dict) and all(isinstance(entry, LogSummary) for entry in value.values()):
        raise InputError(
            f"{taker} takes the summary of one log, and got {counted(len(value), 'era')}. Give FusedOFUL an estimator "
            "for each: FusedOFUL({era: BehaviorQueries(summary) for era, summary in eras.items()})."
        )
    raise InputError(
        f"{taker} takes the summary of a log, and got {type(value).__name__}. summarize_log(source, schema) makes one."
    )
