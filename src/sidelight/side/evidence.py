"""The soft constraint: what a finite log says about each arm's weights, with its error accounted for.

For one arm, with ``e = x_h − Bᵀx_o``, ``Σ_e = E[eeᵀ|a]`` and ``τ² = w_hᵀΣ_e w_h``, the log's regression of the reward
on ``x_o`` and the answers' regression ``B̂`` of ``x_h`` on ``x_o`` leave

    ξ = b − M̂w,   M̂ = [I, B̂],   Cov ξ = s²G⁻¹ + τ²A⁻¹,   Λ = (Cov ξ)⁻¹ = A(τ²G + s²A)⁺G.

So the log is evidence ``J = M̂ᵀΛM̂``, ``h = M̂ᵀΛb`` about ``w``, in the form that ridge regression adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidelight.hidden.protocol import AS_EXPECTED, CompleteEstimator, Scales
from sidelight.kernels.soft import lift, marginals, soft_evidence
from sidelight.linalg import Array, apply, product, solve, symmetrize
from sidelight.logs.summary import LogSummary
from sidelight.side.robust import Sandwich, sandwiched

__all__ = ["AnswersHalf", "FrozenLog", "LogEvidence", "LogGeometry", "hidden_variance"]


@dataclass(frozen=True)
class LogEvidence:
    """What one log says about every arm for given variances, its recorded features first.

    Attributes:
        J: (K, d, d)  ``M̂ᵀΛM̂``.
        h: (K, d)  ``M̂ᵀΛb``.
        n_recorded: ``L``.
    """

    J: Array
    h: Array
    n_recorded: int

    @property
    def precision(self) -> Array:
        """``Λ``: (K, L, L)."""
        return self.J[:, : self.n_recorded, : self.n_recorded]

    @property
    def target(self) -> Array:
        """``Λb``: (K, L)."""
        return self.h[:, : self.n_recorded]


def hidden_variance(
    residual_moments: Array,
    weights: Array,
    covariances: Array,
    variance: float,
    arms: NDArray[np.int64],
    hidden: NDArray[np.int64],
    cap: Array,
) -> Array:
    """``τ² = E[w_hᵀΣ_e w_h] = ŵ_hᵀΣ_eŵ_h + tr(Σ_e Cov w_h)``, at most ``s²``.

    The plug-in alone is overconfident while ``ŵ_h`` is shrunk, and ``τ² = s²`` is far too cautious.

    Args:
        residual_moments: (K_j, m, m)  ``Σ_e`` of the log's arms.
        weights: (K, d)  ``ŵ`` of all arms.
        covariances: (K, d, d)  times ``variance`` those of the weights.
        variance: ``σ²``.
        arms: (K_j,)  the positions of the log's arms in the weights.
        hidden: (m,)  the positions of the features it lacks.
        cap: (K_j,)  ``s²``.
    """
    means = weights[arms[:, None], hidden]
    squares = (
        means[:, :, None] * means[:, None, :] + variance * covariances[arms[:, None, None], hidden[:, None], hidden]
    )
    terms = np.asarray(residual_moments, dtype=np.float64) * squares
    # added up in order, so that no processor adds in another one
    found = np.add.accumulate(terms.reshape(len(arms), -1), axis=1)[:, -1] if terms.size else np.zeros(len(arms))
    return np.asarray(np.clip(found, 0.0, cap))


@dataclass(frozen=True)
class AnswersHalf:
    """What is known of ``Cov((B − B̂)w_h)`` beyond the estimator's precision.

    Attributes:
        tau2: (K,)  ``τ²``   s2: (K,)  ``s²``.
        precision: (K, L, L)  ``A`` in place of the estimator's own, and all of the sandwich's ``W`` for each answer;
            None where ``W`` is split by ``τ²``.
        scarcity: (K,)  times which the covariance is counted, for few answers; None for 1.
    """

    tau2: Array
    s2: Array
    precision: Array | None = None
    scarcity: Array | None = None


class LogGeometry:
    """One log and the answers about it: ``Λ`` for any ``τ²``, ``s²``, and how well rounds fit it.

    The log is the ``L`` numbers ``y = RMw + ε`` with ``G = RᵀR``, ``g = Rᵀy`` and ``Cov ε = s²I + τ²RA⁻¹Rᵀ``;
    ``[R | y]`` is its triangular factor.  For the sandwich it is that of ``s²G(meat)⁻¹G`` and ``s²G(meat)⁻¹g``.

    Args:
        hidden: the estimator of the log's hidden half, which carries the log.
        meat: (K, L, L)  ``Σ ε²x_ox_oᵀ`` for the sandwich covariance; default the classical ``s²G``.  The answers'
            half is classical until ``renew`` says otherwise.
        s2: (K,)  ``s²``, at least the log's residual variances, which are the default.  What it has above them is
            noise that residuals do not show: rewards that recorded features explain but for rounding are not exact.
    """

    def __init__(self, hidden: CompleteEstimator, meat: Array | None = None, s2: Array | None = None) -> None:
        self.hidden = hidden
        summary, L = hidden.summary, hidden.summary.n_recorded
        self.R, self.y = np.array(summary.factors[:, :L, :L]), np.array(summary.factors[:, :L, L])
        self.G, self.g = np.array(summary.grams), np.array(summary.cross)
        s2 = np.asarray(summary.residual_variances) if s2 is None else s2
        self._log = (self.G, self.g, s2)
        self.sandwich = None if meat is None else Sandwich(summary, meat, s2)
        if self.sandwich is not None:
            self._count(self.sandwich.middle)
        #: (L, L)  directions in which a log may be wrong, in columns: one recorded feature's slope around its mean
        self.directions, self._intercept = _directions(summary)
        #: (K, L)  second moments of the recorded features along each direction
        self._direction_squares = (self.directions * product(summary.second_moments, self.directions)).sum(axis=1)
        self.renew()

    def renew(
        self,
        error: Array | None = None,
        answers: AnswersHalf | None = None,
        centres: Array | None = None,
        scales: Scales = AS_EXPECTED,
    ) -> None:
        """Recompute what depends on the answers, from their current state.

        Args:
            error: (K, L, L)  what an error of ``B̂`` that comes from the log's own rows adds to ``Σ ε²x_ox_oᵀ``.
            answers: what is known of the answers' half of the covariance; default the classical ``τ²A⁻¹``.
            centres: (m,)  means of hidden features as they are known elsewhere, where no answer tells them.
            scales: by how much more than expected the arms' regressions differ.  The tests of the log do not know it.
        """
        if error is not None:
            G, _, s2 = self._log
            self._count(error + (s2[:, None, None] * G if self.sandwich is None else self.sandwich.middle))
        self.B = np.array(self.hidden.regression(), dtype=np.float64, order="C")
        if centres is not None and self._intercept is not None:
            self.B[:, self._intercept] += centres
        given = None if answers is None else answers.precision
        #: ``A`` as the estimator states it; None where it states none, or another one was given
        self.stated = self.hidden.precision() if given is None else None
        self.A = self.tested = self._usable(self.stated if given is None else given, answers)
        self._answers = answers
        self.rescale(scales)

    def rescale(self, scales: Scales) -> None:
        """Count the answers as if the arms' regressions differed by so much more than expected."""
        self.A = self.tested
        given = None if self._answers is None else self._answers.precision
        if scales != AS_EXPECTED and given is None and len(self.tested):
            self.A = self._usable(self.hidden.precision_at(scales), self._answers)

    def _usable(self, given: Array | None, answers: AnswersHalf | None) -> Array:
        """``A`` (K, L, L), positive definite; (0, L, L) where no answers are behind it."""
        if given is None or not self.G.size:
            return np.zeros((0, *self.G.shape[1:]))
        A = np.array(given, dtype=np.float64, order="C")
        lift(A, self.G)
        if answers is not None:
            if self.sandwich is not None:
                A = self.sandwich.of_answers(A, answers.tau2, answers.s2, answers.precision is not None)
            if answers.scarcity is not None:
                A /= answers.scarcity[:, None, None]
                lift(A, self.G)  # so that A is positive definite even with fewer answers than features
        return A

    def _count(self, meat: Array) -> None:
        """Use ``meat`` as ``Σ ε²x_ox_oᵀ``, and recompute the factor ``[R | y]``."""
        G, g, s2 = self._log
        self.R, self.y = sandwiched(G, g, meat, s2)
        self.G, self.g = product(Rt := np.swapaxes(self.R, 1, 2), self.R), apply(Rt, self.y)

    def evidence(self, tau2: Array, s2: Array, bias: Array | None = None) -> LogEvidence:
        """``J`` and ``h`` for given ``τ²`` (K,) and ``s²`` (K,); an infinite ``s²`` means that the log says nothing.

        bias: (K, L, n) ``U``: the log's coefficients may be biased with covariance ``UUᵀ``, which is added to ``C``
        """
        K, L, m = self.B.shape
        J, h = np.empty((K, L + m, L + m)), np.empty((K, L + m))
        A, tau2 = self._with_bias(self.A, tau2, s2, bias)
        if soft_evidence(self.G, self.g, A, self.B, tau2, s2, J, h) >= 0:
            raise np.linalg.LinAlgError("The answers' precision matrix is not positive definite.")
        return LogEvidence(J, h, L)

    def _with_bias(self, A: Array, tau2: Array, s2: Array, bias: Array | None) -> tuple[Array, Array]:
        """``A'`` and 1 with ``A'⁻¹ = τ²A⁻¹ + UUᵀ``, which takes the place of ``τ²A⁻¹``: an error like that of ``B̂``."""
        if bias is None or not bias.any():
            return A, tau2
        # where nothing is hidden or R12 is known: a millionth of s²G⁻¹ in place of no error of B̂, so that A/τ² exists
        small = 1e-6 * np.where(np.isfinite(s2), s2, 1.0)
        P = A / np.maximum(tau2, small)[:, None, None] if len(A) else self.G / small[:, None, None]
        PU = product(P, bias)
        inner = np.eye(bias.shape[2]) + product(np.swapaxes(bias, 1, 2), PU)
        reduced = symmetrize(P - product(PU, solve(inner, np.swapaxes(PU, 1, 2))))
        # what rounding may have lost, so that it stays positive definite; 1 for a column without any row
        diagonal = np.einsum("aii->ai", P)
        reduced += np.where(diagonal > 0.0, 1e-14 * diagonal, 1.0)[:, :, None] * np.eye(P.shape[1])
        return reduced, np.ones(len(tau2))

    def direction_sizes(self, s2: Array, rows: Sequence[float]) -> Array:
        """(K, n · L)  variance of a bias along each direction that leaves each of ``n`` numbers of rows.  s2: (K,)"""
        squares = self._direction_squares
        known = squares > 0.0
        one = np.where(known, s2[:, None] / np.where(known, squares, 1.0), 0.0)
        return np.concatenate([np.zeros((len(one), 0)), *(one / left for left in rows)], axis=1)

    def frozen(self, tau2: Array, s2: Array, bias: Array | None = None) -> FrozenLog:
        """A snapshot of the log and its variances, to compare the next rounds with.  s2: (n, K), full trust first"""
        A, tau2 = self._with_bias(self.tested, tau2, s2[0], bias)
        return FrozenLog(np.array(self.R), np.array(self.y), np.array(self.B), np.array(A), np.array(tau2), s2)

    def marginals(
        self, prior: tuple[Array, Array], rounds: tuple[Array, Array], variance: float, log: FrozenLog, sizes: Array
    ) -> tuple[Array, Array]:
        """How well rounds fit the log at each of several ``s²``, and biased along each direction.

        Args:
            prior: ``J`` (K, d, d) and ``h`` (K, d) known before these rounds, this log apart; recorded features first,
                as everywhere here.
            rounds: ``Σ x xᵀ`` (K, d, d) and ``Σ x r`` (K, d).
            variance: ``σ²`` of the rounds.
            log: the snapshot from before these rounds.
            sizes: (K, n · L)  variances of the bias along each direction, one size after the other.

        Returns:
            (n, K) ``log p(rewards)``, up to what ``s²`` does not change; (n · L, K) what each bias adds.
        """
        values, gains = np.empty(log.s2.shape), np.empty(sizes.shape[::-1])
        # where no bias of a feature is weighed there is no direction to look along
        sides = (np.ascontiguousarray(self._turned(log.R)[:, :, : sizes.shape[1]]), sizes, gains)
        marginals(*prior, (*rounds, variance), (log.R, log.y, log.B, log.A), log.tau2, log.s2, values, sides)
        return values, gains

    def _turned(self, R: Array) -> Array:
        """``RU`` (K, L, L) of the directions ``U = I + e_k(u − e_k)ᵀ``, ``k`` the intercept: its row alone differs."""
        if self._intercept is None:
            return R
        k = self._intercept
        return np.asarray(R + R[:, :, k, None] * (self.directions[k] - np.eye(len(self.directions))[k]))


@dataclass(frozen=True)
class FrozenLog:
    """A snapshot of a log: its factor, the regression of hidden on recorded features, and the variances.

    Attributes:
        R: (K, L, L)   y: (K, L)   ``[R | y]`` the triangular factor of its rows.
        B: (K, L, m)   A: (K, L, L), or (0, …) for ``τ² = 0``   tau2: (K,)   s2: (n, K)  of every level of trust.
    """

    R: Array
    y: Array
    B: Array
    A: Array
    tau2: Array
    s2: Array


def _directions(summary: LogSummary) -> tuple[Array, int | None]:
    """(L, L)  ``e_j − c_je_k`` in columns: with an intercept ``k`` features around their means ``c_j`` in the log."""
    U = np.eye(summary.n_recorded)
    level = summary.level
    if level is None or not summary.n_rows:
        return U, None
    k = int(np.flatnonzero(np.asarray(summary.recorded) == level)[0])
    means = np.cumsum(summary.shares[:, None] * summary.means, axis=0)[-1]
    U[k] -= means
    U[k, k] = 1.0
    return U, k
