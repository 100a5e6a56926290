"""Disjoint LinUCB as a good NumPy programmer writes it: the denominator of the ratios in ``benchmarks/online.py``.

One stacked inverse, one product for the widths of all arms, weights kept, Sherman–Morrison for the update.  Nothing is
checked and nothing but the choice is returned, so this is a lower bound of what NumPy code costs.
"""

from __future__ import annotations

import numpy as np


class NumpyLinUCB:
    """``inverses`` (K, d, d), ``b`` (K, d) and ``weights = A⁻¹b`` (K, d); the index is ``x·ŵ + α√(xᵀA⁻¹x)``."""

    def __init__(self, n_arms: int, n_features: int, alpha: float = 1.0, regularization: float = 1.0) -> None:
        self.alpha = alpha
        self.inverses = np.tile(np.eye(n_features) / regularization, (n_arms, 1, 1))
        self.stacked = self.inverses.reshape(n_arms * n_features, n_features)  # a view: one matrix-vector product
        self.shape = (n_arms, n_features)
        self.weights = np.zeros((n_arms, n_features))

    def decide(self, x: np.ndarray) -> int:
        """The arm of highest index."""
        spread = (self.stacked @ x).reshape(self.shape) @ x
        return int((self.weights @ x + self.alpha * np.sqrt(spread)).argmax())

    def observe(self, x: np.ndarray, arm: int, reward: float) -> None:
        """``A⁻¹ ← A⁻¹ − uuᵀ/(1 + xᵀu)`` with ``u = A⁻¹x``, and the weights along ``u``."""
        inverse, weights = self.inverses[arm], self.weights[arm]
        u = inverse @ x
        gain = u / (1.0 + x @ u)
        weights += gain * (reward - x @ weights)
        inverse -= np.outer(gain, u)
