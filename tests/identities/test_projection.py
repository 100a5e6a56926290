"""Identities of the projected regression, at values that are not the defaults."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tests import reference

import sidelight as sl
from sidelight.linalg import kernel_of, kernel_of_structured

seeds = st.integers(0, 2**32 - 1)
penalties = st.floats(-2.0, 2.0).map(lambda e: 10.0**e)
few = settings(max_examples=60, deadline=None, derandomize=True)
fewer = settings(max_examples=15, deadline=None, derandomize=True)


@st.composite
def sizes(draw, lowest_hidden=0):
    d = draw(st.integers(max(1, lowest_hidden), 8))
    return d, draw(st.integers(0, d - lowest_hidden))


def gram(rng, d, lam):
    X = rng.normal(size=(int(rng.integers(0, 3 * d + 1)), d))
    return X.T @ X + lam * np.eye(d), X


@few
@given(sizes(), penalties, seeds)
def test_projected_inverse_in_any_basis_of_the_kernel(size, lam, seed):
    """``(PVP)† = U(UᵀVU)⁻¹Uᵀ = N(NᵀVN)⁻¹Nᵀ`` for ``M = [I, B]``."""
    rng = np.random.default_rng(seed)
    d, L = size
    B = rng.normal(size=(L, d - L))
    V, _ = gram(rng, d, lam)
    M = reference.structured(B)
    _, P = reference.side_matrices(M, L)
    expected = reference.pinv(P @ V @ P, d - L).astype(float)
    _, U, _, _ = kernel_of(M, np.zeros(L))
    N = kernel_of_structured(B)
    scale = np.abs(expected).max(initial=1e-300)
    for basis in (U, N):
        found = basis @ np.linalg.solve(basis.T @ V @ basis, basis.T)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(U @ U.T, P.astype(float), atol=1e-12)


@few
@given(sizes(), penalties, seeds)
def test_projected_ridge_regression_in_its_two_forms(size, lam, seed):
    """P-RR: ``(PXᵀXP + λP)†(Y − XᵀX M†b)`` is the shortest minimizer of the penalised squares over ``w = M†b + Pv``."""
    rng = np.random.default_rng(seed)
    d, L = size
    M = rng.normal(size=(L, d))
    b = M @ rng.normal(size=d)
    V, X = gram(rng, d, lam)
    r = rng.normal(size=len(X))
    M_dagger, P = (A.astype(float) for A in reference.side_matrices(M, L))
    anchor = M_dagger @ b
    # the projection before Y changes nothing: the pseudo-inverse has the range of P
    inverse = reference.pinv(P @ V @ P, d - L).astype(float)
    right = X.T @ r - X.T @ X @ anchor
    w = inverse @ right
    np.testing.assert_allclose(inverse @ (P @ right), w, rtol=1e-9, atol=1e-11)
    # minimum norm: w lies in the kernel of M, where every other minimizer of the same objective is longer
    np.testing.assert_allclose(P @ w, w, atol=1e-9)

    def objective(v):
        e = X @ (anchor + P @ v) - r
        return e @ e + lam * (P @ v) @ (P @ v)

    best = objective(w)
    for _ in range(5):
        step = rng.normal(size=d)
        assert objective(w + 0.1 * step) >= best - 1e-9 * (1.0 + best)
        along_rows = step - P @ step  # does not change the objective, only the length
        assert abs(objective(w + along_rows) - best) <= 1e-8 * (1.0 + best)
        assert np.linalg.norm(w + along_rows) >= np.linalg.norm(w) - 1e-9
    # the second form: stationarity of the constrained problem, P(XᵀX + λI)w = P(Y − XᵀX M†b)
    np.testing.assert_allclose(P @ V @ w, P @ right, rtol=1e-8, atol=1e-8)


@few
@given(sizes(), penalties, seeds)
def test_the_constraint_holds_whatever_is_observed(size, lam, seed):
    rng = np.random.default_rng(seed)
    d, L = size
    M = [rng.normal(size=(L, d)) for _ in range(2)]
    b = [rng.normal(size=L) for _ in range(2)]
    learner = sl.ProjectedOFUL(sl.SideInformation(M, b), regularization=lam, prior_mean=0.7)
    for _ in range(12):
        learner.observe(rng.normal(size=d), int(rng.integers(2)), float(rng.normal()))
    for a in range(2):
        slack = 1e-9 * (1.0 + np.linalg.norm(b[a])) * (1.0 + np.linalg.cond(M[a]) if L else 1.0)
        np.testing.assert_allclose(M[a] @ learner.weights_of(a), b[a], atol=slack)


@fewer
@given(sizes(lowest_hidden=1), penalties, seeds)
def test_the_index_is_the_maximum_over_the_confidence_set(size, lam, seed):
    """``estimate + width = max {x·w : Mw = b, ‖Uᵀ(w − ŵ)‖_Ṽ ≤ α√β}``, against a numerical maximisation."""
    rng = np.random.default_rng(seed)
    d, L = size
    M = rng.normal(size=(L, d))
    b = M @ rng.normal(size=d)
    learner = sl.ProjectedOFUL(
        sl.SideInformation([M], [b]), regularization=lam, noise=0.3, alpha=0.8, delta=0.2, weight_bound=1.7
    )
    V = lam * np.eye(d)
    history = []
    for _ in range(6):
        x = rng.normal(size=d)
        r = float(rng.normal())
        learner.observe(x, 0, r)
        history.append((x, 0, r))
        V += np.outer(x, x)
    _, U, _, _ = kernel_of(M, b)
    P = U @ U.T
    root_beta = 0.8 * reference.radius(
        "determinant",
        log_det=reference.log_det_in_kernel(V, P, d - L, lam),
        n=6,
        m=d - L,
        K=1,
        sigma=0.3,
        lam=lam,
        delta=0.2,
        S_x=1.0,
        S_w=1.7,
    )
    w_hat = learner.weights_of(0)
    x = rng.normal(size=d)
    # sphere coordinates: w = ŵ + U R⁻ᵀ u √β with Ṽ = RRᵀ; maximise over the ball numerically
    R = np.linalg.cholesky(U.T @ V @ U)
    shape = U @ np.linalg.inv(R).T

    def negative(u):
        length = np.linalg.norm(u)
        inside = u / max(length, 1.0)
        return -(x @ (w_hat + root_beta * shape @ inside))

    best = min(
        minimize(negative, start, method="BFGS", options={"gtol": 1e-9}).fun for start in rng.normal(size=(4, d - L))
    )
    estimates, widths = learner.scores(x)
    assert np.isclose(estimates[0] + widths[0], -best, rtol=1e-5, atol=1e-6)
    # and nothing in the set is above the index
    for u in rng.normal(size=(200, d - L)):
        w = w_hat + root_beta * shape @ (u / np.linalg.norm(u))
        assert x @ w <= estimates[0] + widths[0] + 1e-8 * (1.0 + abs(estimates[0]))
