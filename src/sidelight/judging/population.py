"""What follows from the sums of one population: the regression of every arm, and the short value of a policy.

A population is a log, an era of one, or a half of either.  For a policy ``π`` of recorded features with ``ℓ_a = E[x_o
1{π = a}]`` the short value is ``V_s = Σ_a ℓ_a·b_a``, and its weights are ``α_s = x_oᵀ(P_aR11(a))⁻¹ℓ_a`` for a row of
arm ``a``.  With ``R_a`` the triangular factor of the arm's rows and ``z = R_a⁻ᵀx_o`` this is ``α_s = n z·q_a``, ``q_a =
R_a⁻ᵀℓ_a``; everything below is computed in these coordinates, in which the rows of an arm have the identity as their
Gram matrix whatever the columns' units.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import lstsq, solve_triangular

from sidelight.errors import FileFormatError
from sidelight.judging.scarcity import least_share
from sidelight.labels import Label
from sidelight.linalg import Array
from sidelight.logs.reduce.moments import triangular_factor
from sidelight.logs.reduce.rank import independent_columns
from sidelight.logs.schema.schema import INTERCEPT, Schema
from sidelight.logs.summary import LogSummary

__all__ = ["LEAST_FREEDOM", "ArmFit", "Population", "Weighting"]

#: An arm with fewer rows than columns plus this is not judged: its residual variance would be a guess.
LEAST_FREEDOM = 10

# A column that is a combination of others in an arm's rows may deviate from it elsewhere by this part of its size.
_ESTIMABLE = 1e-7
# 1 − the share of the constant that recorded columns explain counts as zero below this: rounding of Σx and Σxxᵀ.
_CONSTANT = 1e-10


@dataclass(frozen=True)
class ArmFit:
    """The regression of one arm on the columns that its rows determine.

    Attributes:
        count: ``n_a``.
        columns: (k,) positions of independent columns, the constant first.
        R: (k, k) their triangular factor, ``RᵀR = Σ x xᵀ``.
        b: (L,) coefficients, 0 for columns that repeat others.
        residual: the sum of squared residuals.
        rest: (L − k,) positions of the columns that repeat others in this arm's rows.
        dependence: (k, L − k) with ``x_rest = x_columns @ dependence`` in this arm's rows.
    """

    count: int
    columns: np.ndarray
    R: Array
    b: Array
    residual: float
    rest: np.ndarray
    dependence: Array

    @property
    def freedom(self) -> int:
        """The residual degrees of freedom, ``n_a − k``."""
        return self.count - len(self.columns)

    @property
    def enough(self) -> bool:
        """Whether there are enough rows to judge the arm."""
        return self.freedom >= LEAST_FREEDOM

    @property
    def variance(self) -> float:
        """``s²``, on ``n_a − k`` degrees of freedom."""
        return self.residual / max(self.freedom, 1)

    def whitened(self, X: Array) -> Array:
        """``z = R⁻ᵀx``: (n, k) for rows X (n, L); ``‖z‖²`` is the leverage of one of the arm's own rows."""
        return np.asarray(solve_triangular(self.R, X[:, self.columns].T, trans="T").T)

    def reaches(self, X: Array, scale: Array) -> np.ndarray:
        """(n,) whether the arm's rows determine what it pays at each row of X (n, L).

        Args:
            X: contexts.
            scale: (L,) the size of the columns.
        """
        if len(self.rest) == 0:
            return np.ones(len(X), dtype=bool)
        gap = np.abs(X[:, self.rest] - X[:, self.columns] @ self.dependence)
        return np.asarray((gap <= _ESTIMABLE * scale[self.rest]).all(axis=1))


@dataclass(frozen=True)
class Weighting:
    """A policy in terms of the sums: how it weighs the rows of each arm.

    Attributes:
        ell: (K, L) ``ℓ_a``.
        q: per arm (k,) ``q_a``, or ``None`` for an arm that the policy never takes.
        value: ``V_s``.
        alpha_squares: ``E α_s²``.
        problem: why the value cannot be told, or ``None``.
    """

    ell: Array
    q: tuple[Array | None, ...]
    value: float
    alpha_squares: float
    problem: str | None = None


