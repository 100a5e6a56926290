"""Evidence that may be looked at after every row: confidence sequences and the sample-ratio test.

Every class here is a plain incremental state: ``observe`` adds one unit, ``to_dict`` and ``from_dict`` write and read
it, and the bounds are functions of the sums alone.  The arithmetic is that of ``sidelight.linalg``, so the same units
in the same order give the same bits on every processor; a service may fold over them.

With ``ψ_i`` the score of unit ``i``, the estimand at time ``t`` is ``(1/t) Σ E[ψ_i | past]``: the average over units of
the gain of the policy *as it then was*.  Nothing has to be constant over time.

- ``AsymptoticSequence``: the martingale form of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas' asymptotic confidence
  sequences.  Needs no bounds on rewards; holds from some thousand units on, so ``Comparison`` does not speak earlier.
- ``BernsteinSequence``: empirical Bernstein (Howard and others; Waudby-Smith, Wu, Ramdas, Karampatziakis, Mineiro), for
  scores of known range.  Holds at every time, and is wider.
- ``SampleRatio``: is the share of units on each route the one that was meant to be?
- ``Comparison``: two routes of shared traffic, the gate's score, and when it may speak.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from sidelight.errors import InputError
from sidelight.linalg import exp, log

__all__ = [
    "FIRST_LOOK",
    "LARGEST_SCORE",
    "LARGEST_SHARE",
    "LEAST_PER_ROUTE",
    "AsymptoticSequence",
    "BernsteinSequence",
    "Comparison",
    "SampleRatio",
    "asymptotic_width",
    "mixing_variance",
    "mostly_first",
    "spent",
]

#: ``Comparison`` says nothing before this many units in the sequence: from unit 1 on, 5 % false verdicts become 50 %.
FIRST_LOOK = 1_000
#: nor before this many units on each route.
LEAST_PER_ROUTE = 50
#: nor while a single unit makes up more than this part of ``V_t``: the sum is then not yet close to normal.
LARGEST_SHARE = 0.1
#: scores beyond this have no square that is a number
LARGEST_SCORE = 1e150

# Units that only set the scale of an asymptotic sequence whose variance nobody stated; the sequence starts after them.
_SCALE_UNITS = 100
# Candidates of λ in the empirical Bernstein mixture: √2 apart, 2⁻⁶ to 2⁶ times the best one at the target.
_STEPS = range(-12, 13)
_LARGEST = 0.9

_LN2, _ROOT_2 = 0.6931471805599453, 1.4142135623730951
State = TypeVar("State", bound="_State")


def spent(alpha: float, test: int) -> float:
    """``6α/(π²j²)``: what the ``j``-th of any number of tests may spend, so that all of them together spend ``α``."""
    if test < 1:
        raise InputError(f"tests are counted from 1, not from {test}.")
    return 6.0 * alpha / (math.pi * math.pi * test * test)


def mostly_first(alpha: float, test: int) -> float:
    """``0.9 α`` for the first of any number of tests, ``6·0.1α/(π²(j − 1)²)`` for the ``j``-th; all together ``α``.

    For tests that are rarely repeated: the first one is hardly wider than a single test.
    """
    return 0.9 * alpha if test == 1 else spent(0.1 * alpha, test - 1)


def mixing_variance(alpha: float, target: float) -> float:
    """``ρ² = (−2 log 2α + log(1 − 2 log 2α))/V*``: the one-sided sequence is narrowest where ``V_t = V*``."""
    twice = -2.0 * float(log(2.0 * alpha))
    return (twice + float(log(1.0 + twice))) / target


def asymptotic_width(count: Any, variation: Any, rho_squared: float, alpha: float) -> Any:
    """``(1/t)√(2(V_tρ² + 1)/ρ² · log(1 + √(V_tρ² + 1)/(2α)))``: how far a one-sided bound lies from the mean.

    Args:
        count: ``t``, the units.
        variation: ``V_t = Σ(ψ_i − ψ̄_{i−1})²``.
        rho_squared: ``ρ²``, fixed before the first unit.
        alpha: the chance that the bound is ever wrong.

    Counts and variations may be arrays.
    """
    # a square root is exact to the last bit on every machine; a power of 0.5 need not be
    root = np.sqrt(variation * rho_squared + 1.0)
    return np.sqrt(2.0 * root * root / rho_squared * log(1.0 + root / (2.0 * alpha))) / count


def _checked_alpha(alpha: float) -> float:
    if not 0.0 < alpha < 0.5:
        raise InputError(f"alpha={alpha!r}: the chance of a false bound on one side must lie between 0 and 0.5.")
    return float(alpha)


def _finite(name: str, value: float) -> float:
    value = float(value)
    if not math.isfinite(value):
        raise InputError(f"{name}={value!r} is not a finite number: one such unit would undo all evidence.")
    return value


class _State:
    """What every state here shares: a JSON-safe dictionary of its fields."""

    def to_dict(self) -> dict[str, Any]:
        """The whole state as numbers; floats survive JSON to the bit."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls: type[State], values: Mapping[str, Any]) -> State:
        """The inverse of ``to_dict``."""
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"this is not the state of a {cls.__name__}: {error}.") from error


