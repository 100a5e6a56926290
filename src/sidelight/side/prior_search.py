"""The search for the variances of highest marginal likelihood, and the prior around them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sidelight.linalg import Array
from sidelight.side.coordinates import Units
from sidelight.side.prior import Hyper, Prior
from sidelight.side.prior_likelihood import PriorLikelihood
from sidelight.side.spread import SpreadLikelihood

__all__ = ["estimate_prior", "most_probable"]

#: the log₄ variances of the first two blocks searched at first, relative to the rewards' own scale
COARSE = np.arange(-8, 3, 2)
#: the log₄ variances of derived blocks searched at first, relative to that of the first block
DERIVED = (0.0, -6.0)
#: the variance of levels searched at first besides that of the first block, likewise
LEVELS = 16.0
#: differences of ``log p`` up to this, or this part of it, are rounding: where evidence leaves a variance open, no unit
#: may decide
EQUAL = 1e-9
#: and those up to this part of what values leave out, of which their evidence has the rounding errors
EVIDENCE = 1e-14
#: successive factors by which a variance is moved while ``log p`` grows: up to 4³ in all
STEPS = (2.0, 2.0, 4.0, 4.0)


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
        blocks: positions of the features that share a variance, block by block.  A weak tie holds the variances of
            later blocks near that of the first.  A block of no feature is that of levels, without an intercept.
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
    best = most_probable(likelihood, previous, search=search, wide=wide)
    return likelihood.prior(best, None if search else widening)


def most_probable(likelihood: PriorLikelihood, previous: Hyper | None, *, search: bool, wide: bool) -> Hyper:
    """The variances of highest ``log p``, looked for as ``estimate_prior`` says."""
    found = previous
    if found is None or (search and wide):
        starts = _coarse(likelihood.filled, likelihood.derived, likelihood.reference)
        if likelihood.own_levels is not None:
            # where no level can be large, single weights would make up for it
            large = LEVELS * likelihood.reference
            starts += [start.with_variance(likelihood.own_levels, large) for start in starts]
        found = _highest(likelihood, starts if found is None else [found, *starts])
    return _climb(found, likelihood) if search else found


def _highest(likelihood: PriorLikelihood, starts: Sequence[Hyper]) -> Hyper:
    """The prior of highest ``log p``, of equal ones the first.

    What the logs' residual variances say is dear, so it is asked of as few as possible, those of the highest upper
    bounds first.
    """
    likelihood.look_at(starts)
    values, highest, left_out = {}, -math.inf, likelihood.left_out
    for hyper in sorted(starts, key=likelihood.bound, reverse=True):
        values[hyper] = likelihood.value(hyper, highest - _rounding(highest, left_out))
        highest = max(highest, values[hyper])
    return next((hyper for hyper in starts if values[hyper] > highest - _rounding(highest, left_out)), starts[0])


def _rounding(value: float, left_out: float) -> float:
    """What rounding may have done to a ``log p``; one with evidence of exact constraints is in the millions.

    left_out: ``PriorLikelihood.left_out``
    """
    return max(EQUAL * max(1.0, abs(value)), EVIDENCE * abs(left_out)) if math.isfinite(value) else 0.0


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
                    above = highest + _rounding(highest, likelihood.left_out)
                    value = likelihood.value(moved, above)
                    if not value > above:
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
