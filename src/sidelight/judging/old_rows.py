"""Evidence, valid at any time, from rows in which the old policy acted and a learner only suggested: stages 3 and 4.

The score of a row is the doubly robust one of ``judging.complete`` minus the reward,

    ψ = μ̂(x, π) + 1{a = π} (r − μ̂(x, π))/e(π|x) − r,

``π`` the arm that the learner would have taken and ``μ̂`` its estimate, both from when it decided (or the mean reward of
earlier matching rows, where that has predicted them better: any ``μ̂`` from the past will do); ``e`` the chance with
which the old policy takes that arm, stated by it or from :class:`PolicyModel`, which is fitted to earlier rows.  Its
running mean has the bounds of ``judging.sequences``.  With an estimated ``e`` they are conditional on that model: a
curved policy gave 0 % coverage with weights that looked perfect, so such evidence may suggest and never prove.

Everything is incremental and made of ``sidelight.linalg``: the same rows in the same order give the same bits on every
processor, so that a service may fold over them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from sidelight.arrays import Array
from sidelight.judging.complete import LEAST_MATCHED, MOST_NEVER
from sidelight.judging.doubly_robust import NEVER, SMALLEST_CHANCE
from sidelight.judging.sequences import FIRST_LOOK, LARGEST_SCORE, UNEVEN, AsymptoticSequence
from sidelight.kernels.choices import predict_and_learn

__all__ = ["SMALLEST_CHANCE", "OldRows", "PolicyModel", "doubly_robust_gain"]

#: warm-up: rows that only train the model of the old policy, before its chances are used as weights
WARM_UP = 500
#: rows after which overlap may be judged
_OVERLAP_ROWS = 200
#: an arm that the learner wants in a smaller share of the rows decides nothing
_HARDLY = 0.02
#: the parts of a model, by their names in files
_MOMENTS = ("mean", "squares")
_COEFFICIENTS = ("weights", "gradients", "average")


def doubly_robust_gain(reward: float, estimate: float, matched: bool, chance: float) -> float:
    """``ψ`` of one row: the estimated gain of the learner's arm over the old policy's, in units of the reward.

    Args:
        reward: ``r``, what the old policy's arm brought.
        estimate: ``μ̂(x, π)``, of the learner's arm, from before the row.
        matched: whether both arms are the same.
        chance: ``e(π|x)``, with which the old policy takes the learner's arm; used where they match.
    """
    weight = 1.0 / max(chance, SMALLEST_CHANCE) if matched else 0.0
    return estimate + weight * (reward - estimate) - reward


class PolicyModel:
    """``ê(a|x)``: a softmax regression of the old policy's arm on the context, by one gradient step per row.

    Features are standardised by the rows so far; steps shrink by each coefficient's own past gradients (AdaGrad), and
    predictions come from an average of the coefficients in which later ones weigh more.

    Args:
        n_arms: ``K``.
        n_features: ``d``.
    """

    def __init__(self, n_arms: int, n_features: int) -> None:
        self.count = 0
        #: (2, d)  means of the features, sums of squared deviations
        self._moments = np.zeros((2, n_features))
        #: (3, K, 1 + d)  the coefficients, their sums of squared gradients, their average
        self._coefficients = np.zeros((3, n_arms, 1 + n_features))
        self._room, self._chances = np.empty(1 + n_features + n_arms), np.empty(n_arms)

    def observe(self, x: Array, arm: int) -> Array:
        """The old policy took ``arm`` at ``x`` (d,).  Returns (K,) every arm's chance by the rows before this one."""
        if x.dtype != np.float64 or not x.flags.c_contiguous:
            x = np.ascontiguousarray(x, dtype=np.float64)
        predict_and_learn(x, arm, self.count, self._moments, self._coefficients, self._room, self._chances)
        self.count += 1
        return self._chances.copy()

    def to_dict(self) -> dict[str, Any]:
        """The whole state in plain JSON values; floats are restored to the bit."""
        parts = (*zip(_MOMENTS, self._moments, strict=True), *zip(_COEFFICIENTS, self._coefficients, strict=True))
        return {"count": self.count, **{name: part.tolist() for name, part in parts}}

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> PolicyModel:
        """The inverse of ``to_dict``."""
        model = cls(len(body["weights"]), len(body["mean"]))
        model.count = body["count"]
        model._moments = np.array([body[name] for name in _MOMENTS], dtype=np.float64)
        model._coefficients = np.array([body[name] for name in _COEFFICIENTS], dtype=np.float64)
        return model


