"""What is told about a decision: the arm that was taken, its reward or that none came, what the old policy would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sidelight.labels import Label
from sidelight.linalg import Array
from sidelight.service.core.proposals import Known, Outcome
from sidelight.service.log.decision_id import DecisionId
from sidelight.service.log.events import Action, Answer, Behavior, Decisions, DefaultReward, Reward
from sidelight.service.log.rows import Row, event_from_row
from sidelight.service.log.store import Draft, Outdated
from sidelight.service.problems import Problem, invalid

__all__ = [
    "ActionProposal",
    "BehaviorProposal",
    "DefaultRewardProposal",
    "RewardProposal",
    "assumed_reward",
    "taken_by",
    "wait_ended_by",
    "wait_keys",
]


def assumed_reward(found: Mapping[str, Row], id: DecisionId) -> tuple[Row, DefaultReward, Label] | None:
    """The default reward that the learner was taught, and the arm that it now counts for; None if none was taught."""
    row, taken = found.get(f"default:{id}"), found.get(f"action:{id}")
    event = None if row is None else event_from_row(row, 0)
    if row is None or not isinstance(event, DefaultReward) or event.arm is None:
        return None
    action = None if taken is None else event_from_row(taken, 0)
    # an action that came after the wait has moved the round to its own arm
    moved = isinstance(action, Action) and action.replaces is not None
    return row, event, action.arm if moved and isinstance(action, Action) else event.arm


def taken_by(decision: Decisions, position: int, arm: Label) -> str:
    """Who took ``arm`` in a decision, where nobody has said."""
    decided = decision.arms[position]
    if decision.routes[position] == "old_policy":
        return "old_policy" if decided in (None, arm) else "person"
    return "service" if arm == decided else "person"


class _AboutDecision:
    """The common part of rewards, actions and answers: the decision that they are about.

    Args:
        id: the decision.
        decision: the event that it stands in.
        quarantine: why the learner is to learn nothing from this; None where it is.
    """

    def __init__(self, id: DecisionId, decision: Decisions, quarantine: str | None = None) -> None:
        self.id = id
        self.decision = decision
        self.quarantine = quarantine
        self.context: Array = decision.contexts[id.position]
        name = str(id)
        self.reward_key, self.action_key, self.behavior_key = f"reward:{name}", f"action:{name}", f"behavior:{name}"
        self.default_key = f"default:{name}"
        self.retracted_key = f"retracted:{self.action_key}"
        self._about = (id.number, decision.chain)
        self.keys: tuple[str, ...] = (
            self.reward_key,
            self.action_key,
            self.behavior_key,
            self.default_key,
            self.retracted_key,
        )

    def _known(self, found: Mapping[str, Row], key: str) -> Known:
        """The outcome where the event with this key says the same."""
        return Known(found[key], f"retracted:{key}" in found)

    @property
    def decided(self) -> Label | None:
        """The arm that was to be taken."""
        return self.decision.arms[self.id.position]

    def _reward(self, found: Mapping[str, Row]) -> Reward | None:
        row = found.get(self.reward_key)
        return None if row is None else event_from_row(row, 0)  # type: ignore[return-value]

    def _action(self, found: Mapping[str, Row]) -> Action | None:
        row = found.get(self.action_key)
        return None if row is None else event_from_row(row, 0)  # type: ignore[return-value]

    def _standing_action(self, found: Mapping[str, Row]) -> Action | None:
        """The action, unless it was retracted: then what follows is not about its arm."""
        return None if self.retracted_key in found else self._action(found)

    def _assumed(self, found: Mapping[str, Row]) -> tuple[Row, DefaultReward, Label] | None:
        return assumed_reward(found, self.id)

    def _given(self) -> Answer | None:
        """The answer that came with the decision."""
        answers = self.decision.answers
        return None if answers is None else answers[self.id.position]

    def _asked_with(self) -> float:
        """The probability with which the old policy was asked; 1 in shadow, where it acts, and if it was not asked."""
        i = self.id.position
        if self.decision.mode == "shadow" or not self.decision.asked[i]:
            return 1.0
        return self.decision.query_probabilities[i]

    def _who(self, arm: Label, by: str | None) -> str:
        return taken_by(self.decision, self.id.position, arm) if by is None else by

    def _answers(self, by: str, found: Mapping[str, Row]) -> bool:
        """Whether an arm taken by ``by`` is a new answer of the old policy here."""
        if by != "old_policy" or self._given() is not None or self.behavior_key in found:
            return False
        action, reward = self._standing_action(found), self._reward(found)
        return not (action is not None and action.answer) and not (reward is not None and reward.answer)


class ActionProposal(_AboutDecision):
    """Write which arm was taken."""

    def __init__(
        self, id: DecisionId, decision: Decisions, arm: Label | None, by: str | None, quarantine: str | None = None
    ) -> None:
        super().__init__(id, decision, quarantine)
        self.arm, self.by = arm, by

    def settle(self, found: Mapping[str, Row]) -> Outcome:
        """The draft of the action; ``Known`` for the same action again, a 409 for another one."""
        arm = self.decided if self.arm is None else self.arm
        if arm is None:
            return _arm_needed()
        by = self._who(arm, self.by)
        action, reward = self._action(found), self._reward(found)
        if action is not None:
            if action.arm == arm and (self.by is None or action.by == by):
                return self._known(found, self.action_key)
            return _conflict("action", f"arm {action.arm!r} by {action.by}", f"arm {arm!r} by {by}")
        if reward is not None and reward.arm != arm:
            return _conflict("reward", f"a reward for arm {reward.arm!r}", f"arm {arm!r}")
        override = self.decided is not None and arm != self.decided
        answer = self._answers(by, found)
        chance, quarantine = (self._asked_with(), self.quarantine) if answer else (1.0, None)
        event = Action(self.id, arm, by, override, answer, chance, quarantine)
        assumed = self._assumed(found)
        if assumed is not None and reward is None and assumed[2] != arm:
            event = replace(event, replaces=assumed[1].reward, replaces_arm=assumed[2])
        return Draft.of(event, self.action_key, about=self._about)


class RewardProposal(_AboutDecision):
    """Write a reward."""

    def __init__(
        self,
        id: DecisionId,
        decision: Decisions,
        reward: float,
        arm: Label | None,
        by: str | None,
        quarantine: str | None = None,
    ) -> None:
        super().__init__(id, decision, quarantine)
        self.reward, self.arm, self.by = reward, arm, by
        self.keys += (f"retracted:{self.reward_key}",)

    def settle(self, found: Mapping[str, Row]) -> Outcome:
        """The draft of the reward; ``Known`` for the same reward again, a 409 for another one."""
        action, recorded = self._standing_action(found), self._reward(found)
        if recorded is not None:
            same = (
                recorded.reward == self.reward
                and (self.arm is None or recorded.arm == self.arm)
                and (self.by is None or recorded.by == self.by)
            )
            if same:
                return self._known(found, self.reward_key)
            return _conflict(
                "reward",
                f"{recorded.reward!r} for arm {recorded.arm!r} by {recorded.by}",
                f"{self.reward!r} for arm {(recorded.arm if self.arm is None else self.arm)!r}",
            )
        arm = self.arm
        if action is not None:
            if arm is not None and arm != action.arm:
                return _conflict("action", f"arm {action.arm!r} by {action.by}", f"a reward for arm {arm!r}")
            arm = action.arm
        elif arm is None:
            arm = self.decided
        if arm is None:
            return _arm_needed()
        by = action.by if action is not None and self.by is None else self._who(arm, self.by)
        override = self.decided is not None and arm != self.decided
        answer = self._answers(by, found)
        event = Reward(
            self.id,
            self.reward,
            arm,
            by,
            # an override that was recorded as an action is counted once, there
            override and action is None,
            answer,
            self._asked_with() if answer else 1.0,
            self.quarantine,
        )
        assumed = self._assumed(found)
        if assumed is not None:
            row, default, stands = assumed
            event = replace(event, replaces=default.reward, replaces_arm=stands, waited_until=row.at)
        return Draft.of(event, self.reward_key, about=self._about)


class DefaultRewardProposal(_AboutDecision):
    """Write the default reward at the end of the wait; at a context out of bounds it is kept from the learner.

    Waits end in the order of their decisions, because the fold takes the last one for all before it: where the
    transaction of the one before (``after``) failed, this one is not written either.
    """

    def __init__(
        self,
        id: DecisionId,
        decision: Decisions,
        reward: float,
        quarantine: str | None = None,
        *,
        after: DecisionId | None = None,
    ) -> None:
        super().__init__(id, decision, quarantine)
        self.reward = reward
        self._after = after
        self.keys = (
            self.action_key,
            self.retracted_key,
            *wait_keys(id),
            *(() if after is None else wait_keys(after)),
        )

    def settle(self, found: Mapping[str, Row]) -> Outcome | Outdated:
        """The draft of the default reward, unless a reward or another server came first, or the wait before goes on."""
        row = wait_ended_by(found, self.id)
        if row is not None:
            return Known(row)
        if self._after is not None and wait_ended_by(found, self._after) is None:
            return Outdated()
        action = self._standing_action(found)
        arm = self.decided if action is None else action.arm
        taught = arm if self.quarantine is None else None
        return Draft.of(DefaultReward(self.id, self.reward, taught), self.default_key, about=self._about)


def wait_keys(id: DecisionId) -> tuple[str, str, str]:
    """The keys of what ends the wait for a decision's reward."""
    return f"default:{id}", f"reward:{id}", f"release:reward:{id}"


