"""What the fused learner becomes: Algorithm 1 for a log without end, OFUL for one without rows."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.logs.reduce.moments import Moments

K, D = 3, 5
RECORDED = [1, 3]
SETTINGS = {"regularization": 1.9, "noise": 0.45, "alpha": 0.6, "prior_mean": 0.1, "radius": "posterior"}


def make_summary(rng, rows: int = 50, recorded=RECORDED) -> sl.LogSummary:
    arms = np.repeat(np.arange(K), rows)
    X = rng.normal(size=(len(arms), len(recorded))) + 0.3
    schema = sl.Schema.for_arrays(D, recorded=recorded, n_arms=K)
    return sl.LogSummary.from_arrays(X, arms, X @ rng.normal(size=len(recorded)) + rng.normal(size=len(X)), schema)


def as_if_repeated(summary: sl.LogSummary, times: float) -> sl.LogSummary:
    """The same rows ``times`` times over: ``b`` and ``s²`` stay, the Gram matrix grows."""
    counts = (summary.counts * times).astype(np.int64)
    moments = Moments(counts, summary.means * counts[:, None], summary.factors * np.sqrt(times))
    return sl.LogSummary(summary.schema, moments)


def play(rng, learners, rounds: int = 80) -> None:
    for _ in range(rounds):
        x, a, r = rng.normal(size=D), int(rng.integers(K)), float(rng.normal())
        for learner in learners:
            learner.observe(x, a, r)


def test_a_log_and_answers_without_end_are_algorithm_1(rng):
    summary = as_if_repeated(make_summary(rng), 1e9)
    answers = sl.BehaviorQueries(summary, pooling=0.0)
    for _ in range(60):
        answers.observe(rng.normal(size=D) + 0.2, int(rng.integers(K)))
    answers.sums.S = 1e9 * answers.sums.S
    answers.sums.S_squared = 1e9 * answers.sums.S_squared
    M = np.zeros((K, 2, D))
    M[:, :, RECORDED] = np.eye(2)
    M[:, :, [0, 2, 4]] = answers.regression()
    fused = sl.FusedOFUL(answers, safety=0.0, **SETTINGS)
    hard = sl.ProjectedOFUL(sl.SideInformation(M, summary.coefficients), **SETTINGS)
    for _ in range(3):
        play(rng, [fused, hard])
        for x in rng.normal(size=(5, D)):
            for ours, theirs in zip(fused.scores(x), hard.scores(x), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_known_cross_moments_and_a_log_without_end_are_algorithm_1(rng):
    summary = as_if_repeated(make_summary(rng), 1e9)
    R12 = rng.normal(size=(K, 2, 3))
    fused = sl.FusedOFUL(sl.KnownCrossMoments(summary, R12), safety=0.0, **SETTINGS)
    hard = sl.ProjectedOFUL(sl.SideInformation.from_log(summary, R12), **SETTINGS)
    play(rng, [fused, hard])
    for x in rng.normal(size=(5, D)):
        for ours, theirs in zip(fused.scores(x), hard.scores(x), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("recorded", [RECORDED, [], list(range(D))], ids=str)
@pytest.mark.parametrize("radius", ["posterior", "determinant", "printed"])
def test_an_empty_log_is_oful(rng, recorded, radius):
    settings = {**SETTINGS, "radius": radius, "delta": 0.01, "context_bound": 2.5, "weight_bound": 0.7}
    fused = sl.FusedOFUL(sl.BehaviorQueries(make_summary(rng, rows=0, recorded=recorded)), safety=0.0, **settings)
    plain = sl.OFUL(K, D, **settings)
    for _ in range(40):
        fused.observe_behavior(rng.normal(size=D), int(rng.integers(K)))
    play(rng, [fused, plain])
    for x in rng.normal(size=(5, D)):
        for ours, theirs in zip(fused.scores(x), plain.scores(x), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_everything_recorded_is_one_regression_over_log_and_rounds(rng):
    """``L = d``: the log's rows are rounds of variance ``s²``."""
    summary = make_summary(rng, recorded=list(range(D)))
    fused = sl.FusedOFUL(sl.BehaviorQueries(summary), safety=0.0, **SETTINGS)
    x, a = rng.normal(size=D), 1
    fused.observe(x, a, 0.7)
    weight = 0.45**2 / summary.residual_variances[a]
    V = 1.9 * np.eye(D) + weight * summary.grams[a] + np.outer(x, x)
    Y = 1.9 * 0.1 * np.ones(D) + weight * summary.cross[a] + 0.7 * x
    z = rng.normal(size=D)
    np.testing.assert_allclose(fused.scores(z)[0][a], z @ np.linalg.solve(V, Y), rtol=1e-8)
    np.testing.assert_allclose(fused.scores(z)[1][a], 0.6 * 0.45 * np.sqrt(z @ np.linalg.solve(V, z)), rtol=1e-8)


