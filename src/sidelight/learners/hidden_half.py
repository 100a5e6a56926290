"""How learners take an estimator of the hidden half, and the old policy's answers for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sidelight.errors import InputError
from sidelight.hidden.protocol import CompleteEstimator, HiddenEstimator, completed
from sidelight.hidden.sums import chance, chances_of_arms
from sidelight.linalg import Array

__all__ = ["Answer", "check_answer", "learn_answer", "single_estimator", "take_answer"]


class Answer(NamedTuple):
    """What the old policy would do at one context.

    Attributes:
        arm: the label of the arm it would take, or None where it told its
        probabilities: of every arm of the log.
        probability: the chance with which this context was asked about.
        log: the key of the log whose policy answered; None for all of them.
    """

    arm: Any
    probabilities: ArrayLike | None
    probability: float
    log: Any = None


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


def check_answer(hidden: CompleteEstimator, answer: Answer) -> None:
    """Refuse an answer of the old policy that ``hidden`` cannot take, before anything is learned from it."""
    if (answer.arm is None) == (answer.probabilities is None):
        raise InputError("Give the arm the old policy would take, or probabilities=…: exactly one of them.")
    if hidden.needs is None:
        return
    if hidden.needs == "action" and answer.arm is None:
        raise InputError(
            f"{type(hidden).__name__} learns from the old policy's actions; for its probabilities use "
            "BehaviorProbabilities."
        )
    if hidden.needs == "probabilities":
        if answer.probabilities is None:
            raise InputError(
                f"{type(hidden).__name__} learns from the old policy's probabilities; for single actions use "
                "BehaviorQueries."
            )
        chances_of_arms(answer.probabilities, hidden.summary.n_arms)
    chance(answer.probability)


def take_answer(hidden: CompleteEstimator, x: Array, index: int | None, answer: Answer) -> None:
    """Hand an answer that was checked to ``hidden``, in the form that it needs.

    Args:
        hidden: the estimator.
        x: (d,)  the context, NaN where it has gaps.
        index: the position of the answered arm among those of the log.
        answer: the answer.
    """
    observe = hidden.observe_gaps if np.isnan(x).any() else hidden.observe
    if hidden.needs == "action":
        assert index is not None
        observe(x, hidden.summary.arms[index], answer.probability)
    elif hidden.needs == "probabilities":
        observe(x, answer.probabilities, answer.probability)


def learn_answer(learner: Any, x: Array, answer: Answer) -> tuple[bool, bool]:
    """One answer that was checked, for a learner with a single ``hidden`` estimator.  x: (d,), NaN where it has gaps

    Returns whether it was taken, which an answer at a context with wild values is not, and whether it told the unit of
    a feature, so that the caller must learn anew.
    """
    taken, fresh = True, False
    filled = learner._learn_gaps(x)
    if learner.automatic is not None:
        taken, fresh = learner.automatic.answerable(filled, learner._name)
    if taken:
        take_answer(learner.hidden, x, None if answer.arm is None else learner._arm(answer.arm), answer)
    return taken, fresh
