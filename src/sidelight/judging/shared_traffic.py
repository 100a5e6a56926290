"""Comparison of two routes of shared traffic: scores of units, when a result may be given, and a test of the split.

- ``Comparison``: the gate's score, its confidence sequence, and when that may be believed.
- ``SampleRatio``: is the share of units on each route the one that was meant to be?

Both are plain incremental states, as in ``judging.sequences``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sidelight.errors import InputError
from sidelight.judging.sequences import (
    FIRST_LOOK,
    LARGEST_SHARE,
    UNEVEN,
    AsymptoticSequence,
    BernsteinSequence,
    State,
    checked_alpha,
    finite,
)
from sidelight.linalg import log

__all__ = ["LEAST_PER_ROUTE", "LEAST_UNVARIED", "Comparison", "SampleRatio"]

#: ``Comparison`` says nothing before this many units on each route,
LEAST_PER_ROUTE = 50
#: nor, while all rewards of a route are equal, before this many: an event of rate 1/300 has then very likely occurred
LEAST_UNVARIED = 1_000

_LN2 = 0.6931471805599453


@dataclass
class SampleRatio(State):
    """Sample ratio test: is the share of units on the new route the one that was set?  A Beta-binomial e-process.

    ``e = ∫ θ^{n₁}(1 − θ)^{n₀} dBeta(θ) / (share^{n₁}(1 − share)^{n₀})`` exceeds ``1/α`` with probability at most ``α``
    at all times together if units are routed by that share.  One process for each rung and each share.

    Args:
        share: the share of units that should come on the new route.
        strength: how many units the prior ``Beta(strength·share, strength·(1 − share))`` is worth; large values find
            small deviations, late.
    """

    share: float
    strength: float = 100.0
    new: int = 0
    old: int = 0
    mantissa: float = 1.0
    exponent: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise InputError(f"share={self.share!r}: a ratio can be tested only if both routes get units.")
        if not (math.isfinite(self.strength) and self.strength > 0):
            raise InputError(f"strength={self.strength!r} must be positive.")

    def observe(self, treated: bool) -> None:
        """A unit came on the new route (``True``) or on the old one."""
        share = self.share if treated else 1.0 - self.share
        seen = self.new if treated else self.old
        predicted = (self.strength * share + seen) / (self.strength + self.new + self.old)
        # kept as mantissa and exponent: logarithms differ between machines, and a million units would overflow
        self.mantissa, shift = math.frexp(self.mantissa * (predicted / share))
        self.exponent += shift
        if treated:
            self.new += 1
        else:
            self.old += 1

    def log_evidence(self) -> float:
        """``log e``: above ``log(1/α)`` the ratio is wrong, with at most ``α`` false alarms ever."""
        return float(log(self.mantissa)) + self.exponent * _LN2

    def wrong(self, alpha: float = 0.001) -> bool:
        """Whether the units' routes contradict the share."""
        return self.log_evidence() > float(log(1.0 / checked_alpha(alpha)))


