"""Evidence while the old policy acts (shadow) or a person decides (assist): the gate below its ladder.

A part of the fold.  Every decision whose learner could decide is a row, a subject's first one alone; rows enter
``judging.old_rows`` in the order of their decisions, once their wait is over.  The chance with which the old policy
takes the learner's arm is the one that it told with the request, else that of a model of it, which predicts each row
before it learns from it.  In assist a person has seen the proposal, so the model is one of persons, and the proposal a
feature of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import numpy as np

from sidelight.arrays import Array
from sidelight.judging.old_rows import WARM_UP, OldRows, PolicyModel
from sidelight.judging.sequences import AsymptoticSequence
from sidelight.labels import Label, label_from_json, label_to_json
from sidelight.service.core.entering import InOrder
from sidelight.service.core.trail import Trail
from sidelight.service.log.events import Decisions

__all__ = ["Shadow"]


@dataclass
class Looked:
    """A decision of the old policy or a person at which the learner only recommended.

    Attributes:
        number, position: of the decision.
        wanted: position of the learner's arm, and
        estimate: its estimate of it.
        decided: position of the arm to take; None where nobody has said it yet.
        told: the chance with which the old policy takes the learner's arm, where the request told it.
        settled: whether the wait is over.
        matched, reward, chance, known: see ``OldRows.observe``; ``matched`` is None where the row tells nothing (nobody
            said which arm was taken, its context was deleted, or it only taught the model).
    """

    number: int
    position: int
    wanted: int
    estimate: float
    decided: int | None
    told: float | None
    settled: bool = False
    matched: bool | None = None
    reward: float = 0.0
    chance: float | None = None
    known: bool = False


#: as ``dataclasses.astuple``, but thirty times as fast: servers wait while 100,000 rows are saved
_values = attrgetter(*(field.name for field in fields(Looked)))


class Shadow:
    """The evidence about a learner that does not act.

    Args:
        mode: ``shadow`` or ``assist``.
        arms: the labels of all arms.
        n_features: ``d``.
        alpha: the chance of ever calling a learner better that is not; the same for worse.
    """

    def __init__(self, mode: str, arms: Sequence[Label], n_features: int, alpha: float) -> None:
        self.mode, self.arms = mode, list(arms)
        self._index: dict[Label | None, int] = {arm: i for i, arm in enumerate(self.arms)}
        n_arms = len(self.arms)
        self.rows = OldRows(AsymptoticSequence(alpha), n_arms)
        self.model = PolicyModel(n_arms, n_features + (n_arms if mode == "assist" else 0))
        self.trail = Trail()
        self.waiting = InOrder[Looked]()

    def decided(self, number: int, event: Decisions, position: int) -> None:
        """Enter a decision at which the learner only recommended."""
        estimate = event.estimates[position]
        subject = None if event.subjects is None else event.subjects[position]
        if estimate is None or not self.waiting.admits(subject):
            return  # the learner failed there, or it does not enter
        wanted, decided = self._index[event.recommended[position]], self._index.get(event.arms[position])
        answer = None if event.answers is None else event.answers[position]
        told = None
        if self.mode == "shadow" and decided is not None and answer is not None and answer.probabilities is not None:
            told = answer.probabilities[wanted]
        self.waiting.enter(Looked(number, position, wanted, estimate, decided, told), subject)

    def settled(self, number: int, position: int, reward: float, arm: Label | None, x: Array | None) -> None:
        """Note a decision's reward, the arm that was taken and the context (d,); None where either is not known."""
        taken = self._index.get(arm)
        row = self.waiting.find(number, position)
        if row is None or row.settled:
            return
        row.settled, row.reward = True, reward
        if row.told is not None:
            # an override is no draw of the old policy, so its propensities do not apply
            if taken is not None and taken == row.decided:
                row.matched, row.chance, row.known = taken == row.wanted, row.told, True
        elif taken is not None and x is not None:
            seen = x if self.mode == "shadow" else np.concatenate([x, np.eye(len(self.arms))[row.wanted]])
            row.matched = None if self.model.count < WARM_UP else taken == row.wanted
            row.chance = float(self.model.observe(seen, taken)[row.wanted])
        for done in self.waiting.leave():
            if done.matched is not None:
                self.rows.observe(done.wanted, done.matched, done.reward, done.estimate, done.chance, known=done.known)
                if self.rows.ready:
                    self.trail.add(self.rows.sequence)

    def abandon(self) -> None:
        """Drop all rows that wait: the first of them would wait for ever."""
        self.waiting.abandon()

    def forget(self, decisions: Collection[tuple[int, int]]) -> None:
        """Delete subject and estimate of these decisions (number, position).

        For a row that waits, the mean reward so far takes the estimate's place: it was known before the row's own, too.
        """
        self.waiting.forget(decisions)
        for place in decisions:
            if (row := self.waiting.find(*place)) is not None:
                row.estimate = self.rows.mean

    def to_dict(self) -> dict[str, Any]:
        """The whole state as a JSON object; floats survive to the bit."""
        return {
            "mode": self.mode,
            "arms": [label_to_json(arm) for arm in self.arms],
            "rows": self.rows.to_dict(),
            "model": self.model.to_dict(),
            "trail": self.trail.to_dict(),
            "waiting": [_values(row) for row in self.waiting],
            "entered": self.waiting.subjects_to_list(),
        }

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Shadow:
        """The inverse of ``to_dict``."""
        rows, model = OldRows.from_dict(body["rows"]), PolicyModel.from_dict(body["model"])
        shadow = cls(body["mode"], [label_from_json(arm) for arm in body["arms"]], 0, rows.sequence.alpha)
        shadow.rows, shadow.model, shadow.trail = rows, model, Trail.from_dict(body["trail"])
        shadow.waiting = InOrder([Looked(*values) for values in body["waiting"]], InOrder.subjects_from(body))
        return shadow
