"""What follows from the counts and triangular factors of a log: moments, and one short regression for each arm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from sidelight.arrays import LARGEST
from sidelight.errors import InputError, InvalidRowsError, SchemaError, UnderdeterminedError
from sidelight.labels import Label, show_labels
from sidelight.linalg import apply, product, solve_upper, square
from sidelight.logs.reduce.moments import Moments, triangular_factor
from sidelight.logs.reduce.rank import independent_columns, scaled_condition, smallest_common_removal
from sidelight.logs.schema.schema import Schema

__all__ = ["ArmRegressions"]

# Relative tolerance for rounding when sums are compared, such as a column of ones with the number of rows.
_SAME = 1e-11
# An arm with fewer degrees of freedom than this borrows from the other arms' residual variance.
_FEW_DEGREES = 30


class ArmRegressions:
    """The regression of the reward on the recorded columns, for each arm, from counts and triangular factors.

    :class:`~sidelight.logs.summary.LogSummary`, which is made of it, describes its attributes.
    """

    def __init__(
        self,
        schema: Schema,
        moments: Moments,
        skipped: Mapping[str, int] | None = None,
        meat: np.ndarray | None = None,
        propensities: np.ndarray | None = None,
        meat_freedom: np.ndarray | None = None,
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
        self.meat_freedom = meat_freedom
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

    # Sizes

    @property
    def arms(self) -> tuple[Label, ...]:
        """The arm labels, in order."""
        assert self.schema.arms is not None
        return self.schema.arms

    @property
    def n_arms(self) -> int:
        """``K``, the number of arms."""
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
        return _frozen(product(np.swapaxes(upper, 1, 2), upper))

    @cached_property
    def cross(self) -> np.ndarray:
        """(K, L) ``g = Σ x_o r``."""
        self._require_squares()
        L = self.n_recorded
        return _frozen(apply(np.swapaxes(self.factors[:, :, :L], 1, 2), self.factors[:, :, L]))

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

    @property
    def binary_rewards(self) -> bool:
        """Whether every reward was 0 or 1 and both occur: then ``Σ r = Σ r²`` is a whole number for every arm.

        False where :attr:`reward_sums` is not known.
        """
        sums = self.reward_sums
        # a sum that rounds to zero is not evidence of zeros: the rewards may be in a large unit
        if not 1.0 <= np.round(np.nan_to_num(sums)).sum() < self.n_rows:
            return False
        digits = 1e-9 * (1.0 + np.abs(sums))
        whole, squared = np.abs(sums - np.round(sums)), np.abs(self.reward_squares - sums)
        return bool((np.maximum(whole, squared) <= digits).all())  # never where they are NaN

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
            b[row, kept] = solve_upper(factor[:k, :k], factor[:k, k])
        return b

    def coefficients_of(self, arm: int) -> np.ndarray:
        """(L,) ``b_a`` of the arm at this position, whether or not other arms are determined."""
        return np.asarray(self.least_squares(np.array([arm]))[0])

    @cached_property
    def residual_sums(self) -> np.ndarray:
        """(K,) sum of squared residuals of each arm's regression."""
        self._require_squares()
        L = self.n_recorded
        sums = np.empty(self.n_arms)
        for arm, (factor, kept) in enumerate(zip(self.factors, self._independent, strict=True)):
            if len(kept) < L:
                factor = triangular_factor(factor[:, [*kept, L]])
            sums[arm] = square(float(factor[len(kept), len(kept)]))
        return _frozen(sums)

    @cached_property
    def degrees_of_freedom(self) -> np.ndarray:
        """(K,) ``n_a − L``, with the rank in place of ``L`` where columns repeat each other."""
        return _frozen(np.maximum(self.counts - self.ranks, 0))

    @cached_property
    def pooled_residual_variance(self) -> float:
        """``s²`` over all arms: all squared residuals over all degrees of freedom.

        Without a single degree of freedom it is :attr:`reward_variance`, which is at least as large as what a
        regression with enough rows would leave; without any row it is 1.
        """
        freedom = int(self.degrees_of_freedom.sum())
        if freedom:
            return float(self.residual_sums.sum() / freedom)
        return self.reward_variance if self.n_rows else 1.0

    @cached_property
    def reward_variance(self) -> float:
        """The variance of the rewards if there is a :attr:`level`; else, or if all are equal, their mean square."""
        n = max(self.n_rows, 1)
        second = float(self.reward_squares.sum()) / n
        if self.level is None or not np.isfinite(self.reward_sums).all():
            return second
        centre = float(self.reward_sums.sum()) / n
        around = second - centre * centre
        return around * n / (n - 1) if around > _SAME * second else second

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
                f"collinear recorded columns for {self._name_arms(collinear)}: leaving out "
                f"{show_labels(drop)} resolves it"
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
            "spread. Correct the log, or give the values in a larger unit."
        )

    @property
    def level(self) -> int | None:
        """Position, among all encoded features, of one that is 1 in every row of the log; None where there is none.

        It is the intercept, or a recorded column that serves as one: its weight is the level of an arm's rewards.
        """
        if self.schema.intercept:
            return 0
        if not self.n_rows or not np.isfinite(self.reward_sums).all():
            return None
        far = np.abs(self._sums - self.counts[:, None]).max(axis=0, initial=0.0)
        far = np.maximum(far, np.abs(self.feature_squares - self.n_rows))
        ones = np.flatnonzero(far <= _SAME * self.n_rows)
        return int(self.schema.recorded_index[ones[0]]) if len(ones) else None

    def require_units(self) -> None:
        """Check that every column and the reward are of a size whose fourth powers a double holds with room to spare.

        Learned priors multiply second moments of features by those of rewards and by each other.

        Raises:
            InvalidRowsError: values of a column are typically above ``LARGEST`` or, not zero, below its inverse.
        """
        # the largest entry of a column of the factors, since squares may be beyond the range of numbers
        sizes = np.abs(self.factors).max(axis=(0, 1), initial=0.0) / np.sqrt(max(self.n_rows, 1))
        names = [*self.schema.recorded_names, self.schema.reward]
        for name, size in zip(names, sizes.tolist(), strict=True):
            if size > LARGEST or 0.0 < size < 1.0 / LARGEST:
                large = size > LARGEST
                raise InvalidRowsError(
                    f"column {name!r} of the log holds values of about {size:.0e}, too {'large' if large else 'small'} "
                    f"for a learner to compute with. Give them in a {'larger' if large else 'smaller'} unit."
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
        """A smallest set of recorded columns whose removal makes every arm that has enough rows determined."""
        L = self.n_recorded
        factors = [self.factors[a, :L, :L] for a in np.flatnonzero(~self.determined) if self.counts[a] >= L]
        names = self.schema.recorded_names
        return tuple(names[i] for i in smallest_common_removal(factors, L))

    @property
    def moments(self) -> Moments:
        """Counts, sums and factors of every arm as one object."""
        return Moments(self.counts, self._sums, self.factors, self.reward_sums)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
