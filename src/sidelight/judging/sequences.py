"""Evidence that may be looked at after every row: confidence sequences.  ``judging.shared_traffic`` is built on them.

Every class here is a plain incremental state: ``observe`` adds one unit, ``to_dict`` and ``from_dict`` write and read
it, and the bounds are functions of the sums alone.  The arithmetic is that of ``sidelight.linalg``, so the same units
in the same order give the same bits on every processor; a service may fold over them.

With ``ψ_i`` the score of unit ``i``, the estimand at time ``t`` is ``(1/t) Σ E[ψ_i | past]``: the average over units of
the gain of the policy *as it then was*.  Nothing has to be constant over time.

- ``AsymptoticSequence``: the martingale form of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas' asymptotic confidence
  sequences.  Needs no bounds on rewards; holds from some thousand units on, so ``Comparison`` does not speak earlier.
- ``BernsteinSequence``: empirical Bernstein (Howard and others; Waudby-Smith, Wu, Ramdas, Karampatziakis, Mineiro), for
  scores of known range.  Holds at every time, and is wider.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from sidelight.errors import InputError
from sidelight.linalg import exp, log

__all__ = [
    "FIRST_LOOK",
    "LARGEST_SCORE",
    "LARGEST_SHARE",
    "UNEVEN",
    "AsymptoticSequence",
    "BernsteinSequence",
    "asymptotic_width",
    "checked_alpha",
    "finite",
    "mixing_variance",
    "mostly_first",
    "spent",
]

#: ``Comparison`` says nothing before this many units in the sequence: from unit 1 on, 5 % false verdicts become 50 %.
FIRST_LOOK = 1_000
#: nor while a single unit makes up more than this part of ``V_t``: the sum is then not yet close to normal.
LARGEST_SHARE = 0.1
#: the message while a single unit does
UNEVEN = (
    "rewards are rare or very uneven: a single one makes up more than a tenth of their variation, and more of its kind "
    "are needed"
)
#: larger scores are not used: sums of their squares could overflow
LARGEST_SCORE = 1e150

# Units that only set the scale of an asymptotic sequence if its variance is not stated; the sequence starts after them.
_SCALE_UNITS = 100
# Candidates of λ in the empirical Bernstein mixture: √2 apart, 2⁻⁶ to 2⁶ times the best one at the target.
_STEPS = range(-12, 13)
_LARGEST = 0.9

_ROOT_2 = 1.4142135623730951
Kind = TypeVar("Kind", bound="State")


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


def checked_alpha(alpha: float) -> float:
    """``alpha`` if it can be the error rate of a one-sided bound; else InputError."""
    if not 0.0 < alpha < 0.5:
        raise InputError(f"alpha={alpha!r}: the chance of a false bound on one side must lie between 0 and 0.5.")
    return float(alpha)


def finite(name: str, value: float) -> float:
    """``value`` as a float; InputError, which names it, if it is not finite."""
    value = float(value)
    if not math.isfinite(value):
        raise InputError(f"{name}={value!r} is not a finite number: one such unit would undo all evidence.")
    return value


class State:
    """Base of the states: conversion to and from a dictionary of plain JSON values."""

    def to_dict(self) -> dict[str, Any]:
        """The whole state as numbers; floats are restored from JSON to the bit."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls: type[Kind], values: Mapping[str, Any]) -> Kind:
        """The inverse of ``to_dict``."""
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"this is not the state of a {cls.__name__}: {error}.") from error


