"""``ΔM`` bounds the error of the estimated constraint, and the corrected constants are the smaller ones."""

from __future__ import annotations

import numpy as np
from scipy import linalg, stats

from sidelight import theory
from sidelight.worlds.paper import PaperWorld

TRIALS = 300
DELTA = 0.2


def test_delta_m_covers_the_importance_weighted_estimate(rng):
    """Misses per trial have probability at most δ/2 (all arms); more than the 99.9999 % quantile of that
    binomial would be evidence against it. Failure probability at most 10⁻⁶ (far less: matrix Bernstein is
    conservative)."""
    world = PaperWorld.preset("authors_code", seed=4, n_arms=3, n_features=5, sharpness=2.0)
    L, t = 3, 256
    shares, moments = world.second_moments()
    R11, R12, R22 = moments[:, :L, :L], moments[:, :L, L:], moments[:, L:, L:]
    constants = theory.cross_moment_constants(R11, shares, 1.0, 1.0, 5, DELTA, 2, np.trace(R22, axis1=1, axis2=2))
    allowed = theory.delta_m(constants, t)
    misses = 0
    for _ in range(TRIALS):
        X = world.contexts(t, rng)
        arms = world.behavior_actions(X, rng)
        for a in range(3):
            chosen = X[arms == a]
            estimate = chosen[:, :L].T @ chosen[:, L:] / (t * shares[a])
            error = np.linalg.solve(R11[a], estimate - R12[a])
            if linalg.svd(error, compute_uv=False, lapack_driver="gesvd")[0] > allowed[a]:
                misses += 1
                break
    assert misses <= stats.binom.ppf(1 - 1e-6, TRIALS, DELTA / 2)


def test_rare_arms_gain_most_from_the_corrected_constant():
    """√P(a) instead of P(a): the leading constant falls although its logarithm now pays for the unions."""
    world = PaperWorld.preset("authors_code", seed=4, n_arms=20, n_features=10, sharpness=2.0)
    L, delta, horizon = 6, 0.05, 10**5
    shares, moments = world.second_moments()
    traces = np.trace(moments[:, L:, L:], axis1=1, axis2=2)
    right = theory.cross_moment_constants(moments[:, :L, :L], shares, 1.0, 1.0, 10, delta, horizon, traces)
    printed = theory.printed_cross_moment_constants(
        moments[:, :L, :L], shares, 1.0, 1.0, 10, delta / (2 * theory.episode_count(horizon)), traces
    )
    assert right.leading.max() < 0.5 * printed.leading
