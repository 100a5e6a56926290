"""How learners take an estimator of the hidden half, and the old policy's answers for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sidelight.errors import InputError
from sidelight.hidden.protocol import CompleteEstimator, HiddenEstimator, completed
from sidelight.hidden.sums import chance, chances_of_arms
from sidelight.linalg import Array

__all__ = ["behavior_answer", "check_answer", "learn_answer", "single_estimator"]


def single_estimator(hidden: Any, learner: str) -> CompleteEstimator:
    """A copy of the one estimator a hard learner takes; several logs are an error that says why."""
    if isinstance(hidden, Mapping | list | tuple):
        raise InputError(
            f"{learner} takes one log, and got {len(hidden)}. Its constraint is exact, and the logs of several eras "
            "each carry their own error: together they would contradict each other. FusedOFUL weighs them."
        )
    if not isinstance(hidden, HiddenEstimator):
        raise InputError(
            f"{learner} takes an estimator of how hidden features go with recorded ones (BehaviorQueries, "
            f"BehaviorProbabilities, CompanionLog, KnownCrossMoments, or your own), got {type(hidden).__name__}."
        )
    return completed(hidden.copy())


def check_answer(hidden: CompleteEstimator, arm: Any, probabilities: ArrayLike | None, probability: float) -> None:
    """Refuse an answer of the old policy that ``hidden`` cannot take, before anything is learned from it."""
    if (arm is None) == (probabilities is None):
        raise InputError("Give the arm the old policy would take, or probabilities=…: exactly one of them.")
    if hidden.needs is None:
        return
    if hidden.needs == "action" and arm is None:
        raise InputError(
            f"{type(hidden).__name__} learns from the old policy's actions; for its probabilities use "
            "BehaviorProbabilities."
        )
    if hidden.needs == "probabilities":
        if probabilities is None:
            raise InputError(
                f"{type(hidden).__name__} learns from the old policy's probabilities; for single actions use "
                "BehaviorQueries."
            )
        chances_of_arms(probabilities, hidden.summary.n_arms)
    chance(probability)


def behavior_answer(
    learner: Any,
    hidden: CompleteEstimator,
    x: Array,
    arm: Any,
    probabilities: ArrayLike | None,
    probability: float,
) -> None:
    """Hand an answer that was checked to ``hidden``, in the form that it needs.  x: (d,), NaN where it has gaps"""
    observe = hidden.observe_gaps if np.isnan(x).any() else hidden.observe
    if hidden.needs == "action":
        observe(x, hidden.summary.arms[learner._arm(arm)], probability)
    elif hidden.needs == "probabilities":
        observe(x, probabilities, probability)


def learn_answer(
    learner: Any, x: Any, arm: Any, probabilities: ArrayLike | None, probability: float | None
) -> tuple[bool, bool]:
    """One answer of the old policy, for a learner with a single ``hidden`` estimator.

    Returns whether it was taken, which an answer at a context with wild values is not, and whether it told the unit of
    a feature, so that the caller must learn anew.
    """
    context, taken, fresh = learner._read(x), True, False
    asked = 1.0 if probability is None else probability
    learner._check_answer(arm, probabilities, asked)
    filled = learner._learn_gaps(context)
    if learner.automatic is not None:
        taken, fresh = learner.automatic.answerable(filled, learner._name)
    if taken:
        behavior_answer(learner, learner.hidden, context, arm, probabilities, asked)
    return taken, fresh
