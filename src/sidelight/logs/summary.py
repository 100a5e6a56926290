"""What is kept of a log: per arm a count and a triangular factor, and everything that follows from them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sidelight.errors import (
    FileFormatError,
    InputError,
    InvalidRowsError,
    SchemaError,
    SidelightWarning,
    UnderdeterminedError,
)
from sidelight.files import container_bytes, read_container, read_container_bytes, write_container
from sidelight.labels import Label, show_labels
from sidelight.logs.reduce.moments import Moments
from sidelight.logs.reduce.rank import independent_columns, scaled_condition
from sidelight.logs.schema.features import Category
from sidelight.logs.schema.schema import Schema
from sidelight.logs.schema.uniting import column_map, common_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from sidelight.logs.diagnosis.diagnosis import Diagnosis

__all__ = ["LogSummary", "one_summary", "summarize_log"]

_KIND = "summary"
# Version 2 keeps the sum of rewards of each arm; a version 1 file is read, and has it only with an intercept.
_VERSION = 2

# More skipped rows than this share, and whoever asked to skip will want to know.
_MANY_SKIPPED = 0.05

# An arm with fewer degrees of freedom than this borrows from the other arms' residual variance.
_FEW_DEGREES = 30


class LogSummary:
    """What a log says about each arm, ``K`` arms and ``L`` recorded columns of ``d``.

    Made by :func:`summarize_log` or :meth:`from_arrays`. Arrays that depend on the arm have it as their first axis,
    in the order of :attr:`arms`.

    Attributes:
        schema: the resolved schema.
        counts: (K,) int64, ``n_a``, the rows of each arm.
        factors: (K, L+1, L+1), the upper-triangular ``R`` of ``[x_o | r]``, nonnegative diagonal.
        reward_sums: (K,) ``Σ r``; NaN if the summary comes from a version 1 file whose schema has no intercept.
        skipped: reason → how many rows were skipped for it.
        meat: (K, L, L), ``Σ ε² x_o x_oᵀ``, the middle of the sandwich covariance, or ``None`` where it was not asked
            for.
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

    def __init__(
        self,
        schema: Schema,
        moments: Moments,
        skipped: Mapping[str, int] | None = None,
        meat: np.ndarray | None = None,
        propensities: np.ndarray | None = None,
    ) -> None:
        if not schema.resolved:
            raise SchemaError("a summary needs a schema whose arms and levels are known.")
        K, size = len(schema.arms or ()), schema.n_recorded + 1
        if moments.factors.shape != (K, size, size):
            raise InputError(
                f"factors of shape {moments.factors.shape} do not fit the schema's {K} arms and {size - 1} recorded "
                f"columns: they should have shape {(K, size, size)}."
            )
        self.schema = schema
        self.skipped: dict[str, int] = dict(skipped or {})
        self.meat = meat
        self.propensities = propensities
        self.counts = moments.counts
        self.factors = moments.factors
        self._sums = moments.sums
        self.reward_sums = moments.reward_sums
        if schema.intercept and np.isnan(self.reward_sums).any():
            # the constant comes first, so the first row of the factor holds √n and Σ r/√n
            self.reward_sums = self.factors[:, 0, 0] * self.factors[:, 0, -1]
        for array in (self.counts, self.factors, self._sums, self.reward_sums):
            array.flags.writeable = False

    @classmethod
    def from_arrays(cls, X_recorded: Any, arms: Any, rewards: Any, schema: Schema) -> LogSummary:
        """A summary of arrays that are already encoded.

        Args:
            X_recorded: (n, L) the recorded columns of the encoded context, in the schema's order.
            arms: (n,) arm labels.
            rewards: (n,) rewards.
            schema: the schema; its arms may be left to be discovered.
        """
        from sidelight.logs.reduce.log_pass import summary_of_arrays

        return summary_of_arrays(X_recorded, arms, rewards, schema)

    # Sizes

    @property
    def arms(self) -> tuple[Label, ...]:
        """The arm labels, in order."""
        assert self.schema.arms is not None
        return self.schema.arms

    @property
    def n_arms(self) -> int:
        """``K``."""
        return len(self.arms)

    @property
    def n_features(self) -> int:
        """``d``: the length of an encoded context."""
        return self.schema.n_features

    @property
    def n_recorded(self) -> int:
        """``L``: the recorded columns of an encoded context."""
        return self.schema.n_recorded

    @property
    def recorded(self) -> np.ndarray:
        """(L,) positions of the recorded columns in the encoded context."""
        return self.schema.recorded_index

    @property
    def hidden(self) -> np.ndarray:
        """(m,) positions of the hidden columns in the encoded context."""
        return self.schema.hidden_index

    @property
    def n_rows(self) -> int:
        """The rows the summary is made of; skipped rows are not among them."""
        return int(self.counts.sum())

    @property
    def shares(self) -> np.ndarray:
        """(K,) ``P(a)``, the share of each arm among the rows; zeros where there are no rows."""
        return self.counts / max(self.n_rows, 1)

    # Moments

    @cached_property
    def grams(self) -> np.ndarray:
        """(K, L, L) ``G = Σ x_o x_oᵀ``.

        Raises:
            InvalidRowsError: the square of a recorded value or of a reward overflows.
        """
        self._require_squares()
        upper = self.factors[:, :, : self.n_recorded]
        return _frozen(np.swapaxes(upper, 1, 2) @ upper)

    @cached_property
    def cross(self) -> np.ndarray:
        """(K, L) ``g = Σ x_o r``."""
        self._require_squares()
        L = self.n_recorded
        return _frozen(np.einsum("kil,ki->kl", self.factors[:, :, :L], self.factors[:, :, L]))

    @property
    def second_moments(self) -> np.ndarray:
        """(K, L, L) ``R11(a) = E[x_o x_oᵀ | a]``; zeros for an arm without rows."""
        moments: np.ndarray = self.grams / np.maximum(self.counts, 1)[:, None, None]
        return moments

    @property
    def means(self) -> np.ndarray:
        """(K, L) mean of ``x_o`` for each arm; zeros for an arm without rows."""
        means: np.ndarray = self._sums / np.maximum(self.counts, 1)[:, None]
        return means

    @cached_property
    def feature_squares(self) -> np.ndarray:
        """(L,) ``Σ x_o²`` over all rows."""
        return _frozen(np.einsum("aii->i", self.grams))

    @cached_property
    def reward_squares(self) -> np.ndarray:
        """(K,) ``Σ r²``."""
        return _frozen(np.square(self.factors[:, :, -1]).sum(axis=1))

    @cached_property
    def reward_means(self) -> np.ndarray:
        """(K,) mean reward of each arm; 0 for an arm without rows, NaN where :attr:`reward_sums` is not known."""
        return _frozen(self.reward_sums / np.maximum(self.counts, 1))

    # The regression of each arm

    @cached_property
    def _independent(self) -> list[np.ndarray]:
        """Per arm the positions (among the L) of columns that are independent, earlier ones preferred."""
        L = self.n_recorded
        return [independent_columns(factor[:L, :L]) for factor in self.factors]

    @cached_property
    def ranks(self) -> np.ndarray:
        """(K,) rank of ``R11(a)``, judged after scaling the columns to unit norm."""
        return _frozen(np.array([len(kept) for kept in self._independent], dtype=np.int64))

    @cached_property
    def determined(self) -> np.ndarray:
        """(K,) whether the arm's rows determine ``b_a``: ``R11(a)`` is invertible.

        Judged after scaling the columns to unit norm, so units do not matter. A repeated column is not determined;
        a merely hard problem, such as a polynomial of high degree, is.
        """
        return _frozen(self.ranks == self.n_recorded)

    @cached_property
    def conditions(self) -> np.ndarray:
        """(K,) condition number of the arm's columns after scaling them to unit norm; infinite if not determined."""
        L = self.n_recorded
        values = [
            scaled_condition(factor[:L, :L]) if determined else np.inf
            for factor, determined in zip(self.factors, self.determined, strict=True)
        ]
        return _frozen(np.array(values))

    @cached_property
    def coefficients(self) -> np.ndarray:
        """(K, L) ``b_a = R11(a)⁻¹ E[x_o r | a]``, from the triangular factor.

        Raises:
            UnderdeterminedError: some arm's rows do not determine it.
        """
        self.require_determined()
        return _frozen(self.least_squares(np.arange(self.n_arms)))

    def least_squares(self, arms: np.ndarray) -> np.ndarray:
        """(len(arms), L) coefficients for these positions; columns that repeat others get 0."""
        from scipy.linalg import solve_triangular

        from sidelight.logs.reduce.moments import triangular_factor

        L = self.n_recorded
        b = np.zeros((len(arms), L))
        for row, arm in enumerate(arms):
            kept = self._independent[arm]
            if len(kept) == 0:
                continue
            factor = self.factors[arm]
            if len(kept) < L:
                factor = triangular_factor(factor[:, [*kept, L]])
            k = len(kept)
            b[row, kept] = solve_triangular(factor[:k, :k], factor[:k, k])
        return b

    def coefficients_of(self, arm: int) -> np.ndarray:
        """(L,) ``b_a`` of the arm at this position, whether or not other arms are determined."""
        return np.asarray(self.least_squares(np.array([arm]))[0])

    @cached_property
    def residual_sums(self) -> np.ndarray:
        """(K,) sum of squared residuals of each arm's regression."""
        from sidelight.logs.reduce.moments import triangular_factor

        self._require_squares()
        L = self.n_recorded
        sums = np.empty(self.n_arms)
        for arm, (factor, kept) in enumerate(zip(self.factors, self._independent, strict=True)):
            if len(kept) < L:
                factor = triangular_factor(factor[:, [*kept, L]])
            sums[arm] = factor[len(kept), len(kept)] ** 2
        return _frozen(sums)

    @cached_property
    def degrees_of_freedom(self) -> np.ndarray:
        """(K,) ``n_a − L``, with the rank in place of ``L`` where columns repeat each other."""
        return _frozen(np.maximum(self.counts - self.ranks, 0))

    @cached_property
    def pooled_residual_variance(self) -> float:
        """``s²`` over all arms: all squared residuals over all degrees of freedom.

        Without a single degree of freedom it is the mean squared reward, which is at least as large as what a
        regression with enough rows would leave; without any row it is 1.
        """
        freedom = int(self.degrees_of_freedom.sum())
        if freedom:
            return float(self.residual_sums.sum() / freedom)
        if self.n_rows:
            return float((self.factors[:, :, self.n_recorded] ** 2).sum() / self.n_rows)
        return 1.0

    @cached_property
    def residual_variances(self) -> np.ndarray:
        """(K,) ``s²``, the residual variance of each arm on ``n_a − L`` degrees of freedom.

        An arm with fewer than 30 degrees of freedom ``ν`` borrows from the variance pooled over all arms:
        ``(ν/30) s²_a + (1 − ν/30) s²_pooled``.
        """
        freedom = self.degrees_of_freedom
        own = self.residual_sums / np.maximum(freedom, 1)
        weight = np.minimum(freedom / _FEW_DEGREES, 1.0)
        return _frozen(np.where(freedom > 0, weight * own, 0.0) + (1.0 - weight) * self.pooled_residual_variance)

    # The conditions of proposition 1

    def require_determined(self) -> None:
        """Check that every arm has rows and an invertible ``R11(a)``.

        Raises:
            UnderdeterminedError: naming the arms, why, and what to do.
        """
        bad = np.flatnonzero(~self.determined).tolist()
        if len(bad) == 0:
            return
        L = self.n_recorded
        absent = [a for a in bad if self.counts[a] == 0]
        few = [a for a in bad if 0 < self.counts[a] < L]
        collinear = [a for a in bad if self.counts[a] >= L]
        parts = []
        if absent:
            parts.append(f"no rows at all for {self._name_arms(absent)}")
        if few:
            rows = ", ".join(f"{self.arms[a]!r} has {self.counts[a]}" for a in few[:5])
            parts.append(f"fewer rows than the {L} recorded columns: {rows}{', ...' if len(few) > 5 else ''}")
        if collinear:
            drop = self.columns_to_drop()
            parts.append(
                f"collinear recorded columns for {self._name_arms(collinear)}: leaving out {show_labels(drop)} mends it"
            )
        remedy = "collect more rows, record fewer features for this log (recorded=[...])" + (
            ", or leave those arms out" if absent or few else ""
        )
        raise UnderdeterminedError(
            f"{len(bad)} of {self.n_arms} arms have no unique coefficients b_a: {'; '.join(parts)}. "
            f"What to do: {remedy}; or use a fused learner (FusedOFUL, FusedThompson), which needs no b_a."
        )

    def _require_squares(self) -> None:
        """Check that sums of squares are finite: the factors hold numbers whose squares no longer fit a double."""
        with np.errstate(over="ignore"):
            squares = (self.factors**2).sum(axis=(0, 1))
        if np.isfinite(squares).all():
            return
        names = [*self.schema.recorded_names, self.schema.reward]
        large = [name for name, square in zip(names, squares, strict=True) if not np.isfinite(square)]
        raise InvalidRowsError(
            f"{'column' if len(large) == 1 else 'columns'} {show_labels(large)} of the log hold values so large "
            f"(about {np.abs(self.factors).max():.0e}) that their squares overflow: nothing can be said about their "
            "spread. Mend the log, or give the values in a larger unit."
        )

    def _name_arms(self, positions: list[int]) -> str:
        return ("arm " if len(positions) == 1 else "arms ") + show_labels(self.arms[a] for a in positions)

    def collinear_features(self, arm: Label) -> tuple[str, ...]:
        """The smallest set of recorded columns whose removal makes ``R11(a)`` of this arm invertible.

        Empty where the arm is determined. Of several such sets, the one with the latest columns.
        """
        position = self.schema.arm_index(arm)
        kept = set(self._independent[position].tolist())
        return tuple(name for i, name in enumerate(self.schema.recorded_names) if i not in kept)

    def columns_to_drop(self) -> tuple[str, ...]:
        """A smallest set of recorded columns whose removal mends every arm that has enough rows."""
        from sidelight.logs.reduce.rank import smallest_common_removal

        L = self.n_recorded
        factors = [self.factors[a, :L, :L] for a in np.flatnonzero(~self.determined) if self.counts[a] >= L]
        names = self.schema.recorded_names
        return tuple(names[i] for i in smallest_common_removal(factors, L))

    def diagnose(self, noise: float | None = None) -> Diagnosis:
        """What the log is worth, and what is wrong with it.

        Args:
            noise: the standard deviation ``σ`` of a reward given the full context, if it is known.
        """
        from sidelight.logs.diagnosis.diagnosis import Diagnosis

        return Diagnosis.of(self, noise)

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
        """``sum(summaries)`` starts from 0, which is no rows at all."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    @property
    def moments(self) -> Moments:
        """Counts, sums and factors of every arm as one object."""
        return Moments(self.counts, self._sums, self.factors, self.reward_sums)

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
            propensities = np.zeros((K, 4))
            propensities[:, 3] = np.inf
            propensities[at] = self.propensities
        meat = self.meat if T is None and at == list(range(K)) else None
        return LogSummary(schema, moments, self.skipped, meat, propensities)

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
        """Write one small file, whole or not at all."""
        write_container(path, _KIND, _VERSION, *self._content())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LogSummary:
        """Read what :meth:`save` wrote.

        Raises:
            FileFormatError: the file is cut off, altered, of another kind or from a newer version.
        """
        return cls._from_content(*read_container(path, _KIND, _VERSION), origin=str(path))

    def to_bytes(self) -> bytes:
        """What :meth:`save` would write."""
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
        optional = {"meat": self.meat, "propensities": self.propensities}
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
            )
        except (KeyError, InputError) as error:
            raise FileFormatError(f"{origin} is not a summary this Sidelight understands: {error}") from error

    def to_table(self) -> pa.Table:
        """One row for each arm: ``arm, rows, share, residual_variance`` and ``b_a``, a column ``b[feature]`` each."""
        from sidelight.logs.cards import summary_table

        return summary_table(self)

    def _repr_html_(self) -> str:
        from sidelight.logs.cards import summary_card

        return summary_card(self)

    def __repr__(self) -> str:
        columns = f"{self.n_recorded} of {self.n_features} columns recorded"
        return f"LogSummary({self.n_rows:,} rows, {self.n_arms} arms, {columns})"


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
        sandwich: also keep ``Σ ε² x_o x_oᵀ`` per arm (``summary.meat``), which needs a second pass over the source.

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
    from sidelight.logs.reduce.log_pass import summarize

    summary = summarize(source, schema, on_invalid, progress, client, sandwich)
    skipped = sum(summary.skipped.values())
    if skipped > _MANY_SKIPPED * (skipped + summary.n_rows):
        most = max(summary.skipped, key=lambda reason: summary.skipped[reason])
        warnings.warn(
            f"{skipped:,} of {skipped + summary.n_rows:,} rows were skipped, most of them for: {most}. If whether a "
            "row can be used has to do with its arm or reward, what is left misleads.",
            SidelightWarning,
            stacklevel=2,
        )
    return summary


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def one_summary(value: Any, taker: str) -> LogSummary:
    """``value`` if it is the summary of one log, else an error that says what ``taker`` wants.

    Raises:
        InputError: it is something else; eras are told where they go.
    """
    if isinstance(value, LogSummary):
        return value
    if isinstance(value, dict) and all(isinstance(entry, LogSummary) for entry in value.values()):
        raise InputError(
            f"{taker} takes the summary of one log, and got {len(value)} eras. Give FusedOFUL an estimator for each: "
            "FusedOFUL({era: BehaviorQueries(summary) for era, summary in eras.items()})."
        )
    raise InputError(
        f"{taker} takes the summary of a log, and got {type(value).__name__}. summarize_log(source, schema) makes one."
    )
