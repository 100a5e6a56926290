"""The contract of estimators: an object that only delegates behaves to the bit like what it wraps."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl
from sidelight.hidden.protocol import EstimatorDefaults, completed

MEMBERS = [
    *("summary", "needs", "n_answers", "observe", "regression", "precision", "residual_moments", "bound", "copy"),
    *(name for name in vars(EstimatorDefaults) if not name.startswith("_")),
]


class Attributes:
    """Delegates by ``__getattr__``, and stays a wrapper when copied."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def copy(self):
        return type(self)(self._inner.copy())

    def unpooled(self):
        return type(self)(self._inner.unpooled())


def _delegated(name):
    return property(lambda self: getattr(self._inner, name))


class Members(Attributes):
    """Delegates every member of the contract by a property of its own."""


for _name in MEMBERS:
    if _name not in ("copy", "unpooled"):
        setattr(Members, _name, _delegated(_name))


class Study:
    """A user's own estimator with the required members alone."""

    needs = None
    n_answers = 0

    def __init__(self, summary):
        self.summary = summary
        K, L, m = summary.n_arms, summary.n_recorded, summary.n_features - summary.n_recorded
        self._B, self._residual = np.full((K, L, m), 0.1), np.broadcast_to(0.2 * np.eye(m), (K, m, m))

    def observe(self, x, answer, probability=1.0):
        """Needs none."""

    def regression(self):
        return self._B

    def precision(self):
        return 300.0 * self.summary.second_moments

    def residual_moments(self):
        return self._residual

    def bound(self, delta, horizon, context_bound=1.0):
        return np.full(self.summary.n_arms, np.inf)

    def copy(self):
        return self


@pytest.fixture(scope="module")
def world():
    return sl.worlds.ConfoundedWorld(seed=3, n_arms=3, n_features=5, n_hidden=2)


@pytest.fixture(scope="module")
def summary(world):
    return sl.summarize_log(world.sample_log(600, 3, np.random.default_rng(4)), world.schema(3))


def estimators(world, summary):
    rows = world.sample_log(200, 5, np.random.default_rng(5))
    return {
        "queries": sl.BehaviorQueries(summary),
        "queries, ipw": sl.BehaviorQueries(summary, estimator="ipw"),
        "probabilities": sl.BehaviorProbabilities(summary),
        "companion": sl.CompanionLog(summary, rows),
        "known": sl.KnownCrossMoments(summary, np.full((3, 3, 2), 0.1)),
    }


def learners(hidden):
    return {
        "FusedOFUL": sl.FusedOFUL(hidden),
        "theory": sl.FusedOFUL(hidden, radius="theory", regularization=1.0, noise=0.5),
        "Thompson": sl.FusedThompson(hidden),
        "RunningOFUL": sl.RunningOFUL(hidden, noise=0.3),
        "EpochOFUL": sl.EpochOFUL(hidden, 200, noise=0.3),
    }


def run(learner, world, n=90):
    """Scores and arms over ``n`` rounds, round by round."""
    rng, out = np.random.default_rng(7), []
    X = world.contexts(n, rng)
    P = world.behavior_probabilities(X)
    actions = world.behavior_actions(X, rng)
    for t, x in enumerate(X):
        estimates, widths = learner.scores(x)
        decision = learner.decide(x, rng=rng)
        out.append(np.concatenate([estimates, widths, [decision.arm]]))
        if learner.needs == "action":
            learner.observe_behavior(x, actions[t])
        elif learner.needs == "probabilities":
            learner.observe_behavior(x, probabilities=P[t])
        learner.observe(x, decision.arm, float(np.sin(3.0 * t) + x.sum()))
    return np.array(out)


@pytest.mark.parametrize("kind", ["queries", "queries, ipw", "probabilities", "companion", "known"])
def test_a_delegating_wrapper_gives_the_same_bits(world, summary, kind):
    plain = learners(estimators(world, summary)[kind])
    wrapped = [(wrapper, learners(wrapper(estimators(world, summary)[kind]))) for wrapper in (Attributes, Members)]
    for name, learner in plain.items():
        expected = run(learner, world)
        for wrapper, others in wrapped:
            np.testing.assert_array_equal(expected, run(others[name], world), err_msg=f"{name}, {wrapper.__name__}")


@pytest.mark.parametrize("kind", ["queries", "queries, ipw"])
def test_a_delegating_wrapper_gives_the_same_bits_in_compiled_rounds(world, summary, kind):
    def simulated(wrap):
        makers = {
            "FusedOFUL": lambda run: sl.FusedOFUL(wrap(estimators(world, run.summary)[kind])),
            "RunningOFUL": lambda run: sl.RunningOFUL(wrap(estimators(world, run.summary)[kind]), noise=0.3),
        }
        return sl.simulate(world, makers, horizon=120, recorded=3, log_rows=500, seeds=1, workers=1)

    assert simulated(lambda hidden: hidden).equals(simulated(Attributes))


