"""Every arm once, in order, and then the learner's own decisions."""

from __future__ import annotations

import numpy as np

import sidelight as sl
from sidelight.experiments.figure_settings import LearnerSetting, RunSetting, WorldSetting, options
from sidelight.experiments.first_plays import FirstPlays
from sidelight.experiments.jobs import run_setting


def test_every_arm_first_and_then_the_learner():
    arms = ["b", "a", "c", "d"]
    learner, alone = (sl.OFUL(4, 3, arms=arms, alpha=0.01, noise=0.3) for _ in range(2))
    first = FirstPlays(learner)
    rng, played = np.random.default_rng(0), []
    for t in range(40):
        x, reward = rng.normal(size=3), rng.normal()
        arm = first.decide(x).arm
        played.append(arm)
        if t >= 4:
            assert arm == alone.decide(x).arm
        first.observe(x, arm, reward)
        alone.observe(x, arm, reward)
    assert played[:4] == arms


def test_an_arm_that_is_not_allowed_waits_for_its_turn():
    first = FirstPlays(sl.OFUL(3, 2))
    assert first.decide([1.0, 0.0], allowed=[1, 2]).arm == 1
    first.observe([1.0, 0.0], 1, 0.5)
    assert first.decide([1.0, 0.0]).arm == 0


def test_a_run_with_first_plays_has_tried_every_arm():
    learner = LearnerSetting("OFUL", options(alpha=0.01, noise="true", radius="printed", first_plays=True))
    setting = RunSetting(WorldSetting("paper_text", options(n_arms=6, n_features=4)), learner, 60)
    table = run_setting(setting, 0, None)
    assert table["arm"].to_pylist()[:6] == list(range(6))
