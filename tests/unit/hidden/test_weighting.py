"""``ipw`` and ``control_variate`` against the formulas of the reference."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference
from tests.unit.hidden.drawn import answers_of, one_hot

import sidelight as sl


@pytest.mark.parametrize("estimator", ["ipw", "control_variate"])
def test_cross_moments_of_queries(rng, problem, estimator):
    p = problem
    X, arms, _, q = answers_of(rng, p, 40)
    queries = sl.BehaviorQueries(p.summary, estimator=estimator)
    for x, a, w in zip(X, arms, q, strict=True):
        queries.observe(x, int(a), probability=w)
    answers = one_hot(p, X, arms, q)
    if estimator == "ipw":
        expected = reference.cross_moments_ipw(answers, p.L, p.shares)
    else:
        expected = reference.cross_moments_control_variate(answers, p.L, p.shares, p.means)
    np.testing.assert_allclose(queries.cross_moments(), expected, rtol=1e-10, atol=1e-12)
    B = [np.linalg.solve(p.R11[a], expected[a]) for a in range(p.K)]
    np.testing.assert_allclose(queries.regression(), B, rtol=1e-8, atol=1e-10)
    assert queries.n_answers == 40


def test_the_control_variate_is_ipw_less_the_known_mean_times_the_hidden_one(rng, problem):
    """``R̂12 − (μ̂_o − μ_o)μ̂_hᵀ``: the two ways to write the appendix's estimator."""
    p = problem
    X, arms, _, q = answers_of(rng, p, 30)
    answers = one_hot(p, X, arms, q)
    t = sum(1 / w for _, _, w in answers)
    means = np.array([sum(c[a] / w / p.shares[a] * x for x, c, w in answers) / t for a in range(p.K)])
    expected = reference.cross_moments_ipw(answers, p.L, p.shares)
    expected = expected - np.einsum("ai,aj->aij", means[:, : p.L] - p.means, means[:, p.L :])
    found = reference.cross_moments_control_variate(answers, p.L, p.shares, p.means)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_the_bound_of_ipw_is_the_corrected_one(rng, problem):
    p = problem
    queries = sl.BehaviorQueries(p.summary, estimator="ipw")
    assert np.isinf(queries.bound(0.1, 300, 2.0)).all()
    for x in rng.normal(size=(25, 6)):
        queries.observe(x, 1)
    expected = reference.importance_bound(p.R11, p.shares, 6, 300, 0.1, 2.0, 25)
    np.testing.assert_allclose(queries.bound(0.1, 300, 2.0), expected, rtol=1e-10)