def wait_ended_by(found: Mapping[str, Row], id: DecisionId) -> Row | None:
    """The event that ended the wait for a decision's reward; a quarantined reward ends it only when released."""
    default, reward, release = (found.get(key) for key in wait_keys(id))
    kept = reward is not None and getattr(event_from_row(reward, 0), "quarantine", None) is not None
    return default or (release if kept else reward)


class BehaviorProposal(_AboutDecision):
    """Write what the old policy would do at a decision's context."""

    def __init__(self, id: DecisionId, decision: Decisions, answer: Answer, quarantine: str | None = None) -> None:
        super().__init__(id, decision, quarantine)
        self.answer = Answer(answer.arm, answer.probabilities, self._asked_with())
        self.given_key = f"event:{id}"
        self.keys += tuple(f"retracted:{key}" for key in (self.behavior_key, self.reward_key, self.given_key))

    def settle(self, found: Mapping[str, Row]) -> Outcome:
        """The draft of the answer; ``Known`` for the same answer again, a 409 for another one."""
        row = found.get(self.behavior_key)
        if row is not None:
            recorded = event_from_row(row, 0)
            if not isinstance(recorded, Behavior):
                raise TypeError(f"the key of an answer belongs to {row.kind!r}")
            if _same(recorded.answer, self.answer):
                return self._known(found, self.behavior_key)
            return _conflict("answer", _say(recorded.answer), _say(self.answer))
        given = self._given()
        if given is not None:
            if _same(given, self.answer):
                return Known(Row(self.id.number, "decisions", 0.0, None, ""), f"retracted:{self.given_key}" in found)
            return _conflict("answer", _say(given), _say(self.answer))
        for key, event in ((self.action_key, self._standing_action(found)), (self.reward_key, self._reward(found))):
            if event is not None and event.answer:
                if self.answer.arm == event.arm:
                    return self._known(found, key)
                return _conflict("answer", f"arm {event.arm!r}", _say(self.answer))
        told = Behavior(self.answer, self.id, quarantine=self.quarantine)
        return Draft.of(told, self.behavior_key, about=self._about)


def _same(one: Answer, other: Answer) -> bool:
    return one.arm == other.arm and one.probabilities == other.probabilities


def _say(answer: Answer) -> str:
    return f"arm {answer.arm!r}" if answer.arm is not None else f"probabilities {list(answer.probabilities or ())!r}"


def _conflict(what: str, recorded: str, now: str) -> Problem:
    article = "an" if what[0] in "ae" else "a"
    return Problem(
        "conflict",
        f"this decision already has {article} {what} ({recorded}), and this request says {now}. What was recorded "
        "stays: events are never changed. Check which of the two is right.",
    )


def _arm_needed() -> Problem:
    return invalid(
        "/arm",
        "is missing, and in shadow mode the old policy acts, so the service does not know what was taken",
        "Say which arm was taken",
    )
