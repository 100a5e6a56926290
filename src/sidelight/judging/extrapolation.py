"""How far a policy's contexts lie from the rows that tell its value: where they hardly overlap, it is extrapolated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sidelight.judging.choice import MOST_UNTRIED, ChoiceModel
from sidelight.judging.population import Population
from sidelight.judging.row_sums import Sample
from sidelight.judging.valuing import Estimate
from sidelight.labels import Label

__all__ = ["LEAST_REACH", "Untried", "extrapolated", "reach_of"]

#: Below this reach a value is called extrapolated.
LEAST_REACH = 0.2


def reach_of(estimate: Estimate) -> float:
    """The effective number of rows behind a short value, relative to as many rows with arms drawn at random.

    ``Σ_a P(π=a)/P_a`` is what ``E α_s²`` would be if contexts did not differ by arm.  A policy that takes in each
    context what the old policy took there is above 1.
    """
    random = weights = 0.0
    for population, weighting in estimate.parts:
        share = population.n_rows / estimate.rows
        taken = [a for a, q in enumerate(weighting.q) if q is not None]
        random += share * sum(float(weighting.ell[a, 0]) / float(population.shares[a]) for a in taken)
        weights += share * weighting.alpha_squares
    return random / weights if weights > 0.0 else 1.0


class Untried:
    """Contexts in which the old policy never tries an arm: the arm's regression extrapolates there without data.

    Args:
        samples: rows of each era of the log.
        rows: how many rows each era has.
        arms: the labels.
        names: of the columns of each era's sample.
    """

    def __init__(
        self, samples: Sequence[Sample], rows: Sequence[int], arms: Sequence[Label], names: Sequence[Sequence[str]]
    ) -> None:
        self._arms, self._names, self._shares = arms, names, [n / sum(rows) for n in rows]
        self._models = [
            ChoiceModel(np.concatenate(sample.X), np.concatenate(sample.codes), len(arms)) for sample in samples
        ]

    def said(self, estimate: Estimate, taken: Sequence[np.ndarray | int]) -> Estimate:
        """The estimate, with a ``problem`` if its arm is never tried in more than ``MOST_UNTRIED`` of the contexts.

        Args:
            estimate: of a policy.
            taken: what it takes in the sample of each era: one position for every row or one for all; an empty array
                if it is not known.
        """
        if estimate.problem is not None:
            return estimate
        share, worst, arm, column = 0.0, 0.0, 0, ""
        for part, model, names, own in zip(self._shares, self._models, self._names, taken, strict=True):
            found, never = model.untried(model.everywhere(own) if isinstance(own, int) else own)
            share += part * never
            if part * never > worst:
                worst, arm, column = part * never, found, names[model.decisive(found)]
        if share <= MOST_UNTRIED:
            return estimate
        problem = (
            f"the old policy never tries arm {self._arms[arm]!r} in about {share:.0%} of the contexts, and there this "
            f"policy would take it. {column!r} tells most about which arm is taken: if it is decided together with the "
            "arm, leave it out"
        )
        return replace(estimate, problem=problem)


def extrapolated(estimates: Mapping[str, Estimate], first: str) -> list[str]:
    """A warning for values that are extrapolated, about ``first`` if it is among them."""
    reaches = {name: reach_of(one) for name, one in estimates.items() if one.problem is None}
    far = sorted((name for name, reach in reaches.items() if reach < LEAST_REACH), key=lambda name: reaches[name])
    if not far:
        return []
    name = first if first in far else far[0]
    arm, column = _farthest(estimates[name])
    others = f" ({len(far) - 1} more are too)" if len(far) > 1 else ""
    return [
        f"The value of {name!r} is extrapolated{others}: rows of {arm!r} differ so much from the contexts in which it "
        f"would be taken, in {column!r} above all, that they count for {reaches[name]:.0%} of as many rows with arms "
        "drawn at random. A column that is decided together with the arm, such as its price, is no feature: leave it "
        "out."
    ]


def _farthest(estimate: Estimate) -> tuple[object, str]:
    """The arm whose weights exceed most what random arms would have, and the column in which its rows are farthest."""
    found: tuple[float, object, str] = (-1.0, "", "")
    for population, weighting in estimate.parts:
        for a, q in enumerate(weighting.q):
            if q is None:
                continue
            taken = float(weighting.ell[a, 0])
            excess = population.n_rows * float(q @ q) - taken / float(population.shares[a])
            if excess > found[0]:
                distances = _distances(population, a, weighting.ell[a] / taken)
                found = (excess, population.arms[a], population.names[int(distances.argmax())])
    return found[1], found[2]


def _distances(population: Population, a: int, wanted: np.ndarray) -> np.ndarray:
    """(L,) distance of each column's mean within the arm from ``wanted`` (L,), in the arm's standard deviations."""
    count = max(int(population.counts[a]), 1)
    means = population.sums[a] / count
    # the constant comes first, so the rows of the factor below the first hold the deviations from the arm's mean
    within = np.sqrt(np.square(population.factors[a][1:, :-1]).sum(axis=0) / count)
    return np.asarray(np.abs(means - wanted) / np.maximum(within, 1e-9 * population.scale + 1e-300))
