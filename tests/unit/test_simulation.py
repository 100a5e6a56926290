"""``simulate``: paired, the same for any number of workers, and open to a user's own parts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sidelight as sl
from sidelight.errors import InputError, SchemaError, SidelightError

K, D, L = 4, 5, 3
COLUMNS = ["learner", "seed", "round", "arm", "reward", "regret"]


@pytest.fixture(scope="module")
def world():
    return sl.worlds.PaperWorld.preset("paper_text", seed=3, n_arms=K, n_features=D)


def factories():
    """One of each kind: without a log, with a log, with answers, with probabilities."""
    common = {"noise": 0.05, "regularization": 0.2}
    return {
        "OFUL": lambda run: sl.OFUL(K, D, **common),
        "known": lambda run: sl.ProjectedOFUL(
            sl.SideInformation.from_log(run.summary, run.true_cross_moments), **common
        ),
        "epoch": lambda run: sl.EpochOFUL(sl.BehaviorQueries(run.summary), run.horizon, **common),
        "running": lambda run: sl.RunningOFUL(sl.BehaviorQueries(run.summary, estimator="ipw"), **common),
        "probabilities": lambda run: sl.RunningOFUL(sl.BehaviorProbabilities(run.summary), **common),
        "zero": lambda run: sl.ZeroFilledOFUL(run.summary, **common),
    }


def of(table, learner, seed, column):
    rows = table.filter(pc.and_(pc.equal(table["learner"], learner), pc.equal(table["seed"], seed)))
    return rows[column].to_numpy()


def test_one_worker_or_two_give_the_same_numbers(world):
    arguments = {"horizon": 120, "recorded": L, "log_rows": 400, "seeds": 3, "every": 1}
    one = sl.simulate(world, factories(), **arguments, workers=1)
    two = sl.simulate(world, factories(), **arguments, workers=2)
    assert one.equals(two)
    assert one.column_names == COLUMNS
    assert one.num_rows == 6 * 3 * 120


def test_many_rounds_at_once_are_the_rounds_one_by_one(world):
    """A learner may take many rounds inside a kernel: the same arms, rewards and regret as round by round."""

    def by_hand(factory):
        def make(run):
            learner = factory(run)
            learner.play = lambda *_: None
            return learner

        return make

    arguments = {"horizon": 300, "recorded": L, "log_rows": 400, "seeds": [5], "every": 1, "workers": 1}
    fast = sl.simulate(world, factories(), **arguments)
    slow = sl.simulate(world, {name: by_hand(f) for name, f in factories().items()}, **arguments)
    assert fast["arm"].equals(slow["arm"])
    assert fast["reward"].equals(slow["reward"])
    np.testing.assert_allclose(fast["regret"].to_numpy(), slow["regret"].to_numpy(), rtol=1e-12)


class Recorder:
    """A user's own learner: plays one arm after the other, or always the same, and keeps what it was told."""

    arms = tuple(range(K))
    n_features = D

    def __init__(self, needs=None, offset=None, asks=True):
        self.needs, self.offset, self.asks = needs, offset, asks
        self.contexts, self.rewards, self.answers, self.decided = [], [], [], 0

    def decide(self, x, allowed=None, rng=None):
        arm = self.decided % K if self.offset is None else self.offset
        self.decided += 1
        return sl.Decision(arm, 0.0, 0.0, 1.0)

    def scores(self, x):
        return np.zeros(K), np.zeros(K)

    def observe(self, x, arm, reward):
        self.contexts.append(np.array(x))
        self.rewards.append(float(reward))

    def observe_behavior(self, x, arm=None, *, probabilities=None, probability=1.0, log=None):
        self.answers.append(arm if probabilities is None else np.array(probabilities))

    def wants_query(self, x):
        return self.asks

    def decide_many(self, X):
        return [self.decide(x) for x in X]

    def observe_many(self, X, arms, rewards):
        raise AssertionError("not used")

    def save(self, path):
        raise AssertionError("not used")