class Population:
    """Sums of one population, for columns ``x_o`` with a constant first.

    Args:
        names: the L columns.
        groups: feature → positions of its columns.
        arms: the arm labels.
        counts: (K,).
        sums: (K, L) ``Σ x_o``.
        factors: (K, L+1, L+1) triangular factors of ``[x_o | r]``.
        columns: (L,) where these columns stand among the schema's recorded ones.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        groups: dict[str, np.ndarray],
        arms: tuple[Label, ...],
        counts: np.ndarray,
        sums: Array,
        factors: Array,
        columns: np.ndarray,
    ) -> None:
        self.names, self.groups, self.arms = names, groups, arms
        self.counts, self.sums, self.factors, self.columns = counts, sums, factors, columns
        self.n_rows = int(counts.sum())
        self.mean = sums.sum(axis=0) / max(self.n_rows, 1)
        squares = np.einsum("kij,kij->j", factors[:, :, :-1], factors[:, :, :-1])
        self.scale = np.sqrt(squares / max(self.n_rows, 1))
        # the constant comes first, so the first row of a factor holds √n and Σ r/√n
        self.reward_sums = factors[:, 0, 0] * factors[:, 0, -1]
        self.value = float(self.reward_sums.sum() / max(self.n_rows, 1))

    @classmethod
    def of(cls, summary: LogSummary) -> Population:
        """The population of a summary; a constant is added if its schema has none.

        Columns that repeat others in the whole log are left out, later ones first.

        Raises:
            FileFormatError: an old file without the sums that the constant needs.
        """
        schema = summary.schema
        names, sums, factors = schema.recorded_names, summary.means * summary.counts[:, None], summary.factors
        groups = column_groups(schema)
        columns = np.arange(len(names))
        if not schema.intercept:
            if np.isnan(summary.reward_sums).any():
                raise FileFormatError(
                    "this summary was written by an earlier version and its schema has no intercept, so it lacks the "
                    "sums of rewards that a verdict needs. Summarize the log again."
                )
            factors = np.stack(
                [
                    _with_constant(factor, count, np.append(x, r))
                    for factor, count, x, r in zip(factors, summary.counts, sums, summary.reward_sums, strict=True)
                ]
            )
            names, sums = (INTERCEPT, *names), np.column_stack([summary.counts, sums])
            groups = {feature: positions + 1 for feature, positions in groups.items()}
            columns = np.append(-1, columns)
        pooled = triangular_factor(factors.reshape(-1, factors.shape[-1]))
        kept = independent_columns(pooled[:-1, :-1])
        population = cls(names, groups, summary.arms, summary.counts, sums, factors, columns)
        return population if len(kept) == len(names) else population._of_columns(kept)

    def select(self, X: Array) -> Array:
        """The population's columns (n, L) of encoded recorded columns X (n, L_schema); -1 stands for the constant."""
        if len(self.columns) and self.columns[0] == -1:
            return np.column_stack([np.ones(len(X)), X[:, self.columns[1:]]])
        return X if len(self.columns) == X.shape[1] else X[:, self.columns]

    def without(self, feature: str) -> Population:
        """The same rows with all columns of a feature left out of every triangular factor."""
        smaller = self._of_columns(np.setdiff1d(np.arange(len(self.names)), self.groups[feature]), careful=False)
        del smaller.groups[feature]
        return smaller

    def _of_columns(self, kept: np.ndarray, careful: bool = True) -> Population:
        """The same rows with the columns at the positions ``kept`` alone; ``careful`` as in ``triangular_factor``."""
        where = np.full(len(self.names), -1)
        where[kept] = np.arange(len(kept))
        factors = [triangular_factor(factor[:, [*kept, len(self.names)]], careful) for factor in self.factors]
        groups = {feature: where[at][where[at] >= 0] for feature, at in self.groups.items()}
        names = tuple(self.names[i] for i in kept)
        sums = self.sums[:, kept]
        return Population(names, groups, self.arms, self.counts, sums, np.stack(factors), self.columns[kept])

    @cached_property
    def fits(self) -> tuple[ArmFit, ...]:
        """The regression of every arm."""
        return tuple(_fit(factor, int(count)) for factor, count in zip(self.factors, self.counts, strict=True))

    @property
    def can_judge(self) -> bool:
        """Whether any arm has enough rows to be judged on all columns."""
        return bool((self.counts >= len(self.names) + LEAST_FREEDOM).any())

    @property
    def shares(self) -> Array:
        """(K,) ``P(a)``."""
        return np.asarray(self.counts / max(self.n_rows, 1))

    @cached_property
    def epsilon_squares(self) -> float:
        """``E ε² = Σ_a P_a s_a²``; an arm with fewer than 10 degrees of freedom counts with the others' variance."""
        judged = [fit for fit in self.fits if fit.enough]
        freedom = sum(fit.freedom for fit in judged)
        pooled = sum(fit.residual for fit in judged) / freedom if freedom else float(self.reward_squares)
        variances = np.array([fit.variance if fit.enough else pooled for fit in self.fits])
        return float(self.shares @ variances)

    def variances(self, kurtosis: float) -> Array:
        """(K,) ``s_a²``, at least the part ``least_share`` of ``E ε²``, which falls with the arm's rows."""
        own = np.array([fit.variance for fit in self.fits])
        freedom = np.array([fit.freedom for fit in self.fits], dtype=np.float64)
        return np.asarray(np.maximum(own, self.epsilon_squares * least_share(kurtosis, freedom)))

    @cached_property
    def reward_squares(self) -> float:
        """``E r²``."""
        return float(np.square(self.factors[:, :, -1]).sum() / max(self.n_rows, 1))

    @cached_property
    def reward_variance(self) -> float:
        """The variance of rewards over all rows; 0 if they are equal up to rounding, or too small for their squares."""
        unit = float(np.abs(self.factors[:, :, -1]).max()) or 1.0  # squares of very small or large rewards do not fit
        within = np.square(self.factors[:, 1:, -1] / unit).sum() / max(self.n_rows, 1)
        means = self.reward_sums / unit / np.maximum(self.counts, 1)
        variance = float(within + self.shares @ (means - self.value / unit) ** 2)
        squares = float(np.square(self.factors[:, :, -1] / unit).sum() / max(self.n_rows, 1))
        return variance * unit * unit if variance > 1e-24 * squares else 0.0

    def fixed(self, arm: int) -> Weighting:
        """The policy that always takes the arm at this position."""
        ell = np.zeros((len(self.arms), len(self.names)))
        ell[arm] = self.mean
        return self.weigh(ell)

    def weigh(self, ell: Array) -> Weighting:
        """A policy given by ``ℓ`` (K, L), or why the sums do not tell its value."""
        q: list[Array | None] = []
        value = squares = 0.0
        for a, (own, fit) in enumerate(zip(ell, self.fits, strict=True)):
            if not own[0] > 0:  # the constant's entry is the share of contexts in which the policy takes the arm
                q.append(None)
                continue
            problem = self._problem(a, own, fit)
            if problem is not None:
                return Weighting(ell, (), float("nan"), float("nan"), problem)
            part = solve_triangular(fit.R, own[fit.columns], trans="T")
            q.append(part)
            value += float(own @ fit.b)
            squares += float(part @ part)
        return Weighting(ell, tuple(q), value, self.n_rows * squares)

    def _problem(self, a: int, own: Array, fit: ArmFit) -> str | None:
        label = self.arms[a]
        if not fit.enough:
            return (
                f"arm {label!r} has {fit.count:,} rows for {len(fit.columns)} columns, and at least "
                f"{len(fit.columns) + LEAST_FREEDOM} are needed"
            )
        if len(fit.rest) == 0:
            return None
        gap = np.abs(own[fit.rest] - own[fit.columns] @ fit.dependence) / self.scale[fit.rest]
        if gap.max() <= _ESTIMABLE:
            return None
        column = self.names[fit.rest[int(gap.argmax())]]
        return (
            f"the old policy never tries arm {label!r} in some contexts in which this policy takes it: the arm's "
            f"{fit.count:,} rows do not tell {column!r} apart from other columns"
        )

    def fixed_squares(self, arm: int) -> float:
        """``Σ (x_o·b_a − r)²`` over all rows."""
        return float(np.square(self.factors @ np.append(self.fits[arm].b, -1.0)).sum())


