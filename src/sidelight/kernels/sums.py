"""Compiled sums of products: what the hidden estimators keep of every answer of the old policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sidelight.kernels.compiled import helper, kernel

__all__ = ["Answers", "add_answer", "add_one_answer", "add_probabilities"]


class Answers(NamedTuple):
    """The sums that answers are added to: order (d,), S (K, d, d), S_squared (K, L, L), sums (K, d) and counts (K,)."""

    order: Any
    S: Any
    S_squared: Any
    sums: Any
    counts: Any


@helper
def add_one_answer(answers, x, a, weight, y):  # type: ignore[no-untyped-def]
    """``S += w x xᵀ``, ``S² += w² x_o x_oᵀ``, ``Σ += w x`` and ``n += w`` of arm ``a``, ``x`` taken in internal order.

    answers: ``Answers``   x: (d,)   y: (d,) to work in
    """
    order, S, S_squared, sums, counts = answers
    d, L = order.shape[0], S_squared.shape[1]
    for i in range(d):
        y[i] = x[order[i]]
    squared = weight * weight
    for i in range(d):
        scaled = weight * y[i]
        sums[a, i] += scaled
        for j in range(d):
            S[a, i, j] += scaled * y[j]
    for i in range(L):
        scaled = squared * y[i]
        for j in range(L):
            S_squared[a, i, j] += scaled * y[j]
    counts[a] += weight


@kernel
def add_answer(answers, x, a, weight):  # type: ignore[no-untyped-def]
    """One answer "I would take arm ``a``" with weight ``w``: see ``add_one_answer``."""
    add_one_answer(answers, x, a, weight, np.empty(x.shape[0]))


@kernel
def add_probabilities(answers, x, probabilities, weight):  # type: ignore[no-untyped-def]
    """``add_answer`` for every arm at once, arm ``a`` with weight ``w · p_a``."""
    y = np.empty(x.shape[0])
    for a in range(probabilities.shape[0]):
        if probabilities[a] > 0.0:
            add_one_answer(answers, x, a, weight * probabilities[a], y)
