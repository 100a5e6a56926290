"""What events teach the learner, and what is kept from it: the part of the fold that feeds ``observe``.

Rewards, default rewards and answers reach the learner, the floor's account and the evidence of the gate from here; what
is in quarantine or was retracted does not.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sidelight.labels import label_to_json
from sidelight.linalg import Array
from sidelight.service.core.defaults import NOT_TAUGHT, Defaults
from sidelight.service.core.flooring import risked
from sidelight.service.core.gate import Gate
from sidelight.service.core.seen import Quarantine, Seen, Withheld
from sidelight.service.log.events import Action, Answer, Behavior, Decisions, DefaultReward, Reward

__all__ = ["LEARNER_ERRORS", "RETRACTED", "ArmTotals", "Teaching", "decision_place", "name_of"]

#: why a retracted event teaches nothing
RETRACTED = "retracted"

#: what a learner may raise on valid input: a matrix that is numerically singular, or any exception from a bug. One
#: event that it cannot learn from must not prevent every later start of the service.
LEARNER_ERRORS = (Exception,)
#: errors of the machine, not of the learner: a retry may succeed, so the state after one is not the fold of the log
MACHINE_ERRORS = (MemoryError, OSError, ImportError, RecursionError)


class ArmTotals(NamedTuple):
    """How often an arm was to be taken, how many rewards came for it, and their mean: None where none came."""

    to_take: int
    rewards: int
    mean_reward: float | None


class Teaching:
    """The learner, and what it was taught.

    Attributes:
        learner: the learner.
        gate: the evidence about the learner, and the ladder of its share where there is one.
        number: the last event that was folded in.
        version: the last event that changed the learner.
        counts: decisions, rewards, answers, overrides, failures and others so far; for the status only.
        arm_counts, reward_sums: how often each arm was to be taken or (``rewarded:``) rewarded, and the sum of its
            rewards, by its JSON form; see ``arm_totals``.
        failure: what the learner raised at the last event, which then taught it nothing; no part of snapshots.
        defaults: how long rewards are waited for, what counts afterwards, and what a late one must correct.
        seen: what the learner was taught, as ranges beyond which a value is wild.
        quarantine: what was kept from the learner and waits for a person.
        withheld: the rewards among it.
    """

    def __init__(self, learner: Any, gate: Gate, number: int, version: int) -> None:
        self.learner = learner
        self.gate = gate
        self.number = number
        self.version = version
        self.counts: Counter[str] = Counter()
        self.arm_counts: Counter[str] = Counter()
        self.reward_sums: Counter[str] = Counter()
        self.failure: Exception | None = None
        self.defaults = Defaults()
        schema = learner.schema
        self.seen = Seen(learner.n_features, 0 if schema is not None and schema.intercept else None)
        self.quarantine = Quarantine()
        self.withheld = Withheld()

    def arm_totals(self, arm: Any) -> ArmTotals:
        """Number of decisions and rewards of an arm, and the mean reward."""
        name = name_of(arm)
        rewards = self.arm_counts["rewarded:" + name]
        return ArmTotals(self.arm_counts[name], rewards, self.reward_sums[name] / rewards if rewards else None)

    # --------------------------------------------------------------------------- rewards and answers

    def _reward(self, event: Reward, context: Array | None) -> None:
        self.counts["rewards"] += 1
        self.counts["overrides"] += event.override
        self.counts["answers"] += event.answer
        if event.quarantine == RETRACTED:
            # the evidence keeps what it has counted: corrections reach the learner only
            self._settle_evidence(event, context)
            self._drop_for_floor(decision_place(event))
        self._teach(event, context)

    def _teach(self, event: Reward | Action | Behavior, context: Array | None) -> None:
        """Teach the learner what an event says, unless it is in quarantine."""
        if event.quarantine is not None:
            self._withhold(event.quarantine)
            if isinstance(event, Reward) and event.quarantine != RETRACTED:
                self.withheld.put(decision_place(event), self.number, event.reward)
            return
        if isinstance(event, Behavior):
            self._answer(context if event.context is None else event.context, event.answer)
            return
        if isinstance(event, Reward):
            self._settle_evidence(event, context)
            self._take_reward(event, context)
        if event.answer:
            self._answer(context, Answer(arm=event.arm, probability=event.probability))

    def _take_reward(self, event: Reward, context: Array | None) -> None:
        """Teach the learner a reward, in the place of the default one where that was taught."""
        self._add_reward(event.arm, event.reward)
        if event.replaces is not None:
            self.counts["late rewards"] += 1
            self._add_reward(event.replaces_arm, event.replaces, -1)
        if context is None:
            self.counts["without context"] += 1
            return
        if event.replaces is None:
            self._learn(self.learner.observe, context, event.arm, event.reward)
        else:
            self._learn(self.defaults.correct, self.learner, context, event, event.reward)
            self.defaults.receipts.pop(event.decision[:2], None)
        self._settle_for_floor(event)
        self.seen.add(context, event.reward)

    def _withhold(self, reason: str, position: int = 0) -> None:
        """Quarantine the event unless it was retracted; in either case nothing is taught."""
        if reason != RETRACTED:
            self.counts["quarantined"] += 1
            self.quarantine.put(self.number, position, reason)

    def _add_reward(self, arm: Any, reward: float, sign: int = 1) -> None:
        """Count a reward of an arm, or take one back."""
        self.arm_counts["rewarded:" + name_of(arm)] += sign
        self.reward_sums[name_of(arm)] += sign * reward  # type: ignore[assignment]

    def _default(self, event: DefaultReward, context: Array | None) -> None:
        """Fold a ``default`` event: teach the learner the default reward until the real one comes."""
        self.counts["default rewards"] += 1
        self.defaults.waited = max(self.defaults.waited, event.decision.number)
        number, position = event.decision.number, event.decision.position
        withheld = self.withheld.get((number, position))
        counts = event.reward if withheld is None else withheld
        self.gate.settled(number, position, counts, event.arm, self._looked_at(context))
        if event.arm is None:
            self._drop_for_floor((number, position))
            return
        if withheld is None:  # else the floor waits until a person has reviewed it
            self._settle_for_floor(event)
        self._add_reward(event.arm, event.reward)
        if context is not None:
            self._learn(self.defaults.teach, self.learner, context, event)
            if self.failure is not None:
                self.defaults.receipts[event.decision[:2]] = NOT_TAUGHT

    def _moved(self, event: Action, context: Array | None) -> None:
        """Move a default reward that was taught for one arm to the arm that was taken."""
        if event.replaces is None:
            return
        self._add_reward(event.arm, event.replaces)
        self._add_reward(event.replaces_arm, event.replaces, -1)
        if context is not None:
            self._learn(self.defaults.correct, self.learner, context, event, event.replaces)

    def _answer(self, context: Array | None, answer: Answer) -> None:
        needs = self.learner.needs
        if context is None or needs is None:
            return
        observe = self.learner.observe_behavior
        if needs == "probabilities" and answer.probabilities is not None:
            probabilities = np.array(answer.probabilities)
            self._learn(observe, context, probabilities=probabilities, probability=answer.probability)
        elif needs == "action" and answer.arm is not None:
            self._learn(observe, context, answer.arm, probability=answer.probability)
        else:
            return
        self.seen.add(context)

    def _learn(self, observe: Callable[..., object], *arguments: Any, **named: Any) -> None:
        try:
            observe(*arguments, **named)
        except MACHINE_ERRORS:
            raise
        except LEARNER_ERRORS as error:
            # The event is in the log and fails in every replay as well, so states stay equal.
            self.counts["failures"] += 1
            self.failure = error
        self.version = self.number

    # ------------------------------------------------------------------------------------- the floor

    def _count_for_floor(self, event: Decisions) -> None:
        """Enter decisions in the floor's account: they count from when they are taken, not from when rewards come."""
        old = {i: arm for i, _, arm in risked(event)}
        for i, x in enumerate(event.contexts):
            place = self.number, i
            self._learn(self.learner.record_decision, x, event.arms[i], old.get(i), decision=place)
            self.counts["kept by the floor"] += i in old and event.arms[i] != event.recommended[i]

    def _drop_for_floor(self, decision: tuple[int, int]) -> None:
        """Count no reward of a decision for the floor: retracted, its arm unknown, or its context forgotten."""
        if self.learner.ledger is not None:
            self._learn(self.learner.ledger.drop, decision)

    def _settle_for_floor(self, event: Reward | DefaultReward) -> None:
        if self.learner.ledger is not None:
            self._learn(self.learner.settle_decision, decision_place(event), event.arm, event.reward)

    # ---------------------------------------------------------------------------------- the evidence

    def _settle_evidence(self, event: Reward, context: Array | None) -> None:
        number, position = event.decision.number, event.decision.position
        self.withheld.pop((number, position))
        self.gate.settled(number, position, event.reward, event.arm, self._looked_at(context))

    def _looked_at(self, context: Array | None) -> Array | None:
        """A context for the evidence: in shadow and assist its gaps are filled, because choices are modelled."""
        # the sum of squares is NaN if any value is; it takes a fifth of the time of testing each value
        if self.gate.shadow is None or context is None or not math.isnan(context.dot(context)):
            return context
        return np.asarray(self.learner.filled(context))


def decision_place(event: Reward | DefaultReward) -> tuple[int, int]:
    """Number and position of the decision that an event is about."""
    return event.decision.number, event.decision.position


def name_of(arm: Any) -> str:
    """The name under which an arm is counted: its JSON form; empty for no arm."""
    if type(arm) is str:
        return arm
    return "" if arm is None else json.dumps(label_to_json(arm))