def column_groups(schema: Schema) -> dict[str, np.ndarray]:
    """Recorded feature → positions, among the schema's recorded columns, of its own and of what derives from it."""
    position = {int(column): i for i, column in enumerate(schema.recorded_index)}
    groups: dict[str, list[int]] = {}
    for feature in schema.recorded_features:
        start = schema.feature_start(feature.name)
        groups[feature.name] = [position[start + i] for i in range(len(feature.encoded_names))]
    for term in schema.recorded_terms:
        start = schema.feature_start(term.label)
        for name in term.inputs:
            groups[name] += [position[start + i] for i in range(len(schema.term_names(term)))]
    return {name: np.array(columns, dtype=int) for name, columns in groups.items()}


def _fit(factor: Array, count: int) -> ArmFit:
    L = factor.shape[1] - 1
    columns = independent_columns(factor[:L, :L]) if count else np.zeros(0, dtype=np.int64)
    rest = np.setdiff1d(np.arange(L), columns)
    own = factor if len(rest) == 0 else triangular_factor(factor[:, [*columns, *rest, L]])
    k = len(columns)
    R, b = own[:k, :k], np.zeros(L)
    if k:
        b[columns] = solve_triangular(R, own[:k, L])
    dependence = solve_triangular(R, own[:k, k:L]) if k and len(rest) else np.zeros((k, len(rest)))
    return ArmFit(count, columns, R, b, float(np.square(own[k:, L]).sum()), rest, dependence)


def _with_constant(factor: Array, count: int, sums: Array) -> Array:
    """The triangular factor of ``[1 | x_o | r]`` from that of ``[x_o | r]``, the count and ``[Σx_o | Σr]``."""
    size = len(factor)
    if count == 0:
        return np.zeros((size + 1, size + 1))
    # the part of the column of ones that lies in the span of the others, in their orthonormal coordinates
    inside = lstsq(factor.T, sums, lapack_driver="gelsy")[0]
    left = max(count - float(inside @ inside), 0.0)
    outside = np.sqrt(left) if left > _CONSTANT * count else 0.0
    stacked = np.zeros((size + 1, size + 1))
    stacked[:size, 0], stacked[:size, 1:], stacked[size, 0] = inside, factor, outside
    return np.asarray(triangular_factor(stacked))
