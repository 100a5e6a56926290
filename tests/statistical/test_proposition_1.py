"""Proposition 1: the short regression of a confounded log converges to ``[I, B_a]w_a``, not to ``w_a``'s first part."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2, norm

import sidelight as sl

FAILURE = 1e-6


def truth(world, L):
    """``M_a w_a`` and what is left of the hidden part, from the world's moments."""
    _, moments = world.second_moments()
    B = np.linalg.solve(moments[:, :L, :L], moments[:, :L, L:])
    return world.weights[:, :L] + np.einsum("alm,am->al", B, world.weights[:, L:])


def test_the_coefficients_are_those_of_the_proposition(rng):
    """``(b − Mw)ᵀ(G/s²)(b − Mw)`` is χ²_L for each arm of a long log; failure probability 10⁻⁶ in all.

    Contexts are bounded and the residual is nearly homoskedastic; the moments of the world carry an error of their
    own (a million contexts), ten times smaller than the log's: a factor of 2 on the quantile covers both.
    """
    world = sl.worlds.ConfoundedWorld(seed=3, n_arms=4, n_features=6, n_hidden=3, noise=0.5)
    L, n = 3, 60_000
    summary = sl.summarize_log(world.sample_log(n, L, rng), world.schema(L))
    expected = truth(world, L)
    limit = 2.0 * chi2.isf(FAILURE / 4, L)

    def distances(claimed):
        e = summary.coefficients - claimed
        return np.einsum("ai,aij,aj->a", e, summary.grams, e) / summary.residual_variances

    assert (distances(expected) < limit).all()
    # and not to the recorded weights alone: that is what confounding means
    assert distances(world.weights[:, :L]).max() > 5 * limit


def test_the_error_falls_like_one_over_the_root_of_the_rows(rng):
    """From 2,000 to 200,000 rows the root mean square error falls tenfold, within a factor of 2.

    The ratio of two mean squares over 12 coefficients each has F(12, 12) fluctuations at most: a factor of 4 in the
    squares is exceeded with probability 0.01 on either side; over 8 logs averaged, F(96, 96), below 10⁻⁹.
    """
    world = sl.worlds.ConfoundedWorld(seed=3, n_arms=4, n_features=6, n_hidden=3, noise=0.5)
    L = 3
    expected = truth(world, L)
    errors = {}
    for n, logs in ((2_000, 8), (200_000, 8)):
        squares = [
            np.square(sl.summarize_log(world.sample_log(n, L, rng), world.schema(L)).coefficients - expected).mean()
            for _ in range(logs)
        ]
        errors[n] = np.sqrt(np.mean(squares))
    assert 5.0 < errors[2_000] / errors[200_000] < 20.0


def test_shares_and_second_moments_are_the_policys(rng):
    """``P(a)`` and ``R11(a)`` within 6 standard errors: failure probability below 10⁻⁷."""
    world = sl.worlds.PaperWorld.preset("authors_code", seed=5, n_arms=3, n_features=5)
    n, L = 40_000, 3
    summary = sl.summarize_log(world.sample_log(n, L, rng), world.schema(L))
    shares, moments = world.second_moments()
    assert norm.sf(6) * 2 * 30 < 1e-7
    np.testing.assert_allclose(summary.shares, shares, atol=6 * np.sqrt(0.25 / n) + 1e-3)
    # an entry's deviation is at most E[x_i²x_j²]^½ ≤ ½ for contexts of norm 1
    rows = summary.counts.min()
    np.testing.assert_allclose(summary.second_moments, moments[:, :L, :L], atol=6 * 0.5 / np.sqrt(rows) + 1e-3)
