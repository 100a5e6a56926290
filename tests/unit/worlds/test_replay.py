"""Tables as bandits: no row on both sides, a log that follows its policy, a trial that must be randomized."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from sidelight.errors import ContextError, InputError, InvalidRowsError, SchemaError
from sidelight.logs.schema.schema import Schema
from sidelight.logs.summarize import summarize_log
from sidelight.worlds.log_batches import feature_column
from sidelight.worlds.protocol import World
from sidelight.worlds.replay import ReplayWorld
from sidelight.worlds.table_rows import MISSING, OTHER, read_rows
from sidelight.worlds.trial import randomization_check
from sidelight.worlds.trial_results import ReplayedRun, ReplayResult

N = 3000


def answers(seed=0, n=N):
    rng = np.random.default_rng(seed)
    age, gene = rng.normal(50, 10, n), rng.integers(0, 3, n)
    dose = 35 + 0.5 * (age - 50) - 12 * (gene - 1) + rng.normal(0, 5, n)
    return pa.table({"id": np.arange(n, dtype=float), "age": age, "gene": gene, "dose": dose})


def trial(seed=0, n=6000, shares=(0.5, 0.3, 0.2), confounded=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    logits = np.log(shares) + confounded * X[:, [2]] * np.array([1.0, 0.0, -1.0])
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    arms = (rng.random((n, 1)) > np.cumsum(P, axis=1)).sum(axis=1)
    means = np.column_stack([0.5 * X[:, 2], 0.2 + 0.3 * X[:, 0], -0.4 * X[:, 2]])
    rewards = means[np.arange(n), arms] + 0.3 * rng.standard_normal(n)
    names = np.array(["red", "green", "blue"])
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "shown": names[arms], "clicks": rewards})
    return table, X, arms, means


ANSWERS = Schema(["id", "age", "gene"], ["id", "age"], intercept=True)
TRIAL = Schema(["a", "b", "c"], ["a", "b"], arm="shown", reward="clicks", arms=["red", "green", "blue"], intercept=True)


class Rule:
    """A learner that follows a fixed rule and remembers what it was told."""

    def __init__(self, rule, needs=None):
        self.rule, self.needs, self.seen, self.asked = rule, needs, [], []

    def decide(self, x, allowed=None, rng=None):
        return SimpleNamespace(arm=self.rule(x))

    def wants_query(self, x):
        return True

    def observe(self, x, arm, reward):
        self.seen.append((x, arm, reward))

    def observe_behavior(self, x, arm=None, probabilities=None):
        self.asked.append((arm, probabilities))


# known outcomes


def test_a_dose_becomes_arms_by_its_boundaries():
    table = pa.table(
        {"x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] * 2, "h": [0.0, 1.0] * 6, "dose": [20.9, 21, 35, 49, 49.1, 90] * 2}
    )
    world = ReplayWorld.from_answers(table, Schema(["x", "h"], ["x"]), "dose", cuts=(21, 49))
    assert world.arms == ("below 21", "21 to 49", "above 49")
    np.testing.assert_array_equal(world._outcomes.argmax(axis=1)[:6], [0, 1, 1, 1, 2, 2])
    single = ReplayWorld.from_answers(table, Schema(["x", "h"], ["x"]), "dose", cuts=[35])
    assert single.arms == ("below 35", "35 or more")
    with pytest.raises(InputError, match="increasing"):
        ReplayWorld.from_answers(table, Schema(["x", "h"], ["x"]), "dose", cuts=(49, 21))


def test_no_row_serves_both_sides(rng):
    world = ReplayWorld.from_answers(answers(), ANSWERS, "dose", cuts=(30, 40), split=0.3, seed=4, standardize=False)
    log_side, online_side = world.sides()
    assert len(log_side) == round(0.3 * N)
    assert not set(log_side) & set(online_side)
    assert len(log_side) + len(online_side) == N
    logged = world.sample_log(world.log_size, ["id"], rng)["id"].to_numpy().astype(int)
    assert sorted(logged) == sorted(log_side)  # each once
    online = world.contexts(4000, rng)[:, 1].astype(int)
    assert set(online) <= set(online_side)
    assert not np.array_equal(world.reseeded(5).sides()[0], log_side)
    with pytest.raises(InputError, match=f"has {len(log_side)}"):
        world.sample_log(len(log_side) + 1, ["id"], rng)


def test_it_is_a_world_whose_rewards_are_the_table_s(rng):
    table = answers()
    world = ReplayWorld.from_answers(table, ANSWERS, "dose", cuts=(30, 40), standardize=False)
    assert isinstance(world, World)
    X = world.contexts(50, rng)
    dose = table["dose"].to_numpy()[X[:, 1].astype(int)]
    right = (dose >= 30).astype(int) + (dose > 40)
    np.testing.assert_array_equal(world.mean_rewards(X), np.eye(3)[right])
    np.testing.assert_array_equal(world.rewards(X, "below 30", rng), right == 0)
    log = world.sample_log(400, 2, rng)
    assert log.column_names == ["id", "age", "arm", "reward"]
    dose = table["dose"].to_numpy()[log["id"].to_numpy().astype(int)]
    right = np.array(world.arms)[(dose >= 30).astype(int) + (dose > 40)]
    np.testing.assert_array_equal(log["reward"].to_numpy(), right == np.array(log["arm"].to_pylist()))


def test_rows_that_share_a_context_share_its_mean_and_are_drawn_equally_often():
    table = pa.table({"x": [0.0, 1.0] * 500, "h": [1.0, 0.0, 1.0, 1.0] * 250, "cat": ["a", "a", "b", "b"] * 250})
    world = ReplayWorld.from_answers(table, Schema(["x", "h"], ["x"]), "cat", standardize=False)
    X = np.array([[0.0, 1.0]] * 4000)
    share = world.mean_rewards(X)[0]
    assert 0.3 < share[0] < 0.7
    assert share.sum() == pytest.approx(1)
    drawn = world.potential_rewards(X, np.random.default_rng(1))
    assert set(map(tuple, drawn)) == {(1.0, 0.0), (0.0, 1.0)}
    assert abs(drawn[:, 0].mean() - share[0]) < 5 * 0.5 / np.sqrt(4000)
    with pytest.raises(ContextError, match="not one of the table's online rows"):
        world.mean_rewards(np.array([[7.0, 7.0]]))


def test_the_old_policy_sees_the_hidden_features_only_and_prefers_what_they_favour(rng):
    world = ReplayWorld.from_answers(answers(), ANSWERS, "dose", cuts=(30, 40), sharpness=3.0)
    X = world.contexts(500, rng)
    other = X.copy()
    other[:, 1:3] = rng.standard_normal((500, 2))  # id and age
    np.testing.assert_allclose(world.behavior_probabilities(X), world.behavior_probabilities(other))
    P = world.behavior_probabilities(X)
    slow = X[:, 3] > 0.5  # gene 2 needs the smallest dose
    assert P[slow, 0].mean() > P[~slow, 0].mean() + 0.3
    seeing_age = ReplayWorld.from_answers(answers(), ANSWERS, "dose", cuts=(30, 40), sees=["age"])
    gene_changed = X.copy()
    gene_changed[:, 3] += 1
    np.testing.assert_allclose(seeing_age.behavior_probabilities(X), seeing_age.behavior_probabilities(gene_changed))
    uniform = ReplayWorld.from_answers(
        answers(), ANSWERS, "dose", cuts=(30, 40), policy=lambda X: np.full((len(X), 3), 1 / 3)
    )
    assert (uniform.behavior_probabilities(X) == 1 / 3).all()
    everything = Schema(["id", "age", "gene"], ["id", "age", "gene"])
    with pytest.raises(InputError, match="nothing to decide by"):
        ReplayWorld.from_answers(answers(), everything, "dose", cuts=(30,))


def test_numbers_are_scaled_by_the_log_s_side():
    world = ReplayWorld.from_answers(answers(), ANSWERS, "dose", cuts=(30, 40), seed=3)
    side = world._X[world._log_rows]
    np.testing.assert_allclose(side[:, 1:].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(side[:, 1:].std(axis=0), 1)
    np.testing.assert_allclose(world._X * world.scales + world.centers, world.rows.X)


def test_cross_moments_are_exact_over_the_online_side(rng):
    world = ReplayWorld.from_answers(answers(), ANSWERS, "dose", cuts=(30, 40))
    X = world.contexts(200_000, rng)
    P = world.behavior_probabilities(X)
    direct = np.einsum("nk,ni,nj->kij", P, X[:, :3], X[:, 3:], optimize=True) / P.sum(axis=0)[:, None, None]
    np.testing.assert_allclose(world.cross_moments(2), direct, atol=0.03)


def test_a_column_of_rewards_for_each_arm():
    table = pa.table({"x": np.arange(40.0), "h": np.arange(40.0) % 3, "left": np.ones(40), "right": np.zeros(40)})
    world = ReplayWorld.from_outcomes(table, Schema(["x", "h"], ["x"]), {"L": "left", "R": "right"})
    assert world.arms == ("L", "R")
    np.testing.assert_array_equal(world.mean_rewards(world.contexts(5, np.random.default_rng(0))), [[1.0, 0.0]] * 5)


# reading


def test_missing_values_rare_levels_and_numbers_in_text():
    n = 1000
    city = ["Rome"] * 600 + ["Oslo"] * 350 + ["Bonn"] * 6 + ["Cork"] * 7 + [None] * 37
    table = pa.table(
        {
            "age": [" 41"] * 990 + ["NA"] * 10,
            "city": city,
            "h": np.arange(n) % 2 == 0,
            "arm": ["x", "y"] * 499 + ["x", None],
            "r": np.arange(n, dtype=float),
        }
    )
    schema = Schema(["age", "city", "h"], ["age"], reward="r", intercept=True, categories=["city"])
    rows = read_rows(table, schema, numbers=("r",), labels=("arm",))
    assert rows.dropped == {"age": 10}  # the row without an arm is one of them
    assert rows.schema.encoded_names == ("intercept", "age", "city=Oslo", f"city={MISSING}", f"city={OTHER}", "h")
    np.testing.assert_array_equal(rows.X[:, 1], 41.0)
    np.testing.assert_array_equal(rows.X[:600, 2:5], 0)  # Rome, the most frequent, has no column
    assert rows.X[:, 2:5].sum(axis=0).tolist() == [350, 27, 13]
    np.testing.assert_array_equal(rows.kept, np.arange(990))
    assert rows.labels["arm"][1] == ("x", "y")
    with pytest.raises(SchemaError, match="Declare it as a category"):
        read_rows(table, Schema(["city"], ["city"]))
    with pytest.raises(InvalidRowsError, match="none of the 2 rows"):
        read_rows(pa.table({"v": [None, None]}, pa.schema({"v": pa.float64()})), Schema(["v"], ["v"]))


@pytest.mark.parametrize("special", [MISSING, OTHER])
def test_numbers_as_levels_beside_a_special_one_make_a_log(special):
    """A level for what is missing or rare among numbers: the log's column is text, and its summary agrees."""
    gene = np.arange(N) % 3
    values = [None if i % 10 == 0 else int(g) for i, g in enumerate(gene)]
    if special == OTHER:
        values = [100 + i if v is None else v for i, v in enumerate(values)]
    table = answers().set_column(2, "gene", pa.array(values))
    schema = Schema(["id", "age", "gene"], ["age", "gene"], intercept=True, categories=["gene"])
    world = ReplayWorld.from_answers(table, schema, "dose", cuts=(25, 45))
    log = world.sample_log(800, ["age", "gene"], np.random.default_rng(1))
    assert set(log["gene"].to_pylist()) == {"0", "1", "2", special}
    summary = summarize_log(log, world.schema(["age", "gene"]))
    assert summary.n_rows == 800
    column = summary.schema.recorded_names.index(f"gene={special}")
    assert summary.grams[:, column, column].sum() == pytest.approx(log["gene"].to_pylist().count(special))
    mixed = Schema(["gene"], ["gene"], categories={"gene": (0, 1, 2, special)}, arms=["x"])
    with pytest.raises(SchemaError, match="'gene' has levels of different types"):
        feature_column(mixed, "gene", np.eye(4))


