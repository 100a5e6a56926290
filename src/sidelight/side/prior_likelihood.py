"""How likely a prior over arms is: ``log p`` of ``side.prior`` as a function of its variances."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sidelight.kernels.prior import BENT, mean_variances, prior_values
from sidelight.linalg import Array, exp, inverse, log, log_det, power, product, solve, symmetrize
from sidelight.side.coordinates import Units
from sidelight.side.deviations import Deviations, Shrunk
from sidelight.side.levels import Level, Stretch
from sidelight.side.prior import Hyper, Prior, reference_variance
from sidelight.side.spread import SpreadLikelihood

__all__ = ["MOST_LEVELS", "PriorLikelihood", "log_marginal"]

#: a preference of smaller mean square than this, in features of scale one, counts as if it had as much
LEAST_PREFERENCE = 0.01
#: the variance of levels, at most, relative to that of rewards, of which it is a part: a log that leaves the level of
#: every arm open would else let it grow without end; irrational, so that rounding never decides about a power of two
MOST_LEVELS = 4.0 * math.sqrt(2.0)
#: by how many factors of two, at most, a variance is followed from its mode to either side for its posterior mean
REACH = 6
#: and no further once a step adds less than this part
LITTLE = 0.01


def log_marginal(shrunk: Shrunk, kappa2: Array) -> tuple[float, Array, Array]:
    """``log p``, ``β̂`` and ``Cov(β̂) = P⁻¹``.  kappa2: (d + q,) prior variances of ``β``"""
    # κ²-scaled, so that a vague mean does not make P singular
    root = np.sqrt(kappa2)
    scaled = root[:, None] * shrunk.S * root
    np.einsum("ii->i", scaled)[...] += 1.0
    C = inverse(scaled) * (root[:, None] * root)
    mean = root * solve(scaled, root * shrunk.t)
    return shrunk.value + 0.5 * float(product(shrunk.t, mean) - log_det(scaled)), mean, C


class PriorLikelihood:
    """``log p`` of the evidence of all arms as a function of the prior's variances, each value computed once.

    The arguments are those of ``prior_search.estimate_prior``.

    Attributes:
        derived: how many of the blocks, the last ones, are of derived features.
        reference: the variance of a weight that variances are searched relative to.
        filled: of every block, whether it has features.
        left_out: what all values lack, the part of ``log p`` that is the same for every prior: that of the level which
            all arms are expected to have.  Where noise is small it is so large that values would lose their digits.
    """

    def __init__(
        self,
        J: Array,
        h: Array,
        blocks: Sequence[NDArray[np.int64]],
        units: Units,
        *,
        hidden: SpreadLikelihood | None = None,
        derived: int = 0,
        preferences: Array | None = None,
        exact: tuple[Array, Array] | None = None,
    ) -> None:
        J, h = units.evidence(J, h)
        self._units, self._hidden, self._preferences = units, hidden, preferences
        self._d = h.shape[1]
        self.derived, self.reference = derived, reference_variance(units, self._d)
        self.filled = [len(block) > 0 for block in blocks]
        #: (d,)  the block of every feature
        self._block = np.empty(self._d, dtype=np.int64)
        for k, block in enumerate(blocks):
            self._block[block] = k
        #: the block of levels, if they have one of their own: that of the intercept, or without one of no feature
        of_levels = [] if units.constant is None else [units.constant]
        self._levels: int | None = next((k for k, own in enumerate(blocks) if own.tolist() == of_levels), None)
        #: a block whose variance matters to nothing, or −1
        self._silent = -1
        #: the level that weights make where there is no intercept and some mean is not zero
        self._level: Level | None = None
        if self._levels is not None and units.constant is None:
            if units.means.any():
                self._level = Level(units, np.where(self._block >= len(blocks) - derived, BENT, 1.0))
            else:
                self._silent, self._levels = self._levels, None
        self.left_out = 0.0
        if self._level is not None:
            self.left_out = self._level.expected(J, h)
            J, h = self._level.evidence(J, h)
            exact = None if exact is None else self._level.evidence(*exact)
            preferences = None if preferences is None else preferences * units.spreads
        if exact is not None:
            J, h = J + exact[0], h + exact[1]
        #: the largest block, whose variances are dear to change
        self._first = max(range(len(blocks)), key=lambda k: len(blocks[k]))
        self._g = np.zeros(self._d) if self._level is None else self._level.g
        self._deviations = Deviations(J, h, preferences, blocks[self._first], self._g)
        sizes, constant = _preference_sizes(preferences, blocks), -1 if units.constant is None else units.constant
        #: what ``kernels.prior`` reads of features and units, and of the hidden features that ``hidden`` is about
        self._design = (self._block, np.array(sizes), derived, constant, self.reference, self._silent)
        self._about_hidden = (np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
        #: prior → upper bound of ``log p`` (``hidden`` at its most), and the mean square of the hidden weights' means
        self._bounds: dict[Hyper, tuple[float, float]] = {}
        if hidden is not None:
            own = np.zeros((1, len(blocks[1])))
            if preferences is not None and preferences.shape[1] > 1:
                own = preferences[:, 1][:, blocks[1]]
            self._about_hidden = (blocks[1], own.mean(axis=0), np.square(own).mean(axis=0))

    @property
    def own_levels(self) -> int | None:
        """The block of levels where they have a variance of their own and no intercept makes them."""
        return None if self._level is None else self._levels

    def bound(self, hyper: Hyper) -> float:
        """An upper bound of ``log p`` of a prior that was looked at."""
        return self._bounds[hyper][0]

    def value(self, hyper: Hyper, above: float = -math.inf) -> float:
        """``log p`` of one prior, or an upper bound of it where that is at most ``above``.

        ``−∞`` where levels would vary more than ``MOST_LEVELS`` allows.
        """
        if self._levels is not None and hyper.variances[self._levels] > MOST_LEVELS * self._units.reward_variance:
            return -math.inf
        self.look_at([hyper])
        bound, square = self._bounds[hyper]
        if self._hidden is None or not bound > above:
            return bound
        return bound - self._hidden.most + self._hidden(_mean_square(hyper.variances[1], square))

    def log_marginal(self, hyper: Hyper) -> float:
        """``log p`` of one prior with what values leave out, to be compared with that of other evidence."""
        return self.value(hyper) + self.left_out

    def look_at(self, hypers: Sequence[Hyper]) -> None:
        """Compute an upper bound of ``log p`` for each prior, which is exact without ``hidden``.

        Those that differ in the mean's variances alone share most of the work, and those with the same variance of the
        largest block, which come one after the other, nearly as much.
        """
        groups: dict[tuple[float, ...], list[Hyper]] = {}
        for hyper in hypers:
            if hyper not in self._bounds:
                groups.setdefault(hyper.variances, []).append(hyper)
        most = 0.0 if self._hidden is None else self._hidden.most
        for group in sorted(groups.values(), key=lambda group: group[0].variances[self._first]):
            shrunk = self._shrink(group[0])
            found = np.empty((len(group), 3))
            numbers = np.array([hyper.numbers for hyper in group])
            prior_values(shrunk.S, shrunk.t, numbers, self._design, self._g, self._about_hidden, found)
            for hyper, (value, expected, square) in zip(group, found.tolist(), strict=True):
                total = shrunk.value + value + expected + most
                self._bounds[hyper] = (-math.inf if math.isnan(total) else total), square

    def widening(self, hyper: Hyper) -> tuple[float, ...]:
        """``E[ω_k]/ω_k`` of every block, given the other variances; ``hyper`` are those of highest ``log p``."""
        highest, out = self.value(hyper), []
        if highest == -math.inf:
            return (1.0,) * len(hyper.variances)
        for k in range(len(hyper.variances)):
            if k == self._silent:
                out.append(1.0)
                continue
            total = mean = 1.0
            for step in (2.0, 0.5):
                factor = 1.0
                for _ in range(REACH):
                    factor *= step
                    weight = float(exp(self.value(hyper.scaled(k, factor)) - highest))
                    total += weight
                    mean += weight * factor
                    if weight < LITTLE * total and weight * factor < LITTLE * mean:
                        break
            out.append(mean / total)
        return tuple(out)

    def prior(self, hyper: Hyper, widening: tuple[float, ...] | None = None) -> Prior:
        """The prior around the variances of highest ``log p``.  widening: as found before; else it is found now"""
        d, units, preferences = self._d, self._units, self._preferences
        if widening is None:
            widening = self.widening(hyper)
        made = hyper.widened(widening)
        if self.value(made) == -math.inf:
            # rewards without any noise, where rounding leaves an inverse at the most probable variances alone; or
            # rewards vary less than at the last search, and levels would vary more than they may
            made = hyper
        shrunk, kappa2 = self._shrink(made), self._mean_variances(made)
        own = np.diag(np.array(made.variances)[self._block])
        if self._level is None:
            _, mean, C = log_marginal(shrunk, kappa2)
        else:
            arm, shared = self._stretches(made, kappa2)
            stretched = replace(shrunk, S=shared.quadratic(shrunk.S), t=shared.linear(shrunk.t))
            _, mean, C = log_marginal(stretched, kappa2)
            own, mean, C = self._level.prior(own, mean, C, arm, shared)
        covariance, marginal = own + C[:d, :d], functools.partial(self.log_marginal, hyper)
        common = (units.weights(mean[:d].copy()), units.covariance(covariance), units.precision(inverse(covariance)))
        if preferences is None:
            return Prior(*common, hyper, widening, marginal)
        # XCXᵀ of X = [I, Zᵀ], part by part: there are few preferences
        Zt, across = np.swapaxes(preferences, 1, 2), product(np.swapaxes(preferences, 1, 2), C[d:, :d])
        within = product(product(Zt, C[d:, d:]), preferences)
        covariances = covariance + (across + np.swapaxes(across, 1, 2)) + symmetrize(within)
        precisions = units.precision(inverse(covariances))
        means = units.weights(_means(mean, preferences, d))
        return Prior(*common, hyper, widening, marginal, means, precisions)

    def _mean_variances(self, hyper: Hyper) -> Array:
        """Prior variances of ``β`` (d + q,), the common mean and the weights along preferences: ``κ²`` of each."""
        kappa2 = np.empty(self._d + len(self._design[1]))
        mean_variances(np.array(hyper.numbers), self._design, kappa2)
        return kappa2

    def _shrink(self, hyper: Hyper) -> Shrunk:
        """What is left of the evidence as a function of ``β``."""
        omega = np.array(hyper.variances)[self._block]
        if self._level is None or self._levels is None:
            return self._deviations.shrunk(omega)
        return self._deviations.shrunk(omega, self._level.excess(omega, hyper.variances[self._levels]))

    def _stretches(self, hyper: Hyper, kappa2: Array) -> tuple[Stretch, Stretch]:
        """``T`` of each arm's own deviation and of the common mean.  kappa2: (d + q,)"""
        assert self._level is not None
        assert self._levels is not None
        return (
            self._level.stretch(np.array(hyper.variances)[self._block], hyper.variances[self._levels]),
            self._level.stretch(kappa2[: self._d], hyper.level_variance),
        )


