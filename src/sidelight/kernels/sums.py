"""Compiled sums of products: what the hidden estimators keep of every answer of the old policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sidelight.kernels.compiled import helper, kernel

__all__ = ["Answers", "add_answer", "add_answers", "add_one_answer"]

#: answers about one arm that are added to its sums together
TOGETHER = 32


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


@helper
def add_outer(S, a, X, Y, n):  # type: ignore[no-untyped-def]
    """``S[a] += x yᵀ`` for the first ``n`` rows of ``X`` and ``Y``, in order: ``S`` is read once for four of them.

    S: (K, d, d)   X, Y: (…, d or more)
    """
    d = S.shape[1]
    for r in range(0, n - 3, 4):
        for i in range(d):
            x0, x1, x2, x3 = X[r, i], X[r + 1, i], X[r + 2, i], X[r + 3, i]
            for j in range(d):
                S[a, i, j] = (((S[a, i, j] + x0 * Y[r, j]) + x1 * Y[r + 1, j]) + x2 * Y[r + 2, j]) + x3 * Y[r + 3, j]
    for r in range(n & ~3, n):
        for i in range(d):
            for j in range(d):
                S[a, i, j] += X[r, i] * Y[r, j]


@kernel
def add_answer(answers, x, a, weight):  # type: ignore[no-untyped-def]
    """One answer "I would take arm ``a``" with weight ``w``: see ``add_one_answer``."""
    add_one_answer(answers, x, a, weight, np.empty(x.shape[0]))


@kernel
def add_answers(answers, X, arms, weights):  # type: ignore[no-untyped-def]
    """``add_answer`` for many answers: arms are gone through one by one, so that their sums stay near the processor.

    Every arm's own answers are added up in order, so the sums are the same as one by one.

    X: (n, d), or (1, d) for answers at the same context   arms: (n,)   weights: (n,)
    """
    order, S, S_squared, sums, counts = answers
    (K, d), n = sums.shape, arms.shape[0]
    # the first answer about every arm, and for each the next one about the same arm; −1 for none
    first, following = np.full(K, -1), np.empty(n, dtype=np.int64)
    for t in range(n - 1, -1, -1):
        following[t] = first[arms[t]]
        first[arms[t]] = t
    Y, once, twice = np.empty((TOGETHER, d)), np.empty((TOGETHER, d)), np.empty((TOGETHER, d))
    for a in range(K):
        t = first[a]
        while t >= 0:
            r = 0
            while t >= 0 and r < TOGETHER:
                weight = weights[t]
                squared = weight * weight
                for i in range(d):
                    Y[r, i] = X[t if X.shape[0] > 1 else 0, order[i]]
                    once[r, i] = weight * Y[r, i]
                    twice[r, i] = squared * Y[r, i]
                    sums[a, i] += once[r, i]
                counts[a] += weight
                t = following[t]
                r += 1
            add_outer(S, a, once, Y, r)
            add_outer(S_squared, a, twice, Y, r)