@pytest.mark.parametrize("kind", ["queries", "probabilities", "companion", "known"])
def test_a_learner_with_a_wrapper_is_saved_as_what_it_wraps(world, summary, kind, tmp_path):
    learner = sl.FusedOFUL(Attributes(estimators(world, summary)[kind]))
    run(learner, world, 30)
    learner.save(tmp_path / "learner")
    again = sl.load_learner(tmp_path / "learner")
    np.testing.assert_array_equal(run(learner, world, 30), run(again, world, 30))


def test_a_users_own_estimator_gets_the_defaults(world, summary):
    study = Study(summary)
    assert isinstance(study, sl.HiddenEstimator)
    full = completed(study)
    assert full.sums is None
    assert full.companion is None
    assert not full.error_from_log
    assert not full.takes_actions_by_sums
    assert full.room() > 10**9
    assert full.copy().regression() is study.regression()
    for name, learner in learners(study).items():
        assert np.isfinite(run(learner, world, 40)).all(), name
    with pytest.raises(sl.errors.InputError, match="Study"):
        full.state()


def test_defaults_by_inheritance_and_by_completion_are_the_same(world, summary):
    class Inherits(EstimatorDefaults, Study):
        pass

    one, other = Inherits(summary), Study(summary)
    assert completed(one) is one
    for plain, derived in zip(learners(other).values(), learners(one).values(), strict=True):
        np.testing.assert_array_equal(run(plain, world, 40), run(derived, world, 40))


@pytest.mark.parametrize("where", ["_fit_of", "_told"])
@pytest.mark.parametrize("asked", ["regression", "precision", "residual_moments"])
def test_a_reader_that_is_overtaken_by_an_answer_leaves_nothing_behind(where, asked):
    """A thread that reads works out a regression while the writer adds an answer and works out the next one.

    where: what the reader has begun, before or after it
    """
    world, rng = sl.worlds.ConfoundedWorld(seed=4, n_arms=3, n_features=5, n_hidden=2), np.random.default_rng(4)
    summary = sl.summarize_log(world.sample_log(500, 3, rng), world.schema(3))
    X = world.contexts(40, rng)
    answers = world.behavior_actions(X, rng)
    read, alone = sl.BehaviorQueries(summary), sl.BehaviorQueries(summary)
    for x, arm in zip(X[:-1], answers[:-1], strict=True):
        read.observe(x, int(arm))
        alone.observe(x, int(arm))
    working_out, strengths = getattr(read, where), read._strengths

    def overtaken(*given):
        setattr(read, where, working_out)
        before = working_out(*given) if where == "_told" else None
        read.observe(X[-1], int(answers[-1]))
        read.regression()
        return working_out(*given) if before is None else before

    setattr(read, where, overtaken)
    getattr(read, asked)()
    alone.observe(X[-1], int(answers[-1]))
    assert read._strengths == strengths  # else what the reader left would not be taken anyway
    np.testing.assert_array_equal(read.regression(), alone.regression())
    np.testing.assert_array_equal(read.precision(), alone.precision())
    np.testing.assert_array_equal(read.residual_moments(), alone.residual_moments())


class Careful(sl.BehaviorQueries):
    """Answers are worth a hundredth of what they say."""

    def precision(self):
        return 0.01 * super().precision()


class CarefulWrapper(Attributes):
    """The same by delegation."""

    def precision(self):
        return 0.01 * self._inner.precision()


@pytest.mark.parametrize("make", [Careful, lambda summary: CarefulWrapper(sl.BehaviorQueries(summary))])
def test_what_an_estimator_states_counts_whatever_its_differences_add_up_to(world, make):
    rng = np.random.default_rng(6)
    summary = sl.summarize_log(world.sample_log(4_000, 3, rng), world.schema(3))

    def learned(hidden):
        learner = sl.FusedOFUL(hidden)
        X = world.contexts(300, rng)
        actions = world.behavior_actions(X, rng)
        for t, x in enumerate(X):
            if t % 10 == 0:
                learner.observe_behavior(x, actions[t])
            learner.observe(x, t % 3, float(world.rewards(x[None], np.array([t % 3]), rng)[0]))
        learner._relearn()
        return learner.logs[0]

    plain, careful = learned(sl.BehaviorQueries(summary)), learned(make(summary))
    # rounds do tell of differences here, and an estimator that states something else is believed as it is
    assert plain.scales != (1.0, 1.0)
    assert careful.scales == (1.0, 1.0)
    np.testing.assert_allclose(careful.geometry.A, careful.hidden.precision(), rtol=1e-6)
