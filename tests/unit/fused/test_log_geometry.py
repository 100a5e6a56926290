"""``LogGeometry.evidence`` against explicit inverses, and where there are none to take."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import sidelight as sl
from sidelight.side.evidence import LogGeometry, hidden_variance

K, L, M = 3, 3, 2


class Given:
    """An estimator of the hidden half whose ``B`` and ``A`` are given."""

    needs = None
    n_answers = 0

    def __init__(self, summary, B, A):
        self.summary, self.B, self.A = summary, B, A

    def observe(self, x, answer, /, probability=1.0):
        pass

    def regression(self):
        return self.B

    def precision(self):
        return self.A

    def residual_moments(self):
        return np.broadcast_to(np.eye(self.B.shape[2]), (len(self.B), self.B.shape[2], self.B.shape[2]))

    def bound(self, delta, horizon, context_bound=1.0):
        return np.zeros(len(self.B))

    def copy(self):
        return self


def make(rng, rows=(40, 25, 60), scales=(1.0, 1.0, 1.0), answers=(12, 9, 15), intercept=False):
    """A log with the given rows per arm, and ``A`` of so many answers; with an intercept it is the first feature."""
    arms = np.repeat(np.arange(K), rows)
    X = (rng.normal(size=(len(arms), L)) + 0.4) * np.asarray(scales)
    names = [f"x{j}" for j in range(intercept, L + M)]
    schema = sl.Schema(names, names[: L - intercept], arms=range(K), intercept=intercept)
    X[:, :intercept] = 1.0
    summary = sl.LogSummary.from_arrays(X, arms, rng.normal(size=len(arms)) + X[:, 0], schema)
    A = np.zeros((K, L, L))
    for a, n in enumerate(answers):
        Z = (rng.normal(size=(n, L)) + 0.4) * np.asarray(scales)
        A[a] = Z.T @ Z
    return Given(summary, rng.normal(size=(K, L, M)), A)


def explicit(hidden, a, tau2, s2, A=None):
    """``M̂ᵀ(s²G⁻¹ + τ²A⁻¹)⁻¹M̂`` and the same with ``b``."""
    G, g = hidden.summary.grams[a], hidden.summary.cross[a]
    C = s2[a] * np.linalg.inv(G)
    if A is not None:
        C = C + tau2[a] * np.linalg.inv(A[a])
    Lambda = np.linalg.inv(C)
    Mhat = np.hstack([np.eye(L), hidden.B[a]])
    return Mhat.T @ Lambda @ Mhat, Mhat.T @ Lambda @ (np.linalg.inv(G) @ g), Lambda


TAU2, S2 = np.array([0.3, 0.02, 1.1]), np.array([0.5, 1.7, 1.2])


@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (1e-6, 1.0, 1e5)], ids=["alike", "units far apart"])
def test_against_explicit_inverses(rng, scales):
    hidden = make(rng, scales=scales)
    evidence = LogGeometry(hidden).evidence(TAU2, S2)
    for a in range(K):
        J, h, Lambda = explicit(hidden, a, TAU2, S2, hidden.A)
        np.testing.assert_allclose(evidence.J[a], J, rtol=1e-7, atol=1e-9 * np.abs(J).max())
        np.testing.assert_allclose(evidence.h[a], h, rtol=1e-7, atol=1e-9 * np.abs(h).max())
        np.testing.assert_allclose(evidence.precision[a], Lambda, rtol=1e-7, atol=1e-9 * np.abs(Lambda).max())


def test_exact_regression_leaves_the_logs_own_error_alone(rng):
    hidden = make(rng)
    hidden.A = None
    evidence = LogGeometry(hidden).evidence(TAU2, S2)
    for a in range(K):
        J, h, _ = explicit(hidden, a, TAU2, S2, None)
        np.testing.assert_allclose(evidence.J[a], J, rtol=1e-8)
        np.testing.assert_allclose(evidence.h[a], h, rtol=1e-8)


def test_too_few_rows_say_something_about_few_directions(rng):
    """Arm 0 has no row, arm 1 two rows for three features: ``Λ = A(τ²G + s²A)⁺G`` by pseudo-inverse."""
    hidden = make(rng, rows=(0, 2, 60))
    evidence = LogGeometry(hidden).evidence(TAU2, S2)
    assert not evidence.J[0].any()
    assert not evidence.h[0].any()
    G, g, A = hidden.summary.grams[1], hidden.summary.cross[1], hidden.A[1]
    inner = np.linalg.inv(TAU2[1] * G + S2[1] * A)
    np.testing.assert_allclose(evidence.precision[1], A @ inner @ G, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(evidence.target[1], A @ inner @ g, rtol=1e-7, atol=1e-9)
    assert np.linalg.matrix_rank(evidence.precision[1], tol=1e-8) == 2
    J, _, _ = explicit(hidden, 2, TAU2, S2, hidden.A)
    np.testing.assert_allclose(evidence.J[2], J, rtol=1e-7)


def test_too_few_answers_leave_directions_open(rng):
    """``A`` of rank one (arm 0) or zero (arm 1): in directions without answers the log says nothing."""
    hidden = make(rng, answers=(1, 0, 20))
    evidence = LogGeometry(hidden).evidence(TAU2, S2)
    G, A = hidden.summary.grams[0], hidden.A[0]
    expected = A @ np.linalg.pinv(TAU2[0] * G + S2[0] * A) @ G
    # by the limit: one answer in direction z leaves zzᵀ/(τ² + s² zᵀG⁻¹z)
    z = np.linalg.eigh(A)[1][:, -1] * np.sqrt(np.linalg.eigvalsh(A)[-1])
    limit = np.outer(z, z) / (TAU2[0] + S2[0] * z @ np.linalg.solve(G, z))
    assert expected.shape == limit.shape
    np.testing.assert_allclose(evidence.precision[0], limit, rtol=1e-5, atol=1e-7 * np.abs(limit).max())
    assert np.abs(evidence.precision[1]).max() < 1e-6 * np.abs(G).max()


def test_a_recorded_column_that_the_log_never_saw_does_not_touch_the_others(rng):
    """Zero in every row of the log (a rare category), not zero in the answers."""
    hidden = make(rng, scales=(1.0, 0.0, 1.0))
    hidden.A = make(rng).A
    evidence = LogGeometry(hidden).evidence(TAU2, S2)
    for a in range(K):
        G, A = hidden.summary.grams[a], hidden.A[a]
        expected = A @ np.linalg.inv(TAU2[a] * G + S2[a] * A) @ G
        np.testing.assert_allclose(evidence.precision[a], expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_an_empty_log_says_nothing_however_many_answers(rng, scale):
    hidden = make(rng, rows=(0, 0, 0), answers=(50, 0, 400))
    hidden.A = hidden.A * scale**2
    evidence = LogGeometry(hidden).evidence(TAU2, S2)
    assert not evidence.J.any()
    assert not evidence.h.any()


def test_an_infinite_variance_says_nothing(rng):
    hidden = make(rng)
    s2 = np.array([np.inf, 1.7, np.inf])
    evidence = LogGeometry(hidden).evidence(TAU2, s2)
    assert not evidence.J[[0, 2]].any()
    assert not evidence.h[[0, 2]].any()
    np.testing.assert_allclose(evidence.J[1], explicit(hidden, 1, TAU2, s2, hidden.A)[0], rtol=1e-7)


def test_the_sandwich_is_the_covariance_of_the_coefficients(rng):
    """With a tenth of the classical meat mixed in: ``s²G'⁻¹ = G⁻¹NG⁻¹``, and ``b`` stays where it was."""
    hidden = make(rng)
    hidden.A = None
    s2 = np.array(hidden.summary.residual_variances)
    meat = np.array([G @ np.diag([1.0, 3.0, 0.2]) for G in hidden.summary.grams])
    meat = meat @ np.swapaxes(meat, 1, 2)
    evidence = LogGeometry(hidden, meat).evidence(np.zeros(K), s2)
    for a in range(K):
        G, g = hidden.summary.grams[a], hidden.summary.cross[a]
        N = 0.9 * meat[a] + 0.1 * s2[a] * G
        C = np.linalg.inv(G) @ N @ np.linalg.inv(G)
        np.testing.assert_allclose(evidence.precision[a], np.linalg.inv(C), rtol=1e-7)
        np.testing.assert_allclose(np.linalg.solve(evidence.precision[a], evidence.target[a]), np.linalg.solve(G, g))


