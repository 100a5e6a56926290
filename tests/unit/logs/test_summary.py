"""What a summary says: the numbers it is made of, proposition 1, saving and adding."""

from __future__ import annotations

import datetime as dt
import warnings

import numpy as np
import pytest
from scipy.stats import chi2

from sidelight.errors import FileFormatError, InvalidRowsError, SchemaError, SidelightWarning
from sidelight.files import write_container
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary


def drawn(n=400, L=3, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, L)) + [5.0, 0, 0][:L]
    arms = rng.choice(K, n, p=np.arange(1, K + 1) / (K * (K + 1) / 2))
    return X, arms, X @ np.arange(1.0, L + 1) + rng.normal(size=n) * 0.5


def test_every_array_is_what_its_docstring_says():
    X, arms, r = drawn()
    schema = Schema.for_arrays(5, [4, 0, 2], 3)
    found = LogSummary.from_arrays(X, arms, r, schema)
    assert (found.n_arms, found.n_features, found.n_recorded, found.n_rows) == (3, 5, 3, 400)
    assert found.recorded.tolist() == [0, 2, 4]
    assert found.hidden.tolist() == [1, 3]
    for a in range(3):
        own, rewards = X[arms == a], r[arms == a]
        n = len(own)
        assert found.counts[a] == n
        assert found.shares[a] == n / 400
        np.testing.assert_allclose(found.grams[a], own.T @ own, rtol=1e-11)
        np.testing.assert_allclose(found.second_moments[a], own.T @ own / n, rtol=1e-11)
        np.testing.assert_allclose(found.cross[a], own.T @ rewards, rtol=1e-10)
        np.testing.assert_allclose(found.means[a], own.mean(axis=0), rtol=1e-11)
        b, rss, *_ = np.linalg.lstsq(own, rewards, rcond=None)
        np.testing.assert_allclose(found.coefficients[a], b, rtol=1e-10)
        np.testing.assert_allclose(found.residual_sums[a], rss[0], rtol=1e-10)
        np.testing.assert_allclose(found.residual_variances[a], rss[0] / (n - 3), rtol=1e-10)
        np.testing.assert_allclose(found.conditions[a], np.linalg.cond(own / np.linalg.norm(own, axis=0)), rtol=1e-9)
    assert found.degrees_of_freedom.tolist() == (found.counts - 3).tolist()


def test_arrays_cannot_be_changed_by_accident():
    found = LogSummary.from_arrays(*drawn(), Schema.for_arrays(3, 3, 3))
    for array in (found.counts, found.factors, found.grams, found.coefficients, found.residual_variances):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_few_degrees_of_freedom_borrow_from_all_arms():
    rng = np.random.default_rng(3)
    arms = np.array([0] * 1_000 + [1] * 12 + [2] * 2)
    X = rng.normal(size=(len(arms), 2))
    r = rng.normal(size=len(arms)) * np.array([1.0, 5.0, 1.0])[arms]
    found = LogSummary.from_arrays(X, arms, r, Schema.for_arrays(2, 2, 3))
    pooled = found.residual_sums.sum() / found.degrees_of_freedom.sum()
    own = found.residual_sums[1] / 10
    assert found.degrees_of_freedom.tolist() == [998, 10, 0]
    np.testing.assert_allclose(found.pooled_residual_variance, pooled)
    np.testing.assert_allclose(found.residual_variances[1], own / 3 + pooled * 2 / 3)
    np.testing.assert_allclose(found.residual_variances[2], pooled)
    np.testing.assert_allclose(found.residual_variances[0], found.residual_sums[0] / 998)


def test_without_any_degree_of_freedom_nothing_is_nan():
    found = LogSummary.from_arrays(np.eye(2), [0, 1], [3.0, 4.0], Schema.for_arrays(2, 2, 2))
    np.testing.assert_allclose(found.residual_variances, 12.5)
    empty = LogSummary.from_arrays(np.zeros((0, 2)), [], [], Schema.for_arrays(2, 2, 2))
    np.testing.assert_allclose(empty.residual_variances, 1.0)
    np.testing.assert_allclose(empty.second_moments, 0.0)
    assert not empty.determined.any()


def test_nothing_recorded():
    found = LogSummary.from_arrays(np.zeros((6, 0)), [0, 1] * 3, np.arange(6.0), Schema.for_arrays(3, 0, 2))
    assert found.coefficients.shape == (2, 0)
    assert found.determined.all()
    np.testing.assert_allclose(found.residual_variances.mean(), (np.arange(6.0) ** 2).mean(), rtol=0.5)
    assert found.diagnose().worth.high == 0


