"""Each formula against its literal computation, and each bound against what it bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, stats

from sidelight import theory
from sidelight.errors import InputError


def spectral(matrix):
    return linalg.svd(matrix, compute_uv=False, lapack_driver="gesvd")[0] if min(matrix.shape) else 0.0


def constraint(B):
    """M = [I, B], its pseudo-inverse, an orthonormal and the plain basis of its kernel."""
    L, m = B.shape
    M = np.hstack([np.eye(L), B])
    pseudo = M.T @ np.linalg.inv(M @ M.T)
    plain = np.vstack([-B, np.eye(m)])
    return M, pseudo, np.linalg.qr(plain)[0], plain


sizes = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**32 - 1), st.floats(0.01, 100.0))


# radii


def test_determinant_radius_is_its_formula_for_scalars_and_arms():
    ratio, delta = np.array([0.0, 3.5, 12.0]), 0.2 / 3
    expected = [math.sqrt(0.7**2 * (r + 2 * math.log(1 / delta)) + 4.2) for r in ratio]
    np.testing.assert_allclose(theory.determinant_radius(ratio, 0.7, delta, 4.2), expected, rtol=1e-14)
    assert theory.determinant_radius(3.5, 0.7, delta, 4.2) == pytest.approx(expected[1], rel=1e-14)


def test_printed_radius_is_its_formula():
    counts = np.array([0, 7, 500])
    expected = [math.sqrt(0.3) * 2.5 + 0.7 * math.sqrt(4 * math.log(6 * (1 + n * 1.5**2 / 0.3) / 0.1)) for n in counts]
    radius = theory.printed_radius(counts, 4, 0.7, 0.3, 1.5, 2.5, 0.1, 6)
    np.testing.assert_allclose(radius, expected, rtol=1e-14)


@given(sizes)
@settings(max_examples=30, deadline=None)
def test_determinant_ratio_of_the_plain_basis(size):
    """log det(Ṽ/λ) = log det(NᵀVN) − log det(I + BᵀB) − m log λ, the identity the docstring offers."""
    L, m, seed, regularization = size
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((L, m))
    X = rng.standard_normal((9, L + m))
    V = X.T @ X + regularization * np.eye(L + m)
    _, _, U, N = constraint(B)
    direct = np.linalg.slogdet(U.T @ V @ U / regularization)[1]
    plain = np.linalg.slogdet(N.T @ V @ N)[1] - np.linalg.slogdet(np.eye(m) + B.T @ B)[1]
    assert plain - m * math.log(regularization) == pytest.approx(direct, abs=1e-8)


def bias_factor(gram, regularization, basis, pseudo):
    """From what ``V`` is made of; bases and pseudo-inverses may be stacked."""
    projected = np.swapaxes(basis, -1, -2)
    S = projected @ (gram @ basis) + regularization * (projected @ basis)
    return theory.bias_factor(projected @ gram @ pseudo, np.linalg.inv(S))


@given(sizes)
@settings(max_examples=40, deadline=None)
def test_bias_factor_is_the_literal_norm_in_every_basis(size):
    L, m, seed, regularization = size
    rng = np.random.default_rng(seed)
    B = 2.0 * rng.standard_normal((L, m))
    X = rng.standard_normal((rng.integers(1, 12), L + m))
    _, pseudo, U, N = constraint(B)
    gram = X.T @ X
    tilde = U.T @ gram @ U + regularization * np.eye(m)
    literal = spectral(linalg.inv(linalg.sqrtm(tilde).real) @ U.T @ gram @ pseudo)
    for basis in (U, N, N @ (np.eye(m) + 0.3 * rng.random((m, m)))):
        assert bias_factor(gram, regularization, basis, pseudo) == pytest.approx(literal, rel=1e-7, abs=1e-9)
    stacked = bias_factor(np.stack([gram, 2 * gram]), regularization, np.stack([U, U]), np.stack([pseudo, pseudo]))
    assert stacked.shape == (2,)
    assert stacked[0] == pytest.approx(literal, rel=1e-7, abs=1e-9)
    # cumulative visitation: bounded by S_x√N, and by the printed bound
    S = np.linalg.norm(X, axis=1).max()
    assert literal <= theory.visitation_bound(len(X), S) * (1 + 1e-9)
    assert literal <= theory.printed_visitation_bound(len(X), m, S, regularization) * (1 + 1e-9)


def test_bias_factor_bounds_the_shift_of_the_estimate_and_is_attained(rng):
    L, m, regularization = 4, 3, 0.7
    X = rng.standard_normal((30, L + m))
    r = rng.standard_normal(30)
    _, pseudo, U, _ = constraint(rng.standard_normal((L, m)))
    b = rng.standard_normal(L)
    tilde = U.T @ X.T @ X @ U + regularization * np.eye(m)

    def estimate(coefficients):
        return np.linalg.solve(tilde, U.T @ X.T @ (r - X @ pseudo @ coefficients))

    factor = bias_factor(X.T @ X, regularization, U, pseudo)
    root = linalg.sqrtm(tilde).real
    for _ in range(20):
        error = rng.standard_normal(L)
        shift = root @ (estimate(b + error) - estimate(b))
        assert np.linalg.norm(shift) <= factor * np.linalg.norm(error) * (1 + 1e-9)
    worst = linalg.svd(linalg.inv(root) @ U.T @ X.T @ X @ pseudo, lapack_driver="gesvd")[2][0]
    shift = root @ (estimate(b + worst) - estimate(b))
    assert np.linalg.norm(shift) == pytest.approx(factor, rel=1e-8)


def test_bias_factor_without_constraint_or_without_kernel():
    assert bias_factor(np.eye(3), 1.0, np.zeros((3, 0)), np.eye(3)) == 0
    assert bias_factor(np.eye(3), 1.0, np.eye(3), np.zeros((3, 0))) == 0


def test_epoch_radius_adds_the_bias_and_the_printed_one_is_its_formula():
    plain = theory.determinant_radius(2.0, 0.5, 0.01, 0.3)
    factors = np.array([1.0, 4.0])
    np.testing.assert_allclose(
        theory.epoch_radius(plain, factors, 1.5, np.array([0.2, 0.1])),
        plain + factors * 1.5 * np.array([0.2, 0.1]),
    )
    t, m, sigma, lam, S, W, delta, K, error = 64, 3, 0.4, 0.2, 1.3, 0.8, 0.02, 5, 0.6
    expected = math.sqrt(lam) * W + (sigma + S * W * error * 8) * math.sqrt(
        m * math.log(K * (1 + t * S**2 / lam) / delta)
    )
    assert theory.printed_epoch_radius(t, m, sigma, lam, S, W, delta, K, matrix_error=error) == pytest.approx(expected)


@given(sizes)
@settings(max_examples=30, deadline=None)
def test_anchor_error_bounds_what_the_index_lacks(size):
    L, m, seed, _ = size
    rng = np.random.default_rng(seed)
    B, B_hat = rng.standard_normal((2, L, m))
    M, *_ = constraint(B)
    M_hat, pseudo, *_ = constraint(B_hat)
    w, x = rng.standard_normal((2, L + m))
    lacking = abs(x @ pseudo @ (M @ w - M_hat @ w))
    S_w, error = np.linalg.norm(w), spectral(M - M_hat)
    assert lacking <= theory.anchor_error(np.linalg.norm(x), S_w, error) * (1 + 1e-9)


def test_refreshes_spend_delta_and_no_more():
    spent = sum(2 * 7 * 3 * theory.refresh_confidence(0.1, 7, 3, k) for k in range(1, 2000))
    assert 0.0999 < spent < 0.1
    with pytest.raises(InputError, match="counted from 1"):
        theory.refresh_confidence(0.1, 7, 3, 0)


def test_log_error_radius_is_the_chi_quantile():
    np.testing.assert_allclose(
        theory.log_error_radius(np.array([0, 1, 25]), 0.01),
        [0, *np.sqrt(stats.chi2.ppf(0.99, [1, 25]))],
        rtol=1e-10,
    )


@pytest.mark.parametrize("tail", [0.5, 0.05, 1e-3, 1e-7])
@pytest.mark.parametrize("first", [1, 3, 40])
def test_quantiles(first, tail):
    assert theory.chi_square_quantile(float(first), tail) == pytest.approx(stats.chi2.isf(tail, first), rel=1e-10)
    for second in (1.0, 2.5, 30.0, 1e6):
        x = theory.f_quantile(float(first), second, tail)
        assert theory.f_tail(x, float(first), second) == pytest.approx(tail, rel=1e-9)
        # SciPy takes 1 − (1 − tail), which leaves nine digits of 1e-7
        assert x == pytest.approx(stats.f.isf(tail, first, second), rel=1e-8)


@pytest.mark.parametrize("tail", [1e-12, 1e-30])
def test_quantiles_where_the_first_step_leaves_the_range_of_numbers(tail):
    assert stats.chi2.sf(theory.chi_square_quantile(3000.0, tail), 3000) == pytest.approx(tail, rel=1e-9)
    assert theory.f_tail(theory.f_quantile(3000.0, 1e6, tail), 3000.0, 1e6) == pytest.approx(tail, rel=1e-9)


def test_few_observations_cost_what_f_and_hotelling_say(rng):
    """Monte Carlo of the definition: 20,000 draws tell 5 % to 0.15 %; six deviations are allowed."""
    L, nu, delta, n = 3, 9, 0.05, 20_000
    xi, limit = rng.normal(size=(n, L)), stats.chi2.isf(delta, L)
    variance = rng.chisquare(nu, size=n) / nu
    exceeded = np.square(xi).sum(axis=1) / variance > limit * theory.scarcity_factor(L, nu, delta)
    assert abs(exceeded.mean() - delta) < 0.01
    Z = rng.normal(size=(n, nu, L))
    C = np.einsum("nki,nkj->nij", Z, Z) / nu
    squares = np.einsum("ni,ni->n", xi, np.linalg.solve(C, xi[:, :, None])[:, :, 0])
    exceeded = squares > limit * theory.scarcity_factor(L, nu, delta, matrix=True)
    assert abs(exceeded.mean() - delta) < 0.01
    np.testing.assert_allclose(theory.scarcity_factor(L, np.array([1e9, 1e12]), delta), 1.0, atol=1e-5)
    assert theory.scarcity_factor(0, np.array([3.0, -1.0]), delta).tolist() == [1.0, 1.0]
    # fewer than one, or for a matrix than L, count as that many
    assert theory.scarcity_factor(L, -4.0, delta) == theory.scarcity_factor(L, 1.0, delta)
    assert theory.scarcity_factor(L, 0.5, delta, matrix=True) == theory.scarcity_factor(L, L, delta, matrix=True)
    with pytest.raises(InputError, match="at least 0"):
        theory.scarcity_factor(-1, 3.0, delta)


# the error of the estimated constraint


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.integers(1, 20), st.integers(1, 20), st.floats(1e-6, 0.5))
def test_matrix_bernstein_is_where_the_tail_bound_falls_to_delta(variance, bound, rows, columns, delta):
    epsilon = theory.matrix_bernstein(variance, bound, rows, columns, delta)
    tail = (rows + columns) * np.exp(-(epsilon**2) / 2 / (variance + bound * epsilon / 3))
    assert tail <= delta * (1 + 1e-9)
    smaller = 0.7 * epsilon  # and not much further
    assert (rows + columns) * np.exp(-(smaller**2) / 2 / (variance + bound * smaller / 3)) > delta


def moments_of(rng, n_arms, n_recorded):
    X = rng.standard_normal((n_arms, 40, n_recorded))
    return np.einsum("kni,knj->kij", X, X) / 40


def test_cross_moment_constants_are_their_formulas(rng):
    R11, shares, traces = moments_of(rng, 3, 2), np.array([0.5, 0.4, 0.1]), np.array([0.3, 0.2, 0.9])
    S1, S2, d, delta, horizon = 1.7, 0.9, 5, 0.1, 1000
    leading, second = theory.cross_moment_constants(R11, shares, S1, S2, d, delta, horizon, traces)
    logarithm = math.log(2 * d * 3 * 10 / delta)  # ten episodes: 2^10 ≥ 1000
    for a in range(3):
        inverse = spectral(np.linalg.inv(R11[a]))
        inner = 2 * S1 * S2 * math.sqrt(np.trace(R11[a]) * traces[a]) * logarithm / shares[a]
        assert leading[a] == pytest.approx(inverse * math.sqrt(inner))
        assert second[a] == pytest.approx(4 / 3 * inverse * S1 * S2 * logarithm / shares[a])
    without = theory.cross_moment_constants(R11, shares, S1, S2, d, delta, horizon)
    np.testing.assert_allclose(without.leading, leading * (S2**2 / traces) ** 0.25, rtol=1e-12)
    np.testing.assert_allclose(theory.delta_m(without, 64.0), without.leading / 8 + without.second_order / 64)


def test_printed_constants_differ_in_the_four_ways_named(rng):
    R11 = np.stack([np.diag([0.5, 0.25])] * 4)
    shares = np.full(4, 0.25)
    traces = np.full(4, 0.4)
    logarithm = math.log(5 / 0.1)
    leading, second = theory.printed_cross_moment_constants(R11, shares, 1.0, 1.0, 5, 0.1, traces)
    assert leading == pytest.approx(4 / 0.25 * math.sqrt(2 * math.sqrt(0.75 * 0.4) * logarithm))
    assert second == pytest.approx(0.75 * 4 / 0.25 * logarithm)
    right = theory.cross_moment_constants(R11, shares, 1.0, 1.0, 5, 0.1, 2**6, traces)
    union = math.log(2 * 5 * 4 * 6 / 0.1)
    assert right.leading[0] / leading == pytest.approx(0.5 * math.sqrt(union / logarithm))  # √P(a) = ½
    assert right.second_order[0] / second == pytest.approx((4 / 3) / (3 / 4) * union / logarithm)


def test_constants_refuse_an_arm_the_log_lacks(rng):
    R11 = moments_of(rng, 2, 2)
    with pytest.raises(InputError, match="arm 1 has share 0"):
        theory.cross_moment_constants(R11, np.array([1.0, 0.0]), 1, 1, 3, 0.1, 10)
    with pytest.raises(InputError, match=r"pass R11 \(K, L, L\)"):
        theory.cross_moment_constants(R11[0], np.array([1.0, 0.0]), 1, 1, 3, 0.1, 10)


@given(sizes, st.floats(1e-4, 30.0))
@settings(max_examples=150, deadline=None)
def test_error_propagation_with_the_constant_one(size, scale):
    L, m, seed, spread = size
    rng = np.random.default_rng(seed)
    B = spread * rng.standard_normal((L, m)) * rng.choice([0.0, 0.01, 1.0])
    B_hat = B + scale * rng.standard_normal((L, m))
    M, pseudo, U, _ = constraint(B)
    M_hat, pseudo_hat, U_hat, _ = constraint(B_hat)
    w = rng.standard_normal(L + m)
    bound = theory.error_propagation(spectral(M - M_hat), np.linalg.norm(w))
    slack = 1 + 1e-7
    assert spectral(U @ U.T - U_hat @ U_hat.T) <= bound.projection * slack
    assert spectral(pseudo - pseudo_hat) <= bound.pseudo_inverse * slack
    assert np.linalg.norm(M @ w - M_hat @ w) <= bound.coefficients * slack
    assert spectral(pseudo) <= 1 + 1e-9


def test_error_propagation_cannot_have_a_smaller_constant():
    F = 1e-4 * np.array([[1.0, 0.0], [0.0, 0.3]])
    _, pseudo, U, _ = constraint(np.zeros((2, 2)))
    _, pseudo_hat, U_hat, _ = constraint(F)
    assert spectral(U @ U.T - U_hat @ U_hat.T) > 0.999 * spectral(F)
    assert spectral(pseudo - pseudo_hat) > 0.999 * spectral(F)


def test_the_paper_s_norm_of_the_pseudo_inverse_needs_the_identity_block():
    M = np.array([[0.1, 0.0]])
    assert spectral(M.T @ np.linalg.inv(M @ M.T)) > 1


# potentials


@given(st.integers(1, 5), st.integers(1, 60), st.integers(0, 2**32 - 1), st.floats(0.001, 100.0), st.floats(0.1, 5))
@settings(max_examples=60, deadline=None)
def test_elliptical_potential(m, rounds, seed, regularization, S):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rounds, m))
    X *= S / np.linalg.norm(X, axis=1, keepdims=True)
    V = regularization * np.eye(m)
    before = after = 0.0
    for x in X:
        before += min(x @ np.linalg.solve(V, x), 1.0)
        V += np.outer(x, x)
        after += x @ np.linalg.solve(V, x)
    bound = theory.elliptical_potential_bound(rounds, m, S, regularization)
    assert before <= bound * (1 + 1e-9)
    assert after <= bound / 2 * (1 + 1e-9)


def test_the_printed_elliptical_potential_is_no_bound():
    regularization, S, m, rounds = 0.01, 1.0, 1, 1
    assert min(S**2 / regularization, 1) > 2 * m * math.log(regularization + rounds * S**2 / m)
    assert theory.elliptical_potential_bound(rounds, m, S, regularization) >= 1
    assert (theory.elliptical_potential_bound(np.array([5, 6]), 0, S, regularization) == 0).all()


# regret


def test_theorem_one_is_its_formula_and_needs_no_assumption_on_scale():
    T, K, m, sigma, lam, S, W, delta = 5000, 7, 3, 0.4, 0.2, 1.5, 2.0, 0.1
    beta = sigma**2 * (m * math.log(1 + T * S**2 / (m * lam)) + 2 * math.log(K / delta)) + lam * W**2
    potential = T * m * K * math.log(1 + T * S**2 / (m * K * lam))
    expected = 2 * math.sqrt(2) * max(math.sqrt(beta), S * W) * math.sqrt(potential)
    assert theory.projected_regret_bound(T, K, m, sigma, lam, S, W, delta) == pytest.approx(expected)
    assert theory.projected_regret_bound(T, K, 0, sigma, lam, S, W, delta) == 0
    curve = theory.projected_regret_bound(np.array([10, 100, 1000]), K, m, sigma, lam, S, W, delta)
    assert (np.diff(curve) > 0).all()
    # without noise the radius falls below 1, where the printed proof breaks: S_xS_w stands in
    tiny = theory.projected_regret_bound(T, K, m, 0.0, 1e-6, S, W, delta)
    assert tiny == pytest.approx(2 * S * W * math.sqrt(2 * T * m * K * math.log(1 + T * S**2 / (m * K * 1e-6))))


def test_printed_theorem_one_is_its_formula():
    T, K, m, sigma, lam, S, W, delta = 5000, 7, 3, 0.4, 0.2, 1.5, 2.0, 0.1
    radius = math.sqrt(lam) * W + sigma * math.sqrt(m * math.log(K * (1 + T * S**2 / lam) / delta))
    expected = 2 * math.sqrt(T) * radius * math.sqrt(m * K * math.log(lam + T * S**2 / (m * K)))
    assert theory.printed_projected_regret_bound(T, K, m, sigma, lam, S, W, delta) == pytest.approx(expected)


@pytest.mark.filterwarnings("error")
def test_printed_theorem_one_at_its_edges():
    """Nothing to learn costs nothing, in print too; where the printed logarithm is negative there is no number."""
    horizons = np.array([1, 100, 10_000])
    np.testing.assert_array_equal(theory.printed_projected_regret_bound(horizons, 7, 0, 0.3), [0, 0, 0])
    np.testing.assert_array_equal(theory.projected_regret_bound(horizons, 7, 0, 0.3), [0, 0, 0])
    printed = theory.printed_projected_regret_bound(horizons, 7, 5, 0.3, regularization=0.1)
    assert np.isnan(printed).tolist() == [True, False, False]


@pytest.mark.parametrize("name", ["delta_m", "largest_radius", "episode_lengths"])
def test_what_differs_from_the_print_is_said(name):
    assert "Differs from the print" in getattr(theory, name).__doc__


@given(st.integers(1, 20_000))
def test_episodes_cover_the_horizon_and_their_roots_sum_to_at_most_the_constant(horizon):
    lengths = theory.episode_lengths(horizon)
    assert 1 + sum(lengths) == horizon
    assert lengths[:-1] == [2**n for n in range(len(lengths) - 1)]
    assert all(length <= 2**n for n, length in enumerate(lengths))
    assert len(lengths) <= theory.episode_count(horizon)
    assert sum(math.sqrt(length) for length in lengths) <= math.sqrt(4 + 2 * math.sqrt(2)) * math.sqrt(horizon)


def test_powers_of_two_have_the_smaller_constant():
    for exponent in range(1, 15):
        total = sum(math.sqrt(length) for length in theory.episode_lengths(2**exponent))
        assert total == pytest.approx((1 + math.sqrt(2)) * (math.sqrt(2**exponent) - 1))
    assert 2 * math.sqrt(2) * (1 + math.sqrt(2)) == pytest.approx(6.83, abs=0.005)
    assert 2 * math.sqrt(2) * math.sqrt(4 + 2 * math.sqrt(2)) == pytest.approx(7.39, abs=0.005)
    with pytest.raises(InputError, match="at least one round"):
        theory.episode_count(0)


@given(st.integers(2, 10**6), st.floats(0, 50), st.floats(0, 50), st.floats(0.01, 10), st.floats(0.05, 3))
@settings(max_examples=60, deadline=None)
def test_theorem_two_summed_is_at_most_its_closed_form(horizon, leading, second, lam, scale):
    constants = theory.CrossMomentConstants(np.array([leading, leading / 2]), np.array([second / 3, second]))
    arguments = (horizon, 5, 3, constants, 0.3, lam, scale, 1.2)
    exact, closed = (theory.epoch_regret_bound(*arguments, delta=0.1, closed_form=form) for form in (False, True))
    assert exact <= closed * (1 + 1e-9)


def test_theorem_two_with_an_exact_constraint_is_theorem_one_by_episodes():
    none = theory.CrossMomentConstants(np.zeros(4), np.zeros(4))
    exact = theory.epoch_regret_bound(1000, 4, 3, none, 0.3, 0.5, 1.1, 0.9, delta=0.1)
    parts = [
        theory.projected_regret_bound(n, 4, 3, 0.3, 0.5, 1.1, 0.9, 0.1 / (2 * 10)) for n in theory.episode_lengths(1000)
    ]
    assert exact == pytest.approx(sum(parts) + 2 * 1.1 * 0.9)


def test_theorem_two_is_never_below_oful_in_the_paper_s_setting():
    """One of the claims that do not hold: with uniform shares and isotropic contexts on the sphere."""
    d = K = 30
    for L in (5, 15, 25):
        for horizon in (10**3, 10**5, 10**7):
            R11 = np.broadcast_to(np.eye(L) / d, (K, L, L))
            bounds = np.sqrt(L / d), np.sqrt((d - L) / d)
            constants = theory.cross_moment_constants(R11, np.full(K, 1 / K), *bounds, d, 0.05, horizon)
            ours = theory.epoch_regret_bound(horizon, K, d - L, constants, 0.05)
            assert ours > theory.projected_regret_bound(horizon, K, d, 0.05)


# what a log is worth


def test_finite_log_penalty_literally_and_in_the_mean(rng):
    _, pseudo, *_ = constraint(rng.standard_normal((3, 2)))
    error = rng.standard_normal(3)
    assert theory.finite_log_penalty(1000, 1.5, pseudo, error) == pytest.approx(
        1000 * 1.5 * np.linalg.norm(pseudo @ error)
    )
    root = rng.standard_normal((3, 3))
    rms = theory.finite_log_penalty(1.0, 1.0, pseudo, covariance=root @ root.T)
    assert rms == pytest.approx(np.linalg.norm(pseudo @ root))
    draws = rng.standard_normal((200_000, 3)) @ root.T
    norms = theory.finite_log_penalty(1.0, 1.0, np.broadcast_to(pseudo, (200_000, 5, 3)), draws)
    assert np.sqrt((norms**2).mean()) == pytest.approx(rms, rel=0.02)  # about 7 standard errors
    with pytest.raises(InputError, match="either"):
        theory.finite_log_penalty(1.0, 1.0, pseudo)
    with pytest.raises(InputError, match="either"):
        theory.finite_log_penalty(1.0, 1.0, pseudo, error, np.eye(3))


def test_equivalent_rounds_inverts_the_information(rng):
    X = rng.standard_normal((50, 4))
    moments = X.T @ X / 50
    assert theory.equivalent_rounds(37.5 * moments, moments, 0.3) == pytest.approx(37.5, rel=1e-9)
    assert theory.equivalent_rounds(np.zeros((4, 4)), moments, 0.3) == 0
    # a log that knows one direction of four perfectly is worth finitely many rounds, more the better it knows
    worth = [theory.equivalent_rounds(np.diag([c, 0, 0, 0]), np.eye(4), 1.0) for c in (1e2, 1e4, 1e8)]
    assert worth == pytest.approx([(1 + c) ** 0.25 - 1 for c in (1e2, 1e4, 1e8)])
    with pytest.raises(InputError, match="zero"):
        theory.equivalent_rounds(np.eye(2), np.zeros((2, 2)), 1.0)


@pytest.mark.parametrize("delta", [0.0, -0.1, 1.5, float("nan")])
def test_a_probability_of_failure_must_be_one(delta):
    with pytest.raises(InputError, match="probability of failure"):
        theory.determinant_radius(1.0, 1.0, delta, 1.0)
