"""How much arms differ in what a log hides, as rewards tell: against densities written out, and drawn differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from sidelight.hidden.protocol import Differences, Scales
from sidelight.side.differences import learned_scales

#: scales of slopes and of levels, and how likely both are beforehand; one pair is out of the question
GRID = 2.0 ** np.arange(-8, 9), 4.0 ** np.arange(-3, 4)
CHANCES = -np.add.outer(*((np.log(grid) + 2.0) ** 2 / 8.0 for grid in GRID))
CHANCES[0] = -np.inf


def drawn(rng, K=5, L=3, m=2, slopes=1.0, levels=1.0, known=1e-3):
    """A problem in which slopes and levels differ by so much more than expected; weights known to ``known``."""
    root = rng.normal(size=(4, K, L, L))
    G, rest, C, P = (part @ np.swapaxes(part, 1, 2) for part in root)
    G, rest, C = 900.0 * G + 50.0 * np.eye(L), 1e-3 * rest, 0.3 * C
    q, B = rng.normal(size=(K, L)), rng.normal(size=(K, L, m))
    P = known * np.array([p @ p.T for p in rng.normal(size=(K, L + m, L + m))])
    tau2, s2 = rng.uniform(0.3, 0.9, size=K), np.ones(K)
    w_hat = rng.normal(size=(K, L + m))
    b = np.empty((K, L))
    for a in range(K):
        M = np.hstack([np.eye(L), B[a]])
        covariance = s2[a] * np.linalg.inv(G[a])
        covariance += tau2[a] * (rest[a] + slopes * C[a] + levels * np.outer(q[a], q[a])) + M @ P[a] @ M.T
        b[a] = M @ w_hat[a] + np.linalg.cholesky(covariance) @ rng.normal(size=L)
    R = np.swapaxes(np.linalg.cholesky(G), 1, 2)
    y = np.einsum("aij,aj->ai", R, b)
    return (R, y, B), Differences(rest, C, q, GRID, CHANCES), (tau2, s2), (w_hat, P)


def densities(rows, differences, variances, known, bias):
    """``log p(b)`` and what the scales' chances were before, for every pair, in the coefficients themselves."""
    (R, y, B), (tau2, s2), (w_hat, P) = rows, variances, known
    K, L, _ = B.shape
    out = np.empty(CHANCES.shape)
    for i, c in enumerate(GRID[0]):
        for j, k in enumerate(GRID[1]):
            total = CHANCES[i, j]
            for a in range(K):
                M, q = np.hstack([np.eye(L), B[a]]), differences.levels[a]
                covariance = s2[a] * np.linalg.inv(R[a].T @ R[a]) + bias[a] @ bias[a].T + M @ P[a] @ M.T
                covariance += tau2[a] * (differences.rest[a] + c * differences.slopes[a] + k * np.outer(q, q))
                total += multivariate_normal.logpdf(np.linalg.solve(R[a], y[a]), M @ w_hat[a], covariance)
            out[i, j] = total
    return out


@pytest.mark.parametrize("biased", [False, True])
def test_scales_are_posterior_means_relative_to_those_before(rng, biased):
    problem = drawn(rng, slopes=0.2, levels=3.0)
    bias = rng.normal(size=(5, 3, 2)) if biased else np.zeros((5, 3, 1))
    values = densities(*problem, bias)
    after, before = np.exp(values - values.max()), np.exp(CHANCES)
    expected = [
        (after.sum(axis=axis) @ grid / after.sum()) / (before.sum(axis=axis) @ grid / before.sum())
        for axis, grid in zip((1, 0), GRID, strict=True)
    ]
    np.testing.assert_allclose(learned_scales(*problem, bias if biased else None), expected, rtol=1e-8)


@pytest.mark.parametrize(("slopes", "levels"), [(1 / 16, 16.0), (1.0, 1.0), (4.0, 4.0)])
def test_scales_that_differences_were_drawn_with_are_found(seed, slopes, levels):
    """400 arms of 4 coefficients; in the direction of the level differences of slopes are about as large.

    So the error of a scale is at most ``2√(2/400) = 0.14`` of it, and a factor of two is five of that.  Failure below
    1e-4.
    """
    problem = drawn(np.random.default_rng([seed, 5]), K=400, L=4, slopes=slopes, levels=levels, known=1e-6)
    found = learned_scales(*problem)
    before = np.exp(CHANCES)
    for scale, axis, true in ((found.slopes, 1, slopes), (found.levels, 0, levels)):
        mean = before.sum(axis=axis) @ GRID[1 - axis] / before.sum()
        assert true / 2.0 < scale * mean < true * 2.0


def test_rounds_that_know_nothing_of_the_weights_leave_what_was_expected(rng):
    rows, differences, variances, (w_hat, P) = drawn(rng)
    found = learned_scales(rows, differences, variances, (w_hat, P + 1e9 * np.eye(5)))
    np.testing.assert_allclose(found, Scales(), rtol=1e-5)


def test_powers_of_two_as_units_change_no_bit(rng):
    (R, y, B), parts, (tau2, s2), (w_hat, P) = drawn(rng, slopes=0.1)
    rest, C, q = parts[:3]
    plain = learned_scales((R, y, B), parts, (tau2, s2), (w_hat, P))
    u, v, r = (2.0 ** rng.integers(-30, 31, size=n) for n in (3, 2, 1))
    features = np.append(u, v)
    own = np.outer(1 / u, 1 / u)
    again = learned_scales(
        (R * u, r * y, B * v / u[:, None]),
        Differences(rest * own, C * own, q / u, GRID, CHANCES),
        (r * r * tau2, r * r * s2),
        (r * w_hat / features, r * r * P / np.outer(features, features)),
    )
    assert again == plain
