"""Are the contexts of the answers those of the log?  How far hidden features may have moved where recorded ones have.

``B̂`` is learned at today's contexts.  Where these come from another population than the log's rows did, the level of
the hidden features given the recorded ones may differ, ``c_a + δ`` in place of ``c_a``, and then

    b − M̂w   errs by   −u_a(δ·w_h),      u_a = R11(a)⁻¹E[x_o | a]  (the intercept, if there is one).

Nobody sees ``δ``, but the recorded features show whether the population is another one: their means have moved by
``z̄``.  Hidden features are expected to have moved by as many of their deviations, in an unknown direction:

    δ ~ N(0, ρ²Σ_e),  so that  δ·w_h ~ N(0, ρ²τ²),      ρ² = z̄ᵀD⁻¹z̄/p  less what chance does to it,

with ``D`` the covariance of the ``p`` recorded features.  What the log says about slopes is not touched.

Hidden features may also move alone.  Then a policy that looks at them names its arms in other shares than the log's
``P``: contexts whose hidden features have moved by ``δ`` are ``exp(δᵀΣ_e⁻¹e)`` times as frequent (for normal ones, up
to a constant), so that the share of an arm whose contexts have the level ``c_a`` changes by about that factor,

    log P'(a)/P(a) ≈ δᵀΣ_e⁻¹c_a + constant,      ΣP(a)(log P'(a)/P(a))² ≈ ρ²·v,      v = ΣP(a)c_aᵀΣ_e⁻¹c_a/m

for ``δ ~ N(0, ρ²Σ_e)``.  The left side is measured by ``Σ(P' − P)log(P'/P)``, less what chance does to it, and ``v`` by
the answers.  A policy that does not look at hidden features leaves no trace of them in its shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sidelight.hidden.frame import Frame
from sidelight.linalg import Array, apply, chi_square_tail, inverse, log, product, square, symmetric_eigen

if TYPE_CHECKING:
    from sidelight.hidden.protocol import HiddenShift
    from sidelight.hidden.sums import AnswerSums
    from sidelight.logs.summary import LogSummary

__all__ = ["ERROR_RATE", "PopulationShift", "level_bias"]

#: the chance that the same population is ever taken for another one, spent over looks at doubling numbers of answers
ERROR_RATE = 0.01
#: answers that it takes at least, and rows of the log for each recorded feature
FEWEST_ANSWERS, FEWEST_ROWS = 10, 10.0
#: eigenvalues of the recorded features' correlation matrix below this are features that repeat each other
REPEATED = 1e-6
#: the variance of the arms' levels, in residual variances, is taken to be at least this: where a policy hardly looks at
#: hidden features, shares that differ tell little about them
LEAST_TOLD = 0.05


class PopulationShift:
    """How far today's contexts are from those of a log.

    Attributes:
        level: (K, L)  ``u_a``, the coefficients by which an error of a level enters ``b − M̂w``.

    Args:
        summary: the log; what is needed of it is computed once.
    """

    def __init__(self, summary: LogSummary) -> None:
        frame = Frame.leveled(summary)
        self.level = frame.ones
        own = np.diagonal(frame.D)
        varies = np.flatnonzero(np.isfinite(own) & (np.arange(frame.size) != frame.constant))
        deviations = np.sqrt(own[varies])
        values, vectors = symmetric_eigen(frame.D[np.ix_(varies, varies)] / np.outer(deviations, deviations))
        kept = values > REPEATED
        self._counts = np.asarray(summary.counts, dtype=np.float64)
        self._rows, self._freedom = float(np.sum(summary.counts)), int(kept.sum())
        self._features, self._scale, self._shift = varies, frame.scale[varies], frame.shift[varies]
        #: (p, p)  means in the frame's coordinates become independent, of variance one for one answer
        self._whiten = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)[:, None] * vectors.T / deviations

    def square(self, sums: AnswerSums) -> float:
        """``ρ²``: 0 unless the means of the recorded features differ by more than chance.

        Weighted answers, which were asked with different probabilities, are not compared.
        """
        p, n = self._freedom, sums.n_answers
        if n < FEWEST_ANSWERS or sums.total_weight != n or self._rows < FEWEST_ROWS * max(p, 1) or not p:
            return 0.0
        means = np.cumsum(sums.sums, axis=0)[-1, self._features] / n
        squares = np.square(apply(self._whiten, self._scale * means - self._shift))
        distance, chance = float(np.cumsum(squares)[-1]), 1.0 / n + 1.0 / self._rows
        looks = log(float(n)) / log(2.0)
        if chi_square_tail(distance / chance, float(p)) > ERROR_RATE / (looks * (looks + 1.0)):
            return 0.0
        return max(distance / p - chance, 0.0)

    def hidden_square(self, sums: AnswerSums, hidden: HiddenShift | None) -> float:
        """``ρ²`` of hidden features that alone have moved, from the shares in which the old policy names its arms.

        To be asked only where these differ from the log's by more than chance.

        Args:
            sums: of the answers.
            hidden: how the hidden features of an arm's contexts are shifted; None where nothing is known.
        """
        n, K = float(sums.n_answers), len(sums.counts)
        if hidden is None or hidden.residual is None or not hidden.levels.size:
            return 0.0
        then = (self._counts + 0.5) / (self._rows + 0.5 * K)
        # what is expected of the shares, if they are uncertain by as much as one answer for each arm says
        now = (np.asarray(sums.counts) + K * then) / (n + K)
        distance = float(product(now - then, log(now) - log(then)))
        chance = (K - 1.0) * (square(n / (n + K)) / n + 1.0 / self._rows)
        levels = hidden.levels - product(hidden.levels.T, now)
        told = float(product(now, (levels * product(levels, inverse(hidden.residual))).sum(axis=1))) / levels.shape[1]
        return float(max(distance - chance, 0.0) / max(told, LEAST_TOLD))


def level_bias(level: Array, square: float, tau2: Array) -> Array:
    """(K, L, 1)  ``U`` with ``UUᵀ = ρ²τ²u_au_aᵀ``, the covariance of what a moved population adds to ``b − M̂w``."""
    return np.asarray((np.sqrt(square * np.maximum(tau2, 0.0))[:, None] * level)[:, :, None])