class MeanBounds(State):
    """Bounds on the running mean of scores that hold at all times together.

    Attributes:
        mean: the mean of the scores so far.
    """

    mean: float

    def _below(self) -> float:
        """How far the lower bound lies from the mean."""
        raise NotImplementedError

    def _above(self) -> float:
        """How far the upper bound lies from the mean."""
        raise NotImplementedError

    def lower(self) -> float:
        """The average gain so far is at least this, with probability ``1 − α`` at all times together."""
        return self.mean - self._below()

    def upper(self) -> float:
        """The average gain so far is at most this, with probability ``1 − α`` at all times together."""
        return self.mean + self._above()

    def interval(self) -> tuple[float, float]:
        """Both bounds, together right with probability ``1 − 2α``."""
        return self.lower(), self.upper()

    def above(self, margin: float) -> bool:
        """Whether ``lower() > margin``, without computing the bound where the mean alone says no."""
        return self.mean > margin and self.lower() > margin

    def below(self, margin: float) -> bool:
        """Whether ``upper() < margin``, as in ``above``."""
        return self.mean < margin and self.upper() < margin


@dataclass
class AsymptoticSequence(MeanBounds):
    """Bounds on the running mean of scores that hold at all times together, for scores without known bounds.

    Args:
        alpha: the chance that the lower bound is ever too high; the same for the upper bound.
        target_rows: after about how many units the bounds should be narrowest.
        variance: the variance of a score if it can be stated before the first unit (from an earlier rung, say).
            ``None``: the first 100 units (more while all are equal) set it and do not enter the sequence, since ``ρ²``
            must be fixed before its first unit.
        least_variation: ``V_t`` counts as at least this; a caller may know that units vary more than those seen so far.

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
    least_variation: float = 0.0

    def __post_init__(self) -> None:
        checked_alpha(self.alpha)
        if not self.target_rows > 0:
            raise InputError(f"target_rows={self.target_rows!r} must be positive.")
        if self.variance is not None and not (math.isfinite(self.variance) and self.variance > 0):
            raise InputError(f"variance={self.variance!r} must be a positive number, or None to learn it.")
        #: what ``ρ²`` was computed from, and ``ρ²``: it never changes once the variance is known
        self._mixing: tuple[tuple[float, float, float], float] | None = None

    def observe(self, score: float) -> None:
        """Add the score ``ψ`` of the next unit."""
        score = finite("score", score)
        if self.variance is None:
            self._set_scale(score)
            return
        difference = score - self.mean
        self.count += 1
        self.variation += difference * difference
        self.largest = max(self.largest, difference * difference)
        self.mean += difference / self.count

    def vary_at_least(self, variation: float) -> None:
        """From now on ``V_t`` counts as at least ``variation``."""
        self.least_variation = variation

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
        variation = max(self.variation, self.least_variation)
        return float(asymptotic_width(self.count, variation, self._mixing[1], self.alpha))

    def _below(self) -> float:
        return self.half_width()

    def _above(self) -> float:
        return self.half_width()


@dataclass
class BernsteinSequence(MeanBounds):
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
        checked_alpha(self.alpha)
        if not (math.isfinite(self.least) and math.isfinite(self.most) and self.least < self.most):
            raise InputError(f"scores between {self.least!r} and {self.most!r}: two finite bounds are needed.")
        if not (math.isfinite(self.centre) and self.centre > 0 and self.target_rows > 0):
            raise InputError(f"centre={self.centre!r} and target_rows={self.target_rows!r} must be positive.")

    def observe(self, score: float) -> None:
        """Add the score ``ψ`` of the next unit."""
        score = finite("score", score)
        if not self.least <= score <= self.most:
            raise InputError(
                f"a score of {score!r} lies outside [{self.least!r}, {self.most!r}]: bounds that are broken prove "
                "nothing. State the true range of rewards, or use AsymptoticSequence."
            )
        guess = min(max(self.mean, -self.centre), self.centre)
        self.count += 1
        self.variation += (score - guess) * (score - guess)
        self.mean += (score - self.mean) / self.count

    def vary_at_least(self, variation: float) -> None:
        """Does nothing: these bounds hold however little the units have varied so far."""

    @property
    def settled(self) -> bool:
        """Always true: these bounds hold from the first unit on."""
        return True

    def _below(self) -> float:
        return self._distance(self.centre - self.least)

    def _above(self) -> float:
        return self._distance(self.most + self.centre)

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
