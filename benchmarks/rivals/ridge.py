"""Ridge sums for each arm, and the log as their start: what all rivals are built on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit

import sidelight as sl
from benchmarks.synthetic import Cell

Array = Any


def in_standard_units(cell: Cell) -> Cell:
    """The same world with features of mean 0 and variance 1 (without an intercept: of mean square 1) and rewards in
    units of their own spread: nobody starts a ridge regression in raw units, and rivals have no units of their own."""
    units: tuple[tuple[float, float], ...] | None = None
    if cell.units and not cell.intercept:
        sizes = [np.hypot(centre, scale) for centre, scale in cell.units]
        units = tuple((c / size, s / size) for (c, s), size in zip(cell.units, sizes, strict=True))
    return replace(cell, units=units, reward_shift=0.0, reward_unit=1.0)


def zero_filled(summary: sl.LogSummary) -> tuple[Array, Array]:
    """The log's ``Σ x xᵀ`` (K, d, d) and ``Σ x r`` (K, d), with zeros for the features that it did not record."""
    K, d, recorded = summary.n_arms, summary.n_features, np.asarray(summary.recorded)
    grams, moments = np.zeros((K, d, d)), np.zeros((K, d))
    grams[:, recorded[:, None], recorded] = summary.grams
    moments[:, recorded] = summary.cross
    return grams, moments


def noise_of(summary: sl.LogSummary) -> float:
    """The deviation that the log's regressions leave, in the reward's unit: rivals' widths are multiples of it."""
    return float(np.sqrt(max(float(summary.pooled_residual_variance), 1e-300)))


class Sums:
    """``V_a`` as its inverse and ``ŵ_a = V_a⁻¹Y_a`` for each arm, updated by rank one.

    Args:
        precisions: ``V_a`` before any round.  (K, d, d)
        moments: ``Y_a`` before any round.  (K, d)
    """

    def __init__(self, precisions: Array, moments: Array) -> None:
        self.inverses = np.ascontiguousarray(np.linalg.inv(precisions))
        self.weights = np.einsum("kij,kj->ki", self.inverses, moments)

    def estimates(self, x: Array) -> Array:
        """``x·ŵ_a`` (K,)."""
        return self.weights @ x

    def norms(self, x: Array) -> Array:
        """``‖x‖_{V_a⁻¹}`` (K,)."""
        return norms(self.inverses, x)

    def add(self, a: int, x: Array, reward: float) -> None:
        """One more round of arm ``a``."""
        add_round(self.inverses[a], self.weights[a], x, reward, 1.0)


# What every round of every rival does, compiled: a night's run is made of it.


@njit(cache=True)
def times(matrix: Array, x: Array) -> Array:
    """``matrix @ x`` of a symmetric matrix (d, d), row by row so that it is vectorized without reordering a sum."""
    out = np.zeros(len(x))
    for j in range(len(x)):
        for i in range(len(x)):
            out[i] += matrix[j, i] * x[j]
    return out


@njit(cache=True)
def norms(inverses: Array, x: Array) -> Array:
    """``√(xᵀ inverses_a x)`` (K,)."""
    out = np.empty(len(inverses))
    for a in range(len(inverses)):
        out[a] = np.sqrt(max(np.sum(times(inverses[a], x) * x), 0.0))
    return out


@njit(cache=True)
def add_round(inverse: Array, weights: Array, x: Array, reward: float, count: float) -> None:
    """Add a round that counts ``count`` times to ``V⁻¹`` (d, d) and ``ŵ`` (d,), in place."""
    u = times(inverse, x)
    share = count / (1.0 + count * np.sum(x * u))
    surprise = share * (reward - np.sum(x * weights))
    for i in range(len(x)):
        weights[i] += u[i] * surprise
        for j in range(len(x)):
            inverse[i, j] -= share * u[i] * u[j]


class Rival:
    """The part of the learner protocol that a simulation needs, for arms numbered by position.

    A subclass supplies ``_choose(x, rng)`` → position and ``_learn(a, x, reward)``.
    """

    needs = None

    def __init__(self, summary: sl.LogSummary) -> None:
        self.arms = tuple(summary.arms)
        self.n_features = summary.n_features
        self._position = {arm: a for a, arm in enumerate(self.arms)}

    def decide(self, x: Array, allowed: Any = None, rng: np.random.Generator | None = None) -> sl.Decision:
        """The arm that this rival takes at ``x``."""
        return sl.Decision(self.arms[self._choose(np.asarray(x, dtype=float), rng)], np.nan, np.nan, np.nan)

    def observe(self, x: Array, arm: Any, reward: float) -> None:
        """Learn from one round."""
        self._learn(self._position[arm], np.asarray(x, dtype=float), float(reward))

    def wants_query(self, x: Array) -> bool:
        """No rival asks the old policy."""
        return False

    def _choose(self, x: Array, rng: np.random.Generator | None) -> int:
        raise NotImplementedError

    def _learn(self, a: int, x: Array, reward: float) -> None:
        raise NotImplementedError


def prior_precision(summary: sl.LogSummary, regularization: float) -> Array:
    """``λ I`` for each arm.  (K, d, d)"""
    return np.tile(regularization * np.eye(summary.n_features), (summary.n_arms, 1, 1))
