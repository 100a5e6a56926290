"""``Λ = A(τ²G + s²A)⁺G``: the precision of a log and of the answers together."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import parallel_sum

from sidelight.kernels.soft import lift, soft_evidence

seeds = st.integers(0, 2**32 - 1)
variances = st.floats(-4.0, 4.0).map(lambda e: 10.0**e)
few = settings(max_examples=60, deadline=None, derandomize=True)


def definite(rng, L):
    X = rng.normal(size=(3 * L + 2, L))
    return X.T @ X


@few
@given(st.integers(1, 8), variances, variances, seeds)
def test_it_is_the_inverse_of_the_sum_of_the_covariances(L, tau2, s2, seed):
    rng = np.random.default_rng(seed)
    A, G = definite(rng, L), definite(rng, L)
    expected = np.linalg.inv(s2 * np.linalg.inv(G) + tau2 * np.linalg.inv(A))
    found = parallel_sum(A, G, tau2, s2)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_array_equal(found, found.T)


@few
@given(st.integers(1, 6), seeds)
def test_many_arms_and_columns_in_any_unit(L, seed):
    rng = np.random.default_rng(seed)
    A = np.stack([definite(rng, L) for _ in range(3)])
    G = np.stack([definite(rng, L) for _ in range(3)])
    together = parallel_sum(A, G, 0.7, 1.9)
    units = 10.0 ** rng.uniform(-4, 4, size=L)
    U = np.outer(units, units)
    for a in range(3):
        np.testing.assert_allclose(together[a], parallel_sum(A[a], G[a], 0.7, 1.9), rtol=1e-12)
        rescaled = parallel_sum(A[a] * U, G[a] * U, 0.7, 1.9) / U
        np.testing.assert_allclose(rescaled, together[a], rtol=0, atol=1e-9 * np.abs(together[a]).max())


@few
@given(st.integers(2, 7), variances, variances, seeds)
def test_a_direction_that_one_of_them_never_saw_has_precision_zero(L, tau2, s2, seed):
    """Singular ``A`` or ``G``: the limit of ``G + ε`` as ε → 0, and zero outside either range."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, L))
    X = rng.normal(size=(k, L))
    singular, full = X.T @ X, definite(rng, L)
    unseen = np.linalg.svd(X)[2][k:]
    for A, G in ((singular, full), (full, singular)):
        found = parallel_sum(A, G, tau2, s2)
        scale = np.abs(found).max()
        np.testing.assert_allclose(found @ unseen.T, 0.0, atol=1e-7 * scale)
        assert np.linalg.eigvalsh(found)[0] >= -1e-7 * scale
    nothing = parallel_sum(np.zeros((L, L)), full, tau2, s2)
    np.testing.assert_allclose(nothing, 0.0, atol=1e-12)


@few
@given(st.integers(1, 6), seeds)
def test_limits_are_the_log_alone_and_the_answers_alone(L, seed):
    rng = np.random.default_rng(seed)
    A, G = definite(rng, L), definite(rng, L)
    np.testing.assert_allclose(parallel_sum(A, G, 0.0, 1.7), G / 1.7, rtol=1e-8, atol=1e-8 * np.abs(G).max())
    np.testing.assert_allclose(parallel_sum(1e14 * A, G, 1.0, 1.7), G / 1.7, atol=1e-6 * np.abs(G).max())
    np.testing.assert_allclose(parallel_sum(A, 1e14 * G, 1.3, 1.0), A / 1.3, atol=1e-6 * np.abs(A).max())


@few
@given(st.integers(1, 8), variances, variances, seeds)
def test_the_kernel_computes_it(L, tau2, s2, seed):
    """What the fused learners run, against the literal formula."""
    rng = np.random.default_rng(seed)
    A, G = np.stack([definite(rng, L) for _ in range(2)]), np.stack([definite(rng, L) for _ in range(2)])
    expected = parallel_sum(A, G, tau2, s2)
    J, h = np.empty((2, L, L)), np.empty((2, L))
    lift(A, G)
    assert soft_evidence(G, np.zeros((2, L)), A, np.zeros((2, L, 0)), np.full(2, tau2), np.full(2, s2), J, h) < 0
    np.testing.assert_allclose(J, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