def test_a_csv_is_read_as_it_is(tmp_path):
    import pyarrow.csv

    path = tmp_path / "trial.csv"
    table, *_ = trial()
    pyarrow.csv.write_csv(table, path)
    world = ReplayWorld.from_trial(path, Schema(["a", "b", "c"], ["a"], arm="shown", reward="clicks", intercept=True))
    assert world.arms == ("blue", "green", "red")
    direct = ReplayWorld.from_trial(table, TRIAL)
    assert world.log_size == direct.log_size
    np.testing.assert_allclose(world.rows.X, direct.rows.X)


# a randomized trial


def test_the_check_passes_randomized_trials_as_often_as_it_says():
    """Kolmogorov-Smirnov of the p-values of 300 randomized trials against uniform: fails once in 10⁵."""
    from scipy import stats

    rng = np.random.default_rng(5)
    p_values = []
    for _ in range(300):
        X = np.column_stack([rng.standard_normal((400, 2)), rng.random(400) < 0.3, np.ones(400)])
        X = np.column_stack([X, X[:, 0] + X[:, 1]])  # a dependent column does not disturb it
        p_values.append(randomization_check(X, rng.integers(0, 3, 400), ("a", "b", "c", "one", "sum")).p_value)
    assert stats.kstest(p_values, "uniform").pvalue > 1e-5


