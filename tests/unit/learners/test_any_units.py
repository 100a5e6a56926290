"""Automatic settings do not depend on the user's units: exactly under powers of two, to rounding under any others."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import sidelight as sl

AUTO = {"regularization": "auto", "radius": "posterior"}
K, L, M, N = 4, 3, 2, 250


class Past:
    """A log, contexts, rewards and answers in given units; the intercept, if any, comes first."""

    def __init__(self, seed, intercept, scale=1.0, shift=0.0, reward_scale=1.0, reward_shift=0.0):
        rng = np.random.default_rng(seed)
        d = L + M + intercept
        names = [f"x{j}" for j in range(L + M)]
        self.schema = sl.Schema(names, names[:L], arms=range(K), intercept=bool(intercept))
        W = rng.normal(size=(K, L + M))

        def draw(n):
            z = rng.normal(size=(n, L + M)) + 0.3
            means = z @ W.T + np.arange(K)
            arms = (means + 3.0 * rng.gumbel(size=(n, K))).argmax(axis=1)
            rewards = means + 0.5 * rng.normal(size=(n, 1))
            x = z * scale + shift
            return np.hstack([np.ones((n, intercept)), x]), arms, rewards * reward_scale + reward_shift

        X, arms, rewards = draw(1_500)
        own = rewards[np.arange(len(X)), arms]
        self.summary = sl.LogSummary.from_arrays(X[:, : L + intercept], arms, own, self.schema)
        residuals = own - np.einsum("nl,nl->n", X[:, : L + intercept], self.summary.coefficients[arms])
        meat = np.zeros((K, L + intercept, L + intercept))
        for a in range(K):
            part = X[arms == a][:, : L + intercept] * residuals[arms == a][:, None]
            meat[a] = np.einsum("ni,nj->ij", part, part)
        self.with_meat = sl.LogSummary(self.schema, self.summary.moments, meat=meat)
        cross = [
            X[arms == a][:, : L + intercept].T @ X[arms == a][:, L + intercept :] / (arms == a).sum() for a in range(K)
        ]
        self.R12 = np.array(cross)
        self.X, self.answers, self.rewards = draw(N)
        self.unit, self.level, self.d = reward_scale, reward_shift, d


LEARNERS = {
    "OFUL": lambda p: sl.OFUL(K, p.d, schema=p.schema, **AUTO),
    "zero-filled": lambda p: sl.ZeroFilledOFUL(p.summary, **AUTO),
    "every round": lambda p: sl.RunningOFUL(sl.BehaviorQueries(p.summary, estimator="ipw"), **AUTO),
    "every round, regression": lambda p: sl.RunningOFUL(sl.BehaviorQueries(p.summary), **AUTO),
    "epochs": lambda p: sl.EpochOFUL(sl.BehaviorQueries(p.summary), N, **AUTO),
    "epochs, data kept": lambda p: sl.EpochOFUL(sl.BehaviorQueries(p.summary), N, keep_data=True, **AUTO),
    "projected": lambda p: sl.ProjectedOFUL(sl.SideInformation.from_log(p.summary, p.R12), **AUTO),
    "fused": lambda p: sl.FusedOFUL(sl.BehaviorQueries(p.summary)),
    "fused, a budget": lambda p: sl.FusedOFUL(sl.BehaviorQueries(p.summary), query_budget=0.5),
    "fused, no pooling": lambda p: sl.FusedOFUL(sl.BehaviorQueries(p.summary, pooling=0.0)),
    "fused, sandwich": lambda p: sl.FusedOFUL(sl.BehaviorQueries(p.with_meat), sandwich=True),
    "fused, known": lambda p: sl.FusedOFUL(sl.KnownCrossMoments(p.summary, p.R12)),
}


def play(make, past, arms=None):
    """Arms, and estimates and widths in units of the reward, round by round; ``arms`` replays another run's."""
    learner, chosen, scores = make(past), [], []
    for t, x in enumerate(past.X):
        if learner.needs == "action" and learner.wants_query(x):
            learner.observe_behavior(x, int(past.answers[t]))
        estimates, widths = learner.scores(x)
        scores.append(((estimates - past.level) / past.unit, widths / past.unit))
        arm = learner.decide(x).arm if arms is None else arms[t]
        chosen.append(arm)
        learner.observe(x, arm, float(past.rewards[t, arm]))
    return chosen, np.array(scores)


