"""OFUL, Algorithm 1 and zero-filling against the literal transcription, over random histories."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference
from tests.unit.learners.histories import (
    RADII,
    assert_same_scores,
    draw_context,
    draw_problem,
    draw_settings,
    in_order,
)

import sidelight as sl

CASES = 12
CHECKPOINTS = (0, 1, 2, 7, 40)


def play(rng, learner, K, d, check):
    """Feed a random history to the learner, and call ``check`` at the checkpoints with all that went before."""
    history = []
    for n in range(max(CHECKPOINTS) + 1):
        if n in CHECKPOINTS:
            check(draw_context(rng, d), history)
        x, a, r = draw_context(rng, d), int(rng.integers(K)), float(rng.normal() * 3.0)
        learner.observe(x, a, r)
        history.append((x, a, r))


@pytest.mark.parametrize("radius", RADII)
def test_oful(rng, radius):
    for _ in range(CASES):
        d, K = int(rng.integers(1, 13)), int(rng.integers(1, 6))
        drawn = draw_settings(rng, K, d, radius)
        learner = sl.OFUL(K, d, **drawn.learner)
        nothing = [np.zeros((0, d))] * K, [np.zeros(0)] * K, [0] * K

        def check(x, history, learner=learner, nothing=nothing, drawn=drawn):
            expected = reference.projected_scores(x, history, *nothing, **drawn.symbols, mu=drawn.prior_mean)
            assert_same_scores(learner, x, expected)

        play(rng, learner, K, d, check)


@pytest.mark.parametrize("projected", [False, True], ids=["plain bounds", "projected bounds"])
@pytest.mark.parametrize("radius", RADII)
def test_projected_structured(rng, radius, projected):
    for _ in range(CASES):
        p = draw_problem(rng)
        R12 = rng.normal(size=(p.K, p.L, p.d - p.L))
        drawn = draw_settings(rng, p.K, p.d, radius, projected)
        learner = sl.ProjectedOFUL(sl.SideInformation.from_log(p.summary, R12), **drawn.learner)
        M = [reference.structured(np.linalg.solve(p.R11[a], R12[a])) for a in range(p.K)]
        b = p.b
        mu = in_order(drawn.prior_mean, p.order)

        def check(x, history, learner=learner, p=p, M=M, b=b, mu=mu, drawn=drawn):
            inside = [(x_i[p.order], a_i, r_i) for x_i, a_i, r_i in history]
            expected = reference.projected_scores(x[p.order], inside, M, b, [p.L] * p.K, **drawn.symbols, mu=mu)
            assert_same_scores(learner, x, expected)

        play(rng, learner, p.K, p.d, check)


@pytest.mark.parametrize("radius", RADII)
def test_projected_with_any_matrix(rng, radius):
    """Ragged rows, dependent rows, rows in different units, arms without any row."""
    for _ in range(CASES):
        d, K = int(rng.integers(1, 13)), int(rng.integers(1, 6))
        ranks = [int(rng.integers(0, d + 1)) for _ in range(K)]
        M, b = [], []
        for a in range(K):
            rows = rng.normal(size=(ranks[a], d)) * 10.0 ** rng.uniform(-1, 1, size=(ranks[a], 1))
            if ranks[a]:
                dependent = rng.normal(size=(int(rng.integers(0, 4)), ranks[a])) @ rows
                rows = rng.permutation(np.concatenate([rows, dependent]))
            M.append(rows)
            b.append(rows @ rng.normal(size=d))
        side = sl.SideInformation(M, b)
        assert side.ranks.tolist() == ranks
        drawn = draw_settings(rng, K, d, radius, projected=bool(rng.integers(2)))
        learner = sl.ProjectedOFUL(side, **drawn.learner)

        def check(x, history, learner=learner, M=M, b=b, ranks=ranks, drawn=drawn):
            expected = reference.projected_scores(x, history, M, b, ranks, **drawn.symbols, mu=drawn.prior_mean)
            assert_same_scores(learner, x, expected)

        play(rng, learner, K, d, check)


@pytest.mark.parametrize("radius", RADII)
def test_zero_filled(rng, radius):
    for _ in range(CASES):
        p = draw_problem(rng)
        drawn = draw_settings(rng, p.K, p.d, radius)
        learner = sl.ZeroFilledOFUL(p.summary, **drawn.learner)
        filled = []
        for x_o, a, r in zip(p.x_o, p.arms, p.rewards, strict=True):
            row = np.zeros(p.d)
            row[p.recorded] = x_o
            filled.append((row, int(a), float(r)))
        nothing = [np.zeros((0, p.d))] * p.K, [np.zeros(0)] * p.K, [0] * p.K

        def check(x, history, learner=learner, filled=filled, nothing=nothing, drawn=drawn):
            expected = reference.projected_scores(x, filled + history, *nothing, **drawn.symbols, mu=drawn.prior_mean)
            assert_same_scores(learner, x, expected)

        play(rng, learner, p.K, p.d, check)


def test_after_several_refreshes_the_scores_are_still_the_reference(rng):
    """The caches are kept by rank one and recomputed on a schedule: neither may show."""
    d, K, n = 6, 2, 2600
    p = draw_problem(rng, d=d, L=2, K=K)
    R12 = rng.normal(size=(K, 2, 4))
    drawn = draw_settings(rng, K, d, "determinant")
    learner = sl.ProjectedOFUL(sl.SideInformation.from_log(p.summary, R12), **drawn.learner)
    M = [reference.structured(np.linalg.solve(p.R11[a], R12[a])) for a in range(K)]
    X, arms, rewards = rng.normal(size=(n, d)), rng.integers(K, size=n), rng.normal(size=n)
    learner.observe_many(X, arms.tolist(), rewards)
    history = [(x[p.order], int(a), float(r)) for x, a, r in zip(X, arms, rewards, strict=True)]
    x = rng.normal(size=d)
    mu = in_order(drawn.prior_mean, p.order)
    expected = reference.projected_scores(x[p.order], history, M, p.b, [2] * K, **drawn.symbols, mu=mu)
    assert_same_scores(learner, x, expected)
