"""The second pass: squared residuals, for a covariance that does not assume constant noise."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sidelight.logs.schema.encoding import (
    all_problems,
    encode_columns,
    label_codes,
    label_problems,
    layout_of,
    number_problems,
)
from sidelight.logs.schema.features import number_column
from sidelight.logs.sources.base import Bundle
from sidelight.logs.summary import LogSummary

__all__ = ["with_meat"]


def with_meat(summary: LogSummary, bundles: Iterable[Bundle], text_labels: bool) -> LogSummary:
    """The summary with ``meat`` (K, L, L) = ``Σ ε² x_o x_oᵀ``, ``ε`` the residual of the arm's regression.

    The sandwich covariance of ``b_a`` is ``G⁻¹ meat G⁻¹``. Rows that the first pass skipped are skipped again.
    """
    schema = summary.schema
    layout = layout_of(schema.recorded_features, schema.intercept)
    positions = {label: i for i, label in enumerate(summary.arms)}
    b = summary.least_squares(np.arange(summary.n_arms))
    meat = np.zeros((summary.n_arms, summary.n_recorded, summary.n_recorded))
    for bundle in bundles:
        batch = bundle.batch
        encoded = encode_columns(batch, layout, text_labels)
        rewards, unparsable = number_column(batch.column(schema.reward), schema.reward)
        codes, found = label_codes(batch.column(schema.arm), positions, text_labels)
        problems = [
            *all_problems(encoded, layout),
            *label_problems(schema.arm, found),
            *number_problems(schema.reward, rewards, unparsable),
        ]
        for problem in problems:
            codes = np.where(problem.rows, -1, codes)
        X = np.column_stack(encoded.columns) if encoded.columns else np.empty((batch.num_rows, 0))
        for arm in np.unique(codes[codes >= 0]).tolist():
            rows = codes == arm
            scaled = X[rows] * (rewards[rows] - X[rows] @ b[arm])[:, None]
            meat[arm] += scaled.T @ scaled
    return LogSummary(schema, summary.moments, summary.skipped, meat, summary.propensities)
