"""How learners take estimators of the hidden half of a log, and the old policy's answers for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sidelight.errors import InputError
from sidelight.hidden.protocol import CompleteEstimator, HiddenEstimator, Needs, completed
from sidelight.hidden.sums import chance, chances_of_arms
from sidelight.learners.arguments import ArgumentReader
from sidelight.learners.protocol import Context
from sidelight.linalg import Array
from sidelight.logs.schema.features import is_missing

__all__ = ["Answer", "BehaviorObserver", "learn_answer", "single_estimator", "take_answer"]


class Answer(NamedTuple):
    """What the old policy would do at one context.

    Attributes:
        arm: the label of the arm it would take; None if probabilities are given.
        probabilities: of every arm of the log; None if an arm is given.
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


def _check(hidden: CompleteEstimator, answer: Answer) -> None:
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


class BehaviorObserver(ArgumentReader):
    """The part of ``BaseLearner`` that takes the old policy's answers; a learner that uses them says how to learn.

    Attributes:
        needs: which answers it uses, the old policy's ``"action"`` or its ``"probabilities"``; None for neither.
    """

    needs: Needs = None

    def estimators(self) -> dict[Any, Any]:
        """The estimators of hidden halves it holds, by the key of their log (None where there is one)."""
        return {}

    def wants_query(self, x: Context) -> bool:
        """Whether to ask the old policy at ``x``: true for every context if the learner uses answers at all."""
        return self.needs is not None

    def observe_behavior(
        self,
        x: Context,
        arm: Any = None,
        *,
        probabilities: ArrayLike | None = None,
        probability: float | None = None,
        log: Any = None,
    ) -> None:
        """What the old policy would do at ``x``: its ``arm``, or its ``probabilities``.

        A learner that holds no estimator of a hidden half has no use for it, and does nothing.

        Args:
            x: the full context.
            arm: the old policy's action; give this or ``probabilities``.
            probabilities: its probability of every arm of the log.
            probability: with which this context was asked about: 1 if all are, or independently of the context; default
                1, and for a learner with a query budget ``query_probability(x)`` as it is now.
            log: the key of the log whose policy answered; default all of them.
        """
        if self.needs is None and not self.estimators():
            return
        context = self._read(x)
        answer = Answer(arm, probabilities, self._usual_chance(context) if probability is None else probability, log)
        self._check_answer(answer)
        self._learn_answer(context, answer)

    def observe_behavior_many(
        self,
        X: Any,
        arms: Sequence[Any] | None = None,
        *,
        probabilities: ArrayLike | None = None,
        probability: float | None = None,
        log: Any = None,
    ) -> None:
        """``observe_behavior`` for every row, in order; nothing if any row is invalid.

        Args:
            X: full contexts.
            arms: the old policy's arm in each, ``None`` or NaN where it was not asked; give this or ``probabilities``.
            probabilities: (n, K) its probabilities, a row with NaN where it was not asked.
            probability: with which contexts were asked about; see :meth:`observe_behavior`.
            log: the key of the log whose policy answered; default all of them.
        """
        contexts = self._read_many(X)
        if (arms is None) == (probabilities is None):
            raise InputError("Give the old policy's arms or its probabilities, one of the two.")
        asked = 1.0 if probability is None else probability
        if arms is not None:
            answers = [None if is_missing(arm) else Answer(arm, None, asked, log) for arm in arms]
        else:
            try:
                rows = np.asarray(probabilities, dtype=np.float64)
            except (TypeError, ValueError):
                raise InputError(f"probabilities={probabilities!r:.200} must be numbers, (n, K).") from None
            answers = [None if np.isnan(row).any() else Answer(None, row, asked, log) for row in np.atleast_1d(rows)]
        if len(answers) != len(contexts):
            raise InputError(f"{len(contexts)} contexts and {len(answers)} answers: give one answer for every context.")
        given = [(x, answer) for x, answer in zip(contexts, answers, strict=True) if answer is not None]
        for _, answer in given:
            self._check_answer(answer)
        for x, answer in given:
            self.observe_behavior(x, answer.arm, probabilities=answer.probabilities, probability=probability, log=log)

    def _check_answer(self, answer: Answer) -> None:
        """Refuse an answer of the old policy that names no arm of this learner, or that its estimators cannot take."""
        if answer.arm is not None:
            self._arm(answer.arm)
        for hidden in self._answered(answer):
            _check(hidden, answer)

    def _usual_chance(self, x: Array) -> float:
        """The probability with which ``x`` (d,), NaN for gaps, was asked about, where the caller gives none."""
        return 1.0

    def _answered(self, answer: Answer) -> Sequence[CompleteEstimator]:
        """The estimators that learn from this answer: here all."""
        return list(self.estimators().values())

    def _learn_answer(self, x: Array, answer: Answer) -> None:
        """Learn from a checked answer of the old policy at ``x`` (d,), NaN where it has gaps."""
        raise NotImplementedError


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
