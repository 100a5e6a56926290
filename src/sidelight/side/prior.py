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
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sidelight.kernels.prior import BENT, PREFERENCE, mean_variances, prior_values, shrink_arms
from sidelight.linalg import Array, exp, inverse, log, log_det, power, product, symmetrize
from sidelight.side.coordinates import Units
from sidelight.side.levels import Level, Stretch
from sidelight.side.spread import SpreadLikelihood

__all__ = ["Hyper", "Prior", "PriorLikelihood", "Shrunk", "estimate_prior", "log_marginal", "shrink", "side_by_side"]

#: the log₄ variances of the first two blocks searched at first, relative to the rewards' own scale
COARSE = np.arange(-8, 3, 2)
#: the log₄ variances of derived blocks searched at first, relative to that of the first block
DERIVED = (0.0, -6.0)
#: the variance of levels searched at first besides that of the first block, likewise
LEVELS = 16.0
#: a preference of smaller mean square than this, in features of scale one, counts as if it had as much
LEAST_PREFERENCE = 0.01
#: differences of ``log p`` up to this are rounding: where evidence leaves a variance open, no unit may decide
EQUAL = 1e-9
#: successive factors by which a variance is moved while ``log p`` grows: up to 4³ in all
STEPS = (2.0, 2.0, 4.0, 4.0)
#: the variance of levels, at most, relative to that of rewards, of which it is a part: a log that leaves the level of
#: every arm open would else let it grow without end; irrational, so that rounding never decides about a power of two
MOST_LEVELS = 4.0 * math.sqrt(2.0)
#: by how many factors of two, at most, a variance is followed from its mode to either side for its posterior mean
REACH = 6
#: and no further once a step adds less than this part
LITTLE = 0.01


@dataclass(frozen=True)
class Hyper:
    """Variances of the prior, in scaled features.

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
        return replace(self, variances=(*self.variances[:k], variance, *self.variances[k + 1 :]))

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
        return replace(self, variances=tuple(v * f for v, f in zip(self.variances, factors, strict=True)))

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
        log_marginal: of the evidence it was learned from.
        means: (K, d)  ``X_aβ̂``   precisions: (K, d, d)  ``(Ω + X_aCov(β̂)X_aᵀ)⁻¹``; None without preferences.
    """

    mean: Array
    covariance: Array
    precision: Array
    hyper: Hyper
    widening: tuple[float, ...]
    log_marginal: float
    means: Array | None = None
    precisions: Array | None = None


@dataclass(frozen=True)
class Shrunk:
    """What the evidence says once each arm's own deviation from the mean is integrated out.

    Attributes:
        value: ``Σ_a[−½log det W_a + ½(Dh_a)ᵀW_a⁻¹(Dh_a)]``.
        S: (d + q, d + q)  ``ΣX_aᵀS_aX_a``   t: (d + q,)  ``ΣX_aᵀt_a``.
    """

    value: float
    S: Array
    t: Array


def side_by_side(J: Array, h: Array, preferences: Array | None = None) -> Array:
    """The evidence of all arms as ``shrink`` reads it: (K, d, d + q + 1)  ``[J | Zᵀ | h]``.

    Args:
        J: (K, d, d)  evidence of every arm.
        h: (K, d)  evidence of every arm.
        preferences: (K, q, d)  ``z_{a,k}``; None if there are none.
    """
    Z = [] if preferences is None else [np.swapaxes(preferences, 1, 2)]
    return np.concatenate([J, *Z, h[:, :, None]], axis=2)


def shrink(evidence: Array, omega: Array) -> Shrunk:
    """Integrate the deviations out.

    Args:
        evidence: of all arms, ``side_by_side``.
        omega: (d,)  diagonal of ``Ω``.
    """
    p = evidence.shape[2] - 1
    S, t = np.empty((p, p)), np.empty(p)
    return Shrunk(shrink_arms(evidence, omega, S, t), S, t)


def log_marginal(shrunk: Shrunk, kappa2: Array) -> tuple[float, Array, Array]:
    """``log p``, ``β̂`` and ``Cov(β̂) = P⁻¹``.  kappa2: (d + q,) prior variances of ``β``"""
    # κ²-scaled, so that a vague mean does not make P singular
    root = np.sqrt(kappa2)
    scaled = root[:, None] * shrunk.S * root
    np.einsum("ii->i", scaled)[...] += 1.0
    C = inverse(scaled) * (root[:, None] * root)
    mean = product(C, shrunk.t)
    return shrunk.value + 0.5 * float(product(shrunk.t, mean) - log_det(scaled)), mean, C


