"""The probability with which a learner takes each arm at a context."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidelight.learners.fused.learner import FusedOFUL
from sidelight.learners.protocol import Context
from sidelight.learners.thompson import FusedThompson
from sidelight.linalg import Array

__all__ = ["propensities"]


def propensities(learner: Any, x: Context) -> Array:
    """(K,) in the order of ``learner.arms``, summing to 1: certain for learners that do not draw.

    Thompson: the chance of the highest draw.  ``FusedOFUL``: half and half where a coin decides between the best arm
    and one that few rounds have tested.
    """
    out = np.zeros(len(learner.arms))
    if isinstance(learner, FusedThompson):
        means, deviations = learner.scores(x)
        everyone = np.ones(len(out), dtype=bool)
        out[:] = [learner._propensity(a, means, deviations, everyone) for a in range(len(out))]
        return np.asarray(out / out.sum())
    if isinstance(learner, FusedOFUL):
        best, _, _, tried = learner._choose_among(learner._read(x), np.ones(len(out), dtype=bool))
        out[best] = 1.0 if tried < 0 else 0.5
        if tried >= 0:
            out[tried] = 0.5
        return out
    out[learner.arms.index(learner.decide(x).arm)] = 1.0
    return out