def test_a_trial_that_is_none_is_refused():
    table, *_ = trial(confounded=0.5)
    with pytest.raises(InputError, match="no randomized trial") as caught:
        ReplayWorld.from_trial(table, TRIAL)
    assert "'c'" in str(caught.value)
    assert ReplayWorld.from_trial(table, TRIAL, assume_randomized=True).check.p_value < 1e-4


def test_the_log_is_distributed_as_the_old_policy_s(seed):
    """Arms of the drawn log against π_b in bins of the hidden feature; 15 cells at 5.5 deviations: once in 10⁶."""
    table, *_ = trial(seed, n=60_000)
    world = ReplayWorld.from_trial(table, TRIAL, sharpness=1.0, split=0.7)
    rng = np.random.default_rng(seed)
    size = len(world.log_available(np.random.default_rng(seed)))
    log = world.sample_log(size, 3, rng)
    assert log.column_names == ["a", "b", "c", "shown", "clicks"]
    X = world.schema(3).encode_many(log)
    arms = np.array([world.arms.index(arm) for arm in log["shown"].to_pylist()])
    P = world.behavior_probabilities(X)
    bins = np.digitize(X[:, 3], [-1, -0.3, 0.3, 1])
    for b in range(5):
        for arm in range(3):
            chosen = bins == b
            expected, variance = P[chosen, arm].sum(), (P[chosen, arm] * (1 - P[chosen, arm])).sum()
            assert abs((arms[chosen] == arm).sum() - expected) < 5.5 * np.sqrt(variance)
    with pytest.raises(InputError, match=f"only {size} of the 42000 rows"):
        world.sample_log(size + 1, 3, np.random.default_rng(seed))


