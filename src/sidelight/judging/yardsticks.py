"""Recorded features as yardsticks: how strong a hidden feature would be that is as strong as this one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sidelight.judging.population import Population, Weighting
from sidelight.judging.sensitivity import times_to_overturn
from sidelight.judging.valuing import Estimate

__all__ = ["Benchmark", "benchmarks_of"]


@dataclass(frozen=True)
class Benchmark:
    """What leaving a recorded feature out of the log would have hidden.

    Attributes:
        feature: its name.
        reward_share: the part of what the log leaves unexplained that the feature would add, ``(E ε²₋ⱼ − E ε²)/E ε²``.
        choice_share: the part of the weights' second moment that is its doing, ``(E α_s² − E α²_{s,−j})/E α_s²``.
        times: how many times as strong hidden features must be to overturn the sign of the gain; 0 if sampling alone
            may, infinite if none can.
    """

    feature: str
    reward_share: float
    choice_share: float
    times: float


def benchmarks_of(estimate: Estimate, margin: float) -> tuple[Benchmark, ...]:
    """Every recorded feature as a yardstick for one policy, the most dangerous first.

    Args:
        estimate: the policy's short value.
        margin: how far the sampling interval of its gain keeps from zero.
    """
    if estimate.problem is not None:
        return ()
    found = [_benchmark(feature, estimate, margin) for feature in _features(estimate.parts)]
    return tuple(sorted(found, key=lambda b: (b.times, -b.reward_share * b.choice_share, b.feature)))


def _features(parts: Sequence[tuple[Population, Weighting]]) -> Iterator[str]:
    yield from dict.fromkeys(name for population, _ in parts for name, at in population.groups.items() if len(at))


def _benchmark(feature: str, estimate: Estimate, margin: float) -> Benchmark:
    rows = sum(population.n_rows for population, _ in estimate.parts)
    residual = residual_without = weights = weights_without = 0.0
    for population, weighting in estimate.parts:
        share = population.n_rows / rows
        residual += share * population.epsilon_squares
        weights += share * weighting.alpha_squares
        if len(population.groups.get(feature, ())) == 0:
            residual_without += share * population.epsilon_squares
            weights_without += share * weighting.alpha_squares
            continue
        smaller = population.without(feature)
        kept = np.setdiff1d(np.arange(len(population.names)), population.groups[feature])
        residual_without += share * smaller.epsilon_squares
        weights_without += share * smaller.weigh(weighting.ell[:, kept]).alpha_squares
    reward = min(1.0, max(0.0, (residual_without - residual) / residual)) if residual > 0.0 else 0.0
    choice = min(1.0, max(0.0, (weights - weights_without) / weights)) if weights > 0.0 else 0.0
    return Benchmark(feature, reward, choice, times_to_overturn(margin, estimate.size, reward, choice))
