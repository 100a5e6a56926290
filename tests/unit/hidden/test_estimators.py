"""The four ways of learning the hidden half: sums, weights, shapes, files, and what they refuse."""

from __future__ import annotations

import copy
import math
import pickle
from collections import namedtuple

import numpy as np
import pytest
from tests import reference
from tests.unit.hidden.drawn import answers_of, one_hot
from tests.unit.learners.histories import draw_problem

import sidelight as sl
from sidelight.errors import ContextError, InputError, SidelightError, UnknownArmError
from sidelight.hidden.registry import estimator_from_state, estimator_state


@pytest.mark.parametrize("pooling", [0.0, 0.3, 50.0, 1e6])
def test_regression_toward_the_pool(rng, problem, pooling):
    p = problem
    X, arms, chances, q = answers_of(rng, p, 60)
    queries = sl.BehaviorQueries(p.summary, pooling=pooling)
    probabilities = sl.BehaviorProbabilities(p.summary, pooling=pooling)
    for x, a, c, w in zip(X, arms, chances, q, strict=True):
        queries.observe(x, int(a), probability=w)
        probabilities.observe(x, c, probability=w)
    metric = reference.pooling_metric(p.R11, p.shares)
    expected = reference.pooled_regression(one_hot(p, X, arms, q), p.L, p.K, pooling, metric)
    np.testing.assert_allclose(queries.regression(), expected, rtol=1e-8, atol=1e-10)
    weighted = [(x[p.order], c, float(w)) for x, c, w in zip(X, chances, q, strict=True)]
    expected = reference.pooled_regression(weighted, p.L, p.K, pooling, metric)
    np.testing.assert_allclose(probabilities.regression(), expected, rtol=1e-8, atol=1e-10)


def test_pooling_of_nothing_is_the_arms_own_regression(rng, problem):
    p = problem
    X, arms, _, _ = answers_of(rng, p, 80)
    queries = sl.BehaviorQueries(p.summary, pooling=0.0)
    for x, a in zip(X, arms, strict=True):
        queries.observe(x, int(a))
    Y = X[:, p.order]
    for a in range(p.K):
        own = np.linalg.lstsq(Y[arms == a, : p.L], Y[arms == a, p.L :], rcond=None)[0]
        np.testing.assert_allclose(queries.regression()[a], own, rtol=1e-9, atol=1e-11)


