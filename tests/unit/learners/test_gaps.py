"""Contexts with gaps: what is inferred, how surely, what such a round counts for, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference

import sidelight as sl
from sidelight.errors import ContextError, InputError, SchemaError
from sidelight.learners.gaps import SHRINKAGE, Gaps
from sidelight.worlds.linear import LinearWorld

ARMS = ("a", "b", "c")
RHO = 0.7


class Normals(LinearWorld):
    """A constant and correlated normal features; the old policy looks at the hidden ones."""

    context_bound = 10.0

    def __init__(self, seed, n_arms=3, n_features=5, hidden=2, noise=0.4):
        rng = np.random.default_rng([seed, 1])
        d = n_features
        names = ["one", *(f"x{i}" for i in range(1, d))]
        super().__init__(
            rng.normal(size=(n_arms, d)) / np.sqrt(d), noise, schema=sl.Schema(names, names, arms=list(ARMS[:n_arms]))
        )
        at = np.arange(d - 1)
        self.covariance = RHO ** np.abs(at[:, None] - at)
        self._factor = np.linalg.cholesky(self.covariance)
        self._logits = np.zeros((n_arms, d))
        self._logits[:, d - hidden :] = rng.normal(size=(n_arms, hidden))

    def contexts(self, n, rng):
        return np.column_stack([np.ones(n), rng.normal(size=(n, self.n_features - 1)) @ self._factor.T])

    def behavior_logits(self, X):
        return X @ self._logits.T


def learned(X, schema):
    gaps = Gaps.of(schema)
    for x in X:
        gaps.learn(x)
    return gaps


def with_gaps(X, share, rng, columns=None):
    out = X.copy()
    gone = rng.random(X.shape) < share
    gone[:, 0] = False
    if columns is not None:
        gone[:, [j for j in range(X.shape[1]) if j not in columns]] = False
    out[gone] = np.nan
    return out


@pytest.fixture(scope="module")
def world():
    return Normals(0)


@pytest.fixture(scope="module")
def summary(world):
    schema = world.schema(3).with_missing("impute")
    return sl.summarize_log(world.sample_log(4_000, 3, np.random.default_rng(3)), schema)


def test_a_gap_is_filled_by_the_regression_on_what_is_there(world, summary):
    rng = np.random.default_rng(5)
    X = world.contexts(400, rng)
    gaps = learned(X, summary.schema)
    x = np.array([1.0, 0.8, np.nan, -0.4, np.nan])
    found = gaps.complete(x)
    expected, covariance = reference.conditional_normal(X[: int(gaps_rows(gaps))], x, SHRINKAGE)
    np.testing.assert_allclose(found.x, expected, rtol=1e-4)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-4)
    assert found.gaps.tolist() == [2, 4]
    assert found.known


def gaps_rows(gaps):
    """How many contexts the regressions were learned from: the count at their last refresh."""
    n, due = 0, 1
    while due <= gaps.rows:
        n, due = due, int(np.ceil(1.1 * due))
    return n


def test_moments_are_those_of_the_population_though_values_are_missing(world, summary, seed):
    """Failure probability about 1e-4: entries are off by less than 5 standard errors of about 1/√(0.49 · 4000)."""
    rng = np.random.default_rng([seed, 11])
    gaps = learned(with_gaps(world.contexts(4_000, rng), 0.3, rng), summary.schema)
    correlations = np.linalg.inv(gaps.precision[1:, 1:])
    np.testing.assert_allclose(correlations, world.covariance, atol=5 / np.sqrt(0.49 * 4_000))


def test_an_inferred_value_errs_by_as_much_as_is_claimed(world, summary, seed):
    """Squared errors of ``x̂`` over their claimed variances, 20 samples of 150 contexts: 1.21 with a spread of 0.09.

    Failure probability about 1e-4: four spreads on either side.  A claim without the present features' distance, or
    with the number of all contexts instead of those that had both features, would be off by a factor of two.
    """
    ratios = []
    for i in range(20):
        rng = np.random.default_rng([seed, 23, i])
        gaps = learned(with_gaps(world.contexts(150, rng), 0.3, rng), summary.schema)
        for x in with_gaps(world.contexts(60, rng), 0.3, rng):
            context = gaps.complete(x)
            gone, there = context.gaps, np.flatnonzero(~np.isnan(x))[1:]
            if not len(gone):
                continue
            C = world.covariance
            known = np.linalg.solve(C[np.ix_(there - 1, there - 1)], x[there]) if len(there) else np.zeros(0)
            expected = C[np.ix_(gone - 1, there - 1)] @ known
            ratios.append(np.mean((context.x[gone] - expected) ** 2 / np.diagonal(context.error)))
    assert 0.83 < np.mean(ratios) < 1.59


def test_a_width_has_how_well_the_gap_can_be_inferred(world, summary):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), alpha=0.7)
    rng = np.random.default_rng(19)
    for t, x in enumerate(world.contexts(80, rng)):
        learner.observe(x, ARMS[t % len(ARMS)], float(x[2] - x[4] + rng.normal()))
    x = np.array([1.0, 0.3, np.nan, 0.2, np.nan])
    context, gaps = learner.gaps.complete(x), learner.gaps
    there = [1, 3]
    C = np.linalg.inv(gaps.precision)[np.ix_(there, there)]
    z = (x[there] - gaps.means[there]) / gaps.scales[there]
    rows = [1.0 / np.mean(1.0 / gaps.counts[j, there]) - 3.0 for j in (2, 4)]
    error = context.covariance * (1.0 + z @ np.linalg.inv(C) @ z) / np.sqrt(np.outer(rows, rows))
    np.testing.assert_allclose(context.error, error, rtol=1e-9)
    w = np.array([learner.weights_of(arm)[[2, 4]] for arm in ARMS])
    (estimates, widths), (same, narrow) = learner.scores(x), learner.scores(context.x)
    np.testing.assert_array_equal(estimates, same)
    np.testing.assert_allclose(widths**2 - narrow**2, 0.7**2 * np.einsum("ai,ij,aj->a", w, error, w), rtol=1e-9)
    decided = learner.decide(x)
    assert decided.width == widths[ARMS.index(decided.arm)]
    assert learner.decide_many(x[None]) == [decided]


def test_a_context_that_comes_twice_is_learned_from_once(world, summary):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    X = world.contexts(30, np.random.default_rng(21))
    for t, x in enumerate(X):
        if t % 3 == 0:
            learner.observe_behavior(x, "a")
        learner.observe(x, "b", 0.5)
    assert learner.gaps.rows == 30
    for x in X[:7]:
        learner.observe_behavior(x, "c")
    assert learner.gaps.rows == 30


def test_the_log_is_where_it_begins(summary):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    filled = learner.filled({"one": 1.0, "x1": 2.0, "x2": None, "x3": 0.0, "x4": 0.0})
    assert filled[2] == pytest.approx(RHO * 2.0, abs=0.15)
    # of a hidden feature nothing is known yet
    assert learner.filled([1.0, 2.0, 0.0, 0.0, np.nan])[4] == 0.0


def test_a_round_counts_for_what_its_noise_lets_it(world, summary):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    rng = np.random.default_rng(7)
    for x in world.contexts(60, rng):
        learner.observe(x, "a", float(rng.normal()))
    before = learner.grams.copy()
    x = np.array([1.0, 0.3, np.nan, 0.2, np.nan])
    context = learner.gaps.complete(x)
    w, V = learner.weights_of("a"), learner.covariances[0]
    variance = learner.noises[0] ** 2
    added = reference.gap_variance(
        context.covariance, w[context.gaps], variance * V[np.ix_(context.gaps, context.gaps)]
    )
    weight = variance / (variance + added)
    assert 0.0 < weight < 1.0
    learner.observe(x, "a", 0.4)
    np.testing.assert_allclose(learner.grams[0] - before[0], weight * np.outer(context.x, context.x), atol=1e-12)
    assert learner.counts[0] == 61


def test_a_round_that_lacks_what_nobody_has_seen_says_nothing_about_rewards(summary):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    learner.observe([1.0, 0.5, 0.2, np.nan, 0.1], "a", 1.0)
    assert learner.counts.sum() == 0
    assert learner.gaps.rows == 1


def test_contexts_without_gaps_are_learned_as_ever(world, summary):
    plain = sl.FusedOFUL(sl.BehaviorQueries(summary), schema=summary.schema.with_missing("refuse"))
    gappy = sl.FusedOFUL(sl.BehaviorQueries(summary))
    rng = np.random.default_rng(9)
    for t, x in enumerate(world.contexts(80, rng)):
        for learner in (plain, gappy):
            learner.observe_behavior(x, ARMS[t % 3])
            learner.observe(x, ARMS[t % 2], float(x[1]))
        assert plain.decide(x) == gappy.decide(x)


def test_an_answer_at_a_context_with_gaps_teaches_the_hidden_half(summary):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    hidden = learner.logs[0].hidden
    learner.observe_behavior([1.0, 0.5, np.nan, 0.3, 0.1], "a")
    assert (hidden.n_answers, hidden.sums.n_answers) == (1, 0)
    assert (learner.gaps.rows, learner.asking.asked) == (1, 1)
    learner.observe_behavior([1.0, 0.5, 0.2, 0.3, 0.1], "a")
    assert (hidden.n_answers, hidden.sums.n_answers) == (2, 1)
    # without any hidden feature it teaches how the recorded ones go together alone
    learner.observe_behavior([1.0, 0.5, 0.2, np.nan, np.nan], "a")
    assert (hidden.n_answers, learner.gaps.rows) == (2, 3)


def test_batches_are_rows_one_by_one(world, summary):
    rng = np.random.default_rng(13)
    X = with_gaps(world.contexts(120, rng), 0.3, rng)
    arms, rewards = [ARMS[i % 3] for i in range(120)], rng.normal(size=120)
    one, many = (sl.FusedOFUL(sl.BehaviorQueries(summary)) for _ in range(2))
    for x, arm in zip(X, arms, strict=True):
        one.observe_behavior(x, arm)
    many.observe_behavior_many(X, arms)
    for x, arm, reward in zip(X, arms, rewards, strict=True):
        one.observe(x, arm, reward)
    many.observe_many(X, arms, rewards)
    assert [one.decide(x) for x in X] == many.decide_many(X) == one.decide_many(X)


def test_units_do_not_matter(world, summary):
    """Powers of two: the same decisions to the bit, gaps and all."""
    units = np.array([1.0, 8.0, 0.25, 1024.0, 0.5])
    log = world.sample_log(2_000, 3, np.random.default_rng(3))
    scaled = log
    for j, name in enumerate(log.column_names[:3]):
        scaled = scaled.set_column(j, name, [log[name].to_numpy() * units[j]])
    learners = [sl.FusedOFUL(sl.BehaviorQueries(sl.summarize_log(table, summary.schema))) for table in (log, scaled)]
    rng = np.random.default_rng(15)
    X = with_gaps(world.contexts(150, rng), 0.2, rng)
    for t, x in enumerate(X):
        decisions = [
            learner.decide(np.ascontiguousarray(x * unit)) for learner, unit in zip(learners, (1.0, units), strict=True)
        ]
        assert decisions[0] == decisions[1]
        for learner, unit in zip(learners, (1.0, units), strict=True):
            learner.observe_behavior(np.ascontiguousarray(x * unit), ARMS[t % 3])
            learner.observe(np.ascontiguousarray(x * unit), decisions[0].arm, float(np.nan_to_num(x).sum()))


def test_one_wild_value_does_not_undo_the_regressions(world, summary):
    rng = np.random.default_rng(17)
    gaps = learned(world.contexts(2_000, rng), summary.schema)
    x = np.array([1.0, 1.0, np.nan, 0.0, 0.0])
    before = gaps.complete(x).x
    gaps.learn(np.array([1.0, 1e9, -1e9, 0.0, 0.0]))
    for y in world.contexts(300, rng):
        gaps.learn(y)
    np.testing.assert_allclose(gaps.complete(x).x, before, atol=0.35)


def test_pairs_that_contradict_each_other_have_an_inverse_all_the_same(summary):
    """Correlations from different contexts need not be those of any three features together."""
    gaps = Gaps.of(summary.schema)
    ones = np.repeat([[1.0, -1.0]], 50, axis=0).ravel()
    for i, j, sign in ((1, 2, 1.0), (2, 3, 1.0), (1, 3, -1.0)):
        for v in ones:
            x = np.full(5, np.nan)
            x[[0, i, j]] = 1.0, v, sign * v
            gaps.learn(x)
    assert np.isfinite(gaps.precision).all()
    assert (np.linalg.eigvalsh(gaps.precision) > 0).all()
    assert np.abs(gaps.complete(np.array([1.0, 1.0, np.nan, np.nan, 0.0])).x).max() < 10


@pytest.mark.parametrize(
    ("x", "says"),
    [
        ([np.nan, 0.0, 0.0, 0.0, 0.0], "'one' of the context is not finite"),
        ([1.0, np.inf, 0.0, 0.0, 0.0], "'x1' of the context is not finite"),
        ([1.0, 0.0, 0.0, 0.0, 1e200], "so large that its square overflows"),
    ],
)
def test_what_is_no_gap_is_refused(world, x, says):
    schema = world.schema(3).with_missing(dict.fromkeys(("x1", "x2", "x4"), "impute"))
    learner = sl.OFUL(3, 5, schema=schema, arms=ARMS)
    for call in (learner.decide, lambda y: learner.decide_many([y]), lambda y: learner.observe(y, "a", 1.0)):
        with pytest.raises(ContextError, match=says):
            call(x)
    assert learner.decide([1.0, np.nan, 0.0, 0.0, np.nan]).arm in ARMS


def test_a_context_without_any_value_is_refused():
    schema = sl.Schema(["x", "y"], ["x"], arms=ARMS, missing="impute")
    learner = sl.OFUL(3, 2, schema=schema, arms=ARMS)
    with pytest.raises(ContextError, match="Every feature of the context is missing"):
        learner.decide({"x": None})


def test_what_is_proven_takes_no_gaps(summary):
    with pytest.raises(InputError, match="proven for contexts whose every value was seen"):
        sl.FusedOFUL(sl.BehaviorQueries(summary), floor=0.1, noise=0.3, regularization=1.0)


def test_a_schema_says_what_it_does_not_know():
    with pytest.raises(SchemaError, match="Did you mean 'age'"):
        sl.Schema(["age"], ["age"], missing={"aeg": "impute"})
    with pytest.raises(SchemaError, match="'drop' for 'age'"):
        sl.Schema(["age"], ["age"], missing="drop")


def test_a_reward_that_comes_late_at_a_context_with_gaps(world, summary):
    late, told = (sl.FusedOFUL(sl.BehaviorQueries(summary)) for _ in range(2))
    for learner in (late, told):
        for x in world.contexts(8, np.random.default_rng(20)):
            learner.observe(x, "b", float(x[1]))
    x = np.array([1.0, 0.3, np.nan, 0.2, np.nan])
    for learner in (late, told):
        learner.gaps.due = np.inf  # the same regressions before and after
    receipt = late.receipt(x, 0.0, "b")
    assert 0.0 < receipt.noise < 1.0
    late.observe(x, "b", 0.0)
    late.correct(x, "b", 0.0, 0.7, receipt=receipt)
    told.observe(x, "b", 0.7)
    for name in ("grams", "moments", "squares", "context_sums", "counts"):
        np.testing.assert_allclose(getattr(late, name), getattr(told, name), rtol=1e-9, atol=1e-12)
    unknown = sl.FusedOFUL(sl.BehaviorQueries(summary))
    receipt = unknown.receipt(x, 0.0, "b")
    unknown.observe(x, "b", 0.0)
    unknown.correct(x, "b", 0.0, 0.7, receipt=receipt)
    assert unknown.counts.sum() == 0
