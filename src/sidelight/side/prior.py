"""A prior over arms learned from the arms: common mean, and one variance for each block of features.

``w_a ~ N(X_aβ, Ω)``, ``β ~ N(0, κ²)``, evidence per arm ``J_a``, ``h_a``.  ``X_aβ = μ + Σ_kγ_kz_{a,k}``: a mean that
all arms share and, where a log tells what the old policy favoured, weights along its preferences ``z_{a,k}``
(``side.preference``).  With ``D = Ω^{1/2}`` and ``W_a = I + DJ_aD``:

    S_a = (J_a⁻¹ + Ω)⁻¹ = D⁻¹(I − W_a⁻¹)D⁻¹,     t_a = (I + J_aΩ)⁻¹h_a = D⁻¹W_a⁻¹Dh_a,
    β̂ = P⁻¹ΣX_aᵀt_a,   P = κ⁻² + ΣX_aᵀS_aX_a,
    log p = Σ_a[−½log det W_a + ½(Dh_a)ᵀW_a⁻¹(Dh_a)] + ½(ΣX_aᵀt_a)ᵀP⁻¹(ΣX_aᵀt_a) − ½log det(κ²P).

The variances of highest ``log p`` are where a search stays, and not what a prior is made with: few arms leave a
variance open over factors, and its mode, often near 0 where the arms that are known best happen to agree, would claim
that the others agree as well.  A prior takes the posterior mean of every ``ω`` (``PriorLikelihood.widening``).

All of it in the features' and rewards' own units (``side.coordinates``): a block's ``ω`` is the variance of weights of
features of centre zero and scale one, so that it means the same for all of them.  Without an intercept the level that
weights make has a variance of its own (``side.levels``).

Here is what a prior is; ``side.deviations`` has the sums over arms, ``side.prior_likelihood`` ``log p`` and
``side.prior_search`` the search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidelight.kernels.prior import PREFERENCE
from sidelight.linalg import Array
from sidelight.side.coordinates import Units

__all__ = ["Hyper", "Prior", "reference_variance"]


class Hyper(NamedTuple):
    """Variances of the prior, in scaled features.

    A tuple, because a search makes thousands and looks them up by their values: a frozen dataclass does both in Python.

    Attributes:
        variances: one ``ω`` for each block.
        mean_variance: ``κ²`` of the common mean; of derived features times their ``ω`` over that of the first block.
        level_variance: of its intercept, or without one of its level.
        preference: prior mean square of ``γz_a``, relative to the ``ω`` of its block.
    """

    variances: tuple[float, ...]
    mean_variance: float
    level_variance: float
    preference: float = PREFERENCE

    def scaled(self, i: int, factor: float) -> Hyper:
        """With the ``i``-th of its numbers, the variances of the blocks first, multiplied by ``factor``."""
        numbers = list(self.numbers)
        numbers[i] *= factor
        return Hyper.of(numbers)

    def with_variance(self, k: int, variance: float) -> Hyper:
        """With another variance of the ``k``-th block."""
        return self._replace(variances=(*self.variances[:k], variance, *self.variances[k + 1 :]))

    @property
    def numbers(self) -> tuple[float, ...]:
        """All variances as one tuple, the blocks' first."""
        return (*self.variances, self.mean_variance, self.level_variance, self.preference)

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Hyper:
        """The inverse of ``numbers``."""
        return cls(tuple(numbers[:-3]), *numbers[-3:])

    def widened(self, factors: Sequence[float]) -> Hyper:
        """With the variance of every block multiplied by its own factor."""
        return self._replace(variances=tuple(v * f for v, f in zip(self.variances, factors, strict=True)))

    def rescaled(self, ratio: float) -> Hyper:
        """These variances in units of rewards whose variance is ``ratio`` times what it was."""
        *variances, preference = self.numbers
        return Hyper.of([*(ratio * variance for variance in variances), preference])


@dataclass(frozen=True)
class Prior:
    """``w_a ~ N(mean, covariance)`` for every arm, in the features' own units.

    Attributes:
        mean: (d,)   covariance: (d, d)  ``Ω + Cov(μ̂)``   precision: its inverse; of an arm without preferences.
        hyper: the variances of highest ``log p``.
        widening: (b,)  the posterior mean of each block's variance, relative to that; what it was made with.
        marginal: computes ``log_marginal``.
        means: (K, d)  ``X_aβ̂``   precisions: (K, d, d)  ``(Ω + X_aCov(β̂)X_aᵀ)⁻¹``; None without preferences.
    """

    mean: Array
    covariance: Array
    precision: Array
    hyper: Hyper
    widening: tuple[float, ...]
    marginal: Callable[[], float]
    means: Array | None = None
    precisions: Array | None = None

    @property
    def log_marginal(self) -> float:
        """``log p`` of the evidence it was learned from at the variances ``hyper``.

        Computed when asked for: where variances stay as they were it takes one more pass over all arms' evidence.
        """
        return self.marginal()


def reference_variance(units: Units, d: int) -> float:
    """The variance of a weight if ``d`` features of scale one shared the rewards' variance."""
    return units.reward_variance / d
