"""Stage 1, the log alone: values, errors, bounds and yardsticks against their definitions, and what cannot be told."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import t as student

import sidelight as sl
from sidelight.errors import FileFormatError, InputError, InvalidRowsError, SchemaError, SourceError, UnknownArmError
from sidelight.judging.log_rows import halves
from sidelight.judging.policies import requested

N = 3_000
SCHEMA = sl.Schema(["age", "dose", "stage", "severity"], ["age", "dose", "stage"], categories=["stage"])


def log_of(seed=0, n=N, arms=("a", "b", "c")):
    """A confounded log with a number of large offset, a category and noise that differs by context."""
    rng = np.random.default_rng(seed)
    age, dose = rng.normal(6_000, 10, n), rng.normal(size=n)
    stage = np.array(["I", "II", "III"])[rng.integers(0, 3, n)]
    severity = rng.normal(size=n) + 0.5 * dose
    z = (age - 6_000) / 10
    logits = np.column_stack([0.5 * severity, 0.3 * z, -0.4 * dose])[:, : len(arms)]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    code = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, len(arms) - 1)
    effect = np.array([[0.2, 0.5, 0.3], [0.0, -0.5, 0.4], [0.1, 0.1, -0.2]])[code]
    reward = effect[:, 0] + effect[:, 1] * z + effect[:, 2] * dose + 0.3 * (stage == "II") + 0.3 * severity
    reward = reward + rng.normal(size=n) * (0.2 + 0.5 * np.abs(dose))
    return {"age": age, "dose": dose, "stage": stage, "arm": np.array(arms)[code], "reward": reward}


def design(log):
    return np.column_stack(
        [np.ones(len(log["dose"])), (log["age"] - 6_000) / 10, log["dose"], log["stage"] == "II", log["stage"] == "III"]
    ).astype(float)


def literal(X, arm, r, taken, arms, level=0.95):
    """V_s, gain, half-width, size of a policy by the formulas, from the rows."""
    n = len(X)
    b, P, R11, e = {}, {}, {}, np.zeros(n)
    for a in arms:
        rows = arm == a
        b[a] = np.linalg.lstsq(X[rows], r[rows], rcond=None)[0]
        P[a], R11[a] = rows.mean(), X[rows].T @ X[rows] / rows.sum()
        leverage = np.einsum("ni,ij,nj->n", X[rows], np.linalg.inv(X[rows].T @ X[rows]), X[rows])
        e[rows] = (r[rows] - X[rows] @ b[a]) / (1 - leverage)
    ell = {a: (X * (taken == a)[:, None]).mean(axis=0) for a in arms}
    value = sum(ell[a] @ b[a] for a in arms)
    c = {a: np.linalg.solve(P[a] * R11[a], ell[a]) for a in arms}
    alpha = np.array([x @ c[a] for x, a in zip(X, arm, strict=True)])
    direct = np.array([x @ b[a] for x, a in zip(X, taken, strict=True)]) - r
    gain = direct.mean()
    psi = direct + alpha * e
    error = math.sqrt(((psi**2).mean() - gain**2) / n)
    s2 = {a: ((r - X @ b[a])[arm == a] ** 2).sum() / ((arm == a).sum() - X.shape[1]) for a in arms}
    size = math.sqrt(sum(P[a] * s2[a] for a in arms) * (alpha**2).mean())
    freedom = min((arm == a).sum() for a in arms if (taken == a).any()) - X.shape[1]
    return value, gain, student.ppf(0.5 + level / 2, freedom) * error, size


def test_fixed_arms_and_functions_are_the_formulas():
    log = log_of()
    X, arms = design(log), ("a", "b", "c")

    def rule(columns):
        return np.where(columns["dose"] > 0.3, "b", np.where(columns["stage"] == "I", "a", "c"))

    verdict = sl.judge(log, SCHEMA, policies=["best", rule], level=0.9)
    for name, taken in (("always b", np.full(N, "b")), ("rule", rule(log))):
        # the intervals of the three arms that nobody asked for hold together
        level = 0.9 if name == "rule" else 0.9 ** (1 / 3)
        value, gain, half, size = literal(X, log["arm"], log["reward"], taken, arms, level)
        line = verdict.line(name)
        assert line.value == pytest.approx(value, rel=1e-9)
        # functions divide t·ε by one minus leverage once, fixed arms twice: the difference is of second order
        assert (line.gain, line.high - line.gain) == pytest.approx((gain, half), rel=2e-3 if name != "rule" else 1e-6)
        assert line.size == pytest.approx(size, rel=1e-9)
        f2 = (abs(gain) - (line.high - line.gain)) ** 2 / size**2
        assert line.robustness == pytest.approx(0.5 * (math.sqrt(f2**2 + 4 * f2) - f2), rel=1e-6)
    old = verdict.line("old policy")
    assert (old.value, old.gain) == (pytest.approx(log["reward"].mean()), 0.0)


def test_best_is_chosen_on_one_half_and_valued_on_the_other():
    log = log_of(1)
    X, arms, second = design(log), np.array(["a", "b", "c"]), halves(0, N)
    found, differences = [], []

    def fitted(rows):
        pairs = [(X[rows & (log["arm"] == a)], log["reward"][rows & (log["arm"] == a)]) for a in arms]
        return np.array([np.linalg.lstsq(*pair, rcond=None)[0] for pair in pairs])

    for half in (False, True):
        other, own = second != half, second == half
        taken, itself = (arms[np.argmax(X[own] @ fitted(rows).T, axis=1)] for rows in (other, own))
        found.append((own.mean(), *literal(X[own], log["arm"][own], log["reward"][own], taken, arms)))
        # Var of Σ_a (ℓ_a − ℓ'_a)·b_a on this half
        difference = 0.0
        for a, b in zip(arms, fitted(own), strict=True):
            rows = own & (log["arm"] == a)
            bread = np.linalg.inv(X[rows].T @ X[rows])
            e = (log["reward"][rows] - X[rows] @ b) / (1 - np.einsum("ni,ij,nj->n", X[rows], bread, X[rows]))
            ell = ((taken == a) * 1.0 - (itself == a)) @ X[own] / own.sum()
            difference += ell @ bread @ (X[rows].T * e**2) @ X[rows] @ bread @ ell
        differences.append(difference)
    w, value, gain, half, size = np.array(found).T
    line = sl.judge(log, SCHEMA).line("best")
    assert line.value == pytest.approx(w @ value, rel=1e-8)
    assert line.gain == pytest.approx(w @ gain, rel=1e-8)
    assert line.size == pytest.approx(w @ size, rel=1e-8)
    # the two halves err together as far as their choices differ
    together = w[0] * w[1] * np.mean(differences)
    assert together > 1e-3 * line.error**2
    independent = ((w**2) @ half**2) / 1.96**2
    assert line.error == pytest.approx(math.sqrt(independent + together), rel=5e-3)


def test_halves_are_halves_and_do_not_depend_on_batches():
    whole = halves(0, 100_000)
    assert abs(whole.mean() - 0.5) < 0.006  # nearly four deviations
    assert np.array_equal(whole[777:999], halves(777, 222))
    assert abs(whole[::2].mean() - 0.5) < 0.009


def test_stated_shares_widen_the_interval_by_the_bound():
    log = log_of(2)
    plain = sl.judge(log, SCHEMA).line("always a")
    stated = sl.judge(log, SCHEMA, reward_share=0.4, choice_share=0.2).line("always a")
    bias = math.sqrt(0.4 * 0.25) * plain.size
    assert stated.hidden == pytest.approx(bias)
    # the bound is an estimate too, so the interval grows by a little more or less than the bias
    half = plain.high - plain.gain
    assert (stated.high - stated.low) / 2 - bias == pytest.approx(half, rel=0.15)
    # at the robustness value the bias is what the sampling interval keeps from zero
    r = plain.robustness
    touching = sl.judge(log, SCHEMA, reward_share=r, choice_share=r).line("always a")
    assert touching.hidden == pytest.approx(abs(plain.gain) - half, rel=1e-9)
    only_reward = sl.judge(log, SCHEMA, reward_share=0.1)
    assert only_reward.line("always a").low == -math.inf
    assert "no limit on choice_share" in only_reward.sentence
    assert sl.judge(log, SCHEMA, choice_share=0.2).line("always a").hidden == pytest.approx(0.5 * plain.size)


def test_the_error_of_the_bound_is_its_influence_function():
    log = log_of(13)
    estimate = sl.judge(log, SCHEMA).estimates["always b"]
    X, b_rows = design(log), log["arm"] == "b"
    n, mean = len(X), X.mean(axis=0)
    G = X[b_rows].T @ X[b_rows] / n
    c = np.linalg.solve(G, mean)
    b = {a: np.linalg.lstsq(X[log["arm"] == a], log["reward"][log["arm"] == a], rcond=None)[0] for a in "abc"}
    e = np.zeros(n)
    for a in "abc":
        rows = log["arm"] == a
        lev = np.einsum("ni,ij,nj->n", X[rows], np.linalg.inv(X[rows].T @ X[rows]), X[rows])
        e[rows] = (log["reward"][rows] - X[rows] @ b[a]) / (1 - lev)
    alpha, wanted = np.where(b_rows, X @ c, 0.0), X @ c
    nu, squares = mean @ c, estimate.size**2 / (mean @ c)
    size = 0.5 * estimate.size * (e**2 / squares + (2 * wanted - alpha**2) / nu)
    gain = X @ b["b"] - log["reward"] + alpha * e
    assert estimate.size_variance == pytest.approx(size.var(ddof=1) / n, rel=1e-6)
    assert estimate.size_covariance == pytest.approx(np.cov(gain, size)[0, 1] / n, rel=1e-6)
    low, high = estimate.bounds(0.95, 0.7)
    t = student.ppf(0.975, estimate.freedom)
    assert low == pytest.approx(
        estimate.gain - 0.7 * estimate.size - t * math.sqrt((gain - 0.7 * size).var(ddof=1) / n), rel=5e-3, abs=1e-3
    )
    assert high > estimate.gain + 0.7 * estimate.size


def test_a_yardstick_is_the_regression_without_the_feature():
    log = log_of(3)
    verdict = sl.judge(log, SCHEMA, policies="b")
    X, taken, arms = design(log), np.full(N, "b"), ("a", "b", "c")
    found = {b.feature: b for b in verdict.benchmarks_of("always b")}
    size = verdict.line("always b").size

    def moments(columns):
        n, alpha = len(X), 0.0
        epsilon = 0.0
        for a in arms:
            rows, part = log["arm"] == a, X[:, columns]
            b = np.linalg.lstsq(part[rows], log["reward"][rows], rcond=None)[0]
            squares = ((log["reward"] - part @ b)[rows] ** 2).sum() / (rows.sum() - len(columns))
            epsilon += rows.mean() * squares
            ell = (part * (taken == a)[:, None]).mean(axis=0)
            alpha += ell @ np.linalg.solve(part[rows].T @ part[rows] / n, ell)
        return epsilon, alpha

    whole = moments([0, 1, 2, 3, 4])
    for feature, kept in (("age", [0, 2, 3, 4]), ("dose", [0, 1, 3, 4]), ("stage", [0, 1, 2])):
        epsilon, alpha = moments(kept)
        assert found[feature].reward_share == pytest.approx(min(1, max(0, epsilon / whole[0] - 1)), rel=1e-7)
        assert found[feature].choice_share == pytest.approx(1 - alpha / whole[1], rel=1e-7)
    assert size == pytest.approx(math.sqrt(whole[0] * whole[1]))
    # k times as strong as a yardstick: at `times` the interval touches zero
    b = found["age"]
    k = b.times
    line = sl.judge(log, SCHEMA, reward_share=min(1, k * b.reward_share), choice_share=min(1, k * b.choice_share)).line(
        "always b"
    )
    plain = verdict.line("always b")
    assert line.hidden == pytest.approx(abs(plain.gain) - (plain.high - plain.gain), rel=1e-6)
    assert verdict.benchmarks.column_names[:3] == ["feature", "reward_share", "choice_share"]


def test_the_constant_is_added_whatever_the_schema():
    log = log_of(4)
    lines = []
    for schema in (
        sl.Schema(["age", "dose", "stage"], ["age", "dose", "stage"], categories=["stage"], intercept=True),
        sl.Schema(["age", "dose", "stage"], ["age", "dose", "stage"], categories=["stage"]),
        sl.Schema(["age", "dose", "stage", "one"], ["age", "dose", "stage", "one"], categories=["stage"]),
        sl.Schema(["age", "dose", "stage", "twice"], ["age", "dose", "stage", "twice"], categories=["stage"]),
    ):
        more = {**log, "one": np.full(N, 3.0), "twice": 2 * log["dose"] + 1}
        lines.append([line.to_dict() for line in sl.judge(more, schema).lines])
    for other in lines[1:]:
        for one, two in zip(lines[0], other, strict=True):
            for key in ("value", "gain", "low", "high"):
                assert one[key] == pytest.approx(two[key], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_summary_tells_of_fixed_arms_alone(intercept, tmp_path):
    log = log_of(5)
    schema = sl.Schema(["age", "dose", "stage"], ["age", "dose", "stage"], categories=["stage"], intercept=intercept)
    rows = sl.judge(log, schema)
    summary = sl.summarize_log(log, schema, sandwich=intercept)
    summary.save(tmp_path / "log.summary")
    verdict = sl.judge(sl.LogSummary.load(tmp_path / "log.summary"), policies=["best", lambda columns: "a"])
    for arm in "abc":
        one, two = rows.line(f"always {arm}"), verdict.line(f"always {arm}")
        assert (one.value, one.gain, one.size) == pytest.approx((two.value, two.gain, two.size), rel=1e-7)
        # squared residuals without leverage; as if noise were constant without them
        assert one.error == pytest.approx(two.error, rel=0.02 if intercept else 0.3)
    assert not verdict.line("function").known
    assert "fixed arms alone" in verdict.line("function").note
    assert verdict.headline.startswith("always ")
    assert any("constant" in text for text in verdict.assumptions) != intercept


def test_an_old_summary_without_a_constant_asks_to_be_summarized_again():
    from sidelight.logs.reduce.moments import Moments

    summary = sl.summarize_log(log_of(), SCHEMA)
    old = sl.LogSummary(summary.schema, Moments(summary.counts, summary.moments.sums, summary.factors))
    with pytest.raises(FileFormatError, match="Summarize the log again"):
        sl.judge(old)


def test_eras_count_by_their_rows():
    log = log_of(6)
    first = N // 3
    dose = log["dose"].copy()
    dose[:first] = np.nan
    table = {**log, "dose": dose, "year": np.where(np.arange(N) < first, 2019, 2020)}
    parts = [
        sl.judge({k: v[:first] for k, v in log.items()}, SCHEMA.with_recorded(["age", "stage"])),
        sl.judge({k: v[first:] for k, v in log.items()}, SCHEMA),
    ]
    for by in ("missing", "year"):
        verdict = sl.judge(table, SCHEMA, by=by)
        for arm in "abc":
            name = f"always {arm}"
            both = np.array([[p.line(name).gain, p.line(name).size, p.line(name).error ** 2] for p in parts])
            w = np.array([first, N - first]) / N
            gain = w @ (both[:, 0] + [p.line("old policy").value for p in parts]) - log["reward"].mean()
            line = verdict.line(name)
            assert line.gain == pytest.approx(gain, rel=1e-9)
            assert line.size == pytest.approx(w @ both[:, 1], rel=1e-9)
            # an era's share is as random as its rows
            between = w @ (both[:, 0] - w @ both[:, 0]) ** 2 / N
            assert line.error == pytest.approx(math.sqrt(w**2 @ both[:, 2] + between), rel=1e-9)
        assert verdict.line("best").known
    summaries = sl.judge(sl.summarize_eras(table, SCHEMA))
    assert summaries.line("always b").gain == pytest.approx(verdict.line("always b").gain, rel=1e-6)
    assert (
        not sl.judge(table, SCHEMA, by="missing", policies=lambda c: np.where(c["dose"] > 0, "a", "b"))
        .line("function")
        .known
    )


def test_what_the_old_policy_never_tried_cannot_be_told():
    log = log_of(7)
    keep = ~((log["arm"] == "c") & (log["stage"] == "III"))
    log = {k: v[keep] for k, v in log.items()}
    verdict = sl.judge(log, SCHEMA, policies=["best", lambda c: np.where(c["stage"] == "III", "a", "c")])
    assert not verdict.line("always c").known
    assert "never tries arm 'c'" in verdict.line("always c").note
    assert "stage=III" in verdict.line("always c").note
    assert verdict.line("best").known
    assert verdict.line("function").known  # it takes 'c' only where the log has seen it
    assert verdict.warnings


def test_an_arm_with_too_few_rows_cannot_be_told():
    log = log_of(8)
    where = np.flatnonzero(log["arm"] == "c")[14:]
    log = {k: np.delete(v, where) for k, v in log.items()}
    verdict = sl.judge(log, SCHEMA)
    assert "14 rows for 5 columns, and at least 15 are needed" in verdict.line("always c").note
    assert math.isnan(verdict.line("always c").value)
    assert verdict.line("best").known
    assert json.dumps(verdict.to_dict(), allow_nan=False)


def test_a_policy_that_looks_at_what_the_log_lacks_cannot_be_told():
    verdict = sl.judge(log_of(), SCHEMA, policies=lambda c: np.where(c["severity"] > 0, "a", "b"))
    assert "looks at 'severity'" in verdict.line("function").note
    assert "cannot be told" in verdict.sentence


def test_functions_of_one_row_and_of_one_label_work_too():
    log = log_of(9)

    def rowwise(row):
        return "a" if row["dose"] > 0 and row["stage"] != "II" else "b"

    verdict = sl.judge(
        log,
        SCHEMA,
        policies={"rows": rowwise, "all": lambda c: np.where((c["dose"] > 0) & (c["stage"] != "II"), "a", "b")},
    )
    one, two = verdict.line("rows"), verdict.line("all")
    assert (one.value, one.low, one.high) == (two.value, two.low, two.high)
    constant = sl.judge(log, SCHEMA, policies=lambda c: "c")
    assert constant.line("function").value == pytest.approx(constant.line("always c").value)


def test_units_do_not_matter():
    log = log_of(10)
    scaled = {**log, "age": log["age"] * 1e6 - 1e9, "dose": log["dose"] * 1e-8, "reward": 1_000 * log["reward"]}
    one, two = sl.judge(log, SCHEMA), sl.judge(scaled, SCHEMA)
    for a, b in zip(one.lines, two.lines, strict=True):
        assert 1_000 * np.array([a.value, a.low, a.high]) == pytest.approx([b.value, b.low, b.high], rel=1e-5, abs=1e-5)
        assert a.robustness == pytest.approx(b.robustness, abs=1e-6)


def test_the_sentence_says_when_something_simpler_is_as_good():
    rng = np.random.default_rng(0)
    n = 8_000
    x, arm = rng.normal(size=n), rng.integers(0, 2, n)
    log = {"x": x, "arm": arm, "reward": 1.0 * arm + x + rng.normal(size=n)}
    schema = sl.Schema(["x"], ["x"])
    verdict = sl.judge(log, schema)
    assert verdict.simpler is not None
    assert verdict.simpler.as_good
    assert "Something simpler is the same: always 1" in verdict.sentence
    assert verdict.word >= verdict.line("best").gain - 0.01
    log["reward"] = np.where(arm == 1, x, -x) + rng.normal(size=n)
    verdict = sl.judge(log, schema)
    assert not verdict.simpler.as_good
    assert "simpler" not in verdict.sentence


def test_the_object_prints_and_tabulates(tmp_path):
    verdict = sl.judge(log_of(11), SCHEMA)
    assert isinstance(verdict.table, pa.Table)
    assert verdict.table.column_names[:7] == ["policy", "stage", "value", "gain", "low", "high", "robustness"]
    assert verdict.table.num_rows == 5
    described = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert described["sentence"] == verdict.sentence
    assert len(described["lines"]) == 5
    assert "always b" in verdict._repr_html_()
    reward, choice, bound = verdict.contour()
    r = verdict.line("best").robustness
    i, j = np.searchsorted(reward, r), np.searchsorted(choice, r)
    assert bound[i - 1, j - 1] > 0 > bound[i + 1, j + 1]
    with pytest.raises(InputError, match="nothing about 'nobody'"):
        verdict.line("nobody")


def one_shot(log):
    yield pa.table(log).to_batches()[0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda log: sl.judge({k: v for k, v in log.items() if k != "reward"}, SCHEMA), SchemaError, "'reward'"),
        (lambda log: sl.judge({**log, "arm": np.full(N, "a")}, SCHEMA), InputError, "one arm only"),
        (lambda log: sl.judge({**log, "reward": np.full(N, 2.5)}, SCHEMA), InvalidRowsError, "2.5 in every row"),
        (lambda log: sl.judge({**log, "reward": 1e200 * log["reward"]}, SCHEMA), InvalidRowsError, "another unit"),
        (lambda log: sl.judge({**log, "reward": 1e-200 * log["reward"]}, SCHEMA), InvalidRowsError, "another unit"),
        (lambda log: sl.judge(log, SCHEMA, policies="d"), UnknownArmError, "neither 'best' nor one of the arms"),
        (lambda log: sl.judge(log, SCHEMA, policies=lambda c: "d"), UnknownArmError, "returned 'd'"),
        (lambda log: sl.judge(log, SCHEMA, policies=lambda c: ["a"]), InputError, "one for each is needed"),
        (lambda log: sl.judge(log, SCHEMA, policies=lambda c: c["sex"]), InputError, "asks for the column 'sex'"),
        (lambda log: sl.judge(log, SCHEMA, policies=lambda c: 1 / 0), InputError, "ZeroDivisionError"),
        (lambda log: sl.judge(log, SCHEMA, policies=object()), InputError, "is no policy"),
        (lambda log: sl.judge(log, SCHEMA, reward_share=1.5), InputError, "reward_share=1.5"),
        (lambda log: sl.judge(log, SCHEMA, choice_share="much"), InputError, "choice_share='much'"),
        (lambda log: sl.judge(log, SCHEMA, level=95), InputError, "level=95"),
        (lambda log: sl.judge(log), InputError, "needs a schema"),
        (lambda log: sl.judge(log, "schema.toml"), SchemaError, "must be a Schema"),
        (lambda log: sl.judge(one_shot(log), SCHEMA), InputError, "can be read only once"),
        (lambda log: sl.judge({k: v[:0] for k, v in log.items()}, SCHEMA), SourceError, "no rows"),
        (lambda log: sl.judge({k: v[:1] for k, v in log.items()}, SCHEMA), SourceError, "rows"),
        (lambda log: sl.judge({**log, "dose": np.full(N, np.nan)}, SCHEMA), InvalidRowsError, "missing"),
        (lambda log: sl.judge(log, SCHEMA, by="dose"), SchemaError, "already used"),
    ],
)
def test_bad_input_is_a_clear_error(call, error, message):
    with pytest.raises(error, match=message):
        call(log_of())


def test_rows_that_cannot_be_used_are_skipped_in_both_passes():
    log = log_of(12)
    dose = log["dose"].copy()
    dose[::7] = np.nan
    kept = ~np.isnan(dose)
    verdict = sl.judge(
        {**log, "dose": dose}, SCHEMA, on_invalid="skip", policies=lambda c: np.where(c["dose"] > 0, "a", "b")
    )
    assert verdict.rows == kept.sum()
    other = sl.judge({k: v[kept] for k, v in log.items()}, SCHEMA, policies=lambda c: np.where(c["dose"] > 0, "a", "b"))
    assert verdict.line("function").value == pytest.approx(other.line("function").value)


def test_arrays_are_a_log_too():
    log = log_of(14)
    X = np.column_stack([log["age"], log["dose"]])
    arrays = sl.judge((X, log["arm"], log["reward"]), sl.Schema.for_arrays(2, 2))
    named = sl.judge(log, sl.Schema(["age", "dose"], ["age", "dose"]))
    assert arrays.line("best").value == pytest.approx(named.line("best").value, rel=1e-9)
    assert "99.9% interval" in sl.judge(log, SCHEMA, level=0.999).sentence


def test_a_log_that_changes_between_the_passes_is_noticed():
    class Changing(dict):
        reads = 0

        def __getitem__(self, name):
            if name == "arm":
                Changing.reads += 1
                if Changing.reads > 3:  # opened, looked at, read once
                    return np.where(np.arange(N) < 10, "b", super().__getitem__(name))
            return super().__getitem__(name)

    with pytest.raises(SourceError, match="stays the same"):
        sl.judge(Changing(log_of()), SCHEMA)


def test_derived_features_and_dates_are_judged_with_their_columns():
    rng = np.random.default_rng(0)
    n = 4_000
    u, h = rng.normal(size=n), rng.normal(size=n)
    s = np.array(["x", "y", "z"])[rng.integers(0, 3, n)]
    arm = (rng.random(n) < 1 / (1 + np.exp(-h))).astype(int)
    day = np.datetime64("2024-01-01") + rng.integers(0, 300, n)
    log = {"u": u, "s": s, "h": h, "arm": arm, "day": day, "reward": np.where(arm, u**2, 1) + 0.3 * h * arm}
    log["reward"] = log["reward"] + 0.3 * rng.normal(size=n)
    schema = sl.Schema("spline(u, 4) + s + u:s + h + u:h + weekday(day)", ["u", "s", "day"], categories=["s"])
    told = sl.BehaviorQueries(sl.summarize_log(log, schema))
    for i in range(600):
        told.observe({"u": u[i], "s": s[i], "h": h[i], "day": str(day[i])}, int(arm[i]))
    policies = {"site": lambda c: np.where(c["s"] == "x", 1, 0), "u": lambda c: np.where(c["u"] > 1, 1, 0)}
    verdict = sl.judge(log, schema, answers=told, complete=log, policies={"best": "best", **policies})
    # leaving u out takes the spline and both products with it, and all that bends with u
    shares = dict(
        zip(verdict.benchmarks["feature"].to_pylist(), verdict.benchmarks["reward_share"].to_pylist(), strict=True)
    )
    assert set(shares) == {"u", "s", "day"}
    assert shares["u"] == 1.0
    assert shares["s"] < 0.05
    assert verdict.line("site", "answers").known
    for policy in ("best", "site", "u"):
        lines = {line.stage: line for line in verdict.stages_of(policy)}
        assert lines["complete"].known
        if lines["answers"].known:
            assert lines["answers"].low < lines["complete"].gain < lines["answers"].high


def test_a_policy_that_always_takes_one_arm_is_said_to_be_that_arm(rng):
    """Not that it is 0.000000 better."""
    n = 1_500
    x, arms = rng.normal(size=n), rng.choice(["low", "high"], n)
    rewards = np.where(arms == "high", 2.0, 0.0) + 0.01 * x + 0.1 * rng.normal(size=n)
    schema = sl.Schema(["x"], recorded=["x"], arm="arm", reward="reward")
    verdict = sl.judge(pa.table({"x": x, "arm": arms, "reward": rewards}), schema)
    assert verdict.sentence.endswith("is the same: always high, which is what the policy takes everywhere.")


def test_an_era_that_no_arm_can_be_judged_in_is_left_out_and_named():
    """A gap here and there makes an era of a few rows: it does not silence what thousands of others say."""
    log = log_of(6)
    for n in (1, 12):
        dose = log["dose"].copy()
        dose[:n] = np.nan
        table = {**log, "dose": dose}
        rest = sl.judge({k: v[n:] for k, v in log.items()}, SCHEMA)
        for verdict in (sl.judge(table, SCHEMA, by="missing"), sl.judge(sl.summarize_eras(table, SCHEMA))):
            assert verdict.rows == N - n
            assert verdict.line("always b").gain == pytest.approx(rest.line("always b").gain, rel=1e-9)
            assert f"1 era has too few rows of every arm to be judged by: {n} of {N:,} rows" in verdict.warnings[0]
        assert sl.judge(table, SCHEMA, by="missing").line("best").known


@pytest.mark.parametrize("name", ["best", "old policy", "always a"])
def test_a_policy_cannot_take_the_name_of_another(name):
    """Its line stood beside the other of that name, and what was said about it was the other's value."""
    with pytest.raises(InputError, match=f"cannot be called '{name}'"):
        sl.judge(log_of(3), SCHEMA, policies={name: lambda c: "b"})
    same = {"best": "best", "always a": "a"}
    if name in same:
        assert sl.judge(log_of(3), SCHEMA, policies={name: same[name]}).headline == name


def test_a_verdict_says_how_many_rows_it_is_not_about():
    rng = np.random.default_rng(0)
    n = 1_000
    columns = {"age": np.where(np.arange(n) % 5 == 0, np.nan, rng.normal(size=n)), "arm": rng.integers(0, 2, n)}
    columns["reward"] = rng.normal(size=n)
    schema = sl.Schema(["age", "severity"], ["age"], intercept=True)
    for log in (columns, sl.summarize_log(columns, schema, on_invalid="skip")):
        verdict = sl.judge(log, schema, on_invalid="skip")
        assert verdict.warnings[0].startswith("20.0% of the rows were skipped.")
        assert "20.0% of the rows were skipped" in verdict.to_html()
    whole = {name: values[np.isfinite(columns["age"])] for name, values in columns.items()}
    assert not any("skipped" in warning for warning in sl.judge(whole, schema).warnings)


def test_a_set_of_policies_has_one_order():
    """The order of a set of texts changes from process to process; the first policy is the headline of a verdict."""
    arms = [f"arm {i}" for i in range(40)]
    names = [policy.name for policy in requested(set(arms), arms)]
    assert names == sorted(f"always {arm}" for arm in arms)
