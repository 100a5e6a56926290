"""Algorithm 2 and the every-round variant against the literal transcription, answers in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests import reference
from tests.unit.learners.histories import (
    RADII,
    Problem,
    assert_same_scores,
    draw_context,
    draw_problem,
    draw_settings,
    in_order,
)

import sidelight as sl

CASES = 5


@dataclass
class Way:
    """One way of learning the hidden half: how Sidelight does it, and how the reference does."""

    name: str
    make: Any
    regression: Any

    def __str__(self) -> str:
        return self.name


def from_moments(p: Problem, R12: np.ndarray) -> np.ndarray:
    return np.array([reference.pinv(p.R11[a], p.L) @ R12[a] for a in range(p.K)])


KAPPA = 2.5
WAYS = [
    Way(
        "ipw",
        lambda s: sl.BehaviorQueries(s, estimator="ipw"),
        lambda p, answers: from_moments(p, reference.cross_moments_ipw(answers, p.L, p.shares)),
    ),
    Way(
        "control_variate",
        lambda s: sl.BehaviorQueries(s, estimator="control_variate"),
        lambda p, answers: from_moments(p, reference.cross_moments_control_variate(answers, p.L, p.shares, p.means)),
    ),
    Way(
        "regression",
        lambda s: sl.BehaviorQueries(s, estimator="regression", pooling=KAPPA),
        lambda p, answers: reference.pooled_regression(
            answers, p.L, p.K, KAPPA, reference.pooling_metric(p.R11, p.shares)
        ),
    ),
    Way(
        "probabilities, ipw",
        lambda s: sl.BehaviorProbabilities(s, estimator="ipw"),
        lambda p, answers: from_moments(p, reference.cross_moments_ipw(answers, p.L, p.shares)),
    ),
    Way(
        "probabilities, regression",
        lambda s: sl.BehaviorProbabilities(s, pooling=KAPPA),
        lambda p, answers: reference.pooled_regression(
            answers, p.L, p.K, KAPPA, reference.pooling_metric(p.R11, p.shares)
        ),
    ),
]


def draw_answer(rng, learner, p: Problem):
    """Tell the learner what the old policy would do somewhere; the same for the reference."""
    x, q = draw_context(rng, p.d), float(rng.uniform(0.2, 1.0))
    if learner.needs == "action":
        a = int(rng.integers(p.K))
        learner.observe_behavior(x, a, probability=q)
        chances = np.eye(p.K)[a]
    else:
        chances = rng.dirichlet(np.ones(p.K))
        learner.observe_behavior(x, probabilities=chances, probability=q)
    return x[p.order], chances, q


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("radius", RADII)
def test_running(rng, radius, way):
    for _ in range(CASES):
        p = draw_problem(rng)
        drawn = draw_settings(rng, p.K, p.d, radius, projected=bool(rng.integers(2)))
        learner = sl.RunningOFUL(way.make(p.summary), **drawn.learner)
        mu = in_order(drawn.prior_mean, p.order)
        b, history, answers = p.b, [], []
        for n in range(30):
            if n % 9 == 0:
                B = way.regression(p, answers) if answers else np.zeros((p.K, p.L, p.d - p.L))
                M = [reference.structured(B[a]) for a in range(p.K)]
                x = draw_context(rng, p.d)
                expected = reference.projected_scores(x[p.order], history, M, b, [p.L] * p.K, **drawn.symbols, mu=mu)
                assert_same_scores(learner, x, expected)
            if rng.random() < 0.7:
                answers.append(draw_answer(rng, learner, p))
            x, a, r = draw_context(rng, p.d), int(rng.integers(p.K)), float(rng.normal())
            learner.observe(x, a, r)
            history.append((x[p.order], a, r))


def error_bound(p: Problem, estimator, way: Way, answers, horizon: int, settings: dict[str, Any]) -> np.ndarray:
    """``ΔM``: literally for the importance weights; the asymptotic one of the regressions is their own."""
    if p.L in (0, p.d):
        return np.zeros(p.K)
    if "regression" in way.name:
        return estimator.bound(settings["delta"], horizon, settings["context_bound"])
    total = sum(1 / q for _, _, q in answers)
    return reference.importance_bound(
        p.R11, p.shares, p.d, horizon, settings["delta"], settings["context_bound"], total
    )


@pytest.mark.parametrize("keep_data", [False, True], ids=["anew", "kept"])
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("radius", RADII)
def test_epoch(rng, radius, way, keep_data):
    """The reference follows the episodes literally: ``M̂`` as it was when the running one began, and its data."""
    for case in range(CASES):
        p = draw_problem(rng)
        horizon = int(rng.integers(20, 60))
        drawn = draw_settings(rng, p.K, p.d, radius)
        learner = sl.EpochOFUL(way.make(p.summary), horizon, keep_data=keep_data, **drawn.learner)
        mu = in_order(drawn.prior_mean, p.order)
        symbols = {**drawn.symbols, "mu": mu, "episodes": reference.number_of_episodes(horizon)}
        b, history, answers = p.b, [], []
        # in some cases the first episodes begin before anything was answered
        first_answer = 0 if case % 2 == 0 else 5
        estimator = way.make(p.summary)
        frozen: dict[int | None, tuple[np.ndarray, np.ndarray, list[np.ndarray]]] = {}
        unknown = (np.zeros((p.K, 0, p.d)), np.zeros(p.K), [np.zeros(0)] * p.K)
        frozen[None] = unknown
        for n in range(horizon + 4):
            start = reference.current_episode(history, horizon)
            if start not in frozen:
                if answers or p.L == 0:
                    B = way.regression(p, answers) if answers else np.zeros((p.K, 0, p.d))
                    frozen[start] = (B, error_bound(p, estimator, way, answers, horizon, drawn.learner), b)
                elif p.d == p.L:  # nothing is hidden, so nothing needs an answer
                    frozen[start] = (np.zeros((p.K, p.d, 0)), np.zeros(p.K), b)
                else:
                    frozen[start] = unknown
            if n in (0, 1, 2, 3, 4, 8, 9, 15, 16, 31, 32, horizon + 3):
                B, error, anchors = frozen[start]
                used = history if keep_data else history[start or 0 :]
                x = draw_context(rng, p.d)
                expected = reference.epoch_scores(x[p.order], used, B, anchors, error, **symbols)
                assert_same_scores(learner, x, expected)
            if n >= first_answer and rng.random() < 0.8:
                answers.append(draw_answer(rng, learner, p))
                x, chances, q = answers[-1]
                outside = np.empty(p.d)
                outside[p.order] = x
                said = int(np.argmax(chances)) if estimator.needs == "action" else chances
                estimator.observe(outside, said, q)
            x, a, r = draw_context(rng, p.d), int(rng.integers(p.K)), float(rng.normal())
            learner.observe(x, a, r)
            history.append((x[p.order], a, r))


def test_epoch_with_known_cross_moments_is_algorithm_1_with_its_own_union_bound(rng):
    p = draw_problem(rng, d=7, L=3, K=3)
    R12 = rng.normal(size=(3, 3, 4))
    drawn = draw_settings(rng, 3, 7, "posterior")
    known = sl.KnownCrossMoments(p.summary, R12)
    epoch = sl.EpochOFUL(known, 100, keep_data=True, **drawn.learner)
    projected = sl.ProjectedOFUL(sl.SideInformation.from_log(p.summary, R12), **drawn.learner)
    for _ in range(50):
        x, a, r = draw_context(rng, 7), int(rng.integers(3)), float(rng.normal())
        epoch.observe(x, a, r)
        projected.observe(x, a, r)
    x = draw_context(rng, 7)
    assert_same_scores(epoch, x, projected.scores(x))
