"""The first rounds of the paper's own setting, where a handful of weighted answers makes ``B̂`` enormous."""

from __future__ import annotations

import numpy as np
import pytest
from tests import reference

import sidelight as sl


@pytest.mark.parametrize("estimator", ["ipw", "control_variate"])
@pytest.mark.parametrize("variant", ["running", "epoch"])
def test_scores_keep_their_digits(rng, estimator, variant):
    world = sl.worlds.PaperWorld.preset("paper_text", seed=1, n_arms=8, n_features=15)
    K, L = 8, 12
    summary = sl.summarize_log(world.sample_log(5000, L, rng), world.schema(L))
    settings = {"noise": 0.05, "regularization": 0.02, "radius": "determinant", "delta": 0.1, "alpha": 0.7}
    queries = sl.BehaviorQueries(summary, estimator=estimator)
    if variant == "running":
        learner = sl.RunningOFUL(queries, **settings)
    else:
        learner = sl.EpochOFUL(queries, 1000, keep_data=True, **settings)
    symbols = {"lam": 0.02, "sigma": 0.05, "alpha": 0.7, "delta": 0.1, "kind": "determinant", "S_x": 1.0, "S_w": 1.0}
    history, largest = [], 0.0
    B = error = None
    for t in range(12):
        x = world.contexts(1, rng)[0]
        learner.observe_behavior(x, int(world.behavior_actions(x[None], rng)[0]))
        r = float(rng.normal())
        learner.observe(x, t % K, r)
        history.append((x, t % K, r))
        if t + 1 in (1, 2, 4, 8):
            B, error = learner.hidden.regression(), learner.hidden.bound(0.1, 1000, 1.0)
        x = world.contexts(1, rng)[0]
        if variant == "running":
            B = learner.hidden.regression()
            M = [reference.structured(B[a]) for a in range(K)]
            expected = reference.projected_scores(x, history, M, list(summary.coefficients), [L] * K, **symbols)
        else:
            episodes = reference.number_of_episodes(1000)
            expected = reference.epoch_scores(x, history, B, summary.coefficients, error, episodes=episodes, **symbols)
        largest = max(largest, float(np.abs(B).max()))
        for found, wanted in zip(learner.scores(x), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    assert largest > 10.0  # else this tests nothing
