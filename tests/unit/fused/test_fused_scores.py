"""``FusedOFUL.scores`` against the literal posterior, over settings that are not the defaults."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.fused.fused_reference import RawLog, ReferenceFused, draw_log, known_error

import sidelight as sl
from sidelight.learners.fused.unexplained import Known

K, D = 3, 5
SIGMA = 0.6


def same_scores(learner, reference, X) -> None:
    for x in X:
        for ours, theirs in zip(learner.scores(x), reference.scores(x), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-7, atol=1e-9)


def compare(rng, logs, estimators, answers, weights, **options) -> None:
    """120 rounds of both, compared on the way: before the first answer, across refreshes and between them."""
    mu = rng.normal(size=(K, D))
    settings = {"regularization": 3.7, "noise": SIGMA * 1.3, "alpha": 0.35, "prior_mean": mu}
    hidden = estimators[0] if len(estimators) == 1 else estimators
    learner = sl.FusedOFUL(hidden, safety=0.0, **settings, **options)
    reference = ReferenceFused(
        list(zip(logs, estimators, strict=True)), K, D, 3.7, mu, SIGMA * 1.3, alpha=0.35, **options
    )
    probes = rng.normal(size=(3, D))
    same_scores(learner, reference, probes)
    for t in range(120):
        x = rng.normal(size=D) + 0.3
        if answers == "action":
            answer, chance = int(rng.integers(K)), [1.0, 0.4][t % 2]
            learner.observe_behavior(x, answer, probability=chance)
            reference.answer(x, answer, chance)
            reference.follow(learner.refreshes)
        elif answers == "probabilities":
            p = rng.dirichlet(np.ones(K))
            learner.observe_behavior(x, probabilities=p, probability=0.8)
            reference.answer(x, p, 0.8)
            reference.follow(learner.refreshes)
        a = int(rng.integers(K))
        r = float(x @ weights[a] + SIGMA * rng.normal())
        learner.observe(x, a, r)
        reference.observe(x, a, r)
        reference.follow(learner.refreshes)
        if t % 17 == 3:
            same_scores(learner, reference, probes)
    assert learner.refreshes > 4


@pytest.fixture
def weights(rng) -> np.ndarray:
    return rng.normal(size=(K, D))


@pytest.fixture
def log(rng, weights) -> RawLog:
    return draw_log(rng, D, [1, 4], K, weights, SIGMA)


@pytest.mark.parametrize("estimator", ["regression", "ipw"])
def test_one_log_with_queries(rng, log, weights, estimator):
    compare(rng, [log], [sl.BehaviorQueries(log.summary, estimator=estimator)], "action", weights)


def test_one_log_with_probabilities(rng, log, weights):
    compare(rng, [log], [sl.BehaviorProbabilities(log.summary)], "probabilities", weights)


def test_one_log_with_known_cross_moments(rng, log, weights):
    R12 = rng.normal(size=(K, 2, 3))
    compare(rng, [log], [sl.KnownCrossMoments(log.summary, R12)], None, weights)


def test_one_log_with_a_companion(rng, log, weights):
    rows = draw_log(rng, D, list(range(D)), K, weights, SIGMA, rows=40)
    compare(rng, [log], [sl.CompanionLog(log.summary, rows.summary)], None, weights)


def test_a_bound_on_the_bias(rng, log, weights):
    compare(rng, [log], [sl.BehaviorQueries(log.summary)], "action", weights, bias_bound=0.17)


def uneven_log(rng, weights) -> RawLog:
    """Noise that grows with the first recorded feature, so that the sandwich differs from the classical covariance."""
    raw = draw_log(rng, D, [1, 4], K, weights, SIGMA, rows=80)
    rewards = raw.rewards + np.square(raw.x_o[:, 0]) * rng.normal(size=len(raw.rewards))
    summary = sl.LogSummary.from_arrays(raw.x_o, raw.arms, rewards, raw.summary.schema)
    raw = RawLog(raw.recorded, raw.x_o, raw.arms, rewards, summary, D, K)
    raw.summary = raw.summarized()
    return raw


@pytest.mark.parametrize("bias_bound", [0.0, 0.17])
def test_the_sandwich_with_queries(rng, weights, bias_bound):
    raw = uneven_log(rng, weights)
    estimators = [sl.BehaviorQueries(raw.summary)]
    compare(rng, [raw], estimators, "action", weights, sandwich=True, bias_bound=bias_bound)


def test_the_sandwich_with_probabilities_with_a_companion_and_with_known_cross_moments(rng, weights):
    raw = uneven_log(rng, weights)
    rows = draw_log(rng, D, list(range(D)), K, weights, SIGMA, rows=40).summary
    compare(rng, [raw], [sl.BehaviorProbabilities(raw.summary)], "probabilities", weights, sandwich=True)
    compare(rng, [raw], [sl.CompanionLog(raw.summary, rows)], None, weights, sandwich=True)
    known = sl.KnownCrossMoments(raw.summary, rng.normal(size=(K, 2, 3)))
    compare(rng, [raw], [known], None, weights, sandwich=True)


@pytest.mark.parametrize("second", [[0, 1, 3], [4], [1, 4]], ids=str)
def test_two_logs_with_their_own_columns(rng, log, weights, second):
    other = draw_log(rng, D, second, K, weights, SIGMA, rows=50)
    estimators = [sl.BehaviorQueries(log.summary), sl.BehaviorQueries(other.summary)]
    compare(rng, [log, other], estimators, "action", weights)


def test_arms_are_matched_by_label_whatever_their_order(rng, weights):
    """The learner's arms, the first log's and the second log's each come in their own order."""
    first = draw_log(rng, D, [1, 4], K, weights, SIGMA)
    names = np.array(["low", "middle", "high"])
    summaries = []
    for arms in (("high", "low", "middle"), ("middle", "high", "low")):
        schema = sl.Schema([f"x{j}" for j in range(D)], ["x1", "x4"], arms=list(arms))
        summaries.append(sl.LogSummary.from_arrays(first.x_o, names[first.arms], first.rewards, schema))
    learners = [
        sl.FusedOFUL(
            sl.BehaviorQueries(s), arms=arms, regularization=2.0, noise=0.5, safety=0.0, radius="determinant", delta=0.2
        )
        for s in summaries
        for arms in (("low", "middle", "high"), ("high", "middle", "low", "new"))
    ]
    for _ in range(60):
        x, answer, played, r = rng.normal(size=D), *names[rng.integers(K, size=2)], float(rng.normal())
        for learner in learners:
            learner.observe_behavior(x, answer)
            learner.observe(x, played, r)
    for x in rng.normal(size=(4, D)):
        estimates = [dict(zip(one.arms, one.scores(x)[0].tolist(), strict=True)) for one in learners]
        for name in names:
            np.testing.assert_allclose([e[name] for e in estimates], estimates[0][name], rtol=1e-8)


