"""Estimators of ``B_a`` from what the old policy answers at full contexts.

Three estimators, one accumulator (``AnswerSums``).  With ``t`` answers, ``P`` the arm's share in the log:

- ``ipw``: ``R̂12(a) = (1/t) Σ ω x_o x_hᵀ / P(a)``, ``B̂ = R11(a)⁻¹R̂12`` with ``R11`` of the log.  The paper's.
- ``control_variate``: ``R̂12 − (μ̂_o − μ_o)μ̂_hᵀ`` with the log's mean ``μ_o``: the appendix's form.
  Consistent, not unbiased (order 1/t), and far worse than ``ipw`` for rare arms under a sharp policy.
- ``regression``: least squares of ``x_h`` on ``x_o`` over the answers themselves, shrunk toward the
  regression pooled over arms.  The errors of ``R̂11`` and ``R̂12`` cancel, which the other two give away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sidelight.errors import InputError
from sidelight.hidden.protocol import EstimatorDefaults
from sidelight.hidden.sums import AnswerSums
from sidelight.linalg import (
    Array,
    cholesky,
    eigenvalues,
    log,
    log_det,
    product,
    pseudo_inverse,
    symmetric_eigen,
    symmetrize,
)
from sidelight.linalg import inverse as inverse_of
from sidelight.logs.summary import LogSummary, one_summary

__all__ = ["AnswerEstimator", "EstimatorName"]

EstimatorName = Literal["regression", "ipw", "control_variate"]
# A grid of pooling strengths, in answers: from "arms have nothing in common" to "all arms are alike".
POOLING_GRID = 2.0 ** np.arange(-2, 21)
#: how much less a shift of the level is pulled than a change of shape
LEVEL_GRID = (1.0, 1 / 4, 1 / 16, 1 / 64, 1 / 256)


@dataclass(frozen=True)
class Told:
    """Sums of answers with weights scaled so that they count for what they tell: of every arm, and of all together.

    Scaled by ``Σω‖x_o‖²/Σω²‖x_o‖²`` (features in units of the log's), so that ``Σω² ≈ Σω`` as for answers of weight
    one, for which nothing changes.  Weights ``π_b(a|x)`` add up to fewer answers than they are worth: ``(Σω)²/Σω²``.

    Attributes:
        S: (K, d, d)   squared: (K, L, L)   counts: (K,)  as in ``AnswerSums``.
        noise: (L, L)  ``squared`` over all arms.
        inverse: (L, L)  ``T⁻¹``, ``T`` the Gram matrix over all arms, with one pseudo-answer at ``B = 0``.
        pooled: (L, m)  ``B_pool``, the regression over all arms.
        residual: (m, m)  second moments of what it leaves.
    """

    S: Array
    squared: Array
    counts: Array
    noise: Array
    inverse: Array
    pooled: Array
    residual: Array

    @classmethod
    def of(cls, sums: AnswerSums, shared: Array | None, metric: Array, hidden_scale: float) -> Told:
        """What ``sums`` tell, where ``Σω²x_ox_oᵀ`` over all arms is ``shared``, if not the sum of theirs."""
        from sidelight.kernels.answers import add_up, pooled_regression
        from sidelight.kernels.spd import invert

        (K, d, _), L, units = sums.S.shape, sums.L, 1.0 / np.diagonal(metric)
        total, noise, own, squares = np.empty((d, d)), np.empty((L, L)), np.empty(K + 1), np.empty(K + 1)
        add_up(sums.S, sums.S_squared, units, total, noise, own, squares)
        if shared is not None:
            noise, squares[K] = shared, (np.diagonal(shared) * units).sum()
        # one where weights are one, or next to nothing
        told = squares > 1e-280
        worth = np.where(told, own / np.where(told, squares, 1.0), 1.0)
        g, f = float(worth[K]), worth[:K]
        total *= g
        S, squared, counts = sums.S, sums.S_squared, sums.counts
        if (f != 1.0).any():
            f3 = f[:, None, None]
            S, squared, counts = f3 * S, f3 * (f3 * squared), f * counts
        inverse, pooled, residual = np.empty((L, L)), np.empty((L, d - L)), np.empty((d - L, d - L))
        gram = total[:L, :L] + metric
        if math.isnan(invert(gram, inverse)):
            # features that repeat each other, in so many answers that rounding outweighs the metric
            inverse[...] = pseudo_inverse(gram)
        pooled_regression(total, inverse, pooled, residual)
        np.einsum("ii->i", residual)[...] += hidden_scale
        residual /= max(g * float(sums.counts.sum()) - L, 0.0) + 1.0
        return cls(S, squared, counts, g * (g * noise), inverse, pooled, residual)


@dataclass(frozen=True)
class Fit:
    """The regression of every arm, pulled toward the pooled one.

    Attributes:
        pull: (L, L)  ``κD``   share: (L, L)  ``T⁻¹κD``, ``T`` the Gram matrix of the pooled regression.
        B: (K, L, m)  ``B̂``.
    """

    pull: Array
    share: Array
    B: Array


class AnswerEstimator(EstimatorDefaults):
    """The algebra that queries, probabilities and a companion log share.

    Args:
        summary: the log whose hidden half is learned.
        estimator: ``"regression"``, ``"ipw"`` or ``"control_variate"``.
        pooling: ``κ``, the strength of the pull toward the pooled regression, in answers; ``"auto"`` takes
            it from how much the arms' regressions differ.
    """

    estimators: tuple[str, ...] = ("regression", "ipw", "control_variate")
    sums: AnswerSums

    def __init__(
        self, summary: LogSummary, estimator: str = "regression", pooling: float | Literal["auto"] = "auto"
    ) -> None:
        self._begin(summary, estimator, pooling)

    def _begin(self, summary: LogSummary, estimator: str, pooling: float | Literal["auto"]) -> None:
        """Nothing answered yet."""
        one_summary(summary, type(self).__name__)
        if estimator not in self.estimators:
            raise InputError(f"estimator={estimator!r} is not one of {', '.join(self.estimators)}.")
        if pooling != "auto" and not (math.isfinite(pooling) and pooling >= 0):
            raise InputError(f"pooling={pooling!r} must be 'auto' or a number of at least 0.")
        self.summary = summary
        self.estimator = estimator
        self.pooling = pooling
        self.sums = AnswerSums(summary)
        self._last: tuple[Array, tuple[int, float], Told] | None = None
        self._fitted: tuple[tuple[float, float], Fit] | None = None
        self._strength = 1.0 if pooling == "auto" else float(pooling)
        self._strength_at, self._still = 0, False
        L = summary.n_recorded
        #: D: (L, L) second moments of the recorded features over the whole log, the metric of the pooling
        self.metric = (summary.shares[:, None, None] * summary.second_moments).sum(axis=0)
        scale = _recorded_scale(summary)
        # features that the log saw as constant zero still need a positive metric
        self.metric = self.metric + 1e-9 * scale * np.eye(L)
        self._hidden_scale = scale
        #: E[x_o] over the log, and ρ: an old policy shifts the level of the hidden features more than their slopes
        self._mean = (summary.shares[:, None] * summary.means).sum(axis=0) if L else np.zeros(0)
        self._level = 1.0
        #: log det D_ρ for every ρ of the grid
        self._sizes = log_det(np.array([self._leveled(level) for level in LEVEL_GRID]))

    @property
    def n_answers(self) -> int:
        """``t``: how many contexts have been answered."""
        return self.sums.n_answers

    # ---------------------------------------------------------------------------------- estimates

    def regression(self) -> Array:
        """``B̂``: (K, L, m)."""
        if self.estimator != "regression":
            return self._moment_regression()
        return self._fit().B.copy()

    def cross_moments(self) -> Array:
        """``R̂12(a)``: (K, L, m), with the weights ``1/t`` (errata: ``1/(t − 1)`` is not the unbiased one)."""
        t = self.sums.total_weight
        if t == 0:
            return np.zeros_like(self.sums.S12)
        P = np.where(self.summary.shares > 0, self.summary.shares, 1.0)[:, None, None]
        R12 = self.sums.S12 / (t * P)
        if self.estimator == "control_variate":
            L = self.sums.L
            means = self.sums.sums / (t * P[:, :, 0])
            gap = means[:, :L] - self.summary.means
            R12 = R12 - gap[:, :, None] * means[:, None, L:]
        return np.asarray(R12)

    def _moment_regression(self) -> Array:
        R12 = self.cross_moments()
        moments = np.concatenate([self.summary.second_moments, R12], axis=2)
        nothing = np.zeros(R12.shape[1:])
        return _regress(moments, np.zeros_like(self.metric), nothing, fallback=nothing)

    def _told(self) -> Told:
        """The sums as they count, worked out once for all who ask before the next answer."""
        S = self.sums
        at = (S.n_answers, S.total_weight)
        if self._last is None or self._last[0] is not S.S or self._last[1] != at:
            self._last = (S.S, at, Told.of(S, self._shared_noise(), self.metric, self._hidden_scale))
            self._fitted = None
        return self._last[2]

    def _fit(self) -> Fit:
        """The regressions, likewise."""
        told, at = self._told(), (self._strength, self._level)
        if self._fitted is None or self._fitted[0] != at:
            kD = self._pull()
            B = _regress(told.S, kD, product(kD, told.pooled), fallback=told.pooled)
            # Cov(B_pool) = T⁻¹QT⁻¹ may be huge where κD is next to nothing; T⁻¹κD is neither
            self._fitted = (at, Fit(kD, product(told.inverse, kD), B))
        return self._fitted[1]

    # ------------------------------------------------------------------------------------ pooling

    def _leveled(self, level: float) -> Array:
        """``Cov(x_o) + ρE[x_o]E[x_o]ᵀ``: the metric in which a shift of level counts ``ρ`` times a change of shape."""
        return np.asarray(self.metric - (1.0 - level) * np.outer(self._mean, self._mean))

    def _pull(self) -> Array:
        """``κ`` times the metric of the pooling: what each arm's regression is pulled with."""
        return self._strength * self._leveled(self._level)

    def fix_pooling(self, strength: float) -> None:
        """Set ``κ`` once and for all."""
        self.pooling = strength
        self._strength, self._level = strength, 1.0

    def unpooled(self) -> Any:
        """A copy without pooling: shrinking toward the pooled regression is a bias that no proof covers."""
        twin = self.copy()
        twin.fix_pooling(0.0)
        return twin

    def pooling_strength(self) -> float:
        """``κ``: as set, or as last estimated: when the answers grew by a quarter, or where it stood still doubled."""
        return self._strength

    def _answered(self) -> None:
        """Refresh ``κ`` on a schedule of answers, so that it depends on nothing but them."""
        if self.room() <= 0:
            before = (self._strength, self._level)
            self._strength, self._level = self._estimate_strength()
            self._strength_at, self._still = self.n_answers, before == (self._strength, self._level)

    def room(self) -> int:
        """Answers until ``κ`` is refreshed."""
        if self.pooling != "auto":
            return int(np.iinfo(np.int64).max)
        return math.ceil((2.0 if self._still else 1.25) * self._strength_at + 8) - self.n_answers

    def took(self, answers: int) -> None:
        """``answers`` full-weight answers went into the sums elsewhere (in a kernel)."""
        self.sums.n_answers += answers
        self.sums.total_weight += float(answers)
        self._answered()

    def _estimate_strength(self) -> tuple[float, float]:
        """``κ`` and ``ρ`` by marginal likelihood; of those within two units of the largest, the ones that pool least.

        Few answers do not tell how much the arms differ.  Not pooling what is alike costs some of them; pooling what is
        not alike is an error that nothing accounts for.  The level, by which a policy chooses, goes first.

        ``B_a ~ N(B_pool, Σ_e ⊗ (κD_ρ)⁻¹)`` with ``D_ρ = Cov(x_o) + ρE[x_o]E[x_o]ᵀ``.  With
        ``U_a = (S12(a) − S11(a)B_pool)Σ_e^{−1/2}`` the log likelihood, against arms that are all alike, is
        ``½Σ_a[tr U_aᵀ(S_a + κD_ρ)⁻¹U_a − m log det(S_a + κD_ρ)/det κD_ρ]``.  On a lattice of factors of two and four it
        is climbed from where it was last.
        """
        from sidelight.kernels.answers import gaps, pooling_likelihoods

        S = self.sums
        L, m = S.S12.shape[1:]
        if L == 0 or m == 0 or not S.counts.any():
            return self._strength, self._level
        told = self._told()
        residual = told.residual + 1e-12 * self._hidden_scale * np.eye(m)
        gap = np.empty((len(told.S), L, m))
        gaps(told.S, told.pooled, product(inverse_of(residual), cholesky(residual)), gap)
        levels = np.array(LEVEL_GRID)
        found: dict[int, Array] = {}

        def likelihood(i: int, j: int) -> float:
            if not (0 <= i < len(POOLING_GRID) and 0 <= j < len(LEVEL_GRID)):
                return -math.inf
            if i not in found:
                strength, values = float(POOLING_GRID[i]), np.empty(len(levels))
                pooling_likelihoods(told.S, self.metric, gap, self._mean, strength, levels, values)
                values += 0.5 * len(gap) * m * (L * log(strength) + self._sizes)
                found[i] = np.where(np.isnan(values), -math.inf, values)
            return float(found[i][j])

        i = int(np.argmin(np.abs(log(POOLING_GRID) - log(self._strength))))
        j = int(np.argmin(np.abs(np.array(LEVEL_GRID) - self._level)))
        while True:
            best = max([(i, j), (i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)], key=lambda at: likelihood(*at))
            if best == (i, j):
                break
            i, j = best
        least = likelihood(i, j) - 2.0
        if not math.isfinite(least):
            # features that repeat each other, in so many answers that rounding leaves no likelihood
            return self._strength, self._level
        while j + 1 < len(LEVEL_GRID):
            # a level that is pulled a quarter as much goes with a shape that is pulled up to four times as much
            further = max(range(i, min(i + 3, len(POOLING_GRID))), key=lambda k: likelihood(k, j + 1))
            if likelihood(further, j + 1) < least:
                break
            i, j = further, j + 1
        while likelihood(i - 1, j) >= least:
            i -= 1
        return float(POOLING_GRID[i]), float(LEVEL_GRID[j])

    # -------------------------------------------------------------------------------- uncertainty

    def precision(self) -> Array:
        """``A``: (K, L, L), the effective Gram matrix of the answers.

        For the regression ``A⁻¹ = Cov(B̂_a w_h)/τ² = W⁻¹(S² + κD + κD Cov(B_pool) κD)W⁻¹`` with ``W = S11 + κD``:
        sampling noise of the arm's own answers, its random effect, and the pooled regression, which enters with weight
        ``W⁻¹κD``.  Weighted answers count by ``A_p(Σω²xxᵀ)⁻¹A_p`` (see ``Told``).
        """
        from sidelight.kernels.answers import answers_precision

        S = self.sums
        if self.estimator != "regression":
            return np.asarray(S.total_weight * self.summary.shares[:, None, None] * self.summary.second_moments)
        if self.pooling_strength() == 0.0:
            # nothing is borrowed: A_p(Σω²x_ox_oᵀ)⁺A_p, which is the Gram matrix itself where every weight is one
            return _congruent(S.S11, S.S_squared)
        told, fit = self._told(), self._fit()
        kD = fit.pull
        shared = kD + symmetrize(product(product(fit.share.T, told.noise + self.metric), fit.share))
        A = np.empty_like(told.squared)
        if not answers_precision(told.S, told.squared, kD, shared, A):
            # features that repeat each other, in so many answers that rounding outweighs κD
            lost, L = np.flatnonzero(np.isnan(A).any(axis=(1, 2))), len(kD)
            A[lost] = _congruent(told.S[lost, :L, :L] + kD, told.squared[lost] + shared)
        return A

    def _shared_noise(self) -> Array | None:
        """``Σω²x_ox_oᵀ`` (L, L) of the regression pooled over arms, where it is not the sum of the arms'."""
        return None

    def residual_moments(self) -> Array:
        """``Σ_e``: (K, m, m).  For ``ipw`` and ``control_variate`` it is ``R22``: nothing cancels there.

        Of an arm's residuals ``tr S11W⁻¹`` are used up by its own regression, and ``tr S11W⁻¹κDT⁻¹`` by the pooled one
        (``T`` its Gram matrix).  Nothing is subtracted there, so that neither a strong nor a weak pull loses digits.
        """
        from sidelight.kernels.answers import residual_moments

        S = self.sums
        m = S.S22.shape[-1]
        # an arm's own residuals count once they outnumber 2m + 2 pseudo-residuals of the pool
        prior = 2.0 * m + 2.0
        if self.estimator != "regression":
            pooled = (S.S22.sum(0) + self._hidden_scale * np.eye(m)) / (S.counts.sum() + 1.0)
            return symmetrize((S.S22 + prior * pooled) / (S.counts + prior)[:, None, None])
        told, fit, Sigma = self._told(), self._fit(), np.empty_like(S.S22)
        # without pooling a column of zeros has no inverse but for the last bit
        pull, used = fit.pull + 1e-12 * self.metric, np.ascontiguousarray(fit.share.T)
        np.einsum("ii->i", used)[...] += 1.0
        residual_moments(told.S, told.counts, fit.B, pull, used, told.residual, prior, Sigma)
        return Sigma

    def bound(self, delta: float, horizon: int, context_bound: float = 1.0) -> Array:
        """``ΔM``: (K,), with ``‖M̂_a − M_a‖ ≤ ΔM_a`` for all arms and episodes with probability ``1 − δ/2``.

        For ``ipw`` it is ``C_B1/√t + C_B2/t`` (``theory.cross_moment_constants``, corrected), with
        ``tr R22(a) ≤ S_x² − tr R11(a)``.  For the others there is no such proof: ``control_variate`` takes ipw's,
        and the regression the asymptotic ``‖A^{−1/2}‖‖Σ_e^{1/2}‖(√L + √m + √(2 log(2K·episodes/δ)))``.
        """
        from sidelight.theory import cross_moment_constants, delta_m, episode_count

        K, L, m = self.sums.S12.shape
        if L == 0 or m == 0:
            return np.zeros(K)
        t = self.sums.total_weight
        if t == 0:
            return np.full(K, np.inf)
        if self.estimator == "regression":
            spread = eigenvalues(self.residual_moments())[:, -1]
            weakest = np.maximum(eigenvalues(self.precision())[:, 0], 1e-300)
            union = 2.0 * K * episode_count(horizon) / delta
            return np.asarray(np.sqrt(spread / weakest) * (math.sqrt(L) + math.sqrt(m) + math.sqrt(2.0 * log(union))))
        R11 = self.summary.second_moments
        constants = cross_moment_constants(
            R11,
            self.summary.shares,
            recorded_bound=context_bound,
            hidden_bound=context_bound,
            n_features=L + m,
            delta=delta,
            horizon=horizon,
            hidden_traces=np.maximum(context_bound**2 - np.einsum("aii->a", R11), 0.0),
        )
        return np.asarray(delta_m(constants, t))

    # ---------------------------------------------------------------------------------- lifecycle

    def copy(self) -> Any:
        """An independent copy."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.sums = AnswerSums(self.summary)
        twin.sums.restore({k: np.array(v) for k, v in self.sums.state().items()})
        return twin

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """What a file needs to restore it, beside the summary."""
        meta = {
            "kind": type(self).__name__,
            "estimator": self.estimator,
            "pooling": self.pooling,
            "strength": self._strength,
            "strength_at": self._strength_at,
            "strength_still": self._still,
            "level": self._level,
        }
        return meta, self.sums.state()

    @classmethod
    def from_state(cls, summary: LogSummary, meta: dict[str, Any], arrays: dict[str, Array]) -> Any:
        """An estimator of ``summary`` with the state that ``state`` gave."""
        estimator = cls.__new__(cls)
        estimator._begin(summary, meta["estimator"], meta["pooling"])
        estimator.restore(meta, arrays)
        return estimator

    def restore(self, meta: dict[str, Any], arrays: dict[str, Array]) -> None:
        """The inverse of ``state``."""
        self._strength = float(meta["strength"])
        self._strength_at = int(meta["strength_at"])
        self._still = bool(meta.get("strength_still", False))
        self._level = float(meta["level"])
        self.sums.restore(arrays)

    def _repr_html_(self) -> str:
        from sidelight.hidden.cards import estimator_card

        return estimator_card(self, self.summary, self.sums.counts)

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"{type(self).__name__}({self.estimator}, {self.n_answers} answers, "
            f"{s.n_features - s.n_recorded} of {s.n_features} features hidden)"
        )


def _congruent(W: Array, S: Array) -> Array:
    """``WS⁺W`` of symmetric matrices.  W, S: (K, L, L)"""
    return symmetrize(product(product(W, pseudo_inverse(symmetrize(S))), W))


def _regress(S: Array, pull: Array, toward: Array, fallback: Array) -> Array:
    """``(S11(a) + pull)⁻¹(S12(a) + toward)`` per arm; an arm without anything on the left takes ``fallback``.

    Args:
        S: (K, L or more, d)  ``[S11 | S12]`` on top.
        pull: (L, L)  the same for all arms.
        toward: (L, m)  the same for all arms.
        fallback: (L, m)  for an arm about which nothing is known.
    """
    from sidelight.kernels.answers import SINGULAR, regress

    L, m = toward.shape
    B, solved = np.empty((len(S), L, m)), np.zeros(len(S), dtype=np.bool_)
    if L:
        regress(S, pull, toward, B, solved)
    for a in np.flatnonzero(~solved):
        left, right = S[a, :L, :L] + pull, S[a, :L, L:] + toward
        if not left.any():
            B[a] = fallback
            continue
        scale = np.sqrt(np.maximum(np.diagonal(left), 0.0))
        scale = np.where(scale > 0, scale, 1.0)
        values, vectors = symmetric_eigen(symmetrize(left / np.outer(scale, scale)))
        keep = values > SINGULAR * values[-1]
        inverse = np.where(keep, 1.0 / np.where(keep, values, 1.0), 0.0)
        B[a] = product(vectors * inverse, product(vectors.T, right / scale[:, None])) / scale[:, None]
    return B


def _recorded_scale(summary: LogSummary) -> float:
    """The mean second moment of the recorded features over the log: a scale for features never seen."""
    if summary.n_recorded == 0 or summary.n_rows == 0:
        return 1.0
    pooled = (summary.shares[:, None, None] * summary.second_moments).sum(axis=0)
    scale = float(np.trace(pooled)) / summary.n_recorded
    return scale if scale > 0 else 1.0
