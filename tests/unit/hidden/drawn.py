"""Answers of an old policy to a drawn problem, as the estimators and as the reference take them."""

from __future__ import annotations

import numpy as np
from tests.unit.learners.histories import Problem


def answers_of(rng, p: Problem, n: int):
    """Contexts, the old policy's actions and probabilities there, and the chances with which it was asked."""
    X = rng.normal(size=(n, p.d))
    return X, rng.integers(p.K, size=n), rng.dirichlet(np.ones(p.K), size=n), rng.uniform(0.3, 1.0, size=n)


def one_hot(p: Problem, X, arms, q):
    return [(x[p.order], np.eye(p.K)[a], float(w)) for x, a, w in zip(X, arms, q, strict=True)]
