"""A lower bound for a cell: what a learner has that knows everything but the weights themselves.

It knows the true prior of the weights, the noise of every arm, the exact regression ``B`` of hidden on recorded
features under the old policy, has the log, and is told the rewards of **all** arms after each round, so that it never
has to explore: it takes the arm of highest posterior mean, which is then the best any learner can do on average. Where
mean rewards are curved or rewards are yes or no, its linear model is wrong and the line is a reference, not a bound.

A data set has no prior that weights are drawn from: there the reference is a ridge regression for each arm that has the
log's rows *with* their hidden columns and the rewards of all arms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.paired import Setting
from benchmarks.rivals.data import DataSetting

Array = Any


def floor_regret(setting: Setting) -> Array:
    """Cumulative regret (rounds,) of the posterior-greedy learner that sees every arm's reward."""
    world, cell = setting.world, setting.cell
    X, rewards, means, _, _ = setting.draws
    K, d = world.n_arms, world.n_features
    precision, mean = prior(setting)
    inverses = np.empty((K, d, d))
    moments = np.empty((K, d))
    for a in range(K):
        J, h = precision.copy(), precision @ mean
        for summary in setting.summaries:
            # an era may be from before an arm was offered
            if a >= summary.n_arms or summary.counts[a] == 0:
                continue
            schema = summary.schema
            recorded, hidden = np.asarray(schema.recorded_index), np.asarray(schema.hidden_index)
            # both moments from one sample: with the log's own R11 the means of the features do not cancel
            moments_of = world.second_moments[0][a]
            square, cross = moments_of[np.ix_(recorded, recorded)], moments_of[np.ix_(recorded, hidden)]
            # in units of the features' own sizes, or least squares takes the smallest columns for nothing
            size = np.sqrt(np.maximum(np.diag(square), 1e-300))
            scaled = np.linalg.lstsq(square / np.outer(size, size), cross / size[:, None], rcond=None)[0]
            M = np.zeros((len(recorded), d))
            M[np.arange(len(recorded)), recorded] = 1.0
            M[:, hidden] = scaled / size[:, None]
            spread = max(float(summary.residual_variances[a]), float(world.noises[a]) ** 2)
            J += M.T @ summary.grams[a] @ M / spread
            h += M.T @ summary.cross[a] / spread
        size = np.sqrt(np.diag(J))
        inverses[a] = np.linalg.inv(J / np.outer(size, size)) / np.outer(size, size)
        moments[a] = h
    noises = world.noises**2 if cell.tails != "binary" else np.full(K, 0.25)
    return _greedy(inverses, moments, noises, X, rewards, means)


def told_everything(setting: DataSetting) -> Array:
    """Cumulative regret (rounds,) of greedy ridge regressions that have the log complete and see every arm's reward."""
    X, rewards, means, _, _ = setting.draws
    _, log_X, log_arms, log_rewards = setting.newest_rows
    K, d = means.shape[1], X.shape[1]
    inverses, moments = np.empty((K, d, d)), np.empty((K, d))
    for a in range(K):
        rows = log_X[log_arms == a]
        inverses[a] = np.linalg.inv(np.eye(d) + rows.T @ rows)
        moments[a] = rows.T @ log_rewards[log_arms == a]
    return _greedy(inverses, moments, np.ones(K), X, rewards, means)


def _greedy(inverses: Array, moments: Array, noises: Array, X: Array, rewards: Array, means: Array) -> Array:
    """Regret of the arms of highest estimate, where every arm learns from every round; ``noises`` are variances."""
    weights = np.einsum("kij,kj->ki", inverses, moments)
    regret = np.empty(len(X))
    for t, x in enumerate(X):
        chosen = int((weights @ x).argmax())
        regret[t] = means[t].max() - means[t, chosen]
        u = inverses @ x
        gain = u / (noises + u @ x)[:, None]
        weights += gain * (rewards[t] - weights @ x)[:, None]
        inverses -= gain[:, :, None] * u[:, None, :]
    return np.cumsum(regret)


def prior(setting: Setting) -> tuple[Array, Array]:
    """Precision (d, d) and mean (d,) of an arm's weights, as ``SyntheticWorld`` draws them."""
    world, cell = setting.world, setting.cell
    L, m = cell.recorded, cell.hidden
    deviations = cell.reward_unit * np.repeat(
        (cell.strengths[0] / np.sqrt(max(L, 1)), cell.strengths[1] / np.sqrt(max(m, 1))), (L, m)
    )
    deviations = np.maximum(deviations, 1e-9 * cell.reward_unit)
    slopes = (deviations / world.scale) ** 2
    if not cell.intercept:
        return np.diag(1.0 / slopes), np.zeros(L + m)
    # intercept = shift + level − slopes·centre: a linear map of independent draws
    A = np.eye(L + m + 1)
    A[0, 1:] = -world.centre
    variances = np.concatenate([[max(cell.reward_unit * cell.levels, 1e-9 * cell.reward_unit) ** 2], slopes])
    inverse = np.linalg.inv(A)
    mean = A @ np.concatenate([[cell.reward_shift], np.zeros(L + m)])
    return inverse.T @ np.diag(1.0 / variances) @ inverse, mean
