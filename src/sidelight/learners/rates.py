"""Rewards of 0 and 1: their noise has the variance ``p(1 − p)``, so rounds are weighted by their rate ``p``."""

from __future__ import annotations

from sidelight.kernels.ridge_updates import BINARY_VARIANCE

__all__ = ["BINARY_VARIANCE", "least_rate", "rate_weight"]

#: rates below this part of the mean rate are taken for it when a round is weighted
LEAST_RATE = 0.5


def least_rate(n: float, total: float) -> float:
    """What keeps rates from 0 and 1 where rounds are weighted by them.  total: of ``n`` rewards"""
    rate = (total + 0.5) / (n + 1.0)
    return LEAST_RATE * min(rate, 1.0 - rate)


def rate_weight(rate: float, least: float) -> float:
    """What a round counts for whose reward is 1 at a rate of ``rate``, kept at least ``least`` from 0 and 1."""
    rate = min(max(rate, least), 1.0 - least)
    return BINARY_VARIANCE / (rate * (1.0 - rate))