def _preference_sizes(preferences: Array | None, blocks: Sequence[NDArray[np.int64]]) -> list[float]:
    """Mean square over arms of each block's preferences: the variance of weights that one unit of ``γ²`` adds."""
    if preferences is None:
        return []
    return [
        max(float(np.square(preferences[:, k][:, blocks[k]]).mean()) if len(blocks[k]) else 0.0, LEAST_PREFERENCE)
        for k in range(preferences.shape[1])
    ]


def _means(mean: Array, preferences: Array | None, d: int) -> Array:
    """(K, d)  ``X_aβ``; (d,) where all arms have the same.  mean: (d + q,)"""
    if preferences is None:
        return mean
    out = mean[:d] + mean[d] * preferences[:, 0]
    for k in range(1, preferences.shape[1]):
        out += mean[d + k] * preferences[:, k]
    return np.asarray(out)


def _mean_square(variance: float, square: float) -> float:
    """``variance + square``, rounded to ``variance`` times a power of ``2^(1/4)``: each value costs a likelihood."""
    more = max(square, 0.0) / variance
    return variance * _quarters(round(4.0 * float(log(1.0 + more) / log(2.0))))


@functools.lru_cache(maxsize=512)
def _quarters(n: int) -> float:
    """``2^(n/4)``, cached, since the search asks for the same few values many times."""
    return float(power(2.0, n / 4.0))
