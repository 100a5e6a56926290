"""How a fused learner asks the old policy, and takes in its answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from sidelight.errors import InputError, UnknownArmError
from sidelight.hidden.protocol import CompleteEstimator
from sidelight.learners.fused.log import FusedLog
from sidelight.learners.fused.relearning import Relearning
from sidelight.learners.hidden_half import Answer
from sidelight.learners.protocol import Context
from sidelight.linalg import Array

__all__ = ["Answering"]


class Answering(Relearning):
    """The part of ``FusedOFUL`` that asks the old policy what it would do."""

    def _usual_chance(self, x: Array) -> float:
        """``query_probability`` as it is now; an error if the budget is spent, since the chance is then unknown."""
        chance = self._query_probability(self._context(x))
        if not chance and self.needs is not None:
            raise InputError(
                "The query budget is spent, so the chance with which this context was asked about is no longer "
                "known: pass probability=…, query_probability(x) as it was when wants_query said yes."
            )
        return chance

    def _learn_answer(self, x: Array, answer: Answer) -> None:
        self.asking.asked += 1
        filled, taken, fresh = self._learn_gaps(x), True, False
        if self._guarded and self.automatic is not None:
            taken, fresh = self.automatic.answerable(filled, self._name)
        if not taken:
            return
        for log in self._answered_logs(answer):
            log.answer(x, answer)
        if self.automatic is not None and (self.automatic.due() or fresh):
            self._relearn()

    def _answered(self, answer: Answer) -> list[CompleteEstimator]:
        return [log.hidden for log in self._answered_logs(answer)]

    def _answered_logs(self, answer: Answer) -> list[FusedLog]:
        """The logs that an answer is about: those that know the arm, or the one that is named."""
        logs = [log for log in self.logs if answer.log is None or log.key == answer.log]
        if not logs:
            raise InputError(f"There is no log {answer.log!r}; the logs are {[log.key for log in self.logs]!r}.")
        if answer.arm is not None:
            logs = [log for log in logs if answer.arm in log.labels]
            if not logs:
                raise UnknownArmError(f"The old policy answered {answer.arm!r}, an arm that no log has.")
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