@dataclass
class AsymptoticSequence(_State):
    """Bounds on the running mean of scores that hold at all times together, for scores without known bounds.

    Args:
        alpha: the chance that the lower bound is ever too high; the same for the upper bound.
        target_rows: after about how many units the bounds should be narrowest.
        variance: the variance of a score if it can be stated before the first unit (from an earlier rung, say).
            ``None``: the first 100 units (more while all are equal) set it and do not enter the sequence, since ``ρ²``
            must be fixed before its first unit.

    Examples:
        >>> sequence = AsymptoticSequence(alpha=0.025, variance=1.0)
        >>> for i in range(4_000):
        ...     sequence.observe(1.5 if i % 2 else -0.5)
        >>> low, high = sequence.interval()
        >>> low < 0.5 < high and high - low < 0.2
        True
    """

    alpha: float = 0.025
    target_rows: float = 10_000.0
    variance: float | None = None
    count: int = 0
    mean: float = 0.0
    variation: float = 0.0
    scale_count: int = 0
    scale_mean: float = 0.0
    scale_squares: float = 0.0
    largest: float = 0.0

    def __post_init__(self) -> None:
        _checked_alpha(self.alpha)
        if not self.target_rows > 0:
            raise InputError(f"target_rows={self.target_rows!r} must be positive.")
        if self.variance is not None and not (math.isfinite(self.variance) and self.variance > 0):
            raise InputError(f"variance={self.variance!r} must be a positive number, or None to learn it.")
        #: what ``ρ²`` was computed from, and ``ρ²``: it never changes once the variance is known
        self._mixing: tuple[tuple[float, float, float], float] | None = None

    def observe(self, score: float) -> None:
        """Add the score ``ψ`` of the next unit."""
        score = _finite("score", score)
        if self.variance is None:
            self._set_scale(score)
            return
        difference = score - self.mean
        self.count += 1
        self.variation += difference * difference
        self.largest = max(self.largest, difference * difference)
        self.mean += difference / self.count

    @property
    def settled(self) -> bool:
        """Whether no single unit makes up more than a tenth of ``V_t``; rare or heavy-tailed rewards take longer."""
        return self.largest <= LARGEST_SHARE * self.variation

    def _set_scale(self, score: float) -> None:
        self.scale_count += 1
        difference = score - self.scale_mean
        self.scale_mean += difference / self.scale_count
        self.scale_squares += difference * (score - self.scale_mean)
        if self.scale_count >= _SCALE_UNITS and self.scale_squares > 0.0:
            self.variance = self.scale_squares / self.scale_count

    def half_width(self) -> float:
        """How far each bound lies from ``mean``; infinite before the first unit of the sequence."""
        if self.count == 0 or self.variance is None:
            return math.inf
        given = (self.alpha, self.variance, self.target_rows)
        if self._mixing is None or self._mixing[0] != given:
            self._mixing = given, mixing_variance(self.alpha, self.variance * self.target_rows)
        return float(asymptotic_width(self.count, self.variation, self._mixing[1], self.alpha))

    def above(self, margin: float) -> bool:
        """Whether ``lower() > margin``, without computing the bound where the mean alone says no."""
        return self.mean > margin and self.lower() > margin

    def below(self, margin: float) -> bool:
        """Whether ``upper() < margin``, as in ``above``."""
        return self.mean < margin and self.upper() < margin

    def lower(self) -> float:
        """The average gain so far is at least this, with probability ``1 − α`` at all times together."""
        return self.mean - self.half_width()

    def upper(self) -> float:
        """The average gain so far is at most this, with probability ``1 − α`` at all times together."""
        return self.mean + self.half_width()

    def interval(self) -> tuple[float, float]:
        """Both bounds, together right with probability ``1 − 2α``."""
        return self.lower(), self.upper()