def test_a_companion_log_is_its_rows_as_answers(rng, problem):
    import pyarrow as pa

    p = problem
    X, arms, _, _ = answers_of(rng, p, 50)
    table = pa.table({f"x{j}": X[:, j] for j in range(p.d)} | {"arm": arms, "reward": rng.normal(size=50)})
    companion = sl.CompanionLog(p.summary, table, pooling=1.5)
    queries = sl.BehaviorQueries(p.summary, pooling=1.5)
    for x, a in zip(X, arms, strict=True):
        queries.observe(x, int(a))
    np.testing.assert_allclose(companion.regression(), queries.regression(), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(companion.precision(), queries.precision(), rtol=1e-7, atol=1e-8)
    assert companion.n_answers == 50
    assert companion.needs is None
    companion.observe(X[0], 0)
    assert companion.n_answers == 50


def test_a_companion_must_record_everything_and_have_the_same_arms(rng, problem):
    p = problem
    with pytest.raises(InputError, match="records 3 of 6"):
        sl.CompanionLog(p.summary, p.summary)
    schema = sl.Schema.for_arrays(6, recorded=6, n_arms=2)
    other = sl.LogSummary.from_arrays(rng.normal(size=(20, 6)), np.arange(20) % 2, rng.normal(size=20), schema)
    with pytest.raises(InputError, match="arms"):
        sl.CompanionLog(p.summary, other)


def test_known_cross_moments_go_with_the_logs_own_second_moments(rng, problem):
    p = problem
    R12 = rng.normal(size=(3, 3, 3))
    known = sl.KnownCrossMoments(p.summary, R12)
    np.testing.assert_allclose(known.regression(), [np.linalg.solve(p.R11[a], R12[a]) for a in range(3)], rtol=1e-8)
    assert known.precision() is None
    expected = [R12[a].T @ np.linalg.solve(p.R11[a], R12[a]) for a in range(3)]
    np.testing.assert_allclose(known.residual_moments(), expected, rtol=1e-7, atol=1e-9)
    assert known.bound(0.1, 100).tolist() == [0.0, 0.0, 0.0]
    for bad, message in ((np.zeros((3, 3, 2)), r"\(3, 3, 3\)"), (np.full((3, 3, 3), np.nan), "not finite")):
        with pytest.raises(InputError, match=message):
            sl.KnownCrossMoments(p.summary, bad)


def test_both_moments_known_leave_no_error_and_no_units(rng, problem):
    """``B = R11⁻¹R12`` of the source, to the bit under powers of two; files keep both."""
    p, units = problem, np.array([2.0**20, 1.0, 2.0**-30])
    roots = rng.normal(size=(3, 3, 3)) + 30.0 * np.eye(3)[0]
    R11, R12 = roots @ np.swapaxes(roots, 1, 2), rng.normal(size=(3, 3, 3))
    known = sl.KnownCrossMoments(p.summary, R12, R11)
    np.testing.assert_allclose(known.regression(), np.linalg.solve(R11, R12), rtol=1e-6)
    assert not known.log_error(np.ones((3, 3, 3))).any()
    scaled = sl.KnownCrossMoments(p.summary, units[:, None] * R12, units[:, None] * R11 * units)
    np.testing.assert_array_equal(scaled.regression() * units[:, None], known.regression())
    again = sl.KnownCrossMoments.from_state(p.summary, *known.state())
    np.testing.assert_array_equal(again.regression(), known.regression())
    for bad, message in ((np.zeros((3, 3, 2)), r"\(3, 3, 3\)"), (np.full((3, 3, 3), np.inf), "not finite")):
        with pytest.raises(InputError, match=f"R11 has.*{message}"):
            sl.KnownCrossMoments(p.summary, R12, bad)


@pytest.mark.parametrize("L", [0, 4])
@pytest.mark.parametrize("make", [sl.BehaviorQueries, sl.BehaviorProbabilities])
def test_nothing_recorded_or_nothing_hidden(rng, L, make):
    p = draw_problem(rng, d=4, L=L, K=2)
    hidden = make(p.summary)
    for _ in range(30):
        hidden.observe(rng.normal(size=4), 1 if make is sl.BehaviorQueries else [0.4, 0.6])
    assert hidden.regression().shape == (2, L, 4 - L)
    assert hidden.precision().shape == (2, L, L)
    assert hidden.residual_moments().shape == (2, 4 - L, 4 - L)
    assert hidden.bound(0.1, 50).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("recorded", [[], ["a"], ["a", "b"]])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("pooling", ["auto", 3.0])
def test_reading_an_estimate_changes_no_other(rng, recorded, intercept, pooling):
    """Also where a single coordinate makes a matrix its own transpose: one recorded feature, or an intercept alone."""
    if not recorded and not intercept:
        return
    schema = sl.Schema(["a", "b", "c"], recorded, arms=[0, 1], intercept=intercept)
    X = rng.normal(1.0, 1.0, size=(300, schema.n_features))
    X[:, : int(intercept)] = 1.0
    arms = rng.integers(2, size=300)
    log = sl.LogSummary.from_arrays(X[:, schema.recorded_index], arms, rng.normal(size=300), schema)
    hidden = sl.BehaviorQueries(log)
    if pooling != "auto":
        hidden.fix_pooling(pooling)
    for x, arm in zip(X[:100], arms, strict=False):
        hidden.observe(x, int(arm))
    before = hidden.precision()
    moments = hidden.residual_moments()
    np.testing.assert_array_equal(hidden.precision(), before)
    np.testing.assert_array_equal(hidden.residual_moments(), moments)
    if not recorded:
        # the level alone is recorded: each answer counts for about one
        counts = np.bincount(arms[:100], minlength=2)
        assert (np.abs(before[:, 0, 0] / counts - 1.0) < 0.2).all()


@pytest.mark.parametrize("kind", ["queries", "probabilities", "companion", "known"])
def test_every_estimator_is_a_hidden_estimator_and_survives_a_file(rng, problem, kind):
    p = problem
    schema = sl.Schema.for_arrays(6, recorded=6, n_arms=3)
    rows = sl.LogSummary.from_arrays(rng.normal(size=(60, 6)), np.arange(60) % 3, rng.normal(size=60), schema)
    hidden = {
        "queries": lambda: sl.BehaviorQueries(p.summary),
        "probabilities": lambda: sl.BehaviorProbabilities(p.summary, estimator="ipw"),
        "companion": lambda: sl.CompanionLog(p.summary, rows),
        "known": lambda: sl.KnownCrossMoments(p.summary, rng.normal(size=(3, 3, 3))),
    }[kind]()
    assert isinstance(hidden, sl.HiddenEstimator)
    for x in rng.normal(size=(40, 6)):
        hidden.observe(x, rng.dirichlet(np.ones(3)) if kind == "probabilities" else 2)
    again = estimator_from_state(*estimator_state(hidden))
    copy = hidden.copy()
    for twin in (again, copy):
        assert type(twin) is type(hidden)
        assert twin.n_answers == hidden.n_answers
        np.testing.assert_array_equal(twin.regression(), hidden.regression())
        np.testing.assert_array_equal(twin.residual_moments(), hidden.residual_moments())
        np.testing.assert_array_equal(twin.bound(0.05, 100), hidden.bound(0.05, 100))


@pytest.mark.parametrize("form", ["mapping", "series", "named tuple", "row of a frame"])
def test_contexts_by_name(problem, rng, form):
    import pandas as pd

    p = problem
    one, other = sl.BehaviorQueries(p.summary, "ipw"), sl.BehaviorQueries(p.summary, "ipw")
    x = rng.normal(size=6)
    one.observe(x, 1)
    named = {f"x{j}": float(x[j]) for j in reversed(range(6))}
    forms = {
        "mapping": named,
        "series": pd.Series(named),
        "named tuple": namedtuple("Row", named)(**named),
        "row of a frame": pd.DataFrame([named]),
    }
    other.observe(forms[form], 1)
    np.testing.assert_array_equal(one.cross_moments(), other.cross_moments())


@pytest.mark.parametrize("kind", [sl.BehaviorQueries, sl.BehaviorProbabilities])
def test_a_copy_shares_no_sums(problem, rng, kind):
    hidden, answer = kind(problem.summary), 1 if kind is sl.BehaviorQueries else [0.2, 0.3, 0.5]
    hidden.observe(rng.normal(size=6), answer)
    before = hidden.regression()
    for twin in (copy.copy(hidden), copy.deepcopy(hidden), pickle.loads(pickle.dumps(hidden)), hidden.copy()):
        twin.observe(rng.normal(size=6), answer)
        assert (hidden.n_answers, twin.n_answers) == (1, 2)
        np.testing.assert_array_equal(hidden.regression(), before)


def test_what_the_estimators_refuse(problem, rng):
    p = problem
    queries, probabilities = sl.BehaviorQueries(p.summary), sl.BehaviorProbabilities(p.summary)
    good = rng.normal(size=6)
    for bad in (good[:5], np.full(6, np.nan), "text", ["a"] * 6):
        with pytest.raises(ContextError):
            queries.observe(bad, 1)
        with pytest.raises(ContextError):
            probabilities.observe(bad, [0.2, 0.3, 0.5])
    for arm in (7, "high", [1], None):
        with pytest.raises(UnknownArmError, match="not an arm of this log"):
            queries.observe(good, arm)
    for chance in (0.0, 1.01, np.nan, None):
        with pytest.raises(InputError, match="probability"):
            queries.observe(good, 1, probability=chance)
    with pytest.raises(InputError, match="sum to 1"):
        probabilities.observe(good, [0.2, 0.3, 0.6])
    for estimator in ("ols", "", None):
        with pytest.raises(InputError, match=r"regression, ipw, control_variate"):
            sl.BehaviorQueries(p.summary, estimator=estimator)
    with pytest.raises(InputError, match="control_variate"):
        sl.BehaviorProbabilities(p.summary, estimator="control_variate")
    for pooling in (-1.0, np.inf, np.nan, "much", None):
        with pytest.raises(SidelightError, match="pooling"):
            sl.BehaviorQueries(p.summary, pooling=pooling)
    for moments in ("text", [[1.0, 2.0], [3.0]], None):
        with pytest.raises(InputError, match="R12"):
            sl.KnownCrossMoments(p.summary, moments)
    assert queries.n_answers == probabilities.n_answers == 0
    assert not queries.sums.S.any()


def test_what_arms_have_in_common_is_not_what_all_contexts_have(rng):
    """Selection makes features go together otherwise within every arm than among all contexts: that is no error of B̂.

    Features with correlations up to 0.9, a softmax policy, 2,000 answers.  The mean of ``δᵀAδ/(Lτ²)`` with
    ``δ = (B − B̂)w`` should be 1.  Over ten seeds it is 0.92 with a deviation of 0.17, so the limit is five of them away
    (a failure probability of about 10⁻⁵).  It was 3.4, with a deviation of 1.1, when arms were pulled toward the
    regression over all contexts.
    """
    K, p, m = 8, 6, 4
    d = p + m
    factor = np.linalg.cholesky(0.9 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d))))
    schema = sl.Schema.for_arrays(1 + d, recorded=1 + p, n_arms=K)
    values = []
    for _ in range(4):
        weights = rng.normal(size=(K, m))
        logits = rng.normal(size=(K, d)) * np.repeat([0.5, 1.0], (p, m)) / np.sqrt(np.repeat([p, m], (p, m)))

        def draw(n, logits=logits):
            X = rng.normal(size=(n, d)) @ factor.T
            chances = np.exp(X @ logits.T)
            chances /= chances.sum(axis=1, keepdims=True)
            arms = np.minimum((rng.random((n, 1)) > np.cumsum(chances, axis=1)).sum(axis=1), K - 1)
            return np.column_stack([np.ones(n), X]), chances, arms

        X, _, arms = draw(20_000)
        hidden = sl.BehaviorQueries(sl.LogSummary.from_arrays(X[:, : 1 + p], arms, rng.normal(size=len(X)), schema))
        for x, a in zip(*draw(2_000)[::2], strict=True):
            hidden.observe(x, int(a))
        X, chances, _ = draw(100_000)
        B, A = hidden.regression(), hidden.precision()
        for a in range(K):
            moments = (X * chances[:, a : a + 1]).T @ X / chances[:, a].sum()
            true = np.linalg.solve(moments[: 1 + p, : 1 + p], moments[: 1 + p, 1 + p :])
            left = moments[1 + p :, 1 + p :] - moments[1 + p :, : 1 + p] @ true
            off = (true - B[a]) @ weights[a]
            values.append(off @ A[a] @ off / ((1 + p) * weights[a] @ left @ weights[a]))
    assert np.mean(values) < 1.8


