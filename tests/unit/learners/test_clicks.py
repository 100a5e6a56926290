"""Rewards of 0 and 1: their variance follows from their mean, and rounds are weighted by it."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference

import sidelight as sl
from sidelight.errors import InputError
from sidelight.learners.rounds import play_rounds
from sidelight.learners.saving import learner_bytes, learner_from_bytes
from sidelight.worlds.linear import LinearWorld, draw_indices


class Clicks(LinearWorld):
    """Rates ``x·w`` between 1 and 9 %, features between −1 and 1, an old policy that looks at the last feature."""

    context_bound = 2.0

    def __init__(self, seed=0, n_arms=3, n_features=4):
        rng = np.random.default_rng([seed, 2])
        slopes = rng.normal(size=(n_arms, n_features - 1))
        slopes *= 0.04 / np.abs(slopes).sum(axis=1, keepdims=True)
        names = ["one", *(f"x{i}" for i in range(1, n_features))]
        schema = sl.Schema(names, names, arms=range(n_arms))
        super().__init__(np.column_stack([np.full(n_arms, 0.05), slopes]), 0.2, schema=schema)

    def contexts(self, n, rng):
        return np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, self.n_features - 1))])

    def behavior_logits(self, X):
        return X[:, -1:] * np.arange(self.n_arms)

    def _logged(self, n, rng):
        X = self.contexts(n, rng)
        arms = draw_indices(self.behavior_probabilities(X), rng)
        return X, arms, (rng.random(n) < (X * self.weights[arms]).sum(axis=1)).astype(float)


@pytest.fixture(scope="module")
def world():
    return Clicks()


@pytest.fixture(scope="module")
def summary(world):
    return sl.summarize_log(world.sample_log(6_000, 3, np.random.default_rng(1)), world.schema(3))


def rounds(world, n, seed):
    rng = np.random.default_rng(seed)
    X = world.contexts(n, rng)
    answers = draw_indices(world.behavior_probabilities(X), rng)
    return X, (rng.random((n, 1)) < world.mean_rewards(X)).astype(float), answers


def fused(summary, **settings):
    return sl.FusedOFUL(sl.BehaviorQueries(summary), **settings)


def test_what_the_log_has_seen_or_the_schema_says(summary):
    assert summary.binary_rewards
    assert fused(summary).binary
    plain = sl.Schema.from_dict({**summary.schema.to_dict(), "binary": False})
    assert not fused(summary, schema=plain).binary
    assert not fused(summary, noise=0.2).binary
    declared = sl.Schema(["x"], ["x"], binary=True)
    assert sl.Schema.from_dict(declared.to_dict()).binary is True
    assert sl.OFUL(2, 1, schema=declared, regularization="auto", radius="posterior").binary
    assert not sl.OFUL(2, 1, schema=declared).binary


@pytest.mark.parametrize(
    "rewards",
    [[0.0, 0.5, 1.0, 0.5], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 2.0, 0, 0], [3e-11, 1e-11, 2e-11, 0.0]],
)
def test_other_rewards_are_not_taken_for_clicks(rewards):
    table = {"x": [1.0, 2.0, -1.0, 0.5], "arm": [0, 0, 1, 1], "reward": rewards}
    assert not sl.summarize_log(table, sl.Schema(["x"], ["x"], intercept=True)).binary_rewards


def test_a_round_counts_for_what_its_rate_lets_it(world, summary):
    learner = fused(summary)
    X, rewards, _ = rounds(world, 30, 3)
    least = learner._least_rate()
    for x, reward in zip(X, rewards, strict=True):
        before, estimate = learner.grams[1].copy(), float(x @ learner.weights[1])
        rate = min(max(estimate, least), 1.0 - least)
        refreshes = learner.refreshes
        learner.observe(x, 1, float(reward[1]))
        weight = 0.25 / (rate * (1.0 - rate))
        if learner.refreshes == refreshes:
            np.testing.assert_allclose(learner.grams[1] - before, weight * np.outer(x, x), rtol=1e-9, atol=1e-12)
        least = learner._held[2].least_rate
    assert learner.noises == pytest.approx([0.5] * 3, rel=0.1)


def test_classes_have_less_noise_than_rates(summary, world):
    """Rewards that follow the features without chance: the line keeps away from 0 and 1, and its errors are smaller."""
    schema = sl.Schema.from_dict({**world.schema(3).to_dict(), "binary": True})
    learner = sl.OFUL(3, 4, schema=schema, arms=range(3), regularization="auto", radius="posterior")
    X, _, _ = rounds(world, 1_500, 8)
    for x in X:
        learner.observe(x, 1, float(x[1] + x[2] > 0.0))
    clicks = fused(summary)
    for x, reward in zip(X, rounds(world, 1_500, 8)[1], strict=True):
        clicks.observe(x, 1, float(reward[1]))
    assert learner.noise < 0.4
    assert clicks.noise == pytest.approx(0.5, rel=0.1)


def test_estimates_and_widths_are_those_of_weighted_least_squares(world):
    schema = sl.Schema.from_dict({**world.schema(3).to_dict(), "binary": True})
    learner = sl.OFUL(3, 4, schema=schema, arms=range(3), noise="auto", regularization=2.0, radius="posterior")
    X, rewards, _ = rounds(world, 40, 5)
    weights = []
    for x, reward in zip(X, rewards, strict=True):
        least = learner._held[2].least_rate
        rate = min(max(float(x @ learner.weights[0]), least), 1.0 - least)
        weights.append(0.25 / (rate * (1.0 - rate)))
        learner.observe(x, 0, float(reward[0]))
    w, V = reference.weighted_ridge(X, rewards[:, 0], np.array(weights), 2.0)
    np.testing.assert_allclose(learner.weights[0], w, rtol=1e-8, atol=1e-12)
    estimates, widths = learner.scores(X[0])
    assert estimates[0] == pytest.approx(X[0] @ w)
    assert widths[0] == pytest.approx(learner.noises[0] * np.sqrt(X[0] @ np.linalg.inv(V) @ X[0]))


@pytest.mark.parametrize("kind", ["fused", "OFUL"])
def test_compiled_rounds_are_rounds_one_by_one(world, summary, kind):
    def make():
        if kind == "fused":
            return fused(summary, safety=0.0)
        schema = sl.Schema.from_dict({**world.schema(3).to_dict(), "binary": True})
        return sl.OFUL(3, 4, schema=schema, arms=range(3), regularization="auto", radius="posterior")

    quick, slow = make(), make()
    X, rewards, answers = rounds(world, 700, 7)
    told = answers if quick.needs else None
    played = play_rounds(quick, X, rewards, told, np.random.default_rng(0))
    for t, x in enumerate(X):
        if slow.needs:
            slow.observe_behavior(x, int(answers[t]))
        a = slow.decide(x).arm
        assert a == played[t]
        slow.observe(x, a, float(rewards[t, a]))
    assert learner_bytes(quick) == learner_bytes(slow)


def test_batches_are_rounds_one_by_one(world, summary):
    one, many = fused(summary), fused(summary)
    X, rewards, answers = rounds(world, 200, 9)
    paid = rewards[np.arange(200), answers]
    for x, a, reward in zip(X, answers.tolist(), paid.tolist(), strict=True):
        one.observe(x, a, reward)
    many.observe_many(X, answers.tolist(), paid)
    assert learner_bytes(one) == learner_bytes(many)


def test_estimates_shown_are_rates(world, summary):
    learner = fused(summary)
    outside = 0
    for x in 100.0 * rounds(world, 20, 11)[0]:
        estimates, _ = learner.scores(x)
        outside += bool((estimates < 0.0).any() or (estimates > 1.0).any())
        for decision in (learner.decide(x), learner.decide(x, allowed=[1]), *learner.decide_many([x])):
            assert 0.0 <= decision.estimate <= 1.0
        shown = learner.score_table(x)["estimate"].to_numpy()
        assert ((shown >= 0.0) & (shown <= 1.0)).all()
    assert outside


def test_a_reward_that_is_neither(world, summary):
    learner = fused(summary)
    X, _, _ = rounds(world, 3, 13)
    learner.observe(X[0], 1, 1.0)
    learner.observe(X[1], 1, 0.5)
    assert not learner.binary
    before = learner.grams[1].copy()
    learner.observe(X[2], 1, 0.0)
    np.testing.assert_allclose(learner.grams[1] - before, np.outer(X[2], X[2]))
    declared = sl.Schema.from_dict({**summary.schema.to_dict(), "binary": True})
    with pytest.raises(InputError, match="neither 0 nor 1"):
        fused(summary, schema=declared).observe(X[0], 1, 0.5)
    batch = fused(summary)
    batch.observe_many(X, [1, 1, 1], [1.0, 0.5, 0.0])
    assert learner_bytes(batch) == learner_bytes(learner)


@pytest.mark.parametrize("forgetting", [1.0, 0.99])
def test_a_reward_that_the_schema_rules_out_changes_nothing_however_it_comes(summary, world, forgetting):
    declared = sl.Schema.from_dict({**summary.schema.to_dict(), "binary": True})
    learner = fused(summary, schema=declared, forgetting=forgetting)
    X, _, _ = rounds(world, 4, 13)
    receipts = [learner.receipt(x, 0.0, 1) for x in X]
    learner.observe_many(X, [1] * 4, [0.0, 1.0, 0.0, 0.0])
    before = learner_bytes(learner)
    for wrong in (
        lambda: learner.observe(X[0], 1, 0.5),
        lambda: learner.observe_many(X, [1] * 4, [1.0, 0.0, 0.5, 0.0]),
        lambda: learner.correct(X[0], 1, 0.0, 0.5, receipt=receipts[0]),
        lambda: learner.correct(X[0], 1, 0.0, 0.5, taken=2, receipt=receipts[0]),
    ):
        with pytest.raises(InputError, match="neither 0 nor 1"):
            wrong()
        assert learner_bytes(learner) == before


def test_files_keep_it(summary):
    learner = fused(summary)
    learner.observe([1.0, 0.2, 0.3, 0.4], 1, 1.0)
    again = learner_from_bytes(learner_bytes(learner))
    assert again.binary
    assert learner_bytes(again) == learner_bytes(learner)
    # a file from before rounds were weighted: they all count alike
    arrays = {name: value for name, value in learner.state().items() if name != "binary"}
    again.restore(arrays)
    assert not again.binary


@pytest.mark.parametrize("at", [9, 30, 70])
def test_a_file_written_between_refreshes_goes_on_to_the_bit(world, summary, at):
    X, rewards, answers = rounds(world, 110, 5)
    rewards = 1.0 - rewards  # rates far from those of the log, so that the least rate moves
    learners = [fused(summary)]
    for t, (x, r, arm) in enumerate(zip(X, rewards, answers.tolist(), strict=True)):
        if t == at:
            learners.append(learner_from_bytes(learner_bytes(learners[0])))
        for learner in learners:
            learner.observe_behavior(x, arm)
            learner.observe(x, learner.decide(x).arm, r[0])
    assert learner_bytes(learners[0]) == learner_bytes(learners[1])


def test_a_click_that_comes_late_counts_as_one_that_did_not(world, summary):
    late, told = fused(summary), fused(summary)
    X, rewards, answers = rounds(world, 12, 15)
    # the last one is corrected, so that both have the same weights until then
    for learner in (late, told):
        for x, reward, a in zip(X[:-1], rewards[:-1], answers.tolist()[:-1], strict=True):
            learner.observe(x, a, float(reward[a]))
    x, a = X[-1], int(answers[-1])
    receipt = late.receipt(x, 0.0, a)
    assert receipt.noise > 1.0
    late.observe(x, a, 0.0)
    late.correct(x, a, 0.0, 1.0, receipt=receipt)
    told.observe(x, a, 1.0)
    for name in ("grams", "moments", "squares", "context_sums", "counts"):
        np.testing.assert_allclose(getattr(late, name), getattr(told, name), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("keep_data", [True, False])
@pytest.mark.parametrize("taken", [None, "another arm"])
def test_what_epochs_keep_counts_rounds_as_the_sums_of_arms_do(world, summary, keep_data, taken):
    """And a correction takes out of all of them what the round was taken in with."""
    X, rewards, answers = rounds(world, 28, 16)
    R12 = np.zeros((world.n_arms, 3, 1))
    late, told = (
        sl.EpochOFUL(sl.KnownCrossMoments(summary, R12), 100, keep_data=keep_data, noise="auto") for _ in range(2)
    )
    assert late.binary
    for learner in (late, told):
        for x, reward, a in zip(X[:-1], rewards[:-1], answers.tolist()[:-1], strict=True):
            learner.observe(x, a, float(reward[a]))
    x, a = X[-1], int(answers[-1])
    other = a if taken is None else (a + 1) % world.n_arms
    receipt = late.receipt(x, 0.0, a)
    assert receipt.noise > 1.0
    late.observe(x, a, 0.0)
    late.correct(x, a, 0.0, 1.0, taken=None if taken is None else other, receipt=receipt)
    told.observe(x, other, 1.0)
    names = ["grams", "moments", "squares", "_visits"]
    names += ["_V", "_Y", "_kept_squares", "_played"] if keep_data else []
    for name in names:
        np.testing.assert_allclose(getattr(late, name), getattr(told, name), rtol=1e-9, atol=1e-9, err_msg=name)
    if keep_data:
        for a in range(world.n_arms):
            N, V, Y = late.reduction.basis(a), late._V[a], late._Y[a]
            np.testing.assert_allclose(late.grams[a], N.T @ V @ N, rtol=1e-9, atol=1e-9)
            moments = N.T @ (Y - V @ late.reduction.anchors[a])
            np.testing.assert_allclose(late.moments[a], moments, rtol=1e-9, atol=1e-9)