@dataclass
class BernsteinSequence(_State):
    """Bounds on the running mean of bounded scores: a mixture of empirical Bernstein supermartingales.

    For ``y_i = (ψ_i − ψ̂_{i−1})/c ≥ −1`` and ``0 ≤ λ < 1``, ``exp(λ Σ(ψ_i − μ_i)/c − ψ_E(λ) Σ y_i²)`` with
    ``ψ_E(λ) = −log(1 − λ) − λ`` is a supermartingale (Fan, Grama and Liu), so a fixed mixture over ``λ`` is one, and
    exceeds ``1/α`` with probability at most ``α``.  The past mean ``ψ̂`` is cut to ``[−centre, centre]``.

    Args:
        least, most: every score lies between them.
        centre: the mean score lies within ``± centre`` (for differences of rewards, their range).
        alpha: as in ``AsymptoticSequence``.
        target_rows: after about how many units the bounds should be narrowest.
    """

    least: float
    most: float
    centre: float
    alpha: float = 0.025
    target_rows: float = 10_000.0
    count: int = 0
    mean: float = 0.0
    variation: float = 0.0

    def __post_init__(self) -> None:
        _checked_alpha(self.alpha)
        if not (math.isfinite(self.least) and math.isfinite(self.most) and self.least < self.most):
            raise InputError(f"scores between {self.least!r} and {self.most!r}: two finite bounds are needed.")
        if not (math.isfinite(self.centre) and self.centre > 0 and self.target_rows > 0):
            raise InputError(f"centre={self.centre!r} and target_rows={self.target_rows!r} must be positive.")

    def observe(self, score: float) -> None:
        """Add the score ``ψ`` of the next unit."""
        score = _finite("score", score)
        if not self.least <= score <= self.most:
            raise InputError(
                f"a score of {score!r} lies outside [{self.least!r}, {self.most!r}]: bounds that are broken prove "
                "nothing. State the true range of rewards, or use AsymptoticSequence."
            )
        guess = min(max(self.mean, -self.centre), self.centre)
        self.count += 1
        self.variation += (score - guess) * (score - guess)
        self.mean += (score - self.mean) / self.count

    @property
    def settled(self) -> bool:
        """Its bounds hold from the first unit on."""
        return True

    def above(self, margin: float) -> bool:
        """Whether ``lower() > margin``, without computing the bound where the mean alone says no."""
        return self.mean > margin and self.lower() > margin

    def below(self, margin: float) -> bool:
        """Whether ``upper() < margin``, as in ``above``."""
        return self.mean < margin and self.upper() < margin

    def lower(self) -> float:
        """The average gain so far is at least this, with probability ``1 − α`` at all times together."""
        return self.mean - self._distance(self.centre - self.least)

    def upper(self) -> float:
        """The average gain so far is at most this, with probability ``1 − α`` at all times together."""
        return self.mean + self._distance(self.most + self.centre)

    def interval(self) -> tuple[float, float]:
        """Both bounds, together right with probability ``1 − 2α``."""
        return self.lower(), self.upper()

    def _distance(self, largest_step: float) -> float:
        """``c u*/t`` with the mixture at ``u*`` equal to ``1/α``; ``c`` is the largest step against the bound."""
        if self.count == 0:
            return math.inf
        squares = self.variation / (largest_step * largest_step)
        # a score varies by about (least, most)/2 at worst; the mixture forgives a wrong guess
        spread = (self.most - self.least) / (2.0 * largest_step)
        needed = float(log(1.0 / self.alpha))
        best = math.sqrt(2.0 * needed / (self.target_rows * spread * spread))
        lambdas = [min(best * math.ldexp(_ROOT_2 if step % 2 else 1.0, step // 2), _LARGEST) for step in _STEPS]
        weights = [1.0 / ((1 + abs(step)) * (1 + abs(step))) for step in _STEPS]
        total = sum(weights)
        offsets = [
            float(log(w / total)) + (float(log(1.0 - rate)) + rate) * squares
            for w, rate in zip(weights, lambdas, strict=True)
        ]
        # any single λ gives an upper limit of u*; from there Newton's steps on a convex function fall towards it
        u = min((needed - offset) / rate for offset, rate in zip(offsets, lambdas, strict=True))
        for _ in range(20):
            exponents = [offset + rate * u for offset, rate in zip(offsets, lambdas, strict=True)]
            largest = max(exponents)
            terms = [float(exp(exponent - largest)) for exponent in exponents]
            value = largest + float(log(sum(terms))) - needed
            slope = sum(rate * term for rate, term in zip(lambdas, terms, strict=True)) / sum(terms)
            step = value / slope
            if step <= 1e-12 * abs(u):
                break
            u -= step
        return largest_step * u / self.count


@dataclass
class SampleRatio(_State):
    """Is the share of units that come on the new route the one that was set?  A Beta-binomial e-process.

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
        # kept as mantissa and exponent: no logarithm to differ by machine, no overflow in a million units
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
        return self.log_evidence() > float(log(1.0 / _checked_alpha(alpha)))


@dataclass
class Comparison(_State):
    """Two routes of shared traffic: the gate's score, its sequence, and when it may speak.

    The score of a unit is ``ψ = (Z/p − (1 − Z)/(1 − p))(r − m)``, ``Z`` whether it came on the new route, ``p`` the
    chance of that, ``m`` made of the past alone: ``(1 − p)`` times the new route's mean reward plus ``p`` times the old
    one's.
    Never a difference of pooled means, which drift together with a changing share turns into false promotions.

    A unit is what is randomised: a subject enters once.  Units come in the order of their decisions.

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
        return weight * (_finite("reward", reward) - _finite("baseline", baseline))

    def observe(self, treated: bool, share: float, reward: float, baseline: float | None = None) -> None:
        """Add a unit; see ``score``."""
        score = self.score(treated, share, reward, baseline)
        self.add(None if baseline is None and not self.begun else score, treated, reward)

    @property
    def begun(self) -> bool:
        """Whether there is a past to predict a reward from.

        The first unit has none. It does not enter the sequence: far from 0, its score would outweigh all others.
        """
        return self.counts != [0, 0]

    def add(self, score: float | None, treated: bool, reward: float) -> None:
        """Add a unit whose score is known: another comparison of the same units, with another ``α``, computed it."""
        if score is not None:
            self.sequence.observe(score)
        self.counts[int(treated)] += 1
        self.rewards[int(treated)] += float(reward)

    @property
    def ready(self) -> bool:
        """Whether it may speak: enough units in the sequence, enough on each route, none that outweighs the others."""
        enough = self.sequence.count >= self.first_look and min(self.counts) >= self.least_per_route
        return enough and self.sequence.settled

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
        fields = dict(values)
        kinds = {kind.__name__: kind for kind in (AsymptoticSequence, BernsteinSequence)}
        kind = fields.pop("kind", None)
        if kind not in kinds:
            raise InputError(f"{kind!r} is not a kind of sequence; there are {', '.join(kinds)}.")
        try:
            return cls(**{**fields, "sequence": kinds[kind].from_dict(fields["sequence"])})
        except (KeyError, TypeError) as error:
            raise InputError(f"this is not the state of a Comparison: {error!r}.") from error
