"""Lines through rewards of 0 and 1 that leave the interval: what a log may then count for."""

import numpy as np
import pyarrow as pa
import pytest

import sidelight as sl
from sidelight.learners.fused.excess import LineExcess

NAMES = ["age", "weight", "dose"]
SCHEMA = sl.Schema(NAMES, NAMES[:2], arms=range(3), intercept=True)


def classes(n, rng, steep=True):
    """Contexts (n, 4), what each of three arms pays there (n, 3): 1 for the right class, or a straight rate."""
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 3))])
    if steep:
        right = np.digitize(X[:, 1] + 0.5 * X[:, 3], [-0.5, 0.5])
        return X, np.eye(3)[right]
    X[:, 1:] = np.sign(X[:, 1:])
    rates = 0.5 + X[:, 1:] @ np.array([[0.2, -0.1, 0.0], [0.0, 0.1, -0.2], [0.1, 0.1, 0.1]])
    return X, (rng.random((n, 1)) < rates).astype(float)


def log_of(n, rng, steep=True, scales=1.0):
    X, rewards = classes(n, rng, steep)
    X[:, 1:] *= scales
    arms = rng.integers(3, size=n)
    return sl.LogSummary.from_arrays(X[:, :3], arms, rewards[np.arange(n), arms], SCHEMA)


def excess_of(summary):
    return LineExcess(summary, np.ones(3, dtype=bool))


def played(summary, X, rewards, rounds):
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary))
    for x, reward in zip(X[:rounds], rewards[:rounds], strict=True):
        arm = learner.decide(x, rng=np.random.default_rng(5)).arm
        learner.observe(x, arm, float(reward[arm]))
    return learner


def test_of_features_that_repeat_each_other_none_counts_for_the_others(seed):
    """Where gaps were filled they are apart: what a line says there depends neither on their order nor on units."""
    rng = np.random.default_rng(seed)
    X, rewards = classes(600, rng)
    arms, found = rng.integers(3, size=600), []
    X[:, 2] = X[:, 1]
    Y = classes(50, rng)[0]
    for order, scales in (([0, 1, 2], [1.0, 1.0]), ([0, 2, 1], [1.0, 1.0]), ([0, 1, 2], [-3.7, 0.021])):
        scale = np.array([1.0, *scales])
        log = sl.LogSummary.from_arrays(X[:, order] * scale, arms, rewards[np.arange(600), arms], SCHEMA)
        excess = excess_of(log)
        excess.add(np.column_stack([Y[:, order] * scale, Y[:, 3]]))
        found.append(excess.square)
    assert found[0] > 0.0
    assert found == pytest.approx([found[0]] * 3, rel=1e-9)


def test_the_formula_by_loops(seed):
    rng = np.random.default_rng(seed)
    summary = log_of(600, rng)
    X = classes(50, rng)[0]
    excess = excess_of(summary)
    excess.add(X)
    total = 0.0
    for x in X:
        for a in range(3):
            fit = float(x[:3] @ summary.coefficients[a])
            beyond = max(-fit, fit - 1.0, 0.0)
            total += summary.shares[a] * min(beyond, 1.0) ** 2
    # the bias N(0, Δ²R11⁻¹) of L = 3 coefficients has the mean square 3Δ²
    assert excess.square == pytest.approx(2.0 * total / len(X) / 3.0)
    assert excess.square > 0.0


def test_rows_one_by_one_have_the_same_bits_as_many_at_once(seed):
    rng = np.random.default_rng(seed)
    summary = log_of(600, rng)
    X = classes(40, rng)[0]
    together, single = excess_of(summary), excess_of(summary)
    together.add(X)
    for x in X:
        single.add(x[None])
    assert together.total.tobytes() == single.total.tobytes()
    single.add(X[-1:], -1.0)
    shorter = excess_of(summary)
    shorter.add(X[:-1])
    np.testing.assert_allclose(single.total, shorter.total, rtol=1e-12)


def test_one_wild_context_says_no_more_than_that_a_rate_is_off_by_one(seed):
    rng = np.random.default_rng(seed)
    excess = excess_of(log_of(600, rng))
    X = classes(100, rng)[0]
    excess.add(X)
    before = float(excess.total[0])
    excess.add(np.array([[1.0, 1e9, -1e9, 0.0]]))
    assert excess.total[0] <= before + 1.0