@pytest.mark.parametrize("kind", ["sandwich", "log_error"])
def test_rewards_that_are_explained_but_for_rounding_have_the_least_noise(rng, kind):
    """Whatever rounding makes of residuals: with a larger ``s²`` the log is as one whose rewards have that noise."""
    hidden = make(rng)
    hidden.A = None
    X, arms = rng.normal(size=(80, L)), np.arange(80) % K
    least = np.full(K, 1e-7)
    for rounding in (0.0, 1e-16, 1e-15):
        rewards = X @ np.array([1.0, -2.0, 0.5]) + rounding * rng.normal(size=80)
        hidden.summary = sl.LogSummary.from_arrays(X, arms, rewards, hidden.summary.schema)
        meat = np.asarray(hidden.summary.residual_variances)[:, None, None] * hidden.summary.grams
        geometry = LogGeometry(hidden, meat if kind == "sandwich" else None, least)
        error = None if kind == "sandwich" else 2.0 * least[:, None, None] * hidden.summary.grams
        geometry.renew(error)
        # without a sandwich what B̂ errs by is twice as much on top of it
        expected = hidden.summary.grams / least[:, None, None] / (1.0 if kind == "sandwich" else 3.0)
        np.testing.assert_allclose(geometry.evidence(np.zeros(K), least).precision, expected, rtol=1e-9)


