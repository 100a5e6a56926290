"""The compiled algebra of the estimators from answers against explicit inverses."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference

from sidelight.kernels import answers


def stack(rng, K, m):
    root = rng.normal(size=(K, m, m + 2))
    return root @ np.swapaxes(root, 1, 2)


@pytest.mark.parametrize(("L", "m"), [(1, 1), (4, 3), (7, 9), (12, 2)])
def test_regressions_in_any_units(rng, L, m):
    units = 10.0 ** rng.uniform(-6, 6, size=L + m)
    S, toward = stack(rng, 4, L + m), rng.normal(size=(L, m))
    pull = stack(rng, 1, L)[0]
    S[2, :L, :L] = -pull
    expected = np.linalg.solve(S[[0, 1, 3], :L, :L] + pull, S[[0, 1, 3], :L, L:] + toward)
    S, pull, toward = (
        S * np.outer(units, units),
        pull * np.outer(units[:L], units[:L]),
        toward * np.outer(units[:L], units[L:]),
    )
    B, solved = np.full((4, L, m), 7.0), np.zeros(4, dtype=np.bool_)
    answers.regress(S, pull, toward, B, solved)
    assert solved.tolist() == [True, True, False, True]
    np.testing.assert_allclose(B[[0, 1, 3]] * units[:L, None] / units[L:], expected, rtol=1e-6, atol=1e-8)
    assert (B[2] == 7.0).all()


def test_a_matrix_of_lower_rank_is_left_alone(rng):
    v = rng.normal(size=(1, 6, 3))
    S = np.concatenate([v @ np.swapaxes(v, 1, 2), np.ones((1, 6, 2))], axis=2)
    B, solved = np.ones((1, 6, 2)), np.zeros(1, dtype=np.bool_)
    answers.regress(S, np.zeros((6, 6)), np.zeros((6, 2)), B, solved)
    assert not solved[0]
    assert (B == 1.0).all()


SIZES = pytest.mark.parametrize(("L", "m"), [(1, 2), (6, 1), (11, 3), (8, 9)])


@SIZES
@pytest.mark.parametrize("extra", [0, 1], ids=["plain", "with a constant"])
def test_how_precise_a_regression_is(rng, L, m, extra):
    """``A⁻¹`` is the covariance of ``E_aθ̂_a``; with a constant there is one coordinate more."""
    K, n = 3, L + extra
    S, S_squared, pull, shared = stack(rng, K, n + m), stack(rng, K, n), stack(rng, 1, n)[0], stack(rng, 1, n)[0]
    E = rng.normal(size=(K, L, n)) + 2.0 * np.eye(L, n)
    W, A = S[:, :n, :n] + pull, np.empty((K, L, L))
    assert answers.answers_precision(S, S_squared, pull, shared, E, A)
    for a in range(K):
        H = E[a] @ np.linalg.inv(W[a])
        covariance = H @ (S_squared[a] + shared) @ H.T
        np.testing.assert_allclose(A[a] @ covariance, np.eye(L), rtol=1e-7, atol=1e-9)
    if not extra:
        # coordinates that are the features themselves: W(S² + shared)⁻¹W
        answers.answers_precision(S, S_squared, pull, shared, np.stack([np.eye(L)] * K), A)
        for a in range(K):
            np.testing.assert_allclose(A[a], W[a] @ np.linalg.solve(S_squared[a] + shared, W[a]), rtol=1e-7, atol=1e-9)
    S_squared[1] = -1e9 * shared
    assert not answers.answers_precision(S, S_squared, pull, shared, E, A)
    assert [np.isnan(A[a]).all() for a in range(K)] == [False, True, False]


@pytest.mark.parametrize("pull", [1e-4, 1e-6, 1e-8])
def test_the_precision_of_what_repeated_features_say_together_keeps_its_digits(pull):
    """Three copies in other units: ``S² = S`` and a noise of the pull make ``A = W``, whose inverse is ``1/pull``."""
    u = np.array([1.0, 3.7, -0.021])
    S, D, A = 40.0 * np.outer(u, u)[None], pull * np.diag(u * u), np.empty((1, 3, 3))
    assert answers.answers_precision(S, S.copy(), D, D, np.eye(3)[None], A)
    np.testing.assert_allclose(A[0], S[0] + D, rtol=1e-14)


@SIZES
def test_sums_over_arms_and_what_they_tell_of_a_regression(rng, L, m):
    K, d = 3, L + m
    S, S_squared, units = stack(rng, K, d), stack(rng, K, L), rng.uniform(0.5, 2.0, size=L)
    total, noise, own, squares = np.empty((d, d)), np.empty((L, L)), np.empty(K + 1), np.empty(K + 1)
    answers.add_up(S, S_squared, units, total, noise, own, squares)
    np.testing.assert_allclose(total, S.sum(axis=0))
    np.testing.assert_allclose(noise, S_squared.sum(axis=0))
    traces = [np.einsum("aii,i->a", part, units) for part in (S[:, :L, :L], S_squared)]
    np.testing.assert_allclose(own, [*traces[0], traces[0].sum()])
    np.testing.assert_allclose(squares, [*traces[1], traces[1].sum()])
    B, residual = np.linalg.solve(total[:L, :L] + np.eye(L), total[:L, L:]), np.empty((m, m))
    answers.pooled_residuals(total, B, residual)
    M = np.vstack([-B, np.eye(m)])
    np.testing.assert_allclose(residual, M.T @ total @ M, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("c", [-1, 0, 3])
def test_sums_in_other_coordinates_are_those_of_the_moved_rows(rng, c):
    """``z = scale∘v − shift·(scale∘v)_c``; a constant that is 1 once scaled is faded for the first of two arms."""
    fading = np.array([[0.3, -0.2, 0.7]])
    V, scale, shift = rng.normal(size=(2, 9, 5)), rng.uniform(0.5, 3.0, size=5), rng.normal(size=5)
    moved = V * scale
    if c >= 0:
        V[:, :, c], shift[c] = 1.0 / scale[c], 0.0
        moved = V * scale - shift
        fading[0, c : c + 1] = 0.0
        moved[0, :, c] -= moved[0, :, :3] @ fading[0]
    out = np.empty((2, 5, 5))
    answers.move_sums(np.swapaxes(V, 1, 2) @ V, scale, shift, c, fading, out)
    np.testing.assert_allclose(out, np.swapaxes(moved, 1, 2) @ moved, rtol=1e-10, atol=1e-10)


@SIZES
def test_residual_moments_by_their_definition(rng, L, m):
    K, weight = 4, 3.7
    S, pull, used = stack(rng, K, L + m), stack(rng, 1, L)[0], np.eye(L) + 0.1 * rng.normal(size=(L, L))
    B, pooled = rng.normal(size=(K, L, m)), stack(rng, 1, m)[0]
    # an arm with few answers, and one whose matrix has no inverse
    counts = np.array([50.0, 0.5, 80.0, 70.0])
    S[3, :L, :L] = -2.0 * pull
    Sigma = np.empty((K, m, m))
    answers.residual_moments(S, counts, B, pull, used, pooled, weight, Sigma)
    for a in range(K):
        M = np.vstack([-B[a], np.eye(m)])
        S11 = S[a, :L, :L]
        gone = 2.0 * L if a == 3 else np.trace(used @ S11 @ np.linalg.inv(S11 + pull))
        free = max(counts[a] - gone, 0.0)
        expected = (M.T @ S[a] @ M + weight * pooled) / (free + weight)
        np.testing.assert_allclose(Sigma[a], expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_array_equal(Sigma[a], Sigma[a].T)


def test_the_likelihood_of_differences_between_arms_by_explicit_inverses(rng):
    K, L, m, strength = 3, 5, 2, 1.7
    S, gap = stack(rng, K, L), rng.normal(size=(K, L, m))
    mean = rng.normal(size=L)
    D = stack(rng, 1, L)[0] + np.outer(mean, mean)
    levels, values, residuals, free = np.array([1.0, 0.25, 1 / 256]), np.empty(3), 40.0 * stack(rng, 1, m)[0], 17.5
    answers.between_arms(S, D, gap, mean, strength, levels, (residuals, free), values)
    for level, value in zip(levels, values, strict=True):
        Q = D - (1.0 - level) * np.outer(mean, mean)
        W = S + strength * Q
        left = residuals - sum(gap[a].T @ np.linalg.solve(W[a], gap[a]) for a in range(K))
        apart = np.linalg.slogdet(W)[1].sum() - K * (L * np.log(strength) + np.log(level))
        assert value == pytest.approx(-0.5 * m * apart - 0.5 * free * np.linalg.slogdet(left)[1], rel=1e-9)
    answers.between_arms(-1e9 * S, D, gap, mean, strength, levels, (residuals, free), values)
    assert np.isnan(values).all()


@pytest.mark.parametrize("m", [1, 5, 9])
def test_the_likelihood_of_the_pooled_regression_is_the_formula(rng, m):
    total, D = 30.0 * stack(rng, 1, 6 + m)[0], stack(rng, 1, 6)[0]
    D[5, :5], D[:5, 5] = 0.0, 0.0
    strengths, values = 4.0 ** np.arange(-2, 5), np.empty(7)
    answers.own_likelihoods(total, D, (5, 1e-6), strengths, 30.0, values)
    literal = [reference.own_likelihood(total, D, 5, strength, 30.0) for strength in strengths]
    np.testing.assert_allclose(values, literal, rtol=1e-9)
    # a hidden feature that never varied tells nothing; a Gram matrix without a factor has no likelihood
    still = total.copy()
    still[6, :], still[:, 6] = 0.0, 0.0
    answers.own_likelihoods(still, D, (5, 1e-6), strengths, 30.0, values)
    without = np.delete(np.delete(still, 6, axis=0), 6, axis=1)
    expected = np.empty(7)
    answers.own_likelihoods(without, D, (5, 1e-6), strengths, 30.0, expected)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    answers.own_likelihoods(-1e9 * total, D, (-1, 0.0), strengths, 30.0, values)
    assert np.isneginf(values).all()