@dataclass
class OldRows:
    """Evidence about a learner from rows in which the old policy acted.

    Args:
        sequence: of the scores.
        n_arms: ``K``.

    Attributes:
        rows: that entered, the first ``WARM_UP`` of a model left out.
        matched: in how many of them the old policy did what the learner would have done.
        known: whether every chance so far was stated, not estimated.
        never: in how many of them the old policy all but never takes the learner's arm.
        weights, squares: ``Σ w`` and ``Σ w²`` over matched rows, by the learner's arm.
        wanted: how often the learner wanted each arm.
        mean: the mean reward of matched rows.
        missed: ``Σ(r − μ̂)²`` over matched rows but the first, of the learner's estimates and of the mean before each.
        unusable: rows whose score is not below ``LARGEST_SCORE``; a single one makes the evidence unusable.
        errors: count, mean and sum of squared deviations of ``r − μ̂`` over all rows, matched or not.
        reach: ``Σ (1 − e)/e``.

    **Rare rewards.**  Where the old policy seldom takes the learner's arm, few rows have large weights, and an event
    that occurs once in 100 rows is long absent from them.  Their scores vary little until then, and ``V_t`` says
    nothing of what is to come: with chances of 0.002 to 0.5 learners as good as the old policy were called better in
    26 % of runs.  So ``V_t`` counts as at least ``Σ (1 − e)/e`` times the variance of ``r − μ̂`` over all rows, which is
    what it tends to where rewards vary alike with every arm.

    Examples:
        >>> rows = OldRows(AsymptoticSequence(alpha=0.025, variance=1.0), n_arms=2)
        >>> for i in range(4_000):  # the old policy tosses a coin, and the learner's arm pays 1 more
        ...     rows.observe(1, i % 2 == 1, i % 2 + i % 3 - 1.0, 0.5, 0.5, known=True)
        >>> rows.says(), round(rows.sequence.mean, 2)
        ('better', 0.5)
    """

    sequence: AsymptoticSequence
    n_arms: int
    rows: int = 0
    matched: int = 0
    known: bool = True
    never: int = 0
    weights: list[float] = field(default_factory=list)
    squares: list[float] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    mean: float = 0.0
    missed: list[float] = field(default_factory=lambda: [0.0, 0.0])
    unusable: int = 0
    errors: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    reach: float = 0.0

    def __post_init__(self) -> None:
        self.weights = self.weights or [0.0] * self.n_arms
        self.squares = self.squares or [0.0] * self.n_arms
        self.wanted = self.wanted or [0] * self.n_arms

    def observe(
        self, wanted: int, matched: bool, reward: float, estimate: float, chance: float | None, *, known: bool
    ) -> None:
        """Add a row.

        Args:
            wanted: position of the learner's arm.
            matched: whether the old policy took it.
            reward: what followed.
            estimate: the learner's estimate of its arm, from before the row.
            chance: with which the old policy takes that arm; None where it is not known and not needed (no match).
            known: whether the chance was stated, not estimated.
        """
        own, plain = self.missed
        guess = estimate if own <= plain else self.mean
        score = doubly_robust_gain(reward, guess, matched, 1.0 if chance is None else chance)
        if not abs(score) < LARGEST_SCORE:
            self.unusable += 1
            return
        entered = self.sequence.count
        self.sequence.observe(score)
        self._vary(reward - guess, chance, entered=self.sequence.count > entered)
        self.rows += 1
        self.wanted[wanted] += 1
        self.known = self.known and known
        self.never += chance is not None and chance < NEVER
        if matched:
            weight = 1.0 / max(1.0 if chance is None else chance, SMALLEST_CHANCE)
            if self.matched:
                errors = (reward - estimate, reward - self.mean)
                self.missed = [own + errors[0] * errors[0], plain + errors[1] * errors[1]]
            self.matched += 1
            self.mean += (reward - self.mean) / self.matched
            self.weights[wanted] += weight
            self.squares[wanted] += weight * weight

    def _vary(self, error: float, chance: float | None, *, entered: bool) -> None:
        """Add a row to the lower bound on ``V_t``; ``entered``: whether its score is in the sequence."""
        count, mean, squares = self.errors
        difference = error - mean
        mean += difference / (count + 1.0)
        self.errors = [count + 1.0, mean, squares + difference * (error - mean)]
        if entered and chance is not None:
            chance = min(max(chance, SMALLEST_CHANCE), 1.0)
            self.reach += (1.0 - chance) / chance
            self.sequence.vary_at_least(self.reach * (self.errors[2] / self.errors[0]))

    @property
    def effective(self) -> float:
        """How many rows of equal weight the matched ones are worth."""
        squares = math.fsum(self.squares)
        return math.fsum(self.weights) ** 2 / squares if squares else 0.0

    def problem(self, arms: Sequence[Any]) -> str:
        """Why these rows cannot tell, in words; empty where they can, or where it is too early to say.

        arms: (K,)  the labels
        """
        if self.unusable:
            return f"these rows cannot tell, because {self.unusable:,} of their rewards are too large for any evidence"
        if self.rows < _OVERLAP_ROWS:
            return ""
        if self.known:
            for a, wanted in enumerate(self.wanted):
                if wanted < _HARDLY * self.rows:
                    continue
                reached = self.weights[a] / wanted
                error = math.sqrt(max(self.squares[a] / wanted - reached * reached, 0.0) / wanted)
                if reached < 1.0 - max(4.0 * error, 0.05):
                    return (
                        f"these rows cannot tell, because the old policy never tries arm {arms[a]!r} in about "
                        f"{1 - reached:.0%} of the contexts in which the learner would take it"
                    )
        elif self.never > MOST_NEVER * self.rows:
            return (
                "these rows cannot tell, because the old policy all but never does what the learner would do in "
                f"{self.never / self.rows:.0%} of the contexts"
            )
        if self.rows >= FIRST_LOOK and self.effective < LEAST_MATCHED:
            return (
                f"these rows cannot tell, because in only {self.matched:,} of {self.rows:,} the old policy did what "
                f"the learner would do (worth {self.effective:.0f} rows of equal weight; {LEAST_MATCHED} are needed)"
            )
        return ""

    @property
    def ready(self) -> bool:
        """Whether the bounds may be used: enough rows, and none that makes up too much of ``V_t``."""
        return self.sequence.count >= FIRST_LOOK and self.sequence.settled

    def lacks(self) -> str | None:
        """Why the bounds may not be used although there are enough rows, in words; otherwise None."""
        return UNEVEN if self.sequence.count >= FIRST_LOOK and not self.sequence.settled else None

    def says(self, margin: float = 0.0) -> Literal["better", "worse", "open", "too early", "cannot tell"]:
        """Whether the learner's average gain is above ``margin``, below 0, undecided, or cannot be told from them."""
        if self.problem(range(self.n_arms)):
            return "cannot tell"
        if not self.ready:
            return "too early"
        if self.sequence.above(margin):
            return "better"
        return "worse" if self.sequence.below(0.0) else "open"

    def to_dict(self) -> dict[str, Any]:
        """The whole state in plain JSON values; floats are restored to the bit."""
        return asdict(self)

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> OldRows:
        """The inverse of ``to_dict``."""
        own: dict[str, Any] = {name: list(value) if isinstance(value, list) else value for name, value in body.items()}
        return cls(**{**own, "sequence": AsymptoticSequence.from_dict(body["sequence"])})