@pytest.mark.parametrize("bias_bound", [0.0, 0.2])
@pytest.mark.parametrize("second", [None, [0, 2], "uneven"], ids=["one log", "two logs", "sandwich"])
def test_the_proven_radius(rng, log, weights, second, bias_bound):
    sandwich = second == "uneven"
    logs = [uneven_log(rng, weights)] if sandwich else [log]
    if second not in (None, "uneven"):
        logs.append(draw_log(rng, D, second, K, weights, SIGMA, rows=50))
    estimators = [sl.BehaviorQueries(one.summary, pooling=0.0) for one in logs]
    mu = 0.2 * rng.normal(size=(K, D))
    common = {"alpha": 0.8, "bias_bound": bias_bound, "sandwich": sandwich, "delta": 0.17}
    learner = sl.FusedOFUL(
        estimators, radius="theory", regularization=1.3, noise=0.7, prior_mean=mu, weight_bound=0.4, safety=0.0,
        **common,
    )  # fmt: skip
    reference = ReferenceFused(list(zip(logs, estimators, strict=True)), K, D, 1.3, mu, 0.7, weight_bound=0.4, **common)
    for t in range(140):
        x, answer, a, r = rng.normal(size=D) + 0.3, int(rng.integers(K)), int(rng.integers(K)), float(rng.normal())
        chance = [1.0, 0.4][t % 2] if sandwich else 1.0
        learner.observe_behavior(x, answer, probability=chance)
        reference.answer(x, answer, chance)
        reference.follow(learner.refreshes)
        learner.observe(x, a, r)
        reference.observe(x, a, r)
        reference.follow(learner.refreshes)
        if t > 60 and t % 20 == 5:
            z = rng.normal(size=D)
            np.testing.assert_allclose(learner.scores(z)[0], reference.scores(z)[0], rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(learner.scores(z)[1], reference.theory_widths(z), rtol=1e-6)
            decision = learner.decide(z)
            assert (decision.estimate, decision.width) == tuple(v[decision.arm] for v in learner.scores(z))
    # tests of the log choose among five weights for it, by the rewards: the union is over them too
    tested = sl.FusedOFUL(estimators, radius="theory", regularization=1.3, noise=0.7, delta=0.17, safety=0.05)
    trusted = sl.FusedOFUL(estimators, radius="theory", regularization=1.3, noise=0.7, delta=0.17, safety=0.0)
    assert tested.radii[0] > trusted.radii[0]


@pytest.mark.parametrize("sandwich", [False, True])
def test_a_known_R12_in_theory_errs_by_at_most_what_contexts_and_weights_allow(rng, log, weights, sandwich):
    log = uneven_log(rng, weights) if sandwich else log
    hidden, mu = sl.KnownCrossMoments(log.summary, rng.normal(size=(K, 2, 3))), 0.2 * rng.normal(size=(K, D))
    settings = {"regularization": 1.3, "noise": 0.7, "prior_mean": mu, "safety": 0.0}
    bounds = {"bias_bound": 0.1, "weight_bound": 0.4, "context_bound": 2.5, "delta": 0.17, "sandwich": sandwich}
    learner = sl.FusedOFUL(hidden, radius="theory", **settings, **bounds)
    reference = ReferenceFused([(log, hidden)], K, D, 1.3, mu, 0.7, **bounds)
    for _ in range(60):
        x, a, r = rng.normal(size=D), int(rng.integers(K)), float(rng.normal())
        learner.observe(x, a, r)
        reference.observe(x, a, r)
        reference.follow(learner.refreshes)
    z = rng.normal(size=D)
    np.testing.assert_allclose(learner.scores(z)[0], reference.scores(z)[0], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(learner.scores(z)[1], reference.theory_widths(z), rtol=1e-6)


@pytest.mark.parametrize("sandwich", [False, True])
@pytest.mark.parametrize("noise", [0.1, 0.003])
@pytest.mark.parametrize("rows", [(400, 400, 400), (400, 3, 0)], ids=str)
def test_a_known_R12_with_repeated_features_and_few_rows(rng, rows, noise, sandwich):
    """What the log explains almost without rest, in directions that nobody recorded apart from each other."""
    arms = np.repeat(np.arange(3), rows)
    X = rng.normal(size=(len(arms), 5))
    X[:, 4] = X[:, 0] + X[:, 1]
    weights = rng.normal(size=(3, 7))
    hidden = 0.5 * X[:, :2] + 0.02 * rng.normal(size=(len(arms), 2))
    rewards = np.einsum("nd,nd->n", np.hstack([X, hidden]), weights[arms]) + noise * rng.normal(size=len(arms))
    schema = sl.Schema.for_arrays(7, recorded=5, n_arms=3)
    summary = sl.summarize_log((X, arms, rewards), schema, sandwich=sandwich)
    R12 = np.einsum("ni,nj->ij", X, hidden) / len(arms)
    learner = sl.FusedOFUL(sl.KnownCrossMoments(summary, np.array([R12] * 3)), sandwich=sandwich)
    for _ in range(150):
        x = rng.normal(size=7)
        x[4] = x[0] + x[1]
        decision = learner.decide(x, rng=rng)
        learner.observe(x, decision.arm, float(x @ weights[decision.arm] + noise * rng.normal()))
    assert np.isfinite(learner.scores(x)).all()
    assert abs(learner.scores(x)[0] - weights @ x).min() < 1.0


def test_known_logs_err_by_their_own_rows(rng):
    """By ``n·Cov(x_o(x_o·v))``; nothing is shared between logs, so nothing is multiplied by their number."""
    weights = rng.normal(size=(K, D))
    raws = [draw_log(rng, D, [1, 4], K, weights, SIGMA, rows=400) for _ in range(2)]
    R12 = rng.normal(size=(K, 2, 3))
    learner = sl.FusedOFUL([sl.KnownCrossMoments(raw.summary, R12) for raw in raws], safety=0.0)
    roots = rng.normal(size=(K, D, D))
    covariances = roots @ np.swapaxes(roots, 1, 2)
    known = Known(weights, 0.3 * covariances, weight_bound=1.0, context_bound=1.0)
    for log, raw in zip(learner.logs, raws, strict=True):
        log.refresh(known, shared=2, bias_bound=0.0, sandwich=False)
        hidden = [0, 2, 3]
        for a in range(K):
            second = np.outer(weights[a][hidden], weights[a][hidden]) + 0.3 * covariances[a][np.ix_(hidden, hidden)]
            error = known_error(raw, a, log.hidden.regression()[a], second)
            inverse = np.linalg.inv(raw.gram[a])
            expected = np.linalg.inv(raw.s2[a] * inverse + inverse @ error @ inverse)
            np.testing.assert_allclose(log.evidence.precision[a], expected, rtol=1e-8)


def test_no_online_reward_has_a_say_in_the_proven_evidence(rng, log):
    """The proof needs ``V_0`` to be the same whatever the noise was."""
    one, other = (
        sl.FusedOFUL(sl.BehaviorQueries(log.summary), radius="theory", regularization=1.3, noise=0.7, safety=0.0)
        for _ in range(2)
    )
    for _ in range(100):
        x, a = rng.normal(size=D), int(rng.integers(K))
        for learner, r in ((one, 0.0), (other, float(10 * rng.normal()))):
            learner.observe_behavior(x, a)
            learner.observe(x, a, r)
    np.testing.assert_array_equal(one.prior_precisions, other.prior_precisions)


def test_what_the_proof_does_not_cover_is_refused(log):
    hidden = sl.BehaviorQueries(log.summary)
    with pytest.raises(sl.errors.InputError, match="fixed beforehand"):
        sl.FusedOFUL(hidden, radius="theory")
    with pytest.raises(sl.errors.InputError, match="stands still"):
        sl.FusedOFUL(hidden, radius="theory", regularization=1.0, noise=1.0, forgetting=0.99)


def test_a_sandwich_needs_the_squared_residuals(log):
    with pytest.raises(sl.errors.InputError, match=r"summarize_log.*sandwich=True"):
        sl.FusedOFUL(sl.BehaviorQueries(log.summary), sandwich=True)
    with pytest.raises(sl.errors.InputError, match=r"'old'.*second pass"):
        sl.FusedOFUL({"old": sl.BehaviorQueries(log.summary)}, sandwich=True)


@pytest.mark.parametrize(
    "settings",
    [{"bias_bound": -1.0}, {"safety": -0.1}, {"safety": np.nan}, {"forgetting": 0.0}, {"forgetting": 1.5},
     {"query_budget": -3}, {"query_budget": np.nan}, {"bias_bound": np.nan}, {"safety": "some"},
     {"forgetting": "0.9"}, {"query_budget": "10"}, {"floor": "0.1"}, {"floor": {"part": 0.1}},
     {"floor": {"share": "0.1"}}, {"bias_bound": [0.1] * 5}],
    ids=str,
)  # fmt: skip
def test_settings_are_checked(log, settings):
    with pytest.raises(sl.errors.InputError, match=next(iter(settings))):
        sl.FusedOFUL(sl.BehaviorQueries(log.summary), **settings)


def test_an_answer_after_the_budget_is_spent_needs_the_chance_with_which_it_was_asked(log, rng):
    learner = sl.FusedOFUL(sl.BehaviorQueries(log.summary), query_budget=1)
    first, second = rng.normal(size=(2, learner.n_features))
    chance = learner.query_probability(second)
    learner.observe_behavior(first, learner.arms[0])
    with pytest.raises(sl.errors.InputError, match=r"budget is spent.*probability="):
        learner.observe_behavior(second, learner.arms[0])
    assert learner.asking.asked == 1
    learner.observe_behavior(second, learner.arms[0], probability=chance)
    assert learner.asking.asked == 2


@pytest.mark.parametrize("rewards", ["zeros", "linear", "constant"])
def test_a_log_without_noise(rng, rewards):
    """No clicks yet, or rewards that the recorded features explain to the last digit: the learner goes on."""
    schema = sl.Schema(["a", "b", "h"], recorded=["a", "b"])
    X, arms = rng.normal(size=(400, 2)), rng.integers(3, size=400)
    logged = {"zeros": np.zeros(400), "linear": X @ [1.0, -2.0], "constant": np.full(400, 3.0)}[rewards]
    learner = sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log((X, arms, logged), schema)))
    for x in rng.normal(size=(200, 3)):
        learner.observe_behavior(x, int(rng.integers(3)))
        decision = learner.decide(x, rng=rng)
        assert np.isfinite([decision.estimate, decision.width]).all()
        learner.observe(x, decision.arm, 0.0 if rewards == "zeros" else float(x[0] - 2 * x[1] + x[2]))
    assert np.isfinite(learner.noise)