@pytest.mark.parametrize("intercept", [False, True])
def test_slopes_and_levels_make_the_regression(rng, intercept):
    """``B_a = F_a + u_ac_aᵀ``: what levels apart from slopes are for, in a log and answers without end.

    Every arm has slopes and a level of its own; the answers are the log's own rows, many of them, so that pooling does
    next to nothing.
    """
    K, L, m, n = 3, 4, 2, 30_000
    X = rng.normal(size=(n, L + m)) + np.array([0.5, -1.0, 2.0, 0.1, 3.0, -2.0])
    if intercept:
        X[:, 1] = 1.0
    arms = rng.integers(K, size=n)
    X[:, L:] += (
        np.einsum("ti,tij->tj", X[:, :L], rng.normal(size=(K, L, m))[arms]) + 2.0 * rng.normal(size=(K, m))[arms]
    )
    X[:, :L] += 0.3 * (arms[:, None] - 1.0) * (not intercept)
    schema = sl.Schema.for_arrays(L + m, recorded=L, n_arms=K)
    queries = sl.BehaviorQueries(sl.LogSummary.from_arrays(X[:, :L], arms, rng.normal(size=n), schema))
    for x, a in zip(X, arms, strict=True):
        queries.sums.add_action(x, int(a), 1.0)
    queries._answered()
    own = np.array([np.linalg.lstsq(X[arms == a, :L], X[arms == a, L:], rcond=None)[0] for a in range(K)])
    np.testing.assert_allclose(queries.regression(), own, atol=0.01)


