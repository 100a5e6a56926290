"""What the estimators of the hidden half converge to, and which is better where."""

from __future__ import annotations

import numpy as np
import pytest

import sidelight as sl

# 6 standard errors of a mean: two-sided 2·10⁻⁹ for each entry, below 10⁻⁶ over all entries of a test
SIGMAS = 6.0


@pytest.fixture(scope="module")
def setting():
    """A world with sharp confounding, its moments, and a log whose ``P(a)`` and ``R11(a)`` count as exact."""
    world = sl.worlds.ConfoundedWorld(seed=2, n_arms=3, n_features=5, n_hidden=2, noise=0.3)
    L = 3
    shares, moments = world.second_moments()
    log = world.sample_log(200_000, L, np.random.default_rng(1))
    summary = sl.summarize_log(log, world.schema(L))
    return world, L, summary, shares, moments


def draw(world, rng, n):
    X = world.contexts(n, rng)
    return X, world.behavior_actions(X, rng), world.behavior_probabilities(X)


def regression_of(moments, L):
    return np.linalg.solve(moments[:, :L, :L], moments[:, :L, L:])


def test_ipw_and_the_weighted_moments_are_unbiased(rng, setting):
    """At t = 5 answers, over 3,000 repetitions, the mean of ``R̂12·P̂/P`` is ``R12`` within 6 standard errors.

    ``P̂`` of the log is not exactly ``P``; the factor takes its error out.  Failure probability below 10⁻⁶.
    """
    world, L, summary, shares, moments = setting
    R12 = moments[:, :L, L:]
    scale = (summary.shares / shares)[:, None, None]
    t, repetitions = 5, 3_000
    X, actions, probabilities = draw(world, rng, t * repetitions)
    for kind in ("queries", "probabilities"):
        found = np.empty((repetitions, *R12.shape))
        for i in range(repetitions):
            rows = range(i * t, i * t + t)
            if kind == "queries":
                hidden = sl.BehaviorQueries(summary, estimator="ipw")
                for j in rows:
                    hidden.observe(X[j], int(actions[j]))
            else:
                hidden = sl.BehaviorProbabilities(summary, estimator="ipw")
                for j in rows:
                    hidden.observe(X[j], probabilities[j])
            found[i] = hidden.cross_moments() * scale
        error = found.std(axis=0) / np.sqrt(repetitions)
        # the reference itself is a Monte-Carlo mean over a million contexts
        assert (np.abs(found.mean(axis=0) - R12) < SIGMAS * error + 1e-3).all(), kind


@pytest.mark.parametrize("estimator", ["ipw", "control_variate", "regression"])
@pytest.mark.parametrize("kind", ["queries", "probabilities"])
def test_consistency(rng, setting, estimator, kind):
    """From 1,000 to 16,000 answers the squared error of ``B̂`` falls at least fourfold, and ends small.

    The expected ratio is 16; for it to be below 4 the error at 16,000 answers would have to be four times its
    expectation over 2 × 18 entries, a χ²₃₆ excess below 10⁻⁶ (``control_variate`` exists for queries alone).

    That is so of estimators without pooling.  One that is pooled starts lower and gains less from there; it has no more
    error than without pooling, at either end.
    """
    if kind == "probabilities" and estimator == "control_variate":
        pytest.skip("for queries alone")
    world, L, summary, _, moments = setting
    make = sl.BehaviorQueries if kind == "queries" else sl.BehaviorProbabilities
    B = regression_of(moments, L)
    errors = {(pooled, n): [] for pooled in (True, False) for n in (1_000, 16_000)}
    for _ in range(2):
        hidden = {True: make(summary, estimator=estimator), False: make(summary, estimator=estimator, pooling=0.0)}
        X, actions, probabilities = draw(world, rng, 16_000)
        for j in range(16_000):
            for pooled, one in hidden.items():
                one.observe(X[j], int(actions[j]) if kind == "queries" else probabilities[j])
                if j + 1 in (1_000, 16_000):
                    errors[pooled, j + 1].append(np.square(one.regression() - B).mean())
    error = {which: float(np.mean(values)) for which, values in errors.items()}
    assert error[False, 16_000] < error[False, 1_000] / 4.0
    assert error[True, 1_000] <= error[False, 1_000]
    assert error[True, 16_000] <= error[False, 16_000]
    late = error[True, 16_000]
    assert late < 0.01


def mean_squared_errors(rng, world, L, summary, moments, makers, t, repetitions):
    """Paired: every estimator sees the same contexts and answers."""
    B = regression_of(moments, L)
    found = {name: [] for name in makers}
    for _ in range(repetitions):
        X, actions, probabilities = draw(world, rng, t)
        for name, make in makers.items():
            hidden = make(summary)
            for j in range(t):
                hidden.observe(X[j], int(actions[j]) if hidden.needs == "action" else probabilities[j])
            found[name].append(np.square(hidden.regression() - B).mean())
    return {name: np.array(values) for name, values in found.items()}


MAKERS = {
    "ipw": lambda s: sl.BehaviorQueries(s, estimator="ipw"),
    "regression": sl.BehaviorQueries,
    "ipw of probabilities": lambda s: sl.BehaviorProbabilities(s, estimator="ipw"),
    "regression of probabilities": sl.BehaviorProbabilities,
}


def compare(errors, better, worse, factor):
    """The error of ``better`` is below that of ``worse`` over ``factor``, on average over paired logarithms.

    ``factor`` is chosen at least 6 standard errors from what is measured: failure probability below 10⁻⁸ each.
    """
    ratio = float(np.exp(np.mean(np.log(errors[better]) - np.log(errors[worse]))))
    assert ratio < 1.0 / factor, (better, worse, ratio)


