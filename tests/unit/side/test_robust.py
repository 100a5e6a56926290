"""The answers' half of the sandwich: what it must be in the two cases that are plain, and in every unit."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.side.robust import Sandwich

L, K = 3, 2


@pytest.fixture
def log(rng) -> sl.LogSummary:
    """Two arms, 200 rows each, residuals that grow with the second feature."""
    X = rng.normal(size=(400, L)) @ rng.normal(size=(L, L)) + 0.5
    arms = np.arange(400) % K
    r = X @ rng.normal(size=L) + (0.3 + np.square(X[:, 1])) * rng.normal(size=400)
    return sl.summarize_log((X, arms, r), sl.Schema.for_arrays(L + 2, recorded=L, n_arms=K), sandwich=True)


def some_answers(rng) -> np.ndarray:
    roots = rng.normal(size=(K, L, 40))
    return roots @ np.swapaxes(roots, 1, 2)


def covariance(sandwich: Sandwich, A, tau2, s2, whole) -> np.ndarray:
    return tau2[:, None, None] * np.linalg.inv(sandwich.of_answers(A, tau2, s2, whole))


@pytest.mark.parametrize("whole", [True, False])
def test_even_residuals_give_the_classical_half(rng, log, whole):
    s2 = np.asarray(log.residual_variances)
    tau2 = s2 if whole else 0.3 * s2
    sandwich, A = Sandwich(log, s2[:, None, None] * log.grams, s2), some_answers(rng)
    np.testing.assert_allclose(sandwich.of_answers(A, tau2, s2, whole), A, rtol=1e-9)


def test_answers_like_the_log_have_its_squared_residuals(rng, log):
    """With ``A = cR11`` the middle is ``cW``."""
    s2, c = np.asarray(log.residual_variances), 37.0
    sandwich, A = Sandwich(log, log.meat, log.residual_variances), c * np.asarray(log.second_moments)
    W = sandwich.middle / log.counts[:, None, None]
    expected = np.linalg.inv(A) @ (c * W) @ np.linalg.inv(A)
    np.testing.assert_allclose(covariance(sandwich, A, s2, s2, True), expected, rtol=1e-9)


def test_the_split_lies_between_what_is_known_to_be_hidden_and_all_of_it(rng, log):
    s2, A = np.asarray(log.residual_variances), some_answers(rng)
    sandwich = Sandwich(log, log.meat, log.residual_variances)
    most = covariance(sandwich, A, s2, s2, True)
    before = np.zeros_like(most)
    for share in (1e-6, 0.1, 0.5, 1.0):
        found = covariance(sandwich, A, share * s2, s2, False)
        scale = np.linalg.eigvalsh(most)[:, -1:]
        assert (np.linalg.eigvalsh(most - found) > -1e-9 * scale).all()
        assert (np.linalg.eigvalsh(found - before) > -1e-9 * scale).all()
        before = found


def test_it_is_the_same_in_all_coordinates_and_to_the_bit_under_powers_of_two(rng, log):
    s2, A, tau2 = np.asarray(log.residual_variances), some_answers(rng), np.array([0.2, 0.9])

    def moved(T: np.ndarray) -> np.ndarray:
        twin = sl.LogSummary(log.schema, log.moments.with_columns(T), meat=T.T @ log.meat @ T)
        return Sandwich(twin, twin.meat, twin.residual_variances).of_answers(T.T @ A @ T, tau2, s2, False)

    plain, T = (
        Sandwich(log, log.meat, log.residual_variances).of_answers(A, tau2, s2, False),
        rng.normal(size=(L, L)) + 2 * np.eye(L),
    )
    np.testing.assert_allclose(moved(T), T.T @ plain @ T, rtol=1e-7)
    powers = 2.0 ** np.array([-40, 3, 17])
    scaled = Sandwich(_scaled(log, powers), log.meat * powers[:, None] * powers, log.residual_variances)
    found = scaled.of_answers(A * powers[:, None] * powers, tau2, s2, False)
    np.testing.assert_array_equal(found, plain * powers[:, None] * powers)


def _scaled(log: sl.LogSummary, powers: np.ndarray) -> sl.LogSummary:
    """The same rows with every recorded feature times a power of two."""
    from sidelight.logs.reduce.moments import Moments

    factors = log.factors * np.append(powers, 1.0)
    moments = Moments(log.counts, log.means * log.counts[:, None] * powers, factors, log.reward_sums)
    return sl.LogSummary(log.schema, moments, meat=log.meat * powers[:, None] * powers)


def test_directions_without_rows_and_arms_without_any(rng):
    """A column of zeros, an arm that was never taken: whatever stands there is positive definite and finite."""
    X = rng.normal(size=(100, L))
    X[:, 2] = 0.0
    schema = sl.Schema.for_arrays(L + 1, recorded=L, n_arms=K)
    log = sl.summarize_log((X, np.zeros(100, int), rng.normal(size=100)), schema, sandwich=True)
    s2 = np.asarray(log.residual_variances)
    for whole in (False, True):
        found = Sandwich(log, log.meat, log.residual_variances).of_answers(some_answers(rng), 0.5 * s2, s2, whole)
        assert (np.linalg.eigvalsh(found) > 0).all()


@pytest.mark.parametrize("seed", range(20))
def test_what_answers_say_about_a_single_row_keeps_its_digits(seed):
    """Even residuals leave the variance along the row ``x`` what it was, ``xᵀA⁻¹x``, whatever other directions say."""
    rng = np.random.default_rng(seed)
    X, arms = rng.normal(size=(41, L)), np.append(np.zeros(40, dtype=int), 1)
    schema = sl.Schema.for_arrays(L + 1, recorded=L, n_arms=K)
    log = sl.LogSummary.from_arrays(X, arms, rng.normal(size=41), schema)
    s2, sizes = np.asarray(log.residual_variances), np.array([16.0, 5e-3, 1e-4])
    A = np.broadcast_to(np.diag(sizes), (K, L, L)).copy()
    found = Sandwich(log, s2[:, None, None] * log.grams, s2).of_answers(A, 0.3 * s2, s2, False)
    x = X[40]
    assert x @ np.linalg.solve(found[1], x) == pytest.approx(float(np.sum(x * x / sizes)), rel=1e-6)