def test_a_users_own_learner_and_paired_draws(world):
    made = {}

    def keep(name, **options):
        def make(run):
            made[name] = Recorder(**options)
            return made[name]

        return make

    table = sl.simulate(
        world,
        {
            "first": keep("first", offset=0),
            "second": keep("second", offset=1, needs="action"),
            "turns": keep("turns", needs="probabilities"),
            "silent": keep("silent", needs="action", asks=False),
        },
        horizon=60,
        seeds=[9],
        workers=1,
        every=1,
    )
    assert isinstance(made["first"], sl.Learner)
    X = np.array(made["first"].contexts)
    for other in ("second", "turns", "silent"):
        np.testing.assert_array_equal(X, made[other].contexts)
    # the same noise, whatever was played: rewards minus means agree
    means = world.mean_rewards(X)
    noise = np.array(made["first"].rewards) - means[:, 0]
    np.testing.assert_allclose(np.array(made["second"].rewards) - means[:, 1], noise, atol=1e-12)
    np.testing.assert_allclose(made["turns"].rewards - means[np.arange(60), np.arange(60) % K], noise, atol=1e-12)
    assert np.std(noise) > 0
    # each is told what it needs, and nothing where it does not want to know
    assert made["first"].answers == []
    assert made["silent"].answers == []
    assert len(made["second"].answers) == 60
    assert set(made["second"].answers) <= set(range(K))
    np.testing.assert_allclose(np.array(made["turns"].answers), world.behavior_probabilities(X), rtol=1e-12)
    # regret is cumulative, of means
    expected = np.cumsum(means.max(axis=1) - means[:, 0])
    np.testing.assert_allclose(of(table, "first", 9, "regret"), expected, rtol=1e-12)
    np.testing.assert_allclose(of(table, "first", 9, "reward"), made["first"].rewards)
    assert of(table, "turns", 9, "arm").tolist() == [t % K for t in range(60)]


def test_a_learners_numbers_do_not_depend_on_its_company(world):
    arguments = {"horizon": 50, "recorded": L, "log_rows": 300, "seeds": [2, 4], "workers": 1, "every": 5}
    together = sl.simulate(world, factories(), **arguments)
    alone = sl.simulate(world, {"running": factories()["running"]}, **arguments)
    for seed in (2, 4):
        np.testing.assert_array_equal(of(together, "running", seed, "regret"), of(alone, "running", seed, "regret"))


def test_seeds_are_a_number_or_a_list(world):
    arguments = {"horizon": 20, "workers": 1, "every": 20}
    learner = {"OFUL": factories()["OFUL"]}
    counted = sl.simulate(world, learner, seeds=3, **arguments)
    listed = sl.simulate(world, learner, seeds=iter([2, 0, 1]), **arguments)
    assert counted["seed"].to_pylist() == [0, 1, 2]
    assert listed["seed"].to_pylist() == [2, 0, 1]
    assert sorted(counted["regret"].to_pylist()) == sorted(listed["regret"].to_pylist())
    assert len(set(counted["regret"].to_pylist())) == 3


@pytest.mark.parametrize(
    ("every", "rounds"),
    [(1, list(range(1, 24))), (5, [5, 10, 15, 20, 23]), (23, [23]), (100, [23]), (None, list(range(1, 24)))],
)
def test_every_so_many_rounds_and_the_last(world, every, rounds):
    table = sl.simulate(world, {"OFUL": factories()["OFUL"]}, 23, seeds=1, workers=1, every=every)
    assert table["round"].to_pylist() == rounds


def test_by_default_about_two_hundred_rounds_are_kept(world):
    table = sl.simulate(world, {"OFUL": factories()["OFUL"]}, 4100, seeds=1, workers=1)
    assert 200 <= table.num_rows <= 210
    assert table["round"].to_pylist()[-1] == 4100


