"""How a fused learner asks the old policy, and takes in its answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sidelight.errors import InputError, UnknownArmError
from sidelight.learners.fused.log import FusedLog
from sidelight.learners.fused.relearning import Relearning
from sidelight.learners.hidden_half import check_answer
from sidelight.learners.protocol import Context
from sidelight.linalg import Array

__all__ = ["Answering"]


class Answering(Relearning):
    """The part of ``FusedOFUL`` that asks the old policy what it would do."""

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

        Args:
            x: the full context.
            arm: the old policy's action, or
            probabilities: its probability of every arm of the log.
            probability: with which this context was asked about: 1 if all are, or independently of the context; default
                ``query_probability(x)`` as it is now.
            log: the key of the log whose policy answered; default all of them.
        """
        context = self._read(x)
        if probability is None:
            probability = self._query_probability(self._context(context))
            if not probability and self.needs is not None:
                raise InputError(
                    "The query budget is spent, so the chance with which this context was asked about is no longer "
                    "known: pass probability=…, query_probability(x) as it was when wants_query said yes."
                )
        self._check_answer(arm, probabilities, probability, log)
        self.asking.asked += 1
        filled, taken, fresh = self._learn_gaps(context), True, False
        if self._guarded and self.automatic is not None:
            taken, fresh = self.automatic.answerable(filled, self._name)
        if not taken:
            return
        for entry in self._answered_logs(arm, log):
            entry.answer(context, arm, probabilities, probability)
        if self.automatic is not None and (self.automatic.due() or fresh):
            self._relearn()

    def _check_answer(self, arm: Any, probabilities: Any, probability: float, log: Any = None) -> None:
        super()._check_answer(arm, probabilities, probability)
        for entry in self._answered_logs(arm, log):
            check_answer(entry.hidden, arm, probabilities, probability)

    def _answered_logs(self, arm: Any, log: Any) -> list[FusedLog]:
        """The logs that an answer is about: those that know the arm, or the one that is named."""
        logs = [entry for entry in self.logs if log is None or entry.key == log]
        if not logs:
            raise InputError(f"There is no log {log!r}; the logs are {[entry.key for entry in self.logs]!r}.")
        if arm is not None:
            logs = [entry for entry in logs if arm in entry.labels]
            if not logs:
                raise UnknownArmError(f"The old policy answered {arm!r}, an arm that no log has.")
        return logs

    def query_probability(self, x: Context) -> float:
        """The probability with which ``wants_query`` says yes at ``x``; pass it on with the answer."""
        return self._query_probability(self._context(x))

    def _query_probability(self, x: Array) -> float:
        if self.needs is None:
            return 0.0
        if self.asking.unlimited:
            return 1.0
        gain = float(np.mean([log.query_gain(x) for log in self.logs if log.hidden.needs is not None]))
        return self.asking.probability(gain, int(self.counts.sum()))

    def wants_query(self, x: Context) -> bool:
        """Is asking the old policy at ``x`` worth a part of the budget: drawn with ``query_probability(x)``.

        The probability is the expected reduction of the logs' uncertainty by an answer here, relative to the average;
        never below a floor, so that weighting answers by its inverse stays harmless.
        """
        context = self._context(x)
        probability = self._query_probability(context)
        return probability > 0.0 and self._draw_from(context[::-1]) < probability

    def _answer_sums(self, asked: bool) -> Any | None:
        plain = not self.fading.forgets and self.settings.radius != "theory" and self.ledger is None
        if not asked:
            return super()._answer_sums(False) if plain else None
        log = self.logs[0]
        same = (
            plain and self.asking.unlimited and len(self.logs) == 1 and np.array_equal(log.arms, np.arange(self.n_arms))
        )
        sums = log.hidden.sums
        if not same or sums is None or not log.hidden.takes_actions_by_sums:
            return None
        return sums.arrays

    def _room(self) -> tuple[int, int]:
        room, answer_room = super()._room()
        return room, min(answer_room, self.logs[0].hidden.room())

    def _caught_up(self, events: int, taken: int, surprised: bool) -> None:
        if taken:
            self.logs[0].hidden.took(taken)
            self.asking.asked += taken
        super()._caught_up(events, taken, surprised)
