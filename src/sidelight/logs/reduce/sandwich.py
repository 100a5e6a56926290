"""The second pass: squared residuals, for a covariance that does not assume constant noise."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sidelight.logs.reduce.second_pass import encoded_rows
from sidelight.logs.sources.base import Bundle
from sidelight.logs.summary import LogSummary

__all__ = ["with_meat"]


def with_meat(summary: LogSummary, bundles: Iterable[Bundle], text_labels: bool) -> LogSummary:
    """The summary with ``meat`` (K, L, L) = ``Σ ε² x_o x_oᵀ``, ``ε`` the residual of the arm's regression.

    The sandwich covariance of ``b_a`` is ``G⁻¹ meat G⁻¹``. Rows that the first pass skipped are skipped again.
    """
    schema = summary.schema
    positions = {label: i for i, label in enumerate(summary.arms)}
    b = summary.least_squares(np.arange(summary.n_arms))
    meat = np.zeros((summary.n_arms, summary.n_recorded, summary.n_recorded))
    for bundle in bundles:
        X, codes, rewards, _ = encoded_rows(bundle, schema, positions, text_labels)
        for arm in np.unique(codes).tolist():
            rows = codes == arm
            scaled = X[rows] * (rewards[rows] - X[rows] @ b[arm])[:, None]
            meat[arm] += scaled.T @ scaled
    return LogSummary(schema, summary.moments, summary.skipped, meat, summary.propensities)