def test_the_chunks_in_which_rounds_are_drawn_do_not_show(world, monkeypatch):
    """More rounds than are drawn at a time: the regret goes on where it stood."""
    table = sl.simulate(world, {"OFUL": factories()["OFUL"]}, 5000, seeds=1, workers=1, every=1)
    regret = table["regret"].to_numpy()
    assert (np.diff(regret) >= -1e-12).all()
    assert np.diff(regret).max() < 0.5


def test_a_world_may_be_made_from_the_seed():
    def make(seed):
        return sl.worlds.PaperWorld.preset("paper_text", seed=seed, n_arms=K, n_features=D)

    table = sl.simulate(make, {"OFUL": factories()["OFUL"]}, 30, seeds=[1, 2], workers=1, every=30)
    fixed = sl.simulate(make(1), {"OFUL": factories()["OFUL"]}, 30, seeds=[1, 2], workers=1, every=30)
    first, second = table["regret"].to_pylist()
    assert first == fixed["regret"].to_pylist()[0]
    assert second != fixed["regret"].to_pylist()[1]


def test_a_factory_is_given_the_run(world):
    seen = []

    def look(run):
        seen.append(run)
        assert isinstance(run, sl.Run)
        assert (run.horizon, run.seed, run.log_rows, run.recorded) == (10, 7, 250, [0, 2])
        assert run.summary.n_rows == 250
        assert run.summary.recorded.tolist() == [0, 2]
        assert run.schema == world.schema([0, 2])
        assert run.true_cross_moments.shape == (K, 2, 3)
        assert run.world is world
        return sl.OFUL(K, D, rng=run.rng)

    sl.simulate(world, {"a": look, "b": look}, 10, recorded=[0, 2], log_rows=250, seeds=[7], workers=1)
    assert len(seen) == 2


def test_the_generator_of_a_factory_is_its_own(world):
    """Every learner gets the same generator in the same state, whoever drew from it before."""
    drawn = []

    def draw(run):
        drawn.append(run.rng.random())
        return sl.OFUL(K, D)

    sl.simulate(world, {"a": draw, "b": draw}, 5, seeds=[1, 2], workers=1)
    assert drawn[0] == drawn[1]
    assert drawn[2] == drawn[3]
    assert drawn[0] != drawn[2]


class Coins:
    """A user's own world: labels that are text, rewards that are not linear, no optional part."""

    arms = ("heads", "tails")
    n_arms, n_features, noise = 2, 3, 0.5

    def schema(self, recorded):
        return sl.Schema(["a", "b", "c"], ["a", "b", "c"][:recorded], arms=list(self.arms))

    def sample_log(self, n, recorded, rng):
        import pyarrow as pa

        X = self.contexts(n, rng)
        arms = self.behavior_actions(X, rng)
        columns = {name: X[:, j] for j, name in enumerate("abc"[:recorded])}
        return pa.table({**columns, "arm": pa.array(arms.tolist()), "reward": self.rewards(X, arms, rng)})

    def contexts(self, n, rng):
        return rng.normal(size=(n, 3))

    def behavior_probabilities(self, X):
        p = 1.0 / (1.0 + np.exp(-X[:, 2]))
        return np.stack([p, 1.0 - p], axis=1)

    def behavior_actions(self, X, rng):
        return np.where(rng.random(len(X)) < self.behavior_probabilities(X)[:, 0], "heads", "tails")

    def mean_rewards(self, X):
        return np.stack([np.tanh(X[:, 0]), np.tanh(X[:, 1] + X[:, 2])], axis=1)

    def rewards(self, X, arms, rng):
        at = (np.asarray(arms) == "tails").astype(int)
        return self.mean_rewards(X)[np.arange(len(X)), at] + self.noise * rng.normal(size=len(X))

    def cross_moments(self, recorded):
        return np.zeros((2, recorded, 3 - recorded))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_users_own_world(workers):
    world = Coins()
    assert isinstance(world, sl.worlds.World)
    table = sl.simulate(
        world,
        {
            "OFUL": lambda run: sl.OFUL(2, 3, arms=["heads", "tails"], noise=0.5),
            "epoch": lambda run: sl.EpochOFUL(sl.BehaviorQueries(run.summary), run.horizon, noise=0.5),
        },
        horizon=80,
        recorded=2,
        log_rows=200,
        seeds=2,
        workers=workers,
    )
    assert set(table["arm"].to_pylist()) == {"heads", "tails"}
    assert (table["regret"].to_numpy() >= 0).all()


