"""Rewards of 0 and 1: their noise has the variance ``p(1 − p)``, so rounds are weighted by their rate ``p``."""

from __future__ import annotations

from sidelight.kernels.ridge_updates import BINARY_VARIANCE, rate_weight

__all__ = ["BINARY_VARIANCE", "least_rate", "rate_weight"]

#: rates below this part of the mean rate are taken for it when a round is weighted
LEAST_RATE = 0.5


def least_rate(n: float, total: float) -> float:
    """What keeps rates from 0 and 1 where rounds are weighted by them.  total: of ``n`` rewards"""
    rate = (total + 0.5) / (n + 1.0)
    return LEAST_RATE * min(rate, 1.0 - rate)
