"""Answers at contexts with gaps: their missing hidden features are filled by the regressions themselves (EM).

``GapAnswers`` keeps the sums and completes them by a prediction; here predictions and regressions take turns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sidelight.hidden.framed_sums import Told
from sidelight.hidden.gap_answers import GapAnswers, Prediction
from sidelight.hidden.pooling import Fit, Pool
from sidelight.hidden.sums import AnswerSums

__all__ = ["FILLING", "fill_gaps"]

#: at most this many iterations, until coefficients and means change by less than this, in deviations
STEPS, STILL = 20, 1e-4
#: pull of the regressions that fill gaps toward the pooled one, in answers for each of their coordinates: pulled as
#: strongly as those that are learned from the result, they would confirm that the arms are alike
FILLING = 2.0


def fill_gaps(
    gaps: GapAnswers,
    complete: AnswerSums,
    tell: Callable[[AnswerSums], Told],
    regress: Callable[[Told], tuple[Pool, Fit]],
) -> tuple[Told, AnswerSums]:
    """All answers, with and without gaps, in the coordinates of a frame; and their sums.

    Args:
        gaps: the answers with gaps.
        complete: the sums of those without.
        tell: sums in the coordinates of the frame.
        regress: the regressions to fill gaps by.
    """
    sums = gaps.completed(complete, gaps.start(complete))
    told, before = tell(sums), np.zeros(0)
    for step in range(STEPS):
        pool, fit = regress(told)
        # slopes for a deviation of the recorded feature, and means: in deviations of the hidden ones, so that no unit
        # decides when to stop
        slopes, means = fit.plain * np.sqrt(np.diagonal(told.D))[:, None], np.tile(told.means, (len(told.S), 1, 1))
        found = np.concatenate([slopes, means], axis=1) * told.unit
        deviations = np.sqrt(np.diagonal(pool.residual)) * told.unit
        if step and (np.abs(found - before) / deviations).max(initial=0.0) <= STILL:
            break
        before = found
        sums = gaps.completed(complete, _prediction(told, pool, fit))
        told = tell(sums)
    return told, sums


def _prediction(told: Told, pool: Pool, fit: Fit) -> Prediction:
    """The regressions of every arm, and of all together, in the features' own units."""
    theta = np.concatenate([fit.plain, pool.theta[None]])
    slopes, levels = told.unit * told.frame.slopes(theta), told.unit * told.frame.levels(theta, told.means)
    # a hidden feature that never varied is predicted exactly
    unit = np.where(told.hidden_scale > 0.0, told.unit, 0.0)
    return Prediction(slopes, levels, pool.residual * unit[:, None] * unit)