def test_no_recorded_feature_at_all(rng):
    schema = sl.Schema.for_arrays(2, recorded=0, n_arms=2)
    summary = sl.LogSummary.from_arrays(np.zeros((4, 0)), [0, 1, 0, 1], np.ones(4), schema)
    evidence = LogGeometry(Given(summary, np.zeros((2, 0, 2)), np.zeros((2, 0, 0)))).evidence(np.ones(2), np.ones(2))
    assert evidence.J.shape == (2, 2, 2)
    assert not evidence.J.any()


def test_more_hidden_variance_or_noise_never_means_more_evidence(rng):
    hidden = make(rng)
    geometry = LogGeometry(hidden)
    base = geometry.evidence(TAU2, S2).J
    for tau2, s2 in ((TAU2 * 1.5, S2), (TAU2, S2 * 1.5), (TAU2 + 1.0, S2 + 2.0)):
        gap = base - geometry.evidence(tau2, s2).J
        assert np.linalg.eigvalsh(gap).min() > -1e-9 * np.abs(base).max()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_marginals_are_the_density_of_the_rewards(rng, exact, intercept):
    """For the prior that log and ``J0`` make together, up to what the log's ``s²`` does not change; infinite included.

    Arm 0 has fewer rows than features.
    """
    d, n, sigma = L + M, 6, 0.5
    hidden = make(rng, rows=(2, 25, 60), intercept=intercept)
    hidden.A = None if exact else hidden.A
    X, r = rng.normal(size=(K, n, d)), rng.normal(size=(K, n))
    grams, moments = np.einsum("kni,knj->kij", X, X), np.einsum("kni,kn->ki", X, r)
    J0 = np.array([(R := rng.normal(size=(d, d))) @ R.T + 0.3 * np.eye(d) for _ in range(K)])
    h0 = rng.normal(size=(K, d))
    geometry, s2 = LogGeometry(hidden), np.array([S2, 30.0 * S2, np.full(K, np.inf)])
    sizes = geometry.direction_sizes(S2, (10.0, 0.3))
    assert sizes.shape == (K, 2 * L)
    ours, gains = geometry.marginals((J0, h0), (grams, moments), sigma**2, geometry.frozen(TAU2, s2), sizes)

    def density(evidence, a):
        P, moment = J0[a] + evidence.J[a], h0[a] + evidence.h[a]
        covariance = X[a] @ np.linalg.solve(P, X[a].T) + sigma**2 * np.eye(n)
        return multivariate_normal(X[a] @ np.linalg.solve(P, moment), covariance).logpdf(r[a])

    theirs = np.array([[density(geometry.evidence(TAU2, row), a) for a in range(K)] for row in s2])
    np.testing.assert_allclose(np.diff(ours, axis=0), np.diff(theirs, axis=0), rtol=1e-7, atol=1e-7)
    # a bias in one direction alone
    for j in range(2 * L):
        U = (np.sqrt(sizes[:, j])[:, None] * geometry.directions[:, j % L])[:, :, None]
        biased = geometry.evidence(TAU2, S2, U)
        found = [density(biased, a) - theirs[0, a] for a in range(1, K)]
        np.testing.assert_allclose(gains[j, 1:], found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("exact", [False, True])
def test_a_bias_adds_its_covariance(rng, exact):
    """``C = s²G⁻¹ + τ²A⁻¹ + UUᵀ``; where ``B̂`` has no error a millionth of ``s²G⁻¹`` takes its place."""
    hidden = make(rng)
    A, hidden.A = hidden.A, None if exact else hidden.A
    U = rng.normal(size=(K, L, 2))
    evidence = LogGeometry(hidden).evidence(TAU2, S2, U)
    for a in range(K):
        G, g = hidden.summary.grams[a], hidden.summary.cross[a]
        C = S2[a] * np.linalg.inv(G) + U[a] @ U[a].T + (0.0 if exact else TAU2[a] * np.linalg.inv(A[a]))
        np.testing.assert_allclose(np.linalg.inv(evidence.precision[a]), C, rtol=1e-4, atol=1e-8)
        np.testing.assert_allclose(
            np.linalg.solve(evidence.precision[a], evidence.target[a]), np.linalg.solve(G, g), rtol=1e-6
        )


def test_a_geometry_takes_further_answers(rng):
    hidden, later = make(rng), make(rng, answers=(40, 30, 50))
    geometry = LogGeometry(hidden)
    hidden.A, hidden.B = later.A, later.B
    geometry.renew()
    np.testing.assert_array_equal(geometry.evidence(TAU2, S2).J, LogGeometry(hidden).evidence(TAU2, S2).J)


def test_hidden_variance_is_the_expected_quadratic_form(rng):
    """``E[wᵀΣw]`` for ``w ~ N(m, C)``, by a sum over sigma points; capped."""
    m = 2
    Sigma, C = np.empty((K, m, m)), np.empty((K, m, m))
    for a in range(K):
        Sigma[a], C[a] = (S := rng.normal(size=(m, m))) @ S.T, (R := rng.normal(size=(m, m))) @ R.T
    means = rng.normal(size=(K, m))
    expected = []
    for a in range(K):
        root = np.linalg.cholesky(C[a])
        points = [means[a] + sign * np.sqrt(m) * root[:, i] for i in range(m) for sign in (1.0, -1.0)]
        expected.append(np.mean([w @ Sigma[a] @ w for w in points]))
    # among more arms and features than the log has, in another order
    arms, hidden, variance = np.array([3, 0, 2])[:K], np.array([4, 1]), 2.5
    weights, covariances = rng.normal(size=(5, 6)), rng.normal(size=(5, 6, 6))
    weights[np.ix_(arms, hidden)], covariances[np.ix_(arms, hidden, hidden)] = means, C / variance
    everything = (Sigma, weights, covariances, variance, arms, hidden)
    np.testing.assert_allclose(hidden_variance(*everything, np.full(K, np.inf)), expected, rtol=1e-10)
    np.testing.assert_allclose(hidden_variance(*everything, np.full(K, 0.01)), 0.01)


def test_derived_features_in_the_log_keep_what_hidden_ones_may_explain():
    """With bends of no effect the log must not talk itself into hidden weights of zero: ``τ² ≥ ½s²`` there."""
    rng = np.random.default_rng(3)
    n = 4_000
    x, y = rng.normal(size=(2, n))
    arm = (y + rng.normal(size=n) > 0).astype(int)
    log = {"x": x, "arm": arm, "reward": x + (2 * arm - 1) * y + 0.3 * rng.normal(size=n)}
    for derived, floor in (([sl.Spline("x", knots=[-1.5, -0.5, 0.5, 1.5])], 0.5), ([], 0.0)):
        schema = sl.Schema(["x", "y"], ["x"], arms=[0, 1], intercept=True, derived=derived)
        learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(log, schema)))
        for t in range(60):
            context = {"x": float(x[t]), "y": float(y[t])}
            learner.observe_behavior(context, int(arm[t]))
            learner.observe(context, int(arm[t]), float(x[t]))  # as if the hidden feature had no effect
        log_of = learner.logs[0]
        assert (log_of.tau2 >= floor * log_of.s2 * (1 - 1e-12)).all()
        if not derived:
            assert (log_of.tau2 < 0.5 * log_of.s2).any()
