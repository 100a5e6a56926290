"""Exact binomial limits: what a count may be, so that a right program fails a test with a known probability."""

from __future__ import annotations


def most(trials: int, probability: float, failure: float) -> int:
    """The smallest count that Binomial(trials, probability) exceeds with probability at most ``failure``."""
    from scipy.stats import binom

    return int(binom.isf(failure, trials, probability))
