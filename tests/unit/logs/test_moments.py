"""Factors: as accurate as a QR on every road, and the same for any order and split."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular

from sidelight.logs.reduce import moments as moments_module
from sidelight.logs.reduce.moments import Moments, batch_moments, triangular_factor
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_log
from sidelight.logs.summary import LogSummary

NIST = Path(__file__).parents[4] / "shared" / "data" / "nist"
ARMS = 3


def fed(rows, codes, n_arms, parts):
    """The moments of rows fed in batches at these cuts."""
    moments = Moments.empty(n_arms, rows.shape[1] - 1)
    for part in np.split(np.arange(len(rows)), parts):
        columns = [np.ascontiguousarray(rows[part, j]) for j in range(rows.shape[1])]
        batch = batch_moments(columns, codes[part], *moments.bases())
        assert batch is not None
        moments.fold(batch)
    return moments


def gram_error(factor, rows):
    """Largest error of ``RᵀR`` in units of the column norms, against sums in extended precision."""
    exact = (rows.astype(np.longdouble).T @ rows.astype(np.longdouble)).astype(np.float64)
    norms = np.sqrt(np.maximum(np.diag(exact), 1e-300))
    return np.abs((factor.T @ factor - exact) / np.outer(norms, norms)).max()


def designs(rng, n):
    X = rng.normal(size=(n, 6))
    repeated, zero, drifting, late = X.copy(), X.copy(), X.copy(), X.copy()
    repeated[:, 4] = 3 * X[:, 1] - X[:, 0]
    zero[:, 2] = 0.0
    drifting *= 1 + np.arange(n)[:, None] / 50
    late[: n // 2, 3] = 0.0
    u = rng.uniform(0, 20, n)
    return {
        "plain": X,
        "scales of 1e9": X * 10.0 ** np.linspace(-9, 9, 6),
        "offset of 1e6": np.column_stack([np.ones(n), X[:, 1:] + 1e6]),
        "repeated column": repeated,
        "zero column": zero,
        "drifting": drifting,
        "a column that begins late": late,
        "polynomial": u[:, None] ** np.arange(6),
        "sorted": X[np.argsort(X[:, 0])],
        "nearly repeated": np.column_stack([X[:, :5], X[:, 1] + 1e-9 * X[:, 5]]),
    }


@pytest.mark.parametrize("name", designs(np.random.default_rng(0), 10))
def test_the_fast_road_is_as_accurate_as_a_qr(name, monkeypatch):
    monkeypatch.setattr(moments_module, "_SMALL", 0)
    rng = np.random.default_rng(5)
    n = 12_000
    X = designs(rng, n)[name]
    scale = np.sqrt((X**2).mean(axis=0))
    rewards = (X / np.where(scale > 0, scale, 1)) @ rng.normal(size=6) + rng.normal(size=n)
    rows = np.column_stack([X, rewards])
    codes = rng.integers(0, ARMS, n)
    fast = fed(rows, codes, ARMS, [3_000, 3_500, 8_000])
    for arm in range(ARMS):
        own = rows[codes == arm]
        factor = fast.factors[arm]
        assert gram_error(factor, own) < 1e-12
        assert (np.diag(factor) >= 0).all()
        assert not np.tril(factor, -1).any()
        assert fast.counts[arm] == len(own)
        norms = np.linalg.norm(own[:, :-1], axis=0)
        assert (np.abs(fast.sums[arm] - own[:, :-1].sum(axis=0)) <= 1e-11 * norms * np.sqrt(len(own))).all()
        if name in ("repeated column", "zero column"):
            continue
        # Digits that a Gram matrix would lose: the smallest diagonal is as a QR gives it.
        direct = triangular_factor(own)
        unit = np.linalg.norm(direct, axis=0)
        assert np.abs(np.diag(factor) - np.diag(direct)).max() / unit.min() < 1e-10 or np.allclose(
            np.diag(factor) / unit, np.diag(direct) / unit, rtol=1e-5, atol=1e-13
        )


def test_the_fast_road_is_taken_where_it_is_safe_and_not_where_it_is_not(monkeypatch):
    monkeypatch.setattr(moments_module, "_SMALL", 0)
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(4_000, 5))
    codes = np.zeros(4_000, dtype=np.int64)
    first = fed(rows, codes, 1, [])
    columns = [np.ascontiguousarray(rows[:, j]) for j in range(5)]
    same = batch_moments(columns, codes, *first.bases())
    assert same is not None
    assert same.by_gram.all()
    assert not same.direct
    # Rows nothing like those before: a column a million times larger.
    columns[2] = columns[2] * 1e6
    foreign = batch_moments(columns, codes, *first.bases())
    assert foreign is not None
    assert list(foreign.direct) == [0]


def test_values_that_are_not_finite_are_noticed_on_both_roads(monkeypatch):
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 2, 2_000)
    for small in (0, 10**9):
        monkeypatch.setattr(moments_module, "_SMALL", small)
        for bad in (np.nan, np.inf):
            rows = rng.normal(size=(2_000, 4))
            rows[1_234, 2] = bad
            columns = [np.ascontiguousarray(rows[:, j]) for j in range(4)]
            assert batch_moments(columns, codes, *Moments.empty(2, 3).bases()) is None
            without = np.where(np.arange(2_000) == 1_234, -1, codes)
            kept = batch_moments(columns, without, *Moments.empty(2, 3).bases())
            assert kept is not None
            assert kept.counts.sum() == 1_999


@given(
    st.integers(1, 4),
    st.integers(1, 60),
    st.lists(st.integers(0, 60), max_size=4),
    st.integers(0, 2**32 - 1),
    st.floats(0, 6),
)
@settings(max_examples=60, deadline=None)
def test_any_order_and_split_give_the_same(p, n, cuts, seed, decades):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * 10.0 ** rng.uniform(-decades, decades, p)
    arms = rng.integers(0, 2, n)
    r = rng.normal(size=n) * 10.0 ** rng.uniform(-decades, decades)
    schema = Schema.for_arrays(p + 1, p, 2)
    whole = LogSummary.from_arrays(X, arms, r, schema)
    order = rng.permutation(n)
    parts = [
        LogSummary.from_arrays(X[i], arms[i], r[i], schema)
        for i in np.split(order, sorted(min(cut, n) for cut in cuts))
    ]
    total = parts[0]
    for part in parts[1:]:
        total = part + total
    assert (total.counts == whole.counts).all()
    for arm in range(2):
        rows = np.column_stack([X, r])[arms == arm]
        if len(rows) == 0:
            assert not total.factors[arm].any()
            continue
        assert gram_error(total.factors[arm], rows) < 1e-12
        if whole.determined[arm] and total.determined[arm] and len(rows) > p:
            scale = np.linalg.norm(rows[:, :-1], axis=0)
            error = np.abs(whole.coefficients_of(arm) - total.coefficients_of(arm)) * scale
            assert error.max() <= 1e-12 * whole.conditions[arm] * np.linalg.norm(rows[:, -1])


# NIST Statistical Reference Datasets, Linear Regression (https://www.itl.nist.gov/div898/strd/lls/lls.shtml): the
# certified values below are from there. Wampler's five are formulas; Longley ships with statsmodels.
WAMPLER_NOISE = np.array(
    [
        759,
        -2048,
        2048,
        -2048,
        2523,
        -2048,
        2048,
        -2048,
        1838,
        -2048,
        2048,
        -2048,
        1838,
        -2048,
        2048,
        -2048,
        2523,
        -2048,
        2048,
        -2048,
        759,
    ]
)


def wampler(number):
    x = np.arange(21.0)
    X = x[:, None] ** np.arange(6)
    if number == 2:
        certified = 10.0 ** -np.arange(6)
        # The published values have five decimals.
        y = np.round(X @ certified, 5)
    else:
        certified = np.ones(6)
        y = X.sum(axis=1) + WAMPLER_NOISE * {1: 0, 3: 1, 4: 100, 5: 10_000}[number]
    return X, y, certified


def longley():
    if importlib.util.find_spec("statsmodels") is not None:
        from statsmodels.datasets import longley as data

        loaded = data.load()
        X, y = np.asarray(loaded.exog, dtype=float), np.asarray(loaded.endog, dtype=float)
    elif NIST.exists():
        table = np.loadtxt(NIST / "longley.csv", delimiter=",", skiprows=1)
        X, y = table[:, 1:], table[:, 0]
    else:
        pytest.skip("Longley is in statsmodels or in the data folder, and neither is here")
    certified = [
        -3482258.63459582,
        15.0618722713733,
        -0.358191792925910e-01,
        -2.02022980381683,
        -1.03322686717359,
        -0.511041056535807e-01,
        1829.15146461355,
    ]
    return np.column_stack([np.ones(16), X]), y, np.array(certified)


def norris():
    if not NIST.exists():
        pytest.skip("Norris is in the data folder, which is not here")
    table = np.loadtxt(NIST / "norris.csv", delimiter=",", skiprows=1)
    X = np.column_stack([np.ones(len(table)), table[:, 1]])
    return X, table[:, 0], np.array([-0.262323073774029, 1.00211681802045])


def no_intercept(number):
    x, y, b = {
        1: (np.arange(60.0, 71), np.arange(130.0, 141), 2.07438016528926),
        2: (np.array([4.0, 5, 6]), np.array([3.0, 4, 4]), 0.727272727272727),
    }[number]
    return x[:, None], y, np.array([b])


def correct_digits(found, certified):
    """Of the worst coefficient."""
    error = np.abs(found - certified) / np.abs(certified)
    return float(-np.log10(np.maximum(error, 1e-16).max()))


def test_digits_are_those_of_the_worst_coefficient():
    assert correct_digits(np.array([1.0, 1.001]), np.ones(2)) == pytest.approx(3.0, abs=0.01)


PROBLEMS = {
    "Norris": (norris, 10, 0.884796396144373),
    "Longley": (longley, 10, 304.854073561965),
    "Wampler1": (lambda: wampler(1), 8.5, None),
    "Wampler2": (lambda: wampler(2), 8.5, None),
    "Wampler3": (lambda: wampler(3), 8.5, 2360.14502379268),
    "Wampler4": (lambda: wampler(4), 7, 236014.502379268),
    "Wampler5": (lambda: wampler(5), 5, 23601450.2379268),
    "NoInt1": (lambda: no_intercept(1), 13, 3.56753034006338),
    "NoInt2": (lambda: no_intercept(2), 13, 0.369274472937998),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("parts", [1, 3])
def test_nist(name, parts):
    make, digits, deviation = PROBLEMS[name]
    X, y, certified = make()
    schema = Schema.for_arrays(X.shape[1], X.shape[1], 1)
    pieces = np.array_split(np.arange(len(y)), parts)
    summaries = [LogSummary.from_arrays(X[i], np.zeros(len(i), dtype=int), y[i], schema) for i in pieces]
    total = summaries[0]
    for other in summaries[1:]:
        total = total + other
    assert total.determined.all()
    assert correct_digits(total.coefficients[0], certified) >= digits
    if deviation is not None:
        assert correct_digits(np.sqrt(total.residual_variances), np.array([deviation])) >= 9


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_wampler_formulas_are_the_data(number):
    if not NIST.exists():
        pytest.skip("the data folder is not here")
    table = np.loadtxt(NIST / f"wampler{number}.csv", delimiter=",", skiprows=1)
    X, y, _ = wampler(number)
    np.testing.assert_allclose(table[:, 1], X[:, 1])
    np.testing.assert_allclose(table[:, 0], y, rtol=1e-12)


def test_nist_through_a_file(tmp_path):
    """Wampler 3 from a CSV file with an intercept, the road a user takes."""
    X, y, certified = wampler(3)
    names = [f"x{j}" for j in range(1, 6)]
    text = ",".join(["y", *names, "arm"]) + "\n"
    for row, value in zip(X, y, strict=True):
        text += ",".join([repr(float(value)), *(repr(float(v)) for v in row[1:]), "only"]) + "\n"
    (tmp_path / "w.csv").write_text(text)
    summary = summarize_log(tmp_path / "w.csv", Schema(names, names, reward="y", intercept=True))
    assert summary.arms == ("only",)
    assert correct_digits(summary.coefficients[0], certified) >= 8.5


@pytest.mark.parametrize("name", ["Norris", "Longley", "Wampler1", "Wampler3"])
def test_nist_in_any_order_and_split(name):
    """The digits asked for are there however the rows are cut in three, not only in the order of the file."""
    make, digits, _ = PROBLEMS[name]
    X, y, certified = make()
    schema = Schema.for_arrays(X.shape[1], X.shape[1], 1)
    rng = np.random.default_rng(0)
    for _ in range(40):
        cuts = np.sort(rng.integers(0, len(y) + 1, 2))
        parts = [
            LogSummary.from_arrays(X[i], np.zeros(len(i), dtype=int), y[i], schema)
            for i in np.split(rng.permutation(len(y)), cuts)
        ]
        assert correct_digits((parts[0] + parts[1] + parts[2]).coefficients[0], certified) >= digits


def test_both_precisions_give_the_same_factor():
    rng = np.random.default_rng(0)
    for shape in ((3, 5), (5, 5), (40, 5), (1, 1)):
        rows = rng.normal(size=shape)
        np.testing.assert_allclose(
            triangular_factor(rows), triangular_factor(rows, careful=False), rtol=1e-11, atol=1e-13
        )


def test_a_triangular_factor_of_few_rows():
    rows = np.arange(6.0).reshape(2, 3)
    factor = triangular_factor(rows)
    assert factor.shape == (3, 3)
    np.testing.assert_allclose(factor.T @ factor, rows.T @ rows, atol=1e-12)
    np.testing.assert_allclose(solve_triangular(factor[:2, :2], factor[:2, 2]), [-1, 2], atol=1e-10)