@pytest.mark.parametrize("kind", [sl.BehaviorQueries, sl.BehaviorProbabilities])
def test_powers_of_two_change_no_bit(rng, problem, kind):
    """Units of single features, recorded and hidden: everything that learners take is the same but for the units."""
    p = problem
    X, arms, chances, q = answers_of(rng, p, 60)
    rows, old = rng.normal(size=(300, p.L)) + 0.4, rng.integers(p.K, size=300)
    rewards, schema = rng.normal(size=300), sl.Schema.for_arrays(p.d, recorded=p.L, n_arms=p.K)
    found = []
    for units in (np.ones(p.d), 2.0 ** rng.integers(-90, 90, size=p.d)):
        hidden = kind(sl.LogSummary.from_arrays(rows * units[: p.L], old, rewards, schema))
        for x, a, c, w in zip(X, arms, chances, q, strict=True):
            hidden.observe(x * units, int(a) if kind is sl.BehaviorQueries else c, probability=w)
        o, h = units[: p.L], units[p.L :]
        found.append(
            (
                hidden.regression() * o[:, None] / h,
                hidden.precision() / np.outer(o, o),
                hidden.residual_moments() / np.outer(h, h),
                np.array(hidden._strengths),
            )
        )
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(other, one)


def test_shifts_change_nothing_where_there_is_an_intercept(rng):
    """Features measured from another zero: predictions of the hidden features and their precision are the same."""
    K, L, m, n = 3, 4, 2, 80
    X, arms = rng.normal(size=(n, L + m)), rng.integers(K, size=n)
    X[:, 0] = 1.0
    rows, old = rng.normal(size=(400, L)), rng.integers(K, size=400)
    rows[:, 0] = 1.0
    schema = sl.Schema.for_arrays(L + m, recorded=L, n_arms=K)
    found = []
    for shift in (np.zeros(L + m), np.array([0.0, 40.0, -7.0, 300.0, 250.0, -36.0])):
        hidden = sl.BehaviorQueries(sl.LogSummary.from_arrays(rows + shift[:L], old, np.ones(400), schema))
        for x, a in zip(X, arms, strict=True):
            hidden.observe(x + shift, int(a))
        move = np.eye(L)
        move[0] = shift[:L]
        move[0, 0] = 1.0
        # coefficients of the shifted features, as coefficients of the features before
        back = np.einsum("ij,ajk->aik", move, hidden.regression())
        back[:, 0] -= shift[L:]
        inverse = np.linalg.inv(hidden.precision())
        found.append((back, move @ inverse @ move.T, hidden.residual_moments()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-7)


def test_hidden_features_that_never_varied_say_nothing_about_their_spread(rng):
    """One answer, or a flag that was never set: no variance is claimed from rounding."""
    schema = sl.Schema.for_arrays(4, recorded=2, n_arms=2)
    rows = np.column_stack([np.ones(80), rng.normal(size=80)])
    log = sl.LogSummary.from_arrays(rows, np.arange(80) % 2, rng.normal(size=80), schema)
    hidden = sl.BehaviorQueries(log)
    for t in range(30):
        hidden.observe([1.0, rng.normal(), 0.1, 1000.0 + rng.normal()], t % 2)
        assert not hidden._told().hidden_scale[0]
        assert np.isfinite(hidden.residual_moments()).all()
    assert hidden._told().hidden_scale[1] > 0


@pytest.mark.parametrize("value", [math.sqrt(0.5), -1e6 / 3.0, 1e-7 / 3.0, 0.0])
@pytest.mark.parametrize("kind", [sl.BehaviorQueries, sl.BehaviorProbabilities])
def test_a_second_constant_says_nothing_new(rng, kind, value):
    """A feature that varies neither in the log nor in the answers, beside an intercept: centring leaves rounding of it.

    With it everything is as without it; its own coefficients are zero, and what is not known of them is in its unit.
    """
    K, L, n = 3, 3, 500
    X, arms, rewards = rng.normal(size=(n, L)) + 0.3, rng.integers(K, size=n), rng.normal(size=n)
    X[:, 0] = 1.0
    wide = np.column_stack([X, np.full(n, value)])
    without, with_it = (
        kind(sl.LogSummary.from_arrays(rows, arms, rewards, sl.Schema.for_arrays(c + 2, recorded=c, n_arms=K)))
        for rows, c in ((X, L), (wide, L + 1))
    )
    for _ in range(60):
        x = np.concatenate([[1.0], rng.normal(size=L - 1) + 0.3, rng.normal(size=2)])
        said = int(rng.integers(K)) if kind is sl.BehaviorQueries else rng.dirichlet(np.ones(K))
        chance = float(rng.uniform(0.3, 1.0))
        without.observe(x, said, chance)
        with_it.observe(np.insert(x, L, value), said, chance)
    # the prior of how alike slopes are counts features; the rest must not know the difference
    assert 0.25 <= with_it.pooling_strength() / without.pooling_strength() <= 4.0
    with_it._strengths = without._strengths
    B = with_it.regression()
    np.testing.assert_allclose(B[:, :L], without.regression(), rtol=1e-9, atol=1e-11)
    assert (B[:, L] == 0.0).all()
    np.testing.assert_allclose(with_it.residual_moments(), without.residual_moments(), rtol=1e-9)
    # contexts have that value, so that what counts is the intercept's coefficient and ``value`` times the other one
    together = np.eye(L, L + 1)
    together[0, L] = value
    for A, own in zip(with_it.precision(), without.precision(), strict=True):
        unit = np.sqrt(np.diagonal(A))
        covariance = np.linalg.inv(A / np.outer(unit, unit)) / np.outer(unit, unit)
        np.testing.assert_allclose(together @ covariance @ together.T, np.linalg.inv(own), rtol=1e-8, atol=1e-12)
        # the pulls of the pool and of the arm, in the feature's own unit, a power of two
        expected = 1.0 / without._strengths.own + 1.0 / without._strengths.slopes
        power = 2.0 ** math.floor(math.log2(abs(value))) if value else 1.0
        assert covariance[L, L] * power**2 == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", [sl.BehaviorQueries, sl.BehaviorProbabilities])
def test_asking_every_context_with_the_same_chance_is_asking_without_chance(rng, problem, kind):
    """Weights of 1/q all over say no more and no less than weights of one: nothing may depend on q."""
    p = problem
    X, arms, chances, _ = answers_of(rng, p, 25)
    found = []
    for q in (1.0, 0.1, 0.003):
        hidden = kind(p.summary)
        for x, a, c in zip(X, arms, chances, strict=True):
            hidden.observe(x, int(a) if kind is sl.BehaviorQueries else c, probability=q)
        found.append((hidden.regression(), hidden.precision(), hidden.residual_moments(), hidden.pooling_strength()))
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            np.testing.assert_allclose(theirs, mine, rtol=1e-8, atol=1e-12)


def test_chances_too_small_to_square_stop_nobody(rng, problem):
    p = problem
    hidden = sl.BehaviorProbabilities(p.summary)
    X, *_ = answers_of(rng, p, 30)
    for x in X:
        hidden.observe(x, [1e-157, 0.4, 0.6])
    assert np.isfinite(hidden.regression()).all()
    assert np.isfinite(hidden.precision()).all()
    sl.FusedOFUL(hidden).decide(X[0])


@pytest.mark.parametrize("kind", [sl.BehaviorQueries, sl.BehaviorProbabilities])
def test_what_was_asked_for_in_between_changes_nothing(rng, problem, kind):
    """Estimates are worked out once for all who ask; further answers, and another pooling, must be noticed."""
    p = problem
    X, arms, chances, q = answers_of(rng, p, 40)
    asked, fresh = kind(p.summary, pooling=2.0), kind(p.summary, pooling=2.0)

    def same():
        for one, other in zip(
            (asked.regression(), asked.precision(), asked.residual_moments()),
            (fresh.regression(), fresh.precision(), fresh.residual_moments()),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)

    for x, a, c, w in zip(X, arms, chances, q, strict=True):
        for hidden in (asked, fresh):
            hidden.observe(x, int(a) if kind is sl.BehaviorQueries else c, probability=w)
        asked.regression()
        asked.residual_moments()
    same()
    before = asked.regression()
    for hidden in (asked, fresh):
        hidden.fix_pooling(30.0)
    fresh = fresh.copy()
    same()
    assert np.abs(asked.regression() - before).max() > 1e-6
    # what was handed out is the caller's own
    asked.regression()[...] = 7.0
    same()


def test_the_rows_behind_the_sums_are_kept():
    schema = sl.Schema.for_arrays(3, recorded=2, n_arms=2)
    rng = np.random.default_rng(0)
    log = sl.LogSummary.from_arrays(rng.normal(size=(50, 2)), np.arange(50) % 2, rng.normal(size=50), schema)
    queries, known = sl.BehaviorQueries(log), sl.BehaviorProbabilities(log)
    contexts = rng.normal(size=(20, 3))
    for x in contexts:
        queries.observe(x, int(x[0] > 0), 0.5)
        known.observe(x, [0.25, 0.75])
    np.testing.assert_array_equal([x for x, _, _ in queries.sums.rows], contexts)
    assert [arm for _, arm, _ in queries.sums.rows] == [int(x[0] > 0) for x in contexts]
    assert {weight for _, _, weight in queries.sums.rows} == {2.0}
    assert all(p.tolist() == [0.25, 0.75] for _, p, _ in known.sums.rows)
    assert queries.copy().sums.rows == []