def test_lines_through_zero_are_not_compared(seed):
    rng = np.random.default_rng(seed)
    X, rewards = classes(600, rng)
    arms = rng.integers(3, size=len(X))
    schema = sl.Schema(NAMES, NAMES[:2], arms=range(3))
    summary = sl.LogSummary.from_arrays(X[:, 1:3], arms, rewards[np.arange(len(X)), arms], schema)
    excess = excess_of(summary)
    excess.add(X[:50, 1:])
    assert excess.square == 0.0


def test_powers_of_two_change_no_bit(seed):
    totals = []
    for scale in (1.0, 2.0**40):
        rng = np.random.default_rng(seed)
        excess = excess_of(log_of(600, rng, scales=scale))
        X = classes(50, rng)[0]
        X[:, 1:] *= scale
        excess.add(X)
        totals.append(excess.total.tobytes())
    assert totals[0] == totals[1]


def test_a_log_of_classes_counts_for_few_rows_and_one_of_straight_rates_for_all(seed):
    rows = {}
    for steep in (True, False):
        rng = np.random.default_rng(seed)
        summary = log_of(6_000, rng, steep)
        learner = played(summary, *classes(60, rng, steep), 60)
        log = learner.logs[0]
        limit = log.s2 / max(log.excess.square, 1e-300)
        rows[steep] = float(np.mean(limit))
        if not steep:
            assert log.excess.square == 0.0  # rates between 0.1 and 0.9 are never left, whatever the flags
    assert rows[True] < 100.0 < rows[False]


def test_where_no_line_leaves_the_interval_nothing_changes(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    summary = log_of(6_000, rng, steep=False)
    X, rewards = classes(120, rng, steep=False)
    ours = played(summary, X, rewards, 100)
    monkeypatch.setattr(LineExcess, "square", property(lambda self: 0.0))
    without = played(summary, X, rewards, 100)
    for x in X[100:]:
        assert [v.tobytes() for v in ours.scores(x)] == [v.tobytes() for v in without.scores(x)]


def test_files_corrections_and_rewards_that_are_no_rates(seed, tmp_path):
    rng = np.random.default_rng(seed)
    summary = log_of(2_000, rng)
    X, rewards = classes(200, rng)
    learner = played(summary, X, rewards, 80)
    learner.save(tmp_path / "learner")
    again = sl.load_learner(tmp_path / "learner")
    assert again.logs[0].excess.total.tobytes() == learner.logs[0].excess.total.tobytes()
    for x, reward in zip(X[80:160], rewards[80:160], strict=True):
        decision = learner.decide(x)
        assert again.decide(x) == decision
        for each in (learner, again):
            each.observe(x, decision.arm, float(reward[decision.arm]))
    learner.observe(X[160], 0, float(rewards[160, 0]))
    total = learner.logs[0].excess.total.copy()
    learner.correct(X[160], 0, float(rewards[160, 0]), float(rewards[160, 1]), taken=1)  # its round moves
    np.testing.assert_allclose(learner.logs[0].excess.total, total, rtol=1e-12)
    assert learner.logs[0]._bias_bound > 0.0
    learner.observe(X[161], 0, 0.25)  # no rate: lines may be anywhere
    assert learner.logs[0]._bias_bound == 0.0


def test_the_sandwich_allows_for_it_too(seed):
    rng = np.random.default_rng(seed)
    X, rewards = classes(4_000, rng)
    arms = rng.integers(3, size=len(X))
    columns = {name: X[:, 1 + j] for j, name in enumerate(NAMES[:2])}
    table = {**columns, "arm": arms, "reward": rewards[np.arange(len(X)), arms]}
    summary = sl.summarize_log(pa.table(table), SCHEMA, sandwich=True)
    contexts, pays = classes(60, rng)
    learner = sl.FusedOFUL(sl.BehaviorQueries(summary), sandwich=True)
    first = learner.logs[0].effective_rows()
    for x, reward in zip(contexts, pays, strict=True):
        arm = learner.decide(x).arm
        learner.observe(x, arm, float(reward[arm]))
    assert (learner.logs[0].effective_rows() < 0.2 * np.maximum(first, 1000.0)).all()