@dataclass
class Comparison(State):
    """Comparison of two routes of shared traffic: the gate's score, its sequence, and when a result may be given.

    The score of a unit is ``ψ = (Z/p − (1 − Z)/(1 − p))(r − m)``, ``Z`` whether it came on the new route, ``p`` the
    chance of that, ``m`` made of the past alone: ``(1 − p)`` times the new route's mean reward plus ``p`` times the old
    one's.
    It is never a difference of pooled means: with drift and a changing share that would cause false promotions.

    A unit is what is randomised: a subject enters once.  Units come in the order of their decisions.

    **Rare rewards.**  With clicks of 2 % and a share of 1 % the learner's route has one click in 5,000 units.  While
    there is none, its scores hardly vary, and ``V_t`` says nothing of the clicks to come: learners as good as the old
    policy were demoted in 30 % of runs, in 76 % with clicks of 0.5 %.  So ``V_t`` counts as at least ``Σ w²`` times the
    variance of rewards on both routes together (``w`` the weights ``1/p`` and ``1/(1 − p)``), which is what it tends to
    where rewards vary alike on both; and nothing is said while one unit makes up more than a tenth of what the rewards
    of its own route vary, or a route's rewards were all the same in fewer than ``LEAST_UNVARIED`` units.

    Examples:
        >>> import numpy as np
        >>> rng, comparison = np.random.default_rng(0), Comparison(AsymptoticSequence(alpha=0.025))
        >>> for i in range(3_000):
        ...     comparison.observe(i % 2 == 0, 0.5, (0.5 if i % 2 == 0 else 0.0) + rng.normal())
        >>> comparison.ready, comparison.says()
        (True, 'better')
    """

    sequence: AsymptoticSequence | BernsteinSequence = field(default_factory=AsymptoticSequence)
    counts: list[int] = field(default_factory=lambda: [0, 0])
    rewards: list[float] = field(default_factory=lambda: [0.0, 0.0])
    squares: list[float] = field(default_factory=lambda: [0.0, 0.0])
    largest: list[float] = field(default_factory=lambda: [0.0, 0.0])
    weights: float = 0.0
    first_look: int = FIRST_LOOK
    least_per_route: int = LEAST_PER_ROUTE

    def score(self, treated: bool, share: float, reward: float, baseline: float | None = None) -> float:
        """``ψ`` of a unit, given what has been observed before it.

        Args:
            treated: whether the unit came on the new route.
            share: ``p``, the chance of that when the unit was routed.
            reward: ``r``.
            baseline: ``m``, a prediction of ``r`` from the past and the context, not from the route; by default the
                routes' mean rewards so far, weighted so that the score varies least, and 0 before the first one.
        """
        if not 0.0 < share < 1.0:
            raise InputError(f"share={share!r}: a unit tells something only if both routes were possible for it.")
        if baseline is None:
            new, old = (self.rewards[i] / self.counts[i] if self.counts[i] else None for i in (1, 0))
            known = new if old is None else old
            baseline = (
                0.0
                if known is None
                else (1.0 - share) * (known if new is None else new) + share * (known if old is None else old)
            )
        weight = 1.0 / share if treated else -1.0 / (1.0 - share)
        return weight * (finite("reward", reward) - finite("baseline", baseline))

    def observe(self, treated: bool, share: float, reward: float, baseline: float | None = None) -> None:
        """Add one unit's score to the running sums; ``score`` says what its arguments are."""
        score = self.score(treated, share, reward, baseline)
        self.add(None if baseline is None and not self.begun else score, treated, share, reward)

    @property
    def begun(self) -> bool:
        """Whether there is a past to predict a reward from.

        The first unit has none. It does not enter the sequence: far from 0, its score would outweigh all others.
        """
        return self.counts != [0, 0]

    def add(self, score: float | None, treated: bool, share: float, reward: float) -> None:
        """Add a unit whose score is known: another comparison of the same units, with another ``α``, computed it."""
        route, reward = int(treated), float(reward)
        before = self.rewards[route] / self.counts[route] if self.counts[route] else reward
        self.counts[route] += 1
        self.rewards[route] += reward
        # Welford: the squared deviations of a route's rewards from their own mean
        square = (reward - before) * (reward - self.rewards[route] / self.counts[route])
        self.squares[route] += square
        self.largest[route] = max(self.largest[route], square)
        if score is None:
            return
        entered = self.sequence.count
        self.sequence.observe(score)
        if self.sequence.count > entered:
            weight = 1.0 / share if treated else 1.0 / (1.0 - share)
            self.weights += weight * weight
            varied = (self.squares[0] + self.squares[1]) / (self.counts[0] + self.counts[1])
            self.sequence.vary_at_least(self.weights * varied)

    @property
    def ready(self) -> bool:
        """Whether a result may be given: enough units in the sequence and on each route, none outweighs the others."""
        if self.sequence.count < self.first_look or min(self.counts) < self.least_per_route:
            return False
        return self.sequence.settled and self._settled(0) and self._settled(1)

    def lacks(self) -> str | None:
        """Why no result is given although there are enough units, in words; otherwise None."""
        few = self.sequence.count < self.first_look or min(self.counts) < self.least_per_route
        if few or self.ready:
            return None
        alike = [self.counts[route] for route in (0, 1) if self.squares[route] == 0.0]
        if alike:
            return (
                f"all {min(alike):,} rewards of one side are the same so far, and {LEAST_UNVARIED:,} are needed to "
                "conclude that they always are"
            )
        return UNEVEN

    def _settled(self, route: int) -> bool:
        """Whether no single unit makes up more than a tenth of the sum of squared deviations of its route's rewards."""
        if self.squares[route] == 0.0:
            return self.counts[route] >= LEAST_UNVARIED
        return self.largest[route] <= LARGEST_SHARE * self.squares[route]

    def says(self, margin: float = 0.0) -> Literal["better", "worse", "open", "too early"]:
        """Whether the new route's average gain is above ``margin``, below it, undecided, or not yet to be judged."""
        if not self.ready:
            return "too early"
        if self.sequence.above(margin):
            return "better"
        return "worse" if self.sequence.below(margin) else "open"

    def to_dict(self) -> dict[str, Any]:
        """The whole state as numbers, with the name of its sequence."""
        return {**asdict(self), "kind": type(self.sequence).__name__}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Comparison:
        """The inverse of ``to_dict``."""
        fields: dict[str, Any] = {
            name: list(value) if isinstance(value, list) else value for name, value in values.items()
        }
        kinds = {kind.__name__: kind for kind in (AsymptoticSequence, BernsteinSequence)}
        kind = fields.pop("kind", None)
        if kind not in kinds:
            raise InputError(f"{kind!r} is not a kind of sequence; there are {', '.join(kinds)}.")
        try:
            return cls(**{**fields, "sequence": kinds[kind].from_dict(fields["sequence"])})
        except (KeyError, TypeError) as error:
            raise InputError(f"this is not the state of a Comparison: {error!r}.") from error
