"""The second pass: squared residuals, for a covariance that does not assume constant noise."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sidelight.linalg import Array, product, pseudo_inverse
from sidelight.logs.reduce.second_pass import encoded_rows
from sidelight.logs.sources.base import Bundle
from sidelight.logs.summary import LogSummary

__all__ = ["MeatSums", "with_meat"]


#: below this ``1 − h`` a row alone determines a coefficient: it has leverage 1 and no residual
_ALONE = 1e-6


class MeatSums:
    """``meat`` (K, L, L) = ``Σ (ε/(1 − h))² x_o x_oᵀ`` and what its degrees of freedom need, over rows of a log.

    ``ε`` is the residual of the arm's regression and ``h = x_oᵀG⁻¹x_o`` the row's leverage (HC3): a row pulls the
    regression toward itself, so that its residual is too small by about ``1 − h``.  The sandwich covariance of ``b_a``
    is ``G⁻¹ meat G⁻¹``.  A row that alone decides a coefficient has no residual and counts with the arm's ``s²``.

    Args:
        summary: of all rows that will be added.
    """

    def __init__(self, summary: LogSummary) -> None:
        self._summary, K, L = summary, summary.n_arms, summary.n_recorded
        self._b = summary.least_squares(np.arange(K))
        self._inverses, self._variances = _inverse_grams(summary), np.asarray(summary.residual_variances)
        self._meat, self._squares = np.zeros((K, L, L)), np.zeros(K)

    def add(self, X: Array, codes: np.ndarray, rewards: Array) -> None:
        """Add rows of the second pass.  X: (n, L)  recorded columns   codes: (n,)  positions of arms   rewards: (n,)"""
        for arm in np.unique(codes).tolist():
            rows = codes == arm
            own = X[rows]
            left = 1.0 - (leverages := ((own @ self._inverses[arm]) * own).sum(axis=1))
            alone = left < _ALONE
            residuals = (rewards[rows] - own @ self._b[arm]) / np.where(alone, 1.0, left)
            weights = np.where(alone, self._variances[arm], np.square(residuals))
            self._meat[arm] += (own * weights[:, None]).T @ own
            self._squares[arm] += np.square(weights * leverages).sum()

    def summary(self) -> LogSummary:
        """The summary with the meat and its degrees of freedom."""
        s = self._summary
        counts = np.asarray(s.counts, dtype=np.float64)
        freedom = _freedom(product(self._inverses, self._meat), self._squares, counts)
        return LogSummary(s.schema, s.moments, s.skipped, self._meat, s.propensities, freedom)


def with_meat(summary: LogSummary, bundles: Iterable[Bundle], text_labels: bool) -> LogSummary:
    """The summary with ``meat`` and ``meat_freedom``; rows that the first pass skipped are skipped again."""
    positions = {label: i for i, label in enumerate(summary.arms)}
    sums = MeatSums(summary)
    for bundle in bundles:
        rows = encoded_rows(bundle, summary.schema, positions, text_labels)
        sums.add(rows.X, rows.codes, rows.rewards)
    return sums.summary()


def _inverse_grams(summary: LogSummary) -> Array:
    """``G⁺`` (K, L, L), columns scaled to unit norm first so that their units do not decide the rank."""
    G = np.asarray(summary.grams)
    norms = np.sqrt(np.maximum(np.einsum("aii->ai", G), 0.0))
    norms = np.where(norms > 0.0, norms, 1.0)
    scales = norms[:, :, None] * norms[:, None, :]
    return np.asarray(pseudo_inverse(G / scales, 1e-12) / scales)


def _freedom(spread: Array, squares: Array, counts: Array) -> Array:
    """``ν`` (K,): the meat ``W`` varies as much as a Wishart matrix with ``ν`` degrees of freedom does.

    A Wishart matrix of mean ``Ω`` has ``E‖Ŵ − Ω‖² = (tr Ω² + (tr Ω)²)/ν``; a sum over ``n`` rows has ``Σ‖·‖⁴`` of the
    rows less ``‖Ω‖²/n``.  Both are taken where ``G = I``, so that units and directions do not matter.

    Args:
        spread: (K, L, L)  ``G⁻¹ meat``, whose traces are those of ``Ω``.
        squares: (K,)  ``Σ(weight · leverage)²`` over an arm's rows.
        counts: (K,)  rows of every arm.
    """
    traces, second = np.einsum("aii->a", spread), np.einsum("aij,aji->a", spread, spread)
    variation = squares - second / np.maximum(counts, 1.0)
    known = variation > 0.0
    found = (np.square(traces) + second) / np.where(known, variation, 1.0)
    return np.asarray(np.where(known, np.minimum(found, counts), counts))