def test_replay_accepts_what_was_tried_and_never_a_row_of_the_log(rng):
    table, _, tried, _ = trial()
    world = ReplayWorld.from_trial(table, TRIAL)
    told = {}

    def make(run):
        told[run.seed] = Rule(lambda x: "red" if x[3] > 0 else "blue", needs="action")
        assert run.summary.n_rows > 500
        assert run.true_cross_moments.shape == (3, 3, 1)
        return told[run.seed]

    result = world.replay({"rule": make}, seeds=[7, 9])
    rounds = result.rounds().to_pydict()
    labels = np.array(["red", "green", "blue"])
    assert (labels[tried[rounds["row"]]] == np.array(rounds["arm"])).all()
    for seed in (7, 9):
        mine = [r for r, s in zip(rounds["row"], rounds["seed"], strict=True) if s == seed]
        log_side, online_side = world.reseeded(seed).sides()
        assert len(set(mine)) == len(mine)  # no row twice
        assert set(mine) <= set(online_side)
        assert not set(mine) & set(log_side)
        assert len(told[seed].seen) == len(told[seed].asked) == len(mine)
        assert [r for _, _, r in told[seed].seen] == [
            r for r, s in zip(rounds["reward"], rounds["seed"], strict=True) if s == seed
        ]
    summary = result.summary(repeats=200).to_pylist()[0]
    assert summary["offered"] == 6000
    assert summary["accepted"] == len(rounds["row"])
    assert summary["low"] < summary["mean_reward"] < summary["high"]


def test_unequal_assignment_is_evened_out_and_the_value_is_unbiased(seed):
    """Acceptance is the smallest assignment probability whatever the arm, and the mean reward of a fixed rule is its
    value: both within 5 standard errors (once in 10⁶)."""
    table, X, _, means = trial(seed, n=40_000)
    world = ReplayWorld.from_trial(table, TRIAL)
    assert world.acceptance == pytest.approx(0.2, abs=0.02)
    rules = {
        "by c": (lambda x: "red" if x[3] > 0 else "blue", np.where(X[:, 2] > 0, means[:, 0], means[:, 2])),
        "green": (lambda x: "green", means[:, 1]),
        "red": (lambda x: "red", means[:, 0]),
    }
    # contexts are standardized, which keeps the sign of c but for its mean
    result = world.replay({name: (lambda run, rule=rule: Rule(rule)) for name, (rule, _) in rules.items()}, seeds=1)
    for row in result.summary(repeats=50).to_pylist():
        expected = world.acceptance * row["offered"]
        assert abs(row["accepted"] - expected) < 5 * np.sqrt(expected)
        assert abs(row["mean_reward"] - rules[row["learner"]][1].mean()) < 5 * 0.7 / np.sqrt(row["accepted"]) + 0.01
    gap, low, high = result.difference("by c", "green", repeats=200)
    assert low < gap < high
    assert low > 0
    with pytest.raises(InputError, match="no learner 'blue'"):
        result.difference("blue", "green")


