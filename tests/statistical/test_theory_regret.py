"""Theorem 1's inequality holds round by round, and in sum, on runs of Algorithm 1."""

from __future__ import annotations

import numpy as np
import pytest

from sidelight import theory
from sidelight.worlds.confounded import ConfoundedWorld


@pytest.mark.parametrize("regularization", [0.05, 2.0])
def test_theorem_one_on_a_run_of_algorithm_one(seed, regularization):
    """Fails with probability at most δ = 10⁻³ for each run (the event that a confidence set misses)."""
    world = ConfoundedWorld(seed=seed, n_arms=3, n_features=6, n_hidden=2, noise=0.4, weight_scale=1.5)
    L, m, K, T, delta = 4, 2, 3, 600, 1e-3
    S_x, S_w, sigma = world.context_bound, world.weight_bound, world.noise
    moments = world.second_moments()[1]
    B = np.linalg.solve(moments[:, :L, :L], moments[:, :L, L:])
    b = world.weights[:, :L] + np.einsum("klm,km->kl", B, world.weights[:, L:])  # an infinite log
    matrices = [np.hstack([np.eye(L), B[a]]) for a in range(K)]
    U = np.stack([np.linalg.qr(np.vstack([-B[a], np.eye(m)]))[0] for a in range(K)])
    anchor = np.stack([M.T @ np.linalg.solve(M @ M.T, c) for M, c in zip(matrices, b, strict=True)])

    rng = np.random.default_rng(seed)
    X = world.contexts(T, rng)
    means, noise = world.mean_rewards(X), sigma * rng.standard_normal(T)
    tilde = np.stack([regularization * np.eye(m)] * K)
    target = np.zeros((K, m))
    regret = 0.0
    for t, x in enumerate(X):
        z = np.einsum("kdm,d->km", U, x)
        solved = np.linalg.solve(tilde, z[:, :, None])[:, :, 0]
        widths = np.sqrt((z * solved).sum(axis=1))
        ratio = np.linalg.slogdet(tilde / regularization)[1]
        radius = theory.determinant_radius(ratio, sigma, delta / K, regularization * S_w**2)
        index = anchor @ x + (solved * target).sum(axis=1) + radius * widths
        arm = int(np.argmax(index))
        gap = means[t].max() - means[t, arm]
        assert gap <= 2 * max(radius[arm], S_x * S_w) * min(widths[arm], 1) + 1e-9
        largest = theory.largest_radius(t, m, sigma, regularization, S_x, S_w, delta / K)
        assert radius.max() <= largest * (1 + 1e-9)
        regret += gap
        bound = theory.projected_regret_bound(t + 1, K, m, sigma, regularization, S_x, S_w, delta)
        assert regret <= bound
        tilde[arm] += np.outer(z[arm], z[arm])
        target[arm] += z[arm] * (means[t, arm] + noise[t] - x @ anchor[arm])
    assert regret > 0