def test_a_world_without_potential_rewards_is_paired_too():
    made = []

    def keep(arm):
        def make(run):
            learner = Recorder()
            learner.arms, learner.n_features = Coins.arms, 3
            learner.decide = lambda x, allowed=None, rng=None: sl.Decision(arm, 0.0, 0.0, 1.0)
            made.append(learner)
            return learner

        return make

    sl.simulate(Coins(), {"h": keep("heads"), "t": keep("tails")}, 40, seeds=[3], workers=1)
    heads, tails = made
    means = Coins().mean_rewards(np.array(heads.contexts))
    np.testing.assert_allclose(heads.rewards - means[:, 0], tails.rewards - means[:, 1], atol=1e-12)


def test_a_class_of_worlds_is_a_function_of_the_seed():
    class Seeded(Coins):
        def __init__(self, seed):
            self.noise = 0.1 * (seed + 1)

    table = sl.simulate(Seeded, {"OFUL": lambda run: sl.OFUL(2, 3, arms=Coins.arms)}, 5, seeds=2, workers=1)
    assert table.num_rows == 10


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_reaches_the_end(world, workers):
    calls = []
    sl.simulate(
        world,
        {"a": factories()["OFUL"], "b": factories()["OFUL"]},
        30,
        seeds=2,
        workers=workers,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls[-1] == (120, 120)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon=0"),
        ({"horizon": 2.5}, r"horizon=2\.5"),
        ({"learners": {}}, "at least one learner"),
        ({"learners": {"mine": sl.OFUL(K, D)}}, r"'mine' is a OFUL.*lambda run"),
        ({"learners": [sl.OFUL]}, "mapping"),
        ({"seeds": []}, "seeds"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": [3, 1, 3]}, "seeds lists 3 twice"),
        ({"every": 0}, "every=0"),
        ({"every": "all"}, "every='all'"),
        ({"every": 2.5}, "every=2.5"),
        ({"workers": "two"}, "workers='two'"),
        ({"seeds": "3"}, "seeds='3'"),
        ({"seeds": 2.0}, "seeds=2.0"),
        ({"seeds": [1, -2]}, "a seed=-2"),
        ({"seeds": [1, "b"]}, "a seed='b'"),
        ({"world": 7}, "World"),
        ({"learners": {"mine": lambda run: None}}, "'mine'.*NoneType"),
        ({"learners": {"mine": lambda run: sl.OFUL(K, D, arms=list("abcd"))}}, "'mine'.*'a'"),
        ({"learners": {"mine": lambda run: sl.OFUL(K, D + 1)}}, f"{D + 1}"),
        ({"recorded": D + 1}, f"recorded={D + 1}"),
        ({"recorded": ["weight"]}, "'weight'"),
        ({"log_rows": -1}, "log_rows=-1"),
    ],
)
def test_what_cannot_be_run_is_said_plainly(world, changes, message):
    def look(run):
        run.summary  # a log that cannot be drawn shows when it is asked for
        return sl.OFUL(K, D)

    arguments = {"world": world, "learners": {"OFUL": look}, "horizon": 10, "seeds": 1, "workers": 1, "log_rows": 50}
    with pytest.raises(SidelightError, match=message) as caught:
        sl.simulate(**{**arguments, **changes})
    assert isinstance(caught.value, InputError | SchemaError)


