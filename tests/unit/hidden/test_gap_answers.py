"""Answers at contexts with gaps: sums completed as row by row, regressions that stay right and claim what they know."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference

import sidelight as sl
from sidelight.hidden.gap_answers import PATTERNS, GapAnswers, Prediction
from sidelight.hidden.registry import estimator_from_state, estimator_state
from sidelight.hidden.sums import AnswerSums
from sidelight.worlds.linear import LinearWorld

D, L, K = 6, 4, 3
RHO = 0.6


class Normals(LinearWorld):
    """A constant and correlated normal features; the old policy looks at a recorded and a hidden one."""

    context_bound = 10.0

    def __init__(self, seed):
        rng = np.random.default_rng([seed, 1])
        names = ["one", *(f"x{i}" for i in range(1, D))]
        super().__init__(rng.normal(size=(K, D)), 0.5, schema=sl.Schema(names, names, arms=range(K)))
        at = np.arange(D - 1)
        self._factor = np.linalg.cholesky(RHO ** np.abs(at[:, None] - at))
        self._logits = np.zeros((K, D))
        self._logits[:, [2, D - 1]] = rng.normal(size=(K, 2))

    def contexts(self, n, rng):
        return np.column_stack([np.ones(n), 3.0 + rng.normal(size=(n, D - 1)) @ self._factor.T])

    def behavior_logits(self, X):
        return (X - X.mean(axis=0)) @ self._logits.T


@pytest.fixture(scope="module")
def world():
    return Normals(3)


@pytest.fixture(scope="module")
def summary(world):
    return sl.summarize_log(world.sample_log(20_000, L, np.random.default_rng(1)), world.schema(L))


def answers(world, n, share, rng, columns=range(1, D)):
    """Contexts with gaps, the same without, and what the old policy answered."""
    X = world.contexts(n, rng)
    gone = rng.random(X.shape) < share
    gone[:, [j for j in range(D) if j not in columns]] = False
    return np.where(gone, np.nan, X), X, world.behavior_actions(X, rng)


def tell(estimator, seen, arms, probability=1.0):
    for x, arm in zip(seen, arms.tolist(), strict=True):
        (estimator.observe_gaps if np.isnan(x).any() else estimator.observe)(x, arm, probability)
    return estimator


def test_sums_are_those_of_contexts_that_were_filled_one_by_one(world, summary):
    rng = np.random.default_rng(5)
    seen, _, arms = answers(world, 80, 0.35, rng)
    q, m = 0.8, D - L
    found = GapAnswers(summary)
    told = [found.add(x, np.eye(K)[a], q) if np.isnan(x).any() else False for x, a in zip(seen, arms, strict=True)]
    assert 0 < sum(told) < len(told)
    root = rng.normal(size=(m, m))
    prediction = Prediction(rng.normal(size=(K + 1, L, m)), rng.normal(size=(K + 1, m)), root @ root.T)
    sums = found.completed(AnswerSums(summary), prediction)
    S, first, counts = np.zeros((K, D, D)), np.zeros((K, D)), np.zeros(K)
    total = np.zeros((D, D))
    moments = found._recorded
    for x, a in zip(seen[np.array(told)], arms[np.array(told)], strict=True):
        for i in (a, K):
            means, covariance = moments[0][i], np.linalg.inv(moments[2][i]) * np.outer(moments[1][i], moments[1][i])
            y, more = reference.completed_answer(
                x, L, (means, covariance), (prediction.slopes[i], prediction.levels[i]), prediction.residual
            )
            share = np.mean(~np.isnan(x[L:])) / q
            if i == K:
                total += share * (np.outer(y, y) + more)
            else:
                S[a] += share * (np.outer(y, y) + more)
                first[a] += share * y
                counts[a] += share
    np.testing.assert_allclose(sums.S, S, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums.sums, first, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums.counts, counts)
    np.testing.assert_allclose(sums.S.sum(axis=0) + sums.apart[0], total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [(1, 2, 3), (4, 5), (1, 2, 3, 4, 5)], ids=["recorded", "hidden", "all"])
def test_regressions_are_right_and_claim_what_they_know(world, summary, seed, columns):
    """Unpooled, so that nothing is shrunk: errors in units of the claim have mean square 1.

    About 3 · 8 · 8 independent values of variance below 3: outside 0.6 to 1.5 with probability below 1e-4.
    """
    big = world.contexts(200_000, np.random.default_rng([seed, 2]))
    P = world.behavior_probabilities(big)
    grams = [(big * P[:, [a]]).T @ big for a in range(K)]
    truth = np.array([np.linalg.solve(G[:L, :L], G[:L, L:]) for G in grams])
    squares, complete, all_of_them = [], 0.0, 0.0
    for run in range(8):
        seen, _, arms = answers(world, 1_500, 0.4, np.random.default_rng([seed, run, 3]), columns)
        whole = ~np.isnan(seen).any(axis=1)
        estimator = tell(sl.BehaviorQueries(summary, pooling=0.0), seen, arms)
        fewer = tell(sl.BehaviorQueries(summary, pooling=0.0), seen[whole], arms[whole])
        error, A, Sigma = estimator.regression() - truth, estimator.precision(), estimator.residual_moments()
        for a in range(K):
            for e in error[a].T:
                squares.append(e @ A[a] @ e / L / np.mean(np.diagonal(Sigma[a])))
        all_of_them += np.square(error).sum()
        complete += np.square(fewer.regression() - truth).sum()
    assert 0.6 < np.mean(squares) < 1.5
    assert all_of_them < complete


def test_probabilities_of_one_are_answers(world, summary):
    seen, _, arms = answers(world, 120, 0.3, np.random.default_rng(7))
    named = tell(sl.BehaviorQueries(summary, pooling=20.0), seen, arms, 0.5)
    chances = sl.BehaviorProbabilities(summary, pooling=20.0)
    for x, arm in zip(seen, arms, strict=True):
        (chances.observe_gaps if np.isnan(x).any() else chances.observe)(x, np.eye(K)[arm], 0.5)
    np.testing.assert_allclose(chances.gap_answers.state()["gaps_S"], named.gap_answers.state()["gaps_S"])
    assert chances.n_answers == named.n_answers > named.sums.n_answers


@pytest.mark.parametrize("chances", [False, True])
def test_without_a_constant_weighted_answers_leave_the_pool_a_covariance(chances):
    """Arms and pool see a missing recorded feature differently, and all sums of the pool must be of what it sees."""
    rng = np.random.default_rng(21)
    names = [f"x{i}" for i in range(5)]
    schema = sl.Schema(names, names[:3], arms=range(K))
    X = rng.normal(size=(600, 5)) + 2.0
    X[:, 1:] += X[:, :-1]
    arms = np.argmax(X[:, :K] + rng.gumbel(size=(600, K)), axis=1)
    log = sl.LogSummary.from_arrays(X[:400, :3], arms[:400], rng.normal(size=400), schema)
    hidden = (sl.BehaviorProbabilities if chances else sl.BehaviorQueries)(log)
    for t, (x, arm) in enumerate(zip(X[400:], arms[400:].tolist(), strict=True)):
        x[t % 3] = np.nan
        hidden.observe_gaps(x, np.full(K, 1.0 / K) if chances else arm, (1.0, 0.1)[t % 2])
        if t < 5 or t % 20 == 0:
            noise = np.linalg.eigvalsh(hidden._told().noise)
            assert noise[0] > -1e-9 * noise[-1]
            for A in hidden.precision():
                assert np.linalg.eigvalsh(A)[0] > 0.0


def test_files_and_copies_keep_them(world, summary):
    seen, _, arms = answers(world, 150, 0.4, np.random.default_rng(9))
    estimator = tell(sl.BehaviorQueries(summary), seen[:100], arms[:100])
    again = [estimator.copy(), estimator_from_state(*estimator_state(estimator))]
    tell(estimator, seen[100:], arms[100:])
    for twin in again:
        assert twin.n_answers < estimator.n_answers
        tell(twin, seen[100:], arms[100:])
        np.testing.assert_array_equal(twin.regression(), estimator.regression())
        np.testing.assert_array_equal(twin.precision(), estimator.precision())


def test_there_are_so_many_patterns_at_most():
    names = ["one", *(f"x{i}" for i in range(9))]
    schema = sl.Schema(names, ["one"], arms=[0, 1])
    rng = np.random.default_rng(0)
    found = GapAnswers(
        sl.summarize_log({"one": np.ones(50), "arm": np.arange(50) % 2, "reward": rng.normal(size=50)}, schema)
    )
    told = 0
    for _ in range(400):
        x = np.append(1.0, np.where(rng.random(9) < 0.5, np.nan, rng.normal(size=9)))
        told += found.add(x, np.array([1.0, 0.0]), 1.0)
    assert len(found.patterns) == PATTERNS
    assert PATTERNS < found.n_answers == told < 400
    assert not found.add(np.append(1.0, np.full(9, np.nan)), np.array([1.0, 0.0]), 1.0)


def test_estimators_by_weighting_leave_them_out(world, summary):
    seen, _, arms = answers(world, 60, 0.4, np.random.default_rng(11))
    estimator = tell(sl.BehaviorQueries(summary, estimator="ipw"), seen, arms)
    assert estimator.n_answers == int((~np.isnan(seen).any(axis=1)).sum())