def test_the_hidden_half_has_its_prior_before_the_first_answer(rng):
    """Then ``A`` is nothing, or next to it: the estimates are the prior's and the widths hardly below it."""
    for estimator in ("ipw", "regression"):
        fused = sl.FusedOFUL(sl.BehaviorQueries(make_summary(rng), estimator=estimator), safety=0.0, **SETTINGS)
        plain = sl.OFUL(K, D, **SETTINGS)
        x = np.eye(D)[0]  # a hidden feature alone
        assert (fused.scores(x)[1] <= plain.scores(x)[1] * (1 + 1e-9)).all()
        assert (fused.scores(x)[1] >= 0.99 * plain.scores(x)[1]).all()


@pytest.mark.parametrize("settings", [{}, {"regularization": 0.5, "noise": 0.7}], ids=["automatic", "given"])
@pytest.mark.parametrize("learner", [sl.FusedOFUL, sl.FusedThompson])
def test_arms_without_rows_with_few_rows_and_added_later_need_no_settings(rng, settings, learner):
    recorded = [0, 2, 3]
    counts = (0, 2, 40)
    arms = np.repeat(np.arange(K), counts)
    X = rng.normal(size=(len(arms), 3))
    X[arms == 2, 1] = 2.0 * X[arms == 2, 0]  # and one whose recorded features repeat each other
    schema = sl.Schema.for_arrays(D, recorded=recorded, n_arms=K)
    summary = sl.LogSummary.from_arrays(X, arms, rng.normal(size=len(arms)), schema)
    one = learner(sl.BehaviorQueries(summary), **settings)
    # of arm 0 nothing is known, and the direction that arm 2's rows never varied in stays open
    assert one.scores(np.eye(D)[0])[1][0] > 0
    for t in range(200):
        x = rng.normal(size=D)
        if t == 60:
            one.add_arm("late")
        one.observe_behavior(x, int(rng.integers(K)))
        decision = one.decide(x, rng=rng)
        assert np.isfinite([decision.estimate, decision.width, decision.propensity]).all()
        one.observe(x, decision.arm, float(x[0] + 0.1 * rng.normal()) if decision.arm == "late" else 0.0)
    assert one.arms == (0, 1, 2, "late")
    estimates = one.scores(np.eye(D)[0])[0]
    assert estimates.shape == (4,)
    assert estimates[3] == pytest.approx(1.0, abs=0.3)
    trust = one.log_trust()
    assert [entry["arm"] for entry in trust] == [0, 1, 2]
    assert trust[0]["effective_rows"] == 0.0


@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_an_arm_with_neither_rows_nor_answers_in_theory(rng, scale):
    arms = np.repeat(np.arange(K), (50, 50, 0))
    X = rng.normal(size=(100, 3))
    schema = sl.Schema.for_arrays(D, recorded=[0, 2, 3], n_arms=K)
    summary = sl.LogSummary.from_arrays(X, arms, scale * (X[:, 0] + 0.3 * rng.normal(size=100)), schema)
    one = sl.FusedOFUL(sl.BehaviorQueries(summary), radius="theory", regularization=1.0, noise=0.3 * scale)
    for _ in range(60):
        x = rng.normal(size=D)
        one.observe_behavior(x, int(rng.integers(2)))
        one.observe(x, int(rng.integers(2)), scale * float(x[0]))
    assert np.isfinite(one.scores(x)).all()
    np.testing.assert_allclose(one.prior_precisions[2], np.eye(D))


def test_an_added_arm_starts_from_the_prior_and_changes_nothing_else(rng):
    summary = make_summary(rng)
    one, other = (sl.FusedOFUL(sl.BehaviorQueries(summary), safety=0.0, **SETTINGS) for _ in range(2))
    play(rng, [one, other], rounds=30)
    one.add_arm("new")
    play(rng, [one, other], rounds=30)
    x = rng.normal(size=D)
    np.testing.assert_allclose(one.scores(x)[0][:K], other.scores(x)[0], rtol=1e-9)
    np.testing.assert_allclose(one.scores(x)[1][:K], other.scores(x)[1], rtol=1e-9)
    assert one.scores(x)[0][K] == pytest.approx(0.1 * x.sum())
    assert one.scores(x)[1][K] == pytest.approx(0.6 * 0.45 * np.linalg.norm(x) / np.sqrt(1.9))


def test_an_arm_that_cannot_be_added_leaves_the_learner_as_it_was(rng):
    """A prior mean for every arm has none for a further one."""
    one = sl.FusedOFUL(sl.BehaviorQueries(make_summary(rng)), **{**SETTINGS, "prior_mean": np.ones((K, D))})
    x = rng.normal(size=D)
    before = one.scores(x)[0]
    with pytest.raises(sl.errors.InputError, match="prior_mean"):
        one.add_arm("new")
    assert one.arms == (0, 1, 2)
    np.testing.assert_array_equal(one.scores(x)[0], before)
    one.observe(x, 0, 1.0)