def confounded(n, rng):
    """Contexts on eight points, an old policy that sees all of them, and a log that lacks two of four features."""
    points = np.array([[1, x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 2)], dtype=float)
    w = np.array([[0.3, -1, 2, 0.5], [-0.2, 1, 1, -1], [0.1, 0.4, -2, 1]])
    logits = points @ np.array([[0, 0.5, 1, 0.3], [0.2, -0.5, -1, 0.2], [0, 0, 0.4, -0.5]]).T
    policy = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    which = rng.integers(0, 8, n)
    arms = (rng.random(n)[:, None] > policy[which].cumsum(axis=1)).sum(axis=1)
    X = points[which]
    r = (X * w[arms]).sum(axis=1) + 0.3 * rng.normal(size=n)
    shares = policy.mean(axis=0)
    moments = np.einsum("pa,pi,pj->aij", policy, points, points) / 8 / shares[:, None, None]
    # M_a w_a = w_o + R11(a)⁻¹ R12(a) w_h
    truth = np.array([w[a, :2] + np.linalg.solve(m[:2, :2], m[:2, 2:]) @ w[a, 2:] for a, m in enumerate(moments)])
    return X, arms, r, truth, w, shares


def test_proposition_1(rng):
    """``b_a`` estimates ``M_a w_a``, not ``w_o``: by the sandwich covariance the error is ``χ²`` with ``K L`` degrees.

    Fails by chance once in 10⁵ runs (asymptotically, with 10⁴ rows per arm).
    """
    X, arms, r, truth, w, shares = confounded(60_000, rng)
    schema = Schema(["x0", "x1", "x2", "x3"], ["x0", "x1"], arms=[0, 1, 2])
    columns = {**{f"x{j}": X[:, j] for j in range(2)}, "arm": arms, "reward": r}
    found = summarize_log(columns, schema, sandwich=True)
    assert found.meat is not None
    np.testing.assert_allclose(found.shares, shares, atol=0.02)
    statistic = naive = 0.0
    for a in range(3):
        inverse = np.linalg.inv(found.grams[a])
        precision = np.linalg.inv(inverse @ found.meat[a] @ inverse)
        error, wrong = found.coefficients[a] - truth[a], found.coefficients[a] - w[a, :2]
        statistic += error @ precision @ error
        naive += wrong @ precision @ wrong
    assert statistic < chi2.isf(1e-5, 6)
    assert naive > 100 * chi2.isf(1e-5, 6)


def test_save_and_load(tmp_path):
    X, arms, r = drawn()
    labels = np.array([dt.date(2024, 1, 1), dt.date(2024, 2, 1), dt.date(2024, 3, 1)], dtype=object)[arms]
    names = ["a", "b", "c"]
    found = summarize_log(
        {**{n: X[:, j] for j, n in enumerate(names)}, "arm": labels, "reward": r}, Schema(names, names)
    )
    found.save(tmp_path / "log.summary")
    again = LogSummary.load(tmp_path / "log.summary")
    assert again.schema == found.schema
    assert again.arms == tuple(sorted(set(labels.tolist())))
    np.testing.assert_array_equal(again.factors, found.factors)
    np.testing.assert_array_equal(again.means, found.means)
    assert again.to_bytes() == found.to_bytes()
    assert (tmp_path / "log.summary").stat().st_size < 10_000
    content = (tmp_path / "log.summary").read_bytes()
    (tmp_path / "cut").write_bytes(content[:-50])
    with pytest.raises(FileFormatError, match="cut off or damaged"):
        LogSummary.load(tmp_path / "cut")


def test_adding_asks_for_the_same_schema():
    X, arms, r = drawn()
    first = LogSummary.from_arrays(X, arms, r, Schema.for_arrays(4, 3, 3))
    with pytest.raises(SchemaError, match=r"different schemas \(features: .*not two parts of one log.*fused learner"):
        first + LogSummary.from_arrays(X, arms, r, Schema.for_arrays(5, 3, 3))
    with pytest.raises(SchemaError, match="arms"):
        first + LogSummary.from_arrays(X, arms, r, Schema.for_arrays(4, 3, 4))
    with pytest.raises(TypeError):
        first + 3  # type: ignore[operator]


def test_adding_unites_arms_that_were_discovered():
    X, arms, r = drawn()
    schema = Schema.for_arrays(4, 3)
    whole = LogSummary.from_arrays(X, arms, r, schema)
    first, second = (LogSummary.from_arrays(X[k], arms[k], r[k], schema) for k in (arms != 1, arms != 0))
    both = first + second
    assert first.arms == (0, 2)
    assert both.arms == whole.arms == (0, 1, 2)
    assert both.counts.tolist() == [whole.counts[0], whole.counts[1], 2 * whole.counts[2]]
    np.testing.assert_allclose(both.grams[1], whole.grams[1], rtol=1e-11)