def test_replay_is_the_same_twice_and_probabilities_are_told():
    table, *_ = trial()
    world = ReplayWorld.from_trial(table, TRIAL)
    rules = []

    def make(run):
        rules.append(Rule(lambda x: "red", needs="probabilities"))
        return rules[-1]

    first, second = (world.replay({"red": make}, seeds=1).rounds() for _ in range(2))
    assert first.equals(second)
    assert rules[0].asked[0][1].sum() == pytest.approx(1)


def test_what_a_trial_does_not_know_it_does_not_say(rng):
    table, _, tried, _ = trial()
    world = ReplayWorld.from_trial(table, TRIAL)
    X = world.contexts(3, rng)
    for call in (lambda: world.mean_rewards(X), lambda: world.rewards(X, "red", rng)):
        with pytest.raises(InputError, match=r"world\.replay"):
            call()
    clicks = table["clicks"].to_numpy()
    mean, low, high = world.trial_value(repeats=200)["green"]
    assert mean == pytest.approx(clicks[tried == 1].mean())
    assert low < mean < high
    old = world.old_policy_value(repeats=200)
    assert old[1] < old[0] < old[2]
    assert old[0] > clicks.mean()  # an informed policy does better than chance


def test_two_learners_means_differ_by_their_difference():
    """Runs of unequal length count alike in both, so a reader who subtracts finds the difference that is printed."""
    table, *_ = trial(n=3_000)
    world = ReplayWorld.from_trial(table, TRIAL)
    # one learner is accepted much more often in one seed than in the others
    rules = {
        "by c": lambda run: Rule(lambda x: "red" if x[3] > 0 else "blue"),
        "mixed": lambda run: Rule(lambda x: "green" if run.seed or x[3] > 1 else "red"),
    }
    result = world.replay(rules, seeds=3)
    means = {row["learner"]: row["mean_reward"] for row in result.summary(repeats=50).to_pylist()}
    gap, *_ = result.difference("by c", "mixed", repeats=50)
    assert means["by c"] - means["mixed"] == pytest.approx(gap, abs=1e-12)
    assert "by c, mixed; 3 seeds" in repr(result)


def test_a_learner_without_a_single_round_has_no_difference():
    runs = [
        ReplayedRun(name, seed, np.arange(n), np.zeros(n, dtype=int), np.arange(n) * 1.0, np.arange(n), 9)
        for seed in (0, 1)
        for name, n in (("often", 5), ("once", seed), ("never", 0))
    ]
    result = ReplayResult(("red",), np.arange(9), runs)
    assert all(np.isnan(result.difference("often", "never")))
    assert result.difference("often", "once")[0] == 2.0  # of the seed in which both have rounds


def test_derived_features_are_refused_and_large_integers_read():
    """Splines were dropped without a word, and a column without one of its own was written over the next."""
    table = trial(n=200)[0]
    for schema in (
        Schema("a + spline(a, 3) + c", ["a"], arm="shown", reward="clicks", intercept=True),
        Schema(["c"], [], derived=["a**2"], arm="shown", reward="clicks", intercept=True),
    ):
        with pytest.raises(SchemaError, match="compute such columns first"):
            ReplayWorld.from_trial(table, schema)
    large = np.arange(200) * 3 + 2**60 + 1
    rows = read_rows(table.append_column("large", pa.array(large)), Schema(["a", "large"], ["a"]))
    assert rows.X[:, 1].tolist() == large.astype(float).tolist()


def test_a_date_among_the_features_is_told_with_what_to_do():
    table = answers(n=100)
    days = pa.array(np.datetime64("2024-01-01") + np.arange(100))
    with pytest.raises(SchemaError, match=r"'seen' holds dates \(date32.*--ignore seen .* a column of its own"):
        read_rows(table.append_column("seen", days), Schema(["age", "seen"], ["age"]), [])
