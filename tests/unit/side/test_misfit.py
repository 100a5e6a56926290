"""The sums and statistics of the two tests that look at rounds alone, against literal formulas."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight.kernels.misfit import FORMS
from sidelight.side.coordinates import Tally, Units
from sidelight.side.forms import forms_of
from sidelight.side.misfit import SHARES, SPEEDS, TERMS, Misfit, restarted, terms_of

K, D = 3, 4
ORDER = np.array([2, 0, 3, 1])


def units_of(X: np.ndarray, rewards: np.ndarray, constant: int | None) -> Units:
    tally = Tally.empty(X.shape[1])
    tally.add(slice(None), float(len(X)), X.sum(axis=0), np.square(X).sum(axis=0))
    tally.add_rewards(float(len(X)), float(rewards.sum()), float(np.square(rewards).sum()))
    return Units.of(tally, constant)


@pytest.fixture
def played(rng):
    """Contexts in internal order with an intercept, arms, rewards and the units of all of them."""
    X = rng.normal(size=(400, D)) * [1.0, 3.0, 0.1, 20.0] + [0.0, 1.0, 5.0, -30.0]
    X[:, 0] = 1.0
    arms = rng.integers(K, size=400)
    rewards = X @ [0.3, 0.2, -2.0, 0.05] + 0.5 * rng.normal(size=400)
    return X, arms, rewards, units_of(X, rewards, 0)


def sums(X, arms, rewards):
    grams = np.array([X[arms == a].T @ X[arms == a] for a in range(K)])
    moments = np.array([X[arms == a].T @ rewards[arms == a] for a in range(K)])
    return grams, moments, np.bincount(arms, minlength=K).astype(float)


def outside(X):
    """The same contexts in the order in which they come: internal feature ``i`` stands at ``ORDER[i]``."""
    out = np.empty_like(X)
    out[:, ORDER] = X
    return out


def test_terms_are_squares_then_products_of_neighbours():
    assert terms_of(np.array([1, 2, 3])).tolist() == [
        [0, 1, 1], [1, 2, 2], [2, 3, 3], [3, 1, 2], [4, 2, 3], [5, 1, 3]
    ]  # fmt: skip
    many = terms_of(np.arange(20))
    assert len(many) == 20
    assert set(many[:, 0]) == set(range(TERMS))
    assert len(terms_of(np.arange(12))) == TERMS


def test_both_statistics_are_what_their_formulas_say(played):
    """Three stretches of rounds: the first before anything is fixed, two that are compared with what was."""
    X, arms, rewards, units = played
    noises = np.array([0.4, 0.5, 0.6])
    test = Misfit.begin(units, np.zeros((K, D, D)), np.zeros(K))
    pairs, scores, squares = terms_of(np.array([1, 2, 3])), np.zeros((K, 6)), np.zeros((K, 6, 6))
    z = (X - units.centres) / units.scales
    f = np.column_stack([np.clip(z[:, j], -3, 3) * np.clip(z[:, k], -3, 3) for _, j, k in pairs])
    drift, previous, before = np.full(len(SPEEDS), -1e9), None, np.zeros((K, D, D))
    along, square, bent = np.zeros(FORMS), np.zeros(FORMS), np.zeros((K, D, D))
    near = np.clip(z, -3, 3)
    for step, stop in enumerate((150, 250, 400)):
        start = (0, 150, 250)[step]
        test.add(ORDER, outside(X[start:stop]), arms[start:stop], rewards[start:stop])
        grams, moments, counts = sums(X[:stop], arms[:stop], rewards[:stop])
        if previous is not None:
            weights, moved, Gamma, forms = previous
            S, Q = np.zeros(K), np.zeros(K)
            reach = np.zeros((K, FORMS, D))
            for t in range(start, stop):
                a = arms[t]
                e = (rewards[t] - units.reward_centre - z[t] @ weights[a]) / noises[a]
                orthogonal = e * (f[t] - Gamma[a] @ z[t])
                scores[a] += orthogonal
                squares[a] += np.outer(orthogonal, orthogonal)
                u = e * (z[t] @ moved[a]) / noises[a]
                S[a] += u
                Q[a] += u * u
                bent[a] += e * np.outer(near[t], near[t])
                g = (forms.curvatures[a] * (forms.directions[a] @ near[t]) ** 2).sum(axis=1) - forms.levels[a]
                along += e * g
                square += (e * g) ** 2
                reach[a] += np.outer(g, z[t])
            for a in range(K):
                here = np.flatnonzero(arms[start:stop] == a) + start
                C = np.linalg.inv(before[a] + 1e-6 * np.diag(np.diag(before[a])))
                q = (f[here] - z[here] @ Gamma[a].T).T @ z[here]
                squares[a] += q @ C @ q.T
                step_of = z[here].T @ (z[here] @ moved[a])
                Q[a] += step_of @ C @ step_of / noises[a] ** 2
                square += np.einsum("fi,ij,fj->f", reach[a], C, reach[a])
            drift = restarted(drift, SPEEDS * S.sum() - 0.5 * SPEEDS**2 * Q.sum(), step)
        test.refresh((grams, moments), counts, noises)
        weights, Gamma, before = np.empty((K, D)), np.empty((K, 6, D)), np.empty((K, D, D))
        for a in range(K):
            mine = arms[:stop] == a
            before[a] = G = z[:stop][mine].T @ z[:stop][mine]
            weights[a] = np.linalg.solve(
                G + 1e-6 * np.diag(np.diag(G)), z[:stop][mine].T @ (rewards[:stop][mine] - units.reward_centre)
            )
            Gamma[a] = np.linalg.solve(G + 1e-6 * np.diag(np.diag(G)), z[:stop][mine].T @ f[:stop][mine]).T
        moved = np.zeros((K, D)) if previous is None else weights - previous[0]
        previous = (weights, moved, Gamma, forms_of(bent, before, counts, weights, 0))
    np.testing.assert_allclose(test.sums.scores, scores, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(test.sums.squares, squares, rtol=1e-6, atol=1e-8)
    found = []
    for share in SHARES:
        T = share / 12.0
        logs = [
            -0.5 * np.linalg.slogdet(np.eye(6) + T * squares[a])[1]
            + 0.5 * scores[a] @ np.linalg.solve(squares[a] + np.eye(6) / T, scores[a])
            for a in range(K)
        ]
        found.append(sum(logs))
    by_forms = [np.exp(0.5 * along**2 / (square + 1.0 / share)) / np.sqrt(1.0 + share * square) for share in SHARES]
    evidence = 0.5 * np.mean(np.exp(found)) + 0.5 * np.mean(by_forms)
    np.testing.assert_allclose(test.sums.along.sum(axis=0), np.column_stack([along, square]), rtol=1e-6, atol=1e-8)
    assert test.curved == pytest.approx(max(0.0, np.log(evidence)), rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(test.started, drift, rtol=1e-6)


def test_units_do_not_matter(played):
    """Powers of two in features and rewards: the same evidence to the bit."""
    X, arms, rewards, _ = played
    found = []
    for scale in (1.0, 2.0**11):
        factors = np.array([1.0, scale, 1.0 / scale, scale])
        Z, r = X * factors, rewards * scale
        test = Misfit.begin(units_of(Z, r, 0), np.zeros((K, D, D)), np.zeros(K))
        for start, stop in ((0, 200), (200, 300), (300, 400)):
            test.add(ORDER, outside(Z[start:stop]), arms[start:stop], r[start:stop])
            grams, moments, counts = sums(Z[:stop], arms[:stop], r[:stop])
            test.refresh((grams, moments), counts, np.full(K, 0.5 * scale))
        found.append((test.curved, test.moving, test.share, *test.started))
    assert found[0] == found[1]


def test_a_copy_goes_on_to_the_bit_and_with_further_arms(played):
    X, arms, rewards, units = played
    test = Misfit.begin(units, np.zeros((K, D, D)), np.zeros(K))
    noises = np.full(K, 0.5)

    def go(one, start, stop, more=0):
        one.add(ORDER, outside(X[start:stop]), arms[start:stop], rewards[start:stop])
        grams, moments, counts = sums(X[:stop], arms[:stop], rewards[:stop])
        grams = np.concatenate([grams, np.zeros((more, D, D))])
        moments = np.concatenate([moments, np.zeros((more, D))])
        counts, sigmas = np.append(counts, np.zeros(more)), np.append(noises, np.full(more, 0.5))
        one.refresh((grams, moments), counts, sigmas)

    go(test, 0, 150)
    go(test, 150, 250)
    copy = Misfit.restored({key: np.array(value) for key, value in test.state().items()}, 0)
    # a file from before there were forms has the sums of the terms alone
    short = {key: np.array(value) for key, value in test.state().items()}
    short["misfit_arena"] = short["misfit_arena"][: -(K * FORMS * (3 * D + 5) + K * D * D)]
    older = Misfit.restored(short, 0)
    np.testing.assert_array_equal(older.sums.squares, test.sums.squares)
    assert not older.sums.along.any()
    assert not older.sums.directions.any()
    go(older, 250, 400)
    assert older.sums.directions.any()
    larger = test.grown(K + 2)
    for one, more in ((test, 0), (copy, 0), (larger, 2)):
        go(one, 250, 400, more)
    np.testing.assert_array_equal(copy.arena, test.arena)
    assert (copy.curved, copy.moving, copy.steps) == (test.curved, test.moving, test.steps)
    assert (larger.curved, larger.moving) == pytest.approx((test.curved, test.moving))
    assert Misfit.restored({}, 0) is None


@pytest.mark.parametrize("bend", ["product of two features far apart", "square of the prediction"])
def test_curvature_in_few_directions_of_many_features_is_found(bend, rng):
    """Of 20 features two, or one direction of all: a tenth of what a line leaves unexplained, 1,500 rounds of one arm.

    The terms are squares and products of neighbours, which see neither.
    """
    d, n = 20, 1_500
    X = rng.normal(size=(n, d + 1))
    X[:, 0] = 1.0
    w = rng.normal(size=d) / np.sqrt(d)
    y = X[:, 1:] @ w
    curved = X[:, 3] * X[:, 17] if bend.startswith("product") else (y * y / (w @ w) - 1.0) / np.sqrt(2.0)
    rewards = y + 0.5 * (np.sqrt(0.1) * curved + np.sqrt(0.9) * rng.normal(size=n))
    test = Misfit.begin(units_of(X, rewards, 0), np.zeros((1, d + 1, d + 1)), np.zeros(1))
    arms = np.zeros(n, dtype=np.int64)
    stops = [100, 130, 170, 220, 290, 380, 490, 640, 830, 1080, 1500]
    for start, stop in zip([0, *stops], stops, strict=False):
        test.add(np.arange(d + 1), X[start:stop], arms[start:stop], rewards[start:stop])
        G, h = X[:stop].T @ X[:stop], X[:stop].T @ rewards[:stop]
        test.refresh((G[None], h[None]), np.array([float(stop)]), np.array([0.5]))
    assert test.curved > np.log(50.0)
    assert 0.0 < test.share < 0.2  # at least so much: rounds before a direction was found dilute it


def test_no_feature_that_varies_is_nothing_to_test():
    X = np.ones((5, 1))
    assert Misfit.begin(units_of(X, np.arange(5.0), 0), np.zeros((K, 1, 1)), np.zeros(K)) is None