@functools.cache
def played(seed, learner, intercept):
    """What the learner does in the units of the data; tests compare other units with it."""
    return play(LEARNERS[learner], Past(seed, intercept))


@pytest.mark.parametrize("intercept", [0, 1])
@pytest.mark.parametrize("learner", LEARNERS)
def test_powers_of_two_change_no_decision(seed, learner, intercept):
    decide_alike_in_powers_of_two(seed, learner, intercept)


def test_whether_answers_bound_an_error_is_no_matter_of_units():
    decide_alike_in_powers_of_two(1, "epochs", 0)


def decide_alike_in_powers_of_two(seed, learner, intercept):
    rng = np.random.default_rng(seed)
    plain = played(seed, learner, intercept)
    for largest in (6, 100):
        scale = 2.0 ** rng.integers(-largest, largest + 1, size=L + M)
        unit = 2.0 ** float(rng.integers(-largest, largest + 1))
        arms, scores = play(LEARNERS[learner], Past(seed, intercept, scale, reward_scale=unit))
        assert arms == plain[0]
        # before the second reward there is no unit of rewards
        np.testing.assert_array_equal(scores[2:], plain[1][2:])


#: learners to which a shift of the hidden features too is nothing but other numbers, and those to which no shift is
CENTRED = ("OFUL", "every round, regression", "epochs", "epochs, data kept", "fused")
UNSHIFTED = ("every round", "fused, no pooling")


# squared residuals around a feature that lies hundreds of its deviations from zero keep five digits, not six; a budget
# is spent by a coin that the context tosses
@pytest.mark.parametrize("intercept", [0, 1])
@pytest.mark.parametrize("learner", [name for name in LEARNERS if name not in ("fused, sandwich", "fused, a budget")])
def test_other_units_change_scores_by_rounding_alone(seed, learner, intercept):
    score_alike_in_other_units(seed, learner, intercept)


# first contexts whose hidden features hardly differ; fewer answers than features
@pytest.mark.parametrize(
    ("seed", "learner"),
    [(5, "every round, regression"), (10, "epochs"), (6, "epochs, data kept"), (0, "fused, no pooling")],
)
def test_few_rounds_and_answers_leave_enough_digits(seed, learner):
    score_alike_in_other_units(seed, learner, 1)


def score_alike_in_other_units(seed, learner, intercept):
    rng = np.random.default_rng(seed)
    arms, plain = played(seed, learner, intercept)
    scale = 10.0 ** rng.uniform(-4, 4, size=L + M)
    # a shift of hidden features is another world for zeros in their place, and for known or weighted raw moments
    shift, level = np.concatenate([rng.uniform(-300, 300, size=L), np.zeros(M)]) * scale, 900.0
    if learner in CENTRED:
        shift = rng.uniform(-300, 300, size=L + M) * scale
    if learner in UNSHIFTED or not intercept:
        shift, level = np.zeros(L + M), 0.0
    _, scores = play(LEARNERS[learner], Past(seed, intercept, scale, shift, 37.0, level), arms)
    size = np.abs(plain).max()
    assert np.abs(scores[3:] - plain[3:]).max() < 1e-6 * size


def test_a_coin_that_is_tossed_by_the_context_does_not_see_powers_of_two(rng):
    past = Past(0, 1)
    learner = LEARNERS["fused, known"](past)
    x = rng.normal(size=past.d)
    assert learner._draw_from(x) == learner._draw_from(x * 2.0 ** rng.integers(-50, 50, size=past.d))
    assert learner._draw_from(x) != learner._draw_from(1.1 * x)


@pytest.mark.parametrize("regularization", [1e-4, 1e-6, 1e-8])
def test_directions_that_rounds_leave_open_take_no_digits_from_the_others(rng, regularization):
    """Three copies of a feature in other units: the covariance of their differences is ``1/λ``, what they say is known.

    With ``x = zu`` it is ridge regression on ``z``: ``u·ŵ = |u|²Σzr/(λ + |u|²Σz²)``.
    """
    learner, u = sl.OFUL(1, 3, regularization=regularization, noise=1.0), np.array([1.0, 3.7, -0.021])
    Z, noise = rng.normal(size=(2, 300))
    for z, r in zip(Z, 2.0 * Z + noise, strict=True):
        learner.observe(z * u, 0, float(r))
    learner.refresh()
    size = float(u @ u)
    expected = size * float(Z @ (2.0 * Z + noise)) / (regularization + size * float(Z @ Z))
    assert learner.scores(u)[0][0] == pytest.approx(expected, rel=1e-11)