def test_an_error_in_a_worker_is_the_same_error(world):
    def fails(run):
        raise InputError(f"seed {run.seed} is not to my liking")

    with pytest.raises(InputError, match=r"seed [01] is not to my liking"):
        sl.simulate(world, {"mine": fails}, 10, seeds=2, workers=2)


def test_arms_are_labels_whatever_their_number_and_order():
    """The compiled rounds know positions among the learner's arms, the world those among its own."""
    world = sl.worlds.ConfoundedWorld(seed=2, n_arms=8, n_features=5, n_hidden=2, noise=0.1)
    backwards = list(reversed(range(8)))
    factories = {
        "three": lambda run: sl.OFUL(3, 5, arms=[5, 6, 7], noise=0.1),
        "in order": lambda run: sl.FusedOFUL(sl.KnownCrossMoments(run.summary, run.true_cross_moments)),
        "backwards": lambda run: sl.FusedOFUL(
            sl.KnownCrossMoments(run.summary, run.true_cross_moments), arms=backwards
        ),
        "asked": lambda run: sl.FusedOFUL(sl.BehaviorQueries(run.summary), arms=backwards),
    }
    table = sl.simulate(world, factories, 400, recorded=3, log_rows=4_000, seeds=2, workers=1, every=1).to_pydict()
    arms = {name: [a for n, a in zip(table["learner"], table["arm"], strict=True) if n == name] for name in factories}
    assert set(arms["three"]) == {5, 6, 7}
    same = sum(a == b for a, b in zip(arms["in order"], arms["backwards"], strict=True))
    assert same > 0.8 * len(arms["in order"])
    # the rewards and regrets are those of the arms that are named
    means = {}
    for name, seed, t, arm, regret in zip(
        *(table[c] for c in ("learner", "seed", "round", "arm", "regret")), strict=True
    ):
        means.setdefault((name, seed), []).append((t, arm, regret))
    for (name, seed), rows in means.items():
        streams = np.random.SeedSequence(seed).spawn(3)[1].spawn(4)
        X = world.contexts(400, np.random.default_rng(streams[0]))
        expected = world.mean_rewards(X)
        gaps = np.diff([0.0, *(regret for _, _, regret in rows)])
        np.testing.assert_allclose(
            gaps, [expected[t - 1].max() - expected[t - 1, arm] for t, arm, _ in rows], atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("hook", ["_scores", "scores"])
def test_a_subclass_decides_by_the_scores_it_overrides(hook):
    """In single decisions, in batches and in simulated rounds; the compiled ones know nothing of it."""
    world = sl.worlds.ConfoundedWorld(seed=0, n_arms=4, n_features=5, n_hidden=2)

    def pessimist(parent):
        def lower(self, x):
            estimates, widths = getattr(parent, hook)(self, x)
            return estimates, -widths

        return type("Pessimist", (parent,), {hook: lower})

    def fused(run, cls):
        return cls(sl.BehaviorQueries(run.summary), safety=0.0)

    made = []
    for parent, make in ((sl.OFUL, lambda run, cls: cls(4, 5)), (sl.FusedOFUL, fused)):
        cls = pessimist(parent)
        assert parent.compiled_scores
        assert not cls.compiled_scores

        def factory(run, make=make, cls=cls):
            made.append(make(run, cls))
            return made[-1]

        table = sl.simulate(world, {"p": factory}, 60, recorded=3, log_rows=500, seeds=1, workers=1, every=1)
        learner = made[-1]
        X = world.contexts(20, np.random.default_rng(5))
        expected = [int(np.argmax(np.add(*learner.scores(x)))) for x in X]
        assert [learner.decide(x).arm for x in X] == expected
        assert [decision.arm for decision in learner.decide_many(X)] == expected
        assert [learner.decide(x, allowed=range(4)).arm for x in X] == expected
        if parent is sl.OFUL:  # without optimism the first arm that pays is played for ever
            assert len(set(table["arm"].to_pylist())) < 4


def test_the_fused_learner_learns_once_when_it_is_made():
    world = sl.worlds.ConfoundedWorld(seed=0)
    log = sl.summarize_log(world.sample_log(1_000, 6, np.random.default_rng(1)), world.schema(6))
    for settings in ({}, {"radius": "theory", "regularization": 1.0, "noise": 0.5}):
        learner = sl.FusedOFUL(sl.BehaviorQueries(log), **settings)
        assert learner.refreshes == 1
        assert learner._refresh_delta() == sl.theory.refresh_confidence(0.05, 10, 5, 1)


class OnlyTheProtocol:
    """Two arms, three features, the last of them hidden: the seven members of the protocol and no other."""

    weights_ = np.array([[0.2, 0.5, -0.3], [0.4, -0.1, 0.6]])

    def schema(self, recorded):
        names = ["a", "b", "c"]
        return sl.Schema(names, names[:recorded], arms=["left", "right"])

    def sample_log(self, n, recorded, rng):
        X = self.contexts(n, rng)
        arms = self.behavior_actions(X, rng)
        columns = {name: X[:, j] for j, name in enumerate(["a", "b", "c"][:recorded])}
        return pa.table({**columns, "arm": arms, "reward": self.rewards(X, arms, rng)})

    def contexts(self, n, rng):
        return rng.normal(size=(n, 3))

    def behavior_probabilities(self, X):
        chance = 1.0 / (1.0 + np.exp(-X[:, 2]))
        return np.column_stack([chance, 1.0 - chance])

    def behavior_actions(self, X, rng):
        return np.where(rng.random(len(X)) < self.behavior_probabilities(X)[:, 0], "left", "right")

    def mean_rewards(self, X):
        return X @ self.weights_.T

    def rewards(self, X, arms, rng):
        labels = np.broadcast_to(np.asarray(arms), (len(X),))
        played = np.where(labels == "left", 0, 1)
        return self.mean_rewards(X)[np.arange(len(X)), played] + 0.1 * rng.normal(size=len(X))


def test_a_world_with_the_members_of_the_protocol_alone():
    world = OnlyTheProtocol()
    assert isinstance(world, sl.worlds.World)
    learners = {
        "OFUL": lambda run: sl.OFUL(2, 3, schema=run.schema, arms=["left", "right"], regularization="auto"),
        "actions": lambda run: sl.FusedOFUL(sl.BehaviorQueries(run.summary)),
        "probabilities": lambda run: sl.RunningOFUL(sl.BehaviorProbabilities(run.summary), noise=0.1),
    }
    table = sl.simulate(world, learners, 120, recorded=2, log_rows=300, seeds=2, workers=1, every=40)
    assert table.num_rows == 3 * 2 * 3
    assert set(table["arm"].to_pylist()) <= {"left", "right"}
    with pytest.raises(InputError, match=r"OnlyTheProtocol.*cross_moments\(recorded\)"):
        sl.simulate(world, {"told": lambda run: run.true_cross_moments}, 5, recorded=2, log_rows=20, seeds=1, workers=1)


def test_a_world_that_lacks_a_member_is_named_with_it():
    class Half(OnlyTheProtocol):
        sample_log = None
        behavior_probabilities = None

    with pytest.raises(InputError, match=r"Half is not a world: it has no sample_log, behavior_probabilities"):
        sl.simulate(Half(), {"OFUL": lambda run: sl.OFUL(2, 3)}, 5, seeds=1, workers=1)

    class Unnamed(OnlyTheProtocol):
        def schema(self, recorded):
            return sl.Schema(["a", "b", "c"], [])

    with pytest.raises(InputError, match=r"Unnamed does not say what its arms are"):
        sl.simulate(lambda seed: Unnamed(), {"OFUL": lambda run: sl.OFUL(2, 3)}, 5, seeds=1, workers=1)