def estimate_prior(
    J: Array,
    h: Array,
    blocks: Sequence[NDArray[np.int64]],
    units: Units,
    previous: Hyper | None = None,
    *,
    search: bool = True,
    wide: bool = False,
    widening: tuple[float, ...] | None = None,
    hidden: SpreadLikelihood | None = None,
    derived: int = 0,
    preferences: Array | None = None,
    exact: tuple[Array, Array] | None = None,
) -> Prior:
    """The prior around the highest marginal likelihood on a grid of factors of two, searched from the previous one.

    Args:
        J: (K, d, d)  evidence of every arm.
        h: (K, d)  evidence of every arm.
        blocks: the positions of each block; the last variance found is held near the first by a weak tie.  A block of
            no feature is that of levels, without an intercept.
        units: of features and rewards; the rewards' variance sets where the first search looks.
        previous: where a later search starts.
        search: without it the variances stay as they were.
        wide: look everywhere, not only around the previous ones.
        widening: of the previous ones, for where they stay.
        hidden: log likelihood of the mean square of the second block's weights from elsewhere (``side.spread``).
        derived: how many of the blocks, the last ones, are of derived features.
        preferences: (K, q, d)  ``z_{a,k}`` of the features of scale one, the ``k``-th zero outside the ``k``-th block.
        exact: (K, d, d), (K, d)  further evidence, about weights of features of centre zero and scale one.
    """
    likelihood = PriorLikelihood(
        J, h, blocks, units, hidden=hidden, derived=derived, preferences=preferences, exact=exact
    )
    best = likelihood.best(previous, search=search, wide=wide)
    return likelihood.prior(best, None if search else widening)