def test_regression_is_below_ipw_and_probabilities_are_below_queries_in_the_papers_world(rng):
    """``paper_text``, d = 10, K = 6, L = 7, 300 answers; measured 0.04 ± 0.003 and 0.14 ± 0.01."""
    world = sl.worlds.PaperWorld.preset("paper_text", seed=0, n_arms=6, n_features=10)
    L = 7
    _, moments = world.second_moments()
    summary = sl.summarize_log(world.sample_log(100_000, L, np.random.default_rng(2)), world.schema(L))
    errors = mean_squared_errors(rng, world, L, summary, moments, MAKERS, 300, 25)
    compare(errors, "regression", "ipw", 10.0)
    compare(errors, "ipw of probabilities", "ipw", 4.0)


def test_regression_is_below_ipw_and_probabilities_are_below_queries_in_a_confounded_world(rng, setting):
    """``ConfoundedWorld``, d = 5, K = 3, L = 3, 300 answers: the arms' regressions differ.

    Measured 0.62 ± 0.03, 0.30 ± 0.02 and 0.87 ± 0.02.
    """
    world, L, summary, _, moments = setting
    errors = mean_squared_errors(rng, world, L, summary, moments, MAKERS, 300, 60)
    compare(errors, "regression", "ipw", 1.2)
    compare(errors, "ipw of probabilities", "ipw", 1.8)
    compare(errors, "regression of probabilities", "regression", 1.0)


def asked(rng, world, summary, chance, weighted, n, estimator="regression"):
    """Answers at ``n`` contexts, each asked with ``chance(X)``; weighted by it or not."""
    hidden = sl.BehaviorQueries(summary, estimator=estimator)
    X, actions, _ = draw(world, rng, n)
    q = chance(X)
    for j in np.flatnonzero(rng.random(n) < q):
        hidden.observe(X[j], int(actions[j]), probability=float(q[j]) if weighted else 1.0)
    return hidden


def by_context(X):
    """Asked almost only where a hidden and a recorded feature are both large: 0.05 to 0.95."""
    return 0.05 + 0.9 / (1.0 + np.exp(-12.0 * (X[:, -1] * np.sqrt(2) + X[:, 1])))


@pytest.mark.parametrize("estimator", ["regression", "ipw"])
def test_queries_may_be_skipped_independently_of_the_context(rng, setting, estimator):
    """Every second is left out by a coin, and nobody says so: consistent.  Failure probability as above."""
    world, L, summary, _, moments = setting
    hidden = asked(rng, world, summary, lambda X: np.full(len(X), 0.5), False, 30_000, estimator)
    assert 14_000 < hidden.n_answers < 16_000
    assert np.square(hidden.regression() - regression_of(moments, L)).mean() < 0.01


@pytest.mark.parametrize("estimator", ["regression", "ipw"])
def test_chosen_queries_need_their_probabilities(rng, setting, estimator):
    """Asked by context: weighted by 1/q it converges, unweighted it does not, however many are asked.

    The bias of the unweighted one is ten times the other's error and more; both at 30,000 contexts.
    """
    world, L, summary, _, moments = setting
    B = regression_of(moments, L)
    weighted = asked(rng, world, summary, by_context, True, 30_000, estimator)
    unweighted = asked(rng, world, summary, by_context, False, 30_000, estimator)
    error = np.square(weighted.regression() - B).mean()
    bias = np.square(unweighted.regression() - B).mean()
    assert error < 0.02
    assert bias > 10 * error
    more = asked(rng, world, summary, by_context, False, 90_000, estimator)
    assert np.square(more.regression() - B).mean() > 0.5 * bias


def test_probabilities_are_worth_more_than_arms_and_their_uncertainty_is_right(rng):
    """Ten arms, 100 answers, 16 times: an arm's ``(B̂ − B)w_h`` is as far off as ``τ²A⁻¹`` says, and less than by arms.

    Measured over 24 repetitions: ``ξᵀAξ/(τ²L)`` 1.39 ± 0.09, squared error 0.43 ± 0.03 of that by arms (deviations of
    one repetition; with weights that counted for less than they tell it was 2.6 and 0.85).  Both limits are more than
    five deviations away, a failure probability below 10⁻⁶.
    """
    world = sl.worlds.ConfoundedWorld(seed=3)
    summary = sl.summarize_log(world.sample_log(20_000, 6, rng), world.schema(6))
    B = sl.KnownCrossMoments(summary, world.cross_moments(6)).regression()
    w_h = world.weights[:, summary.hidden]
    sizes, errors = [], {"arms": [], "probabilities": []}
    for _ in range(16):
        X, actions, probabilities = draw(world, rng, 100)
        for name, make in (("arms", sl.BehaviorQueries), ("probabilities", sl.BehaviorProbabilities)):
            hidden = make(summary)
            for x, a, p in zip(X, actions, probabilities, strict=True):
                hidden.observe(x, summary.arms[int(a)] if name == "arms" else p)
            off = np.einsum("alm,am->al", hidden.regression() - B, w_h)
            errors[name].append(np.einsum("al,alk,ak->a", off, summary.second_moments, off).mean())
            if name == "probabilities":
                tau2 = np.einsum("am,amn,an->a", w_h, hidden.residual_moments(), w_h)
                sizes.append((np.einsum("al,alk,ak->a", off, hidden.precision(), off) / tau2 / 6).mean())
    assert 0.6 < np.mean(sizes) < 2.0
    assert np.mean(errors["probabilities"]) < 0.7 * np.mean(errors["arms"])