def test_parts_can_be_summed():
    X, arms, r = drawn()
    schema = Schema.for_arrays(4, 3, 3)
    parts = [LogSummary.from_arrays(X[k::3], arms[k::3], r[k::3], schema) for k in range(3)]
    whole = sum(parts)
    assert whole.counts.tolist() == LogSummary.from_arrays(X, arms, r, schema).counts.tolist()
    np.testing.assert_array_equal(whole.factors, (parts[0] + parts[1] + parts[2]).factors)
    for nothing in (1, 0.5, None):
        with pytest.raises(TypeError):
            nothing + parts[0]


def test_adding_keeps_count_of_what_was_skipped():
    columns = {"a": [1.0, np.nan, 3.0], "arm": [0, 0, 0], "reward": [1.0, 2.0, np.inf]}
    part = summarize_log(columns, Schema(["a"], ["a"]), on_invalid="skip")
    assert (part + part).skipped == {"a: missing or NaN": 2, "reward: infinite": 2}


@pytest.mark.parametrize("exponent", [152, 153, 154, 155, 160, 300])
@pytest.mark.parametrize("which", ["x1", "reward"])
@pytest.mark.filterwarnings("error")
def test_values_whose_squares_overflow_are_named(exponent, which):
    X, arms, r = drawn()
    X, r = (X * [1.0, 10.0**exponent, 1.0], r) if which == "x1" else (X, r * 10.0**exponent)
    summary = LogSummary.from_arrays(X, arms, r, Schema.for_arrays(4, 3, 3))
    assert np.isfinite(summary.coefficients).all()
    if exponent < 153:
        assert "round" in summary.diagnose().sentence
        return
    with pytest.raises(InvalidRowsError, match=f"{which}' of the log hold values so large .*squares overflow"):
        summary.diagnose()
    with pytest.raises(InvalidRowsError, match="squares overflow"):
        _ = summary.second_moments


def test_skipping_many_rows_is_worth_a_warning():
    reward = [1.0, None, 2.0, None] * 10
    log = {"a": np.arange(40.0), "arm": [0, 1] * 20, "reward": reward}
    schema = Schema(["a"], ["a"], arms=[0, 1])
    with pytest.warns(SidelightWarning, match="20 of 40 rows were skipped"):
        summarize_log(log, schema, on_invalid="skip")
    few = dict(log)
    few["reward"] = [None if i == 7 else 0.5 for i in range(40)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert summarize_log(few, schema, on_invalid="skip").n_rows == 39


@pytest.mark.parametrize("intercept", [True, False])
def test_the_sum_of_rewards_survives_every_road(tmp_path, intercept):
    X, arms, r = drawn(n=60_000)
    schema = Schema(features=["a", "b", "c"], recorded=["a", "b", "c"], arm="arm", reward="r", intercept=intercept)
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "arm": [f"x{a}" for a in arms], "r": r}
    found = summarize_log(table, schema)
    expected = np.bincount(arms, weights=r)
    np.testing.assert_allclose(found.reward_sums, expected, rtol=1e-10)
    np.testing.assert_allclose(found.reward_means, expected / np.bincount(arms), rtol=1e-10)
    half = {name: column[:30_000] for name, column in table.items()}
    rest = {name: column[30_000:] for name, column in table.items()}
    both = summarize_log(half, schema) + summarize_log(rest, schema)
    np.testing.assert_allclose(both.reward_sums, expected, rtol=1e-10)
    np.testing.assert_allclose(LogSummary.from_bytes(both.to_bytes()).reward_sums, expected, rtol=1e-10)
    np.testing.assert_array_equal(summarize_log(half, schema, sandwich=True).reward_sums.shape, (3,))


@pytest.mark.parametrize("intercept", [True, False])
def test_a_file_of_version_one_gives_the_sum_of_rewards_where_it_can(tmp_path, intercept):
    X, arms, r = drawn()
    schema = Schema(features=["a", "b", "c"], recorded=["a", "b", "c"], arm="arm", reward="r", intercept=intercept)
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "arm": arms, "r": r}
    found = summarize_log(table, schema)
    meta = {"schema": found.schema.to_dict(), "skipped": {}}
    arrays = {"counts": found.counts, "sums": found.moments.sums, "factors": found.factors}
    write_container(tmp_path / "old.summary", "summary", 1, meta, arrays)
    old = LogSummary.load(tmp_path / "old.summary")
    if intercept:
        np.testing.assert_allclose(old.reward_sums, found.reward_sums, rtol=1e-12)
    else:
        assert np.isnan(old.reward_sums).all()
        assert np.isnan((old + found).reward_sums).all()