class PriorLikelihood:
    """``log p`` of the evidence of all arms as a function of the prior's variances, each value computed once.

    The arguments are those of ``estimate_prior``.
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
        self._blocks, self._units, self._derived = blocks, units, derived
        self._hidden, self._preferences = hidden, preferences
        self._d = h.shape[1]
        self._reference = reference_variance(units, self._d)
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
        #: ``log p`` of the rewards' part that is expected of all arms
        self._expected = 0.0
        if self._level is not None:
            self._expected = self._level.expected(J, h)
            J, h = self._level.evidence(J, h)
            exact = None if exact is None else self._level.evidence(*exact)
            preferences = None if preferences is None else preferences * units.spreads
        if exact is not None:
            J, h = J + exact[0], h + exact[1]
        self._evidence = side_by_side(J, h, preferences)
        sizes, constant = _preference_sizes(preferences, blocks), -1 if units.constant is None else units.constant
        #: what ``kernels.prior`` reads of features and units, and of the hidden features that ``hidden`` is about
        self._design = (self._block, np.array(sizes), derived, constant, self._reference, self._silent)
        self._about_hidden = (np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
        self._shrunk: dict[tuple[float, ...], Shrunk] = {}
        #: prior → upper bound of ``log p`` (``hidden`` at its most), and the mean square of the hidden weights' means
        self._bounds: dict[Hyper, tuple[float, float]] = {}
        if hidden is not None:
            own = np.zeros((1, len(blocks[1])))
            if preferences is not None and preferences.shape[1] > 1:
                own = preferences[:, 1][:, blocks[1]]
            self._about_hidden = (blocks[1], own.mean(axis=0), np.square(own).mean(axis=0))

    def best(self, previous: Hyper | None, *, search: bool, wide: bool) -> Hyper:
        """The variances of highest ``log p``, searched as ``estimate_prior`` says."""
        found = previous
        if found is None or (search and wide):
            starts = _coarse([len(block) > 0 for block in self._blocks], self._derived, self._reference)
            if self._level is not None and self._levels is not None:
                # where no level can be large, single weights would make up for it
                starts += [start.with_variance(self._levels, LEVELS * self._reference) for start in starts]
            found = self._highest(starts if found is None else [found, *starts])
        return _climb(found, self) if search else found

    def _highest(self, starts: Sequence[Hyper]) -> Hyper:
        """The prior of highest ``log p``, of equal ones the first; ``hidden`` is evaluated for as few as possible."""
        self.look_at(starts)
        values, highest = {}, -math.inf
        for hyper in sorted(starts, key=lambda hyper: -self._bounds[hyper][0]):
            values[hyper] = self.value(hyper, highest - EQUAL)
            highest = max(highest, values[hyper])
        return next((hyper for hyper in starts if values[hyper] > highest - EQUAL), starts[0])

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

    def look_at(self, hypers: Sequence[Hyper]) -> None:
        """Compute an upper bound of ``log p`` for each prior, which is exact without ``hidden``.

        Those that differ in the mean's variances alone share most of the work.
        """
        groups: dict[tuple[float, ...], list[Hyper]] = {}
        for hyper in hypers:
            if hyper not in self._bounds:
                alike = hyper.variances if self._level is None else hyper.numbers[:-1]
                groups.setdefault(alike, []).append(hyper)
        most = 0.0 if self._hidden is None else self._hidden.most
        for group in groups.values():
            shrunk = self._shrink(group[0])
            found = np.empty((len(group), 3))
            numbers = np.array([hyper.numbers for hyper in group])
            prior_values(shrunk.S, shrunk.t, numbers, self._design, self._about_hidden, found)
            for hyper, (value, expected, square) in zip(group, found.tolist(), strict=True):
                total = shrunk.value + value + expected + most + self._expected
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
        _, mean, C = log_marginal(self._shrink(made), self._mean_variances(made))
        own = np.diag(np.array(made.variances)[self._block])
        if self._level is not None:
            own, mean, C = self._level.prior(own, mean, C, *self._stretches(made))
        covariance = own + C[:d, :d]
        common = (units.weights(mean[:d].copy()), units.covariance(covariance), units.precision(inverse(covariance)))
        if preferences is None:
            return Prior(*common, hyper, widening, self.value(hyper))
        # XCXᵀ of X = [I, Zᵀ], part by part: there are few preferences
        Zt, across = np.swapaxes(preferences, 1, 2), product(np.swapaxes(preferences, 1, 2), C[d:, :d])
        within = product(product(Zt, C[d:, d:]), preferences)
        covariances = covariance + (across + np.swapaxes(across, 1, 2)) + symmetrize(within)
        precisions = units.precision(inverse(covariances))
        return Prior(
            *common, hyper, widening, self.value(hyper), units.weights(_means(mean, preferences, d)), precisions
        )

    def _mean_variances(self, hyper: Hyper) -> Array:
        """Prior variances of ``β`` (d + q,), the common mean and the weights along preferences: ``κ²`` of each."""
        kappa2 = np.empty(self._d + len(self._design[1]))
        mean_variances(np.array(hyper.numbers), self._design, kappa2)
        return kappa2

    def _shrink(self, hyper: Hyper) -> Shrunk:
        """What is left of the evidence as a function of ``β``."""
        omega = np.array(hyper.variances)[self._block]
        key = tuple(variance for k, variance in enumerate(hyper.variances) if k != self._silent)
        if self._level is None:
            if key not in self._shrunk:
                self._shrunk[key] = shrink(self._evidence, omega)
            return self._shrunk[key]
        own, common = self._stretches(hyper)
        if key not in self._shrunk:
            self._shrunk[key] = shrink(own.evidence(self._evidence), omega)
        shrunk, mean = self._shrunk[key], own.inverse().after(common)
        return Shrunk(shrunk.value, mean.quadratic(shrunk.S), mean.linear(shrunk.t))

    def _stretches(self, hyper: Hyper) -> tuple[Stretch, Stretch]:
        """``T`` of each arm's own deviation and of the common mean."""
        assert self._level is not None
        assert self._levels is not None
        omega, kappa2 = np.array(hyper.variances)[self._block], self._mean_variances(hyper)[: self._d]
        return (
            self._level.stretch(omega, hyper.variances[self._levels]),
            self._level.stretch(kappa2, hyper.level_variance),
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


def reference_variance(units: Units, d: int) -> float:
    """The variance of a weight if ``d`` features of scale one shared the rewards' variance."""
    return units.reward_variance / d


def _climb(start: Hyper, likelihood: PriorLikelihood) -> Hyper:
    """Coordinate steps by factors of two and four, two sweeps at most, on a fixed lattice."""
    best, highest = start, likelihood.value(start)
    for _ in range(2):
        before = best
        for i in range(len(start.numbers)):
            # both directions are looked at together, which costs less than one after the other
            likelihood.look_at([best.scaled(i, STEPS[0]), best.scaled(i, 1.0 / STEPS[0])])
            for up in (True, False):
                at = best
                for step in STEPS:
                    moved = best.scaled(i, step if up else 1.0 / step)
                    value = likelihood.value(moved, highest + EQUAL)
                    if not value > highest + EQUAL:
                        break
                    best, highest = moved, value
                if best != at:
                    break
        if best == before:
            break
    return best


def _coarse(filled: Sequence[bool], derived: int, reference: float) -> list[Hyper]:
    """Where the first search looks: the first two blocks in all combinations, the others with the first.

    Derived blocks once with the first and once far below it: a start at which many bends are expected that are not
    there is so unlikely that the search would settle on whatever makes up for it in the other blocks.

    filled: whether each block has features
    """
    out = []
    straight = len(filled) - derived
    for k in COARSE:
        for second in COARSE if sum(filled[:straight]) > 1 else COARSE[:1]:
            for below in DERIVED[: 1 + (derived > 0)]:
                own = [float(k), float(second), *[float(k)] * straight][:straight]
                own = [power if has else float(k) for power, has in zip(own, filled, strict=False)]
                variances = tuple(reference * 4.0**power for power in [*own, *[float(k) + below] * derived])
                out += [Hyper(variances, reference * 4.0**j, reference * 4.0**j) for j in (-4.0, -2.0, 0.0)]
    return out
