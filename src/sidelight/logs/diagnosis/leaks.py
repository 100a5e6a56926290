"""Columns that give the reward away: written after the decision, or computed from the reward."""

from __future__ import annotations

import numpy as np

from sidelight.labels import show_labels
from sidelight.logs.regressions import ArmRegressions

__all__ = ["leak_warning"]

# The part of the rewards' variance within arms that recorded columns explain in a log without leaks, at most ...
_EXPLAINED = 0.99
# ... told from at least this many degrees of freedom.
_ENOUGH = 30
# A column is named if what its coefficient makes of its deviation is at least this part of the rewards' deviation.
_NOTABLE, _NAMED = 0.1, 4


def leak_warning(*summaries: ArmRegressions) -> list[str]:
    """One sentence, in a list, if recorded columns all but determine the reward in a log; else an empty list."""
    found = (_leak(summary) for summary in summaries)
    return [sentence for sentence in found if sentence][:1]


def _leak(summary: ArmRegressions) -> str:
    """The sentence about one log; empty if there is nothing to say."""
    varying = summary.reward_squares - summary.counts * np.square(summary.reward_means)
    total, freedom = float(varying.sum()), int(summary.degrees_of_freedom.sum())
    # NaN where an old summary file has no sums of rewards
    if freedom < max(_ENOUGH, summary.n_recorded) or not total > 1e-12 * float(summary.reward_squares.sum()):
        return ""
    explained = 1.0 - (float(summary.residual_sums.sum()) / freedom) / (total / summary.n_rows)
    if explained < _EXPLAINED:
        return ""
    arm = int(summary.degrees_of_freedom.argmax())
    n = float(summary.counts[arm])
    spread = np.sqrt(np.maximum(np.diagonal(summary.second_moments[arm]) - np.square(summary.means[arm]), 0.0))
    strength = np.abs(summary.coefficients_of(arm)) * spread / np.sqrt(max(float(varying[arm]) / n, 1e-300))
    names = summary.schema.recorded_names
    strongest = [names[i] for i in np.argsort(-strength, kind="stable")[:_NAMED] if strength[i] >= _NOTABLE]
    part = "all" if explained > 1.0 - 1e-9 else f"{100.0 * explained:.3g}%"
    above = f", {show_labels(strongest)} above all" if strongest else ""
    return (
        f"The recorded columns explain {part} of how rewards differ within an arm{above}. A column that was written "
        "after the decision, or is computed from the reward, is no feature: leave it out."
    )
